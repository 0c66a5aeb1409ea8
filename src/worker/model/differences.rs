//! Slopes by finite differences, in `f64`: what every gradient is held against.

/// How far a value is moved.
const STEP: f64 = 1e-6;

/// The slope of `loss` along each of `values`.
pub(super) fn slopes(values: &[f64], mut loss: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut moved = values.to_vec();
    let mut slope = |at: usize| {
        let mut by = |step: f64| {
            moved[at] = values[at] + step;
            loss(&moved)
        };
        let slope = (by(STEP) - by(-STEP)) / (2.0 * STEP);
        moved[at] = values[at];
        slope
    };
    (0..values.len()).map(&mut slope).collect()
}

/// Checks a gradient against the slopes.
pub(super) fn assert_slopes(what: &str, gradient: &[f64], slopes: &[f64]) {
    assert_eq!(gradient.len(), slopes.len(), "{what}");
    for (at, (gradient, slope)) in gradient.iter().zip(slopes).enumerate() {
        assert!(
            (gradient - slope).abs() < 1e-6 * (1.0 + slope.abs()),
            "{what} {at}: {gradient}, slope {slope}"
        );
    }
}
