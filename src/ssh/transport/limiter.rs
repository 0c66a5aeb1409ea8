//! No more than eight handshakes with one server at a time, for all callers: sshd drops connections by chance
//! from the tenth on (`MaxStartups`), which would look like a broken network.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Handshakes at once with one server.
const AT_ONCE: usize = 8;

static SERVERS: LazyLock<Mutex<HashMap<String, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// Waits for a place among the handshakes with `endpoint` (`address:port`) in this process. It is held until the
/// permit is dropped.
pub(super) async fn enter(endpoint: &str) -> Option<OwnedSemaphorePermit> {
    let places = {
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, places| places.strong_count() > 0);
        let endpoint = endpoint.to_ascii_lowercase();
        let known = servers.get(&endpoint).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let places = Arc::new(Semaphore::new(AT_ONCE));
            servers.insert(endpoint, Arc::downgrade(&places));
            places
        })
    };
    places.acquire_owned().await.ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_ninth_waits_for_one_of_the_eight() {
        let mut inside = Vec::new();
        for _ in 0..AT_ONCE {
            inside.push(enter("Gpu-A:22").await.unwrap());
        }
        let other = tokio::time::timeout(Duration::from_secs(20), enter("gpu-b:22")).await;
        assert!(other.is_ok(), "another server has places of its own");
        let ninth = tokio::time::timeout(Duration::from_millis(100), enter("gpu-a:22")).await;
        assert!(ninth.is_err(), "it got in");
        inside.pop();
        assert!(enter("gpu-a:22").await.is_some());
    }
}
