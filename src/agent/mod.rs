//! Serves one client on a host over any byte stream. Layer 3.
//!
//! One agent per connection: it reads the host's telemetry, checks and starts runs, and sends their files.
//! It owns nothing that must outlive the connection: runs belong to their supervisors.

pub mod build;
mod collectives;
mod commit;
mod deletion;
mod doctor;
mod door;
mod follow;
mod image;
mod inside;
mod lag;
mod list;
mod mesh;
pub mod old_binaries;
mod outgoing;
mod owners;
mod pages;
mod past_samples;
mod ports;
mod preflight;
mod prepare;
mod read_out;
mod redact;
mod runs;
mod sampling;
mod script;
pub mod serve;
mod sightings;
mod signal;
mod stacks;
mod stopping;
mod sync;
mod tail;
mod trace;
mod upload;

use std::path::PathBuf;

pub use serve::serve;

use crate::domain::gpu::event::GpuEvent;
use crate::domain::host::{HostInfo, HostSample};
use crate::wire::frame::FrameError;
use crate::wire::handshake::Incompatible;
use crate::wire::message::MessageError;

/// What tells of the host's GPUs and CPUs. Its calls may block for as long as a driver likes: they are made
/// on a thread of their own.
pub trait Telemetry: Send {
    /// The facts.
    fn info(&mut self) -> HostInfo;
    /// The live values now; rates are those since the last call.
    fn sample(&mut self) -> HostSample;
    /// What tells the events of the GPUs as they come, for a thread of its own, until its listener returns `false`; `None`
    /// where there are none to come.
    fn events(&mut self) -> Option<GpuEventSource> {
        None
    }
}

/// Tells events to a listener until that returns `false`; a list may be empty. It may block for as long as a driver likes.
pub type GpuEventSource = Box<dyn FnOnce(&mut dyn FnMut(Vec<GpuEvent>) -> bool) + Send>;

/// Makes the telemetry, on its own thread and only when a client asks for it: a broken driver may hang here.
pub type TelemetryStart = Box<dyn FnOnce() -> Box<dyn Telemetry> + Send>;

/// What an agent needs to know of its place.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// hvtui's own binary: the supervisor, and what `hvtui` means as a rank's program.
    pub exe: PathBuf,
    /// hvtui's state directory on this host.
    pub state_dir: PathBuf,
    /// SHA-256 of the running binary, see [`build::of_this_process`].
    pub build: String,
}

/// Why an agent stopped serving, other than that its client left.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The link failed.
    #[error("link to the client: {0}")]
    Link(#[from] std::io::Error),
    /// What the client sent can't be read.
    #[error("from the client: {0}")]
    Message(#[from] MessageError),
    /// No common protocol.
    #[error(transparent)]
    Incompatible(#[from] Incompatible),
    /// The client's first message was something else than a hello.
    #[error("the client did not begin with a hello")]
    NoHello,
    /// The client said nothing.
    #[error("the client said nothing for {} s", .0.as_secs())]
    Silent(std::time::Duration),
    /// The running binary can't be read.
    #[error("the running binary has no hash: {0}")]
    Build(crate::sha256::ReadError),
}

impl From<FrameError> for AgentError {
    fn from(error: FrameError) -> Self {
        Self::Message(error.into())
    }
}
