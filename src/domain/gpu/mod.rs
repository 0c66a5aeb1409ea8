//! What is known of a GPU: its fixed facts, and one sample of its live ones.

pub mod event;
mod fields;
pub mod health;
pub mod mig;
pub mod topology;
pub mod xid;

use serde::{Deserialize, Serialize};

mod reading;

pub use fields::{Field, GpuInfo, GpuSample, Number};

use super::ids::{GpuUuid, Rank, RunId};
use super::signal::ProcessKey;

/// How the reason begins where NVML does not return from a call about a GPU.
pub const NO_ANSWER: &str = "no answer from NVML";

/// One telemetry value, or the reason why there is none. Never a zero for an unknown.
///
/// In JSON: the plain value, `null` where the device does not support the query, or `{"error": "…"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value.
    Value(T),
    /// The query failed this time, for this reason.
    Failed {
        /// The driver's words.
        error: String,
    },
    /// The device has no such sensor or forbids the query (MIG utilisation, fans of data-centre boards), or who
    /// told of it is too old to know it.
    #[default]
    Unsupported,
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// A failed reading with its reason.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into() }
    }

    /// What `f` makes of the value; without one, the same reason.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Value(value) => f(value),
            Self::Failed { error } => Reading::Failed { error },
            Self::Unsupported => Reading::Unsupported,
        }
    }

    /// The same reading with its value changed.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(f(value)),
            Self::Failed { error } => Reading::Failed { error },
            Self::Unsupported => Reading::Unsupported,
        }
    }
}

impl GpuInfo {
    /// Its model as it is shown and picked by: the name without the vendor's.
    pub fn model(&self) -> &str {
        self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name)
    }
}

/// A process with a context on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process id as the host sees it.
    pub pid: u32,
    /// Owner's login name; the numeric uid where it has none.
    pub user: Reading<String>,
    /// Command line, arguments joined by spaces.
    pub command: Reading<String>,
    /// GPU memory it holds, bytes.
    pub memory: Reading<u64>,
    /// Share of the time in which its kernels ran, over the last seconds, percent.
    #[serde(default)]
    pub sm_percent: Reading<u32>,
    /// When it started: clock ticks since the host's boot, field 22 of `/proc/PID/stat`. With the boot id and the pid it
    /// names this process for all time.
    #[serde(default)]
    pub start_ticks: Reading<u64>,
    /// For how long it has been running, seconds.
    #[serde(default)]
    pub age_s: Reading<u64>,
    /// The run that it belongs to, where that is one of the agent's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunOfProcess>,
    /// The container that it runs in: the first 12 digits of its id, as engines list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// The run of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOfProcess {
    /// The run.
    pub id: RunId,
    /// Its rank, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
}

impl GpuProcess {
    /// A process of which the pid alone is known.
    pub fn unknown(pid: u32) -> Self {
        Self {
            pid,
            user: Reading::Unsupported,
            command: Reading::Unsupported,
            memory: Reading::Unsupported,
            sm_percent: Reading::Unsupported,
            start_ticks: Reading::Unsupported,
            age_s: Reading::Unsupported,
            run: None,
            container: None,
        }
    }

    /// By what it is known from all others of its host, where that is told.
    pub fn key(&self) -> Option<ProcessKey> {
        Some(ProcessKey { pid: self.pid, start: *self.start_ticks.value()? })
    }

    /// Its run, else its container, for people: `run 7QK2 rank 3`, `container 59c313908f42`.
    pub fn origin(&self) -> Option<String> {
        let run = self.run.as_ref().map(|run| {
            let rank = run.rank.map(|rank| format!(" rank {rank}")).unwrap_or_default();
            format!("run {}{rank}", run.id.short())
        });
        run.or_else(|| self.container.as_ref().map(|id| format!("container {id}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_tells_its_run_before_its_container() {
        let process = GpuProcess::unknown(7);
        assert_eq!((process.origin(), process.key()), (None, None));
        let text = serde_json::to_string(&process).unwrap();
        let told = r#"{"pid":7,"user":null,"command":null,"memory":null,"sm_percent":null,"start_ticks":null,"age_s":null}"#;
        assert_eq!(text, told);
        assert_eq!(serde_json::from_str::<GpuProcess>(&text).unwrap(), process);
        let older = r#"{"pid":7,"user":null,"command":null,"memory":null}"#;
        assert_eq!(serde_json::from_str::<GpuProcess>(older).unwrap(), process);
        let container = Some("59c313908f42".to_owned());
        let inside = GpuProcess { container, ..process };
        assert_eq!(inside.origin().as_deref(), Some("container 59c313908f42"));
        let id = RunId::new(1, 1);
        let short = id.short().to_owned();
        let run = Some(RunOfProcess { id, rank: Some(Rank(3)) });
        assert_eq!(GpuProcess { run, ..inside }.origin(), Some(format!("run {short} rank 3")));
    }

    #[test]
    fn readings_are_plain_in_json() {
        let all: Vec<Reading<u32>> =
            vec![Reading::Value(7), Reading::Unsupported, Reading::failed("GPU is lost")];
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"[7,null,{"error":"GPU is lost"}]"#);
        assert_eq!(serde_json::from_str::<Vec<Reading<u32>>>(&text).unwrap(), all);
    }
}
