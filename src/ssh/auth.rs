//! Credentials: which keys there are, in which order they are offered, and what to say when none is accepted.
//!
//! Public keys only, from the ssh-agent and from files. Never asks for a passphrase, never retries: servers
//! penalise the address of a client that keeps guessing.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::client::{Client, End};
use super::error::SshError;
use super::session::why;
use super::target::Target;
use crate::domain::text::sanitize;

/// sshd hangs up at the sixth failure by default.
const MOST_OFFERS: usize = 5;
/// How long an ssh-agent may take to list its keys. Signing may wait for a person's touch.
const AGENT_LIST: Duration = Duration::from_secs(2);

/// The key files that are offered when a host names none, best first.
pub fn default_identities(home: &Path) -> Vec<PathBuf> {
    ["id_ed25519", "id_ecdsa", "id_rsa"].iter().map(|name| home.join(".ssh").join(name)).collect()
}

/// What was tried to get in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    /// The keys that the host saw and did not take.
    pub offered: Vec<String>,
    /// What could not be offered, and why.
    pub notes: Vec<String>,
    /// The methods that the host accepts.
    pub accepts: Vec<String>,
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offered.is_empty() {
            f.write_str("there was no key to offer")?;
        } else {
            write!(f, "offered {}", self.offered.join(", "))?;
        }
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        if !self.accepts.is_empty() {
            write!(f, "; the host accepts {}", self.accepts.join(", "))?;
        }
        f.write_str("; name a key in the hosts file (identity), or put its public half into ~/.ssh/authorized_keys there")
    }
}

type Agent = AgentClient<UnixStream>;

struct Offer {
    label: String,
    public: PublicKey,
    /// `None`: the ssh-agent has it.
    private: Option<Arc<PrivateKey>>,
}

/// Offers key after key until one is accepted.
pub(super) async fn authenticate(
    handle: &mut Handle<Client>,
    end: &End,
    target: &Target,
) -> Result<(), SshError> {
    let mut attempts = Attempts::default();
    let agent = if target.auth_agent { open_agent(handle, &mut attempts.notes).await } else { None };
    let (agent, keys) = agent.unzip();
    let offers = offers(target, &keys.unwrap_or_default(), &mut attempts.notes);
    let mut login = Login { handle, agent, user: &target.user, rsa_hash: None };
    for offer in offers {
        if attempts.offered.len() == MOST_OFFERS {
            attempts.notes.push(format!("{} not offered: {MOST_OFFERS} keys are the limit", offer.label));
            continue;
        }
        match login.with(&offer).await {
            Ok(AuthResult::Success) => return Ok(()),
            Ok(AuthResult::Failure { remaining_methods, partial_success }) => {
                if remaining_methods.is_empty() && hung_up(end, target, &mut attempts).await? {
                    break;
                }
                attempts.accepts = remaining_methods.iter().map(String::from).collect();
                if partial_success {
                    attempts
                        .notes
                        .push(format!("{} is accepted, but the host wants more than a key", offer.label));
                }
                attempts.offered.push(offer.label);
            }
            Err(reason) => {
                if hung_up(end, target, &mut attempts).await? {
                    break;
                }
                attempts.notes.push(format!("{} not offered: {reason}", offer.label));
            }
        }
    }
    Err(SshError::Authentication { host: target.host.clone(), to: target.shown(), attempts })
}

/// An authentication under way.
struct Login<'a> {
    handle: &'a mut Handle<Client>,
    agent: Option<Agent>,
    user: &'a str,
    /// What the host takes for RSA, once it was asked.
    rsa_hash: Option<HashAlg>,
}

impl Login<'_> {
    /// Offers one key; an error says why it could not be offered.
    async fn with(&mut self, offer: &Offer) -> Result<AuthResult, String> {
        let hash = if offer.public.algorithm().is_rsa() { Some(self.rsa_hash().await?) } else { None };
        match (&offer.private, self.agent.as_mut()) {
            (Some(key), _) => {
                let key = PrivateKeyWithHashAlg::new(key.clone(), hash);
                let result = self.handle.authenticate_publickey(self.user, key).await;
                result.map_err(|error| error.to_string())
            }
            (None, Some(agent)) => {
                let key = offer.public.clone();
                let result = self.handle.authenticate_publickey_with(self.user, key, hash, agent).await;
                result.map_err(|error| format!("the ssh-agent does not sign with it: {error}"))
            }
            (None, None) => Err("the ssh-agent is gone".to_owned()),
        }
    }

    /// The best hash for an RSA signature. Without a word from the host SHA-2 is tried; a host that only takes
    /// SHA-1 gets nothing.
    async fn rsa_hash(&mut self) -> Result<HashAlg, String> {
        if let Some(hash) = self.rsa_hash {
            return Ok(hash);
        }
        let said = self.handle.best_supported_rsa_hash().await.map_err(|error| error.to_string())?;
        self.rsa_hash = said.unwrap_or(Some(HashAlg::Sha512));
        self.rsa_hash.ok_or_else(|| "the host takes RSA only with SHA-1".to_owned())
    }
}

/// Whether the host hung up on us; an error where the connection broke by itself.
async fn hung_up(end: &End, target: &Target, attempts: &mut Attempts) -> Result<bool, SshError> {
    let Some(reason) = why(end.clone()).await else {
        return Ok(false);
    };
    if !reason.starts_with("the host") {
        return Err(SshError::Lost { host: target.host.clone(), detail: reason.to_string() });
    }
    attempts.notes.push(reason.to_string());
    Ok(true)
}

/// Connects to the ssh-agent and lists its plain keys.
async fn open_agent(
    handle: &Handle<Client>,
    notes: &mut Vec<String>,
) -> Option<(Agent, Vec<(PublicKey, String)>)> {
    std::env::var_os("SSH_AUTH_SOCK")?;
    let list = async {
        let mut agent = Agent::connect_env().await?;
        if let Some(binding) = handle.agent_session_binding() {
            // Agents that do not know the extension answer with a failure and go on.
            let _ = agent.bind_session(binding, false).await;
        }
        let keys = agent.request_identities().await?;
        Ok::<_, russh::keys::Error>((agent, keys))
    };
    match timeout(AGENT_LIST, list).await {
        Ok(Ok((agent, keys))) => {
            let plain = keys.into_iter().filter_map(|identity| match identity {
                AgentIdentity::PublicKey { key, comment } => Some((key, sanitize(&comment).into_owned())),
                AgentIdentity::Certificate { .. } => None,
            });
            Some((agent, plain.collect()))
        }
        Ok(Err(error)) => {
            notes.push(format!("the ssh-agent (SSH_AUTH_SOCK) did not answer: {error}"));
            None
        }
        Err(_) => {
            notes.push(format!("the ssh-agent (SSH_AUTH_SOCK) was silent for {} s", AGENT_LIST.as_secs()));
            None
        }
    }
}

/// All keys in the order in which they are offered, each once: the named files' keys first where the agent
/// has them, then the named files, then the rest of the agent; without named files the agent comes first.
fn offers(target: &Target, agent: &[(PublicKey, String)], notes: &mut Vec<String>) -> Vec<Offer> {
    let named = !target.identities.is_empty();
    let files = if named {
        target.identities.clone()
    } else {
        std::env::home_dir().map(|home| default_identities(&home)).unwrap_or_default()
    };
    let loaded: Vec<(PathBuf, KeyFile)> = files.into_iter().map(|path| (path.clone(), load(&path))).collect();
    let is_named = |key: &PublicKey| {
        named && loaded.iter().any(|(_, file)| file.public().is_some_and(|named| same(named, key)))
    };
    let of_agent = |(key, comment): &(PublicKey, String)| Offer {
        label: format!("{} {comment} (ssh-agent)", key.algorithm()),
        public: key.clone(),
        private: None,
    };
    let (first, last): (Vec<_>, Vec<_>) = agent.iter().partition(|(key, _)| !named || is_named(key));
    let mut offers: Vec<Offer> = first.into_iter().map(of_agent).collect();
    for (path, file) in &loaded {
        let shown = path.display();
        match file {
            _ if file.public().is_some_and(|key| offers.iter().any(|offer| same(&offer.public, key))) => {}
            KeyFile::Ready(key) => offers.push(Offer {
                label: shown.to_string(),
                public: key.public_key().clone(),
                private: Some(key.clone()),
            }),
            KeyFile::Absent if !named => {}
            KeyFile::Absent => notes.push(format!("{shown} not offered: there is no such file")),
            KeyFile::Encrypted(_) => {
                notes.push(format!("{shown} not offered: it has a passphrase: run ssh-add {shown}"));
            }
            KeyFile::Open => {
                notes.push(format!("{shown} not offered: others may read it: run chmod 600 {shown}"));
            }
            KeyFile::Bad(error) => notes.push(format!("{shown} not offered: {error}")),
        }
    }
    offers.extend(last.into_iter().map(of_agent));
    offers
}

fn same(one: &PublicKey, other: &PublicKey) -> bool {
    one.key_data() == other.key_data()
}

/// What a private key file turned out to be.
enum KeyFile {
    Ready(Arc<PrivateKey>),
    /// Locked by a passphrase; the public half where the file shows it.
    Encrypted(Option<PublicKey>),
    /// Others than its owner may read it.
    Open,
    Absent,
    Bad(String),
}

impl KeyFile {
    fn public(&self) -> Option<&PublicKey> {
        match self {
            Self::Ready(key) => Some(key.public_key()),
            Self::Encrypted(key) => key.as_ref(),
            _ => None,
        }
    }
}

fn load(path: &Path) -> KeyFile {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return KeyFile::Absent,
        Err(error) => return KeyFile::Bad(error.to_string()),
    };
    if metadata.mode() & 0o077 != 0 && metadata.uid() == rustix::process::getuid().as_raw() {
        return KeyFile::Open;
    }
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return KeyFile::Bad(error.to_string()),
    };
    match russh::keys::decode_secret_key(&text, None) {
        Ok(key) => KeyFile::Ready(Arc::new(key)),
        Err(error) => {
            let locked = PrivateKey::from_openssh(&text).ok().filter(PrivateKey::is_encrypted);
            let beside = || PublicKey::read_openssh_file(public_half(path)).ok();
            match locked {
                Some(key) => KeyFile::Encrypted(Some(key.public_key().clone())),
                None if matches!(error, russh::keys::Error::KeyIsEncrypted) => KeyFile::Encrypted(beside()),
                None if text.contains("ENCRYPTED") => KeyFile::Encrypted(beside()),
                None => KeyFile::Bad(format!("no private key that can be read: {error}")),
            }
        }
    }
}

/// Where ssh-keygen puts the public half of a key.
fn public_half(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    PathBuf::from(name)
}
