//! Random numbers without state: a hash of a seed and a counter. The same on every rank, thread and machine.

use super::real::Real;

/// 64 well-mixed bits of `seed` and `counter` (the finaliser of `SplitMix64`; Steele, Lea and Flood, 2014).
pub fn hash(seed: u64, counter: u64) -> u64 {
    let mut z = seed ^ counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1).
pub fn uniform(seed: u64, counter: u64) -> f64 {
    (hash(seed, counter) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Which values of a layer are kept in one step: each with the same probability, by its place.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    seed: u64,
    /// Of 65,536.
    dropped: u16,
}

impl Dropout {
    /// Drops each value with probability `rate` (0 to below 1), in a pattern of this seed's own.
    pub fn new(rate: f64, seed: u64) -> Self {
        Self { seed, dropped: (rate * 65_536.0) as u16 }
    }

    /// The seed of its pattern.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// How many of 65,536 values are dropped.
    pub fn dropped(self) -> u16 {
        self.dropped
    }

    /// What a kept value is multiplied by, so that the expected sum stays.
    pub fn scale(self) -> f64 {
        65_536.0 / (65_536.0 - f64::from(self.dropped))
    }

    /// Zeroes the dropped of `values` and scales the kept. The first value's place is `first`, a multiple of 4.
    pub fn apply<T: Real>(self, first: u64, values: &mut [T]) {
        let scale = T::of(self.scale());
        let fate = |bits: u64, at: usize| {
            if (bits >> (16 * at)) as u16 >= self.dropped { scale } else { T::ZERO }
        };
        let mut place = first / 4;
        // Whole groups have a known length, which the compiler unrolls.
        let (groups, rest) = values.as_chunks_mut::<4>();
        for group in groups {
            let bits = hash(self.seed, place);
            place += 1;
            for (at, value) in group.iter_mut().enumerate() {
                *value = *value * fate(bits, at);
            }
        }
        let bits = hash(self.seed, place);
        for (at, value) in rest.iter_mut().enumerate() {
            *value = *value * fate(bits, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_and_the_pattern_is_the_place_s() {
        let dropout = Dropout::new(0.25, 7);
        let mut all = vec![1.0_f64; 100_000];
        dropout.apply(0, &mut all);
        let kept = all.iter().filter(|value| **value > 0.0).count() as f64 / 100_000.0;
        assert!((kept - 0.75).abs() < 0.01, "{kept}");
        assert!((dropout.scale() - 1.0 / 0.75).abs() < 1e-12);
        let mut part = [1.0_f64; 10];
        dropout.apply(40, &mut part);
        assert!(part.iter().zip(&all[40..]).all(|(a, b)| a.to_bits() == b.to_bits()));
        let mut whole = [1.0; 1000];
        Dropout::new(0.0, 7).apply(0, &mut whole);
        assert!(whole.iter().all(|value: &f64| value.to_bits() == 1.0_f64.to_bits()));
    }

    #[test]
    fn uniform_numbers_fill_their_interval() {
        let mean = (0..10_000).map(|i| uniform(3, i)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01);
        assert!((0..10_000).all(|i| (0.0..1.0).contains(&uniform(3, i))));
    }
}
