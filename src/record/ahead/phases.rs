//! Where the time of all went in the window of the timeline, in points that are short enough for it, where neither the steps in
//! memory nor what was read ahead of the playhead tell it.

use crate::domain::phase_window::{PhasePart, PhaseWindow, WantedPart, margin_us};
use crate::domain::playback::PlaybackState;
use crate::domain::world::RunState;
use crate::record::format::Channel;
use crate::record::reader::Reader;

/// In a window with more envelopes than this nothing is read: it would be more than some seconds' work.
const MOST: u64 = 4_000_000;
/// While it plays, what is played in so many microseconds is read beyond the window.
const PLAYED_US: f64 = 4_000_000.0;

/// Reads it.
#[derive(Debug, Default)]
pub(in crate::record) struct Phases {
    /// Length of the window, microseconds; 0 where none is shown.
    window: i64,
    /// What is being read, and the chunk that is read next.
    reading: Option<(PhaseWindow, usize)>,
    /// What was told last.
    told: Option<PhasePart>,
}

/// Whether a part is so short that it is read.
pub(in crate::record) fn is_readable(reader: &Reader, part: PhasePart) -> bool {
    let (first, behind) = (reader.chunk_at(part.from), reader.chunk_at(part.until) + 1);
    reader.envelopes_before(behind).saturating_sub(reader.envelopes_before(first)) <= MOST
}

/// Takes in the steps of a chunk, and that others are left out of it. Whether there is one that may have some of the part; what can't
/// be read is passed over.
pub(in crate::record) fn take_chunk(reader: &Reader, chunk: usize, window: &mut PhaseWindow) -> bool {
    let start = reader.chunk_span(chunk).map(|(start, _)| start);
    if start.is_none_or(|start| start > window.part().until) {
        return false;
    }
    let wants = |channel| matches!(channel, Channel::Phase | Channel::Event);
    let steps = reader.load_untimed(chunk, wants).unwrap_or_default();
    for envelope in &steps {
        window.take(envelope);
    }
    true
}

impl Phases {
    /// Sets the length of the window.
    pub(in crate::record) fn show(&mut self, window: i64) {
        if self.window != window {
            (self.window, self.reading) = (window, None);
        }
    }

    /// What is not known yet and is worth its work. `is_ahead_known`: the steps after the playhead are known.
    fn wanted(
        &self,
        reader: &Reader,
        run: &RunState,
        state: &PlaybackState,
        is_ahead_known: bool,
    ) -> Option<WantedPart> {
        if self.window == 0 {
            return None;
        }
        let margin = margin_us(self.window);
        let (from, to) = state.window(self.window);
        let held_since = run.steps_held_since().filter(|since| *since > from);
        // the little that a recording that grows has after the playhead is soon before it
        let is_little = to.min(state.end).micros_since(state.playhead) <= margin / 2;
        let to = match held_since {
            None if is_ahead_known || is_little => return None,
            Some(since) if is_ahead_known || is_little => since.min(to).min(state.end),
            _ => to.min(state.end),
        };
        let played = if state.playing { (state.speed * PLAYED_US) as i64 } else { 0 };
        let first = from.plus_micros(-margin).max(state.start);
        let until = to.plus_micros(margin.max(played)).min(state.end);
        let trainers = run.step_tellers().max(run.spec.placements.len());
        let of = (state.start, state.end);
        let wanted = WantedPart::new((from, to), self.window, (first, until), of, trainers)?;
        // the end of a recording that is written moves on: what comes there is read once it is a few columns
        let is_at_end = state.growing && to == state.end;
        let wanted = WantedPart { to: to.plus_micros(if is_at_end { -margin / 2 } else { 0 }), ..wanted };
        let is_told = self.told.is_some_and(|told| wanted.is_in(told));
        (!is_told && is_readable(reader, wanted.part)).then_some(wanted)
    }

    /// Whether there is something left to read.
    pub(in crate::record) fn is_due(
        &self,
        reader: &Reader,
        run: &RunState,
        state: &PlaybackState,
        is_ahead_known: bool,
    ) -> bool {
        self.wanted(reader, run, state, is_ahead_known).is_some()
    }

    /// Reads a chunk more; gives what is known once that is all. What can't be read is passed over.
    pub(in crate::record) fn read(
        &mut self,
        reader: &Reader,
        run: &RunState,
        state: &PlaybackState,
        is_ahead_known: bool,
    ) -> Option<PhaseWindow> {
        let wanted = self.wanted(reader, run, state, is_ahead_known)?;
        // while it plays what is begun is read to its end, though the window has moved on
        let is_of_use = |part: PhasePart| {
            wanted.is_in(part) || (state.playing && part.covers(state.playhead, state.playhead))
        };
        let begun = self.reading.take().filter(|(window, _)| is_of_use(window.part()));
        let (mut window, chunk) =
            begun.unwrap_or_else(|| (PhaseWindow::new(wanted.part), reader.chunk_at(wanted.part.from)));
        if take_chunk(reader, chunk, &mut window) {
            self.reading = Some((window, chunk + 1));
            return None;
        }
        self.told = Some(window.part());
        Some(window)
    }
}
