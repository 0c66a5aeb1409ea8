//! How ranks find each other: all call rank 0, which tells everyone where all the others are.
//!
//! Every connection is proved from both sides first (see `auth`). After the proof rank 0 speaks in *notices* of one
//! fixed size: who is still missing, or «all here», which the table of addresses follows. The connections to
//! rank 0 stay open and become the control lines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use rustix::event::{PollFd, PollFlags};

use super::acceptor::{Acceptor, ConnectionAttempt, HANDSHAKE};
use super::auth::{self, ADDRESS, Caller, Endpoint, HostKey, Purpose};
use super::config::GroupConfig;
use super::deadline::{Clock, Deadline};
use super::dial::Call;
use super::error::CollectiveError;
use super::socket::{self, Moved};

/// How often a wait is reported, µs.
pub(super) const TICK: u64 = 1_000_000;
/// Missing ranks that a notice names.
const NAMED: usize = 8;
const NOTICE: usize = 5 + 4 * NAMED;
const STILL_WAITING: u8 = 1;
const ALL_HERE: u8 = 2;

/// What happens while the ranks meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendezvousEvent {
    /// These ranks are not here yet. Said on every change and once a second.
    Waiting(Vec<u32>),
    /// A connection that does not come from a rank of this run.
    Refused {
        /// Its address.
        from: SocketAddr,
        /// What was wrong with it.
        why: &'static str,
    },
    /// This rank shares no memory with others that seem to be on its host, and uses TCP.
    NoSharedMemory {
        /// The system's words, or another rank's.
        why: String,
    },
}

/// What a rank knows after the rendezvous.
pub(super) struct Peers {
    /// Rank 0: a connection to every other rank, in rank order from 1. Others: one, to rank 0.
    pub(super) lines: Vec<TcpStream>,
    /// Where each rank listens.
    pub(super) table: Vec<Seat>,
    /// This rank's own port.
    pub(super) acceptor: Acceptor,
}

/// What all know of one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Which host it seems to be on.
    pub(super) host: HostKey,
}

const SEAT: usize = ADDRESS + 16;

impl Seat {
    fn encode(self) -> [u8; SEAT] {
        let mut bytes = [0; SEAT];
        bytes[..ADDRESS].copy_from_slice(&auth::encode_address(self.address));
        bytes[ADDRESS..].copy_from_slice(&self.host);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (address, host) = bytes.split_at_checked(ADDRESS)?;
        Some(Self { address: auth::decode_address(address.try_into().ok()?), host: host.try_into().ok()? })
    }
}

/// Finds the other ranks. `world` is at least 2; `host` is which host this rank seems to be on.
pub(super) fn run(
    config: &GroupConfig,
    host: HostKey,
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Result<Peers, CollectiveError> {
    let masters = resolve(config)?;
    let inward = is_inward(&config.master, &masters);
    let facing = match config.bind {
        Some(ip) => ip,
        None => facing(masters[0]).map_err(config.system("find the address that faces rank 0"))?,
    };
    let listener = match config.bind {
        None if inward => listen(config, &anywhere(0))?,
        _ => listen(config, &[SocketAddr::new(facing, 0)])?,
    };
    let port = listener.local_addr().map_err(config.system("read a socket's address"))?.port();
    let own = Seat { address: SocketAddr::new(facing, port), host };
    let endpoint = Endpoint { purpose: Purpose::Data, world: config.world, owner: config.rank };
    let acceptor = Acceptor::new(listener, config.secret.clone(), endpoint, config.clock)
        .map_err(config.system("set up a listening socket"))?;
    let (lines, table) = if config.rank == 0 {
        let at = if inward { anywhere(config.port).to_vec() } else { masters };
        accept_all(config, &at, own, deadline, on)?
    } else {
        let (line, table) = join(config, masters[0], own, deadline, on)?;
        (vec![line], table)
    };
    if table.len() != config.world as usize {
        return Err(config.system("read the table of ranks from rank 0")(std::io::Error::other(
            "it is damaged",
        )));
    }
    Ok(Peers { lines, table, acceptor })
}

fn resolve(config: &GroupConfig) -> Result<Vec<SocketAddr>, CollectiveError> {
    let failed = |reason| CollectiveError::Resolve { name: config.master.clone(), reason };
    let mut found: Vec<SocketAddr> = (config.master.as_str(), config.port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?
        .collect();
    // Other hosts know the name by the addresses that lead to it from anywhere.
    found.sort_by_key(|address| address.ip().is_loopback());
    if found.is_empty() { Err(failed("no address".to_owned())) } else { Ok(found) }
}

/// Whether a name leads from rank 0's host to that host alone, though others reach it by that name: Debian's installer gives a
/// host's own name the address 127.0.1.1 in `/etc/hosts`.
fn is_inward(name: &str, found: &[SocketAddr]) -> bool {
    let means_this_host =
        name.parse::<IpAddr>().is_ok() || ["localhost", "ip6-localhost", "ip6-loopback"].contains(&name);
    !means_this_host && found.iter().all(|address| address.ip().is_loopback())
}

/// Every address of this host: of both families, else of IPv4.
fn anywhere(port: u16) -> [SocketAddr; 2] {
    [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
}

/// Ranks on rank 0's host that know no address but one that leads nowhere else get the one by which rank 0 was reached from
/// another host, if it was.
fn turn_outward(table: &mut [Seat], lines: &[TcpStream]) {
    let reached = lines.iter().filter_map(|line| Some(line.local_addr().ok()?.ip().to_canonical()));
    let Some(outward) = reached.into_iter().find(|ip| !ip.is_loopback()) else { return };
    for seat in table.iter_mut().filter(|seat| seat.address.ip().is_loopback()) {
        seat.address.set_ip(outward);
    }
}

/// This host's address on the way to `peer`. Sends nothing: a datagram socket only looks up the route.
fn facing(peer: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn listen(config: &GroupConfig, on: &[SocketAddr]) -> Result<TcpListener, CollectiveError> {
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
    fn announce(&mut self, missing: &[u32], on: &mut dyn FnMut(RendezvousEvent)) -> bool {
        if self.last.as_deref() == Some(missing) && !self.again.passed() {
            return false;
        }
        self.again = Deadline::after(self.clock, TICK);
        self.last = Some(missing.to_vec());
        on(RendezvousEvent::Waiting(missing.to_vec()));
        true
    }
}

type Connected = Vec<Option<(TcpStream, Seat)>>;

/// Rank 0's part: waits for all others, then sends each the table of addresses.
fn accept_all(
    config: &GroupConfig,
    masters: &[SocketAddr],
    own: Seat,
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Result<(Vec<TcpStream>, Vec<Seat>), CollectiveError> {
    let endpoint = Endpoint { purpose: Purpose::Rendezvous, world: config.world, owner: 0 };
    let mut acceptor = Acceptor::new(listen(config, masters)?, config.secret.clone(), endpoint, config.clock)
        .map_err(config.system("set up a listening socket"))?;
    // A rank's place is its number less one.
    let mut connected: Connected = (1..config.world).map(|_| None).collect();
    let mut announcer = Announcer::new(config.clock);
    loop {
        for attempt in acceptor.advance() {
            match attempt {
                // A rank that calls again has given its former call up, so the new one counts.
                ConnectionAttempt::Authentic(caller, stream) => {
                    let seat = Seat { address: caller.address, host: caller.host };
                    connected[caller.rank as usize - 1] = Some((stream, seat));
                }
                ConnectionAttempt::Refused(from, why) => on(RendezvousEvent::Refused { from, why }),
            }
        }
        drop_gone(&mut connected);
        let missing: Vec<u32> =
            (1..config.world).filter(|rank| connected[*rank as usize - 1].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        if announcer.announce(&missing, on) {
            let notice = notice(STILL_WAITING, &missing);
            for peer in &mut connected {
                if peer.as_ref().is_some_and(|(s, _)| socket::write_some(s, &notice) != Moved::Bytes(NOTICE))
                {
                    *peer = None;
                }
            }
        }
        if deadline.passed() {
            return Err(config.missing(missing));
        }
        let mut fds = Vec::new();
        acceptor.watch(&mut fds);
        fds.extend(connected.iter().flatten().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)));
        socket::wait(&mut fds, deadline.within(TICK)).map_err(config.system("wait for the other ranks"))?;
    }
    let (lines, others): (Vec<_>, Vec<_>) = connected.into_iter().flatten().unzip();
    let mut table: Vec<Seat> = std::iter::once(own).chain(others).collect();
    turn_outward(&mut table, &lines);
    let mut bytes = notice(ALL_HERE, &[]).to_vec();
    for seat in &table {
        bytes.extend_from_slice(&seat.encode());
    }
    for (rank, line) in (1..).zip(&lines) {
        // One that fails now is missed, by its number, when the ring closes.
        if socket::write_all(line, &bytes, deadline.within(HANDSHAKE)).is_err() {
            return Err(config.missing(vec![rank]));
        }
    }
    Ok((lines, table))
}

/// A peer has nothing to say before all are here: one that is readable has hung up, or is no sane rank.
fn drop_gone(connected: &mut Connected) {
    for peer in connected {
        if peer.as_ref().is_some_and(|(stream, _)| socket::read_some(stream, &mut [0]) != Moved::Nothing) {
            *peer = None;
        }
    }
}

/// Any other rank's part: calls rank 0 and waits for the table.
fn join(
    config: &GroupConfig,
    master: SocketAddr,
    own: Seat,
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Result<(TcpStream, Vec<Seat>), CollectiveError> {
    let mut announcer = Announcer::new(config.clock);
    let endpoint = Endpoint { purpose: Purpose::Rendezvous, world: config.world, owner: 0 };
    let call = Call {
        secret: &config.secret,
        endpoint,
        caller: Caller { rank: config.rank, channel: 0, address: own.address, host: own.host },
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
    let mut bytes = vec![0; SEAT * config.world as usize];
    socket::read_all(&line, &mut bytes, deadline.within(HANDSHAKE))
        .map_err(config.system("read the table of addresses from rank 0"))?;
    Ok((line, bytes.chunks_exact(SEAT).filter_map(Seat::decode).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_host_is_no_address_of_itself_alone_unless_it_says_so() {
        let inward = |name: &str, found: &[&str]| {
            let found: Vec<SocketAddr> =
                found.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 29500)).collect();
            is_inward(name, &found)
        };
        assert!(inward("gpu-a", &["127.0.1.1"]) && inward("gpu-a.example", &["127.0.1.1", "::1"]));
        assert!(!inward("gpu-a", &["127.0.1.1", "10.0.0.7"]));
        assert!(!inward("127.0.1.1", &["127.0.1.1"]) && !inward("::1", &["::1"]));
        assert!(!inward("localhost", &["::1", "127.0.0.1"]));
    }
}
