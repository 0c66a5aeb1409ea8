//! Memory that several processes map: an anonymous file, and its place in this process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A new anonymous file of `bytes` zeros, which take no memory until they are touched. Its length is sealed.
pub(super) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, LENGTH | SealFlags::SEAL)?;
    Ok(file)
}

/// Nobody can change how long the file is: whoever maps it and touches what is gone dies of SIGBUS.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Whether a file that came from another process will stay as long as it is.
pub(super) fn is_sealed(file: &OwnedFd) -> bool {
    // What is no memfd has no seals to ask for.
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(LENGTH))
}

/// A shared file, mapped whole.
pub(in crate::collective) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory; what is shared of it is used by atomics, or by turns that atomics order.
#[expect(unsafe_code, reason = "a pointer that is not tied to a thread")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a pointer that is not tied to a thread")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps all of `file`, whose length must be sealed.
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn of(file: OwnedFd) -> io::Result<Self> {
        // Asked before the length is: after that it can't change.
        if !is_sealed(&file) {
            return Err(io::Error::other("the length of shared memory that another rank made is not sealed"));
        }
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes, file })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind it.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Whether `bytes` bytes from `offset` lie within it.
    pub(super) fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Makes the pages of a range present and writable in this process, huge where the system has such: the kernel is asked
    /// to, whatever its settings say of shared memory that nobody asks for. Only speed depends on it.
    pub(super) fn populate(&self, offset: usize, bytes: usize) {
        let first = offset / PAGE * PAGE;
        let length = (offset + bytes).next_multiple_of(PAGE).min(self.bytes) - first;
        let (from, to) = (first.next_multiple_of(HUGE), (first + length) / HUGE * HUGE);
        if from < to {
            self.collapse(from, to - from);
        }
        self.advise(first, length, Advice::LinuxPopulateWrite);
    }

    #[expect(unsafe_code, reason = "madvise")]
    fn collapse(&self, offset: usize, bytes: usize) {
        // SAFETY: within the mapping; contents stay. Kernels before 6.1 do not know it.
        let _ = unsafe { libc::madvise(self.start.add(offset).as_ptr().cast(), bytes, libc::MADV_COLLAPSE) };
    }

    #[expect(unsafe_code, reason = "madvise")]
    fn advise(&self, offset: usize, bytes: usize, advice: Advice) {
        // SAFETY: within the mapping; neither advice changes contents.
        let _ = unsafe { rustix::mm::madvise(self.start.add(offset).as_ptr().cast(), bytes, advice) };
    }

    /// Gives the memory of whole pages back; they read as zeros again.
    pub(super) fn punch(&self, offset: usize, bytes: usize) {
        // Where it fails the memory stays taken until the group ends.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(self.file.as_fd(), flags, offset as u64, bytes as u64);
    }
}

/// What memory is dealt in here.
pub(super) const PAGE: usize = 4096;
/// What a huge page is on most machines. Elsewhere none is asked for that the kernel could give.
pub(super) const HUGE: usize = 2 << 20;

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; everything that points into it holds this value alive.
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
        let mapping = Mapping::of(sealed).unwrap();
        assert_eq!(mapping.bytes(), 2 * PAGE);
        // Memory can still be given back.
        mapping.populate(0, 2 * PAGE);
        mapping.punch(PAGE, PAGE);

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let file = rustix::fs::memfd_create("hvtui-test", flags).unwrap();
            rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            let refused = Mapping::of(file).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|why| why.ends_with("is not sealed")), "{seals:?}");
        }
        let no_memfd = tempfile::tempfile().unwrap();
        assert!(Mapping::of(no_memfd.into()).is_err());
    }
}
