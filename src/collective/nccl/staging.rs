//! Operations by the host's memory: down from the GPU, reduced between the hosts' processes, up again; chunk by chunk, so
//! that the three go on at the same time.
//!
//! This is the way where ranks share a GPU or a rank has no NCCL. One thread does the operations in the order
//! in which they were begun, so that all ranks use the host's communicator in the same order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, result};

use super::super::buffer::Work;
use super::super::communicator::Communicator;
use super::super::deadline::Clock;
use super::super::element::{DType, Reduce, Values, bf16, f16};
use super::super::error::CollectiveError;
use super::super::op::OpTiming;
use super::chunks::{count, cut, room};
use super::device::{Device, DeviceRange};
use super::error::{NcclError, cuda};
use super::pinned::{Slot, Slots};

/// A chunk whose memory the host's communicator works on.
struct Reducing {
    chunk: Range<usize>,
    pending: Work,
    copied: CudaEvent,
}

/// The streams and the memory of the way.
pub(super) struct Staging {
    device: Device,
    down: Arc<CudaStream>,
    up: Arc<CudaStream>,
    /// By size.
    slots: BTreeMap<usize, Slots>,
    clock: Clock,
}

impl Staging {
    /// With no memory yet: it is made when an operation needs it.
    pub(super) fn new(device: Device, clock: Clock) -> Result<Self, NcclError> {
        let stream = || device.context().new_stream().map_err(cuda("make a stream"));
        let (down, up) = (stream()?, stream()?);
        Ok(Self { device, down, up, slots: BTreeMap::new(), clock })
    }

    /// Whether the driver copies to and from the group's memory directly; `None` before the first operation.
    pub(super) fn is_pinned(&self) -> Option<bool> {
        self.slots.values().next().map(Slots::is_pinned)
    }

    /// A chunk of memory, ready to be written.
    fn slot(&mut self, host: &mut dyn Communicator, bytes: usize) -> Result<Slot, CollectiveError> {
        let (rank, size) = (host.rank(), room(bytes));
        let slots = match self.slots.entry(size) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Slots::new(&self.device, host, size, count(size))?)
            }
        };
        let slot = slots.take().ok_or(CollectiveError::Abandoned)?;
        slot.copied.synchronize().map_err(cuda("copy to the GPU")).map_err(|error| error.on(rank))?;
        Ok(slot)
    }

    fn give(&mut self, slot: Slot) {
        if let Some(slots) = self.slots.get_mut(&slot.buffer.len()) {
            slots.give(slot);
        }
    }

    /// An allreduce of `range` in place, after `ready`. Returns the event of the last copy up.
    pub(super) fn allreduce(
        &mut self,
        host: &mut dyn Communicator,
        range: &DeviceRange,
        how: Reduce,
        ready: &CudaEvent,
    ) -> Result<(Arc<CudaEvent>, OpTiming), CollectiveError> {
        let rank = host.rank();
        self.down.wait(ready).map_err(cuda("order two streams")).map_err(|error| error.on(rank))?;
        let mut coming: VecDeque<(Range<usize>, Slot)> = VecDeque::new();
        let mut reducing: VecDeque<Reducing> = VecDeque::new();
        let mut clocked = Clocked::new(self.clock);
        for chunk in cut(range.bytes()) {
            let mut slot = self.slot(host, chunk.len())?;
            self.copy_down(range, &chunk, &mut slot).map_err(|error| error.on(rank))?;
            coming.push_back((chunk, slot));
            if coming.len() > 1 {
                Self::reduce_next(host, &mut coming, &mut reducing, range.dtype(), how, &mut clocked)?;
            }
            if reducing.len() > 1 {
                self.upload_next(rank, range, &mut reducing, &mut clocked)?;
            }
        }
        while !coming.is_empty() {
            Self::reduce_next(host, &mut coming, &mut reducing, range.dtype(), how, &mut clocked)?;
        }
        while !reducing.is_empty() {
            self.upload_next(rank, range, &mut reducing, &mut clocked)?;
        }
        Ok((self.uploaded().map_err(|error| error.on(rank))?, clocked.timing()))
    }

    /// Waits until the first chunk is down, and begins its reduction.
    fn reduce_next(
        host: &mut dyn Communicator,
        coming: &mut VecDeque<(Range<usize>, Slot)>,
        reducing: &mut VecDeque<Reducing>,
        dtype: DType,
        how: Reduce,
        clocked: &mut Clocked,
    ) -> Result<(), CollectiveError> {
        let Some((chunk, Slot { buffer, copied })) = coming.pop_front() else { return Ok(()) };
        copied.synchronize().map_err(cuda("copy from the GPU")).map_err(|error| error.on(host.rank()))?;
        clocked.begin();
        // All of the memory is reduced, what follows the chunk too: that is less work than a size for each length.
        let pending = host.begin(buffer, dtype, how)?;
        reducing.push_back(Reducing { chunk, pending, copied });
        Ok(())
    }

    /// Waits until the first chunk is reduced, and begins its copy up.
    fn upload_next(
        &mut self,
        rank: u32,
        range: &DeviceRange,
        reducing: &mut VecDeque<Reducing>,
        clocked: &mut Clocked,
    ) -> Result<(), CollectiveError> {
        let Some(Reducing { chunk, pending, copied }) = reducing.pop_front() else { return Ok(()) };
        let (buffer, timing) = pending.wait()?;
        clocked.waited += timing.wait;
        let slot = Slot { buffer, copied };
        self.copy_up(range, &chunk, &slot).map_err(|error| error.on(rank))?;
        self.give(slot);
        Ok(())
    }

    /// Replaces `range` by rank `root`'s, after `ready`.
    pub(super) fn broadcast(
        &mut self,
        host: &mut dyn Communicator,
        range: &DeviceRange,
        root: u32,
        ready: &CudaEvent,
    ) -> Result<(Arc<CudaEvent>, OpTiming), CollectiveError> {
        let rank = host.rank();
        for stream in [&self.down, &self.up] {
            stream.wait(ready).map_err(cuda("order two streams")).map_err(|error| error.on(rank))?;
        }
        let mut clocked = Clocked::new(self.clock);
        for chunk in cut(range.bytes()) {
            let mut slot = self.slot(host, chunk.len())?;
            if rank == root {
                self.copy_down(range, &chunk, &mut slot).map_err(|error| error.on(rank))?;
                slot.copied
                    .synchronize()
                    .map_err(cuda("copy from the GPU"))
                    .map_err(|error| error.on(rank))?;
            }
            clocked.begin();
            let timing =
                host.broadcast_values(root, values(range.dtype(), &mut slot.buffer[..chunk.len()]))?;
            clocked.waited += timing.wait;
            if rank != root {
                self.copy_up(range, &chunk, &slot).map_err(|error| error.on(rank))?;
            }
            self.give(slot);
        }
        Ok((self.uploaded().map_err(|error| error.on(rank))?, clocked.timing()))
    }

    /// The event of all copies up that have been begun.
    fn uploaded(&self) -> Result<Arc<CudaEvent>, NcclError> {
        let event = self.device.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        let event = event.map_err(cuda("make an event"))?;
        event.record(&self.up).map_err(cuda("record an event"))?;
        Ok(Arc::new(event))
    }

    #[expect(unsafe_code, reason = "a copy that goes on after the call")]
    fn copy_down(&self, range: &DeviceRange, chunk: &Range<usize>, slot: &mut Slot) -> Result<(), NcclError> {
        let (from, to) = (range.pointer() + chunk.start as u64, &mut slot.buffer[..chunk.len()]);
        // SAFETY: the chunk lies in memory that the range keeps until the operation is over, and the slot is not touched
        // until its event has passed; `abandon` waits for both when an operation fails.
        unsafe { result::memcpy_dtoh_async(to, from, self.down.cu_stream()) }
            .map_err(cuda("copy from the GPU"))?;
        slot.copied.record(&self.down).map_err(cuda("record an event"))
    }

    #[expect(unsafe_code, reason = "a copy that goes on after the call")]
    fn copy_up(&self, range: &DeviceRange, chunk: &Range<usize>, slot: &Slot) -> Result<(), NcclError> {
        let (to, from) = (range.pointer() + chunk.start as u64, &slot.buffer[..chunk.len()]);
        // SAFETY: as in `copy_down`.
        unsafe { result::memcpy_htod_async(to, from, self.up.cu_stream()) }
            .map_err(cuda("copy to the GPU"))?;
        slot.copied.record(&self.up).map_err(cuda("record an event"))
    }

    /// Waits until no copy is under way: after this, memory may go.
    pub(super) fn quiesce(&self) {
        let _ = self.down.synchronize();
        let _ = self.up.synchronize();
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.quiesce();
    }
}

/// The time of one operation: from its first chunk in the host's memory to its last copy up.
struct Clocked {
    clock: Clock,
    began: Option<u64>,
    waited: u64,
}

impl Clocked {
    fn new(clock: Clock) -> Self {
        Self { clock, began: None, waited: 0 }
    }

    fn begin(&mut self) {
        let clock = self.clock;
        self.began.get_or_insert_with(|| clock().0);
    }

    fn timing(&self) -> OpTiming {
        let whole = self.began.map_or(0, |began| (self.clock)().0.saturating_sub(began) * 1000);
        OpTiming { wait: self.waited.min(whole), transfer: whole.saturating_sub(self.waited) }
    }
}

/// Bytes in aligned memory as values of a kind.
fn values(dtype: DType, bytes: &mut [u8]) -> Values<'_> {
    match dtype {
        DType::F32 => Values::of::<f32>(bytemuck::cast_slice_mut(bytes)),
        DType::F64 => Values::of::<f64>(bytemuck::cast_slice_mut(bytes)),
        DType::F16 => Values::of::<f16>(bytemuck::cast_slice_mut(bytes)),
        DType::Bf16 => Values::of::<bf16>(bytemuck::cast_slice_mut(bytes)),
        DType::I32 => Values::of::<i32>(bytemuck::cast_slice_mut(bytes)),
        DType::I64 => Values::of::<i64>(bytemuck::cast_slice_mut(bytes)),
    }
}
