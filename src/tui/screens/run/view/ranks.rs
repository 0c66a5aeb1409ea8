//! The table of ranks: state, step, times, where the time goes, the last line.

use ratatui::style::Style;

use crate::domain::ids::Rank;
use crate::domain::pace::Pace;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::units;
use crate::domain::world::{HostState, RankState, RunState};
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::gauge;
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::core::layout::Band;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::run::Pane;
use crate::tui::screens::run::verdict::{culprit, is_collateral};
use crate::tui::screens::run::view::strip::Segment;
use crate::tui::screens::run::view::{number, strip};
use crate::tui::screens::view::title::slot_util;

/// How many recent steps a phase bar averages.
const RECENT: usize = 20;
/// Telemetry older than this is not shown beside a rank, microseconds.
const FRESH_US: i64 = 3_500_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Rank,
    Place,
    State,
    Step,
    StepMs,
    Rate,
    Loss,
    Phases,
    Wait,
    Transfer,
    Overlap,
    Via,
    Util,
    Line,
}

/// Draws head and ranks.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, band: Band, run: &RunState) {
    let columns = columns(canvas, run);
    let dim = canvas.theme.dim;
    for column in &columns {
        if column.id == Col::Phases {
            strip::legend(canvas, column.x, band.y, column.x + column.w);
        } else if column.right {
            canvas.right(column.x, band.y, column.w, column.title, dim);
        } else {
            canvas.text(column.x, band.y, column.w, column.title, dim);
        }
    }
    let culprit = culprit(run);
    let longest =
        run.trainers().filter_map(|one| mean_step_us(one.state)).max_by(f64::total_cmp).unwrap_or(1.0);
    let list = band.below_head();
    let cursor = &model.ui.run.ranks;
    let shown =
        rows(run).skip_while(|(number, ..)| (number.0 as usize) < cursor.offset).take(usize::from(list.h));
    for ((number, worker, rank), y) in shown.zip(list.y..) {
        let trainer = Rank(worker.unwrap_or(number.0));
        let row = Row { model, run, number, worker, rank, marked: culprit == Some(trainer), longest };
        for column in &columns {
            cell(&row, canvas, column, y);
        }
        if worker.is_none() && cursor.on == Some(number) && model.ui.run.pane == Pane::Ranks {
            mark_selected(canvas, y, 6);
        }
    }
    let hidden = run.ranks.len().saturating_sub(cursor.offset + usize::from(list.h));
    if hidden > 0 {
        let text = format!(" ↓ {hidden} more ");
        let w = crate::tui::canvas::width(&text);
        canvas.text(canvas.width() - w, band.y, w, &text, dim);
    }
}

/// A row for each rank, and behind it one for each process that trains within it.
fn rows(run: &RunState) -> impl Iterator<Item = (Rank, Option<u32>, &RankState)> {
    run.ranks.iter().zip(0..).flat_map(|(rank, number)| {
        let workers = rank.workers.iter().map(move |(worker, state)| (Rank(number), Some(*worker), state));
        std::iter::once((Rank(number), None, rank)).chain(workers)
    })
}

fn columns(canvas: &Canvas<'_>, run: &RunState) -> Vec<Column<Col>> {
    let place = run
        .ranks
        .iter()
        .map(|rank| crate::tui::canvas::width(&rank.placement.to_string()))
        .max()
        .unwrap_or(5);
    let place = place.clamp(5, 16);
    let w = canvas.width();
    let has_phases =
        run.trainers().any(|one| one.state.latest_step().is_some_and(|step| !step.spans.is_empty()));
    let has_times = run.ranks.iter().any(RankState::trains);
    let has_steps = run.step().is_some() || has_times;
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let mut wishes = vec![
        wish(Col::Rank, "RANK", 4, 4, 0, true),
        wish(Col::Place, "PLACE", place, place, 0, false),
        wish(Col::State, "STATE", 9, 9, 0, false),
    ];
    if has_steps {
        wishes.push(wish(Col::Step, "STEP", 6, 7, 1, true));
        if has_times {
            wishes.push(wish(Col::StepMs, "STEP ms", 8, 8, 2, true));
        }
        if w >= 140 && run.trainers().any(|one| one.state.samples_per_second().is_some()) {
            wishes.push(wish(Col::Rate, "SAMPLES/S", 9, 9, 10, true));
        }
        wishes.push(wish(Col::Loss, "LOSS", 7, 7, 8, true));
    }
    if has_phases {
        // 0 is also what a job says that knows nothing of it: then there is nothing to show
        let has_hidden = run.trainers().flat_map(|one| recent(one.state)).any(|step| step.hidden_us > 0);
        let is_narrow = w < 100;
        // the legend in words needs 58
        let most = if w >= 160 { 58 } else { 22 };
        wishes.push(wish(Col::Phases, "", if has_hidden && is_narrow { 14 } else { 16 }, most, 3, false));
        // in milliseconds, as the step
        wishes.push(wish(Col::Wait, "WAIT", 5, 5, 4, true));
        wishes.push(wish(Col::Transfer, "XFER", 5, 5, 5, true));
        if has_hidden {
            let (title, least) = if is_narrow { ("OVLAP", 5) } else { ("OVERLAP", 7) };
            wishes.push(wish(Col::Overlap, title, least, least, 7, true));
        }
        if w >= 160 {
            wishes.push(wish(Col::Via, "VIA", 7, 7, 11, false));
        }
    }
    wishes.push(wish(
        Col::Util,
        "UTIL",
        if w >= 160 { 14 } else { 5 },
        if w >= 160 { 14 } else { 5 },
        6,
        w < 160,
    ));
    wishes.push(wish(Col::Line, "LAST LINE", 12, 200, 9, false));
    fit(&wishes, 2, w.saturating_sub(3), if w >= 100 { 2 } else { 1 })
}

/// A loss in seven columns at most.
fn loss_words(loss: f32) -> String {
    match loss.abs() {
        small if small < 10.0 => format!("{loss:.4}"),
        middle if middle < 1000.0 => format!("{loss:.2}"),
        large if large < 10_000.0 => format!("{loss:.1}"),
        _ => format!("{loss:.1e}"),
    }
}

struct Row<'a> {
    model: &'a Model,
    run: &'a RunState,
    number: Rank,
    /// The process within the rank.
    worker: Option<u32>,
    rank: &'a RankState,
    marked: bool,
    longest: f64,
}

fn cell(row: &Row<'_>, canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16) {
    let (x, w) = (column.x, column.w);
    let text = canvas.theme.text;
    match column.id {
        Col::Rank => {
            let style = if row.marked { canvas.theme.bad } else { text };
            if row.marked {
                canvas.text(1, y, 1, "!", style);
            }
            let number = row.worker.map_or_else(|| row.number.to_string(), |worker| format!("·{worker}"));
            canvas.right(x, y, w, &number, style);
        }
        Col::Place => {
            canvas.name(x, y, w, &row.rank.placement.to_string(), text);
        }
        Col::State => {
            let (word, style) = state(row, canvas);
            canvas.text(x, y, w, word, style);
        }
        Col::Step => {
            let step = row.rank.step().map_or("–".to_owned(), |step| step.to_string());
            canvas.right(x, y, w, &step, text);
        }
        Col::StepMs => {
            let mean = mean_step_us(row.rank).map_or("–".to_owned(), |us| format!("{:.1}", us / 1000.0));
            canvas.right(x, y, w, &mean, text);
        }
        Col::Rate => {
            let rate = row.rank.samples_per_second().map_or("–".to_owned(), units::rate);
            canvas.right(x, y, w, &rate, text);
        }
        Col::Loss => {
            canvas.right(x, y, w, &row.rank.loss().map_or("–".to_owned(), loss_words), text);
        }
        Col::Wait => milliseconds(row, canvas, column, y, Phase::Wait),
        Col::Transfer => milliseconds(row, canvas, column, y, Phase::Transfer),
        Col::Overlap => {
            let overlap = Pace::of(recent(row.rank)).overlap();
            canvas.right(
                x,
                y,
                w,
                &crate::tui::screens::view::gpu_words::percent(overlap.map(|share| share * 100.0)),
                text,
            );
        }
        Col::Via => {
            canvas.name(x, y, w, row.rank.transport.as_deref().unwrap_or("–"), text);
        }
        Col::Phases => strip::draw(canvas, x, y, w, &phases(row.rank, row.longest), |_| false),
        Col::Util => {
            let state = row.model.world.hosts.get(&row.rank.placement.host);
            // what is old or over says nothing of now
            let now = row.model.moment();
            let fresh =
                |state: &&HostState| state.latest().is_some_and(|(at, _)| now.micros_since(at) < FRESH_US);
            let state = state.filter(fresh).filter(|_| row.rank.exit.is_none());
            let util = state.and_then(|state| slot_util(state, &row.rank.placement.slot));
            let words = crate::tui::screens::view::gpu_words::percent(util.map(|util| util * 100.0));
            if w > 8 {
                let good = canvas.theme.good;
                canvas.text(x, y, w - 6, &gauge(util.unwrap_or(0.0), w - 6), good);
            }
            canvas.right(x + w - 5, y, 5, &words, text);
        }
        Col::Line => {
            let (words, style) = last_words(row, canvas);
            canvas.text(x, y, w, &words, style);
        }
    }
}

/// What a phase takes of a recent step on the average.
fn milliseconds(row: &Row<'_>, canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16, phase: Phase) {
    let (sum, count) = recent(row.rank)
        .filter(|step| !step.spans.is_empty())
        .fold((0, 0u64), |(sum, n), step| (sum + step.phase_totals()[phase.index()], n + 1));
    let words = match sum.checked_div(count) {
        None => "–".to_owned(),
        Some(us) if us < 999_950 => format!("{:.1}", us as f64 / 1e3),
        Some(us) => format!("{:.0}", us as f64 / 1e3),
    };
    canvas.right(column.x, y, column.w, &words, canvas.theme.text);
}

fn state(row: &Row<'_>, canvas: &Canvas<'_>) -> (&'static str, Style) {
    let word = row.rank.word();
    let style = match word {
        "training" | "done" | "running" => canvas.theme.good,
        "failed" | "killed" | "no start" if !is_collateral(row.run, row.number) => canvas.theme.bad,
        "waits" => canvas.theme.warn,
        _ => canvas.theme.dim,
    };
    (word, style)
}

fn last_words(row: &Row<'_>, canvas: &Canvas<'_>) -> (String, Style) {
    let failure = row.rank.exit.as_ref().filter(|(_, exit)| exit.shell_code() != 0);
    if let Some((_, exit)) = failure.filter(|_| !is_collateral(row.run, row.number)) {
        // What a program said before it gave up is mostly why.
        let said = row.rank.last_line.as_ref().filter(|_| exit.code.is_some());
        let said = said.map_or_else(String::new, |logged| format!(": {}", logged.line.text));
        return (exit.describe() + &said, canvas.theme.bad);
    }
    if !row.rank.waits_for.is_empty() && !row.rank.met {
        let ranks = crate::domain::units::ranges(row.rank.waits_for.iter().map(|rank| rank.0));
        return (format!("waits for rank {ranks}"), canvas.theme.warn);
    }
    let line = row.rank.last_line.as_ref().map(|logged| logged.line.text.clone());
    let metrics = || {
        let known = row.rank.metrics.iter().map(|(name, value)| format!("{name} {}", number(*value)));
        known.collect::<Vec<_>>().join("  ")
    };
    (line.unwrap_or_else(metrics), canvas.theme.dim)
}

fn recent(rank: &RankState) -> impl Iterator<Item = &StepTiming> {
    rank.recent_steps(RECENT)
}

/// Mean length of the recent steps, microseconds.
fn mean_step_us(rank: &RankState) -> Option<f64> {
    let (sum, count) = recent(rank).fold((0.0, 0u32), |(sum, n), step| (sum + f64::from(step.dur_us), n + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The mean recent step as a strip whose full width is the slowest rank's step.
fn phases(rank: &RankState, longest: f64) -> Vec<Segment> {
    let mut totals = [0u64; Phase::COUNT];
    let mut count = 0u32;
    for step in recent(rank) {
        count += 1;
        for (total, value) in totals.iter_mut().zip(step.phase_totals()) {
            *total += value;
        }
    }
    let mut from = 0.0;
    let mut stretches = Vec::new();
    for phase in Phase::ALL {
        let length = totals[phase.index()] as f64 / f64::from(count.max(1)) / longest.max(1.0);
        if length > 0.0 {
            stretches.push(Segment { phase, from, to: from + length });
            from += length;
        }
    }
    stretches
}
