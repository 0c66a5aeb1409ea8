//! Two stages that part a supervisor from the agent that starts it.
//!
//! Stage 1 is the agent's child: it passes the input on, waits until stage 2 is ready, tells the agent and
//! ends. Stage 2 is the supervisor: its own session, working directory `/`, its standard streams closed but
//! for its log, and by stage 1's end no longer a child of the agent.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::SuperviseError;
use super::lease::handover;
use super::rundir::RunDir;
use super::samples;
use super::state::LOG;
use super::supervisor::{Supervisor, line};
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::GpuUuid;
use crate::domain::late::Late;
use crate::domain::run::HostRun;
use crate::program::own_binary;

/// What a supervisor needs to know, on its standard input. Holds the run's secret: never on disk.
#[derive(Serialize, Deserialize)]
pub struct Input {
    /// What to execute.
    pub spec: HostRun,
    /// Variables that must not be stored.
    pub late: Late,
    /// The GPUs whose leases come beside this, in the order of the descriptors.
    pub held: Vec<GpuUuid>,
    /// What is changed in the environment of the ranks and of what starts them. May hold secrets of this host.
    #[serde(default)]
    pub environment: EnvironmentChange,
}

/// What a supervisor says when it was started, one line of JSON on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It owns the run.
    Ready,
    /// The run was started here before.
    Already,
    /// It can't, and nothing was started.
    Failed(String),
}

/// The most bytes of input: a frame of the wire holds the spec, another one the variables of the ranks, and a login shell
/// may have as many.
const INPUT_LIMIT: usize = 12 << 20;

/// Stage 1: starts stage 2 in its own session and returns what that said. `adopt`: for a run that was started
/// before and has lost its supervisor.
pub fn stage1(dir: &Path, adopt: bool) -> Reply {
    start_stage2(dir, adopt).unwrap_or_else(|error| Reply::Failed(error.to_string()))
}

fn start_stage2(dir: &Path, adopt: bool) -> Result<Reply, SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, dir, e);
    let _ = rustix::process::setsid();
    keep_descriptors_from_children().map_err(failed("list the descriptors for"))?;
    // Who takes over a run gets all that it needs from its files.
    let input = if adopt { None } else { Some(handover::receive(io::stdin(), INPUT_LIMIT)) };
    let input = input.transpose().map_err(failed("read the input for"))?;
    let (ours, theirs) = handover::pair().map_err(failed("make a socket for"))?;
    let log = RunDir::open(dir)?.append(LOG)?;
    let mut child = Command::new(own_binary())
        .args(["supervise", "--stage2", "--dir"])
        .arg(dir)
        .args(adopt.then_some("--adopt"))
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed("start the supervisor of"))?;
    if let Some((bytes, leases)) = input {
        let leases: Vec<BorrowedFd<'_>> = leases.iter().map(AsFd::as_fd).collect();
        handover::send(ours, &leases, &bytes).map_err(failed("pass the input for"))?;
    }
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut text).map_err(failed("hear from the supervisor of"))?;
    }
    let reply: Reply = serde_json::from_str(&text).unwrap_or_else(|_| {
        Reply::Failed(format!("it ended before it was ready; see {}", dir.join(LOG).display()))
    });
    // By this process, which ends now: no child of the supervisor, for which a child is something of the run.
    if reply == Reply::Ready
        && let Err(error) = samples::start(dir, child.id())
        && let Ok(log) = RunDir::open(dir).and_then(|dir| dir.append(LOG))
    {
        line(&log, &format!("samples of the host are not noted: {error}"));
    }
    Ok(reply)
}

/// The agent may have inherited descriptors, such as the pipes of a build tool. A supervisor
/// that held them for hours would keep their readers waiting for the end.
#[expect(unsafe_code, reason = "an inherited descriptor has no owner whose safe type could be borrowed")]
pub(super) fn keep_descriptors_from_children() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if number > 2 {
            // SAFETY: the caller has one thread yet, and nothing is closed between the listing of this
            // open descriptor and the end of the borrow.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Stage 2: the supervisor, until nothing of the run is left.
pub fn stage2(dir: &Path, adopt: bool) -> Result<(), SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, dir, e);
    let _ = rustix::process::setsid();
    let input = if adopt { close(rustix::stdio::dup2_stdin).map(|()| None) } else { read_input().map(Some) };
    let input = input.map_err(failed("read the input for"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start the supervisor of"))?;
    runtime.block_on(async {
        let dir = RunDir::open(dir)?;
        let path = dir.path().to_owned();
        let begun = match input {
            Some((input, leases)) => Supervisor::begin(dir, input, leases, || answer(&Reply::Ready, &path)),
            None => Supervisor::adopt(dir).and_then(|adopted| {
                adopted.as_ref().map_or(Ok(()), |_| answer(&Reply::Ready, &path))?;
                Ok(adopted)
            }),
        };
        match begun {
            Ok(Some(supervisor)) => supervisor.run().await,
            Ok(None) => answer(&Reply::Already, &path),
            Err(error) => {
                answer(&Reply::Failed(error.to_string()), &path)?;
                Err(error)
            }
        }
    })
}

/// Tells stage 1, which waits for the end of this output, and leaves the output.
fn answer(reply: &Reply, dir: &Path) -> Result<(), SuperviseError> {
    // When stage 1 is gone nothing waits for the answer, and the run goes on all the same.
    let _ = serde_json::to_string(reply).map(|text| io::stdout().write_all(text.as_bytes()));
    let _ = io::stdout().flush();
    close(rustix::stdio::dup2_stdout).map_err(|e| SuperviseError::io("leave the output of", dir, e))
}

fn read_input() -> io::Result<(Input, Vec<OwnedFd>)> {
    let (bytes, leases) = handover::receive(io::stdin(), INPUT_LIMIT)?;
    close(rustix::stdio::dup2_stdin)?;
    // The parser's words could quote the input, which holds the secret.
    let input = serde_json::from_slice(&bytes).map_err(|_| io::Error::other("the input is no run"))?;
    Ok((input, leases))
}

/// Puts `/dev/null` in the place of a standard stream.
fn close(place: fn(std::fs::File) -> rustix::io::Result<()>) -> io::Result<()> {
    Ok(place(std::fs::File::options().read(true).write(true).open("/dev/null")?)?)
}
