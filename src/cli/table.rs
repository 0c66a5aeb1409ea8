//! `watch --once`: the world as a table of text. Pure; writes nothing that drives a terminal.
//!
//! ```text
//! HOST      state, facts and live values of the host
//!   GPU MODEL  UTIL  MEM  TEMP  POWER  SM CLOCK  HEALTH  USER  STATE      one line a GPU
//!       pid user memory command                             one line a process on it
//! ```

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::config::HostConfig;
use crate::domain::gpu::event::{GpuEvents, all_faults};
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::host::{HostInfo, HostSample, LinkState};
use crate::domain::lease::Lease;
use crate::domain::occupancy::Occupancy;
use crate::domain::text::{in_list, plain, sanitize};
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, bytes_of, counted, duration_us, middle_cut};
use crate::domain::world::{HostState, World};
use crate::launcher::inventory;

/// The most columns of HEALTH and USER.
const HEALTH: usize = 14;
const USER: usize = 12;

/// The world as it is at `now`, hosts in the order of `hosts`, lines of at most `width` columns, each ended by
/// a line feed. A value that is not known is `–`, one that the device does not have `n/a`.
pub fn render(world: &World, hosts: &[HostConfig], now: Stamp, width: usize) -> String {
    let name_width = hosts.iter().map(|host| host.id.as_str().width()).max().unwrap_or(0);
    let mut out = String::new();
    for config in hosts {
        let mut lines = Vec::new();
        host(config, world.hosts.get(&config.id), now, (name_width, width), &mut lines);
        for line in lines {
            out.push_str(end_cut(&line, width).trim_end());
            out.push('\n');
        }
    }
    out
}

/// The alerts that go on, one a line, below an empty one.
pub fn alerts(world: &World, width: usize) -> String {
    let lines: Vec<String> = world
        .alerts
        .active()
        .map(|alert| format!("{}\n", end_cut(&format!("▲ {}", alert.sentence()), width).trim_end()))
        .collect();
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

fn host(
    config: &HostConfig,
    state: Option<&HostState>,
    now: Stamp,
    (name_width, width): (usize, usize),
    lines: &mut Vec<String>,
) {
    let head = |words: &str| format!("{:name_width$}  {words}", config.id);
    let limited = state.and_then(|state| match &state.link {
        Some((_, LinkState::Limited { reason })) => Some(sanitize(reason)),
        _ => None,
    });
    let up = state.filter(|state| state.is_up() || limited.is_some());
    let (Some(state), Some(info)) = (up, up.and_then(|state| state.info.as_deref())) else {
        lines.push(head(&link_words(config, state, now)));
        return;
    };
    let latest = state.latest();
    lines.push(head(&live_words(info, latest, state.clock.rtt_us(), now)));
    let slots = if limited.is_some() { 0 } else { inventory::slots(config.slots, info).len() };
    if let Some(reason) = &limited {
        lines.push(format!("  values by the host's own tools, takes no ranks: {reason}"));
    }
    if info.gpus.is_empty() {
        let why = info.gpu_absence.as_ref().map_or_else(
            || "no GPU".to_owned(),
            |absence| format!("no GPU: {} ({})", absence.reason.explain(), sanitize(&absence.detail)),
        );
        lines.push(format!("  {} · {why}", counted(slots, "CPU slot")));
        return;
    }
    if config.slots != crate::config::SlotCount::Auto && limited.is_none() {
        let slots = counted(slots, "CPU slot");
        lines.push(format!("  {slots} by the hosts file; runs leave its GPUs alone"));
    }
    gpus(config, info, state, (now, width), lines);
    let queue = state.leases.iter().flat_map(|leases| &leases.queue);
    lines.extend(queue.map(|ticket| {
        sanitize(&format!("  waiting for GPUs: {} ({})", ticket.user, ticket.name)).into_owned()
    }));
    let fault = state.leases.iter().filter_map(|leases| leases.fault.as_deref());
    lines.extend(fault.map(|fault| format!("  {}", sanitize(fault))));
}

/// `leased by li for run 7QK2 (mnist) for 3m`.
fn lease(lease: &Lease, state: &HostState, now: Stamp) -> String {
    let since = lease.since.and_then(|since| state.clock.stamp(since));
    let since = since.map(|since| format!(" for {}", age(since, now))).unwrap_or_default();
    sanitize(&format!("      leased by {}{since}", lease.holder())).into_owned()
}

/// What is known of a host that does not answer.
fn link_words(config: &HostConfig, state: Option<&HostState>, now: Stamp) -> String {
    let Some((since, link)) = state.and_then(|state| state.link.as_ref()) else {
        return "not tried yet".to_owned();
    };
    let plain = |reason| plain(&config.id, reason);
    let words = match link {
        LinkState::Connecting { to } => format!("connecting to {to}"),
        LinkState::Installing { bytes: 0 } => "starting the agent".to_owned(),
        LinkState::Installing { bytes: size } => format!("putting hvtui there ({})", bytes(*size)),
        LinkState::Up => "up, its facts have not come yet".to_owned(),
        LinkState::Limited { reason } => format!("takes no ranks: {}", plain(reason)),
        LinkState::Down { reason, .. } => format!("down for {}: {}", age(*since, now), plain(reason)),
        LinkState::Refused { reason, .. } => format!("refused: {}", in_list(plain(reason))),
    };
    let seen = state
        .and_then(HostState::latest)
        .map_or(String::new(), |(at, _)| format!(" · last values {} ago", age(at, now)));
    sanitize(&format!("{words}{seen}")).into_owned()
}

fn live_words(info: &HostInfo, latest: Option<(Stamp, &HostSample)>, rtt: Option<u32>, now: Stamp) -> String {
    let sample = latest.map(|(_, sample)| sample);
    let cpu = show(sample.map(|s| &s.cpu_percent), |v| format!("{v:.0} %"));
    let load = show(sample.map(|s| &s.load), |v| format!("{:.1}", v[0]));
    let memory = memory(sample.map(|s| &s.memory_used), &info.memory_total);
    let mut words =
        vec![format!("{} CPUs {cpu}", info.cpus), format!("load {load}"), format!("mem {memory}")];
    if let Reading::Value(driver) = &info.driver {
        words.push(format!("driver {}", sanitize(driver)));
    }
    words.push(latest.map_or("no values yet".to_owned(), |(at, _)| format!("age {}", age(at, now))));
    words.extend(rtt.map(|rtt| format!("rtt {}", duration_us(u64::from(rtt)))));
    words.join(" · ")
}

/// A column of the GPUs' table.
struct Column {
    head: &'static str,
    cells: Vec<String>,
    is_left: bool,
    /// Columns of the widest cell; for the last one of the head.
    width: usize,
}

/// Which columns go first where a terminal is too narrow for all: what can be had from others, then what one acts on least.
const SPARE: [&str; 5] = ["SM CLOCK", "STATE", "POWER", "TEMP", "MODEL"];

fn columns(config: &HostConfig, info: &HostInfo, state: &HostState, now: Stamp) -> Vec<Column> {
    let sample = state.latest().map(|(_, sample)| sample);
    let live =
        |gpu: &GpuInfo| sample.and_then(|sample| sample.gpus.iter().find(|live| live.index == gpu.index));
    let column = |head: &'static str, is_left, least: usize, of: &dyn Fn(&GpuInfo) -> String| {
        let cells: Vec<String> = info.gpus.iter().map(of).collect();
        let width = cells.iter().map(|cell| cell.width()).max().unwrap_or(0);
        Column { head, cells, is_left, width: width.max(head.len()).max(least) }
    };
    let user = |gpu: &GpuInfo| {
        let held = state.leases.as_ref().and_then(|leases| leases.of(&gpu.uuid));
        let occupancy = Occupancy::of(gpu, state.leases.as_ref(), live(gpu), config.free_memory)
            .unless_off_bus(state.is_off_bus(gpu, now));
        middle_cut(&sanitize(&user(held, live(gpu), occupancy.is_free())), USER)
    };
    let health =
        |gpu: &GpuInfo| middle_cut(&sanitize(&health((&state.gpu_events, now), gpu, live(gpu))), HEALTH);
    let util = |gpu: &GpuInfo| {
        let slice = live(gpu).and_then(GpuSample::slice_active_words);
        slice.unwrap_or_else(|| show(live(gpu).map(|g| &g.util), |v| format!("{v} %")))
    };
    let memory = |gpu: &GpuInfo| {
        let live = live(gpu);
        memory(live.map(|g| &g.memory_used), live.map_or(&gpu.memory_total, |g| &g.memory_total))
    };
    let mut state = column("STATE", true, 0, &|gpu| gpu_state(live(gpu)));
    // it is cut at the end of the line
    state.width = state.head.len();
    vec![
        column("GPU", false, 3, &|gpu| gpu.index.to_string()),
        column("MODEL", true, 5, &model),
        column("UTIL", false, 5, &util),
        column("MEM", false, 11, &memory),
        column("TEMP", false, 4, &|gpu| show(live(gpu).map(|g| &g.temperature), |v| format!("{v}°"))),
        column("POWER", false, 9, &|gpu| power(live(gpu))),
        column("SM CLOCK", false, 8, &|gpu| show(live(gpu).map(|g| &g.clock_sm_mhz), |v| format!("{v} MHz"))),
        column("HEALTH", true, 0, &health),
        column("USER", true, 4, &user),
        state,
    ]
}

/// The columns that `width` has room for.
fn fitting(mut columns: Vec<Column>, width: usize) -> Vec<Column> {
    for spare in SPARE {
        let total: usize = columns.iter().map(|column| column.width + 2).sum();
        // the margin is as wide as a gap; the first one is narrower
        if total <= width + 1 {
            break;
        }
        columns.retain(|column| column.head != spare);
    }
    columns
}

/// The head, or the cells of a row.
fn table_row<'a>(columns: &'a [Column], cell: impl Fn(&'a Column) -> &'a str) -> String {
    let mut line = " ".to_owned();
    for (at, column) in columns.iter().enumerate() {
        let (cell, gap) = (cell(column), if at == 1 { 1 } else { 2 });
        let pad = " ".repeat(column.width.saturating_sub(cell.width()));
        line.push_str(&"  "[..if at == 0 { 1 } else { gap }]);
        let (before, behind) = if column.is_left { ("", pad.as_str()) } else { (pad.as_str(), "") };
        line.extend([before, cell, behind]);
    }
    line
}

fn gpus(
    config: &HostConfig,
    info: &HostInfo,
    state: &HostState,
    (now, width): (Stamp, usize),
    lines: &mut Vec<String>,
) {
    let sample = state.latest().map(|(_, sample)| sample);
    let columns = fitting(columns(config, info, state, now), width);
    lines.push(table_row(&columns, |column| column.head));
    for (place, gpu) in info.gpus.iter().enumerate() {
        let live = sample.and_then(|sample| sample.gpus.iter().find(|live| live.index == gpu.index));
        let held = state.leases.as_ref().and_then(|leases| leases.of(&gpu.uuid));
        let occupancy = Occupancy::of(gpu, state.leases.as_ref(), live, config.free_memory)
            .unless_off_bus(state.is_off_bus(gpu, now));
        lines.push(table_row(&columns, |column| &column.cells[place]));
        lines.extend(held.map(|held| lease(held, state, now)));
        let beside = state.leases.iter().flat_map(|leases| &leases.beside).filter(|one| one.gpu == gpu.uuid);
        lines.extend(beside.map(|one| sanitize(&format!("      beside it: {}", one.holder())).into_owned()));
        if !occupancy.is_free() && !occupancy.has_holder() && live.is_some() {
            lines.push(sanitize(&format!("      {}", occupancy.words(&|_| None))).into_owned());
        }
        if let Some(Reading::Value(processes)) = live.map(|live| &live.processes) {
            lines.extend(processes.iter().map(process));
        }
    }
}

/// What is wrong with a GPU, the worst first: `power cap +1`.
fn health(events: (&GpuEvents, Stamp), gpu: &GpuInfo, live: Option<&GpuSample>) -> String {
    let Some(live) = live else { return "–".to_owned() };
    match (&live.throttle, all_faults(Some(events), gpu, live, None).as_slice()) {
        (Reading::Failed { .. }, []) => "failing".to_owned(),
        (Reading::Unsupported, []) => "n/a".to_owned(),
        (Reading::Value(_), []) => "ok".to_owned(),
        (_, [only]) => only.words.clone(),
        (_, [worst, rest @ ..]) => format!("{} +{}", worst.words, rest.len()),
    }
}

/// Whose a GPU is: who holds its lease, else whose processes are on it.
fn user(held: Option<&Lease>, live: Option<&GpuSample>, free: bool) -> String {
    if let Some(user) = held.and_then(|held| held.user.as_ref()) {
        return user.clone();
    }
    let Some(Reading::Value(processes)) = live.map(|live| &live.processes) else { return "–".to_owned() };
    let mut names: Vec<&str> =
        processes.iter().map(|one| one.user.value().map_or("?", String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [] if free => "free".to_owned(),
        [] => "–".to_owned(),
        [only] => only.to_owned(),
        [first, ..] => format!("{first} +{}", names.len() - 1),
    }
}

fn model(gpu: &GpuInfo) -> String {
    // the name of one that can't be read is the driver's error, which STATE tells
    if !gpu.uuid.is_readable() {
        return "–".to_owned();
    }
    let indent = if gpu.is_slice() { "└ " } else { "" };
    format!("{indent}{}", middle_cut(&sanitize(gpu.short_model()), 20))
}

fn power(live: Option<&GpuSample>) -> String {
    let watts = |reading: &Reading<u32>| reading.value().map(|mw| (f64::from(*mw) / 1e3).round());
    let draw = show(live.map(|g| &g.power_mw), |mw| format!("{:.0}", f64::from(*mw) / 1e3));
    match live.and_then(|g| watts(&g.power_limit_mw)) {
        Some(limit) => format!("{draw}/{limit} W"),
        None if live.is_some_and(|g| g.power_mw.value().is_some()) => format!("{draw} W"),
        None => draw,
    }
}

/// P-state, what holds the clocks down, and a failed reading's words: the first one is enough to act on.
fn gpu_state(live: Option<&GpuSample>) -> String {
    let Some(live) = live else { return "–".to_owned() };
    let mut words = Vec::new();
    words.extend(live.pstate.value().map(|p| format!("P{p}")));
    words.extend(live.throttle.value().filter(|t| !t.is_empty()).map(|t| t.join(", ")));
    let failed = |error: &String| format!("failed: {error}");
    if let Reading::Failed { error } = &live.util {
        words.push(failed(error));
    } else if let Reading::Failed { error } = &live.memory_used {
        words.push(failed(error));
    } else if let Reading::Failed { error } = &live.processes {
        words.push(format!("processes {}", failed(error)));
    }
    sanitize(&words.join(" · ")).into_owned()
}

fn process(process: &GpuProcess) -> String {
    let user = show(Some(&process.user), |user| sanitize(user).into_owned());
    let memory = show(Some(&process.memory), |size| bytes(*size));
    let command = show(Some(&process.command), |command| sanitize(command).into_owned());
    format!("      {:>8}  {user:<10}  {memory:>7}  {command}", process.pid)
}

fn memory(used: Option<&Reading<u64>>, total: &Reading<u64>) -> String {
    match (used, total.value()) {
        (Some(Reading::Value(used)), Some(total)) => bytes_of(*used, *total),
        (used, Some(total)) => format!("{}/{}", show(used, |v| bytes(*v)), bytes(*total)),
        (used, None) => show(used, |v| bytes(*v)),
    }
}

fn show<T>(reading: Option<&Reading<T>>, words: impl Fn(&T) -> String) -> String {
    match reading {
        Some(Reading::Value(value)) => words(value),
        Some(Reading::Unsupported) => "n/a".to_owned(),
        Some(Reading::Failed { .. }) | None => "–".to_owned(),
    }
}

fn age(since: Stamp, now: Stamp) -> String {
    duration_us(now.micros_since(since).max(0).unsigned_abs())
}

/// Cuts the end off a line that is wider than `width` columns.
pub(super) fn end_cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut cut = String::new();
    let mut used = 1;
    for piece in line.graphemes(true) {
        used += piece.width();
        if used > width {
            break;
        }
        cut.push_str(piece);
    }
    if width > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::fixtures::{NOW, hosts, world};

    #[test]
    fn every_sort_of_host_has_its_line() {
        insta::assert_snapshot!("watch_table", render(&world(), &hosts(), NOW, 120));
    }

    #[test]
    fn a_slice_that_is_fully_busy_keeps_to_its_column() {
        let mut world = world();
        let state = world.hosts.values_mut().find(|state| state.latest().is_some()).unwrap();
        let sample = Arc::make_mut(&mut state.sample.as_mut().unwrap().1);
        let info = Arc::make_mut(state.info.as_mut().unwrap());
        (info.gpus[0].index, info.gpus[0].parent) = (700, Some(6));
        (sample.gpus[0].index, sample.gpus[0].sm_active_percent) = (700, Reading::Value(100));
        let text = render(&world, &hosts(), NOW, 200);
        let line = |holds: &str| text.lines().find(|line| line.contains(holds)).unwrap();
        let end = |line: &str, of: &str| line.find(of).map(|at| line[..at + of.len()].width());
        assert_eq!(end(line("  700 "), "SM100"), end(line("SM CLOCK"), "UTIL"), "{text}");
    }

    #[test]
    fn the_error_of_a_gpu_that_is_lost_is_no_model() {
        let mut world = world();
        let state = world.hosts.values_mut().find(|state| state.latest().is_some()).unwrap();
        let gpu = &mut Arc::make_mut(state.info.as_mut().unwrap()).gpus[3];
        gpu.uuid = crate::domain::ids::GpuUuid::unreadable(3);
        gpu.name = "unreadable GPU: the GPU is lost".to_owned();
        let text = render(&world, &hosts(), NOW, 200);
        assert!(!text.contains("unreadable") && text.contains("lost"), "{text}");
    }

    #[test]
    fn lines_keep_to_the_width_and_drive_no_terminal() {
        for width in [0, 1, 20, 80] {
            let text = render(&world(), &hosts(), NOW, width);
            assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        }
    }

    #[test]
    fn a_narrow_terminal_keeps_who_uses_a_gpu_and_what_is_wrong_with_it() {
        let head = |width| {
            let text = render(&world(), &hosts(), NOW, width);
            let head = text.lines().find(|line| line.starts_with("  GPU")).unwrap().to_owned();
            let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).collect();
            assert!(rows[0].contains("power cap") && rows[0].contains("  li"), "{width}: {text}");
            assert!(rows.iter().any(|row| row.contains("lost  ")), "{width}: {text}");
            head.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(head(100), "GPU MODEL UTIL MEM TEMP POWER SM CLOCK HEALTH USER STATE");
        assert_eq!(head(80), "GPU MODEL UTIL MEM TEMP POWER HEALTH USER STATE");
        assert_eq!(head(60), "GPU MODEL UTIL MEM TEMP HEALTH USER");
        assert_eq!(head(44), "GPU UTIL MEM HEALTH USER");
        insta::assert_snapshot!("watch_table_80", render(&world(), &hosts(), NOW, 80));
    }

    #[test]
    fn nothing_known_is_said_so() {
        assert_eq!(render(&World::default(), &hosts()[..1], NOW, 80), "gpu-a  not tried yet\n");
    }
}
