//! Run directories that are deleted: out of sight first, so that what is left of one by half is no run any more.
//!
//! `<state>/spool/.deleted-RUN-HOST@hostname-<8 hex>.PID`: the machine stands in the name, for one that shares the home
//! may be deleting, too. Several processes of this machine may remove the same one at once.

use std::io::ErrorKind;
use std::path::Path;

use super::SuperviseError;
use super::rundir::{RunDir, SPOOL, machine_key};
use crate::domain::ids::RunId;

const PREFIX: &str = ".deleted-";

/// Deletes a run's directory. One that another process deletes just now is its business too.
pub fn discard(state_dir: &Path, run: &RunId, dir: &RunDir) -> Result<(), SuperviseError> {
    let Some((of_run, key)) = dir.path().parent().zip(dir.path().file_name()) else { return Ok(()) };
    let name = format!("{PREFIX}{run}-{}.{}", key.to_string_lossy(), std::process::id());
    let gone = state_dir.join(SPOOL).join(name);
    if let Err(error) = std::fs::rename(dir.path(), &gone)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(SuperviseError::io("delete", dir.path(), error));
    }
    // another machine that shares the home may have its share there
    let _ = std::fs::remove_dir(of_run);
    remove(&gone)
}

/// Removes what deletions of this machine have left that broke off: those of `run`, or all. The first that can't be
/// removed is the error; the others are removed all the same.
pub fn sweep(state_dir: &Path, run: Option<&RunId>) -> Result<(), SuperviseError> {
    let spool = state_dir.join(SPOOL);
    if !spool.exists() {
        return Ok(());
    }
    let (names, machine) = (RunDir::open(&spool)?.names()?, machine_key());
    let mut swept = Ok(());
    for name in names.iter().filter(|name| is_left_over(name, &machine, run)) {
        swept = swept.and(remove(&spool.join(name)));
    }
    swept
}

/// Whether a deletion of this machine has left what has this name.
fn is_left_over(name: &str, machine: &str, run: Option<&RunId>) -> bool {
    let Some((of, pid)) = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.')) else {
        return false;
    };
    let is_asked_for =
        run.is_none_or(|run| of.strip_prefix(run.as_str()).is_some_and(|of| of.starts_with('-')));
    is_asked_for && of.ends_with(machine) && pid.parse::<u32>().is_ok()
}

fn remove(path: &Path) -> Result<(), SuperviseError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(SuperviseError::io("delete", path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::HostId;

    #[test]
    fn what_a_deletion_has_left_is_told_from_what_other_runs_and_machines_left() {
        let (run, other) = (RunId::new(1, 1), RunId::new(2, 2));
        let machine = "@node.x-1a2b3c4d";
        let of = |run: &RunId, machine: &str| format!(".deleted-{run}-gpu-a{machine}.77");
        assert!(is_left_over(&of(&run, machine), machine, Some(&run)));
        assert!(is_left_over(&of(&other, machine), machine, None));
        assert!(!is_left_over(&of(&other, machine), machine, Some(&run)), "another run");
        assert!(!is_left_over(&of(&run, "@node.y-1a2b3c4d"), machine, None), "another machine");
        assert!(!is_left_over(&format!(".deleted-{run}-gpu-a{machine}"), machine, None), "not by us");
        assert!(!is_left_over(run.as_str(), machine, None));
    }

    #[test]
    fn what_can_be_removed_is_removed_beside_what_cannot() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("s");
        let (run, host) = (RunId::new(1, 1), HostId::from("a"));
        let dir = RunDir::create(&state, &run, &host).unwrap();
        dir.append("rank-0.out").unwrap();
        let spool = state.join(SPOOL);
        let left = |host: &str, machine: &str| spool.join(format!(".deleted-{run}-{host}{machine}.7"));
        let own = machine_key();
        let (stuck, loose, strange) = (left("a", &own), left("b", &own), left("a", "@elsewhere-00000000"));
        // a file is no directory, and no right helps
        std::fs::write(&stuck, "").unwrap();
        for path in [&loose, &strange] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("rank-0.out"), "").unwrap();
        }
        let why = sweep(&state, Some(&run)).unwrap_err().to_string();
        assert!(why.starts_with(&format!("delete {}: ", stuck.display())), "{why}");
        assert!(!loose.exists() && strange.exists());
        std::fs::remove_file(&stuck).unwrap();
        discard(&state, &run, &dir).unwrap();
        discard(&state, &run, &dir).unwrap();
        assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 1, "what another machine left");
        sweep(&home.path().join("none"), None).unwrap();
    }
}
