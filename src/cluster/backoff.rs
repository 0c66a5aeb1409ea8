//! When to try a lost host again: exponential steps with full jitter, 0.5 s to 30 s. Time and chance are
//! arguments.
//!
//! Full jitter (the delay is uniform between zero and the step) spreads the tries of many clients after a
//! common outage best; see "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

const FIRST_US: u64 = 500_000;
const LAST_US: u64 = 30_000_000;

/// Counts failures in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// A try has failed: microseconds until the next one. `chance` is uniform in `0..=u32::MAX`.
    pub fn after_failure(&mut self, chance: u32) -> u64 {
        let step = FIRST_US.saturating_mul(1 << self.failures.min(16)).min(LAST_US);
        self.failures = self.failures.saturating_add(1);
        // never under a tenth of a second: a refused port must not be hammered
        (step * u64::from(chance) / u64::from(u32::MAX)).max(FIRST_US / 5)
    }

    /// A try has succeeded and held.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_start_anew() {
        let mut backoff = Backoff::default();
        let delays: Vec<u64> = (0..9).map(|_| backoff.after_failure(u32::MAX)).collect();
        assert_eq!(delays[..4], [500_000, 1_000_000, 2_000_000, 4_000_000]);
        assert_eq!(delays[8], LAST_US);
        backoff.reset();
        assert_eq!(backoff.after_failure(0), FIRST_US / 5);
    }
}
