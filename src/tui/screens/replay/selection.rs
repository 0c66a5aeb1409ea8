//! A part of a recording that is selected, and the figures that are asked for: of that part, or of all for the heat map.

use std::sync::Arc;

use crate::domain::analysis::RunAnalysis;
use crate::domain::time::Stamp;
use crate::tui::core::{Analyzed, Effect};
use crate::tui::screens::Model;

/// A selected part of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Where it was begun.
    pub anchor: Stamp,
    /// Where it ends; `None` = at the playhead.
    pub end: Option<Stamp>,
}

/// What is asked for, and what is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FiguresUi {
    /// The part whose figures are to be shown.
    asked: Option<(Stamp, Stamp)>,
    /// How much of it is read, percent.
    pub percent: u8,
    /// Why it can't be read.
    pub failed: Option<String>,
    /// The figures that came last, and of which part they are.
    pub last: Option<((Stamp, Stamp), Arc<RunAnalysis>)>,
}

impl FiguresUi {
    /// Whether the last figures are those of what is asked for.
    pub fn are_current(&self) -> bool {
        self.last.as_ref().map(|(part, _)| *part) == self.asked
    }
}

/// From when to when the selection goes.
pub fn selected(model: &Model) -> Option<(Stamp, Stamp)> {
    let state = super::state(model)?;
    let selection = model.ui.replay.selection?;
    let end = selection.end.unwrap_or(state.playhead).clamp(state.start, state.end);
    let anchor = selection.anchor.clamp(state.start, state.end);
    Some((anchor.min(end), anchor.max(end)))
}

/// Begins a selection at the playhead, or ends it.
pub(super) fn toggle(model: &mut Model) {
    let begun = super::state(model).map(|state| Selection { anchor: state.playhead, end: None });
    model.ui.replay.selection = if model.ui.replay.selection.is_some() { None } else { begun };
}

/// The part whose figures the screen shows: the selection, with the heat map else all.
pub fn shown_part(model: &Model) -> Option<(Stamp, Stamp)> {
    let whole = super::state(model).filter(|_| model.ui.replay.heat).map(|state| (state.start, state.end));
    selected(model).or(whole)
}

/// The part that is asked for: what happened after its first moment, up to and including its last.
fn wanted(model: &Model) -> Option<(Stamp, Stamp)> {
    let state = super::state(model)?;
    let (from, to) = shown_part(model)?;
    let from = if from == state.start { from.plus_micros(-1) } else { from };
    (from < to && to > state.start).then_some((from, to))
}

/// Asks for the figures that the screen shows, where they are others than before.
pub(in crate::tui::screens) fn ask(model: &mut Model) -> Vec<Effect> {
    let wanted = wanted(model);
    let figures = &mut model.ui.replay.figures;
    if figures.asked == wanted {
        return Vec::new();
    }
    (figures.asked, figures.percent) = (wanted, 0);
    let Some((from, to)) = wanted else {
        *figures = FiguresUi::default();
        return Vec::new();
    };
    vec![Effect::Analyze { from, to }]
}

/// Takes an answer in. Those of parts that are not selected any more still are the nearest that is known.
pub fn told(model: &mut Model, part: (Stamp, Stamp), told: Analyzed) {
    let figures = &mut model.ui.replay.figures;
    if figures.asked.is_none() {
        return;
    }
    match told {
        Analyzed::Done(analysis) => {
            figures.last = Some((part, analysis));
            figures.failed = None;
        }
        Analyzed::Reading(percent) if figures.asked == Some(part) => figures.percent = percent,
        Analyzed::Reading(_) => {}
        Analyzed::Failed(why) => figures.failed = Some(why),
    }
}
