//! The recording that an import writes: into a file beside its place first, so that one that fails leaves nothing. Events of a
//! trace come nearly in order; they are put in order here as far as some thousands of them tell.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::error::Error;
use super::super::segments::Lock;
use super::super::store::Store;
use super::super::writer::Writer;
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RunSpec, RunStage};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::StepTiming;
use crate::domain::wait_table::WaitTable;
use crate::domain::waiting::Waiting;

/// How many events wait to be put in order, beside two for each rank.
const WAITING: usize = 1 << 12;

/// Where a recording is put.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// Among the recordings.
    Store(&'a Store),
    /// Into this file.
    File(&'a Path),
}

/// A recording in the making.
pub(super) struct Target {
    writer: Option<Writer<BufWriter<File>>>,
    spec: Arc<RunSpec>,
    path: PathBuf,
    part: PathBuf,
    lock: Option<Lock>,
    waiting: BinaryHeap<Reverse<Next>>,
    most_waiting: usize,
    count: u64,
    seq: u64,
    last: Stamp,
}

/// An event that waits, by its time and its turn.
struct Next {
    at: Stamp,
    turn: u64,
    origin: Origin,
    event: Event,
}

impl Next {
    fn key(&self) -> (Stamp, u64) {
        (self.at, self.turn)
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Next {}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Target {
    /// Begins the recording of a run.
    ///
    /// # Errors
    /// [`Error::Exists`] where a file is already, and what the file system says.
    pub(super) fn begin(place: Place<'_>, spec: RunSpec) -> Result<Self, Error> {
        let (path, lock) = match place {
            Place::Store(store) => {
                let path = store.path_of(&spec.id);
                let lock = Lock::take(&path)?;
                (path, Some(lock))
            }
            Place::File(path) => (path.to_owned(), None),
        };
        if path.exists() {
            return Err(Error::Exists(path));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
        let writer = Writer::new(BufWriter::new(file.map_err(Error::file(&part))?))?;
        let most_waiting = WAITING + 2 * spec.placements.len();
        let spec = Arc::new(spec);
        let start = spec.created;
        let mut target = Self {
            writer: Some(writer),
            spec,
            path,
            part,
            lock,
            waiting: BinaryHeap::new(),
            most_waiting,
            count: 0,
            seq: 0,
            last: start,
        };
        let run = Origin::Run(target.run().clone());
        target.write(start, run.clone(), Event::RunCreated { spec: Arc::clone(&target.spec) })?;
        let waiting_for = Waiting::default();
        target.write(start, run, Event::StageEntered { stage: RunStage::Training, waiting_for })?;
        Ok(target)
    }

    /// The run.
    pub(super) fn run(&self) -> &RunId {
        &self.spec.id
    }

    /// The run as it is recorded.
    pub(super) fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// From now on the times of a host are moments of the run: its clock counts microseconds since the Unix epoch.
    pub(super) fn clock(&mut self, host: &HostId, uncertainty_us: u32) -> Result<(), Error> {
        let host_time = HostTime(u64::try_from(self.spec.created.0).unwrap_or_default());
        let sample = ClockSample { host_time, offset_us: 0, rtt_us: uncertainty_us.saturating_mul(2) };
        self.write(self.spec.created, Origin::Host(host.clone()), Event::ClockSampled { sample })
    }

    /// A rank's step, which began `start_us` microseconds after the Unix epoch.
    pub(super) fn step(&mut self, rank: Rank, timing: StepTiming) -> Result<(), Error> {
        let start = i64::try_from(timing.start.0).unwrap_or(i64::MAX);
        let at = Stamp(start).plus_micros(timing.dur_us.into());
        self.of_rank(at, rank, Event::StepDone { timing: Arc::new(timing) })
    }

    /// Something that a rank told.
    pub(super) fn of_rank(&mut self, at: Stamp, rank: Rank, event: Event) -> Result<(), Error> {
        let origin = Origin::Rank(self.run().clone(), rank);
        self.send(at, origin, event)
    }

    /// Something of the run as a whole.
    pub(super) fn of_run(&mut self, at: Stamp, event: Event) -> Result<(), Error> {
        let origin = Origin::Run(self.run().clone());
        self.send(at, origin, event)
    }

    fn send(&mut self, at: Stamp, origin: Origin, event: Event) -> Result<(), Error> {
        self.count += 1;
        self.waiting.push(Reverse(Next { at, turn: self.count, origin, event }));
        while self.waiting.len() > self.most_waiting {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> Result<(), Error> {
        let Some(Reverse(next)) = self.waiting.pop() else { return Ok(()) };
        self.write(next.at, next.origin, next.event)
    }

    fn write(&mut self, at: Stamp, origin: Origin, event: Event) -> Result<(), Error> {
        self.seq += 1;
        self.last = self.last.max(at);
        let envelope = Envelope { seq: self.seq, at: self.last, origin, event };
        let written = self.writer.as_mut().map_or(Ok(()), |writer| writer.push(&envelope));
        written.map_err(|error| self.named(error))
    }

    /// A write's words do not name the file.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Write(source) => Error::File { path: self.part.clone(), source },
            other => other,
        }
    }

    /// Ends the recording, whose run is over by the last of its events, with the table of its waits where there is one: gives its file
    /// and when that was.
    ///
    /// # Errors
    /// What the file system says; nothing is left then.
    pub(super) fn finish(
        mut self,
        summary: String,
        waits: Option<WaitTable>,
    ) -> Result<(PathBuf, Stamp), Error> {
        while !self.waiting.is_empty() {
            self.write_first()?;
        }
        let outcome = RunOutcome { at: Some(self.last), ..RunOutcome::new(RunEnd::Finished, summary) };
        let (at, run) = (self.last, Origin::Run(self.run().clone()));
        if let Some(waits) = waits.map(Box::new) {
            self.write(at, run.clone(), Event::WaitsTold { waits })?;
        }
        self.write(at, run, Event::RunEnded { outcome })?;
        if let Some(writer) = self.writer.take() {
            let written = writer.finish().and_then(|(file, _)| {
                let file = file.into_inner().map_err(|error| Error::Write(error.into_error()))?;
                file.sync_all().map_err(Error::Write)
            });
            written.map_err(|error| self.named(error))?;
        }
        // never over what another one has put there meanwhile
        std::fs::hard_link(&self.part, &self.path)
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => Err(error),
                _ => std::fs::rename(&self.part, &self.path),
            })
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::AlreadyExists => Error::Exists(self.path.clone()),
                _ => Error::File { path: self.path.clone(), source },
            })?;
        Ok((self.path.clone(), at))
    }
}

impl Drop for Target {
    /// Removes what is not the recording.
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.part));
        if let Some(lock) = self.lock.take()
            && !self.path.exists()
        {
            lock.remove();
            drop(self.path.parent().map(std::fs::remove_dir));
        }
    }
}
