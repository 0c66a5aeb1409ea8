//! All that one client does: its hosts, its launches, its runs; and the one total order of events.
//!
//! Items of the cluster and events of the run machines are numbered here, in the order in which they are
//! handed out. All that record or show them see the same list.

mod asking;
mod folders;
mod launching;
pub mod looking;
mod queueing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{self, Interval, MissedTickBehavior};

use self::looking::Looks;
use super::code::CodeFinder;
use super::cpu_slots::InUse;
use super::machine::{Action, RunMachine};
use super::plan;
use super::readiness::ClusterView;
use super::secrets::Lookup;
use super::syncing::{HostCounts, SyncProgress};
use super::trees::Trees;
use super::waiting::PendingLaunch;
use crate::clock;
use crate::cluster::messages::{HostEntry, Incoming, Item, Reply};
use crate::cluster::pool::Cluster;
use crate::config::HostConfig;
use crate::domain::alerts::AlertRules;
use crate::domain::collectives::HostCollectives;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::host::{HostSample, LinkState};
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::preflight::Finding;
use crate::domain::resume_point::{Backfill, ResumePoint};
use crate::domain::run::RunSpec;
use crate::domain::run_status::HostRunStatus;
use crate::domain::signal::SignalRequest;
use crate::domain::stacks::ProcessStacks;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::trace::{TraceSpan, TraceStart};
use crate::domain::world::World;
use crate::launch::error::LaunchError;
use crate::wire::doctor::Checked;
use crate::wire::message::{
    AskStacks, Follow, Forgotten, ListRuns, Preflight, Refused, Runs, Stacks, ToAgent,
};
use crate::wire::signal::{SignalAsk, SignalTold};
use crate::wire::trace::{Trace, TracePiece, Traces};

/// How often deadlines are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A process that looks so late stood still, microseconds.
const STOOD_STILL_US: i64 = 2_000_000;

/// What a session hands out.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// The next event.
    Event(Box<Envelope>),
    /// What is known of a launch only now that its hosts are.
    Remark(String),
    /// How far a launch's folder has been read, where that takes long; with it whether it is the first word of it.
    Reading(String, bool),
    /// How far a run's folder is on its way to the hosts.
    Syncing(RunId, SyncProgress),
    /// What each host lacks of a folder that was only compared.
    Compared(Vec<(HostId, HostCounts)>),
    /// A launch has become this run.
    Launched(RunId),
    /// A launch has not become a run; nothing has started.
    LaunchFailed(LaunchError),
    /// A launch waits until GPUs are free: for whom. Said when it changes.
    Waiting(String),
    /// Another launch had slots of this run first: nothing of it has started and it has no end. Its launch goes on, and becomes
    /// another run or fails.
    Withdrawn(RunId),
    /// A run that was only asked to stop is gone from this host.
    Gone(RunId, HostId),
    /// A host could not do what was asked of a run that this session does not own.
    Refused(Refused),
    /// How far the ranks of a host are with a kernel trace.
    Traces(HostId, Traces),
    /// A piece of such a trace.
    TracePiece(HostId, TracePiece),
    /// Samples of a host that were taken while no client looked: for the recording of the run.
    PastSamples {
        /// The run during which.
        run: RunId,
        /// The host.
        host: HostId,
        /// When they came.
        at: Stamp,
        /// Each with when it was taken, in order.
        samples: Vec<(HostTime, Arc<HostSample>)>,
    },
    /// Runs that a host knows; `last` when it has told all.
    Found {
        /// The host.
        host: HostId,
        /// Its shares of runs.
        shares: Vec<HostRunStatus>,
        /// Whether nothing more comes.
        last: bool,
    },
    /// What a signal would hit, or what came of it.
    Signal(SignalTold),
    /// What the processes of a run are doing on a host.
    Stacks {
        /// The run.
        run: RunId,
        /// The host.
        host: HostId,
        /// Each process of a rank that has not ended.
        of: Vec<ProcessStacks>,
        /// Why none could be asked.
        why: Option<String>,
        /// Whether those of every thread were asked for, where the host says so.
        threads: Option<bool>,
        /// Which collectives its processes have called.
        collectives: Box<HostCollectives>,
        /// Whether nothing more comes.
        last: bool,
    },
    /// What a run has left on this host is deleted, or why it is not.
    Forgotten(RunId, HostId, Option<String>),
    /// What a launch would find on this host, by the number of the question.
    Preflight(u64, HostId, Vec<Finding>),
    /// What a check of the doctor has found on this host.
    Checked(HostId, Checked),
}

/// One client at work.
#[derive(Debug)]
pub struct Session {
    cluster: Cluster,
    hosts: Vec<HostConfig>,
    here: String,
    /// Only what the hosts' events say; runs are the reader's business.
    world: World,
    runs: BTreeMap<RunId, RunMachine>,
    /// Of attached runs: what was known before, which is not told again.
    known: BTreeMap<RunId, ResumePoint>,
    pending: Vec<PendingLaunch>,
    /// Launches that wait or are placed again where another one is faster, and whose GPUs are not safely held yet.
    starting: BTreeMap<RunId, PendingLaunch>,
    /// Launches whose hosts the doctor looks at just now.
    looks: Looks,
    /// Which CPU slots live runs have, as far as hosts have told.
    cpu_slots: InUse,
    outputs: VecDeque<Output>,
    next_seq: u64,
    look: Interval,
    /// When they were looked at last, and whether this process stood still before: then nothing was judged.
    looked: Stamp,
    stood_still: bool,
    lookup: Lookup,
    trees: Trees,
    /// Whether output that can't be caught up with is left out.
    may_pass_over: bool,
    /// Whether nothing takes what ranks print.
    is_unread: bool,
    acknowledged: BTreeMap<GpuUuid, Stamp>,
}

impl Session {
    /// Connects to all hosts. `entries` says how each of `hosts` is reached; `here` is the directory in which
    /// ranks on this machine start unless something else is said. Needs a tokio runtime.
    pub fn new(hosts: Vec<HostConfig>, entries: Vec<HostEntry>, here: String) -> Self {
        let mut look = time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            cluster: Cluster::connect(entries),
            hosts,
            here,
            world: World::default(),
            runs: BTreeMap::new(),
            known: BTreeMap::new(),
            pending: Vec::new(),
            starting: BTreeMap::new(),
            looks: Looks::default(),
            cpu_slots: InUse::default(),
            outputs: VecDeque::new(),
            next_seq: 0,
            look,
            looked: clock::now(),
            stood_still: false,
            lookup: Lookup::new(|_| None),
            may_pass_over: true,
            is_unread: false,
            acknowledged: BTreeMap::new(),
            trees: Trees::default(),
        }
    }

    /// From where the values of secret variables come: this process's environment or a file, which the launcher
    /// doesn't read.
    pub fn take_secrets_from(&mut self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        self.lookup = Lookup::new(lookup);
    }

    /// The hosts, in file order.
    pub fn hosts(&self) -> &[HostConfig] {
        &self.hosts
    }

    /// What finds the code of launches to them.
    pub fn code_finder(&self) -> CodeFinder {
        CodeFinder { hosts: self.hosts.clone() }
    }

    /// What is known of the hosts.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Up to when a person has acknowledged the events of each GPU: they speak against no launch any more.
    pub fn acknowledge(&mut self, acknowledged: BTreeMap<GpuUuid, Stamp>) {
        self.acknowledged = acknowledged;
    }

    /// When alerts are told.
    pub fn set_alert_rules(&mut self, rules: &AlertRules) {
        self.world.alerts.rules = Arc::new(rules.clone());
    }

    /// Time has come to `now`: alerts of hosts that are silent are told too.
    pub fn tick(&mut self, now: Stamp) {
        self.take_in_what_came(now);
        self.world.tick(now);
    }

    /// The next output. Cancel-safe.
    pub async fn next(&mut self) -> Output {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return output;
            }
            tokio::select! {
                Some(item) = self.cluster.next() => self.take_in(item),
                (launch, read) = self.trees.next() => self.folder_was_read(launch, read),
                _ = self.look.tick() => self.look(),
            }
        }
    }

    /// An output that is there already.
    pub fn try_next(&mut self) -> Option<Output> {
        while self.outputs.is_empty() {
            let item = self.cluster.try_next()?;
            self.take_in(item);
        }
        self.outputs.pop_front()
    }

    /// All output is wanted, however long it takes: it goes to a file or another program.
    pub fn pass_over_nothing(&mut self) {
        self.may_pass_over = false;
    }

    /// Nothing takes any more what ranks print: of a run that is stopped from now on, all but the end of it is passed over once its
    /// ranks have ended.
    pub fn pass_over_the_rest(&mut self) {
        self.is_unread = true;
    }

    /// Stops a run of this session; `now` kills without grace. Of one that lost its slots the launch is not tried again. `false`
    /// when it is not one, or over.
    pub fn stop(&mut self, run: &RunId, now: bool) -> bool {
        let Some(machine) = self.runs.get_mut(run).filter(|machine| !machine.is_over()) else {
            return self.stop_lost(run);
        };
        let at = clock::now();
        let actions = machine.handle_stop(at, now);
        // its launch is not tried again, however this try ends
        if let Some(pending) = self.starting.remove(run) {
            self.leave_queue(pending.queue_ticket);
        }
        self.act(actions, at);
        self.end_syncs();
        true
    }

    /// Stops a run that another client launched; [`Output::Gone`] comes for each of its hosts. What its ranks
    /// printed is not read.
    pub fn stop_foreign(&mut self, spec: &RunSpec, now: bool) {
        for host in spec.hosts() {
            // in one message, which outlives a lost link: what is told of the run is what is so once it was stopped
            let mut follow = Follow { stop: Some(now), ..plan::follow(spec, &host) };
            follow.from.iter_mut().for_each(|(_, _, offset)| *offset = Follow::NOTHING);
            self.cluster.send(&host, ToAgent::Follow(follow));
        }
    }

    /// Asks a host of a run for a kernel trace of its ranks, or without a start whether that can be:
    /// [`Output::Traces`] and [`Output::TracePiece`] come. See [`super::traces::Gathering`].
    pub fn trace(&mut self, run: &RunId, host: &HostId, span: TraceSpan, start: Option<TraceStart>) {
        let trace = Trace { run: run.clone(), host: host.clone(), span, start };
        self.cluster.send(host, ToAgent::Trace(trace));
    }

    /// Attaches to a run that goes on already or has ended since, from `resume_point` on: its events come as those
    /// of a run of this session, and it is stopped like one. `false` when this session follows it already.
    pub fn attach(&mut self, spec: RunSpec, resume_point: ResumePoint, backfill: Backfill) -> bool {
        if self.runs.get(&spec.id).is_some_and(|machine| !machine.is_over()) {
            return false;
        }
        let at = clock::now();
        let run = spec.id.clone();
        let hosts = spec.hosts();
        let (machine, actions) = RunMachine::attach(spec, &resume_point, backfill, at);
        self.known.insert(run.clone(), resume_point);
        self.own(run, machine, &hosts);
        self.act(actions, at);
        true
    }

    /// Only reads a run, from `resume_point` on: its lines and exits come, and [`Output::Gone`] behind the last of
    /// a host. With `once`, what is there now and no more.
    pub fn read(&mut self, spec: &RunSpec, resume_point: ResumePoint, once: bool) {
        for host in spec.hosts() {
            let from = resume_point.wanted(spec, &host);
            let steps_by = resume_point.steps_by(spec, &host);
            // where it may be started again, what is read of the next attempt goes on behind this one
            let attempt = (!once && spec.options.max_restarts > 0).then_some(0);
            let follow = Follow { from, steps_by, once, attempt, hurry: false, ..plan::follow(spec, &host) };
            self.cluster.send(&host, ToAgent::Follow(follow));
        }
        self.known.insert(spec.id.clone(), resume_point);
    }

    /// Goes on reading a run on a host that has started it again since [`Output::Gone`] came.
    pub fn read_on(&mut self, spec: &RunSpec, host: &HostId) {
        let follow = Follow { attempt: Some(1), hurry: false, ..plan::follow(spec, host) };
        self.cluster.send(host, ToAgent::Follow(follow));
    }

    /// Asks every host for the runs that it knows; [`Output::Found`] comes from each that is or gets connected.
    pub fn list_runs(&mut self) {
        self.list_some_runs(ListRuns::default());
    }

    /// The same for some runs of each host.
    pub fn list_some_runs(&mut self, which: ListRuns) {
        for host in &self.hosts {
            self.cluster.send(&host.id, ToAgent::ListRuns(which));
        }
    }

    /// Asks some hosts for the runs that live there, and for the newest one.
    pub fn list_live_runs(&self, hosts: &[HostId]) {
        self.list_newest_runs(hosts, 1);
    }

    /// Asks some hosts for the runs that live there, and for so many of the newest.
    pub fn list_newest_runs(&self, hosts: &[HostId], newest: u32) {
        for host in hosts {
            self.cluster.send(host, ToAgent::ListRuns(ListRuns { newest, oldest: 0 }));
        }
    }

    /// Asks what the processes of a run are doing, each of their `threads` or the main ones; [`Output::Stacks`] or
    /// [`Output::Refused`] comes from each of its hosts.
    pub fn ask_stacks(&mut self, spec: &RunSpec, threads: bool) {
        for host in spec.hosts() {
            let ask = AskStacks { run: spec.id.clone(), host: host.clone(), threads };
            self.cluster.send(&host, ToAgent::AskStacks(ask));
        }
    }

    /// Asks a host about a signal to its processes, or for it; one [`Output::Signal`] of the same number comes.
    pub fn signal(&self, host: &HostId, number: u32, request: SignalRequest) {
        self.cluster.send(host, ToAgent::Signal(SignalAsk { number, request }));
    }

    /// Tries a host's link now.
    pub fn reconnect(&self, host: &HostId) {
        self.cluster.reconnect(host);
    }

    /// Runs of this session that are not over.
    pub fn live_runs(&self) -> Vec<RunId> {
        self.runs.values().filter(|machine| !machine.is_over()).map(|machine| machine.id().clone()).collect()
    }

    fn cluster_view(&self) -> ClusterView<'_> {
        ClusterView {
            hosts: &self.hosts,
            world: &self.world,
            here: &self.here,
            ages: true,
            hides_gpus: false,
            acknowledged: &self.acknowledged,
            now: clock::now(),
        }
    }

    fn take_in(&mut self, item: Item) {
        let Item { host, at, incoming } = item;
        match incoming {
            Incoming::Event(origin, event) => self.take_in_event(at, origin, event),
            Incoming::Reply(Reply::Runs(Runs { shares, last })) => {
                self.hear_of_cpu_slots(&host, &shares, last);
                self.outputs.push_back(Output::Found { host, shares, last });
            }
            Incoming::Reply(Reply::Traces(traces)) => self.outputs.push_back(Output::Traces(host, traces)),
            Incoming::Reply(Reply::TracePiece(piece)) => {
                self.outputs.push_back(Output::TracePiece(host, piece));
            }
            Incoming::Reply(Reply::PastSamples { run, samples }) => {
                self.outputs.push_back(Output::PastSamples { run, host, at, samples });
            }
            Incoming::Reply(Reply::Stacks(stacks)) => {
                let Stacks { run, host, of, why, threads, collectives, last } = stacks;
                let collectives = Box::new(collectives);
                self.outputs.push_back(Output::Stacks { run, host, of, why, threads, collectives, last });
            }
            Incoming::Reply(Reply::Forgotten(Forgotten { run, why, .. })) => {
                self.outputs.push_back(Output::Forgotten(run, host, why));
            }
            Incoming::Reply(Reply::Preflight(Preflight { ask, findings, .. })) => {
                self.outputs.push_back(Output::Preflight(ask, host, findings));
            }
            Incoming::Reply(Reply::Checked(told)) => self.checked(at, host, told),
            Incoming::Reply(Reply::Signal(told)) => self.outputs.push_back(Output::Signal(told)),
            Incoming::Reply(Reply::Sync(told)) => self.sync_told(at, &host, told),
            Incoming::Reply(Reply::BlobsTaken(taken)) => self.blobs_taken(at, &host, &taken),
            Incoming::Reply(reply) => self.take_in_reply(at, &host, &reply),
        }
    }

    fn take_in_event(&mut self, at: Stamp, origin: Origin, event: Event) {
        let mut actions = Vec::new();
        for machine in self.runs.values_mut() {
            actions.extend(machine.handle_event(at, &origin, &event));
        }
        // with the first sample it is known who holds which GPU
        let concerns_launches = matches!(
            event,
            Event::LinkChanged { .. }
                | Event::HostDescribed { .. }
                | Event::HostSampled { .. }
                | Event::LeasesTold { .. }
        );
        if let (Origin::Host(host), Event::LinkChanged { state: LinkState::Up }) = (&origin, &event) {
            // a new agent has no tickets
            let all =
                self.pending.iter_mut().chain(self.starting.values_mut()).chain(self.looks.pending_mut());
            for queue_ticket in all.filter_map(|pending| pending.queue_ticket.as_mut()) {
                queue_ticket.asked.remove(host);
            }
        }
        self.sync_links(at, &origin, &event);
        let link = match (&origin, &event) {
            (Origin::Host(host), Event::LinkChanged { state }) => Some((host.clone(), state.clone())),
            _ => None,
        };
        let known = origin.run().and_then(|run| self.known.get_mut(run).map(|known| (run.clone(), known)));
        if !known.is_some_and(|(run, known)| known.repeats(&run, &origin, &event)) {
            self.emit(at, origin, event);
        }
        self.act(actions, at);
        // when the world knows of it: what starts after a look starts with what is so now
        if let Some((host, state)) = &link {
            self.look_went_on_without(at, host, state);
        }
        if concerns_launches {
            self.try_launches();
        }
    }

    fn take_in_reply(&mut self, at: Stamp, host: &HostId, reply: &Reply) {
        let (Reply::Prepared { run, .. }
        | Reply::Started { run }
        | Reply::Finished { run }
        | Reply::Unreachable { run, .. }) = reply
        else {
            if let Reply::Refused(refused) = reply {
                self.reply_for(at, host, &refused.run, reply);
            }
            return;
        };
        self.reply_for(at, host, run, reply);
    }

    fn reply_for(&mut self, at: Stamp, host: &HostId, run: &RunId, reply: &Reply) {
        if let Some(machine) = self.runs.get_mut(run) {
            let actions = machine.handle_reply(at, host, reply);
            self.act(actions, at);
            return;
        }
        match reply {
            Reply::Finished { run } => self.outputs.push_back(Output::Gone(run.clone(), host.clone())),
            Reply::Refused(refused) => {
                let refused = Refused { host: host.clone(), ..refused.clone() };
                self.outputs.push_back(Output::Refused(refused));
            }
            _ => {}
        }
    }

    fn look(&mut self) {
        let now = clock::now();
        let passed = now.micros_since(self.looked);
        (self.looked, self.stood_still) = (now, passed > STOOD_STILL_US && !self.stood_still);
        self.take_in_what_came(now);
        if self.stood_still {
            // what has come meanwhile may not be read yet
            return;
        }
        let machines = self.runs.values_mut();
        let actions: Vec<Action> = machines.flat_map(|machine| machine.handle_time(now)).collect();
        self.act(actions, now);
        self.look_at_syncs(now);
        self.end_late_looks(now);
        self.outputs.extend(self.trees.told(now).map(|(words, first)| Output::Reading(words, first)));
        // those that wait for GPUs, and those that wait for hosts: one of them may be waited for no longer
        self.try_launches();
    }

    /// Takes in what had come by `now`: no deadline is judged before an answer that waits, however long this process stood still.
    fn take_in_what_came(&mut self, now: Stamp) {
        while let Some(item) = self.cluster.try_next() {
            let is_later = item.at >= now;
            self.take_in(item);
            if is_later {
                break;
            }
        }
    }

    fn own(&mut self, run: RunId, mut machine: RunMachine, hosts: &[HostId]) {
        for host in hosts {
            if let Some(state) = self.world.hosts.get(host) {
                machine.know_clock(host, state.clock.clone());
            }
        }
        self.runs.insert(run, machine);
    }

    /// Carries out what machines want. Events they emit are not fed back to them.
    fn act(&mut self, actions: Vec<Action>, at: Stamp) {
        for action in actions {
            match action {
                Action::Emit(origin, event) => self.emit(at, origin, event),
                Action::Send(host, mut message) => {
                    match &mut message {
                        ToAgent::Follow(follow) => follow.hurry &= self.may_pass_over,
                        ToAgent::Stop(stop) => stop.unread |= self.is_unread,
                        _ => {}
                    }
                    self.cluster.send(&host, message);
                }
            }
        }
    }

    fn emit(&mut self, at: Stamp, origin: Origin, event: Event) {
        if let (Origin::Run(run), Event::RunEnded { outcome }) = (&origin, &event)
            && self.withdraw(run, outcome, at)
        {
            return;
        }
        let envelope = Envelope { seq: self.next_seq, at, origin, event };
        self.next_seq += 1;
        if let Origin::Host(_) = envelope.origin {
            self.world.apply(&envelope);
        }
        let of_run = match &envelope.origin {
            Origin::Run(run) => Some((run.clone(), envelope.event.clone())),
            _ => None,
        };
        self.outputs.push_back(Output::Event(Box::new(envelope)));
        if let Some((run, event)) = of_run {
            self.follow_start(&run, &event);
        }
    }
}
