//! A proxy command: a line of the person's own that carries the bytes on its standard streams. It ends with the link,
//! and with it whatever it started.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::SshError;
use super::group::Group;
use super::report::{self, STDERR_BYTES, Text};
use super::target::Target;

/// What a proxy command wrote to standard error. Keeps it alive: a command may close its output before it says why.
#[derive(Debug, Default)]
pub(super) struct ProxyStderr(Option<ProxyProcess>);

#[derive(Debug)]
struct ProxyProcess {
    text: Arc<Mutex<Text>>,
    ended: watch::Receiver<bool>,
    _group: Arc<Group>,
}

impl ProxyStderr {
    /// Its words, sanitised, once it has ended or had a moment to.
    pub(super) async fn words(&self) -> Option<String> {
        let ProxyProcess { text, ended, .. } = self.0.as_ref()?;
        let _ = timeout(Duration::from_secs(1), ended.clone().wait_for(|ended| *ended)).await;
        let words = text.lock().unwrap_or_else(PoisonError::into_inner).clean();
        Some(report::quote(&words).replace('\n', " | ")).filter(|words| !words.is_empty())
    }
}

/// Starts the command.
pub(super) fn start(target: &Target, line: &str) -> Result<(Proxy, ProxyStderr), SshError> {
    let failed = |detail: String| SshError::Network {
        host: target.host.clone(),
        at: target.endpoint(),
        detail: format!("its proxy command can't be started: {detail}"),
    };
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("exec {line}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Group::spawn(&mut command).map_err(|error| failed(error.to_string()))?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(errors)) = streams else {
        return Err(failed("no standard streams".to_owned()));
    };
    let text = Arc::new(Mutex::new(Text::default()));
    let (ended, end) = watch::channel(false);
    tokio::spawn(listen(errors, text.clone(), ended));
    let group = Arc::new(child);
    let stream = Proxy { _group: group.clone(), input: Some(input), output };
    let stderr = ProxyStderr(Some(ProxyProcess { text, ended: end, _group: group }));
    Ok((stream, stderr))
}

async fn listen(mut errors: ChildStderr, text: Arc<Mutex<Text>>, ended: watch::Sender<bool>) {
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = errors.read(&mut piece).await {
        let bytes = piece.get(..length).unwrap_or_default();
        text.lock().unwrap_or_else(PoisonError::into_inner).push_tail(bytes, STDERR_BYTES);
    }
    let _ = ended.send(true);
}

/// The command as a stream.
pub(super) struct Proxy {
    _group: Arc<Group>,
    input: Option<ChildStdin>,
    output: ChildStdout,
}

impl AsyncRead for Proxy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buf)
    }
}

impl AsyncWrite for Proxy {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.input {
            Some(input) => Pin::new(input).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().map_or(Poll::Ready(Ok(())), |input| Pin::new(input).poll_flush(cx))
    }

    /// The command finds the end of its standard input.
    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input = None;
        Poll::Ready(Ok(()))
    }
}
