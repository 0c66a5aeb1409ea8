//! The one event stream. Live and replay differ in its source alone: the recorder writes what
//! [`super::world::World`] eats, and a replay feeds the same envelopes to the same fold.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::clock_fit::ClockSample;
use super::collectives::HostCollectives;
use super::gpu::event::GpuEvent;
use super::hooks::{HookFacts, StepsBy};
use super::host::{HostInfo, HostSample, LinkState};
use super::ids::{HostId, Rank, RunId};
use super::lease::Leases;
use super::log::{LogGap, LogLine};
use super::nccl_timing::CollectiveTiming;
use super::note::Note;
use super::outcome::RunOutcome;
use super::run::{RankExit, RunSpec, RunStage};
use super::standstill::StalledPhase;
use super::time::{HostTime, Stamp};
use super::timing::{SeenStep, StepTiming};
use super::wait_table::WaitTable;
use super::waiting::Waiting;

/// What a [`Event::Gap`] names that stands for events of GPUs beyond what is taken in.
pub const GPU_EVENTS: &str = "gpu events";

/// What one names that stands for lines of a rank.
pub const LOG: &str = "log";

/// What one names that stands for messages of a host beyond what it may send.
pub const MESSAGES: &str = "messages";

/// What one names that stands for steps of a timeline of Horovod without the ranks' ticks: they are there, and their waits are not.
pub const UNTICKED: &str = "steps without the ranks' ticks";

/// What one names that stands for the first step of such a timeline, where nothing tells when it began: its length is not known.
pub const UNBEGUN: &str = "beginning of the first step";

/// An event with its place in the total order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Counts up by one, without holes, in one client process.
    pub seq: u64,
    /// When it happened on the client's clock, as far as its host tells that; else when the client learnt of it. Not in order: what
    /// is told late is earlier than what came before it.
    pub at: Stamp,
    /// Whom it is about.
    pub origin: Origin,
    /// What happened.
    pub event: Event,
}

/// Whom an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A host.
    Host(HostId),
    /// A run as a whole.
    Run(RunId),
    /// One rank of a run.
    Rank(RunId, Rank),
    /// One of several processes that train within a rank, which a launcher of its own has started there: by the number
    /// that it has among all of them.
    Worker(RunId, Rank, u32),
}

impl Origin {
    /// The run, if it is about one.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Host(_) => None,
            Self::Run(run) | Self::Rank(run, _) | Self::Worker(run, _, _) => Some(run),
        }
    }
}

/// What happened, in the past tense. What is large or comes often is shared, not copied, by all who keep it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The link to a host changed its state. Origin: host.
    LinkChanged {
        /// Its new state.
        state: LinkState,
    },
    /// An agent told its host's facts. Origin: host.
    HostDescribed {
        /// The facts.
        info: Arc<HostInfo>,
    },
    /// A telemetry sample arrived. Origin: host.
    HostSampled {
        /// The sample.
        sample: Arc<HostSample>,
    },
    /// Who holds the host's GPUs, and who waits for them, has changed. Origin: host.
    LeasesTold {
        /// All of them.
        leases: Leases,
    },
    /// Something happened to one of the host's GPUs. Origin: host.
    GpuHappened {
        /// What.
        event: GpuEvent,
    },
    /// A clock ping came back. Origin: host.
    ClockSampled {
        /// Its result.
        sample: ClockSample,
    },
    /// Something was lost between a host and here. Origin: host, run or rank.
    Gap {
        /// What: `telemetry`, `log`.
        what: String,
        /// How many items or bytes.
        dropped: u64,
    },
    /// A run was asked for. Origin: run.
    RunCreated {
        /// All of it.
        spec: Arc<RunSpec>,
    },
    /// A run entered a stage. Origin: run.
    StageEntered {
        /// The stage.
        stage: RunStage,
        /// Who is waited for to leave it.
        waiting_for: Waiting,
    },
    /// A rank's process runs. Origin: rank.
    RankStarted {
        /// Its process id on the host.
        pid: u32,
        /// When, on the host's clock.
        t: HostTime,
    },
    /// A rank told what it does. Origin: rank.
    JobDescribed {
        /// The job.
        job: String,
        /// How gradients travel.
        transport: Option<String>,
        /// Steps it intends to take.
        total_steps: Option<u64>,
        /// What hvtui's hooks found out about its interpreter.
        #[serde(default, skip_serializing_if = "HookFacts::is_empty")]
        facts: Box<HookFacts>,
    },
    /// From here on a rank's steps are told by another source than before; at first by the program. Origin: rank.
    StepsBy {
        /// By whom.
        by: StepsBy,
    },
    /// A rank waits for others at the rendezvous. Origin: rank.
    RankWaits {
        /// For whom.
        ranks: Vec<Rank>,
    },
    /// A rank is connected with all others. Origin: rank.
    #[serde(rename = "rank_met")]
    RankConnected,
    /// A rank finished a step. Origin: rank.
    StepDone {
        /// Its timing.
        timing: Arc<StepTiming>,
    },
    /// A rank's own lines show how far it is. Origin: rank.
    StepSeen {
        /// How far, and in what.
        seen: SeenStep,
    },
    /// A rank has been in one phase of a step for a while. Origin: rank.
    RankStands {
        /// In which, and for how long.
        standing: StalledPhase,
    },
    /// A rank reported a named number. Origin: rank.
    MetricReported {
        /// Its name.
        name: String,
        /// Its value.
        value: f64,
        /// The step it belongs to.
        step: Option<u64>,
    },
    /// A collective of NCCL ended on a rank's GPU. Origin: rank.
    CollectiveDone {
        /// How long it took.
        timing: Box<CollectiveTiming>,
    },
    /// A rank finished training. Origin: rank.
    JobDone {
        /// Hash of the weights.
        weights: Option<String>,
    },
    /// A rank printed a line. Origin: rank.
    LogPrinted {
        /// The line.
        line: Arc<LogLine>,
    },
    /// A rank has printed the beginning of a line, or the newest state of a progress bar: the next one of the same stream, or
    /// the whole line, takes its place. A few of them a second at most. Origin: rank.
    LogUnfinished {
        /// What there is of it: of a line that was written over, its newest state.
        line: Arc<LogLine>,
    },
    /// Up to this byte a rank's report file has become events: a client that attaches again goes on there.
    /// Origin: rank.
    ReportsRead {
        /// Where the next line begins.
        next: u64,
    },
    /// A client attached to a run that it had not launched, or no longer followed. Origin: run.
    Attached {
        /// From then on it was not recorded here; `None` where this recording begins with it.
        since: Option<Stamp>,
        /// Until then: in a recording, where the event itself stands at the beginning of that time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Stamp>,
    },
    /// Bytes that a rank printed never come here. Origin: rank.
    LogGap {
        /// Which, and why.
        gap: LogGap,
    },
    /// A rank's process ended. Origin: rank.
    RankExited {
        /// How.
        exit: RankExit,
    },
    /// A host had something to say of a run. Origin: run.
    RunNoted {
        /// The host.
        host: HostId,
        /// What it said.
        note: Note,
    },
    /// A host told which collectives its processes have called: the run stands still, or a rank has failed. Origin: run.
    CollectivesTold {
        /// The host.
        host: HostId,
        /// What they told.
        told: Box<HostCollectives>,
    },
    /// Who came late to the collectives of an imported run, which its steps do not tell. Origin: run.
    WaitsTold {
        /// The table.
        waits: Box<WaitTable>,
    },
    /// A rank failed, nothing of the run is left on any host, and all ranks are started again. Origin: run.
    RunRestarted {
        /// The attempt that begins, counted from 1.
        attempt: u32,
        /// How many there may be.
        of: u32,
        /// Why: the rank that failed first.
        why: String,
        /// That rank.
        root: Rank,
    },
    /// A run ended: nothing of it runs any more. Origin: run.
    RunEnded {
        /// How.
        outcome: RunOutcome,
    },
}

impl Event {
    /// From when to when lasted what it tells of, on its host's clock; `None` where it does not tell.
    pub fn host_times(&self) -> Option<(HostTime, HostTime)> {
        let lasted = |from: HostTime, us: u64| (from, HostTime(from.0.saturating_add(us)));
        let (from, to) = match self {
            Self::StepDone { timing } => lasted(timing.start, timing.dur_us.into()),
            Self::CollectiveDone { timing } => lasted(timing.t?, timing.dur_ns / 1_000),
            Self::RankStarted { t, .. } => (*t, *t),
            Self::RankExited { exit } => (exit.ended_by(), exit.ended_by()),
            Self::LogPrinted { line } | Self::LogUnfinished { line } => (line.t?, line.t?),
            _ => return None,
        };
        (from.0 > 0).then_some((from, to))
    }
}
