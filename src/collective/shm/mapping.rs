//! Memory that several processes map: an anonymous file, and its place in this process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A new anonymous file of `bytes` zeros, which take no memory until they are touched.
pub(super) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    Ok(file)
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
    /// Maps all of `file`.
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn of(file: OwnedFd) -> io::Result<Self> {
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

    /// Makes the pages of a range present and writable in this process, huge where the system allows it. Only speed
    /// depends on it.
    pub(super) fn populate(&self, offset: usize, bytes: usize) {
        let first = offset / PAGE * PAGE;
        let length = (offset + bytes).next_multiple_of(PAGE).min(self.bytes) - first;
        self.advise(first, length, Advice::LinuxHugepage);
        self.advise(first, length, Advice::LinuxPopulateWrite);
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

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; everything that points into it holds this value alive.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
