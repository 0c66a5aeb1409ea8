//! The cells of a host, for all its ranks of the run: the worst where it matters, sums and means else.

use std::borrow::Cow;
use std::cell::OnceCell;

use ratatui::style::Style;

use crate::domain::clock_fit::ClockLine;
use crate::domain::gpu::Reading;
use crate::domain::ids::{HostId, Rank};
use crate::domain::past::SlotValues;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::units::{self, ranges};
use crate::domain::world::RankState;
use crate::tui::canvas::columns::Column;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::cluster::rows::age;
use crate::tui::screens::run::recent::Recent;
use crate::tui::screens::run::rows::Look;
use crate::tui::screens::run::view::rank_cells::{
    NO_STEP, last_words, milliseconds, phases, rate_words, style_of, values,
};
use crate::tui::screens::run::view::ranks::{Col, Table};
use crate::tui::screens::run::view::strip;
use crate::tui::screens::view::gpu_words::percent;

/// A host's ranks.
pub(super) struct HostRow<'a> {
    table: &'a Table<'a>,
    host: &'a HostId,
    ranks: Vec<(Rank, &'a RankState)>,
    /// When the host was heard last, if it is silent.
    heard: Option<Stamp>,
    /// The rank that its row tells of: the one that failed first, or is late.
    culprit: Option<(Rank, &'a RankState)>,
    /// What the slots of its ranks tell, once a column has asked for it.
    values: OnceCell<Vec<(Cow<'a, SlotValues>, bool)>>,
}

impl<'a> HostRow<'a> {
    pub(super) fn of(table: &'a Table<'a>, host: &'a HostId) -> Self {
        let numbers = table.run.by_host.get(host).into_iter().flatten();
        let rank = |number: &Rank| Some((*number, table.run.ranks.get(number.0 as usize)?));
        let ranks: Vec<(Rank, &RankState)> = numbers.filter_map(rank).collect();
        let heard = ranks.iter().find_map(|(_, rank)| table.look.heard_last(rank));
        let culprit = culprit(table.look, &ranks);
        Self { table, host, ranks, heard, culprit, values: OnceCell::new() }
    }

    /// Its ranks in so many columns: `85-92`.
    fn numbers(&self, room: u16) -> String {
        units::middle_cut(&ranges(self.ranks.iter().map(|(number, _)| number.0)), room.into())
    }

    /// Those that train on it, by their keys.
    fn trainers(&self) -> impl Iterator<Item = (Rank, &'a RankState)> {
        let of = |(number, _): &(Rank, _)| self.table.run.trainers_in(*number);
        self.ranks.iter().flat_map(of).map(|one| (one.key, one.state))
    }

    /// What the newest steps of each of them tell.
    fn recents(&self) -> impl Iterator<Item = &'a Recent> {
        let recents = &self.table.recents;
        self.ranks.iter().flat_map(move |(number, _)| recents.within(*number)).map(|(_, recent)| recent)
    }

    fn worst(&self, of: impl Fn(&Recent) -> Option<f64>) -> Option<f64> {
        self.recents().filter_map(of).max_by(f64::total_cmp)
    }

    fn hangs(&self, number: Rank) -> bool {
        self.table.look.no_step_since(number, None).is_some()
    }

    /// What the slots of its ranks tell.
    fn values(&self) -> &[(Cow<'a, SlotValues>, bool)] {
        self.values.get_or_init(|| {
            self.ranks.iter().filter_map(|(number, rank)| values(self.table, *number, rank)).collect()
        })
    }

    /// A sum or a maximum over the slots of which it is known.
    fn gpus<T: Copy>(&self, of: impl Fn(&SlotValues) -> &Reading<T>, both: impl Fn(T, T) -> T) -> Option<T> {
        self.values().iter().filter_map(|(values, _)| of(values).value().copied()).reduce(both)
    }

    fn state(&self, canvas: &Canvas<'_>) -> (String, Style) {
        // a failure is known, whatever became of the others since
        let failed = self.culprit.is_some_and(|(number, _)| self.table.look.has_failed(number));
        if let Some(heard) = self.heard.filter(|_| !failed) {
            return (format!("{} old", age(self.table.model.moment(), heard)), canvas.theme.dim);
        }
        let word = |(number, rank): (Rank, &RankState)| {
            if self.hangs(number) { NO_STEP } else { rank.word() }
        };
        let Some(first) = self.culprit.or(self.ranks.first().copied()) else {
            return ("–".to_owned(), canvas.theme.dim);
        };
        let style = style_of(self.table, first.0, word(first), canvas);
        let same = self.ranks.iter().filter(|one| word(**one) == word(first)).count();
        let of = if same == self.ranks.len() { String::new() } else { format!(" of {}", self.ranks.len()) };
        (format!("{same} {}{of}", word(first)), style)
    }
}

/// Of these ranks the one that failed first, or is late.
fn culprit<'a>(look: &Look<'_>, ranks: &[(Rank, &'a RankState)]) -> Option<(Rank, &'a RankState)> {
    let failed = ranks.iter().find(|(number, _)| look.is_culprit(*number, None));
    let failed = failed.or_else(|| ranks.iter().find(|(number, _)| look.has_failed(*number)));
    failed.or_else(|| ranks.iter().find(|(number, _)| look.is_late(*number))).copied()
}

pub(super) fn cell(row: &HostRow<'_>, canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16) {
    let (x, w) = (column.x, column.w);
    let text = if row.heard.is_some() { canvas.theme.dim } else { canvas.theme.text };
    let culprit = row.culprit;
    let words = match column.id {
        Col::Rank => {
            let opened = row.table.model.ui.run.arranged.opened.contains(row.host);
            let style = if culprit.is_some() { canvas.theme.bad } else { text };
            if culprit.is_some() {
                canvas.text(1, y, 1, "!", style);
            }
            canvas.text(x, y, 1, if opened { "▾" } else { "▸" }, canvas.theme.dim);
            canvas.right(x + 1, y, w - 1, &row.numbers(w - 1), style);
            return;
        }
        Col::Place => {
            canvas.name(x, y, w, row.host.as_str(), text);
            return;
        }
        Col::State => {
            let (words, style) = row.state(canvas);
            canvas.text(x, y, w, &words, style);
            return;
        }
        Col::Phases => {
            let recent = Recent::together(row.recents());
            strip::draw(canvas, x, y, w, &phases(&recent, row.table.longest), |_| false);
            return;
        }
        Col::Line => {
            let (words, style) = line(row, canvas, w);
            canvas.text(x, y, w, &words, style);
            return;
        }
        Col::Late => {
            let late = row.trainers().filter_map(|(key, _)| row.table.late.get(&key).copied());
            let is_late = culprit.is_some() && row.heard.is_none();
            let style = if is_late { canvas.theme.warn } else { text };
            canvas.right(x, y, w, &milliseconds(late.max_by(f64::total_cmp)), style);
            return;
        }
        Col::Via => {
            let via = row.ranks.first().and_then(|(_, rank)| rank.transport.as_deref());
            canvas.name(x, y, w, via.unwrap_or("–"), text);
            return;
        }
        Col::Step => {
            let step = row.trainers().map(|(_, rank)| rank.step()).min().flatten();
            step.map_or("–".to_owned(), |step| step.to_string())
        }
        Col::StepMs => {
            row.worst(Recent::step_us).map_or("–".to_owned(), |us| format!("{:.1}", us / 1000.0))
        }
        Col::Rate => {
            let rates = row.trainers().filter_map(|(_, rank)| rank.samples_per_second());
            let is_old = row.ranks.iter().any(|(number, _)| row.hangs(*number));
            let style = if is_old { canvas.theme.dim } else { text };
            canvas.right(x, y, w, &rate_words(rates.reduce(|sum, rate| sum + rate), is_old), style);
            return;
        }
        Col::Loss => {
            let known: Vec<f32> = row.trainers().filter_map(|(_, rank)| rank.loss()).collect();
            let mean = known.iter().sum::<f32>() / known.len().max(1) as f32;
            if known.is_empty() { "–".to_owned() } else { format!("{mean:.4}") }
        }
        Col::Wait => milliseconds(row.worst(|recent| recent.phase_us(Phase::Wait))),
        Col::Transfer => milliseconds(row.worst(|recent| recent.phase_us(Phase::Transfer))),
        Col::Other => milliseconds(row.worst(Recent::other_us)),
        Col::Overlap => percent(Recent::together(row.recents()).overlap().map(|share| share * 100.0)),
        Col::Exposed => milliseconds(row.worst(Recent::exposed_us)),
        Col::Util | Col::Memory | Col::Power | Col::Temperature => {
            let words = gpu_words(row, column.id);
            let is_old = row.values().iter().all(|(_, is_old)| *is_old);
            return canvas.right(x, y, w, &words, if is_old { canvas.theme.dim } else { text });
        }
    };
    canvas.right(x, y, w, &words, text);
}

/// What the GPUs of its ranks tell together.
fn gpu_words(row: &HostRow<'_>, column: Col) -> String {
    let words = match column {
        Col::Memory => row.gpus(|values| &values.memory, u64::saturating_add).map(units::bytes),
        Col::Power => {
            row.gpus(|values| &values.power_mw, u32::saturating_add).map(|mw| (mw / 1000).to_string())
        }
        Col::Temperature => {
            row.gpus(|values| &values.temperature, Ord::max).map(|celsius| celsius.to_string())
        }
        _ => {
            let known: Vec<f64> = row.values().iter().filter_map(|(values, _)| values.load).collect();
            let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
            return percent(mean.map(|mean| mean * 100.0));
        }
    };
    words.unwrap_or_else(|| "–".to_owned())
}

/// What the rank to look at says, else how its clock runs.
fn line(row: &HostRow<'_>, canvas: &Canvas<'_>, room: u16) -> (String, Style) {
    if let Some((number, rank)) = row.culprit {
        let (words, style) = last_words((row.table, number), rank, canvas);
        return (format!("rank {number}: {words}"), style);
    }
    let (model, spec) = (row.table.model, &row.table.run.spec);
    let line = model.world.hosts.get(row.host).and_then(|state| state.clock.line());
    let unsure = line.zip(model.clock_unsure_us(row.host, spec));
    let clock = unsure.map(|(line, uncertainty_us)| ClockLine { uncertainty_us, ..line });
    (clock.map_or_else(String::new, |clock| clock_words(clock, room)), canvas.theme.dim)
}

/// The longest of what there is to say of a host's clock that fits; half a number would be another one.
fn clock_words(line: ClockLine, room: u16) -> String {
    let [whole, short] = clock_says(line);
    let fits = |words: &String| width(words) <= room;
    Some(whole).filter(fits).or(Some(short).filter(fits)).unwrap_or_default()
}

/// How exactly a host's clock is known, and how it runs against the client's: `clock ±0.30 ms, 3.1 ppm slow`; and the same in
/// short. Where it stands says nothing: it counts from the host's start.
fn clock_says(line: ClockLine) -> [String; 2] {
    let ppm = line.drift.abs() * 1e6;
    let runs = if line.drift < 0.0 { "fast" } else { "slow" };
    let drifts = if ppm < 0.05 { String::new() } else { format!(", {ppm:.1} ppm {runs}") };
    let unsure = format!("clock ±{:.2} ms", f64::from(line.uncertainty_us) / 1e3);
    [format!("{unsure}{drifts}"), unsure]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;

    #[test]
    fn a_clock_is_told_whole_or_not_at_all() {
        let line = |drift| ClockLine { at: HostTime(0), offset_ns: 1 << 60, drift, uncertainty_us: 300 };
        assert_eq!(clock_says(line(3.1e-6))[0], "clock ±0.30 ms, 3.1 ppm slow");
        assert_eq!(clock_says(line(-3.1e-6))[0], "clock ±0.30 ms, 3.1 ppm fast");
        let words = |room| clock_words(line(3.1e-6), room);
        assert_eq!([28, 27, 13].map(words), ["clock ±0.30 ms, 3.1 ppm slow", "clock ±0.30 ms", ""]);
    }
}
