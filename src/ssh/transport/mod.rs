//! Connections: where a host is and by which way, whose ssh speaks with it, who is asked, and one command's streams.

mod admission;
pub(super) mod asker;
pub(super) mod auth;
mod channel;
pub(super) mod client;
pub mod config;
pub(super) mod connection;
pub(super) mod error;
mod group;
mod jump;
mod keyring;
pub(super) mod keys;
mod limiter;
pub(super) mod mesh_key;
pub(super) mod offers;
mod openssh;
mod prompts;
mod proxy;
pub(super) mod report;
pub(super) mod resolve;
pub(super) mod route;
pub(super) mod session;
mod signer;
pub(super) mod streams;
pub(super) mod target;
mod tcp;
mod way;

pub(super) use connection::connect;
