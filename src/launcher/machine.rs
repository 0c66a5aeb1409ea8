//! Carries one run out, as a state machine: events, replies and time go in, messages and events come out.
//! No I/O, no clock.
//!
//! ```text
//!   Prepare ──all prepared──▶ Start ──all ranks run──▶ Rendezvous ──all connected──▶ FirstStep ──▶ Training
//!      │ one refuses:            │                                                                    │
//!      │ Abort to all            └────── a rank fails, or a client stops it ──────────────────────────┤
//!      ▼                                                                                              ▼
//!   Ended: nothing has started                                          Stopping ──all finished──▶ Ended
//! ```
//!
//! How hosts are asked and told to start is `starting`. A machine that attaches to a run which goes on already
//! begins where its recording ends, see `attach`.

mod attach;
mod failing;
mod lacking;
mod meeting;
mod restart;
mod starting;
mod syncing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::kinds;
use super::secrets::Values;
use crate::cluster::messages::Reply;
use crate::domain::clock_fit::ClockFit;
use crate::domain::container::ImageId;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::last_words::LastWords;
use crate::domain::note::{Note, what};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::rank_output::RankOutput;
use crate::domain::run::{HostRun, RankExit, RefusalClass, RunSpec, RunStage};
use crate::domain::text::{about, plain};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::waiting::{NAMED, Waiting};
use crate::launch::plan::Rendezvous;
use crate::wire::message::{Refused, Stop, ToAgent};

/// Every host must have answered Prepare by then, and Commit by twice then.
const START_DEADLINE_US: i64 = 20_000_000;

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a message to a host.
    Send(HostId, ToAgent),
    /// Put an event into the stream.
    Emit(Origin, Event),
}

/// One run under way.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub struct RunMachine {
    spec: RunSpec,
    plans: Vec<HostRun>,
    rendezvous: Rendezvous,
    secret: Secret,
    /// Values of the ranks' secret variables.
    values: Values,
    stage: RunStage,
    /// When the stage began; while hosts are asked and ranks are started, when the last of them answered.
    entered: Stamp,
    /// Hosts whose answer the stage waits for.
    hosts_due: BTreeSet<HostId>,
    /// Hosts with GPUs that were not asked yet whether they can start.
    unasked: VecDeque<HostId>,
    /// Hosts that were lost after the order to start, and asked again.
    asked_again: BTreeSet<HostId>,
    /// How far each rank has come; events of different ranks come in any order.
    progress: BTreeMap<Rank, Progress>,
    /// Links that are down now: since when, and why.
    links_down: BTreeMap<HostId, (Stamp, String)>,
    clocks: BTreeMap<HostId, ClockFit>,
    /// What the rendezvous has told of its ranks.
    meeting: Option<meeting::Meeting>,
    /// Ports that hosts offered.
    ports: BTreeMap<HostId, Vec<u16>>,
    /// The image of the containers there.
    images: BTreeMap<HostId, ImageId>,
    /// Hosts on which nothing of the run is left.
    finished: BTreeSet<HostId>,
    exits: BTreeMap<Rank, (Stamp, RankExit)>,
    /// What its ranks printed last.
    words: BTreeMap<Rank, (RankOutput, LastWords)>,
    /// When the other hosts are told to stop after a rank has failed, where they were not told yet.
    stop_at: Option<Stamp>,
    committed: bool,
    /// Whether it was attached to: then no host's answer is awaited, and none that is missing stops the others.
    attached: bool,
    /// Whether it was taken over from a client that ended, as far as is recorded, while telling the hosts to start.
    unsure: bool,
    /// Whether that client had not told all of them: all hosts start or none.
    half_started: bool,
    /// Why it is being stopped, when it is.
    stopping: Option<StopCause>,
    /// Ranks that had been told to stop, though none was from here.
    stopped_by_others: BTreeSet<Rank>,
    /// The ranks that the stage waits for. One that has ended is not waited for.
    ranks_due: BTreeSet<Rank>,
    /// Who is waited for, as it was told last.
    told: Waiting,
    /// How often it was started before; `None` where a client that attached to it does not know.
    attempt: Option<u32>,
    /// Whether its owner wanted it stopped: then it is not started again.
    unwanted: bool,
    /// What a host lacks, until the others have answered.
    lacking: Option<lacking::Lacking>,
}

/// The run's secret, which must not reach a log through `{:?}`.
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How far a rank has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Started,
    Connected,
    Stepped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StopCause {
    Owner,
    Failure(RunOutcome),
    Rank,
}

impl RunMachine {
    /// A machine for a placed run, and its first actions. `plans` with GPUs are asked in their order, which must be the
    /// same for every client. `secret` is 64 hexadecimal digits.
    pub fn start(
        spec: RunSpec,
        plans: Vec<HostRun>,
        rendezvous: Rendezvous,
        secret: String,
        at: Stamp,
    ) -> (Self, Vec<Action>) {
        let (mut machine, mut actions) = Self::create(spec, plans, rendezvous, secret, at);
        machine.ask_first(at, &mut actions);
        (machine, actions)
    }

    /// The same, but nothing is asked of a host until [`Self::synced`].
    pub fn create(
        spec: RunSpec,
        plans: Vec<HostRun>,
        rendezvous: Rendezvous,
        secret: String,
        at: Stamp,
    ) -> (Self, Vec<Action>) {
        let machine = Self {
            spec,
            plans,
            rendezvous,
            secret: Secret(secret),
            values: Values::default(),
            stage: RunStage::Connect,
            entered: at,
            hosts_due: BTreeSet::new(),
            unasked: VecDeque::new(),
            asked_again: BTreeSet::new(),
            progress: BTreeMap::new(),
            links_down: BTreeMap::new(),
            clocks: BTreeMap::new(),
            meeting: None,
            ports: BTreeMap::new(),
            images: BTreeMap::new(),
            finished: BTreeSet::new(),
            exits: BTreeMap::new(),
            words: BTreeMap::new(),
            stop_at: None,
            committed: false,
            attached: false,
            unsure: false,
            half_started: false,
            stopping: None,
            stopped_by_others: BTreeSet::new(),
            ranks_due: BTreeSet::new(),
            told: Waiting::default(),
            attempt: Some(0),
            unwanted: false,
            lacking: None,
        };
        let created = Event::RunCreated { spec: Arc::new(machine.spec.clone()) };
        let actions = vec![Action::Emit(machine.origin(), created)];
        (machine, actions)
    }

    /// The values of the ranks' secret variables, for the order to start.
    pub(super) fn hold_secrets(&mut self, values: Values) {
        self.values = values;
    }

    /// The run.
    pub fn id(&self) -> &RunId {
        &self.spec.id
    }

    /// What was learnt of a host's clock before the run began.
    pub fn know_clock(&mut self, host: &HostId, clock: ClockFit) {
        self.clocks.insert(host.clone(), clock);
    }

    /// Whether nothing of the run is left to do.
    pub fn is_over(&self) -> bool {
        self.stage == RunStage::Ended
    }

    /// Takes in an event of the stream.
    pub fn handle_event(&mut self, at: Stamp, origin: &Origin, event: &Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over() {
            return actions;
        }
        match (origin, event) {
            (Origin::Host(host), Event::ClockSampled { sample }) => {
                self.clocks.entry(host.clone()).or_default().add(*sample);
            }
            (Origin::Host(host), Event::LinkChanged { state }) if self.has(host) => {
                self.link(host, state, at, &mut actions);
            }
            (Origin::Run(run), Event::RunNoted { host, note })
                if *run == self.spec.id && self.has(host) && note.what == what::UNREADABLE =>
            {
                self.unreadable(at, host, &note.text, &mut actions);
            }
            (Origin::Run(run), Event::RunNoted { host, note })
                if *run == self.spec.id
                    && self.has(host)
                    && note.what == what::SILENT
                    && self.committed
                    && self.stopping.is_none() =>
            {
                self.give_up(RunEnd::Silent, about(host, &note.text), at, &mut actions);
            }
            (Origin::Run(run), Event::RunNoted { host, note }) if *run == self.spec.id && self.has(host) => {
                self.rendezvous_told(at, note, &mut actions);
            }
            (Origin::Rank(run, rank), event) if *run == self.spec.id && rank.0 < self.spec.world() => {
                self.rank_event(at, *rank, event, &mut actions);
            }
            (Origin::Worker(run, rank, _), event @ Event::StepDone { .. })
                if *run == self.spec.id && rank.0 < self.spec.world() =>
            {
                self.rank_event(at, *rank, event, &mut actions);
            }
            _ => {}
        }
        self.tell_waiting(&mut actions);
        actions
    }

    fn rank_event(&mut self, at: Stamp, rank: Rank, event: &Event, actions: &mut Vec<Action>) {
        let reached = match event {
            Event::RankStarted { .. } => Progress::Started,
            Event::RankConnected => Progress::Connected,
            Event::StepDone { timing } => {
                let at = self.moment(at, rank, Some(timing.end()));
                self.words.entry(rank).or_default().1.stepped(at, timing.step);
                Progress::Stepped
            }
            Event::LogPrinted { line } => return self.printed(at, rank, line),
            Event::RankExited { exit } => return self.rank_exited(at, rank, exit, actions),
            _ => return,
        };
        let progress = self.progress.entry(rank).or_insert(reached);
        *progress = reached.max(*progress);
        if wanted(self.stage).is_some_and(|wanted| *progress >= wanted) && self.ranks_due.remove(&rank) {
            self.came(at);
        }
        self.advance(at, actions);
    }

    /// Enters the next stage as long as no rank is behind the present one.
    fn advance(&mut self, at: Stamp, actions: &mut Vec<Action>) {
        while self.ranks_due.is_empty() {
            let mut stages = kinds::of(&self.spec).stages(self.spec.world()).iter();
            if !stages.any(|stage| *stage == self.stage) {
                return;
            }
            let Some(next) = stages.next() else { return };
            self.enter(*next, at, actions);
        }
    }

    /// The ranks that a stage waits for as it begins.
    fn behind(&self) -> BTreeSet<Rank> {
        let wanted = wanted(self.stage);
        let due = |rank: &Rank| match self.stage {
            RunStage::Stopping => true,
            _ => self.progress.get(rank).copied() < wanted,
        };
        let ranks = self.spec.placements.iter().map(|placement| placement.rank);
        ranks.filter(|rank| due(rank) && !self.exits.contains_key(rank)).collect()
    }

    /// Takes in an agent's answer.
    pub fn handle_reply(&mut self, at: Stamp, host: &HostId, reply: &Reply) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over() || !self.has(host) {
            return actions;
        }
        match reply {
            Reply::Prepared { ports, image, .. } => {
                self.prepared(host, (ports, image.as_ref()), at, &mut actions);
            }
            Reply::Started { .. } if self.committed => self.started(host, &mut actions),
            Reply::Refused(refused) if self.is_no_end(host, refused) => {}
            Reply::Refused(refused) => self.refused(at, host, refused, &mut actions),
            Reply::Unreachable { .. } if self.goes_with_next_link(host) => {}
            Reply::Unreachable { reason, .. } => {
                self.give_up(RunEnd::Unreachable, reason.clone(), at, &mut actions);
                self.never_started(at, host, reason, &mut actions);
            }
            Reply::Finished { .. } if self.committed => {
                self.hosts_due.remove(host);
                self.finished(at, host, &nobody_knows(), &mut actions);
            }
            Reply::Started { .. }
            | Reply::Finished { .. }
            | Reply::Mesh(_)
            | Reply::Runs(_)
            | Reply::Traces(_)
            | Reply::TracePiece(_)
            | Reply::PastSamples { .. }
            | Reply::Sync(_)
            | Reply::Image(_)
            | Reply::BlobsTaken(_)
            | Reply::Forgotten(_)
            | Reply::Preflight(_)
            | Reply::Checked(_)
            | Reply::Stacks(_)
            | Reply::Signal(_) => {}
        }
        self.tell_waiting(&mut actions);
        actions
    }

    fn refused(&mut self, at: Stamp, host: &HostId, refused: &Refused, actions: &mut Vec<Action>) {
        let place = refused.rank.map_or_else(|| host.to_string(), |rank| self.place(rank));
        if self.stage == RunStage::Stopping || self.attached {
            // a refusal of what stopping asked for must not ask for it again; and a host that knows nothing of
            // a run may be another one than it was started on: that is no reason to stop the others, unless it shows
            // that only they were started
            tracing::warn!(%host, reason = refused.reason, "a host refused what was asked of a run");
            if let Some(text) = self.not_followed(host, refused) {
                let note = Note::new(what::NOT_FOLLOWED, text, HostTime::default());
                actions.push(Action::Emit(self.origin(), Event::RunNoted { host: host.clone(), note }));
                return;
            }
            self.half_started |= self.is_half_started(host, refused);
        } else {
            // some reasons name the host already
            let summary = about(&place, plain(host, &refused.reason));
            let outcome = match (refused.class, refused.busy, self.committed) {
                (RefusalClass::Unwanted, ..) => self.unwanted_there(),
                (_, true, _) => RunOutcome::new(RunEnd::Busy, summary),
                (_, false, true) => RunOutcome::new(RunEnd::Failed, summary),
                (class, false, false) => RunOutcome::refused(class, summary),
            };
            if !self.lacks(at, host, refused, &outcome) {
                self.give_up_as(outcome, at, actions);
            }
        }
        self.never_started(at, host, &refused.reason, actions);
    }

    /// A host can't tell any more what becomes of its ranks: they are told to stop, and not waited for.
    fn unreadable(&mut self, at: Stamp, host: &HostId, why: &str, actions: &mut Vec<Action>) {
        if !self.committed {
            return;
        }
        if self.stage != RunStage::Stopping {
            self.give_up(RunEnd::Failed, about(host, why), at, actions);
        }
        self.finished(at, host, &RankExit { cause: Some(why.to_owned()), ..nobody_knows() }, actions);
    }

    /// A host could not be asked, or refused. Unless something runs there it has nothing to finish, and must
    /// not be waited for.
    fn never_started(&mut self, at: Stamp, host: &HostId, why: &str, actions: &mut Vec<Action>) {
        if self.committed && !self.is_over() && !self.is_heard(host) {
            let error = Some(plain(host, why).to_owned());
            self.finished(at, host, &RankExit { error, ..nobody_knows() }, actions);
        }
    }

    /// Looks at the deadlines.
    pub fn handle_time(&mut self, now: Stamp) -> Vec<Action> {
        let mut actions = Vec::new();
        self.look_at_failure(now, &mut actions);
        self.look_at_lacking(now, &mut actions);
        if let Some(summary) = self.lost_while_starting(now).filter(|_| !self.attached) {
            self.give_up(RunEnd::Unreachable, summary, now, &mut actions);
        }
        if let Some((end, summary)) = self.late_meeting(now) {
            self.give_up(end, summary, now, &mut actions);
        }
        if let Some(summary) = self.late_start(now) {
            self.give_up(RunEnd::Unreachable, summary, now, &mut actions);
        }
        actions
    }

    /// The owner wants it stopped; `now` kills without grace.
    pub fn handle_stop(&mut self, at: Stamp, now: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over() {
            return actions;
        }
        self.unwanted = true;
        if self.committed {
            self.stop_all(StopCause::Owner, now, at, &mut actions);
        } else {
            self.give_up(RunEnd::Stopped, self.unstarted(), at, &mut actions);
        }
        self.tell_waiting(&mut actions);
        actions
    }

    /// Ends a run that can't go on. What has started is stopped first.
    fn give_up(&mut self, end: RunEnd, summary: String, at: Stamp, actions: &mut Vec<Action>) {
        self.give_up_as(RunOutcome::new(end, summary), at, actions);
    }

    fn give_up_as(&mut self, outcome: RunOutcome, at: Stamp, actions: &mut Vec<Action>) {
        if self.committed {
            self.stop_all(StopCause::Failure(outcome), false, at, actions);
            return;
        }
        self.abort(actions);
        let outcome = self.first_refusal(outcome);
        self.end(self.after_attempts(outcome, at), actions);
    }

    fn stop_all(&mut self, cause: StopCause, now: bool, at: Stamp, actions: &mut Vec<Action>) {
        if self.stopping.is_none() {
            self.stopping = Some(cause);
        }
        self.stop_at = None;
        self.abort_again(actions);
        self.tell_to_stop(now, actions);
        self.begin_stopping(at, actions);
    }

    fn tell_to_stop(&self, now: bool, actions: &mut Vec<Action>) {
        for host in self.spec.hosts().into_iter().filter(|host| !self.finished.contains(host)) {
            let (run, attempt, whole) = (self.spec.id.clone(), self.attempt, self.unwanted);
            let stop = Stop { run, host: host.clone(), now, attempt, whole, unread: false };
            actions.push(Action::Send(host, ToAgent::Stop(stop)));
        }
    }

    fn begin_stopping(&mut self, at: Stamp, actions: &mut Vec<Action>) {
        if self.stage != RunStage::Stopping {
            self.hosts_due.clear();
            self.enter(RunStage::Stopping, at, actions);
        }
    }

    /// Nothing of the run is left on a host. Its ranks of whose end nothing was heard ended as `unheard`
    /// says.
    fn finished(&mut self, at: Stamp, host: &HostId, unheard: &RankExit, actions: &mut Vec<Action>) {
        self.finished.insert(host.clone());
        let done = |rank: Rank| self.exits.contains_key(&rank);
        let here = self.spec.placements.iter().filter(|p| p.host == *host).map(|p| p.rank);
        let lost: Vec<Rank> = here.filter(|rank| !done(*rank)).collect();
        for rank in lost {
            let exit = unheard.clone();
            let event = Event::RankExited { exit: exit.clone() };
            actions.push(Action::Emit(Origin::Rank(self.spec.id.clone(), rank), event));
            // the host gave no time: now, and not the beginning of its clock
            if self.attached && !self.half_started && unheard.error.is_some() {
                self.exits.insert(rank, (at, exit));
                self.ranks_due.remove(&rank);
            } else {
                self.rank_gone(at, rank, at, &exit, actions);
            }
        }
        self.links_down.remove(host);
        if self.finished.len() == self.spec.hosts().len() {
            let outcome = self.outcome();
            match self.restarts_after(&outcome) {
                Some(root) => self.restart(root, &outcome, at, actions),
                None => self.end(self.of_attempt(outcome), actions),
            }
        }
    }

    fn outcome(&self) -> RunOutcome {
        match &self.stopping {
            Some(StopCause::Failure(outcome)) => outcome.clone(),
            // what had finished before it was told to stop has finished
            Some(StopCause::Owner)
                if self.exits.values().any(|(_, exit)| exit.stopped || exit.shell_code() != 0) =>
            {
                RunOutcome::new(RunEnd::Stopped, "stopped")
            }
            _ if self.was_stopped_elsewhere() => RunOutcome::new(RunEnd::StoppedElsewhere, "stopped"),
            _ => self.verdict(),
        }
    }

    fn end(&mut self, mut outcome: RunOutcome, actions: &mut Vec<Action>) {
        self.stage = RunStage::Ended;
        let last = self.exits.values().filter(|(_, exit)| !exit.is_lost()).map(|(at, _)| *at).max();
        outcome.at = last.or(outcome.at);
        actions.push(Action::Emit(self.origin(), Event::RunEnded { outcome }));
    }

    fn enter(&mut self, stage: RunStage, at: Stamp, actions: &mut Vec<Action>) {
        self.stage = stage;
        self.entered = at;
        self.ranks_due = self.behind();
        self.told = self.waiting_for();
        let event = Event::StageEntered { stage, waiting_for: self.told.clone() };
        actions.push(Action::Emit(self.origin(), event));
    }

    /// Says anew who is waited for, if that has changed so much that it matters.
    fn tell_waiting(&mut self, actions: &mut Vec<Action>) {
        if self.is_over() {
            return;
        }
        let waiting_for = self.waiting_for();
        if waiting_for.differs_from(&self.told, self.spec.world()) {
            self.told.clone_from(&waiting_for);
            let event = Event::StageEntered { stage: self.stage, waiting_for };
            actions.push(Action::Emit(self.origin(), event));
        }
    }

    /// Of many ranks the last ones are named: as ranks start in their order, they change seldom.
    fn waiting_for(&self) -> Waiting {
        let (mut names, mut count): (Vec<String>, usize) = if self.stage <= RunStage::Prepare {
            (self.hosts_due.iter().take(NAMED).map(ToString::to_string).collect(), self.hosts_due.len())
        } else {
            let missing = self.missing();
            let ranks = missing.iter().rev().take(NAMED).rev();
            let named = ranks.map(|rank| format!("rank {rank} on {}", self.place(*rank)));
            (named.collect(), missing.len())
        };
        let down = self.links_down.iter().map(|(host, (_, reason))| format!("{host} (link down: {reason})"));
        names.extend(down.take(NAMED));
        count += self.links_down.len();
        Waiting { count: u32::try_from(count).unwrap_or(u32::MAX), names }
    }

    fn origin(&self) -> Origin {
        Origin::Run(self.spec.id.clone())
    }

    fn has(&self, host: &HostId) -> bool {
        self.spec.placements.iter().any(|placement| placement.host == *host) && !self.finished.contains(host)
    }

    fn host_of(&self, rank: Rank) -> Option<&HostId> {
        self.spec.placements.get(rank.0 as usize).map(|placement| &placement.host)
    }

    fn place(&self, rank: Rank) -> String {
        self.spec.placements.get(rank.0 as usize).map_or_else(|| format!("rank {rank}"), ToString::to_string)
    }
}

/// How far each rank must have come for the run to leave a stage.
fn wanted(stage: RunStage) -> Option<Progress> {
    match stage {
        RunStage::Start => Some(Progress::Started),
        RunStage::Rendezvous => Some(Progress::Connected),
        RunStage::FirstStep => Some(Progress::Stepped),
        _ => None,
    }
}

/// The end of a rank of which nothing is known.
fn nobody_knows() -> RankExit {
    RankExit { code: None, signal: None, t: HostTime::default(), error: None, stopped: false, cause: None }
}

#[cfg(test)]
mod edges;
#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told;
