//! Non-blocking sockets with deadlines: the few calls that everything here is made of.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

use super::deadline::Deadline;

/// What one non-blocking read or write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing can move now.
    Nothing,
    /// The other side is gone; the connection is of no more use.
    Closed,
}

/// Makes a fresh stream non-blocking and sends small messages at once.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)
}

/// Reads what is there.
pub(super) fn read_some<S>(mut stream: &S, buf: &mut [u8]) -> Moved
where
    for<'a> &'a S: Read,
{
    moved(|| stream.read(buf))
}

/// Writes what fits.
pub(super) fn write_some<S>(mut stream: &S, buf: &[u8]) -> Moved
where
    for<'a> &'a S: Write,
{
    moved(|| stream.write(buf))
}

fn moved(mut call: impl FnMut() -> io::Result<usize>) -> Moved {
    loop {
        match call() {
            Ok(0) => return Moved::Closed,
            Ok(count) => return Moved::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Moved::Nothing,
            Err(_) => return Moved::Closed,
        }
    }
}

/// Waits until one of `fds` is ready or the deadline has passed. A signal counts as neither.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline: Deadline) -> io::Result<()> {
    loop {
        match poll(fds, Some(&deadline.timespec())) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// Waits until `fd` is ready in the sense of `flags`, or the deadline has passed.
pub(super) fn wait_one(fd: &impl AsFd, flags: PollFlags, deadline: Deadline) -> io::Result<()> {
    wait(&mut [PollFd::new(fd, flags)], deadline)
}

/// Fills `buf`, or fails with `TimedOut` or `UnexpectedEof`.
pub(super) fn read_all<S: AsFd>(stream: &S, buf: &mut [u8], deadline: Deadline) -> io::Result<()>
where
    for<'a> &'a S: Read,
{
    let mut filled = 0;
    while filled < buf.len() {
        match read_some(stream, &mut buf[filled..]) {
            Moved::Bytes(count) => filled += count,
            Moved::Closed => return Err(closed()),
            Moved::Nothing if deadline.passed() => return Err(silent()),
            Moved::Nothing => wait_one(stream, PollFlags::IN, deadline)?,
        }
    }
    Ok(())
}

/// Writes all of `buf`, or fails with `TimedOut` or `UnexpectedEof`.
pub(super) fn write_all<S: AsFd>(stream: &S, buf: &[u8], deadline: Deadline) -> io::Result<()>
where
    for<'a> &'a S: Write,
{
    let mut sent = 0;
    while sent < buf.len() {
        match write_some(stream, &buf[sent..]) {
            Moved::Bytes(count) => sent += count,
            Moved::Closed => return Err(closed()),
            Moved::Nothing if deadline.passed() => return Err(silent()),
            Moved::Nothing => wait_one(stream, PollFlags::OUT, deadline)?,
        }
    }
    Ok(())
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it accepted the connection but says nothing")
}
