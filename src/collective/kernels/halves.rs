//! Sixteen-bit floating point by operations on bits alone, without branches, so that any machine does many at once.
//! Equal to the crate `half` bit by bit, but that every NaN becomes the same one.

/// f16 to f32: exact.
#[inline(always)]
pub(super) fn f16_to_f32(half: u16) -> f32 {
    let half = u32::from(half);
    let (sign, rest) = ((half & 0x8000) << 16, half & 0x7fff);
    // The exponent's bias is 15 in one and 127 in the other; of infinity and NaN it is all ones in both.
    let shifted = rest << 13;
    let normal = shifted + ((127 - 15) << 23);
    let special = shifted | 0x7f80_0000;
    // Below the least normal value the bits count steps of 2^-24.
    let small = (rest as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let magnitude = if rest >= 0x7c00 { special } else { normal };
    let magnitude = if rest < 0x0400 { small } else { magnitude };
    f32::from_bits(magnitude | sign)
}

/// f32 to f16: to the nearest, ties to even.
#[inline(always)]
pub(super) fn f32_to_f16(value: f32) -> u16 {
    /// Adding this pushes what f16 can't hold out of the mantissa, rounded by the addition itself.
    const PUSH: u32 = (127 - 15 + 23 - 10 + 1) << 23;
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let small = (f32::from_bits(rest) + f32::from_bits(PUSH)).to_bits().wrapping_sub(PUSH);
    let odd = (rest >> 13) & 1;
    let normal = rest.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let magnitude = if rest < (127 - 14) << 23 { small } else { normal };
    // From 2^16 on it is infinity; what rounds up to 2^16 has become infinity by itself.
    let magnitude = if rest >= (127 + 16) << 23 { 0x7c00 } else { magnitude };
    if rest > 0x7f80_0000 { 0x7e00 } else { (magnitude | sign) as u16 }
}

/// bf16 to f32: exact.
#[inline(always)]
pub(super) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// f32 to bf16: to the nearest, ties to even.
#[inline(always)]
pub(super) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0 } else { rounded as u16 }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_half_becomes_the_f32_that_it_is_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "f16 {bits:#x}");
            assert_eq!(f32_to_f16(ours), if ours.is_nan() { 0x7e00 } else { bits });
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "bf16 {bits:#x}");
            assert_eq!(f32_to_bf16(ours), if ours.is_nan() { 0x7fc0 } else { bits });
        }
    }

    /// All that lies within a step of a value that can be held or of the middle between two, and a sample of the others.
    fn values() -> impl Iterator<Item = f32> {
        let around = (0..=u16::MAX).flat_map(|high| {
            let at = u32::from(high) << 16;
            [0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff]
                .into_iter()
                .map(move |low| at | low)
        });
        around.chain((0..u32::MAX).step_by(9973)).map(f32::from_bits)
    }

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        for value in values() {
            if value.is_nan() {
                assert_eq!((f32_to_f16(value), f32_to_bf16(value)), (0x7e00, 0x7fc0));
            } else {
                assert_eq!(f32_to_f16(value), f16::from_f32(value).to_bits(), "{value:e} as f16");
                assert_eq!(f32_to_bf16(value), bf16::from_f32(value).to_bits(), "{value:e} as bf16");
            }
        }
    }
}
