//! From a target to a byte stream to its sshd: a TCP connection, a channel through another host, or a command's
//! standard streams. Knows nothing of what is spoken over it.

use tokio::io::{AsyncRead, AsyncWrite};

use super::error::SshError;
use super::hops::{self, Lease};
use super::proxy::{self, ProxyStderr};
use super::pump::Pumped;
use super::route::Route;
use super::target::Target;
use super::tcp;

/// A byte stream, whatever carries it.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open connection to a host's sshd, before ssh is spoken over it.
pub(super) struct RawConnection {
    pub(super) stream: Box<dyn Duplex>,
    /// The share in the connection that carries the stream: it must live as long.
    pub(super) hop: Option<Lease>,
    /// What a proxy command has to say.
    pub(super) stderr: ProxyStderr,
}

/// Opens the connection. Each hop has the deadlines of its own target, and its host key is checked under its own name before
/// anything is asked of it.
pub(super) async fn open(target: &Target) -> Result<RawConnection, SshError> {
    match &target.route {
        Route::Direct => {
            let stream = tcp::connect(target).await?;
            Ok(RawConnection { stream: Box::new(stream), hop: None, stderr: ProxyStderr::default() })
        }
        Route::Jump(hop) => {
            let (stream, hop) = Box::pin(hops::open(target, hop)).await?;
            Ok(RawConnection {
                stream: Box::new(Pumped::new(stream)),
                hop: Some(hop),
                stderr: ProxyStderr::default(),
            })
        }
        Route::Command(line) => proxy::start(target, line),
    }
}
