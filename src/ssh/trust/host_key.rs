//! A host's public key as people and files see it. Knows nothing of connections.

use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey};

/// A host's public key.
#[derive(Debug, Clone)]
pub struct HostKey {
    pub(super) key: PublicKey,
}

// The comment of a key read from a file is no part of the key.
impl PartialEq for HostKey {
    fn eq(&self, other: &Self) -> bool {
        self.key.key_data() == other.key.key_data()
    }
}

impl Eq for HostKey {}

impl HostKey {
    pub(in crate::ssh) fn new(key: PublicKey) -> Self {
        Self { key }
    }

    /// Reads `ssh-ed25519 AAAA…`, as in a `.pub` file.
    pub fn from_openssh(text: &str) -> Option<Self> {
        PublicKey::from_openssh(text).ok().map(Self::new)
    }

    /// `ssh-ed25519`, `ecdsa-sha2-nistp256`, `ssh-rsa`, …
    pub fn algorithm(&self) -> String {
        self.kind().as_str().to_owned()
    }

    pub(in crate::ssh) fn kind(&self) -> Algorithm {
        self.key.algorithm()
    }

    /// `SHA256:` and 43 characters, as OpenSSH prints it.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The length of an RSA key; `None` for another.
    pub(in crate::ssh) fn rsa_bits(&self) -> Option<u32> {
        rsa_bits(self.key.key_data())
    }

    /// Type and key as a `known_hosts` line holds them, without a comment.
    pub(in crate::ssh) fn fields(&self) -> Option<String> {
        let mut key = self.key.clone();
        key.set_comment("");
        key.to_openssh().ok().map(|text| text.trim().to_owned())
    }
}

/// The bits of an RSA key's modulus; `None` for a key of another type.
pub(in crate::ssh) fn rsa_bits(key: &KeyData) -> Option<u32> {
    let KeyData::Rsa(key) = key else { return None };
    let bytes = key.n().as_positive_bytes()?;
    let empty = bytes.first().map_or(0, |first| first.leading_zeros());
    u32::try_from(bytes.len()).ok()?.checked_mul(8)?.checked_sub(empty)
}
