//! Lines that ranks print.

use serde::{Deserialize, Serialize};

use super::ids::Rank;

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
    /// Who printed it.
    pub rank: Rank,
    /// Standard output or error.
    pub stream: Stream,
    /// Where the line begins in the rank's file, bytes from its start.
    pub offset: u64,
    /// The text without its line end; bytes that are not UTF-8 are replaced. Not yet safe for a terminal:
    /// see [`super::text::sanitize`].
    pub text: String,
    /// How many further bytes of an over-long line were left out.
    pub elided: u64,
}
