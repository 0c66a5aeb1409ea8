//! The table of ranks, or of their hosts: which columns it has, and its rows.

use std::collections::BTreeMap;

use crate::domain::ids::{HostId, Rank};
use crate::domain::run::{Placement, Slot};
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::units::ranges;
use crate::domain::world::{RankState, RunState};
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::Band;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::run::Pane;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::recent::{RECENT, Recent, Recents};
use crate::tui::screens::run::rows::{Look, RankRow};
use crate::tui::screens::run::view::host_cells;
use crate::tui::screens::run::view::rank_cells;
use crate::tui::screens::run::view::strip;

/// What no phase tells of a step has a column from this on, microseconds.
const OTHER_US: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Col {
    Rank,
    Place,
    State,
    Step,
    StepMs,
    Late,
    Rate,
    Loss,
    Phases,
    Wait,
    Transfer,
    Other,
    Overlap,
    Exposed,
    Via,
    Util,
    Memory,
    Power,
    Temperature,
    Line,
}

/// What all rows of a frame share.
pub(super) struct Table<'a> {
    pub(super) model: &'a Model,
    pub(super) run: &'a RunState,
    pub(super) look: &'a Look<'a>,
    /// What the newest steps of each tell.
    pub(super) recents: Recents<'a>,
    /// The mean step of the slowest, microseconds: as long as the bar of phases is wide.
    pub(super) longest: f64,
    /// How late each comes, by its key, microseconds.
    pub(super) late: BTreeMap<Rank, f64>,
}

/// One rank, or a process within it.
pub(super) struct Row<'a> {
    pub(super) table: &'a Table<'a>,
    pub(super) number: Rank,
    /// The process within the rank.
    pub(super) worker: Option<u32>,
    pub(super) rank: &'a RankState,
    /// What its newest steps tell.
    pub(super) recent: Recent,
    /// How the rank ended in which the process is.
    pub(super) ended: Option<&'static str>,
    /// When it was heard last, on a silent host.
    pub(super) heard: Option<Stamp>,
}

impl Row<'_> {
    /// How late it comes, where it trains itself: microseconds.
    pub(super) fn late(&self) -> Option<f64> {
        let key = self.table.run.trainer_key(self.number, self.worker)?;
        self.table.late.get(&key).copied()
    }
}

/// How many rows are not shown, for the end of the rule below; empty where all are.
pub(super) fn hidden_words(hidden: usize) -> String {
    if hidden == 0 { String::new() } else { format!(" ranks: ↓ {hidden} more ") }
}

/// Draws head and rows into the first `w` columns; returns how many rows stand below those that are shown.
pub(super) fn draw(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, w: u16) -> usize {
    let table = table(frame);
    let columns = columns(w, &table, table.look.hangs());
    let dim = canvas.theme.dim;
    let ui = &frame.model.ui.run;
    let (rows, cursor) = (&frame.rows, &ui.ranks);
    for column in &columns {
        if column.id == Col::Phases {
            let end = column.x + column.w;
            let x = strip::legend(canvas, column.x, band.y, end);
            let of = format!("last {RECENT}");
            if x + width(&of) <= end {
                canvas.text(x, band.y, end - x, &of, dim);
            }
        } else if column.right {
            canvas.right(column.x, band.y, column.w, column.title, dim);
        } else {
            canvas.text(column.x, band.y, column.w, column.title, dim);
        }
    }
    let list = band.below_head();
    for (row, y) in rows.iter().skip(cursor.offset).zip(list.y..list.y + list.h) {
        cells(&table, canvas, &columns, y, row);
        if cursor.on.as_ref() == Some(row) && ui.pane == Pane::Ranks {
            mark_selected(canvas, y, 6);
        }
    }
    rows.len().saturating_sub(cursor.offset + usize::from(list.h))
}

/// What all rows share.
pub(super) fn table<'a>(frame: &'a Frame<'a>) -> Table<'a> {
    let recents = Recents::of(frame.run);
    let longest = recents.all().filter_map(Recent::step_us).max_by(f64::total_cmp).unwrap_or(1.0);
    let late = recents.lateness_us();
    Table { model: frame.model, run: frame.run, look: &frame.look, recents, longest, late }
}

/// The columns that say which row it is.
pub(super) fn labels(table: &Table<'_>) -> Vec<Column<Col>> {
    let of_row = |column: &Column<Col>| matches!(column.id, Col::Rank | Col::Place);
    columns(table.model.size.0, table, false).into_iter().filter(of_row).collect()
}

/// Draws these columns of a row.
pub(super) fn cells(
    table: &Table<'_>,
    canvas: &mut Canvas<'_>,
    columns: &[Column<Col>],
    y: u16,
    row: &RankRow,
) {
    match row {
        RankRow::Host(host) => host_row(table, canvas, columns, y, host),
        RankRow::Rank(number) => rank_row(table, canvas, columns, y, *number, None),
        RankRow::Worker(number, worker) => rank_row(table, canvas, columns, y, *number, Some(*worker)),
    }
}

fn rank_row(
    table: &Table<'_>,
    canvas: &mut Canvas<'_>,
    columns: &[Column<Col>],
    y: u16,
    number: Rank,
    worker: Option<u32>,
) {
    let Some(of) = table.run.ranks.get(number.0 as usize) else { return };
    let Some(rank) = worker.map_or(Some(of), |worker| of.workers.get(&worker)) else { return };
    let ended = worker.and(of.exit.as_ref()).map(|_| of.word());
    let (recent, heard) = (table.recents.of_one(number, rank), table.look.heard_last(of));
    let row = Row { table, number, worker, rank, recent, ended, heard };
    for column in columns {
        rank_cells::cell(&row, canvas, column, y);
    }
}

fn host_row(table: &Table<'_>, canvas: &mut Canvas<'_>, columns: &[Column<Col>], y: u16, host: &HostId) {
    let row = host_cells::HostRow::of(table, host);
    for column in columns {
        host_cells::cell(&row, canvas, column, y);
    }
}

fn columns(w: u16, table: &Table<'_>, hangs: bool) -> Vec<Column<Col>> {
    let run = table.run;
    let grouped = table.model.ui.run.arranged.is_grouped(run);
    // no host has a longer name than its places
    let places = Placement::longest_of_hosts(run.spec.placements.iter()).into_iter();
    let place = places.map(|place| width(&place.to_string())).max().unwrap_or(5).clamp(5, 16);
    let has_phases =
        run.trainers().any(|one| one.state.latest_step().is_some_and(|step| !step.spans.is_empty()));
    let has_times = run.ranks.iter().any(RankState::trains);
    let has_steps = run.step().is_some() || has_times;
    let has_gpus = run.ranks.iter().any(|rank| matches!(rank.placement.slot, Slot::Gpu { .. }));
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let state = match (grouped, hangs) {
        (true, _) => 14,
        (false, true) => 13,
        (false, false) => 9,
    };
    let rank = if grouped { ranks_width(run) } else { 4 };
    let mut wishes = vec![
        wish(Col::Rank, "RANK", rank, rank, 0, true),
        wish(Col::Place, "PLACE", place, place, 0, false),
        wish(Col::State, "STATE", state, state, 0, false),
    ];
    if has_steps {
        wishes.push(wish(Col::Step, "STEP", 6, 7, 1, true));
        if has_times {
            wishes.push(wish(Col::StepMs, "STEP ms", 7, 8, 2, true));
        }
        if has_phases && run.trainers().nth(1).is_some() {
            wishes.push(wish(Col::Late, "LATE", 5, 5, 4, true));
        }
        if w >= 140 && run.trainers().any(|one| one.state.samples_per_second().is_some()) {
            let least = if hangs { 12 } else { 9 };
            wishes.push(wish(Col::Rate, "SAMPLES/S", least, least, 14, true));
        }
        wishes.push(wish(Col::Loss, "LOSS", 7, 7, 11, true));
    }
    if has_phases {
        // 0 is also what a job says that knows nothing of it: then there is nothing to show
        let has_hidden = table.recents.all().any(Recent::hides);
        let is_narrow = w < 100;
        // the legend in words needs 58, of which steps it is 9
        let most = if w >= 180 { 67 } else { 22 };
        wishes.push(wish(Col::Phases, "", if has_hidden && is_narrow { 14 } else { 16 }, most, 3, false));
        // in milliseconds, as the step
        wishes.push(wish(Col::Wait, "WAIT", 5, 5, 7, true));
        wishes.push(wish(Col::Transfer, "XFER", 5, 5, 10, true));
        // what the phases leave of the step
        if table.recents.all().filter_map(Recent::other_us).any(|us| us >= OTHER_US) {
            wishes.push(wish(Col::Other, "OTHER", 5, 5, 17, true));
        }
        if has_hidden && tells_exposed(table) {
            let (title, least) = if is_narrow { ("OVLAP", 5) } else { ("OVERLAP", 7) };
            wishes.push(wish(Col::Overlap, title, least, least, 6, true));
            wishes.push(wish(Col::Exposed, "EXPOSED", 7, 7, 16, true));
        }
        if w >= 160 {
            wishes.push(wish(Col::Via, "VIA", 7, 7, 15, false));
        }
    }
    // of a CPU slot nothing else is known than the load of its host
    let (title, least) = if has_gpus { ("UTIL", 5) } else { ("HOST CPU", 8) };
    wishes.push(wish(Col::Util, title, least, least, 5, true));
    if has_gpus {
        wishes.push(wish(Col::Memory, "MEM", 5, 5, 8, true));
        wishes.push(wish(Col::Power, "W", 5, 5, 9, true));
        wishes.push(wish(Col::Temperature, "°C", 3, 3, 12, true));
    }
    wishes.push(wish(Col::Line, "LAST LINE", 12, 200, 13, false));
    fit(&wishes, 2, w.saturating_sub(3), if w >= 100 { 2 } else { 1 })
}

/// Whether all of the exposed communication is told, as in a report: an import that tells waits and of no rank a transfer leaves a part of
/// it out, and the wait alone is not what it costs.
fn tells_exposed(table: &Table<'_>) -> bool {
    let told = |phase: Phase| table.recents.all().any(|recent| recent.tells(phase));
    !table.run.spec.is_imported() || told(Phase::Transfer) || !told(Phase::Wait)
}

/// Columns of a fold mark and the ranks of a host: `▸1016-1023`.
fn ranks_width(run: &RunState) -> u16 {
    let of = |ranks: &Vec<Rank>| width(&ranges(ranks.iter().map(|number| number.0)));
    let most = run.by_host.values().map(of).max().unwrap_or_default();
    (most + 1).clamp(4, 10)
}
