//! Which rank makes the others wait, from the waiting times that the ranks report.
//!
//! In an allreduce everybody waits for the last to arrive; the last itself hardly waits. So over the
//! recent steps the culprit is the rank with the least wait, a typical victim has the upper median of
//! the others' waits, and the difference, as a share of the step, is what the culprit costs. Waits are
//! lengths on one clock each, so the hosts' clocks do not matter here.

use crate::domain::ids::Rank;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::world::RunState;

/// How many recent steps are looked at.
const WINDOW: usize = 50;
/// Fewer steps than this say nothing.
const LEAST_STEPS: usize = 8;
/// Below this share of a step nobody is called a straggler.
const LEAST_SHARE: f64 = 0.10;
/// From this share on it is critical.
const CRITICAL_SHARE: f64 = 0.20;
/// A phase explains the delay when it makes up this share of it.
const EXPLAINS: f64 = 0.80;

/// The rank that makes the others wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// Which.
    pub rank: Rank,
    /// Share of a step that a typical other rank waits for it, 0..=1.
    pub share: f64,
    /// The phase in which it is late, where one explains most of it.
    pub phase: Option<Phase>,
    /// In how many of the steps looked at it was the last to arrive.
    pub last_in: usize,
    /// Steps looked at.
    pub of: usize,
}

impl Straggler {
    /// Whether it costs a fifth of the time or more.
    pub fn is_critical(&self) -> bool {
        self.share >= CRITICAL_SHARE
    }
}

/// Finds the straggler of the recent steps; `None` when nobody costs the others a tenth of a step.
pub fn straggler(run: &RunState) -> Option<Straggler> {
    if run.ranks.len() < 2 {
        return None;
    }
    let last = run.step()?;
    let first = (last + 1).saturating_sub(WINDOW as u64);
    let steps: Vec<Vec<&StepTiming>> = run
        .ranks
        .iter()
        .map(|rank| {
            let recent = rank.steps.iter().rev().map(|(_, step)| &**step).skip_while(|step| step.step > last);
            let mut steps: Vec<&StepTiming> = recent.take_while(|step| step.step >= first).collect();
            steps.reverse();
            steps
        })
        .collect();
    let of = steps.iter().map(Vec::len).min()?;
    let aligned = steps
        .iter()
        .all(|own| own.len() == of && own.first().map(|s| s.step) == steps[0].first().map(|s| s.step));
    if of < LEAST_STEPS || !aligned {
        return None;
    }
    let totals: Vec<[u64; 6]> =
        steps.iter().map(|own| sum(own.iter().map(|step| step.phase_totals()))).collect();
    let wait = |rank: usize| totals[rank][Phase::Wait.index()];
    if (0..totals.len()).all(|rank| wait(rank) == 0) {
        return None;
    }
    let culprit = (0..totals.len()).min_by_key(|rank| wait(*rank))?;
    let others: Vec<usize> = (0..totals.len()).filter(|rank| *rank != culprit).collect();
    let victim = upper_median(others.iter().map(|rank| wait(*rank)).collect());
    let durations: u64 = steps[culprit].iter().map(|step| u64::from(step.dur_us)).sum();
    let excess = victim.saturating_sub(wait(culprit));
    let share = excess as f64 / durations.max(1) as f64;
    if share < LEAST_SHARE {
        return None;
    }
    let own_wait = |rank: usize, at: usize| steps[rank][at].phase_totals()[Phase::Wait.index()];
    let last_in = (0..of)
        .filter(|at| others.iter().all(|other| own_wait(culprit, *at) < own_wait(*other, *at)))
        .count();
    let late = |phase: Phase| {
        let typical = upper_median(others.iter().map(|rank| totals[*rank][phase.index()]).collect());
        totals[culprit][phase.index()].saturating_sub(typical)
    };
    let compute = [Phase::Data, Phase::Forward, Phase::Backward, Phase::Optimizer];
    let phase = compute.into_iter().max_by_key(|phase| late(*phase));
    let phase = phase.filter(|phase| late(*phase) as f64 >= EXPLAINS * excess as f64);
    Some(Straggler { rank: Rank(culprit as u32), share, phase, last_in, of })
}

fn sum(items: impl Iterator<Item = [u64; 6]>) -> [u64; 6] {
    items.fold([0; 6], |mut sum, item| {
        for (total, value) in sum.iter_mut().zip(item) {
            *total += value;
        }
        sum
    })
}

fn upper_median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::RunId;
    use crate::domain::run::{JobKind, Placement, RunSpec, Slot};
    use crate::domain::time::{HostTime, Stamp};
    use crate::domain::timing::PhaseSpan;
    use crate::domain::world::World;
    use std::collections::BTreeMap;

    /// A run whose ranks take `steps` steps with the phases that `phases(rank)` gives.
    fn run(ranks: u32, steps: u64, phases: impl Fn(u32) -> [u32; 6]) -> RunState {
        let id = RunId::new(1, 2);
        let placement = |rank| Placement {
            rank: Rank(rank),
            host: "a".into(),
            local_rank: rank,
            slot: Slot::Cpu { index: rank },
        };
        let spec = RunSpec {
            id: id.clone(),
            name: "n".to_owned(),
            kind: JobKind::Native,
            command: vec!["x".to_owned()],
            env: BTreeMap::new(),
            workdir: None,
            placements: (0..ranks).map(placement).collect(),
            created: Stamp(0),
        };
        let mut world = World::default();
        let mut tell = |origin, event| world.apply(&Envelope { seq: 0, at: Stamp(0), origin, event });
        tell(Origin::Run(id.clone()), Event::RunCreated { spec: Box::new(spec) });
        for step in 1..=steps {
            for rank in 0..ranks {
                let own = phases(rank);
                let spans = Phase::ALL.into_iter().zip(own);
                let spans = spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }).collect();
                let dur_us = own.iter().sum();
                let timing = StepTiming { step, start: HostTime(0), dur_us, loss: None, samples: 1, spans };
                tell(Origin::Rank(id.clone(), Rank(rank)), Event::StepDone { timing });
            }
        }
        world.runs[&id].clone()
    }

    #[test]
    fn the_rank_that_hardly_waits_is_the_straggler() {
        let slow_data = |rank| if rank == 2 { [50, 20, 20, 0, 5, 5] } else { [10, 20, 20, 40, 5, 5] };
        let late = straggler(&run(4, 60, slow_data)).unwrap();
        assert_eq!((late.rank, late.phase, late.last_in, late.of), (Rank(2), Some(Phase::Data), 50, 50));
        assert!((late.share - 0.40).abs() < 1e-9 && late.is_critical());
    }

    #[test]
    fn a_delay_without_one_cause_names_no_phase() {
        let slow = |rank| if rank == 0 { [30, 40, 20, 0, 5, 5] } else { [10, 20, 20, 40, 5, 5] };
        assert_eq!(straggler(&run(2, 20, slow)).unwrap().phase, None);
    }

    #[test]
    fn little_waiting_few_steps_or_one_rank_accuse_nobody() {
        let slight = |rank| if rank == 1 { [19, 20, 20, 0, 36, 5] } else { [10, 20, 20, 9, 36, 5] };
        assert_eq!(straggler(&run(3, 50, slight)), None);
        let slow = |rank| if rank == 1 { [50, 20, 20, 0, 5, 5] } else { [10, 20, 20, 40, 5, 5] };
        assert_eq!(straggler(&run(3, 7, slow)), None);
        assert_eq!(straggler(&run(1, 50, slow)), None);
        assert_eq!(straggler(&run(3, 50, |_| [30, 30, 40, 0, 0, 0])), None);
    }
}
