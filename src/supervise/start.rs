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
    if dir.has(STATE) {
        return Ok(Started::Before);
    }
    let failed = |doing| move |e| SuperviseError::io(doing, exe, e);
    let input = serde_json::to_vec(&Input { spec, env })
        .map_err(|_| SuperviseError::NotStarted("the run can't be written as JSON".to_owned()))?;
    let mut child = Command::new(exe)
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
            let _ = stdin.write_all(&input).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| SuperviseError::NotStarted(format!("no answer in {} s", DEADLINE.as_secs())))?
        .map_err(failed("wait for"))?;
    match serde_json::from_slice(&output.stdout) {
        Ok(Reply::Ready) => Ok(Started::Now),
        Ok(Reply::Already) => Ok(Started::Before),
        Ok(Reply::Busy(leases)) => Err(LeaseError::Busy(leases).into()),
        Ok(Reply::Failed(why)) => Err(SuperviseError::NotStarted(why)),
        Err(_) => {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().next_back().unwrap_or("no words");
            Err(SuperviseError::NotStarted(format!("{} {}: {last}", exe.display(), output.status)))
        }
    }
}
