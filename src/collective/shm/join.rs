//! How the ranks of one host come to share memory: over a socket that only processes of this host can reach.
//!
//! Who seems to be on one host is known from what the ranks say of themselves (see `rendezvous`); whether they are is
//! proved here. The first of them listens on an abstract socket, whose name follows from the run's secret; the others
//! call it, both sides prove the secret, and files of memory are handed over. A rank that can't get through (another
//! network namespace, a container of its own) shares no memory and uses TCP; nothing is assumed from host names. Before
//! anyone counts on the others, each says that it could map what it was given; else all of them use TCP.

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

use super::super::auth::{self, Caller, Endpoint, HELLO, NONCE, Purpose, REFUSAL, Secret};
use super::super::deadline::Deadline;
use super::super::socket;
use super::arena::{Arena, View};
use super::board::Board;
use super::host::Host;
use super::life::{Life, Lives};
use super::mapping;
use super::wait::Patience;

/// The most files in one message; the kernel's limit is 253. Tests have as many ranks as several messages need.
const FILES: usize = if cfg!(test) { 3 } else { 250 };
/// The most bytes of a word with which a rank says that it can, or why not.
const WORD: usize = 256;
/// How long a caller on the socket may take, µs.
const HANDSHAKE: u64 = 2_000_000;
/// How long a caller waits on after its deadline for the leader, which hears one after the other, µs.
const TURNS: u64 = 10_000_000;
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

    fn endpoint(&self) -> Endpoint {
        Endpoint { purpose: Purpose::Memory, world: self.world, owner: self.leader() }
    }

    fn address(&self) -> io::Result<UnixAddr> {
        let name = self.secret.name_of(&format!("memory of rank {}", self.leader()));
        UnixAddr::from_abstract_name(format!("hvtui-{name}"))
    }

    /// The ranks that share memory in the end, in order, and this rank's end of it; `None` when no other seems to be on
    /// this host.
    ///
    /// # Errors
    /// Why this rank shares no memory, though others seem to be on its host. All that would have shared it with this one
    /// learn of that.
    pub(in crate::collective) fn run(&self) -> io::Result<Option<(Vec<u32>, Host, Lives)>> {
        if self.members.len() < 2 {
            return Ok(None);
        }
        let begun = Arena::create(arena_bytes()).and_then(|arena| Ok((Life::begin(arena.file())?, arena)));
        if self.rank == self.leader() {
            let (life, arena) = begun?;
            return self.lead(arena, life).map(Some);
        }
        let stream = self.call()?;
        match begun {
            Ok((life, arena)) => self.follow(&stream, arena, life).map(Some),
            Err(error) => {
                refuse(&stream, &error);
                Err(error)
            }
        }
    }

    /// This rank's end of what is shared.
    fn host(&self, arena: Arena, life: Life, shared: Shared) -> io::Result<(Vec<u32>, Host, Lives)> {
        let Shared { ranks, board, files } = shared;
        let me = ranks.iter().position(|rank| *rank == self.rank);
        let me = me.ok_or_else(|| io::Error::other("this rank is not on its own host's list"))?;
        let files: Vec<Arc<OwnedFd>> = files.into_iter().map(Arc::new).collect();
        let views = files.iter().map(|file| View::of(Arc::clone(file))).collect::<io::Result<_>>()?;
        let patience = Patience::fitting(ranks.len(), cores(), self.deadline.clock());
        Ok((ranks, Host::new(board, arena, views, me, patience), Lives::new(life, files)))
    }

    fn lead(&self, arena: Arena, life: Life) -> io::Result<(Vec<u32>, Host, Lives)> {
        let listener = UnixListener::bind_addr(&self.address()?).map_err(|error| {
            io::Error::other(format!("another run has its secret and its network: {error}"))
        })?;
        listener.set_nonblocking(true)?;
        let mut states: Vec<MemberState> = self.members[1..].iter().map(|_| MemberState::Awaited).collect();
        while states.iter().any(|state| matches!(state, MemberState::Awaited)) && !self.deadline.passed() {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Who fails here has only itself to blame; it is not among those that share.
                    if let Ok(Some((rank, file))) = self.authenticate_member(&stream)
                        && let Some(at) = self.members[1..].iter().position(|member| *member == rank)
                    {
                        states[at] =
                            file.map_or(MemberState::Excluded, |file| MemberState::Connected(stream, file));
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
        for (rank, state) in self.members[1..].iter().zip(states) {
            if let MemberState::Connected(stream, file) = state {
                ranks.push(*rank);
                files.push(file);
                streams.push((*rank, stream));
            }
        }
        if streams.is_empty() {
            return Err(io::Error::other("no other rank of this host got through to its socket"));
        }
        let board = Board::create(ranks.len())?;
        // One after the other: files that were not received yet count against a limit of this user.
        let told = streams.iter().try_for_each(|(rank, stream)| {
            self.tell(stream, &ranks, &board, &files)
                .map_err(|error| io::Error::other(format!("rank {rank}: {error}")))
        });
        let shared = told.and_then(|()| self.host(arena, life, Shared { ranks, board, files }));
        for (_, stream) in &streams {
            match &shared {
                Ok(_) => send(stream, &[ACK], &[])?,
                Err(error) => refuse(stream, error),
            }
        }
        shared
    }

    /// Gives a rank of the host all that is shared, and hears whether it can use it.
    fn tell(&self, stream: &UnixStream, ranks: &[u32], board: &Board, files: &[OwnedFd]) -> io::Result<()> {
        let mut text = (ranks.len() as u32).to_le_bytes().to_vec();
        text.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
        // A rank that has no processor for a while would cost all of them their shared memory.
        let patience = self.deadline.remaining().max(HANDSHAKE);
        let deadline = Deadline::after(self.deadline.clock(), patience);
        socket::wait_one(stream, PollFlags::OUT, deadline)?;
        send(stream, &text, &[board.file().as_fd()])?;
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        for files in files.chunks(FILES) {
            socket::wait_one(stream, PollFlags::OUT, deadline)?;
            send(stream, &[ACK], files)?;
        }
        receive_ack(stream, deadline)
    }

    /// The rank that calls, when it has proved itself, and its arena, if it has one.
    fn authenticate_member(&self, stream: &UnixStream) -> io::Result<Option<(u32, Option<OwnedFd>)>> {
        stream.set_nonblocking(true)?;
        if rustix::net::sockopt::socket_peercred(stream)?.uid != rustix::process::geteuid() {
            return Ok(None);
        }
        let deadline = self.deadline.within(HANDSHAKE);
        let challenge = auth::nonce().ok_or_else(no_random)?;
        socket::write_all(stream, &challenge, deadline)?;
        let mut hello = [0; HELLO];
        socket::read_all(stream, &mut hello, deadline)?;
        let Some(caller) = auth::check_hello(self.secret, self.endpoint(), &challenge, &hello) else {
            // Nothing depends on whether the refused hears of it.
            let _ = socket::write_some(stream, &REFUSAL);
            return Ok(None);
        };
        let answer = auth::answer(self.secret, self.endpoint(), &challenge, &hello);
        socket::write_all(stream, &answer, deadline)?;
        let (_, mut files) = receive(stream, WORD, deadline)?;
        Ok(Some((caller.rank, files.pop().filter(mapping::is_sealed))))
    }

    /// A connection to the leader, proved from both sides. One that does not listen yet, or has hung up on a rank that had no
    /// processor for a while, is called again.
    fn call(&self) -> io::Result<UnixStream> {
        let address = self.address()?;
        loop {
            match UnixStream::connect_addr(&address).and_then(|stream| self.prove(stream)) {
                Ok(Some(stream)) => return Ok(stream),
                Ok(None) => return Err(io::Error::other("who listens there does not know the run's secret")),
                Err(error) if self.deadline.passed() => {
                    let leader = self.leader();
                    return Err(io::Error::other(format!("no way to the socket of rank {leader}: {error}")));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// The same connection, proved from both sides; `None` where the other side can't prove itself.
    fn prove(&self, stream: UnixStream) -> io::Result<Option<UnixStream>> {
        stream.set_nonblocking(true)?;
        // The leader serves one caller at a time.
        let deadline = self.deadline.within(u64::MAX);
        let mut challenge = [0; NONCE];
        socket::read_all(&stream, &mut challenge, deadline)?;
        let own = auth::nonce().ok_or_else(no_random)?;
        // There is no address to tell; what is signed has its place for one all the same.
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let caller = Caller { rank: self.rank, channel: 0, address: nowhere, host: [0; 16] };
        let hello = auth::hello(self.secret, self.endpoint(), caller, &challenge, &own);
        socket::write_all(&stream, &hello, deadline)?;
        let mut answer = [0; NONCE];
        socket::read_all(&stream, &mut answer, deadline)?;
        let is_proved = auth::check_answer(self.secret, self.endpoint(), &challenge, &hello, &answer);
        Ok(is_proved.then_some(stream))
    }

    fn follow(&self, stream: &UnixStream, arena: Arena, life: Life) -> io::Result<(Vec<u32>, Host, Lives)> {
        send(stream, &[ACK], &[arena.file().as_fd()])?;
        // The leader waits for others until its deadline, and then speaks.
        let patience = Deadline::after(self.deadline.clock(), self.deadline.remaining() + TURNS);
        let ours = self.receive_shared(stream, patience).and_then(|shared| self.host(arena, life, shared));
        match &ours {
            Ok(_) => send(stream, &[ACK], &[])?,
            Err(error) => refuse(stream, error),
        }
        let told = receive_ack(stream, patience);
        // the leader tells all of them, the one whose reason it is as well
        let ours = ours?;
        told.map(|()| ours)
    }

    /// What the leader gives to all.
    fn receive_shared(&self, stream: &UnixStream, patience: Deadline) -> io::Result<Shared> {
        let (text, mut board) = receive(stream, 4 + 4 * self.members.len(), patience)?;
        let mut numbers =
            text.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let count = numbers.next().unwrap_or(0) as usize;
        let ranks: Vec<u32> = numbers.take(count).collect();
        let board = board.pop().ok_or_else(|| io::Error::other("no memory came with the list of ranks"))?;
        let mut files = Vec::new();
        // A message from which the kernel drops files, because this process has too many open, comes with fewer.
        for _ in 0..count.min(self.members.len()).div_ceil(FILES) {
            files.extend(receive(stream, 1, patience)?.1);
        }
        if ranks.len() != count || files.len() != count {
            return Err(io::Error::other(
                "not all memory came with the list of ranks (is there a limit, `ulimit -n`?)",
            ));
        }
        Ok(Shared { board: Board::of(board, count)?, ranks, files })
    }
}

/// What the ranks of a host share: who they are, the board, and all their arenas.
struct Shared {
    ranks: Vec<u32>,
    board: Board,
    files: Vec<OwnedFd>,
}

/// What the leader knows of another rank that seems to be on its host.
enum MemberState {
    Awaited,
    Connected(UnixStream, OwnedFd),
    /// It can't share memory.
    Excluded,
}

/// The acknowledgement; any other text is the reason for a refusal.
const ACK: u8 = 1;

/// Says why this rank can't share memory.
fn refuse(stream: &UnixStream, why: &io::Error) {
    let mut text = why.to_string().into_bytes();
    text.truncate(WORD);
    // Who has gone learns it by the end of the connection.
    let _ = send(stream, &text, &[]);
}

/// Waits for the other side's acknowledgement.
fn receive_ack(stream: &UnixStream, deadline: Deadline) -> io::Result<()> {
    match receive(stream, WORD, deadline)? {
        (word, _) if word == [ACK] => Ok(()),
        (why, _) => Err(io::Error::other(String::from_utf8_lossy(&why).into_owned())),
    }
}

fn no_random() -> io::Error {
    io::Error::other("the system gives no random bytes")
}

/// Sends `text` with `files`.
fn send(stream: &UnixStream, text: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
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

/// The length of an arena: as long as the host's memory.
fn arena_bytes() -> usize {
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as usize).saturating_mul(info.mem_unit.max(1) as usize);
    memory.next_multiple_of(1 << 21).max(1 << 30)
}

/// Cores that this process may use.
pub(in crate::collective) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranks_share_memory_than_one_message_carries_files_for() {
        let secret = Secret::from_hex(&format!("{:064x}", std::process::id())).unwrap();
        let members: Vec<u32> = (0..8).collect();
        let (secret, members) = (&secret, &members[..]);
        let joined = std::thread::scope(|scope| {
            let ranks = [0, 1, 2, 3, 4, 5, 6, 7].map(|rank| {
                let deadline = Deadline::after(crate::clock::host_now, 60_000_000);
                let join = Join { secret, world: 8, rank, members, deadline };
                scope.spawn(move || join.run().unwrap().map(|(ranks, host, _)| (ranks, host.ranks())))
            });
            ranks.map(|rank| rank.join().unwrap())
        });
        for shared in joined {
            assert_eq!(shared, Some((members.to_vec(), 8)));
        }
    }

    #[test]
    fn a_leader_that_has_hung_up_is_called_again() {
        let secret = Secret::from_hex(&format!("{:063x}1", std::process::id())).unwrap();
        let (secret, members) = (&secret, &[0, 1][..]);
        let deadline = Deadline::after(crate::clock::host_now, 60_000_000);
        let of = |rank| Join { secret, world: 2, rank, members, deadline };
        let leader = of(0);
        let listener = UnixListener::bind_addr(&leader.address().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let member = scope.spawn(move || of(1).call().map(drop));
            // it took too long
            drop(listener.accept().unwrap());
            let (stream, _) = listener.accept().unwrap();
            let heard = leader.authenticate_member(&stream);
            member.join().unwrap().unwrap();
            assert_eq!(
                heard.unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof,
                "it has proved itself, and left"
            );
        });
    }

    #[test]
    fn ranks_learn_why_one_of_them_can_not_share_memory() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let deadline = Deadline::after(crate::clock::host_now, 60_000_000);
        for end in [&ours, &theirs] {
            end.set_nonblocking(true).unwrap();
        }
        send(&theirs, &[ACK], &[]).unwrap();
        receive_ack(&ours, deadline).unwrap();
        refuse(&theirs, &io::Error::other("Cannot allocate memory"));
        assert_eq!(receive_ack(&ours, deadline).unwrap_err().to_string(), "Cannot allocate memory");
        drop(theirs);
        assert_eq!(receive_ack(&ours, deadline).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
