//! The rows of the Cluster screen: one a host, one a GPU, and the further lines of a long message.

use crate::domain::gpu::GpuInfo;
use crate::domain::host::LinkState;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::HostState;
use crate::tui::core::Zone;
use crate::tui::core::words::{clock_time, date, wrap};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::Sieve;
use crate::tui::screens::cluster::order::{sort, sort_gpus};
use crate::tui::screens::cluster::shape::Shape;
use crate::tui::screens::usage::Leases;

/// A host that has said nothing for so long is silent, and what it said last is old, microseconds. It speaks every second:
/// silence is seen within three.
pub const SILENT_US: i64 = 2_500_000;
/// How many lines a host's trouble may take.
const MESSAGE_LINES: usize = 4;

/// What a row is about: its identity, independent of its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowId {
    /// A host's summary line.
    Host(HostId),
    /// A GPU; the number is its place in the host's list.
    Gpu(HostId, GpuUuid, usize),
    /// A further line of a host's message.
    Note(HostId, usize),
}

impl RowId {
    /// The row's host.
    pub fn host(&self) -> &HostId {
        match self {
            Self::Host(host) | Self::Gpu(host, ..) | Self::Note(host, _) => host,
        }
    }

    /// The same row now: a GPU whose place has changed, for a MIG slice came or went before it; its host where it is gone.
    #[must_use]
    pub fn now(&self, model: &Model) -> Self {
        let Self::Gpu(host, uuid, _) = self else { return self.clone() };
        let info = model.world.hosts.get(host).and_then(|state| state.info.as_ref());
        match info.map(|info| info.gpus.iter().position(|gpu| gpu.uuid == *uuid)) {
            Some(Some(place)) => Self::Gpu(host.clone(), uuid.clone(), place),
            Some(None) => Self::Host(host.clone()),
            None => self.clone(),
        }
    }
}

/// How a host's link reads on the Cluster screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// None: the agent answers.
    None,
    /// No agent runs there; its own tools tell of it.
    Limited,
    /// On its way up.
    Pending,
    /// Lost or not reached; tried again.
    Down,
    /// Waits for a person.
    Refused,
}

/// How a host's link reads. A host that was lost stays down while it is tried again.
pub fn trouble(state: Option<&HostState>) -> Trouble {
    let lost = state.is_some_and(|state| state.down_since.is_some());
    match state.and_then(|state| state.link.as_ref()) {
        Some((_, LinkState::Up)) => Trouble::None,
        Some((_, LinkState::Limited { .. })) => Trouble::Limited,
        Some((_, LinkState::Down { .. })) => Trouble::Down,
        Some((_, LinkState::Refused { .. })) => Trouble::Refused,
        Some((_, LinkState::Connecting { .. } | LinkState::Installing { .. })) if lost => Trouble::Down,
        Some((_, LinkState::Connecting { .. } | LinkState::Installing { .. })) | None => Trouble::Pending,
    }
}

/// A reason without the host's name in front: the row begins with it.
fn without_name<'a>(host: &HostId, reason: &'a str) -> &'a str {
    reason.strip_prefix(host.as_str()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason)
}

/// What a host that is not up has to say, in one sentence; `None` when it is up. Times are told in `zone`.
pub fn message(host: &HostId, state: Option<&HostState>, now: Stamp, zone: &Zone) -> Option<String> {
    let Some((state, (since, link))) = state.and_then(|state| Some((state, state.link.as_ref()?))) else {
        return Some("waiting to connect".to_owned());
    };
    let elapsed = age(now, *since);
    let down = state.down_since.map(|since| down_words(since, now, zone));
    let text = match link {
        LinkState::Up => return None,
        LinkState::Limited { reason } => {
            let reason = sanitize(without_name(host, reason));
            format!("values by nvidia-smi, takes no ranks: {reason} · R tries again")
        }
        LinkState::Connecting { to } => match down {
            Some(down) => format!("{down} · connecting to {} · {elapsed}", sanitize(to)),
            None => format!("connecting to {} · {elapsed}", sanitize(to)),
        },
        LinkState::Installing { bytes } => {
            let what = match bytes {
                0 => "starting the agent".to_owned(),
                bytes => format!("installing hvtui ({})", units::bytes(*bytes)),
            };
            match down {
                Some(down) => format!("{down} · {what} · {elapsed}"),
                None => format!("{what} · {elapsed}"),
            }
        }
        LinkState::Down { reason, retry_at } => {
            let next = match retry_at.map(|at| at.micros_since(now)) {
                Some(wait) if wait > 0 => {
                    format!("next try in {}\u{a0}s (R\u{a0}now)", (wait + 999_999) / 1_000_000)
                }
                Some(_) => "trying again".to_owned(),
                None => "R tries again".to_owned(),
            };
            let down = down.unwrap_or_else(|| down_words(*since, now, zone));
            format!("{down}: {} · {next}", sanitize(without_name(host, reason)))
        }
        LinkState::Refused { reason, .. } => {
            format!("refused: {} · R tries again", sanitize(without_name(host, reason)))
        }
    };
    Some(text)
}

/// `down since 14:03 (5 min)`; with the day where it was another one.
pub fn down_words(since: Stamp, now: Stamp, zone: &Zone) -> String {
    let day = date(since, zone);
    let day = if day == date(now, zone) { String::new() } else { format!("{day} ") };
    let clock = clock_time(since, zone, false);
    // Hours and minutes: the seconds stand in the brackets while they matter.
    let clock = clock.get(..5).unwrap_or(&clock);
    format!("down since {day}{clock} ({})", span(now, since).replace(' ', "\u{a0}"))
}

/// How long ago something was, in its largest unit: `40 s`, `5 min`, `3 h`, `2 d`.
pub fn span(now: Stamp, at: Stamp) -> String {
    let seconds = u64::try_from(now.micros_since(at)).unwrap_or(0) / 1_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long ago something was, in the coarsest unit that says it: `4 s`, `05:12`, `3h05`.
pub fn age(now: Stamp, at: Stamp) -> String {
    let micros = u64::try_from(now.micros_since(at)).unwrap_or(0);
    if micros < 60_000_000 { format!("{} s", micros / 1_000_000) } else { units::duration_us(micros) }
}

/// The lines of a host's message when each may take `width` columns.
pub fn message_lines(model: &Model, host: &HostId, width: usize) -> Vec<String> {
    let state = model.world.hosts.get(host);
    let Some(text) = message(host, state, model.moment(), &model.zone) else { return Vec::new() };
    let mut lines = wrap(&model.hosts_option.with(&text), width);
    if lines.len() > MESSAGE_LINES {
        let rest = lines.split_off(MESSAGE_LINES - 1).join(" ");
        lines.push(units::middle_cut(&rest, width));
    }
    lines
}

/// Columns that a host's message may take on a terminal of `columns`: behind glyph and names of `name` columns.
pub fn message_width(name: usize, columns: u16) -> usize {
    usize::from(columns).saturating_sub(name + 4).max(20)
}

/// Columns of the host name column: the longest name, within bounds.
pub fn name_width(model: &Model) -> usize {
    use unicode_width::UnicodeWidthStr;
    let longest = model.host_order().iter().map(|id| sanitize(id.as_str()).width()).max().unwrap_or(0);
    longest.clamp(5, 18)
}

/// Mean GPU utilisation of a host, percent; its CPU's where it has no GPU.
pub fn mean_util(state: &HostState) -> Option<f64> {
    let (_, sample) = state.latest()?;
    if sample.gpus.is_empty() {
        return sample.cpu_percent.value().map(|percent| f64::from(*percent));
    }
    let known: Vec<f64> =
        sample.gpus.iter().filter_map(|gpu| gpu.util.value()).map(|u| f64::from(*u)).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Used and total memory of a host in bytes: its GPUs' where it has any, else its own.
pub fn memory(state: &HostState) -> Option<(u64, u64)> {
    let (_, sample) = state.latest()?;
    if sample.gpus.is_empty() {
        let total = state.info.as_ref()?.memory_total.value()?;
        return Some((*sample.memory_used.value()?, *total));
    }
    // a MIG slice's is its GPU's too
    let known: Vec<(u64, u64)> = sample
        .gpus
        .iter()
        .filter(|gpu| !gpu.is_slice())
        .filter_map(|gpu| Some((*gpu.memory_used.value()?, *gpu.memory_total.value()?)))
        .collect();
    let sum = known.iter().fold((0, 0), |sum, gpu| (sum.0 + gpu.0, sum.1 + gpu.1));
    (!known.is_empty()).then_some(sum)
}

/// The GPUs that a host has told of.
pub(super) fn gpus_of<'a>(model: &'a Model, host: &HostId) -> &'a [GpuInfo] {
    let state = model.world.hosts.get(host);
    state.and_then(|state| state.info.as_ref()).map_or(&[][..], |info| &info.gpus)
}

/// The places of a host's GPUs that pass the filter; `None` where the host itself is not shown.
fn passing(model: &Model, sieve: &Sieve<'_>, host: &HostId) -> Option<Vec<usize>> {
    let gpus = gpus_of(model, host);
    let places: Vec<usize> = (0..gpus.len()).filter(|place| sieve.lets(host, *place)).collect();
    let shown = !places.is_empty() || sieve.is_open() || gpus.is_empty() && sieve.lets_host(host);
    shown.then_some(places)
}

/// How much there is to list: what the filter lets through and is not folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows where each host and each GPU has one.
    pub rows: usize,
    /// GPUs among them.
    pub gpus: usize,
    /// Hosts that need more lines to say what is wrong with them.
    pub troubled: usize,
}

/// Counts what there is to list.
pub(super) fn counts(model: &Model) -> Counts {
    let sieve = Sieve::of(model);
    let mut counts = Counts::default();
    for host in model.host_order() {
        let all = gpus_of(model, host).len();
        let gpus =
            if sieve.is_open() { Some(all) } else { passing(model, &sieve, host).map(|gpus| gpus.len()) };
        let Some(gpus) = gpus else { continue };
        let gpus = if model.ui.cluster.folded.contains(host) { 0 } else { gpus };
        counts.rows += 1 + gpus;
        counts.gpus += gpus;
        counts.troubled += usize::from(trouble(model.world.hosts.get(host)) != Trouble::None);
    }
    counts
}

/// All rows, in the order shown.
pub fn rows(model: &Model) -> Vec<RowId> {
    let ui = &model.ui.cluster;
    let shape = Shape::of(model);
    let width = message_width(name_width(model), shape.table);
    let mut hosts = model.host_order();
    sort(model, &mut hosts);
    let mut rows = Vec::new();
    let sieve = Sieve::of(model);
    let leases = (model.settings.hosts.by.is_by_values() && !shape.heat).then(|| Leases::of(model));
    for host in hosts {
        let Some(mut places) = passing(model, &sieve, host) else { continue };
        // cells stay where they are: their places are the indices
        if let Some(leases) = &leases {
            sort_gpus(model, leases, host, &mut places);
        }
        let gpus = gpus_of(model, host);
        let trouble = trouble(model.world.hosts.get(host));
        let row = |place: usize| Some(RowId::Gpu(host.clone(), gpus.get(place)?.uuid.clone(), place));
        let matching: Vec<RowId> = places.into_iter().filter_map(row).collect();
        if shape.heat && !matching.is_empty() {
            rows.extend(matching);
            continue;
        }
        rows.push(RowId::Host(host.clone()));
        if shape.heat {
            continue;
        }
        if trouble != Trouble::None {
            let lines = message_lines(model, host, width).len();
            rows.extend((1..lines).map(|line| RowId::Note(host.clone(), line)));
        }
        // A host that is lost keeps the rows that it had.
        if !ui.folded.contains(host) {
            rows.extend(matching);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::world::World;

    const SECOND: i64 = 1_000_000;

    fn world(links: &[(i64, LinkState)]) -> World {
        let mut world = World::default();
        for (seq, (second, state)) in (0..).zip(links) {
            let event = Event::LinkChanged { state: state.clone() };
            world.apply(&Envelope {
                seq,
                at: Stamp(second * SECOND),
                origin: Origin::Host("a".into()),
                event,
            });
        }
        world
    }

    fn told(links: &[(i64, LinkState)], now: i64) -> (Trouble, Option<String>) {
        let world = world(links);
        let state = world.hosts.get(&HostId::from("a"));
        (trouble(state), message(&HostId::from("a"), state, Stamp(now * SECOND), &3600.into()))
    }

    fn down() -> LinkState {
        LinkState::Down { reason: "a: connection reset".to_owned(), retry_at: None }
    }

    fn connecting() -> LinkState {
        LinkState::Connecting { to: "a:22".to_owned() }
    }

    #[test]
    fn a_loss_is_counted_from_the_last_word_through_all_retries() {
        let noon = 12 * 3600;
        let lost =
            [(noon, LinkState::Up), (noon + 60, down()), (noon + 70, connecting()), (noon + 75, down())];
        let (trouble, words) = told(&lost, noon + 360);
        assert_eq!(trouble, Trouble::Down);
        assert_eq!(words.unwrap(), "down since 13:00 (6\u{a0}min): connection reset · R tries again");
        let (trouble, words) = told(&lost[..3], noon + 75);
        assert_eq!(trouble, Trouble::Down, "it is not reached while it is tried");
        assert_eq!(words.unwrap(), "down since 13:00 (1\u{a0}min) · connecting to a:22 · 5 s");
        let again = [&lost[..], &[(noon + 80, LinkState::Up), (noon + 400, down())]].concat();
        assert_eq!(told(&again[..5], noon + 81), (Trouble::None, None));
        assert!(told(&again, noon + 401).1.unwrap().starts_with("down since 13:01 (5\u{a0}min)"));
    }

    #[test]
    fn a_host_that_never_answered_is_down_since_the_first_try() {
        let never = [(1, connecting()), (11, down()), (12, connecting()), (22, down())];
        assert_eq!(told(&never[..1], 5).0, Trouble::Pending);
        assert!(told(&never, 31).1.unwrap().contains("(20\u{a0}s)"));
    }

    #[test]
    fn spans_have_one_unit_and_other_days_their_date() {
        let spans =
            [59, 60, 3_599, 3_600, 172_799, 172_800].map(|at: i64| span(Stamp(at * SECOND), Stamp(0)));
        assert_eq!(spans, ["59 s", "1 min", "59 min", "1 h", "47 h", "2 d"]);
        let since = down_words(Stamp(0), Stamp(200_000 * SECOND), &0.into());
        assert_eq!(since, "down since 1970-01-01 00:00 (2\u{a0}d)");
    }
}
