//! How the ranks of one host come to share memory: over a socket that only processes of this host can reach.
//!
//! Who seems to be on one host is known from what the ranks say of themselves (see `rendezvous`); whether they are is
//! proved here. The first of them listens on an abstract socket, whose name follows from the run's secret; the others
//! call it, both sides prove the secret, and files of memory are handed over. A rank that can't get through (another
//! network namespace, a container of its own) shares no memory and uses TCP; nothing is assumed from host names.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::super::auth::{self, Caller, Door, HELLO, NONCE, Purpose, REFUSAL, Secret};
use super::super::deadline::Deadline;
use super::super::socket;
use super::arena::Arena;
use super::board::Board;
use super::host::Host;
use super::life::{Life, Lives};
use super::mapping::{self, Mapping};
use super::wait::Patience;

/// The most ranks that one message can hand memory to: the kernel's limit of 253 files, less the board's.
pub(in crate::collective) const MOST: usize = 250;
/// How long a caller on the socket may take, µs.
const HANDSHAKE: u64 = 2_000_000;
const PAUSE: Duration = Duration::from_millis(5);

/// Who wants to share memory with whom.
pub(in crate::collective) struct Join<'a> {
    pub(in crate::collective) secret: &'a Secret,
    pub(in crate::collective) world: u32,
    pub(in crate::collective) rank: u32,
    /// The ranks that seem to be on this host, in order, this one among them; the first leads.
    pub(in crate::collective) members: &'a [u32],
    /// Until when the others are waited for.
    pub(in crate::collective) deadline: Deadline,
}

impl Join<'_> {
    fn leader(&self) -> u32 {
        self.members[0]
    }

    fn door(&self) -> Door {
        Door { purpose: Purpose::Memory, world: self.world, owner: self.leader() }
    }

    fn address(&self) -> io::Result<UnixAddr> {
        let name = self.secret.name_of(&format!("memory of rank {}", self.leader()));
        UnixAddr::from_abstract_name(format!("hvtui-{name}"))
    }

    /// The ranks that share memory in the end, in order, and this rank's end of it; `None` when it is alone.
    pub(in crate::collective) fn run(&self) -> io::Result<Option<(Vec<u32>, Host, Lives)>> {
        if self.members.len() < 2 || self.members.len() > MOST {
            return Ok(None);
        }
        let arena = Arena::create(arena_bytes())?;
        let life = Life::begin(arena.file())?;
        let joined = if self.rank == self.leader() { self.lead(&arena)? } else { self.follow(&arena)? };
        let Some((ranks, board, files)) = joined else { return Ok(None) };
        let mut arenas = Vec::with_capacity(ranks.len());
        for (rank, file) in ranks.iter().zip(files) {
            // This rank's own arena is mapped once.
            let own = *rank == self.rank;
            arenas.push(if own { Arc::clone(arena.mapping()) } else { Arc::new(Mapping::of(file)?) });
        }
        let me = ranks.iter().position(|rank| *rank == self.rank);
        let me = me.ok_or_else(|| io::Error::other("this rank is not on its own host's list"))?;
        let patience = Patience::fitting(ranks.len(), cores());
        let lives = Lives::new(life, arenas.clone());
        Ok(Some((ranks, Host::new(board, arena, arenas, me, patience), lives)))
    }

    fn lead(&self, arena: &Arena) -> io::Result<Option<Joined>> {
        // The name is taken where two runs share a secret and a network: then one of them does without.
        let Ok(listener) = UnixListener::bind_addr(&self.address()?) else { return Ok(None) };
        listener.set_nonblocking(true)?;
        let mut guests: Vec<Option<(UnixStream, OwnedFd)>> = self.members[1..].iter().map(|_| None).collect();
        while guests.iter().any(Option::is_none) && !self.deadline.passed() {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Who fails here has only itself to blame; it is not among those that share.
                    if let Ok(Some((rank, file))) = self.receive_guest(&stream)
                        && let Some(at) = self.members[1..].iter().position(|member| *member == rank)
                    {
                        guests[at] = Some((stream, file));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket::wait_one(&listener, PollFlags::IN, self.deadline.within(100_000))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut ranks = vec![self.rank];
        let mut files = vec![arena.file().try_clone()?];
        let mut streams = Vec::new();
        for (rank, guest) in self.members[1..].iter().zip(guests) {
            if let Some((stream, file)) = guest {
                ranks.push(*rank);
                files.push(file);
                streams.push(stream);
            }
        }
        if streams.is_empty() {
            return Ok(None);
        }
        let board = Board::create(ranks.len())?;
        let mut text = (ranks.len() as u32).to_le_bytes().to_vec();
        text.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
        let mut handed: Vec<BorrowedFd<'_>> = vec![board.file().as_fd()];
        handed.extend(files.iter().map(AsFd::as_fd));
        for stream in &streams {
            socket::wait_one(stream, PollFlags::OUT, self.deadline.within(HANDSHAKE))?;
            send(stream, &text, &handed)?;
        }
        drop(handed);
        Ok(Some((ranks, board, files)))
    }

    /// The rank that calls and its arena, when it has proved itself.
    fn receive_guest(&self, stream: &UnixStream) -> io::Result<Option<(u32, OwnedFd)>> {
        stream.set_nonblocking(true)?;
        if rustix::net::sockopt::socket_peercred(stream)?.uid != rustix::process::geteuid() {
            return Ok(None);
        }
        let deadline = self.deadline.within(HANDSHAKE);
        let challenge = auth::nonce().ok_or_else(no_random)?;
        socket::write_all(stream, &challenge, deadline)?;
        let mut hello = [0; HELLO];
        socket::read_all(stream, &mut hello, deadline)?;
        let Some(caller) = auth::check_hello(self.secret, self.door(), &challenge, &hello) else {
            // Nothing depends on whether the refused hears of it.
            let _ = socket::write_some(stream, &REFUSAL);
            return Ok(None);
        };
        let answer = auth::answer(self.secret, self.door(), &challenge, &hello);
        socket::write_all(stream, &answer, deadline)?;
        let (_, mut files) = receive(stream, 1, deadline)?;
        let file = files.pop().filter(mapping::is_sealed);
        Ok(file.map(|file| (caller.rank, file)))
    }

    fn follow(&self, arena: &Arena) -> io::Result<Option<Joined>> {
        let address = self.address()?;
        let stream = loop {
            match UnixStream::connect_addr(&address) {
                Ok(stream) => break stream,
                Err(_) if self.deadline.passed() => return Ok(None),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        stream.set_nonblocking(true)?;
        // The leader serves one caller at a time.
        let deadline = self.deadline.within(u64::MAX);
        let mut challenge = [0; NONCE];
        socket::read_all(&stream, &mut challenge, deadline)?;
        let own = auth::nonce().ok_or_else(no_random)?;
        // There is no address to tell; what is signed has its place for one all the same.
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let caller = Caller { rank: self.rank, lane: 0, address: nowhere, host: [0; 16] };
        let hello = auth::hello(self.secret, self.door(), caller, &challenge, &own);
        socket::write_all(&stream, &hello, deadline)?;
        let mut answer = [0; NONCE];
        socket::read_all(&stream, &mut answer, deadline)?;
        if !auth::check_answer(self.secret, self.door(), &challenge, &hello, &answer) {
            return Err(io::Error::other("who listens there does not know the run's secret"));
        }
        send(&stream, &[1], &[arena.file().as_fd()])?;
        let bytes = 4 + 4 * self.members.len();
        // The leader waits for others until its deadline, and then speaks.
        let patience = Deadline::after(self.deadline.clock(), self.deadline.remaining() + HANDSHAKE);
        let (text, files) = receive(&stream, bytes, patience)?;
        let mut numbers =
            text.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let count = numbers.next().unwrap_or(0) as usize;
        let ranks: Vec<u32> = numbers.take(count).collect();
        let mut files = files.into_iter();
        let board = files.next().ok_or_else(|| io::Error::other("no memory came with the list of ranks"))?;
        let files: Vec<OwnedFd> = files.collect();
        if ranks.len() != count || files.len() != count {
            return Err(io::Error::other("the list of ranks does not match the memory that came with it"));
        }
        Ok(Some((ranks, Board::of(board, count)?, files)))
    }
}

type Joined = (Vec<u32>, Board, Vec<OwnedFd>);

fn no_random() -> io::Error {
    io::Error::other("the system gives no random bytes")
}

/// Sends `text` with `files`.
fn send(stream: &UnixStream, text: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    let sent = rustix::net::sendmsg(stream, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == text.len() { Ok(()) } else { Err(io::Error::other("the message was cut")) }
}

/// Receives one message of at most `most` bytes, and its files.
fn receive(stream: &UnixStream, most: usize, deadline: Deadline) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; most];
    let mut files = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST + 1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, flags) {
            Ok(message) if message.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(message) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(handed) = message {
                        files.extend(handed);
                    }
                }
                text.truncate(message.bytes);
                return Ok((text, files));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) if deadline.passed() => return Err(io::ErrorKind::TimedOut.into()),
            Err(rustix::io::Errno::AGAIN) => socket::wait_one(stream, PollFlags::IN, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Addresses an arena has: as many as the host has memory.
fn arena_bytes() -> usize {
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as usize).saturating_mul(info.mem_unit.max(1) as usize);
    memory.next_multiple_of(1 << 21).max(1 << 30)
}

/// Cores that this process may use.
pub(in crate::collective) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
