//! What charts show of some steps.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use crate::domain::series::Merge;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;

/// Some steps of all ranks, for charts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepPoint {
    /// Lengths, microseconds.
    pub lengths: Histogram,
    /// Microseconds a phase, over all ranks.
    pub phases: [u64; Phase::COUNT],
    /// Microseconds of the steps, over all ranks.
    pub step_us: u64,
    /// The same of the steps that tell their phases.
    pub phased_us: u64,
    /// Samples, over all ranks.
    pub samples: u64,
    /// Sum and number of the losses.
    pub loss: (f64, u32),
}

impl Default for StepPoint {
    fn default() -> Self {
        Self {
            lengths: Histogram::coarse(),
            phases: [0; 7],
            step_us: 0,
            phased_us: 0,
            samples: 0,
            loss: (0.0, 0),
        }
    }
}

impl Merge for StepPoint {
    fn merge(&mut self, other: &Self) {
        self.lengths.merge(&other.lengths);
        self.phases.iter_mut().zip(other.phases).for_each(|(own, more)| *own += more);
        self.step_us += other.step_us;
        self.phased_us += other.phased_us;
        self.samples += other.samples;
        self.loss = (self.loss.0 + other.loss.0, self.loss.1.saturating_add(other.loss.1));
    }
}

/// When some steps ended: from when to when that was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ended(Option<(Stamp, Stamp)>);

impl Ended {
    /// One ended then.
    pub fn take(&mut self, at: Stamp) {
        self.merge(&Self(Some((at, at))));
    }

    /// The first and the last moment; `None` where nothing was heard.
    pub fn span(self) -> Option<(Stamp, Stamp)> {
        self.0
    }
}

impl Merge for Ended {
    fn merge(&mut self, other: &Self) {
        self.0 = match (self.0, other.0) {
            (Some(own), Some(more)) => Some((own.0.min(more.0), own.1.max(more.1))),
            (own, more) => own.or(more),
        };
    }
}
