//! SSH by russh: host keys, credentials, one channel, and the binary on the host.
//!
//! Layer 2. Knows nothing of runs, screens or the hosts file: a [`Target`] comes in, an [`AgentStream`] that
//! carries wire frames goes out. russh is used for the protocol alone: which host keys are trusted, in which
//! order credentials are offered, what runs on the host and when to give up is decided here. Nothing here
//! retries; that is the caller's, and [`SshError::refusal`] says when retrying would be wrong.

mod deploy;
mod transport;
mod trust;

pub use deploy::agents::Agents;
pub use deploy::binary::AgentBinary;
pub use deploy::deployment::{Deployment, TelemetryAsk};
pub use deploy::install::{Progress, open_agent, quarantine};
pub use transport::asker::{Asked, Asker, Questions};
pub use transport::auth::Attempts;
pub use transport::config;
pub use transport::error::{DeployError, ErrorKind, ShownKey, SshError};
pub use transport::keys::default_identities;
pub use transport::mesh_key::{KeyPair, known_key, new_key_pair};
pub use transport::resolve::{Choice, Resolver, Wanted};
pub use transport::route::{Carrier, Family, HostKeyPolicy, OpenSsh, Route};
pub use transport::session::scan;
pub use transport::streams::{AgentReader, AgentStream, AgentWriter, Link, LinkEnd, Speaks};
pub use transport::target::{Target, default_known_hosts};
pub use trust::file::{Trusted, is_known, trust};
pub use trust::host_cert::CertificateFault;
pub use trust::host_key::HostKey;
pub use trust::known_hosts;
