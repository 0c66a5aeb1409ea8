//! The Runs screen: live runs and recordings.

use ratatui::style::Style;

use super::cluster::mark_selected;
use super::columns::{Column, Wish, fit};
use super::pen::Pen;
use super::run::{clock_length, state_word};
use super::title;
use crate::domain::share::Standing;
use crate::domain::units;
use crate::domain::world::RunState;
use crate::launch::words::join;
use crate::tui::core::Model;
use crate::tui::core::layout::runs_list;
use crate::tui::core::runs::{RunRow, rows};
use crate::tui::core::words::{clock_time, date};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Id,
    Name,
    State,
    Ranks,
    Hosts,
    Begun,
    Length,
    Step,
    Size,
    Command,
}

/// Draws the screen.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>) {
    title::draw(model, pen);
    let rows = rows(model);
    subtitle(model, pen, &rows);
    let columns = columns(pen, &rows);
    let dim = pen.theme.dim;
    for column in &columns {
        if column.right {
            pen.right(column.x, 2, column.w, column.title, dim);
        } else {
            pen.text(column.x, 2, column.w, column.title, dim);
        }
    }
    let band = runs_list((pen.width(), pen.height()));
    if rows.is_empty() {
        let text = match (model.ui.runs.loading, model.ui.runs.filter.is_empty()) {
            (true, _) => "reading the recordings …",
            (false, true) => "no run yet: pick GPUs on the Cluster screen with space, launch with l",
            (false, false) => "no run matches the filter",
        };
        pen.text(2, band.y + 1, pen.width() - 3, text, dim);
        return;
    }
    let cursor = &model.ui.runs.cursor;
    for (line, row) in rows.iter().skip(cursor.offset).take(usize::from(band.h)).enumerate() {
        let y = band.y + line as u16;
        for column in &columns {
            cell(model, pen, column, y, row);
        }
        if cursor.on.as_ref() == Some(&row.spec.id) {
            mark_selected(pen, y, 7);
        }
    }
    if let Some(row) = rows.get(cursor.index) {
        details(pen, band.y + band.h, row);
    }
}

fn subtitle(model: &Model, pen: &mut Pen<'_>, rows: &[RunRow<'_>]) {
    let (accent, dim) = (pen.theme.accent, pen.theme.dim);
    let is_live = |row: &&RunRow<'_>| row.is_elsewhere() || row.live.is_some_and(RunState::is_live);
    let live = rows.iter().filter(is_live).count();
    let mut pieces = vec![(format!("{} {}, {live} live", rows.len(), title::plural(rows.len(), "run")), dim)];
    if !model.ui.runs.filter.is_empty() {
        pieces.push((format!("   / {}", model.ui.runs.filter), accent));
    }
    let end = pen.width() - 1;
    pen.pieces(1, 1, end, &pieces);
}

fn columns(pen: &Pen<'_>, rows: &[RunRow<'_>]) -> Vec<Column<Col>> {
    let names = rows.iter().map(|row| super::pen::width(&row.spec.name)).max().unwrap_or(4);
    let names = names.clamp(8, if pen.width() >= 160 { 36 } else { 18 });
    let hosts = rows.iter().map(|row| super::pen::width(&hosts(row))).max().unwrap_or(5).clamp(5, 28);
    let wish = |id, title, least, most, rank, right| Wish { id, title, least, most, rank, right };
    let wishes = [
        wish(Col::Id, "RUN", 4, 4, 0, false),
        wish(Col::Name, "NAME", 8, names, 0, false),
        wish(Col::State, "STATE", 10, 10, 0, false),
        wish(Col::Begun, "BEGUN", 16, 16, 1, false),
        wish(Col::Length, "LENGTH", 6, 6, 2, true),
        wish(Col::Ranks, "RANKS", 5, 5, 3, true),
        wish(Col::Hosts, "HOSTS", 11.min(hosts), hosts, 4, false),
        wish(Col::Step, "STEP", 6, 6, 5, true),
        wish(Col::Size, "SIZE", 6, 6, 6, true),
        wish(Col::Command, "COMMAND", 10, 200, 7, false),
    ];
    fit(&wishes, 2, pen.width().saturating_sub(3), 2)
}

fn hosts(row: &RunRow<'_>) -> String {
    row.spec.hosts().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn state(row: &RunRow<'_>, pen: &Pen<'_>) -> (String, Style) {
    match (row.outcome, row.live) {
        (Some(outcome), ..) if outcome.is_success() => ("✔ done".to_owned(), pen.theme.good),
        (Some(outcome), ..) if outcome.is_stopped() => ("stopped".to_owned(), pen.theme.dim),
        (Some(outcome), ..) => (format!("✖ exit {}", outcome.exit_code()), pen.theme.bad),
        (None, Some(run)) => {
            let (word, style) = state_word(pen, run);
            (format!("● {word}"), style)
        }
        (None, None) if row.is_elsewhere() => ("● running".to_owned(), pen.theme.accent),
        (None, None) if row.recording.is_none() => match row.standing {
            Standing::Ended => ("ended".to_owned(), pen.theme.dim),
            _ => ("? unknown".to_owned(), pen.theme.warn),
        },
        (None, None) => ("⚠ no end".to_owned(), pen.theme.warn),
    }
}

fn cell(model: &Model, pen: &mut Pen<'_>, column: &Column<Col>, y: u16, row: &RunRow<'_>) {
    let (x, w) = (column.x, column.w);
    let (text, dim) = (pen.theme.text, pen.theme.dim);
    match column.id {
        Col::Id => drop(pen.text(x, y, w, row.spec.id.short(), text)),
        Col::Name => drop(pen.name(x, y, w, &row.spec.name, text)),
        Col::State => {
            let (words, style) = state(row, pen);
            pen.text(x, y, w, &words, style);
        }
        Col::Begun => {
            let offset = model.utc_offset_s;
            let time = clock_time(row.spec.created, offset, false);
            let words = format!("{} {}", date(row.spec.created, offset), time.get(..5).unwrap_or(&time));
            pen.text(x, y, w, &words, dim);
        }
        Col::Length => {
            let goes_on = row.outcome.is_none() && (row.live.is_some() || row.is_elsewhere());
            let end = if goes_on { model.now } else { row.last_at };
            let length = u64::try_from(end.micros_since(row.spec.created)).unwrap_or(0);
            pen.right(x, y, w, &clock_length(length), text);
        }
        Col::Ranks => pen.right(x, y, w, &row.spec.world().to_string(), text),
        Col::Hosts => drop(pen.name(x, y, w, &hosts(row), dim)),
        Col::Step => {
            let step = row.live.and_then(RunState::step).map_or("–".to_owned(), |step| step.to_string());
            pen.right(x, y, w, &step, text);
        }
        Col::Size => {
            let size = row.recording.map_or("–".to_owned(), |recording| units::bytes(recording.bytes));
            pen.right(x, y, w, &size, dim);
        }
        Col::Command => drop(pen.text(x, y, w, &join(&row.spec.command), dim)),
    }
}

/// Two lines on the selected run: how it ended or what is wrong with its recording, and its command.
fn details(pen: &mut Pen<'_>, y: u16, row: &RunRow<'_>) {
    let (dim, warn, bad) = (pen.theme.dim, pen.theme.warn, pen.theme.bad);
    let open = row.outcome.is_none() && row.live.is_none();
    let words = match (row.outcome, row.recording.and_then(|recording| recording.damage.as_deref())) {
        (_, Some(damage)) => (format!("the recording is damaged: {damage}"), warn),
        (Some(outcome), None) => {
            let is_fine = outcome.is_success() || outcome.is_stopped();
            (outcome.summary.clone(), if is_fine { dim } else { bad })
        }
        (None, None) if row.is_elsewhere() => ("it goes on on its hosts; enter takes it up".to_owned(), dim),
        (None, None) if open && row.standing == Standing::Ended => {
            ("it has ended, its hosts say; enter reads what they have".to_owned(), warn)
        }
        (None, None) if open && row.recording.is_none() => ("a host of it was not heard".to_owned(), warn),
        (None, None) if open => ("the recording stops before the run's end".to_owned(), warn),
        (None, None) => (format!("live · {} kind", row.spec.kind.name()), dim),
    };
    let room = pen.width() - 3;
    pen.text(2, y, room, &words.0, words.1);
    pen.text(2, y + 1, room, &format!("{}   {}", row.spec.id, join(&row.spec.command)), dim);
}
