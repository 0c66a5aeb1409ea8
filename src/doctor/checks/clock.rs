//! Whether the hosts' clocks agree, so that files, certificates and the order of events can be believed. A host's clock is placed by
//! the pings of its link, whose both ways are known, and never surer than those say.

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::clock;
use crate::domain::clock_fit::ClockFit;
use crate::domain::doctor::Verdict;
use crate::domain::time::{HostTime, Stamp};

pub(in crate::doctor) struct Clock;

/// Clocks that differ by less agree: most programs' times have no more than two digits behind the second.
const MOST_US: i64 = 50_000;
/// Where no ping has come, less than this may be the question's own way.
const ONE_WAY_US: i64 = 1_000_000;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// How far the host's clock was ahead of the client's when the question came, microseconds: its way is in it.
    ahead_us: i64,
    /// Its clock, by which it tells the time, at a moment of the one that pings tell.
    #[serde(default)]
    read: Option<(Stamp, HostTime)>,
    /// By how much that moment may be wrong, microseconds.
    #[serde(default)]
    within_us: u32,
}

impl Check for Clock {
    const NAME: &'static str = "clock";
    const ASKS: &'static str = "do the hosts' clocks agree to 50 ms";
    const WANTS_CLOCK: bool = true;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let (now, at, within) = clock::both();
        let ahead_us = site.arrived_at.0.saturating_sub(site.asked_at.0);
        Ok(Found { ahead_us, read: Some((now, at)), within_us: u32::try_from(within).unwrap_or(u32::MAX) })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let all: Vec<Ahead> = seen.iter().map(|one| Ahead::of(&one.found, one.clock)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable_by_key(|one| one.us);
        // against most hosts: it may be the client's own clock that is wrong. Of two hosts, the client has the last word.
        let most = sorted.get(all.len() / 2).filter(|_| all.len() > 2);
        all.iter().map(|one| judge(one.since(most), most.is_some()).lasting("")).collect()
    }
}

/// How far a clock is ahead of another one, and by how much that may be wrong, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ahead {
    us: i64,
    within_us: i64,
}

impl Ahead {
    /// Of the client's.
    fn of(found: &Found, fit: Option<&ClockFit>) -> Self {
        let by_pings = || {
            let ((wall, at), fit) = (found.read?, fit?);
            let within_us = i64::from(fit.uncertainty_us()?) + i64::from(found.within_us);
            Some(Self { us: wall.0.saturating_sub(fit.stamp(at)?.0), within_us })
        };
        by_pings().unwrap_or(Self { us: found.ahead_us, within_us: ONE_WAY_US })
    }

    /// The same of another host's clock. The host itself is surely not ahead of itself.
    fn since(self, other: Option<&Self>) -> Self {
        match other {
            Some(other) if *other == self => Self { us: 0, ..self },
            Some(other) => Self {
                us: self.us.saturating_sub(other.us),
                within_us: self.within_us.saturating_add(other.within_us),
            },
            None => self,
        }
    }
}

/// With as many digits as tell something: `0.3 ms`, `412 ms`, `3.2 s`.
fn span(us: i64) -> String {
    let us = us.saturating_abs();
    let seconds = us as f64 / 1e6;
    match us {
        0..10_000 => format!("{:.1} ms", seconds * 1e3),
        10_000..1_000_000 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

fn judge(ahead: Ahead, of_most: bool) -> Verdict {
    let whose = if of_most { "that of most hosts" } else { "this machine's" };
    let Ahead { us, within_us } = ahead;
    let doubt = format!("(± {})", span(within_us));
    let side = if us > 0 { "ahead of" } else { "behind" };
    let seen = format!("its clock is {} {side} {whose} {doubt}", span(us));
    let surely_off = us.saturating_abs().saturating_sub(within_us) > MOST_US;
    if !surely_off {
        let is_sure = us.saturating_abs().saturating_add(within_us) <= MOST_US;
        return match (is_sure, within_us) {
            (true, _) => Verdict::good(format!("within {} of {whose} {doubt}", span(us))),
            (false, ..=ONE_WAY_US) => Verdict::good(format!("{seen}: no better is known over this link")),
            (false, _) => Verdict::unknown(format!("{seen}: the link is too slow to tell")),
        };
    }
    Verdict::look(
        seen,
        "times in its logs can't be compared with other hosts'; certificates and tokens may be refused, and builds take old files for new",
        "sudo timedatectl set-ntp true   (or: sudo chronyc makestep)",
    )
    .fixed_there("sudo timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::preflight::Mark;

    /// A host whose clock is so far ahead, seen over a link with this round trip of which all is spent on one way.
    fn host(ahead_us: i64, rtt_us: i64) -> (Found, ClockFit) {
        let mut fit = ClockFit::default();
        let (t0, way) = (1_000_000_000_i64, rtt_us);
        let at = HostTime(500 + way as u64);
        fit.add(ClockSample::from_ping(Stamp(t0), at, at, Duration::from_micros(rtt_us as u64)).unwrap());
        let read = Some((Stamp(t0 + way + ahead_us), at));
        (Found { ahead_us: ahead_us + way, read, within_us: 1 }, fit)
    }

    fn judged(hosts: &[(i64, i64)]) -> Vec<Verdict> {
        let (found, fits): (Vec<_>, Vec<_>) = hosts.iter().map(|(ahead, rtt)| host(*ahead, *rtt)).unzip();
        let mut seen = seen(found);
        for (one, fit) in seen.iter_mut().zip(&fits) {
            one.clock = Some(fit);
        }
        Clock::judge(&seen)
    }

    #[test]
    fn the_one_that_differs_from_most_is_named_with_its_doubt() {
        let verdicts = judged(&[(0, 400), (130_000, 400), (200, 400)]);
        let marks: Vec<Mark> = verdicts.iter().map(|verdict| verdict.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Look, Mark::Good]);
        assert_eq!(verdicts[1].evidence, "its clock is 130 ms ahead of that of most hosts (± 0.4 ms)",);
        let slow_client = judged(&[(63_000_000, 400), (63_000_100, 400), (63_000_050, 400)]);
        assert!(
            slow_client.iter().all(|one| one.mark == Mark::Good),
            "it is this machine's clock that is wrong"
        );
        assert_eq!(judged(&[(-5_000_000, 400)])[0].mark, Mark::Look);
    }

    #[test]
    fn what_a_slow_link_can_not_tell_is_not_said() {
        let quick = &judged(&[(30_000, 10_000)])[0];
        assert!(quick.mark == Mark::Good && quick.evidence.starts_with("within "), "{quick:?}");
        let slow = &judged(&[(20_000, 100_000)])[0];
        assert!(
            slow.mark == Mark::Good && slow.evidence.ends_with("no better is known over this link"),
            "{slow:?}"
        );
        let slower = &judged(&[(20_000, 3_000_000)])[0];
        assert_eq!(slower.mark, Mark::Unknown, "{slower:?}");
        assert_eq!(judged(&[(5_000_000, 3_000_000)])[0].mark, Mark::Look, "and what it can, is");
    }

    #[test]
    fn without_a_ping_the_question_tells_by_its_one_way() {
        let of = |ahead_us| Clock::judge(&seen([Found { ahead_us, ..Found::default() }])).remove(0);
        assert_eq!((of(300_000).mark, of(3_000_000).mark), (Mark::Good, Mark::Look));
    }
}
