//! Where recordings lie: `<state>/runs/<RUN>/run.mcap` and what follows it. Lists them, and finds the one a person means.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::check;
use super::closing;
use super::error::Error;
use super::reader::{self, RecordingSummary};
use super::segments::{self, Lock};
use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::retention::Age;
use crate::domain::run::{KeptRecordings, RunStage, RunSummary};
use crate::domain::time::Stamp;

const FILE: &str = "run.mcap";
/// The most bytes of a recording of which no chunk was written to its end.
const MOST_EMPTY: u64 = 64 << 20;
/// So long nothing has changed in a run's folder without files before it counts as left behind, microseconds: a client that begins
/// has its lock within milliseconds.
const SETTLED_US: i64 = 60_000_000;
/// How many runs a message names at most.
const NAMED: usize = 5;

/// The recordings of one state folder.
#[derive(Debug, Clone)]
pub struct Store {
    runs: PathBuf,
}

/// All recordings of a store.
#[derive(Debug, Default)]
pub struct Listing {
    /// Those that tell which run they are of, newest first; damaged ones say so.
    pub runs: Vec<RunSummary>,
    /// Those that do not, newest first.
    pub unreadable: Vec<Unreadable>,
}

/// A recording that can't be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The run, by the name of its folder.
    pub run: RunId,
    /// The file.
    pub path: PathBuf,
    /// Why, in words.
    pub reason: String,
    /// Where nothing is recorded in it and no client writes it: its size, and the age of its files. It may be deleted.
    pub empty: Option<Age>,
}

impl Store {
    /// The recordings under hvtui's state folder.
    pub fn new(state: &Path) -> Self {
        Self { runs: state.join("runs") }
    }

    /// Where the recording of a run lies or will lie.
    pub fn path_of(&self, run: &RunId) -> PathBuf {
        self.folder_of(run).join(FILE)
    }

    fn folder_of(&self, run: &RunId) -> PathBuf {
        self.runs.join(run.as_str())
    }

    /// All recordings. Reads both ends of each file, not what lies between.
    pub fn list(&self) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        for run in self.ids()? {
            let path = self.path_of(&run);
            match reader::summarize(&path) {
                Ok(summary) => listing.runs.push(self.run_summary(summary)),
                Err(error) => {
                    let lost = self.unreadable(run, path, &error);
                    // a client that begins has no file yet
                    if lost.empty.is_some() || !is_missing(&error) {
                        listing.unreadable.push(lost);
                    }
                }
            }
        }
        Ok(listing)
    }

    /// The newest recordings that can be read, at most so many are looked at; newest first.
    pub fn newest(&self, most: usize) -> Vec<RunSummary> {
        let ids = self.ids().unwrap_or_default();
        let summaries = ids.iter().take(most).filter_map(|run| reader::summarize(&self.path_of(run)).ok());
        summaries.map(|summary| self.run_summary(summary)).collect()
    }

    fn run_summary(&self, summary: RecordingSummary) -> RunSummary {
        let RecordingSummary { spec, last, bytes, damage, .. } = summary;
        let may_be = last.outcome.is_none() && last.stage.is_none_or(|stage| stage <= RunStage::Prepare);
        RunSummary {
            is_made_ready: may_be && self.is_written(&spec.id),
            spec,
            stage: last.stage,
            last_at: last.end,
            outcome: last.outcome,
            trained: last.trained,
            stood: last.stood,
            bytes,
            damage,
        }
    }

    fn unreadable(&self, run: RunId, path: PathBuf, error: &Error) -> Unreadable {
        // one that has a chunk is damaged, and not read to its end for a list
        let may_be = match error {
            Error::Chunk { reason, .. } => reason == reader::NO_CHUNK,
            Error::NotARecording(_) | Error::OtherMcap(_) => true,
            _ => false,
        };
        let empty = match error {
            _ if may_be => self.empty(&run, &path),
            error if is_missing(error) => self.left_behind(&run),
            _ => None,
        };
        let reason = match &empty {
            Some(_) if is_missing(error) => format!(
                "empty; its client was killed before the first event was written, or while it deleted the recording: `hvtui runs \
                 prune` deletes it by its age, or delete {}",
                self.folder_of(&run).display()
            ),
            Some(_) => check::nothing(&path),
            None => error.to_string(),
        };
        Unreadable { run, path, reason, empty }
    }

    /// How old a recording is in which there is nothing; else nothing.
    fn empty(&self, run: &RunId, path: &Path) -> Option<Age> {
        let bytes = self.size(run);
        // one that is larger holds something, and to check it takes its time
        if bytes > MOST_EMPTY || self.is_written(run) || !check::check(path, false).is_empty() {
            return None;
        }
        let changed = segments::of(path).into_iter().filter_map(|file| file.metadata().ok()?.modified().ok());
        Some(Age { last_at: stamp(changed.max()?)?, bytes, is_imported: false })
    }

    /// Since when there is nothing in the folder of a run but, maybe, a lock that no client holds.
    fn left_behind(&self, run: &RunId) -> Option<Age> {
        let (path, folder) = (self.path_of(run), self.folder_of(run));
        if path.exists() {
            return None;
        }
        let mut changed = std::fs::metadata(&folder).ok()?.modified().ok()?;
        let lock = segments::lock_path(&path);
        for entry in std::fs::read_dir(&folder).ok()? {
            let entry = entry.ok()?;
            let about = entry.metadata().ok()?;
            if entry.path() != lock || about.len() > 0 {
                return None;
            }
            changed = changed.max(about.modified().ok()?);
        }
        let last_at = stamp(changed)?;
        let is_settled = clock::now().micros_since(last_at) >= SETTLED_US;
        (is_settled && !self.is_written(run)).then_some(Age { last_at, bytes: 0, is_imported: false })
    }

    /// Removes the folders of runs in which there is nothing: their clients were killed before the first file was there, or while they
    /// deleted them.
    pub fn sweep(&self) {
        for run in self.ids().unwrap_or_default() {
            if self.left_behind(&run).is_none() {
                continue;
            }
            // a client that begins meanwhile has it, or finds that this one is gone and makes its own
            let Ok(lock) = Lock::take(&self.path_of(&run)) else { continue };
            lock.remove();
            // the folder of one that has begun before is not empty, and stays
            if let Err(error) = std::fs::remove_dir(self.folder_of(&run)) {
                tracing::debug!(%error, "a folder without a recording stays");
            }
        }
    }

    /// The first files of all recordings, newest first.
    ///
    /// # Errors
    /// When the folder of the recordings can't be read.
    pub fn recordings(&self) -> Result<Vec<PathBuf>, Error> {
        let paths = self.ids()?.into_iter().map(|run| self.path_of(&run));
        Ok(paths.filter(|path| path.exists()).collect())
    }

    /// Closes the recordings of runs whose end is recorded and that were not closed, as after a crash, among the newest
    /// `count`. The others are closed by a client that attaches, which would find the recording locked here.
    pub fn close_ended(&self, count: usize) {
        for path in self.recordings().unwrap_or_default().into_iter().take(count) {
            let is_open = closing::is_open(&path);
            if is_open
                && reader::summarize(&path).is_ok_and(|summary| summary.last.outcome.is_some())
                && let Ok(lock) = Lock::take(&path)
            {
                closing::close_unasked(&lock);
            }
        }
    }

    /// What all recordings take together.
    ///
    /// # Errors
    /// When the folder of the recordings can't be read.
    pub fn kept(&self) -> Result<KeptRecordings, Error> {
        let runs = self.ids()?;
        let sizes = runs.iter().filter(|run| self.path_of(run).exists()).map(|run| self.size(run));
        let (count, bytes) = sizes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        let folder = if self.runs.exists() { Some(self.runs.as_path()) } else { self.runs.parent() };
        let free = folder.and_then(|folder| rustix::fs::statvfs(folder).ok());
        let free = free.map(|system| system.f_bavail.saturating_mul(system.f_frsize));
        Ok(KeptRecordings { folder: self.runs.display().to_string(), count, bytes, free })
    }

    /// Whether a client on this machine is writing the recording of a run.
    pub fn is_written(&self, run: &RunId) -> bool {
        Lock::is_held(&self.path_of(run))
    }

    /// Deletes the recording of a run and all that lies beside it; gives the bytes that this freed.
    ///
    /// # Errors
    /// [`Error::Busy`] while it is written, and what the file system says.
    pub fn delete(&self, run: &RunId) -> Result<u64, Error> {
        let path = self.path_of(run);
        let folder = self.folder_of(run);
        // before the lock, which would make the folder
        std::fs::symlink_metadata(&folder).map_err(Error::file(&folder))?;
        let lock = Lock::take(&path)?;
        let bytes = self.size(run);
        // its beginning last: what is left of a run that can't be deleted is found by it
        let entries = std::fs::read_dir(&folder).map_err(Error::file(&folder))?;
        for entry in entries {
            let entry = entry.map_err(Error::file(&folder))?.path();
            if entry != path && entry != lock.path() {
                remove(&entry)?;
            }
        }
        remove(&path)?;
        // until its file is gone no other client may write; NFS keeps one that is open in its folder
        lock.remove();
        if let Err(error) = std::fs::remove_dir(&folder) {
            tracing::debug!(%error, "a deleted recording leaves an empty folder");
        }
        Ok(bytes)
    }

    /// Bytes of a run's files here; what can't be read counts nothing.
    fn size(&self, run: &RunId) -> u64 {
        let entries = std::fs::read_dir(self.folder_of(run)).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.metadata().ok())
            .filter(Metadata::is_file)
            .map(|file| file.len())
            .sum()
    }

    /// Whether a recording has nothing in it and no client writes it.
    pub fn is_left_empty(&self, run: &RunId) -> bool {
        let path = self.path_of(run);
        reader::summarize(&path)
            .is_err_and(|error| self.unreadable(run.clone(), path, &error).empty.is_some())
    }

    /// The recording that `text` means: a run's id or part of it ([`RunId::matches`]), its name where
    /// only one run has it, the path of a file or of a folder that holds one, or the newest one with something in it for `last` and
    /// for nothing.
    pub fn find(&self, text: &str) -> Result<PathBuf, Error> {
        let mut ids = self.ids()?;
        ids.retain(|run| self.path_of(run).exists());
        if text.is_empty() || text == "last" {
            let newest = ids.iter().find(|run| !self.is_left_empty(run));
            let newest = newest.ok_or_else(|| Error::NoRuns(self.runs.clone()))?;
            return Ok(self.path_of(newest));
        }
        let path = Path::new(text);
        // runs are called after their scripts, which may lie in the current folder
        let may_be_name = !text.contains('/') && !is_of_data(path);
        let inside = path.join(FILE);
        let is_id = may_be_name && ids.iter().any(|run| run.matches(text));
        let file = if !is_id && path.is_dir() { inside.as_path() } else { path };
        if file.is_file() && !(may_be_name && self.list()?.runs.iter().any(|run| run.spec.name == text)) {
            return Ok(file.to_owned());
        }
        if path.exists() && !path.is_dir() && !path.is_file() {
            // a pipe, a device: it can't be read from its end
            return Err(Error::NotARecording(path.to_owned()));
        }
        if text.contains('/') || path.extension().is_some_and(|end| end == "mcap") {
            if path.is_dir() {
                return Err(Error::NotARecording(path.to_owned()));
            }
            // no run is called so: a file was meant
            let missing = std::io::Error::from(rustix::io::Errno::NOENT);
            return Err(Error::File { path: path.to_owned(), source: missing });
        }
        let mut meant: Vec<RunId> = ids.iter().filter(|run| run.matches(text)).cloned().collect();
        if meant.is_empty() {
            let mut named = self.list()?.runs;
            named.retain(|run| run.spec.name == text);
            // of several the one that goes on
            let is_live = |run: &RunSummary| run.outcome.is_none() && !run.spec.is_imported();
            // an older one without an end may have died with its client
            let newest = named.iter().map(|run| run.spec.id.clone()).max();
            let only = named.iter().filter(|run| is_live(run)).map(|run| &run.spec.id);
            if only.clone().count() == 1 && only.max() == newest.as_ref() {
                named.retain(is_live);
            }
            meant = named.into_iter().map(|run| run.spec.id).collect();
        }
        match &meant[..] {
            [run] => Ok(self.path_of(run)),
            [] => Err(Error::NoSuchRun { text: text.to_owned(), candidates: self.name(&ids) }),
            several => Err(Error::Ambiguous { text: text.to_owned(), candidates: self.name(several) }),
        }
    }

    /// The newest recording of a run that was not refused; the newest one where all were. Of a refused run, none of whose ranks has
    /// started, there is nothing to be shown.
    pub fn newest_begun(&self) -> Result<PathBuf, Error> {
        let was_refused = |run: &RunId| {
            let outcome = reader::summarize(&self.path_of(run)).ok().and_then(|known| known.last.outcome);
            outcome.is_some_and(|outcome| outcome.is_refused())
        };
        let mut ids = self.ids()?;
        ids.retain(|run| self.path_of(run).exists());
        let begun = ids.iter().find(|run| !self.is_left_empty(run) && !was_refused(run));
        begun.map_or_else(|| self.find(""), |run| Ok(self.path_of(run)))
    }

    /// Runs as a message names them: `7QK2 mnist`.
    fn name(&self, runs: &[RunId]) -> Vec<String> {
        let label = |run: &RunId| match reader::summarize(&self.path_of(run)) {
            Ok(summary) => format!("{} {}", run.short(), summary.spec.name),
            Err(_) => run.short().to_owned(),
        };
        let mut names: Vec<String> = runs.iter().take(NAMED).map(label).collect();
        if runs.len() > NAMED {
            names.push(format!("{} more", runs.len() - NAMED));
        }
        names
    }

    /// The runs that have a folder, newest first: ids sort by the time of their launch.
    fn ids(&self) -> Result<Vec<RunId>, Error> {
        let entries = match std::fs::read_dir(&self.runs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file(&self.runs)(error)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::file(&self.runs))?;
            if let Some(run) = entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok()) {
                ids.push(run);
            }
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }
}

/// Whether its name is that of a recording or a trace.
fn is_of_data(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    end.is_some_and(|end| matches!(end, "mcap" | "json" | "jsonl" | "gz"))
}

/// Whether a recording has no file.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

fn stamp(time: SystemTime) -> Option<Stamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Stamp(i64::try_from(since.as_micros()).ok()?))
}

/// Removes a file or folder; the error names it.
fn remove(path: &Path) -> Result<(), Error> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        // nothing was recorded, or another hvtui was faster
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(Error::file(path))
}
