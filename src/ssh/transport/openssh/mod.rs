//! The system's `ssh` as a transport: for what hvtui's own ssh can't do, tickets and security tokens above all. One
//! process a command. `ssh` itself asks nothing; only about an unknown host key is a person asked, by us.

mod argv;
mod run;
mod stderr_parse;

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::run::{Failed, Shown};
use crate::ssh::transport::connection::Transport;
use crate::ssh::transport::error::{ErrorKind, SshError};
use crate::ssh::transport::host_key_policy::accept_unknown;
use crate::ssh::transport::known;
use crate::ssh::transport::limiter;
use crate::ssh::transport::session::scan;
use crate::ssh::transport::streams::{AgentReader, AgentWriter};
use crate::ssh::transport::target::{OpenSsh, Target};
use crate::ssh::trust::{HostKey, HostName, ShownKey, TrustError};

pub(super) use argv::through;

/// A host as the system's `ssh` reaches it. Each command is a connection of its own, with its own login.
pub(super) struct System {
    target: Target,
    ssh: OpenSsh,
    /// The line of known hosts for a key that is pinned or was just accepted.
    pinned: Mutex<Option<String>>,
    shown: Mutex<Shown>,
}

impl System {
    /// Gets ready. A pinned key is fetched and compared by ourselves: `ssh` knows no fingerprints.
    pub(super) async fn new(target: &Target, ssh: &OpenSsh) -> Result<Self, SshError> {
        target.check()?;
        let pinned = match &target.fingerprint {
            Some(wanted) => Some(pinned(target, wanted).await?),
            None => None,
        };
        Ok(Self {
            target: target.clone(),
            ssh: ssh.clone(),
            pinned: Mutex::new(pinned),
            shown: Mutex::default(),
        })
    }

    async fn run(&self, line: &str, marker: &str) -> Result<(AgentReader, AgentWriter), SshError> {
        match self.attempt(line, marker).await {
            Err(Failed::Printed(text)) if stderr_parse::is_about_key(&text) => {
                // `ssh` says of a key only that it is wrong: why, and what to do, we can find out ourselves.
                match scan(&self.target).await {
                    Ok(key) => self.admitted(&key).await?,
                    // A host on the way, perhaps.
                    Err(error) if error.kind() == ErrorKind::HostKey => return Err(error),
                    Err(_) => return Err(stderr_parse::failure(&self.target, &text)),
                }
                self.attempt(line, marker).await.map_err(|failed| self.error(failed))
            }
            run => run.map_err(|failed| self.error(failed)),
        }
    }

    async fn attempt(&self, line: &str, marker: &str) -> Result<(AgentReader, AgentWriter), Failed> {
        let pinned = locked(&self.pinned).clone();
        let _place = limiter::enter(&self.target.endpoint()).await;
        let words = argv::words(&self.target, &self.ssh, pinned.as_deref());
        let (reader, writer, shown) = run::run(&self.target, &self.ssh, &words, line, marker).await?;
        *locked(&self.shown) = shown;
        Ok((reader, writer))
    }

    /// An error for a key that is not, and is not from now on, the host's.
    async fn admitted(&self, key: &HostKey) -> Result<(), SshError> {
        match known::accept(&self.target.server(), key).await {
            // A host on the way was accepted meanwhile.
            Ok(()) => {}
            Err(error) => {
                let unknown =
                    matches!(error, TrustError::UnknownKey { .. } | TrustError::OtherKeyType { .. });
                if !unknown || !accept_unknown(&self.target, key).await? {
                    return Err(error.into());
                }
            }
        }
        *locked(&self.pinned) = Some(line_of(&self.target, key));
        Ok(())
    }

    fn error(&self, failed: Failed) -> SshError {
        match failed {
            Failed::Error(error) => error,
            Failed::Printed(text) => stderr_parse::failure(&self.target, &text),
        }
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of known hosts for the key with this fingerprint, if the host shows it and no file speaks against it.
async fn pinned(target: &Target, wanted: &str) -> Result<String, SshError> {
    let (key, server) = (scan(target).await?, target.server());
    if key.fingerprint() != wanted {
        let key = Box::new(ShownKey::new(server.endpoint(), &key));
        return Err(TrustError::OtherFingerprint { host: server.host, key, wanted: wanted.to_owned() }.into());
    }
    known::accept(&server, &key).await?;
    Ok(line_of(target, &key))
}

fn line_of(target: &Target, key: &HostKey) -> String {
    format!("{} {}", HostName::of(&target.server()).as_str(), key.fields().unwrap_or_default())
}

impl Transport for System {
    fn exec<'a>(
        &'a self,
        line: &'a str,
        marker: &'a str,
    ) -> BoxFuture<'a, Result<(AgentReader, AgentWriter), SshError>> {
        self.run(line, marker).boxed()
    }

    fn shown(&self) -> String {
        locked(&self.shown).before.clone()
    }

    fn login(&self) -> String {
        locked(&self.shown).login.clone()
    }

    /// The next command has a connection of its own.
    fn settled(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
