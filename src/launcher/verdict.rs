//! Which rank failed first, and a sentence about it. Pure.

use std::collections::BTreeMap;

use crate::domain::ids::Rank;
use crate::domain::run::{RankExit, RunOutcome, RunSpec};
use crate::domain::time::Stamp;

/// Exit code of a run that somebody else's `hvtui stop` ended: 128 + SIGTERM.
const STOPPED_ELSEWHERE: i32 = 143;

/// The outcome of a run whose ranks have all ended. Times are on one clock; of ranks that failed by
/// themselves the first one is the root cause, the others are collateral.
pub fn outcome(spec: &RunSpec, exits: &BTreeMap<Rank, (Stamp, RankExit)>) -> RunOutcome {
    let failed = exits.iter().filter(|(_, (_, exit))| exit.shell_code() != 0);
    let first =
        failed.clone().filter(|(_, (_, exit))| !exit.stopped).min_by_key(|(rank, (at, _))| (*at, **rank));
    if let Some((root, (_, exit))) = first {
        let place = spec.placements.get(root.0 as usize).map(ToString::to_string).unwrap_or_default();
        let others: Vec<Rank> = failed.map(|(rank, _)| *rank).filter(|rank| rank != root).collect();
        let collateral = match others.len() {
            0 => String::new(),
            1 => format!("; rank {} stopped because of it", ranges(&others)),
            _ => format!("; ranks {} stopped because of it", ranges(&others)),
        };
        let first = if spec.world() > 1 { " failed first" } else { " failed" };
        return RunOutcome {
            code: exit.shell_code(),
            root: Some(*root),
            summary: format!("rank {root} ({place}){first}: {}{collateral}", exit.describe()),
        };
    }
    if exits.values().any(|(_, exit)| exit.stopped && exit.shell_code() != 0) {
        return RunOutcome { code: STOPPED_ELSEWHERE, root: None, summary: "stopped".to_owned() };
    }
    let ranks = if spec.world() == 1 { "the rank".to_owned() } else { format!("all {} ranks", spec.world()) };
    RunOutcome { code: 0, root: None, summary: format!("{ranks} finished") }
}

/// `0-2, 5` for 0, 1, 2, 5.
pub fn ranges(ranks: &[Rank]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank.0) => *last = rank.0,
            _ => parts.push((rank.0, rank.0)),
        }
    }
    let texts = parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    texts.collect::<Vec<_>>().join(", ")
}
