//! Collective operations: what lets several ranks act on the same numbers.
//!
//! Layer 2. Knows ranks, buffers, shared memory and sockets; knows nothing of training, of the environment or of
//! reports. Reads no clock by itself: one is passed in.
//!
//! A [`Group`] is joined with a [`GroupConfig`] and used by the calls of [`Collective`]. In each operation all ranks
//! first enter a *barrier*: that tells who keeps the others waiting ([`OpTiming`]), who has diverged, who is gone. Then bytes move:
//! within a host through shared memory, between hosts around rings. See docs/decisions/collective.md for why, and
//! docs/guide/collective.md for how to use it.
//!
//! The rooms: `rendezvous`, `acceptor`, `dial`, `auth`, `connect` bring ranks together; `control`, `failure_attribution`, `failure_detector` find
//! out who is to blame; `streams` says how many connections; `shm` and `tcp` move bytes, `kernels` add them; `engine` leads an operation (`job`), `within` a host and
//! `between` hosts; `group` is all of it.

mod acceptor;
mod auth;
mod between;
mod buffer;
mod communicator;
mod config;
mod connect;
mod control;
mod deadline;
mod dial;
mod element;
mod engine;
mod error;
mod failure_attribution;
mod failure_detector;
mod flight;
mod group;
mod job;
mod kernels;
mod model;
pub mod nccl;
mod op;
mod rendezvous;
mod shm;
mod socket;
mod solo;
mod streams;
mod tcp;
mod within;

pub use auth::{BadSecret, Secret};
pub use buffer::{Buffer, Work};
pub use communicator::{Collective, Communicator, chunk};
pub use config::{GroupConfig, TransportPreference};
pub use deadline::Clock;
pub use element::{DType, Element, Reduce, Values, bf16, f16};
pub use error::CollectiveError;
pub use flight::{Flight, OpRecord, Reached};
pub use group::{Group, Place};
pub use op::{OpId, OpKind, OpTiming, Transport};
pub use rendezvous::RendezvousEvent;
pub use solo::Solo;
