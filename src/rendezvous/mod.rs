//! The key-value server over HTTP at which the ranks of a Horovod run with Gloo find each other. Layer 2.
//!
//! [`store`] is what is kept and when it goes, [`http`] the bytes; both are pure. [`server`] is the only part that
//! has sockets. How all of it is served: docs/formats/horovod-rendezvous.md. Knows nothing of runs but their
//! [plan](crate::domain::rendezvous::RendezvousPlan).

pub mod http;
pub mod server;
pub mod store;
