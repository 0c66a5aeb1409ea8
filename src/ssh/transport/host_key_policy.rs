//! What becomes of a host whose key is not known: refused, asked about, or taken, as its policy says. A changed or
//! revoked key never comes here.

use tokio::time::timeout;

use super::error::SshError;
use super::known::{self, PATIENCE};
use super::prompter::Busy;
use super::target::Target;
use crate::domain::question::{Answer, HostKeyPolicy, Question, Subject};
use crate::ssh::trust::{HostKey, HostName, Server, TrustError, Trusted, Verdict, trust};

/// Whether the key that was refused is trusted from now on, so that the host can be tried again.
pub(super) async fn accept_unknown(target: &Target, key: &HostKey) -> Result<bool, SshError> {
    if target.host_key_policy == HostKeyPolicy::Strict {
        return Ok(false);
    }
    // One question about keys at a time: the answer to the one before may answer this one.
    let turn = target.prompter.key_turn().await;
    let server = target.server();
    let name = HostName::of(&server);
    if target.prompter.is_pinned(&name, key) {
        return Ok(true);
    }
    let known = known::read(&server.files).await?;
    let (also, other) = match known.judge(&name, key) {
        Verdict::Known => return Ok(true),
        Verdict::Unknown { also, .. } => (also, Vec::new()),
        // Asking for less than the known key is what an attacker would do: a person must see it.
        Verdict::OtherType { known } if target.host_key_policy == HostKeyPolicy::Ask => {
            (Vec::new(), known.iter().map(ToString::to_string).collect())
        }
        _ => return Ok(false),
    };
    if target.host_key_policy == HostKeyPolicy::Ask {
        let (algorithm, fingerprint) = (key.algorithm(), key.fingerprint());
        let subject = Subject::HostKey { algorithm, fingerprint, also, other };
        let question = Question { host: target.host.clone(), to: target.shown(), subject, note: None };
        if target.prompter.ask(&Busy::default(), question).await != Answer::Yes {
            return Ok(false);
        }
    }
    // Trusted from here on, and the next one's turn: a file that is locked, or on a machine that is down, takes its time.
    target.prompter.pin(name.clone(), key.clone());
    drop(turn);
    write_down(target, &server, key).await?;
    Ok(true)
}

/// Writes the key into the first file of known hosts; it stays in memory alone where that fails.
async fn write_down(target: &Target, server: &Server, key: &HostKey) -> Result<(), SshError> {
    let fingerprint = key.fingerprint();
    let written = trust_in_time(server, key, Some(&fingerprint)).await;
    if !matches!(written, Err(TrustError::NotWritten { .. })) {
        // the file has the word from here on
        target.prompter.unpin(&HostName::of(server), key);
    }
    let (host, shown) = (&target.host, format!("{} {fingerprint}", key.algorithm()));
    target.prompter.tell(match written {
        Ok(trusted) => format!("{host}: {shown} is trusted from now on ({})", trusted.file.display()),
        Err(error @ TrustError::NotWritten { .. }) => {
            format!("{host}: {shown} is trusted until hvtui ends: {error}")
        }
        Err(error) => return Err(error.into()),
    });
    Ok(())
}

/// The same as [`trust`] beside the runtime's threads, and not for ever.
pub async fn trust_in_time(
    server: &Server,
    key: &HostKey,
    expected_fingerprint: Option<&str>,
) -> Result<Trusted, TrustError> {
    let (of, key, wanted) = (server.clone(), key.clone(), expected_fingerprint.map(str::to_owned));
    let writing = tokio::task::spawn_blocking(move || trust(&of, &key, wanted.as_deref()));
    let failed = |detail: String| {
        let file = server.files.first().cloned().unwrap_or_default();
        Err(TrustError::NotWritten { file, detail })
    };
    match timeout(PATIENCE, writing).await {
        Ok(Ok(trusted)) => trusted,
        Ok(Err(_)) => failed("the writer ended".to_owned()),
        Err(_) => failed(format!(
            "its file system does not answer within {} s: check the mount (a home folder on NFS, say) and try again",
            PATIENCE.as_secs()
        )),
    }
}
