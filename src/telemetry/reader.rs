//! A host's GPUs: one thread for what is true of all of them, one more for each GPU.
//!
//! NVML may block for ever, so no wait for one of the threads is longer than a deadline. Knows nothing of the host
//! beside its GPUs.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::lane::Lane;
use super::nvml::Session;
use super::{HostClock, cuda, topology};
use crate::domain::gpu::topology::Topology;
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason};
use crate::domain::time::HostTime;

/// How long a host without GPU data is left alone before it is asked again, microseconds: a driver may be
/// loaded, repaired or given permission while the agent runs.
const ASK_AGAIN: u64 = 30_000_000;

/// The part of [`crate::domain::host::HostInfo`] that comes from the driver, without the GPUs themselves.
#[derive(Debug, Clone)]
pub(super) struct DriverFacts {
    /// How many GPUs there are.
    count: u32,
    pub(super) absence: Option<GpuAbsence>,
    pub(super) driver: Reading<String>,
    pub(super) cuda_driver: Reading<String>,
    pub(super) nccl: Reading<String>,
    pub(super) topology: Option<Topology>,
}

struct Told {
    facts: DriverFacts,
    /// When nothing will be added to them.
    last: bool,
}

/// The near end of the threads.
pub(super) struct GpuReader {
    library: PathBuf,
    looks: Sender<()>,
    told: Receiver<Told>,
    facts: DriverFacts,
    /// Whether the host's thread has more to tell.
    looking: bool,
    /// When the host was found without GPU data.
    without: Option<HostTime>,
    lanes: Vec<Lane>,
    deadline: Duration,
}

impl GpuReader {
    /// Starts the threads and waits for the facts, at most `start_deadline`. Samples wait at most `deadline`.
    pub(super) fn start(library: PathBuf, start_deadline: Duration, deadline: Duration) -> Self {
        let (looks, inbox) = channel();
        let (outbox, told) = channel();
        let path = library.clone();
        let thread =
            std::thread::Builder::new().name("nvml".to_owned()).spawn(move || serve(&path, &inbox, &outbox));
        let facts = DriverFacts::none(&match &thread {
            Ok(_) => "no answer from NVML since the agent started".to_owned(),
            Err(error) => format!("no thread for NVML: {error}"),
        });
        let looking = thread.is_ok();
        let (without, lanes) = (None, Vec::new());
        let mut reader = Self { library, looks, told, facts, looking, without, lanes, deadline };
        let mut patience = start_deadline;
        reader.hear(&mut patience);
        reader.lanes.iter_mut().for_each(|lane| lane.settle(&mut patience));
        reader
    }

    /// The facts as known now: they may come after the start, and change when a driver comes.
    pub(super) fn facts(&self) -> &DriverFacts {
        &self.facts
    }

    /// The facts of the GPUs, each with its MIG slices behind it.
    pub(super) fn gpus(&self) -> Vec<GpuInfo> {
        self.lanes.iter().flat_map(Lane::infos).cloned().collect()
    }

    /// Takes what came in the meantime and asks for samples. Returns at once.
    pub(super) fn ask(&mut self, now: HostTime, clock: &HostClock) -> Asked {
        self.hear(&mut Duration::from_secs(0));
        self.lanes.iter_mut().for_each(|lane| lane.ask(now, clock));
        if !self.lanes.is_empty() || self.looking {
            return Asked { looks: false };
        }
        let since = *self.without.get_or_insert(now);
        let looks = now.0.saturating_sub(since.0) >= ASK_AGAIN;
        if looks {
            self.without = Some(now);
            self.looking = self.looks.send(()).is_ok();
        }
        Asked { looks }
    }

    /// One sample for each of [`GpuReader::gpus`]. Waits at most the deadline for all of them together.
    pub(super) fn collect(&mut self, asked: Asked, now: HostTime, clock: &HostClock) -> Vec<GpuSample> {
        let mut patience = self.deadline;
        if asked.looks {
            self.hear(&mut patience);
            for lane in &mut self.lanes {
                lane.settle(&mut patience);
                lane.ask(now, clock);
            }
        }
        let deadline = self.deadline;
        self.lanes.iter_mut().flat_map(|lane| lane.collect(&mut patience, deadline, now)).collect()
    }

    /// Takes what the host's thread tells. A wait in vain uses `patience` up.
    fn hear(&mut self, patience: &mut Duration) {
        while self.looking {
            let Ok(Told { facts, last }) = self.told.recv_timeout(*patience) else {
                *patience = Duration::ZERO;
                return;
            };
            if self.lanes.is_empty() {
                let start = |index| Lane::start(self.library.clone(), index);
                self.lanes = (0..facts.count).map(start).collect();
            }
            self.facts = facts;
            self.looking = !last;
        }
    }
}

/// Whether [`GpuReader::ask`] has asked for a driver once more.
#[must_use]
#[derive(Clone, Copy)]
pub(super) struct Asked {
    looks: bool,
}

impl DriverFacts {
    fn none(detail: &str) -> Self {
        Self {
            count: 0,
            absence: Some(GpuAbsence { reason: GpuAbsenceReason::Other, detail: detail.to_owned() }),
            driver: Reading::failed(detail),
            cuda_driver: Reading::failed(detail),
            nccl: Reading::failed(detail),
            topology: None,
        }
    }
}

/// The host's thread: looks for a driver until there is one.
fn serve(library: &Path, inbox: &Receiver<()>, outbox: &Sender<Told>) {
    while !introduce(library, outbox) {
        if inbox.recv().is_err() {
            return;
        }
    }
}

/// Opens NVML and tells: first how many GPUs there are, then the versions of the CUDA libraries, which may take long to load
/// from a slow file system, and last how the GPUs are connected. `false` where there is no GPU data.
fn introduce(library: &Path, outbox: &Sender<Told>) -> bool {
    let opened = Session::open(library);
    let pending = || Reading::failed("not looked up yet");
    let mut facts = match &opened {
        Ok(session) => DriverFacts {
            count: session.count(),
            absence: None,
            driver: session.driver(),
            cuda_driver: pending(),
            nccl: pending(),
            topology: None,
        },
        Err(absence) => DriverFacts {
            count: 0,
            absence: Some(absence.clone()),
            driver: match absence.reason {
                GpuAbsenceReason::NoLibrary => Reading::Unsupported,
                _ => Reading::failed(&absence.detail),
            },
            cuda_driver: pending(),
            nccl: pending(),
            topology: None,
        },
    };
    // A send fails when the near end is gone; the next look tells.
    let tell = |facts: &DriverFacts, last| drop(outbox.send(Told { facts: facts.clone(), last }));
    tell(&facts, false);
    let session = opened.ok();
    (facts.cuda_driver, facts.nccl) = cuda_facts(session.as_ref());
    if let Some(session) = &session {
        tell(&facts, false);
        facts.topology = topology::of(session);
    }
    tell(&facts, true);
    session.is_some()
}

/// On a host with neither NVML nor libcuda both questions are moot: not supported, rather than failed.
fn cuda_facts(session: Option<&Session>) -> (Reading<String>, Reading<String>) {
    let cuda = cuda::driver_version();
    if session.is_none() && cuda.is_err() {
        return (Reading::Unsupported, Reading::Unsupported);
    }
    // NVML asks the same driver, and may be installed without libcuda.
    let cuda = cuda.or_else(|reason| session.and_then(Session::cuda_driver).ok_or(reason));
    let reading = |result: Result<String, String>| result.map_or_else(Reading::failed, Reading::Value);
    (reading(cuda), reading(cuda::nccl_version()))
}
