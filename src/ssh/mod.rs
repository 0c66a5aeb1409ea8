//! SSH by russh: host keys, credentials, one channel, and the binary on the host.
//!
//! Layer 2. Knows nothing of runs, screens or the hosts file: a [`Target`] comes in, an [`AgentStream`] that
//! carries wire frames goes out. russh is used for the protocol alone: which host keys are trusted, in which
//! order credentials are offered, what runs on the host and when to give up is decided here. Nothing here
//! retries; that is the caller's, and [`SshError::refusal`] says when retrying would be wrong.

mod agents;
mod auth;
mod binary;
mod channel;
mod client;
mod deploy;
mod deployment;
mod error;
mod host_key;
pub mod known_hosts;
mod report;
mod route;
mod script;
mod session;
mod streams;
mod target;
mod tcp;
mod transport;
mod trust;
mod watch_script;

pub use agents::Agents;
pub use auth::{Attempts, default_identities};
pub use binary::AgentBinary;
pub use deploy::{Progress, open_agent, quarantine};
pub use deployment::{Deployment, TelemetryAsk};
pub use error::{DeployError, ErrorKind, ShownKey, SshError};
pub use host_key::HostKey;
pub use route::{Carrier, Family, HostKeyPolicy, OpenSsh, Route};
pub use session::scan;
pub use streams::{AgentReader, AgentStream, AgentWriter, Link, LinkEnd, Speaks};
pub use target::{Target, default_known_hosts};
pub use trust::{Trusted, trust};
