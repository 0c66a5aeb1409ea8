//! Key files and certificate files of this machine: what each turned out to be. Offers nothing, asks nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey};

use super::keyring::Locked;
use super::private_key;

/// The key files that are offered when a host names none, best first.
pub fn default_identities(home: &Path) -> Vec<PathBuf> {
    ["id_ed25519", "id_ecdsa", "id_rsa"].iter().map(|name| home.join(".ssh").join(name)).collect()
}

/// What a private key file turned out to be.
pub(super) enum KeyFile {
    Ready(Arc<PrivateKey>),
    /// Locked by a passphrase; the public half where a file shows it.
    Locked(Option<PublicKey>, Locked),
    /// Others than its owner may read it.
    Open,
    Absent,
    Bad(String),
}

impl KeyFile {
    pub(super) fn public(&self) -> Option<&PublicKey> {
        match self {
            Self::Ready(key) => Some(key.public_key()),
            Self::Locked(key, _) => key.as_ref(),
            _ => None,
        }
    }
}

pub(super) fn load(path: &Path) -> KeyFile {
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
    match private_key::decode(&text, None) {
        Ok(key) => KeyFile::Ready(Arc::new(key)),
        Err(error) => {
            let inside = PrivateKey::from_openssh(&text).ok().filter(PrivateKey::is_encrypted);
            let is_locked = inside.is_some()
                || matches!(error, russh::keys::Error::KeyIsEncrypted)
                || text.contains("ENCRYPTED");
            if !is_locked {
                return KeyFile::Bad(format!("no private key that can be read: {error}"));
            }
            let public = match inside {
                Some(key) => Some(key.public_key().clone()),
                None => PublicKey::read_openssh_file(with_suffix(path, ".pub")).ok(),
            };
            let fingerprint = public.as_ref().map(|key| key.fingerprint(HashAlg::Sha256).to_string());
            KeyFile::Locked(public, Locked { path: path.to_owned(), text, fingerprint })
        }
    }
}

/// The certificate beside a key file, as ssh-keygen names it; `None` where there is none.
pub(super) fn certificate_beside(path: &Path) -> Option<(PathBuf, Result<Certificate, String>)> {
    let beside = with_suffix(path, "-cert.pub");
    beside.exists().then(|| (beside.clone(), certificate(&beside)))
}

/// A user certificate in a file.
pub(super) fn certificate(path: &Path) -> Result<Certificate, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let certificate =
        Certificate::from_openssh(text.trim()).map_err(|error| format!("no certificate: {error}"))?;
    match certificate.cert_type() {
        CertType::User => Ok(certificate),
        CertType::Host => Err("it is a host's certificate, not a user's".to_owned()),
    }
}

/// `id` and `.pub` make `id.pub`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
