//! Places a host's clock on the client's, from pings on the control channel, and says how well.
//!
//! A ping leaves the client at `t0`, is seen by the agent at `t1`, answered at `t2` and back at `t3`.
//! Its way is counted on a clock that is never set, so `t3` is `t0` and that.
//! The offset is `((t0 - t1) + (t3 - t2)) / 2`, wrong by at most half the round trip
//! `(t3 - t0) - (t2 - t1)`. Under load one ping is off by milliseconds, and two clocks drift apart by milliseconds a minute:
//! so the quickest ping of each ten seconds is kept, and a line through the best of them, over ten minutes, has the offset and
//! the drift ([`ClockLine`]). Before there are enough, the surest single ping counts, and is less sure the older it is.
//! Pings whose bounds exclude each other show that a clock was set, or stood still, between them: those before count no more.

mod line;
#[cfg(test)]
mod tests;
mod track;

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::{HostTime, Stamp};
pub use line::ClockLine;
pub(in crate::domain) use line::drifted_us;
pub use track::{ClockLines, ClockTrack};

/// How many pings are compared with a new one.
const RECENT: usize = 32;
/// Of so much time the quickest ping is kept.
const BUCKET_US: u64 = 10_000_000;
/// For so many of these times: the live fit looks back over ten minutes.
const BUCKETS: usize = 60;
/// A ping within so much of a moment tells of it, microseconds.
const NEAR_US: u64 = 60_000_000;
/// A host that is followed is pinged each second: of one that was not for so long none is due, microseconds.
pub(in crate::domain) const FOLLOWED_US: u64 = 15_000_000;
/// What two pings may differ by beyond their bounds, microseconds.
const SLACK_US: u64 = 1_000;
/// What four times in whole microseconds may be off by together.
const ROUNDED_US: i128 = 4;

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
    /// back after so long. `None` where the answer took longer than the whole way: a clock was set meanwhile, or slept.
    pub fn from_ping(t0: Stamp, t1: HostTime, t2: HostTime, took: Duration) -> Option<Self> {
        let took = i128::try_from(took.as_micros()).unwrap_or(i128::MAX);
        let out = i128::from(t0.0) - i128::from(t1.0);
        let back = i128::from(t0.0) + took - i128::from(t2.0);
        let rtt = took - (i128::from(t2.0) - i128::from(t1.0));
        (rtt >= -ROUNDED_US).then(|| Self {
            host_time: t2,
            offset_us: i64::try_from((out + back).div_euclid(2)).unwrap_or(i64::MAX),
            rtt_us: u32::try_from(rtt.max(0)).unwrap_or(u32::MAX),
        })
    }
}

/// Pings between which no clock was set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Pings {
    /// The newest.
    recent: VecDeque<ClockSample>,
    /// The quickest of each [`BUCKET_US`].
    best: VecDeque<ClockSample>,
}

impl Pings {
    /// Whether a clock was set between those and this one.
    fn contradict(&self, sample: &ClockSample) -> bool {
        self.recent.iter().any(|other| {
            let apart_us = other.host_time.0.abs_diff(sample.host_time.0) as f64 * line::MOST_DRIFT;
            let doubt_us = (u64::from(other.rtt_us) + u64::from(sample.rtt_us)).div_ceil(2);
            other.offset_us.abs_diff(sample.offset_us) > doubt_us + apart_us.ceil() as u64 + SLACK_US
        })
    }

    /// What they say of the time around `near`: a line, or before there is one the ping that is the surest then. `None` without
    /// a ping.
    fn line(&self, near: HostTime) -> Option<ClockLine> {
        let all = self.best.iter().chain(&self.recent);
        let surest = || all.map(|sample| ClockLine::of(*sample, near)).min_by_key(|line| line.uncertainty_us);
        ClockLine::through(self.best.iter()).or_else(surest)
    }

    fn add(&mut self, sample: ClockSample) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
        let bucket = |sample: &ClockSample| sample.host_time.0 / BUCKET_US;
        match self.best.back_mut().filter(|best| bucket(best) == bucket(&sample)) {
            Some(best) if best.rtt_us <= sample.rtt_us => {}
            Some(best) => *best = sample,
            None => self.best.push_back(sample),
        }
    }
}

/// The pings of one host during the last ten minutes and what they say together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockFit {
    pings: Pings,
    line: Option<ClockLine>,
    /// Half of the quickest ping there ever was, microseconds.
    #[serde(default)]
    quickest_us: Option<u32>,
}

impl ClockFit {
    /// Takes one more ping into account. Where it shows that a clock was set, or slept, tells by how much the host's clock went
    /// ahead of the client's then, microseconds.
    pub fn add(&mut self, sample: ClockSample) -> Option<i64> {
        let mut jump = None;
        if self.pings.contradict(&sample) {
            self.pings = Pings::default();
            let before = self.line.map(|line| line.offset_ns(sample.host_time).div_euclid(1_000));
            jump = before.map(|before| before.saturating_sub(sample.offset_us));
        }
        self.pings.add(sample);
        let way_us = sample.rtt_us.div_ceil(2);
        self.quickest_us = Some(self.quickest_us.map_or(way_us, |quickest| quickest.min(way_us)));
        if self.pings.best.len() > BUCKETS {
            self.pings.best.pop_front();
        }
        self.line = self.pings.line(sample.host_time);
        jump
    }

    /// The client's stamp of a host's moment; `None` before the first ping.
    pub fn stamp(&self, time: HostTime) -> Option<Stamp> {
        let offset_us = self.line?.offset_ns(time).div_euclid(1_000);
        Some(Stamp(i64::try_from(time.0).unwrap_or(i64::MAX).saturating_add(offset_us)))
    }

    /// A host's moment by the client's stamp; `None` before the first ping.
    pub fn host_time(&self, stamp: Stamp) -> Option<HostTime> {
        let line = self.line?;
        // where the offset changes by a few millionths, that of a moment so close is the same
        let about = stamp.0.saturating_sub(line.offset_ns.div_euclid(1_000));
        let offset_us = line.offset_ns(HostTime(u64::try_from(about).unwrap_or_default())).div_euclid(1_000);
        Some(HostTime(u64::try_from(stamp.0.saturating_sub(offset_us)).unwrap_or_default()))
    }

    /// What the pings say together; `None` before the first one.
    pub fn line(&self) -> Option<ClockLine> {
        self.line
    }

    /// The offset is within this many microseconds.
    pub fn uncertainty_us(&self) -> Option<u32> {
        self.line.map(|line| line.uncertainty_us)
    }

    /// The same at a moment of the host behind its newest ping: while no more came the clocks may have drifted apart.
    pub fn aged_us(&self, time: HostTime) -> Option<u32> {
        let age_us = time.0.saturating_sub(self.pings.recent.back()?.host_time.0);
        let drifted_us = if age_us > FOLLOWED_US { drifted_us(age_us) } else { 0 };
        Some(self.uncertainty_us()?.saturating_add(drifted_us))
    }

    /// The same at a moment of the host: less exact the further it is from a ping. `None` where none is near.
    pub fn unsure_us(&self, time: HostTime) -> Option<u32> {
        let (line, best) = (self.line?, &self.pings.best);
        let after = best.partition_point(|ping| ping.host_time < time);
        let near = [after.checked_sub(1), Some(after)].into_iter().flatten().filter_map(|at| best.get(at));
        let away_us = near.map(|ping| ping.host_time.0.abs_diff(time.0)).min()?;
        if away_us > NEAR_US {
            return None;
        }
        // by one ping it is not known how the clock drifts
        let drifts_us = if line.drift == 0.0 { line.at.0.abs_diff(time.0) } else { away_us };
        Some(line.uncertainty_us.saturating_add(drifted_us(drifts_us)))
    }

    /// What a message to the host takes around a moment of it, microseconds: half of the quickest ping near it. `None` where none
    /// is near.
    pub fn message_us(&self, time: HostTime) -> Option<u32> {
        let (first, last) = (time.0.saturating_sub(NEAR_US), time.0.saturating_add(NEAR_US));
        let newest_first = self.pings.best.iter().rev().skip_while(|ping| ping.host_time.0 > last);
        let near = newest_first.take_while(|ping| ping.host_time.0 >= first);
        near.map(|ping| ping.rtt_us.div_ceil(2)).min()
    }

    /// The same, where no ping is near half of the quickest there ever was; 0 for a host that was never asked. The quickest of all alone
    /// would not do: it was maybe hours ago, on another way.
    pub fn way_us(&self, time: HostTime) -> u32 {
        self.message_us(time).or(self.quickest_us).unwrap_or(0)
    }

    /// The latest round trip in microseconds.
    pub fn rtt_us(&self) -> Option<u32> {
        self.pings.recent.back().map(|s| s.rtt_us)
    }
}
