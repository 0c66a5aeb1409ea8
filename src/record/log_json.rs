//! A rank's line as JSON: the fields of Foxglove's log schema, so that other MCAP tools show it, and
//! beside them what hvtui needs to give the same envelope back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::{LogGap, LogLine, Stream};
use crate::domain::log_text::level::Level;
use crate::domain::time::{HostTime, Stamp};

/// Name and JSON schema of the fields that other tools read.
pub(super) const SCHEMA_NAME: &str = "foxglove.Log";
pub(super) const SCHEMA: &str = r#"{"title":"foxglove.Log","type":"object","properties":{"timestamp":{"type":"object","properties":{"sec":{"type":"integer"},"nsec":{"type":"integer"}}},"level":{"type":"integer"},"message":{"type":"string"},"name":{"type":"string"}}}"#;

#[derive(Serialize, Deserialize)]
struct Time {
    sec: i64,
    nsec: u32,
}

#[derive(Serialize, Deserialize)]
struct LogJson {
    timestamp: Time,
    level: u8,
    message: String,
    name: String,
    seq: u64,
    rank: Rank,
    stream: Stream,
    offset: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    elided: u64,
    /// When the line's end was in the file, on the host's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<HostTime>,
    /// The run, where the origin is the rank of this run: always, in practice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    /// Any other origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    /// The line stands for missing bytes: the message says so in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gap: Option<LogGap>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A line's envelope as JSON.
pub(super) fn encode(envelope: &Envelope, line: &LogLine) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&LogJson::new(envelope, line.clone(), Level::of(&line.text), None))
}

/// The envelope of a gap as the JSON of a line that says it: readers that know no gaps show the words.
pub(super) fn encode_gap(envelope: &Envelope, gap: &LogGap) -> Result<Vec<u8>, serde_json::Error> {
    let LogGap { rank, stream, from: offset, .. } = *gap;
    let line = LogLine { rank, stream, offset, text: gap.describe(), elided: 0, t: None };
    serde_json::to_vec(&LogJson::new(envelope, line, Level::Warning, Some(gap.clone())))
}

impl LogJson {
    fn new(envelope: &Envelope, line: LogLine, level: Level, gap: Option<LogGap>) -> Self {
        let (run, origin) = match &envelope.origin {
            Origin::Rank(run, rank) if *rank == line.rank => (Some(run.clone()), None),
            other => (None, Some(other.clone())),
        };
        Self {
            timestamp: Time {
                sec: envelope.at.0.div_euclid(1_000_000),
                nsec: envelope.at.0.rem_euclid(1_000_000) as u32 * 1_000,
            },
            level: level as u8,
            name: format!("rank {}", line.rank),
            message: line.text,
            seq: envelope.seq,
            rank: line.rank,
            stream: line.stream,
            offset: line.offset,
            elided: line.elided,
            t: line.t,
            run,
            origin,
            gap,
        }
    }
}

/// The envelope of a line; `None` where the bytes are something else.
pub(super) fn decode(bytes: &[u8]) -> Option<Envelope> {
    let log: LogJson = serde_json::from_slice(bytes).ok()?;
    // in 128 bits: seconds alone may lie below what 64 bits of microseconds count
    let at = i128::from(log.timestamp.sec) * 1_000_000 + i128::from(log.timestamp.nsec / 1_000);
    let at = i64::try_from(at).ok()?;
    let origin = match (log.run, log.origin) {
        (Some(run), _) => Origin::Rank(run, log.rank),
        (None, origin) => origin?,
    };
    let LogJson { rank, stream, offset, message: text, elided, t, seq, gap, .. } = log;
    let event = match gap {
        Some(gap) => Event::LogGap { gap },
        None => Event::LogPrinted { line: Arc::new(LogLine { rank, stream, offset, text, elided, t }) },
    };
    Some(Envelope { seq, at: Stamp(at), origin, event })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::domain::fixtures::log_line;
    use crate::domain::log::GapReason;

    /// What other tools find in the message of an event at that moment, microseconds.
    fn told(at: i64, event: Event) -> Value {
        let origin = Origin::Rank(RunId::new(1, 1), Rank(3));
        let envelope = Envelope { seq: 7, at: Stamp(at), origin, event };
        let bytes = match &envelope.event {
            Event::LogPrinted { line } => encode(&envelope, line),
            Event::LogGap { gap } => encode_gap(&envelope, gap),
            other => panic!("{other:?}"),
        };
        let bytes = bytes.unwrap();
        assert_eq!(decode(&bytes), Some(envelope));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn other_tools_read_level_time_and_words() {
        for (text, level) in [
            ("loss 0.5", 0),
            ("DEBUG: a batch", 1),
            ("INFO: begun", 2),
            ("WARNING: slow", 3),
            ("ERROR: no file", 4),
            ("CRITICAL: no memory", 5),
        ] {
            let line = LogLine { t: Some(HostTime(99)), ..log_line(3, text) };
            let told = told(1_795_000_000_250_001, Event::LogPrinted { line: Arc::new(line) });
            assert_eq!((&told["level"], &told["message"]), (&level.into(), &text.into()));
            assert_eq!((&told["name"], &told["t"]), (&"rank 3".into(), &99.into()), "{told}");
            let time = (&told["timestamp"]["sec"], &told["timestamp"]["nsec"]);
            assert_eq!(time, (&1_795_000_000.into(), &250_001_000.into()));
        }
        let (stream, reason) = (Stream::Stdout, GapReason::NotKept);
        let gap = LogGap { rank: Rank(3), stream, from: 10, to: 2_000_000, reason, cap: Some(1 << 20) };
        let words = gap.describe();
        // before the epoch, where a clock was never set
        let told = told(-1, Event::LogGap { gap });
        assert_eq!((&told["level"], &told["message"]), (&3.into(), &words.into()));
        let time = (&told["timestamp"]["sec"], &told["timestamp"]["nsec"]);
        assert_eq!(time, (&(-1).into(), &999_999_000.into()));
    }
}
