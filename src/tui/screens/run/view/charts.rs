//! Charts of the whole run: loss, samples a second, step time. Each column tells of its time's peak, so that a spike shows
//! however long the run is.

use ratatui::style::Style;

use crate::domain::history::{LossSpan, RunPoint};
use crate::domain::time::Stamp;
use crate::tui::canvas::bars::{braille, graph, spark};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::Band;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::view::loss;
use crate::tui::screens::run::view::rank_cells::rate_words;
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
    frame: &'a Frame<'a>,
    range: (Stamp, Stamp),
    /// Samples a second of all ranks together.
    rate: Option<f64>,
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
pub(super) fn beside(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, x: u16, rate: Option<f64>) {
    let dim = canvas.theme.dim;
    for y in band.y..band.y + band.h {
        canvas.glyph(x, y, '│', dim);
    }
    let charts = Charts::of(frame, rate);
    let (x, w) = (x + 2, canvas.width().saturating_sub(x + 3));
    let bars = charts.bars(&charts.columns(w));
    let tall = band.h >= TALL;
    let below = bars.len() as u16 * if tall { 3 } else { 1 };
    let mut y = band.y;
    if let Some(words) = charts.loss_words().filter(|_| band.h > below + 1) {
        let text = canvas.theme.text;
        canvas.text(x, y, NAME, "loss", text);
        canvas.right(x + NAME, y, w - NAME, fitting(&words, w - NAME), dim);
        let height = band.h - below - 1;
        let rows = braille(&losses(&charts.columns(w * 2)), height);
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
pub(super) fn lines(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, rate: Option<f64>) {
    let charts = Charts::of(frame, rate);
    let w = canvas.width().saturating_sub(2);
    let columns = charts.columns(w);
    let mut all = charts.bars(&columns);
    if let Some(words) = charts.loss_words() {
        let values = losses(&columns);
        let values = values.into_iter().map(|value| value.map(|(_, high)| high)).collect();
        all.insert(0, Bars { name: "loss", values, words, is_old: false });
    }
    // as wide as the longest words leave room for: all on one clock
    let words = all.iter().map(|chart| width(&chart.words)).max().unwrap_or(0);
    for (chart, y) in all.into_iter().zip(band.y..band.y + band.h) {
        charts.one_line(canvas, (1, y, w), words, &chart);
    }
}

impl<'a> Charts<'a> {
    fn of(frame: &'a Frame<'a>, rate: Option<f64>) -> Self {
        Self { frame, range: whole::range(frame.model, frame.run), rate }
    }

    /// What is known of each of so many columns.
    fn columns(&self, count: u16) -> Vec<Option<RunPoint>> {
        whole::points(self.frame.history, self.range, count.into())
    }

    /// `first 2.310   now 0.061   min 0.058`.
    fn loss_words(&self) -> Option<String> {
        let history = self.frame.history;
        let (first, least) = (history.first_loss()?, history.least_loss()?);
        let now = loss(self.frame.run).map_or("–".to_owned(), |now| format!("{now:.3}"));
        Some(format!("first {first:.3}   now {now}   min {least:.3}"))
    }

    /// Throughput and step time, where steps tell of them.
    fn bars(&self, columns: &[Option<RunPoint>]) -> Vec<Bars> {
        let mut bars = Vec::new();
        let trainers = self.frame.run.trainers().count().max(1) as f64;
        let rates: Vec<_> =
            columns.iter().map(|point| Some(point.as_ref()?.samples_per_second()? * trainers)).collect();
        if rates.iter().any(Option::is_some) {
            let is_old = self.frame.look.hangs() || !self.frame.look.silent.is_empty();
            let words = rate_words(self.rate, is_old);
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
        let mut times: Vec<u32> = Vec::with_capacity(self.frame.run.ranks.len() * STEPS);
        for one in self.frame.run.trainers() {
            one.state.recent_steps(STEPS).for_each(|step| times.push(step.dur_us));
        }
        let (p50, p95) = middle_and_long(times).unzip();
        let words = |us: Option<u32>| match us {
            None => "–".to_owned(),
            Some(us) if us < 99_950 => format!("{:.1}", f64::from(us) / 1e3),
            Some(us) => format!("{:.0}", f64::from(us) / 1e3),
        };
        let longest = self.frame.history.points.points().iter().map(|point| point.longest_us).max();
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
        if !self.frame.model.is_replay() {
            return w;
        }
        let (start, end) = self.range;
        let share =
            self.frame.model.moment().micros_since(start) as f64 / end.micros_since(start).max(1) as f64;
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

/// The loss of each column, as shares of the chart's height: the mean, up to the peak where that stands out.
fn losses(columns: &[Option<RunPoint>]) -> Vec<Option<(f64, f64)>> {
    let columns = columns.iter().map(|point| point.as_ref()?.loss.map(|span| drawn(&span)));
    let columns: Vec<Option<(f64, f64)>> = columns.collect();
    let low = columns.iter().flatten().map(|(low, _)| *low).fold(f64::INFINITY, f64::min);
    let high = columns.iter().flatten().map(|(_, high)| *high).fold(f64::NEG_INFINITY, f64::max);
    let room = (high - low).max(f64::MIN_POSITIVE);
    let share = |loss: f64| (loss - low) / room;
    columns.into_iter().map(|span| span.map(|(low, high)| (share(low), share(high)))).collect()
}

/// Of these times the median, and the one that a twentieth of them is longer than.
fn middle_and_long(mut times: Vec<u32>) -> Option<(u32, u32)> {
    let last = times.len().checked_sub(1)?;
    let (middle, long) = (last * 50 / 100, last * 95 / 100);
    let (_, p50, longer) = times.select_nth_unstable(middle);
    let p50 = *p50;
    // the longer ones alone have to be looked through for it
    let p95 = match long - middle {
        0 => p50,
        behind => *longer.select_nth_unstable(behind - 1).1,
    };
    Some((p50, p95))
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
    fn the_median_and_a_long_time_are_found_in_any_order() {
        for count in 1..60usize {
            let times: Vec<u32> = (0..count).map(|at| (at * 7919 % 61) as u32).collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let place = |percent: usize| sorted[(count - 1) * percent / 100];
            assert_eq!(middle_and_long(times), Some((place(50), place(95))), "{count}");
        }
        assert_eq!(middle_and_long(Vec::new()), None);
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
