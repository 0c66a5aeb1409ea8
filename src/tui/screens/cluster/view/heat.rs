//! The cells: one a GPU, shaded by its utilisation, a line a host. What a colour says a glyph says too.

use ratatui::style::{Modifier, Style};

use crate::domain::gpu::GpuSample;
use crate::domain::gpu::health::Severity;
use crate::domain::idle::idle_us;
use crate::domain::ids::HostId;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::canvas::bars::level;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::heat::{Grid, MOST_CELLS, hosts};
use crate::tui::screens::cluster::picking::range_lines;
use crate::tui::screens::cluster::rows::{RowId, Trouble, mean_util, memory, message, name_width, trouble};
use crate::tui::screens::cluster::shape::Shape;
use crate::tui::screens::cluster::view::row::{absence, free_count, free_words, is_broken};
use crate::tui::screens::faults::faults;
use crate::tui::screens::usage::{GpuUse, Leases, gpu_use, memory_share};
use crate::tui::screens::view::gpu_words::{host_power, percent, users, worst};

/// What the glyphs mean.
const LEGEND: &str = "· free  ▁▄▇ in use  ○ held, idle  ● picked  × fault  ? unknown";
/// The same where no colour tells which GPU is to be looked at, in more words and in fewer.
const LEGENDS_PLAIN: [&str; 2] = [
    "· free  ▁▄▇ in use  ○ held, idle  ● picked  × fault  ! to check  ? unknown",
    "· free  ▁▄▇ used  ○ idle  ● picked  × fault  ! check  ? unknown",
];
/// The same of a GPU whose MIG slices stand behind it.
const LEGEND_MIG: &str = "  [ cut by MIG";

/// The most GPUs that a host has.
fn cells(model: &Model) -> usize {
    let gpus = |state: &HostState| state.info.as_ref().map_or(0, |info| info.gpus.len());
    model.world.hosts.values().map(gpus).max().unwrap_or(0).min(MOST_CELLS)
}

/// Columns of a host's name, and of its cells.
fn widths(model: &Model) -> (u16, u16) {
    (name_width(model) as u16, cells(model) as u16)
}

/// The grid of these rows.
pub(in crate::tui::screens) fn grid(model: &Model, shape: Shape, rows: &[RowId]) -> Grid {
    grid_of(shape, hosts(rows).len(), widths(model))
}

fn grid_of(shape: Shape, hosts: usize, (name, cells): (u16, u16)) -> Grid {
    Grid::new(hosts, (shape.table.saturating_sub(1), shape.lines), 1 + name + 1 + cells + 1)
}

/// The page of hosts that holds the cursor: its first host.
fn first_of_page(model: &Model, grid: Grid, hosts: &[(&HostId, std::ops::Range<usize>)]) -> usize {
    let at = model.ui.cluster.cursor.index;
    let host = hosts.iter().position(|(_, range)| range.contains(&at)).unwrap_or(0);
    host - host % grid.page()
}

/// The row under a cell of the screen.
pub(in crate::tui::screens) fn cell_at(
    model: &Model,
    shape: Shape,
    rows: &[RowId],
    column: u16,
    row: u16,
) -> Option<usize> {
    let (hosts, (name, cells)) = (hosts(rows), widths(model));
    let grid = grid_of(shape, hosts.len(), (name, cells));
    let nth = grid.at(column.checked_sub(1)?, row.checked_sub(shape.y)?)?;
    let (_, range) = hosts.get(first_of_page(model, grid, &hosts) + nth)?;
    let inside = (column - 1) % grid.width;
    let cell = usize::from(inside.saturating_sub(name + 1));
    let at = range.start + first_cell(model, &rows[range.clone()]) + cell;
    (cell < usize::from(cells).max(1)).then_some(at).filter(|at| *at < range.end)
}

/// Draws the cells below a legend.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, shape: Shape, rows: &[RowId]) {
    let (hosts, wide) = (hosts(rows), widths(model));
    let grid = grid_of(shape, hosts.len(), wide);
    let first = first_of_page(model, grid, &hosts);
    let shown = hosts.len().saturating_sub(first).min(grid.page());
    let dim = canvas.theme.dim;
    let page = format!("{}–{} of {}", first + 1, first + shown, hosts.len());
    let has_slices = |row: &RowId| matches!(row, RowId::Gpu(_, uuid, _) if uuid.is_slice());
    let seen = hosts.iter().skip(first).take(grid.page());
    let is_cut = seen.clone().any(|(_, range)| rows[range.clone()].iter().any(has_slices));
    let room = shape.table.saturating_sub(2);
    let legends: &[&str] = if canvas.theme.is_colored() { &[LEGEND] } else { &LEGENDS_PLAIN };
    let page = (hosts.len() > grid.page()).then_some(page);
    canvas.text(1, 2, room, &legend(legends, is_cut, page, room), dim);
    let leases = Leases::of(model);
    let range = range_lines(model, rows);
    for (nth, (host, of_host)) in seen.enumerate() {
        let (x, y) = grid.place(nth);
        let mut canvas = canvas.part(1 + x, shape.y + y, grid.width, 1);
        let selected = |at: usize| {
            let at = of_host.start + at;
            rows.get(at) == model.ui.cluster.cursor.on.as_ref()
                || range.as_ref().is_some_and(|range| range.contains(&at))
        };
        host_line((model, &leases), wide, &mut canvas, (host, &selected), &rows[of_host.clone()]);
    }
}

/// The legend, and which hosts are shown where that is not all: the longest words that fit.
fn legend(legends: &[&str], is_cut: bool, page: Option<String>, room: u16) -> String {
    let mig = if is_cut { LEGEND_MIG } else { "" };
    let Some(page) = page else {
        let mut all = legends.iter().map(|legend| format!("{legend}{mig}"));
        let shortest = legends.last().copied().unwrap_or_default();
        return all.find(|words| width(words) <= room).unwrap_or_else(|| format!("{shortest}{mig}"));
    };
    let mut all = legends.iter().flat_map(|legend| {
        [
            format!("{legend}{mig}   hosts {page}"),
            format!("{legend}   hosts {page}"),
            format!("{legend}   {page}"),
        ]
    });
    all.find(|words| width(words) <= room).unwrap_or(format!("hosts {page}"))
}

/// The first cell that is shown of a host: of many those around the cursor.
fn first_cell(model: &Model, rows: &[RowId]) -> usize {
    let on = model.ui.cluster.cursor.on.as_ref();
    let at = rows.iter().position(|row| Some(row) == on).unwrap_or(0);
    (at + 1).saturating_sub(MOST_CELLS)
}

/// Draws a host; the names take so many columns, and the cells. `marked`: whether a cell is the selected one, or one of the
/// range.
fn host_line(
    (model, leases): (&Model, &Leases<'_>),
    (name, cells): (u16, u16),
    canvas: &mut Canvas<'_>,
    (host, marked): (&HostId, &dyn Fn(usize) -> bool),
    rows: &[RowId],
) {
    let on = model.ui.cluster.cursor.on.as_ref();
    let selected = on.is_some_and(|on| on.host() == host);
    let state = model.world.hosts.get(host);
    let lost = !matches!(trouble(state), Trouble::None | Trouble::Limited);
    let style = match (selected, lost) {
        (true, _) => canvas.theme.accent.add_modifier(Modifier::BOLD),
        (false, true) => canvas.theme.bad,
        _ => canvas.theme.text,
    };
    canvas.name(0, 0, name, host.as_str(), style);
    let mut x = name + 1;
    let has_cells = matches!(rows.first(), Some(RowId::Gpu(..)));
    if lost {
        canvas.text(if has_cells { name } else { x }, 0, 1, "✖", canvas.theme.bad);
    }
    for (at, row) in rows.iter().enumerate().skip(first_cell(model, rows)).take(MOST_CELLS) {
        let RowId::Gpu(_, uuid, place) = row else { continue };
        let picked = model.ui.cluster.is_picked(host, uuid);
        let (glyph, style) = state.map_or(('?', canvas.theme.dim), |state| {
            cell(canvas, (host, state), *place, (model, leases), (picked, lost))
        });
        let style = if marked(at) { style.add_modifier(Modifier::REVERSED) } else { style };
        canvas.text(x, 0, 1, glyph.encode_utf8(&mut [0; 4]), style);
        x += 1;
    }
    if lost || !has_cells {
        let broken = state.and_then(|state| state.info.as_deref()).filter(|info| is_broken(info));
        let (style, at) = match (lost, broken) {
            (true, _) => (canvas.theme.bad, if has_cells { x + 1 } else { x + 2 }),
            (false, Some(_)) => (canvas.theme.warn, x),
            (false, None) => (canvas.theme.dim, x),
        };
        let room = canvas.width().saturating_sub(at + 1);
        let words = match (message(host, state, model.moment(), &model.zone), broken) {
            (Some(words), _) => model.hosts_option.with(&words),
            (None, Some(info)) => {
                let all = [format!("⚠ no GPU data: {}", absence(info)), "⚠ no GPU data".to_owned()];
                all.into_iter().find(|words| width(words) <= room).unwrap_or_else(|| "⚠ no GPU".to_owned())
            }
            (None, None) => "no GPU".to_owned(),
        };
        canvas.text(at, 0, room, &words, style);
        return;
    }
    let Some(state) = state else { return };
    numbers(model, leases, canvas, name + 1 + cells + 1, (host, state));
}

/// What of a host's numbers fits behind its cells, the most useful first.
fn numbers(
    model: &Model,
    leases: &Leases<'_>,
    canvas: &mut Canvas<'_>,
    mut at: u16,
    (host, state): (&HostId, &HostState),
) {
    let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
    let (free, gpus) = free_count(model, host, state.info.as_deref(), leases);
    let (text, dim, good) = (canvas.theme.text, canvas.theme.dim, canvas.theme.good);
    let memory = memory(state).map_or("–".to_owned(), |(used, total)| units::bytes_of(used, total));
    let hottest = samples.iter().filter_map(|gpu| gpu.temperature.value()).max();
    // named where the utilisation fits behind it
    let (named, w) = (free_words(free, gpus), width(&free_words(gpus, gpus)));
    let (free_words, w) =
        if at + w + 7 <= canvas.width() { (named, w) } else { (format!("{free}/{gpus}"), 5) };
    let words: [(String, u16, Style); 6] = [
        (free_words, w, if free > 0 { good } else { dim }),
        (percent(mean_util(state)), 5, text),
        (memory, 10, text),
        (hottest.map_or("–".to_owned(), |t| format!("{t}°")), 4, text),
        (host_power(samples), 10, text),
        (users(samples), 8, text),
    ];
    for (word, w, style) in words {
        if at + w + 1 > canvas.width() {
            break;
        }
        canvas.right(at, 0, w.max(width(&word).min(canvas.width().saturating_sub(at + 1))), &word, style);
        at += w + 1;
    }
}

/// Glyph and style of a GPU.
fn cell(
    canvas: &Canvas<'_>,
    (host, state): (&HostId, &HostState),
    place: usize,
    (model, leases): (&Model, &Leases<'_>),
    (picked, lost): (bool, bool),
) -> (char, Style) {
    let theme = &canvas.theme;
    let sample = state.latest().and_then(|(_, sample)| sample.gpus.get(place));
    let info = state.info.as_ref().and_then(|info| info.gpus.get(place));
    let (Some(sample), Some(info)) = (sample, info) else { return ('?', theme.dim) };
    if picked {
        return ('●', theme.accent);
    }
    if lost {
        return (shade(sample), theme.dim);
    }
    let worst = worst(&faults(model, state, info, sample), sample);
    if worst == Some(Severity::Act) {
        return ('×', theme.bad);
    }
    match gpu_use(host, state, place, leases) {
        GpuUse::Free => ('·', theme.good),
        GpuUse::HeldIdle(_) | GpuUse::Run(_) | GpuUse::Leased { .. } if idle_us(state, place).is_some() => {
            ('○', theme.warn)
        }
        GpuUse::Unknown(_) => ('?', theme.dim),
        GpuUse::Divided(_) => ('[', theme.dim),
        // its colour says that it is to be looked at, else a glyph
        _ if worst.is_some() && !theme.is_colored() => ('!', theme.warn),
        _ if worst.is_some() => (shade(sample), theme.warn),
        _ => (shade(sample), theme.text),
    }
}

/// By utilisation; that of a MIG slice is not told, so its memory says how much of it is used.
fn shade(sample: &GpuSample) -> char {
    let util = sample.util.value().map(|util| f64::from(*util) / 100.0);
    let share = util.or_else(|| memory_share(sample).filter(|_| sample.is_slice()));
    share.map_or('?', |share| level(Some(share)))
}
