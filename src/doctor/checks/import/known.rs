//! Imports that have succeeded here, so that not each launch waits for one: kept in the state folder, and believed while the Python,
//! the package, its neighbours, the driver and the variables that lead to libraries are what they were, and for a day at most.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tries::Imported;
use crate::clock;
use crate::domain::time::Stamp;
use crate::sha256;

/// Variables that lead to other libraries.
const VARIABLES: [&str; 5] = ["LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "PATH"];
const DRIVER: &str = "/sys/module/nvidia/version";
/// So far up the folder of all packages is looked for.
const FOLDERS: usize = 6;
/// How long one is believed, microseconds.
const AGE_US: i64 = 24 * 3600 * 1_000_000;

/// So often one may take too long before launches try it no more.
const TRIES: u32 = 2;

/// What succeeded, and of which files.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Success {
    at: Stamp,
    #[serde(flatten)]
    told: Imported,
    /// The files of the module, of those that came with it and of NCCL, and how they and the folders of their neighbours were.
    files: Vec<PathBuf>,
    was: Vec<State>,
}

/// When a file or folder changed, and how long it is; `None` of one that is not there.
type State = Option<(i64, i64, u64)>;

/// Where one import is remembered.
#[derive(Debug)]
pub(super) struct Known(PathBuf);

impl Known {
    pub(super) fn new(state: &Path, python: &Path, module: &str, value: impl Fn(&str) -> String) -> Self {
        let driver = fs::read_to_string(DRIVER).unwrap_or_default();
        let variables = VARIABLES.map(|name| format!("{name}={}", value(name)));
        let python = (python, state_of(python));
        let all = format!("{python:?} {module} {variables:?} {driver}");
        let digest = sha256::of_bytes(all.as_bytes()).to_string();
        let name = digest.get(..16).unwrap_or(&digest).to_owned();
        Self(state.join("imports").join(name + ".json"))
    }

    /// What it told, where it succeeded and nothing of it has changed.
    pub(super) fn succeeded(&self) -> Option<Imported> {
        let success: Success = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        let age = clock::now().micros_since(success.at);
        let is_same = success.was == states(&success.files);
        ((0..AGE_US).contains(&age) && is_same).then_some(success.told)
    }

    /// Whether it took too long so often that another launch need not wait for it.
    pub(super) fn is_given_up(&self) -> bool {
        self.times_late() >= TRIES
    }

    fn times_late(&self) -> u32 {
        let late = || serde_json::from_slice::<(Stamp, u32)>(&fs::read(self.late()).ok()?).ok();
        let is_young = |at: Stamp| (0..AGE_US).contains(&clock::now().micros_since(at));
        late().filter(|(at, _)| is_young(*at)).map_or(0, |(_, times)| times)
    }

    fn late(&self) -> PathBuf {
        self.0.with_extension("late")
    }

    /// Remembers that it took too long.
    pub(super) fn keep_late(&self) {
        let Some(folder) = self.0.parent() else { return };
        let told = (clock::now(), self.times_late().saturating_add(1));
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            fs::write(self.late(), serde_json::to_vec(&told)?)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "that an import takes long is not remembered");
        }
    }

    /// Remembers it, by the module's own file and those of what came with it. Where that fails, it is tried again the next time.
    pub(super) fn keep(&self, file: Option<PathBuf>, more: Vec<PathBuf>, told: Imported) {
        let _ = fs::remove_file(self.late());
        let (Some(file), Some(folder)) = (file, self.0.parent()) else { return };
        let files: Vec<PathBuf> = [file].into_iter().chain(more).collect();
        let was = states(&files);
        let success = Success { at: clock::now(), told, files, was };
        let beside = self.0.with_extension(std::process::id().to_string());
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            fs::write(&beside, serde_json::to_vec(&success)?)?;
            fs::rename(&beside, &self.0)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "an import that succeeded is not remembered");
        }
    }
}

/// The file, its folders, and the folder of all packages, which changes when one is installed.
fn places(file: &Path) -> impl Iterator<Item = PathBuf> {
    let all: Vec<PathBuf> = file.ancestors().take(FOLDERS).map(Path::to_path_buf).collect();
    let is_of_all = |place: &PathBuf| place.ends_with("site-packages") || place.ends_with("dist-packages");
    let count = all.iter().position(is_of_all).map_or(3, |last| last + 1);
    all.into_iter().take(count)
}

/// How these files and what is around them are now.
fn states(files: &[PathBuf]) -> Vec<State> {
    files.iter().flat_map(|file| places(file)).map(|place| state_of(&place)).collect()
}

fn state_of(path: &Path) -> State {
    let known = fs::metadata(path).ok()?;
    Some((known.mtime(), known.mtime_nsec(), known.len()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_success_is_believed_until_something_changes() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("site-packages/torch");
        fs::create_dir_all(&package).unwrap();
        let file = package.join("__init__.py");
        fs::write(&file, "").unwrap();
        let (state, python) = (folder.path().join("state"), Path::new("/usr/bin/python3"));
        let of = |path: &str| {
            let path = path.to_owned();
            Known::new(&state, python, "torch", move |name| {
                if name == "LD_LIBRARY_PATH" { path.clone() } else { String::new() }
            })
        };
        assert_eq!(of("").succeeded(), None);
        let nested = folder.path().join("site-packages/horovod/torch/__init__.py");
        assert_eq!(places(&nested).last(), Some(folder.path().join("site-packages")));
        let told = || Imported {
            version: Some("2.4.0".to_owned()),
            versions: BTreeMap::from([("Python".to_owned(), "3.11.2".to_owned())]),
            arches: vec!["sm_90".to_owned()],
            gpus: vec![
                serde_json::from_value(serde_json::json!({"uuid": "GPU-1", "capability": [6, 1]})).unwrap(),
            ],
        };
        let keep = |more: &[&Path]| {
            of("").keep(Some(file.clone()), more.iter().map(|path| path.to_path_buf()).collect(), told());
        };
        keep(&[]);
        assert_eq!(of("").succeeded(), Some(told()));
        assert_eq!(of("/opt/cuda").succeeded(), None, "other libraries");
        // what came with it lies elsewhere
        let nccl = folder.path().join("lib/libnccl.so.2");
        fs::create_dir(folder.path().join("lib")).unwrap();
        fs::write(&nccl, "2.20.5").unwrap();
        keep(&[nccl.as_path()]);
        assert_eq!(of("").succeeded(), Some(told()));
        fs::write(&nccl, "2.21.5-1").unwrap();
        assert_eq!(of("").succeeded(), None, "another NCCL");
        keep(&[nccl.as_path()]);
        // a package is installed beside it
        fs::create_dir(folder.path().join("site-packages/apex")).unwrap();
        assert_eq!(of("").succeeded(), None);
    }

    #[test]
    fn what_takes_too_long_is_given_up_until_it_has_succeeded() {
        let folder = tempfile::tempdir().unwrap();
        let of = |module: &str| {
            Known::new(folder.path(), Path::new("/usr/bin/python3"), module, |_| String::new())
        };
        let (torch, other) = (of("torch"), of("tensorflow"));
        let mut told = Vec::new();
        for _ in 0..3 {
            told.push(torch.is_given_up());
            torch.keep_late();
        }
        assert_eq!((told, other.is_given_up()), (vec![false, false, true], false));
        let yesterday = (clock::now().plus_micros(-AGE_US), 9);
        fs::write(other.late(), serde_json::to_vec(&yesterday).unwrap()).unwrap();
        assert!(!other.is_given_up(), "a day is over");
        torch.keep(None, Vec::new(), Imported::default());
        assert!(!torch.is_given_up());
    }
}
