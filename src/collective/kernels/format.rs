//! How numbers lie in memory, and how they get into registers and back.

use half::{bf16, f16};

use super::halves::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::level::Level;
use super::wide::{Lanes, Wide};

/// A kind of number in memory.
///
/// # Safety
/// No method reads or writes more than the bytes of one value, or of sixteen.
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
pub(super) unsafe trait Format {
    /// As what it is added.
    type Wide: Wide;

    /// Bytes a value.
    const SIZE: usize;

    /// Sixteen values.
    ///
    /// # Safety
    /// `from` is valid for sixteen values, at any alignment; this machine has `L`'s instructions.
    unsafe fn load<L: Level>(from: *const u8) -> Lanes<Self::Wide>;

    /// Sixteen results.
    ///
    /// # Safety
    /// As of [`Self::load`], for writing.
    unsafe fn store<L: Level>(to: *mut u8, lanes: Lanes<Self::Wide>);

    /// One value.
    ///
    /// # Safety
    /// `from` is valid for one value, at any alignment.
    unsafe fn load_one(from: *const u8) -> Self::Wide;

    /// One result.
    ///
    /// # Safety
    /// As of [`Self::load_one`], for writing.
    unsafe fn store_one(to: *mut u8, value: Self::Wide);
}

macro_rules! as_it_is {
    ($($type:ident),*) => {$(
        #[expect(unsafe_code, reason = "see the trait")]
        // SAFETY: each method touches what its type says.
        unsafe impl Format for $type {
            type Wide = $type;
            const SIZE: usize = size_of::<$type>();

            #[inline(always)]
            unsafe fn load<L: Level>(from: *const u8) -> Lanes<$type> {
                // SAFETY: the caller's promise; every pattern of bits is a number.
                unsafe { from.cast::<Lanes<$type>>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store<L: Level>(to: *mut u8, lanes: Lanes<$type>) {
                let mut at = 0;
                let mut out = lanes;
                while at < out.len() {
                    out[at] = lanes[at].canonicalize_nan();
                    at += 1;
                }
                // SAFETY: the caller's promise.
                unsafe { to.cast::<Lanes<$type>>().write_unaligned(out) }
            }

            #[inline(always)]
            unsafe fn load_one(from: *const u8) -> $type {
                // SAFETY: the caller's promise.
                unsafe { from.cast::<$type>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store_one(to: *mut u8, value: $type) {
                // SAFETY: the caller's promise.
                unsafe { to.cast::<$type>().write_unaligned(value.canonicalize_nan()) }
            }
        }
    )*};
}
as_it_is!(f32, f64, i32, i64);

macro_rules! as_f32 {
    ($type:ident, $load:ident, $store:ident, $widen:ident, $narrow:ident) => {
        #[expect(unsafe_code, reason = "see the trait")]
        // SAFETY: each method touches what its type says.
        unsafe impl Format for $type {
            type Wide = f32;
            const SIZE: usize = 2;

            #[inline(always)]
            unsafe fn load<L: Level>(from: *const u8) -> Lanes<f32> {
                // SAFETY: the caller's promise.
                unsafe { L::$load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store<L: Level>(to: *mut u8, lanes: Lanes<f32>) {
                // SAFETY: the caller's promise.
                unsafe { L::$store(to.cast(), lanes) }
            }

            #[inline(always)]
            unsafe fn load_one(from: *const u8) -> f32 {
                // SAFETY: the caller's promise.
                $widen(unsafe { from.cast::<u16>().read_unaligned() })
            }

            #[inline(always)]
            unsafe fn store_one(to: *mut u8, value: f32) {
                // SAFETY: the caller's promise.
                unsafe { to.cast::<u16>().write_unaligned($narrow(value)) }
            }
        }
    };
}
as_f32!(f16, load_f16, store_f16, f16_to_f32, f32_to_f16);
as_f32!(bf16, load_bf16, store_bf16, bf16_to_f32, f32_to_bf16);
