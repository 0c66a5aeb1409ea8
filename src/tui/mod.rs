//! The terminal UI, in four parts that import downwards only.
//!
//! ```text
//! runtime   the terminal and the loop: waits for keys and messages, draws once
//! source    where messages come from and effects go: live cluster, or a recording
//! view      draws a model; mutates nothing
//! core      what the screens know and how keys change it; pure
//! ```

pub mod core;
pub mod runtime;
pub mod source;
pub mod view;
