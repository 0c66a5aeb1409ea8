//! What recording costs the client, and what it has lost: for the Events screen.

use super::units::{bytes, counted};

/// Less than so many bytes wait at any moment.
const BACKLOG: u64 = 1 << 20;

/// What the recordings that are being written cost, over the last seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordingCost {
    /// How many there are.
    pub recordings: usize,
    /// What they take of one core, 0..=1 and more.
    pub cores: f64,
    /// Bytes a second that they write.
    pub bytes_per_s: f64,
    /// Events that were dropped since they began.
    pub dropped: u64,
    /// Bytes in memory that wait for the disk.
    pub waiting: u64,
    /// One has taken as much as it may: some of what comes is left out.
    pub is_full: bool,
}

impl RecordingCost {
    /// `recording: 0.1 % of a core, 8.1 K/s, nothing lost`.
    pub fn words(&self) -> String {
        let what = match self.recordings {
            1 => "recording".to_owned(),
            several => format!("{several} recordings"),
        };
        let waiting = match self.waiting {
            waiting if waiting >= BACKLOG => format!(", {} wait for the disk", bytes(waiting)),
            _ => String::new(),
        };
        let mut lost = match self.dropped {
            0 if self.is_full => String::new(),
            0 => "nothing lost".to_owned(),
            dropped => format!("{} lost", counted(dropped, "event")),
        };
        if self.is_full {
            let comma = if lost.is_empty() { "" } else { ", " };
            lost.push_str(comma);
            lost.push_str("full: some of what comes is left out");
        }
        let (core, rate) = (self.cores * 100.0, bytes(self.bytes_per_s as u64));
        format!("{what}: {core:.1} % of a core, {rate}/s{waiting}, {lost}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_waits_is_said() {
        let cost = RecordingCost {
            recordings: 1,
            cores: 0.0012,
            bytes_per_s: 8_300.0,
            dropped: 0,
            waiting: 304,
            is_full: false,
        };
        assert_eq!(cost.words(), "recording: 0.1 % of a core, 8.1 K/s, nothing lost");
        let full = RecordingCost { is_full: true, ..cost };
        assert!(full.words().ends_with("K/s, full: some of what comes is left out"), "{}", full.words());
        let late = RecordingCost { recordings: 2, dropped: 1, waiting: 3 << 20, ..cost };
        let words = "2 recordings: 0.1 % of a core, 8.1 K/s, 3.0 M wait for the disk, 1 event lost";
        assert_eq!(late.words(), words);
    }
}
