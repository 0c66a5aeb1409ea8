//! Charts of the whole run: loss, samples a second, step time. Each column tells of its time's peak, so that a spike shows
//! however long the run is.

use ratatui::style::Style;

use crate::domain::history::{LossSpan, RunPoint};
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::tui::canvas::bars::{braille, graph, spark};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::Band;
use crate::tui::screens::Model;
use crate::tui::screens::run::rows::silent_hosts;
use crate::tui::screens::run::verdict::hang;
use crate::tui::screens::run::view::rank_cells::rate_words;
use crate::tui::screens::run::view::{loss, samples_per_second};
use crate::tui::screens::run::whole;

/// Over how many of each rank's newest steps the times of a step are told.
const STEPS: usize = 50;
/// A loss so many times farther above the mean than the least is below it is a spike.
const SPIKE: f64 = 3.0;
/// From so many rows on every chart has more than one line.
const TALL: u16 = 11;
/// Columns of a chart's name.
const NAME: u16 = 10;

/// What the charts of a frame share.
struct Charts<'a> {
    model: &'a Model,
    run: &'a RunState,
    range: (Stamp, Stamp),
}

/// A chart of one value a column.
struct Bars {
    name: &'static str,
    values: Vec<Option<f64>>,
    words: String,
    /// Its newest value is of the past: the run hangs.
    is_old: bool,
}

impl Bars {
    /// The style of its name.
    fn style(&self, canvas: &Canvas<'_>) -> Style {
        if self.is_old { canvas.theme.dim } else { canvas.theme.text }
    }
}

/// Draws the charts into the columns from `x` on, with a line at their left.
pub(super) fn beside(model: &Model, canvas: &mut Canvas<'_>, band: Band, x: u16, run: &RunState) {
    let dim = canvas.theme.dim;
    for y in band.y..band.y + band.h {
        canvas.text(x, y, 1, "│", dim);
    }
    let charts = Charts { model, run, range: whole::range(model, run) };
    let (x, w) = (x + 2, canvas.width().saturating_sub(x + 3));
    let bars = charts.bars(w);
    let tall = band.h >= TALL;
    let below = bars.len() as u16 * if tall { 3 } else { 1 };
    let mut y = band.y;
    if let Some(words) = charts.loss_words().filter(|_| band.h > below + 1) {
        let text = canvas.theme.text;
        canvas.text(x, y, NAME, "loss", text);
        canvas.right(x + NAME, y, w - NAME, fitting(&words, w - NAME), dim);
        let height = band.h - below - 1;
        let rows = braille(&charts.losses(usize::from(w) * 2), height);
        for (row, y) in rows.iter().zip(y + 1..) {
            charts.line(canvas, (x, y, w), row);
        }
        y += 1 + height;
    }
    for chart in bars {
        if tall {
            canvas.text(x, y, NAME, chart.name, chart.style(canvas));
            canvas.right(x + NAME, y, w - NAME, fitting(&chart.words, w - NAME), dim);
            for (row, y) in graph(&shares(&chart.values), 2).iter().zip(y + 1..) {
                charts.line(canvas, (x, y, w), row);
            }
            y += 3;
        } else {
            charts.one_line(canvas, (x, y, w), width(&chart.words), &chart);
            y += 1;
        }
    }
}

/// Draws the charts, one a line.
pub(super) fn lines(model: &Model, canvas: &mut Canvas<'_>, band: Band, run: &RunState) {
    let charts = Charts { model, run, range: whole::range(model, run) };
    let w = canvas.width().saturating_sub(2);
    let mut all = charts.bars(w);
    if let Some(words) = charts.loss_words() {
        let values = charts.losses(usize::from(w));
        let values = values.into_iter().map(|value| value.map(|(_, high)| high)).collect();
        all.insert(0, Bars { name: "loss", values, words, is_old: false });
    }
    // as wide as the longest words leave room for: all on one clock
    let words = all.iter().map(|chart| width(&chart.words)).max().unwrap_or(0);
    for (chart, y) in all.into_iter().zip(band.y..band.y + band.h) {
        charts.one_line(canvas, (1, y, w), words, &chart);
    }
}

impl Charts<'_> {
    fn columns(&self, count: usize) -> Vec<Option<RunPoint>> {
        let history = whole::history(self.model, self.run);
        let column = |at| {
            let (from, to) = whole::column(self.range, count, at);
            history.between(from, to)
        };
        (0..count).map(column).collect()
    }

    /// The loss of each column, as shares of the chart's height: the mean, up to the peak where that stands out.
    fn losses(&self, count: usize) -> Vec<Option<(f64, f64)>> {
        let columns = self.columns(count).into_iter().map(|point| point?.loss.map(|span| drawn(&span)));
        let columns: Vec<Option<(f64, f64)>> = columns.collect();
        let low = columns.iter().flatten().map(|(low, _)| *low).fold(f64::INFINITY, f64::min);
        let high = columns.iter().flatten().map(|(_, high)| *high).fold(f64::NEG_INFINITY, f64::max);
        let room = (high - low).max(f64::MIN_POSITIVE);
        let share = |loss: f64| (loss - low) / room;
        columns.into_iter().map(|span| span.map(|(low, high)| (share(low), share(high)))).collect()
    }

    /// `first 2.310   now 0.061   min 0.058`.
    fn loss_words(&self) -> Option<String> {
        let history = whole::history(self.model, self.run);
        let (first, least) = (history.first_loss()?, history.least_loss()?);
        let now = loss(self.run).map_or("–".to_owned(), |now| format!("{now:.3}"));
        Some(format!("first {first:.3}   now {now}   min {least:.3}"))
    }

    /// Throughput and step time, where steps tell of them.
    fn bars(&self, w: u16) -> Vec<Bars> {
        let columns = self.columns(usize::from(w));
        let mut bars = Vec::new();
        let trainers = self.run.trainers().count().max(1) as f64;
        let rates: Vec<_> =
            columns.iter().map(|point| Some(point.as_ref()?.samples_per_second()? * trainers)).collect();
        if rates.iter().any(Option::is_some) {
            let is_old =
                hang(self.model, self.run).is_some() || !silent_hosts(self.model, self.run).is_empty();
            let words = rate_words(samples_per_second(self.run), is_old);
            bars.push(Bars { name: "samples/s", values: rates, words, is_old });
        }
        let longest = |point: &RunPoint| (point.steps > 0).then(|| f64::from(point.longest_us) / 1e3);
        let times: Vec<_> = columns.iter().map(|point| longest(point.as_ref()?)).collect();
        if times.iter().any(Option::is_some) {
            bars.push(Bars { name: "step ms", values: times, words: self.step_words(), is_old: false });
        }
        bars
    }

    /// `p50 244   p95 251   max 318`.
    fn step_words(&self) -> String {
        let steps = self.run.trainers().flat_map(|one| one.state.recent_steps(STEPS));
        let mut times: Vec<u32> = steps.map(|step| step.dur_us).collect();
        let mut place = |percent: usize| {
            let at = times.len().saturating_sub(1) * percent / 100;
            (!times.is_empty()).then(|| *times.select_nth_unstable(at).1)
        };
        let (p50, p95) = (place(50), place(95));
        let words = |us: Option<u32>| match us {
            None => "–".to_owned(),
            Some(us) if us < 99_950 => format!("{:.1}", f64::from(us) / 1e3),
            Some(us) => format!("{:.0}", f64::from(us) / 1e3),
        };
        let history = whole::history(self.model, self.run);
        let longest = history.points.points().iter().map(|point| point.longest_us).max();
        format!("p50 {}   p95 {}   max {}", words(p50), words(p95), words(longest))
    }

    /// A row of a chart; what lies behind the playhead is dim.
    fn line(&self, canvas: &mut Canvas<'_>, (x, y, w): (u16, u16, u16), row: &str) {
        let (fill, dim) = (canvas.theme.fill, canvas.theme.dim);
        let ahead = self.ahead(w);
        let (past, rest): (String, String) =
            (row.chars().take(usize::from(ahead)).collect(), row.chars().skip(usize::from(ahead)).collect());
        canvas.text(x, y, ahead, &past, fill);
        canvas.text(x + ahead, y, w - ahead, &rest, dim);
    }

    /// How many of `w` columns lie before the playhead; all where there is none.
    fn ahead(&self, w: u16) -> u16 {
        if !self.model.is_replay() {
            return w;
        }
        let (start, end) = self.range;
        let share = self.model.moment().micros_since(start) as f64 / end.micros_since(start).max(1) as f64;
        (share.clamp(0.0, 1.0) * f64::from(w)).ceil() as u16
    }

    fn one_line(&self, canvas: &mut Canvas<'_>, (x, y, w): (u16, u16, u16), words: u16, chart: &Bars) {
        let dim = canvas.theme.dim;
        let room = w.saturating_sub(NAME + words + 2);
        canvas.text(x, y, NAME, chart.name, chart.style(canvas));
        let values = squeezed(&chart.values, usize::from(room));
        self.line(canvas, (x + NAME, y, room), &spark(&shares(&values)));
        canvas.right(x, y, w, &chart.words, dim);
    }
}

/// The words of a chart without the last ones that have no room: whole values or none.
fn fitting(words: &str, room: u16) -> &str {
    let ends = words.match_indices("   ").map(|(at, _)| at).chain([words.len()]);
    ends.map(|end| &words[..end]).filter(|part| width(part) <= room).last().unwrap_or_default()
}

/// What a chart shows of losses: their mean; up to the greatest where that is a spike, not what ranks and batches differ by.
fn drawn(span: &LossSpan) -> (f64, f64) {
    let (mean, high) = (span.mean(), f64::from(span.high));
    let usual = mean - f64::from(span.low);
    (mean, if high - mean > SPIKE * usual { high } else { mean })
}

/// Values in fewer columns; peaks stay.
fn squeezed(values: &[Option<f64>], count: usize) -> Vec<Option<f64>> {
    let piece = |at: usize| {
        let (from, to) = (values.len() * at / count, (values.len() * (at + 1)).div_ceil(count));
        values.get(from..to).into_iter().flatten().flatten().copied().reduce(f64::max)
    };
    (0..count).map(piece).collect()
}

/// Values as shares of the greatest.
fn shares(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    values.iter().map(|value| value.map(|value| if most > 0.0 { value / most } else { 0.0 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_chart_is_shown_whole_or_not_at_all() {
        let words = "p50 60.8   p95 61.3   max 61.9";
        assert_eq!(fitting(words, 40), words);
        assert_eq!(fitting(words, 29), "p50 60.8   p95 61.3");
        assert_eq!((fitting(words, 8), fitting(words, 7)), ("p50 60.8", ""));
    }

    #[test]
    fn a_spike_survives_fewer_columns() {
        let mut values = vec![Some(1.0); 1000];
        values[503] = Some(9.0);
        values[17] = None;
        let few = squeezed(&values, 7);
        assert_eq!(few, [Some(1.0), Some(1.0), Some(1.0), Some(9.0), Some(1.0), Some(1.0), Some(1.0)]);
        assert_eq!(shares(&few)[3], Some(1.0));
        assert_eq!(squeezed(&[Some(2.0), None], 4), [Some(2.0), Some(2.0), None, None]);
        assert_eq!(shares(&[Some(0.0), None]), [Some(0.0), None]);
    }
}
