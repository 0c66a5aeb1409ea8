//! The descriptor by which a rank speaks with its launcher's process manager. Hydra's ranks inherit one and find its
//! number in `PMI_FD`; a rank that is not the child of its shim gets it from the shim, beside the shim's first bytes.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The variable that holds its number.
const VARIABLE: &str = "PMI_FD";

/// Sends the first bytes, and beside them the descriptor that this process has inherited for its rank, if any. It stays
/// open here: the manager must not take its end for the rank's before this process has ended as the rank.
#[expect(unsafe_code, reason = "an inherited descriptor has no owner whose safe type could be borrowed")]
pub(super) fn hand_over(stream: impl AsFd, bytes: [u8; 8]) -> io::Result<()> {
    let number = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    // SAFETY: the caller has one thread, which closes nothing; that the number is open is asked first.
    let inherited =
        number.filter(|number| *number > 2).map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let open = inherited.filter(|descriptor| fcntl_getfd(descriptor).is_ok());
    send(stream, bytes, open.as_slice())
}

fn send(stream: impl AsFd, bytes: [u8; 8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    loop {
        match sendmsg(&stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            // An empty socket has room for all of them.
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// Takes the first bytes, and the descriptor that may come beside them.
pub(super) async fn take(stream: &UnixStream) -> io::Result<([u8; 8], Option<OwnedFd>)> {
    let (mut bytes, mut at, mut found) = ([0; 8], 0, None);
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive(stream, rest)) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((count, descriptor)) => {
                at += count;
                found = descriptor.or(found);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((bytes, found))
}

fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            found = descriptors.last().or(found);
        }
    }
    Ok((got.bytes, found))
}

/// Lets the next child have the descriptor, and says in its environment which one it is.
pub(super) fn lend(descriptor: &OwnedFd) -> io::Result<(OsString, OsString)> {
    fcntl_setfd(descriptor, FdFlags::empty())?;
    Ok((VARIABLE.into(), descriptor.as_raw_fd().to_string().into()))
}

/// Whether a variable names a descriptor of another process.
pub(super) fn is_variable(name: &OsStr) -> bool {
    name == VARIABLE
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[tokio::test]
    async fn a_descriptor_comes_beside_the_first_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"manager").unwrap();
        for files in [&[file.as_fd()][..], &[]] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            send(&ours, *b"12345678", files).unwrap();
            let (bytes, descriptor) = take(&theirs).await.unwrap();
            assert_eq!((&bytes, descriptor.is_some()), (b"12345678", !files.is_empty()));
            let Some(descriptor) = descriptor else { continue };
            assert!(fcntl_getfd(&descriptor).unwrap().contains(FdFlags::CLOEXEC), "no other child gets it");
            let (name, number) = lend(&descriptor).unwrap();
            assert!(!fcntl_getfd(&descriptor).unwrap().contains(FdFlags::CLOEXEC));
            assert_eq!((is_variable(&name), number), (true, descriptor.as_raw_fd().to_string().into()));
            let (mut same, mut text) = (std::fs::File::from(descriptor), String::new());
            same.rewind().unwrap();
            same.read_to_string(&mut text).unwrap();
            assert_eq!(text, "manager");
        }
    }
}
