//! Numbers that look like chance and follow from where they are asked for.

/// A number of 0..=1 that follows from `of`.
pub(super) fn share(of: &[u64]) -> f64 {
    let mixed = of
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15, |sum: u64, part| mix(sum ^ part.wrapping_mul(0xff51_afd7_ed55_8ccd)));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The finish of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A line that moves smoothly between -1 and 1, with about `period` between its turns.
pub(super) fn drift(seed: u64, seconds: f64, period: f64) -> f64 {
    let at = seconds / period;
    let (before, part) = (at.floor(), at - at.floor());
    let knot = |number: f64| 2.0 * share(&[seed, number as u64]) - 1.0;
    let smooth = part * part * (3.0 - 2.0 * part);
    knot(before) + (knot(before + 1.0) - knot(before)) * smooth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_a_drift_is_smooth() {
        let mean = (0..1000).map(|at| share(&[7, at])).sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        for tick in 0..1000 {
            let step = drift(1, f64::from(tick + 1) / 10.0, 5.0) - drift(1, f64::from(tick) / 10.0, 5.0);
            assert!(step.abs() < 0.1, "{step}");
        }
    }
}
