//! Whether the memory of a GPU grows with the steps: a line through the second half of what was told, for the first steps fill
//! caches.

/// From so many points on.
const LEAST_POINTS: usize = 8;
/// So many times its standard error the slope must be.
const SIGMAS: f64 = 5.0;
/// Over the second half it must grow by so much: a share of it, and bytes.
const LEAST_SHARE: f64 = 0.01;
const LEAST_BYTES: f64 = 67_108_864.0;

/// The slope of `(step, bytes)` over the second half of the points, bytes a step; `None` where it is not significant.
pub(super) fn growth(points: &[(f64, f64)]) -> Option<f64> {
    let half = &points[points.len() / 2..];
    if half.len() < LEAST_POINTS {
        return None;
    }
    let count = half.len() as f64;
    let mean_x = half.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = half.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = half.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    let slope = half.iter().map(|point| (point.0 - mean_x) * (point.1 - mean_y)).sum::<f64>() / spread;
    let residual = |point: &(f64, f64)| (point.1 - mean_y - slope * (point.0 - mean_x)).powi(2);
    let error = (half.iter().map(residual).sum::<f64>() / (count - 2.0) / spread).sqrt();
    let grown = slope * (half.last()?.0 - half.first()?.0);
    let is_significant = slope > SIGMAS * error && grown >= LEAST_BYTES.max(LEAST_SHARE * mean_y);
    is_significant.then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_where_it_is_one() {
        let points = |of: fn(f64) -> f64| -> Vec<(f64, f64)> {
            (0..40).map(|at| (f64::from(at) * 100.0, of(f64::from(at)))).collect()
        };
        let gib = f64::from(1 << 30);
        let grows = growth(&points(|at| 1e10 + at * 1e7)).unwrap();
        assert!((grows - 1e5).abs() < 1.0, "10 MB each 100 steps: {grows}");
        assert_eq!(growth(&points(|_| 1e10)), None);
        assert_eq!(growth(&points(|at| if at < 10.0 { at * 1e9 } else { 1e10 })), None, "caches fill");
        assert_eq!(growth(&points(|at| 1e10 + (at % 2.0) * 1e9)), None, "it goes up and down");
        assert_eq!(growth(&points(|at| 1e10 + at * 1e5)), None, "2 MB are nothing");
        assert_eq!(growth(&[(0.0, 0.0), (1.0, gib)]), None);
    }
}
