//! What is known of one rank, as screens and reports ask for it.

use std::collections::BTreeMap;

use super::{
    HookFacts, LastWords, NcclFacts, Placement, RATE_STEPS, RankOutput, RankState, RecentSteps, StepTiming,
    StepTotals, StepsBy, Worked,
};
use crate::domain::timing::{Phase, PhaseSpan};

/// In so many of its newest steps an allreduce is looked for: hooks tell the phases of some of many short ones.
const MET_STEPS: usize = 8;

impl RankState {
    pub(super) fn new(placement: Placement) -> Self {
        Self {
            placement,
            started: None,
            job: None,
            transport: None,
            waits_for: Vec::new(),
            met: false,
            steps: RecentSteps::default(),
            step_count: 0,
            metrics: BTreeMap::new(),
            weights: None,
            output: RankOutput::default(),
            last_line: None,
            exit: None,
            values: None,
            steps_by: StepsBy::default(),
            standing: None,
            seen: None,
            nccl: NcclFacts::default(),
            hooks: HookFacts::default(),
            workers: BTreeMap::new(),
            last_words: LastWords::default(),
        }
    }

    /// One word for its state.
    pub fn word(&self) -> &'static str {
        match &self.exit {
            Some((_, exit)) if exit.error.is_some() => "no start",
            Some((_, exit)) if exit.stopped => "stopped",
            Some((_, exit)) if exit.signal.is_some() => "killed",
            Some((_, exit)) if exit.code == Some(0) => "done",
            Some(_) => "failed",
            None if self.trains() || self.seen.is_some() => "training",
            None if self.met => "met",
            None if !self.waits_for.is_empty() => "waits",
            None if self.started.is_some() => "running",
            None => "–",
        }
    }

    /// Whether anything tells that its process has run.
    pub fn has_run(&self) -> bool {
        self.started.is_some() || self.trains() || self.seen.is_some() || self.last_line.is_some()
    }

    /// Whether it or a process within it has told of a step.
    pub fn trains(&self) -> bool {
        !self.steps.is_empty() || self.workers.values().any(|worker| !worker.steps.is_empty())
    }

    /// Its newest steps, newest first.
    pub fn recent_steps(&self, count: usize) -> impl Iterator<Item = &StepTiming> {
        self.steps.newest(count).map(|(_, step)| step)
    }

    /// Samples a second over its newest steps.
    pub fn samples_per_second(&self) -> Option<f64> {
        self.speed().samples_per_second()
    }

    /// What it has worked through in its newest steps.
    pub fn worked(&self) -> Worked {
        let speed = self.speed();
        let is_met = |step: &StepTiming| {
            let told = |span: &PhaseSpan| matches!(span.phase, Phase::Wait | Phase::Transfer);
            step.hidden_us > 0 || step.spans.iter().any(told)
        };
        let meets = self.recent_steps(MET_STEPS).any(is_met);
        Worked { steps: speed.steps, samples: speed.samples, us: speed.step_us, meets }
    }

    fn speed(&self) -> StepTotals {
        // without the sums over phases, which a screen of hundreds of ranks does not need
        let mut totals = StepTotals::default();
        self.recent_steps(RATE_STEPS).for_each(|step| {
            totals.steps += 1;
            totals.step_us += u64::from(step.dur_us);
            totals.samples += u64::from(step.samples);
        });
        totals
    }

    /// The number of the step that it has finished, told or read from what it prints.
    pub fn step(&self) -> Option<u64> {
        self.latest_step().map(|step| step.step).or_else(|| Some(self.seen?.step))
    }

    /// The newest loss that it told or printed.
    pub fn loss(&self) -> Option<f32> {
        self.latest_step().map_or_else(|| self.seen?.loss, |step| step.loss)
    }

    /// Its newest step.
    pub fn latest_step(&self) -> Option<&StepTiming> {
        self.steps.back().map(|(_, step)| step)
    }
}
