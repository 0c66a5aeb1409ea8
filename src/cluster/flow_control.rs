//! How many bytes of logs may be under way from a host: so many that a fast link is used in full, so few that what
//! is sent after them, a key's answer or a telemetry sample, doesn't wait long. Pure: what a round trip took is
//! passed in.
//!
//! The window begins small. It doubles while it is used and a ping that was sent behind its bytes still comes back
//! soon; it halves when that takes long. Pings that find it unused say nothing about it: an idle link must not earn
//! a window that a flood then fills.

use std::time::Duration;

/// The window of a new link.
const FIRST: u64 = 32 << 10;
/// One piece of a file: with less nothing would move.
const LEAST: u64 = 16 << 10;
/// More than this no link that ssh reaches can use.
const MOST: u64 = 4 << 20;
/// A ping that took so much longer than the quickest one waited for little.
const SOON: Duration = Duration::from_millis(250);
/// So much longer is too long.
const LATE: Duration = Duration::from_secs(1);

/// The credit of one link. Bytes are counted from the link's beginning.
#[derive(Debug)]
pub(super) struct FlowControl {
    window: u64,
    /// Bytes that were taken in.
    taken: u64,
    /// How far the host may send.
    granted: u64,
    /// Bytes taken in since the window was last judged.
    used: u64,
    quickest: Duration,
    /// A ping is under way whose return judges the window.
    probing: bool,
}

impl FlowControl {
    pub(super) fn new() -> Self {
        Self { window: FIRST, taken: 0, granted: 0, used: 0, quickest: Duration::MAX, probing: false }
    }

    /// So many bytes of logs were taken in.
    pub(super) fn took(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
        self.used = self.used.saturating_add(bytes);
    }

    /// A ping came back, while so many bytes of logs wait here to be taken in.
    pub(super) fn round_trip(&mut self, took: Duration, waiting: u64) {
        self.probing = false;
        self.quickest = self.quickest.min(took);
        let longer = took.saturating_sub(self.quickest);
        let slow_reader = waiting > self.window / 2;
        if longer > LATE {
            self.window = (self.window / 2).max(LEAST);
        } else if longer < SOON && self.is_used() && !slow_reader {
            self.window = (self.window * 2).min(MOST);
        } else if !self.is_used() {
            return;
        }
        self.used = 0;
    }

    /// Whether to ping now instead of at the next beat: the window is in use and could be larger.
    pub(super) fn probe(&mut self) -> bool {
        let probe = !self.probing && self.window < MOST && self.is_used();
        self.probing |= probe;
        probe
    }

    /// Up to which byte the host may send from now on, if that is worth a message. Never less than before.
    pub(super) fn grant(&mut self) -> Option<u64> {
        let until = self.taken.saturating_add(self.window);
        let worth = self.granted == 0 || until >= self.granted.saturating_add(self.window / 4);
        worth.then(|| {
            self.granted = until;
            until
        })
    }

    fn is_used(&self) -> bool {
        self.used >= self.window / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Takes in a whole window, then a ping comes back.
    fn beat(flow: &mut FlowControl, round_trip: Duration) -> u64 {
        flow.took(flow.window);
        flow.grant();
        flow.round_trip(round_trip, 0);
        flow.window
    }

    #[test]
    fn it_doubles_on_a_quick_link_and_halves_on_a_late_one() {
        let mut flow = FlowControl::new();
        assert_eq!(flow.grant(), Some(FIRST));
        assert_eq!(flow.grant(), None);
        flow.round_trip(ms(20), 0);
        assert_eq!(flow.window, FIRST, "an idle link earns nothing");
        assert_eq!([20, 100, 600, 200].map(|took| beat(&mut flow, ms(took)) >> 10), [64, 128, 128, 256]);
        assert_eq!([2000, 2000, 900, 2000].map(|took| beat(&mut flow, ms(took)) >> 10), [128, 64, 64, 32]);
        for _ in 0..20 {
            beat(&mut flow, ms(20));
        }
        assert_eq!(flow.window, MOST);
    }

    #[test]
    fn a_far_link_is_not_taken_for_a_full_one() {
        let mut flow = FlowControl::new();
        flow.round_trip(ms(700), 0);
        assert_eq!([700, 720, 900].map(|took| beat(&mut flow, ms(took)) >> 10), [64, 128, 256]);
        assert_eq!(beat(&mut flow, ms(1800)) >> 10, 128);
    }

    #[test]
    fn a_slow_reader_earns_no_larger_window() {
        let mut flow = FlowControl::new();
        flow.took(FIRST);
        flow.round_trip(ms(1), FIRST);
        assert_eq!(flow.window, FIRST);
    }

    #[test]
    fn a_used_window_is_judged_before_the_next_beat_and_once() {
        let mut flow = FlowControl::new();
        assert!(!flow.probe());
        flow.took(FIRST);
        assert!(flow.probe() && !flow.probe());
        flow.round_trip(ms(5), 0);
        assert!(!flow.probe(), "nothing was used of the larger one yet");
        flow.took(2 * FIRST);
        assert!(flow.probe());
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// The host sends as much of this as it may.
        Send(u64),
        /// The reader takes in as much of this as is there.
        Take(u64),
        /// A ping comes back after so many ms.
        Pong(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..8 << 20).prop_map(Step::Send),
            (0u64..8 << 20).prop_map(Step::Take),
            (0u64..5000).prop_map(Step::Pong),
        ]
    }

    proptest! {
        #[test]
        fn what_is_under_way_is_bounded_and_never_stands_still(steps in prop::collection::vec(step(), 0..200)) {
            let mut flow = FlowControl::new();
            let (mut until, mut sent, mut taken) = (flow.grant().unwrap(), 0u64, 0u64);
            for step in steps {
                match step {
                    Step::Send(bytes) => sent = (sent + bytes).min(until).max(sent),
                    Step::Take(bytes) => {
                        let bytes = bytes.min(sent - taken);
                        taken += bytes;
                        flow.took(bytes);
                    }
                    Step::Pong(took) => flow.round_trip(ms(took), sent - taken),
                }
                if let Some(more) = flow.grant() {
                    prop_assert!(more >= until, "credit is not taken back");
                    until = more;
                }
                prop_assert!((LEAST..=MOST).contains(&flow.window));
                prop_assert!(until - taken <= MOST);
                prop_assert!(sent > taken || until > taken, "all was taken in and the host may not send");
            }
        }

        #[test]
        fn a_link_that_stays_late_comes_down_to_one_piece(before in 0usize..12, rest in 0u64..1 << 20) {
            let mut flow = FlowControl::new();
            flow.round_trip(ms(10), 0);
            for _ in 0..before {
                beat(&mut flow, ms(10));
            }
            for _ in 0..9 {
                flow.took(rest);
                flow.round_trip(ms(3000), 0);
            }
            prop_assert_eq!(flow.window, LEAST);
        }
    }
}
