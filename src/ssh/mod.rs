//! SSH: which host keys are right, the connection, and the binary on the host. Three parts, each of which knows only
//! those before it: [`trust`](self::trust()) of host keys, the transport (russh's, or the system's `ssh`), the deployment
//! of the agent.
//!
//! Layer 2. Knows nothing of runs, screens or the hosts file: a [`Target`] comes in, an [`AgentStream`] that
//! carries wire frames goes out. russh is used for the protocol alone: which host keys are trusted, in which
//! order credentials are offered, what runs on the host and when to give up is decided here. Nothing here
//! retries; that is the caller's, and [`AgentError::refusal`] says when retrying would be wrong.

mod deploy;
mod transport;
mod trust;

pub use deploy::{
    AgentBinary, AgentError, AgentStream, Agents, DeployError, Deployment, Progress, Speaks, TelemetryAsk,
    is_upload, open_agent, quarantine,
};
pub use transport::{
    AgentReader, AgentWriter, Algorithms, Asked, Attempts, Choice, ErrorKind, Family, HostKeyPolicy, KeyPair,
    Link, LinkEnd, OpenSsh, Prompter, Questions, Resolver, Route, SshError, Target, TransportKind, Wanted,
    config, default_identities, default_known_hosts, is_known, known_key, new_key_pair, scan, trust_in_time,
};
pub use trust::{
    Allowed, CertificateFault, HostKey, Server, ShownKey, TrustError, Trusted, known_hosts, trust,
};
