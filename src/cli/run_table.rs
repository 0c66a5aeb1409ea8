//! How the steps of a run went, for `hvtui run`: in one line while it goes on, and in a table at its end. Does no I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr as _;

use crate::domain::step_totals::{StepTotals, Worked, rates};
use crate::domain::text::sanitize;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainer_keys::TrainerId;
use crate::domain::trainers::Trainer;
use crate::domain::transfer::LeastWait;
use crate::domain::units::{counted, duration_us, middle_cut, rate};
use crate::domain::world::{RankState, RunState};

/// Over how many of the last steps the line is averaged.
const TIMING_STEPS: usize = 50;

/// What steps were like on the average.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mean {
    totals: StepTotals,
    /// Microseconds a phase, and how long the steps took that tell phases: hooks tell those of some of many short steps.
    phases: [u64; Phase::COUNT],
    phased_us: u64,
    /// Samples a second of all ranks together.
    rate: Option<f64>,
}

impl Mean {
    fn add(&mut self, step: &StepTiming) {
        self.totals.add(step);
        if !step.spans.is_empty() {
            self.phased_us += u64::from(step.dur_us);
            self.phases.iter_mut().zip(step.phase_totals()).for_each(|(sum, phase)| *sum += phase);
        }
    }

    fn worked(&self) -> Worked {
        let totals = &self.totals;
        Worked { steps: totals.steps, samples: totals.samples, us: totals.step_us, meets: totals.meets() }
    }

    /// So much of the wait of one of the steps moved bytes.
    fn part(&mut self, least: u64) {
        let moved = least.min(self.phases[Phase::Wait.index()]);
        self.phases[Phase::Wait.index()] -= moved;
        self.phases[Phase::Transfer.index()] += moved;
    }

    /// Of a rank's last steps.
    fn of_rank(rank: &RankState) -> Self {
        let mut mean = Self::default();
        rank.recent_steps(TIMING_STEPS).for_each(|step| mean.add(step));
        mean
    }

    /// Of all ranks' last steps.
    pub(super) fn of_run(run: &RunState) -> Self {
        let mut all = Self::default();
        for mean in run.trainers().map(|one| Self::of_rank(one.state)) {
            all.totals += mean.totals;
            all.phased_us += mean.phased_us;
            for (sum, phase) in all.phases.iter_mut().zip(mean.phases) {
                *sum += phase;
            }
        }
        Self { rate: run.samples_per_second(), ..all }
    }

    /// Percent of the step that each phase takes, in the order of [`Phase::ALL`]; what no phase tells is [`Phase::Other`].
    fn shares(&self) -> [u64; Phase::COUNT] {
        let step_us = self.phased_us;
        let mut shares =
            self.phases.map(|phase| (phase * 100 + step_us / 2).checked_div(step_us).unwrap_or(0));
        let told: u64 = self.phases.iter().sum();
        let rest = step_us.saturating_sub(told) + self.phases[Phase::Other.index()];
        shares[Phase::Other.index()] = (rest * 100 + step_us / 2).checked_div(step_us).unwrap_or(0);
        shares
    }

    fn share_text(&self, phase: Phase) -> String {
        if self.phased_us == 0 { "–".to_owned() } else { format!("{} %", self.shares()[phase.index()]) }
    }

    fn step_text(&self) -> String {
        match self.totals.step_us.checked_div(self.totals.steps) {
            Some(us) if us > 0 => duration_us(us),
            _ => "–".to_owned(),
        }
    }

    fn overlap_text(&self) -> String {
        self.totals.overlap().map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
    }

    /// `40 ms a step  3,200 samples/s  data 1 %  …`, without phases that take nothing.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} a step", self.step_text());
        if let Some(samples) = self.rate {
            text.extend(["  ", &rate(samples), " samples/s"]);
        }
        if self.phases.iter().any(|phase| *phase > 0) {
            let shares = Phase::ALL.into_iter().zip(self.shares());
            for (phase, share) in shares.filter(|(_, share)| *share > 0) {
                text.extend(["  ".to_owned(), phase.name().to_owned(), format!(" {share} %")]);
            }
        }
        if self.totals.hidden_us > 0 {
            text.extend(["  overlap ", &self.overlap_text()]);
        }
        text
    }
}

/// A column of the last table.
struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Its least width where there is room.
    least: usize,
    is_left: bool,
    /// Where there is no room, the column with the least of these goes first; one without stays.
    worth: Option<u64>,
}

/// What a column is worth that is no phase's: more than any share of a step, in percent.
const OVERLAP_WORTH: u64 = 1_000;
const RATE_WORTH: u64 = 2_000;

impl Column {
    fn content(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.head.len())
    }
}

/// What the steps of each that trains were like, from the first one that was heard of.
#[derive(Debug, Default)]
pub(super) struct Means {
    steps: BTreeMap<TrainerId, Steps>,
    /// What of the wait that hooks tell was transfer is known when all have told the step.
    least_wait: LeastWait,
}

/// The first step warms up, and is left out where there are others.
#[derive(Debug, Default)]
struct Steps {
    /// The number of the first one.
    first_step: u64,
    first: Mean,
    others: Mean,
}

impl Steps {
    fn count(&self) -> u64 {
        self.first.totals.steps + self.others.totals.steps
    }

    fn of(&mut self, step: u64) -> &mut Mean {
        if step == self.first_step { &mut self.first } else { &mut self.others }
    }

    fn mean(&self) -> Mean {
        if self.others.totals.steps > 0 { self.others } else { self.first }
    }
}

impl Means {
    /// A step of one of `count` that train together; `None` where each rank holds a training of its own.
    pub(super) fn take(&mut self, id: TrainerId, step: &StepTiming, count: Option<usize>) {
        let steps = self.steps.entry(id).or_default();
        if steps.first.totals.steps == 0 {
            steps.first_step = step.step;
        }
        steps.of(step.step).add(step);
        if let Some(least) = count.and_then(|count| self.least_wait.step(count, step)) {
            self.steps.values_mut().for_each(|steps| steps.of(step.step).part(least));
        }
    }

    /// One row a rank: how long its steps took on the average, where the time went, and how much of the allreduce was hidden, where
    /// any was. Nothing for a job that reports no steps. Fits into `width` columns, where there are so many.
    pub(super) fn table(&self, run: &RunState, width: Option<usize>) -> Vec<String> {
        if !run.ranks.iter().any(RankState::trains) {
            return Vec::new();
        }
        let none = Steps::default();
        let of = |one: &Trainer<'_>| self.steps.get(&one.id()).unwrap_or(&none);
        let mut ranks: Vec<_> = run.trainers().map(|one| (of(&one).mean(), one)).collect();
        ranks.sort_by_key(|(_, one)| one.id());
        let worked: Vec<Worked> = ranks.iter().map(|(mean, _)| mean.worked()).collect();
        for ((mean, _), rate) in ranks.iter_mut().zip(rates(&worked)) {
            mean.rate = Some(rate).filter(|rate| *rate > 0.0);
        }
        let column = |head, least, of: &dyn Fn(&(Mean, Trainer<'_>)) -> String| Column {
            head,
            least,
            cells: ranks.iter().map(of).collect(),
            is_left: false,
            worth: None,
        };
        let optional = |head, worth: u64, of: &dyn Fn(&(Mean, Trainer<'_>)) -> String| Column {
            worth: Some(worth),
            ..column(head, SPARE, of)
        };
        let place = column("PLACE", 5, &|(_, one)| one.rank.placement.to_string());
        let mut columns = vec![
            column("RANK", 4, &|(_, one)| one.number.to_string()),
            Column { is_left: true, ..place },
            column("STEPS", 7, &|(_, one)| one.state.step_count.to_string()),
            column("STEP", 8, &|(mean, _)| mean.step_text()),
        ];
        let largest = |phase: Phase| {
            ranks.iter().map(|(mean, _)| mean.shares()[phase.index()]).max().unwrap_or_default()
        };
        let phases = Phase::ALL.into_iter().map(|phase| (phase, largest(phase)));
        let phases = phases.filter(|(phase, share)| *phase != Phase::Other || *share > 0);
        columns.extend(
            phases.map(|(phase, share)| optional(phase.name(), share, &|(mean, _)| mean.share_text(phase))),
        );
        if ranks.iter().any(|(mean, _)| mean.totals.hidden_us > 0) {
            columns.push(optional("overlap", OVERLAP_WORTH, &|(mean, _)| mean.overlap_text()));
        }
        if ranks.iter().any(|(mean, _)| mean.rate.is_some()) {
            columns.push(optional("samples/s", RATE_WORTH, &|(mean, _)| {
                mean.rate.map_or_else(|| "–".to_owned(), rate)
            }));
        }
        let exit = |one: &Trainer<'_>| one.rank.exit.as_ref().map(|(_, exit)| exit.end_words());
        let end = column("END", 0, &|(_, one)| exit(one).unwrap_or_else(|| "–".to_owned()));
        columns.push(Column { is_left: true, ..end });
        let mut table = rows(columns, width.map(|width| width.saturating_sub(own_width())));
        let missed = run.trainers().any(|one| of(&one).count() < one.state.step_count);
        if missed {
            let heard = run.trainers().map(|one| of(&one).count()).max().unwrap_or(0);
            table.insert(
                0,
                format!("times and shares are those of the {} heard here", counted(heard, "step")),
            );
        }
        table
    }
}

/// The least width of a column that goes where there is no room.
const SPARE: usize = 9;

/// What stands before each of hvtui's own lines, in columns.
fn own_width() -> usize {
    "hvtui: ".len()
}

/// The head and the rows. Where they are wider than `width` columns get as narrow as they can, then those go that are worth least,
/// which a last line names, then the last column is cut.
fn rows(mut columns: Vec<Column>, width: Option<usize>) -> Vec<String> {
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    let room = width.unwrap_or(usize::MAX);
    let mut widths: Vec<usize> = columns.iter().map(|column| column.content().max(column.least)).collect();
    if total(&widths) > room {
        widths = columns.iter().map(Column::content).collect();
    }
    let heads: Vec<&str> = columns.iter().map(|column| column.head).collect();
    let least = |columns: &[Column]| {
        let spare = (0..).zip(columns).filter_map(|(at, column)| Some((column.worth?, Reverse(at))));
        spare.min().map(|(_, Reverse(at))| at)
    };
    while total(&widths) > room
        && let Some(spare) = least(&columns)
    {
        columns.remove(spare);
        widths.remove(spare);
    }
    let over = total(&widths).saturating_sub(room);
    if let Some(last) = widths.last_mut() {
        *last = last.saturating_sub(over).max(1);
    }
    let row = |cells: Vec<&str>| {
        let cells = cells.into_iter().zip(&columns).zip(&widths).map(|((cell, column), &width)| {
            let cell = middle_cut(&sanitize(cell), width);
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            if column.is_left { format!("{cell}{pad}") } else { format!("{pad}{cell}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = row(columns.iter().map(|column| column.head).collect());
    let ranks = columns.first().map_or(0, |column| column.cells.len());
    let cells = |rank: usize| columns.iter().map(|column| column.cells[rank].as_str()).collect();
    let mut table: Vec<String> =
        std::iter::once(head).chain((0..ranks).map(|rank| row(cells(rank)))).collect();
    let is_left_out = |head: &&str| columns.iter().all(|column| column.head != *head);
    let left_out: Vec<&str> = heads.into_iter().filter(is_left_out).collect();
    if !left_out.is_empty() {
        table.push(format!("not shown for want of room: {}", left_out.join(", ")));
    }
    table
}
