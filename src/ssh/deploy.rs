//! From an authenticated connection to a running agent: start it where its binary is there, else upload first.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::binary::AgentBinary;
use super::error::{DeployError, SshError};
use super::report::{self, BANNER_BYTES, Scan, Scanner, Text};
use super::script::{self, Nonce};
use super::streams::{AgentReader, AgentStream, AgentWriter, LinkEnd};
use super::target::Target;
use super::transport::{self, Transport};
use crate::domain::text::sanitize;

/// The most bytes in one line of a script's answer: a path and a few words.
const LINE_BYTES: usize = 16 * 1024;
/// Bytes of the binary handed to the channel at a time.
const PIECE: usize = 256 * 1024;
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
/// The stream begins with the agent's first frame. Never retries a connection or a credential.
pub async fn open_agent(
    target: &Target,
    binary: &AgentBinary,
    on_progress: impl Fn(Progress) + Send + Sync,
) -> Result<AgentStream, SshError> {
    on_progress(Progress::Connecting);
    let session = transport::connect(target).await?;
    let host = Host { target, binary, session };
    match host.start().await? {
        Start::Runs(stream) => return Ok(stream),
        // A damaged file that is in the way is replaced; on another platform the file is not what is wrong.
        Start::Absent { platform } | Start::Broken { platform, .. } => host.check_platform(&platform)?,
    }
    on_progress(Progress::Installing { bytes: binary.bytes() });
    host.upload().await?;
    match host.start().await? {
        Start::Runs(stream) => Ok(stream),
        Start::Absent { .. } => Err(host.failed(DeployError::Store {
            folder: "the cache folder".to_owned(),
            detail: "the file vanished after the upload".to_owned(),
        })),
        Start::Broken { error, .. } => Err(host.failed(error)),
    }
}

enum Start {
    Runs(AgentStream),
    Absent { platform: String },
    Broken { platform: String, error: DeployError },
}

struct Host<'a> {
    target: &'a Target,
    binary: &'a AgentBinary,
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
    fn failed(&self, problem: DeployError) -> SshError {
        SshError::Deploy { host: self.target.host.clone(), problem }
    }

    fn silent(&self, what: &'static str) -> SshError {
        SshError::TimedOut {
            host: self.target.host.clone(),
            at: self.target.shown(),
            what,
            after: self.target.patience(),
            remedy: "check the host's load and the account's shell start files",
        }
    }

    /// The error for a script that ended too early: the link's, or `problem` made of how the command ended.
    fn ended(&self, end: &LinkEnd, problem: impl FnOnce(&LinkEnd) -> DeployError) -> SshError {
        if end.lost {
            return SshError::Lost { host: self.target.host.clone(), detail: end.reason.clone() };
        }
        self.failed(problem(end))
    }

    fn check_platform(&self, theirs: &str) -> Result<(), SshError> {
        let ours = platform();
        if theirs == ours {
            return Ok(());
        }
        Err(self.failed(DeployError::OtherPlatform { theirs: sanitize(theirs).into_owned(), ours }))
    }

    async fn within<T>(
        &self,
        limit: Duration,
        what: &'static str,
        work: impl Future<Output = Result<T, SshError>>,
    ) -> Result<T, SshError> {
        timeout(limit, work).await.unwrap_or_else(|_| Err(self.silent(what)))
    }

    /// Runs a line and reads up to its marker.
    async fn run(&self, line: &str, nonce: &Nonce) -> Result<Script, SshError> {
        let (mut reader, writer) = self.session.exec(line).await?;
        let noise = self.find(&mut reader, nonce, |end, said_text| DeployError::NoShell {
            end: end.reason.clone(),
            said_text,
        });
        let noise = self.within(self.target.patience(), "let no command answer", noise).await?;
        Ok(Script { reader, writer, noise })
    }

    /// Reads up to the marker; returns what stood before it.
    async fn find(
        &self,
        reader: &mut AgentReader,
        nonce: &Nonce,
        ended: impl FnOnce(&LinkEnd, String) -> DeployError,
    ) -> Result<Bytes, SshError> {
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
        let said_text = report::quote(&format!("{}\n{}", report::clean(scanner.seen()), end.stderr));
        Err(self.ended(&end, |end| ended(end, said_text)))
    }

    async fn start(&self) -> Result<Start, SshError> {
        let nonce = Nonce::new()?;
        let mut script = self.run(&script::start_line(self.binary, &nonce), &nonce).await?;
        let work = async {
            let mut platform = String::new();
            while let Some(line) = script.line().await {
                if let Some(os) = line.strip_prefix("os=") {
                    os.clone_into(&mut platform);
                } else if let Some(path) = line.strip_prefix("run=") {
                    return self.meet(script, &nonce, platform, path).await;
                } else if line == "absent" {
                    self.finish(&script).await;
                    return Ok(Start::Absent { platform });
                }
            }
            let end = script.reader.link().closed().await;
            Err(self.ended(&end, |end| DeployError::NoShell {
                end: end.reason.clone(),
                said_text: report::quote(&end.stderr),
            }))
        };
        self.within(self.target.patience(), "started no agent", work).await
    }

    /// Waits for the agent's first word.
    async fn meet(
        &self,
        mut script: Script,
        nonce: &Nonce,
        platform: String,
        path: &str,
    ) -> Result<Start, SshError> {
        let path = sanitize(path).into_owned();
        let found = self.find(&mut script.reader, nonce, |end, said_text| DeployError::NoAgent {
            path,
            end: end.reason.clone(),
            said_text,
            status: end.status,
        });
        match found.await {
            Ok(more) => {
                let mut banner = Text::default();
                for part in [self.session.shown().as_bytes(), b"\n", &script.noise, b"\n", &more] {
                    banner.push(part, BANNER_BYTES);
                }
                let Script { reader, writer, .. } = script;
                Ok(Start::Runs(AgentStream { banner: banner.clean(), reader, writer }))
            }
            Err(SshError::Deploy { problem: error @ DeployError::NoAgent { status, .. }, .. })
                if NOT_EXECUTED.contains(&status) =>
            {
                self.finish(&script).await;
                Ok(Start::Broken { platform, error })
            }
            Err(error) => Err(error),
        }
    }

    async fn upload(&self) -> Result<(), SshError> {
        let nonce = Nonce::new()?;
        let mut script = self.run(&script::upload_line(self.binary, &nonce), &nonce).await?;
        let limit = self.target.patience();
        let folder = self.within(limit, "did not get ready for the upload", self.folder(&mut script)).await?;
        self.send(&mut script.writer).await?;
        let verdict = self.verdict(&mut script, &folder);
        self.within(limit, "did not confirm the upload", verdict).await
    }

    /// The folder that takes the binary.
    async fn folder(&self, script: &mut Script) -> Result<String, SshError> {
        let mut folder = String::new();
        let mut tried = Vec::new();
        while let Some(line) = script.line().await {
            match line.split_once('=') {
                Some(("skip", why)) => tried.push(sanitize(why).into_owned()),
                Some(("dir", path)) => folder = sanitize(path).into_owned(),
                Some(("fail", "hash")) => return Err(self.failed(DeployError::NoHashTool)),
                Some(("fail", _)) => return Err(self.failed(DeployError::NoFolder { tried })),
                None if line == "ready" => return Ok(folder),
                _ => {}
            }
        }
        let end = script.reader.link().closed().await;
        Err(self.ended(&end, |end| store("the cache folder", end)))
    }

    /// Sends the content and the end of file. A host that takes no byte for a while is given up.
    async fn send(&self, writer: &mut AgentWriter) -> Result<(), SshError> {
        let unreadable = |error: std::io::Error| SshError::Binary {
            path: self.binary.path().to_owned(),
            detail: error.to_string(),
        };
        let limit = self.target.patience();
        let file = tokio::fs::File::open(self.binary.path()).await.map_err(unreadable)?;
        let mut file = file.take(self.binary.bytes());
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
                    return Err(SshError::Lost { host, detail: error.to_string() });
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
    async fn verdict(&self, script: &mut Script, folder: &str) -> Result<(), SshError> {
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
            Some(hash) if hash != self.binary.sha256() => Err(self.failed(DeployError::Damaged {
                got: sanitize(&hash).into_owned(),
                sent: self.binary.sha256().to_owned(),
            })),
            Some(_) if done => Ok(()),
            _ => Err(self.ended(&end, |end| store(folder, end))),
        }
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
                Scan::More if scanner.seen().len() <= LINE_BYTES => {}
                _ => return None,
            }
        }
    }
}

fn store(folder: &str, end: &LinkEnd) -> DeployError {
    let said = report::quote(&end.stderr);
    let detail = if said.is_empty() { end.reason.clone() } else { said.replace('\n', " | ") };
    DeployError::Store { folder: folder.to_owned(), detail }
}

/// What `uname -sm` says where this binary runs.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "linux" => "Linux",
        other => other,
    };
    format!("{system} {}", std::env::consts::ARCH)
}
