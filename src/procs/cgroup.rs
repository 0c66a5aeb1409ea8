//! A control group of its own for the ranks of a run, where the kernel and the host's administrator allow one:
//! then the kernel itself ends all that is in it at once, and says when it is empty.
//!
//! Only the ranks and what they start live in it, never the supervisor or the rank-wraps, which must outlive them.
//! Knows nothing of when a run is stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::domain::ids::{HostId, RunId};

/// The second version's control group of this process.
pub(crate) fn own() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&membership, &mounts, None)
}

/// The directory of the control group that holds the process whose `/proc/PID/cgroup` is `membership`: of the
/// second version, or of the first version's `controller`.
pub(crate) fn locate(membership: &str, mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match controller {
            None => controllers.is_empty(),
            Some(name) => controllers.split(',').any(|one| one == name),
        };
        ours.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1).unwrap_or_default());
        let ours = match controller {
            None => kind == "cgroup2",
            Some(name) => kind == "cgroup" && options.split(',').any(|one| one == name),
        };
        let mut place = place.split(' ').skip(3);
        let (root, mount) = (place.next()?, place.next()?);
        // A container may see only a part of the tree, and this process may be outside of it.
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| ours)?;
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| Path::new(mount).join(below))
    })
}

/// A run's control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one below this process's own. `None` where that is not allowed, which is common.
    pub(crate) fn make(run: &RunId, host: &HostId) -> Option<Self> {
        let path = own()?.join(format!("hvtui-{run}-{host}"));
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        let cgroup = Self { path };
        // Making it is one right, moving a process into it and out again is another: tried out at once.
        if cgroup.enter().and_then(|()| cgroup.leave()).is_err() {
            let _ = cgroup.leave();
            cgroup.remove();
            return None;
        }
        Some(cgroup)
    }

    /// One that was made earlier; `None` when it is gone.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        path.join("cgroup.procs").exists().then(|| Self { path: path.to_owned() })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process in: its next children are born there.
    pub(crate) fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Moves this process back to where it came from.
    pub(crate) fn leave(&self) -> io::Result<()> {
        let parent = self.path.parent().unwrap_or(&self.path);
        fs::write(parent.join("cgroup.procs"), std::process::id().to_string())
    }

    /// The processes in it and in those below it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for folder in self.family() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        }
        pids
    }

    /// The kernel's word that something still lives in it.
    pub(crate) fn populated(&self) -> bool {
        let events = fs::read_to_string(self.path.join("cgroup.events"));
        // Gone is empty: a control group with a process can't be removed.
        events.is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
    }

    /// Ends all that is in it at once, forks under way included. Before Linux 5.14 this does nothing.
    pub(crate) fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Removes it; it stays while something lives in it.
    pub(crate) fn remove(&self) {
        for folder in self.family().into_iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }

    /// Itself and those below it, which a rank may have made; parents first.
    fn family(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.path.clone()];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            folders.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        folders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "24 1 0:21 / /sys rw - sysfs sysfs rw\n\
        30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n\
        31 24 0:27 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn a_group_is_found_where_it_is_mounted() {
        let find = |membership: &str, controller| locate(membership, MOUNTS, controller);
        let both = "4:memory:/docker/x/y\n0::/user.slice/a\n";
        assert_eq!(find(both, None), Some("/sys/fs/cgroup/unified/user.slice/a".into()));
        assert_eq!(find(both, Some("memory")), Some("/sys/fs/cgroup/memory/y".into()));
        assert_eq!(find(both, Some("pids")), None);
        assert_eq!(find("4:memory:/elsewhere\n", Some("memory")), None, "outside of what is mounted");
        assert_eq!(find("0::/../other\n", None), None);
        assert_eq!(find("", None), None);
    }
}
