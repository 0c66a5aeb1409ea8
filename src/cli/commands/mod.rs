//! One file for each command.

pub mod completions;
pub mod config;
pub mod hosts;
pub mod man;
