//! A session whose runs are recorded: what the UI and `hvtui run` both work with.
//!
//! Each run has a recording of its own, with the events of the run and of its hosts. What the hosts said
//! before the run began (facts, link, clock) is written first, stamped with the run's beginning: a replay knows it
//! and does not begin earlier.
//!
//! Each event of a run that is followed is told and recorded with the time at which it happened. While they come late, what hosts tell
//! of themselves waits for those of the time before it, so that the recording is in the order of time; what waits is lost with a client
//! that is killed.
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
use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::resume_point::Backfill;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::launcher::session::{Output, Session};
use crate::record::{Flush, Recorder, Status, Store};
use crate::tui::source::active::Active;
use crate::tui::source::behind::{Behind, is_of_now};
use crate::tui::source::ended::{Ended, Finished, no_longer_whole, not_recorded};
use crate::tui::source::event_times::EventTimes;
use crate::tui::source::lookout::Lookout;
use crate::tui::source::resume::Resumed;

/// Clock samples kept per host for the beginning of a recording: what the clock filter looks back over.
const CLOCK_SAMPLES: usize = 32;

/// How long a recording that is behind is left alone before the next look.
const LOOK: Duration = Duration::from_millis(5);

/// So many outputs are taken in one go where nothing of them is told.
const TAKEN_AT_ONCE: usize = 256;

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
    /// When the events of runs that are followed happened.
    times: BTreeMap<RunId, EventTimes>,
    /// Runs that were attached to, until what their hosts tell of the time before that is in order.
    behind: BTreeMap<RunId, Behind>,
    /// What is to be told next.
    told: VecDeque<Told>,
    /// Runs that are followed and not recorded here.
    unrecorded: BTreeSet<RunId>,
    /// Of those, the ones that another client records.
    elsewhere: BTreeMap<RunId, Lookout>,
    known: BTreeMap<HostId, HostBaseline>,
    ended: Vec<Ended>,
    troubles: VecDeque<String>,
    /// Words of other threads, most of them recorders' on their troubles with what lies beside a recording.
    beside: (Sender<String>, Receiver<String>),
}

/// What a recorded session tells.
#[derive(Debug)]
pub enum Told {
    /// An output of the session, given to the recorder already or waiting to be.
    Output(Output),
    /// How a run that was attached to stands, now that it has caught up: its events before were not told.
    CaughtUp(Box<RunState>),
}

/// What a recording must know of a host from the start.
#[derive(Debug, Default)]
struct HostBaseline {
    link: Option<Envelope>,
    described: Option<Envelope>,
    sampled: Option<Envelope>,
    leases: Option<Envelope>,
    clocks: VecDeque<Envelope>,
    /// Its clock on the client's.
    clock: ClockFit,
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
            times: BTreeMap::new(),
            behind: BTreeMap::new(),
            told: VecDeque::new(),
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

    /// Forgets the launches that have not become runs, and stops the `unread` ones that have, and those that were not told yet, as
    /// [`Session::forget_launches`].
    pub fn forget_launches(&mut self, mut unread: Vec<RunId>) {
        self.told.retain(|told| {
            let Told::Output(Output::Launched(run)) = told else { return true };
            unread.push(run.clone());
            false
        });
        self.session.forget_launches(unread);
    }

    /// What is told next. Cancel-safe.
    pub async fn next(&mut self) -> Told {
        loop {
            while self.awaits_recorder() {
                tokio::time::sleep(LOOK).await;
            }
            let is_folded = self.fold();
            if let Some(told) = self.told.pop_front() {
                return told;
            }
            if !is_folded {
                tokio::task::yield_now().await;
                continue;
            }
            let now = clock::host_now();
            let wait = self.behind.values().filter_map(|behind| behind.wait_us(now)).min();
            tokio::select! {
                biased;
                output = self.session.next() => self.take(output),
                () = tokio::time::sleep(Duration::from_micros(wait.unwrap_or_default())), if wait.is_some() => {
                    self.look_at_clock();
                }
            }
        }
    }

    /// What is there to be told already; nothing while a recording is behind, or where a run catches up with much.
    pub fn try_next(&mut self) -> Option<Told> {
        for _ in 0..TAKEN_AT_ONCE {
            if self.awaits_recorder() {
                return None;
            }
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            let output = self.session.try_next()?;
            self.take(output);
        }
        None
    }

    /// Attaches to a run where its recording ends: streams the rest and goes on recording. `false` when the
    /// session follows it already.
    pub fn attach(&mut self, spec: RunSpec, resumed: Resumed, backfill: Backfill) -> bool {
        let behind = Behind::new(&spec, &resumed.resume_state.resume_point, clock::host_now());
        self.resume(spec, resumed, backfill, behind)
    }

    /// The same for who shows it: gives how it is shown until it is told that it has caught up.
    pub(super) fn attach_shown(
        &mut self,
        spec: RunSpec,
        mut resumed: Resumed,
        backfill: Backfill,
    ) -> RunState {
        let world = std::mem::take(&mut resumed.resume_state.world);
        let behind = Behind::new(&spec, &resumed.resume_state.resume_point, clock::host_now());
        let (behind, at_first) = behind.shown(&spec, world);
        self.resume(spec, resumed, backfill, behind);
        at_first
    }

    fn resume(&mut self, spec: RunSpec, resumed: Resumed, backfill: Backfill, behind: Behind) -> bool {
        let run = spec.id.clone();
        if self.active.contains_key(&run) {
            return false;
        }
        self.times.insert(run.clone(), EventTimes::new(&spec));
        let resume_point = resumed.resume_state.resume_point;
        self.troubles.extend(resumed.trouble);
        if let Some(recorder) = resumed.recorder {
            let hosts = behind.hosts.clone();
            self.behind.insert(run.clone(), behind);
            self.activate(&run, recorder, resume_point.next_seq, hosts, clock::now());
        } else {
            if resumed.is_recorded_elsewhere {
                self.look_out(run.clone());
            }
            if behind.is_shown() {
                self.behind.insert(run.clone(), behind);
                self.tell_known(&run, clock::now());
            }
            self.unrecorded.insert(run);
        }
        self.session.attach(spec, resume_point, backfill)
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

    /// How the recordings go that are being written.
    pub fn statuses(&self) -> impl Iterator<Item = Status> {
        self.active.values().map(|active| active.recorder.status())
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
        for (run, behind) in std::mem::take(&mut self.behind) {
            if let Some(active) = self.active.get_mut(&run) {
                active.queue(behind.rest());
            }
        }
        let runs: Vec<RunId> = self.active.keys().cloned().collect();
        for run in &runs {
            if let Some(active) = self.active.get_mut(run) {
                active.release(None);
            }
            self.end(run);
        }
    }

    /// Whether a recording is to be waited for.
    fn awaits_recorder(&mut self) -> bool {
        self.active.values_mut().any(|active| active.is_awaited(clock::host_now()))
    }

    /// Records an output, and has it told.
    fn take(&mut self, output: Output) {
        if let Output::PastSamples { run, host, at, samples } = output {
            if let Some(behind) = self.behind.get_mut(&run) {
                let released = behind.take_noted(&host, samples, (at, clock::host_now()));
                self.go_on(&run, released, false);
            }
            return;
        }
        if let Output::Withdrawn(run) = &output {
            self.withdraw(run);
        }
        let Output::Event(mut envelope) = output else { return self.told.push_back(Told::Output(output)) };
        if let (Origin::Run(run), Event::RunCreated { spec }) = (&envelope.origin, &envelope.event)
            && !self.active.contains_key(run)
            && !self.unrecorded.contains(run)
        {
            self.begin(run.clone(), spec, envelope.at);
            self.times.insert(run.clone(), EventTimes::new(spec));
        }
        let came = envelope.at;
        self.date(&mut envelope);
        let origin = &envelope.origin;
        if let Origin::Host(host) = origin {
            let of = self.active.iter().map(|(run, active)| (run, &active.hosts));
            let of = of.chain(self.behind.iter().map(|(run, behind)| (run, &behind.hosts)));
            let runs: BTreeSet<RunId> =
                of.filter(|(_, hosts)| hosts.contains(host)).map(|(run, _)| run.clone()).collect();
            for run in runs {
                self.record(&run, &envelope, came);
            }
            self.known.entry(host.clone()).or_default().remember(&envelope);
        } else if let Some(run) = origin.run() {
            self.record(run, &envelope, came);
        }
        let is_shown_later = |run| self.behind.get(run).is_some_and(Behind::is_shown);
        let is_late = !is_of_now(origin) && origin.run().is_some_and(is_shown_later);
        if let (Origin::Run(run), Event::RunEnded { .. }) = (origin, &envelope.event) {
            self.end(run);
        }
        if !is_late {
            self.told.push_back(Told::Output(Output::Event(envelope)));
        }
    }

    /// Gives an event the time at which it happened. A run that catches up does that by itself: it knows what came next.
    fn date(&mut self, envelope: &mut Envelope) {
        let Some(run) = envelope.origin.run() else { return };
        let is_past = self.behind.get(run).is_some_and(Behind::is_catching_up);
        let Some(times) = self.times.get_mut(run) else { return };
        if is_past && matches!(envelope.origin, Origin::Run(_)) {
            // what follows from what is caught up with has its time when that is in order
            return;
        }
        let at = times.date(envelope, |host| self.known.get(host).map(|known| &known.clock));
        if !is_past {
            envelope.at = at;
        }
    }

    /// Records what concerns a run and came at `came`, in its order.
    fn record(&mut self, run: &RunId, envelope: &Envelope, came: Stamp) {
        if let Some(behind) = self.behind.get_mut(run) {
            let was_catching_up = behind.is_catching_up();
            let released = behind.take(envelope.clone(), clock::host_now());
            if was_catching_up {
                // what waits at the end of a run is written when there is room for it
                let is_end = matches!(envelope.event, Event::RunEnded { .. });
                return self.go_on(run, released, is_end);
            }
        }
        let Some(active) = self.active.get_mut(run) else { return };
        let Some(times) = self.times.get(run) else { return active.send(envelope.clone()) };
        if matches!(envelope.event, Event::RunEnded { .. }) {
            active.release_at_end(envelope.at);
            return active.send(envelope.clone());
        }
        let until = times.told_until(came);
        active.release(until);
        let is_of_host =
            matches!((&envelope.origin, &envelope.event), (Origin::Host(_), _) | (_, Event::RunNoted { .. }));
        if is_of_host && until.is_some_and(|until| envelope.at > until) {
            return active.hold(envelope.clone());
        }
        active.send(envelope.clone());
    }

    /// Records what a run has caught up with.
    fn go_on(&mut self, run: &RunId, released: Vec<Envelope>, is_end: bool) {
        if let Some(times) = self.times.get_mut(run) {
            for envelope in &released {
                times.follow(envelope);
            }
        }
        if let Some(active) = self.active.get_mut(run) {
            active.queue(released);
            if !is_end {
                active.leave_room();
            }
        }
        self.catch_up_with(run);
    }

    /// Time goes on for runs of which nothing comes.
    fn look_at_clock(&mut self) {
        let now = clock::host_now();
        let runs: Vec<RunId> = self.behind.keys().cloned().collect();
        for run in runs {
            let Some(behind) = self.behind.get_mut(&run) else { continue };
            let released = behind.look(now);
            self.go_on(&run, released, false);
        }
    }

    /// Folds some of what runs have caught up with, for who shows them. Whether nothing is left.
    fn fold(&mut self) -> bool {
        let mut is_all = true;
        let runs: Vec<RunId> = self.behind.keys().cloned().collect();
        for run in runs {
            is_all &= self.behind.get_mut(&run).is_none_or(Behind::fold);
            self.catch_up_with(&run);
        }
        is_all
    }

    /// Tells how a run stands if it has caught up.
    fn catch_up_with(&mut self, run: &RunId) {
        if !self.behind.get(run).is_some_and(Behind::is_over) {
            return;
        }
        let Some((state, end)) = self.behind.remove(run).and_then(Behind::stand) else { return };
        self.told.push_back(Told::CaughtUp(state));
        self.told.extend(end.map(|end| Told::Output(Output::Event(end))));
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
            Ok(recorder) => self.activate(&run, recorder, 0, spec.hosts().into_iter().collect(), at),
            Err(error) => {
                self.troubles.push_back(not_recorded(&run, &error.to_string()));
                self.unrecorded.insert(run);
            }
        }
    }

    /// Records from now on; begins with what is known of the hosts.
    fn activate(&mut self, run: &RunId, recorder: Recorder, next: u64, hosts: BTreeSet<HostId>, at: Stamp) {
        if let Some(cap) = self.cap {
            recorder.limit(cap);
        }
        if let Some(rules) = &self.rules {
            recorder.keep_states(Arc::clone(rules));
        }
        let active = Active::new(recorder, next, hosts);
        self.active.insert(run.clone(), active);
        self.tell_known(run, at);
    }

    /// What is known of the hosts of a run stands before what they tell of it.
    fn tell_known(&mut self, run: &RunId, at: Stamp) {
        let hosts = self.active.get(run).map(|active| &active.hosts);
        let hosts = hosts.or_else(|| self.behind.get(run).map(|behind| &behind.hosts));
        let known = hosts.into_iter().flatten().filter_map(|host| self.known.get(host));
        let mut before: Vec<Envelope> =
            known.flat_map(HostBaseline::all).map(|known| Envelope { at, ..known.clone() }).collect();
        before.sort_by_key(|envelope| envelope.seq);
        for envelope in &before {
            self.record(run, envelope, at);
        }
    }

    /// It is no run: its recording is to be deleted.
    fn withdraw(&mut self, run: &RunId) {
        self.times.remove(run);
        self.unrecorded.remove(run);
        if let Some((run, active)) = self.active.remove_entry(run) {
            self.ended.push(active.ended(run).deleted_from(self.store.clone()));
        }
    }

    fn end(&mut self, run: &RunId) {
        self.elsewhere.remove(run);
        self.times.remove(run);
        if let Some((run, active)) = self.active.remove_entry(run) {
            self.ended.push(active.ended(run));
        }
    }
}

impl HostBaseline {
    fn remember(&mut self, envelope: &Envelope) {
        match &envelope.event {
            Event::LinkChanged { .. } => self.link = Some(envelope.clone()),
            Event::HostDescribed { .. } => self.described = Some(envelope.clone()),
            Event::HostSampled { .. } => self.sampled = Some(envelope.clone()),
            Event::LeasesTold { .. } => self.leases = Some(envelope.clone()),
            Event::ClockSampled { sample } => {
                self.clock.add(*sample);
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
