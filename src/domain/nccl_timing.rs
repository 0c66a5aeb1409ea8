//! How long the collectives of NCCL take, and which rank comes last to them. Pure.
//!
//! hvtui's plugin in NCCL tells of each rank how long a collective took on its GPU, from the first start to the last end over
//! the channels (docs/decisions/nccl-timings.md). All ranks leave a collective together; so the rank that took least came
//! last, and another waited for it as long as it took more. Clocks are never compared.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::text::sanitize;
use super::time::HostTime;
use super::units::{bytes, duration_us, rate};

/// A kind of collective that was not told of for so many times as long as lately, and not in that many times so few, is over.
const OVER: u64 = 50;
const FEW: u64 = 20;
/// How many of the newest collectives are looked at.
const WINDOW: usize = 50;
/// From how many on a rank is named.
pub(super) const LEAST: usize = 10;
/// A rank is named that comes last in so many percent of them, ..
const NAMED_FROM: usize = 70;
/// .. if the others wait so long for it, nanoseconds (the GPU's clock counts in steps of 1,024), ..
pub(super) const LEAST_NS: u64 = 20_000;
/// .. and at least this part of the collective itself.
pub(super) const LEAST_PART: u64 = 20;
/// Kinds of collectives, by communicator and function, that are told apart.
const GROUPS: usize = 32;
/// Collectives of a kind that some ranks have told and others not.
const OPEN: usize = 64;
/// Ranks' parts in all of those.
const PARTS: usize = 1 << 16;
/// How many of the newest collectives are kept with their times, of all ranks, and of one at least and at most.
const RECENT: usize = 1 << 15;
const LEAST_RECENT: usize = 16;
const MOST_RECENT: usize = 512;
/// Of so many ranks.
const MOST_RANKS: usize = 1 << 12;
/// How many letters of a function's name are kept.
const NAME: usize = 24;

/// A communicator: NCCL's hash of it, alike on all of its ranks. Written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommId(pub u64);

impl TryFrom<String> for CommId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

impl From<CommId> for String {
    fn from(comm: CommId) -> Self {
        comm.to_string()
    }
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How long a collective took on the GPU of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveTiming {
    /// The communicator.
    pub comm: CommId,
    /// How many ranks it has.
    pub ranks: u32,
    /// The rank's number in it.
    pub comm_rank: u32,
    /// What was called: `AllReduce`.
    pub func: String,
    /// Its number among those of this function in this communicator.
    pub seq: u64,
    /// NCCL's count of elements in bytes, as it was called: a rank's own part of an `AllGather`.
    #[serde(default)]
    pub bytes: u64,
    /// Type of the elements: `Float32`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub datatype: String,
    /// When it began, microseconds of `CLOCK_MONOTONIC`: its end was seen then, or a little later, less its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t: Option<HostTime>,
    /// Nanoseconds from its start on the first channel to its end on the last one.
    pub dur_ns: u64,
    /// The same start by the GPU's `globaltimer`, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// It stands for so many: each so many-th is told.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub every: u32,
    /// So many before it were meant to be told and could not be.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The fold over the collectives of all ranks of a run, in bounded memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NcclTimings {
    groups: BTreeMap<(CommId, String), Group>,
    /// Parts in the open collectives of all groups.
    parts: usize,
    /// Counts what was taken in.
    turn: u64,
    lost: u64,
    /// Of each rank when its newest ones began and how many microseconds they took, oldest first.
    recent: BTreeMap<Rank, VecDeque<(HostTime, u32)>>,
}

/// The calls of one function in one communicator.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Group {
    ranks: u32,
    /// By number: what the ranks have told.
    open: BTreeMap<u64, Vec<Part>>,
    /// The newest that all ranks have told.
    whole: VecDeque<WholeCollective>,
    /// When they began on one of the ranks, and for how many each stands.
    pace: (Option<u32>, VecDeque<(HostTime, u32)>),
    /// When it was last told of, as `NcclTimings::turn` counts.
    turn: u64,
    /// How many turns lie between two of its own lately.
    gap: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Part {
    comm_rank: u32,
    rank: Rank,
    dur_ns: u64,
}

/// A collective that all ranks have told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WholeCollective {
    /// The rank that came last.
    pub last: Rank,
    /// What the last one took: the collective itself.
    pub least_ns: u64,
    /// What the median one of the others waited.
    pub wait_ns: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What there is to say of the kind of collective that takes most of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NcclPace {
    /// `AllReduce`.
    pub func: String,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// How many there are a second, where it can be told.
    pub per_second: Option<f64>,
    /// Median of the bytes of one.
    pub bytes: u64,
    /// Median of what one takes without any waiting, nanoseconds.
    pub dur_ns: u64,
    /// So many were looked at; none where not all ranks have told of one.
    pub of: usize,
    /// Who comes last.
    pub late: Option<LateRank>,
}

/// The rank that comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRank {
    /// Which.
    pub rank: Rank,
    /// In how many of those that were looked at.
    pub late_in: usize,
    /// Median of what another waits for it, nanoseconds.
    pub wait_ns: u64,
}

impl NcclTimings {
    /// Takes in a collective of the rank that has this number in the training; gives it where all ranks have told it now.
    pub fn take(&mut self, rank: Rank, timing: &CollectiveTiming) -> Option<WholeCollective> {
        self.lost = self.lost.saturating_add(timing.lost);
        let ranks = timing.ranks as usize;
        if timing.comm_rank >= timing.ranks || ranks > PARTS / 2 || timing.dur_ns == 0 {
            return None;
        }
        self.turn += 1;
        self.remember(rank, timing);
        let key = (timing.comm, name(&timing.func));
        if !self.groups.contains_key(&key) && self.groups.len() >= GROUPS {
            self.forget_a_group();
        }
        let group = self.groups.entry(key).or_default();
        let gap = if group.turn == 0 { 1 } else { self.turn - group.turn };
        group.gap = (group.gap.saturating_mul(15).saturating_add(gap)).div_ceil(16);
        group.turn = self.turn;
        group.ranks = timing.ranks;
        group.keep_pace(timing);
        let parts = group.open.entry(timing.seq).or_default();
        let part = Part { comm_rank: timing.comm_rank, rank, dur_ns: timing.dur_ns };
        if let Some(known) = parts.iter_mut().find(|known| known.comm_rank == part.comm_rank) {
            *known = part;
        } else {
            parts.push(part);
            self.parts += 1;
        }
        let whole = (parts.len() >= ranks).then(|| WholeCollective::of(parts, timing.bytes));
        if let Some(whole) = whole {
            // Ranks tell of theirs in order: what is older can't become whole any more.
            let newer = group.open.split_off(&(timing.seq.saturating_add(1)));
            self.parts -= group.parts();
            group.open = newer;
            if group.whole.len() >= WINDOW {
                group.whole.pop_front();
            }
            group.whole.push_back(whole);
        }
        while group.open.len() > OPEN || self.parts > PARTS && !group.open.is_empty() {
            self.parts -= group.open.pop_first().map_or(0, |(_, parts)| parts.len());
        }
        if self.parts > PARTS {
            self.forget_a_group();
        }
        whole
    }

    fn remember(&mut self, rank: Rank, timing: &CollectiveTiming) {
        let Some(start) = timing.t else { return };
        if timing.every > 1 {
            // of those between nothing is told: the history has their share
            self.recent.remove(&rank);
            return;
        }
        if self.recent.len() >= MOST_RANKS && !self.recent.contains_key(&rank) {
            return;
        }
        let most = (RECENT / (self.recent.len() + 1)).clamp(LEAST_RECENT, MOST_RECENT);
        let us = u32::try_from(timing.dur_ns / 1000).unwrap_or(u32::MAX);
        let own = self.recent.entry(rank).or_default();
        own.push_back((start, us));
        while own.len() > most {
            own.pop_front();
        }
    }

    /// When the newest collectives of a rank began, by the clock of its host, and how many microseconds they took.
    pub fn recent(&self, rank: Rank) -> impl Iterator<Item = (HostTime, u32)> {
        self.recent.get(&rank).into_iter().flatten().copied()
    }

    fn forget_a_group(&mut self) {
        let oldest = self.groups.iter().min_by_key(|(_, group)| group.turn).map(|(key, _)| key.clone());
        if let Some(group) = oldest.and_then(|key| self.groups.remove(&key)) {
            self.parts -= group.parts();
        }
    }

    /// How many were meant to be told and could not be.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Of the kind that takes most of the time; `None` while nothing is known.
    pub fn pace(&self) -> Option<NcclPace> {
        let goes_on = |group: &Group| self.turn - group.turn < group.gap.max(FEW).saturating_mul(OVER);
        let paces = self.groups.iter().map(|((_, func), group)| (goes_on(group), group.told(func)));
        let share = |pace: &NcclPace| pace.per_second.unwrap_or(1.0) * pace.dur_ns as f64;
        // What was called at the start alone, as the broadcast of a model, would be the fastest for ever.
        let rank = |(goes_on, pace): &(bool, NcclPace)| (*goes_on, pace.of > 0);
        let best = paces.max_by(|a, b| rank(a).cmp(&rank(b)).then(share(&a.1).total_cmp(&share(&b.1))));
        best.map(|(_, pace)| pace)
    }

    /// One sentence, with a rank's place by its number: `NCCL: 412 AllReduce/s of 25 M, 0.90 ms each; rank 3 (b:1) comes
    /// last in 47 of 50, the others wait 2.1 ms`.
    pub fn sentence(&self, where_is: impl Fn(Rank) -> Option<String>) -> Option<String> {
        let pace = self.pace()?;
        let often = match pace.per_second {
            Some(per_second) => format!("{} {}/s", rate(per_second), pace.func),
            None => pace.func.clone(),
        };
        let (size, length) = (bytes(pace.bytes), length(pace.dur_ns));
        let mut text = match pace.of {
            0 => format!("NCCL: {often}, not told by all of its {} ranks", pace.ranks),
            _ => format!("NCCL: {often} of {size}, {length} each"),
        };
        match pace.late {
            Some(LateRank { rank, late_in, wait_ns }) => {
                let here = where_is(rank).map_or_else(String::new, |place| format!(" ({place})"));
                let others = if pace.ranks > 2 { "the others wait" } else { "the other waits" };
                let wait = self::length(wait_ns);
                let of = pace.of;
                let _ = write!(text, "; rank {rank}{here} comes last in {late_in} of {of}, {others} {wait}");
            }
            None if pace.of >= LEAST && pace.ranks > 1 => text += "; no rank comes late",
            None => {}
        }
        if self.lost > 0 {
            let _ = write!(text, "; {} not told", self.lost);
        }
        Some(text)
    }

    /// The same where there is little room: `NCCL: rank 3 comes last, others wait 2.1 ms`.
    pub fn short(&self) -> Option<String> {
        let pace = self.pace()?;
        Some(match pace.late {
            Some(late) => {
                format!("NCCL: rank {} comes last, others wait {}", late.rank, length(late.wait_ns))
            }
            None => format!("NCCL: {} {}", pace.func, length(pace.dur_ns)),
        })
    }
}

impl Group {
    fn parts(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// Of one rank alone: ranks' clocks are not alike.
    fn keep_pace(&mut self, timing: &CollectiveTiming) {
        let (who, times) = &mut self.pace;
        let Some(t) = timing.t else { return };
        if *who.get_or_insert(timing.comm_rank) != timing.comm_rank {
            return;
        }
        if times.back().is_some_and(|(last, _)| *last > t) {
            times.clear();
        }
        if times.len() >= WINDOW {
            times.pop_front();
        }
        times.push_back((t, timing.every));
    }

    fn per_second(&self) -> Option<f64> {
        let times = &self.pace.1;
        let micros = times.back()?.0.0.saturating_sub(times.front()?.0.0);
        let count: u64 = times.iter().skip(1).map(|(_, every)| u64::from(*every)).sum();
        (micros > 0).then(|| count as f64 * 1e6 / micros as f64)
    }

    fn told(&self, func: &str) -> NcclPace {
        let whole = || self.whole.iter();
        NcclPace {
            func: func.to_owned(),
            ranks: self.ranks,
            per_second: self.per_second(),
            bytes: median(whole().map(|whole| whole.bytes).collect()),
            dur_ns: median(whole().map(|whole| whole.least_ns).collect()),
            of: self.whole.len(),
            late: self.late(),
        }
    }

    fn late(&self) -> Option<LateRank> {
        let mut counts: BTreeMap<Rank, usize> = BTreeMap::new();
        for whole in &self.whole {
            *counts.entry(whole.last).or_default() += 1;
        }
        let (rank, late_in) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let own = || self.whole.iter().filter(|whole| whole.last == rank);
        let wait_ns = median(own().map(|whole| whole.wait_ns).collect());
        let least_ns = median(own().map(|whole| whole.least_ns).collect());
        let often = self.whole.len() >= LEAST && late_in * 100 >= self.whole.len() * NAMED_FROM;
        let long = wait_ns >= LEAST_NS.max(least_ns / LEAST_PART);
        (often && long && self.ranks > 1).then_some(LateRank { rank, late_in, wait_ns })
    }
}

impl WholeCollective {
    fn of(parts: &[Part], bytes: u64) -> Self {
        let last = parts.iter().min_by_key(|part| part.dur_ns);
        let (least_ns, comm_rank) = last.map_or((0, 0), |part| (part.dur_ns, part.comm_rank));
        let others = parts.iter().filter(|part| part.comm_rank != comm_rank);
        let wait_ns = median(others.map(|part| part.dur_ns - least_ns).collect());
        Self { last: last.map_or(Rank(0), |part| part.rank), least_ns, wait_ns, bytes }
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

pub(super) fn name(text: &str) -> String {
    sanitize(text).chars().take(NAME).collect()
}

/// A length of time, in hundredths of a millisecond where it is short.
pub(super) fn length(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => duration_us(nanos / 1_000),
    }
}

#[cfg(test)]
#[path = "nccl_timing_tests.rs"]
mod tests;
