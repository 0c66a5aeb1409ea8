//! Connections: where a host is and by which way, whose ssh speaks with it, who is asked, and one command's streams.

mod algorithms;
mod auth;
mod channel;
mod client;
pub mod config;
mod connection;
mod error;
mod group;
mod hops;
mod host_key_policy;
mod identities;
mod jump;
mod keyring;
mod keys;
mod known;
mod limiter;
mod mesh_key;
mod names;
mod openssh;
mod prompter;
mod prompts;
mod proxy;
mod pump;
mod raw_connection;
pub(super) mod report;
mod resolve;
mod route;
mod session;
mod signer;
mod streams;
mod target;
mod tcp;

pub use algorithms::Algorithms;
pub use auth::Attempts;
pub use error::{ErrorKind, SshError};
pub use host_key_policy::trust_in_time;
pub use keys::default_identities;
pub use mesh_key::{KeyPair, known_key, new_key_pair};
pub use prompter::{Asked, Prompter, Questions};
pub use resolve::{Choice, Resolver, Wanted};
pub use route::{Family, HostKeyPolicy, OpenSsh, Route, TransportKind};
pub use session::scan;
pub use streams::{AgentReader, AgentWriter, Link, LinkEnd};
pub use target::{Target, default_known_hosts};

pub(super) use connection::{Transport, connect};
