//! Which lanes the timeline has: those of phases follow the table of ranks, where a host that is folded has one lane; below
//! them those of slots.

use std::collections::{BTreeSet, HashMap};

use unicode_width::UnicodeWidthStr;

use crate::domain::gpu::Reading;
use crate::domain::history::{PhasePoint, RunHistory};
use crate::domain::ids::{HostId, Rank};
use crate::domain::loads::HostLoad;
use crate::domain::past::PastSample;
use crate::domain::run::{Placement, Slot};
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::trainers::Trainer;
use crate::domain::world::{RankState, RunState};
use crate::tui::core::words::more_words;
use crate::tui::screens::Model;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::rows::{Look, RankRow};
use crate::tui::screens::view::title::plural;

/// From so many rows of the terminal on a GPU's memory has a lane, where there is room.
const MEMORY_FROM: u16 = 45;
/// From so many columns on values stand beside the lanes of GPUs that are more than their utilisation.
const VALUES_FROM: u16 = 120;
/// Columns of the values: ` 100%`, then ` 131G` and ` 1000W`.
pub const VALUE: u16 = 5;
const MORE_VALUES: u16 = 11;
/// Less than this share of the time between two ranks is no difference.
const NEAR: f64 = 0.03;

/// A lane of phases.
#[derive(Debug, Clone, Copy)]
pub enum Lane<'a> {
    /// Of one that trains.
    One(Trainer<'a>),
    /// Of a host that is folded.
    Host(&'a HostId),
    /// How long gradients of one that trains were on their way, behind its computing and beside it.
    Communication(Trainer<'a>),
}

impl Lane<'_> {
    /// Its row of the table.
    fn row(&self) -> RankRow {
        match self {
            Self::Host(host) => RankRow::Host((*host).clone()),
            Self::One(one) | Self::Communication(one) if std::ptr::eq(one.state, one.rank) => {
                RankRow::Rank(one.number)
            }
            Self::One(one) | Self::Communication(one) => {
                RankRow::Worker(one.rank.placement.rank, one.number.0)
            }
        }
    }
}

/// The lanes of phases in their order.
#[derive(Debug, Default)]
pub struct Lanes<'a> {
    /// All of them.
    pub all: Vec<Lane<'a>>,
    /// The place of the one under the cursor of the table.
    pub on: usize,
}

impl<'a> Lanes<'a> {
    /// Those of the rows of the table.
    pub fn of(model: &Model, run: &'a RunState, rows: &[RankRow]) -> Self {
        let cursor = model.ui.run.ranks.on.as_ref();
        let opened = &model.ui.run.arranged.opened;
        let mut lanes = Self::default();
        for row in rows {
            // a row without a lane stands for the next one
            if Some(row) == cursor {
                lanes.on = lanes.all.len();
            }
            match row {
                RankRow::Host(host) if !opened.contains(host) => {
                    let known = run.by_host.get_key_value(host);
                    let known = known.filter(|(host, _)| on_host(run, host).next().is_some());
                    lanes.all.extend(known.map(|(host, _)| Lane::Host(host)));
                }
                RankRow::Host(_) => {}
                RankRow::Rank(rank) => {
                    let own = run.trainers_in(*rank).find(|one| one.number == *rank && has_lane(run, one));
                    lanes.all.extend(own.filter(|one| std::ptr::eq(one.state, one.rank)).map(Lane::One));
                }
                RankRow::Worker(rank, worker) => {
                    let found = run.trainers_in(*rank).find(|one| one.id().worker() == Some(*worker));
                    lanes.all.extend(found.filter(|one| has_lane(run, one)).map(Lane::One));
                }
            }
        }
        lanes.on = lanes.on.min(lanes.all.len().saturating_sub(1));
        lanes
    }

    /// Which of them stand in `room` rows: from the selected one on, and always that of the rank to look at.
    pub fn shown(&self, run: &RunState, room: usize, culprit: Option<Rank>) -> Vec<usize> {
        let rank = culprit.and_then(|key| run.ranks.get(run.rank_of(key).0 as usize));
        let host = rank.map(|rank| &rank.placement.host);
        let is_it = |lane: &Lane<'_>| match lane {
            Lane::One(one) | Lane::Communication(one) => culprit == Some(one.key),
            Lane::Host(name) => host == Some(*name),
        };
        chosen(self.all.len(), room, self.on, self.all.iter().position(is_it))
    }

    /// How many stand before the selected one and behind it and are not shown.
    pub fn hidden_words(&self, shown: &[usize]) -> Option<String> {
        let hosts = self.all.iter().enumerate().filter(|(_, lane)| matches!(lane, Lane::Host(_)));
        let hosts = hosts.filter(|(at, _)| !shown.contains(at)).count();
        let what = match self.all.len().saturating_sub(shown.len()) {
            _ if hosts == 0 => "rank",
            hidden if hidden == hosts => "host",
            _ => "lane",
        };
        hidden_words(self.all.len(), shown, self.on, what)
    }
}

/// What stands in the rows of the timeline, from top to bottom.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The lanes of phases, each with the one whose phases it shows.
    pub ranks: Vec<(Lane<'a>, Trainer<'a>)>,
    /// How many of them there is room for.
    pub room: usize,
    /// How many have none, in words.
    pub hidden: Option<String>,
    /// The lanes below them.
    pub slots: Vec<SlotLane<'a>>,
    /// How many slots have none, in words.
    pub hidden_slots: Option<String>,
    /// Whether times stand below all of them.
    pub ruler: bool,
}

/// A lane below those of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotLane<'a> {
    /// How busy the slot of the placement at this place is.
    Load(usize),
    /// How full its memory is.
    Memory(usize),
    /// What a host tells.
    Host(&'a HostId, HostLane),
}

impl<'a> Shown<'a> {
    /// Of a timeline of so many rows.
    pub fn of(frame: &Frame<'a>, height: usize) -> Self {
        let (run, history) = (frame.run, frame.history);
        let (all, counters, culprit) = (&frame.lanes, &frame.slots.counters, frame.look.culprit());
        let of = |lane: Lane<'a>| match lane {
            Lane::One(one) | Lane::Communication(one) => Some((lane, one)),
            Lane::Host(host) => worst(&frame.look, run, history, host, frame.timeline).map(|one| (lane, one)),
        };
        let selected = all.all.get(all.on).and_then(|lane| of(*lane));
        let has_room = |height: usize| {
            let room = |lanes: usize| rank_rows(height, lanes, counters.len());
            height >= RULER_FROM || room(all.all.len() + 1) > room(all.all.len())
        };
        // it takes no lane of a few ranks
        let communication = selected.filter(|(_, one)| history.has_communication(one.key));
        let communication = communication.filter(|_| has_room(height));
        let count = all.all.len() + usize::from(communication.is_some());
        let ruler = has_ruler(height, count, counters.len());
        let height = height - usize::from(ruler);
        let room = rank_rows(height, count, counters.len());
        let communication = communication.filter(|_| room > 1);
        let places = all.shown(run, room - usize::from(communication.is_some()), culprit);
        let mut ranks: Vec<_> = places.iter().filter_map(|at| of(all.all[*at])).collect();
        let below = places.iter().position(|at| *at == all.on).map(|at| at + 1);
        if let Some(((_, one), below)) = communication.zip(below.filter(|at| *at <= ranks.len())) {
            ranks.insert(below, (Lane::Communication(one), one));
        }
        let numbers: Vec<Rank> = ranks.iter().map(|(_, one)| one.rank.placement.rank).collect();
        let slots = slot_lanes(frame, &numbers, height - ranks.len());
        let hidden_slots = hidden_slots(run, counters, &slots);
        Self { hidden: all.hidden_words(&places), ranks, room, slots, hidden_slots, ruler }
    }

    /// The row of the table to which the lane in a row of the timeline belongs.
    pub fn row_at(&self, run: &RunState, row: usize) -> Option<RankRow> {
        if let Some((lane, _)) = self.ranks.get(row) {
            return Some(lane.row());
        }
        match self.slots.get(row - self.ranks.len())? {
            SlotLane::Load(at) | SlotLane::Memory(at) => {
                run.spec.placements.get(*at).map(|place| RankRow::Rank(place.rank))
            }
            SlotLane::Host(host, _) => Some(RankRow::Host((*host).clone())),
        }
    }
}

/// How many of the slots have no lane.
fn hidden_slots(run: &RunState, all: &[usize], shown: &[SlotLane<'_>]) -> Option<String> {
    let is_hidden = |at: &&usize| !shown.contains(&SlotLane::Load(**at));
    let hidden: Vec<&usize> = all.iter().filter(is_hidden).collect();
    let is_gpu = |at: &&usize| matches!(run.spec.placements[**at].slot, Slot::Gpu { .. });
    let what = if hidden.iter().all(is_gpu) { "GPU" } else { "slot" };
    more_words(0, hidden.len()).map(|more| format!("   {more} {}", plural(hidden.len(), what)))
}

/// The lanes below those of these ranks, as many as there is room for: first those of their slots, then those of their hosts.
fn slot_lanes<'a>(frame: &Frame<'a>, ranks: &[Rank], room: usize) -> Vec<SlotLane<'a>> {
    let (model, run) = (frame.model, frame.run);
    let shown = counters_first(run, &frame.slots.counters, ranks, room);
    let mut left = room - shown.len();
    let mut lanes = Vec::with_capacity(room);
    for at in shown {
        lanes.push(SlotLane::Load(at));
        if left > 0 && has_memory(model, &run.spec.placements[at]) {
            lanes.push(SlotLane::Memory(at));
            left -= 1;
        }
    }
    let mut of_shown: HashMap<&HostId, usize> = HashMap::new();
    for (at, rank) in ranks.iter().enumerate() {
        if let Some(place) = run.spec.placements.get(rank.0 as usize) {
            of_shown.entry(&place.host).or_insert(at);
        }
    }
    let mut hosts = frame.slots.hosts.clone();
    // networks after the processors and memories of all
    hosts.sort_by_key(|(host, lane)| (lane.is_rate(), of_shown.get(host).copied().unwrap_or(usize::MAX)));
    lanes.extend(hosts.into_iter().take(left).map(|(host, lane)| SlotLane::Host(host, lane)));
    lanes
}

/// Which of `count` lanes stand in `room` rows.
fn chosen(count: usize, room: usize, selected: usize, culprit: Option<usize>) -> Vec<usize> {
    let first = selected.min(count.saturating_sub(room));
    let mut lanes: Vec<usize> = (first..count.min(first + room)).collect();
    if let Some(at) = culprit.filter(|at| !lanes.contains(at))
        && !lanes.is_empty()
    {
        // one at the edge goes, and not the selected one where another can
        let goes = if selected == first { lanes.len() - 1 } else { 0 };
        lanes[goes] = at;
        lanes.sort_unstable();
    }
    lanes
}

fn hidden_words(count: usize, shown: &[usize], selected: usize, what: &str) -> Option<String> {
    let above = selected - shown.iter().filter(|at| **at < selected).count();
    let hidden = count - shown.len();
    more_words(above, hidden - above).map(|more| format!("   {more} {}", plural(hidden, what)))
}

/// Whether one that trains gets a lane: of a run that is over only what has run.
fn has_lane(run: &RunState, one: &Trainer<'_>) -> bool {
    run.is_live() || one.rank.has_run() || one.state.has_run()
}

/// Those that get a lane.
pub fn trainer_lanes(run: &RunState) -> impl Iterator<Item = Trainer<'_>> {
    run.trainers().filter(|one| has_lane(run, one))
}

fn on_host<'a>(run: &'a RunState, host: &HostId) -> impl Iterator<Item = Trainer<'a>> {
    let ranks = run.by_host.get(host).into_iter().flatten();
    ranks.flat_map(|rank| run.trainers_in(*rank)).filter(|one| has_lane(run, one))
}

/// The one of a folded host that its lane shows: what failed or is waited for, else the one that came latest to the allreduces
/// of the window, else the one whose steps are the longest; the first where they are alike.
fn worst<'a>(
    look: &Look<'_>,
    run: &'a RunState,
    history: &RunHistory,
    host: &HostId,
    (from, to): (Stamp, Stamp),
) -> Option<Trainer<'a>> {
    let of: Vec<Trainer<'a>> = on_host(run, host).collect();
    let is_bad = |one: &&Trainer<'_>| look.is_culprit(one.rank.placement.rank, one.id().worker());
    let has_failed = |one: &&Trainer<'_>| look.has_failed(one.rank.placement.rank);
    if let Some(bad) = of.iter().find(is_bad).or_else(|| of.iter().find(has_failed)) {
        return Some(*bad);
    }
    let of_window = |one: &Trainer<'_>| history.phases_between(one.key, from, to);
    let points: Option<Vec<PhasePoint>> = of.iter().map(of_window).collect();
    of.get(points.map_or(0, |points| latest(&points))).copied()
}

/// Which of them waited clearly less than a typical one, else which took clearly longer; else the first.
fn latest(of: &[PhasePoint]) -> usize {
    let waited = |point: &PhasePoint| {
        let all: u64 = point.phases.iter().map(|us| u64::from(*us)).sum();
        f64::from(point.phases[Phase::Wait.index()]) / all.max(1) as f64
    };
    let waits: Vec<f64> = of.iter().map(waited).collect();
    let lengths: Vec<f64> = of.iter().map(|point| f64::from(point.longest_us)).collect();
    let least = waits.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
    let longest = lengths.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
    match (least, longest) {
        (Some((at, wait)), _) if typical(&waits) - wait >= NEAR => at,
        (_, Some((at, us))) if *us >= typical(&lengths) * (1.0 + NEAR) => at,
        _ => 0,
    }
}

fn typical(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// What may have lanes below those of phases.
#[derive(Debug)]
pub struct Slots<'a> {
    /// The places of the slots.
    pub counters: Vec<usize>,
    hosts: Vec<(&'a HostId, HostLane)>,
}

impl<'a> Slots<'a> {
    /// Of a run.
    pub fn of(model: &Model, run: &'a RunState) -> Self {
        Self { counters: counter_lanes(run), hosts: host_lanes(model, run) }
    }

    /// The ranks that have the slots.
    pub fn ranks(&self) -> Vec<Rank> {
        self.counters.iter().map(|at| Rank(*at as u32)).collect()
    }

    /// First column and columns of the lanes; behind them stand the values at their end.
    pub fn columns(&self, model: &Model, run: &RunState) -> (u16, u16) {
        let columns = model.size.0;
        let places = Placement::longest_of_hosts(self.counters.iter().map(|at| &run.spec.placements[*at]));
        let places = places.into_iter().map(|place| place.to_string().width());
        // beside the name of a host stands the rank that is shown
        let number = run.ranks.len().to_string().len();
        let is_grouped = model.ui.run.arranged.is_grouped(run);
        let hosts = run.by_host.keys().filter(|_| is_grouped).map(|host| host.as_str().width() + number + 4);
        // beside the name of a host what its lane shows: `gpu-a mem 512G`
        let shares = self.hosts.iter().map(|(host, _)| host.as_str().width() + 9);
        let label = places.chain(hosts).chain(shares).max().unwrap_or(0) as u16;
        let label = label.clamp(8, if columns >= VALUES_FROM { 20 } else { 14 });
        let is_gpu = |at: &usize| matches!(run.spec.placements[*at].slot, Slot::Gpu { .. });
        let values = match self.counters.is_empty() {
            true => 0,
            false if has_more_values(model) && self.counters.iter().any(is_gpu) => VALUE + MORE_VALUES,
            false => VALUE,
        };
        (label + 3, columns.saturating_sub(label + 4 + values))
    }
}

/// The slots that get a lane of their own below the ranks: every GPU of the run, a CPU host once. Of a run that is over only
/// those of ranks that have run.
fn counter_lanes(run: &RunState) -> Vec<usize> {
    let placements = &run.spec.placements;
    let has_lane = |at: &usize| run.is_live() || run.ranks.get(*at).is_some_and(RankState::has_run);
    let mut hosts = BTreeSet::new();
    (0..placements.len())
        .filter(has_lane)
        .filter(|at| {
            let Placement { host, slot, .. } = &placements[*at];
            hosts.insert(host) || matches!(slot, Slot::Gpu { .. })
        })
        .collect()
}

/// The first `room` of them: first those of the ranks that are shown above, in their order.
fn counters_first(run: &RunState, all: &[usize], shown: &[Rank], room: usize) -> Vec<usize> {
    let placements = &run.spec.placements;
    let mut first: Vec<usize> = Vec::new();
    for rank in shown {
        let own = rank.0 as usize;
        // one of the CPUs has the lane for all
        let Some(placement) = placements.get(own) else { continue };
        let of_host = || all.iter().copied().find(|at| placements[*at].host == placement.host);
        let at = all.binary_search(&own).ok().map(|_| own).or_else(of_host);
        first.extend(at.filter(|at| !first.contains(at)));
    }
    let rest: Vec<usize> =
        all.iter().copied().filter(|at| !first.contains(at)).take(room.saturating_sub(first.len())).collect();
    first.into_iter().chain(rest).take(room).collect()
}

/// Whether the memory of a slot has a lane of its own below its utilisation, given enough lines: on a tall terminal, where its
/// GPU tells it.
fn has_memory(model: &Model, placement: &Placement) -> bool {
    let host = model.world.hosts.get(&placement.host);
    model.size.1 >= MEMORY_FROM
        && host.is_some_and(|host| {
            let gpu = host.gpu_of(&placement.slot).and_then(|at| host.info.as_ref()?.gpus.get(at));
            gpu.is_some_and(|gpu| matches!(gpu.memory_total, Reading::Value(_)))
        })
}

/// With so many rows the times are worth a rank's lane.
const RULER_FROM: usize = 9;

/// Which of its hosts have lanes of their own below the slots, given enough lines: on a tall terminal those that have told how busy
/// they are; of a host of whose CPUs the ranks are, that lane is there already.
fn host_lanes<'a>(model: &Model, run: &'a RunState) -> Vec<(&'a HostId, HostLane)> {
    if model.size.1 < MEMORY_FROM {
        return Vec::new();
    }
    let placements = &run.spec.placements;
    let is_gpu = |rank: &Rank| {
        placements.get(rank.0 as usize).is_some_and(|place| matches!(place.slot, Slot::Gpu { .. }))
    };
    let each = run.by_host.iter().flat_map(|(host, ranks)| {
        let newest = model.world.hosts.get(host).and_then(|state| state.past.back());
        let lanes = HostLane::ALL.into_iter().filter(move |lane| {
            let is_told = newest.is_some_and(|past| lane.near(past).is_some());
            is_told && (*lane != HostLane::Cpu || ranks.iter().all(is_gpu))
        });
        lanes.map(move |lane| (host, lane))
    });
    each.collect()
}

/// What a lane of a host shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostLane {
    /// How busy its CPUs are.
    Cpu,
    /// How full its memory is.
    Memory,
    /// What it receives.
    Received,
    /// What it sends.
    Sent,
}

impl HostLane {
    const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Received, Self::Sent];

    /// Whether it is about the network: bytes a second, not a share.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Received | Self::Sent)
    }

    /// What a sample tells of it.
    pub fn near(self, past: &PastSample) -> Option<f64> {
        match self {
            Self::Cpu => past.cpu.map(f64::from),
            Self::Memory => past.memory.map(f64::from),
            Self::Received => past.net.rx(),
            Self::Sent => past.net.tx(),
        }
    }

    /// What is kept of it of the whole run.
    pub fn far(self, load: HostLoad) -> Option<f64> {
        match self {
            Self::Cpu => load.cpu(),
            Self::Memory => load.memory(),
            Self::Received => load.rx(),
            Self::Sent => load.tx(),
        }
    }
}

/// How many lanes of ranks there are in so many rows; with too little room they go before those of slots, which keep a third.
fn rank_rows(rows: usize, ranks: usize, slots: usize) -> usize {
    rows.saturating_sub(slots.min(rows / 3)).min(ranks)
}

/// Whether times stand below the lanes, given so many rows: a few ranks keep their lanes, of many one goes for them.
fn has_ruler(rows: usize, ranks: usize, slots: usize) -> bool {
    let kept = rank_rows(rows.saturating_sub(1), ranks, slots) == rank_rows(rows, ranks, slots);
    rows > 1 && ranks + slots > 0 && (kept || rows >= RULER_FROM)
}

/// How many lanes there are with enough room; the times below them are one.
pub fn wanted(frame: &Frame<'_>) -> usize {
    let (run, history, lanes, slots) = (frame.run, frame.history, &frame.lanes, &frame.slots);
    let has_memory = |at: &&usize| has_memory(frame.model, &run.spec.placements[**at]);
    let memory = slots.counters.iter().filter(has_memory).count();
    let on = lanes.all.get(lanes.on).is_some_and(|lane| match lane {
        Lane::One(one) | Lane::Communication(one) => history.has_communication(one.key),
        Lane::Host(host) => on_host(run, host).any(|one| history.has_communication(one.key)),
    });
    let all = lanes.all.len() + usize::from(on) + slots.counters.len() + memory;
    all + slots.hosts.len() + usize::from(all > 0)
}

/// First column and columns of the lanes; behind them stand the values at their end.
pub fn lane_columns(model: &Model, run: &RunState) -> (u16, u16) {
    Slots::of(model, run).columns(model, run)
}

/// Whether more than the utilisation stands beside the lanes of GPUs.
pub fn has_more_values(model: &Model) -> bool {
    model.size.0 >= VALUES_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_to_look_at_has_a_lane_and_the_selected_one_too() {
        let lanes = |selected, culprit| {
            let shown = chosen(8, 3, selected, culprit);
            (shown.clone(), hidden_words(8, &shown, selected, "rank").unwrap())
        };
        let words = |text: &str| format!("   {text} more ranks");
        assert_eq!(lanes(0, None), (vec![0, 1, 2], words("↓ 5")));
        assert_eq!(lanes(0, Some(6)), (vec![0, 1, 6], words("↓ 5")));
        assert_eq!(lanes(2, Some(3)), (vec![2, 3, 4], words("↑ 2 ↓ 3")));
        assert_eq!(lanes(2, Some(0)), (vec![0, 2, 3], words("↑ 1 ↓ 4")));
        assert_eq!(lanes(7, Some(0)), (vec![0, 6, 7], words("↑ 5")));
        assert_eq!(chosen(4, 1, 0, Some(3)), [3]);
        assert_eq!(chosen(4, 0, 0, Some(3)), [0; 0]);
        assert_eq!(hidden_words(4, &chosen(4, 4, 2, Some(0)), 2, "rank"), None);
        assert_eq!(hidden_words(4, &chosen(4, 3, 0, None), 0, "host").unwrap(), "   ↓ 1 more host");
    }

    #[test]
    fn a_folded_host_shows_the_one_that_waits_least_else_the_slowest() {
        let point = |wait, longest_us| {
            let mut phases = [0; Phase::COUNT];
            (phases[Phase::Forward.index()], phases[Phase::Wait.index()]) = (100_000 - wait, wait);
            PhasePoint { longest_us, phases, ..PhasePoint::default() }
        };
        let alike = [point(20_000, 60), point(19_000, 61), point(20_000, 60)];
        assert_eq!(latest(&alike), 0);
        assert_eq!(latest(&[alike[0], alike[0], point(3_000, 60)]), 2);
        assert_eq!(latest(&[point(0, 60), point(0, 60), point(0, 64), point(0, 64)]), 0, "half of them");
        assert_eq!(latest(&[point(0, 60), point(0, 70), point(0, 61)]), 1);
        assert_eq!((latest(&[]), latest(&alike[..1])), (0, 0));
    }
}
