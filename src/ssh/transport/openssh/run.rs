//! One `ssh` process as a command's streams. It is killed, with its proxy command, when they are no longer held.

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

use crate::ssh::transport::error::SshError;
use crate::ssh::transport::group::Group;
use crate::ssh::transport::report::{BANNER_BYTES, NOISE_BYTES, STDERR_BYTES, Text};
use crate::ssh::transport::streams::{AgentReader, AgentWriter, Feed, Keep, LinkEnd, streams};
use crate::ssh::transport::target::{OpenSsh, Target};

/// The most that is read from a pipe at a time.
const PIECE: usize = 32 * 1024;
/// The status by which `ssh` says that it failed itself.
const OWN_FAILURE: i32 = 255;

/// Why no command runs.
pub(super) enum Failed {
    Error(SshError),
    /// `ssh` gave up and printed this on standard error, sanitised.
    Printed(String),
}

/// What the last login has shown.
#[derive(Debug, Default, Clone)]
pub(super) struct Shown {
    /// What the host showed before it.
    pub(super) before: String,
    /// The method that let us in.
    pub(super) login: String,
}

/// Starts `ssh` and waits until `marker` comes, or the command ends without it. Returns what was shown before, too.
///
/// Nothing that `ssh` says on its way counts as a success: with jump hosts there are several that say it.
pub(super) async fn run(
    target: &Target,
    ssh: &OpenSsh,
    words: &[OsString],
    line: &str,
    marker: &str,
) -> Result<(AgentReader, AgentWriter, Shown), Failed> {
    let failed = |detail: String| {
        let detail = format!("{} can't be started: {detail}", ssh.program.display());
        Failed::Error(SshError::NoTransport { host: target.host.clone(), detail })
    };
    let mut command = Command::new(&ssh.program);
    command.args(words).arg("--").arg(&ssh.alias).arg(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Group::spawn(&mut command).map_err(|error| failed(error.to_string()))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = pipes else {
        return Err(failed("no standard streams".to_owned()));
    };
    let mut start = Start { output, errors, first: BytesMut::new(), stderr: Text::default() };
    // To connect, to log in, and for the command's first word.
    let limit = target.connect_timeout.saturating_add(target.patience().saturating_mul(2));
    let started = timeout(limit, async {
        if start.until(marker).await {
            return Ok(());
        }
        // Both streams have ended, so it is about to.
        let status = child.wait().await.ok().and_then(|status| status.code());
        if status == Some(OWN_FAILURE) {
            Err(Failed::Printed(without_chatter(&start.stderr.clean())))
        } else {
            Ok(())
        }
    });
    started.await.unwrap_or_else(|_| {
        Err(Failed::Error(SshError::TimedOut {
            host: target.host.clone(),
            at: target.endpoint(),
            what: "did not let ssh in and start a command",
            after: limit,
            remedy: "check the network, the host's load, its sshd's log and the account's shell start files",
        }))
    })?;
    let Start { output, errors, first, stderr } = start;
    let (shown, stderr) = at_login(&stderr.clean());
    let closed = CancellationToken::new();
    let connection: Keep = Arc::new(closed.clone().drop_guard());
    let (mut reader, writer, feed) = streams(Box::pin(Input(Some(input))), &connection);
    reader.put_back(first.freeze());
    tokio::spawn(async move {
        let end = tokio::select! {
            end = drain(&mut child, output, errors, stderr, &feed) => end,
            () = closed.cancelled() => {
                ended(None, String::new())
            }
        };
        feed.end(end);
    });
    Ok((reader, writer, shown))
}

/// Takes all that comes, then waits for the end. `stderr` is what the command has printed there so far.
async fn drain(
    child: &mut Group,
    mut output: ChildStdout,
    mut errors: ChildStderr,
    mut stderr: Text,
    feed: &Feed,
) -> LinkEnd {
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
    let said_all = async {
        let mut piece = BytesMut::with_capacity(PIECE);
        while let Ok(1..) = errors.read_buf(&mut piece).await {
            stderr.push_tail(&piece, STDERR_BYTES);
            piece.clear();
        }
    };
    tokio::join!(out, said_all);
    ended(child.wait().await.ok(), without_chatter(&stderr.clean()))
}

fn ended(status: Option<ExitStatus>, stderr: String) -> LinkEnd {
    match status.and_then(|status| status.code()) {
        Some(OWN_FAILURE) => {
            let last = stderr.lines().last().unwrap_or("ssh ended with status 255");
            LinkEnd { reason: last.to_owned(), lost: true, status: None, stderr }
        }
        Some(code) => LinkEnd {
            reason: format!("the command ended with status {code}"),
            lost: false,
            status: Some(code.cast_unsigned()),
            stderr,
        },
        None => LinkEnd { reason: "ssh was killed".to_owned(), lost: true, status: None, stderr },
    }
}

/// The streams until the command's first word.
struct Start {
    output: ChildStdout,
    errors: ChildStderr,
    /// What came on standard output: at most [`NOISE_BYTES`] and a piece.
    first: BytesMut,
    /// The words of `ssh`, and what the host shows before it runs the command.
    stderr: Text,
}

impl Start {
    /// Reads until the marker has come, or too much without it; `false` when both streams end before.
    async fn until(&mut self, marker: &str) -> bool {
        let (mut speaks, mut complains) = (true, true);
        let mut piece = BytesMut::with_capacity(PIECE);
        while speaks || complains {
            let searched = self.first.len().saturating_sub(marker.len());
            self.first.reserve(PIECE);
            tokio::select! {
                // What was shown first is in `stderr` when the marker comes.
                biased;
                read = self.errors.read_buf(&mut piece), if complains => {
                    complains = matches!(read, Ok(1..));
                    self.stderr.push(&piece, BANNER_BYTES);
                    piece.clear();
                }
                read = self.output.read_buf(&mut self.first), if speaks => {
                    speaks = matches!(read, Ok(1..));
                    let new = self.first.get(searched..).unwrap_or_default();
                    let found = new.windows(marker.len().max(1)).any(|window| window == marker.as_bytes());
                    if found || self.first.len() > NOISE_BYTES {
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// What `ssh` says of each host that lets it in, those on the way too. It parts texts, and proves nothing.
const LOGGED_IN: &str = "Authenticated to ";

/// What was shown before the last login, and what the command has complained of since.
fn at_login(text: &str) -> (Shown, Text) {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|line| line.starts_with(LOGGED_IN)).unwrap_or(lines.len());
    let (shown, since) = lines.split_at(at);
    let mut stderr = Text::default();
    for line in since {
        stderr.push_tail(format!("{line}\n").as_bytes(), STDERR_BYTES);
    }
    // `Authenticated to n1 ([10.0.0.1]:22) using "publickey".`
    let quoted = since.first().and_then(|line| line.split_once(" using \"")?.1.split('"').next());
    let login = quoted.map(|method| format!("{method}, by the system's ssh")).unwrap_or_default();
    (Shown { before: without_chatter(&shown.join("\n")), login }, stderr)
}

/// The text without what `ssh` says only because it was told to be verbose.
fn without_chatter(text: &str) -> String {
    let chatter = [LOGGED_IN, "Transferred: sent ", "Bytes per second: sent "];
    let lines = text.lines().filter(|line| !chatter.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
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
