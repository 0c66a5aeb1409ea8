//! What the keys and the mouse do on the Cluster screen: the cursor, picks, folds, filter, order.

use crate::domain::ids::HostId;
use crate::tui::core::keymap::{Action, Binding, bind, c, k};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, Screen, layout, list};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{RowId, rows};
use crate::tui::screens::cluster::{filtering, picking};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::update::wheel;
use std::collections::BTreeSet;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[c(' ')],
        Action::Pick,
        "pick",
        "pick this GPU; on a host line all its free GPUs, or one CPU slot more",
    ),
    bind(
        &[c('f')],
        Action::PickFree,
        "free N",
        "pick N free GPUs that pass the filter, of one host and model if possible, beside those picked by hand",
    ),
    bind(&[c('L'), c('l')], Action::Launch, "launch", "launch a run on the picks"),
    bind(
        &[c('/')],
        Action::Filter,
        "filter",
        "filter: free | util<5 & !(host~a | cmd~/train/); tab completes, up brings earlier ones; words free held idle ok, fields util mem mem_free temp power host gpu model user cmd run age health label, signs == != < <= > >= ~ !~ & | ! ()",
    ),
    bind(&[c('s')], Action::Sort, "sort", "order hosts by file, name, least busy, most free memory"),
    bind(&[c('z')], Action::Fold, "fold", "fold or unfold the host"),
    bind(&[k(KeyCode::Enter)], Action::Detail, "detail", "history, facts and processes of the row"),
    bind(&[c('v')], Action::PickRange, "", "begin a range here: move, then space picks it; esc drops it"),
    bind(&[c('P')], Action::PickMatching, "", "pick all GPUs that pass the filter; again drops them"),
    bind(&[c('V')], Action::NextView, "", "the next saved filter, from [views] in the hosts file"),
    bind(&[k(KeyCode::Backspace)], Action::FewerSlots, "", "one CPU slot less on this host"),
    bind(&[c('U')], Action::Unpick, "", "drop all picks"),
    bind(&[k(KeyCode::Esc)], Action::ClearFilter, "", "drop the range, then the filter"),
    bind(&[c('Z')], Action::FoldAll, "", "fold or unfold all hosts"),
    bind(&[c('R')], Action::Reconnect, "", "try this host again now"),
];

/// Does what a key means here.
pub(crate) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::PickFree => model.ui.overlay = Overlay::Prompt(Prompt::new(PromptKind::PickFree, "")),
        Action::Pick => picking::pick(model),
        Action::PickRange => picking::range(model),
        Action::PickMatching => picking::pick_matching(model),
        Action::NextView => filtering::next_view(model),
        Action::FewerSlots => picking::add_cpu(model, -1),
        Action::Unpick => model.ui.cluster.unpick(),
        Action::ClearFilter => {
            if model.ui.cluster.range.take().is_none() && !model.ui.cluster.filter.is_empty() {
                filtering::drop_filter(model);
            }
        }
        Action::Filter => filtering::open(model),
        Action::Sort => {
            let order = model.ui.cluster.order.next();
            model.ui.cluster.order = order;
            model.notice(Level::Info, format!("hosts by {}", order.name()));
        }
        Action::Fold => fold(model),
        Action::FoldAll => {
            let all: BTreeSet<HostId> = model.host_order().into_iter().cloned().collect();
            let ui = &mut model.ui.cluster;
            ui.folded = if ui.folded.is_empty() { all } else { BTreeSet::new() };
        }
        Action::Detail => {
            if let Some(row) = model.ui.cluster.cursor.on.clone() {
                model.ui.detail.on = Some(row);
                model.ui.detail.scroll = 0;
                model.ui.screen = Screen::Detail;
            }
        }
        Action::Launch => {
            crate::tui::screens::launch::open(model);
            model.ui.screen = Screen::Launch;
            return crate::tui::screens::launch::preview(model);
        }
        Action::Reconnect => {
            let host = model.ui.cluster.cursor.on.as_ref().map(|row| row.host().clone());
            return host.map(Effect::Reconnect).into_iter().collect();
        }
        _ => move_cursor(model, action),
    }
    Vec::new()
}

pub(super) fn move_cursor(model: &mut Model, action: Action) {
    let rows: Vec<RowId> = rows(model);
    let height = usize::from(layout::cluster_list(model.size).h);
    let cursor = &mut model.ui.cluster.cursor;
    let delta = list::delta(action, height);
    if delta == 0 {
        return;
    }
    cursor.move_by(delta, &rows, height);
    skip_notes(model, &rows, height, delta);
}

/// Further lines of a message can't be selected: the cursor passes over them.
fn skip_notes(model: &mut Model, rows: &[RowId], height: usize, delta: isize) {
    let cursor = &mut model.ui.cluster.cursor;
    let on_note = |cursor: &Cursor<RowId>| matches!(cursor.on, Some(RowId::Note(..)));
    while on_note(cursor) && delta > 0 && cursor.index + 1 < rows.len() {
        cursor.move_by(1, rows, height);
    }
    while on_note(cursor) && cursor.index > 0 {
        cursor.move_by(-1, rows, height);
    }
}

/// Selects the row on a line of the list.
pub(crate) fn select_line(model: &mut Model, line: usize) {
    let rows = rows(model);
    let height = usize::from(layout::cluster_list(model.size).h);
    let at = model.ui.cluster.cursor.offset + line;
    if at < rows.len() {
        model.ui.cluster.cursor.move_to(at, &rows, height);
        skip_notes(model, &rows, height, -1);
    }
}

fn fold(model: &mut Model) {
    let Some(row) = model.ui.cluster.cursor.on.clone() else { return };
    let host = row.host().clone();
    let folded = &mut model.ui.cluster.folded;
    if !folded.remove(&host) {
        folded.insert(host.clone());
        let rows = rows(model);
        if let Some(at) = rows.iter().position(|row| *row == RowId::Host(host.clone())) {
            let height = usize::from(layout::cluster_list(model.size).h);
            model.ui.cluster.cursor.move_to(at, &rows, height);
        }
    }
}

/// A click selects, a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            let Some(line) = layout::cluster_list(model.size).line_of(mouse.row) else { return Vec::new() };
            select_line(model, line);
            if mouse.kind == MouseKind::DoubleClick {
                return act(model, Action::Detail);
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
