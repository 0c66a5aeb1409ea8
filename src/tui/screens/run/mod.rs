//! The Run screen, and the parts of it that Replay shares: ranks, log, timeline window.

pub mod frame;
pub mod incidents;
pub(super) mod keys;
pub mod lanes;
pub mod log;
pub mod marks;
pub(in crate::tui::screens) mod moments;
pub(in crate::tui::screens) mod mouse;
pub(in crate::tui::screens) mod near;
mod recent;
pub mod rows;
pub mod verdict;
pub(super) mod view;
pub mod whole;

use std::cell::LazyCell;
use std::sync::Arc;

use crate::domain::ids::{Rank, RunId};
use crate::domain::incidents::NOT_FOLLOWED;
use crate::domain::time::Stamp;
use crate::domain::trainers::Trainer;
use crate::domain::world::RunState;
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::layout::{RunBands, RunWants};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Entry;
use crate::tui::screens::replay::selection::shown_part;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::rows::{Arranged, RankRow, rows, silent_hosts};
use crate::tui::screens::run::whole::Whole;
use crate::tui::screens::{Mode, Model};

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Run,
    name: "Run",
    title: view::title::action_at,
    keys: &[
        keys::KEYS,
        keys::BACK,
        keys::RANKS,
        keys::LOG,
        keys::TIMELINE,
        keys::MARKS,
        LAUNCH,
        LISTS,
        EVERYWHERE,
    ],
    act: keys::act,
    missing: keys::missing,
    typed: |_, _| Vec::new(),
    pasted: |_, _| Vec::new(),
    settle,
    mouse: mouse::used,
    draw: |model, canvas| {
        view::draw(model, canvas);
        None
    },
};

/// The timeline's window goes from 1 ms to 366 days, microseconds: a run of months fits into it.
const WINDOW_BOUNDS: (i64, i64) = (1_000, 366 * 86_400_000_000);

/// Which part the arrows move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The table of ranks.
    #[default]
    Ranks,
    /// The log.
    Logs,
}

/// Which line is the last one of the log pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogAt {
    /// The newest.
    #[default]
    Follow,
    /// This one, counted from the run's first line.
    Line(u64),
}

/// The state of the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunUi {
    /// Which run; `None` = the newest.
    pub run: Option<RunId>,
    /// The cursor in the ranks.
    pub ranks: Cursor<RankRow>,
    /// How the ranks are arranged.
    pub arranged: Arranged,
    /// The rank that was selected because it failed first.
    pub failure: Option<Rank>,
    /// All that a replay has seen of the whole run: the playhead may stand before it.
    pub whole: Option<Arc<Whole>>,
    /// The same where it was looked at for some moments alone.
    pub glimpse: Option<Arc<Whole>>,
    /// What stands out in the steps and loads of the run, as far as it has been looked through.
    pub noticed: Option<Arc<incidents::Noticed>>,
    /// Which part the arrows move.
    pub pane: Pane,
    /// The rank whose log is shown; `None` = all.
    pub log_rank: Option<Rank>,
    /// Whether a person chose that.
    pub log_chosen: bool,
    /// Where the log stands.
    pub log_at: LogAt,
    /// How the log is shown.
    pub log: log::LogUi,
    /// What of the search lies in no log.
    pub moments: moments::MomentsUi,
    /// Width of the timeline in microseconds; `None` = a few steps.
    pub window: Option<i64>,
    /// How far its folder is on its way to the hosts, while it is copied.
    pub syncing: Option<String>,
    /// What its recording tells of the time before the steps in memory.
    pub near: near::NearUi,
}

impl RunUi {
    /// The screen on a run, from its start state.
    pub fn on(run: RunId) -> Self {
        Self { run: Some(run), ..Self::default() }
    }

    /// Forgets what belongs to the moments that were shown, and keeps how they are shown; also where the log stands, where
    /// `numbered`: lines have the same numbers in the recording.
    pub fn leave_moment(&mut self, numbered: bool) {
        (self.whole, self.glimpse) = (None, None);
        self.moments = moments::MomentsUi::default();
        if !numbered {
            self.log_at = LogAt::Follow;
            self.log.forget_found();
        }
    }
}

/// The rows of the parts of the screen.
pub fn bands(model: &Model) -> RunBands {
    if let Some(frame) = Frame::of(model) {
        return frame.bands();
    }
    let replay = model.ui.screen == Screen::Replay;
    let wants = RunWants { replay, stages: 1, verdict: 1, ranks: 1, charts: false, lanes: 0 };
    layout::run(model.area(), wants)
}

/// Columns of the log; 0 where the figures of a selection stand in its place.
pub fn log_columns(model: &Model) -> u16 {
    let columns = model.size.0;
    match shown_part(model) {
        Some(_) => layout::log_columns_beside_figures(columns),
        None => layout::log_columns(columns),
    }
}

/// The length of the whole run, as a timeline may have it.
fn whole_us(model: &Model, run: &RunState) -> i64 {
    let (start, end) = whole::range(model, run);
    end.micros_since(start).clamp(WINDOW_BOUNDS.0, WINDOW_BOUNDS.1)
}

/// Fits the whole run into the timeline.
pub(super) fn show_whole(model: &mut Model) {
    let length = model.shown_run().map(|(_, run)| whole_us(model, run));
    model.ui.run.window = length;
}

/// Width of the timeline in microseconds: as zoomed, else about six steps but no more than the whole run, which is all where
/// there are no steps.
pub fn window_us(model: &Model) -> i64 {
    if let Some(window) = model.ui.run.window {
        return window;
    }
    let whole = match &model.mode {
        Mode::Replay(state) => state.end.micros_since(state.start),
        Mode::Live => i64::MAX,
    };
    let step = model.shown_run().and_then(|(_, run)| {
        let longest =
            run.ranks.iter().filter_map(|rank| rank.latest_step()).map(|step| i64::from(step.dur_us)).max();
        longest.filter(|step| *step > 0)
    });
    let few = round(step.map_or(60_000_000, |step| step.saturating_mul(6)));
    few.min(whole).clamp(WINDOW_BOUNDS.0, WINDOW_BOUNDS.1)
}

/// The next of 1, 2, 5 times a power of ten.
fn round(value: i64) -> i64 {
    let mut power = 1;
    loop {
        for factor in [1, 2, 5] {
            if factor * power >= value {
                return factor * power;
            }
        }
        power *= 10;
    }
}

/// The ends of the timeline: around the playhead in a replay, on the screen of a run up to its newest step, and on to now where a
/// rank stands in a step; of a silent host, to when it was heard last.
pub fn timeline(model: &Model) -> (Stamp, Stamp) {
    let length = window_us(model);
    if let Mode::Replay(state) = &model.mode {
        return state.window(length);
    }
    let end = model.shown_run().map_or_else(
        || model.moment(),
        |(_, run)| {
            let last = run.ranks.iter().filter_map(|rank| rank.steps.back()).map(|(at, _)| *at).max();
            let silent = LazyCell::new(|| silent_hosts(model, run));
            let heard = |one: Trainer<'_>| silent.get(&one.rank.placement.host).copied();
            let stands = run.trainers().filter(|one| one.state.standing.is_some());
            let open =
                stands.filter_map(|one| run.open_phase(one, heard(one).unwrap_or_else(|| model.moment())));
            last.max(open.map(|(.., until)| until).max()).unwrap_or(run.last_at)
        },
    );
    (end.plus_micros(-length), end)
}

/// Spans in which no client followed the run: of all the recording in a replay, else those that are past.
pub fn unattended<'a>(model: &'a Model, run: &'a RunState) -> &'a [(Stamp, Stamp)] {
    match &model.mode {
        Mode::Replay(state) => &state.unattended,
        Mode::Live => &run.unattended,
    }
}

/// What is said of a time that [`unattended`] tells: in a recording no client followed the run then, else another client may have.
pub fn away_words(model: &Model) -> &'static str {
    if model.is_replay() { NOT_FOLLOWED } else { "not followed here for" }
}

/// Keeps the cursor true after the world changed, and selects the rank that broke the run.
pub fn settle(model: &mut Model) {
    whole::keep(model);
    incidents::notice(model);
    select_failure(model);
    rows::grade(model);
    let (height, rows) = Frame::of(model)
        .map_or_else(Default::default, |frame| (frame.bands().ranks.below_head().h, frame.rows));
    model.ui.run.ranks.settle(&rows, height.into());
}

/// What broke is what people look for next: the rank that failed first is selected once, with its log. Before its failure,
/// where a replay may go, it is nothing special.
fn select_failure(model: &mut Model) {
    let root = model.shown_run().and_then(|(_, run)| {
        let root = run.root_cause()?;
        let rank = run.ranks.get(root.0 as usize)?;
        Some((root, (rank.placement.host.clone(), rank.last_line.is_some())))
    });
    let ui = &mut model.ui.run;
    let Some((root, (host, has_printed))) = root else {
        if ui.log.pattern.is_some() {
            // a search goes from match to match of one log
            return;
        }
        if let Some(rank) = ui.failure.take()
            && ui.log_rank == Some(rank)
            && !ui.log_chosen
        {
            ui.log_rank = None;
        }
        return;
    };
    if ui.failure == Some(root) {
        return;
    }
    ui.failure = Some(root);
    ui.arranged.opened.insert(host);
    let row = RankRow::Rank(root);
    if !ui.log_chosen && has_printed {
        ui.log_rank = Some(root);
        ui.log_at = LogAt::Follow;
    }
    // with the rows above it in sight
    let index = rows(model).iter().position(|other| *other == row).unwrap_or(0);
    model.ui.run.ranks =
        Cursor { on: Some(row), index, offset: index.saturating_sub(1), ..Cursor::default() };
}
