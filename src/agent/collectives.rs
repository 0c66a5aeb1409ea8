//! Asks the processes of a run which collectives they have called: torch's flight recorder by its pipe, NCCL's RAS by its port.
//! While a run is followed that is done, in a thread of its own, when it stands still and once when a rank fails. What
//! is read of a dump stays here; a summary goes on.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use super::pages::read_all;
use crate::clock;
use crate::domain::collectives::dump::{self, Dump};
use crate::domain::collectives::ras::{self, RasAnswer};
use crate::domain::collectives::{HostCollectives, PROCESSES, ProcessCollectives};
use crate::domain::ids::Rank;
use crate::domain::time::HostTime;
use crate::supervise::flight::{self, Process, Written};
use crate::supervise::rundir::RunDir;

/// How long a process may take for its dump: torch looks at its pipe once a second.
const PATIENCE: Duration = Duration::from_secs(6);
/// Between two looks for a dump.
const LOOK: Duration = Duration::from_millis(50);
/// How long NCCL may take to gather its answer, and how long it is told to take at most.
const RAS_PATIENCE: Duration = Duration::from_secs(4);
const RAS_SECONDS: u64 = 2;
/// How long one read or write to it may take.
const RAS_LOOK: Duration = Duration::from_millis(200);
/// How much the clock of files may differ from the host's, microseconds.
const SLACK_US: i64 = 2_000_000;
/// Why a dump is not told.
const OLD: &str = "it has ended, and has gone on after its last dump";
/// The most of one message, bytes of JSON.
const MESSAGE_BYTES: usize = 512 << 10;
/// Between two times that a run that stands is asked, microseconds; twice as long each time.
const AGAIN_US: u64 = 60_000_000;

/// What is asked of a run that is followed, and when.
#[derive(Debug, Default)]
pub(super) struct Collecting {
    running: Option<Receiver<HostCollectives>>,
    /// When a run that stands is asked again, and after how long then.
    next: Option<(HostTime, u64)>,
    /// Whether it was asked because a rank has failed.
    failed: bool,
}

impl Collecting {
    /// Whether an answer is waited for.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Asks if it is time, and gives what has come: `live` are the ranks that have not ended.
    pub(super) fn look(
        &mut self,
        dir: &RunDir,
        live: &[Rank],
        (stands, failed): (bool, bool),
        now: HostTime,
    ) -> Option<HostCollectives> {
        let came = self.running.as_ref().map(Receiver::try_recv);
        match came {
            Some(Ok(told)) => {
                self.running = None;
                return Some(told).filter(|told| !told.is_empty());
            }
            Some(Err(TryRecvError::Empty)) => return None,
            Some(Err(TryRecvError::Disconnected)) => self.running = None,
            None => {}
        }
        if !stands {
            self.next = None;
        }
        let due = stands && self.next.is_none_or(|(at, _)| at <= now);
        let fails = failed && !self.failed;
        if !due && !fails {
            return None;
        }
        self.failed |= failed;
        if due {
            let pause = self.next.map_or(AGAIN_US, |(_, pause)| pause.saturating_mul(2));
            self.next = Some((HostTime(now.0.saturating_add(pause)), pause));
        }
        flight::known(dir)?;
        let dir = RunDir::open(dir.path()).ok()?;
        let (live, (done, running)) = (live.to_vec(), channel());
        let asking = move || {
            // fails where it is not awaited any more
            let _ = done.send(gather(&dir, &live));
        };
        self.running = Some(running);
        if let Err(error) = std::thread::Builder::new().name("collectives".to_owned()).spawn(asking) {
            tracing::warn!(%error, "a run's collectives could not be asked for");
            self.running = None;
        }
        None
    }
}

/// What the run's processes here tell of their collectives; `live` are the ranks that have not ended.
pub(super) fn gather(dir: &RunDir, live: &[Rank]) -> HostCollectives {
    let mut told = HostCollectives::default();
    let Some(known) = flight::known(dir) else { return told };
    let port = known.ras;
    let asks_nccl = !live.is_empty();
    let nccl = move || if asks_nccl { port.and_then(ask_nccl) } else { None };
    let nccl = std::thread::Builder::new().name("nccl".to_owned()).spawn(nccl);
    if let Some(folder) = flight::folder(dir) {
        told.processes = ask_torch(dir, &folder, live);
    }
    told.ras = nccl.ok().and_then(|asking| asking.join().ok()).flatten();
    fit(&mut told);
    told
}

/// A process whose dump is waited for.
struct Asked {
    process: Process,
    /// The dump that was there before.
    before: Option<Written>,
    /// Why what is there can't be read.
    why: Option<String>,
}

fn ask_torch(dir: &RunDir, folder: &RunDir, live: &[Rank]) -> Vec<ProcessCollectives> {
    let went_on = went_on(dir);
    let mut told = Vec::new();
    let mut asked = Vec::new();
    let processes = flight::processes(folder);
    for process in processes.iter().copied() {
        let before = flight::written(folder, process);
        if live.contains(&process.0) && flight::ask(folder, process) {
            asked.push(Asked { process, before, why: None });
        } else if let Some(before) = before {
            // what it wrote before it ended, unless it has gone on after that
            let is_last = went_on.get(&process).is_none_or(|at| *at <= before.at_us() + SLACK_US);
            let dump = if is_last { read(folder, process) } else { Err(OLD.to_owned()) };
            told.push(summary(process, dump));
        }
    }
    let begun = clock::host_now();
    while !asked.is_empty() && since(begun) < PATIENCE {
        std::thread::sleep(LOOK);
        asked.retain_mut(|one| {
            let is_new = flight::written(folder, one.process).is_some_and(|now| Some(now) != one.before);
            let read = if is_new { Some(read(folder, one.process)) } else { None };
            match read {
                Some(Ok(dump)) => told.push(summary(one.process, Ok(dump))),
                // it may not be whole yet
                Some(Err(why)) if flight::listens(folder, one.process) => {
                    one.why = Some(why);
                    return true;
                }
                None if flight::listens(folder, one.process) => return true,
                Some(Err(_)) | None => told.push(summary(one.process, self::read(folder, one.process))),
            }
            false
        });
    }
    for Asked { process, why, .. } in asked {
        let silent = || format!("its torch has not written its dump within {} s", PATIENCE.as_secs());
        told.push(summary(process, Err(why.unwrap_or_else(silent))));
    }
    // where no rank has one it is another program than torch
    if !processes.is_empty() {
        let has = |rank: &Rank| processes.iter().any(|(of, _)| of == rank);
        for rank in live.iter().filter(|rank| !has(rank)) {
            let why = "its torch has made no process group of NCCL".to_owned();
            told.push(summary((*rank, rank.0), Err(why)));
        }
    }
    told.sort_by_key(|process| (process.rank, process.worker));
    told.truncate(PROCESSES);
    told
}

/// When each process has entered the phase that its page tells, in microseconds since the Unix epoch.
fn went_on(dir: &RunDir) -> BTreeMap<Process, i64> {
    let (wall, now, _) = clock::both();
    let pages = read_all(dir, |_| true).into_iter();
    pages
        .map(|((rank, worker), page)| {
            let ago = i64::try_from(now.0.saturating_sub(page.since)).unwrap_or(i64::MAX);
            ((rank, worker.unwrap_or(rank.0)), wall.0.saturating_sub(ago))
        })
        .collect()
}

fn read(folder: &RunDir, process: Process) -> Result<Dump, String> {
    let bytes = flight::read(folder, process, dump::MOST)?;
    dump::read(&bytes).map_err(|error| error.to_string())
}

fn summary((rank, number): Process, dump: Result<Dump, String>) -> ProcessCollectives {
    let worker = (number != rank.0).then_some(number);
    match dump {
        Ok(Dump { groups, is_whole }) => ProcessCollectives { rank, worker, groups, is_whole, lacks: None },
        Err(why) => ProcessCollectives { rank, worker, lacks: Some(why), ..ProcessCollectives::default() },
    }
}

/// Leaves out what one message has no room for: of each process all groups but some.
fn fit(told: &mut HostCollectives) {
    for most in [16, 4, 1, 0] {
        if serde_json::to_vec(told).is_ok_and(|bytes| bytes.len() <= MESSAGE_BYTES) {
            return;
        }
        for process in told.processes.iter_mut().filter(|process| process.groups.len() > most) {
            process.groups.truncate(most);
            process.is_whole = false;
            if most == 0 {
                process.lacks = Some("too many processes of one host tell too much".to_owned());
            }
        }
    }
}

/// How long ago that was.
pub(super) fn since(then: HostTime) -> Duration {
    Duration::from_micros(clock::host_now().0.saturating_sub(then.0))
}

/// What NCCL says of the run's communicators; `None` where nothing answers.
fn ask_nccl(port: u16) -> Option<RasAnswer> {
    let begun = clock::host_now();
    let mut socket = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), RAS_LOOK).ok()?;
    socket.set_read_timeout(Some(RAS_LOOK)).ok()?;
    socket.set_write_timeout(Some(RAS_LOOK)).ok()?;
    let mut line = |text: &str| {
        socket.write_all(text.as_bytes()).ok()?;
        read_line(&mut socket, begun)
    };
    line("client protocol 2\n").filter(|answer| answer.starts_with("SERVER PROTOCOL "))?;
    line(&format!("timeout {RAS_SECONDS}\n"))?;
    // before 2.28 there is no other form than text, and an error says so
    line("set format json\n")?;
    socket.write_all(b"verbose status\n").ok()?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    while since(begun) < RAS_PATIENCE && (answer.len() as u64) < ras::MOST {
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend(piece.iter().take(count)),
            Err(error) if is_wait(&error) => {}
            Err(_) => break,
        }
    }
    ras::read(&String::from_utf8_lossy(&answer))
}

/// One line of an answer, without its end.
fn read_line(socket: &mut TcpStream, begun: HostTime) -> Option<String> {
    /// The longest line.
    const LINE: usize = 256;
    let mut line = Vec::new();
    let mut byte = [0];
    while since(begun) < RAS_PATIENCE && line.len() < LINE {
        match socket.read(&mut byte) {
            Ok(0) => return None,
            Ok(_) if byte == *b"\n" => return String::from_utf8(line).ok(),
            Ok(_) => line.extend(byte),
            Err(error) if is_wait(&error) => {}
            Err(_) => return None,
        }
    }
    None
}

fn is_wait(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
