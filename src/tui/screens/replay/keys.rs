//! The keys that move the playhead.

use super::{HeatColumns, close, events, follow, is_followed, no_steps, selection, state};
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::{Effect, Key, KeyCode, Level, Mouse, PlayCommand, Screen};
use crate::tui::screens::run::keys::{end_search, moves_sideways};
use crate::tui::screens::run::{LogAt, Pane, window_us};
use crate::tui::screens::update::perform;
use crate::tui::screens::{Model, entry, launch, run};

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(&[c(' ')], Action::PlayPause, "play", "play or pause"),
    bind(
        &[c('F')],
        Action::Follow,
        "follow",
        "a run that goes on: back to now, and on with it; else keep the log at the playhead",
    ),
    bind(
        &[k(KeyCode::Left)],
        Action::SeekBack,
        "back",
        "a tenth of the window back; to the left where the log has the arrows and does not wrap",
    ),
    bind(
        &[k(KeyCode::Right)],
        Action::SeekForward,
        "forward",
        "a tenth of the window forward; to the right, likewise",
    ),
    bind(&[c('[')], Action::StepBack, "step -", "one training step back"),
    bind(&[c(']')], Action::StepForward, "step +", "one training step forward"),
    named(
        &[c('{')],
        Action::IncidentBefore,
        "incident -",
        "the incident or mark before: an alert, a failure, a restart, a slow step, a GPU that computed no longer, \
         a host that was lost or came back, what is missing, a clock that was set",
    ),
    named(&[c('}')], Action::NextIncident, "incident +", "the next incident or mark"),
    bind(&[c('J')], Action::GoTo, "go to", "go to 14:32:05, +90s, -10s, 50% or step 812"),
    bind(
        &[c('v')],
        Action::Select,
        "select",
        "figures of a part: begin it here and move the playhead; again ends it",
    ),
    bind(
        &[c('H')],
        Action::Heat,
        "heat map",
        "how late each rank came to the allreduce, step by step, of the part or of all; and back",
    ),
    named(&[c('b')], Action::ByTime, "by time", "heat map: its columns by time, or by step"),
    named(&[c('x')], Action::Stop, "stop", "a run that goes on: back to now, and stop it (asks first)"),
    named(&[c('S')], Action::Stacks, "stacks", "a run that goes on: back to now, and where every rank is"),
    named(&[c('T')], Action::Trace, "trace", "a run that goes on: back to now, and kernel trace of 3 steps"),
    bind(&[c('d')], Action::Back, "close", "close the replay"),
    named(
        &[k(KeyCode::Esc)],
        Action::ClearFilter,
        "leave",
        "end the search, the heat map, the selection; else the screen before",
    ),
    bind(&[c('>')], Action::Faster, "faster", "play twice as fast"),
    bind(&[c('<')], Action::Slower, "slower", "play half as fast"),
    named(
        &[c(',')],
        Action::EventBefore,
        "event -",
        "what the selected rank did before: a phase, a step, a line, its end",
    ),
    named(&[c('.')], Action::NextEvent, "event +", "what the selected rank does next, likewise"),
    named(&[c('(')], Action::PageBack, "window back", "a whole window back"),
    named(&[c(')')], Action::PageForward, "window forward", "a whole window forward"),
    named(
        &[k(KeyCode::Home), c('g')],
        Action::ToStart,
        "start",
        "to the start; of the log where it has the arrows",
    ),
    named(&[k(KeyCode::End), c('G')], Action::ToEnd, "end", "to the end, likewise"),
    named(&[k(KeyCode::Tab)], Action::NextPane, "ranks/logs", "move between ranks and logs"),
    named(&[c('A')], Action::AllRanks, "all logs", "log of all ranks"),
    named(
        &[k(KeyCode::Enter)],
        Action::Open,
        "rank log",
        "log of the selected rank alone; where the log has the arrows: the playhead to its match, else to its last line",
    ),
    named(&[c('a')], Action::Again, "again", "close the replay, edit this launch and start it again"),
];

/// A key that means something on the screens from which a replay is opened, and nothing here, says so.
pub(super) fn unbound(model: &mut Model, key: Key) -> Vec<Effect> {
    let is_known = [Screen::Run, Screen::Runs].into_iter().any(|screen| entry(screen).lookup(key).is_some());
    if is_known {
        let words = match key.code {
            KeyCode::Char('t') => "a replay always shows its timeline".to_owned(),
            KeyCode::Char('D') => "D deletes on Runs and does nothing in a replay; X compares".to_owned(),
            _ => format!("{} does nothing in a replay: ? shows its keys", key.name()),
        };
        model.notice(Level::Info, words);
    }
    Vec::new()
}

/// Why a key can do nothing as things stand: what has ended is not followed.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    let grows = || state(model).is_none_or(|state| state.growing) || is_followed(model);
    match action {
        Action::Follow if model.ui.run.log_at == LogAt::Follow && !grows() => {
            Some("the log is at the playhead")
        }
        Action::Stop | Action::Stacks | Action::Trace if !is_followed(model) => {
            Some("this is a recording: its run does not go on here")
        }
        Action::StepBack | Action::StepForward => no_steps(model),
        Action::Again if model.ui.replay.alone => {
            Some("this is a recording alone; run hvtui without arguments and launch it again from Runs")
        }
        Action::Again if model.shown_run().is_none() => Some("no run yet"),
        _ => None,
    }
}

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let mut effects = carry_out(model, action);
    if run::log_columns(model) == 0 || run::bands(model).logs.h == 0 {
        // figures or ranks stand in the place of the log
        model.ui.run.pane = Pane::Ranks;
    }
    effects.append(&mut selection::ask(model));
    effects
}

fn carry_out(model: &mut Model, action: Action) -> Vec<Effect> {
    let window = window_us(model);
    let play = |command| vec![Effect::Play(command)];
    match action {
        Action::SeekBack | Action::SeekForward if moves_sideways(model) => run::keys::act(model, action),
        Action::ToStart if model.ui.run.pane == Pane::Logs => run::keys::act(model, Action::Top),
        Action::Open if model.ui.run.pane == Pane::Logs => run::keys::go_to_line(model),
        Action::ToEnd if model.ui.run.pane == Pane::Logs => run::keys::act(model, Action::Bottom),
        Action::ClearFilter if end_search(model) || end_view(model) => Vec::new(),
        Action::Select => {
            selection::toggle(model);
            Vec::new()
        }
        Action::Heat => {
            model.ui.replay.heat = !model.ui.replay.heat;
            Vec::new()
        }
        Action::ByTime => {
            let ui = &mut model.ui.replay;
            let is_time = ui.heat && ui.columns == HeatColumns::Time;
            ui.columns = if is_time { HeatColumns::Steps } else { HeatColumns::Time };
            ui.heat = true;
            Vec::new()
        }
        Action::PlayPause => play(PlayCommand::Toggle),
        Action::SeekBack => play(PlayCommand::SeekBy(-(window / 10).max(1))),
        Action::SeekForward => play(PlayCommand::SeekBy((window / 10).max(1))),
        Action::PageBack => play(PlayCommand::SeekBy(-window)),
        Action::PageForward => play(PlayCommand::SeekBy(window)),
        Action::StepBack => play(PlayCommand::StepBy(-1)),
        Action::StepForward => play(PlayCommand::StepBy(1)),
        Action::IncidentBefore | Action::NextIncident => {
            incident(model, action == Action::NextIncident).map(Effect::Play).into_iter().collect()
        }
        Action::EventBefore | Action::NextEvent => {
            events::go(model, action == Action::NextEvent).map(Effect::Play).into_iter().collect()
        }
        Action::Follow if is_followed(model) => follow(model),
        Action::Stop | Action::Stacks | Action::Trace => {
            // they are about the run as it is now
            let mut effects = follow(model);
            effects.extend(perform(model, action));
            effects
        }
        Action::Follow if state(model).is_some_and(|state| state.growing) => {
            model.ui.run.log_at = LogAt::Follow;
            play(PlayCommand::Follow)
        }
        Action::Again => {
            let Some(spec) = model.shown_run().map(|(_, run)| run.spec.clone()) else { return Vec::new() };
            // the hosts are planned for as they are now
            let mut effects = close(model);
            effects.extend(launch::again(model, &spec));
            effects
        }
        Action::Faster => play(PlayCommand::SpeedUp),
        Action::Slower => play(PlayCommand::SlowDown),
        Action::ToStart => play(PlayCommand::ToStart),
        Action::ToEnd => play(PlayCommand::ToEnd),
        Action::GoTo => {
            let prompt = crate::tui::screens::overlay::prompt::Prompt::new(
                crate::tui::screens::overlay::prompt::PromptKind::GoTo,
                "",
            );
            model.ui.overlay = crate::tui::screens::model::Overlay::Prompt(prompt);
            Vec::new()
        }
        // there is nothing behind it: one esc too many must not end the program
        Action::ClearFilter if model.ui.replay.alone => {
            model.toast(Level::Info, "nothing more to close: q ends hvtui".to_owned(), None);
            Vec::new()
        }
        Action::Back | Action::ClearFilter => close(model),
        _ => run::keys::act(model, action),
    }
}

/// Leaves the heat map, else drops the selection; `false` where there is neither.
fn end_view(model: &mut Model) -> bool {
    let ui = &mut model.ui.replay;
    if ui.heat {
        ui.heat = false;
        return true;
    }
    ui.selection.take().is_some()
}

/// As on the Run screen.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    let mut effects = run::mouse::used(model, mouse);
    effects.append(&mut selection::ask(model));
    effects
}

/// The next moment at which something went wrong, or the one before.
pub(in crate::tui::screens) fn incident(model: &mut Model, forward: bool) -> Option<PlayCommand> {
    let (_, run) = model.shown_run()?;
    let (start, end) = run::whole::range(model, run);
    let at = model.moment();
    let marks = run::marks::shown(model).iter();
    let marks = marks.map(|mark| (mark.at.clamp(start, end), format!("mark: {}", mark.words())));
    let incidents = run::incidents::all(model, run).into_iter().map(|one| (one.at, one.words));
    // what a person says of a moment comes before what is said of it anyway
    let mut all: Vec<_> = marks.chain(incidents).collect();
    all.sort_by_key(|(at, _)| *at);
    let found = if forward {
        all.iter().find(|(one, _)| *one > at)
    } else {
        let before = all.iter().rfind(|(one, _)| *one < at).map(|(one, _)| *one);
        all.iter().find(|(one, _)| Some(*one) == before)
    };
    if let Some((to, words)) = found.cloned() {
        model.toast(Level::Info, words, None);
        return Some(PlayCommand::SeekTo(to));
    }
    let text = match (all.is_empty(), forward) {
        (true, _) => "no incident is known of this run",
        (false, true) => "no incident after this moment",
        (false, false) => "no incident before this moment",
    };
    model.toast(Level::Info, text.to_owned(), None);
    None
}
