//! What is recorded after the playhead, as far as a screen shows it: the next lines of the log, and steps and samples up to the
//! end of the timeline's window; where these are too many, where the time went in the window, before the playhead too.
//!
//! It is read a chunk at a time, once the playhead is where it is wanted, so that it delays no move.

mod lines;
mod phases;
mod timeline;

pub(super) use lines::Lines;
pub(super) use phases::Phases;
pub(super) use timeline::Timeline;
