//! What the keys and the mouse do on the Run screen, and on Replay for the parts that both have.

use super::rows::{RankRow, host_of, rows, selected_rank};
use super::{LogAt, Pane, WINDOW_BOUNDS, bands, log, marks, moments, whole_us, window_us};
use crate::domain::ids::{Rank, RunId};
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::{Effect, KeyCode, Level, PlayCommand, list};
use crate::tui::screens::model::{Confirm, Overlay};
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::overlay::report;
use crate::tui::screens::replay::keys::incident;
use crate::tui::screens::view::title::plural;
use crate::tui::screens::{Model, replay, runs};
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
    bind(&[c('d')], Action::Back, "leave", "leave this screen; the run goes on"),
    named(&[k(KeyCode::Esc)], Action::ClearFilter, "back", "end the search, else leave this screen"),
    bind(&[c('F')], Action::Follow, "follow", "follow the newest line"),
    bind(
        &[c(' ')],
        Action::PlayPause,
        "freeze",
        "freeze this moment: what is recorded can be gone through, and F follows the run again",
    ),
    bind(&[c('p')], Action::OpenReplay, "replay", "replay what is recorded so far"),
    named(
        &[c('H')],
        Action::Heat,
        "heat map",
        "how late each rank came to the allreduce, step by step: a replay of what is recorded so far",
    ),
    bind(&[c('a')], Action::Again, "again", "edit this launch and start it again"),
    bind(&[c('A')], Action::AllRanks, "all logs", "log of all ranks"),
    named(&[c('T')], Action::Trace, "trace", "kernel trace of 3 steps into a file (run --traceable)"),
    bind(&[k(KeyCode::Enter)], Action::Open, "rank log", "log of the selected rank alone; unfolds a host"),
];

/// Keys of the playhead that freeze a run, on Run.
pub(super) const BACK: &[Binding] = &[
    named(&[c('[')], Action::StepBack, "step -", "freeze the run one training step back"),
    named(&[c('{')], Action::IncidentBefore, "incident -", "freeze the run at the last incident or mark"),
    named(&[c('(')], Action::PageBack, "window back", "freeze the run a whole window of the timeline back"),
    named(&[c('J')], Action::GoTo, "go to", "freeze the run at 14:32:05, -10s, 50% or step 812"),
    named(&[c(']')], Action::StepForward, "step +", "one training step forward, where it is frozen"),
    named(&[c('}')], Action::NextIncident, "incident +", "the next incident or mark, where it is frozen"),
    named(&[c(')')], Action::PageForward, "window forward", "a whole window forward, where it is frozen"),
];

/// Keys of the table of ranks, on Run and Replay.
pub(in crate::tui::screens) const RANKS: &[Binding] = &[
    bind(
        &[c('s')],
        Action::Sort,
        "sort",
        "ranks in order: worst first, by number, slowest first, most delay first",
    ),
    bind(&[c('z')], Action::Fold, "fold", "group the ranks by host; fold or unfold a host"),
    named(&[c('Z')], Action::FoldAll, "fold all", "group the ranks by host, or not"),
];

/// Keys of the timeline, on Run and Replay.
pub(in crate::tui::screens) const TIMELINE: &[Binding] = &[
    named(&[c('+'), c('=')], Action::ZoomIn, "zoom in", "timeline: half the window"),
    named(&[c('-')], Action::ZoomOut, "zoom out", "timeline: twice the window"),
    named(&[c('f')], Action::Fit, "fit", "timeline: the whole run, and back"),
];

/// Keys of marks, on Run and Replay.
pub(in crate::tui::screens) const MARKS: &[Binding] = &[
    named(&[c('m')], Action::Mark, "mark", "set a mark with a note at the moment that is shown"),
    named(&[c('M')], Action::Marks, "marks", "the marks of this run: go there, edit, delete"),
    named(&[c('I')], Action::Report, "report", "how the run went: what hvtui report prints"),
    named(
        &[c('X')],
        Action::Compare,
        "compare",
        "beside another run: choose that on Runs, X there shows what hvtui diff prints",
    ),
];

/// Keys of the log, on Run and Replay.
pub(in crate::tui::screens) const LOG: &[Binding] = &[
    bind(
        &[c('/')],
        Action::Search,
        "search",
        "search for text in any case, or for a /regular expression/: log; on Replay also marks, stages, phases",
    ),
    named(&[c('n')], Action::NextMatch, "next match", "next match of the search"),
    named(&[c('N')], Action::PreviousMatch, "previous match", "previous match of the search"),
    named(&[c('w')], Action::Wrap, "wrap", "log: long lines in several rows, or cut"),
    named(
        &[k(KeyCode::Left)],
        Action::SeekBack,
        "left",
        "a tenth of the window back, which freezes a run; log: to the left, where it has the arrows and cuts lines",
    ),
    named(
        &[k(KeyCode::Right)],
        Action::SeekForward,
        "right",
        "a tenth of the window forward, where it is frozen; log: to the right, likewise",
    ),
    named(&[c('e')], Action::Folds, "repeats", "log: repeats one by one, or as one row"),
    named(&[c('!')], Action::Levels, "levels", "log: warnings and errors, errors, all lines"),
    named(
        &[c('y')],
        Action::Copy,
        "copy",
        "log: copy the match, or the lines that are shown, to the clipboard",
    ),
    named(&[c('W')], Action::Save, "save", "log: write what it shows, and its lines before, into a file"),
];

/// Why a key can do nothing as things stand: a run that has ended is not stopped, nor followed at its last line.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    use Action::{
        Again, Compare, Follow, GoTo, Heat, IncidentBefore, NextIncident, OpenReplay, PageBack, PageForward,
        PlayPause, Report, SeekBack, SeekForward, Stacks, StepBack, StepForward, Stop, Trace,
    };
    let goes_on = model.shown_run().map(|(_, run)| run.is_live());
    match (action, goes_on) {
        (SeekBack | SeekForward, _) if moves_sideways(model) => None,
        (
            Stop | Stacks | Trace | OpenReplay | Heat | Again | Report | Compare | PlayPause | SeekBack
            | StepBack | IncidentBefore | PageBack | GoTo,
            None,
        ) => Some("no run yet"),
        (SeekForward | StepForward | NextIncident | PageForward, Some(true)) => {
            Some("this is now: space, the left arrow, [ and { freeze the run")
        }
        (SeekForward | StepForward | NextIncident | PageForward, Some(false)) => {
            Some("this is the end of the run: the left arrow, [ and { go back in it")
        }
        (StepBack, _) if replay::no_steps(model).is_some() => replay::no_steps(model),
        (Stop | Stacks | Trace, Some(false)) => Some("this run has ended"),
        (PlayPause, Some(false)) => {
            Some("this run has ended: p replays it; the left arrow, [ and { go back in it")
        }
        (Follow, Some(false)) if model.ui.run.log_at == LogAt::Follow => Some("the log shows its last line"),
        _ => None,
    }
}

/// Does what a key means on Run, and on Replay for the parts both have.
pub(crate) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::NextPane => {
            let pane = &mut model.ui.run.pane;
            *pane = if *pane == Pane::Ranks { Pane::Logs } else { Pane::Ranks };
        }
        Action::Open => {
            if let Some(RankRow::Host(_)) = model.ui.run.ranks.on {
                fold(model);
            } else if let Some(rank) = selected_rank(model) {
                show_rank(model, rank);
            }
        }
        Action::AllRanks => {
            let ui = &mut model.ui.run;
            (ui.log_rank, ui.log_chosen, ui.log_at) = (None, true, LogAt::Follow);
            moments::look_again(model);
        }
        Action::Again => {
            if let Some(spec) = model.shown_run().map(|(_, run)| run.spec.clone()) {
                return crate::tui::screens::launch::again(model, &spec);
            }
        }
        Action::OpenReplay | Action::Heat => {
            if let Some(id) = model.shown_run().map(|(id, _)| id.clone()) {
                let effects = replay::open(model, id);
                model.ui.replay.heat = action == Action::Heat;
                return effects;
            }
        }
        Action::Search => {
            let prompt = Prompt::new(PromptKind::LogSearch, model.ui.run.searched());
            model.ui.overlay = Overlay::Prompt(prompt);
        }
        Action::NextMatch => return find(model, true),
        Action::PreviousMatch => return find(model, false),
        Action::Wrap => model.settings.wrap = !model.settings.wrap,
        Action::Folds => model.ui.run.log.open = !model.ui.run.log.open,
        Action::Levels => log::next_level(&mut model.ui.run),
        Action::SeekBack | Action::SeekForward if moves_sideways(model) => {
            sideways(model, action == Action::SeekForward);
        }
        Action::PlayPause => return replay::freeze(model, None),
        Action::SeekBack => return freeze_back(model, window_us(model) / 10),
        Action::PageBack => return freeze_back(model, window_us(model)),
        Action::StepBack => return replay::freeze(model, Some(PlayCommand::StepBy(-1))),
        Action::IncidentBefore => {
            if let Some(there) = incident(model, false) {
                return replay::freeze(model, Some(there));
            }
        }
        Action::GoTo => {
            let effects = replay::freeze(model, None);
            model.ui.overlay = Overlay::Prompt(Prompt::new(PromptKind::GoTo, ""));
            return effects;
        }
        Action::Copy => return copy(model),
        Action::Save => return save(model),
        Action::Follow => model.ui.run.log_at = LogAt::Follow,
        Action::Timeline => model.settings.timeline = !model.settings.timeline,
        Action::ZoomIn => zoom(model, 0.5),
        Action::ZoomOut => zoom(model, 2.0),
        Action::Fit => fit(model),
        Action::Sort => sort(model),
        Action::Fold => fold(model),
        Action::FoldAll => fold_all(model),
        Action::Mark => marks::set(model),
        Action::Marks => marks::list(model),
        Action::Report => {
            if let Some(id) = model.shown_run().map(|(id, _)| id.clone()) {
                return report::ask(model, id);
            }
        }
        Action::Compare => {
            if let Some(id) = model.shown_run().map(|(id, _)| id.clone()) {
                return crate::tui::screens::runs::keys::choose_other(model, &id);
            }
        }
        Action::Stacks => return crate::tui::screens::overlay::stacks::ask(model),
        Action::Stop => ask_stop(model, model.shown_run().map(|(id, _)| id.clone())),
        Action::Trace => return trace(model),
        Action::ClearFilter if end_search(model) => {}
        Action::Back | Action::ClearFilter => model.ui.back(),
        _ => return scroll(model, action),
    }
    Vec::new()
}

/// Freezes the run so many microseconds before now.
fn freeze_back(model: &mut Model, by: i64) -> Vec<Effect> {
    replay::freeze(model, Some(PlayCommand::SeekBy(-by.max(1))))
}

/// Asks whether to stop a run, if it still goes on.
pub(crate) fn ask_stop(model: &mut Model, run: Option<RunId>) {
    let live = run.filter(|id| match model.world.runs.get(id) {
        Some(run) => run.is_live(),
        None => runs::may_go_on(model, id),
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
    if model.shown_run().is_some_and(|(_, run)| (rank.0 as usize) < run.ranks.len()) {
        let ui = &mut model.ui.run;
        ui.log_rank = if ui.log_rank == Some(rank) { None } else { Some(rank) };
        (ui.log_chosen, ui.log_at) = (true, LogAt::Follow);
        moments::look_again(model);
    } else {
        model.notice(Level::Info, format!("there is no rank {rank}"));
    }
}

/// The next order of the ranks.
fn sort(model: &mut Model) {
    let Some((_, run)) = model.shown_run() else { return };
    let next = model.ui.run.arranged.order(run).next();
    model.ui.run.arranged.sort = Some(next);
    model.notice(Level::Info, format!("ranks {}", next.name()));
}

/// Folds or unfolds the host of the selected row; groups the ranks first, where they are not.
fn fold(model: &mut Model) {
    let Some((_, run)) = model.shown_run() else { return };
    let grouped = model.ui.run.arranged.is_grouped(run);
    let Some(host) = model.ui.run.ranks.on.as_ref().and_then(|row| host_of(run, row)) else { return };
    let arranged = &mut model.ui.run.arranged;
    if !grouped {
        arranged.grouped = Some(true);
        arranged.opened.clear();
    } else if !arranged.opened.remove(&host) {
        arranged.opened.insert(host);
        return;
    }
    model.ui.run.ranks.on = Some(RankRow::Host(host));
}

/// Groups the ranks by host, or shows all of them.
fn fold_all(model: &mut Model) {
    let Some((_, run)) = model.shown_run() else { return };
    if !model.ui.run.arranged.is_grouped(run) {
        fold(model);
        return;
    }
    let rank = selected_rank(model);
    model.ui.run.arranged.grouped = Some(false);
    model.ui.run.ranks.on = rank.map(RankRow::Rank);
}

pub(super) fn zoom(model: &mut Model, factor: f64) {
    let window = (window_us(model) as f64 * factor) as i64;
    model.ui.run.window = Some(window.clamp(WINDOW_BOUNDS.0, WINDOW_BOUNDS.1));
}

/// The window of the timeline becomes the whole run; the second time what it is without being chosen.
fn fit(model: &mut Model) {
    let Some((_, run)) = model.shown_run() else { return };
    let length = whole_us(model, run);
    // a replay has it anyway
    model.settings.timeline |= !model.is_replay();
    let ui = &mut model.ui.run;
    ui.window = if ui.window == Some(length) { None } else { Some(length) };
}

fn scroll(model: &mut Model, action: Action) -> Vec<Effect> {
    let bands = bands(model);
    match model.ui.run.pane {
        Pane::Ranks => {
            let height = usize::from(bands.ranks.below_head().h);
            let delta = list::delta(action, height);
            let rows = rows(model);
            model.ui.run.ranks.move_by(delta, &rows, height);
            Vec::new()
        }
        Pane::Logs => scroll_log(model, list::delta(action, usize::from(bands.logs.below_head().h))),
    }
}

/// Moves the log by rows; beyond the newest it follows again, beyond the oldest in memory a replay goes back with it.
pub(crate) fn scroll_log(model: &mut Model, delta: isize) -> Vec<Effect> {
    let height = log_height(model);
    let back = log::scroll(model, delta, height);
    back.map(Effect::Play).into_iter().collect()
}

/// The playhead goes to the line of the log that the search has come to, else to the last one that is shown.
pub(in crate::tui::screens) fn go_to_line(model: &mut Model) -> Vec<Effect> {
    let shown =
        model.shown_run().and_then(|(_, run)| log::line_shown(run, &model.ui.run).zip(Some(run.log.count())));
    let to = shown.filter(|((line, at), count)| *at != model.moment() || line + 1 < *count);
    let Some(((line, at), _)) = to.filter(|_| model.ui.run.log_at != LogAt::Follow) else {
        model.toast(Level::Info, "the log is at the playhead: scroll to a line".to_owned(), None);
        return Vec::new();
    };
    model.ui.run.log_at = LogAt::Follow;
    // the lines of a glimpse have numbers of their own
    let is_rough = model.ui.replay.is_glimpse;
    vec![Effect::Play(if is_rough { PlayCommand::SeekTo(at) } else { PlayCommand::ToLine(at, line + 1) })]
}

fn log_height(model: &Model) -> usize {
    usize::from(bands(model).logs.below_head().h)
}

/// Goes to the next match of the search, or to the one before. In a replay marks, stages and phases are searched too.
pub(in crate::tui::screens) fn find(model: &mut Model, forward: bool) -> Vec<Effect> {
    let height = log_height(model);
    if model.is_replay() {
        return moments::find(model, forward, height);
    }
    log::find(model, forward, height);
    if model.ui.run.log.pattern.is_some() && model.ui.run.log.found.is_none() {
        let text = format!("no line has {}", model.ui.run.searched());
        model.notice(Level::Info, text);
    }
    Vec::new()
}

/// Ends a search, where there is one.
pub(in crate::tui::screens) fn end_search(model: &mut Model) -> bool {
    model.ui.run.log.found = None;
    model.ui.run.moments = moments::MomentsUi::default();
    model.ui.run.log.pattern.take().is_some()
}

/// Whether the arrows to the left and right move the log.
pub(in crate::tui::screens) fn moves_sideways(model: &Model) -> bool {
    model.ui.run.pane == Pane::Logs && !model.settings.wrap
}

fn sideways(model: &mut Model, right: bool) {
    if moves_sideways(model) {
        log::sideways(&mut model.ui.run, right);
    }
}

fn copy(model: &mut Model) -> Vec<Effect> {
    let height = log_height(model);
    let Some((_, run)) = model.shown_run() else { return Vec::new() };
    let (text, lines, left) = log::copied(model, run, height);
    if lines == 0 {
        model.notice(Level::Info, "there is no line to copy");
        return Vec::new();
    }
    let more = if left > 0 { format!("; {left} more are too much for a clipboard") } else { String::new() };
    model.notice(Level::Info, format!("copied {lines} {}{more}", plural(lines, "line")));
    vec![Effect::Copy(text)]
}

fn save(model: &mut Model) -> Vec<Effect> {
    let Some((id, run)) = model.shown_run() else { return Vec::new() };
    let (text, lines) = log::saved(model, run);
    let (name, forgotten) = (log::file_name(id), run.log.forgotten());
    if lines == 0 {
        model.notice(Level::Info, "there is no line to save");
        return Vec::new();
    }
    let older = if forgotten > 0 { format!(", without {forgotten} older ones") } else { String::new() };
    vec![Effect::Save { name, text, what: format!("{lines} {}{older}", plural(lines, "line")) }]
}
