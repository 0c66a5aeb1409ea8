//! Opens the byte stream to an agent: a child process on this machine, or one channel of an ssh connection.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::process::{Child, Command};
use tokio::time;

use super::nested;
use crate::domain::host::RefusalKind;
use crate::ssh;

/// How long a wrong agent may take to be put aside.
const QUARANTINE: Duration = Duration::from_secs(20);

/// Bytes that a pipe within this process holds.
const PIPE: usize = 64 * 1024;

/// How a host's agent is reached.
#[derive(Debug, Clone)]
pub enum LinkTarget {
    /// This machine: the agent is a child process.
    Local {
        /// The hvtui binary.
        exe: PathBuf,
    },
    /// Another machine.
    Ssh {
        /// Where and how.
        target: Box<ssh::Target>,
        /// What to put there, and what to do without.
        deployment: ssh::Deployment,
    },
    /// No machine at all: who answers lives in this process.
    Within {
        /// Its name, for people.
        to: String,
        /// Who answers.
        agent: Arc<dyn Within>,
    },
    /// It can't be said how to reach it.
    Unusable {
        /// Its name, for people.
        to: String,
        /// Why, with the remedy.
        reason: String,
    },
}

/// An agent within this process.
pub trait Within: fmt::Debug + Send + Sync {
    /// Serves one link until it ends; an error says why it does not.
    fn answer(self: Arc<Self>, link: DuplexStream) -> Result<BoxFuture<'static, ()>, String>;
}

impl LinkTarget {
    /// `user@address:port`, or `local`.
    pub fn describe(&self) -> String {
        match self {
            Self::Local { .. } => "local".to_owned(),
            Self::Ssh { target, .. } => target.way(),
            Self::Within { to, .. } | Self::Unusable { to, .. } => to.clone(),
        }
    }
}

/// An open byte stream to an agent.
pub(crate) struct Link {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Hash of the binary that must answer, where we put it there ourselves.
    pub(crate) build: Option<String>,
    /// Where that binary is on the host.
    pub(crate) path: Option<String>,
    /// Why there is no agent at the other end, but text of the host's own tools.
    pub(crate) limited: Option<String>,
    /// What the host printed at login.
    pub(crate) banner: String,
    /// What let us in, where a login was needed.
    pub(crate) login: String,
    keeper: Keeper,
}

/// What must live as long as the stream, and knows why it ended.
enum Keeper {
    Child(Child),
    Ssh(ssh::Link),
    /// Who is at the other end of a pipe ends when that does.
    None,
}

/// Why no link came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkError {
    /// Worth another try.
    Unreachable(String),
    /// Not before a person acts.
    Refused(RefusalKind, String),
    /// The agent sent what it must not: worth another try, but no sooner for it.
    Cut(String),
}

impl LinkTarget {
    /// Opens the stream. `installing` hears how many bytes of the binary are being sent.
    pub(crate) async fn open(&self, installing: Arc<AtomicU64>) -> Result<Link, LinkError> {
        match self {
            Self::Local { exe } => open_child(exe),
            Self::Ssh { target, deployment } => open_ssh(target, deployment, installing).await,
            Self::Within { agent, .. } => open_within(Arc::clone(agent)),
            Self::Unusable { reason, .. } => Err(LinkError::Refused(RefusalKind::Agent, reason.clone())),
        }
    }

    /// Puts the agent at `path` aside, which answered with the content `got`; says what came of it.
    pub(crate) async fn quarantine(&self, path: &str, got: &str) -> String {
        let Self::Ssh { target, .. } = self else { return String::new() };
        match time::timeout(QUARANTINE, ssh::quarantine(target, path, got)).await {
            Ok(Ok(moved)) => format!("it is now {moved}, the next connection puts the right one there"),
            Ok(Err(error)) => format!("it could not be renamed: {error}: remove it"),
            Err(_) => format!("it could not be renamed within {} s: remove it", QUARANTINE.as_secs()),
        }
    }
}

fn open_within(agent: Arc<dyn Within>) -> Result<Link, LinkError> {
    let (ours, theirs) = tokio::io::duplex(PIPE);
    tokio::spawn(agent.answer(theirs).map_err(LinkError::Unreachable)?);
    let (reader, writer) = tokio::io::split(ours);
    Ok(Link {
        reader: Box::new(reader),
        writer: Box::new(writer),
        build: None,
        path: None,
        limited: None,
        banner: String::new(),
        login: String::new(),
        keeper: Keeper::None,
    })
}

fn open_child(exe: &PathBuf) -> Result<Link, LinkError> {
    let failed = |what: &str| LinkError::Unreachable(format!("start {} agent: {what}", exe.display()));
    let mut command = Command::new(exe);
    // where this process is in a rank itself, the ranks of its run are not told what that one is
    let environment: Vec<_> = std::env::vars_os().collect();
    for (name, value) in nested::changes(&environment, |folder| folder.join("hvtui_report.py").exists()) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command
        .args(["agent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    let reader = child.stdout.take().ok_or_else(|| failed("no standard output"))?;
    let writer = child.stdin.take().ok_or_else(|| failed("no standard input"))?;
    Ok(Link {
        reader: Box::new(reader),
        writer: Box::new(writer),
        build: None,
        path: None,
        limited: None,
        banner: String::new(),
        login: String::new(),
        keeper: Keeper::Child(child),
    })
}

async fn open_ssh(
    target: &ssh::Target,
    deployment: &ssh::Deployment,
    installing: Arc<AtomicU64>,
) -> Result<Link, LinkError> {
    let on_progress = move |progress: ssh::Progress| {
        if let ssh::Progress::Installing { bytes } = progress {
            installing.store(bytes.max(1), Ordering::Relaxed);
        }
    };
    let stream =
        ssh::open_agent(target, deployment, on_progress).await.map_err(|error| match error.refusal() {
            Some(kind) => LinkError::Refused(kind, error.to_string()),
            None => LinkError::Unreachable(error.to_string()),
        })?;
    if !stream.banner.is_empty() {
        tracing::debug!(host = %target.host, banner = stream.banner, "the host printed this before the agent spoke");
    }
    let link = stream.link();
    let (build, path, limited) = match &stream.speaks {
        ssh::Speaks::Agent { build, path } => (build.clone(), Some(path.clone()), None),
        ssh::Speaks::Telemetry { reason } => (None, None, Some(reason.clone())),
    };
    let (banner, login) = (stream.banner.clone(), stream.login.clone());
    let (reader, writer) = stream.into_split();
    Ok(Link {
        reader: Box::new(reader),
        writer: Box::new(writer),
        build,
        path,
        limited,
        banner,
        login,
        keeper: Keeper::Ssh(link),
    })
}

impl Link {
    /// A link to a script at the other end of a pipe.
    #[cfg(test)]
    pub(crate) fn of_pipe(pipe: tokio::io::DuplexStream, build: Option<String>) -> Self {
        let (reader, writer) = tokio::io::split(pipe);
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            build,
            path: None,
            limited: None,
            banner: String::new(),
            login: String::new(),
            keeper: Keeper::None,
        }
    }

    /// Why the stream ended, in words, once it has.
    pub(crate) async fn end_reason(self) -> String {
        drop((self.reader, self.writer));
        match self.keeper {
            Keeper::Child(mut child) => match child.wait().await {
                Ok(status) => format!("agent ended: {status}"),
                Err(error) => format!("agent ended: {error}"),
            },
            Keeper::None => String::new(),
            Keeper::Ssh(link) => {
                let end = link.closed().await;
                if end.stderr.is_empty() {
                    end.reason.clone()
                } else {
                    format!("{}: {}", end.reason, end.stderr)
                }
            }
        }
    }
}
