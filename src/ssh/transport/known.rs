//! The files of known hosts, read beside the runtime's threads.

use std::path::PathBuf;
use std::time::Duration;

use super::files::beside;
use crate::ssh::trust::{self, HostKey, KnownHosts, Server, TrustError};

/// How long the file system may take for it, to read and to write. A home folder may lie on a machine that is down.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// The same as [`KnownHosts::read`].
pub(super) async fn read(files: &[PathBuf]) -> Result<KnownHosts, TrustError> {
    let of = files.to_vec();
    judged(files, move || KnownHosts::read(&of)).await
}

/// An error for a key that the files do not vouch for.
pub(super) async fn accept(server: &Server, key: &HostKey) -> Result<(), TrustError> {
    let (of, key) = (server.clone(), key.clone());
    judged(&server.files, move || trust::accept(&of, &key)).await
}

/// Whether a key is pinned as the host's or known to the files. An error for one that must not be accepted in any case.
pub async fn is_known(server: &Server, key: &HostKey) -> Result<bool, TrustError> {
    let (of, key) = (server.clone(), key.clone());
    judged(&server.files, move || trust::is_known(&of, &key)).await
}

async fn judged<T: Send + 'static>(
    files: &[PathBuf],
    judge: impl FnOnce() -> Result<T, TrustError> + Send + 'static,
) -> Result<T, TrustError> {
    let fault = |detail| TrustError::KnownHosts { file: files.first().cloned().unwrap_or_default(), detail };
    beside(PATIENCE, judge).await.map_err(fault)?
}
