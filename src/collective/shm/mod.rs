//! The ranks of one host: they share memory, and move values without a kernel in between.

mod arena;
mod board;
mod host;
mod identity;
mod join;
mod life;
mod machine;
mod mapping;
mod moves;
mod wait;

pub(super) use board::{OpDescriptor, PRIVATE, SMALL};
pub(super) use host::{BarrierError, Host, Look};
pub(super) use identity::host_key;
pub(super) use join::{Join, cores};
pub(super) use life::Lives;
pub(super) use moves::part;
