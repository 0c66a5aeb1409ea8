//! The engine of a group: what one rank does in each operation.
//!
//! All ranks *meet*: on one host each raises a flag in shared memory that says what it is about to do; between hosts the
//! leaders tell each other. Who diverges or is missing is found there, and the time until then is the *wait*. Small
//! values travel with the meeting. Then large ones move: within a host every rank reduces its part of all buffers, and
//! between hosts every rank drives a slice around a ring.

use std::ops::Range;

use super::buffer::{self, Buffer};
use super::communicator::chunk;
use super::config::GroupConfig;
use super::connect::Layout;
use super::control::Cause;
use super::element::{DType, Reduce, Values};
use super::error::CollectiveError;
use super::flight::{Flight, Recorder};
use super::kernels::Finish;
use super::model;
use super::op::{OpId, OpKind, OpTiming, Transport};
use super::shm::{Host, Lives, Look, PRIVATE, SMALL, Said, Unmet, part};
use super::tcp::{Broken, Fold, HostRing, Mesh, Mood, Work};
use super::trouble::{Plight, Trouble, Wait};

/// One rank's end of a group.
pub(super) struct Engine {
    pub(super) config: GroupConfig,
    pub(super) layout: Layout,
    pub(super) trouble: Trouble,
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
    /// What leaders exchange.
    pub(super) exchanged: Buffer<u8>,
    /// The most bytes that travel with a meeting.
    pub(super) limit: usize,
}

/// What the parts of an operation need.
struct Job<'a> {
    config: &'a GroupConfig,
    layout: &'a Layout,
    trouble: &'a mut Trouble,
    lives: Option<&'a Lives>,
    /// Places of the host that had gone when this rank last looked.
    gone: Vec<usize>,
    wait: Wait,
}

impl Job<'_> {
    /// The ranks at these places of this rank's host.
    fn name(&self, places: &[usize]) -> Vec<u32> {
        let (host, _) = self.layout.place(self.config.rank);
        places.iter().map(|place| self.layout.hosts[host][*place]).collect()
    }

    fn complain(&mut self, plight: Plight) -> CollectiveError {
        self.trouble.complain(self.config, &self.wait, plight)
    }

    fn unmet(&mut self, unmet: Unmet) -> CollectiveError {
        match unmet {
            Unmet::Failed(error) => error,
            Unmet::Garbled(place) => {
                let what = "a place outside of its shared memory".to_owned();
                let about = self.name(&[place])[0];
                self.complain(Plight { what, ..Plight::of(about, Cause::Garbled) })
            }
            Unmet::Diverged(place, said) => {
                let about = self.name(&[place])[0];
                let seq = self.wait.op.seq;
                let theirs = OpKind::from_code(said.kind).map(|kind| OpId { kind, seq, len: said.len });
                match theirs {
                    Some(theirs) => {
                        self.complain(Plight { theirs: Some(theirs), ..Plight::of(about, Cause::Diverged) })
                    }
                    None => self.complain(Plight {
                        what: "no operation".to_owned(),
                        ..Plight::of(about, Cause::Garbled)
                    }),
                }
            }
        }
    }

    fn broken(&mut self, broken: Broken) -> CollectiveError {
        use super::tcp::Trouble as What;
        let fault = match broken {
            Broken::Told(error) => return error,
            Broken::Fault(fault) => fault,
        };
        self.wait.progress = fault.progress;
        let (cause, theirs, what) = match fault.trouble {
            What::Lost => (Cause::Lost, None, String::new()),
            What::Stuck => (Cause::Stuck, None, String::new()),
            What::Garbled(what) => (Cause::Garbled, None, what),
            What::Diverged(theirs) => (Cause::Diverged, Some(theirs), String::new()),
        };
        self.complain(Plight { about: fault.about, more: Vec::new(), cause, theirs, what })
    }

    /// Time for the next part begins now.
    fn renew(&mut self) {
        self.wait.deadline = None;
    }

    fn tick(&mut self, about: &[u32]) -> Result<Mood, CollectiveError> {
        let late = self.trouble.look(self.config, &mut self.wait, about)?;
        Ok(if late { Mood::OutOfTime } else { Mood::Patient })
    }
}

impl Look for Job<'_> {
    fn look(&mut self, missing: &[usize]) -> Result<(), CollectiveError> {
        let about = self.name(missing);
        let late = self.trouble.look(self.config, &mut self.wait, &about)?;
        // Who had gone at the last look, and is still missed, did not come before it went.
        if let Some(place) = missing.iter().find(|place| self.gone.contains(place)) {
            let about = self.name(&[*place])[0];
            return Err(self.complain(Plight::of(about, Cause::Lost)));
        }
        if let Some(lives) = self.lives {
            self.gone.clear();
            self.gone.extend(missing.iter().copied().filter(|place| lives.is_gone(*place)));
        }
        if !late || about.is_empty() {
            return Ok(());
        }
        Err(self.complain(Plight { more: about[1..].to_vec(), ..Plight::of(about[0], Cause::Stuck) }))
    }
}

/// What is to be done with the values, once all have met.
#[derive(Clone, Copy)]
struct Task {
    op: OpId,
    /// Of one value, and how they are reduced; a way that is not used for what is not reduced.
    fold: Fold,
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
        let block = host.allocate(bytes).ok_or_else(|| CollectiveError::System {
            rank: self.config.rank,
            what: "reserve shared memory",
            reason: format!("{bytes} bytes are more than is left of the host's memory"),
        })?;
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
        if let Some(error) = self.trouble.known(&self.config) {
            return Err(error);
        }
        self.seq += 1;
        let op = OpId { kind, seq: self.seq, len: values.len() as u64 };
        let ticker = self.config.ticker;
        let enter = ticker.now();
        self.recorder.entered(op, enter);
        match self.run(op, values) {
            Ok(met) => {
                let leave = ticker.now();
                let met = met.unwrap_or(leave);
                self.recorder.met(met);
                self.recorder.left(leave);
                Ok(OpTiming { wait: ticker.between(enter, met), transfer: ticker.between(met, leave) })
            }
            Err(error) => {
                // What is in flight is unknown, so there is no next operation; the others learn of it at once.
                self.broken = Some(error.clone());
                if let Some(lives) = &mut self.lives {
                    lives.end();
                }
                if let Some(host) = &self.host {
                    host.wake_all();
                }
                self.rings.iter().for_each(|(_, ring)| ring.close());
                if let Some(mesh) = &self.mesh {
                    mesh.close();
                }
                Err(error)
            }
        }
    }

    /// Finds out which sizes shall travel with a meeting: by the model on one host, and by what leaders exchange at once
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
        // What was done here is nobody's operation.
        self.seq = 0;
        self.recorder = Recorder::new();
        Ok(())
    }

    /// The median time of some allreduces of zeros, in ticks.
    fn median(&mut self, values: &mut [f32]) -> Result<u64, CollectiveError> {
        const TRIES: usize = 15;
        let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Sum };
        let mut ticks = [0; TRIES];
        for one in &mut ticks {
            let begin = self.config.ticker.now();
            self.operate(kind, Values::of(values))?;
            *one = self.config.ticker.now().saturating_sub(begin);
        }
        ticks.sort_unstable();
        Ok(ticks[TRIES / 2])
    }

    /// When all had met, if something was to be done after that.
    fn run(&mut self, op: OpId, mut values: Values<'_>) -> Result<Option<u64>, CollectiveError> {
        let (dtype, how) = match op.kind {
            OpKind::Allreduce { dtype, how } | OpKind::ReduceScatter { dtype, how } => (dtype, how),
            OpKind::Allgather { dtype } | OpKind::Broadcast { dtype, .. } => (dtype, Reduce::Sum),
            OpKind::Barrier => (DType::F32, Reduce::Sum),
        };
        let finish = if how == Reduce::Mean { Finish::Divide(self.config.world) } else { Finish::Keep };
        let task = Task { op, fold: Fold { dtype, how, finish } };
        let bytes = values.bytes();
        if bytes.len() <= self.limit {
            return self.small(task, bytes).map(|()| None);
        }
        // All but an allreduce on one host need the values where all ranks of the host reach them.
        let direct = matches!(op.kind, OpKind::Allreduce { .. }) && self.layout.hosts.len() == 1;
        let private =
            self.host.as_ref().is_some_and(|host| host.place_of(bytes.as_ptr(), bytes.len()) == PRIVATE);
        if direct || !private {
            return self.large(task, bytes).map(Some);
        }
        let mut scratch = match self.scratch.take().filter(|scratch| scratch.len() >= bytes.len()) {
            Some(scratch) => scratch,
            None => self.allocate(bytes.len().next_power_of_two())?,
        };
        scratch[..bytes.len()].copy_from_slice(bytes);
        let met = self.large(task, &mut scratch[..bytes.len()])?;
        bytes.copy_from_slice(&scratch[..bytes.len()]);
        self.scratch = Some(scratch);
        Ok(Some(met))
    }

    /// Few bytes: they travel with the meeting.
    fn small(&mut self, task: Task, bytes: &mut [u8]) -> Result<(), CollectiveError> {
        let Self { config, layout, trouble, host, lives, mesh, exchanged, .. } = self;
        let op = task.op;
        let mut job =
            Job { config, layout, trouble, lives: lives.as_ref(), gone: Vec::new(), wait: Wait::new(op) };
        let said = Said { kind: op.kind.code(), len: op.len, place: PRIVATE };
        if let Some(host) = host {
            host.meet(said, bytes, &mut job).map_err(|unmet| job.unmet(unmet))?;
        }
        if layout.hosts.len() == 1 {
            if let Some(host) = host {
                small_within(host, task, bytes, config.rank as usize);
            }
            return Ok(());
        }
        // The leader adds up its host, exchanges with the other leaders, and hands the result on. What is not reduced is
        // put at its place among zeros, and added: x + 0 is x, and bits are kept by adding them as integers.
        let leads = mesh.is_some();
        if leads {
            let (fold, whole) = joined(task, bytes.len());
            let exchanged = &mut exchanged[..whole];
            exchanged.fill(0);
            let own = &mut exchanged[..bytes.len()];
            match host {
                Some(host) => local_small(host, job.layout, task, own, config),
                None => placed(task, bytes, own, config),
            }
            if let Some(mesh) = mesh {
                mesh.exchange(op, fold, exchanged, &mut |about| job.tick(&[about]))
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

    /// Many bytes: a meeting, then the bytes. When all had met.
    fn large(&mut self, task: Task, bytes: &mut [u8]) -> Result<u64, CollectiveError> {
        let Self { config, layout, trouble, host, lives, rings, mesh, .. } = self;
        let op = task.op;
        let mut job =
            Job { config, layout, trouble, lives: lives.as_ref(), gone: Vec::new(), wait: Wait::new(op) };
        if let Some(host) = host {
            let place = host.place_of(bytes.as_ptr(), bytes.len());
            let said = Said { kind: op.kind.code(), len: op.len, place };
            host.meet(said, &[], &mut job).map_err(|unmet| job.unmet(unmet))?;
        }
        if let Some(mesh) = mesh {
            mesh.exchange(op, task.fold, &mut [], &mut |about| job.tick(&[about]))
                .map_err(|broken| job.broken(broken))?;
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
        let met = config.ticker.now();
        job.renew();
        let located = match host {
            Some(host) => host.locate(bytes.len()).map_err(|unmet| job.unmet(unmet))?,
            None => false,
        };
        if layout.hosts.len() == 1 {
            if let Some(host) = host {
                large_within(host, task, bytes, located, &mut job)?;
            }
            return Ok(met);
        }
        across(host.as_mut(), rings, task, bytes, &mut job)?;
        Ok(met)
    }
}

/// The chunk of a rank, in bytes.
fn chunk_bytes(rank: usize, world: usize, op: OpId, dtype: DType) -> Range<usize> {
    let values = chunk(rank, world, op.len as usize);
    values.start * dtype.size()..values.end * dtype.size()
}

/// All ranks are here, and their small values on the board.
fn small_within(host: &mut Host, task: Task, bytes: &mut [u8], me: usize) {
    let Task { op, fold } = task;
    let (what, len, ranks) = ((fold.dtype, fold.how), bytes.len(), host.ranks());
    match op.kind {
        OpKind::Barrier => {}
        OpKind::Allreduce { .. } => host.reduce_small(what, fold.finish, bytes, 0, len),
        OpKind::ReduceScatter { dtype, .. } => {
            let own = chunk_bytes(me, ranks, op, dtype);
            host.reduce_small(what, fold.finish, &mut bytes[own.clone()], own.start, len);
        }
        OpKind::Allgather { dtype } => {
            for rank in (0..ranks).filter(|rank| *rank != me) {
                let theirs = chunk_bytes(rank, ranks, op, dtype);
                host.copy_small(rank, &mut bytes[theirs.clone()], theirs.start, len);
            }
        }
        OpKind::Broadcast { root, .. } => {
            if root as usize != me {
                host.copy_small(root as usize, bytes, 0, len);
            }
        }
    }
}

/// How leaders join the `len` bytes that they bring, and how many bytes they exchange for that: reductions by their own
/// rule, the rest as bits among zeros. Bits are joined as integers, for which zeros may follow them.
fn joined(task: Task, len: usize) -> (Fold, usize) {
    match task.op.kind {
        OpKind::Allgather { .. } | OpKind::Broadcast { .. } => {
            let fold = Fold { dtype: DType::I64, how: Reduce::Sum, finish: Finish::Keep };
            (fold, len.next_multiple_of(DType::I64.size()))
        }
        _ => (task.fold, len),
    }
}

/// Puts among zeros what one rank that is alone on its host brings to the leaders.
fn placed(task: Task, bytes: &[u8], all: &mut [u8], config: &GroupConfig) {
    let own = brought(task, config.rank as usize, config.world as usize, bytes.len());
    all[own.clone()].copy_from_slice(&bytes[own]);
}

/// Puts among zeros what the ranks of a host bring together.
fn local_small(host: &mut Host, layout: &Layout, task: Task, all: &mut [u8], config: &GroupConfig) {
    let len = all.len();
    if matches!(task.op.kind, OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. }) {
        host.reduce_small((task.fold.dtype, task.fold.how), Finish::Keep, all, 0, len);
        return;
    }
    let (at, _) = layout.place(config.rank);
    for (place, rank) in layout.hosts[at].iter().enumerate() {
        let theirs = brought(task, *rank as usize, config.world as usize, len);
        host.copy_small(place, &mut all[theirs.clone()], theirs.start, len);
    }
}

/// The bytes that a rank brings to an operation.
fn brought(task: Task, rank: usize, world: usize, len: usize) -> Range<usize> {
    match task.op.kind {
        OpKind::Allgather { dtype } => chunk_bytes(rank, world, task.op, dtype),
        OpKind::Broadcast { root, .. } if root as usize != rank => 0..0,
        _ => 0..len,
    }
}

/// Many bytes on one host.
fn large_within(
    host: &mut Host,
    task: Task,
    bytes: &mut [u8],
    located: bool,
    look: &mut dyn Look,
) -> Result<(), CollectiveError> {
    let Task { op, fold } = task;
    let (what, ranks) = ((fold.dtype, fold.how), host.ranks());
    let own = |dtype| chunk_bytes(host.me(), ranks, op, dtype);
    match op.kind {
        OpKind::Barrier => Ok(()),
        OpKind::Allreduce { .. } if located => host.allreduce_direct(what, fold.finish, bytes.len(), look),
        OpKind::Allreduce { .. } => host.allreduce_staged(what, fold.finish, bytes, look),
        OpKind::ReduceScatter { dtype, .. } => {
            let own = own(dtype);
            host.reduce_scatter_direct(what, fold.finish, own, look)
        }
        OpKind::Allgather { dtype } => {
            host.allgather_direct(&|rank| chunk_bytes(rank, ranks, op, dtype), look)
        }
        OpKind::Broadcast { root, .. } => host.broadcast_direct(root as usize, bytes.len(), look),
    }
}

/// One slice of a buffer, on its way around the hosts.
struct Slice<'a, 'b> {
    host: Option<&'a Host>,
    /// This rank's own memory of the slice.
    memory: &'a mut [u8],
    /// Where the slice begins in the buffer.
    from: usize,
    what: (DType, Reduce),
    /// Whether the ranks of a host are to be added up first.
    reduces: bool,
    job: &'a mut Job<'b>,
}

impl Work for Slice<'_, '_> {
    fn memory(&mut self) -> &mut [u8] {
        self.memory
    }

    fn prepare(&mut self, range: Range<usize>) {
        if let Some(host) = self.host
            && self.reduces
        {
            host.reduce_into_own(self.what, Finish::Keep, self.from + range.start..self.from + range.end);
        }
    }

    fn finish(&mut self, range: Range<usize>) {
        if let Some(host) = self.host {
            host.spread(self.from + range.start..self.from + range.end);
        }
    }

    fn tick(&mut self, about: u32) -> Result<Mood, CollectiveError> {
        self.job.tick(&[about])
    }
}

/// Many bytes between hosts: each driver takes its slices around, and then the host's ranks wait for each other.
fn across(
    mut host: Option<&mut Host>,
    rings: &mut [(usize, HostRing)],
    task: Task,
    bytes: &mut [u8],
    job: &mut Job<'_>,
) -> Result<(), CollectiveError> {
    let Task { op, fold } = task;
    let slices = job.layout.slices();
    let world = job.config.world as usize;
    let mine = job.layout.place(job.config.rank);
    // The root's host gathers what its root brings before the slices start from there.
    if let (OpKind::Broadcast { root, .. }, Some(host)) = (op.kind, host.as_deref_mut()) {
        let (at, place) = job.layout.place(root);
        if at == mine.0 {
            host.broadcast_direct(place, bytes.len(), job)?;
        }
    }
    if let (OpKind::Allgather { dtype }, Some(host)) = (op.kind, host.as_deref_mut()) {
        let ranks = job.layout.hosts[mine.0].clone();
        host.allgather_direct(&|place| chunk_bytes(ranks[place] as usize, world, op, dtype), job)?;
    }
    for (slice, ring) in rings {
        let range = part(*slice, slices, bytes.len());
        let memory = &mut bytes[range.clone()];
        let what = (fold.dtype, fold.how);
        let reduces = matches!(op.kind, OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. });
        let layout = job.layout;
        let mut work = Slice { host: host.as_deref(), memory, from: range.start, what, reduces, job };
        let outcome = match op.kind {
            OpKind::Barrier => Ok(()),
            OpKind::Allreduce { .. } | OpKind::ReduceScatter { .. } => ring.allreduce(op, fold, &mut work),
            OpKind::Broadcast { root, .. } => ring.broadcast(op, layout.place(root).0, &mut work),
            OpKind::Allgather { dtype } => {
                let clip = |rank: &u32| {
                    let bytes = chunk_bytes(*rank as usize, world, op, dtype);
                    let (start, end) = (bytes.start.max(range.start), bytes.end.min(range.end));
                    (start < end).then(|| start - range.start..end - range.start)
                };
                let blocks: Vec<Vec<Range<usize>>> =
                    layout.hosts.iter().map(|ranks| ranks.iter().filter_map(clip).collect()).collect();
                ring.allgather(op, &blocks, &mut work)
            }
        };
        outcome.map_err(|broken| job.broken(broken))?;
    }
    match host {
        Some(host) => host.sync(job),
        None => Ok(()),
    }
}
