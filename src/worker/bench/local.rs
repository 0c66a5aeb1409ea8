//! Without a launcher: the ranks of a measurement as processes of this program on this machine.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use crate::procs::pidfd;
use crate::worker::error::WorkerError;

/// Names the process that started a rank, so that the rank ends with it.
const STARTER: &str = "HVTUI_BENCH_STARTER";
/// How long the other ranks may take to say why they end, once one has failed.
const GRACE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Between two looks where the kernel has no handle that tells an end, and how many of them are [`GRACE`].
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const LOOKS: u32 = 500;

/// Starts `count` ranks of this program with `arguments`, and waits for all of them. They print for themselves.
pub(super) fn run(count: u32, arguments: &[OsString]) -> Result<(), WorkerError> {
    let failed = |what| move |source: std::io::Error| WorkerError::Start { what, source };
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let port = free_port().map_err(failed("find a free port"))?;
    let secret = secret()?;
    let mut ranks = Ranks(Vec::new());
    for rank in 0..count {
        let child = Command::new(&program)
            .args(arguments)
            .envs(
                [
                    ("RANK", rank),
                    ("LOCAL_RANK", rank),
                    ("HVTUI_LOCAL_RANK", rank),
                    ("WORLD_SIZE", count),
                    ("LOCAL_WORLD_SIZE", count),
                ]
                .map(|(name, number)| (name, number.to_string())),
            )
            .envs([("MASTER_ADDR", "127.0.0.1"), ("HVTUI_BIND", "127.0.0.1"), ("HVTUI_SECRET", &secret)])
            .env("MASTER_PORT", port.to_string())
            .env(STARTER, std::process::id().to_string())
            .stdin(Stdio::null())
            .spawn()
            .map_err(failed("start a rank"))?;
        let ended = pidfd::open(child.id());
        ranks.0.push(Running { rank, child, ended });
    }
    ranks.wait()
}

/// In a rank that [`run`] started: makes it end with its starter.
pub(super) fn end_with_starter() -> Result<(), WorkerError> {
    let Some(starter) = std::env::var(STARTER).ok().and_then(|pid| pid.parse::<i32>().ok()) else {
        return Ok(());
    };
    let gone = |source| WorkerError::Start { what: "end with its starter", source };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| gone(errno.into()))?;
    if rustix::process::getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) == Some(starter) {
        Ok(())
    } else {
        Err(gone(std::io::Error::other("it is gone already")))
    }
}

struct Running {
    rank: u32,
    child: Child,
    /// Tells its end, where the kernel has such handles.
    ended: Option<OwnedFd>,
}

/// Processes that are ended when this is dropped.
struct Ranks(Vec<Running>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for one in &mut self.0 {
            // one that has ended already can't be killed
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

impl Ranks {
    /// Until all have ended. The first failure counts; what goes on long after it is ended.
    fn wait(mut self) -> Result<(), WorkerError> {
        let mut first: Option<WorkerError> = None;
        let mut looks = 0;
        while !self.0.is_empty() {
            let blind = self.0.iter().any(|one| one.ended.is_none());
            looks += u32::from(blind && first.is_some());
            let watched = self.0.iter().filter_map(|one| one.ended.as_ref());
            let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // sleeps: the ranks need the processors
            let pause = if blind { Some(&LOOK) } else { first.as_ref().map(|_| &GRACE) };
            let changed = match poll(&mut fds, pause) {
                Ok(changed) => changed,
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => {
                    return Err(WorkerError::Start { what: "wait for the ranks", source: errno.into() });
                }
            };
            if looks > LOOKS || (changed == 0 && !blind) {
                break;
            }
            let mut going = Vec::new();
            for mut one in std::mem::take(&mut self.0) {
                match one.child.try_wait() {
                    Ok(None) => going.push(one),
                    Ok(Some(status)) if status.success() => {}
                    Ok(Some(status)) => {
                        first.get_or_insert(WorkerError::RankFailed { rank: one.rank, status });
                    }
                    Err(source) => {
                        first.get_or_insert(WorkerError::Start { what: "wait for a rank", source });
                    }
                }
            }
            self.0 = going;
        }
        first.map_or(Ok(()), Err)
    }
}

/// A port that was free a moment ago: rank 0 opens it again.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// 64 hexadecimal digits that no other process can guess.
pub(super) fn secret() -> Result<String, WorkerError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| WorkerError::Start {
        what: "make a secret",
        source: std::io::Error::other("the system gives no random bytes"),
    })?;
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    Ok(digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect())
}
