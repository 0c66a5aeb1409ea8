//! What a person may do next about a run that failed.

use std::collections::BTreeSet;

use crate::domain::symptoms;
use crate::domain::world::RunState;

/// Hosts that are named; of more, all are looked at.
const HOSTS: usize = 8;

/// The doctor's checks that look for the cause of what it said, on the run's hosts; `None` where none fits.
pub(crate) fn hint(run: &RunState) -> Option<String> {
    let checks = symptoms::checks(run);
    if checks.is_empty() {
        return None;
    }
    let hosts: BTreeSet<_> = run.spec.hosts().into_iter().collect();
    let mut words = vec![format!("what may be wrong there: hvtui doctor --only {}", checks.join(","))];
    if hosts.len() <= HOSTS {
        words.extend(hosts.iter().map(|host| format!("-H {host}")));
    }
    Some(words.join(" "))
}
