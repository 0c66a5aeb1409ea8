//! What can be told of a moment of a long recording before the way there is folded: how the run began, where its time went at some
//! moments, and what came last. It takes the same time however long the run is, and the fold replaces it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::decoder::Decoder;
use super::fold::{self, Fold};
use super::format::Channel;
use super::reader::Reader;
use crate::domain::alerts::AlertRules;
use crate::domain::time::Stamp;
use crate::domain::world::{Histories, World};

/// So many envelopes of the beginning are folded, so many of what came last, and so many are looked at between: each about a
/// microsecond or two.
const HEAD: u64 = 8_000;
const TAIL: u64 = 8_000;
/// So many of what came last where the rest is known.
const SHORT_TAIL: u64 = 4_000;
const LOOKED_AT: u64 = 64_000;
/// At so many moments at least and at most.
const LEAST_LOOKS: u64 = 32;
const MOST_LOOKS: u64 = 256;
/// So many of them for each point of the history, so that none is empty.
const LOOKS_A_POINT: usize = 2;

/// The beginning of a recording, and how far it was looked at.
#[derive(Debug)]
pub(super) struct Glimpse {
    /// The world at the end of the beginning, as it is before a leap to somewhere else.
    head: World,
    /// The first chunk behind the beginning.
    chunk: usize,
}

impl Glimpse {
    /// Of a recording that tells which run it is of.
    pub(super) fn new(reader: &Reader, rules: Arc<AlertRules>) -> Option<Self> {
        reader.spec()?;
        let mut fold = Fold::new(rules);
        while reader.envelopes_before(fold.chunk()) < HEAD && fold.chunk() < reader.chunk_count() {
            let envelopes = reader.load(fold.chunk()).unwrap_or_default();
            fold.take(&envelopes, fold::ALL);
        }
        let (chunk, mut head) = (fold.chunk(), fold.into_world());
        // each moment that is told begins with a copy, without what a leap leaves out
        head.leap(LOOKS_A_POINT);
        Some(Self { head, chunk })
    }

    /// What can be told of a moment, where nothing is known but the recording: looks between tell where the time went.
    pub(super) fn at(&self, reader: &Reader, moment: Stamp, decoder: &mut Decoder) -> World {
        let last = reader.chunk_at(moment);
        let first = self.tail(reader, last, TAIL);
        // what came last is taken apart meanwhile
        decoder.ask_from(reader, first, last);
        let looks = self.looks(reader, first, moment);
        let mut world = self.head.clone();
        world.leap(looks.len().div_ceil(LOOKS_A_POINT));
        for chunk in looks {
            let steps = reader.load_untimed(chunk, |channel| channel == Channel::Phase).unwrap_or_default();
            for envelope in &*steps {
                world.look_at(envelope);
            }
        }
        self.end((reader, decoder), world, first..=last, moment)
    }

    /// What can be told of a moment, where a later one has told where the time went: quicker by far.
    pub(super) fn before(
        &self,
        reader: &Reader,
        moment: Stamp,
        later: &Histories,
        decoder: &mut Decoder,
    ) -> World {
        let last = reader.chunk_at(moment);
        let first = self.tail(reader, last, SHORT_TAIL);
        // likewise
        decoder.ask_from(reader, first, last);
        let mut world = self.head.clone();
        world.leap_to(reader.chunk_span(first).map_or(moment, |(start, _)| start), later);
        self.end((reader, decoder), world, first..=last, moment)
    }

    /// The first chunk of what came last: so many envelopes at most, and one chunk at least.
    fn tail(&self, reader: &Reader, last: usize, most: u64) -> usize {
        let is_near = |chunk: usize| {
            let way = reader.envelopes_before(last + 1).saturating_sub(reader.envelopes_before(chunk));
            chunk == last || way <= most
        };
        (self.chunk..=last).rev().take_while(|chunk| is_near(*chunk)).last().unwrap_or(self.chunk)
    }

    /// Takes in the stages that were entered before what came last, and that.
    fn end(
        &self,
        (reader, decoder): (&Reader, &mut Decoder),
        mut world: World,
        chunks: RangeInclusive<usize>,
        moment: Stamp,
    ) -> World {
        for chunk in self.chunk..*chunks.start() {
            if let Some((note, (_, end))) = reader.note(chunk).zip(reader.chunk_span(chunk))
                && let Some(stage) = note.stage
            {
                world.had_entered(end, stage);
            }
        }
        for chunk in chunks {
            let envelopes = decoder.take(chunk).unwrap_or_else(|| reader.load(chunk)).unwrap_or_default();
            envelopes
                .iter()
                .take_while(|timed| timed.time <= moment)
                .for_each(|timed| world.apply(&timed.envelope));
        }
        world
    }

    /// The chunks that are looked at between the beginning and the chunk `until`: as far from each other in time.
    fn looks(&self, reader: &Reader, until: usize, moment: Stamp) -> Vec<usize> {
        let Some((from, _)) = reader.chunk_span(self.chunk) else { return Vec::new() };
        let chunks = (until - self.chunk.min(until)) as u64;
        let way = reader.envelopes_before(until).saturating_sub(reader.envelopes_before(self.chunk));
        let each = way / chunks.max(1);
        let count = (LOOKED_AT / each.max(1)).clamp(LEAST_LOOKS, MOST_LOOKS) as i64;
        let between = moment.micros_since(from) / count;
        let places =
            (0..count).map(|number| reader.chunk_at(from.plus_micros(number * between + between / 2)));
        let mut looks: Vec<usize> = places.filter(|chunk| *chunk < until).collect();
        looks.dedup();
        looks
    }
}
