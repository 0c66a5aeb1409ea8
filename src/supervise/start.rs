//! Starts a supervisor: what an agent calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::SuperviseError;
use super::daemon::{Input, Reply};
use super::lease::LeaseError;
use super::logout::{self, Logout};
use super::rundir::RunDir;
use super::state::STATE;
use crate::domain::run::HostRun;

/// How long a supervisor may take until it owns the run.
const DEADLINE: Duration = Duration::from_secs(20);

/// Whether this call started the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// Yes.
    Now,
    /// It was started before; it may have ended since.
    Before,
}

/// Starts the supervisor of a run with `exe`, hvtui's own binary, and waits until it owns the run. A run
/// starts at most once, however often this is called and from however many agents.
pub async fn start(
    exe: &Path,
    dir: &RunDir,
    spec: HostRun,
    env: BTreeMap<String, String>,
) -> Result<Started, SuperviseError> {
    let manager = (logout::danger() == Logout::Escapable).then(|| Path::new(logout::SYSTEMD_RUN));
    start_by(manager, exe, dir, spec, env).await
}

/// Starts it likewise through the user's service manager, by this `systemd-run`; where that fails, as ever.
pub async fn start_by(
    manager: Option<&Path>,
    exe: &Path,
    dir: &RunDir,
    spec: HostRun,
    env: BTreeMap<String, String>,
) -> Result<Started, SuperviseError> {
    if dir.has(STATE) {
        return Ok(Started::Before);
    }
    let input = serde_json::to_vec(&Input { spec, env })
        .map_err(|_| SuperviseError::NotStarted("the run can't be written as JSON".to_owned()))?;
    if let Some(manager) = manager {
        match ask(logout::escape(manager, exe, dir.path()).into(), exe, dir, &input).await {
            // It was this program's answer, so it was this program that failed.
            Ok(reply) => return judge(reply),
            // One that was started all the same, and is only slow to say so, has the run: no second one gets it.
            Err(error) => tracing::warn!(%error, "the user's service manager did not start a supervisor"),
        }
    }
    judge(ask(Command::new(exe), exe, dir, &input).await?)
}

/// Starts stage 1 by a command that becomes `exe` with further arguments; its answer.
async fn ask(mut command: Command, exe: &Path, dir: &RunDir, input: &[u8]) -> Result<Reply, SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, exe, e);
    let mut child = command
        .args(["supervise", "--dir"])
        .arg(dir.path())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("start"))?;
    let stdin = child.stdin.take();
    let talk = async {
        if let Some(mut stdin) = stdin {
            // A child that ended early says why on its output.
            let _ = stdin.write_all(input).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| SuperviseError::NotStarted(format!("no answer in {} s", DEADLINE.as_secs())))?
        .map_err(failed("wait for"))?;
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
        Reply::Busy(leases) => Err(LeaseError::Busy(leases).into()),
        Reply::Failed(why) => Err(SuperviseError::NotStarted(why)),
    }
}
