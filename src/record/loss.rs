//! What is missing where chunks of a recording are lost, as far as the chunks around tell: times, numbers, steps and output.

use std::collections::BTreeMap;

use super::check::Good;
use super::chunk;
use super::format::Channel;
use super::scan::Bytes;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::time::Stamp;

/// How many chunks before and behind a loss are read for what they tell of it: about 48 s of a run.
const AROUND: usize = 64;
/// How many losses of one recording are looked at.
const MOST: usize = 1000;
/// Bytes between two lines that are no loss: a line may end in two.
const LINE_END: u64 = 2;

/// What is missing between two good chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// The file, by its place among those of the recording.
    pub file: usize,
    /// Where in it the first bad place is.
    pub at_byte: u64,
    /// When the good chunk before ends; `None` where there is none.
    pub from: Option<Stamp>,
    /// When the good chunk behind begins.
    pub to: Option<Stamp>,
    /// At most so many events: numbers count also what other runs of the same client told.
    pub events: Option<u64>,
    /// Steps that are missing: rank, first and last.
    pub steps: Vec<(Rank, u64, u64)>,
    /// Output that is missing: rank, stream, from which byte to before which.
    pub output: Vec<(Rank, Stream, u64, u64)>,
}

/// The losses of a recording, from its good chunks and the places between that are bad.
pub(super) fn between(good: &[Good], bad: &[(usize, u64)], open: &[Option<Bytes>]) -> Vec<Loss> {
    let mut losses: BTreeMap<usize, Loss> = BTreeMap::new();
    for (file, at) in bad {
        // the chunk behind the bad place
        let next = good.partition_point(|chunk| (chunk.file, chunk.at) < (*file, *at));
        if losses.len() >= MOST || losses.contains_key(&next) {
            continue;
        }
        let before = next.checked_sub(1).and_then(|last| good.get(last));
        let behind = good.get(next);
        let events = match (before, behind) {
            (Some(before), Some(behind)) => {
                Some(behind.note.first_seq.saturating_sub(before.note.last_seq).saturating_sub(1))
            }
            _ => None,
        };
        // numbers that follow each other: what is bad held no event
        if events == Some(0) {
            continue;
        }
        let (steps, output) = around(good, next, open);
        losses.insert(
            next,
            Loss {
                file: *file,
                at_byte: *at,
                from: before.map(|chunk| chunk.note.end),
                to: behind.map(|chunk| chunk.note.start),
                events,
                steps,
                output,
            },
        );
    }
    losses.into_values().collect()
}

type Steps = Vec<(Rank, u64, u64)>;
type Output = Vec<(Rank, Stream, u64, u64)>;

fn around(good: &[Good], next: usize, open: &[Option<Bytes>]) -> (Steps, Output) {
    let (before, behind) = good.split_at(next.min(good.len()));
    let mut ends = Told::default();
    for (rank, stream, offset) in before.iter().flat_map(|chunk| chunk.note.lines.iter().flatten()) {
        // without its text, a line begins and ends there
        ends.lines.insert((*rank, *stream), (*offset, *offset));
    }
    for chunk in before.iter().skip(before.len().saturating_sub(AROUND)) {
        for envelope in &events(chunk, open) {
            ends.take(envelope);
        }
    }
    let mut begins = Told::default();
    for chunk in behind.iter().take(AROUND) {
        events(chunk, open).iter().rev().for_each(|envelope| begins.take(envelope));
        // the first of each stays
        begins.keep();
    }
    (begins.steps_after(&ends), begins.output_after(&ends))
}

fn events(chunk: &Good, open: &[Option<Bytes>]) -> Vec<Envelope> {
    let Some(Some(bytes)) = open.get(chunk.file) else { return Vec::new() };
    let Ok(record) = bytes.read(chunk.at, chunk.length) else { return Vec::new() };
    let wants = |channel| matches!(channel, Channel::Phase | Channel::Log(_) | Channel::Event);
    chunk::decode(&record, wants).map(|decoded| decoded.envelopes).unwrap_or_default()
}

/// What chunks tell of steps and lines, the newest told of each rank.
#[derive(Default)]
struct Told {
    /// The step, and how many steps after the one before it.
    steps: BTreeMap<Rank, (u64, u64)>,
    /// Where the line begins, and where it ends.
    lines: BTreeMap<(Rank, Stream), (u64, u64)>,
    kept: Option<Box<Told>>,
}

impl Told {
    fn take(&mut self, envelope: &Envelope) {
        match (&envelope.event, &envelope.origin) {
            (Event::StepDone { timing }, Origin::Rank(_, rank)) => {
                let stride = self.steps.get(rank).map_or(1, |(last, _)| timing.step.abs_diff(*last).max(1));
                self.steps.insert(*rank, (timing.step, stride));
            }
            (Event::LogPrinted { line }, _) => {
                let end = line.offset.saturating_add(line.elided).saturating_add(line.text.len() as u64);
                self.lines.insert((line.rank, line.stream), (line.offset, end.saturating_add(1)));
            }
            (Event::LogGap { gap }, _) => {
                self.lines.insert((gap.rank, gap.stream), (gap.from, gap.to));
            }
            _ => {}
        }
    }

    /// Keeps what was told first of each, in the order of the chunks.
    fn keep(&mut self) {
        let mut kept = self.kept.take().unwrap_or_default();
        for (rank, step) in std::mem::take(&mut self.steps) {
            kept.steps.entry(rank).or_insert(step);
        }
        for (line, place) in std::mem::take(&mut self.lines) {
            kept.lines.entry(line).or_insert(place);
        }
        self.kept = Some(kept);
    }

    fn steps_after(&self, ends: &Self) -> Steps {
        let Some(first) = &self.kept else { return Vec::new() };
        let missing = first.steps.iter().filter_map(|(rank, (step, stride))| {
            let (last, before) = ends.steps.get(rank)?;
            // a rank that tells each tenth step has lost none between two of them
            let is_lost = step.checked_sub(*last)? > (*before).max(*stride);
            is_lost.then_some((*rank, last + 1, step - 1))
        });
        missing.collect()
    }

    fn output_after(&self, ends: &Self) -> Output {
        let Some(first) = &self.kept else { return Vec::new() };
        let missing = first.lines.iter().filter_map(|((rank, stream), (begin, _))| {
            let (_, end) = ends.lines.get(&(*rank, *stream)).copied().unwrap_or_default();
            (begin.checked_sub(end)? > LINE_END).then_some((*rank, *stream, end, *begin))
        });
        missing.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::fixtures::step_timing;
    use crate::domain::ids::RunId;
    use crate::domain::log::LogLine;

    fn step(rank: u32, step: u64) -> Envelope {
        let timing = step_timing(step, 1);
        let origin = Origin::Rank(RunId::new(1, 1), Rank(rank));
        Envelope { seq: 1, at: Stamp(0), origin, event: Event::StepDone { timing: Arc::new(timing) } }
    }

    fn line(offset: u64, text: &str) -> Envelope {
        let (rank, stream, text) = (Rank(0), Stream::Stdout, text.to_owned());
        let line = Arc::new(LogLine { rank, stream, offset, text, elided: 0, t: None });
        let origin = Origin::Rank(RunId::new(1, 1), rank);
        Envelope { seq: 1, at: Stamp(0), origin, event: Event::LogPrinted { line } }
    }

    fn told(envelopes: &[Envelope]) -> Told {
        let mut told = Told::default();
        for envelope in envelopes {
            told.take(envelope);
        }
        told
    }

    fn first(envelopes: &[Envelope]) -> Told {
        let mut told = Told::default();
        envelopes.iter().rev().for_each(|envelope| told.take(envelope));
        told.keep();
        told
    }

    #[test]
    fn steps_between_the_last_and_the_first_are_missing() {
        let before = told(&[step(0, 40), step(0, 41), step(1, 41)]);
        let after = first(&[step(0, 45), step(0, 46), step(1, 42), step(2, 9)]);
        assert_eq!(after.steps_after(&before), [(Rank(0), 42, 44)]);
        // each tenth step is told
        let before = told(&[step(0, 10), step(0, 20)]);
        assert_eq!(first(&[step(0, 30), step(0, 40)]).steps_after(&before), []);
        assert_eq!(first(&[step(0, 50), step(0, 60)]).steps_after(&before), [(Rank(0), 21, 49)]);
        // all ranks were started again
        assert_eq!(first(&[step(0, 1)]).steps_after(&before), []);
    }

    #[test]
    fn output_between_two_lines_is_missing() {
        let before = told(&[line(0, "one"), line(4, "two\r")]);
        assert_eq!(first(&[line(9, "three")]).output_after(&before), []);
        assert_eq!(first(&[line(10, "three")]).output_after(&before), []);
        let after = first(&[line(100, "four"), line(105, "five")]);
        assert_eq!(after.output_after(&before), [(Rank(0), Stream::Stdout, 9, 100)]);
        assert_eq!(first(&[line(100, "four")]).output_after(&told(&[])), [(Rank(0), Stream::Stdout, 0, 100)]);
    }
}
