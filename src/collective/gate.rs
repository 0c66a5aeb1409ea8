//! A listening port that lets no peer in without proof, and that no peer can block.
//!
//! Every connection is served side by side, without threads and without ever waiting for one of them; who has not
//! proved itself within five seconds is dropped, and when too many knock at once the oldest goes first.

use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags};

use super::auth::{self, Caller, Door, HELLO, NONCE, Secret};
use super::deadline::{Clock, Deadline};
use super::socket::{self, Moved};

/// How long a caller may take to prove itself, µs.
pub(super) const HANDSHAKE: u64 = 5_000_000;
const MAX_PENDING: usize = 128;

/// What came of a caller.
pub(super) enum Knock {
    /// It is who it says it is.
    Authentic(Caller, TcpStream),
    /// It was sent away.
    Refused(SocketAddr, &'static str),
}

struct Pending {
    stream: TcpStream,
    from: SocketAddr,
    challenge: [u8; NONCE],
    hello: [u8; HELLO],
    filled: usize,
    deadline: Deadline,
}

/// A guarded port.
pub(super) struct Gate {
    listener: TcpListener,
    secret: Secret,
    door: Door,
    clock: Clock,
    pending: Vec<Pending>,
}

impl Gate {
    /// Guards `listener`, which becomes non-blocking.
    pub(super) fn new(
        listener: TcpListener,
        secret: Secret,
        door: Door,
        clock: Clock,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, door, clock, pending: Vec::new() })
    }

    /// Adds everything here that can become ready.
    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.extend(self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN)));
    }

    /// Does all that can be done without waiting.
    pub(super) fn advance(&mut self) -> Vec<Knock> {
        let mut knocks = Vec::new();
        while let Ok((stream, from)) = self.listener.accept() {
            // A connection that fails right here is like one that never came.
            if let Some(pending) = self.greet(stream, from) {
                if self.pending.len() >= MAX_PENDING {
                    let oldest = self.pending.remove(0);
                    knocks.push(Knock::Refused(oldest.from, "too many callers at once"));
                }
                self.pending.push(pending);
            }
        }
        for mut pending in std::mem::take(&mut self.pending) {
            match self.listen_to(&mut pending) {
                Heard::Everything(caller) => knocks.push(Knock::Authentic(caller, pending.stream)),
                Heard::NotYet => self.pending.push(pending),
                Heard::Wrong(why) => knocks.push(Knock::Refused(pending.from, why)),
            }
        }
        knocks
    }

    fn greet(&self, stream: TcpStream, from: SocketAddr) -> Option<Pending> {
        let challenge = auth::nonce()?;
        socket::prepare(&stream).ok()?;
        // 32 bytes always fit into the buffer of a connection that has carried nothing yet.
        if socket::write_some(&stream, &challenge) != Moved::Bytes(NONCE) {
            return None;
        }
        let deadline = Deadline::after(self.clock, HANDSHAKE);
        Some(Pending { stream, from, challenge, hello: [0; HELLO], filled: 0, deadline })
    }

    fn listen_to(&self, pending: &mut Pending) -> Heard {
        while pending.filled < HELLO {
            match socket::read_some(&pending.stream, &mut pending.hello[pending.filled..]) {
                Moved::Bytes(count) => pending.filled += count,
                Moved::Closed => return Heard::Wrong("it hung up before it proved itself"),
                Moved::Nothing if pending.deadline.passed() => {
                    return Heard::Wrong("it did not prove itself in time");
                }
                Moved::Nothing => return Heard::NotYet,
            }
        }
        let Some(caller) = auth::check_hello(&self.secret, self.door, &pending.challenge, &pending.hello)
        else {
            // Nothing depends on whether the refused hears of it.
            let _ = socket::write_some(&pending.stream, &auth::REFUSAL);
            return Heard::Wrong("its proof is wrong");
        };
        let answer = auth::answer(&self.secret, self.door, &pending.challenge, &pending.hello);
        if socket::write_some(&pending.stream, &answer) == Moved::Bytes(NONCE) {
            Heard::Everything(caller)
        } else {
            Heard::Wrong("it hung up")
        }
    }
}

enum Heard {
    NotYet,
    Everything(Caller),
    Wrong(&'static str),
}
