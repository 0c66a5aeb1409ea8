//! Whether the hosts' clocks agree, so that files, certificates and the order of events can be believed.

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Clock;

/// Less than this may be the question's own way.
const MOST_US: i64 = 1_000_000;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// How far the host's clock was ahead of the client's when the question came, microseconds: its way is in it.
    ahead_us: i64,
}

impl Check for Clock {
    const NAME: &'static str = "clock";
    const ASKS: &'static str = "do the hosts' clocks agree to a second";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        Ok(Found { ahead_us: site.arrived_at.0.saturating_sub(site.asked_at.0) })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let mut all: Vec<i64> = seen.iter().map(|one| one.found.ahead_us).collect();
        all.sort_unstable();
        // against most hosts: it may be the client's own clock that is wrong. Of two hosts, the client has the last word.
        let reference = if all.len() > 2 { all.get(all.len() / 2).copied().unwrap_or(0) } else { 0 };
        seen.iter().map(|one| judge(one.found.ahead_us.saturating_sub(reference), all.len() > 2)).collect()
    }
}

fn judge(ahead: i64, of_most: bool) -> Verdict {
    let whose = if of_most { "that of the other hosts" } else { "this machine's" };
    let seconds = ahead as f64 / 1e6;
    if ahead.abs() <= MOST_US {
        return Verdict::good(format!("within a second of {whose}"));
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    Verdict::look(
        format!("its clock is {:.1} s {side} {whose}", seconds.abs()),
        "times in logs can't be compared; certificates and tokens may be refused, and builds take old files for new",
        "sudo timedatectl set-ntp true   (or: sudo chronyc makestep)",
    )
    .fixed_there("sudo timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn the_one_that_differs_from_most_is_named() {
        let marks = |ahead: &[i64]| {
            let found = ahead.iter().map(|ahead| Found { ahead_us: *ahead });
            Clock::judge(&seen(found)).iter().map(|verdict| verdict.mark).collect::<Vec<_>>()
        };
        assert_eq!(marks(&[200, 63_000_000, 300]), [Mark::Good, Mark::Look, Mark::Good]);
        let slow_client = [63_000_000, 63_000_100, 63_000_050];
        assert_eq!(marks(&slow_client), [Mark::Good; 3], "it is this machine's clock that is wrong");
        assert_eq!(marks(&[-5_000_000]), [Mark::Look]);
    }
}
