//! One case of the matrix: an operation on made-up values, checked by each rank on its own.

use std::ops::Range;
use std::sync::OnceLock;

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
    /// The numbers of which each rank's values are a part.
    fn table() -> &'static [Self];
    /// Whether `got` is right for these values of all ranks.
    fn is_right(got: Self, all: &[Self], how: Reduce) -> bool;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn made(mixed: u32) -> Self {
                (mixed as i32 >> 6) as $type
            }
            fn table() -> &'static [Self] {
                static TABLE: OnceLock<Vec<$type>> = OnceLock::new();
                TABLE.get_or_init(numbers)
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
            fn table() -> &'static [Self] {
                static TABLE: OnceLock<Vec<$type>> = OnceLock::new();
                TABLE.get_or_init(numbers)
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

/// How many numbers of a kind there are: a prime, so that no piece of a transfer is as long or a multiple of it.
const NUMBERS: usize = 65_521;

/// Made once: there are hundreds of millions of values, each of which would take as long as what is done with it.
fn numbers<T: Number>() -> Vec<T> {
    let number = |at: usize| {
        let mixed = (at as u32 ^ 0x9e37_79b1).wrapping_mul(2_654_435_761);
        let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
        T::made(mixed ^ mixed >> 15)
    };
    (0..NUMBERS).map(number).collect()
}

/// Where in the numbers the values of a rank begin: elsewhere for each rank and length.
fn begin(case: &Case, rank: u32) -> usize {
    rank as usize * 7_919 + case.len * 131
}

fn value<T: Number>(case: &Case, rank: u32, index: usize) -> T {
    T::table()[(begin(case, rank) + index) % NUMBERS]
}

/// So many values of a rank, from this place on.
fn values<T: Number>(case: &Case, rank: u32, from: usize, count: usize) -> Vec<T> {
    let table = T::table();
    let mut values = Vec::with_capacity(count);
    let mut at = (begin(case, rank) + from) % NUMBERS;
    while values.len() < count {
        let until = NUMBERS.min(at + count - values.len());
        values.extend_from_slice(&table[at..until]);
        at = 0;
    }
    values
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
    data.copy_from_slice(&values(case, rank, 0, case.len));
    let context = |at: usize| format!("rank {rank} of {world} at {at}: {case:?}");
    // The whole of each result is looked at by one rank; that the others have the same bits shows in the digests. Of
    // long ones a sample is, and both ends.
    let looks = case.len % world as usize == rank as usize;
    let step = if case.len > 4000 { 97 } else { 1 };
    let check = |data: &[T], range: Range<usize>| {
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
                assert_same(data, case, from, chunk(from as usize, world as usize, case.len), context);
            }
        }
        What::Broadcast(root) => {
            group.broadcast(root, data).unwrap();
            if looks {
                assert_same(data, case, root, 0..case.len, context);
            }
        }
        What::Barrier => {
            group.barrier().unwrap();
        }
    }
    Some(digest(bytemuck::cast_slice(data)))
}

/// Asserts that the values of a rank came to these places, bit for bit. Memory is compared with memory: there are many of them.
fn assert_same<T: Number>(
    data: &[T],
    case: &Case,
    from: u32,
    places: Range<usize>,
    context: impl Fn(usize) -> String,
) {
    let (start, sent) = (places.start, values::<T>(case, from, places.start, places.len()));
    let got = &data[places];
    if bytemuck::cast_slice::<T, u8>(got) != bytemuck::cast_slice::<T, u8>(&sent) {
        let at = got.iter().zip(&sent).position(|(got, sent)| got != sent).unwrap_or_default();
        panic!("{}", context(start + at));
    }
}

/// In library code, which is optimised: there are gigabytes of them.
fn digest(bytes: &[u8]) -> u64 {
    let digest = hvtui::sha256::of_bytes(bytes).to_string();
    u64::from_str_radix(&digest[..16], 16).expect("hexadecimal digits")
}
