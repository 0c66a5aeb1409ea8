//! How long a file was at which moment, as its reader has seen it: so that what is sent late has the time at which it was written. Pure.
//!
//! A sighting is true for ever: the file had this length by then. So each one may be left out, and what was written before it has the
//! time of the next.

use std::collections::VecDeque;

use crate::domain::time::HostTime;

/// How many are kept of what is not sent yet; then every second one goes.
const MOST: usize = 2048;

/// The sightings of one file.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// How long it was at first.
    first: Option<u64>,
    /// Where it was longer than before, oldest first.
    seen: VecDeque<(u64, HostTime)>,
}

impl Sightings {
    /// It is so long at `now`.
    pub(super) fn see(&mut self, length: u64, now: HostTime) {
        let longest = self.seen.back().map(|(longest, _)| *longest).or(self.first);
        self.first = self.first.or(Some(length));
        if longest.is_some_and(|longest| length > longest) {
            self.seen.push_back((length, now));
        }
        if self.seen.len() > MOST {
            let mut place = 0;
            self.seen.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// Nothing before this byte is asked for any more.
    pub(super) fn forget(&mut self, before: u64) {
        // one stays: it tells how long the file was last
        while self.seen.len() > 1 && self.seen.front().is_some_and(|(length, _)| *length <= before) {
            self.seen.pop_front();
        }
    }

    /// All that is there by now was written before `end`.
    pub(super) fn end(&mut self, end: HostTime) {
        self.seen.iter_mut().for_each(|(_, t)| *t = end.min(*t));
    }

    /// From which byte on it is known when each was written: what lies before it was there at first.
    pub(super) fn begin(&self) -> u64 {
        self.first.unwrap_or(u64::MAX)
    }

    /// The moments by which the bytes from `from` up to `to` were there, each with how long the file was then, the last one being the
    /// first that reaches `to`.
    pub(super) fn moments(&self, from: u64, to: u64) -> Vec<(u64, HostTime)> {
        let mut moments: Vec<(u64, HostTime)> = Vec::new();
        for moment in self.seen.iter().filter(|(length, _)| *length > from) {
            moments.push(*moment);
            if moment.0 >= to {
                break;
            }
        }
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_has_the_time_of_the_first_sighting_behind_it() {
        let mut sightings = Sightings::default();
        assert_eq!(sightings.begin(), u64::MAX, "never seen");
        sightings.see(10, HostTime(1));
        for (length, t) in [(10, 2), (30, 3), (30, 4), (50, 5), (70, 6)] {
            sightings.see(length, HostTime(t));
        }
        assert_eq!(sightings.begin(), 10, "was there at first");
        let of = |from, to| sightings.moments(from, to);
        assert_eq!(of(10, 30), [(30, HostTime(3))]);
        assert_eq!(of(10, 31), [(30, HostTime(3)), (50, HostTime(5))]);
        assert_eq!(of(30, 50), [(50, HostTime(5))]);
        assert_eq!(of(60, 90), [(70, HostTime(6))]);
        assert_eq!(of(70, 90), []);
        sightings.forget(50);
        assert_eq!(sightings.moments(50, 60), [(70, HostTime(6))]);
        sightings.forget(70);
        sightings.see(70, HostTime(7));
        assert_eq!(sightings.moments(70, 80), [], "nothing new");
    }

    #[test]
    fn nothing_is_written_behind_the_end() {
        let mut sightings = Sightings::default();
        for t in 0..4 {
            sightings.see(10 * t, HostTime(t));
        }
        sightings.end(HostTime(2));
        assert_eq!(sightings.moments(0, 30), [(10, HostTime(1)), (20, HostTime(2)), (30, HostTime(2))]);
    }

    #[test]
    fn of_many_some_are_left_out_and_none_is_wrong() {
        let mut sightings = Sightings::default();
        for t in 0..=10 * MOST as u64 {
            sightings.see(t, HostTime(t));
        }
        assert!(sightings.seen.len() <= MOST);
        let moments = sightings.moments(0, 10 * MOST as u64);
        assert!(moments.is_sorted() && moments.iter().all(|(length, t)| *length == t.0));
        assert!(moments.last().unwrap().0 >= 10 * MOST as u64);
    }
}
