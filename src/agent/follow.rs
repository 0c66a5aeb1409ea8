//! Sends a run's states and bytes to the client as they come, on a thread of its own.
//!
//! Files are the only source, so that a run that ended long ago, or one whose supervisor died, is told in
//! the same way. Everything of one run goes through one ordered lane: a rank's exit never overtakes its
//! last words.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::AgentConfig;
use super::collectives::Collecting;
use super::lag::Lag;
use super::outgoing::Outgoing;
use super::pages::Pages;
use super::past_samples;
use super::read_out::{self, ReadOut};
use super::redact::{Readiness, Redactor, Rest, Telling, withheld};
use super::sync;
use super::tail::{Piece, Tail, Watcher};
use crate::clock;
use crate::domain::collectives::HostCollectives;
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::{GapReason, LogGap, Stream};
use crate::domain::note::{Note, what};
use crate::domain::run::{HostRun, REBOOTED, RankExit, RankSpec, RefusalClass};
use crate::domain::standstill::StalledPhase;
use crate::domain::time::HostTime;
use crate::procs::identity::{Identity, boot_id};
use crate::supervise::SuperviseError;
use crate::supervise::adopt;
use crate::supervise::attempts;
use crate::supervise::notes;
use crate::supervise::rundir::RunDir;
use crate::supervise::silence::Attended;
use crate::supervise::state::{Phase, SPEC, STATE, Started, State, exit_file, started_file, stream_file};
use crate::supervise::stop::sweep;
use crate::wire::chunk::{Chunk, Gap, Written};
use crate::wire::message::{
    Collectives, Follow, FromAgent, Noted, RankExited, RankStarted, Refused, RunRef, Stands,
};

/// The longest time between looks: deaths that leave no file are seen by looking.
const LOOK: Duration = Duration::from_millis(250);
/// Between looks while the supervisor only has to end itself.
const LAST_LOOK: Duration = Duration::from_millis(2);
/// Between rounds while files grow all the time: lines that come one by one travel together.
const BATCH: Duration = Duration::from_millis(5);
/// How long files may be unreadable before following ends.
const UNREADABLE: Duration = Duration::from_secs(10);
/// Looks between two tries to give a run a new supervisor.
const ADOPT_AGAIN: u32 = 20;
/// What is left of a file for a client that can't catch up.
const LAST: u64 = 256 << 10;
/// Between two looks how long the files are, microseconds.
const SEE_US: u64 = 20_000;
/// Pieces of one file before the next file has its turn.
const TURN: usize = 4;

/// A thread that follows a run; it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    cancelled: Arc<AtomicBool>,
    /// Set where nothing takes what the client reads.
    pub(super) unread: Arc<AtomicBool>,
    /// The attempt that it tells of.
    pub(super) attempt: Option<u32>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Starts to follow a run on this host.
pub(super) fn start(config: AgentConfig, follow: Follow, out: Outgoing) -> std::io::Result<Follower> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let unread = Arc::new(AtomicBool::new(false));
    let (flag, is_unread) = (Arc::clone(&cancelled), Arc::clone(&unread));
    let dir = RunDir::find(&config.state_dir, &follow.run, &follow.host).ok().flatten();
    let attempt = dir.and_then(|dir| attempts::newest(&dir));
    std::thread::Builder::new().name("follow".to_owned()).spawn(move || {
        let about = RunRef { run: follow.run.clone(), host: follow.host.clone() };
        let gone = || flag.load(Ordering::Relaxed) || out.closed();
        match open(&config, &follow, is_unread) {
            Ok(mut share) => share.follow_to_the_end(&out, &gone, &about),
            Err((class, reason)) => {
                let RunRef { run, host } = about;
                let refused = Refused { run, host, rank: None, reason, class, busy: false };
                out.control_blocking(FromAgent::Refused(refused));
            }
        }
    })?;
    Ok(Follower { cancelled, unread, attempt })
}

/// This host's share of a run as its files tell it.
struct SupervisedRun {
    exe: PathBuf,
    dir: RunDir,
    /// The attempt that is told. When another one is started this one has ended.
    attempt: u32,
    state: State,
    ranks: Vec<RankView>,
    notes: notes::Reader,
    /// When it was looked how long the files of all ranks are.
    seen: HostTime,
    /// The client's pace.
    lag: Lag,
    /// How many more looks pass before a run without supervisor is given a new one.
    adopt_in: u32,
    /// Only what is there now is wanted.
    once: bool,
    read_out: ReadOut,
    /// What is still to be told of the samples that the host has noted.
    past_samples: past_samples::Queue,
    /// What was told of the pages of its ranks.
    pages: Pages,
    /// When its collectives are asked for.
    collecting: Collecting,
    /// Where a run is ended that is silent while no client follows it.
    attended: Option<Attended>,
}

/// What the client knows of one rank.
struct RankView {
    rank: Rank,
    started: Option<Started>,
    announced: bool,
    exit: Option<RankExit>,
    /// Where its processes stood before a stop, told before its end.
    stood: Vec<(Option<u32>, StalledPhase)>,
    /// Bytes of each file that must go before the exit does.
    owed: [u64; 3],
    told: bool,
    files: [Tail; 3],
    /// How much the files may hold: why their beginning may be missing.
    cap: u64,
    /// What of them is hidden.
    redactor: Redactor,
}

/// Why a run can't be followed, in words.
type Unfollowed = (RefusalClass, String);

fn open(config: &AgentConfig, follow: &Follow, unread: Arc<AtomicBool>) -> Result<SupervisedRun, Unfollowed> {
    let Follow { run, host, .. } = follow;
    let unknown = || (RefusalClass::Unknown, format!("run {run} was never started on {host}"));
    let text = |error: SuperviseError| (error.class(), format!("{host}: {error}"));
    let dir = RunDir::find(&config.state_dir, run, host).map_err(text)?.ok_or_else(unknown)?;
    let watcher = Watcher::new(dir.path());
    loop {
        let state: State = dir.read_json(STATE).map_err(text)?.ok_or_else(unknown)?;
        let alive = state.supervisor.alive();
        if let Some(spec) = dir.read_json::<HostRun>(SPEC).map_err(text)? {
            let view = |rank: &RankSpec| RankView::new(rank, follow, spec.spool.cap);
            let views = spec.ranks.iter().map(view).collect();
            let (exe, notes) = (config.exe.clone(), notes::Reader::default());
            let lag = Lag::new(follow.hurry, follow.patience_s, unread);
            let once = follow.once;
            // who only takes what is there does not stay
            let attended = if once { None } else { Attended::new(&dir, &spec).map_err(text)? };
            let attempt = spec.attempt;
            return Ok(SupervisedRun {
                exe,
                dir,
                attempt,
                state,
                ranks: views,
                notes,
                seen: HostTime(0),
                lag,
                adopt_in: 0,
                once,
                read_out: ReadOut::default(),
                past_samples: past_samples::Queue::new(follow.samples_us),
                pages: Pages::default(),
                collecting: Collecting::default(),
                attended,
            });
        }
        if !alive {
            let reason = format!("the supervisor of run {run} on {host} died before it started a rank");
            return Err((RefusalClass::Fault, reason));
        }
        watcher.wait(LOOK);
    }
}

impl SupervisedRun {
    /// Follows, and begins again where the files can't be read for a while; then says so and gives up.
    fn follow_to_the_end(&mut self, out: &Outgoing, gone: &dyn Fn() -> bool, about: &RunRef) {
        let mut waited = Duration::ZERO;
        loop {
            let Err(error) = self.follow(out, gone, about, &mut waited) else {
                return;
            };
            if waited >= UNREADABLE {
                let text = format!("the run's files can't be read any more: {error}");
                let note = Note::new(what::UNREADABLE, text, clock::host_now());
                out.data_blocking(FromAgent::Noted(Noted::of(about, Noted::UNNUMBERED, note)));
                return;
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }

    /// Sends until nothing is left to send, or the receiver is gone. `trouble` becomes nothing with the first
    /// look that succeeds.
    fn follow(
        &mut self,
        out: &Outgoing,
        gone: &dyn Fn() -> bool,
        about: &RunRef,
        trouble: &mut Duration,
    ) -> Result<(), SuperviseError> {
        let watcher = Watcher::new(self.dir.path());
        while !gone() {
            // Before the files are read: what was written by then is there to be read.
            let aside = attempts::aside(&self.dir, self.attempt);
            let supervised =
                aside.is_none() && (adopt::supervised(&self.dir, &self.state)? || self.adopted());
            if let Some(attended) = &mut self.attended {
                attended.mark(clock::host_now());
            }
            self.look(supervised, aside.as_ref())?;
            self.see();
            let mut moved = false;
            for (number, note) in self.notes.news(&self.dir)? {
                moved = true;
                if !out.data_blocking(FromAgent::Noted(Noted::of(about, number, note))) {
                    return Ok(());
                }
            }
            for place in 0..self.ranks.len() {
                let Some(rank) = self.ranks.get_mut(place) else { continue };
                match rank.learn_secrets(&self.dir, &self.state)? {
                    Readiness::Clear => {}
                    // Its rank-wrap will be known in a moment, or have written down how it ended.
                    Readiness::Waiting => continue,
                    Readiness::JustLost => {
                        if !out.data_blocking(FromAgent::Noted(withheld(about, rank.rank))) {
                            return Ok(());
                        }
                    }
                }
                for message in rank.due(&about.run, &self.dir, supervised)? {
                    moved = true;
                    let bytes =
                        if let FromAgent::Chunk(chunk) = &message { chunk.data.len() as u64 } else { 0 };
                    // what is written while the client is behind
                    self.see();
                    if !out.data_looking(message, || self.see()) {
                        return Ok(());
                    }
                    self.lag.sent(bytes, clock::host_now());
                }
            }
            let ended = self.ranks.iter().filter(|rank| rank.exit.is_some() && !rank.told);
            let unread = ended.map(|rank| read_out::unread(rank.rank, &rank.files, &self.dir));
            let note = self.read_out.look(about, unread, clock::host_now()).filter(|_| !self.once);
            if note.is_some_and(|note| !out.data_blocking(FromAgent::Noted(note))) {
                return Ok(());
            }
            // behind the starts of the ranks, without which no client knows that they ran
            let Some(sampled) = self.tell_samples(out, &about.run) else { return Ok(()) };
            moved |= sampled;
            let live = self.ranks.iter().filter(|rank| rank.announced && rank.exit.is_none());
            let live = live.filter_map(|rank| Some((rank.rank, rank.started.as_ref()?.process.pid)));
            for (rank, worker, standing) in self.pages.look(&self.dir, live, clock::host_now()) {
                let stands = Stands { run: about.run.clone(), rank, worker, standing };
                if !out.data_blocking(FromAgent::Stands(stands)) {
                    return Ok(());
                }
            }
            if let Some(told) = self.collect(aside.is_some()) {
                let RunRef { run, host } = about.clone();
                if !out.data_blocking(FromAgent::Collectives(Box::new(Collectives { run, host, told }))) {
                    return Ok(());
                }
            }
            *trouble = Duration::ZERO;
            let told = self.is_told();
            if told && aside.is_some() {
                // what is printed now belongs to the next attempt
                out.data_blocking(FromAgent::Finished(about.clone()));
                return Ok(());
            }
            if moved {
                self.hurry();
                continue;
            }
            if self.once {
                out.data_blocking(FromAgent::Finished(about.clone()));
                return Ok(());
            }
            self.lag.level();
            if told && !supervised {
                if self.state.phase != Phase::Ended {
                    sweep(&self.dir, &self.state, false)?;
                }
                if self.ranks.iter().all(|rank| rank.behind(&self.dir) == [0; 3]) {
                    sync::tidy(&self.dir, about, out);
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

    /// Tells the next piece of the samples that this host has noted; whether there was one, `None` when the receiver is gone.
    fn tell_samples(&mut self, out: &Outgoing, run: &RunId) -> Option<bool> {
        let Some(piece) = self.past_samples.next_piece(&self.dir, run) else { return Some(false) };
        out.data_looking(FromAgent::PastSamples(piece), || self.see()).then_some(true)
    }

    /// Whether all is told that is known of its ranks and of this host.
    fn is_told(&self) -> bool {
        !self.collecting.is_busy() && self.past_samples.is_over() && self.ranks.iter().all(|rank| rank.told)
    }

    /// Looks how long the files of all ranks are, unless that was just done.
    fn see(&mut self) {
        let now = clock::host_now();
        if now.0.saturating_sub(self.seen.0) >= SEE_US {
            self.seen = now;
            self.ranks.iter_mut().for_each(|rank| rank.see(&self.dir));
        }
    }

    /// What the processes say of their collectives, where the run stands or has failed and this is its newest attempt.
    fn collect(&mut self, is_aside: bool) -> Option<HostCollectives> {
        if self.once || is_aside {
            return None;
        }
        let is_failed =
            |rank: &RankView| rank.exit.as_ref().is_some_and(|exit| exit.shell_code() != 0 && !exit.stopped);
        let failed = self.ranks.iter().any(is_failed);
        let live = self.ranks.iter().filter(|rank| rank.announced && rank.exit.is_none());
        let live: Vec<Rank> = live.map(|rank| rank.rank).collect();
        let stands = self.pages.stands() && !live.is_empty();
        self.collecting.look(&self.dir, &live, (stands, failed), clock::host_now())
    }

    /// Passes over what the client can't catch up with: all but the end of each file.
    fn hurry(&mut self) {
        if !self.lag.counts() {
            return;
        }
        let behind = |rank: &RankView| rank.behind(&self.dir).iter().sum::<u64>();
        let behind: u64 = self.ranks.iter().map(behind).sum();
        let ended = self.ranks.iter().all(|rank| rank.exit.is_some());
        if self.lag.hopeless(behind, ended) {
            for (tail, stream) in
                self.ranks.iter_mut().flat_map(|rank| rank.files.iter_mut().zip(Stream::ALL))
            {
                if stream != Stream::Report {
                    tail.hurry(LAST);
                }
            }
            self.lag.level();
        }
    }

    /// Gives a run that has lost its supervisor a new one; whether it has one now.
    fn adopted(&mut self) -> bool {
        if self.state.phase == Phase::Ended {
            return false;
        }
        self.adopt_in = self.adopt_in.saturating_sub(1);
        if self.adopt_in > 0 {
            return false;
        }
        match adopt::adopt(&self.exe, &self.dir) {
            // Needless: another one was quicker, or the run ends just now.
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "a run without supervisor could not be given a new one");
                self.adopt_in = ADOPT_AGAIN;
                false
            }
        }
    }

    /// Reads what the supervisor and the rank-wraps have written, `aside` where another attempt was started since.
    fn look(&mut self, supervised: bool, aside: Option<&RunDir>) -> Result<(), SuperviseError> {
        let dir = aside.unwrap_or(&self.dir);
        if let Some(state) = dir.read_json(STATE)? {
            self.state = state;
        }
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_none()) {
            if rank.started.is_none() {
                rank.learn_start(dir)?;
            }
            let wrapped = self.state.wraps.get(&rank.rank).is_some_and(Identity::alive);
            let runs = rank.started.as_ref().is_some_and(|started| started.process.alive());
            // After the look at the processes: one that ended by then has written all it ever will.
            let exit = dir.read_json(&exit_file(rank.rank))?;
            let lost = !supervised && !wrapped && !runs;
            let moved = if lost && exit.is_none() { attempts::moved(&self.dir, self.attempt) } else { None };
            let exit = match moved {
                // set aside between two looks
                Some(moved) => moved.read_json(&exit_file(rank.rank))?,
                None => exit,
            };
            if let Some(exit) = exit.or_else(|| lost.then(|| unknown_exit(&self.state))) {
                rank.see_end(&self.dir, exit.t);
                rank.stood = self.pages.last(dir, rank.rank, &exit);
                rank.exit = Some(exit);
                rank.owed = rank.behind(&self.dir);
                if rank.started.is_none() {
                    rank.learn_start(dir)?;
                }
            }
        }
        Ok(())
    }
}

/// The end of a rank of which nothing was written down: a reboot, or all was killed at once.
fn unknown_exit(state: &State) -> RankExit {
    let rebooted = boot_id().is_ok_and(|boot| boot != state.supervisor.boot);
    let cause = if rebooted { REBOOTED } else { "how it ended was not recorded" };
    let cause = Some(cause.to_owned());
    RankExit { code: None, signal: None, t: clock::host_now(), error: None, stopped: false, cause }
}

impl RankView {
    fn new(spec: &RankSpec, follow: &Follow, cap: u64) -> Self {
        let rank = spec.rank;
        let offset = |stream| {
            let from = follow.from.iter().find(|(r, s, _)| (*r, *s) == (rank, stream));
            from.map_or(0, |(_, _, offset)| *offset)
        };
        // reports are what a screen is made of: never passed over
        let last = |stream| follow.last.filter(|_| stream != Stream::Report);
        let tail = |stream| Tail::new(stream_file(rank, stream), offset(stream), last(stream));
        Self {
            rank,
            started: None,
            announced: false,
            exit: None,
            stood: Vec::new(),
            owed: [0; 3],
            told: false,
            files: Stream::ALL.map(tail),
            cap,
            redactor: Redactor::new(spec.clone()),
        }
    }

    /// Learns of its process, once that is started.
    fn learn_start(&mut self, dir: &RunDir) -> Result<(), SuperviseError> {
        self.started = dir.read_json(&started_file(self.rank))?;
        let boot = self.started.as_ref().map(|started| started.process.boot.as_str());
        if boot.is_some_and(|boot| boot_id().is_ok_and(|now| now != boot)) {
            self.files.iter_mut().for_each(Tail::outlive_reboot);
        }
        Ok(())
    }

    fn printed(&mut self) -> impl Iterator<Item = &mut Tail> {
        let files = self.files.iter_mut().zip(Stream::ALL);
        files.filter(|(_, stream)| *stream != Stream::Report).map(|(file, _)| file)
    }

    /// Looks how long its output is.
    fn see(&mut self, dir: &RunDir) {
        self.printed().for_each(|file| file.see(dir));
    }

    /// What it has printed by now was printed before its end.
    fn see_end(&mut self, dir: &RunDir, end: HostTime) {
        self.printed().for_each(|file| file.see_end(dir, end));
    }

    /// Learns what must be hidden of what it prints, before any of it is read.
    fn learn_secrets(&mut self, dir: &RunDir, state: &State) -> Result<Readiness, SuperviseError> {
        if self.started.is_none() && self.exit.is_none() {
            return Ok(Readiness::Waiting);
        }
        let process = self.started.as_ref().map(|started| &started.process);
        // A rank-wrap that the state does not name yet: the rank has the same variables, unless it changed them.
        let holder = state.wraps.get(&self.rank).or(process);
        self.redactor.learn(dir, holder, self.exit.is_some())
    }

    /// What is to be sent of this rank now, at most a turn of each file. After an error all of it is still due.
    fn due(&mut self, run: &RunId, dir: &RunDir, supervised: bool) -> Result<Vec<FromAgent>, SuperviseError> {
        let before = (self.announced, self.owed, self.files.each_ref().map(Tail::offset));
        let due = self.read(run, dir, supervised);
        if due.is_err() {
            (self.announced, self.owed) = (before.0, before.1);
            self.files.iter_mut().zip(before.2).for_each(|(file, offset)| file.rewind(offset));
        }
        due
    }

    fn read(
        &mut self,
        run: &RunId,
        dir: &RunDir,
        supervised: bool,
    ) -> Result<Vec<FromAgent>, SuperviseError> {
        let (rank, run) = (self.rank, || run.clone());
        let mut due = Vec::new();
        if !self.announced {
            match (&self.started, &self.exit) {
                (Some(Started { process, t, .. }), _) => {
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
                let Some(mut piece) = tail.next_piece(dir)? else {
                    break;
                };
                if let Piece::Data(offset, data) = piece {
                    // After the rank's end nothing comes any more that could finish a value.
                    let rest = match tail.behind(dir) {
                        0 if self.exit.is_some() => Rest::Never,
                        0 if tail.is_late() => Rest::Late,
                        _ => Rest::Coming,
                    };
                    let before = tail.before(dir, offset, self.redactor.looks_back())?;
                    let whole = offset + data.len() as u64;
                    piece = match self.redactor.tell(
                        dir,
                        (stream, offset),
                        (&before, data),
                        (rest, supervised),
                    )? {
                        Telling::Later => {
                            tail.rewind(offset);
                            break;
                        }
                        Telling::Withheld => Piece::Gap(offset, whole, GapReason::Withheld),
                        Telling::Bytes(data) => {
                            let until = offset + data.len() as u64;
                            tail.rewind(until);
                            if stream != Stream::Report {
                                let end = self.exit.as_ref().map(|exit| exit.t);
                                let moments = tail.moments(dir, (rank, stream), (offset, until), end);
                                let written = Written::each(&run(), (rank, stream), &moments);
                                due.extend(written.into_iter().map(FromAgent::Written));
                            }
                            Piece::Data(offset, data)
                        }
                    };
                }
                *owed = owed.saturating_sub(piece.bytes());
                due.push(match piece {
                    Piece::Data(offset, data) => {
                        FromAgent::Chunk(Chunk { run: run(), rank, stream, offset, data })
                    }
                    Piece::Gap(from, to, reason) => {
                        let cap = (reason == GapReason::NotKept).then_some(self.cap);
                        let gap = LogGap { rank, stream, from, to, reason, cap };
                        FromAgent::Gap(Gap { run: run(), gap })
                    }
                });
            }
        }
        if let Some(exit) = self.exit.as_ref().filter(|_| !self.told && self.owed == [0; 3]) {
            let stood = std::mem::take(&mut self.stood).into_iter();
            let told = |(worker, standing)| FromAgent::Stands(Stands { run: run(), rank, worker, standing });
            due.extend(stood.map(told));
            due.push(FromAgent::RankExited(RankExited { run: run(), rank, exit: exit.clone() }));
            self.told = true;
        }
        Ok(due)
    }

    fn behind(&self, dir: &RunDir) -> [u64; 3] {
        self.files.each_ref().map(|file| file.behind(dir))
    }
}
