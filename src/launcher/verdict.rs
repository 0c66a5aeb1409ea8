//! Which rank failed first, and a sentence about it. Pure.

use std::collections::BTreeMap;

use crate::domain::blame;
use crate::domain::ids::Rank;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RankExit, RunSpec};
use crate::domain::time::Stamp;
use crate::domain::units::ranges;

/// The outcome of a run whose ranks have all ended. Times are on one clock; of ranks that failed by
/// themselves the first one is the root cause, the others are collateral.
pub fn outcome(spec: &RunSpec, exits: &BTreeMap<Rank, (Stamp, RankExit)>) -> RunOutcome {
    let failed = exits.iter().filter(|(_, (_, exit))| exit.shell_code() != 0);
    let first =
        failed.clone().filter(|(_, (_, exit))| !exit.stopped).min_by_key(|(rank, (at, _))| (*at, **rank));
    let unnamed =
        first.and_then(|(_, (_, exit))| exit.cause.clone().filter(|cause| blame::is_unnamed(cause)));
    if let (Some((_, (_, exit))), Some(summary)) = (first, unnamed) {
        return RunOutcome { code: Some(exit.shell_code()), ..RunOutcome::new(RunEnd::Failed, summary) };
    }
    if let Some((root, (_, exit))) = first {
        let place = spec.placements.get(root.0 as usize).map(ToString::to_string).unwrap_or_default();
        let others = |stopped: bool| -> Vec<Rank> {
            let of_kind = failed.clone().filter(|(rank, (_, exit))| *rank != root && exit.stopped == stopped);
            of_kind.map(|(rank, _)| *rank).collect()
        };
        let words = |ranks: &[Rank], what: &str| match ranks {
            [] => String::new(),
            [rank] => format!("; rank {rank} {what}"),
            several => format!("; ranks {} {what}", ranges(several.iter().map(|rank| rank.0))),
        };
        let failed_too = words(&others(false), "failed too");
        let collateral = failed_too + &words(&others(true), "stopped because of it");
        let first = if spec.world() > 1 { " failed first" } else { " failed" };
        let summary = format!("rank {root} ({place}){first}: {}{collateral}", exit.describe());
        return RunOutcome::failed(*root, exit.shell_code(), summary);
    }
    if exits.values().any(|(_, exit)| exit.stopped && exit.shell_code() != 0) {
        return RunOutcome::new(RunEnd::StoppedElsewhere, "stopped");
    }
    let ranks = if spec.world() == 1 { "the rank".to_owned() } else { format!("all {} ranks", spec.world()) };
    RunOutcome::new(RunEnd::Finished, format!("{ranks} finished"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;
    use crate::launcher::fixtures::{cpu_host, one_each};

    fn spec() -> RunSpec {
        one_each(&["a", "b", "c", "d"].map(|name| cpu_host(name, 1)))
    }

    fn exits(list: &[(u32, i64, i32, bool)]) -> BTreeMap<Rank, (Stamp, RankExit)> {
        let exit = |(rank, at, code, stopped): &(u32, i64, i32, bool)| {
            let exit = RankExit {
                code: Some(*code),
                signal: None,
                t: HostTime(0),
                error: None,
                stopped: *stopped,
                cause: None,
            };
            (Rank(*rank), (Stamp(*at), exit))
        };
        list.iter().map(exit).collect()
    }

    #[test]
    fn a_failure_that_the_launcher_gives_to_no_rank_is_no_ranks() {
        let mut exits = exits(&[(0, 1, 5, false), (1, 1, 5, false)]);
        for (_, exit) in exits.values_mut() {
            exit.cause = Some(blame::unnamed("mpirun: a process returned a non-zero exit code"));
        }
        let outcome = outcome(&spec(), &exits);
        assert_eq!((outcome.end, outcome.code, outcome.root), (RunEnd::Failed, Some(5), None));
        let said = "mpirun: a process returned a non-zero exit code: which rank, it does not say";
        assert_eq!(outcome.summary, said);
    }

    #[test]
    fn the_earliest_that_failed_by_itself_is_the_root_and_of_two_at_once_the_lower_rank() {
        let outcome = |list| outcome(&spec(), &exits(list));
        let later = outcome(&[(0, 9, 1, false), (1, 5, 3, false), (2, 1, 143, true), (3, 2, 0, false)]);
        assert_eq!((later.end, later.code, later.root), (RunEnd::Failed, Some(3), Some(Rank(1))));
        assert_eq!(
            later.summary,
            "rank 1 (b:0) failed first: exit 3; rank 0 failed too; rank 2 stopped because of it"
        );
        let both = outcome(&[(2, 5, 4, false), (1, 5, 3, false), (3, 6, 143, true)]);
        assert_eq!(both.root, Some(Rank(1)));
        assert_eq!(
            both.summary,
            "rank 1 (b:0) failed first: exit 3; rank 2 failed too; rank 3 stopped because of it"
        );
        let stopped = outcome(&[(0, 1, 143, true), (1, 1, 0, true)]);
        assert_eq!((stopped.end, stopped.code, stopped.root), (RunEnd::StoppedElsewhere, None, None));
        let done = outcome(&[(0, 1, 0, false), (1, 1, 0, false), (2, 1, 0, false), (3, 1, 0, false)]);
        assert_eq!(
            (done.end, done.code, done.summary.as_str()),
            (RunEnd::Finished, None, "all 4 ranks finished")
        );
    }
}
