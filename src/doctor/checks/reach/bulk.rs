//! Whether packets of full size come through: of two connections to a host's door one says little and one so much that its packets are
//! as large as they get. Each has come whole where the door closes it after its end. One that answers little alone has a way to it on
//! which large packets are lost, and no word of that comes back.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, recv, send, shutdown,
    socket_with,
};

use crate::clock;
use crate::doctor::door::BULK;

/// More than the largest packet of any network, and what fits into the smallest.
const SIZES: [usize; 2] = [BULK, 64];

/// One connection and what of it has happened.
struct Exchange {
    target: usize,
    size: usize,
    socket: OwnedFd,
    sent: usize,
    /// It was closed by the door after its end; `None` while it goes on.
    whole: Option<bool>,
}

/// For each of these doors whether what is large comes through where what is small does; `None` where even that does not, or the door
/// takes nothing. Takes no longer than `patience`.
pub(super) fn large_passes(doors: &[SocketAddr], patience: Duration) -> Vec<Option<bool>> {
    let begun = clock::host_now().0;
    let mut all: Vec<Exchange> = doors
        .iter()
        .enumerate()
        .flat_map(|(target, door)| {
            SIZES.into_iter().filter_map(move |size| Exchange::begin(target, size, door))
        })
        .collect();
    let mut is_late = false;
    while !is_late {
        let mut open: Vec<&mut Exchange> = all.iter_mut().filter(|one| one.whole.is_none()).collect();
        if open.is_empty() {
            break;
        }
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        let left = patience.saturating_sub(gone);
        // a last look: what came while this process had no processor has come
        is_late = left.is_zero();
        let Ok(left) = Timespec::try_from(left) else { break };
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|one| PollFd::new(&one.socket, one.wants())).collect();
        let ready = match poll(&mut polled, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => polled.iter().map(|one| !one.revents().is_empty()).collect::<Vec<bool>>(),
            Err(_) => break,
        };
        for (one, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            one.go_on();
        }
    }
    let of = |target: usize, size: usize| {
        all.iter().find(|one| (one.target, one.size) == (target, size)).and_then(|one| one.whole)
    };
    // what never connected was lost as any packet may be
    let is_connected =
        |target: usize| all.iter().any(|one| (one.target, one.size) == (target, BULK) && one.sent > 0);
    let judge = |target| match SIZES.map(|size| of(target, size)) {
        [Some(true), _] => Some(true),
        // not a word of it, while the other one is through
        [None, Some(true)] if is_connected(target) => Some(false),
        _ => None,
    };
    (0..doors.len()).map(judge).collect()
}

impl Exchange {
    fn begin(target: usize, size: usize, door: &SocketAddr) -> Option<Self> {
        let family = if door.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None).ok()?;
        match connect(&socket, door) {
            Ok(()) | Err(Errno::INPROGRESS) => Some(Self { target, size, socket, sent: 0, whole: None }),
            Err(_) => None,
        }
    }

    fn wants(&self) -> PollFlags {
        if self.sent < self.size { PollFlags::OUT } else { PollFlags::IN }
    }

    fn go_on(&mut self) {
        let told = if self.sent < self.size { self.write() } else { self.read() };
        match told {
            Ok(whole) => self.whole = whole.then_some(true),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // an older hvtui's door does not listen to what is said
            Err(_) => self.whole = Some(false),
        }
    }

    fn write(&mut self) -> Result<bool, Errno> {
        let zeros = [0_u8; BULK];
        self.sent += send(&self.socket, &zeros[self.sent..self.size], SendFlags::NOSIGNAL)?;
        if self.sent == self.size {
            shutdown(&self.socket, Shutdown::Write)?;
        }
        Ok(false)
    }

    /// The door says nothing: what comes is its end.
    fn read(&self) -> Result<bool, Errno> {
        let mut buffer = [0_u8; 1];
        let (count, _) = recv(&self.socket, &mut buffer, RecvFlags::empty())?;
        Ok(count == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// A door that takes so many bytes of a connection, and is silent beyond.
    fn door(most: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming().take(2).flatten() {
                let mut stream = stream;
                let mut bytes = Vec::new();
                stream.by_ref().take(most as u64).read_to_end(&mut bytes).unwrap();
                if bytes.len() == most {
                    kept.push(stream);
                }
            }
            std::thread::park();
        });
        address
    }

    #[test]
    fn what_is_large_passes_or_is_lost_and_what_closes_at_once_says_nothing() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let doors = [door(usize::MAX), door(1000), gone];
        assert_eq!(large_passes(&doors, Duration::from_millis(300)), [Some(true), Some(false), None]);
        assert!(large_passes(&[], Duration::from_millis(300)).is_empty());
    }
}
