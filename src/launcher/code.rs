//! The code of a launch that copies nothing, as far as it is on this machine too: in which folder it lies, and git's facts of it.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{host_names, script};
use crate::config::HostConfig;
use crate::domain::ids::HostId;
use crate::domain::sync::Code;
use crate::sync::git;

/// How long git may be silent: the launch does not wait for a large repository.
const GIT: Duration = Duration::from_millis(100);
/// How long it may take in all; a folder may lie on a file system that hangs.
const PATIENCE: Duration = Duration::from_millis(500);

/// Finds the code of launches to some hosts.
#[derive(Debug, Clone)]
pub struct CodeFinder {
    /// The hosts that there are.
    pub hosts: Vec<HostConfig>,
}

impl CodeFinder {
    /// What is known of the code before the hosts are: git's facts of its folder, where they are there at once. `named` are the
    /// hosts that the launch names: all where there are none. Reads this machine's files.
    pub fn find(&self, command: &[String], workdir: Option<&str>, named: &[HostId]) -> Option<Code> {
        let here = std::env::current_dir().ok()?;
        let folder = folder(command, workdir, &chosen(named, &self.hosts), &here)?;
        let (answer, answers) = mpsc::channel();
        // what comes later comes to none
        let look = move || drop(answer.send(git::code(&folder, GIT)));
        thread::Builder::new().name("git".to_owned()).spawn(look).ok()?;
        answers.recv_timeout(PATIENCE).ok().filter(|code| !code.is_empty())
    }
}

/// The hosts that a launch names, else all.
pub fn chosen<'a>(named: &[HostId], hosts: &'a [HostConfig]) -> Vec<&'a HostConfig> {
    if named.is_empty() {
        return hosts.iter().collect();
    }
    named.iter().filter_map(|id| host_names::find(id, hosts)).collect()
}

/// The folder of this machine that holds the code of a launch to `hosts`, as far as its paths tell: that of the script, the
/// folder in which ranks start, and where all of them are on this machine `cwd`. Other hosts begin in the user's home
/// folder: nothing of theirs is known here.
fn folder(command: &[String], workdir: Option<&str>, hosts: &[&HostConfig], cwd: &Path) -> Option<PathBuf> {
    let shared = || {
        let first = hosts.first()?.workdir.as_deref()?;
        hosts.iter().all(|host| host.workdir.as_deref() == Some(first)).then_some(first)
    };
    let is_here = !hosts.is_empty() && hosts.iter().all(|host| host.is_local());
    let folder = match workdir.or_else(shared) {
        Some(folder) => Some(if is_here { cwd.join(here(folder)?) } else { here(folder)? }),
        None => is_here.then(|| cwd.to_owned()),
    };
    let folder = folder.filter(|folder| folder.is_absolute());
    let Some(script) = script::path_of(command) else { return folder };
    let script = folder.map_or_else(|| script.to_owned(), |folder| folder.join(script));
    script.is_absolute().then(|| script.parent().map(Path::to_owned)).flatten()
}

/// `~` is the user's home folder.
pub(super) fn here(folder: &str) -> Option<PathBuf> {
    match folder.strip_prefix('~') {
        Some(rest) => std::env::home_dir().map(|home| home.join(rest.trim_start_matches('/'))),
        None => Some(PathBuf::from(folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    #[test]
    fn the_code_is_where_the_script_lies_or_the_ranks_start() {
        let local = HostConfig::this_machine();
        let remote = HostConfig { address: Address::Ssh("gpu-a".to_owned()), ..HostConfig::this_machine() };
        let set = HostConfig { workdir: Some("/data/proj".to_owned()), ..remote.clone() };
        let folder = |hosts: &[&HostConfig], workdir: Option<&str>, command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let folder = super::folder(&words, workdir, hosts, Path::new("/here"));
            folder.map(|folder| folder.display().to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(folder(&[&local], None, "python t.py"), some("/here"));
        assert_eq!(folder(&[&local], Some("w"), "python sub/t.py"), some("/here/w/sub"));
        assert_eq!(folder(&[&remote], None, "python t.py"), None, "they begin at home there");
        assert_eq!(folder(&[&local, &remote], None, "python /p/t.py"), some("/p"));
        assert_eq!(folder(&[&remote], Some("/w"), "python t.py"), some("/w"));
        assert_eq!(folder(&[&set, &set], None, "./train"), some("/data/proj"));
        assert_eq!(folder(&[&set, &remote], None, "./train"), None);
    }
}
