//! Which host keys are right: files of known hosts, host certificates, and the one place that writes a key down.

pub(super) mod file;
pub(super) mod host_cert;
pub(super) mod host_key;
pub mod known_hosts;
pub(super) mod pattern;
