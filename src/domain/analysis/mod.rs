//! How a run went: a fold over the envelopes of its recording that needs little memory however long the run was, and the
//! figures that come of it. `hvtui report` and `hvtui diff` show them. Knows nothing of files.

pub mod by_step;
mod chance;
mod choice;
mod collectives;
mod correlation;
mod facts;
mod figures;
mod finding;
mod gains;
mod gpu_finding;
mod gpus;
pub mod histogram;
mod latecomer;
mod lateness;
mod logs;
mod metrics;
mod part;
mod points;
mod silence;
mod stands;
mod steps;
mod summary;
mod trend;
mod what_if;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::collectives::CollectiveTotals;
use self::facts::JobFacts;
use self::gpus::Telemetry;
use self::logs::Logs;
use self::metrics::Metrics;
use self::silence::Silences;
use self::steps::Steps;
use crate::domain::clock_fit::{ClockFit, ClockSample};
use crate::domain::event::{Envelope, Event, Origin, UNBEGUN};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, Rank};
use crate::domain::last_in::HostClock;
use crate::domain::log::GapReason;
use crate::domain::nccl_timing::NcclTimings;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RankExit, RunSpec};
use crate::domain::straggler::{Straggler, Stragglers};
use crate::domain::time::Stamp;
use crate::domain::timing::StepTiming;
use crate::domain::trainer_keys::{TrainerId, TrainerKeys};
use crate::domain::wait_table::WaitTable;

pub use choice::{Choice, ChosenPart, Window};
pub use collectives::{CollectiveFigures, LateToCollectives};
pub use figures::{
    Charts, Cliffs, Counted, Episode, Estimates, Fact, FirstError, GapFigures, GpuFigures, HostFigures,
    LogFigures, LossFigures, PhaseFigures, RankFigures, RunAnalysis, SampleFigures, Silence, SlowStep, Span,
    Spread, StepFigures, Stop, Throttle, WhatIf,
};
pub use finding::{Finding, Place, findings};
pub use gpus::UtilPoint;
pub use lateness::Late;
pub use metrics::{MetricFigures, NotFinite};
pub use points::{Ended, StepPoint};

/// Episodes of stragglers that are kept.
const EPISODES: usize = 64;
/// Names of what was dropped that are told apart.
const NAMES: usize = 16;

/// The fold over the envelopes of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Analyzer {
    choice: Arc<Choice>,
    spec: Arc<RunSpec>,
    /// Whether what is taken in and has no step number counts; else it is what came before, and only known.
    counting: bool,
    /// The hosts of the run, their clocks, and on which of them each rank is.
    hosts: Vec<HostId>,
    /// When each of them told something last.
    heard: Vec<Option<Stamp>>,
    fits: Vec<ClockFit>,
    host_of: Vec<usize>,
    steps: Steps,
    keys: TrainerKeys,
    stragglers: Stragglers,
    episodes: Vec<Straggler>,
    collectives: NcclTimings,
    collective_totals: CollectiveTotals,
    telemetry: Telemetry,
    logs: Logs,
    metrics: Metrics,
    job: JobFacts,
    total_steps: Option<u64>,
    alive: BTreeSet<Rank>,
    exits: BTreeMap<Rank, (Stamp, RankExit)>,
    first_step_at: Option<Stamp>,
    last_step_at: Option<Stamp>,
    last_at: Option<Stamp>,
    outcome: Option<RunOutcome>,
    restarts: u32,
    dropped: BTreeMap<String, u64>,
    log_bytes: u64,
    unattended: Vec<(Stamp, Stamp)>,
    silences: Silences,
    waits: Option<WaitTable>,
    /// How long the first step took is not known.
    is_unbegun: bool,
}

impl Analyzer {
    /// Of a run, and of those of its steps and ranks that are chosen.
    pub fn new(spec: Arc<RunSpec>, choice: Choice) -> Self {
        let choice = Arc::new(choice);
        let hosts = spec.hosts();
        let place = |host: &HostId| hosts.iter().position(|other| other == host).unwrap_or_default();
        Self {
            counting: true,
            heard: vec![None; hosts.len()],
            fits: vec![ClockFit::default(); hosts.len()],
            host_of: spec.placements.iter().map(|placement| place(&placement.host)).collect(),
            hosts,
            steps: Steps::new(spec.world(), Arc::clone(&choice)),
            keys: TrainerKeys::default(),
            stragglers: Stragglers::default(),
            episodes: Vec::new(),
            collectives: NcclTimings::default(),
            collective_totals: CollectiveTotals::default(),
            telemetry: Telemetry::new(&spec, &choice),
            logs: Logs::default(),
            metrics: Metrics::default(),
            job: JobFacts::default(),
            total_steps: None,
            alive: BTreeSet::new(),
            exits: BTreeMap::new(),
            first_step_at: None,
            last_step_at: None,
            last_at: None,
            outcome: None,
            restarts: 0,
            dropped: BTreeMap::new(),
            log_bytes: 0,
            unattended: Vec::new(),
            silences: Silences::default(),
            waits: None,
            is_unbegun: false,
            choice,
            spec,
        }
    }

    /// Whether what is taken in from here on counts. What does not is known all the same: who runs, and by whom steps are told.
    /// So a part of a run has the figures that it has within the whole. A step counts where the last rank tells it.
    pub fn count(&mut self, counting: bool) {
        self.counting = counting;
        self.steps.counting = counting;
    }

    /// The same of what has no step number alone: of some steps what happened while they were made counts, and they are told later.
    pub fn count_moments(&mut self, counting: bool) {
        self.counting = counting;
    }

    /// Takes one event in, in the order of the recording. Those of other runs are passed over.
    pub fn take(&mut self, envelope: &Envelope) {
        let (at, event) = (envelope.at, &envelope.event);
        match &envelope.origin {
            Origin::Host(host) => {
                let counting = self.counting && self.choice.has_host(host, &self.spec.placements);
                if let Event::Gap { what, dropped } = event
                    && counting
                {
                    self.dropped(what, *dropped);
                }
                if let Event::ClockSampled { sample } = event {
                    self.clock(host, *sample);
                }
                self.heard_at(at, host, event);
                let is_of_run = self.hosts.contains(host);
                if let Event::LinkChanged { state } = event {
                    // a silence that has begun may end behind what counts
                    if is_of_run && (counting || *state == LinkState::Up) {
                        self.silences.take(at, host, state);
                    }
                } else if counting && is_of_run {
                    self.silences.heard(at, host);
                }
                if !counting && matches!(event, Event::GpuHappened { .. }) {
                    return;
                }
                let counts = counting && !self.alive.is_empty();
                self.telemetry.take(at, host, event, counts, self.steps.newest);
            }
            Origin::Run(run) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_run(at, event);
            }
            Origin::Rank(run, rank) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_rank(at, *rank, event);
                self.of_trainer(at, (*rank).into(), event);
            }
            Origin::Worker(run, rank, worker) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_trainer(at, TrainerId::new(*rank, Some(*worker)), event);
            }
            Origin::Run(_) | Origin::Rank(..) | Origin::Worker(..) => {}
        }
    }

    fn seen_at(&mut self, at: Stamp) {
        self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
    }

    /// A host has told something, though its ranks may not. A change of the link to it is the client's word.
    fn heard_at(&mut self, at: Stamp, host: &HostId, event: &Event) {
        let known = self.hosts.iter().position(|other| other == host);
        let known = known.filter(|_| !matches!(event, Event::LinkChanged { .. }));
        if let Some(heard) = known.and_then(|known| self.heard.get_mut(known)) {
            *heard = (*heard).max(Some(at));
        }
    }

    /// Where the run ends, and up to when it is known what each of its ranks does. A run that goes on is told up to the last word of
    /// its hosts, which comes each second however still the ranks stand; a host that is not heard may have ranks that go on.
    fn ends(&self) -> (Option<Stamp>, Option<Stamp>) {
        if let Some(outcome) = &self.outcome {
            let end = outcome.at.or(self.last_at);
            return (end, end);
        }
        let heard = || self.heard.iter().copied();
        (self.last_at.max(heard().max().flatten()), self.last_at.max(heard().min().flatten()))
    }

    /// A ping to a host.
    fn clock(&mut self, host: &HostId, sample: ClockSample) {
        let Some(at) = self.hosts.iter().position(|other| other == host) else { return };
        self.fits[at].add(sample);
    }

    fn dropped(&mut self, what: &str, count: u64) {
        if !self.counting {
            return;
        }
        if self.dropped.len() < NAMES || self.dropped.contains_key(what) {
            let sum = self.dropped.entry(what.to_owned()).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    fn of_run(&mut self, at: Stamp, event: &Event) {
        match event {
            Event::Attached { since: Some(since), until } => {
                self.silences.left(*since);
                if self.counting {
                    self.unattended.push((*since, until.unwrap_or(at)));
                }
            }
            Event::RunRestarted { .. } => {
                self.restarts += u32::from(self.counting);
                self.alive.clear();
                self.exits.clear();
                self.steps.restart();
                self.keys = TrainerKeys::default();
                self.end_of_stragglers();
            }
            Event::RunEnded { outcome } => self.outcome = Some(outcome.clone()),
            Event::Gap { what, .. } if what == UNBEGUN => self.is_unbegun = true,
            Event::Gap { what, dropped } => self.dropped(what, *dropped),
            Event::WaitsTold { waits } if self.counting => self.waits = Some((**waits).clone()),
            _ => {}
        }
    }

    fn of_rank(&mut self, at: Stamp, rank: Rank, event: &Event) {
        let counting = self.counting && self.choice.has_rank(rank);
        match event {
            Event::RankStarted { .. } => {
                self.alive.insert(rank);
                self.steps.started(rank);
            }
            Event::RankExited { exit } => {
                self.alive.remove(&rank);
                self.exits.insert(rank, (at, exit.clone()));
            }
            Event::LogPrinted { line } => self.logs.take(at, line, counting),
            // what an emptied file leaves out of its numbers says nothing of how much is missing
            Event::LogGap { gap } if counting && gap.reason != GapReason::Emptied => {
                self.log_bytes = self.log_bytes.saturating_add(gap.to.saturating_sub(gap.from));
            }
            Event::Gap { what, dropped } if counting => self.dropped(what, *dropped),
            Event::StepDone { .. } if !self.exits.contains_key(&rank) => {
                self.alive.insert(rank);
            }
            _ => {}
        }
    }

    fn of_trainer(&mut self, at: Stamp, id: TrainerId, event: &Event) {
        match event {
            Event::JobDescribed { job, transport, total_steps, facts } => {
                self.total_steps = total_steps.or(self.total_steps);
                self.job.add(job, transport.as_deref(), facts);
            }
            Event::StepsBy { by } => {
                self.steps.told_by(id, *by);
                self.end_of_stragglers();
            }
            Event::StepDone { timing } => {
                self.first_step_at = self.first_step_at.or(Some(at));
                self.last_step_at = self.last_step_at.max(Some(at));
                self.steps.stands.ended(id, timing.step, at);
                self.step(id, timing);
                self.steps.ended(timing.step, at);
            }
            Event::RankStands { standing } => self.steps.stands.take(id, at, standing),
            Event::StepSeen { seen } => {
                self.total_steps = seen.total.or(self.total_steps);
                self.steps.seen(id, seen.step, seen.loss);
            }
            Event::MetricReported { name, value, step } if self.choice.has_trainer(id) => {
                let is_within =
                    step.map_or(self.counting, |step| self.steps.counting && self.choice.window.holds(step));
                if is_within {
                    self.metrics.take(self.keys.known(id).0, name, (at, *step), *value);
                }
            }
            Event::CollectiveDone { timing } if self.counting => {
                let whole = self.collectives.take(self.keys.known(id), timing);
                self.collective_totals.take(timing, whole);
            }
            _ => {}
        }
    }

    fn step(&mut self, id: TrainerId, timing: &StepTiming) {
        let key = self.keys.key(id);
        if self.keys.is_apart() {
            self.steps.come_apart();
            self.stragglers = Stragglers::default();
            self.episodes.clear();
        }
        let host = self.host_of.get(id.rank.0 as usize).copied().unwrap_or_default();
        let fit = self.fits.get(host);
        let clock = HostClock { host, unsure_us: fit.map_or(0, |fit| fit.way_us(timing.start)) };
        let start = fit.and_then(|fit| Some((fit.stamp(timing.start)?, fit.unsure_us(timing.start)?)));
        self.steps.step(id, (clock, start), timing);
        if self.steps.counting && self.choice.window.holds(timing.step) && !self.keys.is_apart() {
            self.stragglers.step(self.steps.world(), key, timing);
        }
    }

    /// A rank that was a straggler is kept; another one is looked for from the start.
    fn end_of_stragglers(&mut self) {
        let ended = std::mem::take(&mut self.stragglers);
        let room = EPISODES.saturating_sub(self.episodes.len());
        self.episodes.extend(ended.episodes().take(room));
    }

    /// What is known of a part of a run behind which it goes on.
    pub fn so_far(mut self) -> RunAnalysis {
        self.steps.leave_open();
        self.finish(None)
    }

    /// What is known in the end. `damage`: what is wrong with the recording.
    pub fn finish(mut self, damage: Option<String>) -> RunAnalysis {
        self.steps.close_all();
        self.end_of_stragglers();
        summary::of(self, damage)
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
