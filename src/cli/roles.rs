//! The roles that hvtui plays on a host, started by hvtui itself and hidden from its help.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use crate::agent::{self, AgentConfig, AgentError, TelemetryStart};
use crate::clock;
use crate::doctor::inside;
use crate::domain::ids::Rank;
use crate::image::staging;
use crate::program::own_binary;
use crate::sched::{self, For};
use crate::supervise::container::look::ANSWER;
use crate::supervise::daemon::{self, Reply};
use crate::supervise::engine;
use crate::supervise::rank_wrap;
use crate::supervise::samples::{self, TakeSample};
use crate::wire::handshake::MAGIC;

/// Our own fault, in sysexits' words.
const SOFTWARE: i32 = 70;

/// The other end does not speak our protocol, or the link broke: the host is unreachable.
const UNAVAILABLE: i32 = 69;

/// `hvtui agent --stdio [--nonce HEX]`: serves the client at the other end of standard input and output.
pub fn agent(nonce: Option<String>, state_dir: PathBuf, telemetry: TelemetryStart) -> i32 {
    // An agent wakes for a moment beside ranks that compute all the time. What it starts doesn't inherit the wish.
    let short_turns = || sched::short_turns(For::ThisThread);
    short_turns();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.worker_threads(2).on_thread_start(short_turns).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    // Beside the work, which must not wait for it.
    let state = state_dir.clone();
    let tidy = move || {
        staging::sweep(&state, clock::now());
        if let Ok(own) = std::env::current_exe() {
            agent::old_binaries::remove(&own, clock::now());
        }
    };
    let _ = std::thread::Builder::new().name("tidy".to_owned()).spawn(tidy);
    let served = runtime.block_on(serve_stdio(nonce, state_dir, telemetry));
    // A read of standard input or a hung driver must not hold up the end.
    runtime.shutdown_background();
    match served {
        Ok(()) => 0,
        Err(error) => {
            complain(&error);
            UNAVAILABLE
        }
    }
}

async fn serve_stdio(
    nonce: Option<String>,
    state_dir: PathBuf,
    telemetry: TelemetryStart,
) -> Result<(), AgentError> {
    let mut writer = standard_output()?;
    // Started on the client's own machine it is the client's own binary; reading all of that takes longer than all else.
    let is_put_here = nonce.is_some();
    if let Some(nonce) = nonce {
        writer.write_all(format!("{MAGIC}{nonce}\n").as_bytes()).await?;
        writer.flush().await?;
    }
    let build =
        if is_put_here { agent::build::of_this_process().map_err(AgentError::Build)? } else { String::new() };
    agent::serve(standard_input()?, writer, AgentConfig { exe: own_binary(), state_dir, build }, telemetry)
        .await
}

/// Standard input without the detour over a helper thread, which would blur the clock samples: a pipe or a
/// socket where it is one, as ssh and a parent process give.
fn standard_input() -> io::Result<Pin<Box<dyn AsyncRead + Send>>> {
    let own = || io::stdin().as_fd().try_clone_to_owned();
    if let Ok(pipe) = pipe::Receiver::from_file(File::from(own()?)) {
        return Ok(Box::pin(pipe));
    }
    match socket(own()?) {
        Some(socket) => Ok(Box::pin(socket)),
        None => Ok(Box::pin(tokio::io::stdin())),
    }
}

/// See [`standard_input`].
fn standard_output() -> io::Result<Pin<Box<dyn AsyncWrite + Send>>> {
    let own = || io::stdout().as_fd().try_clone_to_owned();
    if let Ok(pipe) = pipe::Sender::from_file(File::from(own()?)) {
        return Ok(Box::pin(pipe));
    }
    match socket(own()?) {
        Some(socket) => Ok(Box::pin(socket)),
        None => Ok(Box::pin(tokio::io::stdout())),
    }
}

fn socket(fd: OwnedFd) -> Option<UnixStream> {
    let socket = StdUnixStream::from(fd);
    socket.local_addr().ok()?;
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}

/// `hvtui supervise --dir DIR [--adopt] [--stage2]`: owns a run on this host.
pub fn supervise(dir: &Path, adopt: bool, stage2: bool) -> i32 {
    if stage2 {
        return match daemon::stage2(dir, adopt) {
            Ok(()) => 0,
            Err(error) => complain(&error),
        };
    }
    let reply = daemon::stage1(dir, adopt);
    let text = serde_json::to_string(&reply).unwrap_or_default();
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) if !matches!(reply, Reply::Failed(_)) => 0,
        _ => SOFTWARE,
    }
}

/// `hvtui rank-wrap --dir DIR --rank N`: the parent of one rank.
pub fn rank_wrap(dir: &Path, rank: Rank) -> i32 {
    rank_wrap::run(dir, rank).unwrap_or_else(|error| complain(&error))
}

/// `hvtui launch-wrap --dir DIR`: the parent of a launcher.
pub fn launch_wrap(dir: &Path) -> i32 {
    engine::launch::run(dir).unwrap_or_else(|error| complain(&error))
}

/// `hvtui node-wrap --dir DIR`: takes the orders of a launcher on another host.
pub fn node_wrap(dir: &Path) -> i32 {
    engine::node::run(dir).unwrap_or_else(|error| complain(&error))
}

/// `hvtui sample-host --dir DIR --supervisor PID`: notes what this host and its GPUs do while a run goes on.
pub fn sample_host(dir: &Path, supervisor: u32, telemetry: impl FnOnce() -> TakeSample) -> i32 {
    samples::keep(dir, supervisor, telemetry).map_or_else(|error| complain(&error), |()| 0)
}

/// `hvtui rank-shim`: what a launcher takes for a rank.
pub fn rank_shim() -> i32 {
    engine::shim::run().unwrap_or_else(|error| complain(&error))
}

/// `hvtui look-inside ASK`: makes checks in the container of which it is a process, and prints what they have found, in one line.
pub fn look_inside(ask: &str) -> i32 {
    let told = serde_json::from_str(ask).and_then(|ask| serde_json::to_string(&inside::look(ask)));
    match told {
        Ok(told) => writeln!(io::stdout(), "{ANSWER}{told}").map_or_else(|error| complain(&error), |()| 0),
        Err(error) => complain(&error),
    }
}

/// `hvtui rsh-agent …`: what a launcher takes for ssh.
pub fn rsh_agent(words: &[String]) -> i32 {
    engine::rsh::run(words)
}

/// Says what went wrong on standard error: the supervisor's log, or the rank's.
fn complain(error: &dyn std::error::Error) -> i32 {
    let _ = writeln!(io::stderr(), "hvtui: {error}");
    SOFTWARE
}
