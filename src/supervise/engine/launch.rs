//! `hvtui launch-wrap`: the parent of a launcher. It waits for the nodes of the other hosts, starts the launcher,
//! hands what that wants done on another host to the node there, and writes down how it ended.
//!
//! What the launcher says goes, each write whole, to the standard error of this host's first rank; where its output is
//! tagged, to the ranks that it names. Knows nothing of how ranks end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::remote::Remote;
use super::tagged::Said;
use super::{END, EngineEnd, RUN_SECRET, wrapper};
use crate::clock;
use crate::domain::blame;
use crate::domain::engine::{Engine, Launcher, Program};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::mpirun;
use crate::domain::run::{HostRun, RankExit, signal_name};
use crate::domain::tags::TagStyle;
use crate::supervise::program::{own_binary, resolve, working_directory};
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{STOP, exit_file};
use crate::supervise::{SuperviseError, lease, os_text};

/// How long a launcher's output may come after its end: what it has started may keep it open.
const LATE: Duration = Duration::from_secs(1);
/// What takes a host and a command as ssh does.
pub(super) const AGENT: &str = "rsh";
/// Variables of a batch system or of another launcher: mpirun would take its hosts from them.
const FOREIGN: [&str; 6] = ["SLURM_", "PBS_", "LSB_", "OMPI_COMM_", "PMIX_", "PMI_"];

/// Runs the launcher to its end; its exit code.
pub fn run(dir: &Path) -> Result<i32, SuperviseError> {
    wrapper(dir, |dir, spec| async move {
        let Some(engine @ Engine::Launcher(launcher)) = &spec.engine else { return None };
        let work = Work { dir: &dir, spec: &spec, engine, launcher };
        let end = work.end().await;
        for rank in spec.ranks.iter().filter(|_| launcher.tags.is_some()) {
            lease::retire(&spec, rank.rank);
        }
        Some(end.code)
    })
}

struct Work<'a> {
    dir: &'a RunDir,
    spec: &'a HostRun,
    engine: &'a Engine,
    launcher: &'a Launcher,
}

/// The program and its variables.
struct Prepared {
    program: PathBuf,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: PathBuf,
}

impl Work<'_> {
    async fn end(&self) -> EngineEnd {
        let said = Arc::new(Mutex::new(Said::new(self.dir, self.spec, self.launcher.tags)));
        let failed = |words: String| {
            let words = format!("{} was not started: {words}", self.engine.name());
            EngineEnd { code: 69, died: true, words, t: clock::host_now() }
        };
        let remote = if self.launcher.nodes.is_empty() {
            Ok(None)
        } else {
            Remote::meet(self.dir, &self.launcher.nodes).await.map(Some)
        };
        let (end, remote) = match remote {
            Ok(remote) => match self.prepare().await {
                Ok(prepared) => (self.execute(prepared, &said, remote.as_ref()).await, remote),
                Err(words) => (failed(words), remote),
            },
            Err(words) => (failed(words), None),
        };
        said.lock().unwrap_or_else(PoisonError::into_inner).finish(&end);
        if let Err(error) = self.dir.write_json(END, &end) {
            let _ = writeln!(std::io::stderr(), "hvtui: {error}");
        }
        // After the local truth: what ends on the other hosts by this is no news here any more.
        if let Some(remote) = remote {
            remote.end(&end).await;
        }
        end
    }

    async fn prepare(&self) -> Result<Prepared, String> {
        let text = |error: SuperviseError| error.to_string();
        let cwd = working_directory(self.launcher.cwd.as_deref()).map_err(text)?;
        let (name, argv, env) = match &self.launcher.program {
            Program::Argv(argv) => {
                let name = argv.first().ok_or("the launcher's command is empty")?;
                (name.clone(), argv.clone(), BTreeMap::new())
            }
            Program::Mpi(plan) => {
                let version = self.version(&plan.program, &cwd).await?;
                let agent = self.agent().map_err(text)?;
                let root = rustix::process::geteuid().is_root();
                let command =
                    mpirun::command(plan, &version, &agent, root).map_err(|error| error.to_string())?;
                (plan.program.clone(), command.argv, command.env)
            }
        };
        let program = self.find(&name, &cwd)?;
        Ok(Prepared { program, argv, env, cwd })
    }

    fn find(&self, name: &str, cwd: &Path) -> Result<PathBuf, String> {
        let path = std::env::var_os("PATH");
        resolve(name, path.as_deref(), cwd, &own_binary())
            .map_err(|error| format!("{error} on {}", self.spec.host))
    }

    /// What the launcher says of its version.
    async fn version(&self, name: &str, cwd: &Path) -> Result<String, String> {
        let program = self.find(name, cwd)?;
        let mut command = Command::new(&program);
        self.foreign(&mut command);
        let asked = command.arg("--version").env_remove(RUN_SECRET).stdin(Stdio::null()).output();
        let output = tokio::time::timeout(Duration::from_secs(20), asked).await;
        let output = output.map_err(|_| format!("'{name} --version' does not end"))?;
        let output = output.map_err(|error| format!("exec {}: {}", program.display(), os_text(&error)))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// A program by whose path alone a launcher reaches the nodes: launchers part words at spaces and colons.
    fn agent(&self) -> Result<String, SuperviseError> {
        let path = self.dir.path().join(AGENT);
        let failed = |e| SuperviseError::io("write", &path, e);
        let mut script = self.dir.replace(AGENT)?;
        script.write_all(b"#!/bin/sh\nexec \"$HVTUI_EXE\" rsh-agent \"$@\"\n").map_err(failed)?;
        script.set_permissions(PermissionsExt::from_mode(0o700)).map_err(failed)?;
        let text = path.display().to_string();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-@+=~".contains(letter);
        Ok(if text.chars().all(plain) {
            text
        } else {
            format!("/proc/{}/fd/{}/{AGENT}", std::process::id(), self.dir.number())
        })
    }

    fn foreign(&self, command: &mut Command) {
        if matches!(self.launcher.program, Program::Mpi(_)) {
            for (name, _) in std::env::vars_os() {
                if FOREIGN.iter().any(|start| name.to_string_lossy().starts_with(start)) {
                    command.env_remove(name);
                }
            }
        }
    }

    async fn execute(
        &self,
        prepared: Prepared,
        said: &Arc<Mutex<Said>>,
        remote: Option<&Remote>,
    ) -> EngineEnd {
        let Prepared { program, argv, env, cwd } = prepared;
        let mut command = Command::new(&program);
        command.args(argv.iter().skip(1)).current_dir(cwd).process_group(0);
        self.foreign(&mut command);
        command.envs(env).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A task of srun is told on its input that its output was read.
        let tasks = self.launcher.tags == Some(TagStyle::Srun);
        command.stdin(if tasks { Stdio::piped() } else { Stdio::null() });
        if self.launcher.tags.is_none() {
            // Its ranks get the secret from their rank-wraps.
            command.env_remove(RUN_SECRET);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let words = format!("exec {}: {}", program.display(), os_text(&error));
                return EngineEnd { code: 126, died: true, words, t: clock::host_now() };
            }
        };
        said.lock().unwrap_or_else(PoisonError::into_inner).began(child.id());
        let serve = async {
            if let Some(remote) = remote {
                remote.serve().await;
            }
            std::future::pending::<Infallible>().await
        };
        let status = tokio::select! {
            status = drained(&mut child, said) => status,
            never = serve => match never {},
        };
        self.judge(status, &said.lock().unwrap_or_else(PoisonError::into_inner).tail())
    }

    /// How the launcher has ended, by its status and its words.
    fn judge(&self, status: std::io::Result<ExitStatus>, tail: &str) -> EngineEnd {
        use std::os::unix::process::ExitStatusExt;

        let t = clock::host_now();
        let name = self.engine.name();
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                return EngineEnd { code: 70, died: true, words: format!("{name}: {}", os_text(&error)), t };
            }
        };
        if let Some(signal) = status.signal() {
            let words = format!("{name} was killed by {}", signal_name(signal));
            // One that crashes while it ends its ranks is not what ended them.
            let died = !self.dir.has(STOP) && !self.rank_failed();
            return EngineEnd { code: 128 + signal, died, words, t };
        }
        match status.code().unwrap_or(255) {
            0 => EngineEnd { code: 0, died: false, words: format!("{name} ended with exit 0"), t },
            code => {
                let said = blame::words(tail);
                let words = blame::sentence(self.engine, said.as_deref(), &format!("exit {code}"));
                EngineEnd { code, died: self.died(tail), words, t }
            }
        }
    }
}

impl Work<'_> {
    /// Whether a launcher that failed did so by itself. On another host a rank may have failed without its word.
    fn died(&self, tail: &str) -> bool {
        let alone = self.launcher.nodes.is_empty() && !self.rank_failed();
        blame::names_a_loss(tail) || (alone && !blame::names_a_rank(tail))
    }

    /// Whether a rank of this host has failed by itself.
    fn rank_failed(&self) -> bool {
        let failed = |exit: RankExit| exit.shell_code() != 0 && !exit.stopped;
        let mut ends =
            self.spec.ranks.iter().filter_map(|rank| self.dir.read_json(&exit_file(rank.rank)).ok()?);
        ends.any(failed)
    }
}

/// Takes all that a launcher says until it has ended.
async fn drained(child: &mut Child, said: &Arc<Mutex<Said>>) -> std::io::Result<ExitStatus> {
    let (ended, ends) = mpsc::unbounded_channel();
    if let Some(input) = child.stdin.take() {
        tokio::spawn(confirm(input, ends));
    }
    let take = |kind| (kind, Arc::clone(said), ended.clone());
    let out = child.stdout.take().map(|stream| tokio::spawn(drain(stream, take(Stream::Stdout))));
    let err = child.stderr.take().map(|stream| tokio::spawn(drain(stream, take(Stream::Stderr))));
    let status = child.wait().await;
    let rest = async {
        for task in [out, err].into_iter().flatten() {
            let _ = task.await;
        }
    };
    let _ = tokio::time::timeout(LATE, rest).await;
    status
}

type Listening = (Stream, Arc<Mutex<Said>>, UnboundedSender<Rank>);

async fn drain(mut stream: impl AsyncRead + Unpin, (kind, said, ended): Listening) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        for rank in said.lock().unwrap_or_else(PoisonError::into_inner).hear(kind, bytes) {
            // Where nothing is to be confirmed, nothing listens.
            let _ = ended.send(rank);
        }
    }
}

/// Tells each task whose output has ended that it was read: it waits for that.
async fn confirm(mut input: ChildStdin, mut ends: UnboundedReceiver<Rank>) {
    while let Some(rank) = ends.recv().await {
        if input.write_all(format!("{rank}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}
