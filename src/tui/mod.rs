//! The terminal UI, in parts that import downwards only.
//!
//! ```text
//! runtime   the terminal and the loop: waits for keys and messages, draws once
//! source    where messages come from and effects go: live cluster, or a recording
//! screens   the model and its screens, one folder each: state, keys, view; one registry entry each
//! canvas    what views draw with
//! core      keys, actions, messages, effects; pure
//! ```

pub mod canvas;
pub mod core;
pub mod runtime;
pub mod screens;
pub mod source;
