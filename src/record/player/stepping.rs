//! Moves of the playhead by the steps of the run, and to what happened in it.

use super::{Kept, Player};
use crate::domain::time::Stamp;
use crate::record::format::Channel;
use crate::record::steps::Steps;

/// What is told after something that happened later is told so soon after it, microseconds: a host's clock and the way to the client
/// are apart by less.
const TOLD_LATE_US: i64 = 250_000;

impl Player {
    /// Moves the playhead to a moment at which something may have happened: that has happened there, also where it was told after
    /// something later.
    pub fn go_to_event(&mut self, at: Stamp) {
        self.seek(at);
        self.looks_up = true;
    }

    /// Looks up until when was told what happened at the moment to which the playhead goes.
    pub(super) fn look_up_moment(&mut self) {
        if std::mem::take(&mut self.looks_up) {
            self.told_until = self.last_told(self.playhead).filter(|until| *until > self.playhead);
        }
    }

    /// When the last was told of what happened at a moment. What can't be read is passed over, as the playhead does.
    fn last_told(&self, at: Stamp) -> Option<Stamp> {
        let wants = |channel| matches!(channel, Channel::Event | Channel::Phase | Channel::Log(_));
        let last = at.plus_micros(TOLD_LATE_US);
        let begins_soon =
            |chunk: &usize| self.reader.chunk_span(*chunk).is_some_and(|(start, _)| start <= last);
        let soon = (self.reader.chunk_at(at)..self.reader.chunk_count()).take_while(begins_soon);
        let told = soon.flat_map(|chunk| self.reader.load_some(chunk, wants).unwrap_or_default());
        told.filter(|timed| timed.envelope.at == at && timed.time <= last).map(|timed| timed.time).max()
    }

    /// Moves the playhead to where the run finished its next step (`1`) or the one before (`-1`), and so
    /// on; to an end of the recording when there is none. Pauses.
    pub fn step(&mut self, by: i64) {
        self.motion.playing = false;
        for _ in 0..by.unsigned_abs() {
            let to = if by > 0 { self.next_step() } else { self.step_before() };
            self.seek(to);
            if to == self.start || to == self.end {
                break;
            }
        }
    }

    /// Moves the playhead to where the run had finished this step; to the first one behind it that was reported, where this one
    /// was not, and to the end where there is none. Pauses.
    pub fn go_to_step(&mut self, step: u64) {
        self.motion.playing = false;
        let to = self.first_moment(|steps| steps.reached(step));
        self.seek(to);
    }

    fn next_step(&mut self) -> Stamp {
        let at = self.playhead;
        self.first_moment(|steps| steps.after(at))
    }

    /// Reads on until a moment is found; the end where there is none.
    fn first_moment(&mut self, find: impl Fn(&Steps) -> Option<Stamp>) -> Stamp {
        self.look_for_steps();
        loop {
            let Some(steps) = &self.steps else { return self.end };
            if let Some(moment) = find(steps) {
                return moment;
            }
            let next = steps.next_chunk();
            if next >= self.reader.chunk_count() {
                return self.end;
            }
            self.load(next);
        }
    }

    fn step_before(&mut self) -> Stamp {
        self.look_for_steps();
        while let Some(steps) = &self.steps {
            let next = steps.next_chunk();
            match self.reader.chunk_span(next) {
                Some((start, _)) if start <= self.playhead => self.load(next),
                _ => break,
            };
        }
        let moment = self.steps.as_ref().and_then(|steps| steps.before(self.playhead));
        moment.unwrap_or(self.start)
    }

    /// Looks what is kept of when steps were finished, where that was not read.
    fn look_for_steps(&mut self) {
        if self.looked_for == Kept::StatesAndSteps {
            return;
        }
        self.look_beside();
        self.looked_for = Kept::StatesAndSteps;
        let kept = self.saved.as_mut().and_then(|saved| saved.steps(&self.reader));
        let read = self.steps.as_ref().map_or(0, Steps::next_chunk);
        if let Some(kept) = kept.filter(|kept| kept.next_chunk() > read) {
            self.steps = Some(kept);
        }
    }
}
