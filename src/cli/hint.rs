//! What a person may do next about a run that failed or hangs.

use std::collections::BTreeSet;
use std::path::Path;

use crate::domain::run::RunSpec;
use crate::domain::stacks::Alike;
use crate::domain::symptoms;
use crate::domain::world::RunState;

/// Hosts that are named; of more, all are looked at.
const HOSTS: usize = 8;

/// How the file of its command comes to where its ranks look for it, where they did not find it; else the doctor's checks that
/// look for the cause of what it said, on the run's hosts; `None` where none fits.
pub(crate) fn hint(run: &RunState) -> Option<String> {
    // one that is not here either was written wrongly
    if let Some(file) = symptoms::missing_file(run).filter(|file| Path::new(file).exists()) {
        let folder = run.spec.workdir.as_deref().unwrap_or("the folder");
        return Some(format!(
            "{file} is not in {folder} in which the ranks ran: --sync . copies this folder to the hosts, --workdir DIR names one that they \
             have"
        ));
    }
    words(&symptoms::checks(run), symptoms::missing_module(run), &run.spec)
}

/// Those that look for what can keep a run's processes where they stand.
pub(crate) fn hint_of_hang(groups: &[Alike<'_>], spec: &RunSpec) -> Option<String> {
    words(symptoms::of_hang(groups), None, spec)
}

fn words(checks: &[&str], module: Option<&str>, spec: &RunSpec) -> Option<String> {
    if checks.is_empty() {
        return None;
    }
    let hosts: BTreeSet<_> = spec.hosts().into_iter().collect();
    let mut words = vec![format!("what may be wrong there: hvtui doctor --only {}", checks.join(","))];
    words.extend(module.filter(|_| checks.contains(&"python")).map(|module| format!("--module {module}")));
    if hosts.len() <= HOSTS {
        words.extend(hosts.iter().map(|host| format!("-H {host}")));
    }
    Some(words.join(" "))
}
