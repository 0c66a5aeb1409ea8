//! The Cluster screen: every GPU of every host on one list.
//!
//! ```text
//! title
//! filter, order                          picks, what L does
//! HOST GPU MODEL UTIL MEM TEMP POWER HEALTH USER COMMAND LAST MINUTE  │ the selected
//! rows, in one table or two; or a cell a GPU                          │ one in detail
//! footer
//! ```

mod columns;
mod heat;
pub(in crate::tui::screens) mod prompt;
mod rank_words;
mod row;

use columns::Spec;
pub(in crate::tui::screens) use columns::silent_since;
pub(in crate::tui::screens) use heat::{cell_at, grid};
use row::Look;
pub(in crate::tui::screens) use row::mark_selected;

use crate::domain::units::ranges;
use crate::tui::canvas::columns::Column;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::orders::{HostOrder as Order, HostsOrdered};
use crate::tui::core::words::more_words;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::Sieve;
use crate::tui::screens::cluster::picking::{picks_are_lost, range_lines, range_size};
use crate::tui::screens::cluster::rows::{RowId, name_width, rows};
use crate::tui::screens::cluster::shape::Shape;
use crate::tui::screens::detail::view as detail;
use crate::tui::screens::events::view as events;
use crate::tui::screens::usage::Leases;
use crate::tui::screens::view::title;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    let shape = Shape::of(model);
    let rows = rows(model);
    picks_line(model, canvas, shape, &rows);
    if shape.heat {
        heat::draw(model, canvas, shape, &rows);
    } else {
        tables(model, canvas, shape, &rows);
    }
    if rows.is_empty() {
        let text = if model.ui.cluster.filter.is_empty() {
            "no hosts: name some in hosts.toml, or start hvtui without --hosts for this machine"
        } else {
            "no GPU passes the filter · esc drops it"
        };
        let dim = canvas.theme.dim;
        canvas.text(2, 4, shape.table.saturating_sub(3), text, dim);
    }
    if let Some((x, y, w, h)) = shape.side {
        let canvas = &mut canvas.part(x, y, w, h);
        match &model.ui.cluster.cursor.on {
            _ if shape.cards => cards(model, canvas, &rows),
            Some(row) => side(model, canvas, row, x > 0),
            None => {}
        }
    }
    events::below_cluster(model, canvas);
}

/// The selected host or GPU, beside the list behind a thin line, or below it.
fn side(model: &Model, canvas: &mut Canvas<'_>, row: &RowId, beside: bool) {
    let dim = canvas.theme.dim;
    let (w, h) = (canvas.width(), canvas.height());
    if beside {
        for y in 0..h {
            canvas.text(0, y, 1, "│", dim);
        }
        detail::body(model, &mut canvas.part(1, 0, w - 1, h), row);
    } else {
        let title = if matches!(row, RowId::Gpu(..)) { "selected GPU" } else { "selected host" };
        let text = canvas.theme.text;
        canvas.rule(0, &[(title.to_owned(), text)]);
        detail::body(model, &mut canvas.part(0, 1, w, h - 1), row);
    }
}

/// The GPUs of the list, a card each, side by side below it.
fn cards(model: &Model, canvas: &mut Canvas<'_>, rows: &[RowId]) {
    let gpus: Vec<&RowId> = rows.iter().filter(|row| matches!(row, RowId::Gpu(..))).collect();
    let (dim, text, h) = (canvas.theme.dim, canvas.theme.text, canvas.height());
    canvas.rule(0, &[(title::plural(gpus.len(), "GPU"), text)]);
    let w = canvas.width() / (gpus.len().max(1) as u16);
    for (nth, row) in (0..).zip(gpus) {
        let x = nth * w;
        if nth > 0 {
            (1..h).for_each(|y| {
                canvas.text(x, y, 1, "│", dim);
            });
        }
        let line = u16::from(nth > 0);
        detail::body(model, &mut canvas.part(x + line, 1, w - line, h - 1), row);
    }
}

/// The rows, in one table or in two.
fn tables(model: &Model, canvas: &mut Canvas<'_>, shape: Shape, rows: &[RowId]) {
    let columns = columns::fitting(model, shape.table);
    let cursor = &model.ui.cluster.cursor;
    let look = Look { model, columns: &columns, name: name_width(model) as u16, leases: Leases::of(model) };
    let range = range_lines(model, rows);
    let list = &rows[cursor.offset.min(rows.len())..];
    for (nth, rows) in
        list.chunks(usize::from(shape.lines).max(1)).take(usize::from(shape.tables)).enumerate()
    {
        let x = nth as u16 * shape.table;
        let mut canvas = canvas.part(x, 2, shape.table, shape.lines + 1);
        head(model, &mut canvas, &columns);
        if let Some(row @ (RowId::Gpu(..) | RowId::Note(..))) = rows.first() {
            // its host stands above what is seen, or at the end of the table before
            let (dim, name) = (canvas.theme.dim, look.name);
            canvas.name(2, 1, name, row.host().as_str(), dim);
        }
        for (line, row) in rows.iter().enumerate() {
            let at = cursor.offset + nth * usize::from(shape.lines) + line;
            let in_range = range.as_ref().is_some_and(|range| range.contains(&at));
            let selected = in_range || cursor.on.as_ref() == Some(row);
            row::draw(&look, &mut canvas, 1 + line as u16, row, selected);
        }
    }
}

fn head(model: &Model, canvas: &mut Canvas<'_>, columns: &[Column<&Spec>]) {
    let (dim, accent) = (canvas.theme.dim, canvas.theme.accent);
    for column in columns {
        let sorted = column.id.col.order() == Some(model.settings.hosts.by);
        let style = if sorted { accent } else { dim };
        if column.right {
            canvas.right(column.x, 0, column.w, column.title, style);
        } else {
            canvas.text(column.x, 0, column.w, column.title, style);
        }
    }
}

/// The order that a click on a cell of the screen asks for: that of the column whose head lies there.
pub(in crate::tui::screens) fn order_at(model: &Model, x: u16, y: u16) -> Option<Order> {
    let shape = Shape::of(model);
    if y != 2 || shape.heat || x >= shape.table * shape.tables {
        return None;
    }
    let x = x % shape.table;
    let columns = columns::fitting(model, shape.table);
    columns.iter().find(|column| (column.x..column.x + column.w).contains(&x))?.id.col.order()
}

/// What stands above and below the rows that are seen: `↑ 4 ↓ 31 more GPUs`.
fn more(model: &Model, shape: Shape, rows: &[RowId]) -> Option<String> {
    let first = model.ui.cluster.cursor.offset.min(rows.len());
    let (above, from) = rows.split_at(first);
    let below = from.get(shape.height()..).unwrap_or_default();
    if shape.heat || above.is_empty() && below.is_empty() {
        return None;
    }
    let count = |is_counted: fn(&RowId) -> bool| {
        let of = |rows: &[RowId]| rows.iter().filter(|row| is_counted(row)).count();
        (of(above), of(below))
    };
    let (counts, what) = match count(|row| matches!(row, RowId::Gpu(..))) {
        (0, 0) => (count(|row| matches!(row, RowId::Host(_))), "host"),
        gpus => (gpus, "GPU"),
    };
    Some(match more_words(counts.0, counts.1) {
        Some(more) => format!("{more} {}", title::plural(counts.0 + counts.1, what)),
        None if below.is_empty() => "↑ more".to_owned(),
        None => "↓ more".to_owned(),
    })
}

fn picks_line(model: &Model, canvas: &mut Canvas<'_>, shape: Shape, rows: &[RowId]) {
    let ui = &model.ui.cluster;
    let (accent, dim, text) = (canvas.theme.accent, canvas.theme.dim, canvas.theme.text);
    let half = canvas.width() / 2;
    let mut left = Vec::new();
    if let Some(gpus) = range_size(model, rows) {
        let words = format!("range of {gpus} {}: space picks, esc drops   ", title::plural(gpus, "GPU"));
        left.push((words, accent));
    }
    if !ui.filter_text.is_empty() {
        left.push((format!("/ {}   ", ui.filter_text), accent));
        left.push((format!("{}   ", Sieve::of(model).counts()), dim));
    }
    let hosts = model.settings.hosts;
    if hosts != HostsOrdered::default() {
        let reversed = if hosts.reversed { ", reversed" } else { "" };
        left.push((format!("sort: {}{reversed}   ", hosts.by.name()), dim));
    }
    let picked = ui.picked();
    let right = if picked == 0 {
        vec![("nothing picked".to_owned(), dim)]
    } else {
        let mut pieces = vec![(format!("● {picked} picked"), accent)];
        for host in model.host_order() {
            let gpus = ui.picks.get(host).map(|gpus| ranges(gpus.keys().copied()));
            let slots = ui.cpu_picks.get(host).map(|slots| format!("{slots} CPU"));
            let lost = picks_are_lost(model, host);
            for what in [gpus, slots].into_iter().flatten() {
                pieces.push((if pieces.len() == 1 { ": " } else { " · " }.to_owned(), text));
                pieces.push((format!("{host} {what}"), text));
                pieces.extend(lost.then(|| (" (down)".to_owned(), canvas.theme.warn)));
            }
        }
        pieces.push(("   L launch".to_owned(), dim));
        pieces
    };
    let total: u16 = right.iter().map(|(text, _)| width(text)).sum();
    // What the picks leave, and half of the line at least.
    let room = canvas.width().saturating_sub(total + 4).max(half).max(30);
    let used: u16 = left.iter().map(|(text, _)| width(text)).sum();
    left.extend(
        more(model, shape, rows).filter(|more| 1 + used + width(more) <= room).map(|more| (more, dim)),
    );
    let x = canvas.pieces(1, 1, room, &left);
    let start = canvas.width().saturating_sub(total + 1).max(x + 2);
    let end = canvas.width() - 1;
    canvas.pieces(start, 1, end, &right);
}
