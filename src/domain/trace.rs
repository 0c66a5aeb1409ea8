//! A kernel trace of running ranks: what is asked for, and how far each process that is asked has come.

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::time::HostTime;

/// How much of a run is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceSpan {
    /// So many steps of the optimizer, from the next one on.
    Steps(u32),
    /// So many milliseconds.
    Millis(u32),
}

impl TraceSpan {
    /// The most steps: a step of a large model is megabytes of trace.
    pub const MOST_STEPS: u32 = 1000;
    /// The longest time, milliseconds.
    pub const MOST_MILLIS: u32 = 60_000;
    /// The shortest time, milliseconds.
    pub const LEAST_MILLIS: u32 = 10;

    /// Whether it is one that may be asked for.
    pub fn is_valid(self) -> bool {
        match self {
            Self::Steps(steps) => (1..=Self::MOST_STEPS).contains(&steps),
            Self::Millis(millis) => (Self::LEAST_MILLIS..=Self::MOST_MILLIS).contains(&millis),
        }
    }

    /// `3 steps`, `500 ms`.
    pub fn words(self) -> String {
        match self {
            Self::Steps(1) => "1 step".to_owned(),
            Self::Steps(steps) => format!("{steps} steps"),
            Self::Millis(millis) => format!("{millis} ms"),
        }
    }
}

/// When the processes of a run begin, so that all of them trace the same. Agreed on for all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStart {
    /// The moment, by this host's clock: late enough that each process has come for the request before.
    pub at: HostTime,
    /// The step of the optimizer that is expected at that moment; absent where steps are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<StepProgress>,
}

/// How far the ranks of a host are and how fast they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepProgress {
    /// A step: the last one that was done, or the first that is traced.
    pub step: u64,
    /// Microseconds of a step, at least 1.
    pub step_us: u64,
}

impl StepProgress {
    /// What all ranks have in common of these: the furthest step and the shortest time.
    pub fn common(paces: impl Iterator<Item = Self>) -> Option<Self> {
        paces.reduce(|a, b| Self { step: a.step.max(b.step), step_us: a.step_us.min(b.step_us) })
    }

    /// So many microseconds later. Not in the past: one step further than the time says.
    #[must_use]
    pub fn after(self, us: u64) -> Self {
        Self { step: self.step.saturating_add(us / self.step_us.max(1)).saturating_add(2), ..self }
    }
}

/// A process that was asked for a trace, or a rank without one that could be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedProcess {
    /// The rank that it belongs to.
    pub rank: Rank,
    /// The process; absent where no process of the rank could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its number in the training, where it is not the rank itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// How far it has come.
    #[serde(flatten)]
    pub stage: TraceStage,
}

/// How far a traced process has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum TraceStage {
    /// Its torch has not come for the request yet.
    Asked,
    /// It has the request.
    Tracing,
    /// Its trace is written.
    Done {
        /// Bytes of the file.
        size: u64,
    },
    /// It was launched without `--traceable`.
    NotTraceable,
    /// There will be no trace of it.
    Failed {
        /// Why, with the remedy; a lowercase fragment.
        why: String,
    },
    /// What a newer agent says.
    #[serde(other)]
    Other,
}

impl TraceStage {
    /// Whether it stays so.
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Asked | Self::Tracing | Self::Other)
    }
}

/// One moment by two clocks of a host: the times of a trace are by the first, those of a run by the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallMoment {
    /// The host's wall clock, microseconds since the Unix epoch.
    pub unix_us: i64,
    /// Its `CLOCK_MONOTONIC`.
    pub host: HostTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept_and_words_are_of_people() {
        assert!(TraceSpan::Steps(3).is_valid() && TraceSpan::Millis(500).is_valid());
        for wrong in
            [TraceSpan::Steps(0), TraceSpan::Steps(1001), TraceSpan::Millis(9), TraceSpan::Millis(60_001)]
        {
            assert!(!wrong.is_valid(), "{wrong:?}");
        }
        assert_eq!(TraceSpan::Steps(1).words(), "1 step");
        assert_eq!(TraceSpan::Steps(3).words(), "3 steps");
        assert_eq!(TraceSpan::Millis(500).words(), "500 ms");
    }

    #[test]
    fn the_first_traced_step_is_one_that_no_rank_has_done() {
        let paces =
            [StepProgress { step: 100, step_us: 25_000 }, StepProgress { step: 102, step_us: 20_000 }];
        let common = StepProgress::common(paces.into_iter()).unwrap();
        assert_eq!(common.after(8_000_000), StepProgress { step: 504, step_us: 20_000 });
        assert_eq!(StepProgress { step: 5, step_us: 0 }.after(1).step, 8);
        assert_eq!(StepProgress::common(std::iter::empty()), None);
    }

    #[test]
    fn a_stage_of_a_newer_agent_is_read_and_waited_for() {
        let process: TracedProcess =
            serde_json::from_str(r#"{"rank":1,"pid":7,"stage":"warming_up","for_us":3}"#).unwrap();
        assert_eq!(process.stage, TraceStage::Other);
        assert!(!process.stage.is_last());
        let done: TracedProcess = serde_json::from_str(r#"{"rank":1,"stage":"done","size":5}"#).unwrap();
        assert_eq!((done.pid, done.stage), (None, TraceStage::Done { size: 5 }));
    }
}
