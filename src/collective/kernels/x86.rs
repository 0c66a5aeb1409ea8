//! AVX2 and AVX-512: the same loops for wider registers, and the conversions that LLVM does not find by itself.
//!
//! No fused multiply-add: it rounds once where the other levels round twice.

use std::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _CMP_UNORD_Q, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT,
    _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_cvtps_ph, _mm256_loadu_si256, _mm256_packus_epi32, _mm256_permute4x64_epi64, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256, _mm512_add_epi32,
    _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_mask_mov_epi32, _mm512_mask_mov_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srli_epi32,
};

use super::Finish;
use super::format::Format;
use super::level::Level;
use super::sweep::{Operation, sweep};
use super::wide::Lanes;

/// F16C has no bit for «no exceptions», which are masked anyway.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
const NEAREST_512: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
/// The NaN that [`super::wide::Wide::canonicalize_nan`] gives; both conversions keep it quiet and positive.
const QUIET: u32 = 0x7fc0_0000;

/// 256-bit registers, and conversions of f16.
pub(super) struct Avx2;

/// 512-bit registers.
pub(super) struct Avx512;

impl Avx2 {
    pub(super) fn is_here() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
    }
}

impl Avx512 {
    pub(super) fn is_here() -> bool {
        Avx2::is_here()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
    }
}

#[target_feature(enable = "avx2,f16c")]
#[expect(unsafe_code, reason = "reads and writes through pointers")]
unsafe fn avx2<F: Format, O: Operation>(
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Eight of the sixteen registers hold results.
        if size_of::<F::Wide>() == 8 {
            sweep::<F, O, Avx2, 2>(finish, sources, targets, count);
        } else {
            sweep::<F, O, Avx2, 4>(finish, sources, targets, count);
        }
    }
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
#[expect(unsafe_code, reason = "reads and writes through pointers")]
unsafe fn avx512<F: Format, O: Operation>(
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { sweep::<F, O, Avx512, 4>(finish, sources, targets, count) }
}

/// Sixteen values as two registers.
#[inline(always)]
#[expect(unsafe_code, reason = "arrays and registers are the same bits")]
fn split(lanes: Lanes<f32>) -> [__m256; 2] {
    // SAFETY: 64 bytes each, any pattern is valid.
    unsafe { std::mem::transmute(lanes) }
}

/// Two registers as sixteen values.
#[inline(always)]
#[expect(unsafe_code, reason = "arrays and registers are the same bits")]
fn joined(halves: [__m256; 2]) -> Lanes<f32> {
    // SAFETY: 64 bytes each, any pattern is valid.
    unsafe { std::mem::transmute(halves) }
}

/// NaNs made one.
#[inline(always)]
#[expect(unsafe_code, reason = "instructions that not every machine has")]
unsafe fn settled(values: __m256) -> __m256 {
    // SAFETY: the caller is compiled for AVX2.
    unsafe {
        let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
        _mm256_blendv_ps(values, _mm256_set1_ps(f32::from_bits(QUIET)), nan)
    }
}

/// Eight bf16 in the low halves of 32-bit lanes.
#[inline(always)]
#[expect(unsafe_code, reason = "instructions that not every machine has")]
unsafe fn rounded(values: __m256) -> __m256i {
    // SAFETY: the caller is compiled for AVX2. The addition can't carry out of a settled NaN, whose low bits are 0.
    unsafe {
        let bits = _mm256_castps_si256(settled(values));
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let half_step = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half_step))
    }
}

#[expect(unsafe_code, reason = "see the trait")]
// SAFETY: instructions of AVX2 and F16C only.
unsafe impl Level for Avx2 {
    unsafe fn run<F: Format, O: Operation>(
        finish: Finish,
        sources: &[*const u8],
        targets: &[*mut u8],
        count: usize,
    ) {
        // SAFETY: the caller's promise, that this machine has the instructions included.
        unsafe { avx2::<F, O>(finish, sources, targets, count) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Lanes<f32> {
        // SAFETY: 2 x 16 bytes, as the caller promised.
        unsafe {
            let low = _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
            joined([low, _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast()))])
        }
    }

    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, lanes: Lanes<f32>) {
        let [low, high] = split(lanes);
        // SAFETY: 2 x 16 bytes, as the caller promised.
        unsafe {
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(settled(low)));
            _mm_storeu_si128(to.add(8).cast(), _mm256_cvtps_ph::<NEAREST>(settled(high)));
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Lanes<f32> {
        // SAFETY: 2 x 16 bytes, as the caller promised.
        unsafe {
            let low = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())));
            let high = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast())));
            joined([_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)])
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, lanes: Lanes<f32>) {
        let [low, high] = split(lanes);
        // SAFETY: 32 bytes, as the caller promised.
        unsafe {
            // Packing works within halves of a register: its quarters come as 0, 2, 1, 3.
            let packed = _mm256_packus_epi32(rounded(low), rounded(high));
            _mm256_storeu_si256(to.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
}

/// Sixteen values as one register.
#[inline(always)]
#[expect(unsafe_code, reason = "arrays and registers are the same bits")]
fn whole(lanes: Lanes<f32>) -> __m512 {
    // SAFETY: 64 bytes each, any pattern is valid.
    unsafe { std::mem::transmute(lanes) }
}

/// One register as sixteen values.
#[inline(always)]
#[expect(unsafe_code, reason = "arrays and registers are the same bits")]
fn apart(register: __m512) -> Lanes<f32> {
    // SAFETY: 64 bytes each, any pattern is valid.
    unsafe { std::mem::transmute(register) }
}

#[expect(unsafe_code, reason = "see the trait")]
// SAFETY: instructions of AVX-512 F, BW, DQ and VL only.
unsafe impl Level for Avx512 {
    unsafe fn run<F: Format, O: Operation>(
        finish: Finish,
        sources: &[*const u8],
        targets: &[*mut u8],
        count: usize,
    ) {
        // SAFETY: the caller's promise, that this machine has the instructions included.
        unsafe { avx512::<F, O>(finish, sources, targets, count) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Lanes<f32> {
        // SAFETY: 32 bytes, as the caller promised.
        unsafe { apart(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, lanes: Lanes<f32>) {
        let values = whole(lanes);
        // SAFETY: 32 bytes, as the caller promised.
        unsafe {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
            let settled = _mm512_mask_mov_ps(values, nan, _mm512_set1_ps(f32::from_bits(QUIET)));
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST_512>(settled));
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Lanes<f32> {
        // SAFETY: 32 bytes, as the caller promised.
        unsafe {
            let wide: __m512i = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            apart(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, lanes: Lanes<f32>) {
        let values = whole(lanes);
        // SAFETY: 32 bytes, as the caller promised. The addition can't carry out of the NaN, whose low bits are 0.
        unsafe {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
            let bits = _mm512_castps_si512(values);
            let bits = _mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(QUIET as i32));
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half_step = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half_step));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(rounded));
        }
    }
}
