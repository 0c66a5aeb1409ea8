//! How many messages a frame takes in: as many as there are while the processor is free, fewer where others want it.
//! And how long what may wait does wait. Pure: how late a frame came and what it cost are passed in.
//!
//! Who takes more than their share of a busy processor waits for it whenever they wake, and then a key waits too. So a
//! flood of lines is taken in only so fast that frames come in time; what waits meanwhile is held back at its source.

use std::time::Duration;

/// A frame takes in so many even on the busiest machine: some thousand messages a second.
const LEAST: usize = 64;
/// And no more than this: then the next key is due.
const MOST: usize = 4096;
/// A frame that comes later than this after its time was kept waiting by others.
const LATE: Duration = Duration::from_millis(4);

/// Least time between two frames of what may wait: telemetry, and runs that are not shown.
const CALM: Duration = Duration::from_millis(100);
/// It waits no longer than this.
const CALMEST: Duration = Duration::from_millis(500);
/// So many times what a frame cost stands between it and the next: a fortieth of a core draws numbers, of 1000 hosts too.
const OF_COST: u32 = 40;

/// How long what may wait does wait after a frame that cost so much.
pub(super) fn calm(cost: Duration) -> Duration {
    cost.saturating_mul(OF_COST).clamp(CALM, CALMEST)
}

/// The number of messages of a frame.
#[derive(Debug)]
pub(super) struct FrameBudget {
    most: usize,
}

impl Default for FrameBudget {
    fn default() -> Self {
        Self { most: MOST }
    }
}

impl FrameBudget {
    /// So many messages may be taken in now.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A frame came so long after its time, and `taken` messages with it.
    pub(super) fn framed(&mut self, late: Duration, taken: usize) {
        if late > LATE {
            self.most = (self.most / 2).max(LEAST);
        } else if taken >= self.most {
            self.most = (self.most + self.most / 8).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_cost_more_come_less_often() {
        let calm = |ms| calm(Duration::from_millis(ms)).as_millis();
        assert_eq!((calm(0), calm(2), calm(7), calm(9000)), (100, 100, 280, 500));
    }

    #[test]
    fn late_frames_take_in_less_and_full_ones_in_time_more() {
        let mut budget = FrameBudget::default();
        let late = LATE + Duration::from_millis(1);
        budget.framed(late, 0);
        assert_eq!(budget.most(), MOST / 2);
        (0..20).for_each(|_| budget.framed(late, MOST));
        assert_eq!(budget.most(), LEAST);
        budget.framed(Duration::ZERO, LEAST - 1);
        assert_eq!(budget.most(), LEAST, "nothing is known of more");
        (0..100).for_each(|_| budget.framed(LATE, MOST));
        assert_eq!(budget.most(), MOST);
    }
}
