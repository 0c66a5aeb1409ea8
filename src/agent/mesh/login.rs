//! Tries plain `ssh` from this host to others, as mpirun will call it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::domain::text::sanitize;
use crate::wire::mesh::MeshTried;

/// Logins at once: an sshd drops more than ten that have not logged in yet.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

/// Logs in to each peer and runs `true` there.
pub(super) async fn try_all(peers: Vec<String>) -> MeshTried {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let logins: Vec<_> = peers
        .into_iter()
        .map(|peer| {
            let room = Arc::clone(&room);
            tokio::spawn(async move {
                let _room = room.acquire_owned().await;
                let result = log_in(&peer).await;
                (peer, result.err())
            })
        })
        .collect();
    let mut results = Vec::new();
    for login in logins {
        // A task that panicked has no result to give.
        results.extend(login.await.ok());
    }
    MeshTried { results }
}

async fn log_in(peer: &str) -> Result<(), String> {
    if peer.is_empty() || peer.starts_with('-') {
        return Err("it is no host name".to_owned());
    }
    let mut command = Command::new("ssh");
    // There is no user to answer a question.
    command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", peer, "true"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = timeout(PATIENCE, command.output()).await;
    let ended = ended.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?;
    let ended = ended.map_err(|error| format!("can't start ssh there: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("ssh failed");
    Err(sanitize(last).chars().take(300).collect())
}
