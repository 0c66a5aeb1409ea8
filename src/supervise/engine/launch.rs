//! `hvtui launch-wrap`: the parent of a launcher. It waits for the nodes of the other hosts, starts the launcher,
//! hands what that wants done on another host to the node there, and writes down how it ended.
//!
//! What the launcher says goes, each write whole, to the standard error of this host's first rank; where its output is
//! tagged, to the ranks that it names, by the node of their host where that is another one. Knows nothing of how ranks end.

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
use tokio::task::JoinHandle;

use super::remote::Remote;
use super::tagged::{LauncherOutput, RemoteChunk};
use super::{END, EngineEnd, RUN_SECRET, sweep, wrapper};
use crate::clock;
use crate::domain::blame;
use crate::domain::engine::{
    EXE, Engine, Launcher, NODE_PORT, Program, RUN_DIR, SSH_HERE, SSH_NODES, TORCH_LOGS,
};
use crate::domain::ids::Rank;
use crate::domain::launcher_words;
use crate::domain::log::Stream;
use crate::domain::mpirun::{self, MpiPlan};
use crate::domain::run::{HostRun, RankExit, signal_name};
use crate::domain::tags::TagStyle;
use crate::domain::text::os_text;
use crate::procs::marks::HOST_MARK;
use crate::program::{own_binary, resolve, working_directory};
use crate::supervise::environment::limits::Lent;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{STOP, exit_file};
use crate::supervise::{SuperviseError, lease};

/// How long a launcher's output may come after its end: what it has started may keep it open.
const LATE: Duration = Duration::from_secs(1);
/// What takes a host and a command as ssh does.
pub(super) const AGENT: &str = "rsh";
/// The folder of torchrun's logs: the ranks' own files hold all of it.
const LOGS: &str = "torchrun";
/// What a launcher that carries its variables to other hosts must not: they differ from host to host, or are secret.
const OF_THIS_HOST: [&str; 6] = [HOST_MARK, RUN_DIR, EXE, NODE_PORT, "HVTUI_BIND", "HVTUI_PEERS"];
/// The same as [`AGENT`] by ssh's own name, for launchers that look for that in the search path.
const SSH: &str = "ssh";
/// Variables of a batch system or of another launcher: mpirun would take its hosts from them.
const FOREIGN: [&str; 6] = ["SLURM_", "PBS_", "LSB_", "OMPI_COMM_", "PMIX_", "PMI_"];

/// Runs the launcher to its end; its exit code.
pub fn run(dir: &Path) -> Result<i32, SuperviseError> {
    wrapper(dir, |dir, spec| async move {
        let Some(engine @ Engine::Launcher(launcher)) = &spec.engine else { return None };
        let work = Work { dir: &dir, spec: &spec, engine, launcher };
        let end = work.end().await;
        if launcher.tags.is_some() {
            // Their GPUs are held until they are gone.
            sweep().await;
        }
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
    tags: Option<TagStyle>,
}

impl Prepared {
    /// Lets a line as it was typed find the nodes: by the ssh that its launcher looks for.
    fn find_ssh(&mut self, agent: &str) {
        let Some((dir, _)) = agent.rsplit_once('/') else { return };
        let path = self.env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok());
        let path = path.map_or_else(|| dir.to_owned(), |path| format!("{dir}:{path}"));
        self.env.insert("PATH".to_owned(), path);
    }
}

/// What a launcher says and whom it concerns; shared by those who read its two streams.
type SharedOutput = Arc<Mutex<LauncherOutput>>;

fn lock(output: &SharedOutput) -> std::sync::MutexGuard<'_, LauncherOutput> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    async fn end(&self) -> EngineEnd {
        let failed = |words: String| {
            let words = format!("{} was not started: {words}", self.engine.name());
            EngineEnd { code: 69, died: true, words, t: clock::host_now() }
        };
        let remote = async {
            if self.launcher.nodes.is_empty() {
                return Ok(None);
            }
            Remote::meet(self.dir, &self.launcher.nodes).await.map(|remote| Some(Arc::new(remote)))
        };
        // The launcher is asked for its version while the nodes connect.
        let (remote, prepared) = tokio::join!(remote, self.prepare());
        let prepared = match &remote {
            Ok(_) => prepared,
            Err(words) => Err(words.clone()),
        };
        let remote = remote.unwrap_or_default();
        let style = prepared.as_ref().ok().and_then(|prepared| prepared.tags).or(self.launcher.tags);
        let output = Arc::new(Mutex::new(LauncherOutput::new(self.dir, self.spec, style)));
        let end = match prepared {
            Ok(prepared) => self.execute(prepared, &output, remote.as_ref()).await,
            Err(words) => failed(words),
        };
        let rest = lock(&output).rest();
        let tail = lock(&output).tail();
        if style.is_some() {
            lock(&output).finish(&end, &tail);
        }
        let _ = std::fs::remove_dir_all(self.logs());
        if let Err(error) = self.dir.write_json(END, &end) {
            let _ = writeln!(std::io::stderr(), "hvtui: {error}");
        }
        // After the local truth: what ends on the other hosts by this is no news here any more.
        if let Some(remote) = remote {
            hand_on(Some(&remote), rest).await;
            remote.end(&end, &tail).await;
        }
        end
    }

    async fn prepare(&self) -> Result<Prepared, String> {
        let cwd = working_directory(self.launcher.cwd.as_deref()).map_err(|error| error.to_string())?;
        let mut prepared = match &self.launcher.program {
            Program::Argv(argv) => {
                let name = argv.first().ok_or("the launcher's command is empty")?;
                let program = self.find(name, &cwd)?;
                let mut env = BTreeMap::new();
                if self.launcher.env.contains_key(TORCH_LOGS) {
                    env.insert(TORCH_LOGS.to_owned(), self.logs().display().to_string());
                }
                Prepared { program, argv: argv.clone(), env, cwd, tags: None }
            }
            Program::Mpi(plan) => {
                let version = self.version(plan, &cwd).await?;
                let agent = self.agent(AGENT).map_err(|error| error.to_string())?;
                let root = rustix::process::geteuid().is_root();
                let command =
                    mpirun::command(plan, &version, &agent, root).map_err(|error| error.to_string())?;
                let name = command.argv.first().ok_or("the launcher's command is empty")?;
                let program = self.find(name, &cwd)?;
                Prepared { program, argv: command.argv, env: command.env, cwd, tags: command.tags }
            }
        };
        if self.has_line() {
            prepared.find_ssh(&self.agent(SSH).map_err(|error| error.to_string())?);
        }
        Ok(prepared)
    }

    /// Whether it is a line that looks for ssh itself; srun does not.
    fn has_line(&self) -> bool {
        !self.launcher.name.is_empty()
    }

    fn logs(&self) -> PathBuf {
        self.dir.path().join(LOGS)
    }

    fn find(&self, name: &str, cwd: &Path) -> Result<PathBuf, String> {
        let path = std::env::var_os("PATH");
        resolve(name, path.as_deref(), cwd, &own_binary())
            .map_err(|error| format!("{error} on {}", self.spec.host))
    }

    /// What the launcher says of its version.
    async fn version(&self, plan: &MpiPlan, cwd: &Path) -> Result<String, String> {
        let words = plan.version_words();
        let name = words.join(" ");
        let program = self.find(words[0], cwd)?;
        let mut command = Command::new(&program);
        self.foreign(&mut command);
        // what is before it may make its environment first
        let deadline = Duration::from_secs(if plan.before.is_empty() { 20 } else { 60 });
        command.args(&words[1..]).arg("--version").current_dir(cwd);
        let asked = command.env_remove(RUN_SECRET).stdin(Stdio::null()).output();
        let output = tokio::time::timeout(deadline, asked).await;
        let output = output.map_err(|_| format!("'{name} --version' does not end"))?;
        let output = output.map_err(|error| format!("exec {}: {}", program.display(), os_text(&error)))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// A program by whose path alone a launcher reaches the nodes: launchers part words at spaces and colons.
    fn agent(&self, name: &str) -> Result<String, SuperviseError> {
        let path = self.dir.path().join(name);
        let failed = |e| SuperviseError::io("write", &path, e);
        let mut script = self.dir.replace(name)?;
        // By their values: a launcher may have started it with other variables.
        let exe = own_binary().display().to_string();
        let mut words = vec![format!("{RUN_DIR}={}", self.dir.path().display())];
        if name == SSH {
            words.push(format!("{SSH_HERE}={}", self.launcher.name));
            words.push(format!("{SSH_NODES}={}", self.launcher.nodes.join(",")));
        }
        words.extend([exe, "rsh-agent".to_owned()]);
        let words = shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
        script.write_all(format!("#!/bin/sh\nexec env {words} \"$@\"\n").as_bytes()).map_err(failed)?;
        script.set_permissions(PermissionsExt::from_mode(0o700)).map_err(failed)?;
        let text = path.display().to_string();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-@+=~".contains(letter);
        Ok(if text.chars().all(plain) {
            text
        } else {
            format!("/proc/{}/fd/{}/{name}", std::process::id(), self.dir.number())
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
        output: &SharedOutput,
        remote: Option<&Arc<Remote>>,
    ) -> EngineEnd {
        let Prepared { program, argv, env, cwd, .. } = prepared;
        let mut command = Command::new(&program);
        command.args(argv.iter().skip(1)).current_dir(cwd).process_group(0);
        self.foreign(&mut command);
        command.envs(env).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A task of srun is told on its input that its output was read.
        let tasks = self.launcher.tags == Some(TagStyle::Srun);
        command.stdin(if tasks { Stdio::piped() } else { Stdio::null() });
        // Ranks get it from their rank-wraps; those of a launcher that tags have no use for it.
        command.env_remove(RUN_SECRET);
        if self.has_line() {
            for name in OF_THIS_HOST {
                command.env_remove(name);
            }
        }
        let (lent, failed) = Lent::set(&self.spec.environment().limits);
        for words in failed {
            let _ = writeln!(std::io::stderr(), "hvtui: {words}");
        }
        let child = command.spawn();
        drop(lent);
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                let words = format!("exec {}: {}", program.display(), os_text(&error));
                return EngineEnd { code: 126, died: true, words, t: clock::host_now() };
            }
        };
        if self.launcher.tags.is_some() {
            lock(output).began(child.id());
        }
        let serve = async {
            if let Some(remote) = remote {
                remote.serve().await;
            }
            std::future::pending::<Infallible>().await
        };
        let status = tokio::select! {
            status = drained(&mut child, output, remote) => status,
            never = serve => match never {},
        };
        self.judge(status, &lock(output).tail())
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
            let died = !self.dir.has(STOP) && !self.rank_failed() && !blame::names_a_rank(tail);
            return EngineEnd { code: 128 + signal, died, words, t };
        }
        match status.code().unwrap_or(255) {
            0 => EngineEnd { code: 0, died: false, words: format!("{name} ended with exit 0"), t },
            code => {
                let said = launcher_words::cause(tail);
                let words = launcher_words::sentence(self.engine, said.as_deref(), &format!("exit {code}"));
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
async fn drained(
    child: &mut Child,
    output: &SharedOutput,
    remote: Option<&Arc<Remote>>,
) -> std::io::Result<ExitStatus> {
    let (ended, ends) = mpsc::unbounded_channel();
    if let Some(input) = child.stdin.take() {
        tokio::spawn(confirm(input, ends));
    }
    let take = |kind| Listening {
        kind,
        output: Arc::clone(output),
        remote: remote.map(Arc::clone),
        ended: ended.clone(),
    };
    let out = child.stdout.take().map(|stream| tokio::spawn(drain(stream, take(Stream::Stdout))));
    let err = child.stderr.take().map(|stream| tokio::spawn(drain(stream, take(Stream::Stderr))));
    let mut readers: Vec<JoinHandle<()>> = [out, err].into_iter().flatten().collect();
    let status = child.wait().await;
    let rest = async {
        for task in &mut readers {
            let _ = task.await;
        }
    };
    let _ = tokio::time::timeout(LATE, rest).await;
    readers.iter().for_each(JoinHandle::abort);
    status
}

/// Who listens to one of the launcher's streams.
struct Listening {
    kind: Stream,
    output: SharedOutput,
    remote: Option<Arc<Remote>>,
    ended: UnboundedSender<Rank>,
}

async fn drain(mut stream: impl AsyncRead + Unpin, listening: Listening) {
    let Listening { kind, output, remote, ended } = listening;
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default();
        let parsed = lock(&output).feed(kind, bytes);
        for rank in parsed.ended {
            // Where nothing is to be confirmed, nothing listens.
            let _ = ended.send(rank);
        }
        hand_on(remote.as_deref(), parsed.remote).await;
    }
}

/// Hands on to the nodes what ranks on their hosts have printed.
async fn hand_on(remote: Option<&Remote>, chunks: Vec<RemoteChunk>) {
    let Some(remote) = remote else { return };
    for chunk in chunks {
        remote.hand_on(chunk).await;
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
