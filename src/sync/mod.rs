//! Copying a folder to hosts: what it holds, what of it is missing there, and the switch to it. Layer 2.
//!
//! ```text
//!  client: snapshot ── Manifest (paths, modes, hashes) ──▶ host: compare with what is there ─▶ missing contents
//!          contents of those files ───────────────────────▶ blobs ─▶ assemble beside the tree ─▶ switch
//! ```
//!
//! [`manifest`] and [`names`] are pure; [`snapshot`], [`cache`] and [`git`] read the client's folder; [`host`] is all that
//! is done on a host. Nothing here knows the wire, runs or the terminal. [`blobs`] knows nothing of trees either.

pub mod blobs;
pub mod cache;
pub mod error;
pub mod git;
pub mod host;
pub mod manifest;
pub mod names;
pub mod snapshot;

pub use error::SyncError;
