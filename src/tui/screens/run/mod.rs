//! The Run screen, and the parts of it that Replay shares: ranks, log, timeline window.

pub(super) mod keys;
pub mod verdict;
pub(super) mod view;

use std::sync::Arc;

use crate::domain::ids::{Rank, RunId};
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::world::{LoggedLine, RunState};
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::core::layout::{RunBands, RunWants};
use crate::tui::core::list::Cursor;
use crate::tui::core::words::wrap;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Entry;
use crate::tui::screens::run::verdict::verdict;
use crate::tui::screens::{Mode, Model};

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Run,
    name: "Run",
    tabs: false,
    keys: &[keys::KEYS, keys::TIMELINE, LISTS, EVERYWHERE],
    act: keys::act,
    typed: |_, _| Vec::new(),
    pasted: |_, _| Vec::new(),
    settle,
    mouse: keys::mouse,
    draw: |model, canvas| {
        view::draw(model, canvas);
        None
    },
};

/// The timeline's window goes from 2 ms to a day, microseconds.
const WINDOW_BOUNDS: (i64, i64) = (2_000, 86_400_000_000);
/// Lines of a verdict at most.
const VERDICT_LINES: usize = 3;

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
    pub ranks: Cursor<Rank>,
    /// Which part the arrows move.
    pub pane: Pane,
    /// The rank whose log is shown; `None` = all.
    pub log_rank: Option<Rank>,
    /// Where the log stands.
    pub log_at: LogAt,
    /// Only lines that contain this.
    pub search: String,
    /// Whether the timeline is shown on the Run screen.
    pub timeline: bool,
    /// Width of the timeline in microseconds; `None` = a few steps.
    pub window: Option<i64>,
    /// How far its folder is on its way to the hosts, while it is copied.
    pub syncing: Option<String>,
}

impl RunUi {
    /// The screen on a run, from its start state.
    pub fn on(run: RunId) -> Self {
        Self { run: Some(run), ..Self::default() }
    }

    /// Whether a line belongs into the log pane.
    pub fn shows(&self, line: &LoggedLine) -> bool {
        self.log_rank.is_none_or(|rank| line.line.rank == rank)
            && (self.search.is_empty() || line.line.text.to_lowercase().contains(&self.search.to_lowercase()))
    }
}

/// The lines of the log pane, oldest first, at most `height`; each with its number in the run.
pub fn log_lines<'a>(run: &'a RunState, ui: &RunUi, height: usize) -> Vec<(u64, &'a LoggedLine)> {
    let mut shown: Vec<(u64, &LoggedLine)> = match ui.log_at {
        LogAt::Follow => newest(run.log.iter(), ui, height),
        LogAt::Line(line) => newest(run.log.until(line), ui, height),
    };
    if shown.len() < height && ui.log_at != LogAt::Follow {
        // a line that was forgotten meanwhile stands for the oldest that is still known
        let oldest = run.log.iter().filter(|(_, line)| ui.shows(line));
        shown = oldest.take(height).map(|(number, line)| (number, &**line)).collect();
    }
    shown
}

/// The newest of these lines that are shown, oldest first.
fn newest<'a>(
    lines: impl DoubleEndedIterator<Item = (u64, &'a Arc<LoggedLine>)>,
    ui: &RunUi,
    height: usize,
) -> Vec<(u64, &'a LoggedLine)> {
    let shown = lines.rev().filter(|(_, line)| ui.shows(line));
    let mut lines: Vec<_> = shown.take(height).map(|(number, line)| (number, &**line)).collect();
    lines.reverse();
    lines
}

/// What the parts of the screen want, for [`layout::run`].
pub fn bands(model: &Model) -> RunBands {
    let replay = model.ui.screen == Screen::Replay;
    let Some((_, run)) = model.shown_run() else {
        return layout::run(
            model.area(),
            RunWants { scrub: replay, stages: 1, verdict: 1, ranks: 1, lanes: 0 },
        );
    };
    let width = usize::from(model.size.0).saturating_sub(2);
    let verdict = verdict(run, model.moment(), model.utc_offset_s);
    let workers: usize = run.ranks.iter().map(|rank| rank.workers.len()).sum();
    let ranks = u16::try_from(run.ranks.len() + workers).unwrap_or(u16::MAX);
    let lanes = if replay || model.ui.run.timeline {
        ranks.saturating_add(counter_lanes(run).len() as u16)
    } else {
        0
    };
    let most = if run.collected.is_empty() { VERDICT_LINES } else { 2 * VERDICT_LINES };
    let wants = RunWants {
        scrub: replay,
        stages: 1,
        verdict: wrap(&verdict.text, width).len().clamp(1, most) as u16
            + u16::from(run.collectives_words().is_some()),
        ranks,
        lanes,
    };
    layout::run(model.area(), wants)
}

/// The slots that get a lane of their own below the ranks: every GPU of the run, a CPU host once.
pub fn counter_lanes(run: &RunState) -> Vec<usize> {
    let placements = &run.spec.placements;
    let first_of_host = |at: usize| placements[..at].iter().all(|p| p.host != placements[at].host);
    (0..placements.len())
        .filter(|at| matches!(placements[*at].slot, Slot::Gpu { .. }) || first_of_host(*at))
        .collect()
}

/// Width of the timeline in microseconds: as zoomed, else about six steps.
pub fn window_us(model: &Model) -> i64 {
    if let Some(window) = model.ui.run.window {
        return window;
    }
    let step = model.shown_run().and_then(|(_, run)| {
        let longest =
            run.ranks.iter().filter_map(|rank| rank.latest_step()).map(|step| i64::from(step.dur_us)).max();
        longest.filter(|step| *step > 0)
    });
    round(step.map_or(60_000_000, |step| step.saturating_mul(6))).clamp(WINDOW_BOUNDS.0, WINDOW_BOUNDS.1)
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

/// The right edge of the timeline: the playhead, or on a live run the last thing heard of it.
pub fn timeline_end(model: &Model) -> Stamp {
    match model.shown_run() {
        Some((_, run)) if !model.is_replay() => {
            let last = run.ranks.iter().filter_map(|rank| rank.steps.back()).map(|(at, _)| *at).max();
            last.unwrap_or(run.last_at)
        }
        _ => model.moment(),
    }
}

/// Spans in which nobody followed the run: of all the recording in a replay, else those that are past.
pub fn unattended<'a>(model: &'a Model, run: &'a RunState) -> &'a [(Stamp, Stamp)] {
    match &model.mode {
        Mode::Replay(state) => &state.unattended,
        Mode::Live => &run.unattended,
    }
}

/// Keeps the cursor true after the world changed.
pub fn settle(model: &mut Model) {
    let height = usize::from(bands(model).ranks.below_head().h);
    let ranks = ranks(model);
    model.ui.run.ranks.settle(&ranks, height);
}

fn ranks(model: &Model) -> Vec<Rank> {
    model.shown_run().map_or_else(Vec::new, |(_, run)| (0..run.ranks.len() as u32).map(Rank).collect())
}
