//! hvtui's source, beside the two modules that stand in for what is the machine's.

#![allow(dead_code, reason = "hvtui uses more of it than the models do")]

#[path = "../../../../../src/collective/shm/arena.rs"]
mod arena;
#[path = "../../../../../src/collective/shm/board.rs"]
mod board;
#[path = "../../../../../src/collective/shm/host.rs"]
mod host;
#[path = "../../../../../src/collective/shm/moves.rs"]
mod moves;
#[path = "../../../../../src/collective/shm/wait.rs"]
mod wait;

mod machine;
mod mapping;
mod models;

pub(crate) use machine::{will_read, will_write};
pub(crate) use models::MODELS;
