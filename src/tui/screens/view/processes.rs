//! Processes on GPUs as lines of a table, on Detail and on Users.

use crate::domain::units;
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::processes::ProcessRow;
use crate::tui::screens::view::gpu_words::reading;

/// Below this width of the screen a run or container is cut.
const NARROW: u16 = 100;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tui::screens) enum Col {
    /// The GPU's index.
    Gpu,
    /// Host and GPU.
    Place,
    Pid,
    User,
    Age,
    Memory,
    Sm,
    Of,
    Command,
}

/// The columns that fit from column `x` on.
pub(in crate::tui::screens) fn columns(
    canvas: &Canvas<'_>,
    x: u16,
    rows: &[ProcessRow<'_>],
) -> Vec<Column<Col>> {
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let mut wishes = vec![
        wish(Col::Gpu, "GPU", 3, 3, 2, true),
        wish(Col::Pid, "PID", 8, 8, 1, true),
        wish(Col::User, "USER", 8, 14, 0, false),
        wish(Col::Age, "AGE", 7, 7, 2, true),
        wish(Col::Memory, "MEM", 6, 6, 2, true),
        wish(Col::Sm, "SM", 5, 5, 2, true),
        wish(Col::Command, "COMMAND", 10, 400, 0, false),
    ];
    if let Some(widest) = widest_origin(rows) {
        let least = if canvas.width() < NARROW { widest.min(14) } else { widest };
        wishes.insert(wishes.len() - 1, wish(Col::Of, "PART OF", least, widest, 3, false));
    }
    fit(&wishes, x, canvas.width().saturating_sub(x + 1), 2)
}

/// Columns of the longest run or container that a process is part of.
pub(in crate::tui::screens) fn widest_origin(rows: &[ProcessRow<'_>]) -> Option<u16> {
    rows.iter().filter_map(|row| row.process.origin()).map(|origin| width(&origin)).max()
}

/// The heads of the columns.
pub(in crate::tui::screens) fn heads(canvas: &mut Canvas<'_>, y: u16, columns: &[Column<Col>]) {
    let dim = canvas.theme.dim;
    for column in columns {
        if column.right {
            canvas.right(column.x, y, column.w, column.title, dim);
        } else {
            canvas.text(column.x, y, column.w, column.title, dim);
        }
    }
}

/// One line.
pub(in crate::tui::screens) fn line(
    canvas: &mut Canvas<'_>,
    y: u16,
    columns: &[Column<Col>],
    row: &ProcessRow<'_>,
) {
    let (text, dim, accent) = (canvas.theme.text, canvas.theme.dim, canvas.theme.accent);
    let process = row.process;
    let has = |id: Col| columns.iter().any(|column| column.id == id);
    let (worded, has_origins) = (has(Col::Place), has(Col::Of));
    for column in columns {
        let (x, w) = (column.x, column.w);
        match column.id {
            Col::Gpu => canvas.right(x, y, w, &row.gpu.to_string(), text),
            Col::Place => drop(canvas.name(x, y, w, &place(row), text)),
            Col::Pid if worded => canvas.right(x, y, w, &format!("pid {}", process.pid), text),
            Col::Pid => canvas.right(x, y, w, &process.pid.to_string(), text),
            Col::User => drop(canvas.name(x, y, w, &reading(&process.user, Clone::clone), text)),
            Col::Age => canvas.right(x, y, w, &reading(&process.age_s, |age| age_words(*age)), text),
            Col::Memory => canvas.right(x, y, w, &reading(&process.memory, |b| units::bytes(*b)), text),
            Col::Sm => {
                let percent = reading(&process.sm_percent, |sm| format!("{sm} %"));
                canvas.right(x, y, w, &percent, text);
            }
            Col::Of => {
                let style = if process.run.is_some() { accent } else { dim };
                canvas.text(x, y, w, &process.origin().unwrap_or_default(), style);
            }
            Col::Command => {
                let origin = process.origin().filter(|_| worded && !has_origins);
                let style = if process.run.is_some() { accent } else { dim };
                let command = (reading(&process.command, Clone::clone), dim);
                let pieces: Vec<_> =
                    origin.map(|origin| (origin + "  ", style)).into_iter().chain([command]).collect();
                canvas.pieces(x, y, x + w, &pieces);
            }
        }
    }
}

/// The screen's column behind a column of the table, else behind the first.
pub(in crate::tui::screens) fn end_of(columns: &[Column<Col>], id: Col) -> u16 {
    let column = columns.iter().find(|column| column.id == id).or(columns.first());
    column.map_or(0, |column| column.x + column.w)
}

/// `gpu-a:3`.
pub(in crate::tui::screens) fn place(row: &ProcessRow<'_>) -> String {
    format!("{}:{}", row.host, row.gpu)
}

/// For how long something has been running: `42 s`, `12 min`, `2h14`, `1d 4h`, from 100 days on `100 d`.
pub(in crate::tui::screens) fn age_words(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..8_640_000 => units::duration_us(seconds * 1_000_000),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_takes_seven_columns() {
        let words = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 8_639_999, 86_400 * 999].map(age_words);
        assert_eq!(words, ["0 s", "59 s", "1 min", "59 min", "1h00", "23h59", "1d 0h", "99d 23h", "999 d"]);
    }
}
