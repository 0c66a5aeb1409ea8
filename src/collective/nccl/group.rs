//! What a training program asks of a group whose ranks have a GPU each, whichever way the bytes go.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream};

use super::super::communicator::{Collective, Communicator};
use super::super::deadline::Clock;
use super::super::element::Reduce;
use super::super::error::CollectiveError;
use super::super::op::{OpTiming, Transport};
use super::comm::Limits;
use super::device::{Block, Device, DeviceBuffer, DeviceRange};
use super::direct::{Act, Direct};
use super::error::{NcclError, cuda};
use super::init;
use super::library::Library;
use super::queue::{Ended, Host, Queue, lock};
use super::staging::Staging;
use super::stamps::Timed;

/// Which way the bytes are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendPreference {
    /// NCCL where all ranks can use it, else the hosts' memory. A single rank goes no way at all.
    #[default]
    Best,
    /// NCCL, also for a single rank; an error where it can't be had.
    Nccl,
    /// The hosts' memory.
    Staging,
}

/// What a group of GPUs is made of.
#[derive(Debug)]
pub struct DeviceGroupOptions {
    /// This rank's GPU.
    pub device: Device,
    /// What [`Library::find`] said.
    pub library: Result<Library, NcclError>,
    /// Which way to go. Ranks may differ: one that wants the hosts' memory decides for all.
    pub preference: BackendPreference,
    /// How long things may take.
    pub limits: Limits,
    /// Reads this host's clock.
    pub clock: Clock,
}

enum Backend {
    /// One rank.
    SingleRank,
    Nccl(Box<Direct>),
    Staged(Queue),
}

/// Ranks with a GPU each, that act together. Calls must be made by all ranks, in the same order, with the same lengths, kinds
/// and ways of reduction. After an error the group is unusable: start the run anew. Where the error says that NCCL
/// did not give up, end the process by `std::process::exit`: freeing GPU memory would wait for what hangs.
pub struct DeviceGroup {
    // Before the host's communicator, which its thread uses.
    backend: Backend,
    host: Host,
    device: Device,
    rank: u32,
    world: u32,
    transport: Transport,
    why: Option<String>,
    seq: u64,
}

/// An operation that was begun.
#[must_use = "nothing waits for the result but `join` and `wait`"]
pub struct DeviceWork {
    seq: u64,
    state: State,
}

enum State {
    Event(Arc<CudaEvent>),
    /// The host has to have done its part first.
    Coming(Receiver<Ended>),
    /// It failed, as was said before.
    Failed,
}

impl DeviceWork {
    /// The operation's number, from 1.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl fmt::Debug for DeviceWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceWork({})", self.seq)
    }
}

/// The host's communicator while no operation of the GPUs uses it.
pub struct HostAccess<'a>(MutexGuard<'a, Box<dyn Communicator>>);

impl Deref for HostAccess<'_> {
    type Target = dyn Communicator;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl DerefMut for HostAccess<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut()
    }
}

impl DeviceGroup {
    /// Agrees with the other ranks on the backend, by the communicator of the hosts, and opens it.
    pub fn open(
        options: DeviceGroupOptions,
        mut host: Box<dyn Communicator>,
    ) -> Result<Self, CollectiveError> {
        let (rank, world) = (host.rank(), host.world());
        let (device, clock) = (options.device.clone(), options.clock);
        let alone = world == 1 && options.preference == BackendPreference::Best;
        let joined = if alone { Ok(None) } else { init::init_comm(options, host.as_mut())?.map(Some) };
        let transport = host.transport();
        let host: Host = Arc::new(Mutex::new(host));
        let (backend, transport, why) = match joined {
            Ok(None) => (Backend::SingleRank, Transport::None, None),
            Ok(Some(comm)) => {
                let direct = Direct::new(comm, device.clone()).map_err(|error| error.on(rank))?;
                (Backend::Nccl(Box::new(direct)), Transport::Nccl, None)
            }
            Err(why) => {
                let staging = Staging::new(device.clone(), clock).map_err(|error| error.on(rank))?;
                let queue = Queue::start(staging, Arc::clone(&host)).map_err(|error| {
                    CollectiveError::System { rank, what: "start a thread", reason: error.to_string() }
                })?;
                (Backend::Staged(queue), transport, Some(why))
            }
        };
        Ok(Self { backend, host, device, rank, world, transport, why, seq: 0 })
    }

    /// How bytes travel: [`Transport::Nccl`], or how the hosts' communicator does it.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Why it is not NCCL, where NCCL was not used; for people.
    pub fn why_not_nccl(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Whether the GPU copies to and from the hosts' memory directly; `None` where it doesn't go that way, or has not yet.
    pub fn is_pinned(&self) -> Option<bool> {
        match &self.backend {
            Backend::Staged(queue) => queue.is_pinned(),
            Backend::SingleRank | Backend::Nccl(_) => None,
        }
    }

    /// This rank's GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The hosts' communicator, when all operations of the GPUs that were begun don't use it any more. It is the group's, so
    /// that all ranks use it in the same order.
    pub fn host(&mut self) -> HostAccess<'_> {
        if let Backend::Staged(queue) = &self.backend {
            queue.flush();
        }
        HostAccess(lock(&self.host))
    }

    /// Zeroed memory of the GPU, which the operations work on; registered with NCCL where that is the way and all ranks can.
    pub fn allocate(&mut self, bytes: usize) -> Result<DeviceBuffer, CollectiveError> {
        let rank = self.rank;
        let Backend::Nccl(direct) = &mut self.backend else { return self.allocate_private(bytes) };
        let agree = |own: bool| {
            let mut all = [i64::from(own)];
            lock(&self.host).allreduce(&mut all, Reduce::Min)?;
            Ok(all == [1])
        };
        direct.allocate(bytes, agree, rank)
    }

    /// As [`DeviceGroup::allocate`], but never registered: what memory of a program's own costs.
    pub fn allocate_private(&mut self, bytes: usize) -> Result<DeviceBuffer, CollectiveError> {
        let block = Block::plain(&self.device, bytes).map_err(|error| error.on(self.rank))?;
        Ok(DeviceBuffer::new(Arc::new(block), false))
    }

    /// Frees memory before the group ends: what is registered with NCCL is kept until then. All operations on it must have been
    /// waited for.
    pub fn release(&mut self, buffer: DeviceBuffer) -> Result<(), CollectiveError> {
        if let Backend::Nccl(direct) = &mut self.backend {
            direct.release(&buffer).map_err(|error| error.on(self.rank))?;
        }
        drop(buffer);
        Ok(())
    }

    /// Begins an allreduce of `range` in place, after what is on the stream `after` now. Until it is done, nothing may touch
    /// the range: put what follows behind it by [`DeviceGroup::join`].
    pub fn allreduce(
        &mut self,
        range: &DeviceRange,
        how: Reduce,
        after: &CudaStream,
    ) -> Result<DeviceWork, CollectiveError> {
        self.begin(Act::Reduce(how), range, after)
    }

    /// Begins to replace `range` by rank `root`'s; else as [`DeviceGroup::allreduce`].
    pub fn broadcast(
        &mut self,
        range: &DeviceRange,
        root: u32,
        after: &CudaStream,
    ) -> Result<DeviceWork, CollectiveError> {
        let world = self.world;
        if root >= world {
            return Err(CollectiveError::NoSuchRank { rank: root, world });
        }
        self.begin(Act::Broadcast(root), range, after)
    }

    fn begin(
        &mut self,
        act: Act,
        range: &DeviceRange,
        after: &CudaStream,
    ) -> Result<DeviceWork, CollectiveError> {
        let rank = self.rank;
        let seq = self.seq + 1;
        let state = match &mut self.backend {
            Backend::Nccl(direct) => direct.begin(seq, act, range, after).map(State::Event),
            Backend::SingleRank => self.device.mark(after).map(State::Event),
            Backend::Staged(queue) => {
                self.device.mark(after).map(|ready| State::Coming(queue.begin(seq, act, range, ready)))
            }
        };
        let state = state.map_err(|error| error.on(rank))?;
        self.seq = seq;
        Ok(DeviceWork { seq, state })
    }

    /// Puts the end of an operation before whatever is put on `stream` from now on. Where the bytes go by the hosts' memory,
    /// this waits for the host's part.
    pub fn join(&mut self, work: &mut DeviceWork, stream: &CudaStream) -> Result<(), CollectiveError> {
        let event = Self::event(work)?;
        stream.wait(&event).map_err(cuda("order two streams")).map_err(|error| error.on(self.rank))
    }

    /// Waits until an operation is done, or has failed.
    pub fn wait(&mut self, work: &mut DeviceWork) -> Result<(), CollectiveError> {
        let event = Self::event(work)?;
        self.until(&event)
    }

    /// Waits until all that is on `stream` now is done. Use this instead of the stream's own way to wait: a stream that
    /// waits for an operation that never ends would wait with it, and the error would not be seen.
    pub fn synchronize(&mut self, stream: &CudaStream) -> Result<(), CollectiveError> {
        let event = self.device.mark(stream).map_err(|error| error.on(self.rank))?;
        self.until(&event)
    }

    /// Waits until the GPU has come to `event`; as [`DeviceGroup::synchronize`].
    pub fn until(&mut self, event: &CudaEvent) -> Result<(), CollectiveError> {
        let done = match &mut self.backend {
            Backend::Nccl(direct) => direct.wait(event),
            // What is on the GPU then are copies that the host has begun, which end.
            Backend::SingleRank | Backend::Staged(_) => event.synchronize().map_err(cuda("wait for the GPU")),
        };
        done.map_err(|error| error.on(self.rank))
    }

    fn event(work: &mut DeviceWork) -> Result<Arc<CudaEvent>, CollectiveError> {
        let event = match &work.state {
            State::Event(event) => return Ok(Arc::clone(event)),
            State::Coming(ended) => ended.recv().unwrap_or(Err(CollectiveError::Abandoned)),
            State::Failed => Err(CollectiveError::Abandoned),
        };
        work.state = event.as_ref().map_or(State::Failed, |event| State::Event(Arc::clone(event)));
        event
    }

    /// Sees, without waiting, whether an operation under way has failed. Call it now and then where nothing else is called.
    pub fn watch(&mut self) -> Result<(), CollectiveError> {
        match &mut self.backend {
            Backend::Nccl(direct) => direct.watch().map_err(|error| error.on(self.rank)),
            Backend::SingleRank | Backend::Staged(_) => Ok(()),
        }
    }

    /// Where the time of the operations up to number `upto` went, once for each; all ranks must ask alike. Ask a step
    /// late: an operation that the GPU has not finished by then is left out, and nothing waits for it.
    pub fn timings(&mut self, upto: u64) -> Result<Vec<Timed>, CollectiveError> {
        let upto = upto.min(self.seq);
        match &mut self.backend {
            Backend::SingleRank => Ok(Vec::new()),
            Backend::Staged(queue) => Ok(queue.timings(upto)),
            Backend::Nccl(direct) => {
                direct.watch().map_err(|error| error.on(self.rank))?;
                let mut minimum = direct.durations.exchange(upto);
                if minimum.is_empty() {
                    return Ok(Vec::new());
                }
                let _: OpTiming = lock(&self.host).allreduce(&mut minimum, Reduce::Min)?;
                Ok(direct.durations.split(upto, &minimum))
            }
        }
    }

    /// Ends the group in order: waits for what was begun, and gives the hosts' communicator back.
    pub fn finalize(self) -> Result<Box<dyn Communicator>, CollectiveError> {
        match self.backend {
            Backend::Nccl(direct) => direct.finalize().map_err(|error| error.on(self.rank))?,
            Backend::Staged(queue) => drop(queue),
            Backend::SingleRank => {}
        }
        // The thread that shared it has ended.
        let host = Arc::into_inner(self.host).ok_or(CollectiveError::Abandoned)?;
        Ok(host.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Device {
    /// An event of the end of what is on `stream` now.
    fn mark(&self, stream: &CudaStream) -> Result<Arc<CudaEvent>, NcclError> {
        let event = self.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        let event = event.map_err(cuda("make an event"))?;
        event.record(stream).map_err(cuda("record an event"))?;
        Ok(Arc::new(event))
    }
}

impl fmt::Debug for DeviceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceGroup(rank {}, {}, {} operations)", self.rank, self.transport, self.seq)
    }
}
