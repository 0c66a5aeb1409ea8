//! What becomes of a host whose key is not known: refused, asked about, or taken, as its policy says. A changed or
//! revoked key never comes here.

use super::asker::Busy;
use super::error::SshError;
use super::target::Target;
use crate::domain::question::{Answer, HostKeyPolicy, Question, Subject};
use crate::ssh::trust::{HostKey, HostName, KnownHosts, Server, TrustError, Verdict, trust_in_time};

/// Whether the key that was refused is trusted from now on, so that the host can be tried again.
pub(super) async fn admit(target: &Target, key: &HostKey) -> Result<bool, SshError> {
    if target.host_key_policy == HostKeyPolicy::Strict {
        return Ok(false);
    }
    // One question about keys at a time: the answer to the one before may answer this one.
    let turn = target.asker.key_turn().await;
    let server = target.server();
    let name = HostName::of(&server);
    if target.asker.is_pinned(&name, key) {
        return Ok(true);
    }
    let known = KnownHosts::read(&server.files)?;
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
        if target.asker.ask(&Busy::default(), question).await != Answer::Yes {
            return Ok(false);
        }
    }
    // Trusted from here on, and the next one's turn: a file that is locked, or on a machine that is down, takes its time.
    target.asker.pin(name.clone(), key.clone());
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
        target.asker.unpin(&HostName::of(server), key);
    }
    let (host, shown) = (&target.host, format!("{} {fingerprint}", key.algorithm()));
    target.asker.tell(match written {
        Ok(trusted) => format!("{host}: {shown} is trusted from now on ({})", trusted.file.display()),
        Err(error @ TrustError::NotWritten { .. }) => {
            format!("{host}: {shown} is trusted until hvtui ends: {error}")
        }
        Err(error) => return Err(error.into()),
    });
    Ok(())
}
