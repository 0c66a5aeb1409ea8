//! Where the time of all that train went, in buckets of some lengths, kept beside a long recording: a timeline of a part in which too
//! much lies to be read step by step is drawn from them.
//!
//! A block has the steps of some chunks that follow each other, whenever they were told, so that blocks and chunks that are read beside
//! each other add up to all steps, each once. Where a block begins follows from the chunks alone.

mod grid;
mod kept;
mod maker;

pub(super) use kept::{Kept, Plan, Progress, Reading};
pub(super) use maker::{Block, Maker};
