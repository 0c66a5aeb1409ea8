//! From a request to ranks on hosts: the plan, and the state machine that carries it out. Layer 3.

pub mod alerts;
pub mod checkup;
pub mod code;
mod cpu_slots;
pub mod free;
pub mod gist;
pub mod host_names;
pub mod images;
pub mod inventory;
pub mod kinds;
pub mod machine;
pub mod mesh;
pub mod place;
mod place_error;
mod place_words;
pub mod plan;
mod random;
pub mod readiness;
pub mod rendezvous;
pub mod script;
pub mod secrets;
pub mod session;
mod spreading;
pub mod syncing;
pub mod traces;
pub mod trees;
pub mod upload;
pub mod verdict;
mod waiting;

#[cfg(test)]
mod fixtures;
