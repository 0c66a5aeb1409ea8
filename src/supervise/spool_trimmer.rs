//! Keeps what each rank prints within its cap, and on the disk: threads that look at the files, cut the oldest
//! bytes, and sync; and one that notes when they grow. What owns a run holds one: its supervisor, or who takes the run over after that one's
//! death.
//!
//! Ranks print straight into files, so nothing can make them wait: a rank may be over its cap for the moment until
//! the next look. So what it printed at most between two looks is kept free below the cap ([`PeakGrowth`]). What to cut and
//! when to look again is decided by [`TrimInterval`] and [`keep`], which know no files.
//! Must not know of states or exits.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::SuperviseError;
use super::disk_space::DiskSpaceWatch;
use super::rundir::RunDir;
use super::spool::{self, BLOCK};
use super::state::stream_file;
use super::times::Times;
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::HostRun;
use crate::domain::time::HostTime;
use crate::sched;

/// Between two syncs of a file. What a power failure may take of a log.
const SYNC: Duration = Duration::from_secs(1);
/// A file that grows by more between two syncs is left to the system: syncing a flood would cost the run's disk
/// more than its text is worth.
const FLOOD: u64 = 64 << 20;

/// Threads that look at files, at most.
const MOST_THREADS: usize = 64;

/// Hears what a person should know.
pub type Note = dyn Fn(&str) + Send + Sync;

/// The threads, until this is dropped; dropping waits for their last look.
#[derive(Debug)]
pub struct SpoolTrimmer {
    /// Nothing is ever sent: a thread ends when its sender is gone.
    alive: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl SpoolTrimmer {
    /// Trims the files of `run` in `dir`. Where they can't be cut, it still syncs them and watches the disk;
    /// `note` hears that, and whatever goes wrong later.
    pub fn start(dir: &RunDir, run: &HostRun, note: Box<Note>) -> Result<Self, SuperviseError> {
        let note: Arc<Note> = note.into();
        let cuts = spool::can_cut(dir).unwrap_or(false);
        if !cuts {
            note(
                "the file system can't give back parts of a file: what ranks print is kept whole, over the cap",
            );
        }
        let mut trimmer = Self { alive: Vec::new(), threads: Vec::new() };
        // A thread a rank: freeing takes processor time too, and on a busy machine a flood is held only by as many
        // threads as make it. More ranks than a machine has processors don't print at once and share threads, as
        // waking one takes longer than a look.
        let share = run.ranks.len().div_ceil(MOST_THREADS).max(1);
        for ranks in run.ranks.chunks(share).filter(|_| cuts) {
            let mut watched: Vec<Watched> = ranks
                .iter()
                .map(|rank| Watched::new(rank.rank, TrimInterval::among(run.ranks.len())))
                .collect();
            let (dir, note, cap) = (RunDir::open(dir.path())?, Arc::clone(&note), run.spool.cap);
            trimmer.spawn("guard", move |ended| {
                // its look is short and comes too late behind each rank that computes
                sched::short_turns(sched::For::ThisThread);
                loop {
                    let now = clock::host_now();
                    for one in watched.iter_mut().filter(|one| one.due <= now) {
                        if let Err(error) = one.look(&dir, cap) {
                            note(&format!("rank {} is not kept within its cap: {error}", one.files.rank));
                            one.due = HostTime(u64::MAX);
                        }
                    }
                    let Some(due) = watched.iter().map(|one| one.due).min().filter(|due| due.0 < u64::MAX)
                    else {
                        return;
                    };
                    let wait = Duration::from_micros(due.0.saturating_sub(clock::host_now().0));
                    if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                        // what was printed since; an error was told in time or tells nothing any more
                        for one in watched.iter_mut().filter(|one| one.due.0 < u64::MAX) {
                            let _ = one.look(&dir, cap);
                        }
                        return;
                    }
                }
            })?;
        }
        let times = Times::new(RunDir::open(dir.path())?, run.ranks.iter().map(|rank| rank.rank));
        trimmer.spawn("times", move |ended| times.keep(ended))?;
        // Apart from them: a sync may take as long as the disk likes.
        let ranks: Vec<Rank> = run.ranks.iter().map(|rank| rank.rank).collect();
        let (dir, mut space) = (RunDir::open(dir.path())?, DiskSpaceWatch::new(run.spool.min_free));
        trimmer.spawn("sync", move |ended| {
            let mut synced = vec![0; ranks.len() * Stream::ALL.len()];
            loop {
                let over = ended.recv_timeout(SYNC);
                space.look(&dir, &*note);
                sync(&dir, &ranks, &mut synced);
                if over != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(trimmer)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Receiver<()>) + Send + 'static,
    ) -> Result<(), SuperviseError> {
        let (alive, ended) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&ended));
        let thread = thread.map_err(|e| SuperviseError::io("start the thread", Path::new(name), e))?;
        self.alive.push(alive);
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for SpoolTrimmer {
    fn drop(&mut self) {
        self.alive.clear();
        for thread in self.threads.drain(..) {
            // a panic in there is no reason to fail the run
            let _ = thread.join();
        }
    }
}

/// Syncs every file that has grown since the last time, but for floods.
fn sync(dir: &RunDir, ranks: &[Rank], synced: &mut [u64]) {
    let files = ranks.iter().flat_map(|rank| Stream::ALL.map(|stream| stream_file(*rank, stream)));
    for (name, synced) in files.zip(synced) {
        let Ok(Some(file)) = dir.read(&name) else { continue };
        let Ok(length) = file.metadata().map(|meta| meta.len()) else { continue };
        if length != *synced && length.saturating_sub(*synced) <= FLOOD {
            // A write error is told to the next writer.
            let _ = file.sync_data();
        }
        *synced = length;
    }
}

/// A rank, and when it is looked at next; never, after an error.
struct Watched {
    files: RankFiles,
    interval: TrimInterval,
    due: HostTime,
}

impl Watched {
    fn new(rank: Rank, interval: TrimInterval) -> Self {
        Self { files: RankFiles::new(rank), interval, due: HostTime(0) }
    }

    fn look(&mut self, dir: &RunDir, cap: u64) -> Result<(), SuperviseError> {
        let grown = self.files.look(dir, cap)?;
        let now = clock::host_now();
        let wait = u64::try_from(self.interval.next(grown, now).as_micros()).unwrap_or(u64::MAX);
        self.due = HostTime(now.0.saturating_add(wait).min(u64::MAX - 1));
        Ok(())
    }
}

/// The files of one rank, in the order of [`Stream::ALL`].
struct RankFiles {
    rank: Rank,
    files: [Option<File>; 3],
    held: [Held; 3],
    peak: PeakGrowth,
}

/// What a file holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// The first byte that is kept.
    pub from: u64,
    /// The end of the file.
    pub to: u64,
}

impl Held {
    fn bytes(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// What a look at the files found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grown {
    /// Bytes that the rank has printed since the last one.
    pub by: u64,
    /// Bytes that it may still print before it is cut.
    pub room: u64,
}

impl RankFiles {
    fn new(rank: Rank) -> Self {
        let (files, held) = ([None, None, None], <[Held; 3]>::default());
        Self { rank, files, held, peak: PeakGrowth::default() }
    }

    fn look(&mut self, dir: &RunDir, cap: u64) -> Result<Grown, SuperviseError> {
        let mut by = 0;
        for ((file, held), stream) in self.files.iter_mut().zip(&mut self.held).zip(Stream::ALL) {
            let name = stream_file(self.rank, stream);
            let failed = |e| SuperviseError::io("look at", &dir.path().join(&name), e);
            if file.is_none() {
                *file = dir.open_to_cut(&name)?;
                if let Some(file) = file {
                    // an earlier trimmer may have cut; and what is there was not printed just now
                    held.from = spool::kept_from(file, 0).map_err(failed)?;
                    held.to = file.metadata().map_err(failed)?.len();
                }
            }
            if let Some(file) = file {
                let to = file.metadata().map_err(failed)?.len();
                if to < held.to {
                    // the rank began its file anew
                    *held = Held { from: spool::kept_from(file, 0).map_err(failed)?, to: 0 };
                }
                by += to.saturating_sub(held.to);
                held.to = to;
            }
        }
        let limit = self.peak.limit(by, cap);
        let keep = keep(self.held, limit).into_iter().zip(Stream::ALL);
        for ((file, held), (keep, stream)) in self.files.iter().zip(&mut self.held).zip(keep) {
            let (Some(file), true) = (file, keep > held.from) else { continue };
            let failed = |e| SuperviseError::io("cut", &dir.path().join(stream_file(self.rank, stream)), e);
            spool::cut(file, keep).map_err(failed)?;
            held.from = keep;
        }
        let bytes: u64 = self.held.iter().map(|held| held.bytes()).sum();
        Ok(Grown { by, room: limit.saturating_sub(bytes) })
    }
}

/// The most that a rank has printed between two looks lately. A trimmer that has to wait for a processor looks late, just when
/// a rank that has one prints most.
#[derive(Debug, Default)]
pub struct PeakGrowth {
    bytes: u64,
}

impl PeakGrowth {
    /// How much the files may hold after a look that found so many new bytes, so that as many again stay within the cap. A
    /// quarter of the cap is kept however fast a rank prints.
    pub fn limit(&mut self, by: u64, cap: u64) -> u64 {
        // half is forgotten in some hundred looks of a flood, less than a second
        self.bytes = by.max(self.bytes - self.bytes / 256);
        cap - self.bytes.min(cap / 4 * 3)
    }
}

/// From where on each of a rank's files is to be kept. While they hold no more than `limit` together nothing
/// changes; else the longest are cut, so that a flood on one stream takes nothing from the others, down to a
/// little below the limit, so that it takes a while until the next cut.
pub fn keep(held: [Held; 3], limit: u64) -> [u64; 3] {
    let sum: u64 = held.iter().map(|held| held.bytes()).sum();
    if sum <= limit {
        return held.map(|held| held.from);
    }
    let mut room = limit - limit / 16;
    // the level to which the longest must sink: the shortest ones keep all they have
    let mut order = held.map(Held::bytes);
    order.sort_unstable();
    let mut level = 0;
    for (left, bytes) in (1..=3).rev().zip(order) {
        level = room / left;
        if bytes > level {
            break;
        }
        room -= bytes;
    }
    held.map(|held| {
        if held.bytes() <= level {
            return held.from;
        }
        // rounded up: what is kept never exceeds the level
        let to = (held.to - level).next_multiple_of(BLOCK);
        to.min(held.to / BLOCK * BLOCK).max(held.from)
    })
}

/// When to look again: sooner, the faster the files grow and the less room is left. Never so late that a rank which
/// prints as fast as memory takes it, from now on, could fill the room; unless there are so many ranks that looking at each
/// of them that often would cost more than they print.
#[derive(Debug)]
pub struct TrimInterval {
    last: Option<HostTime>,
    quiet: u32,
    shortest: Duration,
}

impl TrimInterval {
    const SHORTEST: Duration = Duration::from_millis(2);
    /// Between two looks of a host at any of its ranks: a look takes some ten microseconds.
    const APART: Duration = Duration::from_micros(250);
    const GROWING: Duration = Duration::from_millis(50);
    const QUIET: Duration = Duration::from_millis(200);
    /// Looks without growth after which it is quiet.
    const LOOKS: u32 = 20;
    /// Bytes that no rank prints faster than in a microsecond: 4 GB/s.
    const FASTEST: u64 = 4000;

    /// For one of so many ranks.
    pub fn among(ranks: usize) -> Self {
        let all = Self::APART.saturating_mul(u32::try_from(ranks).unwrap_or(u32::MAX));
        Self { last: None, quiet: 0, shortest: all.clamp(Self::SHORTEST, Self::GROWING) }
    }

    /// How long to wait after a look that found this.
    pub fn next(&mut self, grown: Grown, now: HostTime) -> Duration {
        let passed = self.last.map_or(0, |last| now.0.saturating_sub(last.0)).max(1);
        self.last = Some(now);
        let flood = Duration::from_micros(grown.room / Self::FASTEST).max(self.shortest);
        if grown.by == 0 {
            self.quiet = self.quiet.saturating_add(1);
            return if self.quiet > Self::LOOKS { Self::QUIET } else { Self::GROWING }.min(flood);
        }
        self.quiet = 0;
        // until half of the room is filled at this rate
        let micros = u128::from(grown.room / 2) * u128::from(passed) / u128::from(grown.by);
        let longest = Self::GROWING.min(flood);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).clamp(self.shortest, longest)
    }
}

#[cfg(test)]
#[path = "spool_trimmer_tests.rs"]
mod tests;
