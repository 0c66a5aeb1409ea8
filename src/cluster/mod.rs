//! One task per host: link, protocol, and what comes back as events. Layer 3.
//!
//! ```text
//!   Cluster ──command──▶ host task ──frames──▶ agent
//!      ▲                    │ lines: bytes of rank files become lines and reports
//!      └──── Incoming ──────┤ ingress: what the agent may send; all of it passes there
//!                           │ receive_queue: what waits for its reader; flow_control: how much of it may come
//!                           └ backoff: when to try again
//! ```
//!
//! A host's task knows nothing of the others: one that is dead, slow or hostile changes nothing for them.

pub mod backoff;
mod flow_control;
mod followed;
mod host_task;
pub mod ingress;
mod line_buffer;
pub mod lines;
pub mod link;
mod listing;
pub mod messages;
mod nested;
mod pings;
pub mod pool;
mod receive_queue;
mod rows;
mod session;
mod signals;
mod unfinished;
mod watch;

pub use crate::ssh::{Asked, Questions};
