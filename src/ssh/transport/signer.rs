//! Who signs for an offered key: the ssh-agent, or a file's key, whose passphrase is asked for only now, when the host
//! has said that it would take the key.

use std::sync::Arc;
use std::time::Duration;

use russh::Signer as RusshSigner;
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode;
use russh::keys::ssh_key::Signature;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{HashAlg, PrivateKey};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::identities::Private;
use super::keyring::unlock;
use super::prompter::Busy;
use super::target::Target;

/// How long an ssh-agent may take to sign: sshd waits no longer for a login by default.
const TOUCH: Duration = Duration::from_secs(120);

pub(super) type Agent = AgentClient<UnixStream>;

/// Signs for one key.
pub(super) struct Signer<'a> {
    pub(super) private: &'a Private,
    pub(super) agent: Option<&'a mut Agent>,
    pub(super) target: &'a Target,
    pub(super) busy: &'a Busy,
    /// For a question: why it is asked once more.
    pub(super) note: Option<String>,
}

/// Why there is no signature, in words.
pub(super) struct NoSignature(pub(super) String);

impl From<russh::SendError> for NoSignature {
    fn from(error: russh::SendError) -> Self {
        Self(error.to_string())
    }
}

impl RusshSigner for Signer<'_> {
    type Error = NoSignature;

    async fn auth_sign(
        &mut self,
        shown: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        let key = match self.private {
            Private::Agent => return self.by_agent(shown, hash, data).await,
            Private::AgentKey(key) => return self.by_agent(&key.clone().into(), hash, data).await,
            Private::Ready(key) => Arc::clone(key),
            Private::Locked(locked) => {
                let (prompter, note) = (&self.target.prompter, self.note.as_deref());
                unlock(prompter, self.busy, self.target, locked, note).await.map_err(NoSignature)?
            }
        };
        sign(&key, hash, data).ok_or_else(|| NoSignature("it can't sign".to_owned()))
    }
}

impl Signer<'_> {
    async fn by_agent(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, NoSignature> {
        let Some(agent) = self.agent.as_mut() else {
            return Err(NoSignature("the ssh-agent is gone".to_owned()));
        };
        // A person may have to touch a device or to answer the agent.
        let _touch = self.busy.wait();
        let signed = timeout(TOUCH, agent.sign_request(key, hash, data)).await;
        let silent = |_| NoSignature(format!("the ssh-agent did not sign with it for {} s", TOUCH.as_secs()));
        signed
            .map_err(silent)?
            .map_err(|error| NoSignature(format!("the ssh-agent does not sign with it: {error}")))
    }
}

/// The data with its signature behind it.
fn sign(key: &PrivateKey, hash: Option<HashAlg>, mut data: Vec<u8>) -> Option<Vec<u8>> {
    let signature: Signature = match key.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(&data).ok()?,
        _ => key.try_sign(&data).ok()?,
    };
    signature.encode_prefixed(&mut data).ok()?;
    Some(data)
}
