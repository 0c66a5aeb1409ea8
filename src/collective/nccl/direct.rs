//! Operations by NCCL: begun on a stream of their own, watched from the host, timed by events.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream};

use super::super::element::Reduce;
use super::super::error::CollectiveError;
use super::comm::{Comm, micros};
use super::device::{Device, DeviceBuffer, DeviceRange};
use super::error::{NcclError, cuda};
use super::library::{SUCCESS, dtype_code, reduce_code};
use super::life::{Answer, Life, Next, Stage};
use super::stamps::Durations;

/// An operation that the GPU may still work on.
struct Flying {
    seq: u64,
    /// Keeps the memory.
    _range: DeviceRange,
    /// When the GPU was seen to have come to it.
    started: Option<u64>,
    start: Arc<CudaEvent>,
    end: Arc<CudaEvent>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Reduce(Reduce),
    Broadcast(u32),
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::Reduce(_) => "allreduce",
            Self::Broadcast(_) => "broadcast",
        }
    }
}

/// NCCL's way between the GPUs. The communicator goes first when it is dropped: that stops what runs on the stream.
pub(super) struct Direct {
    comm: Comm,
    device: Device,
    stream: Arc<CudaStream>,
    flying: VecDeque<Flying>,
    /// Events that are not waited for any more.
    spare: Vec<Arc<CudaEvent>>,
    pub(super) durations: Durations,
}

impl Direct {
    /// On a joined communicator.
    pub(super) fn new(comm: Comm, device: Device) -> Result<Self, NcclError> {
        device.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        // Bytes that other ranks wait for go before this rank's own arithmetic.
        let (_, greatest) =
            cudarc::driver::result::stream::get_priority_range().map_err(cuda("make a stream"))?;
        let stream = device.context().new_stream_with_priority(greatest).map_err(cuda("make a stream"))?;
        let (flying, spare) = (VecDeque::new(), Vec::new());
        Ok(Self { comm, device, stream, flying, spare, durations: Durations::default() })
    }

    /// Zeroed memory, registered where the library can and `agree` finds that it is so on all ranks.
    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        agree: impl FnOnce(bool) -> Result<bool, CollectiveError>,
        rank: u32,
    ) -> Result<DeviceBuffer, CollectiveError> {
        let (block, own) = self.comm.allocate(bytes).map_err(|error| error.on(rank))?;
        let all = agree(own)?;
        if own && !all {
            self.comm.unregister(&block).map_err(|error| error.on(rank))?;
        }
        Ok(DeviceBuffer::new(block, all))
    }

    /// Takes back the registration of memory that no operation uses any more.
    pub(super) fn release(&mut self, buffer: &DeviceBuffer) -> Result<(), NcclError> {
        self.comm.unregister(buffer.block())
    }

    /// Begins an operation in place, after what is on `after` now. Returns the event of its end.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn begin(
        &mut self,
        seq: u64,
        act: Act,
        range: &DeviceRange,
        after: &CudaStream,
    ) -> Result<Arc<CudaEvent>, NcclError> {
        self.watch()?;
        let [ready, start, end] = [self.event()?, self.event()?, self.event()?];
        ready.record(after).map_err(cuda("record an event"))?;
        self.stream.wait(&ready).map_err(cuda("order two streams"))?;
        start.record(&self.stream).map_err(cuda("record an event"))?;
        let code = if range.is_empty() {
            SUCCESS
        } else {
            let (library, raw) = (self.comm.library(), self.comm.raw());
            let (at, dtype) = (range.pointer() as *mut c_void, dtype_code(range.dtype()));
            let stream = self.stream.cu_stream();
            // SAFETY: memory of the device that the range keeps, which is kept until the end's event; a living
            // communicator that has settled, and its device's stream, whose context the event above made current.
            unsafe {
                match act {
                    Act::Reduce(how) => {
                        (library.allreduce)(at, at, range.len(), dtype, reduce_code(how), raw, stream)
                    }
                    Act::Broadcast(root) => {
                        (library.broadcast)(at, at, range.len(), dtype, root as c_int, raw, stream)
                    }
                }
            }
        };
        self.comm.wait_ready(act.name(), Stage::Ready, self.comm.limits().operation, code)?;
        end.record(&self.stream).map_err(cuda("record an event"))?;
        self.spare.push(ready);
        let flying = Flying { seq, _range: range.clone(), started: None, start, end: Arc::clone(&end) };
        self.flying.push_back(flying);
        Ok(end)
    }

    /// An event with timing: a used one whose users are gone, or a new one.
    fn event(&mut self) -> Result<Arc<CudaEvent>, NcclError> {
        if let Some(at) = self.spare.iter().position(|event| Arc::strong_count(event) == 1) {
            return Ok(self.spare.swap_remove(at));
        }
        let event = self.device.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map(Arc::new).map_err(cuda("make an event"))
    }

    /// Looks, without waiting, at what has ended, failed or is late.
    pub(super) fn watch(&mut self) -> Result<(), NcclError> {
        self.comm.check("an operation under way")?;
        while let Some(first) = self.flying.front_mut() {
            if !first.end.try_is_complete().map_err(cuda("run an operation"))? {
                // Its deadline counts from here: before it there may be much arithmetic of this rank's own.
                if first.started.is_none()
                    && first.start.try_is_complete().map_err(cuda("run an operation"))?
                {
                    first.started = Some(self.comm.now());
                }
                let Some(started) = first.started else { break };
                let limit = self.comm.limits().operation;
                if self.comm.now().saturating_sub(started) < micros(limit) {
                    break;
                }
                let what = "an operation under way";
                return Err(self.comm.abort(NcclError::Late { what, seconds: limit.as_secs() }));
            }
            let Some(done) = self.flying.pop_front() else { break };
            // Both have passed, so this doesn't wait.
            let ms = done.start.elapsed_ms(&done.end).map_err(cuda("read a duration"))?;
            self.durations.took(done.seq, f64::from(ms) * 1e6);
            self.spare.extend([done.start, done.end]);
        }
        Ok(())
    }

    /// Waits until the GPU has come to `event`, and meanwhile sees errors and deadlines.
    pub(super) fn wait(&mut self, event: &CudaEvent) -> Result<(), NcclError> {
        // The deadline is that of the operations; the event itself may be behind much arithmetic.
        let mut life = Life::begin(Stage::Ready, self.comm.now(), u64::MAX);
        while !event.try_is_complete().map_err(cuda("wait for the GPU"))? {
            self.watch()?;
            if let Next::Wait(pause) = life.answer(self.comm.now(), Answer::InProgress) {
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
        Ok(())
    }

    /// Waits for all, and leaves the communicator.
    pub(super) fn finalize(mut self) -> Result<(), NcclError> {
        if let Some(last) = self.flying.back().map(|last| Arc::clone(&last.end)) {
            self.wait(&last)?;
        }
        self.comm.finalize()
    }
}
