//! A world that is told before all of what leads to it is read: the beginning of a run, moments between, and what came last.
//!
//! [`World::leap`] stands between these parts. What holds of events that follow each other alone is forgotten there, so that
//! nothing is claimed of what was not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Alerts, Collected, Envelope, Event, HostState, LastWords, LeastWait, NcclTimings, Origin, RankOutput,
    RankState, RunHistory, RunLog, RunStage, RunState, Stragglers, World,
};
use crate::domain::idle::IdleSince;
use crate::domain::ids::RunId;
use crate::domain::time::Stamp;
use crate::domain::trainer_keys::TrainerId;

/// What is kept of whole runs, as it was at a moment.
#[derive(Debug, Clone)]
pub struct Histories(BTreeMap<RunId, RunHistory>);

impl World {
    /// What comes next does not follow what came last. The history of each run begins anew, with so few points that each has a
    /// moment that is looked at.
    pub fn leap(&mut self, points: usize) {
        self.forget();
        for run in self.runs.values_mut() {
            run.history = RunHistory::coarse(&run.history, run.ranks.len(), points);
        }
    }

    /// The same up to a moment of which later ones have told where the time went.
    pub fn leap_to(&mut self, moment: Stamp, later: &Histories) {
        self.forget();
        for (id, run) in &mut self.runs {
            if let Some(later) = later.0.get(id) {
                run.history = RunHistory::known_until(&run.history, later, moment);
            }
        }
    }

    /// What is kept of whole runs.
    pub fn histories(&self) -> Histories {
        Histories(self.runs.iter().map(|(id, run)| (id.clone(), run.history.clone())).collect())
    }

    fn forget(&mut self) {
        let rules = Arc::clone(&self.alerts.rules);
        self.alerts = Alerts::default();
        self.alerts.rules = rules;
        self.hosts.values_mut().for_each(HostState::leap);
        self.runs.values_mut().for_each(RunState::leap);
    }

    /// Takes in an event of a moment between: where the time of a step went.
    pub fn look_at(&mut self, envelope: &Envelope) {
        let Event::StepDone { timing } = &envelope.event else { return };
        let id = match &envelope.origin {
            Origin::Rank(_, rank) => TrainerId::from(*rank),
            Origin::Worker(_, rank, worker) => TrainerId::new(*rank, Some(*worker)),
            Origin::Host(_) | Origin::Run(_) => return,
        };
        let Some(run) = envelope.origin.run().and_then(|id| self.runs.get_mut(id)) else { return };
        let count = run.ranks.len();
        let key = run.trainer_keys.key(id);
        run.history.step(envelope.at, (key, count), timing, false);
    }

    /// A run had entered this stage by then.
    pub fn had_entered(&mut self, at: Stamp, stage: RunStage) {
        for run in self.runs.values_mut().filter(|run| run.stage() != Some(stage)) {
            run.stages.push((at, stage));
            if stage == RunStage::Prepare {
                // it was started again
                run.ranks.iter_mut().for_each(|rank| rank.exit = None);
            }
        }
    }
}

impl HostState {
    fn leap(&mut self) {
        self.past.clear();
        self.idle = IdleSince::default();
        self.last_values.clear();
        // what changed since did not change just now
        self.sample = None;
        if !self.is_up() && !self.is_limited() {
            (self.link, self.down_since, self.down_why) = (None, None, None);
        }
    }
}

impl RunState {
    fn leap(&mut self) {
        self.log = RunLog::default();
        self.stragglers = Stragglers::default();
        self.least_wait = LeastWait::default();
        self.collectives = NcclTimings::default();
        self.collected = Collected::default();
        for rank in &mut self.ranks {
            rank.leap();
            rank.workers.values_mut().for_each(RankState::leap);
        }
    }
}

impl RankState {
    fn leap(&mut self) {
        self.steps.clear();
        self.standing = None;
        self.last_line = None;
        self.metrics.clear();
        self.output = RankOutput::default();
        self.last_words = LastWords::default();
        (self.values, self.seen) = (None, None);
    }
}
