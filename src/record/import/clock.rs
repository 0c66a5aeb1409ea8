//! The clock of a trace that one program wrote in order: it does not run backwards, whatever the trace says.

use super::summary::LeftOut;

/// A time that is so much later than the one before is no time, microseconds.
const MOST_AHEAD_US: i64 = 7 * 86_400_000_000;

/// Follows it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now: Option<i64>,
    earlier: u64,
    most_earlier_us: i64,
    refused: u64,
}

impl Clock {
    /// The moment of an event, microseconds: that of the one before where it is earlier. `None` where it is no time.
    pub(super) fn at(&mut self, us: Option<i64>) -> Option<i64> {
        let us = us.filter(|us| {
            let since = us.checked_sub(self.now.unwrap_or_default());
            *us >= 0 && since.is_some_and(|since| self.now.is_none() || since <= MOST_AHEAD_US)
        });
        let Some(us) = us else {
            self.refused += 1;
            return None;
        };
        let now = self.now.map_or(us, |now| now.max(us));
        if now > us {
            self.earlier += 1;
            self.most_earlier_us = self.most_earlier_us.max(now - us);
        }
        self.now = Some(now);
        Some(now)
    }

    /// The newest moment.
    pub(super) fn now(&self) -> i64 {
        self.now.unwrap_or_default()
    }

    /// What is to be said of it.
    pub(super) fn told(&self) -> impl Iterator<Item = LeftOut> {
        let earlier = (self.earlier > 0).then(|| {
            let by = crate::domain::units::duration_us(self.most_earlier_us.unsigned_abs());
            LeftOut::new(
                "events whose time is earlier than that of the one before",
                self.earlier,
                format!("by up to {by}: the clock ran backwards, so they are taken at that one's time"),
            )
        });
        let refused = (self.refused > 0)
            .then(|| LeftOut::new("events without a time", self.refused, "missing, negative or days ahead"));
        [earlier, refused].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forwards_and_takes_no_nonsense() {
        let mut clock = Clock::default();
        let times = [Some(5), Some(9), Some(7), Some(-3), None, Some(i64::MAX), Some(12), Some(2)];
        let seen: Vec<_> = times.into_iter().map(|us| clock.at(us)).collect();
        assert_eq!(seen, [Some(5), Some(9), Some(9), None, None, None, Some(12), Some(12)]);
        let told: Vec<_> = clock.told().map(|told| told.count).collect();
        assert_eq!((told, clock.now()), (vec![2, 3], 12));
    }
}
