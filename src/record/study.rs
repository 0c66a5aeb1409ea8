//! The figures of a part of a recording that moves, as `hvtui report` tells those of one that stays. What comes before the part is
//! read too, for it says who ran and by whom steps were told; it is read once: the analysis is kept at some places of it, and a part
//! that grows at its end is read on from there.

use std::sync::Arc;

use super::error::Error;
use super::format::Channel;
use super::reader::{Reader, Timed};
use crate::domain::analysis::{Analyzer, Choice, RunAnalysis};
use crate::domain::time::Stamp;

/// At so many places of a recording, one or two times as many, the analysis is kept; no nearer to each other than so many chunks.
const PLACES: usize = 24;
const LEAST_APART: usize = 32;

/// A recording whose parts are looked at.
#[derive(Debug)]
pub struct Study {
    reader: Reader,
    /// An analysis in which nothing counts yet, and the chunk that it is to be given next. In rising order.
    kept: Vec<(usize, Analyzer)>,
    /// The part that was read last.
    part: Option<Part>,
}

/// A part and how far it was read.
#[derive(Debug)]
struct Part {
    from: Stamp,
    /// Up to and including this moment.
    until: Stamp,
    /// The chunk that is read next; where a part of it was read, up to when.
    chunk: usize,
    within: Option<Stamp>,
    analyzer: Analyzer,
}

impl Study {
    /// Of a recording; `None` where it does not tell which run it is of.
    pub fn new(reader: Reader) -> Option<Self> {
        let spec = Arc::new(reader.spec()?.clone());
        let mut analyzer = Analyzer::new(spec, Choice::default());
        analyzer.count(false);
        Some(Self { reader, kept: vec![(0, analyzer)], part: None })
    }

    /// Takes in what was recorded since.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn read_on(&mut self) -> Result<(), Error> {
        self.reader.read_on()
    }

    /// The figures of what happened after `from`, up to and including `to`. `goes_on` is asked before each chunk, with the share
    /// that is read; what was read before it said no is kept. `None` then. A chunk that can't be read is left out, as in a replay.
    pub fn figures(
        &mut self,
        from: Stamp,
        to: Stamp,
        mut goes_on: impl FnMut(f64) -> bool,
    ) -> Option<RunAnalysis> {
        let last = self.reader.chunk_at(to.plus_micros(1)).min(self.reader.chunk_count().saturating_sub(1));
        let known = self.part.take().filter(|part| part.from == from && part.until <= to);
        let mut first = known.as_ref().map(|part| part.chunk);
        let mut goes_on = |chunk: usize| {
            let first = *first.get_or_insert(chunk);
            goes_on(chunk.saturating_sub(first) as f64 / (last + 1).saturating_sub(first).max(1) as f64)
        };
        let mut part = match known {
            Some(part) => part,
            None => self.begin(from, &mut goes_on)?,
        };
        while let Some((_, end)) = self.reader.chunk_span(part.chunk).filter(|(start, _)| *start <= to) {
            if !goes_on(part.chunk) {
                self.part = Some(part);
                return None;
            }
            let is_new = |time: Stamp| part.within.is_none_or(|within| time > within) && time <= to;
            for timed in self.load(part.chunk, true).iter().filter(|timed| is_new(timed.time)) {
                part.analyzer.take(&timed.envelope);
            }
            if end > to {
                (part.within, part.until) = (Some(to), to);
                break;
            }
            (part.chunk, part.within, part.until) = (part.chunk + 1, None, end);
        }
        let figures = part.analyzer.clone().so_far();
        self.part = Some(part);
        Some(figures)
    }

    /// Reads what comes before a part.
    fn begin(&mut self, from: Stamp, goes_on: &mut impl FnMut(usize) -> bool) -> Option<Part> {
        let target = self.reader.chunk_at(from);
        let nearest = self.kept.partition_point(|(chunk, _)| *chunk <= target).saturating_sub(1);
        let (mut chunk, mut analyzer) = self.kept.get(nearest).cloned()?;
        let apart = (self.reader.chunk_count() / PLACES).max(LEAST_APART);
        while self.reader.chunk_span(chunk).is_some_and(|(_, end)| end <= from) {
            if !goes_on(chunk) {
                return None;
            }
            for envelope in
                self.reader.load_untimed(chunk, |channel| is_looked_at(channel, false)).unwrap_or_default()
            {
                analyzer.take(&envelope);
            }
            chunk += 1;
            if self.kept.last().is_some_and(|(kept, _)| chunk >= kept + apart) {
                self.kept.push((chunk, analyzer.clone()));
            }
        }
        for timed in self.load(chunk, false).iter().take_while(|timed| timed.time <= from) {
            analyzer.take(&timed.envelope);
        }
        analyzer.count(true);
        Some(Part { from, until: from, chunk, within: Some(from), analyzer })
    }

    /// What of a chunk an analysis looks at: before the part neither lines nor telemetry.
    fn load(&self, chunk: usize, counts: bool) -> Vec<Timed> {
        self.reader.load_some(chunk, |channel| is_looked_at(channel, counts)).unwrap_or_default()
    }
}

/// Whether an analysis looks at what a channel holds, in the part that it counts or before that.
pub(super) fn is_looked_at(channel: Channel, counts: bool) -> bool {
    match channel {
        Channel::Metric => false,
        Channel::Log(_) | Channel::Gpu | Channel::GpuNumbers => counts,
        Channel::Chunk | Channel::Meta | Channel::Event | Channel::Clock | Channel::Phase => true,
    }
}
