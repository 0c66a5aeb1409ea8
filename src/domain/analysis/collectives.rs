//! The collectives of NCCL over a whole run. The live line is of the newest ones alone ([`NcclTimings`]); a rank that was late for a
//! while an hour ago stands here.
//!
//! [`NcclTimings`]: crate::domain::nccl_timing::NcclTimings

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::chance::is_surely_off;
use super::figures::Span;
use super::gains::{CostSeries, Gains};
use super::histogram::Histogram;
use crate::domain::ids::Rank;
use crate::domain::nccl_timing::{
    CollectiveTiming, CommId, LEAST, LEAST_NS, LEAST_PART, WholeCollective, length, name,
};
use crate::domain::time::HostTime;
use crate::domain::units::{bytes, rate};

/// Kinds of collectives, by communicator and function, that are told apart.
const GROUPS: usize = 32;
/// Ranks that come last, in all of them together.
const RANKS: usize = 1 << 12;
/// Sizes of one kind that are told apart.
const SIZES: usize = 256;

/// What there is to say of the kind of collective that takes most of the time.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveFigures {
    /// `AllReduce`.
    pub func: String,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// How many there were a second, where it can be told.
    pub per_second: Option<f64>,
    /// Median of the bytes of one.
    pub bytes: u64,
    /// Median of what one takes without any waiting, microseconds.
    pub dur_us: u32,
    /// So many were looked at: all that each rank has told.
    pub of: u64,
    /// Who comes last, where that is no chance.
    pub late: Option<LateToCollectives>,
}

/// The rank that comes last to collectives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LateToCollectives {
    /// Which.
    pub rank: Rank,
    /// In how many.
    pub last_in: u64,
    /// What a typical other rank waits in one of these, the mean in microseconds.
    pub wait_us: f64,
    /// How much of a typical rank's time in all of them that is.
    pub share: f64,
    /// The numbers of the collectives in which most of it lies; `None` where it is spread over the run.
    pub numbers: Option<Span>,
}

impl CollectiveFigures {
    /// `NCCL: 412 AllReduce/s of 25 M, 0.90 ms each; rank 3 (b:1) comes last in 4,700 of 5,000, the others wait 2.1 ms`.
    pub(super) fn sentence(&self, where_is: impl Fn(Rank) -> Option<String>, lost: u64) -> String {
        let often = match self.per_second {
            Some(per_second) => format!("{} {}/s", rate(per_second), self.func),
            None => self.func.clone(),
        };
        let each = length(u64::from(self.dur_us) * 1000);
        let mut text = format!("NCCL: {often} of {}, {each} each", bytes(self.bytes));
        match self.late {
            Some(late) => {
                let here = where_is(late.rank).map_or_else(String::new, |place| format!(" ({place})"));
                let others = if self.ranks > 2 { "the others wait" } else { "the other waits" };
                let wait = length((late.wait_us * 1e3) as u64);
                let (rank, last_in, of) = (late.rank, late.last_in, self.of);
                let _ = write!(text, "; rank {rank}{here} comes last in {last_in} of {of}, {others} {wait}");
            }
            None if self.of >= LEAST as u64 && self.ranks > 1 => text += "; no rank comes late",
            None => {}
        }
        if lost > 0 {
            let _ = write!(text, "; {lost} not told");
        }
        text
    }
}

/// The fold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CollectiveTotals {
    groups: BTreeMap<(CommId, String), Group>,
    ranks: usize,
}

/// The calls of one function in one communicator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Group {
    ranks: u32,
    least_us: Histogram,
    /// What all took without waiting, of which each may stand for several, nanoseconds.
    weight_ns: u64,
    /// What a typical rank was in them.
    typical_us: u64,
    sizes: BTreeMap<u64, u64>,
    numbers: Option<(u64, u64)>,
    /// Those in which a typical rank waited for long, whichever rank was the last.
    dear: u64,
    last: BTreeMap<Rank, Costs>,
    pace: Option<Pace>,
}

/// What a rank costs that comes last.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Costs {
    last_in: u64,
    dear_in: u64,
    waits: Gains,
    waits_in: CostSeries,
}

/// How often one of the ranks calls it: ranks' clocks are not alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pace {
    comm_rank: u32,
    from: HostTime,
    to: HostTime,
    count: u64,
}

impl CollectiveTotals {
    /// Takes in what a rank has told, and the collective that is whole by that.
    pub(super) fn take(&mut self, timing: &CollectiveTiming, whole: Option<WholeCollective>) {
        let key = (timing.comm, name(&timing.func));
        if !self.groups.contains_key(&key) && self.groups.len() >= GROUPS {
            return;
        }
        let group = self.groups.entry(key).or_default();
        group.ranks = timing.ranks;
        group.keep_pace(timing);
        let Some(whole) = whole else { return };
        let seq = timing.seq;
        group.numbers = Some(group.numbers.map_or((seq, seq), |(from, to)| (from.min(seq), to.max(seq))));
        group.least_us.add(micros(whole.least_ns));
        group.weight_ns =
            group.weight_ns.saturating_add(whole.least_ns.saturating_mul(u64::from(timing.every)));
        group.typical_us += u64::from(micros(whole.least_ns.saturating_add(whole.wait_ns)));
        if group.sizes.len() < SIZES || group.sizes.contains_key(&whole.bytes) {
            *group.sizes.entry(whole.bytes).or_default() += 1;
        }
        let is_dear = whole.wait_ns >= LEAST_NS.max(whole.least_ns / LEAST_PART);
        group.dear += u64::from(is_dear);
        if !group.last.contains_key(&whole.last) {
            if self.ranks >= RANKS {
                return;
            }
            self.ranks += 1;
        }
        let costs = group.last.entry(whole.last).or_default();
        costs.last_in += 1;
        costs.dear_in += u64::from(is_dear);
        let wait_us = micros(whole.wait_ns);
        costs.waits.add(wait_us);
        costs.waits_in.add(seq, wait_us.into());
    }

    /// Of the kind that takes most of the time; `None` where no collective is told by all of its ranks.
    pub(super) fn figures(&self) -> Option<CollectiveFigures> {
        let whole = self.groups.iter().filter(|(_, group)| group.least_us.count() > 0);
        let ((_, func), group) = whole.max_by_key(|(_, group)| group.weight_ns)?;
        Some(CollectiveFigures {
            func: func.clone(),
            ranks: group.ranks,
            per_second: group.pace.as_ref().and_then(Pace::per_second),
            bytes: median(&group.sizes),
            dur_us: group.least_us.quantile(0.5)?,
            of: group.least_us.count(),
            late: group.late(),
        })
    }
}

impl Group {
    fn keep_pace(&mut self, timing: &CollectiveTiming) {
        let Some(t) = timing.t else { return };
        let begin = || Pace { comm_rank: timing.comm_rank, from: t, to: t, count: 0 };
        match &mut self.pace {
            Some(pace) if pace.comm_rank != timing.comm_rank => {}
            Some(pace) if t >= pace.to => {
                pace.to = t;
                pace.count += u64::from(timing.every);
            }
            // its clock began anew
            other => *other = Some(begin()),
        }
    }

    fn late(&self) -> Option<LateToCollectives> {
        let of = self.least_us.count();
        if of < LEAST as u64 || self.ranks < 2 {
            return None;
        }
        let cost = |(rank, costs): (&Rank, &Costs)| Some((costs.waits.recurring(of)?, *rank, costs.clone()));
        let (wait_us, rank, costs) = self.last.iter().filter_map(cost).max_by_key(|(us, ..)| *us)?;
        let ranks = self.ranks as usize;
        let often = is_surely_off(costs.last_in, of, ranks) || is_surely_off(costs.dear_in, self.dear, ranks);
        let mean_us = wait_us as f64 / costs.last_in.max(1) as f64;
        let least_ns = u64::from(self.least_us.quantile(0.5)?) * 1000;
        let long = mean_us * 1e3 >= LEAST_NS.max(least_ns / LEAST_PART) as f64;
        (often && long).then(|| LateToCollectives {
            rank,
            last_in: costs.last_in,
            wait_us: mean_us,
            share: (wait_us as f64 / self.typical_us.max(1) as f64).min(1.0),
            numbers: self.numbers.and_then(|numbers| costs.waits_in.span(numbers)),
        })
    }
}

impl Pace {
    fn per_second(&self) -> Option<f64> {
        let micros = self.to.0.saturating_sub(self.from.0);
        (micros > 0).then(|| self.count as f64 * 1e6 / micros as f64)
    }
}

fn micros(nanos: u64) -> u32 {
    u32::try_from(nanos / 1000).unwrap_or(u32::MAX)
}

fn median(counts: &BTreeMap<u64, u64>) -> u64 {
    let half = counts.values().sum::<u64>() / 2;
    let mut before = 0;
    let middle = counts.iter().find(|(_, count)| {
        before += **count;
        before > half
    });
    middle.map_or(0, |(size, _)| *size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::analysis::fixtures::{Told, spec};
    use crate::domain::analysis::{Finding, RunAnalysis, findings};
    use crate::domain::event::Event;
    use crate::domain::outcome::RunEnd;

    /// Collectives of four ranks, 5 ms apart and of 1 ms; in each the ranks come so many microseconds after the first one.
    fn run(count: u64, late_us: impl Fn(u64, u32) -> u64) -> RunAnalysis {
        let mut told = Told::new(spec(4));
        for seq in 1..=count {
            let late = [0, 1, 2, 3].map(|rank| late_us(seq, rank));
            let last = late.into_iter().max().unwrap();
            for (rank, late) in (0..4).zip(late) {
                let timing = CollectiveTiming {
                    comm: CommId(7),
                    ranks: 4,
                    comm_rank: rank,
                    func: "AllReduce".to_owned(),
                    seq,
                    bytes: 1 << 20,
                    datatype: String::new(),
                    t: Some(HostTime(seq * 5_000)),
                    dur_ns: (1_000 + last - late) * 1000,
                    gpu_ns: None,
                    every: 1,
                    lost: 0,
                };
                told.rank(rank, Event::CollectiveDone { timing: Box::new(timing) });
            }
        }
        told.finish(RunEnd::Finished)
    }

    /// Without a pattern, and so that each rank is last as often.
    fn jitter(seq: u64, rank: u32) -> u64 {
        (seq * 7 + u64::from(rank) * 25) % 100 / 2
    }

    fn late(run: &RunAnalysis) -> Option<Finding> {
        findings(run).into_iter().find(|finding| finding.words.contains("comes last to the collectives"))
    }

    #[test]
    fn a_rank_that_was_late_in_the_middle_is_told_of_the_whole_run() {
        let told = run(200, |seq, rank| {
            jitter(seq, rank) + if rank == 2 && (80..160).contains(&seq) { 3_000 } else { 0 }
        });
        let sentence = told.collectives.as_deref().unwrap();
        assert!(
            sentence.starts_with("NCCL: 200 AllReduce/s of 1.0 M, 1.0 ms each; rank 2 (gpu-a:2)"),
            "{sentence}"
        );
        let figures = told.nccl.as_ref().unwrap();
        let rank = figures.late.unwrap();
        assert!(rank.last_in >= 105 && figures.of == 200, "{figures:?}");
        // a typical other waits 3 ms in 80 of 200, where it is in collectives for 1 ms otherwise
        assert!((0.5..0.6).contains(&rank.share), "{rank:?}");
        let finding = late(&told).unwrap();
        let evidence = format!(
            "last in {} of 200 AllReduce; {:.0} % of the time in them is waiting for it\nmost of it in AllReduce 80 to 159",
            rank.last_in,
            rank.share * 100.0
        );
        assert_eq!(finding.evidence, evidence);
    }

    #[test]
    fn late_by_turns_once_or_by_little_is_not_told() {
        for late_us in [
            (|seq, rank| jitter(seq, rank)) as fn(u64, u32) -> u64,
            |seq, rank| if seq % 4 == u64::from(rank) { 3_000 } else { 0 },
            |seq, rank| jitter(seq, rank) + if (seq, rank) == (9, 1) { 9_000_000 } else { 0 },
        ] {
            let told = run(200, late_us);
            assert!(told.collectives.as_deref().unwrap().ends_with("; no rank comes late"), "{told:?}");
            assert_eq!(late(&told), None);
        }
    }

    #[test]
    fn a_rank_that_is_late_now_and_then_is_told_by_what_it_costs() {
        let told =
            run(400, |seq, rank| jitter(seq, rank) + if rank == 1 && seq % 8 == 0 { 5_000 } else { 0 });
        assert_eq!(told.nccl.as_ref().and_then(|nccl| nccl.late).map(|late| late.rank), Some(Rank(1)));
        assert!(late(&told).is_some_and(|finding| !finding.evidence.contains("most of it")));
    }
}
