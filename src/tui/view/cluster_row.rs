//! One row of the Cluster screen: a host's summary, a GPU, or a host that has trouble.

use ratatui::style::{Modifier, Style};

use super::bars::{gauge, peaks, spark};
use super::columns::Column;
use super::gpu_words::{
    command_words, health, holder_words, host_health, host_power, model_name, percent, power, reading, users,
};
use super::pen::Pen;
use super::title::plural;
use crate::domain::gpu::GpuSample;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::core::Model;
use crate::tui::core::rows::{
    RowId, Trouble, age, mean_util, memory, message_lines, message_width, name_width, trouble,
};
use crate::tui::core::usage::{GpuUse, Leases, gpu_use, memory_share};

/// Telemetry older than this is shown as old, microseconds.
const STALE_US: i64 = 3_500_000;
/// Time that a sparkline covers, microseconds.
const SPARK_US: i64 = 60_000_000;

/// A column of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Col {
    /// Host name.
    Host,
    /// GPU index, or how many.
    Gpu,
    /// What it is.
    Model,
    /// Utilisation as a bar.
    UtilBar,
    /// Utilisation in percent.
    Util,
    /// Memory used and total.
    Mem,
    /// Memory as a bar.
    MemBar,
    /// Degrees Celsius.
    Temp,
    /// Watts, drawn and allowed.
    Power,
    /// What holds the clocks down.
    Health,
    /// Who computes.
    User,
    /// What is computed.
    Command,
    /// The last minute.
    Spark,
    /// Load average of one minute; on clusters without GPUs.
    Load,
    /// CPU slots picked or free; on clusters without GPUs.
    Slots,
    /// Why there is no GPU; on clusters without GPUs.
    Why,
}

/// What all rows of a frame share.
pub(super) struct Look<'a> {
    /// The model.
    pub model: &'a Model,
    /// The columns that fit.
    pub columns: &'a [Column<Col>],
    /// Who has what.
    pub leases: Leases<'a>,
}

impl Look<'_> {
    fn column(&self, id: Col) -> Option<&Column<Col>> {
        self.columns.iter().find(|column| column.id == id)
    }
}

/// Draws a row at `y`.
pub(super) fn draw(look: &Look<'_>, pen: &mut Pen<'_>, y: u16, row: &RowId, selected: bool) {
    match row {
        RowId::Host(host) => host_row(look, pen, y, host),
        RowId::Gpu(host, uuid, place) => gpu_row(look, pen, y, host, uuid, *place),
        RowId::Note(host, line) => {
            let x = name_width(look.model) as u16 + 3;
            let lines = message_lines(look.model, host, message_width(look.model, pen.width()));
            let style = trouble_style(pen, look.model.world.hosts.get(host));
            let room = pen.width() - x;
            pen.text(x, y, room, lines.get(*line).map_or("", String::as_str), style);
        }
    }
    if selected {
        mark_selected(pen, y, look.column(Col::Gpu).map_or(12, |column| column.x + column.w));
    }
}

/// The cursor: a mark at the edge and the row's name turned round.
pub(super) fn mark_selected(pen: &mut Pen<'_>, y: u16, to: u16) {
    let accent = pen.theme.accent.add_modifier(Modifier::BOLD);
    pen.text(0, y, 1, "▌", accent);
    let blank = |x: &u16| pen.buf[(*x, y)].symbol() == " ";
    let to = to.min(pen.width());
    let from = (1..to).find(|x| !blank(x)).unwrap_or(1);
    for x in from..to {
        let cell = &mut pen.buf[(x, y)];
        let style = cell.style().add_modifier(Modifier::REVERSED);
        cell.set_style(style);
    }
}

fn trouble_style(pen: &Pen<'_>, state: Option<&HostState>) -> Style {
    match trouble(state) {
        Trouble::None => pen.theme.text,
        Trouble::Pending => pen.theme.dim,
        Trouble::Down | Trouble::Limited => pen.theme.warn,
        Trouble::Refused => pen.theme.bad,
    }
}

fn host_row(look: &Look<'_>, pen: &mut Pen<'_>, y: u16, host: &HostId) {
    let model = look.model;
    let state = model.world.hosts.get(host);
    let folded = model.ui.cluster.folded.contains(host);
    let no_gpu = state.and_then(|state| state.info.as_ref()).is_some_and(|info| info.gpus.is_empty());
    let picked = model.ui.cluster.cpu_picks.contains_key(host);
    let (glyph, style) = match trouble(state) {
        Trouble::None if picked => ("●", pen.theme.accent),
        Trouble::None if no_gpu => (" ", pen.theme.dim),
        Trouble::None => (if folded { "▸" } else { "▾" }, pen.theme.dim),
        Trouble::Pending => ("·", pen.theme.dim),
        Trouble::Limited => ("⚠", pen.theme.warn),
        Trouble::Down => ("✖", pen.theme.warn),
        Trouble::Refused => ("⚠", pen.theme.bad),
    };
    pen.text(1, y, 1, glyph, style);
    let name = name_width(model) as u16;
    let strong = pen.theme.strong();
    pen.name(2, y, name, host.as_str(), strong);
    match state.filter(|_| trouble(state) == Trouble::None) {
        None => {
            let lines = message_lines(model, host, message_width(model, pen.width()));
            let style = trouble_style(pen, state);
            let (x, room) = (name + 3, pen.width().saturating_sub(name + 4));
            pen.text(x, y, room, lines.first().map_or("", String::as_str), style);
        }
        Some(state) => summary(look, pen, y, host, state),
    }
}

/// How old the newest sample is, when that is worth a word.
fn stale(state: &HostState, now: Stamp) -> Option<String> {
    let (at, _) = state.latest()?;
    (now.micros_since(at) > STALE_US).then(|| format!("{} old", age(now, at)))
}

fn summary(look: &Look<'_>, pen: &mut Pen<'_>, y: u16, host: &HostId, state: &HostState) {
    let now = look.model.moment();
    let old = stale(state, now);
    let (value, fill) =
        if old.is_some() { (pen.theme.dim, pen.theme.dim) } else { (pen.theme.text, pen.theme.fill) };
    let Some(info) = &state.info else {
        if let Some(column) = look.column(Col::Util) {
            pen.right(column.x, y, column.w, "–", value);
        }
        return;
    };
    let gpus = info.gpus.len();
    let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
    for column in look.columns {
        let (x, w) = (column.x, column.w);
        match column.id {
            Col::Gpu => pen.right(x, y, w, &if gpus > 0 { gpus.to_string() } else { "–".to_owned() }, value),
            Col::Model => {
                let text = if gpus > 0 {
                    model_name(&info.gpus[0].name).to_owned()
                } else {
                    format!("{} {}", info.cpus, plural(info.cpus as usize, "CPU"))
                };
                pen.name(x, y, w, &text, value);
            }
            Col::UtilBar => util_bar(pen, x, y, w, mean_util(state), old.is_some()),
            Col::Util => pen.right(x, y, w, &percent(mean_util(state)), value),
            Col::Mem => {
                let text =
                    memory(state).map_or("–".to_owned(), |(used, total)| units::bytes_of(used, total));
                pen.right(x, y, w, &text, value);
            }
            Col::MemBar => {
                let share = memory(state).map(|(used, total)| used as f64 / total.max(1) as f64);
                pen.text(x, y, w, &gauge(share.unwrap_or(0.0), w), fill);
            }
            Col::Temp if gpus > 0 => {
                let hottest = samples.iter().filter_map(|gpu| gpu.temperature.value()).max();
                pen.right(x, y, w, &hottest.map_or("–".to_owned(), |t| format!("{t}°")), value);
            }
            Col::Power if gpus > 0 => pen.right(x, y, w, &host_power(samples), value),
            Col::Health if gpus > 0 => host_health(pen, x, y, w, samples),
            Col::User if gpus > 0 => {
                pen.text(x, y, w, &users(samples), value);
            }
            Col::Command if gpus > 0 => {
                let dim = pen.theme.dim;
                pen.text(x, y, w, &host_words(state, now, w), dim);
            }
            Col::Spark => {
                let values = state.samples.iter().map(|(at, sample)| {
                    let util = if sample.gpus.is_empty() {
                        sample.cpu_percent.value().map(|percent| f64::from(*percent))
                    } else {
                        mean(sample.gpus.iter().filter_map(|gpu| gpu.util.value()).map(|u| f64::from(*u)))
                    };
                    (*at, util.map(|util| util / 100.0))
                });
                let line = spark(&peaks(values, now, SPARK_US, w));
                pen.text(x, y, w, &line, fill);
            }
            Col::Load => {
                let load = state.latest().and_then(|(_, sample)| sample.load.value());
                pen.right(x, y, w, &load.map_or("–".to_owned(), |load| format!("{:.2}", load[0])), value);
            }
            Col::Slots => {
                let (words, style) = slot_words(look, pen, host);
                pen.text(x, y, w, &words, style);
            }
            Col::Why => {
                let dim = pen.theme.dim;
                let words = old.as_ref().map_or_else(String::new, |old| format!("{old} · "));
                pen.text(x, y, w, &format!("{words}{}", absence(state)), dim);
            }
            _ => {}
        }
    }
    if gpus == 0 && look.column(Col::Slots).is_none() {
        cpu_words(look, pen, y, host, state, old.as_deref());
    }
}

/// How many CPU slots are picked, else how many are free.
fn slot_words(look: &Look<'_>, pen: &Pen<'_>, host: &HostId) -> (String, Style) {
    let slots = look.model.cpu_slots(host);
    if let Some(picked) = look.model.ui.cluster.cpu_picks.get(host) {
        (format!("{picked} of {slots} picked"), pen.theme.accent)
    } else {
        let free = slots.saturating_sub(look.leases.cpus(host));
        (format!("{free} of {slots} free"), pen.theme.text)
    }
}

fn absence(state: &HostState) -> &'static str {
    let absence = state.info.as_ref().and_then(|info| info.gpu_absence.as_ref());
    absence.map_or("no GPU", |why| why.reason.explain())
}

/// What a host without GPUs says in the columns that only GPUs have.
fn cpu_words(
    look: &Look<'_>,
    pen: &mut Pen<'_>,
    y: u16,
    host: &HostId,
    state: &HostState,
    old: Option<&str>,
) {
    let is_free = |column: &&Column<Col>| {
        matches!(column.id, Col::Temp | Col::Power | Col::Health | Col::User | Col::Command)
    };
    let Some(first) = look.columns.iter().find(is_free) else { return };
    let Some(last) = look.columns.iter().rev().find(is_free) else { return };
    let (x, end) = (first.x + 1, last.x + last.w);
    let dim = pen.theme.dim;
    let mut pieces = Vec::new();
    if let Some(old) = old {
        pieces.push((format!("{old} · "), pen.theme.warn));
    }
    let (slots, style) = slot_words(look, pen, host);
    pieces.push((format!("CPU slots {slots}"), style));
    pieces.push((" · ".to_owned(), dim));
    if let Some([load, ..]) = state.latest().and_then(|(_, sample)| sample.load.value()) {
        pieces.push((format!("load {load:.2} · "), dim));
    }
    pieces.push((absence(state).to_owned(), dim));
    pen.pieces(x, y, end, &pieces);
}

/// What a host with GPUs says of itself in `width` columns: the most telling first, nothing cut.
fn host_words(state: &HostState, now: Stamp, width: u16) -> String {
    let latest = state.latest();
    let sample = latest.map(|(_, sample)| sample);
    let total = state.info.as_ref().and_then(|info| info.memory_total.value());
    let memory = sample.and_then(|sample| sample.memory_used.value()).zip(total);
    let all = [
        stale(state, now),
        sample.and_then(|sample| sample.cpu_percent.value()).map(|cpu| format!("cpu {cpu:.0} %")),
        sample.and_then(|sample| sample.load.value()).map(|load| format!("load {:.1}", load[0])),
        state.clock.rtt_us().map(|rtt| format!("rtt {}", units::duration_us(u64::from(rtt)))),
        memory.map(|(used, total)| format!("ram {}", units::bytes_of(*used, *total))),
    ];
    let mut words = String::new();
    for word in all.into_iter().flatten() {
        let gap = if words.is_empty() { "" } else { "  " };
        if super::pen::width(&words) + super::pen::width(gap) + super::pen::width(&word) <= width {
            words.push_str(gap);
            words.push_str(&word);
        }
    }
    words
}

fn gpu_row(look: &Look<'_>, pen: &mut Pen<'_>, y: u16, host: &HostId, uuid: &GpuUuid, place: usize) {
    let model = look.model;
    let Some(state) = model.world.hosts.get(host) else { return };
    let Some(gpu) = state.info.as_ref().and_then(|info| info.gpus.get(place)) else { return };
    let now = model.moment();
    let sample = state.latest().and_then(|(_, sample)| sample.gpus.get(place));
    let old = stale(state, now).is_some();
    let (value, fill) = if old { (pen.theme.dim, pen.theme.dim) } else { (pen.theme.text, pen.theme.fill) };
    let holder = gpu_use(host, state, place, &look.leases);
    let picked = model.ui.cluster.is_picked(host, uuid);
    for column in look.columns {
        let (x, w) = (column.x, column.w);
        match column.id {
            Col::Host => {}
            Col::Gpu => {
                let style = if picked { pen.theme.accent } else { value };
                if picked {
                    pen.text(x, y, 1, "●", style);
                }
                pen.right(x, y, w, &gpu.index.to_string(), style);
            }
            Col::Model => {
                pen.name(x, y, w, model_name(&gpu.name), value);
            }
            Col::Spark => {
                let util = |gpu: &GpuSample| gpu.util.value().map(|util| f64::from(*util) / 100.0);
                let values =
                    state.samples.iter().map(|(at, sample)| (*at, sample.gpus.get(place).and_then(util)));
                let line = spark(&peaks(values, now, SPARK_US, w));
                pen.text(x, y, w, &line, fill);
            }
            id => {
                let cell = Cell { x, y, w, value, old };
                match sample {
                    Some(sample) => sample_cell(pen, id, &cell, sample, &holder),
                    None if matches!(id, Col::Util | Col::Mem | Col::Temp | Col::Power) => {
                        pen.right(x, y, w, "–", value);
                    }
                    None => {}
                }
            }
        }
    }
}

struct Cell {
    x: u16,
    y: u16,
    w: u16,
    value: Style,
    old: bool,
}

fn sample_cell(pen: &mut Pen<'_>, id: Col, cell: &Cell, sample: &GpuSample, holder: &GpuUse) {
    let Cell { x, y, w, value, old } = *cell;
    match id {
        Col::UtilBar => {
            let util = sample.util.value().map(|util| f64::from(*util));
            util_bar(pen, x, y, w, util, old);
        }
        Col::Util => pen.right(x, y, w, &reading(&sample.util, |util| format!("{util} %")), value),
        Col::Mem => {
            let text = match (sample.memory_used.value(), sample.memory_total.value()) {
                (Some(used), Some(total)) => units::bytes_of(*used, *total),
                _ => reading(&sample.memory_used, |used| units::bytes(*used)),
            };
            pen.right(x, y, w, &text, value);
        }
        Col::MemBar => {
            let fill = if old { pen.theme.dim } else { pen.theme.fill };
            pen.text(x, y, w, &gauge(memory_share(sample).unwrap_or(0.0), w), fill);
        }
        Col::Temp => {
            let style = match sample.temperature.value() {
                Some(90..) if !old => pen.theme.bad,
                Some(83..) if !old => pen.theme.warn,
                _ => value,
            };
            pen.right(x, y, w, &reading(&sample.temperature, |t| format!("{t}°")), style);
        }
        Col::Power => pen.right(x, y, w, &power(sample), value),
        Col::Health => {
            let (text, style) = match holder {
                GpuUse::HeldIdle(idle) => {
                    (format!("idle {}", units::duration_us(idle.unsigned_abs())), pen.theme.warn)
                }
                _ => health(pen, sample),
            };
            pen.text(x, y, w, &text, if old { pen.theme.dim } else { style });
        }
        Col::User => {
            let (text, style) = holder_words(pen, sample, holder);
            pen.text(x, y, w, &text, style);
        }
        Col::Command => {
            let (text, style) = command_words(pen, sample, holder);
            pen.text(x, y, w, &text, style);
        }
        _ => {}
    }
}

fn util_bar(pen: &mut Pen<'_>, x: u16, y: u16, w: u16, util: Option<f64>, old: bool) {
    let style = if old { pen.theme.dim } else { pen.theme.good };
    pen.text(x, y, w, &gauge(util.unwrap_or(0.0) / 100.0, w), style);
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
