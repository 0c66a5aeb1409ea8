//! What the keys and the mouse do on the Events screen.

use super::{EventRow, ids, rows};
use crate::domain::alerts::{Alert, AlertKind};
use crate::domain::ids::HostId;
use crate::tui::core::keymap::{Action, Binding, bind, k};
use crate::tui::core::{Effect, KeyCode, Mouse, MouseKind, PlayCommand, Screen, layout, list};
use crate::tui::screens::cluster::rows::RowId;
use crate::tui::screens::run::RunUi;
use crate::tui::screens::update::wheel;
use crate::tui::screens::{Model, detail};

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[k(KeyCode::Enter)],
        Action::Open,
        "open",
        "the host, the GPU or the run that it is about; in a replay its moment",
    ),
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to where you were"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    match action {
        Action::Open if model.ui.events.cursor.on.is_none() => Some("no event yet"),
        Action::Launch if model.ui.replay.open => Some("this is a recording: close it to launch a run"),
        _ => None,
    }
}

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Open => return open(model),
        Action::Back => model.ui.back(),
        _ => move_cursor(model, action),
    }
    Vec::new()
}

fn move_cursor(model: &mut Model, action: Action) {
    let ids = ids(model);
    let height = usize::from(layout::events_list(model.area()).h);
    let delta = list::delta(action, height);
    if delta != 0 {
        model.ui.events.cursor.move_by(delta, &ids, height);
    }
}

fn open(model: &mut Model) -> Vec<Effect> {
    let rows = rows(model);
    let Some(EventRow::Alert(alert)) = rows.get(model.ui.events.cursor.index) else { return Vec::new() };
    let alert = (*alert).clone();
    if model.is_replay() {
        model.ui.back();
        return vec![Effect::Play(PlayCommand::SeekTo(alert.since))];
    }
    let of_run = matches!(
        alert.kind,
        AlertKind::Hang
            | AlertKind::Straggler
            | AlertKind::RankFailed
            | AlertKind::DiskFull
            | AlertKind::LiveRun
    );
    match (&alert.place.run, &alert.place.host) {
        (Some(run), _) if of_run && model.world.runs.contains_key(run) => {
            model.ui.run = RunUi::on(run.clone());
            model.ui.open(Screen::Run);
        }
        (Some(run), _) if of_run => {
            model.ui.runs.cursor.on = Some(run.clone());
            model.ui.runs.chosen = true;
            model.ui.runs.filter = crate::domain::run_list::RunFilter::default();
            model.ui.runs.filter_text.clear();
            model.ui.runs.loading = true;
            model.ui.open(Screen::Runs);
            return vec![Effect::ListRuns];
        }
        (_, Some(host)) => {
            let row = row_of(model, host, &alert);
            detail::open(model, row, None);
        }
        _ => {}
    }
    Vec::new()
}

/// The row of its GPU, else of its host.
fn row_of(model: &Model, host: &HostId, alert: &Alert) -> RowId {
    let info = model.world.hosts.get(host).and_then(|state| state.info.as_ref());
    let position = info.and_then(|info| info.gpus.iter().position(|gpu| Some(gpu.index) == alert.place.gpu));
    match (info, position) {
        (Some(info), Some(at)) => RowId::Gpu(host.clone(), info.gpus[at].uuid.clone(), at),
        _ => RowId::Host(host.clone()),
    }
}

/// A click selects, a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            if let Some(line) = layout::events_list(model.area()).line_of(mouse.row) {
                let ids = ids(model);
                let height = usize::from(layout::events_list(model.area()).h);
                let at = model.ui.events.cursor.offset + line;
                if at < ids.len() {
                    model.ui.events.cursor.move_to(at, &ids, height);
                    if mouse.kind == MouseKind::DoubleClick {
                        return act(model, Action::Open);
                    }
                }
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
