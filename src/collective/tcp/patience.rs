//! How a rank waits for sockets: it tries for a short while, then sleeps; and it looks up now and then.

use rustix::event::{PollFd, Timespec, poll};

use super::super::deadline::Clock;

/// The longest time between two looks at verdicts and deadlines, µs: half of what is promised.
const LOOK: u64 = 10_000;

/// A rank's way of waiting.
#[derive(Debug, Clone, Copy)]
pub(in crate::collective) struct Patience {
    /// The host's clock.
    pub(in crate::collective) clock: Clock,
    /// How long a socket is tried again and again before the rank sleeps, µs. Short where ranks share cores.
    pub(in crate::collective) spin: u32,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again at once.
    Try,
    /// Sleep until a socket is ready.
    Sleep,
}

/// One operation's waiting.
#[derive(Debug)]
pub(super) struct Wait {
    patience: Patience,
    /// Since when nothing moves.
    idle: Option<u64>,
    /// When verdicts were last looked at.
    looked: u64,
}

impl Wait {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, idle: None, looked: (patience.clock)().0 }
    }

    /// Something moved. Whether it is time to look up.
    pub(super) fn moved(&mut self) -> bool {
        self.idle = None;
        self.due((self.patience.clock)().0)
    }

    /// Nothing moved. What to do, and whether it is time to look up.
    pub(super) fn idle(&mut self) -> (Next, bool) {
        let now = (self.patience.clock)().0;
        let since = *self.idle.get_or_insert(now);
        let next =
            if now.saturating_sub(since) < u64::from(self.patience.spin) { Next::Try } else { Next::Sleep };
        (next, self.due(now))
    }

    fn due(&mut self, now: u64) -> bool {
        let due = now.saturating_sub(self.looked) >= LOOK;
        if due {
            self.looked = now;
        }
        due
    }
}

/// Sleeps until one of `fds` is ready, or it is time to look up. A signal, or a passing lack of memory, only means
/// another try: the deadline still holds.
pub(super) fn sleep(fds: &mut [PollFd<'_>]) {
    let time = Timespec { tv_sec: 0, tv_nsec: (LOOK * 1000) as _ };
    let _ = poll(fds, Some(&time));
}
