//! One `ssh` process as a command's streams. It is killed, with its proxy command, when nobody holds them any more.

use std::ffi::OsString;
use std::io;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::ssh::error::SshError;
use crate::ssh::group::Group;
use crate::ssh::report::{self, BANNER_BYTES, STDERR_BYTES, Text};
use crate::ssh::route::OpenSsh;
use crate::ssh::streams::{AgentReader, AgentWriter, Feed, Keep, LinkEnd, streams};
use crate::ssh::target::Target;

/// The most that is read from a pipe at a time.
const PIECE: usize = 32 * 1024;
/// The status by which `ssh` says that it failed itself.
const OWN_FAILURE: i32 = 255;

/// Why no command runs.
pub(super) enum Failed {
    Error(SshError),
    /// `ssh` gave up and said this, sanitised.
    Said(String),
}

/// Starts `ssh` and waits until it is let in. Returns what was shown before, too.
pub(super) async fn run(
    target: &Target,
    ssh: &OpenSsh,
    words: &[OsString],
    line: &str,
) -> Result<(AgentReader, AgentWriter, String), Failed> {
    let failed = |detail: String| {
        let detail = format!("{} can't be started: {detail}", ssh.program.display());
        Failed::Error(SshError::NoCarrier { host: target.host.clone(), detail })
    };
    let mut command = Command::new(&ssh.program);
    command.args(words).arg("--").arg(&ssh.alias).arg(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Group::spawn(&mut command).map_err(|error| failed(error.to_string()))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(failed("no standard streams".to_owned()));
    };
    let mut log = Log { errors, open: BytesMut::new(), text: Text::default() };
    let limit = target.connect_timeout.saturating_add(target.patience());
    let is_in = timeout(limit, log.until_in()).await.map_err(|_| {
        Failed::Error(SshError::TimedOut {
            host: target.host.clone(),
            at: target.endpoint(),
            what: "did not let ssh in",
            after: limit,
            remedy: "check the network, and the host's load and its sshd's log",
        })
    })?;
    let shown = log.text.clean();
    if !is_in {
        return Err(Failed::Said(shown));
    }
    log.text = Text::default();
    let closed = CancellationToken::new();
    let connection: Keep = Arc::new(closed.clone().drop_guard());
    let (reader, writer, feed) = streams(Box::pin(Input(Some(input))), &connection);
    tokio::spawn(async move {
        let end = tokio::select! {
            end = drain(&mut child, output, log, &feed) => end,
            () = closed.cancelled() => {
                ended(None, String::new())
            }
        };
        feed.end(end);
    });
    Ok((reader, writer, shown))
}

/// Takes all that comes, then waits for the end.
async fn drain(child: &mut Group, mut output: ChildStdout, mut log: Log, feed: &Feed) -> LinkEnd {
    let out = async {
        let mut piece = BytesMut::new();
        loop {
            piece.reserve(PIECE);
            match output.read_buf(&mut piece).await {
                Ok(1..) => feed.push(piece.split().freeze()).await,
                Ok(0) | Err(_) => break,
            }
        }
    };
    tokio::join!(out, log.rest());
    ended(child.wait().await.ok(), log.text.clean())
}

fn ended(status: Option<ExitStatus>, said: String) -> LinkEnd {
    match status.and_then(|status| status.code()) {
        Some(OWN_FAILURE) => {
            let last = said.lines().last().unwrap_or("ssh ended with status 255");
            LinkEnd { reason: last.to_owned(), lost: true, status: None, stderr: said }
        }
        Some(code) => LinkEnd {
            reason: format!("the command ended with status {code}"),
            lost: false,
            status: Some(code.cast_unsigned()),
            stderr: said,
        },
        None => LinkEnd { reason: "ssh was killed".to_owned(), lost: true, status: None, stderr: said },
    }
}

/// The standard error of `ssh`: its own words, and those of the command.
struct Log {
    errors: ChildStderr,
    open: BytesMut,
    text: Text,
}

impl Log {
    /// Reads until `ssh` says that it is in; `false` if it ended before.
    async fn until_in(&mut self) -> bool {
        while let Some(line) = self.line().await {
            if line.starts_with(b"Authenticated to ") {
                return true;
            }
            if !is_chatter(&line) {
                self.text.push(&line, BANNER_BYTES);
            }
        }
        false
    }

    async fn rest(&mut self) {
        while let Some(line) = self.line().await {
            if !is_chatter(&line) {
                self.text.push_tail(&line, STDERR_BYTES);
            }
        }
    }

    /// The next line with its end, or a piece of a long one.
    async fn line(&mut self) -> Option<BytesMut> {
        loop {
            let end = self.open.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            if let Some(end) = end.or((self.open.len() >= PIECE).then_some(PIECE)) {
                return Some(self.open.split_to(end));
            }
            self.open.reserve(PIECE);
            if let Ok(0) | Err(_) = self.errors.read_buf(&mut self.open).await {
                return (!self.open.is_empty()).then(|| self.open.split());
            }
        }
    }
}

/// What `ssh` says only because it was told to be verbose.
fn is_chatter(line: &[u8]) -> bool {
    let text = report::clean(line);
    text.starts_with("Transferred: sent ") || text.starts_with("Bytes per second: sent ")
}

/// Standard input; closing it is the end of file for the command.
struct Input(Option<ChildStdin>);

impl AsyncWrite for Input {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Some(input) => Pin::new(input).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().map_or(Poll::Ready(Ok(())), |input| Pin::new(input).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}
