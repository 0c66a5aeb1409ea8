//! Deletes what a run that has ended has left on this host. Knows nothing of recordings.

use super::AgentConfig;
use super::list::share;
use super::runs::PLAN_LIFE_US;
use crate::clock;
use crate::domain::ids::{HostId, RunId};
use crate::supervise::SuperviseError;
use crate::supervise::discarded::{discard, sweep};
use crate::supervise::rundir::RunDir;

/// Deletes what a run has left here, unless something of it lives: this machine's shares by whatever name, and what earlier
/// deletions have left. Nothing there is nothing to do.
pub(super) fn delete(config: &AgentConfig, run: &RunId) -> Result<(), String> {
    let words = |error: SuperviseError| error.to_string();
    let state_dir = &config.state_dir;
    sweep(state_dir, Some(run)).map_err(words)?;
    for host in RunDir::hosts(state_dir, run).map_err(words)? {
        let Some(dir) = RunDir::find(state_dir, run, &host).map_err(words)? else { continue };
        // nothing was started in an empty one, and who is about to start it makes it anew
        if std::fs::remove_dir(dir.path()).is_ok() {
            if let Some(of_run) = dir.path().parent() {
                // another machine that shares the home may have its share there
                let _ = std::fs::remove_dir(of_run);
            }
            continue;
        }
        check(config, run, &host, &dir)?;
        discard(state_dir, run, &dir).map_err(words)?;
    }
    Ok(())
}

/// Whether a share may go, else why not.
fn check(config: &AgentConfig, run: &RunId, host: &HostId, dir: &RunDir) -> Result<(), String> {
    let words = |error: SuperviseError| error.to_string();
    match share(config, run, host).map_err(words)? {
        Some(share) if share.live => Err("something of it runs: stop it first".to_owned()),
        Some(_) => Ok(()),
        // the agent behind another name of this machine deletes it, too
        None if RunDir::find(&config.state_dir, run, host).map_err(words)?.is_none() => Ok(()),
        None => {
            // who prepared it starts it before the plan's life is over, or not at all
            let quiet = clock::now().micros_since(dir.written().map_err(words)?);
            if quiet.max(0).unsigned_abs() > PLAN_LIFE_US {
                return Ok(());
            }
            Err(format!(
                "{}: it is about to start, or failed to: try again in a minute",
                dir.path().display()
            ))
        }
    }
}

/// Removes what broken-off deletions have left, on a thread of its own: it may be much, and the disk slow.
pub(super) fn sweep_aside(config: &AgentConfig) {
    let state_dir = config.state_dir.clone();
    let work = move || {
        if let Err(error) = sweep(&state_dir, None) {
            tracing::warn!(%error, "what is left of a deleted run can't be deleted");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("sweep".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread to sweep on");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;
    use crate::procs::identity::Identity;
    use crate::supervise::rundir::machine_key;
    use crate::supervise::state::{Phase, STATE, State};

    struct Place {
        _home: tempfile::TempDir,
        config: AgentConfig,
        run: RunId,
    }

    impl Place {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let state_dir = home.path().join("hvtui");
            let config = AgentConfig { exe: "/bin/true".into(), state_dir, build: String::new() };
            Self { _home: home, config, run: RunId::new(1, 1) }
        }

        fn create(&self, host: &str) -> RunDir {
            RunDir::create(&self.config.state_dir, &self.run, &HostId::from(host)).unwrap()
        }

        /// A share that has ended, or whose supervisor is this process.
        fn started(&self, host: &str, phase: Phase) -> RunDir {
            let dir = self.create(host);
            let mut supervisor = Identity::own().unwrap();
            if phase == Phase::Ended {
                supervisor.start += 1;
            }
            dir.write_json(STATE, &State::of_test(phase, supervisor)).unwrap();
            dir
        }

        fn delete(&self) -> Result<(), String> {
            delete(&self.config, &self.run)
        }

        fn spool(&self) -> PathBuf {
            self.config.state_dir.join("spool")
        }

        fn left_over(&self) -> PathBuf {
            self.spool().join(format!(".deleted-{}-a{}.1", self.run, machine_key()))
        }

        fn is_clean(&self) -> bool {
            std::fs::read_dir(self.spool()).unwrap().count() == 0
        }
    }

    #[test]
    fn a_machine_deletes_its_shares_by_all_their_names_unless_one_is_live() {
        let place = Place::new();
        place.delete().unwrap();
        place.started("a", Phase::Ended);
        place.started("b", Phase::Ended);
        place.delete().unwrap();
        assert!(place.is_clean());
        place.started("a", Phase::Running);
        assert_eq!(place.delete().unwrap_err(), "something of it runs: stop it first");
        assert!(!place.is_clean());
    }

    #[test]
    fn what_a_deletion_left_by_half_goes_with_the_next_one_or_is_told() {
        let place = Place::new();
        drop(place.started("a", Phase::Ended));
        place.delete().unwrap();
        let left = place.left_over();
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("rank-0.out"), "said").unwrap();
        place.delete().unwrap();
        assert!(place.is_clean());
        // a file in the place of a directory: no right helps to remove it as one
        std::fs::write(&left, "").unwrap();
        let why = place.delete().unwrap_err();
        assert!(why.starts_with(&format!("delete {}: ", left.display())), "{why}");
    }

    #[test]
    fn a_share_that_was_never_started_goes_when_nobody_can_start_it_any_more() {
        let place = Place::new();
        place.create("a");
        place.delete().unwrap();
        assert!(place.is_clean(), "an empty one holds none up");
        let dir = place.create("a");
        dir.append("container.json").unwrap();
        let why = place.delete().unwrap_err();
        assert!(why.contains(&dir.path().display().to_string()) && why.contains("about to start"), "{why}");
        let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        File::open(dir.path()).unwrap().set_times(long_ago).unwrap();
        place.delete().unwrap();
        assert!(place.is_clean());
    }
}
