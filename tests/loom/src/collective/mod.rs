//! What `shm` uses of hvtui's `collective`, as little of it as serves.

pub(crate) mod buffer {
    use std::ptr::NonNull;

    /// # Safety
    /// None is relied on here.
    #[expect(unsafe_code, reason = "the trait is one in hvtui")]
    pub(crate) unsafe trait Memory {
        fn start(&self) -> NonNull<u8>;
        #[expect(dead_code, reason = "hvtui asks for it elsewhere")]
        fn bytes(&self) -> usize;
    }
}

pub(crate) mod communicator {
    use std::ops::Range;

    pub(crate) fn chunk(rank: usize, world: usize, len: usize) -> Range<usize> {
        let (base, longer) = (len / world, len % world);
        let start = rank * base + rank.min(longer);
        start..start + base + usize::from(rank < longer)
    }
}

pub(crate) mod deadline {
    #[derive(Clone, Copy)]
    pub(crate) struct HostTime(pub(crate) u64);
    pub(crate) type Clock = fn() -> HostTime;
}

pub(crate) mod element {
    /// Bytes.
    #[derive(Clone, Copy)]
    pub(crate) struct DType;

    impl DType {
        pub(crate) fn size(self) -> usize {
            1
        }
    }

    /// Sums.
    #[derive(Clone, Copy)]
    pub(crate) struct Reduce;
}

pub(crate) mod error {
    #[derive(Debug, PartialEq)]
    pub(crate) struct CollectiveError;
}

pub(crate) mod kernels {
    use super::element::{DType, Reduce};
    use super::shm::{will_read, will_write};

    #[derive(Clone, Copy)]
    pub(crate) struct Finish;

    /// Adds `count` bytes of all sources into all targets.
    #[expect(unsafe_code, reason = "reads and writes what its caller has checked")]
    pub(crate) unsafe fn reduce(
        _: DType,
        _: Reduce,
        _: Finish,
        sources: &[*const u8],
        targets: &[*mut u8],
        count: usize,
    ) {
        sources.iter().for_each(|source| will_read(*source, count));
        targets.iter().for_each(|target| will_write(*target, count));
        for at in 0..count {
            // SAFETY: loom's threads run one at a time, and the caller says that the memory is there.
            unsafe {
                let sum = sources.iter().fold(0_u8, |sum, source| sum.wrapping_add(source.add(at).read()));
                targets.iter().for_each(|target| target.add(at).write(sum));
            }
        }
    }
}

mod shm;

pub(crate) use shm::MODELS;
