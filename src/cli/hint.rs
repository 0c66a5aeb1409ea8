//! What a person may do next about a run that failed or hangs.

use std::collections::BTreeSet;
use std::path::Path;

use super::again::hosts_option;
use crate::domain::run::{OF_GROUP, RunSpec};
use crate::domain::stacks::Alike;
use crate::domain::world::{RunState, World};
use crate::domain::{symptoms, told_address};
use crate::program::resolve_python_of;

/// Hosts that are named; of more, all are looked at.
const HOSTS: usize = 8;

/// How the file of its command comes to where its ranks look for it, where they did not find it; else the doctor's checks that
/// look for the cause of what it said, on the run's hosts; `None` where none fits.
pub(crate) fn hint(run: &RunState, world: &World) -> Option<String> {
    // one that is not here either was written wrongly
    if let Some(file) = symptoms::missing_file(run).filter(|file| Path::new(file).exists()) {
        let folder = run.spec.workdir.as_deref().unwrap_or("the folder");
        return Some(format!(
            "{file} is not in {folder} in which the ranks ran: --sync . copies this folder to the hosts, --workdir DIR names one that they \
             have"
        ));
    }
    let mut checks = symptoms::checks(run);
    let has_failed =
        run.outcome.as_ref().is_some_and(|outcome| !outcome.is_stopped() && outcome.exit_code() != 0);
    let nowhere = has_failed.then(|| told_address::leads_nowhere(run, world)).flatten();
    if nowhere.is_some() && !checks.contains(&"interface") {
        checks.insert(0, "interface");
    }
    if checks.is_empty()
        && let Some((host, exit)) = symptoms::killed(run)
    {
        return Some(after_a_kill(host.as_str(), exit.cause.as_deref()));
    }
    let module = symptoms::missing_module(run);
    let looked = words(&checks, module, &run.spec)?;
    let python = module.and_then(|_| python_here(&run.spec));
    let looked = python.map_or(looked.clone(), |python| format!("{looked}; {python}"));
    Some(nowhere.map_or(looked.clone(), |nowhere| format!("{nowhere}; {looked}")))
}

/// Which file the Python of a run on this machine was, where nothing was activated for it: `python3 is /usr/bin/python3`.
fn python_here(spec: &RunSpec) -> Option<String> {
    let options = &spec.options;
    let program =
        spec.command.first().filter(|program| program.starts_with("python") && !program.contains('/'))?;
    let is_here = spec.hosts().iter().all(|host| host.as_str() == "local");
    let has_own_path =
        !options.environments.is_empty() || options.container.is_some() || spec.env.contains_key("PATH");
    if !is_here || has_own_path {
        return None;
    }
    let (path, folder) = (std::env::var_os("PATH"), std::env::current_dir().ok()?);
    let of = options.python_of.as_deref();
    let file = resolve_python_of(of, program, path.as_deref(), &folder, Path::new("hvtui")).ok()?;
    Some(format!("{program} is {}", file.display()))
}

/// Those that look for what can keep a run's processes where they stand.
pub(crate) fn hint_of_hang(groups: &[Alike<'_>], spec: &RunSpec) -> Option<String> {
    words(symptoms::of_hang(groups), None, spec)
}

/// What tells who sent SIGKILL, which no program can tell itself.
fn after_a_kill(host: &str, cause: Option<&str>) -> String {
    if cause == Some(OF_GROUP) {
        return "its control group had no memory left: more of it from the scheduler or for the container, or fewer workers of its data \
                loader, or smaller batches"
            .to_owned();
    }
    format!(
        "SIGKILL comes from outside of the program: from the kernel for want of memory (on {host}: sudo dmesg -T | grep -i 'killed \
         process'), from a scheduler, or from a person"
    )
}

fn words(checks: &[&str], module: Option<&str>, spec: &RunSpec) -> Option<String> {
    if checks.is_empty() {
        return None;
    }
    let hosts: BTreeSet<_> = spec.hosts().into_iter().collect();
    let mut words =
        vec![format!("what may be wrong there: hvtui {}doctor --only {}", hosts_option(), checks.join(","))];
    words.extend(module.filter(|_| checks.contains(&"python")).map(|module| format!("--module {module}")));
    if hosts.len() <= HOSTS {
        words.extend(hosts.iter().map(|host| format!("-H {host}")));
    }
    Some(words.join(" "))
}
