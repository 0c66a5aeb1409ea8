//! Getting in: keys first, then what a person can answer, in OpenSSH's order; and what to say when nothing is accepted.
//!
//! Only after the host's key was accepted. Servers penalise the address of a client that keeps guessing: few keys are
//! offered, few answers given, and nothing is tried again by itself.

use std::collections::VecDeque;
use std::time::Duration;

use russh::client::Handle;
use russh::keys::{Algorithm, HashAlg};
use russh::{MethodKind, MethodSet};
use tokio::time::timeout;

use super::client::{Client, End, why};
use super::error::{Attempts, SshError};
use super::identities::{self, AgentKey, Identity, Private, Shown};
use super::keyring::unlock;
use super::login::{Login, Outcome};
use super::prompter::Busy;
use super::prompts;
use super::signer::{Agent, Signer};
use super::target::Target;
use crate::ssh::trust::{RSA_BITS, rsa_bits};

/// sshd hangs up at the sixth failure by default.
const MOST_OFFERS: usize = 5;
/// How often a host may ask for one thing more.
const MOST_STAGES: usize = 8;
/// How long an ssh-agent may take to list its keys. Signing may wait for a person's touch.
const AGENT_LIST: Duration = Duration::from_secs(2);

/// How it ended.
#[derive(PartialEq, Eq)]
enum Ending {
    /// By a key, or a method.
    In(String),
    /// Nothing is left to try.
    Tried,
    /// The connection is gone.
    Gone,
}

/// Tries what there is until the host lets us in, and gives what did it: the key, or the method. `note` is for the first
/// question.
pub(super) async fn authenticate(
    handle: &mut Handle<Client>,
    end: &End,
    target: &Target,
    busy: &Busy,
    note: Option<String>,
) -> Result<String, SshError> {
    let mut attempts = Attempts::default();
    let notes = &mut attempts.notes;
    let agent = if target.auth_agent { open_agent(handle, target, notes).await } else { None };
    let (agent, keys) = agent.unzip();
    let identities = identities::read(target, keys.unwrap_or_default(), notes).await;
    let mut login = Login { handle, target, busy, note, wrong: 0, agent, rsa_hash: None };
    let ending = login.go_through(identities, &mut attempts).await;
    if let Ending::In(by) = ending {
        return Ok(by);
    }
    let reason = if ending == Ending::Gone { why(end.clone()).await } else { None };
    if let Some(reason) = reason {
        if !reason.starts_with("the host") {
            return Err(SshError::Lost { host: target.host.clone(), detail: reason.to_string() });
        }
        attempts.notes.push(reason.to_string());
    }
    Err(SshError::Authentication { host: target.host.clone(), to: target.shown(), attempts })
}

impl Login<'_> {
    async fn go_through(&mut self, mut identities: VecDeque<Identity>, attempts: &mut Attempts) -> Ending {
        let mut allowed: Option<MethodSet> = None;
        let mut tried: Vec<MethodKind> = Vec::new();
        for _ in 0..identities.len() + MOST_STAGES {
            let may = |kind| allowed.as_ref().is_some_and(|methods| methods.contains(&kind));
            let keys = (allowed.is_none() || may(MethodKind::PublicKey)) && !identities.is_empty();
            let by_hand = [MethodKind::KeyboardInteractive, MethodKind::Password];
            let by_hand = by_hand.into_iter().find(|kind| may(*kind) && !tried.contains(kind));
            let (label, outcome) = if keys {
                let Some(identity) = identities.pop_front() else { return Ending::Tried };
                if attempts.offered.len() == MOST_OFFERS {
                    attempts
                        .notes
                        .push(format!("{} not offered: {MOST_OFFERS} keys are the limit", identity.label));
                    continue;
                }
                let outcome = self.with(&identity).await;
                if let Outcome::Refused(methods, false) = &outcome
                    && allowed.is_none()
                    && !methods.contains(&MethodKind::PublicKey)
                {
                    // It was not looked at: the host wants something else before a key.
                    attempts.accepts = methods.iter().map(String::from).collect();
                    identities.push_front(identity);
                    allowed = Some(methods.clone());
                    continue;
                }
                (identity.label, outcome)
            } else if allowed.is_none() {
                (String::new(), self.none().await)
            } else if let Some(kind) = by_hand {
                tried.push(kind);
                (String::from(&kind), prompts::answer(self, kind, attempts).await)
            } else {
                return Ending::Tried;
            };
            match outcome {
                Outcome::In => {
                    let by = if keys { format!("key {label}") } else { label };
                    return Ending::In(if by.is_empty() { "no credential".to_owned() } else { by });
                }
                Outcome::Gone => return Ending::Gone,
                Outcome::Skipped(reason) if keys => {
                    attempts.notes.push(format!("{label} not offered: {reason}"));
                }
                Outcome::Skipped(reason) => {
                    attempts.notes.push(reason);
                    return Ending::Tried;
                }
                Outcome::Refused(methods, partial) => {
                    attempts.accepts = methods.iter().map(String::from).collect();
                    if partial {
                        attempts.notes.push(format!("{label} is accepted, but the host wants more"));
                        tried.clear();
                    }
                    if keys && !partial {
                        attempts.offered.push(label);
                    }
                    allowed = Some(methods);
                }
            }
        }
        Ending::Tried
    }

    /// Asks the host which methods it takes.
    async fn none(&mut self) -> Outcome {
        let result = self.handle.authenticate_none(self.target.user.as_str()).await;
        result.map_or(Outcome::Gone, Outcome::from)
    }

    /// Offers one key.
    async fn with(&mut self, identity: &Identity) -> Outcome {
        match self.offer(identity).await {
            Ok(outcome) => outcome,
            Err(_) if self.handle.is_closed() => Outcome::Gone,
            Err(reason) => Outcome::Skipped(reason),
        }
    }

    /// Offers one key; an error says why it could not be offered.
    async fn offer(&mut self, identity: &Identity) -> Result<Outcome, String> {
        let shown = match (&identity.shown, &identity.private) {
            (Some(shown), _) => shown.clone(),
            (None, Private::Locked(locked)) => {
                // Only the passphrase tells which key it is.
                let note = self.note.take();
                let key =
                    unlock(&self.target.prompter, self.busy, self.target, locked, note.as_deref()).await?;
                Shown::Key(key.public_key().clone())
            }
            (None, _) => return Err("its public half is not known".to_owned()),
        };
        let kind = match &shown {
            Shown::Key(key) => key.algorithm(),
            Shown::Certificate(certificate) => certificate.algorithm(),
        };
        let hash =
            if matches!(kind, Algorithm::Rsa { .. }) { Some(self.rsa_hash(&shown).await?) } else { None };
        self.target.algorithms.may_log_in(&kind, hash, shown.is_certificate())?;
        let mut signer = Signer {
            private: &identity.private,
            agent: self.agent.as_mut(),
            target: self.target,
            busy: self.busy,
            note: self.note.take(),
        };
        let user = self.target.user.as_str();
        let result = match shown {
            Shown::Key(key) => self.handle.authenticate_publickey_with(user, key, hash, &mut signer).await,
            Shown::Certificate(certificate) => {
                self.handle.authenticate_certificate_with(user, *certificate, hash, &mut signer).await
            }
        };
        result.map(Outcome::from).map_err(|error| error.0)
    }

    /// The best hash for an RSA signature. Without a word from the host SHA-2 is tried; a host that only takes
    /// SHA-1 gets nothing.
    async fn rsa_hash(&mut self, shown: &Shown) -> Result<HashAlg, String> {
        let algorithms = &self.target.algorithms;
        let (wanted, said) = algorithms.rsa_bits.clone().unwrap_or((RSA_BITS, "RequiredRSASize".to_owned()));
        if let Some(bits) = rsa_bits(shown.data()).filter(|bits| *bits < wanted) {
            return Err(format!("it has {bits} bits, at least {wanted} are wanted ({said})"));
        }
        // A server that takes SHA-2 takes both.
        let kind = |hash| Algorithm::Rsa { hash: Some(hash) };
        let may = |hash| algorithms.may_log_in(&kind(hash), Some(hash), shown.is_certificate()).is_ok();
        let smaller = !may(HashAlg::Sha512) && may(HashAlg::Sha256);
        let host = self.host_rsa_hash().await?;
        Ok(if smaller { HashAlg::Sha256 } else { host })
    }

    async fn host_rsa_hash(&mut self) -> Result<HashAlg, String> {
        if let Some(hash) = self.rsa_hash {
            return Ok(hash);
        }
        let said = self.handle.best_supported_rsa_hash().await.map_err(|error| error.to_string())?;
        self.rsa_hash = said.unwrap_or(Some(HashAlg::Sha512));
        self.rsa_hash.ok_or_else(|| "the host takes RSA only with SHA-1".to_owned())
    }
}

/// Connects to the ssh-agent and lists its keys.
async fn open_agent(
    handle: &Handle<Client>,
    target: &Target,
    notes: &mut Vec<String>,
) -> Option<(Agent, Vec<AgentKey>)> {
    let (socket, name) = match &target.agent_socket {
        Some(socket) => (socket.clone(), socket.display().to_string()),
        None => (std::env::var_os("SSH_AUTH_SOCK")?.into(), "SSH_AUTH_SOCK".to_owned()),
    };
    let list = async {
        let mut agent = Agent::connect_uds(socket).await?;
        if let Some(binding) = handle.agent_session_binding() {
            // Agents that do not know the extension answer with a failure and go on.
            let _ = agent.bind_session(binding, false).await;
        }
        let keys = agent.request_identities().await?;
        Ok::<_, russh::keys::Error>((agent, keys))
    };
    match timeout(AGENT_LIST, list).await {
        Ok(Ok((agent, keys))) => Some((agent, keys.into_iter().map(AgentKey::new).collect())),
        Ok(Err(error)) => {
            notes.push(format!("the ssh-agent ({name}) did not answer: {error}"));
            None
        }
        Err(_) => {
            notes.push(format!("the ssh-agent ({name}) was silent for {} s", AGENT_LIST.as_secs()));
            None
        }
    }
}
