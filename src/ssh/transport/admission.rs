//! What becomes of a host whose key is not known: refused, asked about, or taken, as its policy says. A changed or
//! revoked key never comes here.

use super::asker::Busy;
use super::error::SshError;
use super::target::Target;
use crate::domain::question::{Answer, HostKeyPolicy, Question, Subject};
use crate::ssh::trust::{HostKey, HostName, KnownHosts, Server, TrustError, Verdict, trust};

/// Whether the key that was refused is trusted from now on, so that the host can be tried again.
pub(super) async fn admit(target: &Target, key: &HostKey) -> Result<bool, SshError> {
    if target.host_key_policy == HostKeyPolicy::Strict {
        return Ok(false);
    }
    // One question about keys at a time: the answer to the one before may answer this one.
    let _turn = target.asker.key_turn().await;
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
    write_down(target, server, key).await?;
    Ok(true)
}

/// Writes the key into the first file of known hosts; into memory where that fails.
async fn write_down(target: &Target, server: Server, key: &HostKey) -> Result<(), SshError> {
    let fingerprint = key.fingerprint();
    let name = HostName::of(&server);
    let (file, written) = {
        let (key, fingerprint) = (key.clone(), fingerprint.clone());
        // Another program may hold the file's lock for a while.
        let writing = tokio::task::spawn_blocking(move || trust(&server, &key, Some(&fingerprint)));
        let gone =
            || TrustError::NotWritten { file: "known_hosts".into(), detail: "the writer ended".to_owned() };
        match writing.await.map_err(|_| gone()).and_then(|written| written) {
            Ok(trusted) => (trusted.file.display().to_string(), None),
            Err(error @ TrustError::NotWritten { .. }) => (String::new(), Some(error)),
            Err(error) => return Err(error.into()),
        }
    };
    let (host, shown) = (&target.host, format!("{} {fingerprint}", key.algorithm()));
    target.asker.tell(match written {
        None => format!("{host}: {shown} is trusted from now on ({file})"),
        Some(error) => {
            target.asker.pin(name, key.clone());
            format!("{host}: {shown} is trusted until hvtui ends: {error}")
        }
    });
    Ok(())
}
