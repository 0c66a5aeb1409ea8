//! From a request to ranks on hosts: the plan, and the state machine that carries it out. Layer 3.

pub mod facts;
pub mod gather;
pub mod machine;
pub mod mesh;
pub mod name;
pub mod place;
pub mod plan;
pub mod planned;
pub mod preview;
pub mod rendezvous;
pub mod request;
pub mod secrets;
pub mod session;
pub mod verdict;
mod waiting;

#[cfg(test)]
mod fixtures;
