//! Adding many sources into many targets: the loops that read and write every byte.
//!
//! Written once as plain loops, compiled three times: for what every machine has, for AVX2 and for AVX-512. The best that
//! this machine has is picked at the first call. All give the same bits, so that hosts of different age agree: no step
//! depends on the width of a register, nothing is fused, ±0 have an order, and every NaN that comes out is the same one.

#![expect(
    clippy::inline_always,
    reason = "only what is inlined is compiled for the instructions of its caller"
)]

mod format;
mod halves;
mod level;
mod sweep;
#[cfg(test)]
mod tests;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use half::{bf16, f16};

use super::element::{DType, Reduce};
use format::Format;
use level::{Level, Plain};
use sweep::{Maximum, Minimum, Sum};

/// What is done to the reduction at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collective) enum Finish {
    /// Nothing.
    Keep,
    /// Division by this number, of integers rounded toward zero. 0 counts as 1.
    Divide(u32),
}

/// The loops of one [`Level`].
type Kernel = unsafe fn(DType, Reduce, Finish, &[*const u8], &[*mut u8], usize);

/// For each i < `count`: every target's value i becomes the reduction of every source's value i, joined in the order of the
/// sources and then finished. f16 and bf16 are added in f32 and rounded once, at the end. [`Reduce::Mean`] adds; the division
/// is `finish`'s. Without sources nothing is done.
///
/// # Safety
/// All pointers are valid for `count` values, at any alignment (aligned to 64 bytes is fastest). A target may be exactly
/// one of the sources; otherwise it overlaps nothing. Other processes may map the memory, but leave these ranges alone
/// meanwhile.
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
pub(in crate::collective) unsafe fn reduce(
    dtype: DType,
    how: Reduce,
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    static BEST: OnceLock<Kernel> = OnceLock::new();
    let best = BEST.get_or_init(best);
    // SAFETY: the caller's promise; `best` looked which instructions there are.
    unsafe { best(dtype, how, finish, sources, targets, count) }
}

/// `acc` becomes the reduction of `other` and `acc`, in this order, finished. Both are whole values of one number, at any
/// alignment; what is longer in one is left alone.
#[expect(unsafe_code, reason = "hands slices to the loops, which take pointers")]
pub(in crate::collective) fn combine(
    dtype: DType,
    how: Reduce,
    finish: Finish,
    acc: &mut [u8],
    other: &[u8],
) {
    debug_assert_eq!(acc.len(), other.len(), "values to be combined");
    let count = acc.len().min(other.len()) / dtype.size();
    let target = acc.as_mut_ptr();
    // SAFETY: both slices hold `count` values; the target is exactly one of the sources.
    unsafe { reduce(dtype, how, finish, &[other.as_ptr(), target], &[target], count) }
}

/// The f16 values of `from`, as f32.
pub(in crate::collective) fn widen(from: &[u8], to: &mut [u8]) {
    for (half, to) in from.chunks_exact(2).zip(to.chunks_exact_mut(4)) {
        to.copy_from_slice(&halves::f16_to_f32(u16::from_ne_bytes([half[0], half[1]])).to_ne_bytes());
    }
}

/// The f32 values of `from`, rounded to f16.
pub(in crate::collective) fn narrow(from: &[u8], to: &mut [u8]) {
    for (wide, to) in from.chunks_exact(4).zip(to.chunks_exact_mut(2)) {
        let wide = f32::from_ne_bytes([wide[0], wide[1], wide[2], wide[3]]);
        to.copy_from_slice(&halves::f32_to_f16(wide).to_ne_bytes());
    }
}

fn best() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if x86::Avx512::is_here() {
            return at_level::<x86::Avx512>;
        }
        if x86::Avx2::is_here() {
            return at_level::<x86::Avx2>;
        }
    }
    at_level::<Plain>
}

/// [`reduce`] by the instructions of `L`.
///
/// # Safety
/// As of [`reduce`]; and this machine has the instructions.
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
unsafe fn at_level<L: Level>(
    dtype: DType,
    how: Reduce,
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F32 => of_format::<L, f32>(how, finish, sources, targets, count),
            DType::F64 => of_format::<L, f64>(how, finish, sources, targets, count),
            DType::F16 => of_format::<L, f16>(how, finish, sources, targets, count),
            DType::Bf16 => of_format::<L, bf16>(how, finish, sources, targets, count),
            DType::I32 => of_format::<L, i32>(how, finish, sources, targets, count),
            DType::I64 => of_format::<L, i64>(how, finish, sources, targets, count),
        }
    }
}

/// # Safety
/// As of [`at_level`].
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
unsafe fn of_format<L: Level, F: Format>(
    how: Reduce,
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match how {
            Reduce::Sum | Reduce::Mean => L::run::<F, Sum>(finish, sources, targets, count),
            Reduce::Min => L::run::<F, Minimum>(finish, sources, targets, count),
            Reduce::Max => L::run::<F, Maximum>(finish, sources, targets, count),
        }
    }
}
