//! Who came late to the collectives of a run, and how long each rank waited in them, as another program's trace tells it. Lengths
//! of time are microseconds of one collective.

use serde::{Deserialize, Serialize};

use super::ids::Rank;

/// The waits of all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitTable {
    /// Whose clock the trace has.
    pub clock: String,
    /// Collectives of the steps.
    pub collectives: u64,
    /// Those of which each rank's arrival is told.
    pub told: u64,
    /// By rank.
    pub ranks: Vec<RankWaits>,
}

/// Those of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankWaits {
    /// The rank.
    pub rank: Rank,
    /// Collectives to which its arrival is told.
    pub collectives: u64,
    /// In how many of them it came last.
    pub last_in: u64,
    /// How long after the first rank it came.
    pub late: WaitSpread,
    /// How long after it the last rank came.
    pub wait: WaitSpread,
    /// How long it waited with nothing left to do, over all steps.
    pub idle_us: u64,
}

/// How a length of time spreads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitSpread {
    /// Its mean.
    pub mean_us: f64,
    /// 50 of 100 are not longer.
    pub p50_us: u32,
    /// 95 of 100 are not longer.
    pub p95_us: u32,
    /// The longest.
    pub max_us: u32,
}

impl WaitTable {
    /// The ranks that were the latest on the mean, at most so many, in the order of their numbers.
    pub fn latest(&self, most: usize) -> Vec<&RankWaits> {
        let mut ranks: Vec<&RankWaits> = self.ranks.iter().collect();
        if ranks.len() > most {
            ranks.sort_by(|a, b| b.late.mean_us.total_cmp(&a.late.mean_us));
            ranks.truncate(most);
            ranks.sort_by_key(|one| one.rank);
        }
        ranks
    }
}

impl RankWaits {
    /// The share of its collectives to which it came last.
    pub fn last_share(&self) -> f64 {
        self.last_in as f64 / self.collectives.max(1) as f64
    }
}
