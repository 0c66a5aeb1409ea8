//! Parts the wait that hooks tell into waiting and moving bytes, as screens and reports do: from outside an allreduce only its
//! whole length is seen, and how much of it was moving bytes is known once all ranks have told the step. So steps that hooks
//! tell are held until then.

use std::collections::BTreeMap;

use crate::domain::hooks::StepsBy;
use crate::domain::last_in::HostClock;
use crate::domain::time::Stamp;
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};
use crate::domain::trainer_keys::TrainerId;
use crate::domain::transfer;

/// Parts of steps that some ranks have told and others not. What a client has caught up with comes rank by rank, thousands of steps
/// apart.
const MOST_PARTS: usize = 1 << 18;

/// A step of one that trains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) id: TrainerId,
    /// Its host, as it was known when the step was heard of.
    pub(super) clock: HostClock,
    /// When it was heard of.
    pub(super) arrived: Stamp,
    pub(super) timing: StepTiming,
}

/// The steps that are held.
#[derive(Debug, Default)]
pub(super) struct Parting {
    /// Whose steps hooks tell, and the newest step of each rank.
    hooks: BTreeMap<TrainerId, bool>,
    newest: BTreeMap<TrainerId, u64>,
    open: BTreeMap<u64, Vec<Held>>,
    parts: usize,
}

impl Parting {
    /// From here on another one tells the steps of a rank. Gives what is held.
    pub(super) fn told_by(&mut self, id: TrainerId, by: StepsBy) -> Vec<Held> {
        // a rank that has told none yet is only the next of all to begin
        let held = if self.newest.contains_key(&id) { self.rest() } else { Vec::new() };
        self.hooks.insert(id, by == StepsBy::Hooks);
        held
    }

    /// Whether steps of a run of so many ranks are held.
    pub(super) fn holds(&self, world: usize) -> bool {
        world > 1 && self.hooks.values().any(|hooks| *hooks)
    }

    /// Whether nothing is held of a step up to this one.
    pub(super) fn is_behind(&self, step: u64) -> bool {
        self.open.first_key_value().is_none_or(|(first, _)| *first > step)
    }

    /// Holds a step; gives those that need not be held any more, in their order.
    pub(super) fn step(&mut self, world: usize, held: Held) -> Vec<Held> {
        let number = held.timing.step;
        let before = self.newest.get(&held.id);
        // all ranks were started again
        let mut done = if before.is_some_and(|before| *before >= number) { self.rest() } else { Vec::new() };
        self.newest.insert(held.id, number);
        self.parts += 1;
        let parts = self.open.entry(number).or_default();
        parts.push(held);
        if parts.len() >= world {
            self.part(number);
            // ranks tell their steps in order: what is older can't become whole any more
            while self.open.first_key_value().is_some_and(|(step, _)| *step <= number) {
                done.extend(self.pop());
            }
        }
        while self.parts > MOST_PARTS {
            done.extend(self.pop());
        }
        done
    }

    /// All that is held.
    pub(super) fn rest(&mut self) -> Vec<Held> {
        self.newest.clear();
        self.parts = 0;
        std::mem::take(&mut self.open).into_values().flatten().collect()
    }

    fn pop(&mut self) -> Vec<Held> {
        let oldest = self.open.pop_first().map(|(_, parts)| parts).unwrap_or_default();
        self.parts = self.parts.saturating_sub(oldest.len());
        oldest
    }

    /// All ranks have told the step: the one that came last did not wait.
    fn part(&mut self, step: u64) {
        let Some(parts) = self.open.get_mut(&step) else { return };
        let total = |held: &Held, phase: Phase| held.timing.phase_totals()[phase.index()];
        let least = parts.iter().map(|held| total(held, Phase::Wait)).min().unwrap_or_default();
        if least == 0 || parts.iter().any(|held| total(held, Phase::Transfer) > 0) {
            return;
        }
        for held in parts.iter_mut().filter(|held| self.hooks.get(&held.id).copied().unwrap_or_default()) {
            transfer::part(&mut held.timing, least);
            let spans = &mut held.timing.spans;
            if !spans.iter().any(|span| span.phase == Phase::Wait)
                && let Some(at) = spans.iter().position(|span| span.phase == Phase::Transfer)
            {
                // that it did not wait is known, too
                spans.insert(at, PhaseSpan { phase: Phase::Wait, start_us: spans[at].start_us, dur_us: 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;
    use crate::domain::time::HostTime;

    fn held(rank: u32, step: u64, wait_us: u32) -> Held {
        let spans = [PhaseSpan { phase: Phase::Wait, start_us: 0, dur_us: wait_us }].into();
        let timing =
            StepTiming { step, start: HostTime(0), dur_us: 100, loss: None, samples: 0, spans, hidden_us: 0 };
        Held { id: Rank(rank).into(), clock: HostClock::default(), arrived: Stamp(0), timing }
    }

    /// Rank, step, wait, transfer.
    fn told(done: &[Held]) -> Vec<(u32, u64, u64, u64)> {
        let of = |held: &Held| {
            let totals = held.timing.phase_totals();
            (held.id.rank.0, held.timing.step, totals[Phase::Wait.index()], totals[Phase::Transfer.index()])
        };
        done.iter().map(of).collect()
    }

    fn hooks() -> Parting {
        let mut parting = Parting::default();
        assert!(!parting.holds(2), "not before hooks tell steps");
        (0..2).for_each(|rank| assert_eq!(parting.told_by(Rank(rank).into(), StepsBy::Hooks), []));
        assert!(parting.holds(2) && !parting.holds(1));
        parting
    }

    #[test]
    fn a_step_is_given_parted_once_all_have_told_it() {
        let mut parting = hooks();
        assert_eq!(parting.step(2, held(0, 1, 50)), []);
        assert_eq!(parting.step(2, held(0, 2, 30)), []);
        assert_eq!([0, 1].map(|step| parting.is_behind(step)), [true, false]);
        let done = parting.step(2, held(1, 1, 8));
        assert_eq!([1, 2].map(|step| parting.is_behind(step)), [true, false]);
        assert_eq!(told(&done), [(0, 1, 42, 8), (1, 1, 0, 8)]);
        let waits = |held: &Held| held.timing.spans.iter().any(|span| span.phase == Phase::Wait);
        assert!(done.iter().all(waits), "a wait of 0 is one that is told");
        // rank 1 skips step 2
        assert_eq!(parting.step(2, held(0, 3, 20)), []);
        assert_eq!(told(&parting.step(2, held(1, 3, 25))), [(0, 2, 30, 0), (0, 3, 0, 20), (1, 3, 5, 20)]);
    }

    #[test]
    fn a_rank_that_begins_lets_go_of_no_step_that_another_has_told() {
        let mut parting = Parting::default();
        assert_eq!(parting.told_by(Rank(0).into(), StepsBy::Hooks), []);
        assert_eq!(parting.step(2, held(0, 1, 50)), []);
        assert_eq!(parting.told_by(Rank(1).into(), StepsBy::Hooks), []);
        assert_eq!(told(&parting.step(2, held(1, 1, 8))), [(0, 1, 42, 8), (1, 1, 0, 8)]);
        assert_eq!(parting.step(2, held(0, 2, 50)), []);
        assert_eq!(told(&parting.told_by(Rank(1).into(), StepsBy::Program)), [(0, 2, 50, 0)], "another one");
    }

    #[test]
    fn another_attempt_gives_what_is_held_and_the_end_too() {
        let mut parting = hooks();
        assert_eq!(parting.step(2, held(0, 5, 50)), []);
        assert_eq!(told(&parting.step(2, held(0, 1, 40))), [(0, 5, 50, 0)]);
        assert_eq!(told(&parting.rest()), [(0, 1, 40, 0)]);
        assert_eq!(parting.rest(), []);
    }

    #[test]
    fn steps_that_one_rank_never_tells_do_not_pile_up() {
        let mut parting = hooks();
        let more = MOST_PARTS as u64 + 1000;
        let given: usize = (1..=more).map(|step| parting.step(2, held(0, step, 50)).len()).sum();
        assert_eq!((given, parting.open.len(), parting.parts), (1000, MOST_PARTS, MOST_PARTS));
    }

    #[test]
    fn a_rank_that_is_thousands_of_steps_ahead_is_waited_for() {
        let mut parting = hooks();
        let given: usize = (1..=5000).map(|step| parting.step(2, held(0, step, 50)).len()).sum();
        assert_eq!((given, parting.parts), (0, 5000));
        let done = parting.step(2, held(1, 1, 8));
        assert_eq!(told(&done), [(0, 1, 42, 8), (1, 1, 0, 8)]);
    }
}
