//! The one door: a message changes the model and may ask for effects.

use std::sync::Arc;

use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::gpu::health::Severity;
use crate::domain::ids::HostId;
use crate::domain::note::Note;
use crate::domain::outcome::restart_words;
use crate::domain::text::about;
use crate::domain::world::World;
use crate::tui::core::keymap::Action;
use crate::tui::core::layout::is_enough;
use crate::tui::core::{Effect, Key, KeyCode, Level, Mouse, MouseKind, Msg, Screen};
use crate::tui::screens::model::{Confirm, Overlay};
use crate::tui::screens::overlay::help::Help;
use crate::tui::screens::overlay::mouse::mouse as over;
use crate::tui::screens::overlay::{palette, prompt, question, report, signal, stacks, verdict};
use crate::tui::screens::view::footer;
use crate::tui::screens::{Model, cluster, doctor, entry, events, launch, readonly, replay, run, runs};

/// Lines that one turn of the wheel moves.
const WHEEL: isize = 3;

/// Microseconds between two questions for the hosts' newest runs.
const ASK_EVERY_US: i64 = 10_000_000;

/// Takes one message in. Pure: the same model and message give the same model and effects.
pub fn update(model: &mut Model, msg: Msg) -> Vec<Effect> {
    update_all(model, vec![msg])
}

/// Takes messages in, in order; what they change in a list is settled once, and before a person's next input.
pub fn update_all(model: &mut Model, messages: Vec<Msg>) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut unsettled = false;
    // the first notice takes a line of the screen, the last one gives it back
    let mut area = model.area();
    for msg in messages {
        let is_input = matches!(msg, Msg::Key(_) | Msg::Mouse(_) | Msg::Released | Msg::Paste(_));
        if is_input && (unsettled || area != model.area()) {
            settle(model);
            unsettled = false;
            area = model.area();
        }
        unsettled |= changes_lists(model, &msg);
        let mut asked = take(model, msg);
        replay::keep_window(model, &asked);
        effects.append(&mut asked);
    }
    let alerts = events::tell_news(model);
    events::drop_visible(model);
    unsettled |= !alerts.is_empty() && model.ui.screen == Screen::Events;
    effects.extend(alerts);
    if unsettled || area != model.area() {
        settle(model);
    }
    if matches!(model.ui.screen, Screen::Run | Screen::Replay) {
        run::log::look_again(model);
        run::moments::arrive(model);
    }
    effects.extend(replay::show_window(model));
    effects.extend(run::near::ask(model));
    readonly::hold_back(model, &mut effects);
    effects
}

fn take(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Event(envelope) => event(model, &envelope),
        Msg::Resumed(run) => {
            let now = model.now;
            for (host, note) in model.live_world().stands(*run, now) {
                noted(model, &host, &note);
            }
            Vec::new()
        }
        Msg::Key(key) => key_pressed(model, key),
        Msg::Mouse(mouse) => mouse_used(model, mouse),
        Msg::Released => run::mouse::released(model),
        Msg::Paste(text) => pasted(model, &text),
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            Vec::new()
        }
        Msg::Tick(now) => {
            model.now = now;
            model.expire();
            if !model.ui.replay.alone {
                model.live_world().tick(now);
            }
            let mut effects = ask_hosts(model);
            effects.extend(runs::opening::heard(model));
            effects.extend(launch::outdated::ask_again(model));
            effects
        }
        Msg::RecordingCosts(cost) => {
            model.ui.events.recording = cost;
            Vec::new()
        }
        msg @ (Msg::RunsListed(_)
        | Msg::ListFailed(_)
        | Msg::RecordingsKept(_)
        | Msg::RunsDeleted { .. }
        | Msg::RunsHeard(_)
        | Msg::MarksTold(..)
        | Msg::ReportTold(..)
        | Msg::HostsChecked(..)
        | Msg::Launched(_)
        | Msg::Withdrawn(_)
        | Msg::LaunchFailed(_)
        | Msg::ReadClosely(..)
        | Msg::Attached(_)) => {
            runs_told(model, msg);
            Vec::new()
        }
        Msg::LaunchPlanned(plan) => launch::planned(model, plan),
        Msg::Preflight(number, host, findings) => {
            launch::checks::told(model, number, &host, findings);
            Vec::new()
        }
        Msg::HostFileRead(name, text) => launch::file_read(model, name, text),
        Msg::FolderListed(path, names) => {
            launch::paths::listed(model, &path, names);
            Vec::new()
        }
        Msg::LaunchWaits(why) => {
            launch::waits(model, why);
            Vec::new()
        }
        Msg::Syncing(id, words) => {
            if model.shown_run().is_some_and(|(shown, _)| *shown == id) {
                model.ui.run.syncing = Some(words);
            }
            Vec::new()
        }
        Msg::StacksTold { run, host, of, why, threads, collectives, last } => {
            stacks::told(model, &run, host, (of, why, *collectives), (threads, last));
            Vec::new()
        }
        Msg::SignalTold { number, answer } => {
            signal::told(model, number, answer);
            Vec::new()
        }
        Msg::Asked(number, asked) => {
            model.ui.questions.waiting.push_back((number, asked));
            Vec::new()
        }
        Msg::Notice(level, text) => {
            model.notice(level, text);
            Vec::new()
        }
        msg @ (Msg::Replayed(_)
        | Msg::Reset(_)
        | Msg::Glimpsed(_)
        | Msg::Playback(_)
        | Msg::ReadingOn(_)
        | Msg::LinesAhead(..)
        | Msg::LineFound(_)
        | Msg::TimelineAhead(_)
        | Msg::PhaseWindow(_)
        | Msg::Analyzed { .. }
        | Msg::ReplayFailed(_)) => replay_told(model, msg),
        Msg::Quit => vec![Effect::Quit],
    }
}

/// What is told of the recording that is replayed.
fn replay_told(model: &mut Model, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Replayed(envelope) => {
            // a late word of a recording that was closed meanwhile is no word of the hosts
            if model.away.is_some() || model.ui.replay.alone {
                model.world.apply(&envelope);
            }
            Vec::new()
        }
        Msg::Reset(world) => told_anew(model, *world, false),
        Msg::Glimpsed(world) => told_anew(model, *world, true),
        Msg::Playback(state) => replay::moved(model, state),
        Msg::ReadingOn(percent) => {
            model.ui.replay.reading = Some(percent);
            Vec::new()
        }
        Msg::TimelineAhead(ahead) => {
            model.ui.replay.timeline_ahead = Some(ahead);
            Vec::new()
        }
        Msg::PhaseWindow(window) => {
            model.ui.replay.phase_window = Some(window);
            Vec::new()
        }
        Msg::LineFound(line) => run::moments::line_found(model, line),
        Msg::LinesAhead(after, lines) => {
            model.ui.replay.ahead = Some((after, lines));
            Vec::new()
        }
        Msg::Analyzed { from, to, told } => {
            replay::selection::told(model, (from, to), told);
            Vec::new()
        }
        Msg::ReplayFailed(reason) => replay::failed(model, reason),
        _ => Vec::new(),
    }
}

/// All that a recording has told until the playhead; of a glimpse the rest comes.
fn told_anew(model: &mut Model, world: World, is_glimpse: bool) -> Vec<Effect> {
    if model.ui.replay.open {
        let was_glimpse = std::mem::replace(&mut model.ui.replay.is_glimpse, is_glimpse);
        // a glimpse counts its lines anew
        if is_glimpse && !was_glimpse {
            model.ui.replay.aside = Some(model.ui.run.put_log_aside());
        } else if is_glimpse {
            model.ui.run.put_log_aside();
        } else if let Some(aside) = model.ui.replay.aside.take() {
            model.ui.run.give_log_back(aside);
        }
        model.show_recording(world);
    }
    Vec::new()
}

/// What is told of runs, their recordings, marks and reports.
fn runs_told(model: &mut Model, msg: Msg) {
    match msg {
        Msg::ReportTold(of, told) => report::told(model, &of, told),
        Msg::HostsChecked(number, matrix, is_over) => {
            let matrix = model.hosts_option.with_all(*matrix);
            if launch::checks::looks_by(model, number) {
                launch::checks::looked(model, number, matrix, is_over);
            } else {
                doctor::told(model, number, matrix, is_over);
            }
        }
        Msg::Launched(id) => launch::started(model, id),
        Msg::Withdrawn(id) => launch::withdrawn(model, &id),
        Msg::LaunchFailed(why) => launch::failed(model, why),
        Msg::RunsListed(list) => {
            model.recordings = list;
            model.ui.runs.loading = false;
        }
        Msg::ListFailed(text) => {
            model.ui.runs.loading = false;
            model.notice(Level::Error, text);
        }
        Msg::RecordingsKept(kept) => {
            model.ui.runs.kept = Some(kept);
        }
        Msg::RunsDeleted { gone, freed, failed } => {
            runs::delete::done(model, &gone, freed, failed);
        }
        Msg::RunsHeard(inventory) => {
            model.inventory = *inventory;
            events::hear(model);
        }
        Msg::MarksTold(id, told) => run::marks::told(model, id, told),
        Msg::Attached(id) => runs::opening::attached(model, id),
        Msg::ReadClosely(id, part, window) => run::near::told(model, id, part, window),
        _ => {}
    }
}

/// Whether a message can change which items the screen's list has, or how many lines it gets. Steps, lines and samples
/// come by the thousand, and few of them do.
fn changes_lists(model: &Model, msg: &Msg) -> bool {
    match msg {
        Msg::Event(envelope) => match envelope.event {
            Event::LinkChanged { .. }
            | Event::HostDescribed { .. }
            | Event::RunCreated { .. }
            | Event::StageEntered { .. }
            | Event::RunRestarted { .. }
            | Event::RunEnded { .. }
            | Event::RankExited { .. } => true,
            Event::HostSampled { .. } => match model.ui.screen {
                Screen::Cluster => cluster::follows_samples(model),
                screen => matches!(screen, Screen::Detail | Screen::Users | Screen::Events),
            },
            _ => false,
        },
        _ => true,
    }
}

fn settle(model: &mut Model) {
    (entry(model.ui.screen).settle)(model);
}

fn event(model: &mut Model, envelope: &Envelope) -> Vec<Effect> {
    model.live_world().apply(envelope);
    let is_away = model.is_replay() || model.away.is_some();
    let is_told = matches!(
        envelope.event,
        Event::RunEnded { .. } | Event::RunRestarted { .. } | Event::RunNoted { .. }
    );
    if is_away && !is_told {
        return Vec::new();
    }
    model.now = model.now.max(envelope.at);
    launch::outdated::hear(model, &envelope.event);
    if let (Event::RunEnded { outcome }, Some(id)) = (&envelope.event, envelope.origin.run()) {
        let level = if outcome.is_success() || outcome.is_stopped() { Level::Info } else { Level::Error };
        let text = format!("run {} ended: {}", id.short(), outcome.summary);
        if model.ui.screen == Screen::Run && model.shown_run().is_some_and(|(shown, _)| shown == id) {
            // the screen says it
            model.ui.events.keep(model.now, level, &text);
        } else {
            model.notice(level, text);
        }
        return vec![Effect::ListRuns];
    }
    if let Event::RunRestarted { attempt, of, why, .. } = &envelope.event {
        model.notice(Level::Warning, restart_words(*attempt, *of, why));
    }
    if let (Event::GpuHappened { event }, Origin::Host(host)) = (&envelope.event, &envelope.origin)
        && let Some(severity) = event.what.severity()
    {
        let level = if severity == Severity::Act { Level::Error } else { Level::Warning };
        let (what, meaning) = (event.what.short(), event.what.meaning());
        model.notice(level, format!("{host}:{} {what}: {meaning}", event.index));
    }
    if let Event::RunNoted { host, note } = &envelope.event {
        noted(model, host, note);
    }
    Vec::new()
}

/// A host has said something of a run.
fn noted(model: &mut Model, host: &HostId, note: &Note) {
    let level = if note.is_trouble() { Level::Warning } else { Level::Info };
    model.notice(level, about(host, &note.text));
}

/// Whether keys write into a text of which several lines mean something: the command of a launch.
pub fn takes_lines(model: &Model) -> bool {
    let writes = model.ui.screen == Screen::Launch && !model.ui.launch.focus.is_choice();
    writes && model.ui.overlay == Overlay::None && !question::is_shown(model)
}

fn pasted(model: &mut Model, text: &str) -> Vec<Effect> {
    if question::is_shown(model) {
        question::paste(model, text);
    } else if let Overlay::Palette(palette) = &mut model.ui.overlay {
        prompt::paste(&mut palette.input, text);
        palette.on = 0;
    } else if let Overlay::Prompt(prompt) = &mut model.ui.overlay {
        prompt.error = None;
        prompt::paste(&mut prompt.input, text);
        prompt::apply(model);
    } else if model.ui.overlay == Overlay::None {
        question::typed_below(model);
        return (entry(model.ui.screen).pasted)(model, text);
    }
    Vec::new()
}

pub(super) fn key_pressed(model: &mut Model, key: Key) -> Vec<Effect> {
    // these hold whatever lies over the screen
    for (held, effect) in [('c', Effect::Quit), ('l', Effect::Redraw), ('z', Effect::Suspend)] {
        if key == Key::ctrl(held) {
            return vec![effect];
        }
    }
    if question::is_shown(model) {
        return question::handle_key(model, key);
    }
    match &model.ui.overlay {
        Overlay::Prompt(_) => return prompt::handle_key(model, key),
        Overlay::Confirm(confirm) => {
            let confirm = confirm.clone();
            return answer(model, &confirm, key);
        }
        Overlay::Palette(_) => return palette::handle_key(model, key),
        Overlay::Stacks(_) => return stacks::handle_key(model, key),
        Overlay::Signal(_) => return signal::handle_key(model, key),
        Overlay::Marks(_) => return run::marks::handle_key(model, key),
        Overlay::Report(_) => return report::handle_key(model, key),
        Overlay::Verdict(_) => return verdict::handle_key(model, key),
        Overlay::Help(line) => {
            let line = *line;
            help_key(model, line, key);
            return Vec::new();
        }
        Overlay::None => {}
    }
    question::typed_below(model);
    match entry(model.ui.screen).lookup(key) {
        Some(action) => perform(model, action),
        None => (entry(model.ui.screen).typed)(model, key),
    }
}

/// Does what an action means: what holds everywhere, else what the screen makes of it.
pub(super) fn perform(model: &mut Model, action: Action) -> Vec<Effect> {
    if readonly::refuses(model, action) {
        return Vec::new();
    }
    let screen = entry(model.ui.screen);
    if let Some(why) = (screen.missing)(model, action) {
        model.notice(Level::Info, why);
        return Vec::new();
    }
    match action {
        Action::Help => {
            model.ui.overlay = Overlay::Help(0);
            Vec::new()
        }
        Action::Palette => {
            model.ui.overlay = Overlay::Palette(palette::Palette::default());
            Vec::new()
        }
        Action::Redraw => vec![Effect::Redraw],
        Action::Suspend => vec![Effect::Suspend],
        Action::Quit => vec![Effect::Quit],
        Action::Cluster => go(model, Screen::Cluster),
        Action::Runs => go(model, Screen::Runs),
        Action::LatestRun => go(model, Screen::Run),
        Action::Doctor => go(model, Screen::Doctor),
        Action::Events => events::open(model),
        Action::Launch => launch::open(model),
        action => (screen.act)(model, action),
    }
}

/// From time to time: on the Cluster screen of hosts with CPU slots, which of them the runs of other clients take (who has
/// which GPU the hosts tell by themselves); on the Runs screen, which runs there are and which of them have ended.
fn ask_hosts(model: &mut Model) -> Vec<Effect> {
    if model.now.micros_since(model.asked_at) < ASK_EVERY_US || model.is_replay() {
        return Vec::new();
    }
    let has_slots = |model: &Model| model.host_order().into_iter().any(|host| model.cpu_slots(host) > 0);
    let effect = match model.ui.screen {
        Screen::Cluster if has_slots(model) => Effect::AskHosts,
        Screen::Runs if !model.ui.runs.loading => {
            model.ui.runs.loading = true;
            Effect::ListRuns
        }
        _ => return Vec::new(),
    };
    model.asked_at = model.now;
    vec![effect]
}

/// Changes to another of the top screens; an open replay is closed.
fn go(model: &mut Model, to: Screen) -> Vec<Effect> {
    if model.ui.replay.alone {
        model.notice(Level::Info, "this is a recording alone; run hvtui without arguments for the cluster");
        return Vec::new();
    }
    let mut effects = if model.ui.replay.open { replay::close(model) } else { Vec::new() };
    if to == Screen::Run {
        let Some(newest) = runs::newest(model) else {
            let words = readonly::no_run(model, "no run yet: pick with space, launch with L");
            model.notice(Level::Info, words);
            return effects;
        };
        if !model.world.runs.contains_key(&newest) {
            effects.extend(runs::opening::open(model, newest));
            return effects;
        }
        // one that begins later is the newest then
        let is_last = model.world.runs.last_key_value().is_some_and(|(last, _)| *last == newest);
        model.ui.run = if is_last { run::RunUi::default() } else { run::RunUi::on(newest) };
    }
    model.ui.go(to);
    match to {
        Screen::Runs => {
            model.ui.runs.loading = true;
            effects.push(Effect::ListRuns);
        }
        Screen::Doctor => effects.extend(doctor::shown(model)),
        _ => {}
    }
    effects
}

fn answer(model: &mut Model, confirm: &Confirm, key: Key) -> Vec<Effect> {
    let id = match confirm {
        Confirm::Delete(asked) => return runs::delete::answer(model, asked, key),
        Confirm::Stop(id) => id,
    };
    let now = match key.code {
        KeyCode::Char('y') => false,
        KeyCode::Char('K') => true,
        _ => {
            if key.is_no() {
                model.ui.overlay = Overlay::None;
            }
            return Vec::new();
        }
    };
    model.ui.overlay = Overlay::None;
    match runs::spec_elsewhere(model, id) {
        Some(spec) => vec![Effect::StopForeign { spec: Arc::new(spec.clone()), now }],
        None => vec![Effect::StopRun { run: id.clone(), now }],
    }
}

fn help_key(model: &mut Model, line: usize, key: Key) {
    let last = Help::of(model, model.size).last();
    let scrolled = match key.code {
        KeyCode::Down | KeyCode::Char('j') => line + 1,
        KeyCode::Up | KeyCode::Char('k') => line.saturating_sub(1),
        KeyCode::PageDown => line + 10,
        KeyCode::PageUp => line.saturating_sub(10),
        _ => {
            model.ui.overlay = Overlay::None;
            return;
        }
    };
    model.ui.overlay = Overlay::Help(scrolled.min(last));
}

fn mouse_used(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    // what is not drawn is not hit
    if !is_enough(model.size) {
        return Vec::new();
    }
    let is_covered = question::is_shown(model) || model.ui.overlay != Overlay::None;
    let was_covered = model.ui.was_covered;
    if mouse.kind == MouseKind::Click {
        model.ui.was_covered = is_covered;
    }
    if is_covered {
        return over(model, mouse);
    }
    if mouse.kind == MouseKind::DoubleClick && was_covered {
        return Vec::new();
    }
    let screen = entry(model.ui.screen);
    if mouse.kind == MouseKind::Click && mouse.row == 0 {
        let action = (screen.title)(model, mouse.column);
        return action.map_or_else(Vec::new, |action| perform(model, action));
    }
    let is_pressed = matches!(mouse.kind, MouseKind::Click | MouseKind::DoubleClick);
    if is_pressed && mouse.row + 1 == model.size.1 {
        let action = footer::action_at(model, mouse.column);
        return action.map_or_else(Vec::new, |action| perform(model, action));
    }
    (screen.mouse)(model, mouse)
}

/// How far a turn of the wheel moves.
pub(super) fn wheel_lines(kind: MouseKind) -> isize {
    if kind == MouseKind::WheelUp { -WHEEL } else { WHEEL }
}

/// The wheel moves the cursor of a list like the arrows do.
pub(super) fn wheel(model: &mut Model, kind: MouseKind, act: fn(&mut Model, Action) -> Vec<Effect>) {
    let action = if kind == MouseKind::WheelUp { Action::Up } else { Action::Down };
    for _ in 0..WHEEL {
        act(model, action);
    }
}
