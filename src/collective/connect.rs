//! The connections that carry values between hosts: who calls whom, and the calling.
//!
//! Every host has slices, as many as the largest host has ranks; each slice goes round a ring of its own, on each host
//! driven by one rank. The first rank of each host also has a connection to the first of each other host, for what is
//! small. All connections are proved from both sides (see `auth`).

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::acceptor::ConnectionAttempt;
use super::auth::{Caller, Endpoint, Purpose};
use super::config::GroupConfig;
use super::deadline::Deadline;
use super::dial::Call;
use super::error::CollectiveError;
use super::rendezvous::{Peers, RendezvousEvent, TICK};
use super::socket;

/// The channel between leaders. Those of the rings have smaller numbers.
const MESH: u32 = u32::MAX;

/// Which rank is where, as all ranks agree on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The ranks of each host, in order; hosts in order of their first ranks.
    pub(super) hosts: Vec<Vec<u32>>,
}

impl Layout {
    /// From the leader of each rank's host.
    pub(super) fn of(leaders: &[u32]) -> Self {
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        for (rank, leader) in (0..).zip(leaders) {
            match hosts.iter_mut().find(|ranks| ranks[0] == *leader) {
                Some(ranks) => ranks.push(rank),
                None => hosts.push(vec![rank]),
            }
        }
        Self { hosts }
    }

    /// The host of `rank` and its place there.
    pub(super) fn place(&self, rank: u32) -> (usize, usize) {
        let find = |ranks: &Vec<u32>| ranks.iter().position(|one| *one == rank);
        let mut hosts = self.hosts.iter().enumerate();
        hosts.find_map(|(host, ranks)| Some((host, find(ranks)?))).unwrap_or_default()
    }

    /// Slices of a buffer: as many as the largest host has ranks; none with one host.
    pub(super) fn slices(&self) -> usize {
        if self.hosts.len() < 2 { 0 } else { self.hosts.iter().map(Vec::len).max().unwrap_or(0) }
    }

    /// Who drives a slice on a host.
    pub(super) fn driver(&self, host: usize, slice: usize) -> u32 {
        let ranks = &self.hosts[host];
        ranks[slice % ranks.len()]
    }

    fn neighbours(&self, host: usize) -> (usize, usize) {
        let count = self.hosts.len();
        ((host + 1) % count, (host + count - 1) % count)
    }
}

/// The connections of one driver for one slice.
pub(super) struct RingConnections {
    pub(super) slice: usize,
    pub(super) next_rank: u32,
    pub(super) next: Vec<TcpStream>,
    pub(super) before_rank: u32,
    pub(super) before: Vec<TcpStream>,
}

/// All of a rank's connections to other hosts.
pub(super) struct Connections {
    pub(super) rings: Vec<RingConnections>,
    /// A leader's, by host; `None` for its own. Empty for others.
    pub(super) mesh: Vec<Option<(u32, TcpStream)>>,
}

/// `streams`: how many connections a driver has to the next host, the same on all ranks.
///
/// Calls whom this rank has to call, and waits for those who have to call it: both at once, for everyone does both.
pub(super) fn connect(
    config: &GroupConfig,
    layout: &Layout,
    streams: u32,
    peers: &mut Peers,
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Result<Connections, CollectiveError> {
    let rank = config.rank;
    let (host, place) = layout.place(rank);
    let (next, before) = layout.neighbours(host);
    let own_slices: Vec<usize> =
        (0..layout.slices()).filter(|slice| layout.driver(host, *slice) == rank).collect();
    let channel = |slice: usize, stream: u32| slice as u32 * streams + stream;
    let mut calls: Vec<(u32, u32)> = Vec::new();
    let mut awaited: Vec<(u32, u32)> = Vec::new();
    for &slice in &own_slices {
        for stream in 0..streams {
            calls.push((layout.driver(next, slice), channel(slice, stream)));
            awaited.push((layout.driver(before, slice), channel(slice, stream)));
        }
    }
    if place == 0 {
        for (other, ranks) in layout.hosts.iter().enumerate() {
            if other > host {
                calls.push((ranks[0], MESH));
            } else if other < host {
                awaited.push((ranks[0], MESH));
            }
        }
    }
    let (mut called, mut accepted) = exchange_calls(config, peers, &calls, &awaited, deadline, on)?;
    let gone = || CollectiveError::System {
        rank,
        what: "connect to the other hosts",
        reason: "a connection is missing".to_owned(),
    };
    let mut rings = Vec::new();
    for slice in own_slices {
        let (next_rank, before_rank) = (layout.driver(next, slice), layout.driver(before, slice));
        let mut ring =
            RingConnections { slice, next_rank, next: Vec::new(), before_rank, before: Vec::new() };
        for stream in 0..streams {
            let channel = channel(slice, stream);
            ring.next.push(called.remove(&(next_rank, channel)).ok_or_else(gone)?);
            ring.before.push(accepted.remove(&(before_rank, channel)).ok_or_else(gone)?);
        }
        rings.push(ring);
    }
    let mut mesh = Vec::new();
    if place == 0 && layout.hosts.len() > 1 {
        for (other, ranks) in layout.hosts.iter().enumerate() {
            let stream = called.remove(&(ranks[0], MESH)).or_else(|| accepted.remove(&(ranks[0], MESH)));
            mesh.push(if other == host { None } else { Some((ranks[0], stream.ok_or_else(gone)?)) });
        }
    }
    Ok(Connections { rings, mesh })
}

type Streams = HashMap<(u32, u32), TcpStream>;

fn exchange_calls(
    config: &GroupConfig,
    peers: &mut Peers,
    calls: &[(u32, u32)],
    awaited: &[(u32, u32)],
    deadline: Deadline,
    on: &mut dyn FnMut(RendezvousEvent),
) -> Result<(Streams, Streams), CollectiveError> {
    let Peers { acceptor, table, .. } = peers;
    let own = table[config.rank as usize];
    let call = |owner: u32, channel: u32| Call {
        secret: &config.secret,
        endpoint: Endpoint { purpose: Purpose::Data, world: config.world, owner },
        caller: Caller { rank: config.rank, channel, address: own.address, host: own.host },
        to: table[owner as usize].address,
        deadline,
        seconds: config.seconds(),
    };
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let mut called = Streams::new();
            for &(owner, channel) in calls {
                match call(owner, channel).place(|| !failed.load(Ordering::Relaxed)) {
                    Ok(stream) => called.insert((owner, channel), stream),
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                };
            }
            Ok(called)
        });
        let mut accepted = Streams::new();
        let missing = |accepted: &Streams| {
            awaited.iter().find(|one| !accepted.contains_key(one)).map(|(rank, _)| *rank)
        };
        while missing(&accepted).is_some() && !failed.load(Ordering::Relaxed) && !deadline.passed() {
            for attempt in acceptor.advance() {
                match attempt {
                    ConnectionAttempt::Authentic(caller, stream)
                        if awaited.contains(&(caller.rank, caller.channel)) =>
                    {
                        accepted.insert((caller.rank, caller.channel), stream);
                    }
                    ConnectionAttempt::Authentic(..) => {}
                    ConnectionAttempt::Refused(from, why) => on(RendezvousEvent::Refused { from, why }),
                }
            }
            if missing(&accepted).is_some() {
                let mut fds = Vec::new();
                acceptor.watch(&mut fds);
                socket::wait(&mut fds, deadline.within(TICK / 4))
                    .map_err(config.system("wait for the other hosts"))?;
            }
        }
        let late = missing(&accepted);
        if late.is_some() {
            failed.store(true, Ordering::Relaxed);
        }
        let called = calling.join().map_err(|_| CollectiveError::System {
            rank: config.rank,
            what: "call the other hosts",
            reason: "the calling thread panicked".to_owned(),
        })?;
        // The call's own error says more than that no rank came.
        let called = called?;
        late.map_or(Ok((called, accepted)), |rank| Err(config.missing(vec![rank])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_placed_by_their_leaders() {
        let layout = Layout::of(&[0, 1, 0, 1, 0, 5]);
        assert_eq!(layout.hosts, [vec![0, 2, 4], vec![1, 3], vec![5]]);
        assert_eq!((layout.place(4), layout.place(3), layout.place(5)), ((0, 2), (1, 1), (2, 0)));
        assert_eq!(layout.slices(), 3);
        let drivers = |slice| [0, 1, 2].map(|host| layout.driver(host, slice));
        assert_eq!((drivers(0), drivers(1), drivers(2)), ([0, 1, 5], [2, 3, 5], [4, 1, 5]));
        assert_eq!(Layout::of(&[0, 0]).slices(), 0);
    }
}
