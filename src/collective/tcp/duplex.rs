//! Sockets read and written in two parts at once: header and payload need no copy into one buffer.

use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};

use super::super::socket::Moved;

/// Writes what fits of `parts`; of those, `done` bytes are written already.
pub(super) fn write(stream: &TcpStream, mut parts: &mut [IoSlice<'_>], done: usize) -> Moved {
    IoSlice::advance_slices(&mut parts, done);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    moved(|| sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags))
}

/// Reads what is there into `head`, then into `body`, of which `done` bytes are read already.
pub(super) fn read(stream: &TcpStream, head: &mut [u8], body: &mut [u8], done: usize) -> Moved {
    let (len, skip) = (head.len(), done.min(head.len()));
    let mut parts = [IoSliceMut::new(&mut head[skip..]), IoSliceMut::new(&mut body[done - skip..])];
    let parts = &mut parts[usize::from(skip == len)..];
    moved(|| {
        recvmsg(stream, parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)
            .map(|message| message.bytes)
    })
}

/// `Nothing` where there was room for nothing is not asked for: a caller always wants at least one byte.
fn moved(mut call: impl FnMut() -> Result<usize, Errno>) -> Moved {
    loop {
        match call() {
            Ok(0) => return Moved::Closed,
            Ok(count) => return Moved::Bytes(count),
            Err(Errno::INTR) => {}
            // `NOBUFS` is a passing lack of kernel memory.
            Err(Errno::AGAIN | Errno::NOBUFS) => return Moved::Nothing,
            Err(_) => return Moved::Closed,
        }
    }
}
