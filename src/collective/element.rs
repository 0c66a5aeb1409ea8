//! The kinds of numbers that travel, and what may be done with them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

pub use half::{bf16, f16};

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// 32-bit floating point.
    F32 = 1,
    /// 64-bit floating point.
    F64 = 2,
    /// IEEE half precision; added in f32.
    F16 = 3,
    /// bfloat16; added in f32.
    Bf16 = 4,
    /// 32-bit integer; sums wrap.
    I32 = 5,
    /// 64-bit integer; sums wrap.
    I64 = 6,
}

impl DType {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::F32, Self::F64, Self::F16, Self::Bf16, Self::I32, Self::I64];

    /// Bytes a value.
    pub const fn size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// From its number on the wire.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u8 == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reduce {
    /// Their sum.
    Sum = 1,
    /// Their sum, divided by the number of ranks; of integers rounded toward zero.
    Mean = 2,
    /// The least; NaN if one is NaN.
    Min = 3,
    /// The greatest; NaN if one is NaN.
    Max = 4,
}

impl Reduce {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Mean, Self::Min, Self::Max];

    /// `sum`, `mean`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// From its number on the wire.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| *one as u8 == code)
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that can travel: `f32`, `f64`, [`struct@f16`], [`struct@bf16`], `i32`, `i64`.
pub trait Element: bytemuck::Pod + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed {
    /// Its kind.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}
elements!(f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16, i32 => I32, i64 => I64);

/// Bytes on which other ranks may work during an operation. An address, for no reference to them may be held meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: *mut u8,
    len: usize,
}

impl Span {
    /// Of `bytes`, which must not be used by others as long as the span is.
    pub(super) fn of(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// The first byte.
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// How many.
    pub(super) fn len(self) -> usize {
        self.len
    }

    /// A part of it.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        Self { start: self.start.wrapping_add(range.start), len: range.end - range.start }
    }

    /// The bytes.
    ///
    /// # Safety
    /// What the span was made of is still borrowed, and while the slice is used nothing else uses these bytes: no other
    /// reference, no pointer to the same place, no other rank.
    #[expect(unsafe_code, reason = "an address is what a span is")]
    pub(super) unsafe fn bytes<'a>(self) -> &'a mut [u8] {
        // SAFETY: valid for `len` bytes, by construction; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// A rank's values of any kind, to be worked on in place.
#[derive(Debug)]
pub struct Values<'a> {
    dtype: DType,
    span: Span,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Values<'a> {
    /// A view of `values`.
    pub fn of<T: Element>(values: &'a mut [T]) -> Self {
        Self::raw(T::DTYPE, bytemuck::cast_slice_mut(values))
    }

    /// Values of which only the bytes are known; what does not fill a value at the end is left out.
    pub(super) fn raw(dtype: DType, bytes: &'a mut [u8]) -> Self {
        let whole = bytes.len() / dtype.size() * dtype.size();
        Self { dtype, span: Span::of(&mut bytes[..whole]), borrowed: PhantomData }
    }

    /// Where they are. Not to be used longer than the values are borrowed.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// What they are.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.span.len / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }

    /// Their bytes, in this machine's order.
    #[expect(unsafe_code, reason = "the bytes that were borrowed")]
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: borrowed alone for as long as this value is; no operation is under way.
        unsafe { self.span.bytes() }
    }
}
