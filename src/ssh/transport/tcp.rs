//! From a name to a TCP stream, with a deadline at each step and an error for each way to fail.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::error::SshError;
use super::hops::Lease;
use super::names;
use super::raw_connection::Duplex;
use super::route::Family;
use super::target::Target;

/// Resolves the name and tries its addresses in the resolver's order; each gets an equal share of the time.
pub(super) async fn connect(target: &Target) -> Result<TcpStream, SshError> {
    let limit = target.connect_timeout;
    let resolve = |detail: String| SshError::Resolve {
        host: target.host.clone(),
        address: target.address.clone(),
        detail,
    };
    let mut addresses = names::look_up(&target.address, target.port, limit).await.map_err(&resolve)?;
    addresses.retain(|address| is_wanted(target, *address));
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = None;
    for address in addresses {
        match timeout(share, dial(target, address)).await {
            Ok(Ok(stream)) => {
                // Small frames must not wait for the answer to the one before.
                stream.set_nodelay(true).map_err(|error| failure(target, address, &error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(failure(target, address, &error)),
            Err(_) => last = Some(silent(target, address, share)),
        }
    }
    Err(last.unwrap_or_else(|| resolve("the name has no address of the family that is wanted".to_owned())))
}

async fn dial(target: &Target, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(from) = target.bind_address else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(address).await
}

/// Of the family that is asked for, and of that of the address to connect from.
fn is_wanted(target: &Target, address: SocketAddr) -> bool {
    let family = match target.family {
        Family::Any => true,
        Family::Inet => address.is_ipv4(),
        Family::Inet6 => address.is_ipv6(),
    };
    family && target.bind_address.is_none_or(|from| from.is_ipv4() == address.is_ipv4())
}

fn silent(target: &Target, address: SocketAddr, after: Duration) -> SshError {
    SshError::TimedOut {
        host: target.host.clone(),
        at: at(target, address),
        what: "did not answer the connection attempt",
        after,
        remedy: "check that the host is up and that no firewall drops the packets",
    }
}

fn failure(target: &Target, address: SocketAddr, error: &io::Error) -> SshError {
    let (host, at) = (target.host.clone(), at(target, address));
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return SshError::Refused { host, at };
    }
    SshError::Network { host, at, detail: format!("{error}; check the network and the address") }
}

/// `name:port`, with the address where the name is not the address.
fn at(target: &Target, address: SocketAddr) -> String {
    // A zone is no part of the number: `fe80::1%eth0`.
    if target.address.split('%').next() == Some(address.ip().to_string().as_str()) {
        target.endpoint()
    } else {
        format!("{} ({})", target.endpoint(), address.ip())
    }
}

/// How much has come over a stream.
#[derive(Clone, Default)]
pub(super) struct Arrived(Arc<AtomicU64>);

impl Arrived {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream whose reading side can be ended from outside, so that a handshake that was given up leaves no
/// task behind that waits for a silent peer. What it goes through ends with it.
pub(super) struct Cancellable {
    stream: Box<dyn Duplex>,
    token: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    arrived: Arrived,
    _hop: Option<Lease>,
}

impl Cancellable {
    pub(super) fn new(stream: Box<dyn Duplex>, hop: Option<Lease>, token: CancellationToken) -> Self {
        let cancelled = Box::pin(token.clone().cancelled_owned());
        Self { stream, token, cancelled, arrived: Arrived::default(), _hop: hop }
    }

    pub(super) fn arrived(&self) -> Arrived {
        self.arrived.clone()
    }
}

impl AsyncRead for Cancellable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.token.is_cancelled() || self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let read = buf.filled().len().saturating_sub(before);
        self.arrived.0.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Cancellable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
