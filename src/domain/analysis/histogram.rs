//! A histogram of numbers with a bounded relative error, in bounded memory: small values are counted one by one, and each power
//! of two above them in the same number of buckets, as HDR histograms do.

/// How many buckets a power of two has, as a power of two, less one: 2⁷ buckets, an error of 0.4 % at most.
const FINE: u32 = 8;
/// The same where there are many histograms: an error of 3 % at most.
const COARSE: u32 = 5;
/// Two-sided 95 % of a normal distribution.
const Z: f64 = 1.96;

/// Counts by value.
#[derive(Debug, Clone, PartialEq)]
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
    pub fn estimate(&self, share: f64, dependence: f64) -> Option<Estimate> {
        let value = f64::from(self.quantile(share)?);
        let count = self.count as f64;
        let spread = Z * (count * share * (1.0 - share) * dependence.max(1.0)).sqrt();
        let (below, above) = (count * share - spread, count * share + spread);
        let low = if below < 1.0 { self.least } else { self.ranked(below.floor() as u64) };
        let high = if above + 1.0 > count { self.most } else { self.ranked(above.ceil() as u64 + 1) };
        Some(Estimate { value, low: f64::from(low).min(value), high: f64::from(high).max(value) })
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
        assert_eq!(median, Estimate { value: 50.0, low: 40.0, high: 61.0 });
        let wider = histogram.estimate(0.5, 4.0).unwrap();
        assert_eq!(wider, Estimate { value: 50.0, low: 30.0, high: 71.0 });
        let few = of([7, 9]).estimate(0.95, 1.0).unwrap();
        assert_eq!(few, Estimate { value: 9.0, low: 7.0, high: 9.0 }, "all that two values tell");
        assert_eq!(Histogram::default().estimate(0.5, 1.0), None);
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
