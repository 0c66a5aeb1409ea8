//! What is told first of a way that takes longer than a frame: what can be known of its end without going there.

use std::sync::Arc;

use super::Player;
use crate::domain::world::World;
use crate::record::glimpse::Glimpse;

/// A way of so many envelopes takes a quarter of a second: what can be told at once is told first.
const LONG_WAY: u64 = 150_000;
/// Where a later moment has told where the time went, that takes as long as to fold half of so many. A shorter way takes about a frame, with
/// the copies of the world at its beginning and its end: moves near a place that was left, where checkpoints lie near each other, show
/// nothing rough between.
const FELT_WAY: u64 = 8_000;

impl Player {
    /// What can be told at once of a moment before one that was left, where the way there is felt. The fold stays where it is.
    pub(super) fn glimpse_of_known(&mut self) -> Option<World> {
        if self.way_from.is_some() || !self.moved || self.way_left() < FELT_WAY {
            return None;
        }
        let left = self.fold.last().filter(|last| self.known.as_ref().is_none_or(|(known, _)| known < last));
        if let Some(last) = left {
            self.known = Some((last, self.fold.world().histories()));
        }
        let (until, _) = self.known.as_ref()?;
        if *until < self.playhead {
            return None;
        }
        self.begin_glimpses();
        let (glimpse, (_, known)) = self.glimpse.as_ref().zip(self.known.as_ref())?;
        Some(glimpse.before(&self.reader, self.playhead, known, &mut self.decoder))
    }

    /// What can be told at once of any moment, where a long way begins.
    pub(super) fn glimpse_of_any(&mut self) -> Option<World> {
        if self.way_from.is_some() || self.way_left() < LONG_WAY {
            return None;
        }
        self.begin_glimpses();
        Some(self.glimpse.as_ref()?.at(&self.reader, self.playhead, &mut self.decoder))
    }

    fn begin_glimpses(&mut self) {
        if self.glimpse.is_none() {
            self.glimpse = Glimpse::new(&self.reader, Arc::clone(&self.fold.world().alerts.rules));
        }
    }

    /// How many envelopes lie before the playhead that are not folded, as far as one can go back to.
    fn way_left(&self) -> u64 {
        let way = |chunk| self.reader.envelopes_before(chunk);
        let from = self.fold.nearest(self.place());
        way(self.reader.chunk_at(self.playhead)).saturating_sub(way(from))
    }
}
