//! When an unfinished line is told: soon after it was printed, and a few times a second at most. Pure.

use std::collections::BTreeMap;

use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::time::Stamp;

/// How long a text waits for its line end: many programs write that on its own.
const GRACE_US: i64 = 100_000;
/// The least time between two states of one stream, microseconds.
const EVERY_US: i64 = 450_000;

/// The streams of one run on one host.
#[derive(Debug, Default)]
pub(super) struct UpdateThrottle {
    /// What is to be told: since when; `None` until the time is known.
    news: BTreeMap<(Rank, Stream), Option<Stamp>>,
    /// When a stream was told last.
    told: BTreeMap<(Rank, Stream), Stamp>,
}

impl UpdateThrottle {
    /// A stream has something unfinished that is new.
    pub(super) fn changed(&mut self, rank: Rank, stream: Stream) {
        self.news.entry((rank, stream)).or_default();
    }

    /// A stream has nothing unfinished any more.
    pub(super) fn finished(&mut self, rank: Rank, stream: Stream) {
        self.news.remove(&(rank, stream));
    }

    /// The streams that are due now.
    pub(super) fn due(&mut self, now: Stamp) -> Vec<(Rank, Stream)> {
        let mut due = Vec::new();
        for (stream, since) in &mut self.news {
            let since = *since.get_or_insert(now);
            if at(since, self.told.get(stream)) <= now {
                due.push(*stream);
            }
        }
        for stream in &due {
            self.news.remove(stream);
            self.told.insert(*stream, now);
        }
        due
    }

    /// When the next one is due, after [`Self::due`] was asked.
    pub(super) fn next(&self) -> Option<Stamp> {
        self.news.iter().filter_map(|(stream, since)| Some(at((*since)?, self.told.get(stream)))).min()
    }
}

/// When news since then are due.
fn at(since: Stamp, told: Option<&Stamp>) -> Stamp {
    let first = since.plus_micros(GRACE_US);
    // a clock that was set back must not hold it up
    let told = told.filter(|told| **told <= since);
    told.map_or(first, |told| first.max(told.plus_micros(EVERY_US)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_told_soon_and_seldom() {
        let mut throttle = UpdateThrottle::default();
        let stream = (Rank(1), Stream::Stderr);
        let ms = |ms: i64| Stamp(ms * 1000);
        assert_eq!((throttle.due(ms(0)), throttle.next()), (vec![], None));
        let mut told = Vec::new();
        for now in 0..2000 {
            if now % 10 == 0 && now < 1500 {
                throttle.changed(stream.0, stream.1);
            }
            if !throttle.due(ms(now)).is_empty() {
                told.push(now);
            }
        }
        assert_eq!(told, [100, 550, 1000, 1450, 1900]);
        // one that ends before it is due is not told
        throttle.changed(stream.0, stream.1);
        assert_eq!((throttle.due(ms(3000)), throttle.next()), (vec![], Some(ms(3100))));
        throttle.finished(stream.0, stream.1);
        assert_eq!((throttle.due(ms(4000)), throttle.next()), (vec![], None));
        // the clock was set back
        throttle.changed(stream.0, stream.1);
        assert!(throttle.due(ms(50)).is_empty());
        assert_eq!(throttle.due(ms(150)), [stream]);
    }
}
