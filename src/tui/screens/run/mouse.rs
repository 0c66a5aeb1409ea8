//! The mouse on the Run screen, and on Replay. A press on a lane of the timeline is a click once the button is let go, and the
//! beginning of a selection once the mouse is moved: where the playhead goes to, the lanes move away below the mouse.

use super::frame::Frame;
use super::keys::{act, scroll_log, zoom};
use super::rows::{RankRow, host_of, rows};
use super::{Pane, bands, lanes, timeline, whole, window_us};
use crate::domain::time::Stamp;
use crate::tui::core::keymap::Action;
use crate::tui::core::{Effect, Mouse, MouseKind, PlayCommand, Screen, layout};
use crate::tui::screens::model::{Mode, Overlay};
use crate::tui::screens::overlay::question;
use crate::tui::screens::replay::selection::{self, Selection};
use crate::tui::screens::update::{wheel, wheel_lines};
use crate::tui::screens::{Model, replay};

/// By how much a turn of the wheel zooms: two are one `+`.
const TURN: f64 = std::f64::consts::SQRT_2;

/// A lane of the timeline was pressed.
#[derive(Debug, Clone, PartialEq)]
pub struct Pressed {
    /// The moment.
    at: Stamp,
    /// The row of the table to which the lane belongs.
    row: Option<RankRow>,
    /// Whether the mouse has been moved since.
    is_moved: bool,
}

/// A click selects a row, or goes to a moment on a lane or on the scrub bar; a double click shows the rank's log alone; a drag
/// selects a part of the timeline. The wheel moves what lies under it, and zooms the timeline.
pub(in crate::tui::screens) fn used(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let bands = bands(model);
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick | MouseKind::Drag => {
            if bands.whole.line_of(mouse.row).is_some() {
                model.ui.replay.pressed = None;
                return go_there(model, mouse.column, model.size.0 - bands.side);
            }
            match mouse.kind {
                MouseKind::Drag => return dragged(model, mouse),
                MouseKind::Click => model.ui.replay.pressed = pressed(model, mouse),
                // the first press has moved what lies below the second one
                _ => model.ui.replay.pressed = None,
            }
            click(model, mouse.row);
            if mouse.kind == MouseKind::DoubleClick && bands.ranks.below_head().line_of(mouse.row).is_some() {
                return act(model, Action::Open);
            }
        }
        kind if bands.logs.line_of(mouse.row).is_some() => {
            return scroll_log(model, wheel_lines(kind));
        }
        kind => match lane_moment(model, mouse) {
            Some(at) => {
                return zoom_at(model, at, if kind == MouseKind::WheelUp { 1.0 / TURN } else { TURN });
            }
            None => wheel(model, kind, act),
        },
    }
    Vec::new()
}

/// The button was let go: of a lane that was pressed the playhead goes to the moment, and its rank is selected.
pub(in crate::tui::screens) fn released(model: &mut Model) -> Vec<Effect> {
    let pressed = model.ui.replay.pressed.take().filter(|pressed| !pressed.is_moved);
    let Some(Pressed { at, row, .. }) = pressed.filter(|_| is_shown(model)) else { return Vec::new() };
    if let Some(row) = row {
        select(model, &row);
    }
    seek(model, at)
}

/// Whether one of the two screens has the mouse.
fn is_shown(model: &Model) -> bool {
    let is_covered = question::is_shown(model) || model.ui.overlay != Overlay::None;
    matches!(model.ui.screen, Screen::Run | Screen::Replay) && !is_covered
}

/// The playhead goes to a moment; a run is frozen there.
fn seek(model: &mut Model, at: Stamp) -> Vec<Effect> {
    let command = PlayCommand::SeekTo(at);
    let is_frozen = model.ui.screen == Screen::Replay;
    if is_frozen { vec![Effect::Play(command)] } else { replay::freeze(model, Some(command)) }
}

fn pressed(model: &Model, mouse: Mouse) -> Option<Pressed> {
    let at = lane_moment(model, mouse)?;
    let frame = Frame::of(model)?;
    let below = frame.bands().lanes.below_head();
    let row = lanes::Shown::of(&frame, below.h.into()).row_at(frame.run, below.line_of(mouse.row)?);
    Some(Pressed { at, row, is_moved: false })
}

/// The part from where the lanes were pressed to the mouse is selected; a run is frozen for it.
fn dragged(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let end = lane_moment(model, mouse);
    if let Some(pressed) = model.ui.replay.pressed.as_mut().filter(|_| end.is_none()) {
        // to let go elsewhere is no click
        pressed.is_moved = true;
    }
    let Some((pressed, end)) = model.ui.replay.pressed.clone().zip(end) else { return Vec::new() };
    if end == pressed.at && !pressed.is_moved {
        return Vec::new();
    }
    let is_frozen = model.ui.screen == Screen::Replay;
    let mut effects = if is_frozen { Vec::new() } else { replay::freeze(model, None) };
    model.ui.replay.selection = Some(Selection { anchor: pressed.at, end: Some(end) });
    model.ui.replay.pressed = Some(Pressed { is_moved: true, ..pressed });
    effects.append(&mut selection::ask(model));
    effects
}

/// The moment under the mouse, where that is on a lane of the timeline.
fn lane_moment(model: &Model, mouse: Mouse) -> Option<Stamp> {
    let frame = Frame::of(model)?;
    frame.bands().lanes.below_head().line_of(mouse.row)?;
    let (x, w) = frame.slots.columns(model, frame.run);
    let at = mouse.column.checked_sub(x).filter(|at| *at < w)?;
    let (start, end) = frame.timeline;
    // the last column is the end
    let length = end.micros_since(start);
    Some(start.plus_micros(length.saturating_mul(i64::from(at)) / i64::from(w.saturating_sub(1).max(1))))
}

/// Zooms so that a moment stays where it is on the lanes. They stand around the playhead, which moves for it; those of a run that
/// is followed end now.
fn zoom_at(model: &mut Model, at: Stamp, factor: f64) -> Vec<Effect> {
    let (start, end) = timeline(model);
    zoom(model, factor);
    let Some(state) = replay::state(model) else { return Vec::new() };
    let (before, length) = (end.micros_since(start).max(1), window_us(model));
    // where all of it is shown, or no more can be, the playhead stays
    if length == before || length >= state.end.micros_since(state.start) {
        return Vec::new();
    }
    let columns = model.shown_run().map_or(1, |(_, run)| lanes::lane_columns(model, run).1.max(1));
    // a selection that is being made ends at the playhead: it would go along
    let is_selecting = model.ui.replay.selection.is_some_and(|selection| selection.end.is_none());
    if is_selecting || at.micros_since(state.playhead).abs() <= before / i64::from(columns) {
        return Vec::new();
    }
    let share = at.micros_since(start) as f64 / before as f64;
    let first = at.plus_micros(-(length as f64 * share) as i64);
    let playhead = first.plus_micros(length / 2).clamp(state.start, state.end);
    // the next turn may come before the answer: it is counted from where the lanes stand then
    if let Mode::Replay(state) = &mut model.mode {
        state.playhead = playhead;
    }
    vec![Effect::Play(PlayCommand::SeekTo(playhead))]
}

/// A click on a row of the screen.
fn click(model: &mut Model, row: u16) {
    let bands = bands(model);
    if let Some(line) = bands.ranks.below_head().line_of(row) {
        let rows = rows(model);
        let at = model.ui.run.ranks.offset + line;
        if at < rows.len() {
            model.ui.run.pane = Pane::Ranks;
            model.ui.run.ranks.move_to(at, &rows, usize::from(bands.ranks.below_head().h));
        }
    } else if bands.logs.line_of(row).is_some() {
        model.ui.run.pane = Pane::Logs;
    }
}

/// Selects a row of the table; where it is folded away, that of its host.
fn select(model: &mut Model, row: &RankRow) {
    let rows = rows(model);
    let host = model.shown_run().and_then(|(_, run)| host_of(run, row)).map(RankRow::Host);
    let at = rows.iter().position(|one| one == row);
    let at = at.or_else(|| rows.iter().position(|one| Some(one) == host.as_ref()));
    if let Some(at) = at {
        let height = usize::from(bands(model).ranks.below_head().h);
        model.ui.run.pane = Pane::Ranks;
        model.ui.run.ranks.move_to(at, &rows, height);
    }
}

/// The playhead goes to the moment under a column of the strip; a run is frozen there.
fn go_there(model: &mut Model, column: u16, columns: u16) -> Vec<Effect> {
    let (start, end) = match (model.shown_run(), replay::state(model)) {
        (Some((_, run)), _) => whole::range(model, run),
        (None, Some(state)) => (state.start, state.end),
        (None, None) => return Vec::new(),
    };
    let at = layout::whole_moment(columns, column, start, end);
    at.map_or_else(Vec::new, |at| seek(model, at))
}
