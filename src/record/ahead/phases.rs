//! Where the time of all went in the window of the timeline, in points that are short enough for it, where neither the steps in
//! memory nor what was read ahead of the playhead tell it: by its steps, or by what is kept of them beside the recording.

use crate::domain::phase_window::{PhasePart, PhaseWindow, WantedPart, margin_us};
use crate::domain::playback::PlaybackState;
use crate::domain::world::RunState;
use crate::record::levels::{Kept, Plan, Progress, Reading};
use crate::record::reader::Reader;

/// While it plays, what is played in so many microseconds is read beyond the window.
const PLAYED_US: f64 = 4_000_000.0;

/// Reads it.
#[derive(Debug, Default)]
pub(in crate::record) struct Phases {
    /// Length of the window, microseconds; 0 where none is shown.
    window: i64,
    /// What is kept beside the recording, and whether that was looked at since there may be more.
    kept: Kept,
    is_looked_at: bool,
    /// What is being read.
    reading: Option<Reading>,
    /// What was told last.
    told: Option<PhasePart>,
}

impl Phases {
    /// Sets the length of the window.
    pub(in crate::record) fn show(&mut self, window: i64) {
        if self.window != window {
            (self.window, self.reading) = (window, None);
        }
    }

    /// There may be more beside the recording than there was.
    pub(in crate::record) fn look_again(&mut self) {
        self.is_looked_at = false;
    }

    /// What is not known yet and is worth its work, and how it is read: `None` where it may be known once what is kept beside the
    /// recording is looked at. `is_ahead_known`: the steps after the playhead are known.
    fn wanted(
        &self,
        reader: &Reader,
        run: &RunState,
        state: &PlaybackState,
        is_ahead_known: bool,
    ) -> Option<(WantedPart, Option<Plan>)> {
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
        let is_told = |wanted: WantedPart| self.told.is_some_and(|told| wanted.is_in(told));
        if is_told(wanted) {
            return None;
        }
        let Some(plan) = self.kept.plan(reader, wanted.part) else {
            return (!self.is_looked_at).then_some((wanted, None));
        };
        let wanted = WantedPart { part: plan.part, ..wanted };
        (!is_told(wanted)).then_some((wanted, Some(plan)))
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

    /// Looks what is kept, or reads a chunk or a block more; gives what is known once that is all. What can't be read is passed over.
    pub(in crate::record) fn read(
        &mut self,
        reader: &Reader,
        run: &RunState,
        state: &PlaybackState,
        is_ahead_known: bool,
    ) -> Option<PhaseWindow> {
        let (wanted, plan) = self.wanted(reader, run, state, is_ahead_known)?;
        if !self.is_looked_at {
            self.kept.look(reader);
            self.is_looked_at = true;
            return None;
        }
        let plan = plan?;
        // while it plays what is begun is read to its end, though the window has moved on
        let is_of_use = |part: PhasePart| {
            wanted.is_in(part) || (state.playing && part.covers(state.playhead, state.playhead))
        };
        let begun = self.reading.take().filter(|reading| is_of_use(reading.part()));
        let mut reading = begun.unwrap_or_else(|| Reading::new(plan));
        match reading.read(reader, &mut self.kept) {
            Progress::GoesOn => {
                self.reading = Some(reading);
                None
            }
            Progress::Lost => None,
            Progress::Done => {
                let window = reading.into_window();
                self.told = Some(window.part());
                Some(window)
            }
        }
    }
}
