//! One command on a host as a pair of byte streams, and why it ended. Knows nothing of what carries the bytes: a
//! transport feeds one end.
//!
//! The queue is bounded, so the reader must keep reading: a stream that is not read stops its whole connection,
//! keepalives included.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// Pieces of at most 32 KiB that wait to be read.
const QUEUE: usize = 32;

/// What must live as long as a stream of it does: the connection.
pub(super) type Keep = Arc<dyn Any + Send + Sync>;

/// How a link, or one command on it, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// Lowercase sentence: why.
    pub reason: String,
    /// The connection itself is gone; else only the command has ended.
    pub lost: bool,
    /// The command's exit status. Without one nothing is known about the command's success.
    pub status: Option<u32>,
    /// The end of its standard error, at most 16 KiB, sanitised.
    pub stderr: String,
}

/// Tells why a link ended; cheap to clone, keeps nothing open.
#[derive(Debug, Clone)]
pub struct Link {
    end: watch::Receiver<Option<Arc<LinkEnd>>>,
}

impl Link {
    /// Waits for the end of the link and says why it came.
    pub async fn closed(&self) -> Arc<LinkEnd> {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|value| value.clone());
        // The task that holds the other half says why before it ends, unless the runtime shuts down.
        ended.unwrap_or_else(|| {
            Arc::new(LinkEnd {
                reason: "the program is shutting down".to_owned(),
                lost: true,
                status: None,
                stderr: String::new(),
            })
        })
    }

    fn now(&self) -> Option<Arc<LinkEnd>> {
        self.end.borrow().clone()
    }
}

/// What a command writes to standard output.
pub struct AgentReader {
    rest: Bytes,
    queue: mpsc::Receiver<Bytes>,
    link: Link,
    _connection: Keep,
}

/// The most bytes of a packet to a host. A session of russh writes what waits, eleven packets, at once, and keeps a buffer
/// of the most that this was: with packets of 32 KiB 64 hosts that were sent a binary kept 35 MB.
const PACKET: usize = 8 * 1024;

/// A command's standard input. Each write is at least one packet of its own: write whole messages.
pub struct AgentWriter {
    input: Pin<Box<dyn AsyncWrite + Send + Sync>>,
    link: Link,
    ended: CancellationToken,
    woken: Pin<Box<WaitForCancellationFutureOwned>>,
    _connection: Keep,
}

/// The transport's end of a command's streams.
pub(super) struct Feed {
    sender: mpsc::Sender<Bytes>,
    ending: watch::Sender<Option<Arc<LinkEnd>>>,
    wake_writer: DropGuard,
}

/// The streams of one command: `input` is its standard input, `connection` lives as long as either of them.
pub(super) fn streams(
    input: Pin<Box<dyn AsyncWrite + Send + Sync>>,
    connection: &Keep,
) -> (AgentReader, AgentWriter, Feed) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let (ending, end) = watch::channel(None);
    let ended = CancellationToken::new();
    let link = Link { end };
    let reader =
        AgentReader { rest: Bytes::new(), queue, link: link.clone(), _connection: connection.clone() };
    let writer = AgentWriter {
        input,
        link,
        woken: Box::pin(ended.clone().cancelled_owned()),
        ended: ended.clone(),
        _connection: connection.clone(),
    };
    (reader, writer, Feed { sender, ending, wake_writer: ended.drop_guard() })
}

impl Feed {
    /// Hands on what the command wrote. With the reader gone the bytes are of no use, but must still be taken.
    pub(super) async fn push(&self, bytes: Bytes) {
        let _ = self.sender.send(bytes).await;
    }

    /// Says how it ended. The queue closes only then: who reads the end of the stream finds the reason.
    pub(super) fn end(self, end: LinkEnd) {
        let _ = self.ending.send(Some(Arc::new(end)));
        drop(self.wake_writer);
        drop(self.sender);
    }
}

impl AgentReader {
    /// The next piece as it came; `None` at the end.
    pub(in crate::ssh) async fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() { self.queue.recv().await } else { Some(std::mem::take(&mut self.rest)) }
    }

    /// Puts bytes back in front.
    pub(in crate::ssh) fn put_back(&mut self, bytes: Bytes) {
        self.rest = bytes;
    }

    pub(in crate::ssh) fn link(&self) -> &Link {
        &self.link
    }
}

impl AsyncRead for AgentReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.queue.poll_recv(cx)) {
                Some(bytes) => self.rest = bytes,
                // An end without an exit status is no clean end.
                None => {
                    return Poll::Ready(match self.link.now() {
                        Some(end) if end.status.is_some() => Ok(()),
                        end => Err(broken(io::ErrorKind::UnexpectedEof, end.as_deref())),
                    });
                }
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(self.rest.get(..length).unwrap_or_default());
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

fn broken(kind: io::ErrorKind, end: Option<&LinkEnd>) -> io::Error {
    io::Error::new(kind, end.map_or_else(|| "link lost".to_owned(), |end| end.reason.clone()))
}

impl AsyncWrite for AgentWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // A closed channel grants no more window, so a writer that waits for it must be woken by the end.
        if self.ended.is_cancelled() || self.woken.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(broken(io::ErrorKind::BrokenPipe, self.link.now().as_deref())));
        }
        self.input.as_mut().poll_write(cx, &buf[..buf.len().min(PACKET)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended.is_cancelled() {
            return Poll::Ready(Ok(()));
        }
        self.input.as_mut().poll_shutdown(cx)
    }
}
