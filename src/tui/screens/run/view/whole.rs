//! The whole run in a strip: its stages, failures and stragglers on a line with the playhead of a replay, below it where the
//! time of its steps went, and beside or below that how busy its slots were, all on one clock.

use ratatui::style::{Modifier, Style};

use crate::domain::history::{Mark, RunPoint};
use crate::domain::ids::Rank;
use crate::domain::incidents::IncidentKind;
use crate::domain::run::{Placement, RunStage, Slot};
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::world::RunState;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::{column as lowest, level};
use crate::tui::canvas::theme::letter;
use crate::tui::core::layout::{Band, whole_columns};
use crate::tui::screens::replay::selection::selected;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::incidents::{lost_hosts, noticed};
use crate::tui::screens::run::marks::shown as shown_marks;
use crate::tui::screens::run::rows::selected_rank;
use crate::tui::screens::run::view::since_start;
use crate::tui::screens::run::view::strip::{AWAY, MARK};
use crate::tui::screens::run::{unattended, whole};
use crate::tui::screens::{Mode, Model};

/// Eighths of a cell.
const SUB: usize = 8;

/// What is known of each column of the strip.
type Columns = [Option<RunPoint>];

/// Draws the strip; `side` columns at the right are for the slots.
pub(super) fn draw(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, side: u16) {
    if band.h == 0 {
        return;
    }
    let run = frame.run;
    let range = whole::range(frame.model, run);
    let width = canvas.width() - side;
    let (x, w) = whole_columns(width);
    let columns = whole::points(frame.history, range, w.into());
    marks(frame.model, canvas, band.y, width, Some((frame, &columns[..])), range);
    let mut rows = band.below_head();
    if rows.h == 0 {
        return;
    }
    if side > 0 {
        loads_beside(frame, canvas, band, width, range);
    } else {
        // the slots together on the last row
        rows.h -= 1;
        let dim = canvas.theme.dim;
        let y = rows.y + rows.h;
        let is_gpu = |placement: &Placement| matches!(placement.slot, Slot::Gpu { .. });
        let words = if run.spec.placements.iter().any(is_gpu) { "mean util" } else { "mean cpu" };
        canvas.text(1, y, x - 2, words, dim);
        loads(frame, canvas, (x, y, w), &frame.slots.ranks(), range);
    }
    let dim = canvas.theme.dim;
    canvas.text(1, rows.y, x - 2, "step time", dim);
    stacked(frame, canvas, (x, rows.y, rows.h), &columns, range);
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
    of: Option<(&Frame<'_>, &Columns)>,
    (start, end): (Stamp, Stamp),
) {
    let run = of.map(|(frame, _)| frame.run);
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
            let (glyph, word) = if state.playing { ('▶', "playing") } else { ('❚', "paused") };
            canvas.glyph(1, y, glyph, accent);
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
            (true, _) => AWAY,
            (false, true) => '━',
            (false, false) => '─',
        };
        canvas.glyph(x, y, glyph, if is_past { accent } else { dim });
    }
    if let Some((frame, columns)) = of {
        let (good, warn, bad) = (canvas.theme.good, canvas.theme.warn, canvas.theme.bad);
        for (at, glyph, style) in happened(frame, columns, (start, end), [good, warn, bad, dim]) {
            canvas.glyph(column(at), y, glyph, style);
        }
    }
    for mark in shown_marks(model) {
        canvas.glyph(column(mark.at), y, MARK, accent);
    }
    if let Some((from, to)) = selected(model) {
        let (from, to) = (column(from), column(to));
        for x in from..=to {
            let glyph = match x {
                _ if from == to => '┃',
                _ if x == from => '╞',
                _ if x == to => '╡',
                _ => '═',
            };
            canvas.glyph(x, y, glyph, accent);
        }
    }
    if let Some(head) = playhead {
        canvas.glyph(head, y, '●', accent);
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
    frame: &Frame<'_>,
    columns: &Columns,
    range: (Stamp, Stamp),
    [good, warn, bad, dim]: [Style; 4],
) -> Vec<(Stamp, char, Style)> {
    let (model, run, history) = (frame.model, frame.run, frame.history);
    let mut marks = Vec::new();
    for ((from, to), point) in whole::columns(range, columns.len()).zip(columns) {
        if point.is_some_and(|point| point.late) {
            marks.push((from.plus_micros(to.micros_since(from) / 2), '!', warn));
        }
    }
    marks.extend(noticed(model, run).iter().map(|incident| match incident.kind {
        IncidentKind::SlowStep => (incident.at, '↑', warn),
        _ => (incident.at, '↓', warn),
    }));
    let links = lost_hosts(model, run).flat_map(|outage| [Some(outage.from), outage.until]);
    marks.extend(links.flatten().map(|at| (at, '!', warn)));
    let stages = whole::stages(model, run).iter();
    marks.extend(stages.filter(|(_, stage)| *stage == RunStage::Training).map(|(at, _)| (*at, '◆', good)));
    if let Some(outcome) = whole::outcome(model, run) {
        let ended = whole::stages(model, run).iter().rfind(|(_, stage)| *stage == RunStage::Ended);
        let (glyph, style) = if outcome.is_stopped() || run.spec.is_imported() {
            ('■', dim)
        } else if outcome.is_success() {
            ('✔', good)
        } else {
            ('▲', bad)
        };
        marks.extend(ended.map(|(at, _)| (*at, glyph, style)));
    }
    marks.extend(history.marks.iter().map(|(at, mark)| match mark {
        Mark::Failed(_) => (*at, '▲', bad),
        Mark::Restarted => (*at, '◇', warn),
    }));
    marks
}

/// Where the time of the steps went: of each column, the phases' shares from below.
fn stacked(
    frame: &Frame<'_>,
    canvas: &mut Canvas<'_>,
    (x, y, h): (u16, u16, u16),
    columns: &Columns,
    range: (Stamp, Stamp),
) {
    let spans = unattended(frame.model, frame.run);
    let dim = canvas.theme.dim;
    for ((x, (from, to)), point) in (x..).zip(whole::columns(range, columns.len())).zip(columns) {
        let Some(shares) = point.and_then(|point| point.shares()) else {
            if spans.iter().any(|(start, end)| *start < to && from < *end) {
                canvas.glyph(x, y + h - 1, AWAY, dim);
            }
            continue;
        };
        for (y, cell) in (y..).zip(stack(&shares, h)) {
            let (glyph, style) = glyph_of(canvas, cell);
            canvas.glyph(x, y, glyph, style);
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
        let mut counts = [0u8; Phase::COUNT];
        for phase in part {
            counts[phase.index()] += 1;
        }
        part.iter().copied().max_by_key(|phase| counts[phase.index()]).unwrap_or(Phase::Other)
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
fn loads_beside(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, x: u16, range: (Stamp, Stamp)) {
    let (run, text, dim) = (frame.run, canvas.theme.text, canvas.theme.dim);
    let all = frame.slots.ranks();
    let rows = band.below_head();
    canvas.glyph(x, band.y, '│', dim);
    canvas.text(x + 2, band.y, canvas.width() - x - 3, "util, same clock", text);
    let name_w = 12;
    let w = canvas.width().saturating_sub(x + 2 + name_w + 1 + 1);
    let mut lanes: Vec<(String, Vec<Rank>)> = Vec::new();
    if all.len() > usize::from(rows.h) {
        let culprit = frame.look.culprit().map(|key| run.rank_of(key));
        let first = culprit.into_iter().chain(selected_rank(frame.model)).filter(|rank| all.contains(rank));
        let mut seen = Vec::new();
        for rank in first.chain(all.iter().copied()) {
            if seen.len() + 1 >= usize::from(rows.h) {
                break;
            }
            if !seen.contains(&rank) {
                seen.push(rank);
            }
        }
        lanes.push((format!("mean of {}", all.len()), all));
        lanes.extend(seen.into_iter().map(|rank| (lane_name(run, rank), vec![rank])));
    } else {
        lanes.extend(all.iter().map(|rank| (lane_name(run, *rank), vec![*rank])));
    }
    for y in rows.y..rows.y + rows.h {
        canvas.glyph(x, y, '│', dim);
    }
    for ((name, ranks), y) in lanes.iter().zip(rows.y..rows.y + rows.h) {
        canvas.name(x + 2, y, name_w, name, dim);
        loads(frame, canvas, (x + 2 + name_w + 1, y, w), ranks, range);
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
    frame: &Frame<'_>,
    canvas: &mut Canvas<'_>,
    (x, y, w): (u16, u16, u16),
    ranks: &[Rank],
    range: (Stamp, Stamp),
) {
    let columns: Vec<_> = whole::columns(range, w.into()).collect();
    let fill = canvas.theme.fill;
    for (x, load) in (x..).zip(frame.history.mean_loads(ranks, &columns)) {
        canvas.glyph(x, y, level(load), fill);
    }
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
