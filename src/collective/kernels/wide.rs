//! The numbers that are added and compared, sixteen at a time.
//!
//! Plain loops over arrays: inlined into a function that may use wide registers, LLVM turns each into one or two
//! instructions. Every step is one IEEE operation or one on bits, so that the width changes no bit of a result.

/// Values worked on together: one 512-bit register of f32.
pub(super) const LANES: usize = 16;

/// Sixteen values.
pub(super) type Lanes<W> = [W; LANES];

/// A number as it is added.
pub(super) trait Wide: Copy {
    /// What a division needs, made once a call.
    type Divisor: Copy;

    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;

    /// The lesser; some NaN if one is NaN; −0 is less than +0.
    fn minimum(self, other: Self) -> Self;

    /// Turns the order round, and is its own inverse: the maximum is the minimum in the reversed order.
    fn reverse_order(self) -> Self;

    /// The result as it is given out: of all NaNs, one. Which of two NaNs an addition keeps is up to the compiler.
    fn canonicalize_nan(self) -> Self;

    /// For division by `by`; 0 counts as 1.
    fn divisor(by: u32) -> Self::Divisor;

    /// Each value divided; integers rounded toward zero.
    fn divide(lanes: Lanes<Self>, by: Self::Divisor) -> Lanes<Self>;
}

/// For each lane; a loop that LLVM unrolls and then packs.
#[inline(always)]
pub(super) fn each<A: Copy, B: Copy>(lanes: Lanes<A>, fill: B, of: impl Fn(A) -> B) -> Lanes<B> {
    let mut out = [fill; LANES];
    let mut at = 0;
    while at < LANES {
        out[at] = of(lanes[at]);
        at += 1;
    }
    out
}

/// For each pair of lanes.
#[inline(always)]
pub(super) fn pairs<W: Copy>(left: Lanes<W>, right: Lanes<W>, of: impl Fn(W, W) -> W) -> Lanes<W> {
    let mut out = left;
    let mut at = 0;
    while at < LANES {
        out[at] = of(left[at], right[at]);
        at += 1;
    }
    out
}

/// Division of floating-point values. By a power of two it is a multiplication, which is exact and several times as fast.
#[derive(Clone, Copy)]
pub(super) enum Ratio<W> {
    Times(W),
    Over(W),
}

macro_rules! floating {
    ($type:ident, $bits:ident, $from:expr) => {
        impl Wide for $type {
            type Divisor = Ratio<$type>;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            // Two comparisons that differ only for zeros and NaNs, where each gives the other operand: the union of their
            // bits has the sign of −0, and stays a NaN. Both are one instruction (`minps`).
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let one = if self < other { self } else { other };
                let two = if other < self { other } else { self };
                Self::from_bits(one.to_bits() | two.to_bits())
            }

            #[inline(always)]
            fn reverse_order(self) -> Self {
                -self
            }

            #[inline(always)]
            fn canonicalize_nan(self) -> Self {
                const QUIET: $bits = $type::INFINITY.to_bits() | 1 << ($type::MANTISSA_DIGITS - 2);
                Self::from_bits(if self.is_nan() { QUIET } else { self.to_bits() })
            }

            #[inline(always)]
            fn divisor(by: u32) -> Ratio<Self> {
                let number: Self = $from(by.max(1));
                if by.max(1).is_power_of_two() { Ratio::Times(1.0 / number) } else { Ratio::Over(number) }
            }

            #[inline(always)]
            fn divide(lanes: Lanes<Self>, by: Ratio<Self>) -> Lanes<Self> {
                match by {
                    Ratio::Times(inverse) => each(lanes, 0.0, |value| value * inverse),
                    Ratio::Over(by) => each(lanes, 0.0, |value| value / by),
                }
            }
        }
    };
}
floating!(f32, u32, |by: u32| by as f32);
floating!(f64, u64, f64::from);

impl Wide for i32 {
    type Divisor = f64;

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        self.min(other)
    }

    #[inline(always)]
    fn reverse_order(self) -> Self {
        !self
    }

    #[inline(always)]
    fn canonicalize_nan(self) -> Self {
        self
    }

    #[inline(always)]
    fn divisor(by: u32) -> f64 {
        f64::from(by.max(1))
    }

    // There is no instruction that divides many integers. In f64 a quotient of 32-bit integers is off by less than
    // 2^-22 / by, and one that is no integer is at least 1 / by away from the next: truncating gives the exact answer.
    #[inline(always)]
    fn divide(lanes: Lanes<Self>, by: f64) -> Lanes<Self> {
        each(lanes, 0, |value| (f64::from(value) / by) as Self)
    }
}

impl Wide for i64 {
    type Divisor = Self;

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        self.min(other)
    }

    #[inline(always)]
    fn reverse_order(self) -> Self {
        !self
    }

    #[inline(always)]
    fn canonicalize_nan(self) -> Self {
        self
    }

    #[inline(always)]
    fn divisor(by: u32) -> Self {
        Self::from(by.max(1))
    }

    #[inline(always)]
    fn divide(lanes: Lanes<Self>, by: Self) -> Lanes<Self> {
        if by & (by - 1) == 0 {
            // A shift rounds down; adding by − 1 to what is negative first makes that «toward zero».
            let shift = by.trailing_zeros();
            each(lanes, 0, |value| value.wrapping_add((value >> 63) & (by - 1)) >> shift)
        } else {
            each(lanes, 0, |value| value / by)
        }
    }
}
