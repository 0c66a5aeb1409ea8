//! One row of the Cluster screen: a host's summary, a GPU, or a host that has trouble.

use ratatui::style::{Modifier, Style};

use crate::domain::host::HostInfo;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::canvas::columns::Column;
use crate::tui::canvas::{Canvas, width as text_width};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{
    RowId, SILENT_US, Trouble, age, message_lines, message_width, span, trouble,
};
use crate::tui::screens::cluster::view::columns::{Area, Col, GpuRow, HostRow, Spec};
use crate::tui::screens::usage::{GpuUse, Leases, free_gpus, gpu_use};

/// What all rows of a frame share.
pub(super) struct Look<'a> {
    /// The model.
    pub model: &'a Model,
    /// The columns that fit.
    pub columns: &'a [Column<&'static Spec>],
    /// Columns of the longest name of a host.
    pub name: u16,
    /// Who has what.
    pub leases: Leases<'a>,
}

impl Look<'_> {
    /// Where a column stands, if it fits.
    pub(super) fn column(&self, col: Col) -> Option<&Column<&'static Spec>> {
        self.columns.iter().find(|column| column.id.col == col)
    }
}

/// Draws a row at `y`.
pub(super) fn draw(look: &Look<'_>, canvas: &mut Canvas<'_>, y: u16, row: &RowId, selected: bool) {
    match row {
        RowId::Host(host) => host_row(look, canvas, y, host),
        RowId::Gpu(host, uuid, place) => gpu_row(look, canvas, y, host, uuid, *place),
        RowId::Note(host, line) => {
            let x = look.name + 3;
            let lines = message_lines(look.model, host, message_width(look.name.into(), canvas.width()));
            let style = trouble_style(canvas, look.model.world.hosts.get(host));
            let room = canvas.width().saturating_sub(x);
            canvas.text(x, y, room, lines.get(*line).map_or("", String::as_str), style);
        }
    }
    if selected {
        mark_selected(canvas, y, look.column(Col::Gpu).map_or(12, |column| column.x + column.w));
    }
}

/// The cursor: a mark at the edge and the row's name turned round.
pub(in crate::tui::screens) fn mark_selected(canvas: &mut Canvas<'_>, y: u16, to: u16) {
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    canvas.text(0, y, 1, "▌", accent);
    let to = to.min(canvas.width());
    let from = (1..to).find(|x| canvas.cell(*x, y).symbol() != " ").unwrap_or(1);
    for x in from..to {
        let cell = canvas.cell(x, y);
        let style = cell.style().add_modifier(Modifier::REVERSED);
        cell.set_style(style);
    }
}

fn trouble_style(canvas: &Canvas<'_>, state: Option<&HostState>) -> Style {
    match trouble(state) {
        Trouble::None => canvas.theme.text,
        Trouble::Pending => canvas.theme.dim,
        Trouble::Down | Trouble::Limited => canvas.theme.warn,
        Trouble::Refused => canvas.theme.bad,
    }
}

fn host_row(look: &Look<'_>, canvas: &mut Canvas<'_>, y: u16, host: &HostId) {
    let model = look.model;
    let state = model.world.hosts.get(host);
    let folded = model.ui.cluster.folded.contains(host);
    let info = state.and_then(|state| state.info.as_deref());
    let no_gpu = info.is_some_and(|info| info.gpus.is_empty());
    let picked = model.ui.cluster.cpu_picks.contains_key(host);
    let (glyph, style) = match trouble(state) {
        Trouble::None if picked => ("●", canvas.theme.accent),
        Trouble::None if info.is_some_and(is_broken) => ("⚠", canvas.theme.warn),
        Trouble::None if no_gpu => (" ", canvas.theme.dim),
        Trouble::None => (if folded { "▸" } else { "▾" }, canvas.theme.dim),
        Trouble::Pending => ("·", canvas.theme.dim),
        Trouble::Limited => ("⚠", canvas.theme.warn),
        Trouble::Down => ("✖", canvas.theme.warn),
        Trouble::Refused => ("⚠", canvas.theme.bad),
    };
    canvas.text(1, y, 1, glyph, style);
    let name = look.name;
    let strong = canvas.theme.strong();
    canvas.name(2, y, name, host.as_str(), strong);
    match state.filter(|_| trouble(state) == Trouble::None) {
        None => {
            let lines = message_lines(model, host, message_width(name.into(), canvas.width()));
            let style = trouble_style(canvas, state);
            let (x, room) = (name + 3, canvas.width().saturating_sub(name + 4));
            canvas.text(x, y, room, lines.first().map_or("", String::as_str), style);
        }
        Some(state) => summary(look, canvas, y, host, state),
    }
}

/// How old the newest sample is, when that is worth a word.
fn stale(state: &HostState, now: Stamp) -> Option<String> {
    let (at, _) = state.latest()?;
    (now.micros_since(at) > SILENT_US).then(|| format!("{} old", age(now, at)))
}

fn summary(look: &Look<'_>, canvas: &mut Canvas<'_>, y: u16, host: &HostId, state: &HostState) {
    let now = look.model.moment();
    let old = stale(state, now);
    let (value, fill) = if old.is_some() {
        (canvas.theme.dim, canvas.theme.dim)
    } else {
        (canvas.theme.text, canvas.theme.fill)
    };
    let Some(info) = &state.info else {
        if let Some(column) = look.column(Col::Util) {
            canvas.right(column.x, y, column.w, "–", value);
        }
        return;
    };
    let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
    let row = HostRow { look, host, state, info, samples, now, old: old.as_deref(), value, fill };
    for column in look.columns {
        (column.id.host)(&row, canvas, Area { x: column.x, y, w: column.w });
    }
    if info.gpus.is_empty() && look.column(Col::Slots).is_none() {
        cpu_words(&row, canvas, y);
    }
}

/// How many CPU slots are picked, else how many are free.
pub(super) fn slot_words(look: &Look<'_>, canvas: &Canvas<'_>, host: &HostId) -> (String, Style) {
    let slots = look.model.cpu_slots(host);
    if let Some(picked) = look.model.ui.cluster.cpu_picks.get(host) {
        (format!("{picked} of {slots} picked"), canvas.theme.accent)
    } else {
        let free = slots.saturating_sub(look.leases.cpus(host));
        (format!("{free} of {slots} free"), canvas.theme.text)
    }
}

/// Why a host has no GPU.
pub(super) fn absence(info: &HostInfo) -> &'static str {
    info.gpu_absence.as_ref().map_or("no GPU", |why| why.reason.explain())
}

/// Whether a host has no GPU data because its driver is broken, not because it has no GPU.
pub(super) fn is_broken(info: &HostInfo) -> bool {
    info.gpus.is_empty() && info.gpu_absence.as_ref().is_some_and(|why| why.reason.is_fault())
}

/// What a host without GPUs says in the columns that only GPUs have.
fn cpu_words(row: &HostRow<'_>, canvas: &mut Canvas<'_>, y: u16) {
    let is_free = |column: &&Column<&'static Spec>| column.id.of_gpus;
    let Some(first) = row.look.columns.iter().find(is_free) else { return };
    let Some(last) = row.look.columns.iter().rev().find(is_free) else { return };
    let (x, end) = (first.x + 1, last.x + last.w);
    let dim = canvas.theme.dim;
    let mut pieces = Vec::new();
    if let Some(old) = row.old {
        pieces.push((format!("{old} · "), canvas.theme.warn));
    }
    let (slots, style) = slot_words(row.look, canvas, row.host);
    pieces.push((format!("CPU slots {slots}"), style));
    if is_broken(row.info) {
        pieces.push((" · ".to_owned(), dim));
        pieces.push((format!("no GPU data: {}", absence(row.info)), canvas.theme.warn));
    } else {
        pieces.push((format!(" · {}", absence(row.info)), dim));
    }
    if let Some([load, ..]) = row.state.latest().and_then(|(_, sample)| sample.load.value()) {
        pieces.push((format!(" · load {load:.2}"), dim));
    }
    canvas.pieces(x, y, end, &pieces);
}

/// How many of a host's GPUs ranks can be placed on now, and how many it has; whatever the filter lets through.
pub(super) fn free_count(
    model: &Model,
    host: &HostId,
    info: Option<&HostInfo>,
    leases: &Leases<'_>,
) -> (usize, usize) {
    let gpus = info.map_or(0, |info| info.gpus.iter().filter(|gpu| gpu.counts()).count());
    (free_gpus(model, host, leases).count(), gpus)
}

/// `free 3/8`: how many of a host's GPUs ranks can be placed on now.
pub(super) fn free_words(free: usize, gpus: usize) -> String {
    format!("free {free}/{gpus}")
}

/// What a host with GPUs says of itself in `width` columns: the most telling first, nothing cut.
pub(super) fn host_words(row: &HostRow<'_>, width: u16) -> String {
    let (state, now) = (row.state, row.now);
    let (free, gpus) = free_count(row.look.model, row.host, Some(row.info), &row.look.leases);
    let latest = state.latest();
    let sample = latest.map(|(_, sample)| sample);
    let total = state.info.as_ref().and_then(|info| info.memory_total.value());
    let memory = sample.and_then(|sample| sample.memory_used.value()).zip(total);
    let all = [
        stale(state, now),
        Some(free_words(free, gpus)),
        sample.and_then(|sample| sample.cpu_percent.value()).map(|cpu| format!("cpu {cpu:.0} %")),
        sample.and_then(|sample| sample.load.value()).map(|load| format!("load {:.1}", load[0])),
        state.clock.rtt_us().map(|rtt| format!("rtt {}", units::duration_us(u64::from(rtt)))),
        memory.map(|(used, total)| format!("ram {}", units::bytes_of(*used, *total))),
    ];
    let mut words = String::new();
    for word in all.into_iter().flatten() {
        let gap = if words.is_empty() { "" } else { "  " };
        if text_width(&words) + text_width(gap) + text_width(&word) <= width {
            words.push_str(gap);
            words.push_str(&word);
        }
    }
    words
}

fn gpu_row(look: &Look<'_>, canvas: &mut Canvas<'_>, y: u16, host: &HostId, uuid: &GpuUuid, place: usize) {
    let model = look.model;
    let Some(state) = model.world.hosts.get(host) else { return };
    let Some(gpu) = state.info.as_ref().and_then(|info| info.gpus.get(place)) else { return };
    let now = model.moment();
    // Of a host that is lost nothing is known but what it told last, and of a GPU that does not answer.
    let kept = state.last_values.get(uuid);
    let sample =
        kept.map(|(_, sample)| sample).or(state.latest().and_then(|(_, sample)| sample.gpus.get(place)));
    let lost = !matches!(trouble(Some(state)), Trouble::None | Trouble::Limited);
    // what was of now when the host was lost is as old as its last word
    let told = state.latest().map(|(at, _)| match state.down_since {
        Some(since) if since.micros_since(at) <= SILENT_US => since,
        _ => at,
    });
    let age = told.filter(|_| lost).map(|at| format!("{} old", span(now, at)));
    let lost = lost || kept.is_some();
    let old = lost || stale(state, now).is_some();
    let (value, fill) =
        if old { (canvas.theme.dim, canvas.theme.dim) } else { (canvas.theme.text, canvas.theme.fill) };
    let holder = match gpu_use(host, state, place, &look.leases) {
        // the processes that it had
        GpuUse::Unknown(_) if kept.is_some() => GpuUse::Busy,
        holder => holder,
    };
    let picked = model.ui.cluster.is_picked(host, uuid);
    let age = age.as_deref();
    let run = if let GpuUse::Run(run) = &holder { model.world.runs.get(run) } else { None };
    let hung = run.and_then(|run| model.world.alerts.hung_rank(&run.spec.id));
    let row = GpuRow {
        model,
        state,
        gpu,
        place,
        sample,
        holder: &holder,
        run,
        hung,
        picked,
        now,
        lost,
        age,
        old,
        value,
        fill,
    };
    for column in look.columns {
        (column.id.gpu)(&row, canvas, Area { x: column.x, y, w: column.w });
    }
}
