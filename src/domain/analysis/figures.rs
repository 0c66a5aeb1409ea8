//! What is known of a run when its recording has been read: plain numbers. What is unknown is `None`, never 0. Lengths of time
//! are microseconds, shares are 0..=1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::by_step::ByStep;
use super::choice::ChosenPart;
use super::collectives::CollectiveFigures;
use super::histogram::{Estimate, Histogram};
use super::lateness::Late;
use super::metrics::MetricFigures;
use super::points::{Ended, StepPoint};

use crate::domain::clock_check::ClocksApart;
use crate::domain::hooks::StepsBy;
use crate::domain::ids::{GpuUuid, HostId, Rank};
use crate::domain::incidents::Incident;
use crate::domain::marks::{RunMark, as_told};
use crate::domain::series::Series;
use crate::domain::straggler::Lost;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::wait_table::WaitTable;

use super::gpus::UtilPoint;

/// Lengths of steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half of them are not longer, …
    pub p50_us: u32,
    /// … 95 of 100, …
    pub p95_us: u32,
    /// … 99 of 100.
    pub p99_us: u32,
    /// The longest.
    pub max_us: u32,
}

impl Spread {
    pub(super) fn of(histogram: &Histogram) -> Option<Self> {
        let at = |share| histogram.quantile(share);
        Some(Self {
            count: histogram.count(),
            mean_us: histogram.mean()?,
            p50_us: at(0.5)?,
            p95_us: at(0.95)?,
            p99_us: at(0.99)?,
            max_us: histogram.max()?,
        })
    }
}

/// How the steps of a run went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StepFigures {
    /// The first step that was told.
    pub first: Option<u64>,
    /// The last one.
    pub last: Option<u64>,
    /// How many the job meant to take.
    pub of: Option<u64>,
    /// By whom they are told.
    pub by: Option<StepsBy>,
    /// The first step of the processes, which warms up: in none of the other numbers.
    pub warm_up_us: Option<u32>,
    /// The longest rank of each step that all ranks have told; of each rank's steps where there is none.
    pub length: Option<Spread>,
    /// Whether `length` is of steps that all ranks have told.
    pub aligned: bool,
    /// The longest of them, the longest first.
    #[serde(skip)]
    pub longest: Vec<SlowStep>,
    /// The first and the last of the steps that all ranks have told.
    #[serde(skip)]
    pub whole: Option<(u64, u64)>,
    /// Steps of which all ranks tell their waits.
    #[serde(skip)]
    pub judged: u64,
    /// Steps of which all ranks tell their phases.
    #[serde(skip)]
    pub phased: u64,
    /// The mean step of the first and of the last tenth, where there are 50 steps and more.
    pub first_tenth_us: Option<f64>,
    /// See `first_tenth_us`.
    pub last_tenth_us: Option<f64>,
    /// What is not hidden behind computing: waiting and moving bytes, a step and rank.
    pub exposed_us: Option<f64>,
    /// The share of the allreduce that is hidden behind computing.
    pub overlap: Option<f64>,
}

/// How much of the steps a phase takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// Which.
    pub phase: Phase,
    /// Its share of the steps' time over all ranks.
    pub share: f64,
    /// Its mean a step and rank.
    pub mean_us: f64,
    /// Its median; unknown of [`Phase::Other`] where most of it is what is left of the steps beside the phases told.
    pub p50_us: Option<u32>,
    /// 95 of 100 are not longer; likewise.
    pub p95_us: Option<u32>,
}

/// How one rank fared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankFigures {
    /// Which; of a process within a rank its number in the training.
    pub rank: Rank,
    /// The rank that it is, or is in.
    #[serde(skip)]
    pub within: Rank,
    /// `gpu-a:3`.
    pub place: Option<String>,
    /// By whom its steps are told.
    pub by: StepsBy,
    /// Its steps without those that warm up.
    pub length: Option<Spread>,
    /// Its first step.
    pub warm_up_us: Option<u32>,
    /// Microseconds a phase, in the order of [`Phase::ALL`].
    pub phases_us: Option<[u64; Phase::COUNT]>,
    /// Its share of each phase in the time of its steps, likewise.
    pub shares: Option<[f64; Phase::COUNT]>,
    /// In how many steps it came last to the allreduce; unknown where not all ranks tell their waits.
    pub last_in: Option<u64>,
    /// What the run would be shorter had it never come last: how long the second last waited for it.
    pub wait_caused_us: Option<u64>,
    /// What of that comes again and again, and is worth a word.
    #[serde(skip)]
    pub recurring_us: Option<u64>,
    /// Whether it comes last far more often than by chance.
    #[serde(skip)]
    pub is_last_too_often: bool,
    /// In which part of the run most of it lies; `None` where it is spread over the run.
    pub caused_in: Option<Span>,
    /// The share of its allreduce that is hidden behind computing.
    pub overlap: Option<f64>,
    /// Waiting and moving bytes, its mean a step.
    pub exposed_us: Option<f64>,
    /// Samples a second of its steps' time.
    pub samples_per_s: Option<f64>,
    /// How its process ended: `exit 3`.
    pub exit: Option<String>,
    /// Lines by level: warnings, errors, fatal ones.
    pub warnings: u64,
    /// See `warnings`.
    pub errors: u64,
}

impl RankFigures {
    /// Whether nothing is known of it: no step and no end, as of most ranks where the traces of a few were imported.
    pub fn is_untold(&self) -> bool {
        self.length.is_none() && self.warm_up_us.is_none() && self.exit.is_none()
    }
}

/// What would be without the excess of a rank in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WhatIf {
    /// The rank.
    pub rank: Rank,
    /// Where it loses the time.
    pub phase: Lost,
    /// How much shorter the steps would be together.
    pub gain_us: u64,
    /// The same as a share of them.
    pub share: f64,
    /// In how many steps it would gain something.
    pub in_steps: u64,
    /// Of how many.
    pub of_steps: u64,
}

/// Some steps in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first.
    pub from_step: u64,
    /// The last.
    pub to_step: u64,
}

/// A time in which a signal had stopped a rank, as far as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Which.
    pub rank: Rank,
    /// Since when.
    pub from: Stamp,
    /// When it made its step, else when it was told last.
    pub to: Stamp,
}

/// A time in which this client did not reach a host of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Which host.
    pub host: HostId,
    /// Since when the link was down.
    pub from: Stamp,
    /// When it was up again; `None` where it was not.
    pub until: Option<Stamp>,
    /// Why, by the link's own words.
    pub why: String,
}

/// A step that took longer than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowStep {
    /// Which.
    pub step: u64,
    /// How much of it moved bytes, the mean over its ranks, microseconds.
    pub transfer_us: u32,
    /// How long it took.
    pub us: u32,
    /// The rank that the others waited for, and how long the second last did.
    pub last: Option<(Rank, u32)>,
    /// Where that rank lost the time.
    pub lost: Option<Lost>,
    /// The rank that a signal had stopped in it.
    pub stop: Option<Stop>,
}

/// A time in which a rank was a straggler.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Episode {
    /// Which.
    pub rank: Rank,
    /// The first step of the stretch in which it was late.
    pub from_step: u64,
    /// The step after which it was over; `None` where the run ended before.
    pub to_step: Option<u64>,
    /// What it cost a step, over all of its steps.
    pub cost_us: u64,
    /// The same as a share of the step.
    pub share: f64,
    /// Where it lost the time.
    pub phase: Option<Lost>,
}

/// The loss: the mean over the ranks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LossFigures {
    /// The first.
    pub first: f64,
    /// The least, and its step.
    pub least: f64,
    /// See `least`.
    pub least_step: u64,
    /// The last.
    pub last: f64,
    /// Its step.
    pub last_step: u64,
}

/// Samples a second, over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleFigures {
    /// By the time that the steps took.
    pub per_s: f64,
    /// The same of the last tenth.
    pub last_tenth_per_s: Option<f64>,
}

/// How a GPU of the run fared while its ranks ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuFigures {
    /// Its host.
    pub host: HostId,
    /// Its NVML index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Its model, without the vendor.
    pub model: Option<String>,
    /// The rank on it.
    pub rank: Rank,
    /// Samples that tell its utilisation.
    pub samples: u64,
    /// Utilisation in percent: mean, least, median, greatest.
    pub util_mean: Option<f64>,
    /// See `util_mean`.
    pub util_min: Option<u32>,
    /// See `util_mean`.
    pub util_p50: Option<u32>,
    /// See `util_mean`.
    pub util_max: Option<u32>,
    /// Its mean from the first step on, without imports and the reading of data before; of 10 samples or more.
    pub util_in_steps: Option<f64>,
    /// Times of 10 s and more in which it was less than half of its median.
    pub cliffs: Cliffs,
    /// The most memory in use, bytes.
    pub memory_peak: Option<u64>,
    /// Its memory, bytes.
    pub memory_total: Option<u64>,
    /// By how much its memory grows in 1000 steps, bytes, where that is significant.
    pub memory_growth: Option<f64>,
    /// The highest temperature, degrees Celsius.
    pub temperature_max: Option<u32>,
    /// Mean power draw, watts.
    pub power_mean_w: Option<f64>,
    /// The highest.
    pub power_max_w: Option<f64>,
    /// For how long its clocks were held down, by reason, the longest first.
    pub throttle: Vec<Throttle>,
    /// What happened to it: `xid 79`, and how often.
    pub events: Vec<Counted>,
}

/// Something that came so often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// What.
    pub what: String,
    /// How often.
    pub count: u64,
}

impl Counted {
    pub(super) fn all(counts: &BTreeMap<String, u64>) -> Vec<Self> {
        counts.iter().map(|(what, count)| Self { what: what.clone(), count: *count }).collect()
    }
}

/// For how long the clocks of a GPU were held down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Throttle {
    /// NVML's words.
    pub reason: String,
    /// For how long.
    pub us: u64,
}

/// Drops of the utilisation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cliffs {
    /// How many.
    pub count: u32,
    /// How long they took together.
    pub us: u64,
    /// The longest: how long.
    pub longest_us: u64,
    /// And when it began.
    #[serde(serialize_with = "moment")]
    pub longest_at: Option<Stamp>,
}

/// How a host of the run fared while its ranks ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostFigures {
    /// Which.
    pub host: HostId,
    /// Busy share of its CPUs in percent: mean and peak.
    pub cpu_mean: Option<f64>,
    /// See `cpu_mean`.
    pub cpu_max: Option<f64>,
    /// The most memory in use, bytes.
    pub memory_peak: Option<u64>,
    /// All that it has, bytes.
    pub memory_total: Option<u64>,
    /// By how much what is in use grows in 1000 steps, bytes, where that is unlikely to be other work.
    pub memory_growth: Option<f64>,
    /// Its clock is known to so much: where that was known the least.
    pub clock_uncertainty_us: Option<u32>,
    /// What a message to it takes, by the quickest ping, microseconds.
    #[serde(skip)]
    pub message_us: Option<u32>,
}

/// Lines that were printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFigures {
    /// All.
    pub lines: u64,
    /// Warnings.
    pub warnings: u64,
    /// Errors.
    pub errors: u64,
    /// Errors by which programs end.
    pub fatal: u64,
    /// The first error.
    pub first_error: Option<FirstError>,
}

/// The first line that was an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstError {
    /// Whose.
    pub rank: Rank,
    /// When it was printed.
    #[serde(serialize_with = "moment")]
    pub at: Option<Stamp>,
    /// Its beginning.
    pub text: String,
}

/// What the recording lacks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GapFigures {
    /// What was dropped, and how many.
    pub dropped: Vec<Counted>,
    /// Bytes of logs that never came.
    pub log_bytes: u64,
    /// For how long no client followed the run.
    pub unattended_us: u64,
    /// Steps in the middle that are not told, though all before and behind them are: what held them is lost.
    pub steps: Vec<Span>,
    /// What is wrong with the file.
    pub damage: Option<String>,
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunAnalysis {
    /// Its id.
    pub run: String,
    /// Its name.
    pub name: String,
    /// The part that the figures tell of; `None`: the whole run.
    pub part: Option<ChosenPart>,
    /// When it was asked for.
    #[serde(serialize_with = "moment")]
    pub created: Option<Stamp>,
    /// How many ranks.
    pub world: u32,
    /// Its hosts.
    pub hosts: Vec<HostId>,
    /// From the launch to the end of its last rank, or to its last event.
    pub duration_us: Option<u64>,
    /// From the launch to the first step; `None` where it was not launched but imported.
    pub first_step_after_us: Option<u64>,
    /// From the last step that was told to the end of the run, or to its last event.
    pub after_last_step_us: Option<u64>,
    /// How it ended; `None` where no end is recorded.
    pub outcome: Option<String>,
    /// Whether it goes on: a client of this machine records it at this moment, or its hosts say so.
    pub live: bool,
    /// Whether it ended well; `None` where that is not told: no end is recorded, or the run was imported.
    pub success: Option<bool>,
    /// Whether it was stopped on request: neither a success nor a failure.
    pub stopped: bool,
    /// The rank by which it failed.
    #[serde(skip)]
    pub failed_by: Option<Rank>,
    /// When that rank ended.
    #[serde(skip)]
    pub failed_at: Option<Stamp>,
    /// Where ranks stand behind the last step, in words.
    #[serde(skip)]
    pub stands: Option<String>,
    /// How often all ranks were started again.
    pub restarts: u32,
    /// Its steps.
    pub steps: StepFigures,
    /// Where their time goes; empty where the job tells no phases.
    pub phases: Vec<PhaseFigures>,
    /// Its ranks.
    pub ranks: Vec<RankFigures>,
    /// What would be without what single ranks lose, the most first.
    pub what_if: Vec<WhatIf>,
    /// When ranks were stragglers.
    pub stragglers: Vec<Episode>,
    /// Its loss.
    pub loss: Option<LossFigures>,
    /// The first step of which a loss was no number.
    pub loss_not_finite_at: Option<u64>,
    /// What the job reported by names of its own.
    pub metrics: Vec<MetricFigures>,
    /// Samples a second.
    pub samples: Option<SampleFigures>,
    /// Its GPUs.
    pub gpus: Vec<GpuFigures>,
    /// Its hosts.
    pub host_figures: Vec<HostFigures>,
    /// Times in which this client did not reach one of them; a finding tells the longest.
    #[serde(skip)]
    pub silences: Vec<Silence>,
    /// Two of their clocks that its steps show to be apart.
    pub clocks_apart: Option<ClocksApart>,
    /// What it printed.
    pub log: LogFigures,
    /// What is missing.
    pub gaps: GapFigures,
    /// A sentence on the collectives of NCCL.
    pub collectives: Option<String>,
    /// What that sentence rests on.
    #[serde(skip)]
    pub nccl: Option<CollectiveFigures>,
    /// What it was: command, code, versions.
    pub facts: Vec<Fact>,
    /// What went wrong or stands out; a comparison looks for none.
    pub incidents: Vec<Incident>,
    /// What a person has noted of it; they lie beside the recording.
    #[serde(serialize_with = "as_told")]
    pub marks: Vec<RunMark>,
    /// Who came late to its collectives, where it was imported from a trace that tells that.
    pub waits: Option<WaitTable>,
    /// What charts show.
    #[serde(skip)]
    pub charts: Charts,
    /// What a comparison needs.
    #[serde(skip)]
    pub estimates: Estimates,
}

impl RunAnalysis {
    /// How it ended, in words.
    pub fn outcome_words(&self) -> &str {
        match &self.outcome {
            Some(outcome) => outcome,
            None if self.live => "it goes on: these are its figures so far",
            None => "no end is recorded here: it may go on",
        }
    }

    /// The last step, and the first where that is not step 1: the run began again from a checkpoint, say, or is an excerpt.
    pub fn step_numbers(&self) -> Option<(Option<u64>, u64)> {
        // of what a program prints not each step is one
        let first = self.steps.first.filter(|first| *first != 1 && self.steps.by != Some(StepsBy::Log));
        Some((first, self.steps.last?))
    }

    /// How much of a time in which these steps ended belongs to none of them: it lies between steps, or in one that ends later.
    /// `None` where that is little, and where not all ranks tell the same steps.
    pub fn in_no_step_us(&self, span_us: u64) -> Option<u64> {
        let length = self.steps.length.filter(|_| self.steps.aligned)?;
        let in_steps = length.mean_us * length.count as f64 + f64::from(self.steps.warm_up_us.unwrap_or(0));
        let left = span_us.saturating_sub(in_steps as u64);
        (left as f64 >= span_us as f64 * NO_STEP_FROM && left >= NO_STEP_LEAST_US).then_some(left)
    }

    /// A rank's share of a phase; unknown where no rank told of that phase.
    pub fn share(&self, rank: &RankFigures, phase: Phase) -> Option<f64> {
        let is_told = self.phases.iter().any(|figures| figures.phase == phase);
        rank.shares.filter(|_| is_told).map(|shares| shares[phase.index()])
    }
}

/// So much of a time, and so many microseconds, in no step are worth a word.
const NO_STEP_FROM: f64 = 0.10;
const NO_STEP_LEAST_US: u64 = 200_000;

/// One fact of what was run, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// `command`, `env LR`, `driver gpu-a`.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Values over the steps and over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Charts {
    /// By step.
    pub steps: ByStep<StepPoint>,
    /// When steps ended, as far as that was heard of.
    pub ended: ByStep<Ended>,
    /// Lateness of each rank.
    pub late: Vec<(Rank, ByStep<Late>)>,
    /// Utilisation of each GPU: `gpu-a:3`.
    pub util: Vec<(String, Series<UtilPoint>)>,
    /// When the run began and ended.
    pub range: Option<(Stamp, Stamp)>,
}

/// Quantiles with their intervals, microseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimates {
    /// Of the steps: 50, 95 and 99 of 100.
    pub length: [Option<Estimate>; 3],
    /// The median of each phase, in the order of [`Phase::ALL`]: of the mean over the ranks of each step that all have told,
    /// else of each rank's steps.
    pub phases: [Option<Estimate>; Phase::COUNT],
    /// The median of the exposed communication, likewise.
    pub exposed: Option<Estimate>,
}

/// RFC 3339, as all moments of the commands; beside a recording they are kept as they are.
#[expect(clippy::ref_option, reason = "serde calls it so")]
fn moment<S: serde::Serializer>(at: &Option<Stamp>, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { at.map(Stamp::rfc3339).serialize(to) } else { at.serialize(to) }
}
