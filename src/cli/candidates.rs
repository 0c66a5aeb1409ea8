//! What a shell offers for a word that is a name of the user's own: hosts, recipes, runs, checks. The shell's script asks this
//! program each time; a hosts file with faults, or none, is no fault here: nothing is offered then.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};

use super::paths::Paths;
use crate::config::{self, HostsFile};
use crate::doctor;
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::record::Store;

/// How many of the newest runs are offered.
const RUNS: usize = 50;
/// The most columns of what stands beside a name.
const BESIDE: usize = 60;

/// Names of the newest runs; their short ids where one is begun.
pub(super) fn runs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(typed), Ok(paths)) = (typed.to_str(), Paths::of_user()) else { return Vec::new() };
    let recordings = Store::new(&paths.state).newest(RUNS);
    let mut offered: Vec<CompletionCandidate> = Vec::new();
    if !recordings.is_empty() && "last".starts_with(typed) {
        offered.push(CompletionCandidate::new("last").help(Some("the newest run".into())));
    }
    for run in &recordings {
        let beside = format!("{} {}", run.spec.id.short(), run.spec.command.join(" "));
        let mut offer = |name: &str| {
            let is_known = offered.iter().any(|known| known.get_value() == name);
            if name.starts_with(typed) && !is_known {
                let beside = middle_cut(&sanitize(&beside), BESIDE);
                offered.push(CompletionCandidate::new(name).help(Some(beside.into())));
            }
        };
        offer(&run.spec.name);
        if !typed.is_empty() {
            offer(run.spec.id.short());
        }
    }
    offered
}

/// Runs, else files: recordings and traces.
pub(super) fn runs_and_files(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = runs(typed);
    offered.extend(PathCompleter::file().complete(typed));
    offered
}

/// Hosts of the hosts file, behind what is written of a list before: `gpu-a:2,`.
pub(super) fn hosts(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let begin = typed.rfind([',', ';']).map_or(0, |at| at + 1);
    let (before, typed) = typed.split_at(begin);
    let taken = |name: &str| before.split([',', ';']).any(|one| one.split(':').next() == Some(name));
    let hosts = hosts_file().map(|file| file.hosts).unwrap_or_default();
    let names =
        hosts.iter().map(|host| host.id.as_str()).filter(|name| name.starts_with(typed) && !taken(name));
    names.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
}

/// Recipes of the hosts file.
pub(super) fn recipes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let recipes = hosts_file().map(|file| file.recipes).unwrap_or_default();
    let named = recipes.iter().filter(|recipe| recipe.name.starts_with(typed));
    let beside = |words: &[String]| middle_cut(&sanitize(&words.join(" ")), BESIDE);
    named
        .map(|recipe| CompletionCandidate::new(&recipe.name).help(Some(beside(&recipe.command).into())))
        .collect()
}

/// The doctor's checks.
pub(super) fn checks(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let names = std::iter::once("ssh").chain(doctor::CHECKS.iter().map(|entry| entry.name));
    names.filter(|name| name.starts_with(typed)).map(CompletionCandidate::new).collect()
}

/// Files and folders, for a command to run and its arguments.
pub(super) fn files(typed: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::any().complete(typed)
}

/// The hosts file that the line names, else the one that it would use.
fn hosts_file() -> Option<HostsFile> {
    let paths = Paths::of_user().ok()?;
    let here = std::env::current_dir().ok()?;
    let source = config::find(named_file(std::env::args_os()).as_deref(), &here, &paths.config);
    config::load(&source, &paths.home).ok()
}

/// `--hosts FILE`.
fn named_file(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| word != "--hosts" && !is_joined(word));
    let option = words.next()?;
    match option.to_str()?.split_once('=') {
        Some((_, file)) => Some(PathBuf::from(file)),
        None => words.next().filter(|file| !file.is_empty()).map(PathBuf::from),
    }
}

fn is_joined(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| word.starts_with("--hosts="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_of_the_line_counts() {
        let file = |line: &str| named_file(line.split(' ').map(OsString::from));
        assert_eq!(file("hvtui -- hvtui --hosts my.toml run -H "), Some(PathBuf::from("my.toml")));
        assert_eq!(file("hvtui -- hvtui run --hosts=my.toml -H "), Some(PathBuf::from("my.toml")));
        assert_eq!(file("hvtui -- hvtui run -H "), None);
    }
}
