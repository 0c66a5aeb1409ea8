//! One recording per run, of one or more MCAP files: written while it goes, read back, replayed, listed,
//! exported. Layer 2.
//!
//! `format` says what is in the file, `block` and `log_json` how events become bytes and come back,
//! `segments` which files a recording has, `budget` how much it may take, `writer` and `recorder` write, `scan`, `chunk` and `reader` read,
//! `resume_state` tells where a recording stands, `player` replays, `lookup` finds lines for it, `near` reads a part of one that is written for who shows its run, `glimpse` tells what can be told of a long one at once, `heads` reads the beginnings of its chunks side by side, `cache` is the file beside a recording in which `saved` keeps states of its run, which `keeper` makes
//! while it is recorded, `index` where its chunks lie, `levels` where the time went, and `analyzed` the analysis of all of it, `pipeline` decodes chunks side by side, `decoder` those on the way of a replay, `study` tells the
//! figures of a part that moves and `figures` those of the whole and of a part that stays, `check`, `loss` and `closing` check and repair files, `far_steps` tells what lies outside of its run, `store` knows where recordings lie, `marks` keeps what a person
//! noted of a run beside its recording, `export` and `import` translate to and from other programs' formats. Knows nothing of the wire:
//! recordings outlive protocol versions.

mod ahead;
mod analyzed;
mod block;
pub mod budget;
mod cache;
pub mod check;
mod checkpoints;
mod chunk;
pub mod closing;
mod decoder;
mod envelopes;
mod error;
pub mod export;
pub mod far_steps;
pub mod figures;
mod fold;
mod format;
mod glimpse;
mod heads;
pub mod import;
mod index;
mod integrity;
mod keeper;
mod levels;
mod log_json;
mod lookup;
mod loss;
pub mod marks;
mod motion;
mod near;
mod packed;
mod pipeline;
pub mod player;
mod queue;
mod raw;
pub mod reader;
pub mod recorder;
mod repair;
mod resume_state;
mod saved;
mod scan;
mod schema;
mod segments;
mod steps;
pub mod store;
mod study;
mod summary;
mod survey;
mod tfrecord;
pub mod writer;

pub use check::{Check, FileCheck, FileState};
pub use error::Error;
pub use format::FORMAT;
pub(crate) use format::weight;
pub use integrity::Integrity;
pub use loss::Loss;
/// With what each file of a recording begins.
pub use mcap::MAGIC;
pub use near::NearReader;
pub use player::{LookedAhead, Playback, Player};
pub use reader::Reader;
pub use recorder::{Flush, Recorder, Stats, Status};
pub use resume_state::ResumeState;
pub use segments::Lock;
pub use store::Store;
pub use study::Study;
pub use writer::Writer;
