//! Where a replay stands.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::log_text::level::Level;
use super::log_text::search::Pattern;
use super::time::Stamp;
use super::world::LoggedLine;

/// The state of a replay: its bounds, its one playhead, and whether it moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaybackState {
    /// First moment of the recording.
    pub start: Stamp,
    /// Last moment of the recording.
    pub end: Stamp,
    /// The moment that is shown.
    pub playhead: Stamp,
    /// Recorded seconds a second; 1.0 is real time.
    pub speed: f64,
    /// Whether the playhead moves.
    pub playing: bool,
    /// What is wrong with the recording, in words.
    pub damage: Option<String>,
    /// Spans in which no client followed the run: from and to.
    #[serde(default)]
    pub unattended: Vec<(Stamp, Stamp)>,
    /// Spans of which what was recorded can no longer be read: from and to.
    #[serde(default)]
    pub lost: Vec<(Stamp, Stamp)>,
    /// Whether the run is still being recorded: the last moment moves on.
    #[serde(default)]
    pub growing: bool,
}

impl PlaybackState {
    /// The bounds of the part of the recording that a timeline of this length, microseconds, shows: the playhead is in its middle,
    /// but near the ends of the recording.
    pub fn window(&self, length: i64) -> (Stamp, Stamp) {
        let latest = self.end.plus_micros(-length);
        let first = self.playhead.plus_micros(-length / 2).min(latest).max(self.start);
        (first, first.plus_micros(length))
    }
}

/// Which line of a recording is searched.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSearch {
    /// What it has.
    pub pattern: Pattern,
    /// Whose line it is; `None` = of any rank.
    pub rank: Option<Rank>,
    /// How serious it is at least.
    pub least: Level,
    /// The first one after a moment; else the last one before it.
    pub forward: bool,
    /// The moment.
    pub from: Stamp,
    /// The last event that counts as seen, by its number: forward the lines that are told behind it are searched, also those of the
    /// moment itself, backward those up to it. Where it is not told, none of that moment.
    pub seen: Option<u64>,
    /// No farther than here: forward with the lines of this moment.
    pub to: Option<Stamp>,
    /// Where there is none, the other way from there.
    pub turns: bool,
}

/// A line that was found in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLine {
    /// When the playhead meets it.
    pub at: Stamp,
    /// The line, seen alone.
    pub line: Arc<LoggedLine>,
}

impl FoundLine {
    /// Whether it is this one, whatever the lines before it say of its level and colours.
    pub fn is(&self, other: &LoggedLine) -> bool {
        let own = &*self.line;
        (own.at, own.gap, &own.line) == (other.at, other.gap, &other.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_playhead_is_in_the_middle_of_a_window_that_does_not_leave_the_recording() {
        let window = |playhead, length| {
            let state = PlaybackState {
                start: Stamp(1_000),
                end: Stamp(2_000),
                playhead: Stamp(playhead),
                speed: 1.0,
                playing: false,
                damage: None,
                unattended: Vec::new(),
                lost: Vec::new(),
                growing: false,
            };
            let (from, to) = state.window(length);
            (from.0, to.0)
        };
        assert_eq!(window(1_500, 200), (1_400, 1_600));
        assert_eq!(window(1_050, 200), (1_000, 1_200));
        assert_eq!(window(2_000, 200), (1_800, 2_000));
        assert_eq!(window(1_700, 1_000), (1_000, 2_000));
        assert_eq!(window(1_700, 3_000), (1_000, 4_000), "more than there is");
    }
}
