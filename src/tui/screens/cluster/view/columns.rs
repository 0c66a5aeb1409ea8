//! The columns of the Cluster screen, each in one place: its head, its widths, when it goes, and what stands in it on the
//! row of a host and on the row of a GPU. A new column is one entry here. Knows nothing of where rows lie.

use ratatui::style::Style;

use crate::domain::gpu::health::Unreadable;
use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::host::HostInfo;
use crate::domain::idle::idle_us;
use crate::domain::ids::{HostId, Rank};
use crate::domain::past::PastSample;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::{HostState, RunState};
use crate::tui::canvas::bars::{gauge, peaks, spark};
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::orders::HostOrder as Order;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{mean_util, memory, name_width, span};
use crate::tui::screens::cluster::view::rank_words::{lease_words, rank_words};
use crate::tui::screens::cluster::view::row::{Look, absence, host_words, slot_words};
use crate::tui::screens::faults::{OFF_BUS, faults};
use crate::tui::screens::run::view::clock_length;
use crate::tui::screens::usage::{GpuUse, memory_share};
use crate::tui::screens::view::gpu_words::{
    command_words, health, holder_words, host_health, host_power, model_name, percent, power, reading,
    silence, users,
};
use crate::tui::screens::view::title::plural;

/// Below this width the last minute takes fewer columns rather than none.
const NARROW: u16 = 90;
/// From this width on no name of a model is cut and every column says something whole.
const FULL: u16 = 110;
/// From this width on bars and words get more room.
const WIDE: u16 = 160;
/// Least columns of HEALTH: `ecc errors +4`, `no answer 46 s`.
const HEALTH: u16 = 14;
/// Time that a sparkline covers, microseconds.
const SPARK_US: i64 = 60_000_000;

/// Which column it is, for those who ask where one stands.
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
    /// What is wrong with it.
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

impl Col {
    /// The order that its head stands for.
    pub(super) fn order(self) -> Option<Order> {
        match self {
            Self::Host => Some(Order::Name),
            Self::Gpu => Some(Order::FreeGpus),
            Self::UtilBar | Self::Util | Self::Spark => Some(Order::Utilisation),
            Self::Mem | Self::MemBar => Some(Order::FreeMemory),
            Self::Temp => Some(Order::Temperature),
            Self::Power => Some(Order::Power),
            Self::Health => Some(Order::Health),
            Self::User => Some(Order::User),
            Self::Model => Some(Order::Model),
            Self::Command => Some(Order::Command),
            Self::Load | Self::Slots | Self::Why => None,
        }
    }
}

/// What widths depend on.
pub(super) struct Room {
    /// Columns of the screen.
    columns: u16,
    /// Columns of the longest name of a host.
    name: u16,
    /// Columns of the longest name of a model.
    model: u16,
    /// Columns of the longest reason why a host has no GPU.
    why: u16,
}

/// Columns that a cluster without GPUs needs beside the hosts' names and [`Col::Why`].
const CPUS_NEED: u16 = 43;

impl Room {
    /// Least columns of [`Col::Why`]: enough for most reasons where the screen has them.
    fn least_why(&self) -> u16 {
        self.why.min(24).min(self.columns.saturating_sub(self.name + CPUS_NEED)).max(10)
    }

    /// One of two widths.
    fn wide(&self, wide: u16, else_: u16) -> u16 {
        if self.columns >= WIDE { wide } else { else_ }
    }
}

/// A column.
pub(super) struct Spec {
    /// Which.
    pub(super) col: Col,
    /// Its title, and its least and most width: it is left out rather than made narrower, and never gets wider.
    head: fn(&Room) -> (&'static str, u16, u16),
    /// 0 stays longest.
    rank: u8,
    /// Whether title and numbers stand flush right.
    right: bool,
    /// Whether only GPUs have it: on the row of a host without GPUs other words stand there.
    pub(super) of_gpus: bool,
    /// Draws it on the row of a host.
    pub(super) host: fn(&HostRow<'_>, &mut Canvas<'_>, Area),
    /// Draws it on the row of a GPU.
    pub(super) gpu: fn(&GpuRow<'_>, &mut Canvas<'_>, Area),
}

/// Where a cell lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    /// First column.
    pub(super) x: u16,
    /// Line.
    pub(super) y: u16,
    /// Columns.
    pub(super) w: u16,
}

/// A host that is shown by its values.
pub(super) struct HostRow<'a> {
    pub(super) look: &'a Look<'a>,
    pub(super) host: &'a HostId,
    pub(super) state: &'a HostState,
    pub(super) info: &'a HostInfo,
    /// The newest, one a GPU; empty where none has come.
    pub(super) samples: &'a [GpuSample],
    pub(super) now: Stamp,
    /// How old they are, where that is worth a word.
    pub(super) old: Option<&'a str>,
    pub(super) value: Style,
    pub(super) fill: Style,
}

/// A GPU.
pub(super) struct GpuRow<'a> {
    pub(super) model: &'a Model,
    pub(super) state: &'a HostState,
    pub(super) gpu: &'a GpuInfo,
    /// Its place in the host's list.
    pub(super) place: usize,
    pub(super) sample: Option<&'a GpuSample>,
    pub(super) holder: &'a GpuUse,
    /// The run of ours that uses it.
    pub(super) run: Option<&'a RunState>,
    /// The rank by which that run is suspected to hang.
    pub(super) hung: Option<Rank>,
    pub(super) picked: bool,
    pub(super) now: Stamp,
    /// Whether its host is not reached, or it does not answer: its values are the last that it told.
    pub(super) lost: bool,
    /// How old they are where its host is not reached.
    pub(super) age: Option<&'a str>,
    /// Whether its values are old.
    pub(super) old: bool,
    pub(super) value: Style,
    pub(super) fill: Style,
}

/// The columns of a cluster with GPUs.
const GPUS: &[Spec] = &[
    column(Col::Host, |room| ("HOST", room.name, room.name), 0),
    Spec { right: true, host: gpu_count, gpu: gpu_index, ..column(Col::Gpu, |_| ("GPU", 4, 4), 0) },
    Spec {
        host: host_model,
        gpu: gpu_model,
        ..column(
            Col::Model,
            |room| ("MODEL", if room.columns >= FULL { room.model } else { room.model.min(6) }, room.model),
            7,
        )
    },
    Spec {
        host: host_util_bar,
        gpu: gpu_util_bar,
        ..column(Col::UtilBar, |room| ("UTIL", room.wide(12, 5), room.wide(12, 8)), 6)
    },
    Spec { right: true, host: host_util, gpu: gpu_util, ..column(Col::Util, |_| ("UTIL", 5, 5), 1) },
    Spec { right: true, host: host_mem, gpu: gpu_mem, ..column(Col::Mem, |_| ("MEM", 10, 10), 1) },
    Spec { host: host_mem_bar, gpu: gpu_mem_bar, ..column(Col::MemBar, |room| ("", 6, room.wide(12, 6)), 9) },
    Spec {
        right: true,
        of_gpus: true,
        host: host_temp,
        gpu: gpu_temp,
        ..column(Col::Temp, |_| ("TEMP", 4, 4), 3)
    },
    Spec {
        right: true,
        of_gpus: true,
        host: host_power_cell,
        gpu: gpu_power,
        ..column(Col::Power, |_| ("POWER", 10, 10), 5)
    },
    Spec {
        of_gpus: true,
        host: host_health_cell,
        gpu: gpu_health,
        ..column(Col::Health, |room| ("HEALTH", HEALTH, room.wide(18, HEALTH)), 4)
    },
    Spec {
        of_gpus: true,
        host: host_users,
        gpu: gpu_user,
        ..column(Col::User, |room| ("USER", 8, room.wide(12, 8)), 2)
    },
    Spec {
        of_gpus: true,
        host: host_says,
        gpu: gpu_command,
        // it has the free GPUs and the age of a host too: it stays longer than the sparkline, and on wide screens `rank 3 step
        // 812 wait 18 %` comes before a longer one
        ..column(
            Col::Command,
            |room| ("COMMAND", room.wide(26, if room.columns >= FULL { 13 } else { 8 }), 60),
            5,
        )
    },
    Spec {
        host: host_spark,
        gpu: gpu_spark,
        ..column(
            Col::Spark,
            |room| {
                if room.columns < NARROW {
                    ("LAST MIN", 8, 12)
                } else {
                    ("LAST MINUTE", 12, room.wide(30, 12))
                }
            },
            5,
        )
    },
];

/// The columns of a cluster that has no GPU at all.
const CPUS: &[Spec] = &[
    column(Col::Host, |room| ("HOST", room.name, room.name), 0),
    Spec { host: host_model, ..column(Col::Model, |_| ("CPUS", 8, 8), 5) },
    Spec { host: host_util_bar, ..column(Col::UtilBar, |room| ("CPU", 6, room.wide(16, 8)), 4) },
    Spec { right: true, host: host_util, ..column(Col::Util, |_| ("CPU", 5, 5), 0) },
    Spec { right: true, host: host_mem, ..column(Col::Mem, |_| ("MEM", 10, 10), 0) },
    Spec { host: host_mem_bar, ..column(Col::MemBar, |_| ("", 6, 8), 7) },
    Spec { right: true, host: host_load, ..column(Col::Load, |_| ("LOAD", 6, 6), 2) },
    Spec { host: host_slots, ..column(Col::Slots, |_| ("CPU SLOTS", 14, 16), 1) },
    Spec { host: host_why, ..column(Col::Why, |room| ("GPUS", room.least_why(), room.why), 3) },
    Spec { host: host_spark, ..column(Col::Spark, |room| ("LAST MINUTE", 12, room.wide(30, 12)), 6) },
];

/// A column flush left with nothing in it.
const fn column(col: Col, head: fn(&Room) -> (&'static str, u16, u16), rank: u8) -> Spec {
    Spec { col, head, rank, right: false, of_gpus: false, host: no_host, gpu: no_gpu }
}

/// The columns that fit into a screen of so many.
pub(super) fn fitting(model: &Model, columns: u16) -> Vec<Column<&'static Spec>> {
    let no_gpu = |state: &HostState| state.info.as_ref().is_some_and(|info| info.gpus.is_empty());
    let mut told = model.world.hosts.values().filter(|state| state.info.is_some()).peekable();
    let (specs, gap_from) =
        if told.peek().is_some() && told.all(no_gpu) { (CPUS, 110) } else { (GPUS, WIDE) };
    let (name, models, why) = (name_width(model) as u16, models_width(model), why_width(model));
    let room = Room { columns, name, model: models, why };
    let wish = |spec: &'static Spec| {
        let (title, least, most) = (spec.head)(&room);
        ColumnSpec { id: spec, title, least, most, rank: spec.rank, right: spec.right }
    };
    let wishes: Vec<ColumnSpec<&'static Spec>> = specs.iter().map(wish).collect();
    let mut columns = fit(&wishes, 2, columns.saturating_sub(3), if columns >= gap_from { 2 } else { 1 });
    // a bar has the head of the number behind it too; without one the number needs its own
    if columns.iter().any(|column| column.id.col == Col::UtilBar) {
        columns.iter_mut().filter(|column| column.id.col == Col::Util).for_each(|column| column.title = "");
    }
    columns
}

/// Columns of the longest reason why a host has no GPU.
fn why_width(model: &Model) -> u16 {
    let infos = model.world.hosts.values().filter_map(|state| state.info.as_ref());
    infos.map(|info| width(absence(info))).max().unwrap_or(0).max(10)
}

/// Columns of the longest name of a model.
fn models_width(model: &Model) -> u16 {
    let gpus = model.world.hosts.values().filter_map(|state| state.info.as_ref()).flat_map(|info| &info.gpus);
    let named = gpus.filter(|gpu| gpu.uuid.is_readable());
    // a slice is indented
    let shown = |gpu: &GpuInfo| width(gpu.short_model()) + if gpu.is_slice() { 2 } else { 0 };
    named.map(shown).max().unwrap_or(0).clamp(5, 16)
}

/// A cell that stays empty.
fn no_host(_: &HostRow<'_>, _: &mut Canvas<'_>, _: Area) {}

/// A cell that stays empty.
fn no_gpu(_: &GpuRow<'_>, _: &mut Canvas<'_>, _: Area) {}

fn right(canvas: &mut Canvas<'_>, at: Area, text: &str, style: Style) {
    canvas.right(at.x, at.y, at.w, text, style);
}

fn left(canvas: &mut Canvas<'_>, at: Area, text: &str, style: Style) {
    canvas.text(at.x, at.y, at.w, text, style);
}

fn gpu_count(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let text = match row.info.gpus.iter().filter(|gpu| gpu.counts()).count() {
        0 => "–".to_owned(),
        count => count.to_string(),
    };
    right(canvas, at, &text, row.value);
}

fn gpu_index(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let style = if row.picked { canvas.theme.accent } else { row.value };
    if row.picked {
        canvas.text(at.x, at.y, 1, "●", style);
    }
    right(canvas, at, &row.gpu.index.to_string(), style);
}

fn host_model(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let cpus = row.info.cpus;
    let gpus = &row.info.gpus;
    let text = match gpus.iter().find(|gpu| gpu.uuid.is_readable()) {
        Some(gpu) => model_name(&gpu.name).to_owned(),
        None if !gpus.is_empty() => "–".to_owned(),
        // a number without its unit says nothing
        None => Some(format!("{cpus} {}", plural(cpus as usize, "CPU")))
            .filter(|words| width(words) <= at.w)
            .unwrap_or_default(),
    };
    canvas.name(at.x, at.y, at.w, &text, row.value);
}

fn gpu_model(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let indent = if row.gpu.is_slice() { 2 } else { 0 };
    if indent > 0 {
        canvas.text(at.x, at.y, 1, "└", canvas.theme.dim);
    }
    let model = if row.gpu.uuid.is_readable() { row.gpu.short_model() } else { "–" };
    canvas.name(at.x + indent, at.y, at.w.saturating_sub(indent), model, row.value);
}

fn host_util_bar(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    util_bar(canvas, at, mean_util(row.state), row.old.is_some());
}

fn gpu_util_bar(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if let Some(sample) = row.sample {
        let percent = sample.slice_active().or(sample.util.value().copied());
        util_bar(canvas, at, percent.map(f64::from), row.old);
    }
}

fn util_bar(canvas: &mut Canvas<'_>, at: Area, util: Option<f64>, old: bool) {
    let style = if old { canvas.theme.dim } else { canvas.theme.good };
    left(canvas, at, &gauge(util.unwrap_or(0.0) / 100.0, at.w), style);
}

fn host_util(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    right(canvas, at, &percent(mean_util(row.state)), row.value);
}

/// A number of the sample; `–` where none has come.
fn number(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area, words: impl FnOnce(&GpuSample) -> String) {
    right(canvas, at, &row.sample.map_or("–".to_owned(), words), row.value);
}

fn gpu_util(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let util = |sample: &GpuSample| reading(&sample.util, |util| format!("{util} %"));
    number(row, canvas, at, |sample| sample.slice_active_words().unwrap_or_else(|| util(sample)));
}

fn host_mem(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let text = memory(row.state).map_or("–".to_owned(), |(used, total)| units::bytes_of(used, total));
    right(canvas, at, &text, row.value);
}

fn gpu_mem(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    number(row, canvas, at, |sample| match (sample.memory_used.value(), sample.memory_total.value()) {
        (Some(used), Some(total)) => units::bytes_of(*used, *total),
        _ => reading(&sample.memory_used, |used| units::bytes(*used)),
    });
}

fn host_mem_bar(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let share = memory(row.state).map(|(used, total)| used as f64 / total.max(1) as f64);
    left(canvas, at, &gauge(share.unwrap_or(0.0), at.w), row.fill);
}

fn gpu_mem_bar(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if let Some(sample) = row.sample {
        left(canvas, at, &gauge(memory_share(sample).unwrap_or(0.0), at.w), row.fill);
    }
}

fn host_temp(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if !row.info.gpus.is_empty() {
        let hottest = row.samples.iter().filter_map(|gpu| gpu.temperature.value()).max();
        right(canvas, at, &hottest.map_or("–".to_owned(), |t| format!("{t}°")), row.value);
    }
}

fn gpu_temp(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let Some(sample) = row.sample else { return right(canvas, at, "–", row.value) };
    let style = match sample.temperature.value() {
        Some(90..) if !row.old => canvas.theme.bad,
        Some(83..) if !row.old => canvas.theme.warn,
        _ => row.value,
    };
    right(canvas, at, &reading(&sample.temperature, |t| format!("{t}°")), style);
}

fn host_power_cell(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if !row.info.gpus.is_empty() {
        right(canvas, at, &host_power(row.samples), row.value);
    }
}

fn gpu_power(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    number(row, canvas, at, power);
}

fn host_health_cell(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let no_words = row.look.column(Col::Command).is_none();
    if let Some(old) = row.old.filter(|_| no_words && !row.info.gpus.is_empty()) {
        return left(canvas, at, old, canvas.theme.dim);
    }
    if !row.info.gpus.is_empty() {
        let all = row.info.gpus.iter().zip(row.samples);
        let worst = all
            .filter_map(|(info, gpu)| Some(faults(row.look.model, row.state, info, gpu).first()?.severity));
        let (text, style) = host_health(canvas, &worst.collect::<Vec<_>>(), row.samples);
        left(canvas, at, &text, style);
    }
}

fn gpu_health(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let Some(sample) = row.sample else { return };
    if let Some(age) = row.age {
        return left(canvas, at, age, canvas.theme.dim);
    }
    if let Some((since, why)) = silent_since(row.state, row.gpu, row.place) {
        let bad = canvas.theme.bad;
        return left(canvas, at, &silence(why, &span(row.now, since), at.w), bad);
    }
    let faults = faults(row.model, row.state, row.gpu, sample);
    let (text, style) = match (row.holder, idle_us(row.state, row.place)) {
        // acknowledged: it is no news any more, and not well either
        _ if faults.is_empty() && row.state.is_off_bus(row.gpu, row.model.moment()) => {
            (OFF_BUS.to_owned(), canvas.theme.dim)
        }
        (_, Some(idle)) if faults.is_empty() => {
            (format!("idle {}", clock_length(idle.unsigned_abs())), canvas.theme.warn)
        }
        (GpuUse::Divided(0), _) if faults.is_empty() => ("no slices".to_owned(), canvas.theme.warn),
        _ => health(canvas, &faults, sample, at.w),
    };
    left(canvas, at, &text, if row.old { canvas.theme.dim } else { style });
}

/// When a GPU that does not answer told something last, and why it does not.
pub(in crate::tui::screens) fn silent_since<'a>(
    state: &'a HostState,
    gpu: &GpuInfo,
    place: usize,
) -> Option<(Stamp, Unreadable<'a>)> {
    let (since, _) = state.last_values.get(&gpu.uuid)?;
    let (_, sample) = state.latest()?;
    Some((*since, Unreadable::of(sample.gpus.get(place)?)?))
}

fn host_users(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if !row.info.gpus.is_empty() {
        let no_words = row.look.column(Col::Command).is_none();
        let words = if no_words { host_words(row, at.w) } else { users(row.samples) };
        left(canvas, at, &words, row.value);
    }
}

fn gpu_user(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if let Some(sample) = row.sample {
        let (text, style) = holder_words(canvas, sample, row.holder);
        left(canvas, at, &text, if row.lost { canvas.theme.dim } else { style });
    }
}

fn host_says(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if !row.info.gpus.is_empty() {
        let dim = canvas.theme.dim;
        left(canvas, at, &host_words(row, at.w), dim);
    }
}

fn gpu_command(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    if let Some(sample) = row.sample {
        let of_rank = rank_words(row, canvas, at.w).or_else(|| lease_words(row, canvas, at.w));
        let (text, style) = of_rank.unwrap_or_else(|| command_words(canvas, sample, row.holder));
        left(canvas, at, &text, if row.lost { canvas.theme.dim } else { style });
    }
}

fn host_spark(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let values = row.state.past.iter().map(|past| (past.at, past.load()));
    left(canvas, at, &spark(&peaks(values, row.now, SPARK_US, at.w)), row.fill);
}

fn gpu_spark(row: &GpuRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let util = |past: &PastSample| past.gpus.get(row.place)?.util().map(f64::from);
    let values = row.state.past.iter().map(|past| (past.at, util(past)));
    left(canvas, at, &spark(&peaks(values, row.now, SPARK_US, at.w)), row.fill);
}

fn host_load(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let load = row.state.latest().and_then(|(_, sample)| sample.load.value());
    right(canvas, at, &load.map_or("–".to_owned(), |load| format!("{:.2}", load[0])), row.value);
}

fn host_slots(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let (words, style) = slot_words(row.look, canvas, row.host);
    left(canvas, at, &words, style);
}

fn host_why(row: &HostRow<'_>, canvas: &mut Canvas<'_>, at: Area) {
    let dim = canvas.theme.dim;
    let words = row.old.map_or_else(String::new, |old| format!("{old} · "));
    left(canvas, at, &format!("{words}{}", absence(row.info)), dim);
}
