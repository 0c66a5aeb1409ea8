//! The pings that are on their way to a host. How long one took is counted on a clock that is never set: a step of the wall
//! clock, or an answer that was never asked for, changes no round trip. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::time::{HostTime, Stamp};

/// Pings that may wait for their answers; of a link that answers none the silence ends it before.
const MOST: usize = 64;

/// When the pings without an answer were sent, oldest first: by the wall clock, which names them, and by `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(super) struct Pings(VecDeque<(Stamp, HostTime)>);

impl Pings {
    /// A ping is sent.
    pub(super) fn sent(&mut self, t0: Stamp, at: HostTime) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((t0, at));
    }

    /// A ping was answered: how long it was on its way. `None` for an answer to none of them.
    pub(super) fn answered(&mut self, t0: Stamp, now: HostTime) -> Option<Duration> {
        let place = self.0.iter().position(|(sent, _)| *sent == t0)?;
        // answers come in order
        let (_, at) = self.0.drain(..=place).next_back()?;
        Some(Duration::from_micros(now.0.saturating_sub(at.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_counted_by_the_clock_that_nobody_sets() {
        let mut pings = Pings::default();
        pings.sent(Stamp(5_000_000), HostTime(100));
        // the wall clock was set back by two seconds meanwhile
        pings.sent(Stamp(3_000_200), HostTime(300));
        assert_eq!(pings.answered(Stamp(5_000_000), HostTime(500)), Some(Duration::from_micros(400)));
        assert_eq!(pings.answered(Stamp(3_000_200), HostTime(600)), Some(Duration::from_micros(300)));
        // answered twice, or never asked
        assert_eq!(pings.answered(Stamp(3_000_200), HostTime(700)), None);
        assert_eq!(pings.answered(Stamp(0), HostTime(700)), None);
    }

    #[test]
    fn pings_without_an_answer_are_bounded() {
        let mut pings = Pings::default();
        (0..10 * MOST).for_each(|n| pings.sent(Stamp(n as i64), HostTime(n as u64)));
        assert_eq!(pings.0.len(), MOST);
        assert_eq!(pings.answered(Stamp(0), HostTime(1)), None);
    }
}
