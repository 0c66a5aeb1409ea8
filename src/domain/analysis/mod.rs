//! How a run went: a fold over the envelopes of its recording that needs little memory however long the run was, and the
//! figures that come of it. `hvtui report` and `hvtui diff` show them. Knows nothing of files.

pub mod by_step;
mod facts;
mod figures;
mod finding;
mod gpus;
pub mod histogram;
mod lateness;
mod logs;
mod steps;
mod summary;
mod trend;
mod what_if;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::facts::JobFacts;
use self::gpus::Telemetry;
use self::logs::Logs;
use self::steps::Steps;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::Rank;
use crate::domain::nccl_timing::NcclTimings;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RankExit, RunSpec};
use crate::domain::straggler::{Straggler, Stragglers};
use crate::domain::time::Stamp;
use crate::domain::timing::StepTiming;

pub use figures::{
    Charts, Cliffs, Counted, Episode, Estimates, Fact, FirstError, GapFigures, GpuFigures, HostFigures,
    LogFigures, LossFigures, PhaseFigures, RankFigures, RunAnalysis, SampleFigures, Spread, StepFigures,
    Throttle, WhatIf, Window,
};
pub use finding::{Finding, findings};
pub use gpus::UtilPoint;
pub use lateness::Late;
pub use steps::StepPoint;

/// Episodes of stragglers that are kept.
const EPISODES: usize = 64;
/// Names of what was dropped that are told apart.
const NAMES: usize = 16;

/// The fold over the envelopes of one run.
#[derive(Debug)]
pub struct Analyzer {
    window: Window,
    spec: Arc<RunSpec>,
    steps: Steps,
    stragglers: Stragglers,
    episodes: Vec<Straggler>,
    collectives: NcclTimings,
    telemetry: Telemetry,
    logs: Logs,
    job: JobFacts,
    total_steps: Option<u64>,
    alive: BTreeSet<Rank>,
    exits: BTreeMap<Rank, RankExit>,
    first_step_at: Option<Stamp>,
    last_at: Option<Stamp>,
    outcome: Option<RunOutcome>,
    restarts: u32,
    dropped: BTreeMap<String, u64>,
    log_bytes: u64,
    unattended_us: u64,
}

impl Analyzer {
    /// Of a run, and of those of its steps that lie in the window.
    pub fn new(spec: Arc<RunSpec>, window: Window) -> Self {
        Self {
            window,
            steps: Steps::new(spec.world(), window),
            stragglers: Stragglers::default(),
            episodes: Vec::new(),
            collectives: NcclTimings::default(),
            telemetry: Telemetry::new(&spec),
            logs: Logs::default(),
            job: JobFacts::default(),
            total_steps: None,
            alive: BTreeSet::new(),
            exits: BTreeMap::new(),
            first_step_at: None,
            last_at: None,
            outcome: None,
            restarts: 0,
            dropped: BTreeMap::new(),
            log_bytes: 0,
            unattended_us: 0,
            spec,
        }
    }

    /// Takes one event in, in the order of the recording. Those of other runs are passed over.
    pub fn take(&mut self, envelope: &Envelope) {
        let (at, event) = (envelope.at, &envelope.event);
        match &envelope.origin {
            Origin::Host(host) => {
                if let Event::Gap { what, dropped } = event {
                    self.dropped(what, *dropped);
                }
                self.telemetry.take(at, host, event, !self.alive.is_empty(), self.steps.newest);
            }
            Origin::Run(run) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_run(at, event);
            }
            Origin::Rank(run, rank) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_rank(*rank, event);
                self.of_trainer(at, rank.0, false, event);
            }
            Origin::Worker(run, _, worker) if *run == self.spec.id => {
                self.seen_at(at);
                self.of_trainer(at, *worker, true, event);
            }
            Origin::Run(_) | Origin::Rank(..) | Origin::Worker(..) => {}
        }
    }

    fn seen_at(&mut self, at: Stamp) {
        self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
    }

    fn dropped(&mut self, what: &str, count: u64) {
        if self.dropped.len() < NAMES || self.dropped.contains_key(what) {
            let sum = self.dropped.entry(what.to_owned()).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    fn of_run(&mut self, at: Stamp, event: &Event) {
        match event {
            Event::Attached { since: Some(since) } => {
                let us = at.micros_since(*since).max(0).unsigned_abs();
                self.unattended_us = self.unattended_us.saturating_add(us);
            }
            Event::RunRestarted { .. } => {
                self.restarts += 1;
                self.alive.clear();
                self.exits.clear();
                self.steps.restart();
                self.end_of_stragglers();
            }
            Event::RunEnded { outcome } => self.outcome = Some(outcome.clone()),
            Event::Gap { what, dropped } => self.dropped(what, *dropped),
            _ => {}
        }
    }

    fn of_rank(&mut self, rank: Rank, event: &Event) {
        match event {
            Event::RankStarted { .. } => {
                self.alive.insert(rank);
                self.steps.started(rank);
            }
            Event::RankExited { exit } => {
                self.alive.remove(&rank);
                self.exits.insert(rank, exit.clone());
            }
            Event::LogPrinted { line } => self.logs.take(line),
            Event::LogGap { gap } => {
                self.log_bytes = self.log_bytes.saturating_add(gap.to.saturating_sub(gap.from));
            }
            Event::Gap { what, dropped } => self.dropped(what, *dropped),
            Event::StepDone { .. } if !self.exits.contains_key(&rank) => {
                self.alive.insert(rank);
            }
            _ => {}
        }
    }

    fn of_trainer(&mut self, at: Stamp, number: u32, worker: bool, event: &Event) {
        match event {
            Event::JobDescribed { job, transport, total_steps, facts } => {
                self.total_steps = total_steps.or(self.total_steps);
                self.job.add(job, transport.as_deref(), facts);
            }
            Event::StepsBy { by } => {
                self.steps.told_by(number, *by);
                self.end_of_stragglers();
            }
            Event::StepDone { timing } => {
                self.first_step_at = self.first_step_at.or(Some(at));
                self.step(number, worker, timing);
            }
            Event::StepSeen { seen } => {
                self.total_steps = seen.total.or(self.total_steps);
                self.steps.seen(number, seen.step, seen.loss);
            }
            Event::CollectiveDone { timing } => self.collectives.take(Rank(number), timing),
            _ => {}
        }
    }

    fn step(&mut self, number: u32, worker: bool, timing: &StepTiming) {
        self.steps.step(number, worker, timing);
        if self.window.holds(timing.step) {
            self.stragglers.step(self.steps.world(), Rank(number), timing);
        }
    }

    /// Whoever was a straggler is kept; another one is looked for from the start.
    fn end_of_stragglers(&mut self) {
        let ended = std::mem::take(&mut self.stragglers);
        let room = EPISODES.saturating_sub(self.episodes.len());
        self.episodes.extend(ended.past().chain(ended.now()).take(room).cloned());
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
