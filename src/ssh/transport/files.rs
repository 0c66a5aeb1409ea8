//! Reads a person's files beside the runtime's threads, and not for ever: a home folder may lie on a machine that is down.

use std::io;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// So many read at once: where those hang, the files of further hosts would hang with them.
static READERS: Semaphore = Semaphore::const_new(16);

/// What `read` gives, on a thread of its own. An error says that the file system does not answer within `patience`.
pub(super) async fn beside<T: Send + 'static>(
    patience: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let reading = async {
        let place = READERS.acquire().await.map_err(io::Error::other)?;
        let (tell, told) = oneshot::channel();
        // no thread of the runtime's: its end would wait for this one
        std::thread::Builder::new().name("files".to_owned()).spawn(move || {
            let _place = place;
            // it may have been given up
            let _ = tell.send(read());
        })?;
        told.await.map_err(io::Error::other)
    };
    match timeout(patience, reading).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "its file system does not answer within {} s: check the mount (a home folder on NFS, say)",
            patience.as_secs()
        )),
    }
}
