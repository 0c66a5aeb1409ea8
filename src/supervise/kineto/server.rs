//! The daemon that the libkineto of a run's ranks asks, on a thread of its own: it must answer within 50 ms.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, recvmsg,
    sockopt::set_socket_passcred,
};

use super::protocol::{self, Message};
use super::{ASK, Ask, KNOWN, RANK, TRACES, Tracer, Tracers, make_sockets, make_traces, reason};
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::procs::identity::Identity;
use crate::procs::marks;
use crate::procs::memory;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;

/// Processes of a run on one host that are known: more than any host has.
const MOST_CLIENTS: usize = 4096;
/// Lines about wrong datagrams in the supervisor's log.
const MOST_WORDS: u32 = 20;
/// What launchers call a process's number in the training.
const NUMBERS: [&str; 5] = ["RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// A daemon that is there until this is dropped.
pub(in crate::supervise) struct Server {
    /// The thread ends when it is closed.
    alive: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    sockets: PathBuf,
    own: bool,
}

impl Server {
    /// Listens for the ranks of `run`. Where that can't be, it is written down why: the run goes on all the same, and
    /// its ranks are not told of a daemon. With `again`, where an earlier supervisor has listened.
    ///
    /// # Errors
    /// For people: why nothing listens.
    pub(in crate::supervise) fn start(
        dir: &RunDir,
        run: &HostRun,
        again: bool,
        log: Option<File>,
    ) -> Result<Self, String> {
        let former = if again { super::known(dir).ok().flatten() } else { None };
        let started = Self::listen(dir, run, former, log);
        started.map_err(|error| {
            let error = reason(&error);
            // A disk that is full is no reason to fail the run.
            let _ = dir.write_json(KNOWN, &Tracers { error: Some(error.clone()), ..Tracers::default() });
            error
        })
    }

    fn listen(
        dir: &RunDir,
        run: &HostRun,
        former: Option<Tracers>,
        log: Option<File>,
    ) -> Result<Self, SuperviseError> {
        make_traces(dir)?;
        let mut known = former.unwrap_or_default();
        let sockets = match known.sockets.take() {
            // where the ranks that run already look for it; ours alone still, or refused
            Some(sockets) => RunDir::open(&sockets)?.path().to_owned(),
            None => make_sockets(dir, &std::env::temp_dir())?,
        };
        let path = sockets.join(protocol::DAEMON);
        let failed = |e: io::Error| SuperviseError::io("listen on", &path, e);
        // Of a supervisor that has died.
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        set_socket_passcred(&socket, true).map_err(|e| failed(e.into()))?;
        known.sockets = Some(sockets.clone());
        known.error = None;
        let mut desk =
            Desk { dir: RunDir::open(dir.path())?, run: run.clone(), sockets, known, log, said: 0 };
        desk.store()?;
        let (sockets, own) = (desk.sockets.clone(), desk.sockets == dir.path().join(TRACES));
        let (ended, alive) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let thread = std::thread::Builder::new().name("kineto".to_owned());
        let thread = thread.spawn(move || desk.serve(&socket, &ended)).map_err(failed)?;
        Ok(Self { alive: Some(alive), thread: Some(thread), sockets, own })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there is no reason to fail the run.
            let _ = thread.join();
        }
        if self.own {
            let _ = std::fs::remove_file(self.sockets.join(protocol::DAEMON));
        } else {
            // Ours alone, with the sockets of processes that have ended.
            let _ = std::fs::remove_dir_all(&self.sockets);
        }
    }
}

/// What the thread has.
struct Desk {
    dir: RunDir,
    run: HostRun,
    sockets: PathBuf,
    known: Tracers,
    log: Option<File>,
    said: u32,
}

/// A datagram, and who the kernel says has sent it.
struct Received {
    pid: u32,
    from: PathBuf,
    bytes: Vec<u8>,
}

impl Desk {
    fn serve(&mut self, socket: &UnixDatagram, ended: &OwnedFd) {
        loop {
            let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            while let Ok(received) = receive(socket) {
                let Some(received) = received else { continue };
                if let Some(answer) = self.answer(&received) {
                    // A client that is gone, or whose queue is full, asks again or not.
                    let _ = socket.send_to(&answer, &received.from);
                }
            }
        }
    }

    fn answer(&mut self, received: &Received) -> Option<Vec<u8>> {
        let message = match protocol::read(&received.bytes) {
            Ok(message) => message,
            Err(error) => {
                self.say(&format!("process {} sent {error} to the tracing socket", received.pid));
                return None;
            }
        };
        let (Message::Context { pid } | Message::Request { pid, .. }) = message;
        // Its own number, by the kernel's word: no process speaks for another one.
        if u32::try_from(pid) != Ok(received.pid) || received.from.parent() != Some(&self.sockets) {
            self.say(&format!("process {} says on the tracing socket that it is {pid}", received.pid));
            return None;
        }
        let Message::Request { free, .. } = message else {
            return Some(protocol::context_answer());
        };
        let given = self.client(received.pid, free)?;
        let now = clock::host_now();
        let ask = self.dir.read_json::<Ask>(ASK).ok().flatten();
        let ask = ask.filter(|ask| free && given != ask.id && ask.span.is_valid() && ask.by.alive());
        let Some(ask) = ask else { return Some(protocol::request_answer(None)) };
        if let Some(client) = self.known.clients.get_mut(&received.pid) {
            client.given = Some((ask.id, now));
        }
        // Before it is told: who waits for the trace must know that it comes.
        self.store().ok()?;
        let file = self.dir.path().join(TRACES).join(format!("{}.json", ask.id));
        let until =
            i64::try_from(ask.start.at.0).unwrap_or(i64::MAX).saturating_sub(now.0.cast_signed()) / 1000;
        let at = (clock::now().0 / 1000).saturating_add(until.max(protocol::LEAD_MS));
        let first = ask.start.pace.map(|pace| pace.step);
        Some(protocol::request_answer(Some(&protocol::configuration(ask.span, first, at, &file))))
    }

    /// Notes that a process has asked; the number of the request that it was given last, 0 for none. `None` for one that
    /// is none of the run's.
    fn client(&mut self, pid: u32, free: bool) -> Option<u64> {
        let process = Identity::of(pid).ok()?;
        if let Some(client) = self.known.clients.get_mut(&pid).filter(|client| client.process == process) {
            let given = client.given.map_or(0, |(id, _)| id);
            if client.busy == free {
                client.busy = !free;
                // Should the disk be full, the file of the trace still tells.
                let _ = self.store();
            }
            return Some(given);
        }
        let environment = memory::environment(pid).ok()?;
        let Some((rank, worker)) = place(&environment, &self.run) else {
            self.say(&format!("process {pid} is none of the run and asks at its tracing socket"));
            return None;
        };
        if self.known.clients.len() >= MOST_CLIENTS {
            self.known.clients.retain(|_, client| client.process.alive());
        }
        if self.known.clients.len() >= MOST_CLIENTS {
            return None;
        }
        self.known.clients.insert(pid, Tracer { process, rank, worker, given: None, busy: !free });
        let _ = self.store();
        Some(0)
    }

    fn store(&self) -> Result<(), SuperviseError> {
        // libkineto waits for an answer for 50 ms, and a disk may take longer than that.
        self.dir.write_passing(KNOWN, &self.known)
    }

    fn say(&mut self, text: &str) {
        if self.said < MOST_WORDS
            && let Some(log) = &mut self.log
        {
            self.said += 1;
            let micros = clock::host_now().0;
            let _ = log
                .write_all(format!("{}.{:06} {text}\n", micros / 1_000_000, micros % 1_000_000).as_bytes());
        }
    }
}

/// The next datagram; `None` for one that cannot be answered.
fn receive(socket: &UnixDatagram) -> rustix::io::Result<Option<Received>> {
    let mut bytes = vec![0; protocol::LONGEST + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?
    };
    let credentials = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials),
        _ => None,
    });
    let from = got.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    let from = from.as_ref().and_then(SocketAddrUnix::path).map(|path| path_of(&path));
    bytes.truncate(got.bytes);
    let (Some(credentials), Some(from)) = (credentials, from) else { return Ok(None) };
    let own = credentials.uid == rustix::process::geteuid();
    Ok(own.then(|| Received { pid: credentials.pid.as_raw_pid().unsigned_abs(), from, bytes }))
}

fn path_of(path: &std::ffi::CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())).to_owned()
}

/// Which rank a process with this environment belongs to, and its number in the training where that is another one;
/// `None` where it is none of the run's here.
fn place(environment: &[u8], run: &HostRun) -> Option<(Rank, Option<u32>)> {
    let variables: BTreeMap<&str, &str> = environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .collect();
    let is = |name: &str, value: &str| variables.get(name) == Some(&value);
    if !is(marks::RUN_MARK, run.run.as_str()) || !is(marks::HOST_MARK, run.host.as_str()) {
        return None;
    }
    let number = |name: &str| variables.get(name)?.parse::<u32>().ok();
    let rank = number(RANK).map(Rank).filter(|rank| run.ranks.iter().any(|one| one.rank == *rank))?;
    let worker = NUMBERS.iter().find_map(|name| number(name));
    Some((rank, worker.filter(|worker| *worker != rank.0)))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::domain::fixtures::{host_run, rank_spec};
    use crate::domain::time::HostTime;
    use crate::domain::trace::{StepProgress, TraceSpan, TraceStart};
    use crate::supervise::kineto::{ask, known};

    fn run() -> HostRun {
        HostRun { traceable: true, ports: 0, ..host_run(vec![rank_spec(0), rank_spec(3)]) }
    }

    /// What libkineto does, in a process of its own: sends the pid that it is told, or its own, and prints the answer.
    const CLIENT: &str = "import os, socket, struct, sys\n\
        folder, pid = sys.argv[1], int(sys.argv[2]) or os.getpid()\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
        s.bind(folder + '/client%d' % os.getpid())\n\
        s.settimeout(float(sys.argv[3]))\n\
        body = struct.pack('<iiqi', 3, 1, 0, pid)\n\
        s.sendto(struct.pack('<Q32s', len(body), b'req') + body, folder + '/dynolog')\n\
        try: print(s.recv(4096)[40:].decode().replace('\\n', ';'))\n\
        except TimeoutError: print('nothing')\n";

    fn client(sockets: &Path, pid: u32, seconds: &str, marks: &[(&str, &str)]) -> Child {
        let mut command = Command::new("python3");
        command.args(["-c", CLIENT]).arg(sockets).args([&pid.to_string(), seconds]);
        command.envs(marks.iter().copied()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn said(child: Child) -> String {
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_process_of_the_run_is_asked_once_and_a_stranger_and_a_liar_are_not_heard() {
        let state = tempfile::tempdir_in("/tmp").unwrap();
        let run = run();
        let dir = RunDir::create(&state.path().join("s"), &run.run, &run.host).unwrap();
        let log = dir.append("supervisor.log").unwrap();
        let server = Server::start(&dir, &run, false, Some(log)).unwrap();
        let sockets = known(&dir).unwrap().unwrap().sockets.unwrap();
        let mine = [(marks::RUN_MARK, run.run.as_str()), (marks::HOST_MARK, "a"), (RANK, "3"), ("RANK", "7")];
        assert_eq!(said(client(&sockets, 0, "20", &mine)), "", "an answer that asks for nothing");
        let clients = known(&dir).unwrap().unwrap().clients;
        let only = clients.values().next().unwrap();
        assert_eq!((clients.len(), only.rank, only.worker, only.given), (1, Rank(3), Some(7), None));
        let start = TraceStart { at: HostTime(0), pace: Some(StepProgress { step: 99, step_us: 1 }) };
        let wanted = ask(&dir, TraceSpan::Steps(3), start, &Identity::own().unwrap(), clock::host_now())
            .unwrap()
            .unwrap();
        let told = said(client(&sockets, 0, "20", &mine));
        assert!(told.contains(&format!("/trace/{}.json;", wanted.id)), "{told}");
        assert!(told.contains("PROFILE_START_ITERATION=99;") && told.contains("ITERATIONS=3;"), "{told}");
        for (pid, marks) in [(1, &mine[..]), (0, &mine[1..]), (0, &[(marks::RUN_MARK, "other")][..])] {
            assert_eq!(said(client(&sockets, pid, "0.3", marks)), "nothing", "{pid} {marks:?}");
        }
        UnixDatagram::unbound().unwrap().send_to(b"noise", sockets.join("dynolog")).unwrap();
        // a second supervisor of the run finds the same place, and who was asked is not asked again
        let before = known(&dir).unwrap().unwrap();
        std::mem::forget(server);
        let again = Server::start(&dir, &run, true, None).unwrap();
        let after = known(&dir).unwrap().unwrap();
        assert_eq!((&after.sockets, &after.clients), (&before.sockets, &before.clients));
        assert!(after.clients.values().any(|client| client.given.is_some_and(|(id, _)| id == wanted.id)));
        drop(again);
        assert!(!sockets.exists(), "nothing is left of the sockets");
        let log = std::fs::read_to_string(dir.path().join("supervisor.log")).unwrap();
        assert!(log.contains("says on the tracing socket that it is 1"), "{log}");
        assert!(log.contains("is none of the run"), "{log}");
    }

    #[test]
    fn it_answers_as_fast_as_libkineto_wants() {
        let state = tempfile::tempdir_in("/tmp").unwrap();
        let run = run();
        let dir = RunDir::create(&state.path().join("s"), &run.run, &run.host).unwrap();
        let _server = Server::start(&dir, &run, false, None).unwrap();
        let sockets = known(&dir).unwrap().unwrap().sockets.unwrap();
        let own = UnixDatagram::bind(sockets.join("own")).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = [0_i32.to_le_bytes(), std::process::id().to_le_bytes(), [0; 4], [0; 4]].concat();
        let mut name = [0; 32];
        name[..4].copy_from_slice(b"ctxt");
        let datagram = [&16_u64.to_le_bytes(), &name[..], &body].concat();
        own.send_to(&datagram, sockets.join("dynolog")).unwrap();
        let mut answer = [0; 100];
        let got = own.recv(&mut answer).unwrap();
        assert_eq!((got, &answer[40..44]), (44, &1_i32.to_le_bytes()[..]));
    }
}
