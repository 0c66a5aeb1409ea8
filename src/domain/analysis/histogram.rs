//! A histogram of numbers with a bounded relative error, in bounded memory: small values are counted one by one, and each power
//! of two above them in the same number of buckets, as HDR histograms do.

use serde::{Deserialize, Serialize};

/// How many buckets a power of two has, as a power of two, less one: 2⁷ buckets, an error of 0.4 % at most.
const FINE: u32 = 8;
/// The same where there are many histograms: an error of 3 % at most.
const COARSE: u32 = 5;
/// Two-sided 95 % of a normal distribution.
const Z: f64 = 1.96;
/// What may lie beyond each end of such an interval.
const BEYOND: f64 = 0.025;

/// Counts by value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    bits: u32,
    counts: Vec<u32>,
    count: u64,
    sum: u64,
    least: u32,
    most: u32,
}

/// A value and the interval in which the true one lies, 95 times of 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// What was measured.
    pub value: f64,
    /// The least that fits it.
    pub low: f64,
    /// The most that fits it.
    pub high: f64,
    /// There are too few values for an interval, and `low` and `high` say nothing: how many there are, and how many it needs.
    pub few: Option<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::with(FINE)
    }
}

impl Histogram {
    /// One of little memory: an error of 3 % at most.
    pub fn coarse() -> Self {
        Self::with(COARSE)
    }

    fn with(bits: u32) -> Self {
        Self { bits, counts: Vec::new(), count: 0, sum: 0, least: u32::MAX, most: 0 }
    }

    /// Takes a value in.
    pub fn add(&mut self, value: u32) {
        let at = self.bucket(value);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] = self.counts[at].saturating_add(1);
        self.count += 1;
        self.sum = self.sum.saturating_add(value.into());
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// Takes all values of another one of the same precision in.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own = own.saturating_add(*more);
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    fn bucket(&self, value: u32) -> usize {
        if value < 1 << self.bits {
            return value as usize;
        }
        let power = value.ilog2();
        let within = (value >> (power - self.bits + 1)) - (1 << (self.bits - 1));
        ((1 << self.bits) + ((power - self.bits) << (self.bits - 1)) + within) as usize
    }

    /// The middle of a bucket.
    fn middle(&self, bucket: usize) -> u32 {
        let bucket = bucket as u32;
        let Some(above) = bucket.checked_sub(1 << self.bits) else { return bucket };
        let power = above >> (self.bits - 1);
        let within = above & ((1 << (self.bits - 1)) - 1);
        let width = 2_u64 << power;
        let low = (u64::from(within) + (1 << (self.bits - 1))) * width;
        u32::try_from(low + width / 2).unwrap_or(u32::MAX)
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The greatest.
    pub fn max(&self) -> Option<u32> {
        (self.count > 0).then_some(self.most)
    }

    /// The value that so many are not above, from 1 on; the greatest where there are fewer.
    fn ranked(&self, rank: u64) -> u32 {
        if rank >= self.count {
            return self.most;
        }
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank.max(1)
        });
        at.map_or(self.most, |at| self.middle(at)).clamp(self.least.min(self.most), self.most)
    }

    /// The least value that a share of all values, 0..=1, is not above.
    pub fn quantile(&self, share: f64) -> Option<u32> {
        (self.count > 0).then(|| self.ranked((share * self.count as f64).ceil() as u64))
    }

    /// A quantile with its interval by order statistics (Conover, Practical Nonparametric Statistics, 3.2): the number of
    /// values below it is binomial. `dependence` says how many of the values tell as much as one that depends on no other.
    /// Where a bound would lie beyond all values there is no interval: the greatest of 20 is above the true 95th of 100 two
    /// times of three only.
    pub fn estimate(&self, share: f64, dependence: f64) -> Option<Estimate> {
        let value = f64::from(self.quantile(share)?);
        let count = self.count as f64;
        let spread = Z * (count * share * (1.0 - share) * dependence.max(1.0)).sqrt();
        let (below, above) = (count * share - spread, count * share + spread);
        let (is_low_beyond, is_high_beyond) = (below < 1.0, above + 1.0 > count);
        let low = if is_low_beyond { self.least } else { self.ranked(below.floor() as u64) };
        let high = if is_high_beyond { self.most } else { self.ranked(above.ceil() as u64 + 1) };
        // how likely all values lie on one side of the true quantile
        let all_beyond = |share: f64| share.powf(count / dependence.max(1.0)) > BEYOND;
        let few = is_low_beyond && all_beyond(1.0 - share) || is_high_beyond && all_beyond(share);
        let needed = BEYOND.ln() / share.max(1.0 - share).ln() * dependence.max(1.0);
        let few = few.then(|| (self.count, (needed.ceil() as u64).max(self.count + 1)));
        Some(Estimate { value, low: f64::from(low).min(value), high: f64::from(high).max(value), few })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: impl IntoIterator<Item = u32>) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.add(value);
        }
        histogram
    }

    #[test]
    fn small_values_are_exact() {
        let histogram = of(1..=100);
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|share| histogram.quantile(share).unwrap()), [50, 95, 99, 100]);
        assert_eq!((histogram.mean(), histogram.max(), histogram.count()), (Some(50.5), Some(100), 100));
        let median = histogram.estimate(0.5, 1.0).unwrap();
        // 50 ± 1.96 · 5
        assert_eq!(median, Estimate { value: 50.0, low: 40.0, high: 61.0, few: None });
        let wider = histogram.estimate(0.5, 4.0).unwrap();
        assert_eq!(wider, Estimate { value: 50.0, low: 30.0, high: 71.0, few: None });
        let few = |count, share, dependence| of(1..=count).estimate(share, dependence).unwrap().few;
        let is_few = |count, share, dependence| few(count, share, dependence).is_some();
        assert_eq!(few(71, 0.95, 1.0), Some((71, 72)));
        // 0.95⁷² and 0.99³⁶⁷ are 2.5 %, and so is about half to the power of 6
        assert_eq!([71, 72].map(|count| is_few(count, 0.95, 1.0)), [true, false]);
        assert_eq!([366, 368].map(|count| is_few(count, 0.99, 1.0)), [true, false]);
        assert_eq!([5, 6].map(|count| is_few(count, 0.5, 1.0)), [true, false]);
        assert_eq!(
            [140, 150].map(|count| is_few(count, 0.95, 2.0)),
            [true, false],
            "half as many tell as much"
        );
        assert_eq!(Histogram::default().estimate(0.5, 1.0), None);
    }

    /// Two runs of the same program: how often their intervals do not even overlap.
    #[test]
    fn intervals_of_few_steps_are_wide_enough_or_there_are_none() {
        let mut state = 7_u64;
        let mut roll = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        for (count, share) in [(20, 0.5), (20, 0.95), (50, 0.95), (80, 0.95), (100, 0.99), (400, 0.99)] {
            let exact = 100_000.0 - 10_000.0 * (1.0_f64 - share).ln();
            let (mut told, mut wrong) = (0, 0);
            for _ in 0..1000 {
                let values: Vec<u32> =
                    (0..count).map(|_| (100_000.0 - 10_000.0 * (1.0 - roll()).ln()) as u32).collect();
                let estimate = of(values).estimate(share, 1.0).unwrap();
                told += u32::from(estimate.few.is_none());
                // buckets are off by 0.4 %
                let within = estimate.low * 0.996 <= exact && exact <= estimate.high * 1.004;
                wrong += u32::from(estimate.few.is_none() && !within);
            }
            assert!(wrong <= 60, "{count} steps, {share}: {wrong} of {told} intervals miss");
        }
    }

    #[test]
    fn hours_take_no_more_memory_than_milliseconds() {
        let histogram = of([1, u32::MAX]);
        assert!(histogram.counts.len() <= 3_328, "{}", histogram.counts.len());
        assert_eq!(histogram.quantile(1.0), Some(u32::MAX));
    }

    proptest! {
        #[test]
        fn a_quantile_is_off_by_less_than_half_a_percent(values in prop::collection::vec(0..4_000_000_000_u32, 1..200), share in 0.01..1.0_f64) {
            let histogram = of(values.iter().copied());
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let exact = f64::from(sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]);
            let told = f64::from(histogram.quantile(share).unwrap());
            prop_assert!((told - exact).abs() <= exact * 0.004 + 1e-9, "{told} {exact}");
            let estimate = histogram.estimate(share, 1.0).unwrap();
            prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
        }

        #[test]
        fn merged_ones_are_one(one in prop::collection::vec(any::<u32>(), 0..50), other in prop::collection::vec(any::<u32>(), 0..50)) {
            let mut merged = of(one.iter().copied());
            merged.merge(&of(other.iter().copied()));
            let whole = of(one.into_iter().chain(other));
            prop_assert_eq!(merged, whole);
        }
    }
}
