//! The instructions a machine may have, and the loops compiled for each.

use super::Finish;
use super::format::Format;
use super::halves::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::sweep::{Operation, sweep};
use super::wide::{LANES, Lanes, each};

/// A set of instructions.
///
/// # Safety
/// Every method may use them; loads and stores touch sixteen values.
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
pub(super) unsafe trait Level {
    /// [`sweep`], compiled for these instructions.
    ///
    /// # Safety
    /// As of [`sweep`]; and this machine has them.
    unsafe fn run<F: Format, O: Operation>(
        finish: Finish,
        sources: &[*const u8],
        targets: &[*mut u8],
        count: usize,
    );

    /// Sixteen f16.
    ///
    /// # Safety
    /// `from` is valid for sixteen values, at any alignment; this machine has the instructions.
    unsafe fn load_f16(from: *const u16) -> Lanes<f32>;

    /// Sixteen f16, rounded to nearest, ties to even; a NaN is stored as 0x7e00.
    ///
    /// # Safety
    /// As of [`Self::load_f16`], for writing.
    unsafe fn store_f16(to: *mut u16, lanes: Lanes<f32>);

    /// Sixteen bf16.
    ///
    /// # Safety
    /// As of [`Self::load_f16`].
    unsafe fn load_bf16(from: *const u16) -> Lanes<f32>;

    /// Sixteen bf16, rounded to nearest, ties to even; a NaN is stored as 0x7fc0.
    ///
    /// # Safety
    /// As of [`Self::store_f16`].
    unsafe fn store_bf16(to: *mut u16, lanes: Lanes<f32>);
}

/// What every machine of this architecture has.
pub(super) struct Plain;

#[expect(unsafe_code, reason = "see the trait")]
// SAFETY: no instruction beyond the architecture's own.
unsafe impl Level for Plain {
    unsafe fn run<F: Format, O: Operation>(
        finish: Finish,
        sources: &[*const u8],
        targets: &[*mut u8],
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { sweep::<F, O, Self, 1>(finish, sources, targets, count) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Lanes<f32> {
        // SAFETY: the caller's promise.
        each(unsafe { from.cast::<[u16; LANES]>().read_unaligned() }, 0.0, f16_to_f32)
    }

    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, lanes: Lanes<f32>) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(each(lanes, 0, f32_to_f16)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Lanes<f32> {
        // SAFETY: the caller's promise.
        each(unsafe { from.cast::<[u16; LANES]>().read_unaligned() }, 0.0, bf16_to_f32)
    }

    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, lanes: Lanes<f32>) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(each(lanes, 0, f32_to_bf16)) }
    }
}
