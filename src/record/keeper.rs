//! Keeps states of a long run and where the time of its ranks went beside its recording while that is written, on a thread of its
//! own: who opens the replay then need not wait until all of it is folded.
//!
//! It folds what it reads back from the file, as a replay does, so that both come to the same. Of short runs nothing is kept; a
//! replay of them opens at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::Error;
use super::fold::{self, Fold};
use super::reader::Reader;
use super::saved::{self, Saved};
use super::steps::Steps;
use crate::domain::alerts::AlertRules;

/// What is not folded when the recording is closed is folded then, if it is no more than so many envelopes: a few tenths of a second.
const MOST_AT_CLOSE: u64 = 150_000;
/// Where the chunks of a larger recording lie is left to a replay: all of it is read for that.
const MOST_INDEXED: u64 = 512 << 20;
/// For a recording that is so large that it is not even opened by then nothing more is kept.
const LONGEST_OPENING: Duration = Duration::from_secs(3);
/// Between two looks whether it is open.
const LOOK: Duration = Duration::from_millis(10);
/// How much less of the processor it gets than what the client shows, as `nice` counts.
const NICE: i32 = 10;

/// The states of one recording that is being written.
#[derive(Debug)]
pub(super) struct Keeper {
    recording: PathBuf,
    rules: Arc<AlertRules>,
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    wake: SyncSender<()>,
    closing: Arc<AtomicBool>,
    /// It has opened the recording.
    is_open: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Keeper {
    /// Of the recording that begins with this file, under these rules of alerts. It begins once there is enough.
    pub(super) fn new(recording: PathBuf, rules: Arc<AlertRules>) -> Self {
        Self { recording, rules, thread: None }
    }

    /// The recording has so many envelopes now, and all of them are in its file.
    pub(super) fn wrote(&mut self, envelopes: u64) {
        if envelopes < saved::LAST {
            return;
        }
        if self.thread.is_none() {
            self.thread = Thread::start(self.recording.clone(), Arc::clone(&self.rules));
        }
        if let Some(thread) = &self.thread {
            // it has been told already where there is no room
            let _ = thread.wake.try_send(());
        }
    }

    /// The recording is closed: what is left is folded, and where its chunks lie is kept.
    pub(super) fn close(self) {
        let Some(thread) = self.thread else { return };
        thread.closing.store(true, Ordering::Relaxed);
        drop(thread.wake);
        let mut waited = Duration::ZERO;
        while !thread.is_open.load(Ordering::Relaxed) && waited < LONGEST_OPENING {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        // what it leaves is whole at every moment, so it may end by itself or with the program
        if thread.is_open.load(Ordering::Relaxed) && thread.handle.join().is_err() {
            tracing::warn!("the states of a recording are not kept");
        }
    }
}

impl Thread {
    fn start(recording: PathBuf, rules: Arc<AlertRules>) -> Option<Self> {
        let (wake, woken) = sync_channel(1);
        let (closing, is_open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let task = {
            let (closing, is_open) = (Arc::clone(&closing), Arc::clone(&is_open));
            move || {
                let _ = rustix::process::setpriority_process(None, NICE);
                let task = Task::new(&recording, rules, closing);
                is_open.store(true, Ordering::Relaxed);
                if let Err(error) = task.and_then(|mut task| task.run(&woken)) {
                    tracing::debug!(%error, "the states of a recording are not kept");
                }
            }
        };
        let handle = std::thread::Builder::new().name("states".to_owned()).spawn(task).ok()?;
        Some(Self { wake, closing, is_open, handle })
    }
}

struct Task {
    reader: Reader,
    fold: Fold,
    /// When steps were finished, as long as no chunk was left out.
    steps: Option<Steps>,
    saved: Saved,
    closing: Arc<AtomicBool>,
}

impl Task {
    fn new(recording: &Path, rules: Arc<AlertRules>, closing: Arc<AtomicBool>) -> Result<Self, Error> {
        let reader = Reader::open(recording)?;
        let nowhere = || Error::NotARecording(recording.to_owned());
        let mut saved = Saved::of(&reader, &rules).ok_or_else(nowhere)?;
        let mut fold = Fold::new(rules);
        let mut steps = reader.spec().map(Steps::new);
        // a client that had the run before has kept states of it
        if let Some(place) = saved.nearest(fold::ALL)
            && let Some(world) = saved.load(place)
        {
            fold.jump_to(place.chunk, place.last, world);
            steps = saved.steps(&reader);
        }
        Ok(Self { reader, fold, steps, saved, closing })
    }

    fn run(&mut self, woken: &Receiver<()>) -> Result<(), Error> {
        let mut goes_on = true;
        while goes_on {
            goes_on = woken.recv().is_ok();
            self.reader.read_on()?;
            if !self.fold_on(!goes_on) {
                return Ok(());
            }
        }
        if self.reader.bytes() <= MOST_INDEXED {
            self.saved.keep_index(&self.reader);
        }
        if let Some(steps) = &self.steps {
            self.saved.keep_steps(&self.reader, steps);
        }
        Ok(())
    }

    /// Folds what was written. Whether it has come to its end; not so where the recording is closed and that would take long.
    fn fold_on(&mut self, ends: bool) -> bool {
        let count = self.reader.chunk_count();
        while self.fold.chunk() < count {
            let chunk = self.fold.chunk();
            let left =
                self.reader.envelopes_before(count).saturating_sub(self.reader.envelopes_before(chunk));
            if self.closing.load(Ordering::Relaxed) && left > MOST_AT_CLOSE {
                return false;
            }
            // a state without it would be believed
            let Ok(envelopes) = self.reader.load(chunk) else { return false };
            if let Some(steps) = self.steps.as_mut().filter(|steps| steps.next_chunk() == chunk) {
                steps.take(&envelopes);
            }
            self.saved.take_chunk(&self.reader, chunk, &envelopes);
            self.fold.take(&envelopes, fold::ALL);
            self.saved.keep(&self.reader, &self.fold, false);
        }
        self.saved.keep(&self.reader, &self.fold, ends);
        true
    }
}
