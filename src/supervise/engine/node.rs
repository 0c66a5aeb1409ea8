//! `hvtui node-wrap`: on a host that is not the launcher's, it does what the launcher wants done there, and takes its
//! orders over a proven connection alone. What it starts it finds by the variables that name this host's run directory.
//!
//! What it executes starts the ranks' shims. Where the launcher's output is split into ranks, there are none: it stands
//! for this host's ranks itself, and writes what they say and how they ended, as the launcher's wrapper tells it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc::{self, Sender};

use super::channel::{self, Key};
use super::frame::Frame;
use super::tagged::LauncherOutput;
use super::{END, EngineEnd, RUN_SECRET, sweep, wrapper};
use crate::clock;
use crate::domain::engine::{Engine, NODE_PORT, Node};
use crate::domain::environment::{Bound, Limit};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::HostRun;
use crate::domain::text::os_text;
use crate::supervise::environment::limits::Lent;
use crate::supervise::rundir::RunDir;
use crate::supervise::{SuperviseError, lease};

/// How long the launcher's wrapper is looked for.
const PATIENCE_US: u64 = 40_000_000;
const PAUSE: Duration = Duration::from_millis(50);
/// How long the output of a command that has ended may come: something that it started may keep it open.
const LATE: Duration = Duration::from_secs(1);

/// Something that has happened.
enum Event {
    /// The launcher's wrapper has said this; `None` at the end of the connection.
    Frame(Option<Frame>),
    /// A command has ended.
    Over(u32),
}

/// Serves the launcher until its end.
pub fn run(dir: &Path) -> Result<i32, SuperviseError> {
    wrapper(dir, |dir, spec| async move {
        let Some(Engine::Node(node)) = &spec.engine else { return None };
        let mut output = node.stands.then(|| LauncherOutput::new(&dir, &spec, None));
        if let Some(output) = &output {
            output.began(Some(std::process::id()));
        }
        let (end, tail) = serve(node, &spec, &mut output).await;
        if let Some(output) = output {
            // Their GPUs are held until they are gone.
            sweep().await;
            output.finish(&end, &tail);
            for rank in &spec.ranks {
                lease::retire(&spec, rank.rank);
            }
        }
        Some(record(&dir, &end))
    })
}

fn record(dir: &RunDir, end: &EngineEnd) -> i32 {
    if let Err(error) = dir.write_json(END, end) {
        tracing::warn!(%error, "the node's end is not written down");
    }
    end.code
}

/// The end of a node that has no launcher, without last words of one.
fn failed(words: String) -> (EngineEnd, String) {
    (EngineEnd { code: 69, died: true, words, t: clock::host_now() }, String::new())
}

/// Does what the launcher wants until its end: how it has ended, and its last words.
async fn serve(node: &Node, spec: &HostRun, output: &mut Option<LauncherOutput>) -> (EngineEnd, String) {
    let host = &spec.host;
    let (address, key) = match (launcher(), std::env::var(RUN_SECRET)) {
        (Ok(address), Ok(secret)) => (address, Key::new(&secret)),
        (Err(words), _) => return failed(words),
        (_, Err(_)) => return failed(format!("{RUN_SECRET} is not set for the node of {host}")),
    };
    let stream = match dial(address).await {
        Ok(stream) => stream,
        Err(error) => {
            let why = os_text(&error);
            return failed(format!(
                "{host} can't reach the launcher at {address}: {why}: is a firewall between them?"
            ));
        }
    };
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let (reader, writer) = stream.into_split();
    let (mut hearer, mut speaker) = match channel::connect(reader, writer, &key, &node.name).await {
        Ok(proven) => proven,
        Err(error) => return failed(format!("{host} takes no orders from {address}: {}", os_text(&error))),
    };
    let (events, mut next) = mpsc::channel(64);
    let heard = events.clone();
    tokio::spawn(async move {
        loop {
            let frame = hearer.hear().await.ok().flatten().and_then(|body| Frame::decode(&body));
            let last = frame.is_none();
            if heard.send(Event::Frame(frame)).await.is_err() || last {
                return;
            }
        }
    });
    // Its writer waits for nothing that is heard here: two that wait for each other's reading would do so for ever.
    let (says, mut queue) = mpsc::channel::<Frame>(64);
    tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            if speaker.say(&frame.encode()).await.is_err() {
                return;
            }
        }
    });
    let mut commands: HashMap<u32, Pid> = HashMap::new();
    while let Some(event) = next.recv().await {
        match event {
            Event::Frame(Some(Frame::Run { id, command })) => {
                if let Some(pid) = execute(id, &command, &spec.environment().limits, (&events, &says)) {
                    commands.insert(id, pid);
                }
            }
            Event::Frame(Some(Frame::Gone { id })) => {
                if let Some(pid) = commands.remove(&id) {
                    let _ = kill_process_group(pid, Signal::TERM);
                }
            }
            Event::Frame(Some(Frame::Line { rank, err, bytes })) => {
                if let Some(output) = output {
                    output.write(Rank(rank), if err { Stream::Stderr } else { Stream::Stdout }, &bytes);
                }
            }
            Event::Frame(Some(Frame::Ended { died, code, words, tail })) => {
                // A node whose ranks have wrappers of their own has failed only with its launcher.
                let code = if output.is_some() { code } else { i32::from(died) };
                return (EngineEnd { code, died, words, t: clock::host_now() }, tail);
            }
            // What only a node says is no order.
            Event::Frame(Some(Frame::Output { .. } | Frame::Exit { .. })) => {}
            Event::Frame(None) => {
                return failed(format!("{host} has lost the connection to the launcher at {address}"));
            }
            Event::Over(id) => drop(commands.remove(&id)),
        }
    }
    failed("the node has nothing more to hear".to_owned())
}

/// Where the launcher's wrapper listens.
fn launcher() -> Result<SocketAddr, String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set for the node"));
    let (address, port) = (variable("MASTER_ADDR")?, variable(NODE_PORT)?);
    let address: IpAddr = address.parse().map_err(|_| format!("MASTER_ADDR={address} is no IP address"))?;
    let port = port.parse().map_err(|_| format!("{NODE_PORT}={port} is no port"))?;
    Ok(SocketAddr::new(address, port))
}

/// The first host may be slower to start.
async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let begun = clock::host_now();
    loop {
        let tried = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(address)).await;
        let error = match tried {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer"),
        };
        if clock::host_now().0.saturating_sub(begun.0) > PATIENCE_US {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts a command by the user's shell, as sshd does; `None` where that fails, which is told.
fn execute(
    id: u32,
    command: &[u8],
    limits: &BTreeMap<Limit, Bound>,
    (events, says): (&Sender<Event>, &Sender<Frame>),
) -> Option<Pid> {
    use std::os::unix::ffi::OsStrExt;

    let shell = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
    let shell = shell.unwrap_or_else(|| "/bin/sh".into());
    let mut prepared = Command::new(&shell);
    prepared.arg("-c").arg(std::ffi::OsStr::from_bytes(command)).process_group(0);
    prepared.env_remove(RUN_SECRET).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (events, says) = (events.clone(), says.clone());
    let (lent, failed) = Lent::set(limits);
    for words in failed {
        let _ = writeln!(io::stderr(), "hvtui: {words}");
    }
    let child = prepared.spawn();
    drop(lent);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let text = format!("exec {}: {}\n", shell.display(), os_text(&error));
            tokio::spawn(async move {
                let _ = says.send(Frame::Output { id, err: true, bytes: text.into_bytes() }).await;
                let _ = says.send(Frame::Exit { id, code: 126 }).await;
            });
            return None;
        }
    };
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    tokio::spawn(async move {
        let output = async { tokio::join!(pass(out, id, false, &says), pass(err, id, true, &says)) };
        tokio::pin!(output);
        let status = tokio::select! {
            status = child.wait() => {
                let _ = tokio::time::timeout(LATE, &mut output).await;
                status
            }
            _ = &mut output => child.wait().await,
        };
        let code = status.map_or(255, |status| {
            status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255)
        });
        let _ = events.send(Event::Over(id)).await;
        let _ = says.send(Frame::Exit { id, code }).await;
    });
    pid
}

/// Passes on what a command says.
async fn pass(stream: Option<impl AsyncRead + Unpin>, id: u32, err: bool, says: &Sender<Frame>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        if says.send(Frame::Output { id, err, bytes }).await.is_err() {
            return;
        }
    }
}
