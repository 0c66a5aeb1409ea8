//! Host memory of the group that the GPU copies from and to: taken chunk by chunk, in turn.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_flags};
use cudarc::driver::{CudaContext, CudaEvent};

use super::super::buffer::Buffer;
use super::super::communicator::Communicator;
use super::super::error::CollectiveError;
use super::device::Device;
use super::error::cuda;

/// Memory that the driver may copy to and from directly, for as long as this lives.
struct Pin {
    context: Arc<CudaContext>,
    start: usize,
}

impl Pin {
    /// `None` when the driver or the system refuses: copies work without, only slower.
    #[expect(unsafe_code, reason = "a call of a C library")]
    fn new(device: &Device, memory: &mut Buffer<u8>) -> Option<Self> {
        const PORTABLE: u32 = 1;
        let context = Arc::clone(device.context());
        context.bind_to_thread().ok()?;
        let start = memory.as_mut_ptr();
        // SAFETY: living memory of this length; `Slots` drops its pin before the buffers.
        let code = unsafe { sys::cuMemHostRegister_v2(start.cast::<c_void>(), memory.len(), PORTABLE) };
        code.result().ok()?;
        Some(Self { context, start: start as usize })
    }
}

impl Drop for Pin {
    #[expect(unsafe_code, reason = "a call of a C library")]
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: registered by `new`, and still allocated. A refusal leaves it pinned until the process ends.
            let _ = unsafe { sys::cuMemHostUnregister(self.start as *mut c_void) };
        }
    }
}

/// A chunk of memory that is not in use, and the event of the last copy out of it.
pub(super) struct Slot {
    pub(super) buffer: Buffer<u8>,
    /// Of the last copy to or from the GPU.
    pub(super) copied: CudaEvent,
}

/// Pieces of one size. Dropped while no copy is under way.
pub(super) struct Slots {
    // Before the memory that it is about.
    pin: Option<Pin>,
    free: VecDeque<Slot>,
}

impl Slots {
    /// `count` chunks of `size` bytes of the group's memory. All ranks make theirs at the same point.
    pub(super) fn new(
        device: &Device,
        host: &mut dyn Communicator,
        size: usize,
        count: usize,
    ) -> Result<Self, CollectiveError> {
        let rank = host.rank();
        // Registered in one, because a page can't be registered twice.
        let mut rest = host.allocate(size * count)?;
        let pin = Pin::new(device, &mut rest);
        let mut free = VecDeque::new();
        for _ in 0..count {
            let Some((buffer, others)) = rest.split_at(size) else { break };
            let copied = device
                .context()
                // A thread that waits for a copy sleeps: other ranks may need the core.
                .new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))
                .map_err(cuda("make an event"))
                .map_err(|error| error.on(rank))?;
            free.push_back(Slot { buffer, copied });
            rest = others;
        }
        Ok(Self { pin, free })
    }

    /// The chunk that has been free for longest. There is always one, for no more are out than there are.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop_front()
    }

    /// Gives a chunk back. Its last copy may be under way: the next user of it waits for that.
    pub(super) fn give(&mut self, slot: Slot) {
        self.free.push_back(slot);
    }

    /// Whether the GPU copies directly.
    pub(super) fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }
}
