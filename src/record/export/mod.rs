//! Recordings in other programs' shapes.

mod align;
pub mod chrome;
pub mod kernels;
