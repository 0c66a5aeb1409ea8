//! Who waited for whom on the GPUs, from the durations of the kernels alone. Pure.
//!
//! NCCL's kernel starts on each GPU when its rank comes, and on all of them ends together: its duration holds the wait for the
//! last rank. So the shortest duration among the ranks is the transfer, and what a rank has beyond that is its
//! wait. No clocks are compared.

use std::collections::VecDeque;

use super::super::op::OpTiming;

/// Operations whose durations are kept for the next exchange; older ones are left out of it.
const KEPT: usize = 1024;

/// One operation, and where its time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// The operation's number in its group, from 1.
    pub seq: u64,
    /// Its time on this rank.
    pub timing: OpTiming,
}

/// The durations of this rank that have not been exchanged yet.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// Sequence number and nanoseconds, in order.
    done: VecDeque<(u64, f64)>,
    /// The last number that an exchange has dealt with.
    told: u64,
}

impl Durations {
    /// Operation `seq` took `ns`.
    pub(super) fn took(&mut self, seq: u64, ns: f64) {
        if self.done.len() == KEPT {
            self.done.pop_front();
        }
        self.done.push_back((seq, ns));
    }

    /// The durations of the operations up to `upto`, for an allreduce by the minimum. One that is not known yet is infinite,
    /// so that every rank brings as many numbers as the others, without waiting for its GPU.
    pub(super) fn exchange(&self, upto: u64) -> Vec<f64> {
        let first = self.first(upto);
        let mut own = vec![f64::INFINITY; (upto + 1).saturating_sub(first) as usize];
        for (seq, ns) in &self.done {
            if (first..=upto).contains(seq) {
                own[(seq - first) as usize] = *ns;
            }
        }
        own
    }

    fn first(&self, upto: u64) -> u64 {
        (self.told + 1).max((upto + 1).saturating_sub(KEPT as u64))
    }

    /// Splits the durations by the minimum over all ranks, and forgets them.
    pub(super) fn split(&mut self, upto: u64, minimum: &[f64]) -> Vec<Timed> {
        let own = self.exchange(upto);
        let first = self.first(upto);
        self.told = self.told.max(upto);
        self.done.retain(|(seq, _)| *seq > upto);
        let known = (first..).zip(own).zip(minimum).filter(|((_, own), _)| own.is_finite());
        known
            .map(|((seq, own), minimum)| {
                let transfer = minimum.min(own);
                Timed { seq, timing: OpTiming { wait: (own - transfer) as u64, transfer: transfer as u64 } }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimum(ranks: &[&Durations], upto: u64) -> Vec<f64> {
        let all: Vec<Vec<f64>> = ranks.iter().map(|rank| rank.exchange(upto)).collect();
        (0..all[0].len()).map(|at| all.iter().map(|own| own[at]).fold(f64::INFINITY, f64::min)).collect()
    }

    fn of(durations: &[(u64, f64)]) -> Durations {
        let mut all = Durations::default();
        for (seq, ns) in durations {
            all.took(*seq, *ns);
        }
        all
    }

    #[test]
    fn the_rank_that_came_last_did_not_wait() {
        let mut early = of(&[(1, 900.0), (2, 100.0)]);
        let mut late = of(&[(1, 100.0), (2, 110.0)]);
        let shortest = minimum(&[&early, &late], 2);
        let timing = |seq, wait, transfer| Timed { seq, timing: OpTiming { wait, transfer } };
        assert_eq!(early.split(2, &shortest), [timing(1, 800, 100), timing(2, 0, 100)]);
        assert_eq!(late.split(2, &shortest), [timing(1, 0, 100), timing(2, 10, 100)]);
    }

    #[test]
    fn what_is_not_known_yet_is_left_out_and_never_told_later() {
        let mut one = of(&[(1, 50.0)]);
        let mut two = of(&[(1, 60.0), (2, 70.0)]);
        let shortest = minimum(&[&one, &two], 2);
        assert_eq!(shortest, [50.0, 70.0]);
        assert_eq!(one.split(2, &shortest).len(), 1);
        assert_eq!(two.split(2, &shortest).len(), 2);
        one.took(2, 80.0);
        one.took(3, 90.0);
        assert_eq!(one.exchange(3), [90.0]);
        assert_eq!(two.exchange(3), [f64::INFINITY]);
    }

    #[test]
    fn a_long_silence_exchanges_the_newest_only_and_alike_on_all_ranks() {
        let mut much = Durations::default();
        for seq in 1..=5000 {
            much.took(seq, seq as f64);
        }
        let none = Durations::default();
        assert_eq!((much.exchange(5000).len(), none.exchange(5000).len()), (KEPT, KEPT));
        assert_eq!(much.exchange(5000).last(), Some(&5000.0));
        assert_eq!(much.split(5000, &vec![1.0; KEPT]).len(), KEPT);
        assert!(much.exchange(5000).is_empty());
    }
}
