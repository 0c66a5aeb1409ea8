//! From a target to a byte stream to its sshd: a TCP connection, a channel through another host, or a command's
//! standard streams. Knows nothing of what is spoken over it.

use russh::{ChannelOpenFailure, ChannelStream, client::Msg};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::error::SshError;
use super::proxy::{self, Said};
use super::route::Route;
use super::session::{self, Session};
use super::target::Target;
use super::tcp;

/// A byte stream, whatever carries it.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open way to a host's sshd.
pub(super) struct Way {
    pub(super) stream: Box<dyn Duplex>,
    /// The connection that carries the stream: it must live as long.
    pub(super) hop: Option<Box<Session>>,
    /// What a proxy command has to say.
    pub(super) said: Said,
}

/// Opens the way. Each hop has the deadlines of its own target, and its host key is checked under its own name before
/// anything is asked of it.
pub(super) async fn open(target: &Target) -> Result<Way, SshError> {
    match &target.route {
        Route::Direct => {
            let stream = tcp::connect(target).await?;
            Ok(Way { stream: Box::new(stream), hop: None, said: Said::default() })
        }
        Route::Jump(hop) => {
            let (stream, hop) = Box::pin(through(target, hop)).await?;
            Ok(Way { stream: Box::new(stream), hop: Some(Box::new(hop)), said: Said::default() })
        }
        Route::Command(line) => proxy::start(target, line),
    }
}

/// A channel through another host, and the connection that carries it.
async fn through(target: &Target, hop: &Target) -> Result<(ChannelStream<Msg>, Session), SshError> {
    let session = session::connect(hop).await.map_err(|error| error.at_hop(&target.host, hop))?;
    let opening = session.open_stream(&target.address, target.port);
    let (at, after) = (target.endpoint(), target.connect_timeout);
    match timeout(after, opening).await {
        Ok(Ok(stream)) => Ok((stream, session)),
        Ok(Err(error)) => {
            let detail = format!("jump host {} {}", hop.shown(), refusal(&error));
            Err(SshError::Network { host: target.host.clone(), at, detail })
        }
        Err(_) => Err(SshError::TimedOut {
            host: target.host.clone(),
            at,
            what: "was not reached by its jump host",
            after,
            remedy: "check that the host is up, and that the jump host can reach it",
        }),
    }
}

fn refusal(error: &russh::Error) -> String {
    match error {
        russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited) => {
            "forbids going further: AllowTcpForwarding and PermitOpen in its sshd_config decide that"
                .to_owned()
        }
        russh::Error::ChannelOpenFailure(reason) => {
            format!("can't reach it ({}): check name and port as seen from there", reason.description())
        }
        error => format!("was lost: {error}"),
    }
}
