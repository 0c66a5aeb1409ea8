//! Whether a reader that is behind will ever be level again. Pure: time is passed in.
//!
//! Ranks can print faster than any link or screen takes it. A reader that is minutes behind sees nothing
//! of the present, and at the end of the run waits for lines that no user can read any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::time::HostTime;

/// Over how long the reader's pace is measured.
const MEASURE_US: u64 = 3_000_000;
/// Less than this in that time is no pace: the reader has stopped, and may go on.
const LEAST: u64 = 64 << 10;
/// A reader may be so far behind while ranks print.
const LIVE_S: u64 = 300;
/// And so far when none does any more: a client waits for the end.
const ENDED_S: u64 = 60;
/// So much is never passed over.
const SMALL: u64 = 8 << 20;

/// The pace of a reader that is behind.
#[derive(Debug)]
pub(super) struct Lag {
    /// The reader may be brought to the end.
    hurries: bool,
    /// For how long it reads at most once no rank prints any more, seconds, where that is said.
    patience_s: Option<u64>,
    /// Nothing takes from the reader what it reads.
    unread: Arc<AtomicBool>,
    since: Option<HostTime>,
    bytes: u64,
    /// Bytes a second.
    pace: Option<u64>,
}

impl Lag {
    /// Of a reader that may be brought to the end where it `hurries`, and is as soon as `unread` is set.
    pub(super) fn new(hurries: bool, patience_s: Option<u64>, unread: Arc<AtomicBool>) -> Self {
        Self { hurries, patience_s, unread, since: None, bytes: 0, pace: None }
    }

    /// So many bytes were taken off us.
    pub(super) fn sent(&mut self, bytes: u64, now: HostTime) {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes;
        let passed = now.0.saturating_sub(since.0);
        if passed >= MEASURE_US {
            self.pace = (self.bytes >= LEAST).then(|| self.bytes.saturating_mul(1_000_000) / passed);
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    /// The reader has all there is: what it took until now was what there was, not what it can take.
    pub(super) fn level(&mut self) {
        (self.since, self.bytes, self.pace) = (None, 0, None);
    }

    /// Whether anything may be passed over.
    pub(super) fn counts(&self) -> bool {
        self.hurries || self.unread.load(Ordering::Relaxed)
    }

    /// Whether so many bytes are too far behind at this pace.
    pub(super) fn hopeless(&self, behind: u64, ended: bool) -> bool {
        if ended && self.unread.load(Ordering::Relaxed) {
            return true;
        }
        let (patience, small) = match self.patience_s {
            Some(patience) if ended => (patience, 0),
            _ if ended => (ENDED_S, SMALL),
            _ => (LIVE_S, SMALL),
        };
        self.hurries && behind > small && self.pace.is_some_and(|pace| behind / pace.max(1) > patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> HostTime {
        HostTime(seconds * 1_000_000)
    }

    #[test]
    fn only_a_measured_pace_makes_a_reader_hopeless() {
        let mut lag = Lag::new(true, None, Arc::default());
        assert!(!lag.hopeless(u64::MAX, true), "nothing is known yet");
        for second in 0..4 {
            lag.sent(1 << 20, s(second));
        }
        // 4 MiB in 3 s
        assert!(!lag.hopeless(300 << 20, false) && lag.hopeless(500 << 20, false));
        assert!(!lag.hopeless(70 << 20, true) && lag.hopeless(100 << 20, true));
        lag.level();
        assert!(!lag.hopeless(u64::MAX, true), "what came in drops says nothing of a flood");
    }

    #[test]
    fn a_reader_that_stands_still_is_waited_for_and_little_is_never_passed_over() {
        let mut lag = Lag::new(true, None, Arc::default());
        lag.sent(1000, s(0));
        lag.sent(1000, s(100));
        assert!(!lag.hopeless(u64::MAX, true));
        lag.sent(LEAST, s(110));
        assert!(!lag.hopeless(SMALL, true));
        assert!(lag.hopeless(SMALL + 1, true));
    }

    #[test]
    fn who_has_little_time_is_brought_to_the_end_sooner_and_only_once_the_ranks_have_ended() {
        let mut lag = Lag::new(true, Some(2), Arc::default());
        assert!(!lag.hopeless(u64::MAX, true), "nothing is known yet");
        lag.sent(0, s(0));
        lag.sent(3 << 20, s(3));
        // 1 MiB a second
        assert!(!lag.hopeless(2 << 20, true) && lag.hopeless(3 << 20, true));
        assert!(!lag.hopeless(100 << 20, false));
    }

    #[test]
    fn what_nothing_takes_is_passed_over_at_once_but_not_while_ranks_print() {
        let unread = Arc::new(AtomicBool::new(false));
        let lag = Lag::new(false, None, Arc::clone(&unread));
        assert!(!lag.hopeless(u64::MAX, true), "all is wanted");
        unread.store(true, Ordering::Relaxed);
        assert!(lag.hopeless(1, true) && !lag.hopeless(u64::MAX, false));
    }
}
