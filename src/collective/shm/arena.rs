//! A rank's arena: memory from which its buffers come, which all ranks of the host can map.
//!
//! It is a sparse file as long as the host's memory. Each rank maps the blocks that it has dealt, and of another's arena what
//! reaches to the end of the last value that it was shown: neither addresses nor memory are taken for what is not used.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::buffer::Memory;
use super::mapping::{self, HUGE, Mapping, PAGE};

/// This rank's own arena.
pub(in crate::collective) struct Arena {
    file: Arc<OwnedFd>,
    dealt: Arc<Mutex<Dealt>>,
}

/// What is free and what is not.
struct Dealt {
    free: FreeList,
    blocks: Vec<Dealing>,
}

/// A block in use: its place in this process and in the file.
struct Dealing {
    start: usize,
    bytes: usize,
    offset: usize,
}

fn lock(dealt: &Mutex<Dealt>) -> MutexGuard<'_, Dealt> {
    dealt.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    /// A new arena of `bytes` bytes, none of which is mapped.
    pub(super) fn create(bytes: usize) -> io::Result<Self> {
        let file = Arc::new(mapping::create("hvtui-arena", bytes)?);
        Ok(Self {
            file,
            dealt: Arc::new(Mutex::new(Dealt { free: FreeList::new(bytes), blocks: Vec::new() })),
        })
    }

    /// The file to hand to the other ranks.
    pub(super) fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Where `start` lies in the arena, if `bytes` bytes from it lie in one of its blocks.
    pub(super) fn offset_of(&self, start: *const u8, bytes: usize) -> Option<usize> {
        lock(&self.dealt).blocks.iter().find_map(|block| {
            let at = (start as usize).checked_sub(block.start)?;
            at.checked_add(bytes).filter(|end| *end <= block.bytes).map(|_| block.offset + at)
        })
    }

    /// Zeroed memory of at least `bytes` bytes.
    pub(in crate::collective) fn allocate(&self, bytes: usize) -> io::Result<Block> {
        // Large blocks are made of huge pages, the memory that this wastes is less than a half of them.
        let page = if bytes >= HUGE / 2 { HUGE } else { PAGE };
        let full = || io::Error::other(format!("{bytes} bytes are more than is left of the host's memory"));
        let bytes = bytes.max(1).checked_next_multiple_of(page).ok_or_else(full)?;
        let offset = lock(&self.dealt).free.take(bytes, page).ok_or_else(full)?;
        let mapping = Mapping::of(&self.file, offset, bytes).map_err(|error| {
            lock(&self.dealt).free.give(offset, bytes);
            unmapped(bytes, &error)
        })?;
        mapping.populate();
        let start = mapping.start().as_ptr() as usize;
        lock(&self.dealt).blocks.push(Dealing { start, bytes, offset });
        Ok(Block { mapping, file: Arc::clone(&self.file), dealt: Arc::clone(&self.dealt), offset })
    }
}

impl Arena {
    /// Puts memory of this process alone, with the same contents, in the place of a range that lies in a block: after a failure
    /// other ranks may still be writing there, and the owner of the block holds it as a slice.
    pub(super) fn withdraw(&self, start: *mut u8, bytes: usize) {
        if self.offset_of(start, bytes).is_none() || bytes == 0 {
            return;
        }
        // Blocks consist of whole pages. What shares a page with the range goes along.
        let before = start as usize % PAGE;
        let bytes = (before + bytes).next_multiple_of(PAGE);
        // Without memory for it the range stays where it is.
        let _ = mapping::make_private(start.wrapping_sub(before), bytes);
    }
}

fn unmapped(bytes: usize, error: &io::Error) -> io::Error {
    io::Error::other(format!("{bytes} bytes can't be mapped: {error} (is there a limit, `ulimit -v`?)"))
}

/// A part of the arena that is in use.
pub(in crate::collective) struct Block {
    mapping: Mapping,
    file: Arc<OwnedFd>,
    dealt: Arc<Mutex<Dealt>>,
    offset: usize,
}

#[expect(unsafe_code, reason = "a mapping is what the trait asks for")]
// SAFETY: a mapping that the block owns; page-aligned; zeroed by the kernel, or by the punch before.
unsafe impl Memory for Block {
    fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (start, bytes) = (self.mapping.start().as_ptr() as usize, self.mapping.bytes());
        mapping::punch(&self.file, self.offset, bytes);
        let mut dealt = lock(&self.dealt);
        dealt.blocks.retain(|block| block.start != start);
        dealt.free.give(self.offset, bytes);
    }
}

/// The arena of another rank, of which as much is mapped as was asked for.
pub(super) struct View {
    file: Arc<OwnedFd>,
    /// Its length.
    bytes: usize,
    mapping: Option<Mapping>,
}

impl View {
    /// Of a file whose length must be sealed.
    pub(super) fn of(file: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self { bytes: mapping::length(&file)?, file, mapping: None })
    }

    /// The address of `bytes` bytes at `offset`; `None` when they are not in the arena.
    #[inline]
    pub(super) fn at(&mut self, offset: usize, bytes: usize) -> io::Result<Option<*mut u8>> {
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= self.bytes) else { return Ok(None) };
        match &self.mapping {
            Some(mapping) if mapping.holds(offset, bytes) => {
                Ok(Some(mapping.start().as_ptr().wrapping_add(offset)))
            }
            _ => self.map(end).map(|start| Some(start.as_ptr().wrapping_add(offset))),
        }
    }

    /// Maps what lies before `end`, and some more.
    #[cold]
    fn map(&mut self, end: usize) -> io::Result<NonNull<u8>> {
        // Nothing points into what was mapped before: addresses are asked for anew in each operation.
        self.mapping = None;
        let exact = end.next_multiple_of(PAGE).min(self.bytes);
        let ample = end.next_power_of_two().max(HUGE).min(self.bytes);
        let mapping = Mapping::of(&self.file, 0, ample)
            .or_else(|_| Mapping::of(&self.file, 0, exact))
            .map_err(|error| unmapped(exact, &error))?;
        Ok(self.mapping.insert(mapping).start())
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
        let address = block.start();
        let start = block.start().as_ptr();
        #[expect(unsafe_code, reason = "writes to memory of its own")]
        // SAFETY: the block is valid and nothing else uses it.
        unsafe {
            start.write_bytes(7, 8192);
        }
        assert_eq!(arena.offset_of(start.wrapping_add(100), 8092), Some(100));
        assert_eq!(arena.offset_of(start.wrapping_add(100), 8093), None);
        assert_eq!(arena.offset_of([0_u8; 4].as_ptr(), 4), None);
        drop(block);
        assert_eq!(arena.offset_of(address.as_ptr(), 1), None);
        let again = arena.allocate(8192).unwrap();
        #[expect(unsafe_code, reason = "reads memory of its own")]
        // SAFETY: as above.
        let first = unsafe { again.start().as_ptr().read() };
        assert_eq!((again.offset, first), (0, 0));
        assert!(arena.allocate(1 << 20).is_err());
    }

    #[test]
    fn no_more_of_an_arena_is_mapped_than_is_used() {
        // More than a process has addresses.
        let arena = Arena::create(1 << 60).unwrap();
        let blocks = [arena.allocate(5 * HUGE).unwrap(), arena.allocate(4096).unwrap()];
        let mut view = View::of(Arc::clone(arena.file())).unwrap();
        for (block, value) in blocks.iter().zip([3, 5]) {
            let bytes = block.bytes();
            let seen = view.at(block.offset + bytes - 64, 64).unwrap().unwrap();
            #[expect(unsafe_code, reason = "writes and reads memory of its own")]
            // SAFETY: both addresses are of the block's last bytes, which nothing else uses.
            unsafe {
                block.start().add(bytes - 64).write(value);
                assert_eq!(seen.read(), value);
            }
        }
        assert_eq!(view.mapping.as_ref().unwrap().bytes(), 8 * HUGE);
        assert!(view.at(1 << 60, 1).unwrap().is_none() && view.at(usize::MAX, 2).unwrap().is_none());
        assert!(view.at((1 << 60) - 1, 1).is_err(), "more than a process can map");
    }
}
