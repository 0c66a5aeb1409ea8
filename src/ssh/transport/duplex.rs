//! The byte stream to a host's sshd as ssh takes it: whatever carries it, ended from outside, and counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::streams::Keep;

/// A byte stream, whatever carries it.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

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
    _carrier: Option<Keep>,
}

impl Cancellable {
    pub(super) fn new(stream: Box<dyn Duplex>, carrier: Option<Keep>, token: CancellationToken) -> Self {
        let cancelled = Box::pin(token.clone().cancelled_owned());
        Self { stream, token, cancelled, arrived: Arrived::default(), _carrier: carrier }
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
