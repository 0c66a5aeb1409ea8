//! The Detail screen: one host or GPU with its history, its facts and its processes.

mod gpu;
mod topology;

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::domain::gpu::event::SeenEvent;
use crate::domain::gpu::{GpuInfo, mig};
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::lease::{Lease, Leases};
use crate::domain::past::PastSample;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::{graph, peaks};
use crate::tui::canvas::theme::Theme;
use crate::tui::core::Screen;
use crate::tui::core::words::{more_words, wrap};
use crate::tui::screens::cluster::rows::{RowId, age, message};
use crate::tui::screens::cluster::view::{mark_selected, silent_since};
use crate::tui::screens::faults::faults;
use crate::tui::screens::usage::{GpuUse, gpu_use};
use crate::tui::screens::view::gpu_words::{model_name, percent, reading};
use crate::tui::screens::view::processes as list;
use crate::tui::screens::view::title;
use crate::tui::screens::{Model, usage};

/// What is shown of the past, microseconds.
const SPAN_US: i64 = 300_000_000;

/// Events of a GPU that are shown.
const EVENTS: usize = 3;

/// Lines of what the host printed at login.
const BANNER_LINES: usize = 8;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    if let Some(row) = &model.ui.detail.on {
        let (w, h) = (canvas.width(), canvas.height());
        body(model, &mut canvas.part(0, 1, w, h - 1), row);
    }
}

/// The place in the list of the process on a row of the screen. How many lines stand above it only drawing tells.
pub(in crate::tui::screens) fn process_at(model: &Model, row: u16) -> Option<usize> {
    let (w, h) = model.area();
    let mut drawn = Buffer::empty(Rect::new(0, 0, w, h));
    let mut canvas = Canvas::new(&mut drawn, Theme::colourless());
    let (first, lines) =
        body(model, &mut canvas.part(0, 1, w, h.saturating_sub(1)), model.ui.detail.on.as_ref()?)?;
    let line = row.checked_sub(1).filter(|line| lines.contains(line))?;
    Some(first + usize::from(line - lines.start))
}

/// All of a host or GPU: its facts, its history, its processes. The last line stays free. Returns the first process that is
/// shown and the lines of all that are.
pub(in crate::tui::screens) fn body(
    model: &Model,
    canvas: &mut Canvas<'_>,
    row: &RowId,
) -> Option<(usize, Range<u16>)> {
    let Some(state) = model.world.hosts.get(row.host()) else {
        let dim = canvas.theme.dim;
        canvas.text(1, 1, canvas.width() - 2, &format!("{}   waiting to connect", row.host()), dim);
        return None;
    };
    let place = match row {
        RowId::Gpu(_, _, place) => Some(*place),
        _ => None,
    };
    heading(canvas, row, state, place);
    let mut y = facts(model, canvas, 1, row, state, place);
    y += u16::from(canvas.height() > 19);
    y = graphs(model, canvas, y, state, place);
    processes(model, canvas, y, row, state)
}

fn heading(canvas: &mut Canvas<'_>, row: &RowId, state: &HostState, place: Option<usize>) {
    let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
    let mut x = canvas.name(1, 0, canvas.width().saturating_sub(14).min(40), row.host().as_str(), strong) + 2;
    if let Some(gpu) = place.and_then(|place| state.info.as_ref()?.gpus.get(place)) {
        let name = match gpu.parent {
            Some(whole) => format!("slice {} of GPU {whole}", gpu.index),
            None => format!("GPU {}", gpu.index),
        };
        x = canvas.text(x, 0, 20, &name, strong) + 2;
        canvas.text(x, 0, canvas.width().saturating_sub(x), &format!("{}   {}", gpu.name, gpu.uuid), dim);
    }
}

fn facts(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    row: &RowId,
    state: &HostState,
    place: Option<usize>,
) -> u16 {
    let now = model.moment();
    let mut lines: Vec<(String, bool)> = Vec::new();
    let mut is_old = false;
    if let Some(message) = message(row.host(), Some(state), now, &model.zone) {
        let message = model.hosts_option.with(&message);
        lines.extend(wrap(&message, usize::from(canvas.width()) - 3).into_iter().map(|line| (line, true)));
    }
    let latest = state.latest();
    let room = canvas.height().saturating_sub(y + 8).max(2);
    match (place, latest) {
        (Some(place), Some((at, sample))) => {
            let info = state.info.as_ref().and_then(|info| info.gpus.get(place));
            let silent = info.and_then(|gpu| silent_since(state, gpu, place));
            if let Some((since, why)) = silent {
                lines.push((
                    format!("last answer {} ago: {}", age(now, since), sanitize(&why.sentence())),
                    true,
                ));
            }
            let last = info.and_then(|gpu| state.last_values.get(&gpu.uuid)).map(|(_, last)| last);
            is_old = last.is_some();
            if let Some((info, gpu)) = info.zip(last.or(sample.gpus.get(place))) {
                let width = usize::from(canvas.width()) - 3;
                let faults = faults(model, state, info, gpu);
                let mut health = gpu::health(info, gpu, (&faults, state.is_off_bus(info, now)), width);
                // what was fine before it fell silent is no news
                health.retain(|_| silent.is_none() || !faults.is_empty());
                // first, for in a short pane the last ones have no room
                lines.extend(health.into_iter().map(|line| (line, !faults.is_empty())));
                lines.extend(gpu::lines(info, gpu, width).into_iter().map(|line| (line, false)));
                lines.extend(event_lines(state, info, now, width));
            }
            let lease = info.and_then(|gpu| state.leases.as_ref()?.of(&gpu.uuid));
            lines.extend(lease.map(|lease| (lease_words(lease, state, now), false)));
            match gpu_use(row.host(), state, place, &usage::Leases::of(model)) {
                GpuUse::Divided(slices) => lines.push((mig::words(slices), slices == 0)),
                GpuUse::Unseen(words) => lines.push((words, true)),
                GpuUse::Unknown(why) if silent.is_none() => {
                    lines.push((format!("it is not known whether it is free: {why}"), true));
                }
                _ => {}
            }
            if silent.is_none() {
                lines.push((format!("sampled {} ago", age(now, at)), false));
            }
        }
        _ => {
            if let Some(info) = &state.info {
                let width = usize::from(canvas.width()) - 3;
                for words in host_words(model, row, state, info) {
                    lines.extend(wrap(&words, width).into_iter().map(|line| (line, false)));
                }
                lines.extend(topology_lines(info, width, usize::from(room).saturating_sub(lines.len())));
            }
        }
    }
    let warn = canvas.theme.warn;
    let plain = if is_old { canvas.theme.dim } else { canvas.theme.text };
    let mut at = y;
    for (line, is_trouble) in lines.iter().take(usize::from(room)) {
        canvas.text(1, at, canvas.width() - 2, line, if *is_trouble { warn } else { plain });
        at += 1;
    }
    at
}

/// What has happened to a GPU, the newest first, with what to do.
fn event_lines(state: &HostState, info: &GpuInfo, now: Stamp, width: usize) -> Vec<(String, bool)> {
    let words = |seen: &SeenEvent| {
        format!("{} ago  {} · {}", age(now, seen.last), seen.words(), seen.event.what.remedy())
    };
    let newest = state.gpu_events.of(&info.uuid).take(EVENTS);
    newest.flat_map(|seen| wrap(&words(seen), width)).map(|line| (line, true)).collect()
}

/// The matrix of a host's GPUs where it fits into `room` lines, else how many it needs.
fn topology_lines(info: &HostInfo, width: usize, room: usize) -> Vec<(String, bool)> {
    let Some(matrix) = topology::matrix(info, width) else { return Vec::new() };
    let lines = if matrix.len() <= room {
        matrix
    } else if room > 0 {
        vec![format!("the matrix of the GPUs needs {} more lines", matrix.len() - room)]
    } else {
        Vec::new()
    };
    lines.into_iter().map(|line| (line, false)).collect()
}

fn host_words(model: &Model, row: &RowId, state: &HostState, info: &HostInfo) -> Vec<String> {
    let memory = reading(&info.memory_total, |bytes| units::bytes(*bytes));
    let hostname = sanitize(&info.hostname);
    let hostname = if hostname == row.host().as_str() { String::new() } else { format!("{hostname} · ") };
    let mut lines = vec![format!(
        "{hostname}{} · Linux {} {} · {} CPUs · {memory} memory · hvtui {}",
        sanitize(&info.user),
        sanitize(&info.kernel),
        sanitize(&info.arch),
        info.cpus,
        sanitize(&info.agent_version)
    )];
    let addresses: Vec<String> =
        info.addresses.iter().map(|own| format!("{} {}", sanitize(&own.interface), own.address)).collect();
    let rtt = state.clock.rtt_us().map_or("–".to_owned(), |us| units::duration_us(u64::from(us)));
    let clock =
        state.clock.uncertainty_us().map_or("–".to_owned(), |us| format!("±{:.2} ms", f64::from(us) / 1e3));
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(" · ") };
    lines.push(format!("{addresses} · rtt {rtt} · clock {clock} · {} samples lost", state.dropped));
    match &info.gpu_absence {
        Some(absence) => {
            lines.push(format!("no GPU: {} ({})", absence.reason.explain(), sanitize(&absence.detail)));
        }
        None => lines.push(format!(
            "{} × {}{} · driver {} · CUDA {} · NCCL {}",
            mig::whole(&info.gpus).count(),
            info.gpus.first().map_or("–", |gpu| model_name(&gpu.name)),
            mig::and_slices(&info.gpus),
            reading(&info.driver, Clone::clone),
            reading(&info.cuda_driver, Clone::clone),
            reading(&info.nccl, Clone::clone)
        )),
    }
    lines.extend(topology::summary(info));
    lines.extend(state.leases.as_ref().and_then(|leases| queue_words(leases, &info.gpus)));
    if let Some((at, sample)) = state.latest() {
        let slots = model.cpu_slots(row.host());
        let slots =
            if slots > 0 { format!(" · {}", units::counted(slots, "CPU slot")) } else { String::new() };
        lines.push(format!("{}{slots} · sampled {} ago", live_words(sample), age(model.moment(), at)));
    }
    if let Some(login) = &info.login {
        lines.push(format!("logged in by {}", sanitize(login)));
    }
    if let Some(build) = &info.agent_build {
        lines.push(format!("agent sha256 {}", sanitize(build)));
    }
    if let Some(banner) = &info.banner {
        lines.push("printed at login:".to_owned());
        lines.extend(banner.lines().take(BANNER_LINES).map(|line| format!("│ {}", sanitize(line))));
    }
    lines
}

/// `leased by li for run 7QK2 (mnist), rank 0, for 3m`.
fn lease_words(lease: &Lease, state: &HostState, now: Stamp) -> String {
    let rank = lease.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
    let since = lease.since.and_then(|since| state.clock.stamp(since));
    let since = since.map(|since| format!(", for {}", age(now, since))).unwrap_or_default();
    sanitize(&format!("leased by {}{rank}{since}", lease.holder())).into_owned()
}

/// How many GPUs are leased, one that is cut by its slices, and who waits for one.
fn queue_words(leases: &Leases, gpus: &[GpuInfo]) -> Option<String> {
    if let Some(fault) = &leases.fault {
        return Some(sanitize(fault).into_owned());
    }
    let waits: Vec<String> =
        leases.queue.iter().map(|ticket| format!("{} ({})", ticket.user, ticket.name)).collect();
    let waits = if waits.is_empty() { String::new() } else { format!(" · waiting: {}", waits.join(", ")) };
    let gpu = |lease: &Lease| gpus.iter().find(|gpu| gpu.uuid == lease.gpu);
    let held = leases.held.iter().filter(|lease| gpu(lease).is_none_or(GpuInfo::counts)).count();
    let words = format!("{held} {} leased{waits}", title::plural(held, "GPU"));
    (held > 0 || !leases.queue.is_empty()).then(|| sanitize(&words).into_owned())
}

fn live_words(sample: &HostSample) -> String {
    format!(
        "cpu {} · mem {} · load {} · net in {}/s out {}/s",
        percent(sample.cpu_percent.value().map(|value| f64::from(*value))),
        reading(&sample.memory_used, |bytes| units::bytes(*bytes)),
        reading(&sample.load, |load| format!("{:.2} {:.2} {:.2}", load[0], load[1], load[2])),
        reading(&sample.net_rx, |bytes| units::bytes(*bytes)),
        reading(&sample.net_tx, |bytes| units::bytes(*bytes))
    )
}

type Curve = (&'static str, String, Vec<(Stamp, Option<f64>)>);

fn curves(state: &HostState, place: Option<usize>) -> Vec<Curve> {
    let curve = |name, of: &dyn Fn(&PastSample) -> Option<f32>| {
        let values: Vec<_> = state.past.iter().map(|past| (past.at, of(past).map(f64::from))).collect();
        let now = values.last().and_then(|(_, share)| *share);
        (name, percent(now.map(|share| share * 100.0)), values)
    };
    let Some(place) = place else {
        return vec![curve("cpu", &|past| past.cpu), curve("memory", &|past| past.memory)];
    };
    let gpu = |past: &PastSample| past.gpus.get(place).copied();
    let memory = curve("memory", &|past| gpu(past)?.memory());
    let info = state.info.as_ref().and_then(|info| info.gpus.get(place));
    if info.is_some_and(GpuInfo::is_slice) {
        return vec![memory];
    }
    let util = curve("util", &|past| gpu(past)?.util());
    vec![util, memory, curve("power of limit", &|past| gpu(past)?.power())]
}

fn graphs(model: &Model, canvas: &mut Canvas<'_>, y: u16, state: &HostState, place: Option<usize>) -> u16 {
    if state.past.is_empty() {
        return y;
    }
    let curves = curves(state, place);
    let room = canvas.height().saturating_sub(y + 5);
    let each = (room / curves.len().max(1) as u16).clamp(2, 7);
    let height = each - 1;
    let (text, dim, good) = (canvas.theme.text, canvas.theme.dim, canvas.theme.good);
    let mut at = y;
    for (name, now, values) in curves {
        if at + each > canvas.height().saturating_sub(3) {
            break;
        }
        canvas.rule(at, &[(name.to_owned(), text), (format!("   {now} now · 5 min"), dim)]);
        let w = canvas.width() - 2;
        let columns = peaks(values.into_iter(), model.moment(), SPAN_US, w);
        for (line, row) in graph(&columns, height).iter().zip(at + 1..) {
            canvas.text(1, row, w, line, good);
        }
        at += each;
    }
    at
}

fn processes(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    row: &RowId,
    state: &HostState,
) -> Option<(usize, Range<u16>)> {
    let (_, sample) = state.latest()?;
    let (text, dim, bad) = (canvas.theme.text, canvas.theme.dim, canvas.theme.bad);
    let end = canvas.height().saturating_sub(1);
    if sample.gpus.is_empty() || y + 1 >= end {
        return None;
    }
    let (rows, failure) = super::processes(model, row);
    // below those that are told
    let end = if let Some(error) = &failure {
        let line = if rows.is_empty() { y + 1 } else { end - 1 };
        canvas.text(2, line, canvas.width() - 3, error, bad);
        line
    } else {
        end
    };
    let head = |canvas: &mut Canvas<'_>, hidden: Option<String>| {
        let hidden = hidden.map_or_else(String::new, |hidden| format!("   {hidden}"));
        canvas.rule(y, &[("processes".to_owned(), text), (format!("   {}{hidden}", rows.len()), dim)]);
    };
    if rows.is_empty() {
        head(canvas, None);
        if failure.is_none() {
            canvas.text(2, y + 1, canvas.width() - 3, "no process is visible here", dim);
        }
        return None;
    }
    let columns = list::columns(canvas, 2, &rows);
    // with the heads of the columns where there is room for more than one line
    let heads = u16::from(end - y > 2);
    if heads > 0 {
        list::heads(canvas, y + 1, &columns);
    }
    let top = y + 1 + heads;
    // beside the list of the Cluster screen there is no cursor in them
    let here = model.ui.screen == Screen::Detail;
    let cursor = if here { model.ui.detail.cursor.index.min(rows.len() - 1) } else { 0 };
    let first = (cursor + 1).saturating_sub(usize::from(end.saturating_sub(top)));
    for ((at, row), line) in rows.iter().enumerate().skip(first).zip(top..end) {
        list::line(canvas, line, &columns, row);
        if here && at == cursor {
            mark_selected(canvas, line, list::end_of(&columns, list::Col::Pid));
        }
    }
    let shown = u16::try_from(rows.len() - first).unwrap_or(u16::MAX);
    let below = usize::from(shown.saturating_sub(end.saturating_sub(top)));
    head(canvas, more_words(first, below));
    Some((first, top..top.saturating_add(shown).min(end)))
}
