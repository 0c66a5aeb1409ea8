//! Finds the moments at which a run as a whole finished a step: when the last of its ranks did. Ranks tell each step, or
//! every so many; of a rank that tells none those count that it prints.

use serde::{Deserialize, Serialize};

use super::reader::Timed;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::RunId;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;

/// Collects the moments, chunk by chunk in order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steps {
    run: RunId,
    /// The last step that each rank finished.
    done: Vec<Option<u64>>,
    /// Which ranks tell their steps themselves.
    told: Vec<bool>,
    /// The step that all ranks have finished.
    least: Option<u64>,
    /// How many ranks stand at `least`.
    at_least: usize,
    /// When `least` rose and to which step, both in rising order.
    moments: Vec<(Stamp, u64)>,
    /// The first chunk that was not looked at yet.
    next_chunk: usize,
}

impl Steps {
    pub(super) fn new(spec: &RunSpec) -> Self {
        let ranks = spec.placements.len();
        Self {
            run: spec.id.clone(),
            done: vec![None; ranks],
            told: vec![false; ranks],
            least: None,
            at_least: ranks,
            moments: Vec::new(),
            next_chunk: 0,
        }
    }

    /// The chunk that is to be given next.
    pub(super) fn next_chunk(&self) -> usize {
        self.next_chunk
    }

    /// Takes in the chunk [`Steps::next_chunk`].
    pub(super) fn take(&mut self, chunk: &[Timed]) {
        self.next_chunk += 1;
        for timed in chunk {
            let Origin::Rank(run, rank) = &timed.envelope.origin else { continue };
            if *run == self.run {
                self.hear(rank.0 as usize, &timed.envelope.event, timed.time);
            }
        }
    }

    fn hear(&mut self, rank: usize, event: &Event, at: Stamp) {
        let Some(told) = self.told.get_mut(rank) else { return };
        match event {
            Event::StepDone { timing } => {
                *told = true;
                self.step_done(rank, timing.step, at);
            }
            Event::StepSeen { seen } if !*told => self.step_done(rank, seen.step, at),
            _ => {}
        }
    }

    fn step_done(&mut self, rank: usize, step: u64, at: Stamp) {
        let Some(done) = self.done.get_mut(rank) else { return };
        if done.is_some_and(|done| done >= step) {
            return;
        }
        let was_least = *done == self.least;
        *done = Some(step);
        if !was_least {
            return;
        }
        self.at_least -= 1;
        if self.at_least == 0 {
            self.least = self.done.iter().copied().min().flatten();
            self.at_least = self.done.iter().filter(|done| **done == self.least).count();
            self.moments.extend(self.least.map(|step| (at, step)));
        }
    }

    /// The first moment behind `at` among those seen so far.
    pub(super) fn after(&self, at: Stamp) -> Option<Stamp> {
        let index = self.moments.partition_point(|(moment, _)| *moment <= at);
        self.moments.get(index).map(|(moment, _)| *moment)
    }

    /// When the run had finished a step, or a later one, so far as was seen.
    pub(super) fn reached(&self, step: u64) -> Option<Stamp> {
        let index = self.moments.partition_point(|(_, least)| *least < step);
        self.moments.get(index).map(|(moment, _)| *moment)
    }

    /// The last moment before `at` among those seen so far.
    pub(super) fn before(&self, at: Stamp) -> Option<Stamp> {
        let index = self.moments.partition_point(|(moment, _)| *moment < at).checked_sub(1)?;
        self.moments.get(index).map(|(moment, _)| *moment)
    }
}
