//! Collective operations: what lets several ranks act on the same numbers.
//!
//! Layer 2. Knows ranks, buffers and sockets; knows nothing of training, of the environment or of reports.
//! Reads no clock by itself: a [`Clock`] is passed in.
//!
//! An operation has two parts. First all ranks *meet*: each tells rank 0 over its control line what it is
//! about to do, and rank 0 says «go» when the last one has arrived. That costs one round trip and buys three
//! things: the time a rank spends waiting for a slow one is known apart from the time the bytes take
//! ([`OpTiming`]); ranks that diverge (another operation, another length) fail at once, with both sides named;
//! and a rank that never comes is known by its number. Then the bytes go round the ring.

mod auth;
mod buffer;
mod communicator;
mod config;
mod connect;
mod control;
mod court;
mod deadline;
mod dial;
mod element;
mod engine;
mod error;
mod flight;
mod gate;
mod group;
mod kernels;
mod op;
mod rendezvous;
mod shm;
mod socket;
mod solo;
mod tcp;
mod trouble;

pub use auth::{BadSecret, Secret};
pub use buffer::{Buffer, Pending};
pub use communicator::{Collective, Communicator, chunk};
pub use config::{GroupConfig, Means};
pub use deadline::Clock;
pub use element::{DType, Element, Reduce, Values, bf16, f16};
pub use error::CollectiveError;
pub use flight::{Flight, Leg, Reached};
pub use group::{Group, Place};
pub use op::{OpId, OpKind, OpTiming, Transport};
pub use rendezvous::MeetingEvent;
pub use solo::Solo;
