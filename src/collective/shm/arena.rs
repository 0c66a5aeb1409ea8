//! A rank's arena: memory from which its buffers come, mapped by all ranks of the host.
//!
//! It is a sparse file as large as the host's memory: addresses are dealt out of it, memory only where it is touched.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::buffer::Memory;
use super::mapping::{self, HUGE, Mapping, PAGE};

/// This rank's own arena.
pub(in crate::collective) struct Arena {
    mapping: Arc<Mapping>,
    free: Arc<Mutex<FreeList>>,
}

impl Arena {
    /// A new arena of `bytes` addresses.
    pub(super) fn create(bytes: usize) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::of(mapping::create("hvtui-arena", bytes)?)?);
        Ok(Self { free: Arc::new(Mutex::new(FreeList::new(mapping.bytes()))), mapping })
    }

    /// The file to hand to the other ranks.
    pub(super) fn file(&self) -> &OwnedFd {
        self.mapping.file()
    }

    /// The mapping.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Where `start` lies in the arena, if `bytes` bytes from it do.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<usize> {
        let offset = (start as usize).checked_sub(self.mapping.start().as_ptr() as usize)?;
        self.mapping.holds(offset, bytes).then_some(offset)
    }

    /// Zeroed memory of at least `bytes` bytes; `None` when no addresses are left.
    pub(in crate::collective) fn allocate(&self, bytes: usize) -> Option<Block> {
        // Large blocks are made of huge pages, the memory that this wastes is less than a half of them.
        let page = if bytes >= HUGE / 2 { HUGE } else { PAGE };
        let bytes = bytes.max(1).checked_next_multiple_of(page)?;
        let offset = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, page)?;
        self.mapping.populate(offset, bytes);
        Some(Block { mapping: Arc::clone(&self.mapping), free: Arc::clone(&self.free), offset, bytes })
    }
}

/// A part of the arena that is in use.
pub(in crate::collective) struct Block {
    mapping: Arc<Mapping>,
    free: Arc<Mutex<FreeList>>,
    offset: usize,
    bytes: usize,
}

#[expect(unsafe_code, reason = "a range of a mapping is what the trait asks for")]
// SAFETY: within a mapping that the block keeps alive; page-aligned; zeroed by the kernel, or by the punch before.
unsafe impl Memory for Block {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: the free list deals within the mapping.
        unsafe { self.mapping.start().add(self.offset) }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.mapping.punch(self.offset, self.bytes);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).give(self.offset, self.bytes);
    }
}

/// Free ranges, in order, never touching each other.
#[derive(Debug)]
struct FreeList(Vec<(usize, usize)>);

impl FreeList {
    fn new(bytes: usize) -> Self {
        Self(vec![(0, bytes)])
    }

    /// The first range that is large enough, from a multiple of `align` on.
    fn take(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let fits = |&(offset, free): &(usize, usize)| {
            offset.next_multiple_of(align).checked_add(bytes).is_some_and(|end| end <= offset + free)
        };
        let at = self.0.iter().position(fits)?;
        let (before, end) = (self.0[at].0, self.0[at].0 + self.0[at].1);
        let offset = before.next_multiple_of(align);
        let after = offset + bytes;
        let left = [(before, offset - before), (after, end - after)];
        self.0.splice(at..=at, left.into_iter().filter(|(_, free)| *free > 0));
        Some(offset)
    }

    fn give(&mut self, offset: usize, bytes: usize) {
        let at = self.0.partition_point(|(other, _)| *other < offset);
        self.0.insert(at, (offset, bytes));
        if let Some(&(after, more)) = self.0.get(at + 1)
            && offset + bytes == after
        {
            self.0[at].1 += more;
            self.0.remove(at + 1);
        }
        if at > 0 && self.0[at - 1].0 + self.0[at - 1].1 == offset {
            self.0[at - 1].1 += self.0[at].1;
            self.0.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_given_back_can_be_taken_again(
            sizes in prop::collection::vec((1_usize..9, 0_u32..3), 1..20), order: u64,
        ) {
            let mut list = FreeList::new(100);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (size, power) in sizes {
                if let Some(offset) = list.take(size, 1 << power) {
                    prop_assert_eq!(offset % (1 << power), 0);
                    prop_assert!(taken.iter().all(|(o, s)| offset + size <= *o || o + s <= offset));
                    prop_assert!(offset + size <= 100);
                    taken.push((offset, size));
                }
            }
            let mut state = order;
            while !taken.is_empty() {
                let (offset, size) = taken.swap_remove(state as usize % taken.len());
                state = state.rotate_left(7) ^ 0x9e37;
                list.give(offset, size);
            }
            prop_assert_eq!(list.0, vec![(0, 100)]);
        }
    }

    #[test]
    fn blocks_are_zeroed_and_found() {
        let arena = Arena::create(1 << 20).unwrap();
        let block = arena.allocate(5000).unwrap();
        assert_eq!((block.bytes(), block.offset), (8192, 0));
        let start = block.start().as_ptr();
        #[expect(unsafe_code, reason = "writes to memory of its own")]
        // SAFETY: the block is valid and nobody else's.
        unsafe {
            start.write_bytes(7, 8192);
        }
        assert_eq!(arena.offset_of(start.wrapping_add(100), 8092), Some(100));
        assert_eq!(arena.offset_of([0_u8; 4].as_ptr(), 4), None);
        drop(block);
        let again = arena.allocate(8192).unwrap();
        #[expect(unsafe_code, reason = "reads memory of its own")]
        // SAFETY: as above.
        let first = unsafe { again.start().as_ptr().read() };
        assert_eq!((again.offset, first), (0, 0));
        assert!(arena.allocate(1 << 20).is_none());
    }
}
