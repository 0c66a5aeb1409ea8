//! Which rank came last to an allreduce, by how long each waited in it. All ranks leave it together, those of two hosts as far apart
//! as a message takes: one rule for reports and exports.

use serde::{Deserialize, Serialize};

/// The host that a rank is on, as far as what the rank waited depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostClock {
    /// Which host: a number that no other one of the run has.
    pub host: usize,
    /// What a message to it takes, microseconds: [`crate::domain::clock_fit::ClockFit::way_us`].
    pub unsure_us: u32,
}

impl HostClock {
    /// What two ranks may seem to differ by and be equal, microseconds: nothing on one host.
    pub fn unsure_to(self, other: Self) -> u32 {
        if self.host == other.host { 0 } else { self.unsure_us.saturating_add(other.unsure_us) }
    }
}

/// The place of the rank that came last, by how long each waited, microseconds; `None` where the second last came so soon before it
/// that it may have been that, and of fewer than two.
pub fn last_in(waits: &[(u64, HostClock)]) -> Option<usize> {
    let last = least(waits, None)?;
    let second = least(waits, Some(last))?;
    let (of_last, of_second) = (waits.get(last)?, waits.get(second)?);
    let ahead_us = of_second.0.saturating_sub(of_last.0);
    // of two that came together none is the last
    (ahead_us >= u64::from(of_last.1.unsure_to(of_second.1)) && ahead_us > 0).then_some(last)
}

/// The place of the least wait but for one; of equal ones the first.
fn least(waits: &[(u64, HostClock)], but: Option<usize>) -> Option<usize> {
    let others = waits.iter().enumerate().filter(|(at, _)| Some(*at) != but);
    others.min_by_key(|(_, (us, _))| *us).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(host: usize, unsure_us: u32, us: u64) -> (u64, HostClock) {
        (us, HostClock { host, unsure_us })
    }

    #[test]
    fn a_lead_of_less_than_both_messages_together_names_no_rank() {
        assert_eq!(last_in(&[on(1, 400, 899), on(2, 500, 0)]), None);
        assert_eq!(last_in(&[on(1, 400, 900), on(2, 500, 0)]), Some(1));
    }

    #[test]
    fn on_one_host_any_lead_is_one() {
        assert_eq!(last_in(&[on(1, 400, 0), on(1, 400, 1)]), Some(0));
        assert_eq!(last_in(&[on(1, 400, 7), on(1, 400, 7)]), None, "they came together");
        assert_eq!(last_in(&[on(1, 0, 7), on(2, 0, 7)]), None);
    }

    #[test]
    fn one_alone_is_not_the_last() {
        assert_eq!((last_in(&[]), last_in(&[on(1, 0, 0)])), (None, None));
    }

    #[test]
    fn the_second_last_decides_and_not_the_others() {
        let waits = [on(1, 400, 50_000), on(2, 500, 600), on(3, 500, 0)];
        assert_eq!(last_in(&waits), None);
        assert_eq!(last_in(&waits[1..]), None);
        assert_eq!(last_in(&[waits[0], waits[2]]), Some(1));
    }
}
