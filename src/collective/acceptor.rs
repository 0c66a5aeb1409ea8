//! A listening port that lets no peer in without proof, and that no peer can block.
//!
//! Every connection is served side by side, without threads and without ever waiting for one of them; who has not
//! proved itself within five seconds is dropped, and when too many are pending the oldest goes first.

use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags};

use super::auth::{self, Caller, Endpoint, HELLO, NONCE, Secret};
use super::deadline::{Clock, Deadline};
use super::socket::{self, Moved};

/// How long a caller may take to prove itself, µs.
pub(super) const HANDSHAKE: u64 = 5_000_000;
const MAX_PENDING: usize = 128;

/// What came of a caller.
pub(super) enum ConnectionAttempt {
    /// It is who it says it is.
    Authentic(Caller, TcpStream),
    /// It was sent away.
    Refused(SocketAddr, &'static str),
}

struct PendingHandshake {
    stream: TcpStream,
    from: SocketAddr,
    challenge: [u8; NONCE],
    hello: [u8; HELLO],
    filled: usize,
    deadline: Deadline,
}

/// A guarded port.
pub(super) struct Acceptor {
    listener: TcpListener,
    secret: Secret,
    endpoint: Endpoint,
    clock: Clock,
    pending: Vec<PendingHandshake>,
}

impl Acceptor {
    /// Guards `listener`, which becomes non-blocking.
    pub(super) fn new(
        listener: TcpListener,
        secret: Secret,
        endpoint: Endpoint,
        clock: Clock,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, endpoint, clock, pending: Vec::new() })
    }

    /// Adds everything here that can become ready.
    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.extend(self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN)));
    }

    /// Does all that can be done without waiting.
    pub(super) fn advance(&mut self) -> Vec<ConnectionAttempt> {
        let mut attempts = Vec::new();
        while let Ok((stream, from)) = self.listener.accept() {
            // A connection that fails right here is like one that never came.
            if let Some(pending) = self.start_handshake(stream, from) {
                if self.pending.len() >= MAX_PENDING {
                    let oldest = self.pending.remove(0);
                    attempts.push(ConnectionAttempt::Refused(oldest.from, "too many callers at once"));
                }
                self.pending.push(pending);
            }
        }
        for mut pending in std::mem::take(&mut self.pending) {
            match self.continue_handshake(&mut pending) {
                HandshakeState::Authenticated(caller) => {
                    attempts.push(ConnectionAttempt::Authentic(caller, pending.stream));
                }
                HandshakeState::Incomplete => self.pending.push(pending),
                HandshakeState::Failed(why) => attempts.push(ConnectionAttempt::Refused(pending.from, why)),
            }
        }
        attempts
    }

    fn start_handshake(&self, stream: TcpStream, from: SocketAddr) -> Option<PendingHandshake> {
        let challenge = auth::nonce()?;
        socket::prepare(&stream).ok()?;
        // 32 bytes always fit into the buffer of a connection that has carried nothing yet.
        if socket::write_some(&stream, &challenge) != Moved::Bytes(NONCE) {
            return None;
        }
        let deadline = Deadline::after(self.clock, HANDSHAKE);
        Some(PendingHandshake { stream, from, challenge, hello: [0; HELLO], filled: 0, deadline })
    }

    fn continue_handshake(&self, pending: &mut PendingHandshake) -> HandshakeState {
        while pending.filled < HELLO {
            match socket::read_some(&pending.stream, &mut pending.hello[pending.filled..]) {
                Moved::Bytes(count) => pending.filled += count,
                Moved::Closed => return HandshakeState::Failed("it hung up before it proved itself"),
                Moved::Nothing if pending.deadline.passed() => {
                    return HandshakeState::Failed("it did not prove itself in time");
                }
                Moved::Nothing => return HandshakeState::Incomplete,
            }
        }
        let Some(caller) = auth::check_hello(&self.secret, self.endpoint, &pending.challenge, &pending.hello)
        else {
            // Nothing depends on whether the refused hears of it.
            let _ = socket::write_some(&pending.stream, &auth::REFUSAL);
            return HandshakeState::Failed("its proof is wrong");
        };
        let answer = auth::answer(&self.secret, self.endpoint, &pending.challenge, &pending.hello);
        if socket::write_some(&pending.stream, &answer) == Moved::Bytes(NONCE) {
            HandshakeState::Authenticated(caller)
        } else {
            HandshakeState::Failed("it hung up")
        }
    }
}

enum HandshakeState {
    Incomplete,
    Authenticated(Caller),
    Failed(&'static str),
}
