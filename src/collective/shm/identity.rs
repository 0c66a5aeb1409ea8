//! Which host this process seems to be on: a first guess that only decides who tries to share memory with whom.

use super::super::auth::{HostKey, Secret};

/// Equal for processes of one host and one network namespace (in which the socket lies on which memory is handed over) that name the same domain;
/// `None` where that can't be told.
pub(in crate::collective) fn host_key(secret: &Secret, shm_domain: &str) -> Option<HostKey> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    Some(secret.key_of(&format!("host {} {} {shm_domain}", boot.trim(), network.display())))
}
