//! The thread that asks NVML about one GPU and its MIG slices, and the patience with it.
//!
//! NVML may block for ever on a broken GPU, and a blocked thread can't be ended. So each GPU has a thread of its own: one
//! that hangs ages its own row and no other. It gets the next request only when it has answered the last one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::HostClock;
use super::counters::Counters;
use super::nvml::{Session, unreadable};
use super::process_use::ProcessUse;
use crate::domain::gpu::health::NO_ANSWER;
use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::time::HostTime;

/// An answer that comes later than this is too old to be shown, microseconds.
const STALE: u64 = 3_000_000;

enum Answer {
    /// Facts: of the GPU, and behind it of its MIG slices.
    Infos(Vec<GpuInfo>),
    /// Values of the same.
    Samples(Vec<GpuSample>),
}

/// What the thread is working on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    Nothing,
    Info,
    Sample { since: HostTime },
}

/// The near end of a GPU's thread.
pub(super) struct Lane {
    /// Each with the clock by which it is answered.
    requests: Sender<HostClock>,
    answers: Receiver<Answer>,
    infos: Vec<GpuInfo>,
    pending: Pending,
    /// Whether the request that is pending was made for the sample that is collected next.
    fresh: bool,
    /// An answer, and when it was asked for.
    late: Option<(HostTime, Vec<GpuSample>)>,
}

impl Lane {
    /// Starts the thread, which asks for the facts of the GPU at `index` first.
    pub(super) fn start(library: PathBuf, index: u32) -> Self {
        let (requests, inbox) = channel();
        let (outbox, answers) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("nvml-{index}"))
            .spawn(move || serve(&library, index, &inbox, &outbox));
        let why = match thread {
            Ok(_) => format!("{NO_ANSWER} since the agent started"),
            Err(error) => format!("no thread for NVML: {error}"),
        };
        let infos = vec![unreadable(index, &why)];
        Self { requests, answers, infos, pending: Pending::Info, fresh: false, late: None }
    }

    /// The facts of the GPU and of its slices as known now.
    pub(super) fn infos(&self) -> &[GpuInfo] {
        &self.infos
    }

    /// Waits for the facts. A wait in vain uses `patience` up.
    pub(super) fn settle(&mut self, patience: &mut Duration) {
        while self.pending == Pending::Info {
            let Ok(answer) = self.answers.recv_timeout(*patience) else {
                *patience = Duration::ZERO;
                return;
            };
            self.accept(answer);
        }
    }

    /// Takes what came in the meantime and asks for a sample, unless the thread is still busy. Returns at once.
    pub(super) fn ask(&mut self, now: HostTime, clock: &HostClock) {
        self.late = None;
        while let Ok(answer) = self.answers.try_recv() {
            self.accept(answer);
        }
        if let Some((since, _)) = &self.late
            && now.0.saturating_sub(since.0) > STALE
        {
            self.late = None;
        }
        self.fresh = self.pending == Pending::Nothing && self.late.is_none();
        if self.fresh {
            // A thread that has ended is noticed when its answer is awaited.
            let _ = self.requests.send(Arc::clone(clock));
            self.pending = Pending::Sample { since: now };
        }
    }

    /// One sample for each of the facts. Waits for the answer to a request that was just made, and not at all for one that has missed its
    /// deadline before. A wait in vain uses `patience` up: the others had the same time.
    pub(super) fn collect(
        &mut self,
        patience: &mut Duration,
        deadline: Duration,
        now: HostTime,
    ) -> Vec<GpuSample> {
        loop {
            if let Some((_, samples)) = self.late.take() {
                return self.in_order(samples);
            }
            let wait = if self.fresh { *patience } else { Duration::ZERO };
            match self.answers.recv_timeout(wait) {
                Ok(answer) => self.accept(answer),
                Err(RecvTimeoutError::Timeout) => {
                    if self.fresh {
                        *patience = Duration::ZERO;
                    }
                    return self.without_values(&self.silence(deadline, now));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return self.without_values("the thread that reads NVML has ended");
                }
            }
        }
    }

    fn accept(&mut self, answer: Answer) {
        match (answer, self.pending) {
            (Answer::Infos(infos), _) => {
                self.infos = infos;
                if self.pending == Pending::Info {
                    self.pending = Pending::Nothing;
                }
            }
            (Answer::Samples(samples), Pending::Sample { since }) => {
                self.late = Some((since, samples));
                self.pending = Pending::Nothing;
            }
            // No sample was asked for.
            (Answer::Samples(_), _) => {}
        }
    }

    fn silence(&self, deadline: Duration, now: HostTime) -> String {
        match self.pending {
            Pending::Sample { since } => {
                let waited = Duration::from_micros(now.0.saturating_sub(since.0)).max(deadline);
                format!("{NO_ANSWER} for {:.0} s", waited.as_secs_f64().max(1.0))
            }
            _ => format!("{NO_ANSWER} since the agent started"),
        }
    }

    fn without_values(&self, reason: &str) -> Vec<GpuSample> {
        self.infos.iter().map(|info| GpuSample::failed(info.index, reason)).collect()
    }

    /// The samples in the order of the facts; of a GPU that can't be read, its slices have none.
    fn in_order(&self, samples: Vec<GpuSample>) -> Vec<GpuSample> {
        let mut samples = samples.into_iter().peekable();
        let of = |info: &GpuInfo| {
            let sample = samples.next_if(|sample| sample.index == info.index);
            sample.unwrap_or_else(|| GpuSample::failed(info.index, "its GPU does not tell of it"))
        };
        self.infos.iter().map(of).collect()
    }
}

/// The thread: the facts, then one answer for each request until the near end is gone.
fn serve(library: &Path, index: u32, inbox: &Receiver<HostClock>, outbox: &Sender<Answer>) {
    let session = match Session::open(library) {
        Ok(session) => session,
        Err(absence) => {
            let mut sent = outbox.send(Answer::Infos(vec![unreadable(index, &absence.detail)]));
            while let (Ok(()), Ok(_)) = (sent, inbox.recv()) {
                let failed = GpuSample::failed(index, &absence.detail);
                sent = outbox.send(Answer::Samples(vec![failed]));
            }
            return;
        }
    };
    let mut known = session.infos(index);
    let mut sent = outbox.send(Answer::Infos(known.clone()));
    let mut memories = (Counters::new(index), ProcessUse::default());
    while let (Ok(()), Ok(clock)) = (sent, inbox.recv()) {
        let (samples, changed) = session.samples(index, &known, &mut memories, &clock);
        if changed {
            let now_known = session.infos(index);
            // a GPU that can't be asked while it is being cut keeps its facts, and is asked again with the next sample
            if now_known.first().is_some_and(|gpu| gpu.uuid.is_readable()) {
                known = now_known;
                // a near end that is gone is noticed with the samples
                let _ = outbox.send(Answer::Infos(known.clone()));
            }
        }
        sent = outbox.send(Answer::Samples(samples));
    }
}
