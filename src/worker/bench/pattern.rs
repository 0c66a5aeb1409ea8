//! Values whose reduction over ranks is known, to see whether an operation computes. Pure.

use crate::collective::{Element, Reduce, bf16, f16};

/// The values repeat after so many, and are 1 to this.
const PERIOD: usize = 7;

/// A number that the pattern can be written in.
pub(super) trait Number: Element {
    /// Whole numbers up to 2 to this power are exact.
    const BITS: i32;
    fn from_small(value: f64) -> Self;
    fn wide(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty, $bits:literal, $from:expr, $wide:expr;)*) => {$(
        impl Number for $type {
            const BITS: i32 = $bits;
            fn from_small(value: f64) -> Self {
                $from(value)
            }
            fn wide(self) -> f64 {
                $wide(self)
            }
        }
    )*};
}
numbers! {
    f32, 24, |value| value as f32, f64::from;
    f64, 53, |value| value, |value| value;
    f16, 11, f16::from_f64, f16::to_f64;
    bf16, 8, bf16::from_f64, bf16::to_f64;
    i32, 31, |value| value as i32, f64::from;
    i64, 53, |value| value as i64, |value| value as f64;
}

fn value(rank: usize, at: usize) -> f64 {
    ((at + rank) % PERIOD + 1) as f64
}

/// Writes this rank's values.
pub(super) fn fill<T: Number>(data: &mut [T], rank: u32) {
    let period: [T; PERIOD] = std::array::from_fn(|at| T::from_small(value(rank as usize, at)));
    for piece in data.chunks_mut(PERIOD) {
        piece.copy_from_slice(&period[..piece.len()]);
    }
}

/// How many values are not what the ranks' patterns give.
pub(super) fn wrong<T: Number>(data: &[T], world: u32, how: Reduce) -> u64 {
    let right: [(f64, f64); PERIOD] = std::array::from_fn(|at| right::<T>(at, world, how));
    let bad = |(value, (right, off)): (&T, &(f64, f64))| {
        let far = (value.wide() - right).abs();
        // a NaN is far from everything
        far.is_nan() || far > *off
    };
    data.chunks(PERIOD).map(|piece| piece.iter().zip(&right).filter(|pair| bad(*pair)).count() as u64).sum()
}

/// The right value at a place, and how far off a rounded one may be.
fn right<T: Number>(at: usize, world: u32, how: Reduce) -> (f64, f64) {
    let values = (0..world as usize).map(|rank| value(rank, at));
    match how {
        Reduce::Min => (values.fold(f64::INFINITY, f64::min), 0.0),
        Reduce::Max => (values.fold(0.0, f64::max), 0.0),
        Reduce::Sum | Reduce::Mean => {
            let sum: f64 = values.sum();
            // Beyond what the kind holds exactly each addition rounds once.
            let exact = sum <= f64::exp2(T::BITS.into());
            let off = if exact { 0.0 } else { sum * f64::from(world) * f64::exp2((-T::BITS).into()) };
            if how == Reduce::Sum {
                return (sum, off);
            }
            let mean = sum / f64::from(world);
            if T::from_small(0.5).wide() == 0.0 {
                return (mean.trunc(), off);
            }
            // the division rounds too, or multiplies by a rounded inverse
            (mean, off / f64::from(world) + mean * f64::exp2((1 - T::BITS).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an allreduce of patterns over `world` ranks should leave, computed value by value in f64.
    fn reduced<T: Number>(len: usize, world: u32, how: Reduce) -> Vec<T> {
        let mut ranks = vec![vec![T::default(); len]; world as usize];
        for (rank, data) in (0..).zip(&mut ranks) {
            fill(data, rank);
        }
        let at = |at: usize| {
            let values = ranks.iter().map(|data| data[at].wide());
            match how {
                Reduce::Sum => values.sum(),
                Reduce::Mean => values.sum::<f64>() / f64::from(world),
                Reduce::Min => values.fold(f64::INFINITY, f64::min),
                Reduce::Max => values.fold(0.0, f64::max),
            }
        };
        (0..len).map(|place| T::from_small(at(place))).collect()
    }

    fn right_ones_pass<T: Number>() {
        for how in Reduce::ALL {
            for world in [1, 2, 3, 8, 64, 1000] {
                let data = reduced::<T>(23, world, how);
                assert_eq!(wrong(&data, world, how), 0, "{} {how} of {world}", T::DTYPE);
            }
        }
    }

    #[test]
    fn what_is_right_passes_in_every_kind() {
        right_ones_pass::<f32>();
        right_ones_pass::<f64>();
        right_ones_pass::<f16>();
        right_ones_pass::<bf16>();
        right_ones_pass::<i32>();
        right_ones_pass::<i64>();
    }

    #[test]
    fn what_is_wrong_is_counted() {
        let mut data = reduced::<f32>(23, 4, Reduce::Sum);
        data[22] += 1.0;
        data[0] = f32::NAN;
        assert_eq!(wrong(&data, 4, Reduce::Sum), 2);
        let mut unreduced = vec![0_i32; 23];
        fill(&mut unreduced, 1);
        assert!(wrong(&unreduced, 4, Reduce::Sum) > 20);
    }
}
