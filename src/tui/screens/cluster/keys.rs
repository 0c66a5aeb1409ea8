//! What the keys and the mouse do on the Cluster screen: the cursor, picks, folds, filter, order.

use super::shape::{self, Shape};
use super::{heat, settle, view};
use crate::domain::ids::HostId;
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::list::Cursor;
use crate::tui::core::orders::HostsOrdered;
use crate::tui::core::settings::Density;
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, Screen, list};
use crate::tui::screens::cluster::rows::{RowId, gpus_of, rows};
use crate::tui::screens::cluster::{filtering, picking};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::overlay::signal;
use crate::tui::screens::processes::ProcessRow;
use crate::tui::screens::update::wheel;
use crate::tui::screens::{Model, detail, faults};
use std::collections::BTreeSet;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[c(' ')],
        Action::Pick,
        "pick",
        "pick this GPU; on a host line all its free GPUs, or one CPU slot more",
    ),
    bind(&[k(KeyCode::Enter)], Action::Detail, "detail", "history, facts and processes of the row"),
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
    bind(
        &[c('s')],
        Action::Sort,
        "sort",
        "the next order of hosts and of the GPUs in each, one column after the other; a click on a head orders by it, a second one reverses",
    ),
    bind(&[c('H')], Action::Heat, "layout", "a cell a GPU instead of a row, and back"),
    bind(&[c('z')], Action::Fold, "fold", "fold or unfold the host"),
    named(
        &[c('v')],
        Action::PickRange,
        "pick range",
        "begin a range here: move, then space picks it; esc drops it",
    ),
    named(
        &[c('P')],
        Action::PickMatching,
        "pick matching",
        "pick all GPUs that pass the filter; again drops them",
    ),
    named(&[c('V')], Action::NextView, "next view", "the next saved filter, from [views] in the hosts file"),
    named(&[k(KeyCode::Backspace)], Action::FewerSlots, "fewer slots", "one CPU slot less on this host"),
    bind(&[c('u')], Action::Users, "users", "who uses which GPUs, since when"),
    named(&[c('U')], Action::Unpick, "unpick", "drop all picks"),
    named(&[k(KeyCode::Esc)], Action::ClearFilter, "clear filter", "drop the range, then the filter"),
    bind(&[k(KeyCode::Left)], Action::Left, "", "to the host, then fold it; along the cells"),
    bind(&[k(KeyCode::Right)], Action::Right, "", "unfold the host; along the cells"),
    named(&[c('Z')], Action::FoldAll, "fold all", "fold or unfold all hosts"),
    named(
        &[c('K')],
        Action::Signal,
        "signal",
        "send a signal to the process of this GPU (asks first); of several, to the one that is selected in its detail",
    ),
    named(&[c('C')], Action::Acknowledge, "acknowledge", "acknowledge the errors of this GPU or host"),
    named(&[c('R')], Action::Reconnect, "reconnect", "try this host again now"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    use Action::{
        Acknowledge, Detail, FewerSlots, Fold, FoldAll, Left, Pick, PickRange, Reconnect, Right, Signal,
    };
    let ui = &model.ui.cluster;
    match action {
        Fold | FoldAll if shape::is_heat(model) => Some("cells have nothing to fold: H shows rows"),
        Pick | PickRange | FewerSlots | Fold | Left | Right | Detail | Signal | Acknowledge | Reconnect
            if ui.cursor.on.is_none() =>
        {
            Some(if ui.filter.is_empty() {
                "no host is shown"
            } else {
                "no row passes the filter: esc drops it"
            })
        }
        _ => None,
    }
}

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
        Action::Users => model.ui.open(Screen::Users),
        Action::Filter => filtering::open(model),
        Action::Sort => {
            let by = model.settings.hosts.by.next();
            model.settings.hosts = HostsOrdered { by, reversed: false };
        }
        Action::Heat => {
            let heat = Shape::of(model).heat;
            model.settings.density = Density::Auto;
            if Shape::of(model).heat == heat {
                model.settings.density = if heat { Density::Rows } else { Density::Heat };
            }
            settle(model);
        }
        Action::Left | Action::Right => sideways(model, action),
        Action::Fold => fold(model),
        Action::FoldAll => {
            let all: BTreeSet<HostId> = model.host_order().into_iter().cloned().collect();
            let ui = &mut model.ui.cluster;
            ui.folded = if ui.folded.is_empty() { all } else { BTreeSet::new() };
        }
        Action::Detail => {
            if let Some(row) = model.ui.cluster.cursor.on.clone() {
                detail::open(model, row, None);
            }
        }
        Action::Signal => return signal_process(model),
        Action::Acknowledge => {
            let row = model.ui.cluster.cursor.on.clone();
            return faults::acknowledge(model, row.as_ref());
        }
        Action::Reconnect => {
            let host = model.ui.cluster.cursor.on.as_ref().map(|row| row.host().clone());
            return host.map(Effect::Reconnect).into_iter().collect();
        }
        _ => move_cursor(model, action),
    }
    Vec::new()
}

/// Opens the detail of the row with the choice of a signal to its process; of several a person selects one there.
fn signal_process(model: &mut Model) -> Vec<Effect> {
    let Some(row) = model.ui.cluster.cursor.on.clone() else { return Vec::new() };
    let (processes, failure) = detail::processes(model, &row);
    let (first, more) = (processes.first().map(ProcessRow::id), processes.len() > 1);
    let Some(first) = first else {
        let place = place_words(model, &row);
        let why = failure.map_or(format!("{place} has no process"), |why| format!("{place}: {why}"));
        model.notice(Level::Info, why);
        return Vec::new();
    };
    detail::open(model, row, None);
    if more {
        model.notice(Level::Info, "select a process, then K sends a signal to it");
        return Vec::new();
    }
    signal::open(model, &first)
}

/// `gpu-a:3`, or a host's name.
fn place_words(model: &Model, row: &RowId) -> String {
    let index = match row {
        RowId::Gpu(host, _, place) => gpus_of(model, host).get(*place).map(|gpu| gpu.index),
        _ => None,
    };
    index.map_or(row.host().to_string(), |index| format!("{}:{index}", row.host()))
}

pub(super) fn move_cursor(model: &mut Model, action: Action) {
    let rows: Vec<RowId> = rows(model);
    let shape = Shape::of(model);
    let at = model.ui.cluster.cursor.index;
    if shape.heat {
        let lines = view::grid(model, shape, &rows).lines;
        let to = heat::moved(&rows, at, action, usize::from(lines));
        model.ui.cluster.cursor.move_to(to, &rows, rows.len());
        return;
    }
    let delta = list::delta(action, shape.height());
    if delta == 0 {
        return;
    }
    model.ui.cluster.cursor.move_by(delta, &rows, shape.height());
    skip_notes(model, &rows, shape.height(), delta);
}

/// Into a host and out of it: its rows fold and unfold as in a tree of folders.
fn sideways(model: &mut Model, action: Action) {
    if shape::is_heat(model) {
        return move_cursor(model, action);
    }
    let Some(row) = model.ui.cluster.cursor.on.clone() else { return };
    let folded = model.ui.cluster.folded.contains(row.host());
    match (row, action) {
        (RowId::Host(_), Action::Left) if !folded => fold(model),
        (RowId::Host(_), Action::Right) if folded => fold(model),
        (RowId::Host(_), _) => {}
        (row, Action::Left) => select(model, &RowId::Host(row.host().clone())),
        _ => {}
    }
}

fn select(model: &mut Model, row: &RowId) {
    let rows = rows(model);
    if let Some(at) = rows.iter().position(|other| other == row) {
        let height = Shape::of(model).height();
        model.ui.cluster.cursor.move_to(at, &rows, height);
    }
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

/// Selects what lies under a cell of the screen; false where nothing does.
fn click(model: &mut Model, column: u16, row: u16) -> bool {
    let rows = rows(model);
    let shape = Shape::of(model);
    let at = if shape.heat {
        view::cell_at(model, shape, &rows, column, row)
    } else {
        let line = shape.line_at(column, row);
        line.map(|line| model.ui.cluster.cursor.offset + line).filter(|at| *at < rows.len())
    };
    let Some(at) = at else { return false };
    let height = if shape.heat { rows.len() } else { shape.height() };
    model.ui.cluster.cursor.move_to(at, &rows, height);
    skip_notes(model, &rows, height, -1);
    true
}

fn fold(model: &mut Model) {
    let Some(row) = model.ui.cluster.cursor.on.clone() else { return };
    let host = row.host().clone();
    let folded = &mut model.ui.cluster.folded;
    if !folded.remove(&host) {
        folded.insert(host.clone());
        select(model, &RowId::Host(host));
    }
}

/// A click selects, a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            if let Some(order) = view::order_at(model, mouse.column, mouse.row) {
                let hosts = model.settings.hosts;
                let reversed = hosts.by == order && !hosts.reversed;
                model.settings.hosts = HostsOrdered { by: order, reversed };
                return Vec::new();
            }
            if !click(model, mouse.column, mouse.row) {
                return Vec::new();
            }
            if mouse.kind == MouseKind::DoubleClick {
                return act(model, Action::Detail);
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
