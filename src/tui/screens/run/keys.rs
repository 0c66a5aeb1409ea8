//! What the keys and the mouse do on the Run screen, and on Replay for the parts that both have.

use super::{LogAt, Pane, WINDOW_BOUNDS, bands, ranks, window_us};
use crate::domain::ids::{Rank, RunId};
use crate::tui::core::keymap::{Action, Binding, bind, c, k};
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, PlayCommand, Screen, layout, list};
use crate::tui::screens::model::{Confirm, Overlay};
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::update::{wheel, wheel_lines};
use crate::tui::screens::{Mode, Model};
use std::sync::Arc;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(&[k(KeyCode::Tab)], Action::NextPane, "ranks/logs", "move between ranks and logs"),
    bind(&[c('t')], Action::Timeline, "timeline", "show or hide the timeline"),
    bind(&[c('x')], Action::Stop, "stop", "stop the run (asks first)"),
    bind(
        &[c('S')],
        Action::Stacks,
        "stacks",
        "where every rank is just now: the stacks of their Pythons side by side",
    ),
    bind(&[c('d'), k(KeyCode::Esc)], Action::Back, "detach", "leave this screen; the run goes on"),
    bind(&[c('/')], Action::Search, "search", "only log lines that contain a text"),
    bind(&[c('F')], Action::Follow, "follow", "follow the newest line"),
    bind(&[c('A')], Action::AllRanks, "all logs", "log of all ranks"),
    bind(&[c('T')], Action::Trace, "", "kernel trace of 3 steps into a file (run --traceable)"),
    bind(&[c('a')], Action::Again, "again", "edit this launch and start it again"),
    bind(&[k(KeyCode::Enter)], Action::Open, "rank log", "log of the selected rank alone"),
];

/// Keys of the timeline, on Run and Replay.
pub(in crate::tui::screens) const TIMELINE: &[Binding] = &[
    bind(&[c('+'), c('=')], Action::ZoomIn, "", "timeline: half the window"),
    bind(&[c('-')], Action::ZoomOut, "", "timeline: twice the window"),
];

/// Does what a key means on Run, and on Replay for the parts both have.
pub(crate) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::NextPane => {
            let pane = &mut model.ui.run.pane;
            *pane = if *pane == Pane::Ranks { Pane::Logs } else { Pane::Ranks };
        }
        Action::Open => {
            if let Some(rank) = model.ui.run.ranks.on {
                show_rank(model, rank);
            }
        }
        Action::AllRanks => {
            model.ui.run.log_rank = None;
            model.ui.run.log_at = LogAt::Follow;
        }
        Action::Again => {
            if let Some(spec) = model.shown_run().map(|(_, run)| run.spec.clone()) {
                return crate::tui::screens::launch::again(model, &spec);
            }
        }
        Action::Search => {
            let prompt = Prompt::new(PromptKind::LogSearch, &model.ui.run.search);
            model.ui.overlay = Overlay::Prompt(prompt);
        }
        Action::Follow => model.ui.run.log_at = LogAt::Follow,
        Action::Timeline => model.ui.run.timeline = !model.ui.run.timeline,
        Action::ZoomIn => zoom(model, 0.5),
        Action::ZoomOut => zoom(model, 2.0),
        Action::Stacks => return crate::tui::screens::overlay::stacks::ask(model),
        Action::Stop => ask_stop(model, model.shown_run().map(|(id, _)| id.clone())),
        Action::Trace => return trace(model),
        Action::Back => model.ui.screen = Screen::Cluster,
        _ => scroll(model, action),
    }
    Vec::new()
}

/// Asks whether to stop a run, if it still goes on.
pub(crate) fn ask_stop(model: &mut Model, run: Option<RunId>) {
    let live = run.filter(|id| match model.world.runs.get(id) {
        Some(run) => run.is_live(),
        None => model.heard.is_live(id),
    });
    match live {
        Some(id) => model.ui.overlay = Overlay::Confirm(Confirm::Stop(id)),
        None => model.notice(Level::Info, "this run has ended"),
    }
}

/// Asks for a kernel trace of a run, if it still goes on and was launched for that.
fn trace(model: &mut Model) -> Vec<Effect> {
    let Some((_, run)) = model.shown_run() else { return Vec::new() };
    let (spec, live, traceable) = (Arc::clone(&run.spec), run.is_live(), run.spec.options.traceable);
    if !live {
        model.notice(Level::Info, "this run has ended");
    } else if !traceable {
        model.notice(Level::Warning, "no kernel trace: launch the run with --traceable (torch 2.7 or newer)");
    } else {
        return vec![Effect::Trace(spec)];
    }
    Vec::new()
}

fn show_rank(model: &mut Model, rank: Rank) {
    if ranks(model).contains(&rank) {
        let ui = &mut model.ui.run;
        ui.log_rank = if ui.log_rank == Some(rank) { None } else { Some(rank) };
        ui.log_at = LogAt::Follow;
    } else {
        model.notice(Level::Info, format!("there is no rank {rank}"));
    }
}

fn zoom(model: &mut Model, factor: f64) {
    let window = (window_us(model) as f64 * factor) as i64;
    model.ui.run.window = Some(window.clamp(WINDOW_BOUNDS.0, WINDOW_BOUNDS.1));
}

fn scroll(model: &mut Model, action: Action) {
    let bands = bands(model);
    match model.ui.run.pane {
        Pane::Ranks => {
            let height = usize::from(bands.ranks.below_head().h);
            let delta = list::delta(action, height);
            let ranks = ranks(model);
            model.ui.run.ranks.move_by(delta, &ranks, height);
        }
        Pane::Logs => scroll_log(model, list::delta(action, usize::from(bands.logs.below_head().h))),
    }
}

/// Moves the log by shown lines; beyond the newest it follows again.
pub(crate) fn scroll_log(model: &mut Model, delta: isize) {
    let height = usize::from(bands(model).logs.below_head().h);
    let Some((_, run)) = model.shown_run() else { return };
    let ui = &model.ui.run;
    let shown: Vec<u64> =
        run.log.iter().filter(|(_, line)| ui.shows(line)).map(|(number, _)| number).collect();
    let Some(last) = shown.len().checked_sub(1) else { return };
    let at = match ui.log_at {
        LogAt::Follow => last,
        LogAt::Line(line) => shown.partition_point(|number| *number < line).min(last),
    };
    let lowest = height.saturating_sub(1).min(last);
    let at = at.saturating_add_signed(delta).clamp(lowest, last);
    model.ui.run.log_at = if at == last { LogAt::Follow } else { LogAt::Line(shown[at]) };
}

/// A click on a row of the screen.
pub(crate) fn click(model: &mut Model, row: u16) {
    let bands = bands(model);
    if let Some(line) = bands.ranks.below_head().line_of(row) {
        let ranks = ranks(model);
        let at = model.ui.run.ranks.offset + line;
        if at < ranks.len() {
            model.ui.run.pane = Pane::Ranks;
            model.ui.run.ranks.move_to(at, &ranks, usize::from(bands.ranks.below_head().h));
        }
    } else if bands.logs.line_of(row).is_some() {
        model.ui.run.pane = Pane::Logs;
    }
}

/// A click selects, a double click shows the rank's log alone; on the scrub bar press and drag go there; the wheel moves what
/// lies under it.
pub(in crate::tui::screens) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let bands = bands(model);
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick | MouseKind::Drag => {
            if let (Some(_), Mode::Replay(state)) = (bands.scrub.line_of(mouse.row), &model.mode) {
                let at = layout::scrub_moment(model.size.0, mouse.column, state.start, state.end);
                return at.map(|at| Effect::Play(PlayCommand::SeekTo(at))).into_iter().collect();
            }
            if mouse.kind != MouseKind::Drag {
                click(model, mouse.row);
            }
            if mouse.kind == MouseKind::DoubleClick && bands.ranks.below_head().line_of(mouse.row).is_some() {
                return act(model, Action::Open);
            }
        }
        kind if bands.logs.line_of(mouse.row).is_some() => scroll_log(model, wheel_lines(kind)),
        kind => wheel(model, kind, act),
    }
    Vec::new()
}
