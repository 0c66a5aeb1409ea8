//! The thread that talks to NVML, and the patience with it.
//!
//! NVML may block for ever on a broken GPU, and a blocked thread can't be ended. So there is one thread, it
//! gets the next request only when it has answered the last one, and nobody waits for it longer than a
//! deadline. Knows nothing of the host beside its GPUs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::cuda;
use super::nvml::Session;
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason};
use crate::domain::time::HostTime;

/// An answer that comes later than this is too old to be shown, microseconds.
const STALE: u64 = 3_000_000;

/// How long a host without GPU data is left alone before it is asked again, microseconds: a driver may be
/// loaded, repaired or given permission while the agent runs.
const ASK_AGAIN: u64 = 30_000_000;

/// No GPU is being asked: NVML as a whole is.
const NO_GPU: u32 = u32::MAX;

/// The part of [`crate::domain::host::HostInfo`] that comes from the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuFacts {
    pub(super) gpus: Vec<GpuInfo>,
    pub(super) absence: Option<GpuAbsence>,
    pub(super) driver: Reading<String>,
    pub(super) cuda_driver: Reading<String>,
    pub(super) nccl: Reading<String>,
}

enum Answer {
    /// `last` when nothing will be added to them.
    Facts {
        facts: Box<GpuFacts>,
        last: bool,
    },
    Sample(Vec<GpuSample>),
}

/// What the thread is working on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    Facts,
    Sample { since: HostTime },
}

/// The near end of the thread.
pub(super) struct GpuReader {
    requests: Sender<HostTime>,
    answers: Receiver<Answer>,
    /// The index of the GPU that is being asked now.
    asking: Arc<AtomicU32>,
    facts: GpuFacts,
    pending: Pending,
    deadline: Duration,
    late: Option<(HostTime, Vec<GpuSample>)>,
}

impl GpuReader {
    /// Starts the thread and waits for the facts, at most `start_deadline`. Samples wait at most `deadline`.
    pub(super) fn start(library: PathBuf, start_deadline: Duration, deadline: Duration) -> Self {
        let (requests, inbox) = channel();
        let (outbox, answers) = channel();
        let asking = Arc::new(AtomicU32::new(NO_GPU));
        let facts = GpuFacts::none("NVML has not answered since the agent started");
        let mut reader =
            Self { requests, answers, asking, facts, pending: Pending::Facts, deadline, late: None };
        let progress = Arc::clone(&reader.asking);
        let thread = std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || serve(&library, &inbox, &outbox, &progress));
        if let Err(error) = thread {
            reader.facts = GpuFacts::none(&format!("no thread for NVML: {error}"));
            return reader;
        }
        while reader.pending == Pending::Facts {
            match reader.answers.recv_timeout(start_deadline) {
                Ok(answer) => reader.accept(answer),
                Err(_) => break,
            }
        }
        reader
    }

    /// The facts as known now: they may come after the start, and change when a driver comes.
    pub(super) fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// Takes what came in the meantime and asks for a sample, unless the thread is still busy. Returns at once.
    pub(super) fn ask(&mut self, now: HostTime) -> Asked {
        self.late = None;
        while let Ok(answer) = self.answers.try_recv() {
            self.accept(answer);
        }
        if let Some((since, _)) = &self.late
            && now.0.saturating_sub(since.0) > STALE
        {
            self.late = None;
        }
        if self.pending != Pending::Nothing || self.late.is_some() {
            return Asked(false);
        }
        // A thread that has ended is noticed when its answer is awaited.
        let _ = self.requests.send(now);
        self.pending = Pending::Sample { since: now };
        Asked(true)
    }

    /// One sample per GPU of the facts. Waits for the answer to a request that was just made, and not at all
    /// for one that has missed its deadline before.
    pub(super) fn collect(&mut self, asked: Asked, now: HostTime) -> Vec<GpuSample> {
        let patience = if asked.0 { self.deadline } else { Duration::ZERO };
        loop {
            if let Some((_, samples)) = self.late.take() {
                return samples;
            }
            match self.answers.recv_timeout(patience) {
                Ok(answer) => self.accept(answer),
                Err(RecvTimeoutError::Timeout) => return self.without_values(&self.silence(now)),
                Err(RecvTimeoutError::Disconnected) => {
                    return self.without_values("the thread that reads NVML has ended");
                }
            }
        }
    }

    fn accept(&mut self, answer: Answer) {
        match (answer, self.pending) {
            (Answer::Facts { facts, last }, pending) => {
                self.facts = *facts;
                if last && pending == Pending::Facts {
                    self.pending = Pending::Nothing;
                }
            }
            (Answer::Sample(samples), Pending::Sample { since }) => {
                self.late = Some((since, samples));
                self.pending = Pending::Nothing;
            }
            // No sample was asked for.
            (Answer::Sample(_), _) => {}
        }
    }

    fn silence(&self, now: HostTime) -> String {
        let who = match self.asking.load(Ordering::Relaxed) {
            NO_GPU => String::new(),
            index => format!(" (GPU {index})"),
        };
        match self.pending {
            Pending::Sample { since } => {
                let waited = Duration::from_micros(now.0.saturating_sub(since.0)).max(self.deadline);
                format!("NVML has not answered for {:.0} s{who}", waited.as_secs_f64().max(1.0))
            }
            _ => format!("NVML has not answered since the agent started{who}"),
        }
    }

    fn without_values(&self, reason: &str) -> Vec<GpuSample> {
        self.facts.gpus.iter().map(|gpu| GpuSample::failed(gpu.index, reason)).collect()
    }
}

/// Whether [`GpuReader::ask`] made a request.
#[must_use]
#[derive(Clone, Copy)]
pub(super) struct Asked(bool);

impl GpuFacts {
    fn none(detail: &str) -> Self {
        Self {
            gpus: Vec::new(),
            absence: Some(GpuAbsence { reason: GpuAbsenceReason::Other, detail: detail.to_owned() }),
            driver: Reading::failed(detail),
            cuda_driver: Reading::failed(detail),
            nccl: Reading::failed(detail),
        }
    }
}

/// The thread: facts, then one answer for each request until the near end is gone.
fn serve(library: &Path, inbox: &Receiver<HostTime>, outbox: &Sender<Answer>, asking: &AtomicU32) {
    let Some((session, asked)) = wait_for_driver(library, inbox, outbox, asking) else { return };
    let mut memories = session.memories();
    for now in asked.into_iter().chain(inbox) {
        let samples = memories.iter_mut().zip(0..).map(|(memories, index)| {
            asking.store(index, Ordering::Relaxed);
            session.sample(index, memories, now)
        });
        let samples = samples.collect();
        asking.store(NO_GPU, Ordering::Relaxed);
        if outbox.send(Answer::Sample(samples)).is_err() {
            return;
        }
    }
}

/// NVML as soon as it can be opened, and the request that is not answered yet. Until then samples are empty.
fn wait_for_driver(
    library: &Path,
    inbox: &Receiver<HostTime>,
    outbox: &Sender<Answer>,
    asking: &AtomicU32,
) -> Option<(Session, Option<HostTime>)> {
    if let Some(session) = introduce(library, outbox, asking) {
        return Some((session, None));
    }
    let mut opened: Option<HostTime> = None;
    for now in inbox {
        let last = *opened.get_or_insert(now);
        if now.0.saturating_sub(last.0) >= ASK_AGAIN {
            opened = Some(now);
            if let Some(session) = introduce(library, outbox, asking) {
                return Some((session, Some(now)));
            }
        }
        outbox.send(Answer::Sample(Vec::new())).ok()?;
    }
    None
}

/// Opens NVML and sends the facts: first the GPUs, then once more with the versions of the CUDA libraries,
/// which may take long to load from a slow file system.
fn introduce(library: &Path, outbox: &Sender<Answer>, asking: &AtomicU32) -> Option<Session> {
    let opened = Session::open(library);
    let pending = || Reading::failed("not looked up yet");
    let mut facts = match &opened {
        Ok(session) => GpuFacts {
            gpus: (0..session.count())
                .map(|index| {
                    asking.store(index, Ordering::Relaxed);
                    session.info(index)
                })
                .collect(),
            absence: None,
            driver: session.driver(),
            cuda_driver: pending(),
            nccl: pending(),
        },
        Err(absence) => GpuFacts {
            gpus: Vec::new(),
            absence: Some(absence.clone()),
            driver: match absence.reason {
                GpuAbsenceReason::NoLibrary => Reading::Unsupported,
                _ => Reading::failed(&absence.detail),
            },
            cuda_driver: pending(),
            nccl: pending(),
        },
    };
    asking.store(NO_GPU, Ordering::Relaxed);
    // Nobody listens any more when a send fails; the caller's own next send tells.
    let _ = outbox.send(Answer::Facts { facts: Box::new(facts.clone()), last: false });
    let session = opened.ok();
    (facts.cuda_driver, facts.nccl) = cuda_facts(session.as_ref());
    let _ = outbox.send(Answer::Facts { facts: Box::new(facts), last: true });
    session
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
