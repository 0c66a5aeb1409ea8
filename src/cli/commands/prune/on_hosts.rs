//! Runs that hosts alone know: another machine launched them, or their recordings were deleted here. Knows nothing of how
//! they are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Asked, Listing, Surplus};
use crate::cli::json::moment;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::RunSpec;
use crate::domain::run_status::{HostRunStatus, RunStatus};
use crate::domain::text::about;
use crate::domain::time::Stamp;

/// The runs that have a recording here, be it an empty or an unreadable one.
pub(super) fn ids(listing: &Listing) -> BTreeSet<RunId> {
    let readable = listing.runs.iter().map(|run| &run.spec.id);
    readable.chain(listing.unreadable.iter().map(|empty| &empty.run)).cloned().collect()
}

/// Runs without a recording here of which nothing has been written on any host for longer than `limit`, newest first.
pub(super) fn surplus(limit: Duration, why: &str, recorded: &BTreeSet<RunId>, asked: &Asked) -> Vec<Surplus> {
    let told = asked.inventory.shares.iter().rev().filter(|(run, _)| !recorded.contains(run));
    told.filter_map(|(run, shares)| {
        let quiet_s = shares.values().map(|share| share.quiet_s).min().flatten()?;
        let is_old = Duration::from_secs(quiet_s) > limit;
        is_old.then(|| of_hosts(run, shares, why.to_owned(), asked))
    })
    .collect()
}

fn of_hosts(run: &RunId, shares: &BTreeMap<HostId, HostRunStatus>, why: String, asked: &Asked) -> Surplus {
    let spec = asked.inventory.spec(run).cloned();
    let at = spec.as_ref().map_or_else(|| Stamp(run.unix_ms().cast_signed() * 1000), |spec| spec.created);
    let name = shares.values().next().map(|share| share.name.clone()).unwrap_or_default();
    Surplus {
        run: run.clone(),
        name,
        created: moment(at),
        recorded: false,
        bytes: 0,
        why,
        hosts: shares.keys().cloned().collect(),
        stays: reason_to_stay(spec.as_ref(), asked),
        deleted: false,
        at,
        unnamed: Vec::new(),
        spec,
    }
}

/// Why a run must not be deleted: it may go on where this machine does not look.
fn reason_to_stay(spec: Option<&RunSpec>, asked: &Asked) -> Option<String> {
    let Some(spec) = spec else {
        return Some(
            "which other hosts it has is not known: prune on the machine that launched it".to_owned(),
        );
    };
    let unheard: Vec<String> = asked.inventory.unheard(spec).iter().map(ToString::to_string).collect();
    match asked.inventory.status(spec, None) {
        RunStatus::Ended => None,
        RunStatus::Running => Some("it is running".to_owned()),
        RunStatus::Unknown => Some(format!("it may be running: {} did not answer", unheard.join(", "))),
    }
}

/// Hosts that told nothing, those left out that are told of anyhow: what they alone know was not seen.
pub(super) fn silent(asked: &Asked, told: &BTreeMap<HostId, String>) -> Vec<String> {
    let silent = asked.silent.iter().filter(|(host, ..)| !told.contains_key(host));
    silent
        .map(|(host, _, reason)| about(host, &format!("{reason}: runs that it alone knows stay there")))
        .collect()
}
