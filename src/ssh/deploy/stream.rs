//! What [`open_agent`](super::open_agent) hands out: the streams of a started agent, or of what stands in for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ssh::transport::{AgentReader, AgentWriter, Link, LinkEnd};

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Speaks {
    /// Wire frames, both ways.
    Agent {
        /// Hash of the binary that must answer; `None` for one that the site has installed.
        build: Option<String>,
        /// Its path on the host, as the host said it.
        path: String,
    },
    /// No agent could be had: readings of the host's own tools, as sections of text. Nothing is to be written.
    Telemetry {
        /// Why there is no agent.
        reason: String,
    },
}

/// A started agent, or what stands in for it. The connection ends when both halves are dropped.
pub struct AgentStream {
    /// What the host printed before the agent spoke, sanitised, at most 64 KiB.
    pub banner: String,
    /// What let us in: the key, or the method.
    pub login: String,
    /// What it carries.
    pub speaks: Speaks,
    pub(super) reader: AgentReader,
    pub(super) writer: AgentWriter,
}

impl AgentStream {
    /// Tells why the link ended.
    pub fn link(&self) -> Link {
        self.reader.link().clone()
    }

    /// Waits for the end of the link and says why it came.
    pub async fn closed(&self) -> Arc<LinkEnd> {
        self.reader.link().closed().await
    }

    /// The two directions, to be used by two tasks.
    pub fn into_split(self) -> (AgentReader, AgentWriter) {
        (self.reader, self.writer)
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}
