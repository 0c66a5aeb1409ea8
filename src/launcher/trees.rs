//! What the launches of a session copy to their hosts: folders that are being read, and copies under way.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::syncing::{SyncProgress, Syncing};
use super::waiting::PendingLaunch;
use crate::clock;
use crate::domain::ids::{HostId, RunId};
use crate::domain::python::{Runs, runs};
use crate::domain::sync::{Code, Digest, SyncPlan};
use crate::domain::time::Stamp;
use crate::domain::units::counted;
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launch::request::Since;
use crate::sync::manifest::{Entry, Kind, Manifest};
use crate::sync::snapshot::{self, Progress, Snapshot};
use crate::sync::{SyncError, git};

/// How long git may be silent. A launch does not fail for want of it.
const GIT: Duration = Duration::from_secs(5);

/// A folder is read for so long before anything is said of it.
const QUIET_US: i64 = 1_000_000;

/// A launch whose folder is being read.
#[derive(Debug)]
pub(super) enum Unread {
    /// One that is placed later.
    Launch(Box<PendingLaunch>),
    /// One that was planned and shown.
    Plan(Box<LaunchPlan>),
}

/// A folder that was read.
#[derive(Debug)]
pub(super) struct ReadTree {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) code: Code,
    /// How the code differs from that of the run that is launched once more.
    pub(super) differs: Option<String>,
}

/// The folder that is being read.
#[derive(Debug)]
struct Reading {
    progress: Arc<Progress>,
    begun: Stamp,
    /// Whether something was said of it.
    told: bool,
}

/// The folders of a session.
#[derive(Debug, Default)]
pub(super) struct Trees {
    reading: JoinSet<(Unread, Result<ReadTree, SyncError>)>,
    /// The last one that began.
    newest: Option<Reading>,
    /// Where hashes are kept.
    pub(super) hashes: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
    known: BTreeMap<Digest, Arc<Snapshot>>,
    pub(super) syncs: BTreeMap<RunId, Syncing>,
    pub(super) number: u32,
}

impl Trees {
    /// Reads the folder of a launch beside the rest; [`Self::next`] gives it back.
    pub(super) fn read(&mut self, launch: Unread, plan: SyncPlan, since: Option<Since>) {
        let hashes = self.hashes.clone();
        let progress = Arc::<Progress>::default();
        self.newest = Some(Reading { progress: Arc::clone(&progress), begun: clock::now(), told: false });
        self.reading.spawn_blocking(move || {
            let read = read(&plan, hashes.as_deref(), since.as_ref(), &progress);
            (launch, read)
        });
    }

    /// How far the folder is that is being read, once that takes long; with it whether it is told for the first time.
    pub(super) fn told(&mut self, now: Stamp) -> Option<(String, bool)> {
        let reading = self.newest.as_mut().filter(|_| !self.reading.is_empty())?;
        let took_us = now.micros_since(reading.begun);
        let first = !std::mem::replace(&mut reading.told, took_us > QUIET_US);
        reading.told.then(|| (words(&reading.progress, took_us.unsigned_abs()), first))
    }

    /// Forgets the launches whose folders are being read.
    pub(super) fn forget(&mut self) {
        (self.reading, self.newest) = (JoinSet::new(), None);
    }

    /// The next launch whose folder was read. Waits for ever where there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> (Unread, Result<ReadTree, SyncError>) {
        loop {
            match self.reading.join_next().await {
                Some(Ok((launch, read))) => {
                    if let Ok(tree) = &read {
                        self.known.insert(tree.snapshot.tree, Arc::clone(&tree.snapshot));
                    }
                    return (launch, read);
                }
                Some(Err(error)) => tracing::warn!(%error, "a folder was not read"),
                None => std::future::pending().await,
            }
        }
    }

    /// Reads a folder now.
    pub(super) fn read_now(&mut self, plan: &SyncPlan) -> Result<Arc<Snapshot>, LaunchError> {
        let tree = read(plan, self.hashes.as_deref(), None, &Progress::default())
            .map_err(|error| fault(plan, &error))?;
        self.known.insert(tree.snapshot.tree, Arc::clone(&tree.snapshot));
        Ok(tree.snapshot)
    }

    /// A folder that was read.
    pub(super) fn get(&self, tree: Digest) -> Option<&Arc<Snapshot>> {
        self.known.get(&tree)
    }

    /// Whether a host that is this machine has the folder at the same path: then nothing is copied.
    pub(super) fn is_in_place(&self, plan: &SyncPlan) -> bool {
        let there = match (plan.remote.strip_prefix('~'), &self.home) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(&plan.remote),
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real(&there) == real(Path::new(&plan.dir))
    }

    /// The copy of a run that concerns a host.
    pub(super) fn of_host<'a>(
        &'a mut self,
        host: &'a HostId,
    ) -> impl Iterator<Item = (&'a RunId, &'a mut Syncing)> {
        self.syncs.iter_mut().filter(move |(_, sync)| sync.counts().any(|(of, _)| of == host))
    }
}

/// A launch that fails for its folder.
pub(super) fn fault(plan: &SyncPlan, error: &SyncError) -> LaunchError {
    LaunchError::usage(match error {
        // it is the folder itself
        SyncError::Target { fault, .. } => format!("--sync {} {fault}", plan.dir),
        error => format!("--sync {}: {error}", plan.dir),
    })
}

/// What is said of a script of Python's that a folder does not bring, before it is copied: the hosts may have it from elsewhere.
pub(super) fn lacks(plan: &SyncPlan, read: &Snapshot, command: &[String]) -> Option<String> {
    let (program, words) = command.split_first()?;
    let version = Path::new(program).file_name()?.to_str()?.strip_prefix("python")?;
    if !version.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let Some(Runs::Script(script)) = runs(words.iter().map(String::as_str)) else { return None };
    let inside = script.strip_prefix("./").unwrap_or(script);
    let is_inside = Path::new(inside).components().all(|part| matches!(part, Component::Normal(_)));
    let entries = read.manifest.entries();
    // behind a symlink lies what is not looked at
    let is_there = |entry: &Entry| {
        let is_link = matches!(entry.kind, Kind::Link { .. });
        let path = Path::new(&entry.path);
        path == Path::new(inside) || is_link && Path::new(inside).starts_with(path)
    };
    if !is_inside || inside.starts_with('~') || entries.iter().any(is_there) {
        return None;
    }
    let why = if read.dir.join(inside).exists() {
        "is left out by .gitignore or .hvtuiignore (`!NAME` in .hvtuiignore takes it in)"
    } else {
        "is not in the folder that --sync sends"
    };
    Some(format!("{script} {why}: it must be in {} on the hosts already", plan.remote))
}

/// `sync  hashing 120 M of 3.4 G  400 M/s  8 s left`.
fn words(progress: &Progress, took_us: u64) -> String {
    match progress.to_hash() {
        0 => format!("sync  reading the folder: {} so far", counted(progress.files(), "file")),
        whole => {
            let hashed = SyncProgress { taken: progress.hashed(), whole, took_us };
            format!("sync  hashing {}", hashed.counts())
        }
    }
}

fn read(
    plan: &SyncPlan,
    hashes: Option<&Path>,
    since: Option<&Since>,
    progress: &Progress,
) -> Result<ReadTree, SyncError> {
    let dir = Path::new(&plan.dir);
    let git = std::thread::scope(|scope| {
        let git = scope.spawn(|| git::code(dir, GIT));
        let now_ns = i128::from(clock::now().0) * 1000;
        let snapshot = snapshot::snapshot(dir, hashes, now_ns, progress);
        (snapshot, git.join().unwrap_or_default())
    });
    let (snapshot, mut code) = (Arc::new(git.0?), git.1);
    code.tree = Some(snapshot.tree);
    let differs = since.and_then(|since| differs(since, &code, Some(&snapshot.manifest)));
    Ok(ReadTree { snapshot, code, differs })
}

/// `code has changed since RUN: commit abc1234 → def5678, 3 files differ`; `None` where it has not, or that is not known.
pub fn differs(since: &Since, now: &Code, manifest: Option<&Manifest>) -> Option<String> {
    let short = |text: &str| text.chars().take(7).collect::<String>();
    let mut words = Vec::new();
    match (&since.code.commit, &now.commit) {
        (Some(before), Some(now)) if before != now => {
            words.push(format!("commit {} → {}", short(before), short(now)));
        }
        _ => {}
    }
    match (since.code.tree, now.tree) {
        (Some(before), Some(now)) if before != now => {
            let read = since.tree.as_ref().and_then(|file| std::fs::read(file).ok());
            let before = read.and_then(|text| Manifest::decode(&text).ok());
            let count = before.zip(manifest).map(|(before, now)| now.differing(&before));
            words.push(match count {
                Some(1) => "1 file differs".to_owned(),
                Some(count) => format!("{count} files differ"),
                None => "files differ".to_owned(),
            });
        }
        (None, _) | (_, None) if since.code.unclear || now.unclear => {}
        (None, _) | (_, None) if since.code.commit.is_some() && since.code.dirty != now.dirty => {
            words.push("uncommitted changes differ".to_owned());
        }
        _ => {}
    }
    let run = &since.run;
    (!words.is_empty()).then(|| format!("code has changed since {run}: {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_place_of_a_folder_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "").unwrap();
        let path = file.display().to_string();
        let plan = SyncPlan { dir: path.clone(), remote: "~/a".to_owned(), delete: false };
        let error = snapshot::snapshot(&file, None, 0, &Progress::default()).unwrap_err();
        let said = fault(&plan, &error).to_string();
        assert_eq!(said, format!("--sync {path} is not a folder: --sync copies folders"));
    }

    #[test]
    fn a_script_that_a_folder_does_not_bring_is_told_before_it_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["data", "src"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        std::fs::write(at(".gitignore"), "data/\n").unwrap();
        for script in ["data/t.py", "src/t.py"] {
            std::fs::write(at(script), "").unwrap();
        }
        std::os::unix::fs::symlink("src", at("link")).unwrap();
        let read = snapshot::snapshot(dir.path(), None, 0, &Progress::default()).unwrap();
        let path = dir.path().display().to_string();
        let plan = SyncPlan { dir: path, remote: "~/code".to_owned(), delete: false };
        let lacks = |line: &str| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            lacks(&plan, &read, &command)
        };
        let ignored = lacks("python3 -u data/t.py --lr 1").unwrap();
        assert!(ignored.starts_with("data/t.py is left out by .gitignore"), "{ignored}");
        let absent = lacks("python3.12 nosuch.py").unwrap();
        assert_eq!(
            absent,
            "nosuch.py is not in the folder that --sync sends: it must be in ~/code on the hosts already"
        );
        let others = [
            "python3 ./src/t.py",
            "python3 src//t.py",
            "python3 link/t.py",
            "python3 -m nosuch",
            "python3 /x/t.py",
            "./x",
            "python3 ../t.py",
        ];
        for line in others {
            assert_eq!(lacks(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_read_for_long_is_told_with_numbers() {
        let mut trees = Trees::default();
        let begun = Stamp(5_000_000);
        let progress = Arc::<Progress>::default();
        let reading = Reading { progress: Arc::clone(&progress), begun, told: false };
        trees.newest = Some(reading);
        assert_eq!(trees.told(begun.plus_micros(2_000_000)), None, "nothing is being read");
        trees.reading.spawn(std::future::pending());
        assert_eq!(trees.told(begun.plus_micros(900_000)), None, "it may be over in a moment");
        let words = |text: &str, first| Some((text.to_owned(), first));
        let told = trees.told(begun.plus_micros(1_100_000));
        assert_eq!(told, words("sync  reading the folder: 0 files so far", true));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "12345").unwrap();
        snapshot::snapshot(dir.path(), None, 0, &progress).unwrap();
        let told = trees.told(begun.plus_micros(2_000_000));
        assert_eq!(told, words("sync  hashing 5 B of 5 B  2 B/s  0.0 ms left", false));
        trees.forget();
        assert_eq!(trees.told(begun.plus_micros(3_000_000)), None);
    }
}
