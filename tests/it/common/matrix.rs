//! One case of the matrix: an operation on made-up values, checked by each rank on its own.

use hvtui::collective::{Buffer, Collective, Communicator, DType, Element, Reduce, bf16, chunk, f16};

/// Which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Allreduce,
    ReduceScatter,
    Allgather,
    Broadcast(u32),
    Barrier,
}

/// Where the values of a rank lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lies {
    /// In memory of its own.
    Private,
    /// In memory of the group.
    Registered,
    /// One or the other, by rank.
    Mixed,
    /// In a part of a buffer of the group that begins at an odd place.
    Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) what: What,
    pub(crate) dtype: DType,
    pub(crate) how: Reduce,
    pub(crate) len: usize,
    pub(crate) lies: Lies,
}

/// A kind of number of which the right result is known.
trait Number: Element {
    fn made(mixed: u32) -> Self;
    /// Whether `got` is right for these values of all ranks.
    fn is_right(got: Self, all: &[Self], how: Reduce) -> bool;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn made(mixed: u32) -> Self {
                (mixed as i32 >> 6) as $type
            }
            fn is_right(got: Self, all: &[Self], how: Reduce) -> bool {
                let sum: i64 = all.iter().map(|one| i64::from(*one)).sum();
                i64::from(got) == match how {
                    Reduce::Sum => sum,
                    Reduce::Mean => sum / all.len() as i64,
                    Reduce::Min => all.iter().copied().min().map(i64::from).unwrap(),
                    Reduce::Max => all.iter().copied().max().map(i64::from).unwrap(),
                }
            }
        }
    )*};
}
integers!(i32, i64);

macro_rules! floats {
    ($($type:ty, $make:expr, $wide:expr, $epsilon:expr;)*) => {$(
        impl Number for $type {
            fn made(mixed: u32) -> Self {
                $make(f64::from(mixed) / f64::from(u32::MAX) - 0.3)
            }
            fn is_right(got: Self, all: &[Self], how: Reduce) -> bool {
                let wide = all.iter().map(|one| $wide(*one));
                let exact: f64 = match how {
                    Reduce::Sum => wide.sum(),
                    Reduce::Mean => wide.sum::<f64>() / all.len() as f64,
                    Reduce::Min => wide.fold(f64::INFINITY, f64::min),
                    Reduce::Max => wide.fold(f64::NEG_INFINITY, f64::max),
                };
                let got: f64 = $wide(got);
                match how {
                    Reduce::Min | Reduce::Max => got.to_bits() == exact.to_bits(),
                    // One rounding an addition, of sums that stay below the number of ranks.
                    _ => (got - exact).abs() <= $epsilon * (all.len() * all.len()) as f64,
                }
            }
        }
    )*};
}
floats! {
    f32, |wide: f64| wide as f32, f64::from, 6e-8;
    f64, |wide: f64| wide, |one: f64| one, 1.2e-16;
    f16, f16::from_f64, |one: f16| one.to_f64(), 4.9e-4;
    bf16, bf16::from_f64, |one: bf16| one.to_f64(), 3.91e-3;
}

/// Runs one case; a digest of what all ranks must have alike, `None` where they have not.
pub(crate) fn run(group: &mut dyn Communicator, case: &Case) -> Option<u64> {
    match case.dtype {
        DType::F32 => typed::<f32>(group, case),
        DType::F64 => typed::<f64>(group, case),
        DType::F16 => typed::<f16>(group, case),
        DType::Bf16 => typed::<bf16>(group, case),
        DType::I32 => typed::<i32>(group, case),
        DType::I64 => typed::<i64>(group, case),
    }
}

fn value<T: Number>(case: &Case, rank: u32, index: usize) -> T {
    let mixed = (index as u32 ^ (case.len as u32) << 7).wrapping_mul(2_654_435_761);
    let mixed = (mixed ^ rank.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
    T::made(mixed ^ mixed >> 15)
}

enum Memory<T> {
    Private(Vec<T>),
    Registered(Buffer<T>),
}

fn memory<T: Number>(group: &mut dyn Communicator, case: &Case) -> Memory<T> {
    let registered = match case.lies {
        Lies::Private => false,
        Lies::Registered | Lies::Part => true,
        Lies::Mixed => group.rank() % 2 == 1,
    };
    if !registered {
        return Memory::Private(vec![T::default(); case.len]);
    }
    if case.lies == Lies::Registered {
        return Memory::Registered(group.buffer(case.len).unwrap());
    }
    let whole = group.buffer::<T>(case.len + 8).unwrap();
    let (_, rest) = whole.split_at(3).unwrap();
    Memory::Registered(rest.split_at(case.len).unwrap().0)
}

fn typed<T: Number>(group: &mut dyn Communicator, case: &Case) -> Option<u64> {
    let mut memory = memory::<T>(group, case);
    let data: &mut [T] = match &mut memory {
        Memory::Private(data) => data,
        Memory::Registered(data) => data,
    };
    assert_eq!(data.len(), case.len);
    let (rank, world) = (group.rank(), group.world());
    let own: Vec<T> = (0..case.len).map(|at| value(case, rank, at)).collect();
    data.copy_from_slice(&own);
    let context = |at: usize| format!("rank {rank} of {world} at {at}: {case:?}");
    // The whole of each result is looked at by one rank; that the others have the same bits shows in the digests. Of
    // long ones a sample is, and both ends.
    let looks = case.len % world as usize == rank as usize;
    let step = if case.len > 4000 { 97 } else { 1 };
    let check = |data: &[T], range: std::ops::Range<usize>| {
        let mut all = Vec::with_capacity(world as usize);
        for at in range.clone().step_by(step).chain(range.clone().last()) {
            all.clear();
            all.extend((0..world).map(|rank| value::<T>(case, rank, at)));
            assert!(T::is_right(data[at], &all, case.how), "{} is {:?} of {all:?}", context(at), data[at]);
        }
    };
    match case.what {
        What::Allreduce => {
            group.allreduce(data, case.how).unwrap();
            if looks {
                check(data, 0..case.len);
            }
        }
        What::ReduceScatter => {
            let (own, _) = group.reduce_scatter(data, case.how).unwrap();
            assert_eq!(own, chunk(rank as usize, world as usize, case.len));
            check(data, own);
            return None;
        }
        What::Allgather => {
            group.allgather(data).unwrap();
            for from in (0..world).filter(|_| looks) {
                for at in chunk(from as usize, world as usize, case.len) {
                    assert!(data[at] == value::<T>(case, from, at), "{}", context(at));
                }
            }
        }
        What::Broadcast(root) => {
            group.broadcast(root, data).unwrap();
            for (at, got) in data.iter().enumerate().filter(|_| looks) {
                assert!(*got == value::<T>(case, root, at), "{}", context(at));
            }
        }
        What::Barrier => {
            group.barrier().unwrap();
        }
    }
    Some(digest(bytemuck::cast_slice(data)))
}

/// In library code, which is optimised: there are gigabytes of them.
fn digest(bytes: &[u8]) -> u64 {
    let digest = hvtui::sha256::of_bytes(bytes).to_string();
    u64::from_str_radix(&digest[..16], 16).expect("hexadecimal digits")
}
