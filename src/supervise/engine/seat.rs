//! Where a rank-wrap waits for its rank's shim, and what it hears and tells it. The rank is the rank-wrap's child; the
//! shim lends it the environment and the processors that the launcher has chosen.

use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{END, EngineEnd, LIMIT, manager, seat_file};
use crate::domain::blame;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::RankExit;
use crate::procs::identity::Identity;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{STATE, STOP, State, stream_file};
use crate::supervise::variables::Variables;

/// How the answer to a shim begins whose rank a signal has ended; with 0 an exit code follows.
pub(super) const BY_SIGNAL: u8 = 1;
/// After its launcher has ended a rank's shim, how long its own end is waited for at most, which may be the cause: the launcher's
/// wrapper hears it out before it writes its end down.
const END_TRIES: u32 = 1000;
const END_PAUSE: Duration = Duration::from_millis(10);

/// So many bytes of a rank's standard error are looked through for its abort.
const LAST_WORDS: u64 = 4096;

/// A socket on which a rank's shim is expected.
pub(in crate::supervise) struct Seat {
    listener: UnixListener,
}

/// A shim that has come.
pub(in crate::supervise) struct Seated {
    stream: UnixStream,
    variables: Variables,
    /// The way to the launcher's process manager, until the rank has it.
    manager: Option<OwnedFd>,
    /// Whether its rank got such a way.
    by_hydra: bool,
    /// Whether the launcher has ended it while the rank ran.
    vanished: bool,
    /// Whether it was so without a stop of the run.
    unasked: bool,
}

impl Seat {
    /// Listens for the shim of a rank. Called within the runtime.
    pub(in crate::supervise) fn open(dir: &RunDir, rank: Rank) -> Result<Self, SuperviseError> {
        let name = seat_file(rank);
        let failed = |e| SuperviseError::io("listen on", &dir.path().join(&name), e);
        let listener = listen(dir, &name).map_err(failed)?;
        Ok(Self { listener })
    }

    /// Waits for the shim; one of another user's is not heard.
    pub(in crate::supervise) async fn taken(&self) -> Seated {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(END_PAUSE).await;
                continue;
            };
            if let Ok(seated) = Seated::hear(stream).await {
                return seated;
            }
        }
    }
}

/// A socket in the run directory, for the same user alone.
pub(super) fn listen(dir: &RunDir, name: &str) -> io::Result<UnixListener> {
    let path = dir.socket(name);
    match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Of a process that has died: a run directory has one of each.
            std::fs::remove_file(&path)?;
            UnixListener::bind(&path)
        }
        listener => listener,
    }
    .and_then(|listener| {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        Ok(listener)
    })
}

/// Whether the process at the other end belongs to the same user.
pub(super) fn same_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

impl Seated {
    async fn hear(mut stream: UnixStream) -> io::Result<Self> {
        if !same_user(&stream) {
            return Err(io::Error::other("it is another user's"));
        }
        let (length, manager) = manager::take(&stream).await?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LIMIT {
            return Err(io::Error::other("its environment is too large"));
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        // What the launcher has bound the shim to is meant for the rank.
        let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw);
        if let Some(processors) = pid.and_then(|pid| sched_getaffinity(Some(pid)).ok()) {
            let _ = sched_setaffinity(None, &processors);
        }
        let mut variables = Variables::of_this_process().over(&bytes);
        // Its number in the shim means nothing here.
        variables.retain(|name| !manager::is_variable(name));
        let by_hydra = manager.is_some();
        Ok(Self { stream, variables, manager, by_hydra, vanished: false, unasked: false })
    }

    /// The rank's variables; the next process to be started is the rank.
    pub(in crate::supervise) fn variables(&mut self) -> Variables {
        let lent = self.manager.as_ref().and_then(|descriptor| manager::lend(descriptor).ok());
        self.variables.extend(lent);
        self.variables.clone()
    }

    /// The rank has been started.
    pub(in crate::supervise) fn started(&mut self) {
        self.manager = None;
    }

    /// Waits until the launcher ends the shim.
    pub(in crate::supervise) async fn left(&mut self, dir: &RunDir) {
        if self.vanished {
            return std::future::pending().await;
        }
        // It says nothing more: whatever comes is its end.
        let _ = self.stream.read_u8().await;
        self.vanished = true;
        self.unasked = !dir.has(STOP);
    }

    /// What is known of a rank's end by its launcher's: one that ended since another rank had failed ends its ranks as
    /// a stop does; one that died by itself is the cause.
    pub(in crate::supervise) async fn judge(&self, dir: &RunDir, rank: Rank, exit: &mut RankExit) {
        if exit.shell_code() == 0 {
            return;
        }
        if self.by_hydra
            && exit.signal.is_some()
            && (exit.stopped || self.vanished)
            && let Some(code) = blame::aborted(&last_words(dir, rank))
        {
            // It waits in MPI_Abort until Hydra ends all ranks, itself too.
            (exit.code, exit.signal, exit.stopped) = (Some(code), None, false);
            return;
        }
        let engine = dir.read_json::<State>(STATE).ok().flatten().and_then(|state| state.engine);
        let mut end = None;
        for _ in 0..END_TRIES {
            // Before the look: its last word comes before its end.
            let may_come = self.vanished && !exit.stopped && engine.as_ref().is_some_and(Identity::alive);
            end = dir.read_json::<EngineEnd>(END).ok().flatten();
            if end.is_some() || !may_come {
                break;
            }
            tokio::time::sleep(END_PAUSE).await;
        }
        match end {
            Some(end) if end.died => {
                exit.stopped = false;
                exit.cause = Some(end.words);
            }
            _ => {
                exit.stopped |= self.vanished;
                if self.unasked {
                    exit.cause = Some(blame::BY_LAUNCHER.to_owned());
                }
            }
        }
    }

    /// Tells the shim how the rank has ended, so that the launcher learns it.
    pub(in crate::supervise) async fn tell(&mut self, exit: &RankExit) {
        let (kind, number) = match exit.signal {
            Some(signal) => (BY_SIGNAL, signal),
            None => (0, exit.shell_code()),
        };
        // One that is gone needs no answer.
        let _ = self.stream.write_all(&[&[kind], &number.to_le_bytes()[..]].concat()).await;
    }
}

/// The end of what a rank has said on its standard error.
pub(in crate::supervise) fn last_words(dir: &RunDir, rank: Rank) -> String {
    let mut bytes = Vec::new();
    if let Ok(Some(mut file)) = dir.read(&stream_file(rank, Stream::Stderr)) {
        let length = file.metadata().map_or(0, |file| file.len());
        let found = file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)));
        let _ = found.and_then(|_| file.take(LAST_WORDS).read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::domain::time::HostTime;
    use crate::supervise::state::Phase;

    #[tokio::test]
    async fn the_word_of_a_launcher_is_waited_for_as_long_as_it_may_come() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let own = Identity::own().unwrap();
        let gone = Identity { start: own.start + 1, ..own.clone() };
        let died = EngineEnd { code: 137, died: true, words: "mpirun was killed".to_owned(), t: HostTime(1) };
        for (engine, cause) in [(own.clone(), died.words.as_str()), (gone, blame::BY_LAUNCHER)] {
            let state = State { engine: Some(engine), ..State::of_test(Phase::Running, own.clone()) };
            dir.write_json(STATE, &state).unwrap();
            let (stream, _shim) = UnixStream::pair().unwrap();
            let variables = Variables::of_this_process();
            let seated =
                Seated { stream, variables, manager: None, by_hydra: false, vanished: true, unasked: true };
            let mut exit = RankExit {
                code: None,
                signal: Some(15),
                t: HostTime(1),
                error: None,
                stopped: false,
                cause: None,
            };
            let late = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                dir.write_json(END, &died).unwrap();
            };
            tokio::join!(seated.judge(&dir, Rank(0), &mut exit), late);
            assert_eq!(exit.cause.as_deref(), Some(cause));
            dir.remove(END).unwrap();
        }
    }
}
