//! Who came late to the collectives of a run, and how long each rank waited in them: the table that Horovod's own timeline has
//! the numbers for and never prints.

use crate::domain::analysis::histogram::Histogram;
use crate::domain::ids::Rank;
use crate::domain::wait_table::{RankWaits, WaitSpread, WaitTable};

/// The fold over the collectives.
#[derive(Debug, Default)]
pub(super) struct Waits {
    collectives: u64,
    told: u64,
    ranks: Vec<OfRank>,
}

#[derive(Debug)]
struct OfRank {
    last_in: u64,
    late: Histogram,
    wait: Histogram,
    idle_us: u64,
}

impl Default for OfRank {
    fn default() -> Self {
        Self { last_in: 0, late: Histogram::coarse(), wait: Histogram::coarse(), idle_us: 0 }
    }
}

impl Waits {
    fn rank(&mut self, rank: u32) -> Option<&mut OfRank> {
        let at = rank as usize;
        if at >= self.ranks.len() {
            self.ranks.resize_with(at + 1, OfRank::default);
        }
        self.ranks.get_mut(at)
    }

    /// A collective of `world` ranks: when each came, as far as that is told, and when all had come; microseconds.
    pub(super) fn collective(&mut self, world: usize, arrivals: &[(u32, i64)], together: i64) {
        self.collectives += 1;
        if arrivals.is_empty() || arrivals.len() < world {
            return;
        }
        self.told += 1;
        let first = arrivals.iter().map(|(_, at)| *at).min().unwrap_or_default();
        // of several that came at the same moment the one that is told last
        let last = arrivals.iter().max_by_key(|(_, at)| *at).map(|(rank, _)| *rank);
        for (rank, at) in arrivals {
            let Some(of) = self.rank(*rank) else { continue };
            of.last_in += u64::from(last == Some(*rank) && arrivals.len() > 1);
            of.late.add(length(first, *at));
            of.wait.add(length(*at, together));
        }
    }

    /// A rank had nothing to do for so long in a step.
    pub(super) fn idle(&mut self, rank: u32, us: u64) {
        if let Some(of) = self.rank(rank) {
            of.idle_us = of.idle_us.saturating_add(us);
        }
    }

    /// The table, of a trace with this clock.
    pub(super) fn finish(self, clock: &str) -> WaitTable {
        let ranks = self.ranks.into_iter().zip(0..).map(|(of, rank)| RankWaits {
            rank: Rank(rank),
            collectives: of.late.count(),
            last_in: of.last_in,
            late: spread(&of.late),
            wait: spread(&of.wait),
            idle_us: of.idle_us,
        });
        let (collectives, told) = (self.collectives, self.told);
        WaitTable { clock: clock.to_owned(), collectives, told, ranks: ranks.collect() }
    }
}

fn spread(lengths: &Histogram) -> WaitSpread {
    let quantile = |share| lengths.quantile(share).unwrap_or_default();
    WaitSpread {
        mean_us: lengths.mean().unwrap_or_default(),
        p50_us: quantile(0.5),
        p95_us: quantile(0.95),
        max_us: lengths.max().unwrap_or_default(),
    }
}

/// From one moment to another, microseconds; 0 where that is earlier.
pub(super) fn length(from: i64, to: i64) -> u32 {
    u32::try_from(to.saturating_sub(from).max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_from_the_first_rank_and_wait_until_the_last() {
        let mut waits = Waits::default();
        waits.collective(3, &[(1, 100), (0, 130), (2, 190)], 195);
        waits.collective(3, &[(2, 300), (1, 300), (0, 350)], 350);
        waits.collective(3, &[(2, 400)], 500);
        waits.collective(3, &[], 500);
        waits.idle(1, 40);
        let table = waits.finish("x");
        assert_eq!((table.collectives, table.told), (4, 2));
        let of = |rank: usize| &table.ranks[rank];
        assert_eq!([0, 1, 2].map(|rank| of(rank).last_in), [1, 0, 1]);
        assert_eq!([0, 1, 2].map(|rank| of(rank).late.max_us), [50, 0, 90]);
        assert_eq!([0, 1, 2].map(|rank| of(rank).wait.max_us), [65, 95, 50]);
        assert_eq!([0, 1, 2].map(|rank| (of(rank).wait.mean_us * 2.0) as u32), [65, 145, 55]);
        assert_eq!((of(1).idle_us, of(1).collectives), (40, 2));
    }
}
