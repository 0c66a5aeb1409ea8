//! What logins between hosts are made of: a new key pair, and host keys that are trusted already.

use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

use super::error::SshError;
use super::known;
use super::session;
use super::target::Target;

/// A new ed25519 key pair.
pub struct KeyPair {
    /// `type base64`.
    pub public: String,
    /// In OpenSSH's format, without a passphrase.
    pub private: String,
}

/// Makes a key pair from the system's random numbers. It is nowhere but in memory.
pub fn new_key_pair() -> Result<KeyPair, SshError> {
    let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519);
    let key = key.map_err(|_| SshError::Random)?;
    let public = key.public_key().to_openssh().map_err(|_| SshError::Random)?;
    let private = key.to_openssh(LineEnding::LF).map_err(|_| SshError::Random)?;
    Ok(KeyPair {
        public: public.split(' ').take(2).collect::<Vec<_>>().join(" "),
        private: private.to_string(),
    })
}

/// The key that a host shows, as `type base64`, if it is one that the files of known hosts or the hosts file vouch for.
pub async fn known_key(target: &Target) -> Result<String, SshError> {
    let key = session::scan(target).await?;
    known::accept(&target.server(), &key).await?;
    key.fields().ok_or(SshError::Random)
}
