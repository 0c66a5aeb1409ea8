//! Shared files as memory of this process. A pipe that is never used stands for each: it has a number by which its copies are
//! known.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::rc::Rc;

pub(super) const PAGE: usize = 4096;
pub(super) const HUGE: usize = 2 << 20;

thread_local! {
    static FILES: RefCell<Files> = const { RefCell::new(Files { all: Vec::new(), used: 0 }) };
}

/// Files of all orders: each order has the same.
struct Files {
    all: Vec<Rc<Memory>>,
    used: usize,
}

struct Memory {
    file: File,
    number: u64,
    start: NonNull<u8>,
    bytes: usize,
}

/// A new order begins. What the one before has written is left: what a rank reads another must have written.
pub(super) fn forget() {
    FILES.with_borrow_mut(|files| files.used = 0);
}

/// Whether `address` is memory that ranks share.
pub(super) fn is_shared(address: usize) -> bool {
    FILES.with_borrow(|files| {
        files.all.iter().any(|memory| {
            let start = memory.start.as_ptr() as usize;
            (start..start + memory.bytes).contains(&address)
        })
    })
}

pub(super) fn create(_: &str, bytes: usize) -> io::Result<OwnedFd> {
    FILES.with_borrow_mut(|files| {
        if files.used == files.all.len() {
            files.all.push(Rc::new(Memory::new(bytes)?));
        }
        let memory = &files.all[files.used];
        assert_eq!(memory.bytes, bytes, "the order before has made other files");
        files.used += 1;
        Ok(memory.file.try_clone()?.into())
    })
}

impl Memory {
    #[expect(unsafe_code, reason = "memory of a page's alignment")]
    fn new(bytes: usize) -> io::Result<Self> {
        let file = File::from(OwnedFd::from(io::pipe()?.0));
        let layout = Layout::from_size_align(bytes, PAGE).map_err(io::Error::other)?;
        // SAFETY: no file is empty. It is never freed.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { number: file.metadata()?.ino(), file, start, bytes })
    }
}

fn memory(file: &OwnedFd) -> io::Result<Rc<Memory>> {
    let number = File::from(file.try_clone()?).metadata()?.ino();
    FILES
        .with_borrow(|files| files.all.iter().find(|memory| memory.number == number).cloned())
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

pub(super) fn length(file: &OwnedFd) -> io::Result<usize> {
    Ok(memory(file)?.bytes)
}

pub(crate) struct Mapping {
    memory: Rc<Memory>,
    offset: usize,
    bytes: usize,
}

impl Mapping {
    pub(super) fn of(file: &OwnedFd, offset: usize, bytes: usize) -> io::Result<Self> {
        let memory = memory(file)?;
        assert!(offset + bytes <= memory.bytes);
        Ok(Self { memory, offset, bytes })
    }

    #[expect(unsafe_code, reason = "an address within the memory")]
    pub(super) fn start(&self) -> NonNull<u8> {
        // SAFETY: checked when it was mapped.
        unsafe { self.memory.start.add(self.offset) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    pub(super) fn populate(&self) {}
}

pub(super) fn punch(_: &OwnedFd, _: usize, _: usize) {}

pub(super) fn make_private(_: *mut u8, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
