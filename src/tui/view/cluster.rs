//! The Cluster screen: every GPU of every host on one list.
//!
//! ```text
//! title
//! filter                                 picks, what l does
//! HOST GPU MODEL UTIL MEM TEMP POWER HEALTH USER COMMAND LAST MINUTE
//! rows
//! footer
//! ```

use super::cluster_row::{self, Col, Look};
use super::columns::{Column, Wish, fit};
use super::gpu_words::model_name;
use super::pen::{Pen, width};
use super::title;
use crate::domain::units::ranges;
use crate::domain::world::HostState;
use crate::tui::core::Model;
use crate::tui::core::layout::cluster_list;
use crate::tui::core::rows::{Order, RowId, name_width, rows};
use crate::tui::core::usage::Leases;

/// From this width on no name of a model is cut and every column says something whole.
const FULL: u16 = 110;

/// Draws the screen.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>) {
    title::draw(model, pen);
    picks_line(model, pen);
    let columns = columns(model, pen.width());
    let dim = pen.theme.dim;
    for column in &columns {
        if column.right {
            pen.right(column.x, 2, column.w, column.title, dim);
        } else {
            pen.text(column.x, 2, column.w, column.title, dim);
        }
    }
    let rows = rows(model);
    if rows.is_empty() {
        let text = if model.ui.cluster.filter.is_empty() {
            "no hosts: name some in hosts.toml, or start hvtui without --hosts for this machine"
        } else {
            "no GPU passes the filter · esc drops it"
        };
        pen.text(2, 4, pen.width() - 3, text, dim);
    }
    let band = cluster_list((pen.width(), pen.height()));
    let cursor = &model.ui.cluster.cursor;
    let look = Look { model, columns: &columns, leases: Leases::of(model) };
    for (line, row) in rows.iter().skip(cursor.offset).take(usize::from(band.h)).enumerate() {
        let selected = cursor.on.as_ref() == Some(row);
        let y = band.y + line as u16;
        cluster_row::draw(&look, pen, y, row, selected);
    }
    let below = rows.len().saturating_sub(cursor.offset + usize::from(band.h));
    if below > 0 && band.h > 1 {
        more(pen, band.y + band.h - 1, below, &rows);
    }
}

fn more(pen: &mut Pen<'_>, y: u16, below: usize, rows: &[RowId]) {
    let hidden = &rows[rows.len() - below..];
    let gpus = hidden.iter().filter(|row| matches!(row, RowId::Gpu(..))).count();
    let hosts = hidden.iter().filter(|row| matches!(row, RowId::Host(_))).count();
    let text = match (gpus, hosts) {
        (0, 0) => " ↓ more ".to_owned(),
        (0, _) => format!(" ↓ {hosts} more {} ", title::plural(hosts, "host")),
        _ => format!(" ↓ {gpus} more {} ", title::plural(gpus, "GPU")),
    };
    let (w, dim) = (width(&text), pen.theme.dim);
    let x = pen.width().saturating_sub(w);
    pen.clear(x, y, w, 1);
    pen.text(x, y, w, &text, dim);
}

fn picks_line(model: &Model, pen: &mut Pen<'_>) {
    let ui = &model.ui.cluster;
    let (accent, dim, text) = (pen.theme.accent, pen.theme.dim, pen.theme.text);
    let half = pen.width() / 2;
    let mut left = Vec::new();
    if !ui.filter_text.is_empty() {
        left.push((format!("/ {}   ", ui.filter_text), accent));
    }
    if ui.order != Order::File {
        left.push((format!("by {}   ", ui.order.name()), dim));
    }
    if let Some(count) = ui.count {
        left.push((format!("{count}: f picks {count} free"), accent));
    }
    let x = pen.pieces(1, 1, half.max(30), &left);
    let picked = ui.picked();
    let right = if picked == 0 {
        vec![("nothing picked".to_owned(), dim)]
    } else {
        let mut parts: Vec<String> = Vec::new();
        for host in model.host_order() {
            if let Some(gpus) = ui.picks.get(host) {
                parts.push(format!("{host} {}", ranges(gpus.keys().copied())));
            }
            if let Some(slots) = ui.cpu_picks.get(host) {
                parts.push(format!("{host} {slots} CPU"));
            }
        }
        vec![
            (format!("● {picked} picked"), accent),
            (format!(": {}", parts.join(" · ")), text),
            ("   l launch".to_owned(), dim),
        ]
    };
    let total: u16 = right.iter().map(|(text, _)| width(text)).sum();
    let start = pen.width().saturating_sub(total + 1).max(x + 2);
    let end = pen.width() - 1;
    pen.pieces(start, 1, end, &right);
}

fn columns(model: &Model, columns: u16) -> Vec<Column<Col>> {
    let name = name_width(model) as u16;
    let wish = |id, title, least, most, rank, right| Wish { id, title, least, most, rank, right };
    let no_gpu = |state: &HostState| state.info.as_ref().is_some_and(|info| info.gpus.is_empty());
    let mut told = model.world.hosts.values().filter(|state| state.info.is_some()).peekable();
    if told.peek().is_some() && told.all(no_gpu) {
        let wishes = [
            wish(Col::Host, "HOST", name, name, 0, false),
            wish(Col::Model, "CPUS", 8, 8, 3, false),
            wish(Col::UtilBar, "CPU", 6, if columns >= 160 { 16 } else { 8 }, 5, false),
            wish(Col::Util, if columns >= 80 { "" } else { "CPU" }, 5, 5, 0, true),
            wish(Col::Mem, "MEM", 10, 10, 0, true),
            wish(Col::MemBar, "", 6, 8, 6, false),
            wish(Col::Load, "LOAD", 6, 6, 2, true),
            wish(Col::Slots, "CPU SLOTS", 14, 16, 1, false),
            wish(Col::Why, "GPUS", 10, 60, 7, false),
            wish(Col::Spark, "LAST MINUTE", 12, if columns >= 160 { 30 } else { 12 }, 4, false),
        ];
        return fit(&wishes, 2, columns.saturating_sub(3), if columns >= 110 { 2 } else { 1 });
    }
    let wide = columns >= 160;
    let models = models_width(model);
    let model_least = if columns >= FULL { models } else { models.min(6) };
    let wishes = [
        wish(Col::Host, "HOST", name, name, 0, false),
        wish(Col::Gpu, "GPU", 4, 4, 0, true),
        wish(Col::Model, "MODEL", model_least, models, 7, false),
        wish(Col::UtilBar, "UTIL", 5, if wide { 12 } else { 8 }, 6, false),
        wish(Col::Util, if columns >= 90 { "" } else { "UTIL" }, 5, 5, 1, true),
        wish(Col::Mem, "MEM", 10, 10, 1, true),
        wish(Col::MemBar, "", 6, if wide { 12 } else { 6 }, 9, false),
        wish(Col::Temp, "TEMP", 4, 4, 3, true),
        wish(Col::Power, "POWER", 10, 10, 5, true),
        wish(Col::Health, "HEALTH", 11, if wide { 18 } else { 11 }, 4, false),
        wish(Col::User, "USER", 8, if wide { 12 } else { 8 }, 2, false),
        wish(Col::Command, "COMMAND", if columns >= FULL { 13 } else { 8 }, 60, 6, false),
        wish(Col::Spark, "LAST MINUTE", 12, if wide { 30 } else { 12 }, 5, false),
    ];
    fit(&wishes, 2, columns.saturating_sub(3), if wide { 2 } else { 1 })
}

/// Columns of the longest name of a model.
fn models_width(model: &Model) -> u16 {
    let gpus = model.world.hosts.values().filter_map(|state| state.info.as_ref()).flat_map(|info| &info.gpus);
    let named = gpus.filter(|gpu| gpu.uuid.is_readable());
    named.map(|gpu| width(model_name(&gpu.name))).max().unwrap_or(0).clamp(5, 16)
}
