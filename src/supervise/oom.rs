//! Whether the kernel has ended a process for want of memory: counts before and after, since it is not told.
//!
//! The count of a process's own control group is evidence; the whole host's is a hint, and is called one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::run::OF_GROUP;
use crate::procs::cgroup::locate;

/// The counts at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kills {
    /// The file with the count of the nearest control group that counts memory, and the count.
    group: Option<(PathBuf, u64)>,
    /// Of the whole host.
    host: Option<u64>,
}

impl Kills {
    /// Now, for this process.
    pub(super) fn now() -> Self {
        let file = group_file();
        let count = file.as_deref().and_then(count_in);
        let host = count_in(Path::new(HOST));
        Self { group: file.zip(count), host }
    }

    /// What has happened since in its control group, in words; `None` when nothing has.
    pub(super) fn of_group(&self) -> Option<&'static str> {
        let grown = self.group.as_ref().is_some_and(|(file, before)| grown(file, *before));
        grown.then_some(OF_GROUP)
    }

    /// What has happened since anywhere on the host.
    pub(super) fn of_host(&self) -> Option<&'static str> {
        let grown = self.host.is_some_and(|before| grown(Path::new(HOST), before));
        grown.then_some("perhaps out of memory: the host's kernel ended a process for that meanwhile")
    }
}

const HOST: &str = "/proc/vmstat";

fn grown(file: &Path, before: u64) -> bool {
    count_in(file).is_some_and(|now| now > before)
}

/// The nearest file that counts kills: `memory.events` of the second version, which counts what happens below
/// it too, or `memory.oom_control` of the first one.
fn group_file() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let second = locate(&membership, &mounts, None).and_then(|own| {
        own.ancestors().map(|folder| folder.join("memory.events")).find(|file| file.exists())
    });
    second.or_else(|| {
        let first = locate(&membership, &mounts, Some("memory"))?.join("memory.oom_control");
        first.exists().then_some(first)
    })
}

fn count_in(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_grows_is_told() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("memory.events");
        fs::write(&file, "low 0\noom 3\noom_kill 2\n").unwrap();
        let at = |group: u64, host: u64| Kills { group: Some((file.clone(), group)), host: Some(host) };
        assert_eq!((at(2, u64::MAX).of_group(), at(2, u64::MAX).of_host()), (None, None));
        assert_eq!(at(1, u64::MAX).of_group(), Some("out of memory (cgroup)"));
        let none = Kills { group: None, host: None };
        assert_eq!((none.of_group(), none.of_host()), (None, None));
        assert!(count_in(Path::new(HOST)).is_some());
    }
}
