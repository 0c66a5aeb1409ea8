//! Deleting recordings: which may be, what is asked before, what became of it. The files are deleted by the source.

use super::{RunRow, all};
use crate::domain::ids::RunId;
use crate::domain::units;
use crate::tui::core::{Effect, Key, KeyCode, Level};
use crate::tui::screens::Model;
use crate::tui::screens::model::{Confirm, Overlay};

/// What is asked before runs are deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The runs.
    pub runs: Vec<RunId>,
    /// Marked runs that stay, each with the reason.
    pub kept: Vec<String>,
}

/// Asks whether to delete the marked runs, or the selected one where none is marked.
pub(super) fn ask(model: &mut Model) {
    let ui = &model.ui.runs;
    let chosen: Vec<&RunId> =
        if ui.marked.is_empty() { ui.cursor.on.iter().collect() } else { ui.marked.iter().collect() };
    let rows: Vec<RunRow<'_>> = all(model).into_iter().filter(|row| chosen.contains(&&row.spec.id)).collect();
    let (mut runs, mut kept) = (Vec::new(), Vec::new());
    for row in &rows {
        match refusal(model, row) {
            None => runs.push(row.spec.id.clone()),
            Some(reason) => kept.push(reason),
        }
    }
    if !runs.is_empty() {
        model.ui.overlay = Overlay::Confirm(Confirm::Delete(Deletion { runs, kept }));
    } else if let Some(reason) = kept.into_iter().next() {
        model.notice(Level::Warning, reason);
    }
}

/// Why a run can't be deleted.
fn refusal(model: &Model, row: &RunRow<'_>) -> Option<String> {
    let name = format!("run {} {}", row.spec.id.short(), row.spec.name);
    if row.goes_on() {
        return Some(format!("{name} is running: stop it with x before you delete it"));
    }
    if model.ui.runs.deleting.contains(&row.spec.id) {
        return Some(format!("{name} is being deleted"));
    }
    let known = row.recording.is_some() || model.inventory.shares.contains_key(&row.spec.id);
    (!known).then(|| format!("{name} has no recording here, and no host has told of it"))
}

/// A key while it is asked.
pub(in crate::tui::screens) fn answer(model: &mut Model, asked: &Deletion, key: Key) -> Vec<Effect> {
    let is_yes = key.code == KeyCode::Char('y');
    if is_yes || key.is_no() {
        model.ui.overlay = Overlay::None;
    }
    if !is_yes {
        return Vec::new();
    }
    // one that is gone meanwhile has no row
    let chosen = all(model).into_iter().filter(|row| asked.runs.contains(&row.spec.id));
    let chosen: Vec<_> = chosen.map(|row| row.spec.clone()).collect();
    model.ui.runs.deleting.extend(chosen.iter().map(|spec| spec.id.clone()));
    vec![Effect::DeleteRuns(chosen)]
}

/// Recordings were deleted, or were not.
pub(in crate::tui::screens) fn done(
    model: &mut Model,
    gone: &[RunId],
    freed: u64,
    failed: Vec<(RunId, String)>,
) {
    model.recordings.retain(|recording| !gone.contains(&recording.spec.id));
    let world = model.live_world();
    world.runs.retain(|id, run| run.is_live() || !gone.contains(id));
    let ui = &mut model.ui.runs;
    ui.marked.retain(|run| !gone.contains(run));
    ui.deleting.retain(|run| !gone.contains(run) && !failed.iter().any(|(not, _)| not == run));
    match gone {
        [] => {}
        [run] => {
            let text = format!("run {} is deleted: {} freed", run.short(), units::bytes(freed));
            model.notice(Level::Info, text);
        }
        runs => {
            let text = format!("{} runs are deleted: {} freed", runs.len(), units::bytes(freed));
            model.notice(Level::Info, text);
        }
    }
    for (run, reason) in failed {
        model.notice(Level::Error, format!("run {} is not deleted: {reason}", run.short()));
    }
}
