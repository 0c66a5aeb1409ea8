//! A channel that shares its connection with others, read without pause: russh hands what comes to one channel after
//! the other, and a channel that is not read would hold up all of them.
//!
//! What waits here for its reader is bounded by what the host at the far end may send before it is granted more.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use super::duplex::Duplex;

/// Bytes at once from the channel.
const PIECE: usize = 64 * 1024;
/// Bytes that wait for their reader: the windows of several channels. Only a host that heeds no window sends more.
const MOST_WAITING: usize = 128 << 20;

/// The channel's stream with a queue before its reader.
pub(super) struct Pumped<S> {
    write: WriteHalf<S>,
    queue: mpsc::UnboundedReceiver<io::Result<Bytes>>,
    waiting: Arc<AtomicUsize>,
    piece: Bytes,
}

impl<S: Duplex + 'static> Pumped<S> {
    pub(super) fn new(stream: S) -> Self {
        let (read, write) = tokio::io::split(stream);
        let (sender, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        tokio::spawn(pump(read, sender, Arc::clone(&waiting)));
        Self { write, queue, waiting, piece: Bytes::new() }
    }
}

/// Ends with the stream, or with its reader.
async fn pump<S: Duplex>(
    mut read: ReadHalf<S>,
    sender: mpsc::UnboundedSender<io::Result<Bytes>>,
    waiting: Arc<AtomicUsize>,
) {
    let mut room = vec![0; PIECE];
    loop {
        let got = tokio::select! {
            () = sender.closed() => return,
            got = read.read(&mut room) => got,
        };
        let piece = match got {
            Ok(0) => return,
            Ok(length) => Ok(Bytes::copy_from_slice(room.get(..length).unwrap_or_default())),
            Err(error) => Err(error),
        };
        let length = piece.as_ref().map_or(0, Bytes::len);
        let piece = if waiting.fetch_add(length, Ordering::Relaxed) + length > MOST_WAITING {
            Err(io::Error::other("the host sends more than it was granted"))
        } else {
            piece
        };
        let is_over = piece.is_err();
        if sender.send(piece).is_err() || is_over {
            return;
        }
    }
}

impl<S: Duplex> AsyncRead for Pumped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.piece.is_empty() {
            match ready!(self.queue.poll_recv(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(piece) => self.piece = piece?,
            }
            self.waiting.fetch_sub(self.piece.len(), Ordering::Relaxed);
        }
        let length = buf.remaining().min(self.piece.len());
        buf.put_slice(self.piece.get(..length).unwrap_or_default());
        self.piece.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Duplex> AsyncWrite for Pumped<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
