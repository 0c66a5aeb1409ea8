//! Which keys and certificates are offered to a host, and in which order. Sends nothing.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::agent::AgentIdentity;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, PrivateKey, PublicKey};

use super::files::beside;
use super::keyring::{Locked, remedy};
use super::keys::{self, KeyFile};
use super::target::Target;
use crate::clock;
use crate::domain::text::sanitize;
use crate::ssh::trust::moment;

/// A key or certificate to log in with.
pub(super) struct Identity {
    /// How messages call it.
    pub(super) label: String,
    /// What the host is shown; `None` while only the passphrase can tell.
    pub(super) shown: Option<Shown>,
    pub(super) private: Private,
}

/// What the host is shown of a key.
#[derive(Clone)]
pub(super) enum Shown {
    Key(PublicKey),
    Certificate(Box<Certificate>),
}

/// Who has the private half.
#[derive(Clone)]
pub(super) enum Private {
    /// The ssh-agent, under what the host is shown.
    Agent,
    /// The ssh-agent, which knows the key but not the certificate.
    AgentKey(PublicKey),
    Ready(Arc<PrivateKey>),
    Locked(Locked),
}

/// A key of the ssh-agent.
#[derive(Clone)]
pub(super) struct AgentKey {
    shown: Shown,
    comment: String,
}

impl AgentKey {
    pub(super) fn new(identity: AgentIdentity) -> Self {
        match identity {
            AgentIdentity::PublicKey { key, comment } => {
                Self { shown: Shown::Key(key), comment: sanitize(&comment).into_owned() }
            }
            AgentIdentity::Certificate { certificate, comment } => Self {
                shown: Shown::Certificate(Box::new(certificate)),
                comment: sanitize(&comment).into_owned(),
            },
        }
    }

    fn identity(&self) -> Identity {
        let label = match &self.shown {
            Shown::Key(key) => format!("{} {} (ssh-agent)", key.algorithm(), self.comment),
            Shown::Certificate(certificate) => {
                format!("{} (ssh-agent, certificate{})", self.comment, validity(certificate))
            }
        };
        Identity { label, shown: Some(self.shown.clone()), private: Private::Agent }
    }
}

impl Shown {
    pub(super) fn data(&self) -> &KeyData {
        match self {
            Self::Key(key) => key.key_data(),
            Self::Certificate(certificate) => certificate.public_key(),
        }
    }

    pub(super) fn is_certificate(&self) -> bool {
        matches!(self, Self::Certificate(_))
    }
}

/// How long the file system may take for the keys.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same as [`identities`], read beside the runtime's threads; the agent's alone where the files can't be read in time.
pub(super) async fn read(
    target: &Target,
    agent: Vec<AgentKey>,
    notes: &mut Vec<String>,
) -> VecDeque<Identity> {
    let (of, keys) = (target.clone(), agent.clone());
    let reading = move || {
        let mut notes = Vec::new();
        (identities(&of, &keys, &mut notes), notes)
    };
    match beside(PATIENCE, reading).await {
        Ok((found, told)) => {
            notes.extend(told);
            found
        }
        Err(why) => {
            let files: Vec<String> = named(target).iter().map(|path| path.display().to_string()).collect();
            notes.push(format!("{} not offered: {why}", files.join(", ")));
            if target.identities_only {
                VecDeque::new()
            } else {
                agent.iter().map(AgentKey::identity).collect()
            }
        }
    }
}

/// The key files that are offered: those that are named, else the usual ones.
fn named(target: &Target) -> Vec<PathBuf> {
    if target.identities.is_empty() {
        std::env::home_dir().map(|home| keys::default_identities(&home)).unwrap_or_default()
    } else {
        target.identities.clone()
    }
}

/// All keys in the order in which they are offered, each once. Certificates come first; then the named files' keys
/// that the agent has, the named files, and the rest of the agent. Without named files the agent comes first. Locked keys
/// for which no user can be asked come last.
fn identities(target: &Target, agent: &[AgentKey], notes: &mut Vec<String>) -> VecDeque<Identity> {
    let named = !target.identities.is_empty();
    let files: Vec<(PathBuf, KeyFile)> =
        self::named(target).into_iter().map(|path| (path.clone(), keys::load(&path))).collect();
    let is_ours = |key: &KeyData| {
        files.iter().any(|(_, file)| file.public().is_some_and(|public| public.key_data() == key))
    };
    let may_offer = |key: &&AgentKey| !target.identities_only || is_ours(key.shown.data());
    let (certified, plain): (Vec<&AgentKey>, Vec<&AgentKey>) =
        agent.iter().filter(may_offer).partition(|key| key.shown.is_certificate());
    let mut identities: VecDeque<Identity> = certified.iter().map(|key| key.identity()).collect();
    identities.extend(file_certificates(target, &files, &plain, notes));
    let (first, last): (Vec<_>, Vec<_>) =
        plain.into_iter().partition(|key| !named || is_ours(key.shown.data()));
    identities.extend(first.into_iter().map(AgentKey::identity));
    // Those for which no user can be asked: whether the host takes one tells what helps, ssh-add or another key.
    let mut unopened = VecDeque::new();
    for (path, file) in &files {
        let label = path.display().to_string();
        let in_agent = |key: &PublicKey| agent.iter().any(|other| other.shown.data() == key.key_data());
        match file {
            _ if file.public().is_some_and(in_agent) => {}
            KeyFile::Ready(key) => {
                let shown = Some(Shown::Key(key.public_key().clone()));
                identities.push_back(Identity { label, shown, private: Private::Ready(key.clone()) });
            }
            KeyFile::Locked(public, locked) => match (target.prompter.absent(), public) {
                // only its passphrase tells which key it is
                (Some(why), None) => {
                    notes.push(format!("{label} not offered: {}", remedy(&locked.path, why)));
                }
                (absent, public) => {
                    let shown = public.clone().map(Shown::Key);
                    let identity = Identity { label, shown, private: Private::Locked(locked.clone()) };
                    if absent.is_some() { &mut unopened } else { &mut identities }.push_back(identity);
                }
            },
            KeyFile::Absent if !named => {}
            KeyFile::Absent => notes.push(format!("{label} not offered: there is no such file")),
            KeyFile::Open => {
                notes.push(format!("{label} not offered: others may read it: run chmod 600 {label}"));
            }
            KeyFile::Bad(error) => notes.push(format!("{label} not offered: {error}")),
        }
    }
    identities.extend(last.into_iter().map(AgentKey::identity));
    identities.extend(unopened);
    identities
}

/// The certificates in files, beside a key and named ones, each with the holder of its private half.
fn file_certificates(
    target: &Target,
    files: &[(PathBuf, KeyFile)],
    agent: &[&AgentKey],
    notes: &mut Vec<String>,
) -> Vec<Identity> {
    let beside = files.iter().filter_map(|(path, _)| keys::certificate_beside(path));
    let named = target.certificates.iter().map(|path| (path.clone(), keys::certificate(path)));
    let mut identities: Vec<Identity> = Vec::new();
    for (path, certificate) in named.chain(beside) {
        let shown = path.display();
        let certificate = match certificate {
            Ok(certificate) => certificate,
            Err(error) => {
                notes.push(format!("{shown} not offered: {error}"));
                continue;
            }
        };
        let data = certificate.public_key();
        let of_agent = agent
            .iter()
            .any(|key| key.shown.data() == data)
            .then(|| Private::AgentKey(PublicKey::new(data.clone(), "")));
        let of_file = || {
            files.iter().find_map(|(_, file)| match file {
                KeyFile::Ready(key) if key.public_key().key_data() == data => {
                    Some(Private::Ready(key.clone()))
                }
                KeyFile::Locked(Some(key), locked)
                    if key.key_data() == data && target.prompter.absent().is_none() =>
                {
                    Some(Private::Locked(locked.clone()))
                }
                _ => None,
            })
        };
        let Some(private) = of_agent.or_else(of_file) else {
            notes.push(format!("{shown} not offered: the private key for it is not at hand"));
            continue;
        };
        let label = format!("{shown} (certificate{})", validity(&certificate));
        identities.push(Identity { label, shown: Some(Shown::Certificate(Box::new(certificate))), private });
    }
    identities
}

/// `, expired 2026-11-20 10:00 UTC` and the like; empty for a certificate without an end.
fn validity(certificate: &Certificate) -> String {
    let now = u64::try_from(clock::now().0 / 1_000_000).unwrap_or_default();
    let (from, until) = (certificate.valid_after(), certificate.valid_before());
    if now < from {
        format!(", not valid before {}", moment(from))
    } else if now >= until {
        format!(", expired {}", moment(until))
    } else if until == u64::MAX {
        String::new()
    } else {
        format!(", valid until {}", moment(until))
    }
}
