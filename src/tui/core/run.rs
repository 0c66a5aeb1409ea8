//! The Run screen, and the parts of it that Replay shares: ranks, log, timeline window.

use std::sync::Arc;

use super::effect::Effect;
use super::key::{Key, KeyCode};
use super::keymap::Action;
use super::layout::{self, RunBands, RunWants};
use super::list::{self, Cursor};
use super::model::{Confirm, Mode, Model, Overlay, Screen};
use super::msg::Level;
use super::prompt::{Prompt, PromptKind};
use super::verdict::verdict;
use super::words::wrap;
use crate::domain::ids::{Rank, RunId};
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::world::{LoggedLine, RunState};

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
            model.size,
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
    layout::run(model.size, wants)
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

/// Does what a key means on Run, and on Replay for the parts both have.
pub fn act(model: &mut Model, action: Action, key: Key) -> Vec<Effect> {
    match action {
        Action::NextPane => {
            let pane = &mut model.ui.run.pane;
            *pane = if *pane == Pane::Ranks { Pane::Logs } else { Pane::Ranks };
        }
        Action::RankLog => {
            if let KeyCode::Char(digit) = key.code {
                show_rank(model, Rank(digit.to_digit(10).unwrap_or(0)));
            }
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
                return super::launch::again(model, &spec);
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
        Action::Stacks => return super::stacks::ask(model),
        Action::Stop => ask_stop(model, model.shown_run().map(|(id, _)| id.clone())),
        Action::Trace => return trace(model),
        Action::Back => model.ui.screen = Screen::Cluster,
        _ => scroll(model, action),
    }
    Vec::new()
}

/// Asks whether to stop a run, if it still goes on.
pub fn ask_stop(model: &mut Model, run: Option<RunId>) {
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
pub fn scroll_log(model: &mut Model, delta: isize) {
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
pub fn click(model: &mut Model, row: u16) {
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
