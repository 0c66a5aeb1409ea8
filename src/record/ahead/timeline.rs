//! Steps and samples after the playhead: those that a second fold finds, which goes on from the playhead's.

use std::sync::Arc;

use crate::domain::ahead::TimelineAhead;
use crate::domain::playback::PlaybackState;
use crate::domain::time::Stamp;
use crate::record::fold::{Fold, Until};
use crate::record::reader::{Reader, Timed};

/// More envelopes than this are not read ahead of the playhead: a run of many ranks keeps no more steps, and it is an eighth of a
/// second's work. A window in which more lies is drawn by what is known of the whole run.
const MOST: u64 = 80_000;
/// While the playhead moves more is read than is shown, so that it is told twice a second at most: this part of a window, or what
/// is played in this many microseconds, whichever is more.
const PART: i64 = 8;
const PLAYED_US: f64 = 500_000.0;

/// Reads ahead of a playhead for a timeline.
#[derive(Debug, Default)]
pub(in crate::record) struct Timeline {
    /// Length of its window, microseconds; 0 where none is shown.
    window: i64,
    /// The fold, and the moment up to which it has come.
    fold: Option<(Fold, Stamp)>,
    /// The chunk that is folded.
    loaded: Option<(usize, Arc<Vec<Timed>>)>,
    /// What was told last.
    told: Option<Told>,
}

/// What a timeline was told.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// For a playhead there, and a window of this length.
    playhead: Stamp,
    window: i64,
    /// The moments after which and up to which all of it is there. A fold keeps the newest steps alone: in a window in which there
    /// are more, that begins behind the playhead.
    after: Stamp,
    until: Stamp,
}

impl Told {
    /// Whether a window around a playhead, which ends at `to`, needs no more.
    fn covers(&self, state: &PlaybackState, window: i64, to: Stamp) -> bool {
        let is_whole = self.after <= state.playhead;
        let is_all_there_is = self.playhead <= state.playhead && self.window <= window;
        (is_whole || is_all_there_is) && self.until >= to
    }
}

impl Timeline {
    /// Sets the length of the window.
    pub(in crate::record) fn show(&mut self, window: i64) {
        self.window = window;
    }

    /// The moment up to which the window is to be known, where that is not told yet and is worth its work.
    fn target(&self, reader: &Reader, fold: &Fold, state: &PlaybackState) -> Option<Stamp> {
        let (_, to) = state.window(self.window);
        let to = to.min(state.end);
        // a recording that has lost what it is of shows no lanes
        if self.window == 0 || to <= state.playhead || reader.spec().is_none() {
            return None;
        }
        if self.told.is_some_and(|told| told.covers(state, self.window, to)) {
            return None;
        }
        let played = if state.playing { (state.speed * PLAYED_US) as i64 } else { 0 };
        let more = if state.playing { played.max(self.window / PART) } else { 0 };
        let target = to.plus_micros(more).min(state.end);
        let chunk = match &self.fold {
            Some((ahead, reached)) if self.goes_on(*reached, state.playhead) => ahead.chunk(),
            _ => fold.chunk(),
        };
        let after_target = reader.chunk_at(target) + 1;
        let way = reader.envelopes_before(after_target).saturating_sub(reader.envelopes_before(chunk));
        (way <= MOST).then_some(target)
    }

    /// Whether a fold that has come to a moment is of use for this playhead: neither behind it nor so far ahead that it has
    /// forgotten the steps after it.
    fn goes_on(&self, reached: Stamp, playhead: Stamp) -> bool {
        reached >= playhead && reached <= playhead.plus_micros(self.window)
    }

    /// Drops what it has come to where that is of no use for this playhead: it takes as much as a world.
    pub(in crate::record) fn leave(&mut self, playhead: Stamp) {
        if self.fold.as_ref().is_some_and(|(_, reached)| !self.goes_on(*reached, playhead)) {
            (self.fold, self.loaded) = (None, None);
        }
    }

    /// Whether all steps and samples between the playhead and the end of the window were told.
    pub(in crate::record) fn is_known(&self, state: &PlaybackState) -> bool {
        let (_, to) = state.window(self.window);
        let to = to.min(state.end);
        let is_told = |told: Told| told.after <= state.playhead && told.until >= to;
        to <= state.playhead || self.told.is_some_and(is_told)
    }

    /// Whether there is something left to read.
    pub(in crate::record) fn is_due(&self, reader: &Reader, fold: &Fold, state: &PlaybackState) -> bool {
        self.target(reader, fold, state).is_some()
    }

    /// Reads a chunk more, from where the playhead's own fold has come to; gives what is known once that reaches to the end of
    /// the window. What can't be read is passed over, as the playhead does when it comes there.
    pub(in crate::record) fn read(
        &mut self,
        reader: &Reader,
        fold: &Fold,
        state: &PlaybackState,
    ) -> Option<TimelineAhead> {
        let target = self.target(reader, fold, state)?;
        let run = &reader.spec()?.id;
        let (mut ahead, reached) = match self.fold.take() {
            Some((ahead, reached)) if self.goes_on(reached, state.playhead) => (ahead, reached),
            _ => (fold.branch(), state.playhead),
        };
        let chunk = ahead.chunk();
        let start = reader.chunk_span(chunk).map(|(start, _)| start).filter(|start| *start <= target);
        if start.is_some() && reached < target {
            let envelopes = self.load(reader, chunk);
            ahead.take(&envelopes, Until::Moment(target));
        }
        // the next chunk begins later, or the rest of this one is later
        let is_there = reached >= target || start.is_none() || ahead.chunk() == chunk;
        let reached = if is_there { target } else { ahead.last().unwrap_or(reached) }.max(reached);
        let told = is_there.then(|| TimelineAhead::of(ahead.world(), run, state.playhead, reached));
        if let Some(told) = &told {
            let (playhead, window) = (state.playhead, self.window);
            self.told = Some(Told { playhead, window, after: told.after, until: told.until });
        }
        self.fold = Some((ahead, reached));
        told
    }

    fn load(&mut self, reader: &Reader, chunk: usize) -> Arc<Vec<Timed>> {
        // what is not wanted goes before the next is read
        let envelopes = match self.loaded.take().filter(|(loaded, _)| *loaded == chunk) {
            Some((_, envelopes)) => envelopes,
            None => Arc::new(reader.load(chunk).unwrap_or_default()),
        };
        self.loaded = Some((chunk, Arc::clone(&envelopes)));
        envelopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_ahead_goes_where_the_playhead_has_no_use_of_it() {
        let read_to = |reached| Timeline {
            window: 50,
            fold: Some((Fold::default(), Stamp(reached))),
            loaded: Some((0, Arc::default())),
            ..Timeline::default()
        };
        for (playhead, stays) in [(49, false), (50, true), (100, true), (101, false)] {
            let mut timeline = read_to(100);
            timeline.leave(Stamp(playhead));
            assert_eq!((timeline.fold.is_some(), timeline.loaded.is_some()), (stays, stays), "{playhead}");
        }
    }
}
