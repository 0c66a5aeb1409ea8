//! What becomes of a host whose key is not known: refused, asked about, or taken, as its policy says. A changed or
//! revoked key never comes here.

use super::asker::Busy;
use super::error::SshError;
use super::host_key::HostKey;
use super::known_hosts::{HostName, KnownHosts, Verdict};
use super::target::Target;
use super::trust::trust_in_time;
use crate::domain::question::{Answer, HostKeyPolicy, Question, Subject};

/// Whether the key that was refused is trusted from now on, so that the host can be tried again.
pub(super) async fn admit(target: &Target, key: &HostKey) -> Result<bool, SshError> {
    if target.host_key_policy == HostKeyPolicy::Strict {
        return Ok(false);
    }
    // One question about keys at a time: the answer to the one before may answer this one.
    let turn = target.asker.key_turn().await;
    let name = HostName::of(target);
    if target.asker.is_pinned(&name, key) {
        return Ok(true);
    }
    let known = KnownHosts::read(&target.known_hosts)?;
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
    write_down(target, &name, key).await?;
    Ok(true)
}

/// Writes the key into the first file of known hosts; it stays in memory alone where that fails.
async fn write_down(target: &Target, name: &HostName, key: &HostKey) -> Result<(), SshError> {
    let fingerprint = key.fingerprint();
    let written = trust_in_time(target, key, Some(&fingerprint)).await;
    if !matches!(written, Err(SshError::Trust { .. })) {
        // the file has the word from here on
        target.asker.unpin(name, key);
    }
    let (host, shown) = (&target.host, format!("{} {fingerprint}", key.algorithm()));
    target.asker.tell(match written {
        Ok(trusted) => format!("{host}: {shown} is trusted from now on ({})", trusted.file.display()),
        Err(error @ SshError::Trust { .. }) => {
            format!("{host}: {shown} is trusted until hvtui ends: {error}")
        }
        Err(error) => return Err(error),
    });
    Ok(())
}
