//! Starts a supervisor: what an agent calls.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

use super::SuperviseError;
use super::attempts;
use super::daemon::{Input, Reply};
use super::lease::{Claims, handover};
use super::logout::{self, Logout};
use super::rundir::RunDir;
use super::state::{SPEC, STATE, State};
use crate::domain::environment::EnvironmentChange;
use crate::domain::late::Late;
use crate::domain::run::HostRun;

/// How long a supervisor may take until it owns the run.
const DEADLINE: Duration = Duration::from_secs(20);
/// Between two looks whether one that has claimed the run has begun.
const LOOK: Duration = Duration::from_millis(20);

/// Whether this call started the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// Yes.
    Now,
    /// It was started before; it may have ended since.
    Before,
}

/// What the ranks find in their environment beside what the plan says. It travels in memory alone.
#[derive(Debug, Default)]
pub struct Given {
    /// What the client gave with the order to start.
    pub late: Late,
    /// What was activated on this host.
    pub environment: EnvironmentChange,
}

impl From<Late> for Given {
    fn from(late: Late) -> Self {
        Self { late, environment: EnvironmentChange::default() }
    }
}

/// Starts the supervisor of a run with `exe`, hvtui's own binary, hands it `claims`, and waits until it owns the run.
/// A run starts at most once, however often this is called and from however many agents.
pub async fn start(
    exe: &Path,
    dir: &RunDir,
    spec: HostRun,
    given: impl Into<Given>,
    claims: Claims,
) -> Result<Started, SuperviseError> {
    let manager = (logout::danger() == Logout::Escapable).then(|| Path::new(logout::SYSTEMD_RUN));
    start_by(manager, exe, dir, spec, given, claims).await
}

/// Starts it likewise through the user's service manager, by this `systemd-run`; where that fails, as ever.
pub async fn start_by(
    manager: Option<&Path>,
    exe: &Path,
    dir: &RunDir,
    spec: HostRun,
    given: impl Into<Given>,
    claims: Claims,
) -> Result<Started, SuperviseError> {
    let attempt = spec.attempt;
    if was_started(dir, attempt).await {
        return Ok(Started::Before);
    }
    let held = claims.descriptors().map(|(gpu, _)| gpu.clone()).collect();
    let Given { late, environment } = given.into();
    let input = serde_json::to_vec(&Input { spec, late, held, environment })
        .map_err(|_| SuperviseError::NotStarted("the run can't be written as JSON".to_owned()))?;
    let hand = Arc::new(Hand { claims, input });
    let mut answer = None;
    if let Some(manager) = manager {
        match ask(logout::escape(manager, exe, dir.path()).into(), exe, dir, &hand).await {
            // It was this program's answer, so it was this program that failed.
            Ok(reply) => answer = Some(reply),
            // One that was started all the same, and is only slow to say so, has the run: no second one gets it.
            Err(error) => tracing::warn!(%error, "the user's service manager did not start a supervisor"),
        }
    }
    let reply = match answer {
        Some(reply) => reply,
        None => ask(Command::new(exe), exe, dir, &hand).await?,
    };
    let started = judge(reply)?;
    if started == Started::Before && !was_started(dir, attempt).await {
        let reason = "another start of the run, at the same time, has failed: start it again".to_owned();
        return Err(SuperviseError::NotStarted(reason));
    }
    // Until here they were held by both: now they are the rank-wraps' alone.
    if let (Started::Now, Some(hand)) = (started, Arc::into_inner(hand)) {
        hand.claims.passed_on();
    }
    Ok(started)
}

/// Whether a supervisor has taken this attempt of the run on, now or before. `None` while one has claimed it and not begun yet: it
/// may still fail, and gives it back then.
pub fn has_begun(dir: &RunDir, attempt: u32) -> Option<bool> {
    if !attempts::has(dir, attempt) {
        return Some(false);
    }
    (dir.has(SPEC) || !is_claimed(dir)).then_some(true)
}

/// [`has_begun`], once that can be said.
pub async fn was_started(dir: &RunDir, attempt: u32) -> bool {
    let waited = async {
        loop {
            if let Some(begun) = has_begun(dir, attempt) {
                return begun;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.unwrap_or(true)
}

/// Whether a supervisor that lives has claimed the run, or has just given it back.
fn is_claimed(dir: &RunDir) -> bool {
    match dir.read_json::<State>(STATE) {
        Ok(state) => state.is_none_or(|state| state.supervisor.alive()),
        Err(_) => false,
    }
}

/// What a supervisor is handed.
struct Hand {
    claims: Claims,
    input: Vec<u8>,
}

/// Starts stage 1 by a command that becomes `exe` with further arguments; its answer.
async fn ask(
    mut command: Command,
    exe: &Path,
    dir: &RunDir,
    hand: &Arc<Hand>,
) -> Result<Reply, SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, exe, e);
    let (ours, theirs) = handover::pair().map_err(failed("make a socket for"))?;
    let child = command
        .args(["supervise", "--dir"])
        .arg(dir.path())
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("start"))?;
    // The command keeps a copy of the child's end, which must close with the child.
    drop(command);
    // Beside the rest: it blocks when the child takes nothing, and ends with the child.
    let handed = Arc::clone(hand);
    let told = tokio::task::spawn_blocking(move || {
        let descriptors: Vec<_> = handed.claims.descriptors().map(|(_, descriptor)| descriptor).collect();
        // A child that ended early says why on its output.
        let _ = handover::send(ours, &descriptors, &handed.input);
    });
    let talk = async { (child.wait_with_output().await, told.await) };
    let (output, _) = tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| SuperviseError::NotStarted(format!("no answer in {} s", DEADLINE.as_secs())))?;
    let output = output.map_err(failed("wait for"))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().next_back().unwrap_or("no words");
        SuperviseError::NotStarted(format!("{} {}: {last}", exe.display(), output.status))
    })
}

fn judge(reply: Reply) -> Result<Started, SuperviseError> {
    match reply {
        Reply::Ready => Ok(Started::Now),
        Reply::Already => Ok(Started::Before),
        Reply::Failed(why) => Err(SuperviseError::NotStarted(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procs::identity::Identity;
    use crate::supervise::state::Phase;

    #[tokio::test]
    async fn a_supervisor_that_has_only_claimed_the_run_may_still_give_it_back() {
        let (_state, dir) = RunDir::of_test();
        assert!(!was_started(&dir, 0).await);
        let own = Identity::own().unwrap();
        dir.write_json(STATE, &State::of_test(Phase::Starting, own.clone())).unwrap();
        let soon = tokio::time::timeout(Duration::from_millis(100), was_started(&dir, 0)).await;
        assert!(soon.is_err(), "it has not begun");
        let (started, ()) = tokio::join!(was_started(&dir, 0), async { dir.remove(STATE).unwrap() });
        assert!(!started, "it has failed");
        dir.write_json(STATE, &State::of_test(Phase::Starting, own.clone())).unwrap();
        let (started, ()) = tokio::join!(was_started(&dir, 0), async { drop(dir.append(SPEC).unwrap()) });
        assert!(started, "it has begun");
        dir.remove(SPEC).unwrap();
        let dead = Identity { start: own.start + 1, ..own };
        dir.write_json(STATE, &State::of_test(Phase::Starting, dead)).unwrap();
        assert!(was_started(&dir, 0).await, "one that was killed gives nothing back");
    }
}
