//! Memory that several processes map: an anonymous file, and its place in this process.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

/// A new anonymous file of `bytes` zeros, which take no memory until they are touched. Its length is sealed.
pub(super) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, LENGTH | SealFlags::SEAL)?;
    Ok(file)
}

/// The length of the file cannot change: a process that maps it and touches what is gone dies of SIGBUS.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Whether a file that came from another process will stay as long as it is.
pub(super) fn is_sealed(file: &OwnedFd) -> bool {
    // What is no memfd has no seals to ask for.
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(LENGTH))
}

/// The length of a file that another rank made, if it cannot change any more.
pub(super) fn length(file: &OwnedFd) -> io::Result<usize> {
    // Asked before the length is: after that it can't change.
    if !is_sealed(file) {
        return Err(io::Error::other("the length of shared memory that another rank made is not sealed"));
    }
    Ok(usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

/// A range of a shared file, mapped.
pub(in crate::collective) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory; what is shared of it is used by atomics, or by turns that atomics order.
#[expect(unsafe_code, reason = "a pointer that is not tied to a thread")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer that is not tied to a thread")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the `bytes` bytes of `file` from `offset` on, both multiples of [`PAGE`] and within its sealed length.
    ///
    /// A range from a multiple of [`HUGE`] on begins at such an address too: only there huge pages can be mapped.
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn of(file: &OwnedFd, offset: usize, bytes: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        if bytes < HUGE || !offset.is_multiple_of(HUGE) {
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let start =
                unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, file, offset as u64) }?;
            return Ok(Self { start: not_null(start)?, bytes });
        }
        let room = Self::reserve(bytes + HUGE)?;
        let before = room.start.as_ptr().align_offset(HUGE);
        let start = room.start.as_ptr().wrapping_add(before);
        let flags = flags | MapFlags::FIXED;
        // SAFETY: in place of addresses that were just reserved, which nothing uses.
        unsafe { rustix::mm::mmap(start.cast(), bytes, prot, flags, file, offset as u64) }?;
        let (head, room) = (room.start.as_ptr(), std::mem::ManuallyDrop::new(room).bytes);
        // SAFETY: what is left of the room on both sides.
        unsafe {
            let _ = rustix::mm::munmap(head.cast(), before);
            let _ = rustix::mm::munmap(start.wrapping_add(bytes).cast(), room - before - bytes);
        }
        Ok(Self { start: not_null(start.cast())?, bytes })
    }

    /// Addresses without memory.
    #[expect(unsafe_code, reason = "mmap")]
    fn reserve(bytes: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags) }?;
        Ok(Self { start: not_null(start)?, bytes })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether `bytes` bytes from `offset` lie within it.
    pub(super) fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Makes all pages present and writable in this process, huge where the system has such: the kernel is asked to,
    /// whatever its settings say of shared memory that is not asked for. Only speed depends on it.
    #[expect(unsafe_code, reason = "madvise")]
    pub(super) fn populate(&self) {
        let (start, huge) = (self.start.as_ptr(), self.bytes / HUGE * HUGE);
        // SAFETY: all of the mapping; neither advice changes contents. Kernels before 6.1 do not know the first.
        unsafe {
            if huge > 0 {
                let _ = libc::madvise(start.cast(), huge, libc::MADV_COLLAPSE);
            }
            let _ = rustix::mm::madvise(start.cast(), self.bytes, Advice::LinuxPopulateWrite);
        }
    }
}

/// Puts private memory with the same contents in the place of `bytes` bytes from `start` on: whole pages of a mapping that the
/// caller owns. The kernel moves them there at once, so that there is no moment without.
#[expect(unsafe_code, reason = "mmap, mremap")]
pub(super) fn make_private(start: *mut u8, bytes: usize) -> io::Result<()> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping; other processes may write what is copied, each byte is what it was or what it becomes; the fresh
    // mapping then replaces pages that the caller owns.
    unsafe {
        let copy = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags)?;
        copy.cast::<u8>().copy_from_nonoverlapping(start, bytes);
        let moved = rustix::mm::mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, start.cast());
        if let Err(error) = moved {
            let _ = rustix::mm::munmap(copy, bytes);
            return Err(error.into());
        }
    }
    Ok(())
}

fn not_null(start: *mut core::ffi::c_void) -> io::Result<NonNull<u8>> {
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// Gives the memory of whole pages of a file back; they read as zeros again.
pub(super) fn punch(file: &OwnedFd, offset: usize, bytes: usize) {
    // Where it fails the memory stays taken until the group ends.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = rustix::fs::fallocate(file, flags, offset as u64, bytes as u64);
}

/// What memory is dealt in here.
pub(super) const PAGE: usize = 4096;
/// What a huge page is on most machines. Elsewhere none is asked for that the kernel could give.
pub(super) const HUGE: usize = 2 << 20;

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        // SAFETY: mapped by this type; everything that points into it holds this value alive.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_its_length_or_is_not_mapped() {
        let sealed = create("hvtui-test", 2 * PAGE).unwrap();
        for bytes in [0, PAGE as u64, 3 * PAGE as u64] {
            assert_eq!(rustix::fs::ftruncate(&sealed, bytes), Err(rustix::io::Errno::PERM));
        }
        assert_eq!(length(&sealed).unwrap(), 2 * PAGE);
        let mapping = Mapping::of(&sealed, 0, 2 * PAGE).unwrap();
        assert_eq!(mapping.bytes(), 2 * PAGE);
        // Memory can still be given back.
        mapping.populate();
        punch(&sealed, PAGE, PAGE);

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let file = rustix::fs::memfd_create("hvtui-test", flags).unwrap();
            rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            let refused = length(&file).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.ends_with("is not sealed")), "{seals:?}");
        }
        let no_memfd = tempfile::tempfile().unwrap();
        assert!(length(&no_memfd.into()).is_err());
    }

    #[test]
    fn a_range_of_huge_pages_begins_at_an_address_for_them() {
        let file = create("hvtui-test", 8 * HUGE).unwrap();
        for (offset, bytes) in [(0, HUGE), (2 * HUGE, 3 * HUGE), (HUGE, 2 * HUGE + PAGE)] {
            let mapping = Mapping::of(&file, offset, bytes).unwrap();
            assert_eq!((mapping.start().as_ptr().align_offset(HUGE), mapping.bytes()), (0, bytes));
        }
    }
}
