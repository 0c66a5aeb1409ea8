//! A session whose runs are recorded: what the UI and `hvtui run` both work with.
//!
//! Each run has a recording of its own, with the events of the run and of its hosts. What the hosts said
//! before the run began (facts, link, clock) is written first, stamped with the run's beginning: a replay knows it
//! and does not begin earlier.
//!
//! Where ranks print faster than a recording is written, events are handed out at the pace of that: the links feel it and
//! the hosts keep the rest. A disk that stands still is not waited for, neither when a recording begins nor when it ends: who
//! owns the session finishes those of runs that have ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::clock;
use crate::domain::alerts::AlertRules;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::position::Past;
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};
use crate::launcher::session::{Output, Session};
use crate::record::{Error, Flush, Recorder, Store, weight};
use crate::tui::source::catch_up::CatchUp;
use crate::tui::source::lookout::Lookout;
use crate::tui::source::takeup::TakenUp;

/// Clock samples kept per host for the beginning of a recording: what the clock filter looks back over.
const CLOCK_SAMPLES: usize = 32;

/// How long a recording that is behind is left alone before the next look.
const LOOK: Duration = Duration::from_millis(5);
/// A recording that has taken nothing for so long stands still.
const STANDS_STILL_US: u64 = 1_000_000;

/// No more bytes than these wait for a disk that stands still, as a recorder counts them.
const MOST_WAITING: usize = 24 << 20;

/// Beside a recording: the list of what was copied to the hosts for its run.
pub const TREE_FILE: &str = "tree";

/// A session and the recordings of its runs.
#[derive(Debug)]
pub struct Recorded {
    session: Session,
    store: Store,
    /// What a recording may take, bytes, where it is said.
    cap: Option<u64>,
    /// Under which rules of alerts states of long runs are kept beside their recordings.
    rules: Option<Arc<AlertRules>>,
    active: BTreeMap<RunId, Active>,
    /// Runs that are followed and not recorded here.
    unrecorded: BTreeSet<RunId>,
    /// Of those, the ones that another client records.
    elsewhere: BTreeMap<RunId, Lookout>,
    known: BTreeMap<HostId, Known>,
    ended: Vec<Ended>,
    troubles: VecDeque<String>,
    /// Words of other threads, most of them recorders' on their troubles with what lies beside a recording.
    beside: (Sender<String>, Receiver<String>),
}

/// The recording of a run that has ended; it is still to be finished.
#[derive(Debug)]
pub struct Ended {
    run: RunId,
    recorder: Recorder,
    /// What was not sent to it yet.
    left: VecDeque<Envelope>,
    told: Told,
}

/// What has been told already of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// Nothing more is written.
    error: bool,
    /// Something is left out.
    left_out: bool,
}

/// A recording that was finished.
#[derive(Debug)]
pub struct Finished {
    run: RunId,
    /// What went wrong, unless it was told before.
    trouble: Option<String>,
    /// It failed, so the file ends before the run.
    failed: bool,
}

impl Finished {
    /// What went wrong, unless it was told before.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl Ended {
    /// The end of a recording: what is left of it is written from now on.
    pub(super) fn new(run: RunId, recorder: Recorder, left: VecDeque<Envelope>, told: Told) -> Self {
        if left.is_empty() {
            recorder.close();
        }
        Self { run, recorder, left, told }
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn path(&self) -> &Path {
        self.recorder.path()
    }

    /// Waits until what is left of it is written.
    pub fn finish(self) -> Finished {
        for envelope in self.left {
            // one that writes nothing more takes all that comes
            while self.recorder.backlog().is_some() && !self.recorder.is_over() {
                std::thread::sleep(LOOK);
            }
            self.recorder.send(envelope);
        }
        let trouble = match self.recorder.finish() {
            Ok(stats) => {
                let why = stats.left_out.filter(|_| !self.told.left_out);
                let trouble = why.map(|why| no_longer_whole(&self.run, &why));
                return Finished { run: self.run, trouble, failed: false };
            }
            Err(_) if self.told.error => None,
            Err(Error::NotStarted(error)) => Some(not_recorded(&self.run, &error)),
            Err(error) => Some(no_longer_whole(&self.run, &error.to_string())),
        };
        Finished { run: self.run, failed: trouble.is_some(), trouble }
    }
}

#[derive(Debug)]
struct Active {
    recorder: Recorder,
    /// What stands between a number of the session and the recording's: it may hold what earlier clients wrote.
    base: u64,
    /// How far it had come when it was first seen there, while it is behind.
    stood: Option<(u64, HostTime)>,
    told: Told,
    hosts: BTreeSet<HostId>,
    /// What it catches up with waits here until it is in order …
    catch_up: Option<CatchUp>,
    /// … and then until the recorder can take it.
    waiting: Waiting,
}

/// Envelopes that a recorder has no room for yet.
#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<Envelope>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, envelope: Envelope) {
        self.bytes += weight(&envelope);
        self.all.push_back(envelope);
    }

    fn pop(&mut self) -> Option<Envelope> {
        let envelope = self.all.pop_front()?;
        self.bytes -= weight(&envelope).min(self.bytes);
        Some(envelope)
    }
}

impl Active {
    /// Records an envelope, in its turn.
    fn send(&mut self, envelope: Envelope) {
        match &mut self.catch_up {
            Some(catch_up) => {
                let (older, is_present) = catch_up.take(envelope);
                for envelope in older {
                    self.waiting.push(envelope);
                }
                if is_present {
                    self.catch_up = None;
                }
            }
            // it never waits; where there is no room it drops and counts
            None if self.waiting.all.is_empty() => self.recorder.send(envelope),
            None => self.waiting.push(envelope),
        }
        self.pass_on();
        while self.waiting.bytes > MOST_WAITING
            && let Some(envelope) = self.waiting.pop()
        {
            self.recorder.send(envelope);
        }
    }

    /// Gives the recorder what it can take.
    fn pass_on(&mut self) {
        while self.recorder.backlog().is_none()
            && let Some(envelope) = self.waiting.pop()
        {
            self.recorder.send(envelope);
        }
    }
}

/// What a recording must know of a host from the start.
#[derive(Debug, Default)]
struct Known {
    link: Option<Envelope>,
    described: Option<Envelope>,
    sampled: Option<Envelope>,
    leases: Option<Envelope>,
    clocks: VecDeque<Envelope>,
}

impl Recorded {
    /// Records the runs of `session` below `state_dir`.
    pub fn new(session: Session, state_dir: &Path) -> Self {
        Self {
            session,
            store: Store::new(state_dir),
            cap: None,
            rules: None,
            active: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            known: BTreeMap::new(),
            ended: Vec::new(),
            troubles: VecDeque::new(),
            beside: channel(),
        }
    }

    /// A recording may take so many bytes; the recorder's own choice when `None`.
    pub fn limit(&mut self, cap: Option<u64>) {
        self.cap = cap;
    }

    /// States of long runs are kept beside their recordings, with alerts by these rules, so that a replay opens at once.
    pub fn keep_states(&mut self, rules: Arc<AlertRules>) {
        self.rules = Some(rules);
    }

    /// The session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The next output, recorded already. Cancel-safe.
    pub async fn next(&mut self) -> Output {
        while self.is_behind() {
            tokio::time::sleep(LOOK).await;
        }
        let output = self.session.next().await;
        self.record(&output);
        output
    }

    /// An output that is there already, recorded; none while a recording is behind.
    pub fn try_next(&mut self) -> Option<Output> {
        if self.is_behind() {
            return None;
        }
        let output = self.session.try_next()?;
        self.record(&output);
        Some(output)
    }

    /// Takes up a run where its recording ends: streams the rest and goes on recording. `false` when the
    /// session follows it already.
    pub fn attach(&mut self, spec: RunSpec, taken: TakenUp, past: Past) -> bool {
        let (run, hosts) = (spec.id.clone(), spec.hosts().into_iter().collect());
        if self.active.contains_key(&run) {
            return false;
        }
        let position = taken.recap.position;
        self.troubles.extend(taken.trouble);
        let catch_up = CatchUp::new(&spec, position.last_at);
        if let Some(recorder) = taken.recorder {
            self.activate(run, recorder, position.next_seq, hosts, clock::now(), Some(catch_up));
        } else {
            if taken.is_recorded_elsewhere {
                self.look_out(run.clone());
            }
            self.unrecorded.insert(run);
        }
        self.session.attach(spec, position, past)
    }

    /// What is known of a run by now is put on the disk, if it is recorded here.
    pub fn flush(&self, run: &RunId) -> Option<Flush> {
        self.active.get(run).map(|active| active.recorder.flush())
    }

    /// Says once more of a run that is followed without a recording when nothing records it.
    pub fn look_again(&mut self, run: &RunId) {
        if self.elsewhere.contains_key(run) {
            self.look_out(run.clone());
        }
    }

    fn look_out(&mut self, run: RunId) {
        let lookout = Lookout::begin(run.clone(), self.store.path_of(&run), self.beside.0.clone());
        self.elsewhere.insert(run, lookout);
    }

    /// Whether a run is recorded here, or was up to its end.
    pub fn is_recorded(&self, run: &RunId) -> bool {
        !self.unrecorded.contains(run)
    }

    /// What went wrong with recordings: a sentence each, once. Runs go on without.
    pub fn trouble(&mut self) -> Option<String> {
        for (run, active) in &mut self.active {
            let status = active.recorder.status();
            if let Some(why) = status.left_out.filter(|_| !active.told.left_out) {
                active.told.left_out = true;
                self.troubles.push_back(no_longer_whole(run, &why));
            }
            if let Some(error) = status.error.filter(|_| !active.told.error) {
                active.told.error = true;
                if status.opened {
                    self.troubles.push_back(no_longer_whole(run, &error));
                } else {
                    self.unrecorded.insert(run.clone());
                    self.troubles.push_back(not_recorded(run, &error));
                }
            }
        }
        self.troubles.extend(self.beside.1.try_iter());
        self.troubles.pop_front()
    }

    /// The recordings of runs that have ended since the last call: each is to be finished.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// A recording was finished.
    pub fn finished(&mut self, finished: Finished) {
        if finished.failed {
            self.unrecorded.insert(finished.run);
        }
        self.troubles.extend(finished.trouble);
    }

    /// Ends all recordings, for nothing more is going to be recorded: each is to be finished.
    pub fn close(&mut self) {
        let runs: Vec<RunId> = self.active.keys().cloned().collect();
        for run in &runs {
            self.end(run);
        }
    }

    /// Whether a recording is to be waited for.
    fn is_behind(&mut self) -> bool {
        self.active.values_mut().any(|active| {
            active.pass_on();
            let Some(taken) = active.recorder.backlog() else {
                active.stood = None;
                return false;
            };
            let now = clock::host_now();
            match active.stood {
                Some((before, since)) if before == taken => now.0.saturating_sub(since.0) < STANDS_STILL_US,
                _ => {
                    active.stood = Some((taken, now));
                    true
                }
            }
        })
    }

    fn record(&mut self, output: &Output) {
        let Output::Event(envelope) = output else {
            return;
        };
        if let (Origin::Run(run), Event::RunCreated { spec }) = (&envelope.origin, &envelope.event)
            && !self.active.contains_key(run)
            && !self.unrecorded.contains(run)
        {
            self.begin(run.clone(), spec, envelope.at);
        }
        for (run, active) in &mut self.active {
            let concerned = match &envelope.origin {
                Origin::Host(host) => active.hosts.contains(host),
                origin => origin.run() == Some(run),
            };
            if concerned {
                active.send(Envelope { seq: envelope.seq + active.base, ..(**envelope).clone() });
            }
        }
        match (&envelope.origin, &envelope.event) {
            (Origin::Host(host), event) => {
                self.known.entry(host.clone()).or_default().remember(envelope, event);
            }
            (Origin::Run(run), Event::RunEnded { .. }) => self.end(run),
            _ => {}
        }
    }

    /// Begins a recording, and keeps the list of what was copied to the hosts beside it, so that it can be told later what
    /// has changed.
    fn begin(&mut self, run: RunId, spec: &RunSpec, at: Stamp) {
        let path = self.store.path_of(&run);
        let tree = spec.code.as_ref().and_then(|code| code.tree);
        let folder = tree.and_then(|tree| self.session.folder(tree));
        let (file, troubles) = (path.with_file_name(TREE_FILE), self.beside.0.clone());
        let keep_tree = move || {
            if let Some(folder) = folder
                && let Err(error) = std::fs::write(&file, folder.manifest.encode())
            {
                // it may be listened to no more
                let _ = troubles.send(format!("{} was not written: {error}", file.display()));
            }
        };
        match Recorder::start(path, keep_tree) {
            Ok(recorder) => self.activate(run, recorder, 0, spec.hosts().into_iter().collect(), at, None),
            Err(error) => {
                self.troubles.push_back(not_recorded(&run, &error.to_string()));
                self.unrecorded.insert(run);
            }
        }
    }

    /// Records from now on; begins with what is known of the hosts.
    fn activate(
        &mut self,
        run: RunId,
        recorder: Recorder,
        base: u64,
        hosts: BTreeSet<HostId>,
        at: Stamp,
        catch_up: Option<CatchUp>,
    ) {
        if let Some(cap) = self.cap {
            recorder.limit(cap);
        }
        if let Some(rules) = &self.rules {
            recorder.keep_states(Arc::clone(rules));
        }
        let (stood, waiting) = (None, Waiting::default());
        let mut active = Active { recorder, base, stood, told: Told::default(), hosts, catch_up, waiting };
        let mut before: Vec<&Envelope> =
            active.hosts.iter().filter_map(|host| self.known.get(host)).flat_map(Known::all).collect();
        before.sort_by_key(|envelope| envelope.seq);
        for envelope in before {
            active.send(Envelope { at, seq: envelope.seq + base, ..envelope.clone() });
        }
        self.active.insert(run, active);
    }

    fn end(&mut self, run: &RunId) {
        self.elsewhere.remove(run);
        if let Some((run, Active { recorder, told, catch_up, waiting, .. })) = self.active.remove_entry(run) {
            let rest = catch_up.map(|mut catch_up| catch_up.rest()).unwrap_or_default();
            let left = waiting.all.into_iter().chain(rest).collect();
            self.ended.push(Ended::new(run, recorder, left, told));
        }
    }
}

fn not_recorded(run: &RunId, error: &str) -> String {
    format!("run {} is not recorded: {error}", run.short())
}

fn no_longer_whole(run: &RunId, error: &str) -> String {
    format!("recording of run {} is not whole: {error}", run.short())
}

impl Known {
    fn remember(&mut self, envelope: &Envelope, event: &Event) {
        match event {
            Event::LinkChanged { .. } => self.link = Some(envelope.clone()),
            Event::HostDescribed { .. } => self.described = Some(envelope.clone()),
            Event::HostSampled { .. } => self.sampled = Some(envelope.clone()),
            Event::LeasesTold { .. } => self.leases = Some(envelope.clone()),
            Event::ClockSampled { .. } => {
                if self.clocks.len() == CLOCK_SAMPLES {
                    self.clocks.pop_front();
                }
                self.clocks.push_back(envelope.clone());
            }
            _ => {}
        }
    }

    fn all(&self) -> impl Iterator<Item = &Envelope> {
        self.link.iter().chain(&self.described).chain(&self.leases).chain(&self.sampled).chain(&self.clocks)
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
