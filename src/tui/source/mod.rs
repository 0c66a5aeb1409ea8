//! Sources.

pub mod recorded;
