//! Places a host's clock on the client's, from pings on the control channel, and says how well.
//!
//! A ping leaves the client at `t0`, is seen by the agent at `t1`, answered at `t2` and back at `t3`.
//! Its way is counted on a clock that nobody sets, so `t3` is `t0` and that.
//! The offset is `((t0 - t1) + (t3 - t2)) / 2`, wrong by at most half the round trip
//! `(t3 - t0) - (t2 - t1)`. The least round trip of the last 32 decides (the filter of NTP, RFC 5905
//! section 10): measured over ssh under load, that is within tens of microseconds where one ping alone
//! is off by milliseconds.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::{HostTime, Stamp};

/// How many pings the filter looks back over.
const WINDOW: usize = 32;
/// Two clocks drift apart by less within the window: what is more was set by someone.
const STEP_US: u64 = 100_000;

/// One ping's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// When the agent answered, on the host's clock.
    pub host_time: HostTime,
    /// Client's clock minus host's clock, microseconds.
    pub offset_us: i64,
    /// Round trip without the agent's own time, microseconds.
    pub rtt_us: u32,
}

impl ClockSample {
    /// A sample from a ping that was sent at `t0` by the client's clock, seen at `t1` and answered at `t2` by the host's, and
    /// back after so long.
    pub fn from_ping(t0: Stamp, t1: HostTime, t2: HostTime, took: Duration) -> Self {
        let took = i128::try_from(took.as_micros()).unwrap_or(i128::MAX);
        let out = i128::from(t0.0) - i128::from(t1.0);
        let back = i128::from(t0.0) + took - i128::from(t2.0);
        let rtt = took - (i128::from(t2.0) - i128::from(t1.0));
        Self {
            host_time: t2,
            offset_us: i64::try_from((out + back).div_euclid(2)).unwrap_or(i64::MAX),
            rtt_us: u32::try_from(rtt.max(0)).unwrap_or(u32::MAX),
        }
    }
}

/// The recent pings of one host and what they say together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockFit {
    samples: VecDeque<ClockSample>,
}

impl ClockFit {
    /// Takes one more ping into account. Where a clock was set meanwhile, those before count no more.
    pub fn add(&mut self, sample: ClockSample) {
        let doubt = |best: ClockSample| u64::from(best.rtt_us.max(sample.rtt_us)) + STEP_US;
        if self.best().is_some_and(|best| best.offset_us.abs_diff(sample.offset_us) > doubt(best)) {
            self.samples.clear();
        }
        if self.samples.len() == WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    fn best(&self) -> Option<ClockSample> {
        self.samples.iter().copied().min_by_key(|s| s.rtt_us)
    }

    /// The client's stamp of a host's moment; `None` before the first ping.
    pub fn stamp(&self, time: HostTime) -> Option<Stamp> {
        let offset = self.best()?.offset_us;
        Some(Stamp(i64::try_from(time.0).unwrap_or(i64::MAX).saturating_add(offset)))
    }

    /// A host's moment by the client's stamp; `None` before the first ping.
    pub fn host_time(&self, stamp: Stamp) -> Option<HostTime> {
        let offset = self.best()?.offset_us;
        Some(HostTime(u64::try_from(stamp.0.saturating_sub(offset)).unwrap_or_default()))
    }

    /// Half the best round trip: the true offset is within this many microseconds.
    pub fn uncertainty_us(&self) -> Option<u32> {
        self.best().map(|s| s.rtt_us.div_ceil(2))
    }

    /// The latest round trip in microseconds.
    pub fn rtt_us(&self) -> Option<u32> {
        self.samples.back().map(|s| s.rtt_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delayed_ping_decides() {
        let mut fit = ClockFit::default();
        assert_eq!(fit.stamp(HostTime(5)), None);
        // true offset 1_000_000; the first ping is held up by 4 ms on its way back
        let us = Duration::from_micros;
        fit.add(ClockSample::from_ping(Stamp(1_000_100), HostTime(150), HostTime(160), us(4_110)));
        fit.add(ClockSample::from_ping(Stamp(2_000_100), HostTime(1_000_150), HostTime(1_000_160), us(110)));
        assert_eq!(fit.uncertainty_us(), Some(50));
        assert_eq!(fit.stamp(HostTime(7)), Some(Stamp(1_000_007)));
        assert_eq!(fit.host_time(Stamp(1_000_007)), Some(HostTime(7)));
    }

    #[test]
    fn a_clock_that_is_set_is_followed_at_once() {
        let mut fit = ClockFit::default();
        let ping = |t0, host, took| {
            ClockSample::from_ping(Stamp(t0), HostTime(host), HostTime(host), Duration::from_micros(took))
        };
        fit.add(ping(10_000_000, 1_000, 100));
        // held up for two seconds: that alone is no step
        fit.add(ping(11_000_000, 2_900_000, 2_000_000));
        assert_eq!(fit.stamp(HostTime(1_000)), Some(Stamp(10_000_050)));
        // set back by an hour
        fit.add(ping(13_000_000 - 3_600_000_000, 3_001_000, 300));
        assert_eq!(fit.stamp(HostTime(3_001_000)), Some(Stamp(13_000_150 - 3_600_000_000)));
    }
}
