//! asciicast, version 3, of the Replay screen as it plays: for asciinema's player and `agg`.
//!
//! The screen is that of `hvtui replay`, drawn into memory and written as what changes from frame to frame. Its time is the
//! recording's, so a player's own keys for pause and speed serve.

use std::io::{self, Write};
use std::sync::Arc;

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::domain::run::RunSpec;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::record::export::Selection;
use crate::record::{Error, LookedAhead, Player, marks};
use crate::tui::canvas::{Caps, ColorDepth};
use crate::tui::core::{Msg, Screen, Zone};
use crate::tui::screens::model::Model;
use crate::tui::screens::view::draw;
use crate::tui::screens::{run, update_all};

/// Between two frames, microseconds; in a long recording it is more, for so many frames are drawn at most.
const EVERY_US: i64 = 100_000;
const MOST_FRAMES: i64 = 6_000;
/// After so long the whole screen is written, so that players may begin there, microseconds.
const REPAINT_US: i64 = 10_000_000;
/// Players pass over what is longer without an event, seconds.
const IDLE_LIMIT: u32 = 2;
const CLEAR: &str = "\x1b[0m\x1b[2J\x1b[H";

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cast {
    /// Frames, which `--max-events` counts.
    pub(super) frames: u64,
    /// Whether more frames were left out.
    pub(super) truncated: bool,
}

/// Writes the part of a recording that is chosen, on a screen of so many columns and rows.
///
/// # Errors
/// [`Error::Write`] when `to` can't be written.
pub(super) fn write(
    player: Player,
    to: &mut dyn Write,
    selection: &Selection,
    size: (u16, u16),
    zone: Zone,
) -> Result<Cast, Error> {
    let mut cast = Writer::new(player, to, size, zone);
    let (from, until) = cast.bounds(selection);
    cast.choose(selection);
    cast.play(from, until, selection.max_events.unwrap_or(u64::MAX)).map_err(Error::Write)
}

struct Writer<'a> {
    player: Player,
    model: Model,
    to: &'a mut dyn Write,
    /// When players may stop, and what they call it.
    markers: Vec<(Stamp, String)>,
    shown: Buffer,
    next: Buffer,
    /// When the last event was, microseconds since the first; events have the time since the one before.
    last_us: i64,
}

impl<'a> Writer<'a> {
    fn new(player: Player, to: &'a mut dyn Write, (columns, rows): (u16, u16), zone: Zone) -> Self {
        let mut model = Model::replay(player.state(), player.state().end, zone);
        drop(update_all(&mut model, vec![Msg::Resize(columns, rows)]));
        model.ui.screen = Screen::Replay;
        let kept = marks::read(player.path()).unwrap_or_default();
        let area = Rect::new(0, 0, columns, rows);
        let (shown, next) = (Buffer::empty(area), Buffer::empty(area));
        let markers = kept.all().iter().map(|mark| (mark.at, mark.words())).collect();
        if let Some(id) = player.spec().map(|spec| spec.id.clone()) {
            drop(update_all(&mut model, vec![Msg::MarksTold(id, Ok(Arc::new(kept)))]));
        }
        Self { player, model, to, markers, shown, next, last_us: 0 }
    }

    /// From when to when: steps go from the end of the one before the first to the end of the last.
    fn bounds(&mut self, selection: &Selection) -> (Stamp, Stamp) {
        let state = self.player.state();
        let (mut from, mut until) = (state.start, state.end);
        if let Some(steps) = selection.steps {
            let mut end_of = |step: u64| {
                self.player.go_to_step(step);
                self.player.state().playhead
            };
            from = steps.first.filter(|first| *first > 1).map_or(from, |first| end_of(first - 1));
            until = steps.last.map_or(until, end_of);
        }
        let from = selection.from.map_or(from, |chosen| from.max(chosen)).min(state.end);
        let until = selection.to.map_or(until, |chosen| until.min(chosen)).max(from);
        (from, until)
    }

    /// The log shows the lines of one rank, where one is chosen.
    fn choose(&mut self, selection: &Selection) {
        if let Some([rank]) = selection.ranks.as_deref() {
            let ui = &mut self.model.ui.run;
            (ui.log_rank, ui.log_chosen) = (Some(*rank), true);
        }
    }

    fn play(mut self, from: Stamp, until: Stamp, most: u64) -> io::Result<Cast> {
        self.head(from)?;
        let end = self.player.state().end;
        self.mark_incidents(until)?;
        let every = EVERY_US.max(until.micros_since(from) / MOST_FRAMES);
        let (mut at, mut painted) = (from, None);
        let mut cast = Cast { frames: 0, truncated: false };
        loop {
            if cast.frames == most {
                cast.truncated = true;
                break;
            }
            self.go_to(at);
            let since = at.micros_since(from);
            let whole = painted.is_none_or(|painted| since - painted >= REPAINT_US);
            if whole {
                painted = Some(since);
            }
            self.frame(since, whole)?;
            if cast.frames == 0 {
                self.told_between(at.plus_micros(-1), at, from)?;
            }
            cast.frames += 1;
            let before = at;
            at = at.plus_micros(every).min(until);
            self.told_between(before, at, from)?;
            if before == until {
                break;
            }
        }
        let outcome = self.model.shown_run().and_then(|(_, run)| run.outcome.clone());
        let is_imported = self.player.spec().is_some_and(RunSpec::is_imported);
        if let Some(outcome) = outcome.filter(|_| until == end && !cast.truncated && !is_imported) {
            self.event(until.micros_since(from), "x", &outcome.exit_code().to_string())?;
        }
        Ok(cast)
    }

    /// What went wrong up to a moment has markers too. The frames show it as it comes.
    fn mark_incidents(&mut self, until: Stamp) -> io::Result<()> {
        let before = self.model.clone();
        let again = self.player.again().map_err(io::Error::other)?;
        self.go_to(until);
        let known = self.model.shown_run().map(|(_, run)| run::incidents::all(&self.model, run));
        let known = known.into_iter().flatten().map(|incident| (incident.at, incident.words));
        self.markers.extend(known);
        self.markers.sort_by_key(|(at, _)| *at);
        // what is shown next is told as a whole, wherever it is
        (self.model, self.player) = (before, again);
        Ok(())
    }

    /// Has the model show a moment, with what lies after it as far as the screen shows that.
    fn go_to(&mut self, at: Stamp) {
        self.player.seek(at);
        let mut playback = self.player.advance(Stamp(0));
        while playback.reading.is_some() {
            playback = self.player.advance(Stamp(0));
        }
        let mut messages: Vec<Msg> = playback.reset.map(Msg::Reset).into_iter().collect();
        messages.extend(playback.envelopes.into_iter().map(Msg::Replayed));
        messages.push(Msg::Playback(self.player.state()));
        drop(update_all(&mut self.model, messages));
        self.player.show_window(run::window_us(&self.model));
        while self.player.looks_ahead() {
            let told = self.player.look_ahead().map(|told| match told {
                LookedAhead::Timeline(ahead) => Msg::TimelineAhead(ahead),
                LookedAhead::Phases(window) => Msg::PhaseWindow(window),
                LookedAhead::Lines(after, lines) => Msg::LinesAhead(after, lines),
                LookedAhead::Line(line) => Msg::LineFound(line),
            });
            drop(update_all(&mut self.model, told.into_iter().collect()));
        }
    }

    /// Draws and writes what is other than before, or all of it.
    fn frame(&mut self, since_us: i64, whole: bool) -> io::Result<()> {
        self.next.reset();
        let _ = draw(&self.model, Caps { color: ColorDepth::Full, ascii: false }, &mut self.next);
        let mut bytes = Vec::new();
        if whole {
            self.shown.reset();
            bytes.extend_from_slice(CLEAR.as_bytes());
        }
        let changed = self.shown.diff(&self.next);
        if changed.is_empty() && !whole {
            return Ok(());
        }
        CrosstermBackend::new(&mut bytes).draw(changed.into_iter())?;
        std::mem::swap(&mut self.shown, &mut self.next);
        self.event(since_us, "o", &String::from_utf8_lossy(&bytes))
    }

    /// The markers after one moment, up to another.
    fn told_between(&mut self, after: Stamp, until: Stamp, from: Stamp) -> io::Result<()> {
        let due = self.markers.iter().filter(|(at, _)| *at > after && *at <= until);
        let due: Vec<(Stamp, String)> = due.cloned().collect();
        for (at, words) in due {
            self.event(at.micros_since(from), "m", &sanitize(&words))?;
        }
        Ok(())
    }

    fn head(&mut self, from: Stamp) -> io::Result<()> {
        let title = self.player.spec().map_or_else(
            || "run".to_owned(),
            |spec| format!("run {} {}", spec.id.short(), sanitize(&spec.name)),
        );
        let (cols, rows) = self.model.size;
        self.line(&json!({
            "version": 3, "term": { "cols": cols, "rows": rows, "type": "xterm-256color" },
            "timestamp": from.0.div_euclid(1_000_000), "title": title, "idle_time_limit": IDLE_LIMIT,
        }))
    }

    /// An event, by its code; none is before another.
    fn event(&mut self, at_us: i64, code: &str, data: &str) -> io::Result<()> {
        let after = at_us.saturating_sub(self.last_us).max(0);
        self.last_us = self.last_us.max(at_us);
        self.line(&json!([after as f64 / 1e6, code, data]))
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        serde_json::to_writer(&mut *self.to, value)?;
        self.to.write_all(b"\n")
    }
}
