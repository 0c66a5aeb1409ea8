//! One MCAP file per run: written while it goes, read back, replayed, listed, exported. Layer 2.
//!
//! `format` says what is in the file, `block` and `log_json` how events become bytes and come back,
//! `writer` and `recorder` write, `scan`, `chunk` and `reader` read, `player` replays, `store` knows
//! where recordings lie. Knows nothing of the wire: recordings outlive protocol versions.

mod block;
mod chunk;
mod error;
pub mod export;
mod fold;
mod format;
mod integrity;
mod log_json;
pub mod player;
mod queue;
pub mod reader;
pub mod recorder;
mod scan;
mod steps;
pub mod store;
pub mod writer;

pub use error::Error;
pub use format::FORMAT;
pub use integrity::Integrity;
pub use player::{Playback, Player};
pub use reader::Reader;
pub use recorder::{Recorder, Stats, Status};
pub use store::Store;
pub use writer::Writer;
