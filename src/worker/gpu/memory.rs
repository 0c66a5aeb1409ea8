//! Memory of the GPU, and memory of the host that the GPU copies from and to while the program goes on.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, DriverError, result};

/// Memory of the GPU. The driver frees none before the work that was begun is done.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<CudaContext>,
    start: CUdeviceptr,
    abandoned: bool,
}

impl Memory {
    /// `bytes` bytes that hold anything.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // SAFETY: the context is current; the driver gives no memory of no bytes.
        let start = unsafe { result::malloc_sync(bytes.max(1)) }?;
        Ok(Self { context: Arc::clone(context), start, abandoned: false })
    }

    /// It is never freed: freeing would wait for work that never ends.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Its first byte's address on the GPU; aligned to 256.
    pub(super) fn start(&self) -> CUdeviceptr {
        self.start
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "a call of a C library")]
    fn drop(&mut self) {
        if !self.abandoned && self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new` and freed once. A failure leaks it until the process ends.
            let _ = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Values in the host's memory that don't move: the GPU copies them directly. The caller that begins a copy ensures that
/// they are not touched before it is done.
#[derive(Debug)]
pub(super) struct Pinned<T> {
    context: Arc<CudaContext>,
    start: *mut T,
    len: usize,
}

impl<T: bytemuck::Pod> Pinned<T> {
    /// `len` zeros.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let bytes = (len * size_of::<T>()).max(1);
        // SAFETY: the context is current. The driver's memory is aligned to pages, and all zeros are a value of any `Pod`.
        let start = unsafe {
            let start = result::malloc_host(bytes, 0)?.cast::<u8>();
            start.write_bytes(0, bytes);
            start.cast::<T>()
        };
        Ok(Self { context: Arc::clone(context), start, len })
    }
}

impl<T> Deref for Pinned<T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "memory of a C library")]
    fn deref(&self) -> &[T] {
        // SAFETY: so many initialised values, which live as long as this.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Pinned<T> {
    #[expect(unsafe_code, reason = "memory of a C library")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T> Drop for Pinned<T> {
    #[expect(unsafe_code, reason = "a call of a C library")]
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new` and freed once; the driver waits for its copies first.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}
