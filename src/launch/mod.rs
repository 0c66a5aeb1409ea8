//! What people type to launch something, understood without touching anything: pure functions of text.
//! Knows nothing of hosts that exist, of files, or of how a launch is carried out.

pub mod paste;
pub mod suspect;
pub mod words;
