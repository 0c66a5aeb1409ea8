//! `hvtui bench link`: how fast bytes go from each rank to the next one, by TCP alone. An allreduce over these hosts can't be
//! faster: as in its ring, all links carry bytes at once, each in both directions.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::places::{self, Place};
use super::{Printer, local};
use crate::clock::host_nanos;
use crate::collective::Communicator;
use crate::domain::report::Report;
use crate::worker::env::RankEnv;
use crate::worker::error::WorkerError;
use crate::worker::group;
use crate::worker::report::Reporter;

/// The name that the report file gets.
const JOB: &str = "bench link";
/// How long a connection, and a piece of what comes by it, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a single rank.
pub(super) const ONE_END: WorkerError =
    WorkerError::Option { option: "--np", must_be: "at least 2: a link has two ends" };
/// Bytes that are written at once.
const PIECE: usize = 256 << 10;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// Ranks to start where this process is none.
    pub np: u32,
    /// Connections from each rank to the next one.
    pub streams: u32,
    /// For how many milliseconds bytes are sent.
    pub millis: u64,
    /// JSON objects, one a line, instead of a table.
    pub json: bool,
}

/// What one link has carried.
#[derive(Debug, Serialize)]
struct Link<'a> {
    from: &'a str,
    to: &'a str,
    interface: &'a str,
    /// GB/s.
    rate: f64,
    /// What the sender's interface gives, GB/s; absent where the system does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    nominal: Option<f64>,
}

#[derive(Serialize)]
struct Head {
    program: &'static str,
    ranks: usize,
    hosts: usize,
    streams: u32,
}

#[derive(Serialize)]
struct Total {
    slowest: f64,
}

/// Measures as the given rank; rank 0 prints to `out`.
pub(super) fn run(options: &LinkOptions, env: &RankEnv, out: &mut dyn Write) -> Result<(), WorkerError> {
    let bind = match &env.group {
        None => return Err(ONE_END),
        Some(group) => {
            group.bind.ok_or(WorkerError::Missing { missing: "HVTUI_BIND", present: "WORLD_SIZE" })?
        }
    };
    let mut reporter = Reporter::open(env.report.as_deref())?;
    let mut ranks = group::join(env, &mut reporter, out)?;
    reporter.report(&Report::hello(JOB, Some("tcp".to_owned()), None))?;
    let places = places::gather(&mut *ranks, &Place::own(env))?;
    let rate = measure(&mut *ranks, &places, bind, options)?;
    let own = format!("{rate} {}", nominal(bind).unwrap_or_default());
    let told = places::tell(&mut *ranks, &own)?;
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok());
    // what a rank has received came from the one before it
    let links: Vec<Link<'_>> = (0..places.len())
        .map(|at| {
            let to = (at + 1) % places.len();
            let rate = number(told[to].split(' ').next()).unwrap_or(f64::NAN);
            let nominal = number(told[at].split(' ').nth(1)).filter(|rate| *rate > 0.0);
            Link {
                from: &places[at].host,
                to: &places[to].host,
                interface: &places[at].interface,
                rate,
                nominal,
            }
        })
        .collect();
    let mut print = Printer { out: (env.rank == 0).then_some(out), json: options.json };
    show(&mut print, &links, places::hosts(&places), options)?;
    ranks.barrier()?;
    reporter.report(&Report::Done { weights: None })
}

fn show(
    print: &mut Printer<'_>,
    links: &[Link<'_>],
    hosts: usize,
    options: &LinkOptions,
) -> Result<(), WorkerError> {
    let slowest = links.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
    if print.json {
        let (program, ranks, streams) = (env!("CARGO_PKG_VERSION"), links.len(), options.streams);
        print.say_json("head", &Head { program, ranks, hosts, streams })?;
        for link in links {
            print.say_json("link", link)?;
        }
        return print.say_json("total", &Total { slowest: slowest.map_or(f64::NAN, |link| link.rate) });
    }
    let LinkOptions { streams, millis, .. } = options;
    let (program, ranks) = (env!("CARGO_PKG_VERSION"), links.len());
    print.say(&format!(
        "# hvtui {program} link: {ranks} ranks on {hosts} host{}, {streams} connections each way, {millis} ms",
        if hosts == 1 { "" } else { "s" }
    ))?;
    print.say(&format!(
        "# {:>14}  {:>16}  {:24} {:>8}  {}",
        "from", "to", "interface", "GB/s", "of what it gives"
    ))?;
    for Link { from, to, interface, rate, nominal } in links {
        let share =
            nominal.map_or_else(String::new, |all| format!("  {:.0} % of {all:.2}", 100.0 * rate / all));
        print.say(&format!("{from:>16}  {to:>16}  {interface:24} {rate:>8.2}{share}"))?;
    }
    let Some(Link { from, to, rate, .. }) = slowest else { return Ok(()) };
    print.say(&format!("# Slowest : {rate:.2} GB/s from {from} to {to}"))
}

/// What this rank receives from the one before it, GB/s, while each sends to the next one.
fn measure(
    ranks: &mut dyn Communicator,
    places: &[Place],
    bind: IpAddr,
    options: &LinkOptions,
) -> Result<f64, WorkerError> {
    let (rank, world) = (ranks.rank() as usize, ranks.world() as usize);
    let (before, next) = ((rank + world - 1) % world, (rank + 1) % world);
    let failed = |rank: usize| {
        let host = places[rank].host.clone();
        move |source| WorkerError::Link { rank: rank as u32, host, source }
    };
    let listener = TcpListener::bind((bind, 0)).map_err(failed(rank))?;
    let token = local::secret()?;
    let address = listener.local_addr().map_err(failed(rank))?;
    let told = places::tell(ranks, &format!("{address} {token}"))?;
    // the system takes connections in before they are accepted: so all can connect first
    let mut sending = Vec::new();
    for _ in 0..options.streams {
        sending.push(connect(&told[next]).map_err(failed(next))?);
    }
    let mut receiving = Vec::new();
    while receiving.len() < options.streams as usize {
        receiving.extend(accept(&listener, &token).map_err(failed(before))?);
    }
    ranks.barrier()?;
    let begun = host_nanos();
    let end = begun.saturating_add(options.millis.saturating_mul(1_000_000));
    let (sending, receiving) = std::thread::scope(|scope| {
        let out: Vec<_> = sending.into_iter().map(|to| scope.spawn(move || send(to, end))).collect();
        let into: Vec<_> = receiving.into_iter().map(|from| scope.spawn(move || receive(from))).collect();
        let panicked = || std::io::Error::other("its thread has ended");
        (
            out.into_iter().try_for_each(|one| one.join().map_err(|_| panicked())?),
            into.into_iter().map(|one| one.join().map_err(|_| panicked())?).sum::<std::io::Result<u64>>(),
        )
    });
    let took = host_nanos().saturating_sub(begun);
    sending.map_err(failed(next))?;
    let bytes = receiving.map_err(failed(before))?;
    Ok(bytes as f64 / took.max(1) as f64)
}

/// A connection to where a rank has told that it listens, with the token that it has told.
fn connect(told: &str) -> std::io::Result<TcpStream> {
    let wrong = || std::io::Error::new(ErrorKind::InvalidData, "it does not tell where it listens");
    let (address, token) = told.split_once(' ').ok_or_else(wrong)?;
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(token.as_bytes())?;
    Ok(stream)
}

/// The next connection; `None` where it is none of the rank before.
fn accept(listener: &TcpListener, token: &str) -> std::io::Result<Option<TcpStream>> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&patience))? == 0 {
        return Err(std::io::Error::new(ErrorKind::TimedOut, "it does not connect"));
    }
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = vec![0; token.len()];
    let is_right = stream.read_exact(&mut said).is_ok() && said == token.as_bytes();
    Ok(is_right.then_some(stream))
}

fn send(mut stream: TcpStream, end: u64) -> std::io::Result<()> {
    let piece = vec![0x5a; PIECE];
    while host_nanos() < end {
        stream.write_all(&piece)?;
    }
    stream.shutdown(Shutdown::Write)
}

/// Bytes until its end.
fn receive(mut stream: TcpStream) -> std::io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What the interface with this address gives, GB/s, where the system knows it.
fn nominal(address: IpAddr) -> Option<f64> {
    let all = if_addrs::get_if_addrs().ok()?;
    let name = all.into_iter().find(|one| one.ip() == address)?.name;
    let megabits: f64 =
        std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?.trim().parse().ok()?;
    // -1 where there is no cable, or no such thing
    (megabits > 0.0).then_some(megabits / 8e3)
}
