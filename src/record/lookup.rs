//! Looks through the lines of a recording for the next one that has what is searched, a chunk at a time.

use super::format::Channel;
use super::reader::{Reader, Timed};
use crate::domain::log_text::plain;
use crate::domain::playback::LineSearch;
use crate::domain::time::Stamp;
use crate::domain::world::LoggedLine;

/// How far a search has come.
#[derive(Debug)]
pub(super) struct Lookup {
    search: LineSearch,
    /// The chunk that is read next.
    next: Option<usize>,
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// There are more.
    GoesOn,
    /// The moment of the line.
    Found(Stamp),
    /// There is no such line.
    Nothing,
}

impl Lookup {
    /// Before the first chunk.
    pub(super) fn new(reader: &Reader, search: LineSearch) -> Self {
        let next = Self::first(reader, &search);
        Self { search, next }
    }

    fn first(reader: &Reader, search: &LineSearch) -> Option<usize> {
        let last = reader.chunk_count().checked_sub(1)?;
        let at = reader.chunk_at(search.from);
        if search.forward { Some(at) } else { Some(at.min(last)) }
    }

    /// Reads a chunk; what can't be read is passed over, as the playhead does.
    pub(super) fn read(&mut self, reader: &Reader) -> Looked {
        let is_left =
            |chunk: &usize| *chunk < reader.chunk_count() && !self.is_beyond(reader.chunk_span(*chunk));
        let Some(chunk) = self.next.filter(is_left) else {
            if !std::mem::take(&mut self.search.turns) {
                return Looked::Nothing;
            }
            self.search.forward = !self.search.forward;
            self.next = Self::first(reader, &self.search);
            return Looked::GoesOn;
        };
        let rank = self.search.rank;
        let wants = |channel| match channel {
            Channel::Log(of) => rank.is_none_or(|rank| rank.0 == of),
            Channel::Event => true,
            _ => false,
        };
        let lines = reader.load_some(chunk, wants).unwrap_or_default();
        let mut matching = lines.iter().filter(|timed| self.has(timed));
        let found = if self.search.forward { matching.next() } else { matching.next_back() };
        if let Some(found) = found {
            return Looked::Found(found.time);
        }
        self.next = if self.search.forward { Some(chunk + 1) } else { chunk.checked_sub(1) };
        Looked::GoesOn
    }

    /// Whether a chunk with these first and last moments lies where nothing is searched any more.
    fn is_beyond(&self, span: Option<(Stamp, Stamp)>) -> bool {
        let (Some(to), Some((start, end))) = (self.search.to, span) else { return false };
        if self.search.forward { start > to } else { end < to }
    }

    fn has(&self, timed: &Timed) -> bool {
        let LineSearch { pattern, rank, least, forward, from, to, .. } = &self.search;
        let (time, to) = (timed.time, to.unwrap_or(if *forward { Stamp(i64::MAX) } else { Stamp(i64::MIN) }));
        let is_there = if *forward { time > *from && time < to } else { time < *from && time > to };
        is_there
            && LoggedLine::of(&timed.envelope).is_some_and(|line| {
                rank.is_none_or(|rank| line.line.rank == rank)
                    && (line.gap || line.level >= *least)
                    && pattern.is_in(&plain(&line.line.text))
            })
    }
}
