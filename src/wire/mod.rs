//! What the client and an agent say to each other, without any I/O: frames, messages, handshake.
//!
//! Layer 1. Bytes go in, messages come out; time and sockets are the caller's. Messages are JSON under a
//! numbered kind, so that either side may know fields and kinds that the other does not; only a piece of a
//! rank's file ([`chunk::Chunk`]), of a trace, and of a content ([`upload::BlobPiece`]), and [past samples](samples) are binary.

mod asked;
pub mod chunk;
pub mod doctor;
pub mod frame;
pub mod gpu;
pub mod handshake;
pub mod image;
mod kinds;
pub mod lane;
pub mod limits;
pub mod mesh;
pub mod message;
mod payload;
pub mod samples;
pub mod signal;
pub mod sync;
pub mod trace;
pub mod upload;
