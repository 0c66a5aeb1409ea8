//! Stops a run as a client wants it, and keeps one from starting that its owner does not want any more.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::AgentConfig;
use super::outgoing::Outgoing;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::RefusalClass;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::STATE;
use crate::supervise::stop::{Stopped, stop};
use crate::supervise::{SuperviseError, attempts, unwanted};
use crate::wire::message::{FromAgent, Refused, Stop};

/// How long the disk may take to mark a run. One that takes longer hangs, as that of a file server that is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a stop is refused.
type Refusal = (RefusalClass, String);

/// A stop that was asked for.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) config: AgentConfig,
    pub(super) out: Outgoing,
    /// Without an attempt it means the run as a whole, or whatever runs.
    pub(super) stop: Stop,
    /// Whether the run is followed then: of one of which nothing is here a follower tells.
    pub(super) follows: bool,
}

impl Stopping {
    /// Marks it while something that was asked of the run before is not done yet, and maybe hangs: it is not started then. The client
    /// is told where this hangs too; all else when the stop has its turn.
    pub(super) async fn mark_ahead(self) {
        let Self { config, out, stop, .. } = self;
        if mark(&config.state_dir, &stop.run, PATIENCE).await.is_none() {
            out.control(refused(&stop, hangs(&config.state_dir, &stop.host))).await;
        }
    }

    /// Marks a run that its owner does not want any more, before anything else is looked at; the rest is done beside what is asked
    /// next: a run without supervisor takes its grace period here. Gives whether it is marked, and what becomes whether the client
    /// was refused.
    pub(super) async fn begin(self) -> (bool, JoinHandle<bool>) {
        let Self { config, out, stop, follows } = self;
        let marked =
            if stop.whole { mark(&config.state_dir, &stop.run, PATIENCE).await } else { Some(Ok(())) };
        let Some(marked) = marked else {
            out.control(refused(&stop, hangs(&config.state_dir, &stop.host))).await;
            // should the disk answer after all; the client was told
            drop(tokio::task::spawn_blocking(move || carry_out(&config, &stop, follows, Ok(()))));
            return (false, tokio::spawn(async { true }));
        };
        let is_marked = marked.is_ok();
        let is_refused = tokio::task::spawn_blocking(move || {
            let Some(refusal) = carry_out(&config, &stop, follows, marked) else { return false };
            out.control_blocking(refused(&stop, refusal));
            true
        });
        (is_marked, is_refused)
    }
}

fn refused(stop: &Stop, (class, reason): Refusal) -> FromAgent {
    let (run, host) = (stop.run.clone(), stop.host.clone());
    FromAgent::Refused(Refused { run, host, rank: None, reason, class, busy: false })
}

/// Marks a run as one that is not wanted; `None` where the disk does not answer in time.
async fn mark(state_dir: &Path, run: &RunId, patience: Duration) -> Option<Result<(), SuperviseError>> {
    let (state, run) = (state_dir.to_owned(), run.clone());
    let marking = tokio::task::spawn_blocking(move || unwanted::mark(&state, &run));
    let marked = timeout(patience, marking).await.ok()?;
    Some(marked.unwrap_or_else(|error| Err(SuperviseError::NotStarted(error.to_string()))))
}

fn hangs(state_dir: &Path, host: &HostId) -> Refusal {
    let (folder, limit) = (unwanted::folder(state_dir), PATIENCE.as_secs());
    let reason = format!(
        "{host}: {} does not answer within {limit} s, as where its file server is gone: the run goes on or may start there; stop \
         it again when the folder can be listed",
        folder.display()
    );
    (RefusalClass::Io, reason)
}

/// Stops what is here of the run; why not.
fn carry_out(
    config: &AgentConfig,
    Stop { run, host, now, attempt, .. }: &Stop,
    follows: bool,
    marked: Result<(), SuperviseError>,
) -> Option<Refusal> {
    let found = RunDir::find(&config.state_dir, run, host);
    // without a state no supervisor has it
    let found = found.map(|dir| dir.filter(|dir| dir.has(STATE)));
    match (found, marked) {
        // asked for before the run was started again
        (Ok(Some(dir)), _)
            if attempt.is_some_and(|attempt| attempts::has(&dir, attempt.saturating_add(1))) =>
        {
            None
        }
        (Ok(Some(dir)), marked) => match (stop(&config.exe, &dir, *now), marked) {
            (Ok(Stopped::NothingLeft), Err(error)) => Some(unmarked(host, &error)),
            (Ok(_), _) => None,
            (Err(error), _) => Some((error.class(), format!("{host}: {error}"))),
        },
        (Ok(None), Ok(())) if follows => None,
        (Ok(None), Ok(())) => Some((RefusalClass::Unknown, format!("run {run} was never started on {host}"))),
        (Ok(None), Err(error)) => Some(unmarked(host, &error)),
        (Err(error), _) => Some((error.class(), format!("{host}: {error}"))),
    }
}

/// Nothing of a run is left on a host, and it could start there again.
fn unmarked(host: &HostId, error: &SuperviseError) -> Refusal {
    let reason = format!("{host}: nothing of the run is left, and it can't be kept from starting: {error}");
    (error.class(), reason)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, remove_file};

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[tokio::test]
    async fn a_disk_that_does_not_answer_is_named_and_waited_for_no_longer() {
        let home = tempfile::tempdir().unwrap();
        let state_dir = home.path().join("hvtui");
        let run = RunId::new(1, 1);
        let marked = |patience| mark(&state_dir, &run, Duration::from_millis(patience));
        marked(60_000).await.unwrap().unwrap();
        // who opens a pipe waits for a writer, as for a disk that hangs
        let folder = unwanted::folder(&state_dir);
        let pipe = folder.join(RunId::new(2, 2).as_str());
        mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        let hung = marked(200).await;
        drop(File::options().read(true).write(true).open(&pipe).unwrap());
        remove_file(&pipe).unwrap();
        assert!(hung.is_none());
        let (class, reason) = hangs(&state_dir, &HostId::from("gpu-b"));
        let begin = format!("gpu-b: {} does not answer within 10 s", folder.display());
        assert!(class == RefusalClass::Io && reason.starts_with(&begin), "{reason}");
        marked(60_000).await.unwrap().unwrap();
    }
}
