//! hvtui's hooks in the Pythons of ranks: two files in a folder that `PYTHONPATH` names first. What they do is theirs
//! alone (`assets/python`, docs/decisions/python-hooks.md); here they are put on the host and into a rank's environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ring::digest::{Context, SHA256};

use super::rundir::RunDir;
use crate::domain::ids::Rank;
use crate::domain::options::PythonHooks;

/// The files: the first is what the interpreter looks for by itself.
const FILES: [(&str, &str); 2] = [
    ("sitecustomize.py", include_str!("../../assets/python/sitecustomize.py")),
    ("hvtui_report.py", include_str!("../../assets/python/hvtui_report.py")),
];
/// The variable that names the folders in which Python looks for modules.
const PYTHONPATH: &str = "PYTHONPATH";
/// The variable by which the hooks are told what is wanted of them.
const WANTED: &str = "HVTUI_PYTHON_HOOKS";

/// The rank's number in the run.
const RANK: &str = "HVTUI_RANK";

/// Puts the files on this host, where they are not there yet: beside the folder of all runs, or into this run's where
/// that can't be written.
pub(super) fn install(dir: &RunDir) -> io::Result<()> {
    if find(dir).is_some() {
        return Ok(());
    }
    let [shared, own] = places(dir);
    put(&shared).or_else(|_| put(&own))
}

/// The variables that put the hooks into a rank's Pythons. `given` is its environment where that is not this process's.
pub(super) fn variables(
    dir: &RunDir,
    (rank, hooks): (Rank, PythonHooks),
    given: Option<&BTreeMap<OsString, OsString>>,
) -> Vec<(&'static str, OsString)> {
    let Some(folder) = Some(dir).filter(|_| hooks != PythonHooks::Off).and_then(find) else {
        return Vec::new();
    };
    let has = |name: &str| match given {
        Some(given) => given.get(OsStr::new(name)).cloned(),
        None => std::env::var_os(name),
    };
    let mut path = folder.into_os_string();
    // an empty element would be the working directory
    if let Some(before) = has(PYTHONPATH).filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    let mut variables = vec![(PYTHONPATH, path)];
    // by which a process knows whether it is the rank itself or one of several within it
    if has(RANK).is_none() {
        variables.push((RANK, rank.to_string().into()));
    }
    if hooks == PythonHooks::Debug && has(WANTED).is_none() {
        variables.push((WANTED, "debug".into()));
    }
    variables
}

/// The folder that has them. It is there as a whole or not at all.
fn find(dir: &RunDir) -> Option<PathBuf> {
    places(dir).into_iter().find(|folder| folder.join(FILES[0].0).exists())
}

fn places(dir: &RunDir) -> [PathBuf; 2] {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let mut hash = Context::new(&SHA256);
        for (_, text) in FILES {
            hash.update(text.as_bytes());
        }
        let bytes: Vec<String> = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        bytes[..8].concat()
    });
    // the run's directory is `<state>/spool/RUN/HOST`
    let state = dir.path().ancestors().nth(3).unwrap_or(dir.path());
    [state.join("python").join(name), dir.path().join("python")]
}

fn put(folder: &Path) -> io::Result<()> {
    let private =
        |folder: &Path, all: bool| std::fs::DirBuilder::new().mode(0o700).recursive(all).create(folder);
    let above = folder.parent().unwrap_or(folder);
    private(above, true)?;
    // Under another name first: who finds the folder finds both files, whole.
    let draft = tempfile(above, folder);
    private(&draft, false)?;
    let written = FILES.iter().try_for_each(|(name, text)| {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft.join(name));
        file?.write_all(text.as_bytes())
    });
    let moved = written.and_then(|()| std::fs::rename(&draft, folder));
    if moved.is_err() {
        let _ = std::fs::remove_dir_all(&draft);
    }
    // another run has been quicker
    if folder.join(FILES[0].0).exists() { Ok(()) } else { moved }
}

fn tempfile(above: &Path, folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    above.join(format!(".{name}.{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn the_hooks_come_first_and_what_the_rank_has_stays() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let [_, own] = places(&dir);
        put(&own).unwrap();
        put(&own).unwrap();
        let folder = find(&dir).unwrap();
        let variables = |hooks, given: &[(&str, &str)]| {
            let given = given.iter().map(|(name, value)| (name.into(), value.into())).collect();
            variables(&dir, (Rank(3), hooks), Some(&given))
        };
        let with = |rest: &str| OsString::from(format!("{}{rest}", folder.display()));
        assert_eq!(variables(PythonHooks::On, &[]), [(PYTHONPATH, with("")), (RANK, "3".into())]);
        let seated = |path| [(PYTHONPATH, path), (RANK, "5")];
        assert_eq!(variables(PythonHooks::On, &seated("")), [(PYTHONPATH, with(""))]);
        let debug = variables(PythonHooks::Debug, &seated("/lib/mine"));
        assert_eq!(debug, [(PYTHONPATH, with(":/lib/mine")), (WANTED, "debug".into())]);
        assert!(variables(PythonHooks::Off, &[(PYTHONPATH, "/lib/mine")]).is_empty());
        assert_eq!(
            variables(PythonHooks::Debug, &[(WANTED, "off"), (RANK, "5")]).len(),
            1,
            "a rank's own word counts"
        );
        assert!(put(Path::new("/proc/none/python")).is_err());
        let left = std::fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
        assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().contains("python")).count(), 1);
    }
}
