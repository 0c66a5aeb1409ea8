//! Places a host's clock on the client's for a whole recording: one straight line a host, fitted to
//! the best pings of each ten seconds. A line, unlike the live filter's latest best offset, never
//! makes one step end after the next began.

use std::collections::BTreeMap;

use crate::domain::clock_fit::ClockSample;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::HostId;
use crate::domain::time::HostTime;

const BUCKET_US: u64 = 10_000_000;
/// Pings this much slower than the fastest say little of the offset, microseconds.
const WORTHY_US: u32 = 50;
/// No clock drifts more than this against another, as a share; a steeper line is noise.
const MOST_DRIFT: f64 = 500e-6;

/// The clocks of a recording's hosts.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    lines: BTreeMap<HostId, Line>,
}

/// A host's clock against the client's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HostClock {
    /// Client's clock minus the host's `CLOCK_MONOTONIC` at the best ping, nanoseconds.
    pub(super) offset_ns: i64,
    /// How the offset changes with the host's time, as a share.
    pub(super) drift: f64,
    /// Half the round trip of the best ping: the offset there is within this many microseconds.
    pub(super) uncertainty_us: u32,
}

/// Offset in nanoseconds at a host time, and its change with it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    at: HostTime,
    offset_ns: i64,
    drift: f64,
    uncertainty_us: u32,
}

/// Gathers pings on a pass over the recording.
#[derive(Debug, Default)]
pub(super) struct Gather {
    best: BTreeMap<HostId, BTreeMap<u64, ClockSample>>,
}

impl Gather {
    pub(super) fn take(&mut self, envelope: &Envelope) {
        let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) else {
            return;
        };
        let buckets = self.best.entry(host.clone()).or_default();
        let best = buckets.entry(sample.host_time.0 / BUCKET_US).or_insert(*sample);
        if sample.rtt_us < best.rtt_us {
            *best = *sample;
        }
    }

    pub(super) fn fit(self) -> Clocks {
        let lines = self.best.into_iter().filter_map(|(host, buckets)| {
            let samples: Vec<ClockSample> = buckets.into_values().collect();
            Some((host, Line::fit(&samples)?))
        });
        Clocks { lines: lines.collect() }
    }
}

impl Clocks {
    /// A host's clock; `None` without a ping.
    pub(super) fn of(&self, host: &HostId) -> Option<HostClock> {
        let Line { offset_ns, drift, uncertainty_us, .. } = *self.lines.get(host)?;
        Some(HostClock { offset_ns, drift, uncertainty_us })
    }

    /// The hosts with a ping.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.lines.keys()
    }

    /// The client's time of a host's moment, nanoseconds since the Unix epoch; `None` for a host
    /// without a ping.
    pub(super) fn place(&self, host: &HostId, time: HostTime) -> Option<i64> {
        let line = self.lines.get(host)?;
        let since_us = i128::from(time.0) - i128::from(line.at.0);
        let drifted = (since_us as f64 * 1e3 * line.drift).round() as i128;
        i64::try_from(i128::from(time.0) * 1_000 + i128::from(line.offset_ns) + drifted).ok()
    }
}

impl Line {
    fn fit(samples: &[ClockSample]) -> Option<Self> {
        let best = *samples.iter().min_by_key(|sample| sample.rtt_us)?;
        let worthy = samples.iter().filter(|sample| sample.rtt_us <= best.rtt_us.saturating_add(WORTHY_US));
        let points: Vec<(f64, f64)> = worthy
            .map(|sample| {
                let x = i128::from(sample.host_time.0) - i128::from(best.host_time.0);
                (x as f64, sample.offset_us.saturating_sub(best.offset_us) as f64)
            })
            .collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
        let slope: f64 = points.iter().map(|point| (point.0 - mean_x) * (point.1 - mean_y)).sum();
        let drift = if points.len() >= 3 && spread > 0.0 { slope / spread } else { 0.0 };
        let (drift, at_best) = if drift.abs() <= MOST_DRIFT && points.len() >= 3 {
            (drift, mean_y - drift * mean_x)
        } else {
            (0.0, 0.0)
        };
        let offset_ns = best.offset_us.saturating_mul(1_000).saturating_add((at_best * 1e3).round() as i64);
        let uncertainty_us = best.rtt_us.div_ceil(2);
        Some(Self { at: best.host_time, offset_ns, drift, uncertainty_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_is_placed_between_its_pings() {
        let mut samples = Vec::new();
        for bucket in 0..60_u64 {
            let host_time = HostTime(bucket * BUCKET_US);
            // 20 ppm: 200 µs each ten seconds
            let offset_us = 1_000_000_000 + bucket as i64 * 200;
            let rtt_us = if bucket % 7 == 3 { 5_000 } else { 100 };
            let late = if rtt_us > 1_000 { 2_400 } else { 0 };
            samples.push(ClockSample { host_time, offset_us: offset_us + late, rtt_us });
        }
        let line = Line::fit(&samples).unwrap();
        assert!((line.drift - 20e-6).abs() < 1e-9, "{line:?}");
        let clocks = Clocks { lines: BTreeMap::from([(HostId::from("a"), line)]) };
        let placed = clocks.place(&HostId::from("a"), HostTime(305_000_000)).unwrap();
        assert!((placed - (305_000_000_000 + 1_000_000_000_000 + 6_100_000)).abs() < 1_000, "{placed}");
        assert_eq!(clocks.place(&HostId::from("b"), HostTime(1)), None);
    }
}
