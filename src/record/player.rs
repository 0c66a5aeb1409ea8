//! Replays a recording. Time is an argument: the player holds no clock, and moves its playhead by what
//! passed between two calls.
//!
//! It folds its own [`World`] beside the one on screen. That gives checkpoints as it goes, so that a
//! move backwards folds a few seconds again instead of the whole recording.

mod far;
mod first;
mod stepping;

use std::sync::Arc;
use std::time::Duration;

use super::ahead::{Lines, Phases, Timeline};
use super::checkpoints::Place;
use super::decoder::Decoder;
use super::error::Error;
use super::far_steps;
use super::fold::{Fold, Until};
use super::glimpse::Glimpse;
use super::integrity::Integrity;
use super::lookup::{Looked, Lookup};
use super::motion::Motion;
use super::reader::{Reader, Timed};
use super::saved::Saved;
use super::steps::Steps;
use crate::domain::ahead::TimelineAhead;
use crate::domain::alerts::AlertRules;
use crate::domain::event::Envelope;
use crate::domain::phase_window::PhaseWindow;
use crate::domain::playback::{FoundLine, LineSearch, PlaybackState};
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;
use crate::domain::world::{Histories, LoggedLine, World};

/// How often a playing recording wants to be advanced.
const TICK: Duration = Duration::from_millis(50);
/// Speeds are counted in eighths, so that ⅛ is exact.
const SLOWEST_EIGHTHS: i64 = 1;
const FASTEST_EIGHTHS: i64 = 64 * 8;
/// Above this many envelopes in one move, the whole world is handed over instead.
const LONGEST_MOVE: usize = 20_000;
/// What one call folds at most, envelopes: a longer way is gone in several.
const LONGEST_CALL: usize = 60_000;
/// A recording that is not closed and was not written to for so long is not being written, microseconds.
const STILL_US: i64 = 5_000_000;
/// A state beside the recording is read where it saves so many envelopes: reading one takes as long as folding those.
const WORTH_A_STATE: u64 = 60_000;

/// What a move of the playhead means for the world on screen.
#[derive(Debug, Default)]
pub struct Playback {
    /// The whole world at the playhead: replaces the one on screen, before `envelopes`.
    pub reset: Option<Box<World>>,
    /// What happened between the old playhead and the new one.
    pub envelopes: Vec<Envelope>,
    /// How much of the way to the playhead is read, percent; `None` when it is there. Until then nothing else is told but, where
    /// the way is long, a glimpse; without one, what is on screen is the moment before.
    pub reading: Option<u8>,
    /// What can be told of the playhead at once: the first of a long way. The whole world follows.
    pub glimpse: Option<Box<World>>,
}

/// What lies after the playhead.
#[derive(Debug)]
pub enum LookedAhead {
    /// Steps and samples, up to the end of the timeline's window.
    Timeline(Arc<TimelineAhead>),
    /// Where the time went in the timeline's window, where its steps are too many to be told.
    Phases(Arc<PhaseWindow>),
    /// The first lines that are printed after this moment.
    Lines(Stamp, Vec<Arc<LoggedLine>>),
    /// The line that was searched, to which the playhead goes; `None` where there is no such line.
    Line(Option<FoundLine>),
}

/// The replay of one recording.
#[derive(Debug)]
pub struct Player {
    reader: Reader,
    start: Stamp,
    end: Stamp,
    playhead: Stamp,
    /// Where it stands within the moment of the playhead, if not behind all that happened at it: the run has so many lines.
    lines: Option<u64>,
    /// Where it stands behind its moment: what happened at that was told until then, after something later.
    told_until: Option<Stamp>,
    /// Whether that is to be looked up.
    looks_up: bool,
    motion: Motion,
    fold: Fold,
    steps: Option<Steps>,
    loaded: Option<(usize, Arc<Vec<Timed>>)>,
    /// What takes the chunks behind that apart meanwhile.
    decoder: Decoder,
    /// A chunk that could not be read while playing.
    fault: Option<String>,
    reset_due: bool,
    moved: bool,
    /// The chunk at which a way began that takes several calls.
    way_from: Option<usize>,
    /// What is kept beside the recording, and what of it was looked for.
    saved: Option<Saved>,
    looked_for: Kept,
    /// What is told first of long ways.
    glimpse: Option<Glimpse>,
    /// Where the time of runs went, up to the latest moment that was left.
    known: Option<(Stamp, Histories)>,
    /// The search for a line.
    lookup: Option<Lookup>,
    /// What is printed after the playhead, as far as that is read.
    lines_ahead: Option<Lines>,
    /// What lies after it in the window of the timeline.
    timeline: Timeline,
    /// Where the time went in that window.
    phases: Phases,
    /// The search for steps that lie far outside of the run, until they are told.
    far_steps: Option<far_steps::Search>,
    /// Whether it was being written when it was looked at last.
    writing: Writing,
    /// Why what was written since could not be read.
    unread: Option<String>,
}

/// What is kept beside a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    States,
    StatesAndSteps,
}

/// Whether a recording is still written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    GoesOn,
    Over,
}

impl Player {
    /// A replay at the start of a recording, paused.
    pub fn new(reader: Reader) -> Self {
        let (start, end) = reader.range().unwrap_or_default();
        let (steps, far_steps) = (reader.spec().map(Steps::new), far_steps::Search::new(&reader));
        Self {
            reader,
            start,
            end,
            playhead: start,
            lines: None,
            told_until: None,
            looks_up: false,
            motion: Motion::default(),
            fold: Fold::default(),
            steps,
            loaded: None,
            decoder: Decoder::default(),
            fault: None,
            reset_due: true,
            moved: false,
            way_from: None,
            saved: None,
            looked_for: Kept::Nothing,
            glimpse: None,
            known: None,
            lookup: None,
            lines_ahead: None,
            timeline: Timeline::default(),
            phases: Phases::default(),
            far_steps,
            writing: Writing::Over,
            unread: None,
        }
    }

    /// Opens a recording for replay.
    pub fn open(path: &std::path::Path) -> Result<Self, Error> {
        Ok(Self::new(Reader::open(path)?))
    }

    /// The same replay with alerts by these rules. Called before the first move: what is folded is not told anew.
    #[must_use]
    pub fn with_rules(self, rules: Arc<AlertRules>) -> Self {
        Self { fold: Fold::new(rules), ..self }
    }

    /// A second replay of the same, at its start, with alerts by the same rules.
    ///
    /// # Errors
    /// The recording can't be read any more.
    pub fn again(&self) -> Result<Self, Error> {
        Ok(Self::open(self.path())?.with_rules(Arc::clone(&self.fold.world().alerts.rules)))
    }

    /// The first file of the recording.
    pub fn path(&self) -> &std::path::Path {
        self.reader.path()
    }

    /// Where the replay stands.
    pub fn state(&self) -> PlaybackState {
        PlaybackState {
            start: self.start,
            end: self.end,
            playhead: self.playhead,
            speed: self.motion.eighths as f64 / 8.0,
            playing: self.motion.playing,
            damage: self
                .fault
                .clone()
                .or_else(|| self.unread.clone())
                .or_else(|| self.reader.integrity().damage()),
            unattended: self.reader.unattended(),
            lost: self.reader.lost().to_vec(),
            growing: self.writing == Writing::GoesOn,
        }
    }

    /// The run that is replayed.
    pub fn spec(&self) -> Option<&RunSpec> {
        self.reader.spec()
    }

    /// Whether more may be recorded, by the client that records it or by one that attaches to the run.
    pub fn may_grow(&self) -> bool {
        match self.reader.integrity() {
            Integrity::Complete => self.reader.outcome().is_none(),
            Integrity::Damaged { .. } => false,
            _ => true,
        }
    }

    /// Takes in what was recorded since. Says whether that changes what [`Player::state`] tells.
    pub fn grow(&mut self, now: Stamp) -> bool {
        let before = (self.end, self.writing, self.unread.clone());
        let chunks = self.reader.chunk_count();
        self.unread = self.reader.read_on().err().map(|error| error.to_string());
        let (start, end) = self.reader.range().unwrap_or((self.start, self.end));
        if self.steps.is_none() {
            // it was empty
            self.steps = self.reader.spec().map(Steps::new);
            (self.start, self.playhead) = (start, start);
        }
        self.end = self.end.max(end);
        if self.reader.chunk_count() > chunks {
            self.phases.look_again();
        }
        let is_open = self.may_grow() && self.reader.integrity() != &Integrity::Complete;
        let written = self.reader.written();
        let goes_on = is_open && written.is_some_and(|at| now.micros_since(at) < STILL_US);
        self.writing = if goes_on { Writing::GoesOn } else { Writing::Over };
        if goes_on && self.end > before.0 && std::mem::take(&mut self.motion.waits) {
            self.motion.playing = true;
            self.motion.halt();
        }
        before != (self.end, self.writing, self.unread.clone())
    }

    /// Tells how long the part of the recording is that the timeline shows, microseconds.
    pub fn show_window(&mut self, length: i64) {
        self.timeline.show(length);
        self.phases.show(length);
    }

    /// Whether something after the playhead is still to be read for the screen.
    pub fn looks_ahead(&self) -> bool {
        let is_there = !self.moved && !self.reset_due && self.way_from.is_none();
        let is_near_due = || self.timeline_is_due() || self.lines_are_due();
        is_there && (self.lookup.is_some() || is_near_due() || self.phases_are_due())
    }

    /// Whether it is still to be read where the time went in the window; the rest that is looked at comes first.
    fn phases_are_due(&self) -> bool {
        let run = self.reader.spec().and_then(|spec| self.fold.world().runs.get(&spec.id));
        let state = self.state();
        let is_known = self.timeline.is_known(&state);
        run.is_some_and(|run| self.phases.is_due(&self.reader, run, &state, is_known))
    }

    fn timeline_is_due(&self) -> bool {
        self.timeline.is_due(&self.reader, &self.fold, &self.state())
    }

    /// Whether lines are still to be read: the playhead stands still.
    fn lines_are_due(&self) -> bool {
        let is_due = self.lines_ahead.as_ref().is_none_or(|lines| lines.is_due(&self.reader));
        is_due && !self.motion.playing
    }

    /// Reads some of what lies after the playhead; gives what is read once it is what a screen has room for.
    pub fn look_ahead(&mut self) -> Option<LookedAhead> {
        if let Some(lookup) = &mut self.lookup {
            return match lookup.read(&self.reader) {
                Looked::GoesOn => None,
                Looked::Found(line) => {
                    self.lookup = None;
                    Some(LookedAhead::Line(Some(line)))
                }
                Looked::Nothing => {
                    self.lookup = None;
                    Some(LookedAhead::Line(None))
                }
            };
        }
        if self.timeline_is_due() {
            let state = self.state();
            let told = self.timeline.read(&self.reader, &self.fold, &state);
            return told.map(|told| LookedAhead::Timeline(Arc::new(told)));
        }
        if !self.lines_are_due() {
            let state = self.state();
            let run = self.reader.spec().and_then(|spec| self.fold.world().runs.get(&spec.id))?;
            let is_known = self.timeline.is_known(&state);
            let told = self.phases.read(&self.reader, run, &state, is_known);
            return told.map(|told| LookedAhead::Phases(Arc::new(told)));
        }
        let mut lines = self.lines_ahead.take().unwrap_or_else(|| {
            let chunk = self.fold.chunk();
            let rest = (chunk < self.reader.chunk_count()).then(|| self.load(chunk));
            Lines::new(chunk, rest.as_ref().map(|rest| rest.get(self.fold.index()..).unwrap_or_default()))
        });
        if lines.is_due(&self.reader) {
            lines.read(&self.reader);
        }
        let is_read = !lines.is_due(&self.reader);
        let lines = self.lines_ahead.insert(lines);
        is_read.then(|| LookedAhead::Lines(self.playhead, lines.lines().to_vec()))
    }

    /// Searches a line; [`Player::look_ahead`] tells where it is. A move ends the search, and so does playing.
    pub fn find_line(&mut self, search: LineSearch) {
        self.motion.playing = false;
        self.lookup = Some(Lookup::new(&self.reader, search));
    }

    /// Plays what is recorded as it comes.
    pub fn follow(&mut self) {
        self.seek(self.end);
        self.motion.eighths = 8;
        self.motion.playing = true;
    }

    /// Plays or pauses. At the end, plays from the start again; while that moves on, plays on.
    pub fn toggle(&mut self) {
        self.lookup = None;
        self.motion.waits = false;
        self.motion.playing = !self.motion.playing;
        self.motion.halt();
        if self.motion.playing && self.is_at_end() && self.writing == Writing::Over {
            self.seek(self.start);
        }
    }

    /// Sets how many recorded seconds pass in one: ⅛ to 64, in eighths; what lies outside is clamped.
    pub fn set_speed(&mut self, speed: f64) {
        let eighths = (speed * 8.0).round() as i64;
        self.motion.eighths = eighths.clamp(SLOWEST_EIGHTHS, FASTEST_EIGHTHS);
        self.motion.halt();
    }

    /// Moves the playhead; the next [`Player::advance`] tells what that means.
    pub fn seek(&mut self, to: Stamp) {
        self.playhead = to.clamp(self.start, self.end);
        (self.lines, self.told_until, self.looks_up) = (None, None, false);
        self.lines_ahead = None;
        self.lookup = None;
        self.motion.waits = false;
        self.moved = true;
        self.way_from = None;
        self.motion.halt();
    }

    /// Moves the playhead to where the run has so many lines, the last of which was printed by this moment: also where more were at it. Pauses.
    pub fn go_to_line(&mut self, at: Stamp, lines: u64) {
        self.motion.playing = false;
        self.seek(at);
        self.lines = Some(lines);
    }

    fn is_at_end(&self) -> bool {
        let is_folded = || self.fold.chunk() >= self.reader.chunk_count();
        self.playhead >= self.end && (self.lines.is_none() || is_folded())
    }

    /// Where the playhead stands.
    fn place(&self) -> Until {
        let moment = self.told_until.unwrap_or(self.playhead);
        self.lines.map_or(Until::Moment(moment), |lines| Until::Line(self.playhead, lines))
    }

    /// How long until the playhead wants to move again; `None` while it stands still.
    pub fn next_wake(&self, now: Stamp) -> Option<Duration> {
        if self.reset_due || self.moved || self.way_from.is_some() {
            return Some(Duration::ZERO);
        }
        if !self.motion.playing {
            return None;
        }
        let passed = self.motion.last.map_or(i64::MAX, |last| now.micros_since(last).max(0));
        Some(TICK.saturating_sub(Duration::from_micros(passed.unsigned_abs())))
    }

    /// Moves the playhead by what has passed since the last call, if it plays, and tells what changed.
    /// The first call gives the world at the start.
    pub fn advance(&mut self, now: Stamp) -> Playback {
        if self.motion.playing {
            (self.lines, self.lines_ahead, self.told_until) = (None, None, None);
            self.looks_up = false;
            let moved = self.motion.advance(now);
            self.playhead = self.playhead.plus_micros(moved).clamp(self.start, self.end);
            if self.playhead == self.end && self.writing == Writing::Over {
                self.motion.playing = false;
                self.motion.waits = self.may_grow();
            }
        }
        self.look_up_moment();
        // before the fold leaves its place: to copy the world of a checkpoint takes as long
        let known = self.glimpse_of_known();
        if known.is_none() {
            self.reset_due |= self.fold.jump_towards(self.place());
            self.reset_due |= self.jump_to_saved();
        }
        if let Some(world) = known.or_else(|| self.glimpse_of_any()) {
            // the world that replaces it is told once it is folded
            self.reset_due = true;
            let (reading, glimpse) = (Some(self.share_read()), Some(Box::new(world)));
            return Playback { reading, glimpse, ..Playback::default() };
        }
        let mut playback = Playback::default();
        if !self.fold_forward(&mut playback.envelopes) {
            // the rest of the way replaces what is on screen
            self.reset_due = true;
            return Playback { reading: Some(self.share_read()), ..Playback::default() };
        }
        self.way_from = None;
        self.moved = false;
        if self.lines.is_some() {
            // the time of a recording is that of what was told, which may be another than the line's own
            self.playhead = self.fold.last().unwrap_or(self.playhead);
        }
        if self.reset_due {
            self.reset_due = false;
            playback.envelopes.clear();
            playback.reset = Some(Box::new(self.fold.world().clone()));
        }
        playback
    }

    /// Looks what is kept beside the recording.
    fn look_beside(&mut self) {
        if self.looked_for == Kept::Nothing {
            self.looked_for = Kept::States;
            self.saved = Saved::of(&self.reader, &self.fold.world().alerts.rules);
        }
    }

    /// Goes on from what an earlier replay has come to, where that saves much. Says whether the world jumped.
    fn jump_to_saved(&mut self) -> bool {
        self.look_beside();
        let until = self.place();
        let Some(saved) = &mut self.saved else { return false };
        let Some(place) = saved.nearest(until) else { return false };
        let way = |chunk| self.reader.envelopes_before(chunk);
        if way(place.chunk) < way(self.fold.chunk()).saturating_add(WORTH_A_STATE) {
            return false;
        }
        // where it is damaged, or another replay has left it out, the fold goes on from where it is
        let Some(data) = saved.packed(place) else { return false };
        // to read a state takes memory: what is known of elsewhere goes before
        self.loaded = None;
        self.timeline.leave(self.playhead);
        let (before, last) = (way(place.chunk), self.reader.chunk_at(self.playhead));
        let (left, plays) = (way(last).saturating_sub(before), self.motion.playing);
        self.fold.leave(Place { chunk: place.chunk, before, left, plays, state: Some(before) });
        // what follows it is taken apart meanwhile
        self.decoder.ask(&self.reader, place.chunk, last);
        if let Some(world) = saved.unpacked(&data) {
            self.fold.jump_to(place.chunk, place.last, world);
        } else {
            self.fold.jump_towards(until);
            // the way begins anew, and so does what is told of it
            self.way_from = self.way_from.map(|_| self.fold.chunk());
        }
        true
    }

    /// Whether what it finds out is kept beside the recording.
    fn keeps(&self) -> bool {
        // a state without a chunk that could not be read would be believed
        let is_whole = self.fault.is_none() && self.unread.is_none();
        // while it is written, the client that writes it keeps them
        is_whole && self.writing == Writing::Over
    }

    /// Keeps what it has come to beside the recording, where the way there was long.
    fn save(&mut self) {
        let keeps = self.keeps();
        let Some(saved) = self.saved.as_mut().filter(|_| keeps) else { return };
        let ends = self.fold.chunk() == self.reader.chunk_count();
        saved.keep(&self.reader, &self.fold, ends);
        if ends {
            saved.keep_index(&self.reader);
            if let Some(steps) = &self.steps {
                saved.keep_steps(&self.reader, steps);
            }
        }
    }

    /// How much of a way that takes several calls is gone, percent.
    fn share_read(&mut self) -> u8 {
        // where it goes on, if it has not jumped there yet
        let at = self.fold.nearest(self.place());
        let from = *self.way_from.get_or_insert(at);
        let to = self.reader.chunk_at(self.playhead);
        (at.saturating_sub(from) * 100 / to.saturating_sub(from).max(1)).min(99) as u8
    }

    /// Folds up to the playhead. What was folded is put into `passed`, until it is so much that the
    /// whole world is the shorter answer. Whether it has come there; if not, the next call goes on.
    fn fold_forward(&mut self, passed: &mut Vec<Envelope>) -> bool {
        let mut count = 0;
        loop {
            let chunk = self.fold.chunk();
            let Some((start, _)) = self.reader.chunk_span(chunk) else { return true };
            if self.fold.is_there(self.place(), start) {
                return true;
            }
            if count >= LONGEST_CALL {
                return false;
            }
            let before = self.reader.envelopes_before(chunk);
            let to = self.reader.envelopes_before(self.reader.chunk_at(self.playhead));
            let (left, plays) = (to.saturating_sub(before), self.motion.playing);
            let state = self.saved.as_ref().and_then(|saved| saved.nearest(self.place()));
            let state = state.map(|state| self.reader.envelopes_before(state.chunk));
            self.decoder.ask(&self.reader, chunk, self.reader.chunk_at(self.playhead));
            self.fold.keep_checkpoint(Place { chunk, before, left, plays, state });
            let envelopes = self.load(chunk);
            let folded = self.fold.take(&envelopes, self.place());
            count += folded.len();
            if passed.len() + folded.len() > LONGEST_MOVE {
                self.reset_due = true;
            }
            if !self.reset_due {
                passed.extend(folded.iter().map(|timed| timed.envelope.clone()));
            }
            if self.fold.chunk() == chunk {
                return true;
            }
            self.save();
        }
    }

    /// The envelopes of a chunk. One that can no longer be read counts as empty, and is told.
    fn load(&mut self, chunk: usize) -> Arc<Vec<Timed>> {
        // what is not wanted goes before the next is read, which takes as much memory
        let known = self.loaded.take().filter(|(loaded, _)| *loaded == chunk);
        let envelopes = match known {
            Some((_, envelopes)) => envelopes,
            None => match self.decoder.take(chunk).unwrap_or_else(|| self.reader.load(chunk)) {
                Ok(envelopes) => Arc::new(envelopes),
                Err(error) => {
                    self.fault = Some(error.to_string());
                    Arc::default()
                }
            },
        };
        // those that were kept may end where the playhead stands
        if let Some(steps) = self.steps.as_mut().filter(|steps| steps.next_chunk() == chunk) {
            steps.take(&envelopes);
        }
        let keeps = self.keeps();
        if let Some(saved) = self.saved.as_mut().filter(|_| keeps)
            && saved.take_chunk(&self.reader, chunk, &envelopes)
        {
            self.phases.look_again();
        }
        self.loaded = Some((chunk, Arc::clone(&envelopes)));
        envelopes
    }
}
