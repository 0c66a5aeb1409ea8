//! The whole run in a strip: its stages, failures and stragglers on a line with the playhead of a replay, below it where the
//! time of its steps went, and beside or below that how busy its slots were, all on one clock.

use ratatui::style::{Modifier, Style};

use crate::domain::history::{Mark, RunHistory};
use crate::domain::ids::Rank;
use crate::domain::run::{Placement, RunStage, Slot};
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::world::RunState;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::{column as lowest, level};
use crate::tui::canvas::theme::letter;
use crate::tui::core::layout::{Band, whole_columns};
use crate::tui::screens::replay::selection::selected;
use crate::tui::screens::run::incidents::{Unusual, lost_hosts, noticed};
use crate::tui::screens::run::lanes::counter_lanes;
use crate::tui::screens::run::marks::shown as shown_marks;
use crate::tui::screens::run::rows::selected_rank;
use crate::tui::screens::run::verdict::culprit;
use crate::tui::screens::run::view::since_start;
use crate::tui::screens::run::view::strip::{AWAY, MARK};
use crate::tui::screens::run::{unattended, whole};
use crate::tui::screens::{Mode, Model};

/// Eighths of a cell.
const SUB: usize = 8;

/// Draws the strip; `side` columns at the right are for the slots.
pub(in crate::tui::screens) fn draw(
    model: &Model,
    canvas: &mut Canvas<'_>,
    band: Band,
    side: u16,
    run: &RunState,
) {
    if band.h == 0 {
        return;
    }
    let range = whole::range(model, run);
    let width = canvas.width() - side;
    marks(model, canvas, band.y, width, Some(run), range);
    let mut rows = band.below_head();
    if rows.h == 0 {
        return;
    }
    let (x, w) = whole_columns(width);
    if side > 0 {
        loads_beside(model, canvas, band, width, run, range);
    } else {
        // the slots together on the last row
        rows.h -= 1;
        let dim = canvas.theme.dim;
        let y = rows.y + rows.h;
        let is_gpu = |placement: &Placement| matches!(placement.slot, Slot::Gpu { .. });
        let words = if run.spec.placements.iter().any(is_gpu) { "mean util" } else { "mean cpu" };
        canvas.text(1, y, x - 2, words, dim);
        let all: Vec<Rank> = counter_lanes(run).into_iter().map(|at| Rank(at as u32)).collect();
        loads(model, canvas, (x, y, w), run, &all, range);
    }
    let dim = canvas.theme.dim;
    canvas.text(1, rows.y, x - 2, "step time", dim);
    stacked(model, canvas, (x, rows.y, w, rows.h), run, range);
}

/// The line of a replay whose run has not begun at the playhead.
pub(in crate::tui::screens) fn draw_before(model: &Model, canvas: &mut Canvas<'_>, band: Band) {
    if let Mode::Replay(state) = &model.mode {
        let width = canvas.width();
        marks(model, canvas, band.y, width, None, (state.start, state.end));
    }
}

/// The line with what happened when.
fn marks(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    width: u16,
    run: Option<&RunState>,
    (start, end): (Stamp, Stamp),
) {
    let (first, count) = whole_columns(width);
    let (dim, text) = (canvas.theme.dim, canvas.theme.text);
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    let column = |at: Stamp| {
        let length = end.micros_since(start).max(1) as f64;
        let share = (at.micros_since(start) as f64 / length).clamp(0.0, 1.0);
        first + (share * f64::from(count - 1)).round() as u16
    };
    let playhead = match &model.mode {
        Mode::Replay(state) => {
            let (glyph, word) = if state.playing { ("▶", "playing") } else { ("❚", "paused") };
            canvas.text(1, y, 1, glyph, accent);
            canvas.text(3, y, 8, word, if state.playing { accent } else { text });
            Some(column(state.playhead))
        }
        Mode::Live => {
            canvas.text(1, y, 10, "whole run", text);
            None
        }
    };
    let now = match &model.mode {
        Mode::Replay(state) => state.end,
        Mode::Live => run.map_or(end, |run| moment_of(model, run)),
    };
    let until = column(now);
    let spans = run.map_or(&[][..], |run| unattended(model, run));
    let spans: Vec<_> = spans.iter().map(|(from, to)| column(*from)..=column(*to)).collect();
    for x in first..=until {
        let is_past = playhead.is_some_and(|head| x < head);
        let is_away = spans.iter().any(|span| span.contains(&x));
        let glyph = match (is_away, is_past) {
            (true, _) => AWAY.to_string(),
            (false, true) => "━".to_owned(),
            (false, false) => "─".to_owned(),
        };
        canvas.text(x, y, 1, &glyph, if is_past { accent } else { dim });
    }
    if let Some(run) = run {
        let (good, warn, bad) = (canvas.theme.good, canvas.theme.warn, canvas.theme.bad);
        for (at, glyph, style) in
            happened(model, run, (start, end), usize::from(count), [good, warn, bad, dim])
        {
            canvas.text(column(at), y, 1, glyph, style);
        }
    }
    for mark in shown_marks(model) {
        canvas.text(column(mark.at), y, 1, MARK, accent);
    }
    if let Some((from, to)) = selected(model) {
        let (from, to) = (column(from), column(to));
        for x in from..=to {
            let glyph = match x {
                _ if from == to => "┃",
                _ if x == from => "╞",
                _ if x == to => "╡",
                _ => "═",
            };
            canvas.text(x, y, 1, glyph, accent);
        }
    }
    if let Some(head) = playhead {
        canvas.text(head, y, 1, "●", accent);
    }
    let room = width - (first + count);
    canvas.right(first + count, y, room - 1, &since_start(now, start), dim);
}

/// Up to when a run goes on the screen.
fn moment_of(model: &Model, run: &RunState) -> Stamp {
    if run.is_live() { model.moment() } else { run.last_at }
}

/// What is marked, the most important last.
fn happened(
    model: &Model,
    run: &RunState,
    range: (Stamp, Stamp),
    count: usize,
    [good, warn, bad, dim]: [Style; 4],
) -> Vec<(Stamp, &'static str, Style)> {
    let history = whole::history(model, run);
    let mut marks = Vec::new();
    for at in 0..count {
        let (from, to) = whole::column(range, count, at);
        if history.between(from, to).is_some_and(|point| point.late) {
            marks.push((from.plus_micros(to.micros_since(from) / 2), "!", warn));
        }
    }
    marks.extend(noticed(model, run).iter().map(|(what, incident)| match what {
        Unusual::Slow => (incident.at, "↑", warn),
        Unusual::Cliff => (incident.at, "↓", warn),
    }));
    let links = lost_hosts(model, run).flat_map(|outage| [Some(outage.from), outage.until]);
    marks.extend(links.flatten().map(|at| (at, "!", warn)));
    let stages = whole::stages(model, run).iter();
    marks.extend(stages.filter(|(_, stage)| *stage == RunStage::Training).map(|(at, _)| (*at, "◆", good)));
    if let Some(outcome) = whole::outcome(model, run) {
        let ended = whole::stages(model, run).iter().rfind(|(_, stage)| *stage == RunStage::Ended);
        let (glyph, style) = if outcome.is_stopped() || run.spec.is_imported() {
            ("■", dim)
        } else if outcome.is_success() {
            ("✔", good)
        } else {
            ("▲", bad)
        };
        marks.extend(ended.map(|(at, _)| (*at, glyph, style)));
    }
    marks.extend(history.marks.iter().map(|(at, mark)| match mark {
        Mark::Failed(_) => (*at, "▲", bad),
        Mark::Restarted => (*at, "◇", warn),
    }));
    marks
}

/// Where the time of the steps went: of each column, the phases' shares from below.
fn stacked(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y, w, h): (u16, u16, u16, u16),
    run: &RunState,
    range: (Stamp, Stamp),
) {
    let history = whole::history(model, run);
    let spans = unattended(model, run);
    let dim = canvas.theme.dim;
    for column in 0..w {
        let (from, to) = whole::column(range, usize::from(w), usize::from(column));
        let Some(shares) = history.between(from, to).and_then(|point| point.shares()) else {
            if spans.iter().any(|(start, end)| *start < to && from < *end) {
                canvas.text(x + column, y + h - 1, 1, &AWAY.to_string(), dim);
            }
            continue;
        };
        for (row, cell) in stack(&shares, h).into_iter().enumerate() {
            let (glyph, style) = glyph_of(canvas, cell);
            canvas.text(x + column, y + row as u16, 1, &glyph.to_string(), style);
        }
    }
}

/// What a cell holds, in eighths from below.
type Cell = [Phase; SUB];

/// Cells of a column, the top one first.
fn stack(shares: &[f64; Phase::COUNT], height: u16) -> Vec<Cell> {
    let total = usize::from(height) * SUB;
    let at = |eighth: usize| {
        let place = (eighth as f64 + 0.5) / total as f64;
        let mut sum = 0.0;
        let found = Phase::ALL.into_iter().find(|phase| {
            sum += shares[phase.index()];
            place < sum
        });
        found.unwrap_or(Phase::Other)
    };
    (0..usize::from(height)).rev().map(|row| std::array::from_fn(|sub| at(row * SUB + sub))).collect()
}

fn glyph_of(canvas: &Canvas<'_>, cell: Cell) -> (char, Style) {
    let most = |part: &[Phase]| {
        let count = |phase: Phase| part.iter().filter(|own| **own == phase).count();
        part.iter().copied().max_by_key(|phase| count(*phase)).unwrap_or(Phase::Other)
    };
    if !canvas.theme.is_colored() {
        return (letter(most(&cell)), canvas.theme.text);
    }
    let same = cell.iter().take_while(|phase| **phase == cell[0]).count();
    let (below, _) = canvas.theme.phase(cell[0]);
    if same == SUB {
        return (' ', Style::new().bg(below));
    }
    let (above, _) = canvas.theme.phase(most(&cell[same..]));
    (lowest(same), Style::new().fg(below).bg(above))
}

/// The slots at the right, one a row; with more of them than rows their mean first, then the one to look at and the selected one.
fn loads_beside(
    model: &Model,
    canvas: &mut Canvas<'_>,
    band: Band,
    x: u16,
    run: &RunState,
    range: (Stamp, Stamp),
) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let all: Vec<Rank> = counter_lanes(run).into_iter().map(|at| Rank(at as u32)).collect();
    let rows = band.below_head();
    canvas.text(x, band.y, 1, "│", dim);
    canvas.text(x + 2, band.y, canvas.width() - x - 3, "util, same clock", text);
    let name_w = 12;
    let w = canvas.width().saturating_sub(x + 2 + name_w + 1 + 1);
    let mut lanes: Vec<(String, Vec<Rank>)> = Vec::new();
    if all.len() > usize::from(rows.h) {
        lanes.push((format!("mean of {}", all.len()), all.clone()));
        let culprit = culprit(model, run).map(|key| run.rank_of(key));
        let first = culprit.into_iter().chain(selected_rank(model));
        let rest = first.chain(all.iter().copied());
        let mut seen = Vec::new();
        for rank in rest.filter(|rank| all.contains(rank)) {
            if !seen.contains(&rank) && seen.len() + 1 < usize::from(rows.h) {
                seen.push(rank);
            }
        }
        lanes.extend(seen.into_iter().map(|rank| (lane_name(run, rank), vec![rank])));
    } else {
        lanes.extend(all.iter().map(|rank| (lane_name(run, *rank), vec![*rank])));
    }
    for y in rows.y..rows.y + rows.h {
        canvas.text(x, y, 1, "│", dim);
    }
    for ((name, ranks), y) in lanes.iter().zip(rows.y..rows.y + rows.h) {
        canvas.name(x + 2, y, name_w, name, dim);
        loads(model, canvas, (x + 2 + name_w + 1, y, w), run, ranks, range);
    }
}

fn lane_name(run: &RunState, rank: Rank) -> String {
    let place = run.spec.placements.get(rank.0 as usize);
    place.map_or_else(String::new, |placement| match placement.slot {
        Slot::Gpu { .. } => placement.to_string(),
        Slot::Cpu { .. } => format!("{} cpu", placement.host),
    })
}

/// The mean load of these ranks' slots.
fn loads(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y, w): (u16, u16, u16),
    run: &RunState,
    ranks: &[Rank],
    range: (Stamp, Stamp),
) {
    let history = whole::history(model, run);
    let line: String = (0..usize::from(w))
        .map(|at| {
            let (from, to) = whole::column(range, usize::from(w), at);
            level(mean_load(history, ranks, from, to))
        })
        .collect();
    let fill = canvas.theme.fill;
    canvas.text(x, y, w, &line, fill);
}

fn mean_load(history: &RunHistory, ranks: &[Rank], from: Stamp, to: Stamp) -> Option<f64> {
    let known = ranks.iter().filter_map(|rank| history.load_between(*rank, from, to));
    let (sum, count) = known.fold((0.0, 0u32), |(sum, count), load| (sum + load, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_stacked_from_below() {
        let mut shares = [0.0; Phase::COUNT];
        shares[Phase::Data.index()] = 0.5;
        shares[Phase::Backward.index()] = 0.25;
        shares[Phase::Wait.index()] = 0.25;
        let cells = stack(&shares, 2);
        assert_eq!(cells[1], [Phase::Data; SUB], "the lower half");
        assert_eq!(cells[0][..4], [Phase::Backward; 4]);
        assert_eq!(cells[0][4..], [Phase::Wait; 4]);
    }
}
