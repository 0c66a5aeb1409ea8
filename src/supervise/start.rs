//! Starts a supervisor: what an agent calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::SuperviseError;
use super::daemon::{Input, Reply};
use super::lease::{Claims, handover};
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

/// Starts the supervisor of a run with `exe`, hvtui's own binary, hands it `claims`, and waits until it owns the run.
/// A run starts at most once, however often this is called and from however many agents.
pub async fn start(
    exe: &Path,
    dir: &RunDir,
    spec: HostRun,
    env: BTreeMap<String, String>,
    claims: Claims,
) -> Result<Started, SuperviseError> {
    if dir.has(STATE) {
        return Ok(Started::Before);
    }
    let failed = |doing| move |e| SuperviseError::io(doing, exe, e);
    let held = claims.descriptors().map(|(rank, _)| rank).collect();
    let input = serde_json::to_vec(&Input { spec, env, held })
        .map_err(|_| SuperviseError::NotStarted("the run can't be written as JSON".to_owned()))?;
    let (ours, theirs) = handover::pair().map_err(failed("make a socket for"))?;
    let child = Command::new(exe)
        .args(["supervise", "--dir"])
        .arg(dir.path())
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed("start"))?;
    // Beside the rest: it blocks when the child takes nothing, and ends with the child.
    let told = tokio::task::spawn_blocking(move || {
        let descriptors: Vec<_> = claims.descriptors().map(|(_, descriptor)| descriptor).collect();
        // A child that ended early says why on its output.
        let _ = handover::send(ours, &descriptors, &input);
        claims
    });
    let talk = async { (child.wait_with_output().await, told.await) };
    let (output, claims) = tokio::time::timeout(DEADLINE, talk)
        .await
        .map_err(|_| SuperviseError::NotStarted(format!("no answer in {} s", DEADLINE.as_secs())))?;
    let reply = read_reply(exe, &output.map_err(failed("wait for"))?)?;
    // Until here they were held by both: now they are the rank-wraps' alone.
    if let (Started::Now, Ok(claims)) = (reply, claims) {
        claims.passed_on();
    }
    Ok(reply)
}

fn read_reply(exe: &Path, output: &std::process::Output) -> Result<Started, SuperviseError> {
    match serde_json::from_slice(&output.stdout) {
        Ok(Reply::Ready) => Ok(Started::Now),
        Ok(Reply::Already) => Ok(Started::Before),
        Ok(Reply::Failed(why)) => Err(SuperviseError::NotStarted(why)),
        Err(_) => {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().next_back().unwrap_or("no words");
            Err(SuperviseError::NotStarted(format!("{} {}: {last}", exe.display(), output.status)))
        }
    }
}
