//! Lines that ranks print.

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::time::HostTime;
use super::units;

/// Which of a rank's append-only files a byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The reports of [`super::report::Report`], one JSON object a line.
    Report,
}

impl Stream {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Report];

    /// The end of the file's name: `rank-3.out`.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Stdout => "out",
            Self::Stderr => "err",
            Self::Report => "report",
        }
    }
}

/// One line of a rank's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The rank that printed it.
    pub rank: Rank,
    /// Standard output or error.
    pub stream: Stream,
    /// Where the line begins in the rank's file, bytes from its start; more where the rank has emptied the file.
    pub offset: u64,
    /// The text without its line end; bytes that are not UTF-8 are replaced. Of a line that was written over it has the
    /// states that fit, the newest last. Not yet safe for a terminal: see [`super::log_text`].
    pub text: String,
    /// How many further bytes of an over-long line were left out.
    pub elided: u64,
    /// When its end was in the file, on its host's clock: as the host's agent saw it, or its supervisor noted it a second later at
    /// most as a rule; absent where neither did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t: Option<HostTime>,
}

impl LogLine {
    /// What is said behind a line that was too long to be kept whole; nothing behind others.
    pub fn cut_words(&self) -> String {
        if self.elided > 0 { format!(" … {} more bytes", self.elided) } else { String::new() }
    }
}

/// The most bytes of unfinished lines in one [`super::event::Event::LogUnfinished`].
pub const UNFINISHED_BYTES: usize = 4096;

/// Bytes of a rank's file that never come: the lines beside them may be cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogGap {
    /// Whose file.
    pub rank: Rank,
    /// Which of its files.
    pub stream: Stream,
    /// The first byte that is missing.
    pub from: u64,
    /// The first byte that is there again.
    pub to: u64,
    /// Why.
    pub reason: GapReason,
    /// How much of a rank's output its host keeps, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
}

/// Why bytes of a rank's file are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GapReason {
    /// The rank printed more than its host keeps: the oldest went first.
    NotKept,
    /// They were passed over to reach the end sooner; the host has them, for a while.
    NotRead,
    /// It is no longer known where secret values stand in them; the host has them.
    Withheld,
    /// The rank has emptied its file: what it held may have come or not. The numbers that are left out say nothing of how much.
    Emptied,
    /// They did not come, without a reason; or a reason of a newer version.
    Unknown,
}

impl From<String> for GapReason {
    fn from(word: String) -> Self {
        match word.as_str() {
            "not_kept" => Self::NotKept,
            "not_read" => Self::NotRead,
            "withheld" => Self::Withheld,
            "emptied" => Self::Emptied,
            _ => Self::Unknown,
        }
    }
}

impl From<GapReason> for String {
    fn from(reason: GapReason) -> Self {
        let word = match reason {
            GapReason::NotKept => "not_kept",
            GapReason::NotRead => "not_read",
            GapReason::Withheld => "withheld",
            GapReason::Emptied => "emptied",
            GapReason::Unknown => "unknown",
        };
        word.to_owned()
    }
}

impl LogGap {
    /// How many bytes are missing.
    pub fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// A line for people: `… 12 M were not kept (cap 256 M)`.
    pub fn describe(&self) -> String {
        let of = match self.stream {
            Stream::Stdout => "",
            Stream::Stderr => " of stderr",
            Stream::Report => " of reports",
        };
        let what = format!("… {}{of}", units::bytes(self.bytes()));
        match (self.reason, self.cap) {
            (GapReason::NotKept, Some(cap)) => format!("{what} were not kept (cap {})", units::bytes(cap)),
            (GapReason::NotKept, None) => format!("{what} were not kept"),
            (GapReason::NotRead, _) => {
                format!("{what} were passed over: hvtui logs --whole reads them from the host")
            }
            (GapReason::Withheld, _) => {
                format!("{what} may hold secret values and are not shown: the host has them")
            }
            (GapReason::Emptied, _) => {
                let why = match self.stream {
                    Stream::Stdout => "> /dev/stdout empties the file, >> does not",
                    Stream::Stderr => "> /dev/stderr empties the file, >> does not",
                    Stream::Report => "the file was emptied",
                };
                format!("… lines{of} may be missing: {why}")
            }
            (GapReason::Unknown, _) => format!("{what} are missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_says_how_much_is_missing_and_why() {
        let gap = |stream, reason, cap| {
            LogGap { rank: Rank(0), stream, from: 4096, to: 4096 + (12 << 20), reason, cap }.describe()
        };
        let cap = Some(256 << 20);
        assert_eq!(gap(Stream::Stdout, GapReason::NotKept, cap), "… 12 M were not kept (cap 256 M)");
        assert_eq!(gap(Stream::Stderr, GapReason::Unknown, None), "… 12 M of stderr are missing");
        assert_eq!(
            gap(Stream::Stderr, GapReason::Emptied, None),
            "… lines of stderr may be missing: > /dev/stderr empties the file, >> does not"
        );
    }

    #[test]
    fn a_reason_of_a_newer_version_is_read() {
        let read = |word: &str| serde_json::from_str::<GapReason>(word).unwrap();
        assert_eq!(read("\"not_read\""), GapReason::NotRead);
        assert_eq!(read("\"emptied\""), GapReason::Emptied);
        assert_eq!(read("\"eaten_by_a_dog\""), GapReason::Unknown);
        assert_eq!(serde_json::to_string(&GapReason::NotKept).unwrap(), "\"not_kept\"");
    }
}
