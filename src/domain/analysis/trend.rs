//! Whether the memory of a GPU, or of a host, grows with the steps: a line through the second half of what was told, for the first
//! steps fill caches.

/// From so many points on.
const LEAST_POINTS: usize = 8;
/// So many times its standard error the slope must be.
const SIGMAS: f64 = 5.0;
/// Over the second half it must grow by so much: a share of it, and bytes.
const LEAST_SHARE: f64 = 0.01;
const LEAST_BYTES: f64 = 67_108_864.0;

/// Of a host it must grow by so much, for other work on it takes memory, too: a share of all that it has, and bytes.
const LEAST_OF_HOST: f64 = 0.02;
const LEAST_BYTES_OF_HOST: f64 = 1_073_741_824.0;
/// In so much time at least, microseconds.
const LEAST_US: u64 = 300_000_000;
/// So much of how it differs must be the line: what grows by four leaps, as by jobs that begin, has less.
const STEADY: f64 = 0.97;

/// A line through the second half of what was told.
struct Line {
    /// Bytes a step.
    slope: f64,
    /// What is usual.
    mean: f64,
    /// By how much it grows.
    grown: f64,
    /// The share of how it differs that is the line.
    explained: f64,
    is_significant: bool,
}

fn line(points: &[(f64, f64)]) -> Option<Line> {
    let half = &points[points.len() / 2..];
    if half.len() < LEAST_POINTS {
        return None;
    }
    let count = half.len() as f64;
    let mean_x = half.iter().map(|point| point.0).sum::<f64>() / count;
    let mean = half.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = half.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    let slope = half.iter().map(|point| (point.0 - mean_x) * (point.1 - mean)).sum::<f64>() / spread;
    let residual = |point: &(f64, f64)| (point.1 - mean - slope * (point.0 - mean_x)).powi(2);
    let residuals = half.iter().map(residual).sum::<f64>();
    let error = (residuals / (count - 2.0) / spread).sqrt();
    let all = half.iter().map(|point| (point.1 - mean).powi(2)).sum::<f64>();
    let grown = slope * (half.last()?.0 - half.first()?.0);
    Some(Line {
        slope,
        mean,
        grown,
        explained: 1.0 - residuals / all,
        is_significant: slope > SIGMAS * error,
    })
}

/// The slope of `(step, bytes)` over the second half of the points, bytes a step; `None` where it is not significant.
pub(super) fn growth(points: &[(f64, f64)]) -> Option<f64> {
    let line = line(points)?;
    let is_much = line.grown >= LEAST_BYTES.max(LEAST_SHARE * line.mean);
    (line.is_significant && is_much).then_some(line.slope)
}

/// The same of the memory of a host that has `total` bytes, of which the second half was told for `us` microseconds: only where it
/// grows for long, by much and as evenly as steps do.
pub(super) fn growth_of_host(points: &[(f64, f64)], us: u64, total: Option<u64>) -> Option<f64> {
    let line = line(points)?;
    let least =
        total.map_or(LEAST_BYTES_OF_HOST, |total| LEAST_BYTES_OF_HOST.max(LEAST_OF_HOST * total as f64));
    let is_even = line.is_significant && line.explained >= STEADY;
    (is_even && us >= LEAST_US && line.grown >= least).then_some(line.slope)
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

    #[test]
    fn of_a_host_it_must_be_much_long_and_even() {
        let points = |of: fn(f64) -> f64| -> Vec<(f64, f64)> {
            (0..80).map(|at| (f64::from(at) * 100.0, of(f64::from(at)))).collect()
        };
        let total = Some(256 << 30);
        // 40 points of it count, and 2 % of all memory are 5.5 GB
        let leaks = points(|at| 6e10 + at * 2e8 + (at % 3.0) * 5e7);
        let slope = growth_of_host(&leaks, LEAST_US, total).unwrap();
        assert!((slope / 2e6 - 1.0).abs() < 0.01, "{slope}");
        assert_eq!(growth_of_host(&leaks, LEAST_US - 1, total), None, "it is short");
        assert_eq!(growth_of_host(&leaks, LEAST_US, Some(2 << 40)), None, "44 GB would be much");
        assert!(growth_of_host(&points(|at| 1e9 + at * 4e7), LEAST_US, None).is_some());
        assert_eq!(growth_of_host(&points(|at| 1e9 + at * 2e7), LEAST_US, None), None, "less than 1 GiB");
        // other work: a job that begins, several, and one that comes and goes
        assert_eq!(growth_of_host(&points(|at| if at < 60.0 { 6e10 } else { 9e10 }), LEAST_US, total), None);
        assert_eq!(growth_of_host(&points(|at| 6e10 + (at / 10.0).floor() * 1e10), LEAST_US, total), None);
        assert_eq!(growth_of_host(&points(|at| 6e10 + (at % 10.0) * 2e9), LEAST_US, total), None);
        assert_eq!(growth_of_host(&points(|_| 6e10), LEAST_US, total), None);
    }
}
