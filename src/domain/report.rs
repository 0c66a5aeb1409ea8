//! What a job tells hvtui of itself: one JSON object a line, appended to the file that `HVTUI_REPORT` names.
//!
//! Any program in any language may write it; `{"kind":"step","step":1,"loss":0.5}` is enough for a row on
//! the Run screen. Lines that are not understood are kept out of the event stream and counted.

use serde::{Deserialize, Serialize};

use super::hooks::HookFacts;
use super::ids::Rank;
use super::nccl_timing::CollectiveTiming;
use super::time::HostTime;
use super::timing::{PhaseSpan, StepTiming};

/// One line of a report file: a report, whose it is and by whom it was made.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ReportLine {
    /// The number that the writing process has in its own training, where it names one: a launcher within a rank
    /// numbers several.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Who made it: `hooks` for hvtui's own in the interpreter, nothing for the script itself.
    #[serde(default)]
    pub by: Option<String>,
    /// What it says.
    #[serde(flatten)]
    pub report: Report,
}

impl ReportLine {
    /// Whether hvtui's hooks made it, not the script.
    pub fn is_by_hooks(&self) -> bool {
        self.by.as_deref() == Some("hooks")
    }
}

/// One report of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report {
    /// The job has started and knows its place.
    Hello {
        /// What runs: `digits`.
        job: String,
        /// How gradients travel: `tcp`, `none` for a single rank.
        #[serde(default)]
        transport: Option<String>,
        /// Steps it intends to take.
        #[serde(default)]
        total_steps: Option<u64>,
        /// What hvtui's hooks found out about the interpreter; empty where they made nothing of this.
        #[serde(flatten)]
        facts: HookFacts,
    },
    /// The rank waits at the rendezvous for these ranks.
    Waiting {
        /// Ranks not yet seen.
        ranks: Vec<Rank>,
    },
    /// All ranks are connected.
    Met {
        /// When, on the host's clock.
        #[serde(default)]
        t: Option<HostTime>,
    },
    /// A step is done.
    Step {
        /// Its number, from 1.
        step: u64,
        /// When it began, microseconds of `CLOCK_MONOTONIC`.
        #[serde(default)]
        t: Option<HostTime>,
        /// Microseconds.
        #[serde(default)]
        dur_us: Option<u32>,
        /// Training loss.
        #[serde(default)]
        loss: Option<f32>,
        /// Samples worked through.
        #[serde(default)]
        samples: Option<u32>,
        /// Phases in time order.
        #[serde(default)]
        spans: Vec<PhaseSpan>,
        /// Microseconds of allreduce that passed while the rank still computed.
        #[serde(default)]
        hidden_us: Option<u32>,
    },
    /// A named number: `accuracy`, `mse`.
    Metric {
        /// Its name.
        name: String,
        /// Its value.
        value: f64,
        /// The step it belongs to.
        #[serde(default)]
        step: Option<u64>,
    },
    /// A collective of NCCL is over: hvtui's plugin in NCCL tells it.
    Collective(CollectiveTiming),
    /// Training is over; the hash of the weights is equal on all ranks of a healthy run.
    Done {
        /// SHA-256 of the weights' bytes, hexadecimal.
        #[serde(default)]
        weights: Option<String>,
    },
}

impl Report {
    /// What a program says of itself.
    pub fn hello(job: impl Into<String>, transport: Option<String>, total_steps: Option<u64>) -> Self {
        Self::Hello { job: job.into(), transport, total_steps, facts: HookFacts::default() }
    }

    /// A step report from a timing.
    pub fn from_step(timing: &StepTiming) -> Self {
        Self::Step {
            step: timing.step,
            t: Some(timing.start),
            dur_us: Some(timing.dur_us),
            loss: timing.loss,
            samples: Some(timing.samples),
            spans: timing.spans.to_vec(),
            hidden_us: Some(timing.hidden_us),
        }
    }
}
