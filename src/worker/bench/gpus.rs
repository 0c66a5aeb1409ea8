//! Allreduces between GPUs, one a rank: by NCCL, or staged by the hosts' memory where NCCL can't be had by all.

use std::mem::ManuallyDrop;
use std::time::Duration;

use super::pattern::Number;
use super::places;
use super::subject::Subject;
use crate::clock::host_now;
use crate::collective::nccl::{
    BackendPreference, Device, DeviceBuffer, DeviceGroup, DeviceGroupOptions, DeviceRange, Library, Limits,
    NcclError, Places,
};
use crate::collective::{CollectiveError, Communicator, Reduce};
use crate::domain::text::sanitize;
use crate::worker::env::{RankEnv, TIMEOUT};
use crate::worker::error::WorkerError;

/// What a rank needs and may lack.
pub(super) struct Card {
    device: Device,
    library: Library,
}

impl Card {
    /// This rank's, or what is missing, in words.
    pub(super) fn find(env: &RankEnv) -> Result<Self, String> {
        let local = env.group.as_ref().and_then(|group| group.local).map_or(0, |(place, _)| place);
        let library = Library::find(&Places::from_variables(|name| std::env::var_os(name)));
        match (Device::of_rank(local), library) {
            (Ok(device), Ok(library)) => Ok(Self { device, library }),
            (device, library) => {
                let faults = [device.err(), library.err()];
                let words: Vec<String> = faults.iter().flatten().map(ToString::to_string).collect();
                Err(words.join("; "))
            }
        }
    }

    /// `0 NVIDIA H100`, for people.
    pub(super) fn name(&self) -> String {
        let name = self.device.name().unwrap_or_else(|error| error.to_string());
        format!("{} {name}", self.device.ordinal())
    }

    /// NCCL's version.
    pub(super) fn version(&self) -> String {
        self.library.version()
    }
}

/// Every rank's card, or on all ranks alike the first rank that lacks one, and what it lacks.
pub(super) fn all_or_none(
    ranks: &mut dyn Communicator,
    found: Result<Card, String>,
) -> Result<Card, WorkerError> {
    let told = places::tell(ranks, found.as_ref().err().map_or("", String::as_str))?;
    match (told.iter().position(|fault| !fault.is_empty()), found) {
        (None, Ok(card)) => Ok(card),
        (first, found) => {
            let rank = first.unwrap_or(0);
            // its own rank knows the whole text
            let own = found.err().filter(|_| rank == ranks.rank() as usize);
            let reason = own.or_else(|| told.into_iter().nth(rank)).unwrap_or_default();
            Err(WorkerError::NoNccl { rank: rank as u32, reason: sanitize(&reason).into_owned() })
        }
    }
}

/// Ranks whose values are in their GPUs' memory.
///
/// Left by [`OnGpus::finalize`]. Without it nothing is freed: the process ends with the error, and freeing a GPU's memory
/// would wait for what hangs on it.
pub(super) struct OnGpus(ManuallyDrop<DeviceGroup>);

/// Values of a GPU, and the host's copy that they come from and go to.
pub(super) struct GpuMemory<T> {
    buffer: DeviceBuffer,
    range: DeviceRange,
    host: Vec<T>,
}

impl OnGpus {
    /// Lets the ranks agree on NCCL or the hosts' memory.
    pub(super) fn open(
        env: &RankEnv,
        card: Card,
        ranks: Box<dyn Communicator>,
    ) -> Result<Self, CollectiveError> {
        let deadline: Duration = env.group.as_ref().map_or(TIMEOUT, |group| group.timeout);
        let options = DeviceGroupOptions {
            device: card.device,
            library: Ok(card.library),
            // a single rank goes no way at all unless it must
            preference: if ranks.world() == 1 { BackendPreference::Nccl } else { BackendPreference::Best },
            limits: Limits::within(deadline),
            clock: host_now,
        };
        Ok(Self(ManuallyDrop::new(DeviceGroup::open(options, ranks)?)))
    }

    /// How the bytes go.
    pub(super) fn transport(&self) -> &'static str {
        self.0.transport().name()
    }

    /// Why they don't go by NCCL, where they don't: in rank 0's words, and in those of each rank that knows it otherwise.
    pub(super) fn why_staged(&mut self) -> Result<Option<String>, CollectiveError> {
        let own = self.0.why_not_nccl().unwrap_or_default().to_owned();
        let mut all = places::tell(&mut *self.0.host(), &own)?.into_iter();
        let first = all.next().unwrap_or_default();
        let others = (1..).zip(all).filter(|(_, why)| *why != first);
        let words = others.fold(first.clone(), |words, (rank, why)| format!("{words}; rank {rank}: {why}"));
        Ok((!words.is_empty()).then(|| sanitize(&words).into_owned()))
    }

    /// Ends the group in order.
    pub(super) fn finalize(self) -> Result<Box<dyn Communicator>, CollectiveError> {
        ManuallyDrop::into_inner(self.0).finalize()
    }

    fn on(&mut self, error: NcclError) -> CollectiveError {
        let rank = self.0.host().rank();
        error.on(rank)
    }

    fn memory<T: Number>(
        &mut self,
        count: usize,
        allocate: impl FnOnce(&mut DeviceGroup, usize) -> Result<DeviceBuffer, CollectiveError>,
    ) -> Result<GpuMemory<T>, CollectiveError> {
        let buffer = allocate(&mut self.0, count * size_of::<T>())?;
        let range = buffer.all(T::DTYPE).map_err(|error| self.on(error))?;
        Ok(GpuMemory { range, buffer, host: vec![T::default(); count] })
    }
}

impl Subject for OnGpus {
    type Memory<T: Number> = GpuMemory<T>;

    fn with<R>(&mut self, act: impl FnOnce(&mut dyn Communicator) -> R) -> R {
        act(&mut *self.0.host())
    }

    fn registered<T: Number>(&mut self, count: usize) -> Result<Option<GpuMemory<T>>, CollectiveError> {
        Ok(Some(self.memory(count, DeviceGroup::allocate)?).filter(|memory| memory.buffer.is_registered()))
    }

    fn private<T: Number>(&mut self, count: usize) -> Result<GpuMemory<T>, CollectiveError> {
        self.memory(count, DeviceGroup::allocate_private)
    }

    fn release<T: Number>(&mut self, memory: GpuMemory<T>) -> Result<(), CollectiveError> {
        drop(memory.range);
        self.0.release(memory.buffer)
    }

    fn write<T: Number>(
        &mut self,
        memory: &mut GpuMemory<T>,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<(), CollectiveError> {
        fill(&mut memory.host);
        memory.range.write(bytemuck::cast_slice(&memory.host)).map_err(|error| self.on(error))
    }

    fn read<T: Number, R>(
        &mut self,
        memory: &mut GpuMemory<T>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R, CollectiveError> {
        // what was written must not be taken for what was read
        memory.host.fill(T::default());
        let copied = memory.range.read(bytemuck::cast_slice_mut(&mut memory.host));
        copied.map_err(|error| self.on(error))?;
        Ok(look(&memory.host))
    }

    fn allreduce<T: Number>(
        &mut self,
        memory: &mut GpuMemory<T>,
        how: Reduce,
    ) -> Result<(), CollectiveError> {
        let stream = self.0.device().context().default_stream();
        let mut work = self.0.allreduce(&memory.range, how, &stream)?;
        self.0.wait(&mut work)
    }

    fn in_a_row<T: Number>(
        &mut self,
        memory: &mut GpuMemory<T>,
        how: Reduce,
        calls: u64,
    ) -> Result<bool, CollectiveError> {
        let stream = self.0.device().context().default_stream();
        let begin = |_| self.0.allreduce(&memory.range, how, &stream);
        let in_flight: Vec<_> = (0..calls).map(begin).collect::<Result<_, _>>()?;
        for mut work in in_flight {
            self.0.wait(&mut work)?;
        }
        Ok(true)
    }
}
