//! One GPU of this host, and its memory that the other ranks get to see.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, result};

use super::super::element::DType;
use super::error::{NcclError, cuda};
use super::library::{self, Library, Registering};

/// A GPU that is open for work.
#[derive(Debug, Clone)]
pub struct Device {
    context: Arc<CudaContext>,
}

impl Device {
    /// The GPU with this number among those that the process sees. «No driver» is an ordinary answer.
    pub fn open(ordinal: usize) -> Result<Self, NcclError> {
        with_driver("open the GPU", || CudaContext::new(ordinal).map(Self::of).map_err(cuda("open the GPU")))
    }

    /// The GPU of the rank with this number among its host's ranks: each has the next of those that the process sees, and
    /// where there are more ranks than GPUs they share them. Of a process that sees one GPU it is that one.
    pub fn of_rank(local: u32) -> Result<Self, NcclError> {
        let count = with_driver("count the GPUs", || match CudaContext::device_count() {
            Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => Ok(0),
            counted => counted.map_err(cuda("count the GPUs")),
        })?;
        let count = usize::try_from(count).unwrap_or(0);
        let ordinal = (local as usize).checked_rem(count).ok_or(NcclError::NoGpu)?;
        Self::open(ordinal)
    }

    /// What its maker calls it.
    pub fn name(&self) -> Result<String, NcclError> {
        self.context.name().map_err(cuda("read the GPU's name"))
    }

    /// Its number among those that the process sees.
    pub fn ordinal(&self) -> usize {
        self.context.ordinal()
    }

    /// The GPU of a context that the program has already.
    pub fn of(context: Arc<CudaContext>) -> Self {
        Self { context }
    }

    /// Its context: kernels that work on [`DeviceBuffer`]s run in it.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// What makes it one card among all: its UUID, in two numbers.
    pub(super) fn id(&self) -> Result<[i64; 2], NcclError> {
        let uuid = self.context.uuid().map_err(cuda("read the GPU's UUID"))?;
        let mut halves = [0; 2];
        for (half, bytes) in halves.iter_mut().zip(uuid.bytes.chunks_exact(8)) {
            *half = bytes.iter().fold(0, |number, byte| number << 8 | i64::from(*byte as u8));
        }
        Ok(halves)
    }
}

/// Calls the driver where there is one.
#[expect(unsafe_code, reason = "the probe for a C library")]
fn with_driver<T>(
    what: &'static str,
    act: impl FnOnce() -> Result<T, NcclError> + std::panic::UnwindSafe,
) -> Result<T, NcclError> {
    let called = catch_unwind(|| {
        // SAFETY: the probe only opens and closes the driver's library, which other parts of the process do as well.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(NcclError::NoDriver);
        }
        act()
    });
    // The bindings panic where the driver lacks a function: it is from before CUDA 11.4.
    called.unwrap_or_else(|_| {
        Err(NcclError::Cuda { what, reason: "the driver lacks a function: too old".to_owned() })
    })
}

/// Memory of a GPU, freed with the last that uses it.
pub(super) struct Block {
    context: Arc<CudaContext>,
    start: CUdeviceptr,
    bytes: usize,
    /// Whose it is, where it is not the driver's.
    nccl: Option<Registering>,
}

impl Block {
    /// Zeroed memory of the driver's.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn plain(device: &Device, bytes: usize) -> Result<Self, NcclError> {
        let context = Arc::clone(device.context());
        context.bind_to_thread().map_err(cuda("use the GPU"))?;
        // SAFETY: the context is current; the driver gives no memory of no bytes.
        let start = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(cuda("allocate memory"))?;
        Self { context, start, bytes, nccl: None }.zeroed()
    }

    /// Zeroed memory of NCCL's, which it can register.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn of_nccl(
        device: &Device,
        library: &Library,
        by: Registering,
        bytes: usize,
    ) -> Result<Self, NcclError> {
        let context = Arc::clone(device.context());
        context.bind_to_thread().map_err(cuda("use the GPU"))?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer to one that outlives the call; the GPU's context is current.
        library::code(unsafe { (by.allocate)(&raw mut start, bytes.max(1)) })
            .map_err(|code| library.refused("allocate memory", code, std::ptr::null_mut()))?;
        Self { context, start: start as CUdeviceptr, bytes, nccl: Some(by) }.zeroed()
    }

    #[expect(unsafe_code, reason = "calls of a C library")]
    fn zeroed(self) -> Result<Self, NcclError> {
        // SAFETY: the block's own bytes, which nothing uses yet.
        unsafe { clear(self.start, self.bytes) }?;
        Ok(self)
    }

    pub(super) fn start(&self) -> CUdeviceptr {
        self.start
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Fills memory of the GPU with zeros, and returns when that is done: it is not on a stream that others wait for.
///
/// # Safety
/// `start` is the first of `bytes` bytes that nothing uses, of the current context.
#[expect(unsafe_code, reason = "calls of a C library")]
pub(crate) unsafe fn clear(start: CUdeviceptr, bytes: usize) -> Result<(), NcclError> {
    // SAFETY: the caller's promise; the null stream is always there.
    unsafe {
        result::memset_d8_sync(start, 0, bytes)
            .and_then(|()| result::stream::synchronize(std::ptr::null_mut()))
    }
    .map_err(cuda("clear memory"))
}

impl Drop for Block {
    #[expect(unsafe_code, reason = "calls of a C library")]
    fn drop(&mut self) {
        // A failure leaks the memory until the process ends, and nothing can be done about it.
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: allocated by the same library, and the last that knew of it.
        unsafe {
            match self.nccl {
                Some(by) => drop((by.free)(self.start as *mut c_void)),
                None => drop(result::free_sync(self.start)),
            }
        }
    }
}

/// Memory of a GPU that a group works on: a program's gradients, for instance. Kernels find it by [`DeviceBuffer::pointer`].
#[derive(Clone)]
pub struct DeviceBuffer {
    block: Arc<Block>,
    registered: bool,
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes)", self.bytes())
    }
}

impl DeviceBuffer {
    pub(super) fn new(block: Arc<Block>, registered: bool) -> Self {
        Self { block, registered }
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Its first byte's address on the GPU; aligned to 256.
    pub fn pointer(&self) -> CUdeviceptr {
        self.block.start()
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }

    /// Whether NCCL works on it without a copy of its own.
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// Bytes `range` of it as values of a kind: what one operation acts on.
    pub fn range(&self, range: Range<usize>, dtype: DType) -> Result<DeviceRange, NcclError> {
        let Range { start, end } = range;
        let whole = start.is_multiple_of(dtype.size()) && end.is_multiple_of(dtype.size());
        if start > end || end > self.bytes() || !whole {
            return Err(NcclError::Range { start, end, bytes: self.bytes(), dtype });
        }
        Ok(DeviceRange { block: Arc::clone(&self.block), start, bytes: end - start, dtype })
    }

    /// All of it as values of a kind.
    pub fn all(&self, dtype: DType) -> Result<DeviceRange, NcclError> {
        self.range(0..self.bytes(), dtype)
    }
}

/// Values in a [`DeviceBuffer`], whose memory stays for as long as this does.
#[derive(Clone)]
pub struct DeviceRange {
    block: Arc<Block>,
    start: usize,
    bytes: usize,
    dtype: DType,
}

impl DeviceRange {
    /// The first value's address.
    pub fn pointer(&self) -> CUdeviceptr {
        self.block.start() + self.start as CUdeviceptr
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.bytes / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What they are.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Replaces them by `values` of this host's memory, and returns when that is done. Nothing else may be under way on the
    /// range; what is begun afterwards finds the new values.
    #[expect(unsafe_code, reason = "a copy by the driver")]
    pub fn write(&self, values: &[u8]) -> Result<(), NcclError> {
        self.fits(values.len())?;
        let context = &self.block.context;
        context.bind_to_thread().map_err(cuda("use the GPU"))?;
        let stream = context.default_stream();
        // SAFETY: the range is as long as the values, and both live until the stream has been waited for.
        unsafe { result::memcpy_htod_async(self.pointer(), values, stream.cu_stream()) }
            .and_then(|()| stream.synchronize())
            .map_err(cuda("copy to the GPU"))
    }

    /// Copies them to this host's memory. Nothing else may be under way on the range.
    #[expect(unsafe_code, reason = "a copy by the driver")]
    pub fn read(&self, values: &mut [u8]) -> Result<(), NcclError> {
        self.fits(values.len())?;
        let context = &self.block.context;
        context.bind_to_thread().map_err(cuda("use the GPU"))?;
        let stream = context.default_stream();
        // SAFETY: as in `write`.
        unsafe { result::memcpy_dtoh_async(values, self.pointer(), stream.cu_stream()) }
            .and_then(|()| stream.synchronize())
            .map_err(cuda("copy from the GPU"))
    }

    fn fits(&self, bytes: usize) -> Result<(), NcclError> {
        if bytes == self.bytes {
            return Ok(());
        }
        let start = self.start;
        Err(NcclError::Range { start, end: start + bytes, bytes: self.block.bytes(), dtype: self.dtype })
    }
}

impl fmt::Debug for DeviceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceRange({} {})", self.len(), self.dtype)
    }
}
