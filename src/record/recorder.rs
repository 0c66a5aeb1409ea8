//! Records a run on a thread of its own, beside everything else: neither starting nor sending waits for the disk, and nothing
//! that goes wrong here can fail the run. What went wrong is kept and told by [`Recorder::status`].

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::budget::{self, Budget};
use super::check;
use super::error::Error;
use super::format::CHUNK_SPAN_US;
use super::keeper::Keeper;
use super::queue::{Queue, Taken};
use super::segments::{self, Lock};
use super::writer::{Totals, Writer};
use crate::clock;
use crate::domain::alerts::AlertRules;
use crate::domain::event::Envelope;
use crate::domain::time::HostTime;

/// How long an unfinished chunk waits for more. Added to the time that a chunk spans at most, this is
/// what a `kill -9` may lose: one second.
pub const IDLE: Duration = Duration::from_millis(250);
/// Between two looks whether what was sent is on disk.
const LOOK: Duration = Duration::from_millis(5);
/// The most bytes of a file of which no chunk came to the disk.
const MOST_EMPTY: u64 = 1 << 20;
/// Memory that may wait for the disk, bytes.
const QUEUE_LIMIT: usize = 16 << 20;

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What was sent is on its way to the disk.
#[derive(Debug)]
pub struct Flush {
    shared: Arc<Shared>,
    before: u64,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    progress: Mutex<Progress>,
    /// What the recording may take in all, bytes.
    cap: AtomicU64,
    /// Under which rules of alerts states of a long run are kept beside it.
    rules: OnceLock<Arc<AlertRules>>,
}

#[derive(Debug, Default)]
struct Progress {
    totals: Totals,
    opened: bool,
    /// How often nothing waited any more and all was put into the file.
    flushes: u64,
    /// What the thread has taken of a processor, microseconds.
    cpu_us: u64,
    /// What it has written, bytes.
    bytes: u64,
    error: Option<String>,
    left_out: Option<String>,
}

/// How a recording goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Envelopes that are in the file.
    pub written: u64,
    /// Envelopes that were dropped because the disk was too slow, or too large to be written.
    pub dropped: u64,
    /// Bytes that wait for the disk.
    pub waiting: u64,
    /// What writing has taken of a processor, microseconds.
    pub cpu_us: u64,
    /// Bytes that were written by this recorder.
    pub bytes: u64,
    /// Whether there is a file.
    pub opened: bool,
    /// Why some of what came is left out: the recording has taken as much as it may.
    pub left_out: Option<String>,
    /// Why nothing more is written: disk full, file system gone. The file is good up to there.
    pub error: Option<String>,
}

/// What a finished recording came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Envelopes in the file.
    pub written: u64,
    /// Envelopes that were dropped.
    pub dropped: u64,
    /// Chunks in the file.
    pub chunks: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Why some of what came is not in it, as in [`Status::left_out`].
    pub left_out: Option<String>,
}

impl Recorder {
    /// Starts a recording in a new file that only its owner may read; folders on the way likewise. Once that is there, `beside`
    /// is called on the recorder's thread. Whether it could be started is told by [`Recorder::status`]: a disk that hangs is
    /// not waited for.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(path: PathBuf, beside: impl FnOnce() + Send + 'static) -> Result<Self, Error> {
        let first = path.clone();
        let open = move || {
            if first.exists() {
                return Err(Error::Exists(first));
            }
            let opened = Opened::of(Lock::take(&first)?)?;
            beside();
            Ok(opened)
        };
        Self::begin(path, open)
    }

    /// Goes on with a recording in a file of its own, or begins it. What is sent must have greater sequence
    /// numbers than what the recording holds.
    ///
    /// # Errors
    /// What the file system says.
    pub fn resume(lock: Lock) -> Result<Self, Error> {
        let opened = Opened::of(lock)?;
        Self::begin(opened.path.clone(), move || Ok(opened))
    }

    fn begin(
        path: PathBuf,
        open: impl FnOnce() -> Result<Opened<BufWriter<File>, Lock>, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared::new());
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.record(open(), close)
            })
            .map_err(Error::Thread)?;
        Ok(Self { path, shared, thread: Some(thread) })
    }

    /// It may take so many bytes in all, with what earlier clients wrote; [`budget::CAP`] where nothing is said.
    pub fn limit(&self, cap: u64) {
        self.shared.cap.store(cap, Ordering::Relaxed);
    }

    /// States of a long run are kept beside it, with alerts by these rules: a replay opens at the nearest one.
    pub fn keep_states(&self, rules: Arc<AlertRules>) {
        // who says it twice says the same
        let _ = self.shared.rules.set(rules);
    }

    /// Records an envelope. Never waits; drops and counts where there is no room.
    pub fn send(&self, envelope: impl Into<Arc<Envelope>>) {
        self.shared.queue.send(envelope.into());
    }

    /// Whether more waits for the disk than should: then a number that changes whenever some of it was taken. Who slows
    /// lines down meanwhile loses none of them.
    pub fn backlog(&self) -> Option<u64> {
        self.shared.queue.backlog()
    }

    /// Writes what was sent to the disk soon, not within a second.
    pub fn flush(&self) -> Flush {
        let before = self.shared.progress().flushes;
        self.shared.queue.flush();
        Flush { shared: Arc::clone(&self.shared), before }
    }

    /// Whether nothing more is taken: its thread has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        let progress = self.shared.progress();
        Status {
            written: progress.totals.envelopes,
            dropped: self.shared.queue.dropped(),
            waiting: self.shared.queue.waiting(),
            cpu_us: progress.cpu_us,
            bytes: progress.bytes,
            opened: progress.opened,
            left_out: progress.left_out.clone(),
            error: progress.error.clone(),
        }
    }

    /// The file that is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes nothing more: what waits and the summary are written from now on. [`Recorder::finish`] tells how that went.
    pub fn close(&self) {
        self.shared.queue.close();
    }

    /// Writes what waits and the summary, and closes the file. Waits for the disk.
    ///
    /// # Errors
    /// The first thing that went wrong, now or earlier; the file is good up to there.
    pub fn finish(mut self) -> Result<Stats, Error> {
        self.stop()?;
        let dropped = self.shared.queue.dropped();
        let progress = self.shared.progress();
        if let Some(error) = &progress.error {
            // one that says why there is no file names it
            return Err(if progress.opened {
                Error::File { path: self.path.clone(), source: io::Error::other(error.clone()) }
            } else {
                Error::NotStarted(error.clone())
            });
        }
        let bytes = std::fs::metadata(&self.path).map_err(Error::file(&self.path))?.len();
        Ok(Stats {
            written: progress.totals.envelopes,
            dropped,
            chunks: progress.totals.chunks,
            bytes,
            left_out: progress.left_out.clone(),
        })
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.close();
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::RecorderGone),
        }
    }
}

impl Flush {
    /// Waits until that is done, so long at most.
    pub fn wait(self, most: Duration) {
        let mut left = most;
        while !left.is_zero() && self.shared.progress().flushes == self.before {
            std::thread::sleep(LOOK);
            left = left.saturating_sub(LOOK);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // the error, if any, stays in the status, which is no longer read
        let _ = self.stop();
    }
}

impl Shared {
    fn new() -> Self {
        let (queue, cap) = (Queue::new(QUEUE_LIMIT), AtomicU64::new(budget::CAP));
        Self { queue, progress: Mutex::default(), cap, rules: OnceLock::new() }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: writes until the queue is closed; after an error it only keeps the queue empty. What comes with the writer is
    /// held until the end.
    fn record<W: Write, L>(
        &self,
        opened: Result<Opened<W, L>, Error>,
        close: impl FnOnce(W) -> io::Result<()>,
    ) {
        let (mut writer, mut budget, (first, file), _held) = match opened {
            Ok(Opened { writer, bytes, budget, first, path, lock }) => {
                self.progress().opened = true;
                (Some(writer), (budget, bytes), (first, path), Some(lock))
            }
            Err(error) => {
                self.progress().error = Some(error.to_string());
                (None, (Budget::new(0), Arc::default()), (PathBuf::new(), PathBuf::new()), None)
            }
        };
        let (mut keeper, mut patience): (Option<Keeper>, _) = (None, Patience::default());
        loop {
            let idle = writer.as_ref().is_some_and(Writer::has_pending).then_some(IDLE);
            let taken = self.queue.take(idle);
            let Some(open) = writer.as_mut() else {
                match taken {
                    Taken::Closed => return,
                    _ => continue,
                }
            };
            let is_flush = matches!(taken, Taken::Idle);
            let result = match taken {
                Taken::Batch(batch) => {
                    let written = self.write(open, &batch, &mut budget);
                    written.and_then(|()| patience.flush_old(open, clock::host_now()))
                }
                Taken::Idle => open.flush(),
                Taken::Closed => break,
            };
            if keeper.is_none() {
                keeper = self.rules.get().map(|rules| Keeper::new(first.clone(), Arc::clone(rules)));
            }
            if let (Ok(()), Some(keeper)) = (&result, &mut keeper) {
                // in one that is continued the numbers go on from what was there
                let is_first = first == file;
                let all =
                    if is_first { open.totals().envelopes } else { open.last_seq().unwrap_or_default() };
                keeper.wrote(all);
            }
            let mut progress = self.progress();
            progress.totals = open.totals();
            progress.flushes += u64::from(is_flush);
            progress.cpu_us = clock::thread_us();
            if let Err(error) = result {
                progress.error = Some(error.to_string());
                drop(progress);
                writer = None;
                remove_if_empty(&first, &file);
            }
        }
        let Some(writer) = writer else { return };
        let closed = writer.finish().and_then(|(file, totals)| {
            self.progress().totals = totals;
            close(file.to).map_err(Error::Write)
        });
        if let Err(error) = closed {
            self.progress().error = Some(error.to_string());
            remove_if_empty(&first, &file);
        }
        if let Some(keeper) = keeper {
            keeper.close();
        }
    }

    fn write<W: Write>(
        &self,
        writer: &mut Writer<Counted<W>>,
        batch: &[Arc<Envelope>],
        (budget, bytes): &mut (Budget, Arc<AtomicU64>),
    ) -> Result<(), Error> {
        budget.limit(self.cap.load(Ordering::Relaxed));
        for envelope in batch {
            let written = bytes.swap(0, Ordering::Relaxed);
            self.progress().bytes += written;
            budget.took(envelope.at, clock::host_now(), written);
            let (worth, what) = budget::worth(&envelope.event);
            if !budget.admits(worth, writer.waiting()) {
                writer.leave_out(envelope, what)?;
                self.progress().left_out.get_or_insert_with(|| budget.why());
                continue;
            }
            match writer.push(&**envelope) {
                Err(Error::TooLarge { .. }) => writer.push(self.queue.refuse(envelope))?,
                // a gap in its place would come too late as well
                Err(Error::Late { .. }) => drop(self.queue.refuse(envelope)),
                other => other?,
            }
        }
        Ok(())
    }
}

/// Ends chunks whose envelopes' times don't: they are told late, or a clock was set back.
#[derive(Default)]
struct Patience {
    /// Which chunk is in the making, and since when.
    chunk: Option<(u64, HostTime)>,
}

impl Patience {
    /// Ends the chunk in the making where it has been so for its span.
    fn flush_old<W: Write>(&mut self, writer: &mut Writer<W>, now: HostTime) -> Result<(), Error> {
        let chunk = writer.totals().chunks;
        let since = self.chunk.filter(|(of, _)| *of == chunk && writer.has_pending()).map(|(_, since)| since);
        let (_, since) = *self.chunk.insert((chunk, since.unwrap_or(now)));
        if now.0.saturating_sub(since.0) >= CHUNK_SPAN_US.unsigned_abs() { writer.flush() } else { Ok(()) }
    }
}

/// A file that can be recorded into.
struct Opened<W: Write, L> {
    path: PathBuf,
    /// The first file of the recording.
    first: PathBuf,
    writer: Writer<Counted<W>>,
    /// What was written to it since it was last looked at.
    bytes: Arc<AtomicU64>,
    budget: Budget,
    lock: L,
}

impl Opened<BufWriter<File>, Lock> {
    fn of(lock: Lock) -> Result<Self, Error> {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |about| about.len());
        let before = segments::of(lock.first()).iter().map(size).sum();
        let (path, file) = lock.next()?;
        let first = lock.first().to_owned();
        match Self::new(path.clone(), BufWriter::new(file), before, lock) {
            Ok(opened) => Ok(Self { first, ..opened }),
            Err(error) => {
                remove_if_empty(&first, &path);
                Err(error)
            }
        }
    }
}

impl<W: Write, L> Opened<W, L> {
    fn new(path: PathBuf, to: W, before: u64, lock: L) -> Result<Self, Error> {
        let bytes = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(Counted { to, bytes: Arc::clone(&bytes) })?;
        Ok(Self { first: path.clone(), path, writer, bytes, budget: Budget::new(before), lock })
    }
}

/// What is written to, and how much.
struct Counted<W> {
    to: W,
    bytes: Arc<AtomicU64>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Removes a file that a full disk has left without an event: a first one would be taken for the newest recording, one behind others
/// for a bad end of theirs, which stay.
fn remove_if_empty(first: &Path, file: &Path) {
    // what stands behind it would not be found any more
    let is_last = segments::of(first).last().is_some_and(|last| last == file);
    // one that is larger holds something
    let is_small = std::fs::metadata(file).is_ok_and(|about| about.len() <= MOST_EMPTY);
    if is_last && is_small && check::file(file, false).is_empty() {
        // what can't be removed is left out by who looks for a run
        let _ = std::fs::remove_file(file);
    }
}

/// Makes sure that a finished recording outlives a power cut.
fn close(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Event, Origin};
    use crate::domain::ids::HostId;
    use crate::domain::time::Stamp;

    /// A disk with so much room.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.min(bytes.len());
            self.0 -= room;
            if room == 0 && !bytes.is_empty() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_beyond_the_cap_is_left_out_with_a_gap_and_the_end_is_there() {
        use crate::domain::ids::{Rank, RunId};
        use crate::domain::log::{LogLine, Stream};
        use crate::domain::run::RankExit;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let recorder = Recorder::start(path.clone(), || ()).unwrap();
        recorder.limit(20_000);
        let run = RunId::new(1, 1);
        let origin = Origin::Rank(run, Rank(0));
        let send = |seq: u64, event| {
            recorder.send(Envelope { seq, at: Stamp(seq as i64 * 100_000), origin: origin.clone(), event });
            // a batch each
            while recorder.backlog().is_some() {
                std::thread::yield_now();
            }
        };
        let noise = ring::digest::digest;
        for seq in 0..400 {
            let words = (0u8..16).map(|part| {
                format!("{:?}", noise(&ring::digest::SHA256, &[seq as u8, (seq >> 8) as u8, part]))
            });
            let text = words.collect::<String>();
            let line =
                LogLine { rank: Rank(0), stream: Stream::Stdout, offset: seq, text, elided: 0, t: None };
            send(seq, Event::LogPrinted { line: Arc::new(line) });
        }
        let t = crate::domain::time::HostTime(0);
        let exit = RankExit { code: Some(0), signal: None, t, error: None, stopped: false, cause: None };
        send(400, Event::RankExited { exit });
        let stats = recorder.finish().unwrap();
        assert!(stats.bytes < 60_000, "{stats:?}");
        let reader = crate::record::Reader::open(&path).unwrap();
        let events: Vec<Event> = reader.envelopes(..).map(|one| one.unwrap().event).collect();
        let lines = events.iter().filter(|event| matches!(event, Event::LogPrinted { .. })).count();
        let gaps = events.iter().filter_map(|event| match event {
            Event::Gap { what, dropped } if what == crate::domain::event::LOG => Some(*dropped),
            _ => None,
        });
        assert!(lines < 200, "{lines}");
        assert_eq!(lines as u64 + gaps.sum::<u64>(), 400, "each is there or counted");
        assert!(matches!(events.last(), Some(Event::RankExited { .. })));
    }

    #[test]
    fn what_a_full_disk_leaves_without_an_event_is_removed_and_a_recording_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        for left in [&b""[..], mcap::MAGIC, &mcap::MAGIC[..3]] {
            std::fs::write(&path, left).unwrap();
            remove_if_empty(&path, &path);
            assert!(!path.exists(), "{left:?}");
        }
        let recorder = Recorder::start(path.clone(), || ()).unwrap();
        recorder.send(Envelope {
            seq: 0,
            at: Stamp(0),
            origin: Origin::Host(HostId::from("a")),
            event: Event::Gap { what: "log".into(), dropped: 1 },
        });
        recorder.finish().unwrap();
        remove_if_empty(&path, &path);
        assert!(path.exists());
        // of a client that went on with it nothing came to the disk but the beginning of its file
        let next = folder.path().join("run.2.mcap");
        let begun = Writer::new(Vec::new()).unwrap();
        let begun = begun.finish().map(|(bytes, _)| bytes).unwrap();
        for left in [&b""[..], mcap::MAGIC, &begun] {
            std::fs::write(&next, left).unwrap();
            remove_if_empty(&path, &next);
            assert!(!next.exists() && path.exists(), "{left:?}");
        }
        let damaged = std::fs::read(&path).unwrap();
        let at = damaged.windows(4).position(|bytes| bytes == b"zstd").unwrap();
        let damaged: Vec<u8> =
            damaged.iter().enumerate().map(|(i, byte)| if i == at + 20 { !byte } else { *byte }).collect();
        std::fs::write(&next, damaged).unwrap();
        remove_if_empty(&path, &next);
        assert!(next.exists(), "what is damaged is no empty one");
        std::fs::remove_file(&next).unwrap();
        std::fs::rename(&path, &next).unwrap();
        std::fs::write(&path, b"").unwrap();
        remove_if_empty(&path, &path);
        assert!(path.exists() && next.exists(), "its second file is found by its first one");
    }

    #[test]
    fn a_full_disk_is_told_and_fails_nothing() {
        let shared = Shared::new();
        for second in 0..60 {
            shared.queue.send(Arc::new(Envelope {
                seq: second,
                at: Stamp(second as i64 * 1_000_000),
                origin: Origin::Host(HostId::from("a")),
                event: Event::Gap { what: "log".into(), dropped: second },
            }));
        }
        shared.queue.close();
        shared.record(Opened::new(PathBuf::new(), Disk(3_000), 0, ()), |_| Ok(()));
        let progress = shared.progress();
        assert!(progress.error.as_ref().unwrap().contains("no storage space"), "{:?}", progress.error);
        assert!((1..59).contains(&progress.totals.envelopes), "{:?}", progress.totals);
    }
}
