//! The heat map of a replay: a row a rank, a column some steps or some time, shaded by how much later than a typical rank it came to the
//! allreduce. Of the selection, or of the whole run. A stripe along a row is one rank's fault, along a column a cause that all
//! share.

use ratatui::style::{Modifier, Style};

use crate::domain::analysis::by_step::ByStep;
use crate::domain::analysis::{Late, RunAnalysis};
use crate::domain::ids::Rank;
use crate::domain::units;
use crate::tui::canvas::bars::level;
use crate::tui::canvas::columns::Column;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::RunBands;
use crate::tui::core::words::clock_time;
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::replay::HeatColumns;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::rows::RankRow;
use crate::tui::screens::run::view::figures::unsure_us;
use crate::tui::screens::run::view::heat_axis::{Axis, Times};
use crate::tui::screens::run::view::ranks::{self, Col, Table};

/// The share of a median step from which on a cell has its full shade.
const FULL: f64 = 0.20;
/// Less than this share of a step is nothing to look at.
const LEAST: f64 = 0.01;
/// Shades of one direction, the weakest first; and how many signs there are where shades can't be told apart.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];
const SIGNS: u8 = 9;
/// Columns of the right margin: the delay that a rank caused, and in how many steps it came last.
const DELAY: u16 = 8;
const LAST: u16 = 8;

/// What the map shows.
struct Map<'a> {
    known: &'a RunAnalysis,
    axis: Axis,
    median_us: f64,
    /// What is less says nothing, microseconds.
    least_us: f64,
}

impl<'a> Map<'a> {
    fn of(known: &'a RunAnalysis, room: u16, by_time: bool) -> Option<Self> {
        let median_us = f64::from(known.steps.length?.p50_us).max(1.0);
        let late = &known.charts.late;
        let first =
            late.iter().filter_map(|(_, series)| series.points().next()).map(|(step, _)| step).min()?;
        let width = late.iter().map(|(_, series)| series.width()).max()?;
        let last = known.steps.whole?.1.max(first);
        let times = by_time.then(|| Times::of(&known.charts.ended, (first, last), room)).flatten();
        let axis = Axis { first, last, least: width, cells: room, times };
        let least_us = f64::from(unsure_us(known)).max(median_us * LEAST);
        Some(Self { known, axis, median_us, least_us })
    }

    /// What is known of these ranks.
    fn of_ranks(&self, ranks: &[Rank]) -> Vec<&'a ByStep<Late>> {
        let all = self.known.charts.late.iter();
        all.filter(|(rank, _)| ranks.contains(rank)).map(|(_, series)| series).collect()
    }

    /// How late ranks were in a cell, as a share of the median step: the latest of them; 0 where that says nothing.
    fn share(&self, of: &[&ByStep<Late>], cell: u16) -> Option<f64> {
        let (from, to) = self.axis.span(cell);
        let means = of.iter().filter_map(|series| series.between(from, to)?.mean_us());
        let worst = means.max_by(f64::total_cmp)?;
        Some(if worst.abs() < self.least_us { 0.0 } else { worst / self.median_us })
    }

    /// The delay that these ranks caused, microseconds, and in how many steps they came last.
    fn cost(&self, ranks: &[Rank]) -> Option<(u64, u64)> {
        let own = self.known.ranks.iter().filter(|figures| ranks.contains(&figures.rank));
        let known = own.filter_map(|figures| Some((figures.wait_caused_us?, figures.last_in?)));
        known.reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }
}

/// Sign and style of a share of the median step.
fn shade(theme: &Theme, share: Option<f64>) -> (char, Style) {
    let Some(share) = share else { return (' ', theme.dim) };
    if share == 0.0 {
        return ('·', theme.dim);
    }
    let style = if share > 0.0 { theme.bad } else { theme.fill };
    let strength = (share.abs() / FULL).min(1.0);
    if theme.has_shades() {
        let at = (strength * SHADES.len() as f64).ceil() as usize;
        return (SHADES[at.clamp(1, SHADES.len()) - 1], style);
    }
    let at = ((strength * f64::from(SIGNS)).ceil() as u8).clamp(1, SIGNS);
    (char::from(if share > 0.0 { b'0' + at } else { b'a' + at - 1 }), style)
}

/// Draws the map, and below it the legend.
pub(super) fn draw(frame: &Frame<'_>, canvas: &mut Canvas<'_>, bands: &RunBands) {
    let (model, band, below) = (frame.model, bands.ranks, bands.charts);
    let dim = canvas.theme.dim;
    let figures = &model.ui.replay.figures;
    let table = ranks::table(frame);
    let labels = ranks::labels(&table);
    let x = labels.last().map_or(2, |column| column.x + column.w + 1);
    let room = canvas.width().saturating_sub(x + 1 + DELAY + LAST + 1);
    let by_time = model.ui.replay.columns == HeatColumns::Time;
    let known = figures.last.as_ref().map(|(_, known)| known.as_ref());
    let Some(map) =
        known.and_then(|known| Map::of(known, room, by_time)).filter(|map| map.known.steps.judged > 0)
    else {
        let words = match (&figures.failed, known) {
            (Some(why), _) => why.clone(),
            (None, Some(_)) if figures.are_current() => {
                "no heat map: not all ranks tell how long they waited in the allreduce, or no step is whole"
                    .to_owned()
            }
            _ => format!("reading the recording … {} %", figures.percent),
        };
        canvas.text(2, band.y + 1, canvas.width().saturating_sub(3), &words, dim);
        return;
    };
    head(frame, canvas, band.y, (&map, &labels, x));
    let list = band.below_head();
    let cursor = &model.ui.run.ranks;
    for (row, y) in frame.rows.iter().skip(cursor.offset).zip(list.y..list.y + list.h) {
        ranks::cells(&table, canvas, &labels, y, row);
        let of_row = ranks_of(&table, row);
        let series = map.of_ranks(&of_row);
        for cell in 0..map.axis.cells {
            let (sign, style) = shade(&canvas.theme, map.share(&series, cell));
            canvas.glyph(x + cell, y, sign, style);
        }
        let (delay, last_in) =
            map.cost(&of_row).map_or(("–".to_owned(), "–".to_owned()), |(us, last)| {
                (units::duration_us(us), last.to_string())
            });
        let margin = x + room + 1;
        let text = canvas.theme.text;
        canvas.right(margin, y, DELAY, &delay, text);
        canvas.right(margin + DELAY, y, LAST, &last_in, text);
        if cursor.on.as_ref() == Some(row) {
            mark_selected(canvas, y, 6);
        }
    }
    let hidden = frame.rows.len().saturating_sub(cursor.offset + usize::from(list.h));
    step_times(canvas, below.y, &map, (x, room));
    legend(canvas, below.y + 1, &map, hidden);
}

/// Column heads: the first and the last step, and where the playhead stands.
fn head(
    frame: &Frame<'_>,
    canvas: &mut Canvas<'_>,
    y: u16,
    (map, labels, x): (&Map<'_>, &[Column<Col>], u16),
) {
    let (model, dim, axis) = (frame.model, canvas.theme.dim, &map.axis);
    for column in labels {
        if column.right {
            canvas.right(column.x, y, column.w, column.title, dim);
        } else {
            canvas.text(column.x, y, column.w, column.title, dim);
        }
    }
    let margin = canvas.width().saturating_sub(DELAY + LAST + 1);
    let used = axis.cells;
    let part = if model.ui.replay.selection.is_some() { "selection: " } else { "" };
    let (first, last) = match &axis.times {
        Some(times) => {
            let [from, to] = [times.from, times.to].map(|at| clock_time(at, &model.zone, false));
            (format!("{part}time {from}"), to)
        }
        None => (format!("{part}step {}", axis.first), axis.last.to_string()),
    };
    let playhead = axis.cell(frame.run.step(), model.moment()).map(|cell| x + cell);
    // the words stand beside the playhead
    let (mut from, mut to) = (x, x + used);
    match playhead {
        Some(at) if at < x + width(&first) => from = at + 1,
        Some(at) if at + width(&last) >= to => to = at,
        _ => {}
    }
    let end = canvas.text(from, y, to.saturating_sub(from), &first, dim);
    if to > end + width(&last) {
        canvas.right(end, y, to - end, &last, dim);
    }
    if let Some(at) = playhead {
        let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
        canvas.glyph(at, y, '▼', accent);
    }
    canvas.right(margin, y, DELAY, "DELAY", dim);
    canvas.right(margin + DELAY, y, LAST, "LAST IN", dim);
}

/// The slowest twentieth of the steps of each cell, beside the slowest of all.
fn step_times(canvas: &mut Canvas<'_>, y: u16, map: &Map<'_>, (x, room): (u16, u16)) {
    let points = &map.known.charts.steps;
    let p95: Vec<Option<f64>> = (0..map.axis.cells)
        .map(|cell| {
            let (from, to) = map.axis.span(cell);
            points.between(from, to)?.lengths.quantile(0.95).map(f64::from)
        })
        .collect();
    let most = p95.iter().copied().flatten().fold(0.0, f64::max);
    let (dim, fill) = (canvas.theme.dim, canvas.theme.fill);
    canvas.text(1, y, x.saturating_sub(2), "step p95", dim);
    let line: String = p95.iter().map(|value| level(value.map(|value| value / most.max(1.0)))).collect();
    canvas.text(x, y, room, &line, fill);
    let words = format!("up to {}", units::duration_us(most as u64));
    canvas.right(x + room + 1, y, DELAY + LAST, &words, dim);
}

/// What the shades mean, with as many words as there is room for.
fn legend(canvas: &mut Canvas<'_>, y: u16, map: &Map<'_>, hidden: usize) {
    let theme = canvas.theme;
    let (text, dim) = (theme.text, theme.dim);
    let (late, early) = if theme.has_shades() {
        let shades: String = SHADES.iter().collect();
        (shades.clone(), shades)
    } else {
        ("1-9".to_owned(), "a-i".to_owned())
    };
    let least = units::duration_us(map.least_us as u64);
    let steps = match (&map.axis.times, map.axis.steps()) {
        (Some(times), _) => {
            let cell = times.to.micros_since(times.from) / i64::from(map.axis.cells.max(1));
            format!("   {} a cell", units::duration_us(cell.unsigned_abs()))
        }
        (None, 1) => String::new(),
        (None, steps) => format!("   {steps} steps a cell"),
    };
    let other = if map.axis.times.is_some() { "   b by step" } else { "   b by time" };
    let more = if hidden > 0 { format!("   ↓ {hidden} more rows") } else { String::new() };
    let full = FULL * 100.0;
    let mut words = vec![
        (late, theme.bad),
        (format!(" late, to {full:.0} % of a step   "), text),
        (early, theme.fill),
        (" early   ".to_owned(), text),
        ("·".to_owned(), dim),
        (format!(" less than {least}"), text),
    ];
    let mut room = canvas.width().saturating_sub(2);
    room = words.iter().fold(room, |room, (word, _)| room.saturating_sub(width(word)));
    let median = format!("   median step {}", units::duration_us(map.median_us as u64));
    for word in ["   H back".to_owned(), more, steps, median, other.to_owned()] {
        if width(&word) <= room {
            room -= width(&word);
            words.push((word, dim));
        }
    }
    canvas.pieces(1, y, canvas.width() - 1, &words);
}

/// The keys of those that train in a row.
fn ranks_of(table: &Table<'_>, row: &RankRow) -> Vec<Rank> {
    let of = |number: Rank| table.run.trainers_in(number).map(|one| one.key);
    match row {
        RankRow::Rank(number) => table.run.trainer_key(*number, None).into_iter().collect(),
        RankRow::Worker(number, worker) => {
            table.run.trainer_key(*number, Some(*worker)).into_iter().collect()
        }
        RankRow::Host(host) => {
            table.run.by_host.get(host).into_iter().flatten().flat_map(|number| of(*number)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::canvas::{Caps, ColorDepth};
    use crate::tui::core::ThemeName;

    #[test]
    fn shades_tell_late_from_early_and_nothing_from_unknown() {
        let theme = |color, ascii| Theme::new(Caps { color, ascii }, ThemeName::Auto);
        let signs = |theme: Theme| {
            [None, Some(0.0), Some(0.02), Some(0.2), Some(3.0), Some(-0.02), Some(-3.0)]
                .map(|share| shade(&theme, share).0)
                .iter()
                .collect::<String>()
        };
        assert_eq!(signs(theme(ColorDepth::Full, false)), " ·░██░█");
        for plain in
            [theme(ColorDepth::None, false), theme(ColorDepth::Basic, false), theme(ColorDepth::Full, true)]
        {
            assert_eq!(signs(plain), " ·199ai");
        }
        let full = theme(ColorDepth::Full, false);
        assert_ne!(shade(&full, Some(0.1)).1, shade(&full, Some(-0.1)).1);
    }
}
