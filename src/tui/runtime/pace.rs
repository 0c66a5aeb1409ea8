//! How many messages a frame takes in: as many as there are while the processor is free, fewer where others want it.
//! Pure: how late a frame came is passed in.
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

/// The number of messages of a frame.
#[derive(Debug)]
pub(super) struct Pace {
    most: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { most: MOST }
    }
}

impl Pace {
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
    fn late_frames_take_in_less_and_full_ones_in_time_more() {
        let mut pace = Pace::default();
        let late = LATE + Duration::from_millis(1);
        pace.framed(late, 0);
        assert_eq!(pace.most(), MOST / 2);
        (0..20).for_each(|_| pace.framed(late, MOST));
        assert_eq!(pace.most(), LEAST);
        pace.framed(Duration::ZERO, LEAST - 1);
        assert_eq!(pace.most(), LEAST, "nothing is known of more");
        (0..100).for_each(|_| pace.framed(LATE, MOST));
        assert_eq!(pace.most(), MOST);
    }
}
