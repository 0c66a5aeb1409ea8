//! Sends a run's states and bytes to the client as they come, on a thread of its own.
//!
//! Files are the only source, so that a run that ended long ago, or one whose supervisor died, is told in
//! the same way. Everything of one run goes through one ordered lane: a rank's exit never overtakes its
//! last words.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::AgentConfig;
use super::outgoing::Outgoing;
use super::tail::{Tail, Watcher};
use crate::clock;
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::Stream;
use crate::domain::run::{HostRun, RankExit, RefusalClass};
use crate::supervise::SuperviseError;
use crate::supervise::identity::Identity;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, SPEC, STATE, Started, State, exit_file, started_file, stream_file};
use crate::supervise::stop::sweep;
use crate::wire::message::{Chunk, Follow, FromAgent, RankExited, RankStarted, Refused, RunRef};

/// The longest time between looks: deaths that leave no file are seen by looking.
const LOOK: Duration = Duration::from_millis(250);
/// Between looks while the supervisor only has to end itself.
const LAST_LOOK: Duration = Duration::from_millis(2);
/// Between rounds while files grow all the time: lines that come one by one travel together.
const BATCH: Duration = Duration::from_millis(5);
/// Pieces of one file before the next file has its turn.
const TURN: usize = 4;

/// A thread that follows a run; it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    cancelled: Arc<AtomicBool>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Starts to follow a run on this host.
pub(super) fn start(config: AgentConfig, follow: Follow, out: Outgoing) -> std::io::Result<Follower> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        let about = RunRef { run: follow.run.clone(), host: follow.host.clone() };
        let ended = open(&config, &follow).and_then(|mut share| {
            share.follow(&out, &|| flag.load(Ordering::Relaxed) || out.closed(), &about, follow.once)
        });
        if let Err((class, reason)) = ended {
            let RunRef { run, host } = about;
            out.control_blocking(FromAgent::Refused(Refused { run, host, rank: None, reason, class }));
        }
    })?;
    Ok(Follower { cancelled })
}

/// This host's share of a run as its files tell it.
struct Share {
    dir: RunDir,
    state: State,
    ranks: Vec<RankView>,
}

/// What the client knows of one rank.
struct RankView {
    rank: Rank,
    started: Option<Started>,
    announced: bool,
    exit: Option<RankExit>,
    /// Bytes of each file that must go before the exit does.
    owed: [u64; 3],
    told: bool,
    files: [Tail; 3],
}

/// Why a run can't be followed, in words.
type Unfollowed = (RefusalClass, String);

fn open(config: &AgentConfig, follow: &Follow) -> Result<Share, Unfollowed> {
    let Follow { run, host, from, .. } = follow;
    let unknown = || (RefusalClass::Unknown, format!("run {run} was never started on {host}"));
    let text = |error: SuperviseError| (error.class(), format!("{host}: {error}"));
    let dir = RunDir::find(&config.state_dir, run, host).map_err(text)?.ok_or_else(unknown)?;
    let watcher = Watcher::new(dir.path());
    loop {
        let state: State = dir.read_json(STATE).map_err(text)?.ok_or_else(unknown)?;
        let alive = state.supervisor.alive();
        if let Some(spec) = dir.read_json::<HostRun>(SPEC).map_err(text)? {
            let views = spec.ranks.iter().map(|rank| RankView::new(rank.rank, from)).collect();
            return Ok(Share { dir, state, ranks: views });
        }
        if !alive {
            let reason = format!("the supervisor of run {run} on {host} died before it started a rank");
            return Err((RefusalClass::Fault, reason));
        }
        watcher.wait(LOOK);
    }
}

impl Share {
    /// Sends until nothing is left to send, or nobody to send to.
    fn follow(
        &mut self,
        out: &Outgoing,
        gone: &dyn Fn() -> bool,
        about: &RunRef,
        once: bool,
    ) -> Result<(), Unfollowed> {
        let text = |error: SuperviseError| (error.class(), format!("{}: {error}", about.host));
        let watcher = Watcher::new(self.dir.path());
        while !gone() {
            // Before the files are read: what was written by then is there to be read.
            let supervised = self.state.supervisor.alive();
            self.look(supervised).map_err(text)?;
            let mut moved = false;
            for rank in &mut self.ranks {
                for message in rank.due(&about.run, &self.dir).map_err(text)? {
                    moved = true;
                    if !out.data_blocking(message) {
                        return Ok(());
                    }
                }
            }
            if moved {
                continue;
            }
            if once {
                out.data_blocking(FromAgent::Finished(about.clone()));
                return Ok(());
            }
            let told = self.ranks.iter().all(|rank| rank.told);
            if told && !supervised {
                if self.state.phase != Phase::Ended {
                    sweep(&self.dir, &self.state, false).map_err(text)?;
                }
                if self.ranks.iter().all(|rank| rank.behind(&self.dir) == [0; 3]) {
                    out.data_blocking(FromAgent::Finished(about.clone()));
                    return Ok(());
                }
                continue;
            }
            if told && self.state.phase == Phase::Ended {
                std::thread::sleep(LAST_LOOK);
            } else {
                watcher.wait(LOOK);
                std::thread::sleep(BATCH);
            }
        }
        Ok(())
    }

    /// Reads what the supervisor and the rank-wraps have written.
    fn look(&mut self, supervised: bool) -> Result<(), SuperviseError> {
        if let Some(state) = self.dir.read_json(STATE)? {
            self.state = state;
        }
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_none()) {
            if rank.started.is_none() {
                rank.started = self.dir.read_json(&started_file(rank.rank))?;
            }
            let wrapped = self.state.wraps.get(&rank.rank).is_some_and(Identity::alive);
            let runs = rank.started.as_ref().is_some_and(|started| started.process.alive());
            // After the look at the processes: whoever ended by then has written all it ever will.
            let exit = self.dir.read_json(&exit_file(rank.rank))?;
            let lost = !supervised && !wrapped && !runs;
            if let Some(exit) = exit.or_else(|| lost.then(unknown_exit)) {
                rank.exit = Some(exit);
                rank.owed = rank.behind(&self.dir);
                if rank.started.is_none() {
                    rank.started = self.dir.read_json(&started_file(rank.rank))?;
                }
            }
        }
        Ok(())
    }
}

/// The end of a rank of which nobody has written down anything: a reboot, or all was killed at once.
fn unknown_exit() -> RankExit {
    RankExit { code: None, signal: None, t: clock::host_now(), error: None, stopped: false }
}

impl RankView {
    fn new(rank: Rank, from: &[(Rank, Stream, u64)]) -> Self {
        let offset = |stream| {
            from.iter().find(|(r, s, _)| (*r, *s) == (rank, stream)).map_or(0, |(_, _, offset)| *offset)
        };
        let tail = |stream| Tail::new(stream_file(rank, stream), offset(stream));
        Self {
            rank,
            started: None,
            announced: false,
            exit: None,
            owed: [0; 3],
            told: false,
            files: Stream::ALL.map(tail),
        }
    }

    /// What is to be sent of this rank now, at most a turn of each file.
    fn due(&mut self, run: &RunId, dir: &RunDir) -> Result<Vec<FromAgent>, SuperviseError> {
        let (rank, run) = (self.rank, || run.clone());
        let mut due = Vec::new();
        if !self.announced {
            match (&self.started, &self.exit) {
                (Some(Started { process, t }), _) => {
                    due.push(FromAgent::RankStarted(RankStarted {
                        run: run(),
                        rank,
                        pid: process.pid,
                        t: *t,
                    }));
                }
                (None, Some(_)) => {}
                (None, None) => return Ok(due),
            }
            self.announced = true;
        }
        for ((tail, owed), stream) in self.files.iter_mut().zip(&mut self.owed).zip(Stream::ALL) {
            for _ in 0..TURN {
                let Some((offset, data)) = tail.next_piece(dir)? else {
                    break;
                };
                *owed = owed.saturating_sub(data.len() as u64);
                due.push(FromAgent::Chunk(Chunk { run: run(), rank, stream, offset, data }));
            }
        }
        if let Some(exit) = self.exit.as_ref().filter(|_| !self.told && self.owed == [0; 3]) {
            due.push(FromAgent::RankExited(RankExited { run: run(), rank, exit: exit.clone() }));
            self.told = true;
        }
        Ok(due)
    }

    fn behind(&self, dir: &RunDir) -> [u64; 3] {
        self.files.each_ref().map(|file| file.behind(dir))
    }
}
