//! What a host's GPUs and CPUs do, read through NVML, the CUDA driver and `/proc`. Layer 2.
//!
//! ```text
//!            Sampler            one per agent: facts and one sample per call, in bounded time
//!           /       \
//!       host         reader     the thread that may hang, so that nobody else does
//!      /    \           \
//!  procfs  addresses     nvml ── absence · counters · process · process_use · cuda
//! ```
//!
//! `remote` and `smi` read another host's answers as text, where no agent runs.
//!
//! Only the types of `domain::host` and `domain::gpu` leave this folder. It knows nothing of agents, links
//! or screens, and reads no clock: moments come in as arguments, deadlines are those of channels.

mod absence;
mod addresses;
mod counters;
mod cuda;
mod host;
mod nvml;
mod process;
mod process_use;
mod procfs;
mod reader;
mod remote;
mod sampler;
mod smi;

pub use process::identify;
pub use remote::{RemoteReader, TooMuch};
pub use sampler::{Sampler, SamplerConfig};
pub use smi::{APP_FIELDS, GPU_FIELDS};
