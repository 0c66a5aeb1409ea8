//! What a recording is made of: channels, limits, and the note that begins every chunk.
//!
//! The byte layout is described in `docs/formats/recording.md`; a change there or here that an older
//! reader can't skip raises [`FORMAT`].

use serde::{Deserialize, Serialize};

use crate::domain::event::{Envelope, Event};
use crate::domain::gpu::{Field, GpuProcess, GpuSample, Number, Reading};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RunSpec, RunStage};
use crate::domain::time::Stamp;
use crate::domain::trained::{Stood, Trained};

/// Version of the format that is written; the highest that is read. 2: `/phase` has `hidden`. 3: there are origins
/// within a rank, and the phase `other`.
pub const FORMAT: u32 = 3;
/// The version as each chunk tells it, from 4 on. At the beginning of a file it has no CRC, and one changed bit there must not make a
/// recording one of a later version.
pub(super) const TOLD_FORMAT: Option<u32> = if FORMAT > 3 { Some(FORMAT) } else { None };
/// The MCAP profile, and the name of the metadata record that carries the version.
pub(super) const PROFILE: &str = "hvtui";
/// Encoding name of columnar blocks.
pub(super) const COLUMNS: &str = "hvt-col1";

/// Envelope time that one chunk spans at most, microseconds. Together with
/// [`super::recorder::IDLE`] it keeps what a `kill -9` may lose under one second.
pub(super) const CHUNK_SPAN_US: i64 = 750_000;
/// Encoded bytes after which a chunk ends early.
pub(super) const CHUNK_TARGET: usize = 8 << 20;
/// Envelopes after which a chunk ends early.
pub(super) const CHUNK_ENVELOPES: usize = 1 << 14;
/// The largest encoded event; larger ones are refused by the writer.
pub(super) const MAX_EVENT: usize = 16 << 20;
/// The largest record, and the largest chunk once decompressed, that a reader takes in.
pub(super) const MAX_RECORD: usize = 64 << 20;
/// The most envelopes that a reader takes out of one chunk.
pub(super) const MAX_ENVELOPES: usize = 1 << 17;

/// Ranks above this have no log channel of their own (MCAP counts channels in 16 bits).
const MAX_LOG_RANK: u32 = 65_000;
const FIRST_LOG: u16 = 16;

/// What a message holds. The numbers are part of the format: a chunk can be read without the channel
/// records of earlier, perhaps damaged chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    /// [`ChunkNote`], the first message of each chunk.
    Chunk,
    /// [`Meta`], once.
    Meta,
    /// Envelopes that have no channel of their own, as a JSON array.
    Event,
    /// Clock samples, as a JSON array of envelopes.
    Clock,
    /// Step timings of all ranks, columnar.
    Phase,
    /// Telemetry of all hosts, columnar.
    Gpu,
    /// Named numbers of all ranks, columnar.
    Metric,
    /// Numbers of GPU samples that have no column of their own in [`Self::Gpu`], by name.
    GpuNumbers,
    /// Lines of one rank, one message a line.
    Log(u32),
}

impl Channel {
    /// Where an event of this kind is stored.
    pub(super) fn of(event: &Event) -> Self {
        match event {
            Event::StepDone { .. } => Self::Phase,
            Event::HostSampled { .. } => Self::Gpu,
            Event::MetricReported { .. } => Self::Metric,
            Event::ClockSampled { .. } => Self::Clock,
            Event::LogPrinted { line } if line.rank.0 <= MAX_LOG_RANK => Self::Log(line.rank.0),
            Event::LogGap { gap } if gap.rank.0 <= MAX_LOG_RANK => Self::Log(gap.rank.0),
            _ => Self::Event,
        }
    }

    pub(super) fn id(self) -> u16 {
        match self {
            Self::Chunk => 1,
            Self::Meta => 2,
            Self::Event => 3,
            Self::Clock => 4,
            Self::Phase => 5,
            Self::Gpu => 6,
            Self::Metric => 7,
            Self::GpuNumbers => 8,
            Self::Log(rank) => FIRST_LOG.saturating_add(u16::try_from(rank).unwrap_or(u16::MAX)),
        }
    }

    /// The channel of a number; `None` for one that a later version added.
    pub(super) fn from_id(id: u16) -> Option<Self> {
        Some(match id {
            1 => Self::Chunk,
            2 => Self::Meta,
            3 => Self::Event,
            4 => Self::Clock,
            5 => Self::Phase,
            6 => Self::Gpu,
            7 => Self::Metric,
            8 => Self::GpuNumbers,
            FIRST_LOG.. => Self::Log(u32::from(id - FIRST_LOG)),
            _ => return None,
        })
    }

    pub(super) fn topic(self) -> String {
        match self {
            Self::Chunk => "/chunk".into(),
            Self::Meta => "/meta".into(),
            Self::Event => "/event".into(),
            Self::Clock => "/clock".into(),
            Self::Phase => "/phase".into(),
            Self::Gpu => "/gpu".into(),
            Self::Metric => "/metric".into(),
            Self::GpuNumbers => "/gpu_numbers".into(),
            Self::Log(rank) => format!("/log/{rank}"),
        }
    }

    pub(super) fn encoding(self) -> &'static str {
        match self {
            Self::Phase | Self::Gpu | Self::Metric | Self::GpuNumbers => COLUMNS,
            _ => "json",
        }
    }
}

/// What a chunk holds and how the run stands at its end. With the chunk's own CRC this is an index
/// that survives the loss of everything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ChunkNote {
    /// Lowest sequence number in the chunk.
    pub(super) first_seq: u64,
    /// Highest sequence number in the chunk.
    pub(super) last_seq: u64,
    /// Earliest envelope time in the chunk.
    pub(super) start: Stamp,
    /// Latest envelope time in the chunk.
    pub(super) end: Stamp,
    /// How many envelopes.
    pub(super) envelopes: u64,
    /// The stage the run is in.
    #[serde(default)]
    pub(super) stage: Option<RunStage>,
    /// How the run ended.
    #[serde(default)]
    pub(super) outcome: Option<RunOutcome>,
    /// How far the training came. Absent before the first step, and where an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trained: Option<Trained>,
    /// Where the ranks stand behind the newest step. Absent before anything is known of that, and where an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stood: Option<Stood>,
    /// Where the last line of each rank's output in this chunk begins, so that the lines need not be read to
    /// go on behind them. Absent where an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<Vec<(Rank, Stream, u64)>>,
    /// [`TOLD_FORMAT`] of who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<u32>,
}

/// What the recording is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The run.
    pub(super) spec: RunSpec,
}

/// A moment as MCAP counts it: nanoseconds since the Unix epoch. Moments that MCAP has no number for
/// are clamped; the exact one stands in the message.
pub(super) fn log_time(at: Stamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000)
}

/// Roughly how many bytes of memory an envelope keeps: what the queue and the chunk count.
pub(crate) fn weight(envelope: &Envelope) -> usize {
    // itself, and what its allocations cost beside their bytes
    const BASE: usize = 208;
    BASE + match &envelope.event {
        Event::StepDone { timing } => 16 * timing.spans.len(),
        Event::LogPrinted { line } | Event::LogUnfinished { line } => line.text.len(),
        Event::HostSampled { sample } => sample.gpus.iter().map(gpu_weight).sum(),
        Event::MetricReported { name, .. } => name.len(),
        Event::CollectiveDone { timing } => 128 + timing.func.len() + timing.datatype.len(),
        Event::CollectivesTold { told, .. } => told.weight(),
        Event::WaitsTold { waits } => 128 * waits.ranks.len(),
        Event::HostDescribed { .. } | Event::RunCreated { .. } => 4096,
        _ => 64,
    }
}

fn gpu_weight(gpu: &GpuSample) -> usize {
    let words = gpu.throttle.value().map_or(0, |words| words.iter().map(|word| word.len() + 32).sum());
    let processes = gpu.processes.value().map_or(&[][..], Vec::as_slice);
    let text = |reading: &Reading<String>| failure(reading) + reading.value().map_or(0, String::len);
    let processes: usize = processes
        .iter()
        .map(|process| {
            let numbers = failure(&process.memory) + failure(&process.sm_percent);
            let times = failure(&process.start_ticks) + failure(&process.age_s);
            size_of::<GpuProcess>() + text(&process.user) + text(&process.command) + numbers + times
        })
        .sum();
    let number = |field: &Field<GpuSample>| match (field.get)(gpu) {
        Number::Failed(error) => error.len() + 32,
        Number::Value(_) | Number::Unsupported => 0,
    };
    let failures: usize = GpuSample::NUMBERS.iter().map(number).sum();
    let failures = failures + failure(&gpu.throttle) + failure(&gpu.processes);
    size_of::<GpuSample>() + words + processes + failures
}

fn failure<T>(reading: &Reading<T>) -> usize {
    if let Reading::Failed { error } = reading { error.len() + 32 } else { 0 }
}
