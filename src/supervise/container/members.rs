//! The processes inside a run's containers: by their control groups, whose names hold the container's id, whatever the
//! engine. Reads no memory of theirs, so none of them can make this wait.

use std::time::Duration;

use rustix::process::Signal;

use super::cid_file;
use crate::domain::ids::Rank;
use crate::procs::status;
use crate::procs::table::{self, Process};
use crate::supervise::rundir::RunDir;

/// Shorter ids are none of an engine's.
const SHORTEST: usize = 32;
/// Between two rounds of KILL, and how many at most.
const ROUND: Duration = Duration::from_millis(20);
const ROUNDS: u32 = 250;

/// The containers of some ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    ids: Vec<(Rank, String)>,
}

impl Members {
    /// Those of these ranks that have one.
    pub(in crate::supervise) fn of(dir: &RunDir, ranks: impl IntoIterator<Item = Rank>) -> Self {
        let id = |rank| {
            let text = std::fs::read_to_string(dir.path().join(cid_file(rank))).ok()?;
            let id = text.trim();
            let is_one = id.len() >= SHORTEST && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_one.then(|| (rank, id.to_owned()))
        };
        Self { ids: ranks.into_iter().filter_map(id).collect() }
    }

    /// Those of `all` that are inside, each with its rank.
    pub(in crate::supervise) fn among<'a>(
        &'a self,
        all: &'a [Process],
    ) -> impl Iterator<Item = (Rank, &'a Process)> {
        let known = all.iter().filter(|_| !self.ids.is_empty());
        known.filter_map(|process| Some((self.holder(process.pid)?, process)))
    }

    fn holder(&self, pid: u32) -> Option<Rank> {
        let groups = status::cgroups(pid)?;
        self.ids.iter().find(|(_, id)| is_in(&groups, id)).map(|(rank, _)| *rank)
    }

    /// Ends all of them, until none is left or KILL does not end it.
    pub(super) fn kill(&self) {
        for _ in 0..ROUNDS {
            let all = table::all();
            let mut found = self.among(&all).peekable();
            if found.peek().is_none() {
                return;
            }
            for (_, process) in found {
                process.signal(Signal::KILL);
            }
            std::thread::sleep(ROUND);
        }
    }
}

/// Whether these control groups are of this container: `/docker/ID`, `/system.slice/docker-ID.scope`,
/// `/libpod_parent/libpod-ID`, and what the container has made below.
fn is_in(groups: &str, id: &str) -> bool {
    // conmon, podman's own process, has a group beside its container's
    groups.lines().any(|line| line.split('/').any(|part| part.contains(id) && !part.contains("conmon")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_found_in_the_groups_of_every_engine() {
        let id = "59c313908f42a99f81af69f8da18101c6ecdf9a4295558101a309be60327ae28";
        let of = |group: &str| is_in(&format!("8:pids:{group}\n0::/\n"), id);
        assert!(of(&format!("/docker/{id}")));
        assert!(of(&format!("/docker/{id}/inner")));
        assert!(is_in(&format!("0::/system.slice/docker-{id}.scope\n"), id));
        assert!(of(&format!("/user.slice/user@1000.service/user.slice/libpod-{id}.scope/container")));
        assert!(!of(&format!("/user.slice/libpod-conmon-{id}.scope")));
        assert!(!of("/docker/other"));
    }
}
