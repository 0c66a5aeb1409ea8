//! The processes of this host: who one is for all time, what it has, signals to it, its end, and sets of them. Layer 2.
//!
//! All other parts ask here. Knows nothing of ranks, GPUs or of when a process is ended.

pub(crate) mod cgroup;
pub mod identity;
pub(crate) mod listening;
pub mod marks;
pub(crate) mod memory;
pub(crate) mod permission;
pub(crate) mod pidfd;
pub mod secrecy;
pub(crate) mod signal;
pub(crate) mod status;
pub mod table;
