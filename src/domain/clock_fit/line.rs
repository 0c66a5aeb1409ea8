//! How a host's clock runs against the client's: a straight line through good pings.

use serde::{Deserialize, Serialize};

use super::ClockSample;
use crate::domain::time::HostTime;

/// Pings so much slower than the quickest one say little of the offset, microseconds.
const WORTHY_US: u32 = 50;
/// A line needs so many of them.
const POINTS: usize = 3;
/// No clock drifts more than this against another, as a share; a steeper line is noise.
pub(super) const MOST_DRIFT: f64 = 500e-6;
/// By how much two clocks drift apart before that was measured, as a share: what a ping says is less sure the older it is.
const UNKNOWN_DRIFT: f64 = 50e-6;

/// A host's clock against the client's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockLine {
    /// A moment of the host.
    pub at: HostTime,
    /// Client's clock minus the host's then, nanoseconds.
    pub offset_ns: i64,
    /// How the offset changes with the host's time, as a share.
    pub drift: f64,
    /// The offset is within this many microseconds.
    pub uncertainty_us: u32,
}

/// How far two clocks may have drifted apart in so long, microseconds.
pub(in crate::domain) fn drifted_us(age_us: u64) -> u32 {
    (age_us as f64 * UNKNOWN_DRIFT).ceil() as u32
}

impl ClockLine {
    /// Through the best of some pings. `None` where there are too few good ones for a slope.
    pub(super) fn through<'a>(samples: impl Iterator<Item = &'a ClockSample> + Clone) -> Option<Self> {
        let best = *samples.clone().min_by_key(|sample| sample.rtt_us)?;
        let worthy = samples.filter(|sample| sample.rtt_us <= best.rtt_us.saturating_add(WORTHY_US));
        let point = |sample: &ClockSample| {
            let x = i128::from(sample.host_time.0) - i128::from(best.host_time.0);
            (x as f64, sample.offset_us.saturating_sub(best.offset_us) as f64)
        };
        let points = worthy.map(point);
        let count = points.clone().count();
        let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count as f64;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.clone().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let slope: f64 = points.map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let drift = slope / spread;
        // without a spread it is no number
        if count < POINTS || !drift.is_finite() || drift.abs() > MOST_DRIFT {
            return None;
        }
        let at_best = mean_y - drift * mean_x;
        let offset_ns = best.offset_us.saturating_mul(1_000).saturating_add((at_best * 1e3).round() as i64);
        Some(Self { at: best.host_time, offset_ns, drift, uncertainty_us: best.rtt_us.div_ceil(2) })
    }

    /// By one ping, for the time around `near`.
    pub(super) fn of(sample: ClockSample, near: HostTime) -> Self {
        let age_us = sample.host_time.0.abs_diff(near.0);
        let drifted_us = drifted_us(age_us);
        Self {
            at: sample.host_time,
            offset_ns: sample.offset_us.saturating_mul(1_000),
            drift: 0.0,
            uncertainty_us: sample.rtt_us.div_ceil(2).saturating_add(drifted_us),
        }
    }

    /// Client's clock minus the host's at a moment, nanoseconds.
    pub fn offset_ns(&self, time: HostTime) -> i64 {
        let since_us = i128::from(time.0) - i128::from(self.at.0);
        self.offset_ns.saturating_add((since_us as f64 * 1e3 * self.drift).round() as i64)
    }
}
