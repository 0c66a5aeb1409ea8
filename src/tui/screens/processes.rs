//! The processes on GPUs as rows of a list: those of a host or GPU on Detail, those of a user on Users.

use crate::domain::gpu::{GpuProcess, Reading};
use crate::domain::ids::HostId;
use crate::domain::world::HostState;
use crate::tui::screens::Model;

/// By what a row is known while samples come and go: the host, the GPU's index, the pid.
pub type ProcessId = (HostId, u32, u32);

/// A process on one GPU. One that uses several is several rows.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRow<'a> {
    /// Where.
    pub host: &'a HostId,
    /// The GPU's index.
    pub gpu: u32,
    /// The GPU's place in the host's list.
    pub place: usize,
    /// The process.
    pub process: &'a GpuProcess,
}

impl ProcessRow<'_> {
    /// Its row.
    pub fn id(&self) -> ProcessId {
        (self.host.clone(), self.gpu, self.process.pid)
    }
}

/// The processes of a host, or of the GPU at `place` of it, in the order of its GPUs; and why some are not told.
pub fn of_host<'a>(
    (host, state): (&'a HostId, &'a HostState),
    place: Option<usize>,
) -> (Vec<ProcessRow<'a>>, Option<String>) {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let gpus = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
    for (at, gpu) in gpus.iter().enumerate().filter(|(at, _)| place.is_none_or(|place| place == *at)) {
        match &gpu.processes {
            Reading::Value(processes) => {
                let row = |process| ProcessRow { host, gpu: gpu.index, place: at, process };
                rows.extend(processes.iter().map(row));
            }
            Reading::Failed { error } => failures.push((gpu.index, error.as_str())),
            Reading::Unsupported => failures.push((gpu.index, "n/a")),
        }
    }
    let words = |(index, why): (u32, &str)| match place {
        Some(_) => why.to_owned(),
        None => format!("GPU {index}: {why}"),
    };
    let failures: Vec<String> = failures.into_iter().map(words).collect();
    (rows, (!failures.is_empty()).then(|| failures.join(" · ")))
}

/// The row of this id, while it is there.
pub fn find<'a>(model: &'a Model, (host, gpu, pid): &ProcessId) -> Option<ProcessRow<'a>> {
    let state = model.world.hosts.get_key_value(host)?;
    let (rows, _) = of_host(state, None);
    rows.into_iter().find(|row| row.gpu == *gpu && row.process.pid == *pid)
}
