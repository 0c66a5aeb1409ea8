//! What the newest steps of each that trains tell together: summed up once a frame, for the table of ranks has many numbers of
//! them, and some over all ranks.

use std::collections::BTreeMap;

use crate::domain::ids::Rank;
use crate::domain::step_totals::StepTotals;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainers::Trainer;
use crate::domain::world::{RankState, RunState};

/// How many recent steps numbers of a rank are taken over.
pub(super) const RECENT: usize = 20;

/// Sums over the newest steps of one that trains, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Recent {
    steps: u32,
    /// How many of them tell phases.
    told: u32,
    /// How many of them tell of their allreduce.
    met: u32,
    step_us: u64,
    /// Microseconds a phase, indexed as [`Phase::ALL`].
    phases: [u64; Phase::COUNT],
    /// What the phases leave of those that tell them, microseconds.
    other_us: u64,
    hidden_us: u64,
}

impl Recent {
    /// Of one that trains.
    pub(super) fn of(rank: &RankState) -> Self {
        let mut recent = Self::default();
        rank.recent_steps(RECENT).for_each(|step| recent.take(step));
        recent
    }

    fn take(&mut self, step: &StepTiming) {
        let step_us = u64::from(step.dur_us);
        self.steps += 1;
        self.step_us += step_us;
        self.hidden_us += u64::from(step.hidden_us);
        if step.spans.is_empty() {
            return;
        }
        let totals = step.phase_totals();
        self.told += 1;
        // the one that comes last has no wait once what moved the bytes is known
        let is_met = step.spans.iter().any(|span| matches!(span.phase, Phase::Wait | Phase::Transfer));
        self.met += u32::from(is_met);
        self.other_us += step_us.saturating_sub(totals.iter().sum()) + totals[Phase::Other.index()];
        self.phases.iter_mut().zip(totals).for_each(|(own, us)| *own += us);
    }

    /// Of several together.
    pub(super) fn together<'a>(of: impl Iterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for one in of {
            all.steps += one.steps;
            all.told += one.told;
            all.met += one.met;
            all.step_us += one.step_us;
            all.phases.iter_mut().zip(one.phases).for_each(|(own, us)| *own += us);
            all.other_us += one.other_us;
            all.hidden_us += one.hidden_us;
        }
        all
    }

    /// Mean length of a step, microseconds.
    pub(super) fn step_us(&self) -> Option<f64> {
        mean(self.step_us, self.steps)
    }

    /// What a phase takes of a step that tells its phases on the average, microseconds.
    pub(super) fn phase_us(&self, phase: Phase) -> Option<f64> {
        mean(self.phases[phase.index()], self.told)
    }

    /// What the phases leave of such a step on the average, microseconds.
    pub(super) fn other_us(&self) -> Option<f64> {
        mean(self.other_us, self.told)
    }

    /// How long it waits in the allreduce of a step on the average, microseconds.
    fn wait_us(&self) -> Option<f64> {
        mean(self.phases[Phase::Wait.index()], self.met)
    }

    /// How long it stands still for the allreduce of a step on the average, microseconds.
    pub(super) fn exposed_us(&self) -> Option<f64> {
        self.allreduce().mean_exposed_us()
    }

    /// The share of the allreduce that was hidden, 0 to 1.
    pub(super) fn overlap(&self) -> Option<f64> {
        self.allreduce().overlap()
    }

    /// Whether a step hid something of its allreduce.
    pub(super) fn hides(&self) -> bool {
        self.hidden_us > 0
    }

    /// Whether a step tells some time of a phase.
    pub(super) fn tells(&self, phase: Phase) -> bool {
        self.phases[phase.index()] > 0
    }

    fn allreduce(&self) -> StepTotals {
        let exposed_us = self.phases[Phase::Wait.index()] + self.phases[Phase::Transfer.index()];
        let (steps, hidden_us) = (self.told.into(), self.hidden_us);
        StepTotals { steps, hidden_us, exposed_us, ..StepTotals::default() }
    }

    /// What a phase takes of any step on the average, microseconds; 0 where there is none.
    pub(super) fn phase_of_step_us(&self, phase: Phase) -> f64 {
        mean(self.phases[phase.index()], self.steps).unwrap_or(0.0)
    }
}

fn mean(sum: u64, count: u32) -> Option<f64> {
    (count > 0).then(|| sum as f64 / f64::from(count))
}

/// Those of all that train.
#[derive(Debug)]
pub(super) struct Recents<'a> {
    run: &'a RunState,
    all: Vec<(Trainer<'a>, Recent)>,
    /// The place of the first one in each rank.
    firsts: Vec<usize>,
}

impl<'a> Recents<'a> {
    pub(super) fn of(run: &'a RunState) -> Self {
        let (mut all, mut firsts) =
            (Vec::with_capacity(run.ranks.len()), Vec::with_capacity(run.ranks.len()));
        for number in (0..run.ranks.len() as u32).map(Rank) {
            firsts.push(all.len());
            all.extend(run.trainers_in(number).map(|one| (one, Recent::of(one.state))));
        }
        Self { run, all, firsts }
    }

    /// Of each.
    pub(super) fn all(&self) -> impl Iterator<Item = &Recent> {
        self.all.iter().map(|(_, recent)| recent)
    }

    /// Of a rank that trains, and of those that train within it.
    pub(super) fn within(&self, number: Rank) -> &[(Trainer<'a>, Recent)] {
        let at = number.0 as usize;
        let end = self.firsts.get(at + 1).copied().unwrap_or(self.all.len());
        self.firsts.get(at).and_then(|first| self.all.get(*first..end)).unwrap_or_default()
    }

    /// Of a rank, or of a process within it; none where it does not train itself.
    pub(super) fn of_one(&self, number: Rank, state: &RankState) -> Recent {
        let found = self.within(number).iter().find(|(one, _)| std::ptr::eq(one.state, state));
        found.map(|(_, recent)| *recent).unwrap_or_default()
    }

    /// How much later than a typical one of its training each comes to the allreduce, microseconds a step, by its key: how much
    /// less it waits there. Nothing where not all of them tell of their waits.
    pub(super) fn lateness_us(&self) -> BTreeMap<Rank, f64> {
        if !self.run.trainer_keys.is_apart() {
            return lateness_among(&self.all);
        }
        let ranks = (0..self.firsts.len() as u32).map(Rank);
        ranks.flat_map(|number| lateness_among(self.within(number))).collect()
    }
}

fn lateness_among(trainers: &[(Trainer<'_>, Recent)]) -> BTreeMap<Rank, f64> {
    let waits = trainers.iter().map(|(one, recent)| Some((one.key, recent.wait_us()?)));
    let waits: Vec<(Rank, f64)> = waits.collect::<Option<_>>().unwrap_or_default();
    if waits.len() < 2 {
        return BTreeMap::new();
    }
    let mut sorted: Vec<f64> = waits.iter().map(|(_, wait)| *wait).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let typical = sorted[sorted.len() / 2];
    waits.into_iter().map(|(key, wait)| (key, (typical - wait).max(0.0))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{START, spec, timing};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::fixtures::step_timing;
    use crate::domain::ids::RunId;
    use crate::domain::timing::PhaseSpan;
    use crate::domain::world::World;

    /// A run whose ranks tell these steps.
    fn told(ranks: u32, steps: impl IntoIterator<Item = (u32, Option<u32>, StepTiming)>) -> (World, RunId) {
        let (mut world, spec) = (World::default(), Arc::new(spec(ranks)));
        let mut seq = 0;
        let mut tell = |origin: Origin, event: Event| {
            seq += 1;
            world.apply(&Envelope { seq, at: START.plus_micros(seq as i64), origin, event });
        };
        tell(Origin::Run(spec.id.clone()), Event::RunCreated { spec: Arc::clone(&spec) });
        for (rank, worker, timing) in steps {
            let rank = Rank(rank);
            let origin = match worker {
                Some(worker) => Origin::Worker(spec.id.clone(), rank, worker),
                None => Origin::Rank(spec.id.clone(), rank),
            };
            tell(origin, Event::StepDone { timing: Arc::new(timing) });
        }
        (world, spec.id.clone())
    }

    /// Hooks tell one wait, of which the least is transfer: the rank that comes last has none of its own then.
    #[test]
    fn the_rank_that_comes_last_is_late_by_what_the_others_wait() {
        let phases = [(0, 20, 80), (1, 90, 10), (2, 21, 79)];
        let steps = (1..=30).flat_map(|step| {
            phases.map(|(rank, backward, wait)| (rank, None, timing(step, [0, 0, backward, wait, 0, 5])))
        });
        let (world, id) = told(3, steps);
        let late = Recents::of(&world.runs[&id]).lateness_us();
        let ms = |rank| (late[&Rank(rank)] / 1e3).round() as i64;
        assert_eq!([ms(0), ms(1), ms(2)], [0, 69, 0]);
    }

    #[test]
    fn sums_are_of_the_newest_steps_that_tell_what_is_asked() {
        let step = |number, dur_us, hidden_us, spans: &[(Phase, u32)]| StepTiming {
            samples: 1,
            spans: spans
                .iter()
                .map(|(phase, dur_us)| PhaseSpan { phase: *phase, start_us: 0, dur_us: *dur_us })
                .collect(),
            hidden_us,
            ..step_timing(number, dur_us)
        };
        let old = (1..=9).map(|number| step(number, 9_000_000, 9, &[(Phase::Wait, 9_000)]));
        let plain = (10..=19).map(|number| step(number, 1_000, 0, &[]));
        let alone =
            (20..=24).map(|number| step(number, 3_000, 0, &[(Phase::Forward, 1_000), (Phase::Other, 500)]));
        let met = (25..=29).map(|number| {
            step(number, 5_000, 300, &[(Phase::Forward, 4_000), (Phase::Wait, 200), (Phase::Transfer, 100)])
        });
        let steps = old.chain(plain).chain(alone).chain(met).map(|timing| (0, None, timing));
        let (world, id) = told(1, steps);
        let run = &world.runs[&id];
        let recents = Recents::of(run);
        let recent = recents.of_one(Rank(0), &run.ranks[0]);
        assert_eq!(recent.step_us(), Some((10_000.0 + 15_000.0 + 25_000.0) / 20.0));
        assert_eq!(recent.phase_us(Phase::Forward), Some(2_500.0), "of those that tell phases");
        assert_eq!((recent.phase_us(Phase::Wait), recent.wait_us()), (Some(100.0), Some(200.0)));
        assert_eq!(recent.other_us(), Some((5.0 * 2_000.0 + 5.0 * 700.0) / 10.0));
        assert_eq!((recent.exposed_us(), recent.overlap()), (Some(150.0), Some(0.5)));
        assert!(recent.tells(Phase::Wait) && !recent.tells(Phase::Data));
        assert!(recent.hides() && recent.phase_of_step_us(Phase::Forward) > 1_249.0);
        let twice = Recent::together([recent, recent].iter());
        assert_eq!((twice.step_us(), twice.overlap()), (recent.step_us(), recent.overlap()));
        assert_eq!(twice.other_us(), recent.other_us());
        assert_eq!(Recent::default().step_us(), None);
    }

    #[test]
    fn a_rank_in_which_others_train_has_no_steps_of_its_own() {
        let steps = [(0, Some(0), 40), (0, Some(1), 60), (1, None, 80)]
            .map(|(rank, worker, backward)| (rank, worker, timing(1, [0, 0, backward, 0, 0, 0])));
        let (world, id) = told(3, steps);
        let run = &world.runs[&id];
        let recents = Recents::of(run);
        let of = |number: u32, state: &RankState| recents.of_one(Rank(number), state).step_us();
        assert_eq!(of(0, &run.ranks[0]), None);
        let workers: Vec<_> = run.ranks[0].workers.values().map(|worker| of(0, worker)).collect();
        assert!(workers[0].is_some() && workers[0] < workers[1], "{workers:?}");
        assert!(of(1, &run.ranks[1]) > workers[1]);
        assert_eq!(recents.within(Rank(0)).len(), 2);
        // the last one trains, and has told nothing
        assert_eq!((recents.within(Rank(2)).len(), of(2, &run.ranks[2])), (1, None));
        assert_eq!((recents.within(Rank(3)).len(), recents.all().count()), (0, 4));
    }
}
