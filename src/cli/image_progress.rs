//! How far an image is on its way, in one line for people. Pure.

use std::collections::VecDeque;

use crate::domain::time::Stamp;
use crate::domain::units::{bytes, duration_us};
use crate::launcher::images::Progress;

/// Over how long the rate is measured, microseconds.
const WINDOW_US: i64 = 5_000_000;
/// How wide the bar is.
const BAR: u64 = 16;

/// What was taken when: the rate is that of the last seconds, so that it follows a link that stalls.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The size of the image, about.
    size: u64,
    looks: VecDeque<(Stamp, u64)>,
}

impl Meter {
    /// For an image of about this size.
    pub(crate) fn new(size: u64) -> Self {
        Self { size, looks: VecDeque::new() }
    }

    /// `████████░░░░░░░░  1.2 GB of 3.0 GB  110 MB/s  17 s left  to gpu-b, gpu-c · gpu-d loads it`.
    /// `read` is how much of the image was read here.
    pub(crate) fn words(&mut self, progress: &Progress, read: u64, at: Stamp) -> String {
        self.looks.push_back((at, progress.taken));
        while self.looks.get(1).is_some_and(|(then, _)| at.micros_since(*then) >= WINDOW_US) {
            self.looks.pop_front();
        }
        let mut parts = Vec::new();
        if !progress.copying.is_empty() {
            parts.push(format!("{}  to {}", self.counts(progress, read, at), progress.copying));
        }
        let mut say = |who: &crate::domain::waiting::Waiting, what: &str| {
            if !who.is_empty() {
                parts.push(format!("{what} {who}"));
            }
        };
        say(&progress.loading, "loading on");
        say(&progress.waiting, "another copy is under way to");
        say(&progress.asked, "waiting for");
        say(&progress.lost, "link lost, trying again:");
        parts.join(" · ")
    }

    fn counts(&self, progress: &Progress, read: u64, at: Stamp) -> String {
        let rate = self.looks.front().and_then(|(then, taken)| {
            let took = u128::from(at.micros_since(*then).unsigned_abs());
            let more = u128::from(progress.taken.saturating_sub(*taken));
            (more * 1_000_000).checked_div(took).filter(|rate| *rate > 0)
        });
        let rate_words = rate.map(|rate| format!("  {}/s", bytes(rate as u64))).unwrap_or_default();
        let Some(whole) = progress.whole.filter(|whole| *whole > 0) else {
            let read = format!("reading the image: {} of {}", bytes(read), bytes(self.size.max(read)));
            return match progress.taken {
                0 => read,
                sent => format!("{read}, {} sent{rate_words}", bytes(sent)),
            };
        };
        let full = (progress.taken * BAR).checked_div(whole).unwrap_or(0).min(BAR);
        let bar = "█".repeat(full as usize) + &"░".repeat((BAR - full) as usize);
        let left = u128::from(whole.saturating_sub(progress.taken));
        let left = rate.and_then(|rate| u64::try_from(left * 1_000_000 / rate).ok());
        let left = left.map(|left| format!("  {} left", duration_us(left))).unwrap_or_default();
        format!("{bar}  {} of {}{rate_words}{left}", bytes(progress.taken), bytes(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::waiting::Waiting;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut meter = Meter::new(2000 << 20);
        let who = |name: &str| Waiting::all(vec![name.to_owned()]);
        let mut progress = Progress { copying: who("b"), asked: who("c"), ..Progress::default() };
        assert_eq!(
            meter.words(&progress, 3 << 20, Stamp(0)),
            "reading the image: 3.0 M of 2.0 G  to b · waiting for c"
        );
        (progress.taken, progress.whole) = (500 << 20, Some(2000 << 20));
        let said = meter.words(&progress, 0, Stamp(5_000_000));
        assert_eq!(said, "████░░░░░░░░░░░░  500 M of 2.0 G  100 M/s  15.0 s left  to b · waiting for c");
        meter.words(&progress, 0, Stamp(9_000_000));
        assert!(!meter.words(&progress, 0, Stamp(11_000_000)).contains("/s"), "nothing comes");
        let ends = Progress { loading: who("b"), lost: who("d"), ..Progress::default() };
        assert_eq!(meter.words(&ends, 0, Stamp(12_000_000)), "loading on b · link lost, trying again: d");
    }
}
