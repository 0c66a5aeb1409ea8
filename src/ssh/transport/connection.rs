//! The one interface to a host's ssh connection: run a line, get its byte streams and how it ended. What starts the
//! agent and what uploads its binary knows nothing beneath it.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::error::SshError;
use super::streams::{AgentReader, AgentWriter};

/// Interval of keepalives; a peer that is silent for four of them is gone.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);
pub(super) const KEEPALIVE_MISSED: usize = 3;

/// A way to run commands on one host as one user. The host's key is checked before the user is let in, at the latest
/// when the first command is handed over. The connection closes when this and the streams of all its commands are dropped.
pub(in crate::ssh) trait Transport: Send + Sync {
    /// Hands `line` to the account's login shell. The streams end with the command.
    ///
    /// `marker` is what the line prints first, and the one proof that it runs: a connection that can't tell a login by
    /// itself waits for it before it says that all is well. It stays in the stream.
    fn exec<'a>(
        &'a self,
        line: &'a str,
        marker: &'a str,
    ) -> BoxFuture<'a, Result<(AgentReader, AgentWriter), SshError>>;

    /// What the host showed before the first command (sshd's banner), sanitised.
    fn shown(&self) -> String;

    /// What let us in: the key, or the method. Known when the first command runs.
    fn login(&self) -> String;

    /// After a command has ended: waits until the host has its session free again. A host may allow one only.
    fn settled(&self) -> BoxFuture<'_, ()>;
}
