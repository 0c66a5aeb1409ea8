//! From an authenticated connection to a running agent: start it where its binary is there, else upload first.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::agents::Agents;
use super::binary::AgentBinary;
use super::deployment::{Deployment, TelemetryAsk};
use super::error::{AgentError, DeployError};
use super::script::{self, Nonce, Search};
use super::stream::{AgentStream, Speaks};
use super::watch_script;
use crate::domain::text::sanitize;
use crate::ssh::transport::report::{self, BANNER_BYTES, Scan, Scanner, Text};
use crate::ssh::transport::{self, AgentReader, AgentWriter, LinkEnd, SshError, Target, Transport};

/// The most bytes in one line of a script's answer: a path and a few words.
const LINE_BYTES: usize = 16 * 1024;
/// Bytes of the binary handed to the channel at a time: a few packets. All hosts of a cluster may be sent theirs at once.
const PIECE: usize = 32 * 1024;
/// What shells answer when a file can't be executed or is not there.
const NOT_EXECUTED: [Option<u32>; 2] = [Some(126), Some(127)];

/// How far the way to the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// TCP, ssh handshake, host key and authentication are under way.
    Connecting,
    /// The binary is being put on the host.
    Installing {
        /// Its length.
        bytes: u64,
    },
}

/// Connects, puts the binary on the host if it is not there, and starts it as the agent.
///
/// The stream begins with the agent's first frame. Where no agent can be had and the deployment asks for it, the
/// stream is telemetry by the host's own tools instead: see [`Speaks`]. Never retries a connection or a credential.
pub async fn open_agent(
    target: &Target,
    deployment: impl Into<Deployment>,
    on_progress: impl Fn(Progress) + Send + Sync,
) -> Result<AgentStream, AgentError> {
    let deployment = deployment.into();
    on_progress(Progress::Connecting);
    let session = transport::connect(target).await?;
    let host = Host { target, deployment: &deployment, session };
    match (host.obtain(on_progress).await, &deployment.telemetry) {
        (Err(AgentError::Deploy { problem, .. }), Some(ask)) if problem.leaves_telemetry() => {
            host.watch(ask, problem.to_string()).await
        }
        (obtained, _) => obtained,
    }
}

/// Renames the binary at `path` on the host, which answered with the content `got` instead of its own, so that the
/// next try puts the right one there. Returns its new name.
pub async fn quarantine(target: &Target, path: &str, got: &str) -> Result<String, AgentError> {
    let session = transport::connect(target).await?;
    let agents = Agents::default();
    let deployment = Deployment::new(Arc::new(agents));
    let host = Host { target, deployment: &deployment, session };
    let nonce = Nonce::new()?;
    let bad: String = got.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let mut script = host.run(&script::quarantine_line(path, &bad, &nonce), &nonce).await?;
    let answer = async { Ok(script.line().await.unwrap_or_default()) };
    let answer = host.within(target.patience(), "did not rename the agent", answer).await?;
    match answer.strip_prefix("moved=") {
        Some(moved) => Ok(sanitize(moved).into_owned()),
        None => Err(host.failed(DeployError::Store {
            folder: sanitize(path).into_owned(),
            detail: sanitize(answer.trim_start_matches("fail=")).into_owned(),
        })),
    }
}

enum Start {
    Runs(AgentStream),
    /// Its binary is nowhere, or only in folders that are not safe.
    Absent {
        platform: String,
        unsafe_folders: Vec<String>,
    },
    Broken {
        at: u32,
        error: DeployError,
    },
}

struct Host<'a> {
    target: &'a Target,
    deployment: &'a Deployment,
    session: Box<dyn Transport>,
}

/// A running script: what it says is read line by line.
struct Script {
    reader: AgentReader,
    writer: AgentWriter,
    /// What came before its first word.
    noise: Bytes,
}

impl Host<'_> {
    fn failed(&self, problem: DeployError) -> AgentError {
        AgentError::Deploy { host: self.target.host.clone(), problem }
    }

    fn silent(&self, what: &'static str) -> AgentError {
        AgentError::Ssh(SshError::TimedOut {
            host: self.target.host.clone(),
            at: self.target.shown(),
            what,
            after: self.target.patience(),
            remedy: "check the host's load and the account's shell start files",
        })
    }

    /// The error for a script that ended too early: the link's, or `problem` made of how the command ended.
    fn ended(&self, end: &LinkEnd, problem: impl FnOnce(&LinkEnd) -> DeployError) -> AgentError {
        if end.lost {
            return SshError::Lost { host: self.target.host.clone(), detail: end.reason.clone() }.into();
        }
        self.failed(problem(end))
    }

    /// Starts the agent, and puts it there first if it is not.
    async fn obtain(&self, on_progress: impl Fn(Progress) + Send + Sync) -> Result<AgentStream, AgentError> {
        let mut from = 1;
        let mut broken = None;
        let (platform, tried) = loop {
            match self.start(from).await? {
                Start::Runs(stream) => return Ok(stream),
                Start::Absent { platform, unsafe_folders } => break (platform, unsafe_folders),
                // A file that can't run may stand in the way of one in the next folder.
                Start::Broken { at, error } => {
                    from = at + 1;
                    broken = Some(error);
                    if at == 0 {
                        break Default::default();
                    }
                }
            }
        };
        if let Some(path) = &self.deployment.agent_path {
            return Err(self.failed(broken.unwrap_or_else(|| DeployError::NotAtPath { path: path.clone() })));
        }
        let Some(binary) = self.deployment.agents.for_host(&platform) else {
            let place = self.deployment.agents.place_for(&platform);
            let theirs = sanitize(&platform).into_owned();
            return Err(self.failed(DeployError::OtherPlatform { theirs, place }));
        };
        if !self.deployment.install {
            let absent = match tried[..] {
                [] => DeployError::NotInstalled,
                _ => DeployError::NoFolder { tried },
            };
            return Err(self.failed(broken.unwrap_or(absent)));
        }
        on_progress(Progress::Installing { bytes: binary.bytes() });
        let at = self.install(binary).await?;
        match self.start(at).await? {
            Start::Runs(stream) => Ok(stream),
            Start::Absent { .. } => Err(self.failed(DeployError::Store {
                folder: "the cache folder".to_owned(),
                detail: "the file vanished after the upload".to_owned(),
            })),
            Start::Broken { error, .. } => Err(self.failed(error)),
        }
    }

    /// Puts the binary into the first folder that takes it; returns the folder's number.
    async fn install(&self, binary: &AgentBinary) -> Result<u32, AgentError> {
        let mut from = 1;
        let mut tried = Vec::new();
        loop {
            match self.upload(binary, from).await {
                Ok(at) => return Ok(at),
                // A quota or a disk that fills up shows only while writing: the next folder may do.
                Err(Upload::Store { at, folder, detail }) => {
                    from = at + 1;
                    tried.push(format!("{folder}: {detail}"));
                }
                Err(Upload::NoFolder(more)) => {
                    tried.extend(more);
                    return Err(self.failed(DeployError::NoFolder { tried }));
                }
                Err(Upload::Failed(error)) => return Err(error),
            }
        }
    }

    /// Telemetry by the host's own tools.
    async fn watch(&self, ask: &TelemetryAsk, reason: String) -> Result<AgentStream, AgentError> {
        let nonce = Nonce::new()?;
        let script = self.run(&watch_script::watch_line(ask, &nonce), &nonce).await?;
        let banner = self.banner(&script.noise, &[]);
        let Script { reader, writer, .. } = script;
        let login = self.session.login();
        Ok(AgentStream { banner, login, speaks: Speaks::Telemetry { reason }, reader, writer })
    }

    fn banner(&self, noise: &[u8], more: &[u8]) -> String {
        let mut banner = Text::default();
        for part in [self.session.shown().as_bytes(), b"\n", noise, b"\n", more] {
            banner.push(part, BANNER_BYTES);
        }
        banner.clean()
    }

    async fn within<T>(
        &self,
        limit: Duration,
        what: &'static str,
        work: impl Future<Output = Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        timeout(limit, work).await.unwrap_or_else(|_| Err(self.silent(what)))
    }

    /// Runs a line and reads up to its marker.
    async fn run(&self, line: &str, nonce: &Nonce) -> Result<Script, AgentError> {
        let (mut reader, writer) = self.session.exec(line, &nonce.marker()).await?;
        let noise = self
            .find(&mut reader, nonce, |end, said_text| DeployError::no_shell(end.reason.clone(), said_text));
        let noise = self.within(self.target.patience(), "let no command answer", noise).await?;
        Ok(Script { reader, writer, noise })
    }

    /// Reads up to the marker; returns what stood before it.
    async fn find(
        &self,
        reader: &mut AgentReader,
        nonce: &Nonce,
        ended: impl FnOnce(&LinkEnd, String) -> DeployError,
    ) -> Result<Bytes, AgentError> {
        let mut scanner = Scanner::new(nonce.marker());
        while let Some(bytes) = reader.next().await {
            match scanner.push(&bytes) {
                Scan::More => {}
                Scan::Found(before, behind) => {
                    reader.put_back(behind);
                    return Ok(before);
                }
                Scan::Noise(noise) => {
                    let said_text = report::quote(&report::clean(&noise));
                    return Err(self.failed(DeployError::Noise { said_text }));
                }
            }
        }
        let end = reader.link().closed().await;
        let said_text = report::quote(&format!("{}\n{}", report::clean(&scanner.seen()), end.stderr));
        Err(self.ended(&end, |end| ended(end, said_text)))
    }

    /// Starts the agent where it is, looking from the `from`th folder on.
    async fn start(&self, from: u32) -> Result<Start, AgentError> {
        let nonce = Nonce::new()?;
        let hashes = self.deployment.agents.hashes();
        let cache_dir = self.deployment.cache_dir.as_deref();
        let line = match &self.deployment.agent_path {
            Some(path) => script::start_installed_line(path, &nonce),
            None => script::start_line(Search { hashes: &hashes, cache_dir, from }, &nonce),
        };
        let mut script = self.run(&line, &nonce).await?;
        let work = async {
            let (mut platform, mut at) = (String::new(), 0);
            let mut unsafe_folders = Vec::new();
            while let Some(line) = script.line().await {
                match line.split_once('=') {
                    Some(("os", os)) => os.clone_into(&mut platform),
                    Some(("at", number)) => at = number.parse().unwrap_or_default(),
                    Some(("skip", why)) => unsafe_folders.push(sanitize(why).into_owned()),
                    Some(("run", path)) => return self.meet(script, &nonce, &platform, at, path).await,
                    None if line == "absent" => {
                        self.finish(&script).await;
                        return Ok(Start::Absent { platform, unsafe_folders });
                    }
                    _ => {}
                }
            }
            let end = script.reader.link().closed().await;
            Err(self.ended(&end, |end| DeployError::no_shell(end.reason.clone(), report::quote(&end.stderr))))
        };
        self.within(self.target.patience(), "started no agent", work).await
    }

    /// Waits for the agent's first word.
    async fn meet(
        &self,
        mut script: Script,
        nonce: &Nonce,
        platform: &str,
        at: u32,
        path: &str,
    ) -> Result<Start, AgentError> {
        let shown = sanitize(path).into_owned();
        let found = self.find(&mut script.reader, nonce, |end, said_text| DeployError::NoAgent {
            path: shown,
            end: end.reason.clone(),
            said_text,
            status: end.status,
        });
        match found.await {
            Ok(more) => {
                let banner = self.banner(&script.noise, &more);
                let ours = self.deployment.agents.for_host(platform);
                let ours = ours.filter(|_| self.deployment.agent_path.is_none());
                let build = ours.map(|binary| binary.sha256().to_owned());
                let speaks = Speaks::Agent { build, path: path.to_owned() };
                let Script { reader, writer, .. } = script;
                let login = self.session.login();
                Ok(Start::Runs(AgentStream { banner, login, speaks, reader, writer }))
            }
            Err(AgentError::Deploy { problem: error @ DeployError::NoAgent { status, .. }, .. })
                if NOT_EXECUTED.contains(&status) =>
            {
                self.finish(&script).await;
                Ok(Start::Broken { at, error })
            }
            Err(error) => Err(error),
        }
    }

    /// Uploads into the first folder from the `from`th on that will do; returns its number.
    async fn upload(&self, binary: &AgentBinary, from: u32) -> Result<u32, Upload> {
        let nonce = Nonce::new()?;
        let cache_dir = self.deployment.cache_dir.as_deref();
        let line = script::upload_line(binary, cache_dir, from, &nonce);
        let mut script = self.run(&line, &nonce).await?;
        let limit = self.target.patience();
        let folder = async { Ok(self.folder(&mut script).await) };
        let (at, folder) = self.within(limit, "did not get ready for the upload", folder).await??;
        self.send(binary, &mut script.writer).await?;
        let verdict = async { Ok(self.verdict(binary, &mut script, at, &folder).await) };
        self.within(limit, "did not confirm the upload", verdict).await??;
        Ok(at)
    }

    /// The folder that takes the binary, and its number.
    async fn folder(&self, script: &mut Script) -> Result<(u32, String), Upload> {
        let (mut at, mut folder) = (0, String::new());
        let mut tried = Vec::new();
        while let Some(line) = script.line().await {
            match line.split_once('=') {
                Some(("skip", why)) => tried.push(sanitize(why).into_owned()),
                Some(("at", number)) => at = number.parse().unwrap_or_default(),
                Some(("dir", path)) => folder = sanitize(path).into_owned(),
                Some(("fail", "hash")) => return Err(self.failed(DeployError::NoHashTool).into()),
                Some(("fail", _)) => {
                    self.finish(script).await;
                    return Err(Upload::NoFolder(tried));
                }
                None if line == "ready" => return Ok((at, folder)),
                _ => {}
            }
        }
        let end = script.reader.link().closed().await;
        Err(self.ended(&end, |end| store("the cache folder", end)).into())
    }

    /// Sends the content and the end of file. A host that takes no byte for a while is given up.
    async fn send(&self, binary: &AgentBinary, writer: &mut AgentWriter) -> Result<(), AgentError> {
        let unreadable = |error: std::io::Error| AgentError::Binary {
            path: binary.path().to_owned(),
            detail: error.to_string(),
        };
        let limit = self.target.patience();
        let file = tokio::fs::File::open(binary.path()).await.map_err(unreadable)?;
        let mut file = file.take(binary.bytes());
        let mut piece = vec![0; PIECE];
        loop {
            let length = file.read(&mut piece).await.map_err(unreadable)?;
            let work = async {
                match piece.get(..length) {
                    None | Some([]) => writer.shutdown().await,
                    Some(bytes) => writer.write_all(bytes).await,
                }
            };
            match timeout(limit, work).await {
                Ok(Ok(())) if length == 0 => return Ok(()),
                Ok(Ok(())) => {}
                // The script ended early: what it said, or the link's end, tells why.
                Ok(Err(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Ok(Err(error)) => {
                    let host = self.target.host.clone();
                    return Err(SshError::Lost { host, detail: error.to_string() }.into());
                }
                Err(_) => return Err(self.silent("took no more of the upload")),
            }
        }
    }

    /// Waits for a script's end, and for its session to be free.
    async fn finish(&self, script: &Script) -> Arc<LinkEnd> {
        let end = script.reader.link().closed().await;
        if !end.lost {
            self.session.settled().await;
        }
        end
    }

    /// What the script says of what it received.
    async fn verdict(
        &self,
        binary: &AgentBinary,
        script: &mut Script,
        at: u32,
        folder: &str,
    ) -> Result<(), Upload> {
        let mut got = None;
        let mut done = false;
        while let Some(line) = script.line().await {
            match line.split_once('=') {
                Some(("sum", hash)) => got = Some(hash.to_owned()),
                None if line == "done" => done = true,
                _ => {}
            }
        }
        let end = self.finish(script).await;
        match got {
            Some(hash) if hash != binary.sha256() => Err(self
                .failed(DeployError::Damaged {
                    got: sanitize(&hash).into_owned(),
                    sent: binary.sha256().to_owned(),
                })
                .into()),
            Some(_) if done => Ok(()),
            // The script said in its own words that it could not write.
            _ if !end.lost && end.status == Some(0) => {
                Err(Upload::Store { at, folder: folder.to_owned(), detail: words(&end) })
            }
            _ => Err(self.ended(&end, |end| store(folder, end)).into()),
        }
    }
}

/// How an upload can fail.
enum Upload {
    /// The folder could not hold it.
    Store { at: u32, folder: String, detail: String },
    /// No folder is left, and why.
    NoFolder(Vec<String>),
    /// Anything else.
    Failed(AgentError),
}

impl From<AgentError> for Upload {
    fn from(error: AgentError) -> Self {
        Self::Failed(error)
    }
}

impl Script {
    /// The next line without its end; `None` when there is none, or none of a sane length.
    async fn line(&mut self) -> Option<String> {
        let mut scanner = Scanner::new("\n");
        loop {
            match scanner.push(&self.reader.next().await?) {
                Scan::Found(line, rest) => {
                    self.reader.put_back(rest);
                    return Some(String::from_utf8_lossy(&line).into_owned());
                }
                Scan::More if scanner.count() <= LINE_BYTES => {}
                _ => return None,
            }
        }
    }
}

fn store(folder: &str, end: &LinkEnd) -> DeployError {
    DeployError::Store { folder: folder.to_owned(), detail: words(end) }
}

/// What the host's programs complained of.
fn words(end: &LinkEnd) -> String {
    let said = report::quote(&end.stderr);
    if said.is_empty() { end.reason.clone() } else { said.replace('\n', " | ") }
}
