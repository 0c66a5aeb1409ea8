//! The time zone in which moments are told. Knows no clock and no zone of this machine: they are asked for once.

use std::sync::Arc;

use crate::domain::time::Stamp;

const SECOND_US: i64 = 1_000_000;
const WEEK_S: i64 = 7 * 86_400;
/// How far back from the start of the program moments are told by their own offset, and how far ahead.
const WEEKS: (i64, i64) = (520, 260);

/// How far local time is ahead of UTC, at each moment: a moment in July has summer time, whatever today has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// From when on local time is so many seconds ahead; the first holds for all before, too.
    changes: Arc<[(Stamp, i32)]>,
}

impl Zone {
    /// The zone for the years around `now`. `ahead` tells how many seconds local time is ahead at a moment; it is taken to change at most
    /// once a week, at a whole second.
    pub fn around(now: Stamp, ahead: impl Fn(Stamp) -> i32) -> Self {
        let at = |second: i64| Stamp(second.saturating_mul(SECOND_US));
        let start = now.0.div_euclid(SECOND_US) - WEEKS.0 * WEEK_S;
        let mut last = ahead(at(start));
        let mut changes = vec![(at(start), last)];
        for week in 0..WEEKS.0 + WEEKS.1 {
            let mut before = start + week * WEEK_S;
            let mut after = before + WEEK_S;
            let next = ahead(at(after));
            if next == last {
                continue;
            }
            while after - before > 1 {
                let middle = i64::midpoint(before, after);
                if ahead(at(middle)) == last {
                    before = middle;
                } else {
                    after = middle;
                }
            }
            changes.push((at(after), next));
            last = next;
        }
        Self { changes: changes.into() }
    }

    /// Seconds that local time is ahead of UTC at a moment.
    pub fn ahead_s(&self, at: Stamp) -> i32 {
        let next = self.changes.partition_point(|(from, _)| *from <= at);
        self.changes.get(next.saturating_sub(1)).map_or(0, |(_, ahead)| *ahead)
    }

    /// A moment as microseconds of local time.
    pub fn local_us(&self, at: Stamp) -> i64 {
        at.0.saturating_add(i64::from(self.ahead_s(at)) * SECOND_US)
    }
}

impl From<i32> for Zone {
    /// A zone without summer time, so many seconds ahead of UTC.
    fn from(ahead_s: i32) -> Self {
        Self { changes: Arc::new([(Stamp(0), ahead_s)]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::core::words::{clock_time, date};

    /// 2026-11-24 12:00 UTC.
    const NOW: Stamp = Stamp(1_795_521_600_000_000);

    /// Central Europe's: summer time from the last Sunday of March to that of October, of 2026 alone.
    fn berlin(at: Stamp) -> i32 {
        let summer = 1_774_746_000_000_000..1_792_890_000_000_000;
        if summer.contains(&at.0) { 7200 } else { 3600 }
    }

    #[test]
    fn a_moment_has_the_offset_of_its_day() {
        let zone = Zone::around(NOW, berlin);
        assert_eq!(clock_time(NOW, &zone, false), "13:00:00");
        // 2026-07-01 22:30 UTC
        let july = Stamp(1_782_945_000_000_000);
        assert_eq!(
            (date(july, &zone), clock_time(july, &zone, false)),
            ("2026-07-02".into(), "00:30:00".into())
        );
        // the night of 2026-10-25: the hour from two to three comes twice
        let change = 1_792_890_000_000_000;
        assert_eq!(clock_time(Stamp(change - 1_000_000), &zone, false), "02:59:59");
        assert_eq!(clock_time(Stamp(change), &zone, false), "02:00:00");
        assert_eq!(zone.changes.len(), 3);
    }

    #[test]
    fn a_zone_without_changes_is_one_offset() {
        let zone = Zone::around(NOW, |_| -12_600);
        assert_eq!(zone.changes.len(), 1);
        for at in [i64::MIN, -1, 0, NOW.0, i64::MAX] {
            assert_eq!((zone.ahead_s(Stamp(at)), Zone::from(-12_600).ahead_s(Stamp(at))), (-12_600, -12_600));
        }
    }
}
