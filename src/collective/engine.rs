//! The engine of a group: what one rank does in each operation.
//!
//! All ranks enter a *barrier*: on one host each raises a flag in shared memory that says what it is about to do; between hosts the
//! leaders tell each other. Who diverges or is missing is found there, and the time until then is the *wait*. Small
//! values travel with the barrier. Then large ones move: within a host every rank reduces its part of all buffers, and
//! between hosts every rank drives a slice around a ring.

use super::between;
use super::buffer::{self, Buffer};
use super::config::GroupConfig;
use super::connect::Layout;
use super::element::{DType, Reduce, Span, Values};
use super::error::CollectiveError;
use super::failure_detector::FailureDetector;
use super::flight::{Flight, Recorder};
use super::job::{Job, Task};
use super::kernels::{self, Finish};
use super::model;
use super::op::{OpId, OpKind, OpTiming, Transport};
use super::shm::{self, Host, Lives, OpDescriptor, PRIVATE, SMALL};
use super::tcp::{Fold, HostRing, Mesh};
use super::within;

/// One rank's end of a group.
pub(super) struct Engine {
    pub(super) config: GroupConfig,
    pub(super) layout: Layout,
    pub(super) detector: FailureDetector,
    /// The ranks that share memory with this one; `None` when it is alone on its host.
    pub(super) host: Option<Host>,
    /// Who of the host lives, itself among them.
    pub(super) lives: Option<Lives>,
    /// The slices that this rank drives around the hosts.
    pub(super) rings: Vec<(usize, HostRing)>,
    /// A leader's connections to the other leaders; `None` for others, and with one host.
    pub(super) mesh: Option<Mesh>,
    pub(super) seq: u64,
    pub(super) broken: Option<CollectiveError>,
    pub(super) recorder: Recorder,
    /// Shared memory for values that lie elsewhere.
    pub(super) scratch: Option<Buffer<u8>>,
    /// Means of f16 on their way between hosts, in f32.
    pub(super) wide: Option<Buffer<u8>>,
    /// What leaders exchange.
    pub(super) exchanged: Buffer<u8>,
    /// The most bytes that travel with the barrier.
    pub(super) limit: usize,
}

impl Engine {
    /// How bytes travel.
    pub(super) fn transport(&self) -> Transport {
        match (
            self.host.is_some() || self.layout.hosts.iter().any(|ranks| ranks.len() > 1),
            self.layout.hosts.len(),
        ) {
            (_, 1) => Transport::Shm,
            (true, _) => Transport::ShmTcp,
            (false, _) => Transport::Tcp,
        }
    }

    /// Memory that the host's other ranks can reach; ordinary memory when there are none.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Buffer<u8>, CollectiveError> {
        let Some(host) = &self.host else { return Ok(buffer::heap(bytes)) };
        let block = host.allocate(bytes).map_err(self.config.system("reserve shared memory"))?;
        Ok(Buffer::whole(std::sync::Arc::new(block)).truncate(bytes))
    }

    /// The last operations, in nanoseconds on this host's clock.
    pub(super) fn flight(&self) -> Flight {
        let clock = self.config.clock;
        self.recorder.flight(self.config.ticker, clock)
    }

    /// One operation on `values` (none for a barrier).
    pub(super) fn operate(&mut self, kind: OpKind, values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if let Some(error) = self.detector.known(&self.config) {
            return Err(error);
        }
        self.seq += 1;
        let op = OpId { kind, seq: self.seq, len: values.len() as u64 };
        let ticker = self.config.ticker;
        let enter = ticker.now();
        self.recorder.entered(op, enter);
        let span = values.span();
        match self.run(op, values) {
            Ok(all_entered) => {
                let leave = ticker.now();
                let all_entered = all_entered.unwrap_or(leave);
                self.recorder.all_entered(all_entered);
                self.recorder.left(leave);
                Ok(OpTiming {
                    wait: ticker.between(enter, all_entered),
                    transfer: ticker.between(all_entered, leave),
                })
            }
            Err(error) => {
                // What is in flight is unknown, so there is no next operation; the others learn of it at once.
                self.broken = Some(error.clone());
                if let Some(lives) = &mut self.lives {
                    lives.end();
                }
                if let Some(host) = &self.host {
                    host.wake_all();
                    host.withdraw(span.start(), span.len());
                }
                self.rings.iter().for_each(|(_, ring)| ring.close());
                if let Some(mesh) = &self.mesh {
                    mesh.close();
                }
                Err(error)
            }
        }
    }

    /// Finds out which sizes shall travel with the barrier: by the model on one host, and by what leaders exchange at once
    /// between hosts. A few milliseconds; all ranks do it together.
    pub(super) fn fit(&mut self) -> Result<(), CollectiveError> {
        self.limit = SMALL;
        if self.layout.hosts.len() > 1 {
            return Ok(());
        }
        let mut shared = self.allocate(model::SIZES[1])?.cast::<f32>();
        let mut private = vec![0.0_f32; model::SIZES[1] / size_of::<f32>()];
        let mut times = Vec::new();
        for (limit, in_shared) in [(SMALL, false), (0, true), (0, false)] {
            self.limit = limit;
            for size in model::SIZES {
                let values = if in_shared { &mut shared[..] } else { &mut private[..] };
                times.push(self.median(&mut values[..size / size_of::<f32>()])? as f32);
            }
        }
        // The slowest rank's, everywhere the same.
        self.limit = SMALL;
        let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Max };
        self.operate(kind, Values::of(&mut times))?;
        let pair = |at: usize| [f64::from(times[at]), f64::from(times[at + 1])];
        self.limit = model::limit(pair(0), &[pair(2), pair(4)]);
        // The measurement is not an operation of the program's.
        self.seq = 0;
        self.recorder = Recorder::new();
        Ok(())
    }

    /// The median time of some allreduces of zeros, in ticks.
    fn median(&mut self, values: &mut [f32]) -> Result<u64, CollectiveError> {
        // Many ranks that share a core take turns by time slices, and a start would take as many of them.
        let crowded = self.host.as_ref().is_some_and(|host| host.ranks() > 8 * shm::cores());
        let tries = if crowded { 3 } else { 15 };
        let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Sum };
        let mut ticks = vec![0; tries];
        for one in &mut ticks {
            let begin = self.config.ticker.now();
            self.operate(kind, Values::of(values))?;
            *one = self.config.ticker.now().saturating_sub(begin);
        }
        ticks.sort_unstable();
        Ok(ticks[tries / 2])
    }

    /// When all had entered the barrier, if something was to be done after that.
    fn run(&mut self, op: OpId, mut values: Values<'_>) -> Result<Option<u64>, CollectiveError> {
        let (dtype, how) = match op.kind {
            OpKind::Allreduce { dtype, how } | OpKind::ReduceScatter { dtype, how } => (dtype, how),
            OpKind::Allgather { dtype } | OpKind::Broadcast { dtype, .. } => (dtype, Reduce::Sum),
            OpKind::Barrier => (DType::F32, Reduce::Sum),
        };
        let finish = if how == Reduce::Mean { Finish::Divide(self.config.world) } else { Finish::Keep };
        let task = Task { op, fold: Fold { dtype, how, finish } };
        if self.travels_wide(dtype, how) {
            self.widened(task, values.bytes())
        } else {
            self.carry(task, values.span())
        }
    }

    /// Whether values travel in f32: the sum of more than two f16 can be more than f16 holds though their mean is not, and
    /// between hosts sums are rounded to what travels.
    fn travels_wide(&self, dtype: DType, how: Reduce) -> bool {
        (dtype, how) == (DType::F16, Reduce::Mean) && self.layout.hosts.len() > 1 && self.config.world > 2
    }

    /// [`Self::carry`] of f16 in f32.
    fn widened(&mut self, task: Task, bytes: &mut [u8]) -> Result<Option<u64>, CollectiveError> {
        let len = 2 * bytes.len();
        let mut wide = match self.wide.take().filter(|wide| wide.len() >= len) {
            Some(wide) => wide,
            None => self.allocate(len.next_power_of_two())?,
        };
        kernels::widen(bytes, &mut wide[..len]);
        let task = Task { fold: Fold { dtype: DType::F32, ..task.fold }, ..task };
        let all_entered = self.carry(task, Span::of(&mut wide[..len]))?;
        kernels::narrow(&wide[..len], bytes);
        self.wide = Some(wide);
        Ok(all_entered)
    }

    /// When all had entered the barrier, if something was to be done after that.
    #[expect(unsafe_code, reason = "what the other ranks do not work on is a slice")]
    fn carry(&mut self, task: Task, values: Span) -> Result<Option<u64>, CollectiveError> {
        let op = task.op;
        if values.len() <= self.limit {
            // SAFETY: small values are copied beside the barrier; nothing else touches these.
            return self.small(task, unsafe { values.bytes() }).map(|()| None);
        }
        // All but an allreduce on one host need the values where all ranks of the host reach them.
        let direct = matches!(op.kind, OpKind::Allreduce { .. }) && self.layout.hosts.len() == 1;
        let private = |host: &Host| host.place_of(values.start(), values.len()) == PRIVATE;
        if direct || !self.host.as_ref().is_some_and(private) {
            return self.large(task, values).map(Some);
        }
        let len = values.len();
        let mut scratch = match self.scratch.take().filter(|scratch| scratch.len() >= len) {
            Some(scratch) => scratch,
            None => self.allocate(len.next_power_of_two())?,
        };
        // SAFETY: memory that no other rank can reach.
        let bytes = unsafe { values.bytes() };
        scratch[..len].copy_from_slice(bytes);
        let all_entered = self.large(task, Span::of(&mut scratch[..len]))?;
        bytes.copy_from_slice(&scratch[..len]);
        self.scratch = Some(scratch);
        Ok(Some(all_entered))
    }

    /// Few bytes: they travel with the barrier.
    fn small(&mut self, task: Task, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        let Self { config, layout, detector, host, lives, mesh, exchanged, .. } = self;
        let op = task.op;
        let mut job = Job::new(op, config, layout, detector, lives.as_ref());
        let descriptor = OpDescriptor { kind: op.kind.code(), len: op.len, place: PRIVATE };
        if let Some(host) = host {
            host.barrier(descriptor, bytes, &mut job).map_err(|error| job.barrier_failed(error))?;
        }
        if layout.hosts.len() == 1 {
            if let Some(host) = host {
                within::small(host, task, bytes, config.rank as usize);
            }
            return Ok(());
        }
        // The leader adds up its host, exchanges with the other leaders, and hands the result on. What is not reduced is
        // put at its place among zeros, and added: x + 0 is x, and bits are kept by adding them as integers.
        let leads = mesh.is_some();
        if leads {
            let (fold, whole) = between::joined(task, bytes.len());
            let exchanged = &mut exchanged[..whole];
            exchanged.fill(0);
            let own = &mut exchanged[..bytes.len()];
            match host {
                Some(host) => between::gathered(host, job.layout, task, own, config),
                None => between::placed(task, bytes, own, config),
            }
            if let Some(mesh) = mesh {
                mesh.exchange(op, fold, exchanged, &mut || job.tick())
                    .map_err(|broken| job.broken(broken))?;
            }
            if let Some(host) = host {
                host.let_go(exchanged);
            }
            bytes.copy_from_slice(&exchanged[..bytes.len()]);
        } else if let Some(host) = host {
            host.wait_for_go(bytes, &mut job)?;
        }
        Ok(())
    }

    /// Many bytes: a barrier, then the bytes. When all had entered the barrier.
    fn large(&mut self, task: Task, values: Span) -> Result<u64, CollectiveError> {
        let Self { config, layout, detector, host, lives, rings, mesh, .. } = self;
        let op = task.op;
        let mut job = Job::new(op, config, layout, detector, lives.as_ref());
        if let Some(host) = host {
            let place = host.place_of(values.start(), values.len());
            let descriptor = OpDescriptor { kind: op.kind.code(), len: op.len, place };
            host.barrier(descriptor, &[], &mut job).map_err(|error| job.barrier_failed(error))?;
        }
        if let Some(mesh) = mesh {
            mesh.exchange(op, task.fold, &mut [], &mut || job.tick()).map_err(|broken| job.broken(broken))?;
        }
        if layout.hosts.len() > 1
            && let Some(host) = host
        {
            if host.me() == 0 {
                host.let_go(&[]);
            } else {
                host.wait_for_go(&mut [], &mut job)?;
            }
        }
        let all_entered = config.ticker.now();
        job.renew();
        let located = match host {
            Some(host) => {
                host.locate(values.start(), values.len()).map_err(|error| job.barrier_failed(error))?
            }
            None => false,
        };
        if layout.hosts.len() == 1 {
            if let Some(host) = host {
                within::large(host, task, values, located, &mut job)?;
            }
            return Ok(all_entered);
        }
        between::large(host.as_mut(), rings, task, values, &mut job)?;
        Ok(all_entered)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The others learn that what this rank leaves behind is whole. One that panics leaves no such word.
        if self.broken.is_none() && !std::thread::panicking() {
            self.detector.finalize(OpId { kind: OpKind::Barrier, seq: self.seq, len: 0 });
        }
    }
}
