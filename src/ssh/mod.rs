//! SSH by russh: host keys, credentials, one channel, and the binary on the host.
//!
//! Layer 2. Knows nothing of runs, screens or the hosts file: a [`Target`] comes in, an [`AgentStream`] that
//! carries wire frames goes out. russh is used for the protocol alone: which host keys are trusted, in which
//! order credentials are offered, what runs on the host and when to give up is decided here. Nothing here
//! retries; that is the caller's, and [`SshError::refusal`] says when retrying would be wrong.

mod admission;
mod agents;
mod asker;
mod auth;
mod binary;
mod channel;
mod client;
pub mod config;
mod deploy;
mod deployment;
mod error;
mod group;
mod hops;
mod host_cert;
mod host_key;
mod jump;
mod keyring;
mod keys;
pub mod known_hosts;
mod limiter;
mod mesh_key;
mod names;
mod offers;
mod openssh;
mod pattern;
mod prompts;
mod proxy;
mod pump;
mod report;
mod resolve;
mod route;
mod script;
mod session;
mod signer;
mod streams;
mod target;
mod tcp;
mod transport;
mod trust;
mod watch_script;
mod way;

pub use agents::Agents;
pub use asker::{Asked, Asker, Questions};
pub use auth::Attempts;
pub use binary::AgentBinary;
pub use deploy::{Progress, open_agent, quarantine};
pub use deployment::{Deployment, TelemetryAsk};
pub use error::{DeployError, ErrorKind, ShownKey, SshError};
pub use host_cert::CertificateFault;
pub use host_key::HostKey;
pub use keys::default_identities;
pub use mesh_key::{KeyPair, known_key, new_key_pair};
pub use resolve::{Choice, Resolver, Wanted};
pub use route::{Carrier, Family, HostKeyPolicy, OpenSsh, Route};
pub use session::scan;
pub use streams::{AgentReader, AgentStream, AgentWriter, Link, LinkEnd, Speaks};
pub use target::{Target, default_known_hosts};
pub use trust::{Trusted, is_known, trust, trust_in_time};
