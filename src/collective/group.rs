//! A group of ranks: how it forms, and operations that go on beside the caller.

use std::sync::mpsc::{self, Receiver, Sender};

use super::buffer::{self, Buffer, Outcome, Work};
use super::communicator::Communicator;
use super::config::{GroupConfig, TransportPreference};
use super::connect::{self, Layout};
use super::control::Line;
use super::deadline::Deadline;
use super::element::{DType, Reduce, Values};
use super::engine::Engine;
use super::error::CollectiveError;
use super::failure_detector::FailureDetector;
use super::flight::{Flight, Recorder};
use super::op::{OpKind, OpTiming, Transport};
use super::rendezvous::{self, Peers, RendezvousEvent};
use super::shm::{self, Join};
use super::socket;
use super::streams;
use super::tcp::{self, HostRing, Mesh};
use crate::tcp_info;

/// How long the ranks of a host wait for each other on the socket over which they share memory, µs.
const JOINING: u64 = 10_000_000;
/// How long a driver tries a socket before it sleeps, µs, when its host has a core for each rank.
const SPIN: u32 = 60;

/// A group of ranks on one or several hosts. See [`Communicator`].
pub struct Group {
    rank: u32,
    world: u32,
    transport: Transport,
    /// The hosts' ranks, and the interface of this one.
    place: Place,
    home: Home,
}

/// Where the engine is.
enum Home {
    /// Here: operations run on the caller's thread.
    Here(Box<Engine>),
    /// On a thread of its own, with operations that were begun.
    Away(Sender<Task>, Receiver<Box<Engine>>),
    /// Lost with that thread.
    Lost,
}

enum Task {
    Allreduce(Buffer<u8>, DType, Reduce, Sender<Outcome>),
    ComeBack,
}

/// Who is where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The ranks of each host; ranks of one host share memory.
    pub hosts: Vec<Vec<u32>>,
    /// The network interface over which this rank reaches other hosts: `eth0`. `None` with one host.
    pub interface: Option<String>,
}

impl Group {
    /// Meets the other ranks. Blocks until all are connected or the deadline has passed; `on` hears who is missing.
    pub fn connect(
        config: GroupConfig,
        on: &mut dyn FnMut(RendezvousEvent),
    ) -> Result<Self, CollectiveError> {
        if config.world < 2 || config.rank >= config.world {
            return Err(CollectiveError::NoSuchRank { rank: config.rank, world: config.world });
        }
        let deadline = Deadline::after(config.clock, config.timeout_us());
        let key = match config.transport {
            TransportPreference::Auto => shm::host_key(&config.secret, &config.shm_domain),
            TransportPreference::Tcp => None,
        };
        let mut peers = rendezvous::run(&config, key.unwrap_or_default(), deadline, on)?;
        let (ranks, host, lives) = match key {
            Some(key) => join(&config, &peers, key, deadline, on),
            None => (vec![config.rank], None, None),
        };
        let (leaders, streams) = agree(&config, &peers, ranks[0], deadline)?;
        let layout = Layout::of(&leaders);
        let (at, _) = layout.place(config.rank);
        if layout.hosts[at] != ranks {
            let what = std::io::Error::other("its ranks do not agree on who shares memory");
            return Err(config.system("form this host's group")(what));
        }
        let connections = connect::connect(&config, &layout, streams, &mut peers, deadline, on)?;
        let (place, neighbours) = match config.local {
            Some((place, count)) => (place as usize, (count as usize).max(layout.hosts[at].len())),
            None => (layout.place(config.rank).1, layout.hosts[at].len()),
        };
        let spin = if neighbours <= shm::cores() { SPIN } else { 0 };
        let patience = tcp::Patience { clock: config.clock, spin };
        let hosts = (at, layout.hosts.len());
        let rings = connections.rings.into_iter().map(|ring| {
            let (next, before) = ((ring.next_rank, ring.next), (ring.before_rank, ring.before));
            (ring.slice, HostRing::new(hosts, next, before, patience))
        });
        let rings = rings.collect();
        let mesh = (!connections.mesh.is_empty()).then(|| Mesh::new(at, connections.mesh, patience));
        let own = peers.table[config.rank as usize].address.ip();
        let interface = (layout.hosts.len() > 1).then(|| tcp::interface_of(own)).flatten();
        if config.pin {
            pin(place, neighbours);
        }
        let mut engine = Engine {
            layout,
            detector: FailureDetector::new(peers.lines.into_iter().map(Line::new).collect()),
            host,
            lives,
            rings,
            mesh,
            seq: 0,
            broken: None,
            recorder: Recorder::new(),
            scratch: None,
            wide: None,
            exchanged: buffer::heap(shm::SMALL),
            limit: 0,
            config,
        };
        engine.fit()?;
        Ok(Self {
            rank: engine.config.rank,
            world: engine.config.world,
            transport: engine.transport(),
            place: Place { hosts: engine.layout.hosts.clone(), interface },
            home: Home::Here(Box::new(engine)),
        })
    }

    /// Who is where.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The engine, once all operations that were begun are done.
    #[inline]
    fn engine(&mut self) -> Result<&mut Engine, CollectiveError> {
        if let Home::Away(tasks, back) = &self.home {
            let engine = tasks.send(Task::ComeBack).ok().and_then(|()| back.recv().ok());
            self.home = engine.map_or(Home::Lost, Home::Here);
        }
        match &mut self.home {
            Home::Here(engine) => Ok(engine),
            Home::Away(..) | Home::Lost => Err(CollectiveError::Abandoned),
        }
    }

    fn operate(&mut self, kind: OpKind, values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        self.engine()?.operate(kind, values)
    }
}

/// The ranks that share memory, and this rank's end of it.
type Joined = (Vec<u32>, Option<shm::Host>, Option<shm::Lives>);

/// The ranks that share memory with this one (itself among them), and its end of that memory.
fn join(
    config: &GroupConfig,
    peers: &Peers,
    key: super::auth::HostKey,
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Joined {
    let members: Vec<u32> =
        (0..).zip(&peers.table).filter(|(_, seat)| seat.host == key).map(|(rank, _)| rank).collect();
    let join = Join {
        secret: &config.secret,
        world: config.world,
        rank: config.rank,
        members: &members,
        deadline: deadline.within(JOINING),
    };
    match join.run() {
        Ok(Some((ranks, host, lives))) => return (ranks, Some(host), Some(lives)),
        Ok(None) => {}
        Err(error) => on(RendezvousEvent::NoSharedMemory { why: error.to_string() }),
    }
    (vec![config.rank], None, None)
}

/// Tells everyone, over rank 0, which rank leads this rank's host; returns everyone's, and how many connections a driver has
/// to the next host. Rank 0 chooses that, for all must know the same.
fn agree(
    config: &GroupConfig,
    peers: &Peers,
    leader: u32,
    deadline: Deadline,
) -> Result<(Vec<u32>, u32), CollectiveError> {
    let lost = |_| config.missing(vec![0]);
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    if config.rank > 0 {
        let own = [leader, tcp_info::round_trip(&peers.lines[0]).unwrap_or(0)].map(u32::to_le_bytes);
        socket::write_all(&peers.lines[0], own.as_flattened(), deadline).map_err(lost)?;
        let mut table = vec![0; 4 * (config.world as usize + 1)];
        socket::read_all(&peers.lines[0], &mut table, deadline).map_err(lost)?;
        let mut leaders = words(&table);
        let streams = leaders.pop().unwrap_or(1);
        return Ok((leaders, streams.clamp(1, streams::MOST)));
    }
    let (mut table, mut longest) = (leader.to_le_bytes().to_vec(), 0);
    for (rank, line) in (1..).zip(&peers.lines) {
        let mut theirs = [0; 8];
        socket::read_all(line, &mut theirs, deadline).map_err(|_| config.missing(vec![rank]))?;
        table.extend(&theirs[..4]);
        longest = words(&theirs)[1].max(longest);
    }
    let streams = config.streams.unwrap_or_else(|| streams::fitting(longest)).clamp(1, streams::MOST);
    table.extend(streams.to_le_bytes());
    for (rank, line) in (1..).zip(&peers.lines) {
        socket::write_all(line, &table, deadline).map_err(|_| config.missing(vec![rank]))?;
    }
    let mut leaders = words(&table);
    leaders.pop();
    Ok((leaders, streams))
}

/// Keeps this thread on a core of its own, if there is one for each rank of the host. Only speed depends on it.
fn pin(place: usize, ranks: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let cores: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if ranks <= cores.len()
        && let Some(core) = cores.get(place)
    {
        let mut own = rustix::thread::CpuSet::new();
        own.set(*core);
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
}

/// Works through operations that were begun, in order, until the engine is wanted back.
fn work(mut engine: Box<Engine>, tasks: &Receiver<Task>, back: &Sender<Box<Engine>>) {
    while let Ok(task) = tasks.recv() {
        match task {
            Task::Allreduce(mut buffer, dtype, how, outcome) => {
                let values = Values::raw(dtype, &mut buffer);
                let done = engine.operate(OpKind::Allreduce { dtype, how }, values);
                // Who no longer wants to know has dropped its end.
                let _ = outcome.send(done.map(|timing| (buffer, timing)));
            }
            Task::ComeBack => {
                let _ = back.send(engine);
                return;
            }
        }
    }
}

impl Communicator for Group {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.world
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn allreduce_values(&mut self, values: Values<'_>, how: Reduce) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::Allreduce { dtype: values.dtype(), how }, values)
    }

    fn reduce_scatter_values(
        &mut self,
        values: Values<'_>,
        how: Reduce,
    ) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::ReduceScatter { dtype: values.dtype(), how }, values)
    }

    fn allgather_values(&mut self, values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::Allgather { dtype: values.dtype() }, values)
    }

    fn broadcast_values(&mut self, root: u32, values: Values<'_>) -> Result<OpTiming, CollectiveError> {
        if root >= self.world {
            return Err(CollectiveError::NoSuchRank { rank: root, world: self.world });
        }
        self.operate(OpKind::Broadcast { root, dtype: values.dtype() }, values)
    }

    fn barrier(&mut self) -> Result<OpTiming, CollectiveError> {
        self.operate(OpKind::Barrier, Values::of::<f32>(&mut []))
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer<u8>, CollectiveError> {
        self.engine()?.allocate(bytes)
    }

    fn begin(&mut self, buffer: Buffer<u8>, dtype: DType, how: Reduce) -> Result<Work, CollectiveError> {
        if let Home::Here(_) = &self.home {
            let (tasks, inbox) = mpsc::channel();
            let (back, outbox) = mpsc::channel();
            if let Home::Here(engine) = std::mem::replace(&mut self.home, Home::Away(tasks, outbox)) {
                let started = std::thread::Builder::new()
                    .name("hvtui allreduce".to_owned())
                    .spawn(move || work(engine, &inbox, &back));
                started.map_err(|error| CollectiveError::System {
                    rank: self.rank,
                    what: "start a thread for operations",
                    reason: error.to_string(),
                })?;
            }
        }
        let Home::Away(tasks, _) = &self.home else { return Err(CollectiveError::Abandoned) };
        let (sender, outcome) = mpsc::channel();
        tasks.send(Task::Allreduce(buffer, dtype, how, sender)).map_err(|_| CollectiveError::Abandoned)?;
        Ok(Work::new(outcome))
    }

    fn flight(&mut self) -> Flight {
        self.engine().map(|engine| engine.flight()).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "byzantine_tests.rs"]
mod byzantine_tests;
