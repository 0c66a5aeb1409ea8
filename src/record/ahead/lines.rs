//! What is printed after the playhead, as far as a screen has room for it.

use std::sync::Arc;

use super::super::format::Channel;
use super::super::reader::{Reader, Timed};
use crate::domain::world::LoggedLine;

/// So many lines are read at most.
const LINES: usize = 64;
/// So many chunks, where little is printed: half a minute of most runs.
const CHUNKS: usize = 40;

/// The lines after one moment.
#[derive(Debug)]
pub(in crate::record) struct Lines {
    next: usize,
    left: usize,
    found: Vec<Arc<LoggedLine>>,
}

impl Lines {
    /// After a place in a chunk, of which this is the rest; `None` where the chunk is still to be written.
    pub(in crate::record) fn new(chunk: usize, rest: Option<&[Timed]>) -> Self {
        let next = chunk + usize::from(rest.is_some());
        let mut lines = Self { next, left: CHUNKS, found: Vec::new() };
        lines.take(rest.unwrap_or_default());
        lines
    }

    /// Whether there is something left to read.
    pub(in crate::record) fn is_due(&self, reader: &Reader) -> bool {
        self.left > 0 && self.found.len() < LINES && self.next < reader.chunk_count()
    }

    /// Reads one more chunk; what can't be read is passed over, as the playhead does when it comes there.
    pub(in crate::record) fn read(&mut self, reader: &Reader) {
        let wants = |channel| matches!(channel, Channel::Log(_) | Channel::Event);
        let chunk = reader.load_some(self.next, wants).unwrap_or_default();
        self.take(&chunk);
        self.next += 1;
        self.left -= 1;
    }

    fn take(&mut self, later: &[Timed]) {
        let lines = later.iter().filter_map(|timed| LoggedLine::of(&timed.envelope).map(Arc::new));
        self.found.extend(lines.take(LINES - self.found.len()));
    }

    /// What has been read, oldest first.
    pub(in crate::record) fn lines(&self) -> &[Arc<LoggedLine>] {
        &self.found
    }
}
