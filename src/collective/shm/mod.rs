//! The ranks of one host: they share memory, and move values without a kernel in between.

mod arena;
mod board;
mod host;
mod identity;
mod join;
mod mapping;
mod moves;
mod wait;

pub(super) use board::{PIECE, PRIVATE, SMALL, Said};
pub(super) use host::{Host, Look, Unmet};
pub(super) use identity::host_key;
pub(super) use join::{Join, cores};
pub(super) use moves::part;
pub(super) use wait::{LOOK, Patience};
