//! Where the time of a training step goes.

use serde::{Deserialize, Serialize};

use super::time::HostTime;

/// A part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading and preparing the batch.
    Data,
    /// Forward pass and loss.
    Forward,
    /// Backward pass.
    Backward,
    /// In allreduce, waiting for the last rank to arrive.
    Wait,
    /// In allreduce, moving and adding bytes.
    Transfer,
    /// Applying the averaged gradient.
    Optimizer,
    /// Anything else, or a phase of a newer version.
    #[serde(other)]
    Other,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All phases in the order of a step.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Data, Self::Forward, Self::Backward, Self::Wait, Self::Transfer, Self::Optimizer, Self::Other];

    /// Lowercase name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Wait => "wait",
            Self::Transfer => "transfer",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }

    /// Its place in [`Phase::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One stretch of one phase within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// What was done.
    pub phase: Phase,
    /// Microseconds from the step's start.
    pub start_us: u32,
    /// Microseconds.
    pub dur_us: u32,
}

/// How far a rank is, read from what it prints: without times, for when a step was done is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeenStep {
    /// The step, from 1.
    pub step: u64,
    /// How many there will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The newest training loss that was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f32>,
}

/// One step of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepTiming {
    /// Number of the step in the run, from 1.
    pub step: u64,
    /// When it began, on the host's clock.
    pub start: HostTime,
    /// How long it took, microseconds.
    pub dur_us: u32,
    /// Training loss of this rank's batch, where it was computed.
    #[serde(default)]
    pub loss: Option<f32>,
    /// Samples this rank worked through.
    #[serde(default)]
    pub samples: u32,
    /// Phases in time order; empty when the job reports none.
    #[serde(default)]
    pub spans: Vec<PhaseSpan>,
    /// Allreduce time, waiting and moving, that passed while this rank still computed, microseconds; the
    /// `Wait` and `Transfer` spans are what was left exposed. 0 where a job tells nothing.
    #[serde(default)]
    pub hidden_us: u32,
}

impl StepTiming {
    /// When it ended, on the host's clock.
    pub fn end(&self) -> HostTime {
        HostTime(self.start.0.saturating_add(self.dur_us.into()))
    }

    /// Samples that this rank worked through a second; `None` where the job tells none.
    pub fn samples_per_second(&self) -> Option<f64> {
        (self.samples > 0 && self.dur_us > 0).then(|| f64::from(self.samples) * 1e6 / f64::from(self.dur_us))
    }

    /// How long it took without its allreduce, microseconds: others may have kept it there, and how much of that was waiting may be
    /// told later. 0 where no phase is told.
    pub fn own_us(&self) -> u32 {
        if self.spans.is_empty() {
            return 0;
        }
        let shared = self.spans.iter().filter(|span| matches!(span.phase, Phase::Wait | Phase::Transfer));
        shared.fold(self.dur_us, |own, span| own.saturating_sub(span.dur_us))
    }

    /// What of it lies before its batch and its forward pass, microseconds: where steps follow each other without a gap, as
    /// hooks tell them, that is the time between two of them. 0 where it tells none of what a step does.
    pub fn between_us(&self) -> u64 {
        let is_work =
            |span: &&PhaseSpan| matches!(span.phase, Phase::Data | Phase::Forward | Phase::Backward);
        let Some(first) = self.spans.iter().position(|span| is_work(&span)) else { return 0 };
        let other = self.spans.iter().take(first).filter(|span| span.phase == Phase::Other);
        other.map(|span| u64::from(span.dur_us)).sum()
    }

    /// Microseconds a phase, indexed as [`Phase::ALL`].
    pub fn phase_totals(&self) -> [u64; Phase::COUNT] {
        let mut totals = [0; Phase::COUNT];
        for span in &self.spans {
            totals[span.phase.index()] += u64::from(span.dur_us);
        }
        totals
    }
}
