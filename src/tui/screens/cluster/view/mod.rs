//! The Cluster screen: every GPU of every host on one list.
//!
//! ```text
//! title
//! filter                                 picks, what l does
//! HOST GPU MODEL UTIL MEM TEMP POWER HEALTH USER COMMAND LAST MINUTE
//! rows
//! footer
//! ```

mod columns;
pub(in crate::tui::screens) mod prompt;
mod row;

use row::Look;
pub(in crate::tui::screens) use row::mark_selected;

use crate::domain::units::ranges;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::cluster_list;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::Sieve;
use crate::tui::screens::cluster::picking::{picks_are_lost, range_lines};
use crate::tui::screens::cluster::rows::{Order, RowId, rows};
use crate::tui::screens::usage::Leases;
use crate::tui::screens::view::title;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    picks_line(model, canvas);
    let columns = columns::fitting(model, canvas.width());
    let dim = canvas.theme.dim;
    for column in &columns {
        if column.right {
            canvas.right(column.x, 2, column.w, column.title, dim);
        } else {
            canvas.text(column.x, 2, column.w, column.title, dim);
        }
    }
    let rows = rows(model);
    if rows.is_empty() {
        let text = if model.ui.cluster.filter.is_empty() {
            "no hosts: name some in hosts.toml, or start hvtui without --hosts for this machine"
        } else {
            "no GPU passes the filter · esc drops it"
        };
        canvas.text(2, 4, canvas.width() - 3, text, dim);
    }
    let band = cluster_list((canvas.width(), canvas.height()));
    let cursor = &model.ui.cluster.cursor;
    let look = Look { model, columns: &columns, leases: Leases::of(model) };
    let range = range_lines(model, &rows);
    for (line, row) in rows.iter().skip(cursor.offset).take(usize::from(band.h)).enumerate() {
        let in_range = range.as_ref().is_some_and(|range| range.contains(&(line + cursor.offset)));
        let selected = in_range || cursor.on.as_ref() == Some(row);
        let y = band.y + line as u16;
        row::draw(&look, canvas, y, row, selected);
    }
    let below = rows.len().saturating_sub(cursor.offset + usize::from(band.h));
    if below > 0 && band.h > 1 {
        more(canvas, band.y + band.h - 1, below, &rows);
    }
}

fn more(canvas: &mut Canvas<'_>, y: u16, below: usize, rows: &[RowId]) {
    let hidden = &rows[rows.len() - below..];
    let gpus = hidden.iter().filter(|row| matches!(row, RowId::Gpu(..))).count();
    let hosts = hidden.iter().filter(|row| matches!(row, RowId::Host(_))).count();
    let text = match (gpus, hosts) {
        (0, 0) => " ↓ more ".to_owned(),
        (0, _) => format!(" ↓ {hosts} more {} ", title::plural(hosts, "host")),
        _ => format!(" ↓ {gpus} more {} ", title::plural(gpus, "GPU")),
    };
    let (w, dim) = (width(&text), canvas.theme.dim);
    let x = canvas.width().saturating_sub(w);
    canvas.clear(x, y, w, 1);
    canvas.text(x, y, w, &text, dim);
}

fn picks_line(model: &Model, canvas: &mut Canvas<'_>) {
    let ui = &model.ui.cluster;
    let (accent, dim, text) = (canvas.theme.accent, canvas.theme.dim, canvas.theme.text);
    let half = canvas.width() / 2;
    let mut left = Vec::new();
    if !ui.filter_text.is_empty() {
        left.push((format!("/ {}   ", ui.filter_text), accent));
        left.push((format!("{}   ", Sieve::of(model).counts()), dim));
    }
    if ui.order != Order::File {
        left.push((format!("by {}   ", ui.order.name()), dim));
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
        pieces.push(("   l launch".to_owned(), dim));
        pieces
    };
    let total: u16 = right.iter().map(|(text, _)| width(text)).sum();
    // What the picks leave, and half of the line at least.
    let room = canvas.width().saturating_sub(total + 4).max(half).max(30);
    let x = canvas.pieces(1, 1, room, &left);
    let start = canvas.width().saturating_sub(total + 1).max(x + 2);
    let end = canvas.width() - 1;
    canvas.pieces(start, 1, end, &right);
}
