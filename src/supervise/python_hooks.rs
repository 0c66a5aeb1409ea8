//! hvtui's hooks in the Pythons of ranks: two files in a folder that `PYTHONPATH` names first. What they do is theirs
//! alone (`assets/python`, docs/decisions/python-hooks.md); here they are put on the host and into a rank's environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::rundir::RunDir;
use super::shipped::Shipped;
use super::variables::Variables;
use crate::domain::ids::Rank;
use crate::domain::options::PythonHooks;

/// The files: the first is what the interpreter looks for by itself.
pub(super) const HOOKS: Shipped = Shipped {
    name: "python",
    files: &[
        ("sitecustomize.py", include_bytes!("../../assets/python/sitecustomize.py")),
        ("hvtui_report.py", include_bytes!("../../assets/python/hvtui_report.py")),
    ],
};
/// The variable that names the folders in which Python looks for modules.
const PYTHONPATH: &str = "PYTHONPATH";
/// The variable by which the hooks are told what is wanted of them.
const WANTED: &str = "HVTUI_PYTHON_HOOKS";

/// The rank's number in the run.
const RANK: &str = "HVTUI_RANK";

/// Where the hooks read whose process numbers are known here: those of another namespace, as in a container, are not.
const NUMBERS: &str = "pid-ns.json";

/// Puts the hooks on this host, and what they must know of it beside the reports.
pub(super) fn install(dir: &RunDir) -> Result<(), String> {
    HOOKS.install(dir).map_err(|error| error.to_string())?;
    // without it they take their numbers for ours, which they mostly are
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(own) => dir.write_passing(NUMBERS, &own.to_string_lossy()).map_err(|error| error.to_string()),
        Err(_) => Ok(()),
    }
}

/// Whether the numbers by which this process sees others are those of the run's supervisor, where its hooks are told.
pub(super) fn sees_the_numbers(dir: &RunDir) -> bool {
    let (own, told) = (std::fs::read_link("/proc/self/ns/pid"), dir.read_json::<String>(NUMBERS));
    matches!((own, told), (Ok(own), Ok(Some(told))) if own.to_string_lossy() == told)
}

/// The folder of the hooks, where they are installed.
pub(super) fn folder(dir: &RunDir) -> Option<PathBuf> {
    HOOKS.find(dir)
}

/// The variables that put the hooks into a rank's Pythons.
pub(super) fn variables(
    dir: &RunDir,
    (rank, hooks): (Rank, PythonHooks),
    given: &Variables,
) -> Vec<(&'static str, OsString)> {
    let Some(folder) = Some(dir).filter(|_| hooks != PythonHooks::Off).and_then(|dir| HOOKS.find(dir)) else {
        return Vec::new();
    };
    let mut path = folder.into_os_string();
    // an empty element would be the working directory
    if let Some(before) = given.get(PYTHONPATH).filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    let mut variables = vec![(PYTHONPATH, path)];
    // by which a process knows whether it is the rank itself or one of several within it
    if !given.has(RANK) {
        variables.push((RANK, rank.to_string().into()));
    }
    if hooks == PythonHooks::Debug && !given.has(WANTED) {
        variables.push((WANTED, "debug".into()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn the_hooks_come_first_and_what_the_rank_has_stays() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let [_, own] = HOOKS.places(&dir);
        HOOKS.put(&own).unwrap();
        HOOKS.put(&own).unwrap();
        let folder = HOOKS.find(&dir).unwrap();
        let variables =
            |hooks, given: &[(&str, &str)]| variables(&dir, (Rank(3), hooks), &given.iter().collect());
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
        assert!(HOOKS.put(Path::new("/proc/none/python")).is_err());
        let left = std::fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
        assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().contains("python")).count(), 1);
    }
}
