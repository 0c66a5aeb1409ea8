//! The cells of one rank.

use std::borrow::Cow;

use ratatui::style::Style;

use crate::domain::ids::Rank;
use crate::domain::log_text;
use crate::domain::past::SlotValues;
use crate::domain::timing::Phase;
use crate::domain::units;
use crate::domain::world::RankState;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::columns::Column;
use crate::tui::screens::cluster::rows::{SILENT_US, age};
use crate::tui::screens::run::recent::Recent;
use crate::tui::screens::run::view::ranks::{Col, Row, Table};
use crate::tui::screens::run::view::strip;
use crate::tui::screens::run::view::strip::Segment;
use crate::tui::screens::view::gpu_words::{percent, reading};

/// The state of a rank of a run that hangs.
pub(super) const NO_STEP: &str = "no step";

/// Samples a second; in a run that hangs those of the last steps.
pub(super) fn rate_words(rate: Option<f64>, is_old: bool) -> String {
    match rate.map(units::rate) {
        None => "–".to_owned(),
        Some(rate) if is_old => format!("last {rate}"),
        Some(rate) => rate,
    }
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

/// Microseconds in the five columns of a time in milliseconds.
pub(super) fn milliseconds(us: Option<f64>) -> String {
    match us {
        None => "–".to_owned(),
        Some(us) if us < 999_950.0 => format!("{:.1}", us / 1e3),
        Some(us) => format!("{:.0}", us / 1e3),
    }
}

/// What the slot of a rank tells, and whether that is old: what it told last of a silent host, and while a rank ran that is over.
/// Nothing of a rank that never ran, for what its GPU does is not its doing.
pub(super) fn values<'a>(
    table: &Table<'a>,
    number: Rank,
    rank: &RankState,
) -> Option<(Cow<'a, SlotValues>, bool)> {
    let of = table.run.ranks.get(number.0 as usize)?;
    if !of.has_run() && !rank.has_run() {
        return None;
    }
    if of.exit.is_some() || !table.run.is_live() {
        return Some((Cow::Borrowed(of.values.as_ref()?), true));
    }
    let state = table.model.world.hosts.get(&of.placement.host)?;
    let (at, _) = state.latest()?;
    let is_old = table.model.moment().micros_since(at) > SILENT_US;
    Some((Cow::Owned(state.values_of(&of.placement.slot)?), is_old))
}

pub(super) fn cell(row: &Row<'_>, canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16) {
    let (x, w) = (column.x, column.w);
    let (rank, table) = (row.rank, row.table);
    // what is old is dim
    let text = if row.heard.is_some() { canvas.theme.dim } else { canvas.theme.text };
    let words = match column.id {
        Col::Rank => {
            let marked = table.look.is_culprit(row.number, row.worker);
            let style = if marked { canvas.theme.bad } else { text };
            if marked {
                canvas.text(1, y, 1, "!", style);
            }
            let number = row.worker.map_or_else(|| row.number.to_string(), |worker| format!("·{worker}"));
            canvas.right(x, y, w, &number, style);
            return;
        }
        Col::Place => {
            canvas.name(x, y, w, &rank.placement.to_string(), text);
            return;
        }
        Col::State => {
            let (word, style) = state(row, canvas);
            canvas.text(x, y, w, &word, style);
            return;
        }
        Col::Via => {
            canvas.name(x, y, w, rank.transport.as_deref().unwrap_or("–"), text);
            return;
        }
        Col::Phases => {
            strip::draw(canvas, x, y, w, &phases(&row.recent, table.longest), |_| false);
            return;
        }
        Col::Line => {
            let (words, style) = last_words((table, row.number), rank, canvas);
            canvas.text(x, y, w, &words, style);
            return;
        }
        Col::Late => {
            let style = if table.look.is_culprit(row.number, row.worker) && row.heard.is_none() {
                canvas.theme.warn
            } else {
                text
            };
            canvas.right(x, y, w, &milliseconds(row.late()), style);
            return;
        }
        Col::Step => rank.step().map_or("–".to_owned(), |step| step.to_string()),
        Col::StepMs => row.recent.step_us().map_or("–".to_owned(), |us| format!("{:.1}", us / 1000.0)),
        Col::Rate => {
            let is_old = table.look.no_step_since(row.number, row.worker).is_some();
            let style = if is_old { canvas.theme.dim } else { text };
            canvas.right(x, y, w, &rate_words(rank.samples_per_second(), is_old), style);
            return;
        }
        Col::Loss => rank.loss().map_or("–".to_owned(), loss_words),
        Col::Wait => milliseconds(row.recent.phase_us(Phase::Wait)),
        Col::Transfer => milliseconds(row.recent.phase_us(Phase::Transfer)),
        Col::Other => milliseconds(row.recent.other_us()),
        Col::Overlap => percent(row.recent.overlap().map(|share| share * 100.0)),
        Col::Exposed => milliseconds(row.recent.exposed_us()),
        Col::Util | Col::Memory | Col::Power | Col::Temperature => {
            let Some((values, is_old)) = values(table, row.number, rank) else {
                return canvas.right(x, y, w, "–", text);
            };
            let words = match column.id {
                Col::Memory => reading(&values.memory, |bytes| units::bytes(*bytes)),
                Col::Power => reading(&values.power_mw, |mw| (mw / 1000).to_string()),
                Col::Temperature => reading(&values.temperature, ToString::to_string),
                _ => percent(values.load.map(|load| load * 100.0)),
            };
            return canvas.right(x, y, w, &words, if is_old { canvas.theme.dim } else { text });
        }
    };
    canvas.right(x, y, w, &words, text);
}

fn state(row: &Row<'_>, canvas: &Canvas<'_>) -> (String, Style) {
    if let Some(heard) = row.heard {
        return (format!("{} old", age(row.table.model.moment(), heard)), canvas.theme.dim);
    }
    if let Some(since) = row.table.look.no_step_since(row.number, row.worker) {
        return (format!("{NO_STEP} {}", age(row.table.model.moment(), since)), canvas.theme.warn);
    }
    let word = row.ended.unwrap_or_else(|| row.rank.word());
    (word.to_owned(), style_of(row.table, row.number, word, canvas))
}

/// The style of a rank's state.
pub(super) fn style_of(table: &Table<'_>, number: Rank, word: &str, canvas: &Canvas<'_>) -> Style {
    match word {
        "training" | "done" | "running" => canvas.theme.good,
        "failed" | "killed" | "no start" if !table.look.is_collateral(number) => canvas.theme.bad,
        "waits" | NO_STEP => canvas.theme.warn,
        _ => canvas.theme.dim,
    }
}

/// What a rank says last, or a process within it, or why it ended.
pub(super) fn last_words(
    (table, number): (&Table<'_>, Rank),
    rank: &RankState,
    canvas: &Canvas<'_>,
) -> (String, Style) {
    let failure = rank.exit.as_ref().filter(|(_, exit)| exit.shell_code() != 0);
    if let Some((_, exit)) = failure.filter(|_| !table.look.is_collateral(number)) {
        // What a program said before it gave up is mostly why.
        let said = rank.last_line.as_ref().filter(|_| exit.code.is_some());
        let said =
            said.map_or_else(String::new, |logged| format!(": {}", log_text::plain(&logged.line.text)));
        // a stop that was asked for is no failure
        let style = if exit.stopped { canvas.theme.dim } else { canvas.theme.bad };
        return (exit.describe() + &said, style);
    }
    if !rank.waits_for.is_empty() && !rank.met {
        let ranks = units::ranges(rank.waits_for.iter().map(|rank| rank.0));
        return (format!("waits for rank {ranks}"), canvas.theme.warn);
    }
    let line = rank.last_line.as_ref().map(|logged| log_text::plain(&logged.line.text).into_owned());
    let metrics = || {
        let known = rank.metrics.iter().map(|(name, value)| format!("{name} {}", units::metric(*value)));
        known.collect::<Vec<_>>().join("  ")
    };
    (line.unwrap_or_else(metrics), canvas.theme.dim)
}

/// The mean recent step as a strip whose full width is `longest`.
pub(super) fn phases(recent: &Recent, longest: f64) -> Vec<Segment> {
    let mut from = 0.0;
    let mut segments = Vec::new();
    for phase in Phase::ALL {
        let length = recent.phase_of_step_us(phase) / longest.max(1.0);
        if length > 0.0 {
            segments.push(Segment { phase, from, to: from + length });
            from += length;
        }
    }
    segments
}
