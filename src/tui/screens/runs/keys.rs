//! What the keys and the mouse do on the Runs screen.

use super::{NO_RUN, delete, ids, opening, rows, view};
use crate::domain::ids::RunId;
use crate::domain::run_list::RunFilter;
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, layout, list};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::overlay::report;
use crate::tui::screens::run::keys::ask_stop;
use crate::tui::screens::update::{perform, wheel};
use crate::tui::screens::{Model, readonly};

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[k(KeyCode::Enter)],
        Action::Open,
        "open",
        "a live run: attach to it; one that has ended: its replay",
    ),
    bind(&[c('p')], Action::OpenReplay, "replay", "replay what is recorded so far"),
    bind(
        &[c('/')],
        Action::Search,
        "filter",
        "only runs that match: words of name, id, host or command; failed, running, done, stopped; host~a git~4f2a age>30d \
         size>1G duration>2h ranks>4 step>1000 loss<0.5 rate>8000; ! before a term excludes",
    ),
    bind(
        &[c('s')],
        Action::Sort,
        "sort",
        "order by newest, longest, largest, name, outcome, loss, samples/s, code (git)",
    ),
    bind(&[c(' ')], Action::Pick, "mark", "mark the run, or take its mark away"),
    bind(&[c('D')], Action::Delete, "delete", "delete the marked runs, or the selected one (asks first)"),
    bind(&[c('a')], Action::Again, "again", "edit this launch and start it again"),
    bind(&[c('x')], Action::Stop, "stop", "stop the run (asks first)"),
    bind(&[c('R')], Action::Refresh, "refresh", "read the recordings again and ask the hosts"),
    named(&[c('U')], Action::Unpick, "unmark", "take all marks away"),
    named(&[c('I')], Action::Report, "report", "how the run went: what hvtui report prints"),
    named(
        &[c('X')],
        Action::Compare,
        "compare",
        "two marked runs side by side, or the marked one and the selected: what hvtui diff prints",
    ),
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "drop the filter; else back to where you came from"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    let ui = &model.ui.runs;
    let needs_row = match action {
        Action::Open
        | Action::OpenReplay
        | Action::Again
        | Action::Pick
        | Action::Stop
        | Action::Report
        | Action::Compare => true,
        Action::Delete => ui.marked.is_empty(),
        _ => false,
    };
    if !needs_row || ui.cursor.on.is_some() {
        return None;
    }
    Some(match (ui.loading, ui.filter_text.is_empty()) {
        (true, _) => "the recordings are being read",
        (false, true) => readonly::no_run(model, NO_RUN),
        (false, false) => "no run passes the filter: esc drops it",
    })
}

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    model.ui.runs.chosen = true;
    let chosen = model.ui.runs.cursor.on.clone();
    match action {
        Action::Open => return chosen.map_or_else(Vec::new, |id| opening::open(model, id)),
        Action::OpenReplay => return chosen.map_or_else(Vec::new, |id| opening::open_replay(model, id)),
        Action::Again => {
            let spec = rows(model)
                .iter()
                .find(|row| Some(&row.spec.id) == chosen.as_ref())
                .map(|row| row.spec.clone());
            return spec.map_or_else(Vec::new, |spec| crate::tui::screens::launch::again(model, &spec));
        }
        Action::Search => {
            let prompt = Prompt::new(PromptKind::RunsFilter, &model.ui.runs.filter_text);
            model.ui.overlay = Overlay::Prompt(prompt);
        }
        Action::Stop => ask_stop(model, chosen),
        Action::Refresh => {
            model.ui.runs.loading = true;
            return vec![Effect::ListRuns];
        }
        Action::Sort => {
            model.settings.runs = model.settings.runs.next();
            super::settle(model);
        }
        Action::Pick => mark(model),
        Action::Unpick => model.ui.runs.marked.clear(),
        Action::Delete => delete::ask(model),
        Action::Report => {
            if let Some(id) = chosen.filter(|id| is_recorded(model, id)) {
                return report::ask(model, id);
            }
        }
        Action::Compare => return compare(model, chosen),
        Action::Back if !model.ui.runs.filter_text.is_empty() => {
            model.ui.runs.filter = RunFilter::default();
            model.ui.runs.filter_text.clear();
            super::settle(model);
        }
        Action::Back => model.ui.back(),
        _ => move_cursor(model, action),
    }
    Vec::new()
}

/// Marks the selected run, or takes its mark away, and goes on to the next.
fn mark(model: &mut Model) {
    let Some(id) = model.ui.runs.cursor.on.clone() else { return };
    let marked = &mut model.ui.runs.marked;
    if !marked.remove(&id) {
        marked.insert(id);
    }
    move_cursor(model, Action::Down);
}

fn move_cursor(model: &mut Model, action: Action) {
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.area()).h);
    let delta = list::delta(action, height);
    if delta == 0 {
        return;
    }
    model.ui.runs.cursor.move_by(delta, &ids, height);
}

/// Selects the run on a line of the list.
pub(super) fn select_line(model: &mut Model, line: usize) {
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.area()).h);
    let at = model.ui.runs.cursor.offset + line;
    if at < ids.len() {
        model.ui.runs.chosen = true;
        model.ui.runs.cursor.move_to(at, &ids, height);
    }
}

/// Whether a recording of it is listed; says so where there is none.
pub(super) fn is_recorded(model: &mut Model, id: &RunId) -> bool {
    let is_listed = model.recordings.iter().any(|recording| recording.spec.id == *id);
    if !is_listed {
        let words = format!("no recording of run {} is listed; R reads the list again", id.short());
        model.notice(Level::Warning, words);
    }
    is_listed
}

/// Compares the two marked runs, the older first; where one is marked, it with the selected one.
fn compare(model: &mut Model, chosen: Option<RunId>) -> Vec<Effect> {
    let mut runs = model.ui.runs.marked.clone();
    if runs.len() == 1 {
        runs.extend(chosen);
    }
    let runs: Vec<RunId> = runs.into_iter().collect();
    let [a, b] = runs.as_slice() else {
        let words = match runs.len() {
            0 | 1 => "mark a run with space and select another one, or mark two: X compares them".to_owned(),
            count => format!("{count} runs are marked: X compares two"),
        };
        model.notice(Level::Info, words);
        return Vec::new();
    };
    if !is_recorded(model, a) || !is_recorded(model, b) {
        return Vec::new();
    }
    report::compare(model, a.clone(), b.clone())
}

/// Goes to the list with one run marked, so that another one can be chosen and `X` compares the two.
pub(in crate::tui::screens) fn choose_other(model: &mut Model, run: &RunId) -> Vec<Effect> {
    if model.ui.replay.alone {
        let words = format!("this is a recording alone: hvtui diff {} RUN compares it", run.short());
        model.notice(Level::Info, words);
        return Vec::new();
    }
    let effects = perform(model, Action::Runs);
    model.ui.runs.marked = [run.clone()].into();
    let words = format!("run {} is marked: select another one, X compares them", run.short());
    model.notice(Level::Info, words);
    effects
}

/// A click selects, or orders by the column whose head it hits; a double click opens, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            if let Some(order) = view::order_at(model, mouse.column, mouse.row) {
                model.settings.runs = order;
                super::settle(model);
                return Vec::new();
            }
            let Some(line) = layout::runs_list(model.area()).line_of(mouse.row) else { return Vec::new() };
            select_line(model, line);
            if mouse.kind == MouseKind::DoubleClick {
                return act(model, Action::Open);
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
