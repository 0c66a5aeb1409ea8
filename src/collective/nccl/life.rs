//! The life of a communicator of NCCL, as a state machine: time and the library's answers in, what to do next out. Pure.
//!
//! ```text
//! Joining ──done──▶ Ready ──finalize──▶ Finalizing ──done──▶ (gone)
//!    │                │                    │
//!    └── error, late ─┴────────────────────┴──▶ Aborting ──done──▶ (gone)
//!                                                  └── late ──▶ (hung: the process must end)
//! ```
//!
//! Every call of a communicator that doesn't block may answer «in progress»; until it has settled no other may be made.

/// Microseconds between polls grow from this …
const SHORTEST: u64 = 20;
/// … to this; and while an operation runs only to the second, for its end is waited for.
const LONGEST: u64 = 5_000;
/// See [`LONGEST`].
const LONGEST_OF_OPERATION: u64 = 100;

/// Where a communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Meeting the other ranks.
    Joining,
    /// Between operations, or an operation is being settled.
    Ready,
    /// Waiting until nothing is in flight on any rank.
    Finalizing,
    /// Being given up.
    Aborting,
}

/// What the library answered to a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// Ask again.
    InProgress,
    /// It failed, with a code of the library's.
    Failed(i32),
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Ask again after so many microseconds.
    Wait(u64),
    /// What was asked for is done.
    Done,
    /// Give the communicator up: it failed with this code, or is late.
    Abort(Why),
    /// Even giving it up is late.
    Hung,
}

/// Why a communicator is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A code of the library's.
    Code(i32),
    /// The deadline.
    Late,
}

/// One thing that is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    stage: Stage,
    deadline: u64,
    pause: u64,
}

impl Life {
    /// Begins `stage` at `now`; it must be over `limit` later. Microseconds of any one clock.
    pub(super) fn begin(stage: Stage, now: u64, limit: u64) -> Self {
        Self { stage, deadline: now.saturating_add(limit), pause: SHORTEST }
    }

    /// The library's answer at `now`.
    pub(super) fn answer(&mut self, now: u64, answer: Answer) -> Next {
        match answer {
            Answer::Done => Next::Done,
            // What is being given up is expected to complain; it is over when the library says it is.
            Answer::Failed(_) if self.stage == Stage::Aborting => Next::Done,
            Answer::Failed(code) => Next::Abort(Why::Code(code)),
            Answer::InProgress if now < self.deadline => {
                let pause = self.pause.min(self.deadline - now);
                self.pause = (self.pause * 2).min(match self.stage {
                    Stage::Ready => LONGEST_OF_OPERATION,
                    Stage::Joining | Stage::Finalizing | Stage::Aborting => LONGEST,
                });
                Next::Wait(pause)
            }
            Answer::InProgress if self.stage == Stage::Aborting => Next::Hung,
            Answer::InProgress => Next::Abort(Why::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn joining_takes_as_long_as_it_takes_up_to_its_deadline() {
        let mut life = Life::begin(Stage::Joining, 1_000, 100_000);
        let mut now = 1_000;
        let mut pauses = Vec::new();
        loop {
            match life.answer(now, Answer::InProgress) {
                Next::Wait(pause) => {
                    pauses.push(pause);
                    now += pause;
                }
                other => break assert_eq!(other, Next::Abort(Why::Late)),
            }
        }
        assert_eq!(now, 101_000, "the last pause ends at the deadline");
        assert_eq!((pauses[0], pauses.iter().max()), (SHORTEST, Some(&LONGEST)));
        assert!(pauses.len() < 40, "{} polls", pauses.len());
    }

    #[test]
    fn an_answer_after_the_deadline_still_counts() {
        let mut life = Life::begin(Stage::Joining, 0, 10);
        assert_eq!(life.answer(1_000_000, Answer::Done), Next::Done);
    }

    #[test]
    fn errors_lead_to_an_abort_except_of_the_abort() {
        for stage in [Stage::Joining, Stage::Ready, Stage::Finalizing] {
            let mut life = Life::begin(stage, 0, 10);
            assert_eq!(life.answer(1, Answer::Failed(6)), Next::Abort(Why::Code(6)), "{stage:?}");
        }
        let mut life = Life::begin(Stage::Aborting, 0, 10);
        assert_eq!(life.answer(1, Answer::Failed(6)), Next::Done);
        let mut life = Life::begin(Stage::Aborting, 0, 10);
        assert_eq!(life.answer(10, Answer::InProgress), Next::Hung);
    }

    proptest! {
        #[test]
        fn nothing_waits_beyond_its_deadline(limit in 0_u64..1_000_000, late in 0_u64..1000, stage in 0..4) {
            let stage = [Stage::Joining, Stage::Ready, Stage::Finalizing, Stage::Aborting][stage as usize];
            let mut life = Life::begin(stage, 5, limit);
            let mut now = 5;
            while let Next::Wait(pause) = life.answer(now, Answer::InProgress) {
                prop_assert!(pause > 0);
                now += pause + late;
            }
            prop_assert!(now >= 5 + limit && now <= 5 + limit + late);
        }
    }
}
