//! What the keys and the mouse do on the Cluster screen: the cursor, picks, folds, filter, order.

use super::shape::{self, Shape};
use super::{heat, settle, view};
use crate::domain::ids::{GpuUuid, HostId};
use crate::tui::core::filter::Filter;
use crate::tui::core::keymap::{Action, Binding, bind, c, k};
use crate::tui::core::list::Cursor;
use crate::tui::core::settings::Density;
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, Screen, list};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{RowId, Trouble, rows, trouble};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::update::wheel;
use crate::tui::screens::usage::{Leases, free_gpus};
use std::collections::{BTreeMap, BTreeSet};

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[c(' ')],
        Action::Pick,
        "pick",
        "pick this GPU; on a host line all its free GPUs, or one CPU slot more",
    ),
    bind(&[c('f')], Action::PickFree, "free N", "pick N free slots"),
    bind(&[c('L'), c('l')], Action::Launch, "launch", "launch a run on the picks"),
    bind(
        &[c('/')],
        Action::Filter,
        "filter",
        "filter: free, util<5 & mem_free>40G & host~a; fields util mem mem_free temp power host model user cmd",
    ),
    bind(
        &[c('s')],
        Action::Sort,
        "sort",
        "the next order of hosts: file, name, free GPUs, least busy, free memory, hottest, power; a click on a head orders by it",
    ),
    bind(&[c('H')], Action::Heat, "heat", "a cell a GPU instead of a row, and back"),
    bind(&[c('z')], Action::Fold, "fold", "fold or unfold the host"),
    bind(&[k(KeyCode::Enter)], Action::Detail, "detail", "history, facts and processes of the row"),
    bind(&[k(KeyCode::Backspace)], Action::FewerSlots, "", "one CPU slot less on this host"),
    bind(&[c('u')], Action::Users, "users", "who uses which GPUs, since when"),
    bind(&[c('U')], Action::Unpick, "", "drop all picks"),
    bind(&[k(KeyCode::Esc)], Action::ClearFilter, "", "drop the filter"),
    bind(&[k(KeyCode::Left)], Action::Left, "", "to the host, then fold it; along the cells"),
    bind(&[k(KeyCode::Right)], Action::Right, "", "unfold the host; along the cells"),
    bind(&[c('Z')], Action::FoldAll, "", "fold or unfold all hosts"),
    bind(&[c('R')], Action::Reconnect, "", "try this host again now"),
];

/// Does what a key means here.
pub(crate) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::PickFree => model.ui.overlay = Overlay::Prompt(Prompt::new(PromptKind::PickFree, "")),
        Action::Pick => pick(model),
        Action::FewerSlots => add_cpu(model, -1),
        Action::Unpick => model.ui.cluster.unpick(),
        Action::ClearFilter => {
            let ui = &mut model.ui.cluster;
            ui.filter = Filter::default();
            ui.filter_text.clear();
        }
        Action::Users => model.ui.screen = Screen::Users,
        Action::Filter => {
            let prompt = Prompt::new(PromptKind::Filter, &model.ui.cluster.filter_text);
            model.ui.overlay = Overlay::Prompt(prompt);
        }
        Action::Sort => {
            model.ui.cluster.order = model.ui.cluster.order.next();
            model.ui.cluster.reversed = false;
        }
        Action::Heat => {
            let heat = Shape::of(model).heat;
            model.settings.density = if heat { Density::Rows } else { Density::Heat };
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
                model.ui.detail.on = Some(row);
                model.ui.detail.cursor = Cursor::default();
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

fn move_cursor(model: &mut Model, action: Action) {
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

fn pick(model: &mut Model) {
    match model.ui.cluster.cursor.on.clone() {
        Some(RowId::Gpu(host, uuid, place)) => {
            let state = model.world.hosts.get(&host);
            let gpu = state.and_then(|state| state.info.as_ref()).and_then(|info| info.gpus.get(place));
            match gpu.map(|gpu| gpu.index) {
                Some(_) if model.configured_slots(&host).is_some() => {
                    let text = format!("the hosts file gives {host} CPU slots: pick them on its own row");
                    model.notice(Level::Warning, text);
                }
                Some(index) if uuid.is_readable() => {
                    model.ui.cluster.toggle(&host, index, &uuid);
                    if model.ui.cluster.is_picked(&host, &uuid) && picks_are_lost(model, &host) {
                        model.notice(Level::Warning, lost_words(&host));
                    }
                }
                Some(index) => {
                    model.notice(Level::Warning, format!("{host}:{index} can't be read: no rank runs there"));
                }
                None => {}
            }
            move_cursor(model, if shape::is_heat(model) { Action::Right } else { Action::Down });
        }
        Some(RowId::Host(host)) if model.cpu_slots(&host) > 0 => add_cpu(model, 1),
        Some(RowId::Host(host)) => {
            let free = free_gpus(model, &host, &Leases::of(model));
            let lost = picks_are_lost(model, &host);
            let ui = &mut model.ui.cluster;
            if ui.picks.remove(&host).is_none() {
                if lost {
                    model.notice(Level::Warning, lost_words(&host));
                } else if free.is_empty() {
                    model.notice(Level::Warning, format!("no free GPU on {host}"));
                } else {
                    ui.picks.insert(host, free.into_iter().collect());
                }
            }
        }
        _ => {}
    }
}

/// Whether nothing can start on a host's picks now, because it is not reached.
pub(crate) fn picks_are_lost(model: &Model, host: &HostId) -> bool {
    matches!(trouble(model.world.hosts.get(host)), Trouble::Down | Trouble::Refused)
}

fn lost_words(host: &HostId) -> String {
    format!("{host} is not reached: nothing starts there until it is back")
}

fn add_cpu(model: &mut Model, delta: i32) {
    let Some(RowId::Host(host)) = model.ui.cluster.cursor.on.clone() else { return };
    let slots = model.cpu_slots(&host);
    if slots == 0 {
        return;
    }
    let now = model.ui.cluster.cpu_picks.get(&host).copied().unwrap_or(0);
    let wanted = now.saturating_add_signed(delta);
    if wanted > slots {
        model.notice(Level::Warning, format!("{host} has {slots} CPU slots"));
    }
    model.ui.cluster.set_cpus(&host, wanted.min(slots));
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

/// Picks `count` free slots: whole hosts first where one has enough, in the hosts' order, GPUs before CPUs.
pub(crate) fn pick_free(model: &mut Model, count: u32) {
    let hosts: Vec<HostId> = model.host_order().into_iter().cloned().collect();
    let leases = Leases::of(model);
    let mut offers: Vec<(HostId, Vec<(u32, GpuUuid)>)> =
        hosts.iter().map(|host| (host.clone(), free_gpus(model, host, &leases))).collect();
    if let Some(at) = offers.iter().position(|(_, free)| free.len() >= count as usize) {
        offers = vec![offers.swap_remove(at)];
    }
    model.ui.cluster.unpick();
    let mut left = count as usize;
    for (host, free) in offers {
        let taken: BTreeMap<u32, GpuUuid> = free.into_iter().take(left).collect();
        left -= taken.len();
        if !taken.is_empty() {
            model.ui.cluster.picks.insert(host, taken);
        }
    }
    if model.ui.cluster.picked() == 0 {
        left = pick_free_cpus(model, &hosts, left);
    }
    if left > 0 {
        model.notice(Level::Warning, format!("only {} free of {count} asked for", count as usize - left));
    }
}

fn pick_free_cpus(model: &mut Model, hosts: &[HostId], mut left: usize) -> usize {
    for host in hosts {
        let up = model.world.hosts.get(host).is_some_and(crate::domain::world::HostState::is_up);
        let taken = Leases::of(model).cpus(host);
        let free = if up { model.cpu_slots(host).saturating_sub(taken) as usize } else { 0 };
        let take = free.min(left);
        left -= take;
        model.ui.cluster.set_cpus(host, take as u32);
    }
    left
}

/// A click selects, a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            if let Some(order) = view::order_at(model, mouse.column, mouse.row) {
                let ui = &mut model.ui.cluster;
                ui.reversed = ui.order == order && !ui.reversed;
                ui.order = order;
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
