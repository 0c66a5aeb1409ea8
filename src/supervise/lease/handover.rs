//! Hands bytes and open descriptors to a process that was just started: over a socket in the place of its standard
//! input. A lock belongs to the open file, so it is held as long as either process, or the socket between them, has
//! it: there is no moment in which another one could take it. And no third process that is started meanwhile gets
//! it, as one would that inherits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Descriptors of one message; the kernel takes 253.
const AT_ONCE: usize = 64;
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// Two ends: what goes into one comes out of the other.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends descriptors and bytes, and ends the stream. Blocks until the other end has room or is gone.
pub fn send(socket: OwnedFd, descriptors: &[BorrowedFd<'_>], bytes: &[u8]) -> io::Result<()> {
    // Descriptors travel with bytes: the first bytes of the stream carry them.
    let mut left = bytes;
    let mut groups = descriptors.chunks(AT_ONCE);
    while !left.is_empty() {
        let group = groups.next().unwrap_or_default();
        // one byte for each group but the last, so that none is left over when the bytes end
        let count = if group.is_empty() { left.len() } else { 1 };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !group.is_empty() && !control.push(SendAncillaryMessage::ScmRights(group)) {
            return Err(io::Error::other("no room for descriptors"));
        }
        let part = left.get(..count).unwrap_or_default();
        let sent = loop {
            match sendmsg(&socket, &[IoSlice::new(part)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent?,
            }
        };
        left = left.get(sent..).unwrap_or_default();
    }
    if groups.next().is_some() {
        return Err(io::Error::other("more descriptors than bytes"));
    }
    // the receiver waits for the end of the stream
    drop(socket);
    Ok(())
}

/// Receives what was sent, at most `limit` bytes of it. The descriptors are closed to children.
pub fn receive(socket: impl AsFd, limit: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; READ];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let got = match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            got => got?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                descriptors.extend(more);
            }
        }
        if got == 0 {
            return Ok((bytes, descriptors));
        }
        bytes.extend_from_slice(buffer.get(..got).unwrap_or_default());
        if bytes.len() > limit {
            return Err(io::Error::other(format!("more than {limit} bytes")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    #[test]
    fn bytes_and_descriptors_arrive_whole_and_in_order() {
        let files: Vec<File> = (0..150)
            .map(|number: u32| {
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "{number}").unwrap();
                file
            })
            .collect();
        let text: Vec<u8> = (0..1_000_000_u32).map(|at| at as u8).collect();
        let (ours, theirs) = pair().unwrap();
        let (got, descriptors) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&theirs, 2_000_000).unwrap());
            let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            send(ours, &borrowed, &text).unwrap();
            receiver.join().unwrap()
        });
        assert_eq!(got, text);
        let read = |descriptor: OwnedFd| {
            assert!(fcntl_getfd(&descriptor).unwrap().contains(FdFlags::CLOEXEC));
            let (mut file, mut text) = (File::from(descriptor), String::new());
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        let all: Vec<String> = descriptors.into_iter().map(read).collect();
        assert_eq!(all, (0..150).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn who_is_gone_and_who_says_too_much_is_an_error() {
        let (ours, theirs) = pair().unwrap();
        drop(theirs);
        assert!(send(ours, &[], b"x").is_err());
        let (ours, theirs) = pair().unwrap();
        send(ours, &[], b"four").unwrap();
        assert!(receive(&theirs, 3).is_err());
    }
}
