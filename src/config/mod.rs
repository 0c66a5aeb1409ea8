//! The hosts file and what the command line adds to it. Layer 3.
//!
//! [`find()`] says which file counts, [`load`] reads it: text → `file` (every key optional, each value with its
//! place in the text) → `merge` (host over `[defaults]`, one function of `validate` per rule) →
//! [`HostsFile`]. All faults of a file are reported together, each with file, line, caret and remedy. Must
//! not know how a host is reached nor what a rank is.

mod alerts;
mod environment;
mod error;
mod file;
mod find;
mod host;
mod merge;
mod retention;
mod validate;

pub use alerts::{AlertsConfig, PLACEHOLDERS};
pub use error::{ConfigError, Problem};
pub use find::{Source, find, load, parse};
pub use host::{Address, HostConfig, HostsFile, Recipe, RecipeWhere, SlotCount, Transport};

/// A commented hosts file that works as it stands: what `hvtui config template` prints.
pub fn template() -> &'static str {
    include_str!("../../hosts.toml")
}
