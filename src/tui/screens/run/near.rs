//! What of a run that is followed here is read from its recording, so that its timeline shows the time before the steps in memory
//! as closely as a replay does. It is asked for when the timeline moves out of what was told, not with each frame.

use std::sync::Arc;

use crate::domain::ids::RunId;
use crate::domain::phase_window::{PhasePart, PhaseWindow};
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::tui::core::{Effect, Screen};
use crate::tui::screens::run::timeline;
use crate::tui::screens::{Mode, Model};

/// The same part is asked for again after so long where what was told does not have all of it, microseconds: its last moments may
/// not have been on the disk. Where no more was told than before, later: the recording may have ended, as on a full disk.
const AGAIN_US: i64 = 2_000_000;
const AGAIN_AFTER_NOTHING_US: i64 = 20_000_000;

/// What was read, and what is being read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NearUi {
    asked: Option<Asked>,
    told: Option<Told>,
}

/// What was told last.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    run: RunId,
    /// How long a point was to be, microseconds. Those of the window may last longer, where none that are shorter can be read.
    asked_us: i64,
    window: Arc<PhaseWindow>,
}

/// The last question.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    run: RunId,
    part: PhasePart,
    /// When it may be asked again, once it is answered.
    again: Option<Stamp>,
}

/// What is to be asked for the timeline that is shown.
pub(in crate::tui::screens) fn ask(model: &mut Model) -> Option<Effect> {
    if model.ui.screen != Screen::Run || model.mode != Mode::Live || !model.settings.timeline {
        return None;
    }
    let (id, run) = model.shown_run()?;
    let wanted = run.wanted_closely(timeline(model))?;
    let near = &model.ui.run.near;
    let told = near.told.as_ref().filter(|told| told.run == *id).map(|told| {
        let part = told.window.part();
        PhasePart { width_us: part.width_us.min(told.asked_us), ..part }
    });
    if told.is_some_and(|part| wanted.is_in(part)) {
        return None;
    }
    let asked = near.asked.as_ref().filter(|asked| asked.run == *id && wanted.is_in(asked.part));
    if asked.is_some_and(|asked| asked.again.is_none_or(|again| model.now < again)) {
        return None;
    }
    let (run, part) = (id.clone(), wanted.part);
    model.ui.run.near.asked = Some(Asked { run: run.clone(), part, again: None });
    Some(Effect::ReadClosely(run, part))
}

/// A part was read, or can't be.
pub(in crate::tui::screens) fn told(
    model: &mut Model,
    run: RunId,
    part: PhasePart,
    window: Option<Arc<PhaseWindow>>,
) {
    let now = model.now;
    let near = &mut model.ui.run.near;
    let known = near.told.as_ref().filter(|told| told.run == run).map(|told| told.window.part().until);
    let has_more = window.as_ref().is_some_and(|one| known.is_none_or(|until| until < one.part().until));
    let again = now.plus_micros(if has_more { AGAIN_US } else { AGAIN_AFTER_NOTHING_US });
    if let Some(asked) = near.asked.as_mut().filter(|asked| asked.run == run && asked.part == part) {
        asked.again = Some(again);
    }
    if let Some(window) = window {
        near.told = Some(Told { run, asked_us: part.width_us, window });
    }
}

/// What was read of a run.
pub(super) fn window<'a>(model: &'a Model, run: &RunState) -> Option<&'a PhaseWindow> {
    let told = model.ui.run.near.told.as_ref()?;
    (told.run == run.spec.id).then_some(&*told.window)
}
