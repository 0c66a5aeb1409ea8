//! What the steps of a run tell at all. A value that none of them tells is not known, and written as such: it is not 0.

use crate::domain::run::{JobKind, RunSpec};
use crate::domain::timing::{Phase, StepTiming};

const OTHER: usize = Phase::Other.index();

/// What is told somewhere in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    phases: [bool; Phase::COUNT],
    hidden: bool,
    samples: bool,
}

/// The numbers of a step; `None` for what is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepNumbers {
    /// Microseconds a phase, in the order of [`Phase::ALL`].
    pub(super) phases_us: [Option<u64>; Phase::COUNT],
    /// Microseconds of allreduce behind the computing.
    pub(super) hidden_us: Option<u32>,
    /// Samples.
    pub(super) samples: Option<u32>,
}

impl Told {
    /// Of a run as long as none of its steps is looked at.
    pub(super) fn of(spec: Option<&RunSpec>) -> Self {
        // a trace of torch's kernels shows what they hide, be it nothing
        let hidden = spec.is_some_and(|spec| spec.is_imported() && spec.kind == JobKind::Torch);
        Self { hidden, ..Self::default() }
    }

    /// A step of the run.
    pub(super) fn take(&mut self, timing: &StepTiming) {
        timing.spans.iter().for_each(|span| self.phases[span.phase.index()] = true);
        self.phases[OTHER] |= !timing.spans.is_empty();
        self.hidden |= timing.hidden_us > 0;
        self.samples |= timing.samples > 0;
    }

    /// What other steps of the run tell.
    pub(super) fn join(&mut self, other: Self) {
        self.phases.iter_mut().zip(other.phases).for_each(|(told, other)| *told |= other);
        self.hidden |= other.hidden;
        self.samples |= other.samples;
    }

    /// Whether samples are told.
    pub(super) fn samples(self) -> bool {
        self.samples
    }

    /// Whether it is told what of the allreduce is hidden.
    pub(super) fn hidden(self) -> bool {
        self.hidden
    }

    /// The numbers of a step.
    pub(super) fn known(self, timing: &StepTiming) -> StepNumbers {
        // one that tells neither phases nor what is hidden is not known: its trace was cut, or its rank told its length alone
        let tells = !timing.spans.is_empty() || timing.hidden_us > 0;
        let mut totals = timing.phase_totals();
        if !timing.spans.is_empty() {
            // what no phase tells: all of them together are the step, but where phases overlap
            totals[OTHER] += u64::from(timing.dur_us).saturating_sub(totals.iter().sum());
        }
        let mut phases_us = totals.map(Some);
        for (us, told) in phases_us.iter_mut().zip(self.phases) {
            // what was told as one phase may have been parted into two
            *us = us.filter(|us| told && tells || *us > 0);
        }
        StepNumbers {
            phases_us,
            hidden_us: (self.hidden && tells).then_some(timing.hidden_us),
            samples: self.samples.then_some(timing.samples),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;
    use crate::domain::timing::PhaseSpan;

    fn timing(spans: &[(Phase, u32)], hidden_us: u32) -> StepTiming {
        let span = |(phase, dur_us): &(Phase, u32)| PhaseSpan { phase: *phase, start_us: 0, dur_us: *dur_us };
        let spans = spans.iter().map(span).collect();
        StepTiming { step: 1, start: HostTime(0), dur_us: 100, loss: None, samples: 0, spans, hidden_us }
    }

    #[test]
    fn a_step_that_tells_nothing_has_no_0_for_what_others_tell() {
        let mut told = Told::default();
        let whole = timing(&[(Phase::Wait, 0), (Phase::Transfer, 30)], 20);
        told.take(&whole);
        let of = |timing: &StepTiming| {
            let known = told.known(timing);
            let phases =
                [Phase::Data, Phase::Wait, Phase::Transfer].map(|phase| known.phases_us[phase.index()]);
            (phases, known.hidden_us)
        };
        assert_eq!(of(&whole), ([None, Some(0), Some(30)], Some(20)));
        assert_eq!(of(&timing(&[], 0)), ([None; 3], None), "its trace is cut");
        assert_eq!(of(&timing(&[(Phase::Transfer, 9)], 0)), ([None, Some(0), Some(9)], Some(0)));
        assert_eq!(of(&timing(&[], 50)), ([None, Some(0), Some(0)], Some(50)), "all of it was hidden");
    }

    #[test]
    fn what_parts_of_the_run_tell_the_run_tells() {
        let of = |timing: &StepTiming| {
            let mut told = Told::default();
            told.take(timing);
            told
        };
        let (waits, hides) = (timing(&[(Phase::Wait, 9)], 0), timing(&[], 20));
        let mut told = of(&waits);
        told.join(of(&hides));
        assert_eq!((told.hidden(), told.samples(), told.phases), (true, false, of(&waits).phases));
    }

    #[test]
    fn the_phases_of_a_step_are_the_whole_of_it() {
        let mut told = Told::default();
        let some = timing(&[(Phase::Forward, 20), (Phase::Wait, 36)], 0);
        told.take(&some);
        let other = |timing: &StepTiming| told.known(timing).phases_us[OTHER];
        assert_eq!(other(&some), Some(44));
        assert_eq!(
            other(&timing(&[(Phase::Other, 10), (Phase::Wait, 36)], 0)),
            Some(64),
            "10 told and 54 that are not"
        );
        assert_eq!(other(&timing(&[(Phase::Forward, 70), (Phase::Wait, 36)], 0)), Some(0), "they overlap");
        assert_eq!(other(&timing(&[], 0)), None, "of a step that tells no phases nothing is known");
    }
}
