//! Where a replay stands.

use serde::{Deserialize, Serialize};

use super::time::Stamp;

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
    /// Whether the run is still being recorded: the last moment moves on.
    #[serde(default)]
    pub growing: bool,
}
