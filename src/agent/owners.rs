//! To which runs the processes on GPUs belong, and so to whom: by the container that they run in, which a run's own files
//! name, else by the run that stands in their environment. Knows only the runs of this user.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::gpu::{GpuProcess, Reading, RunOfProcess};
use crate::domain::host::HostSample;
use crate::procs::marks;
use crate::supervise::container;

/// The runs of processes.
#[derive(Debug)]
pub(super) struct Owners {
    state_dir: PathBuf,
    /// What was found for each container of the last sample. An engine writes the id before anything runs inside, so
    /// that one which is no run's stays so.
    containers: BTreeMap<String, Option<RunOfProcess>>,
}

impl Owners {
    /// Of the runs whose files are below this folder.
    pub(super) fn new(state_dir: PathBuf) -> Self {
        Self { state_dir, containers: BTreeMap::new() }
    }

    /// Writes their runs to the processes of a sample, which `user` asked for.
    pub(super) fn tell(&mut self, sample: &mut HostSample, user: &str) {
        let before = std::mem::take(&mut self.containers);
        for gpu in &mut sample.gpus {
            let Reading::Value(processes) = &mut gpu.processes else { continue };
            for process in processes {
                self.of(process, &before, user);
            }
        }
    }

    fn of(&mut self, process: &mut GpuProcess, before: &BTreeMap<String, Option<RunOfProcess>>, user: &str) {
        let contained = process.container.as_ref().and_then(|id| {
            let known = self.containers.get(id).or_else(|| before.get(id)).cloned();
            let run = known.unwrap_or_else(|| container::rank_of(&self.state_dir, id));
            self.containers.insert(id.clone(), run.clone());
            run
        });
        if contained.is_some() {
            // as whom it runs inside says nothing: root, or a number that the engine maps to
            process.user = Reading::Value(user.to_owned());
        }
        process.run = contained.or_else(|| marks::run_of(process.pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::supervise::rundir::RunDir;

    #[test]
    fn a_process_in_a_container_of_a_run_is_its_users() {
        let state = tempfile::tempdir().unwrap();
        let state_dir = state.path().join("hvtui");
        let run = RunId::new(7, 7);
        let dir = RunDir::create(&state_dir, &run, &HostId::from("a")).unwrap();
        let id = "59c313908f42a99f81af69f8da18101c6ecdf9a4295558101a309be60327ae28";
        std::fs::write(dir.path().join("rank-3.cid"), id).unwrap();
        let mut owners = Owners::new(state_dir);
        let mut process = |container: &str| {
            let mut process = GpuProcess {
                user: Reading::Value("root".to_owned()),
                container: Some(container.to_owned()),
                // above the kernel's largest pid
                ..GpuProcess::unknown(4_194_305)
            };
            owners.of(&mut process, &BTreeMap::new(), "li");
            process
        };
        let ours = process("59c313908f42");
        assert_eq!(ours.run, Some(RunOfProcess { id: run, rank: Some(Rank(3)) }));
        assert_eq!(ours.user, Reading::Value("li".to_owned()));
        let other = process("0123456789ab");
        assert_eq!((other.run, other.user), (None, Reading::Value("root".to_owned())));
        assert_eq!(owners.containers.len(), 2, "neither is looked for again");
    }
}
