//! How whole a recording is, in words for people.

use chrono::{DateTime, Local};

use crate::domain::time::Stamp;
use crate::domain::units;

/// How whole a recording is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// Closed by its recorder; every chunk checks out.
    Complete,
    /// Every chunk checks out and there is no end: it is being written, or its recorder was killed.
    NotClosed,
    /// The file ends in the middle of a record.
    Cut {
        /// Where the last whole record ends, bytes from the start of the file.
        at_byte: u64,
        /// The last moment that could be read.
        until: Option<Stamp>,
    },
    /// Parts of the file are not what was written.
    Damaged {
        /// Chunks that fail their checks and are left out.
        chunks: u64,
        /// Where the first fault is, bytes from the start of the file.
        at_byte: u64,
        /// Whether it is cut at its end as well.
        cut: bool,
    },
}

impl Integrity {
    /// What is wrong; `None` where nothing is lost. A recording without an end has lost nothing that
    /// reached the file.
    pub fn damage(&self) -> Option<String> {
        match self {
            Self::Complete | Self::NotClosed => None,
            Self::Cut { at_byte, until } => {
                let until = until.and_then(clock_time).map(|time| format!(": opened up to {time}"));
                Some(format!("recording is cut at {}{}", units::bytes(*at_byte), until.unwrap_or_default()))
            }
            Self::Damaged { chunks, at_byte, cut } => {
                let many = if *chunks == 1 {
                    "1 damaged chunk".to_owned()
                } else {
                    format!("{chunks} damaged chunks")
                };
                let cut = if *cut { ", and the end is cut off" } else { "" };
                Some(format!("{many} left out, the first at {}{cut}", units::bytes(*at_byte)))
            }
        }
    }
}

/// A moment as the clock on the wall here shows it.
fn clock_time(at: Stamp) -> Option<String> {
    let time = DateTime::from_timestamp_micros(at.0)?.with_timezone(&Local);
    Some(time.format("%H:%M:%S").to_string())
}
