//! Reads the files of known hosts beside the runtime's threads, and not for ever: a home folder may lie on a machine that is down.

use std::io;
use std::path::PathBuf;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::host_key_policy::PATIENCE;
use crate::ssh::trust::{KnownHosts, TrustError};

/// So many read at once: where those hang, the files of further hosts would hang with them.
static READERS: Semaphore = Semaphore::const_new(16);

/// The same as [`KnownHosts::read`].
pub(super) async fn read(files: &[PathBuf]) -> Result<KnownHosts, TrustError> {
    let fault =
        |detail: String| TrustError::KnownHosts { file: files.first().cloned().unwrap_or_default(), detail };
    let of = files.to_vec();
    let reading = async {
        let place = READERS.acquire().await.map_err(io::Error::other)?;
        let (tell, told) = oneshot::channel();
        // no thread of the runtime's: its end would wait for this one
        std::thread::Builder::new().name("known hosts".to_owned()).spawn(move || {
            let _place = place;
            // it may have been given up
            let _ = tell.send(KnownHosts::read(&of));
        })?;
        told.await.map_err(io::Error::other)
    };
    match timeout(PATIENCE, reading).await {
        Ok(Ok(known)) => known,
        Ok(Err(error)) => Err(fault(error.to_string())),
        Err(_) => Err(fault(format!(
            "its file system does not answer within {} s: check the mount (a home folder on NFS, say)",
            PATIENCE.as_secs()
        ))),
    }
}
