//! The first line of the screens that show the whole cluster: where you are, and how the whole is.

use std::ops::Range;

use ratatui::style::{Modifier, Style};

use crate::domain::gpu::health::Severity;
use crate::domain::idle::idle_us;
use crate::domain::units;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::Screen;
use crate::tui::core::keymap::Action;
use crate::tui::core::layout::{self, tabs};
use crate::tui::core::words::clock_time;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{Trouble, trouble};
use crate::tui::screens::faults::is_open;
use crate::tui::screens::usage::{GpuUse, Leases, gpu_use};

/// Draws the title line.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    let open = canvas.theme.strong().add_modifier(Modifier::UNDERLINED);
    let mut x = canvas.text(1, 0, 6, "hvtui", accent);
    for &(screen, name, at) in tabs(canvas.width()) {
        let style = if model.ui.screen == screen { open } else { canvas.theme.dim };
        x = canvas.text(at, 0, 12, name, style) + 2;
    }
    if let Some(name) = name_without_tab(model.ui.screen, canvas.width()) {
        x = canvas.text(x, 0, 12, name, open) + 2;
    }
    // the most telling stands first and stays longest; the clock is always there
    let clock = clock_time(model.now, &model.zone, false);
    let end = canvas.width().saturating_sub(width(&clock) + 1);
    canvas.text(end, 0, 8, &clock, canvas.theme.dim);
    let facts = facts(model, &canvas.theme, canvas.width());
    for (columns, words, fact) in placed(&facts, x, end) {
        canvas.text(columns.start, 0, end.saturating_sub(columns.start), words, fact.style);
    }
}

/// The words of the facts that fit between two columns, and where they stand.
fn placed(facts: &[Fact], from: u16, end: u16) -> Vec<(Range<u16>, &str, &Fact)> {
    let shown = fitting(facts, end.saturating_sub(from));
    let used: u16 = shown.iter().flatten().map(|words| width(words) + 3).sum();
    let mut at = end.saturating_sub(used);
    let mut placed = Vec::new();
    for (words, fact) in shown.into_iter().zip(facts) {
        if let Some(words) = words {
            placed.push((at..at + width(words), words, fact));
            at += width(words) + 3;
        }
    }
    placed
}

/// What stands at a column of the line is opened by a click: a screen by its name, the events by the alerts.
pub(in crate::tui::screens) fn action_at(model: &Model, column: u16) -> Option<Action> {
    if let Some(screen) = layout::tab_at(model.size.0, column) {
        return match screen {
            Screen::Run => Some(Action::LatestRun),
            Screen::Runs => Some(Action::Runs),
            Screen::Doctor => Some(Action::Doctor),
            _ => Some(Action::Cluster),
        };
    }
    let is_open = model.ui.screen == Screen::Events;
    (!is_open && is_alerts_at(model, column)).then_some(Action::Events)
}

/// Whether the alerts stand at a column of the line.
fn is_alerts_at(model: &Model, column: u16) -> bool {
    let theme = Theme::colourless();
    let facts = facts(model, &theme, model.size.0);
    let clock = clock_time(model.now, &model.zone, false);
    let placed = placed(
        &facts,
        names_end(model.ui.screen, model.size.0),
        model.size.0.saturating_sub(width(&clock) + 1),
    );
    placed.iter().any(|(columns, words, _)| columns.contains(&column) && words.starts_with('▲'))
}

/// The column behind the names of the screens.
fn names_end(screen: Screen, columns: u16) -> u16 {
    let tabs = tabs(columns).iter().map(|(_, name, at)| at + width(name) + 2).max().unwrap_or(0);
    tabs + name_without_tab(screen, columns).map_or(0, |name| width(name) + 2)
}

/// The name of a screen that has this line and no tab: it stands behind the tabs while it is open.
fn name_without_tab(screen: Screen, columns: u16) -> Option<&'static str> {
    if tabs(columns).iter().any(|(tab, ..)| *tab == screen) {
        return None;
    }
    match screen {
        Screen::Detail => Some("Detail"),
        Screen::Users => Some("Users"),
        Screen::Doctor => Some("Doctor"),
        Screen::Events => Some("Events"),
        Screen::Cluster | Screen::Run | Screen::Runs | Screen::Launch | Screen::Replay => None,
    }
}

/// Something that the title says where there is room.
struct Fact {
    /// The same in words, the longest first.
    words: Vec<String>,
    style: Style,
    /// 0 stays longest.
    rank: u8,
}

/// The rank of what the GPUs are doing.
const GPUS: u8 = 1;

/// The words of each fact that fit into `room` columns: first the alarms and the GPUs in few words, then as many words as fit.
fn fitting(facts: &[Fact], mut room: u16) -> Vec<Option<&str>> {
    let mut shown: Vec<Option<&str>> = vec![None; facts.len()];
    let need = |words: &str| width(words) + 3;
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by_key(|at| facts[*at].rank);
    for &at in order.iter().filter(|at| facts[**at].rank <= GPUS) {
        shown[at] = facts[at].words.last().map(String::as_str).filter(|words| need(words) <= room);
        room -= shown[at].map_or(0, need);
    }
    order.sort_by_key(|at| (facts[*at].rank.max(GPUS), *at));
    for at in order {
        let given = shown[at].map_or(0, need);
        let longest = facts[at].words.iter().map(String::as_str).find(|words| need(words) <= room + given);
        room = room + given - longest.map_or(0, need);
        shown[at] = longest;
    }
    shown
}

#[derive(Default)]
struct Totals {
    gpus: u32,
    free: u32,
    held: u32,
    slots: u32,
    slots_free: u32,
    /// The sum of utilisations, and of how many.
    util: (u64, u32),
    memory: (u64, u64),
    power_mw: u64,
    troubled: u32,
}

fn totals(model: &Model) -> Totals {
    let leases = Leases::of(model);
    let mut totals = Totals::default();
    for host in model.host_order() {
        let state = model.world.hosts.get(host);
        if matches!(trouble(state), Trouble::Down | Trouble::Refused | Trouble::Limited) {
            totals.troubled += 1;
        }
        let Some(state) = state.filter(|state| state.is_up()) else { continue };
        let slots = model.cpu_slots(host);
        totals.slots += slots;
        totals.slots_free += slots.saturating_sub(leases.cpus(host));
        let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
        let known = state.info.as_ref().map_or(&[][..], |info| &info.gpus);
        // a host with slots of its own has no GPU for a rank
        let has_places = model.configured_slots(host).is_none();
        for (place, info) in known.iter().enumerate() {
            totals.gpus += u32::from(info.counts());
            match gpu_use(host, state, place, &leases) {
                GpuUse::Free if has_places && info.uuid.is_readable() => totals.free += 1,
                _ => {}
            }
            totals.held += u32::from(info.counts() && idle_us(state, place).is_some());
            if let Some(gpu) = samples.get(place) {
                if let Some(util) = gpu.util.value() {
                    totals.util = (totals.util.0 + u64::from(*util), totals.util.1 + 1);
                }
                let memory = gpu.memory_used.value().zip(gpu.memory_total.value());
                // a MIG slice's is its GPU's too
                if let Some((used, total)) = memory.filter(|_| !info.is_slice()) {
                    totals.memory.0 += used;
                    totals.memory.1 += total;
                }
                totals.power_mw += gpu.power_mw.value().map_or(0, |mw| u64::from(*mw));
            }
        }
    }
    totals
}

fn facts(model: &Model, theme: &Theme, columns: u16) -> Vec<Fact> {
    let totals = totals(model);
    let (text, dim) = (theme.text, theme.dim);
    let fact = |words: String, style, rank| Fact { words: vec![words], style, rank };
    let hosts = model.host_order().len();
    let mut facts = vec![fact(format!("{hosts} {}", plural(hosts, "host")), text, 2)];
    if totals.gpus > 0 {
        let short = format!("{} {}: {} free", totals.gpus, plural(totals.gpus as usize, "GPU"), totals.free);
        let full = (totals.held > 0).then(|| format!("{short}, {} held idle", totals.held));
        let least = format!("{} free", totals.free);
        facts.push(Fact { words: full.into_iter().chain([short, least]).collect(), style: text, rank: GPUS });
    } else if totals.slots > 0 {
        facts.push(fact(format!("{} CPU slots: {} free", totals.slots, totals.slots_free), text, GPUS));
    }
    if model.readonly {
        facts.push(fact("read-only".to_owned(), theme.accent, 0));
    }
    facts.extend(alerts_words(model, theme).map(|(words, style)| {
        let short = words.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        // with little room the numbers of GPUs say more than a word
        let words = if columns >= 160 { vec![words, short] } else { vec![short] };
        Fact { words, style, rank: 0 }
    }));
    if totals.troubled > 0 {
        let words = vec![format!("✖ {} not reached", totals.troubled), format!("✖ {}", totals.troubled)];
        facts.push(Fact { words, style: theme.bad, rank: 0 });
    }
    if totals.util.1 > 0 {
        let mean = totals.util.0 as f64 / f64::from(totals.util.1);
        facts.push(fact(format!("util {mean:.0} %"), text, 3));
        facts.push(fact(format!("mem {}", units::bytes_of(totals.memory.0, totals.memory.1)), text, 4));
        facts.push(fact(format!("{:.1} kW", totals.power_mw as f64 / 1e6), text, 5));
    } else if let Some((load, cpus)) = lone_host(model) {
        facts.push(fact(format!("load {load:.2} on {cpus} {}", plural(cpus as usize, "CPU")), dim, 3));
    }
    facts
}

/// `▲ 2 alerts (E)`: how many go on and were not acknowledged.
pub(in crate::tui::screens) fn alerts_words(model: &Model, theme: &Theme) -> Option<(String, Style)> {
    let open = model.world.alerts.active().filter(|alert| is_open(model, alert));
    let active: Vec<Severity> = open.map(|alert| alert.severity).collect();
    let worst = active.iter().max()?;
    let style = if *worst == Severity::Act { theme.bad } else { theme.warn };
    let key = if model.ui.screen == Screen::Launch { "" } else { " (E)" };
    Some((format!("▲ {} {}{key}", active.len(), plural(active.len(), "alert")), style))
}

fn lone_host(model: &Model) -> Option<(f32, u32)> {
    let mut up = model.world.hosts.values().filter(|state| state.is_up());
    let only = up.next().filter(|_| up.next().is_none())?;
    let load = only.latest().and_then(|(_, sample)| sample.load.value().copied())?;
    Some((load[0], only.info.as_ref()?.cpus))
}

/// `host`, `hosts`.
pub(in crate::tui::screens) fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
