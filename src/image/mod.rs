//! Container images and the engine that has them. Layer 2.
//!
//! ```text
//!  client: engine save ── saved: contents by hash ── (link) ── blobs ── archive: what the host lacks ── engine load :host
//! ```
//!
//! - [`engine`]: which engine a machine has, and what it says of itself and of an image.
//! - [`mod@reference`]: the name of an image, and what an engine makes of it. Pure.
//! - [`saved`]: what an engine's `save` prints, taken apart into contents.
//! - [`archive`]: contents put together for an engine's `load`.
//! - [`staging`]: where contents lie until an engine has them.
//! - [`client`]: programs of an engine that run for long: `save`, `load`, `build`.

pub mod archive;
pub mod client;
pub mod engine;
pub mod reference;
pub mod saved;
pub mod staging;
