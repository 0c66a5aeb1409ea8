//! So much at once, and so much a second. Pure.

use crate::domain::time::Stamp;

/// Tokens of one kind.
#[derive(Debug)]
pub(super) struct Bucket {
    room: f64,
    a_second: f64,
    left: f64,
    /// When it was last filled up.
    at: Option<Stamp>,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(room: u32, a_second: u32) -> Self {
        let (room, a_second) = (f64::from(room), f64::from(a_second));
        Self { room, a_second, left: room, at: None }
    }

    /// Takes `count` at `now`, or nothing where there are not so many.
    pub(super) fn take(&mut self, now: Stamp, count: usize) -> bool {
        // a clock that was set back fills nothing and blocks nothing
        let seconds = self.at.map_or(0.0, |at| now.seconds_since(at)).max(0.0);
        self.left = (self.left + seconds * self.a_second).min(self.room);
        self.at = Some(now);
        let count = count as f64;
        let enough = self.left >= count;
        if enough {
            self.left -= count;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_emptied_at_once_and_filled_by_time() {
        let at = |ms: i64| Stamp(ms * 1000);
        let mut bucket = Bucket::new(10, 100);
        assert!(bucket.take(at(0), 10) && !bucket.take(at(0), 1));
        assert!(!bucket.take(at(5), 1) && bucket.take(at(10), 1));
        assert!(!bucket.take(at(20), 2), "what is too much takes nothing");
        assert!(bucket.take(at(20), 1));
        assert!(
            !bucket.take(at(60_000), 11) && bucket.take(at(60_000), 10),
            "it holds no more than its room"
        );
        assert!(!bucket.take(at(0), 1) && bucket.take(at(20), 2), "a clock that was set back");
    }
}
