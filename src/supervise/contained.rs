//! The supervisor's part of a run whose ranks are in containers: their processes are no children of it.

use super::process_set;
use super::state::{Started, started_file};
use super::supervisor::Supervisor;
use crate::procs::table::{self, Process};

impl Supervisor {
    /// Whether a process of the run is in a container, and so no child of this one.
    pub(super) fn is_inside(&self) -> bool {
        self.spec.container().is_some()
            && !process_set::inside(&self.dir, &self.spec, &table::all()).is_empty()
    }

    /// The processes that are to end where ranks are in containers: those inside; of a rank that has none yet, the engine's
    /// client, which hands a signal on. The clients of the others end with their containers, and tell how.
    pub(super) fn inside(&self) -> Vec<Process> {
        let all = table::all();
        let mut inside = process_set::inside(&self.dir, &self.spec, &all);
        let mut found = Vec::new();
        for rank in self.spec.ranks.iter().map(|rank| rank.rank) {
            if let Some(processes) = inside.remove(&rank) {
                found.extend(processes);
                continue;
            }
            let started = self.dir.read_json::<Started>(&started_file(rank)).ok().flatten();
            let client = started.filter(|started| started.process.alive());
            let client = client.map(|started| started.process.pid);
            found.extend(all.iter().filter(|process| Some(process.pid) == client).cloned());
        }
        found
    }
}
