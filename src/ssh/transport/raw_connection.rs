//! From a target to a byte stream to its sshd: a TCP connection, a channel through another host, or a command's
//! standard streams. Knows nothing of what is spoken over it.

use std::sync::Arc;

use super::duplex::Duplex;
use super::error::SshError;
use super::hops::{self, LogIn};
use super::proxy::{self, ProxyStderr};
use super::pump::Pumped;
use super::streams::Keep;
use super::target::{Route, Target};
use super::tcp;

/// An open connection to a host's sshd, before ssh is spoken over it.
pub(super) struct RawConnection {
    pub(super) stream: Box<dyn Duplex>,
    /// The share in the connection that carries the stream: it must live as long.
    pub(super) carrier: Option<Keep>,
    /// What a proxy command has to say.
    pub(super) stderr: ProxyStderr,
}

/// Opens the connection. Each hop has the deadlines of its own target, and its host key is checked under its own name before
/// anything is asked of it; `log_in` makes the connection there.
pub(super) async fn open(target: &Target, log_in: LogIn) -> Result<RawConnection, SshError> {
    match &target.route {
        Route::Direct => {
            let stream = tcp::connect(target).await?;
            Ok(RawConnection { stream: Box::new(stream), carrier: None, stderr: ProxyStderr::default() })
        }
        Route::Jump(hop) => {
            let (stream, lease) = hops::open(target, hop, log_in).await?;
            Ok(RawConnection {
                stream: Box::new(Pumped::new(stream)),
                carrier: Some(Arc::new(lease)),
                stderr: ProxyStderr::default(),
            })
        }
        Route::Command(line) => {
            let (stream, stderr) = proxy::start(target, line)?;
            Ok(RawConnection { stream: Box::new(stream), carrier: None, stderr })
        }
    }
}
