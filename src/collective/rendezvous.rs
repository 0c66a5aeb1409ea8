//! How ranks find each other: all call rank 0, rank 0 tells everyone all addresses, then each calls the next.
//!
//! Every connection is proved from both sides first (see `auth`). After the proof rank 0 speaks in *notices* of one
//! fixed size: who is still missing, or «all here», which the table of addresses follows. The connections to
//! rank 0 stay open and become the control lines.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::auth::{self, ADDRESS, Caller, Door, Purpose, Secret};
use super::deadline::{Clock, Deadline};
use super::dial::Call;
use super::error::CollectiveError;
use super::gate::{Gate, HANDSHAKE, Knock};
use super::socket::{self, Moved};

/// How often a wait is reported, µs.
const TICK: u64 = 1_000_000;
/// Missing ranks that a notice names.
const NAMED: usize = 8;
const NOTICE: usize = 5 + 4 * NAMED;
const STILL_WAITING: u8 = 1;
const ALL_HERE: u8 = 2;

/// What a rank needs to join its group.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks in all.
    pub world: u32,
    /// Name or address of rank 0's host, as the others reach it.
    pub master: String,
    /// Rank 0's port.
    pub port: u16,
    /// The address of this host that the rank may listen on; `None`: the one that faces rank 0.
    pub bind: Option<IpAddr>,
    /// The run's secret.
    pub secret: Secret,
    /// Deadline of the rendezvous, and of each part of each operation.
    pub timeout: Duration,
    /// Reads this host's clock.
    pub clock: Clock,
    /// Values a segment; [`RingConfig::SEGMENT`] unless a test wants many small ones.
    pub segment: usize,
}

impl RingConfig {
    /// Values a segment: 64 KiB, which a socket buffer takes whole and a core's L2 cache keeps.
    pub const SEGMENT: usize = 16 * 1024;

    fn seconds(&self) -> u64 {
        self.timeout.as_secs()
    }

    pub(super) fn timeout_us(&self) -> u64 {
        u64::try_from(self.timeout.as_micros()).unwrap_or(u64::MAX)
    }

    fn system(&self, what: &'static str) -> impl Fn(std::io::Error) -> CollectiveError + use<> {
        let rank = self.rank;
        move |error| CollectiveError::System { rank, what, reason: error.to_string() }
    }

    fn missing(&self, ranks: Vec<u32>) -> CollectiveError {
        let address = format!("{}:{}", self.master, self.port);
        CollectiveError::Missing { ranks, address, seconds: self.seconds() }
    }
}

/// What happens while the ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeetingEvent {
    /// These ranks are not here yet. Said on every change and once a second.
    Waiting(Vec<u32>),
    /// Someone knocked who is no rank of this run.
    Refused {
        /// Its address.
        from: SocketAddr,
        /// What was wrong with it.
        why: &'static str,
    },
}

/// The connections of one rank after the rendezvous.
pub(super) struct Met {
    pub(super) next: TcpStream,
    pub(super) previous: TcpStream,
    /// Rank 0: one to every other rank, in rank order from 1. Others: one, to rank 0.
    pub(super) lines: Vec<TcpStream>,
}

/// Meets the other ranks. `world` is at least 2.
pub(super) fn meet(config: &RingConfig, on: &mut dyn FnMut(MeetingEvent)) -> Result<Met, CollectiveError> {
    let deadline = Deadline::after(config.clock, config.timeout_us());
    let masters = resolve(config)?;
    let bind = match config.bind {
        Some(ip) => ip,
        None => facing(masters[0]).map_err(config.system("find the address that faces rank 0"))?,
    };
    let listener = listen(config, &[SocketAddr::new(bind, 0)])?;
    let own = listener.local_addr().map_err(config.system("read a socket's address"))?;
    let door = Door { purpose: Purpose::Ring, world: config.world, owner: config.rank };
    let gate = Gate::new(listener, config.secret.clone(), door, config.clock)
        .map_err(config.system("set up a listening socket"))?;
    let (lines, table) = if config.rank == 0 {
        gather(config, &masters, own, deadline, on)?
    } else {
        let (line, table) = report(config, masters[0], own, deadline, on)?;
        (vec![line], table)
    };
    let (next, previous) = close_ring(config, gate, &table, own, deadline, on)?;
    Ok(Met { next, previous, lines })
}

fn resolve(config: &RingConfig) -> Result<Vec<SocketAddr>, CollectiveError> {
    let failed = |reason| CollectiveError::Resolve { name: config.master.clone(), reason };
    let found: Vec<SocketAddr> = (config.master.as_str(), config.port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?
        .collect();
    if found.is_empty() { Err(failed("no address".to_owned())) } else { Ok(found) }
}

/// This host's address on the way to `peer`. Sends nothing: a datagram socket only looks up the route.
fn facing(peer: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn listen(config: &RingConfig, on: &[SocketAddr]) -> Result<TcpListener, CollectiveError> {
    // The standard library sets SO_REUSEADDR, so a port that a run has just left can be taken again.
    TcpListener::bind(on).map_err(|error| CollectiveError::Listen {
        rank: config.rank,
        address: on.first().map(ToString::to_string).unwrap_or_default(),
        reason: error.to_string(),
    })
}

/// Says who is missing: on every change, and once a second.
struct Announcer {
    clock: Clock,
    last: Option<Vec<u32>>,
    again: Deadline,
}

impl Announcer {
    fn new(clock: Clock) -> Self {
        Self { clock, last: None, again: Deadline::after(clock, TICK) }
    }

    /// Whether it was time to say so.
    fn announce(&mut self, missing: &[u32], on: &mut dyn FnMut(MeetingEvent)) -> bool {
        if self.last.as_deref() == Some(missing) && !self.again.passed() {
            return false;
        }
        self.again = Deadline::after(self.clock, TICK);
        self.last = Some(missing.to_vec());
        on(MeetingEvent::Waiting(missing.to_vec()));
        true
    }
}

type Guests = Vec<Option<(TcpStream, SocketAddr)>>;

/// Rank 0's part: waits for all others, then sends each the table of addresses.
fn gather(
    config: &RingConfig,
    masters: &[SocketAddr],
    own: SocketAddr,
    deadline: Deadline,
    on: &mut dyn FnMut(MeetingEvent),
) -> Result<(Vec<TcpStream>, Vec<SocketAddr>), CollectiveError> {
    let door = Door { purpose: Purpose::Rendezvous, world: config.world, owner: 0 };
    let mut gate = Gate::new(listen(config, masters)?, config.secret.clone(), door, config.clock)
        .map_err(config.system("set up a listening socket"))?;
    // A rank's place is its number less one.
    let mut guests: Guests = (1..config.world).map(|_| None).collect();
    let mut announcer = Announcer::new(config.clock);
    loop {
        for knock in gate.advance() {
            match knock {
                // A rank that calls again has given its former call up, so the new one counts.
                Knock::Authentic(caller, stream) => {
                    guests[caller.rank as usize - 1] = Some((stream, caller.address));
                }
                Knock::Refused(from, why) => on(MeetingEvent::Refused { from, why }),
            }
        }
        drop_gone(&mut guests);
        let missing: Vec<u32> =
            (1..config.world).filter(|rank| guests[*rank as usize - 1].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        if announcer.announce(&missing, on) {
            let notice = notice(STILL_WAITING, &missing);
            for guest in &mut guests {
                if guest.as_ref().is_some_and(|(s, _)| socket::write_some(s, &notice) != Moved::Bytes(NOTICE))
                {
                    *guest = None;
                }
            }
        }
        if deadline.passed() {
            return Err(config.missing(missing));
        }
        let mut fds = Vec::new();
        gate.watch(&mut fds);
        fds.extend(guests.iter().flatten().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)));
        socket::wait(&mut fds, deadline.within(TICK)).map_err(config.system("wait for the other ranks"))?;
    }
    let (lines, others): (Vec<_>, Vec<_>) = guests.into_iter().flatten().unzip();
    let table: Vec<SocketAddr> = std::iter::once(own).chain(others).collect();
    let mut bytes = notice(ALL_HERE, &[]).to_vec();
    for address in &table {
        bytes.extend_from_slice(&auth::encode_address(*address));
    }
    for (rank, line) in (1..).zip(&lines) {
        // One that fails now is missed, by its number, when the ring closes.
        if socket::write_all(line, &bytes, deadline.within(HANDSHAKE)).is_err() {
            return Err(config.missing(vec![rank]));
        }
    }
    Ok((lines, table))
}

/// A guest has nothing to say before all are here: whoever is readable has hung up, or is no sane rank.
fn drop_gone(guests: &mut Guests) {
    for guest in guests {
        if guest.as_ref().is_some_and(|(stream, _)| socket::read_some(stream, &mut [0]) != Moved::Nothing) {
            *guest = None;
        }
    }
}

/// Any other rank's part: calls rank 0 and waits for the table.
fn report(
    config: &RingConfig,
    master: SocketAddr,
    own: SocketAddr,
    deadline: Deadline,
    on: &mut dyn FnMut(MeetingEvent),
) -> Result<(TcpStream, Vec<SocketAddr>), CollectiveError> {
    let mut announcer = Announcer::new(config.clock);
    let door = Door { purpose: Purpose::Rendezvous, world: config.world, owner: 0 };
    let call = Call {
        secret: &config.secret,
        door,
        caller: Caller { rank: config.rank, address: own },
        to: master,
        deadline,
        seconds: config.seconds(),
    };
    let line = call.place(|| {
        announcer.announce(&[0], on);
        true
    })?;
    let mut missing = Vec::new();
    loop {
        let mut bytes = [0; NOTICE];
        // Rank 0 speaks once a second, and knows best when it is too late: it gets a little more time.
        let patience = Deadline::after(config.clock, deadline.remaining() + HANDSHAKE);
        if let Err(error) = socket::read_all(&line, &mut bytes, patience) {
            return Err(match (missing.is_empty(), error.kind()) {
                (false, _) => config.missing(missing),
                (true, _) => config.missing(vec![0]),
            });
        }
        if bytes[0] == ALL_HERE {
            break;
        }
        missing = named(&bytes);
        announcer.announce(&missing, on);
    }
    let mut bytes = vec![0; ADDRESS * config.world as usize];
    socket::read_all(&line, &mut bytes, deadline.within(HANDSHAKE))
        .map_err(config.system("read the table of addresses from rank 0"))?;
    let table =
        bytes.chunks_exact(ADDRESS).filter_map(|one| Some(auth::decode_address(one.try_into().ok()?)));
    Ok((line, table.collect()))
}

fn notice(tag: u8, missing: &[u32]) -> [u8; NOTICE] {
    let mut bytes = [0; NOTICE];
    bytes[0] = tag;
    bytes[1..5].copy_from_slice(&(missing.len() as u32).to_le_bytes());
    for (slot, rank) in bytes[5..].chunks_exact_mut(4).zip(missing) {
        slot.copy_from_slice(&rank.to_le_bytes());
    }
    bytes
}

fn named(notice: &[u8; NOTICE]) -> Vec<u32> {
    let numbers: Vec<u32> =
        notice[1..].chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let count = (numbers[0] as usize).min(NAMED);
    numbers[1..=count].to_vec()
}

/// Calls the next rank and waits for the call of the one before: both at once, for everyone does both.
fn close_ring(
    config: &RingConfig,
    mut gate: Gate,
    table: &[SocketAddr],
    own: SocketAddr,
    deadline: Deadline,
    on: &mut dyn FnMut(MeetingEvent),
) -> Result<(TcpStream, TcpStream), CollectiveError> {
    let next = (config.rank + 1) % config.world;
    let before = (config.rank + config.world - 1) % config.world;
    let call = Call {
        secret: &config.secret,
        door: Door { purpose: Purpose::Ring, world: config.world, owner: next },
        caller: Caller { rank: config.rank, address: own },
        to: table[next as usize],
        deadline,
        seconds: config.seconds(),
    };
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let outcome = call.place(|| !failed.load(Ordering::Relaxed));
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            outcome
        });
        let mut accepted = None;
        while accepted.is_none() && !failed.load(Ordering::Relaxed) && !deadline.passed() {
            for knock in gate.advance() {
                match knock {
                    Knock::Authentic(caller, stream) if caller.rank == before => accepted = Some(stream),
                    Knock::Authentic(..) => {}
                    Knock::Refused(from, why) => on(MeetingEvent::Refused { from, why }),
                }
            }
            if accepted.is_none() {
                let mut fds = Vec::new();
                gate.watch(&mut fds);
                socket::wait(&mut fds, deadline.within(TICK / 4))
                    .map_err(config.system("wait for the rank before"))?;
            }
        }
        if accepted.is_none() {
            failed.store(true, Ordering::Relaxed);
        }
        let called = calling.join().map_err(|_| CollectiveError::System {
            rank: config.rank,
            what: "call the next rank",
            reason: "the calling thread panicked".to_owned(),
        })?;
        let accepted = accepted.ok_or_else(|| config.missing(vec![before]));
        // The call's own error says more than that nobody came.
        Ok((called?, accepted?))
    })
}
