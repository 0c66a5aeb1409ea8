//! Looks through the lines of a recording for the next one that has what is searched, a chunk at a time.

use std::sync::Arc;

use super::format::Channel;
use super::reader::{Reader, Timed};
use crate::domain::log_text::plain;
use crate::domain::playback::{FoundLine, LineSearch};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    /// There are more.
    GoesOn,
    /// The line.
    Found(FoundLine),
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
        if search.forward {
            return Some(reader.chunk_at(search.from));
        }
        // its moment may go on in chunks that begin with it
        Some(reader.chunk_at(search.from.plus_micros(1)).min(last))
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
        let mut matching = lines.iter().filter_map(|timed| self.matching(timed));
        let found = if self.search.forward { matching.next() } else { matching.next_back() };
        if let Some(found) = found {
            return Looked::Found(found);
        }
        self.next = if self.search.forward { Some(chunk + 1) } else { chunk.checked_sub(1) };
        Looked::GoesOn
    }

    /// Whether a chunk with these first and last moments lies where nothing is searched any more.
    fn is_beyond(&self, span: Option<(Stamp, Stamp)>) -> bool {
        let (Some(to), Some((start, end))) = (self.search.to, span) else { return false };
        if self.search.forward { start > to } else { end < to }
    }

    /// The line that this tells, if it is one that is searched.
    fn matching(&self, timed: &Timed) -> Option<FoundLine> {
        if !self.is_within(timed) {
            return None;
        }
        let LineSearch { pattern, rank, least, .. } = &self.search;
        let line = LoggedLine::of(&timed.envelope)?;
        let is_searched = rank.is_none_or(|rank| line.line.rank == rank)
            && (line.gap || line.level >= *least)
            && pattern.is_in(&plain(&line.line.text));
        is_searched.then(|| FoundLine { at: timed.time, line: Arc::new(line) })
    }

    /// Whether it lies where is searched.
    fn is_within(&self, timed: &Timed) -> bool {
        let LineSearch { forward, from, seen, to, .. } = &self.search;
        let (time, is_of_moment) = (timed.time, timed.time == *from);
        // what happened at the moment may have been told, and seen, after something later
        let is_seen = seen.map(|seen| timed.envelope.seq <= seen);
        if *forward {
            let is_ahead =
                (time > *from && is_seen != Some(true)) || (is_of_moment && is_seen == Some(false));
            is_ahead && to.is_none_or(|to| time <= to)
        } else {
            let is_ahead = time < *from || is_seen == Some(true);
            is_ahead && to.is_none_or(|to| time > to)
        }
    }
}
