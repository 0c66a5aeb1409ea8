//! What a host's GPUs and CPUs do, read through NVML, the CUDA driver and `/proc`. Layer 2.
//!
//! ```text
//!            Sampler            one per agent: facts and one sample per call, in bounded time
//!           /       \
//!       host         reader     what is true of all GPUs; a lane is the thread of one GPU, which may hang alone
//!      /    \         /    \
//!  procfs  addresses  lane  topology · cuda
//!                       \    /
//!                        nvml ── absence · process · process_use · counters · nvlink · events, on a thread of the caller's
//! ```
//!
//! `load` says whether a host has more to do than it can. `remote` and `smi` read another host's answers as text, where no agent runs.
//!
//! Only the types of `domain::host` and `domain::gpu` leave this folder. It knows nothing of agents, links
//! or screens. Its clock comes in as an argument, since what is counted has the moment at which it was read, not the one at which
//! it was asked for; deadlines are those of channels.

mod absence;
mod addresses;
mod counters;
mod cuda;
mod events;
mod gpm;
mod host;
mod lane;
pub mod load;
mod mig;
mod nvlink;
mod nvml;
mod process;
mod process_use;
mod procfs;
mod reader;
mod remote;
mod sampler;
mod smi;
mod topology;

use std::sync::Arc;

use crate::domain::time::HostTime;

pub use process::identify;
pub use remote::{RemoteReader, TooMuch};
pub use sampler::{Sampler, SamplerConfig};
pub use smi::{APP_FIELDS, GPU_FIELDS};

/// Reads the host's clock.
type HostClock = Arc<dyn Fn() -> HostTime + Send + Sync>;
