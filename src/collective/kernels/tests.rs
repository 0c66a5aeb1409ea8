//! Every level beside a model that takes one value at a time, by the standard library and the crate `half`.

use std::iter::repeat_with;

use proptest::prelude::*;

use super::*;

/// Bytes after each range that must stay as they are.
const GUARD: usize = 70;

fn levels() -> Vec<(&'static str, Kernel)> {
    let mut levels: Vec<(&'static str, Kernel)> = vec![("plain", at_level::<Plain>), ("best", reduce)];
    #[cfg(target_arch = "x86_64")]
    {
        if x86::Avx2::is_here() {
            levels.push(("AVX2", at_level::<x86::Avx2>));
        }
        if x86::Avx512::is_here() {
            levels.push(("AVX-512", at_level::<x86::Avx512>));
        }
    }
    levels
}

macro_rules! floating_model {
    ($name:ident, $type:ident, $nan:expr) => {
        fn $name(how: Reduce, finish: Finish, values: &[$type]) -> $type {
            let join = |a: $type, b: $type| match how {
                Reduce::Sum | Reduce::Mean => a + b,
                _ if a.is_nan() || b.is_nan() => $type::NAN,
                Reduce::Min => {
                    if a.total_cmp(&b).is_le() {
                        a
                    } else {
                        b
                    }
                }
                Reduce::Max => {
                    if a.total_cmp(&b).is_le() {
                        b
                    } else {
                        a
                    }
                }
            };
            let value = values.iter().copied().reduce(join).unwrap();
            let value = match finish {
                Finish::Keep => value,
                Finish::Divide(by) => value / by.max(1) as $type,
            };
            if value.is_nan() { $type::from_bits($nan) } else { value }
        }
    };
}
floating_model!(model_f32, f32, 0x7fc0_0000);
floating_model!(model_f64, f64, 0x7ff8_0000_0000_0000);

macro_rules! integer_model {
    ($name:ident, $type:ident) => {
        fn $name(how: Reduce, finish: Finish, values: &[$type]) -> $type {
            let join = |a: $type, b: $type| match how {
                Reduce::Sum | Reduce::Mean => a.wrapping_add(b),
                Reduce::Min => a.min(b),
                Reduce::Max => a.max(b),
            };
            let value = values.iter().copied().reduce(join).unwrap();
            match finish {
                Finish::Keep => value,
                Finish::Divide(by) => (i128::from(value) / i128::from(by.max(1))) as $type,
            }
        }
    };
}
integer_model!(model_i32, i32);
integer_model!(model_i64, i64);

/// The bytes of one result, from the bytes of one value of each source.
fn model(dtype: DType, how: Reduce, finish: Finish, values: &[&[u8]]) -> Vec<u8> {
    macro_rules! of {
        ($type:ident, $model:ident) => {{
            let values: Vec<$type> =
                values.iter().map(|value| $type::from_ne_bytes((*value).try_into().unwrap())).collect();
            $model(how, finish, &values).to_ne_bytes().to_vec()
        }};
        ($type:ident) => {{
            let values: Vec<f32> = values
                .iter()
                .map(|value| $type::from_ne_bytes((*value).try_into().unwrap()).to_f32())
                .collect();
            $type::from_f32(model_f32(how, finish, &values)).to_ne_bytes().to_vec()
        }};
    }
    match dtype {
        DType::F32 => of!(f32, model_f32),
        DType::F64 => of!(f64, model_f64),
        DType::I32 => of!(i32, model_i32),
        DType::I64 => of!(i64, model_i64),
        DType::F16 => of!(f16),
        DType::Bf16 => of!(bf16),
    }
}

/// One reduction: which ranges there are, and where in memory.
#[derive(Debug, Clone)]
struct Case {
    dtype: DType,
    how: Reduce,
    finish: Finish,
    count: usize,
    sources: usize,
    /// Of each target: whether it is the source of its number. Those without such a source are not.
    in_place: Vec<bool>,
    /// Bytes by which ranges are off their alignment: range i by `i x skew`.
    skew: usize,
    seed: u64,
}

prop_compose! {
    fn cases()(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        how in prop::sample::select(Reduce::ALL.to_vec()),
        finish in prop_oneof![
            Just(Finish::Keep),
            (0_u32..20).prop_map(Finish::Divide),
            any::<u32>().prop_map(Finish::Divide),
        ],
        count in 0_usize..200,
        sources in 1_usize..=9,
        in_place in prop::collection::vec(any::<bool>(), 1..=9),
        skew in 0_usize..9,
        seed: u64,
    ) -> Case {
        Case { dtype, how, finish, count, sources, in_place, skew, seed }
    }
}

/// Bytes of values of which many are special: zeros, the least, infinities, NaNs of both sorts, what lies next to them.
fn bytes(state: &mut u64, dtype: DType, count: usize) -> Vec<u8> {
    let mut next = move || {
        // SplitMix64.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (width, mantissa) = match dtype {
        DType::F16 => (16, 10),
        DType::Bf16 => (16, 7),
        DType::F32 | DType::I32 => (32, 23),
        DType::F64 | DType::I64 => (64, 52),
    };
    let infinity = (u64::MAX >> (65 - width) >> mantissa) << mantissa;
    let one = repeat_with(|| {
        let random = next();
        let sign = (random & 1) << (width - 1);
        let value = match next() % 12 {
            0 => 0,
            1 => 1,
            2 => infinity,
            3 => infinity - 1,
            4 => infinity | 1,
            5 => infinity | 1 << (mantissa - 1) | random & 6,
            6 => random % (1 << mantissa),
            // About 1, where sums round.
            7..10 => (infinity >> 1 & infinity) ^ (random >> 8) % (4 << mantissa),
            _ => random,
        };
        (value ^ sign).to_le_bytes()
    });
    let size = width / 8;
    one.take(count)
        .flat_map(|value| {
            let mut value = value[..size].to_vec();
            if cfg!(target_endian = "big") {
                value.reverse();
            }
            value
        })
        .collect()
}

/// Values somewhere in memory, with guards about them.
#[derive(Clone)]
struct Range {
    memory: Vec<u8>,
    skew: usize,
}

impl Range {
    fn new(skew: usize, values: &[u8]) -> Self {
        let mut memory = vec![0xa5; skew];
        memory.extend(values);
        memory.resize(memory.len() + GUARD, 0xa5);
        Self { memory, skew }
    }

    fn at(&mut self) -> *mut u8 {
        self.memory[self.skew..].as_mut_ptr()
    }
}

#[expect(unsafe_code, reason = "calls what takes pointers")]
fn check(case: &Case) {
    let Case { dtype, how, finish, count, sources, .. } = *case;
    let mut state = case.seed;
    let values: Vec<Vec<u8>> = (0..sources).map(|_| bytes(&mut state, dtype, count)).collect();
    let size = dtype.size();
    let right: Vec<u8> = (0..count)
        .flat_map(|at| {
            let column: Vec<&[u8]> = values.iter().map(|all| &all[at * size..(at + 1) * size]).collect();
            model(dtype, how, finish, &column)
        })
        .collect();
    let empty = vec![0x11; count * size];
    for (level, kernel) in levels() {
        let mut from: Vec<Range> =
            values.iter().enumerate().map(|(at, values)| Range::new(at * case.skew, values)).collect();
        let mut apart: Vec<Range> =
            (0..case.in_place.len()).map(|at| Range::new((at + 3) * case.skew, &empty)).collect();
        let starts: Vec<*mut u8> = from.iter_mut().map(Range::at).collect();
        let targets: Vec<*mut u8> = (case.in_place.iter().zip(&mut apart).enumerate())
            .map(|(at, (in_place, apart))| if *in_place && at < sources { starts[at] } else { apart.at() })
            .collect();
        let reading: Vec<*const u8> = starts.iter().map(|start| start.cast_const()).collect();
        // SAFETY: each range holds `count` values; a target is one of the sources or a range of its own.
        unsafe { kernel(dtype, how, finish, &reading, &targets, count) };
        for (at, range) in from.iter().enumerate() {
            let changed = case.in_place.get(at).copied().unwrap_or(false);
            let wanted = Range::new(range.skew, if changed { &right } else { &values[at] });
            assert!(range.memory == wanted.memory, "{level}: source {at} of {case:?}");
        }
        for (at, range) in apart.iter().enumerate() {
            let written = !(case.in_place[at] && at < sources);
            let wanted = Range::new(range.skew, if written { &right } else { &empty });
            assert!(range.memory == wanted.memory, "{level}: target {at} of {case:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_level_gives_the_same_bits(case in cases()) {
        check(&case);
    }
}

#[test]
fn every_kind_and_way_gives_the_same_bits_at_every_number_of_sources() {
    for dtype in DType::ALL {
        for how in Reduce::ALL {
            for finish in [Finish::Keep, Finish::Divide(3), Finish::Divide(4)] {
                for sources in 1..=9 {
                    let in_place = vec![true; sources];
                    check(&Case { dtype, how, finish, count: 83, sources, in_place, skew: 0, seed: 7 });
                }
            }
        }
    }
}

#[test]
fn what_came_over_the_net_is_combined_in_place() {
    let sum = |acc: &mut [f32], other: &[u8]| {
        combine(DType::F32, Reduce::Mean, Finish::Divide(2), bytemuck::cast_slice_mut(acc), other);
    };
    let mut acc: Vec<f32> = (0_u8..37).map(f32::from).collect();
    let mut packet = vec![0_u8; 1];
    packet.extend(acc.iter().flat_map(|value| (value + 2.0).to_ne_bytes()));
    sum(&mut acc, &packet[1..]);
    assert!(acc.iter().zip(0_u8..).all(|(value, at)| *value == f32::from(at) + 1.0), "{acc:?}");
}

#[test]
fn integers_are_divided_toward_zero_at_their_limits() {
    let limits = [i32::MIN, i32::MIN + 1, -7, -1, 0, 1, 7, i32::MAX - 1, i32::MAX];
    let by = [0, 1, 2, 3, 7, 1 << 16, i32::MAX as u32, 1 << 31, u32::MAX];
    for by in by {
        for (value, wide) in limits.map(|value| (value, i64::from(value) << 32 | 5)) {
            let mut values = [value; 21];
            let zeros = [0_u8; 21 * 8];
            combine(
                DType::I32,
                Reduce::Sum,
                Finish::Divide(by),
                bytemuck::cast_slice_mut(&mut values),
                &zeros[..84],
            );
            assert_eq!(values, [(i64::from(value) / i64::from(by.max(1))) as i32; 21], "{value} / {by}");
            let mut values = [wide; 21];
            combine(
                DType::I64,
                Reduce::Sum,
                Finish::Divide(by),
                bytemuck::cast_slice_mut(&mut values),
                &zeros,
            );
            assert_eq!(values, [wide / i64::from(by.max(1)); 21], "{wide} / {by}");
        }
    }
}

#[test]
fn nothing_is_done_without_sources_or_targets_or_values() {
    let mut value = 3.0_f32;
    for (level, kernel) in levels() {
        let at = std::ptr::from_mut(&mut value).cast::<u8>();
        #[expect(unsafe_code, reason = "calls what takes pointers")]
        // SAFETY: one value at most is touched.
        unsafe {
            kernel(DType::F32, Reduce::Sum, Finish::Keep, &[], &[at], 1);
            kernel(DType::F32, Reduce::Sum, Finish::Keep, &[at.cast_const(); 2], &[], 1);
            kernel(DType::F32, Reduce::Sum, Finish::Keep, &[at.cast_const(); 2], &[at], 0);
        }
        assert_eq!(value, 3.0, "{level}");
    }
}
