//! From which size on bytes shall move by themselves rather than travel with the barrier. Pure.
//!
//! Each way's time is taken to be `a + b x bytes`, fitted from two sizes measured when the group forms (see `engine`).
//! Times are the slowest rank's, so that all ranks come to one decision.

/// Microseconds (or any unit) at [`SIZES`].
pub(super) type Times = [f64; 2];

/// The sizes that are measured.
pub(super) const SIZES: [usize; 2] = [512, 16 << 10];
/// However the measurement turns out: below the first everything travels with the barrier, above the second nothing.
pub(super) const BOUNDS: (usize, usize) = (1 << 10, 16 << 10);

/// The largest size, a power of two within [`BOUNDS`], that shall travel with the barrier; `with` are the times of
/// that way, `apart` those of the other ones.
pub(super) fn limit(with: Times, apart: &[Times]) -> usize {
    let sizes =
        std::iter::successors(Some(BOUNDS.0), |size| Some(size * 2)).take_while(|size| *size <= BOUNDS.1);
    let better = |size: &usize| {
        let best = apart.iter().map(|times| at(*times, *size)).fold(f64::INFINITY, f64::min);
        at(with, *size) <= best
    };
    sizes.take_while(better).last().unwrap_or(BOUNDS.0)
}

fn at(times: Times, size: usize) -> f64 {
    let slope = (times[1] - times[0]) / (SIZES[1] - SIZES[0]) as f64;
    times[0] + slope * (size as f64 - SIZES[0] as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_wins_from_where_the_lines_cross() {
        // 0.1 + 0.0002 x bytes against 0.3 + 0.00005 x bytes: they cross at 1333 bytes.
        let times = |a: f64, b: f64| SIZES.map(|size| a + b * size as f64);
        assert_eq!(limit(times(0.1, 0.000_2), &[times(0.3, 0.000_05)]), 1024);
        assert_eq!(limit(times(0.1, 0.000_1), &[times(0.5, 0.000_05)]), 4096);
        assert_eq!(limit(times(0.1, 0.000_1), &[times(9.0, 0.000_1), times(1.0, 0.0)]), 8192);
    }

    #[test]
    fn nonsense_stays_within_bounds() {
        assert_eq!(limit([f64::NAN; 2], &[[1.0, 2.0]]), BOUNDS.0);
        assert_eq!(limit([5.0, 1.0], &[[0.0, 9.0]]), BOUNDS.0);
        assert_eq!(limit([0.0, 0.0], &[]), BOUNDS.1);
    }
}
