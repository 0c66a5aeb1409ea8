//! Places a host's clock on the client's, from pings on the control channel, and says how well.
//!
//! A ping leaves the client at `t0`, is seen by the agent at `t1`, answered at `t2` and back at `t3`.
//! The offset is `((t0 - t1) + (t3 - t2)) / 2`, wrong by at most half the round trip
//! `(t3 - t0) - (t2 - t1)`. The least round trip of the last 32 decides (the filter of NTP, RFC 5905
//! section 10): measured over ssh under load, that is within tens of microseconds where one ping alone
//! is off by milliseconds.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::time::{HostTime, Stamp};

/// How many pings the filter looks back over.
const WINDOW: usize = 32;

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
    /// A sample from a ping's four stamps: `t0`, `t3` by the client's clock, `t1`, `t2` by the host's.
    pub fn from_ping(t0: Stamp, t1: HostTime, t2: HostTime, t3: Stamp) -> Self {
        let out = i128::from(t0.0) - i128::from(t1.0);
        let back = i128::from(t3.0) - i128::from(t2.0);
        let rtt = i128::from(t3.0) - i128::from(t0.0) - (i128::from(t2.0) - i128::from(t1.0));
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
    /// Takes one more ping into account.
    pub fn add(&mut self, sample: ClockSample) {
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
        fit.add(ClockSample::from_ping(Stamp(1_000_100), HostTime(150), HostTime(160), Stamp(1_004_210)));
        fit.add(ClockSample::from_ping(
            Stamp(2_000_100),
            HostTime(1_000_150),
            HostTime(1_000_160),
            Stamp(2_000_210),
        ));
        assert_eq!(fit.uncertainty_us(), Some(50));
        assert_eq!(fit.stamp(HostTime(7)), Some(Stamp(1_000_007)));
        assert_eq!(fit.host_time(Stamp(1_000_007)), Some(HostTime(7)));
    }
}
