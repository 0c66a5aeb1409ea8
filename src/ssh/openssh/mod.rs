//! The system's `ssh` as a carrier: for what hvtui's own ssh can't do, tickets and security tokens above all. One
//! process a command; nothing is asked, because nobody could answer it.

mod argv;
mod run;
mod said;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::ssh::client::refusal;
use crate::ssh::error::{ShownKey, SshError};
use crate::ssh::host_key::HostKey;
use crate::ssh::known_hosts::{HostName, KnownHosts};
use crate::ssh::route::OpenSsh;
use crate::ssh::session::scan;
use crate::ssh::streams::{AgentReader, AgentWriter};
use crate::ssh::target::Target;
use crate::ssh::transport::Transport;

pub(super) use argv::through;

/// A host as the system's `ssh` reaches it. Each command is a connection of its own, with its own login.
pub(super) struct System {
    target: Target,
    ssh: OpenSsh,
    /// The line of known hosts that stands for the pinned fingerprint.
    pinned: Option<String>,
    shown: std::sync::Mutex<String>,
}

impl System {
    /// Gets ready. A pinned key is fetched and compared by ourselves: `ssh` knows no fingerprints.
    pub(super) async fn new(target: &Target, ssh: &OpenSsh) -> Result<Self, SshError> {
        target.check()?;
        let pinned = match &target.fingerprint {
            Some(wanted) => Some(pinned(target, wanted).await?),
            None => None,
        };
        Ok(Self { target: target.clone(), ssh: ssh.clone(), pinned, shown: std::sync::Mutex::default() })
    }

    async fn run(&self, line: &str) -> Result<(AgentReader, AgentWriter), SshError> {
        let words = argv::words(&self.target, &self.ssh, self.pinned.as_deref());
        match run::run(&self.target, &self.ssh, &words, line).await {
            Ok((reader, writer, shown)) => {
                *self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = shown;
                Ok((reader, writer))
            }
            Err(run::Failed::Error(error)) => Err(error),
            Err(run::Failed::Said(text)) => {
                let error = said::failure(&self.target, &text);
                // `ssh` says of a key only that it is wrong: why, and what to do, we can tell ourselves.
                let better = if said::is_about_key(&text) { judge(&self.target).await } else { None };
                Err(better.unwrap_or(error))
            }
        }
    }
}

/// A line of known hosts for the key with this fingerprint, if the host shows it and no file speaks against it.
async fn pinned(target: &Target, wanted: &str) -> Result<String, SshError> {
    let key = scan(target).await?;
    if key.fingerprint() != wanted {
        let shown = Box::new(ShownKey::new(target.endpoint(), &key));
        return Err(SshError::OtherFingerprint {
            host: target.host.clone(),
            key: shown,
            wanted: wanted.to_owned(),
        });
    }
    if let Some(error) = verdict(target, &key)? {
        return Err(error);
    }
    let name = HostName::of(target);
    Ok(format!("{} {}", name.as_str(), key.fields().unwrap_or_default()))
}

fn verdict(target: &Target, key: &HostKey) -> Result<Option<SshError>, SshError> {
    let known = KnownHosts::read(&target.known_hosts)?;
    Ok(refusal(target, key, known.judge(&HostName::of(target), key)))
}

async fn judge(target: &Target) -> Option<SshError> {
    let key = scan(target).await.ok()?;
    verdict(target, &key).ok()?
}

impl Transport for System {
    fn exec<'a>(&'a self, line: &'a str) -> BoxFuture<'a, Result<(AgentReader, AgentWriter), SshError>> {
        self.run(line).boxed()
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The next command has a connection of its own.
    fn settled(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
