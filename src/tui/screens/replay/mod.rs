//! The Replay screen: keys that move the playhead, and where `go to` goes.

mod events;
pub(super) mod keys;
pub mod selection;
pub(super) mod view;

use std::sync::Arc;

use crate::domain::ahead::TimelineAhead;
use crate::domain::ids::RunId;
use crate::domain::phase_window::PhaseWindow;
use crate::domain::playback::PlaybackState;
use crate::domain::time::Stamp;
use crate::domain::world::{LoggedLine, RunState};
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::core::words::clock_time;
use crate::tui::core::{Effect, Level, PlayCommand, Screen, Zone};
use crate::tui::screens::Entry;
use crate::tui::screens::replay::selection::{FiguresUi, Selection};
use crate::tui::screens::run::log::PutAside;
use crate::tui::screens::run::mouse::Pressed;
use crate::tui::screens::run::{LogAt, RunUi};
use crate::tui::screens::{Mode, Model, run};

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Replay,
    name: "Replay",
    title: |_, _| None,
    keys: &[
        keys::KEYS,
        run::keys::RANKS,
        run::keys::LOG,
        run::keys::TIMELINE,
        run::keys::MARKS,
        LISTS,
        EVERYWHERE,
    ],
    act: keys::act,
    missing: keys::missing,
    typed: keys::unbound,
    pasted: |_, _| Vec::new(),
    settle: run::settle,
    mouse: keys::mouse,
    draw: |model, canvas| {
        if state(model).is_some() || model.ui.replay.frozen.is_some() {
            run::view::draw(model, canvas);
        } else {
            view::opening(model, canvas);
        }
        None
    },
};

/// What the columns of the heat map are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeatColumns {
    /// Equal numbers of steps.
    #[default]
    Steps,
    /// Equal lengths of time.
    Time,
}

/// The state of the screen beside the Run screen's.
#[expect(clippy::struct_excessive_bools, reason = "marks that have nothing to do with each other")]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayUi {
    /// Whether a replay is open or being opened.
    pub open: bool,
    /// Whether there is nothing else: leaving it leaves the program.
    pub alone: bool,
    /// The part that is selected.
    pub selection: Option<Selection>,
    /// Where a lane of the timeline was pressed.
    pub pressed: Option<Pressed>,
    /// Whether the lateness of the ranks is shown as a map.
    pub heat: bool,
    /// What its columns are.
    pub columns: HeatColumns,
    /// The figures of what is selected.
    pub figures: FiguresUi,
    /// How much of the way to a moment is read, percent, while the moment before is shown.
    pub reading: Option<u8>,
    /// Whether what is shown is what could be told at once of a long way: all of it is still being read.
    pub is_glimpse: bool,
    /// The place in the log and what was found there, until then.
    pub aside: Option<PutAside>,
    /// The first lines that are printed after a moment.
    pub ahead: Option<(Stamp, Vec<Arc<LoggedLine>>)>,
    /// Steps and samples after the playhead, or after where it was.
    pub timeline_ahead: Option<Arc<TimelineAhead>>,
    /// Where the time went in the window of the timeline, or in one before.
    pub phase_window: Option<Arc<PhaseWindow>>,
    /// Whether its timeline was fitted to the whole run, or is to show some steps at the moment to which it is opened.
    pub is_fitted: bool,
    /// The length of the timeline that the player was told.
    window_told: Option<i64>,
    /// Of a run that was frozen on its screen, which looks the same: how wide its timeline was where no person had chosen that.
    pub frozen: Option<Option<i64>>,
}

impl ReplayUi {
    /// Forgets what belongs to one recording.
    fn begin(&mut self) {
        *self = Self { open: self.open, alone: self.alone, ..Self::default() };
    }
}

/// Opens the recording of a run from the screen that is shown.
pub(super) fn open(model: &mut Model, id: RunId) -> Vec<Effect> {
    model.ui.run = RunUi::on(id.clone());
    model.ui.replay.begin();
    model.ui.replay.open = true;
    model.ui.open(Screen::Replay);
    vec![Effect::OpenReplay(id)]
}

/// Freezes the run of the Run screen, which goes on looking the same, and moves its playhead from now; `F` follows it again.
pub(super) fn freeze(model: &mut Model, command: Option<PlayCommand>) -> Vec<Effect> {
    // what it caught up with came in another order
    let run = model.shown_run().map(|(id, run)| (id.clone(), run.unattended.is_empty()));
    let Some((id, numbered)) = run else { return Vec::new() };
    let window = run::window_us(model);
    let ui = &mut model.ui.run;
    ui.run = Some(id.clone());
    ui.leave_moment(numbered);
    let unchosen = ui.window.is_none().then_some(window);
    ui.window = Some(window);
    model.ui.replay.begin();
    model.ui.replay.open = true;
    model.ui.replay.frozen = Some(unchosen);
    model.ui.open(Screen::Replay);
    [Effect::OpenReplay(id)].into_iter().chain(command.map(Effect::Play)).collect()
}

/// Whether the run goes on and is followed here, or was frozen on its screen: there it is as it is now.
pub fn is_followed(model: &Model) -> bool {
    let now = model.shown_run().and_then(|(_, run)| run::whole::now(model, run));
    model.ui.replay.frozen.is_some() || now.is_some_and(RunState::is_live)
}

/// Why there is no step to go to.
pub(super) fn no_steps(model: &Model) -> Option<&'static str> {
    let (_, run) = model.shown_run()?;
    let told = run::whole::history(model, run).points.points().iter().any(|point| point.steps > 0);
    (!told && run.step().is_none()).then_some("this run tells no steps")
}

/// The first lines that are printed after the playhead, while it stands still.
pub fn lines_ahead(model: &Model) -> &[Arc<LoggedLine>] {
    let playhead = state(model).filter(|state| !state.playing).map(|state| state.playhead);
    let ahead = model.ui.replay.ahead.as_ref().filter(|(after, _)| Some(*after) == playhead);
    ahead.map_or(&[], |(_, lines)| lines)
}

/// Leaves the replay of a run that is followed here for its screen.
pub(super) fn follow(model: &mut Model) -> Vec<Effect> {
    let effects = close(model);
    model.ui.run.log_at = LogAt::Follow;
    if model.ui.screen != Screen::Run {
        model.ui.open(Screen::Run);
    }
    effects
}

/// Leaves the replay for the screen of the live UI from which it was opened; the program, when there is none.
pub fn close(model: &mut Model) -> Vec<Effect> {
    if model.ui.replay.alone {
        return vec![Effect::Quit];
    }
    model.mode = Mode::Live;
    model.leave_recording();
    let frozen = model.ui.replay.frozen;
    let numbered = model.shown_run().is_some_and(|(_, run)| run.unattended.is_empty());
    model.ui.replay.begin();
    model.ui.replay.open = false;
    // a Run screen below shows the same run
    let ui = &mut model.ui.run;
    if let Some(unchosen) = frozen {
        ui.leave_moment(numbered);
        ui.window = ui.window.filter(|window| unchosen != Some(*window));
    } else {
        *ui = ui.run.take().map(RunUi::on).unwrap_or_default();
    }
    if model.ui.screen == Screen::Replay {
        model.ui.back();
    }
    model.ui.trail.forget(Screen::Replay);
    vec![Effect::CloseReplay]
}

/// It could not be opened.
pub fn failed(model: &mut Model, reason: String) -> Vec<Effect> {
    if !model.ui.replay.open {
        return Vec::new();
    }
    model.notice(Level::Error, reason);
    if model.ui.replay.alone { Vec::new() } else { close(model) }
}

/// The playhead has moved.
pub fn moved(model: &mut Model, state: PlaybackState) -> Vec<Effect> {
    // a late word of a replay that was closed meanwhile must not open it again
    if !model.ui.replay.open {
        return Vec::new();
    }
    let grows = state.growing;
    model.mode = Mode::Replay(state);
    if !std::mem::replace(&mut model.ui.replay.is_fitted, true) && model.ui.run.window.is_none() {
        run::show_whole(model);
    }
    if grows && model.ui.run.window.is_none() {
        // the end moves away from the playhead, at which the window is another
        model.ui.run.window = Some(run::window_us(model));
    }
    model.ui.replay.reading = None;
    selection::ask(model)
}

/// A person has moved the playhead: the timeline keeps the window that it shows. One that is chosen by the moment would be
/// another at the next, and with it what the keys move by.
pub fn keep_window(model: &mut Model, effects: &[Effect]) {
    let moves = effects.iter().any(|effect| matches!(effect, Effect::Play(_)));
    if moves && model.is_replay() && model.ui.run.window.is_none() {
        model.ui.run.window = Some(run::window_us(model));
    }
}

/// Tells the player how long the timeline is, where that has changed.
pub(super) fn show_window(model: &mut Model) -> Option<Effect> {
    let window = model.is_replay().then(|| run::window_us(model))?;
    if model.ui.replay.window_told == Some(window) {
        return None;
    }
    model.ui.replay.window_told = Some(window);
    Some(Effect::ShowWindow(window))
}

/// The state of an open replay.
pub fn state(model: &Model) -> Option<&PlaybackState> {
    match &model.mode {
        Mode::Replay(state) => Some(state),
        Mode::Live => None,
    }
}

/// Reads a place: `14:32:05`, `+90s`, `-10s`, `50%`, `step 812`; a bare number is a step.
pub fn parse_goto(model: &Model, text: &str) -> Option<PlayCommand> {
    let state = state(model)?;
    if let Some(percent) = text.strip_suffix('%') {
        let share = percent.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p))? / 100.0;
        let length = state.end.micros_since(state.start) as f64;
        return Some(PlayCommand::SeekTo(state.start.plus_micros((length * share) as i64)));
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(step) = text.strip_prefix("step").or(is_number.then_some(text)) {
        return step.trim().parse().ok().map(PlayCommand::ToStep);
    }
    if let Some(rest) = text.strip_prefix('+') {
        return Some(PlayCommand::SeekBy(length(rest)?));
    }
    if let Some(rest) = text.strip_prefix('-') {
        return Some(PlayCommand::SeekBy(-length(rest)?));
    }
    time_of_day(text, state.start, &model.zone).map(PlayCommand::SeekTo)
}

/// Whether the recording has a moment, to a second.
pub(super) fn is_recorded(model: &Model, at: Stamp) -> bool {
    let second = 1_000_000;
    let bounds = state(model).map(|state| (state.start.plus_micros(-second), state.end.plus_micros(second)));
    bounds.is_some_and(|(from, to)| (from..=to).contains(&at))
}

/// From when to when the recording is.
pub(super) fn bounds_words(model: &Model) -> String {
    let time = |at| clock_time(at, &model.zone, false);
    state(model)
        .map_or_else(String::new, |state| format!("recorded {}–{}", time(state.start), time(state.end)))
}

/// Microseconds of `90`, `90s`, `1.5m`, `400ms`, `2h`, or of `01:30` and `00:37.5`, as the title shows them.
fn length(text: &str) -> Option<i64> {
    if let Some((minutes, seconds)) = text.split_once(':') {
        let minutes: u32 = minutes.parse().ok()?;
        let seconds: f64 = seconds.parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?;
        return Some(i64::from(minutes) * 60_000_000 + (seconds * 1e6) as i64);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e3,
        "" | "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let value: f64 = digits.trim().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value * unit) as i64)
}

/// The first moment from `start` on at which a wall clock shows `14:32` or `14:32:05`.
fn time_of_day(text: &str, start: Stamp, zone: &Zone) -> Option<Stamp> {
    let parts: Vec<i64> = text.split(':').map(|part| part.trim().parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [h @ 0..24, m @ 0..60] => h * 3600 + m * 60,
        [h @ 0..24, m @ 0..60, s @ 0..60] => h * 3600 + m * 60 + s,
        _ => return None,
    };
    let day = 86_400_000_000;
    // a whole second before the start still means this day: recordings rarely start on one
    let by = |ahead_s: i32| {
        let shown = start.plus_micros(i64::from(ahead_s) * 1_000_000).0.rem_euclid(day);
        start.plus_micros((seconds * 1_000_000 - shown + 1_000_000).rem_euclid(day) - 1_000_000)
    };
    // the clocks may change within a day, and then some times are shown twice and others never
    let offsets = [start, start.plus_micros(day)].map(|at| zone.ahead_s(at));
    let shown = offsets.into_iter().filter(|ahead_s| zone.ahead_s(by(*ahead_s)) == *ahead_s);
    Some(shown.map(by).min().unwrap_or_else(|| by(offsets[0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_shown_twice_or_never_is_found() {
        const HOUR: i64 = 3_600_000_000;
        let moment = |hours: f64| {
            Stamp(1_795_000_000_000_000 / (24 * HOUR) * (24 * HOUR) + (hours * HOUR as f64) as i64)
        };
        let changes = |before: i32, after: i32| {
            Zone::around(moment(48.0), move |at| if at < moment(1.0) { before } else { after } * 3600)
        };
        // back from summer at 3:00, which is 1:00 UTC, then forward
        let (autumn, spring) = (changes(2, 1), changes(1, 2));
        let find = |text, start, zone: &Zone| time_of_day(text, moment(start), zone).unwrap();
        assert_eq!(find("2:15", 0.5, &autumn), moment(1.25), "the second time");
        assert_eq!(find("2:45", 0.5, &autumn), moment(0.75), "the first time");
        assert_eq!(find("4:00", 0.5, &autumn), moment(3.0));
        assert_eq!(find("2:30", 0.0, &spring), moment(1.5), "never shown: as if the clocks had not changed");
        assert_eq!(find("4:00", 0.0, &spring), moment(2.0));
    }

    #[test]
    fn places_are_read() {
        // 2026-11-18 12:06:40 UTC
        let start = Stamp(1_795_003_600_000_000);
        let state = PlaybackState {
            start,
            end: start.plus_micros(100_000_000),
            playhead: start,
            speed: 1.0,
            playing: false,
            damage: None,
            unattended: Vec::new(),
            lost: Vec::new(),
            growing: false,
        };
        let model = Model::replay(state, start, 3600);
        let goto = |text: &str| parse_goto(&model, text);
        assert_eq!(goto("50%"), Some(PlayCommand::SeekTo(start.plus_micros(50_000_000))));
        assert_eq!(goto("+90s"), Some(PlayCommand::SeekBy(90_000_000)));
        assert_eq!(goto("-400ms"), Some(PlayCommand::SeekBy(-400_000)));
        assert_eq!(goto("+01:30"), Some(PlayCommand::SeekBy(90_000_000)));
        assert_eq!(goto("-00:02.5"), Some(PlayCommand::SeekBy(-2_500_000)));
        assert_eq!(goto("+00:61"), None);
        assert_eq!(goto("step 8"), Some(PlayCommand::ToStep(8)));
        assert_eq!(goto("812"), Some(PlayCommand::ToStep(812)));
        assert_eq!((goto("step -1"), goto("8.5"), goto("812s"), goto("")), (None, None, None, None));
        let Some(PlayCommand::SeekTo(at)) = goto("14:07") else { panic!("a time") };
        assert_eq!(crate::tui::core::words::clock_time(at, &3600.into(), false), "14:07:00");
        assert_eq!(goto("soon"), None);
        assert_eq!(goto("25:00"), None);
        assert_eq!(goto("101%"), None);
    }
}
