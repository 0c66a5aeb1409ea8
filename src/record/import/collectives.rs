//! What the collectives of one step tell of each rank: how long it waited, and how long bytes moved, with nothing left to do.
//!
//! A rank that hands in another tensor was not waiting until then: Horovod's collectives run beside the program. So collectives
//! that overlap are taken together. From the last tensor that a rank hands in until all ranks have handed in theirs, it waits;
//! from then until the last of them is through, bytes move. What overlapped before that is hidden behind its computing.

use super::waits::length;
use crate::domain::timing::{Phase, PhaseSpan};

/// A collective that is through. Times are microseconds by the trace's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Collective {
    /// When the first rank came.
    pub(super) first: i64,
    /// When each came, by its number; not all of them where the trace does not tell.
    pub(super) arrivals: Vec<(u32, i64)>,
    /// When all had come.
    pub(super) together: i64,
    /// When it was through.
    pub(super) ended: i64,
}

impl Collective {
    /// When a rank came.
    fn arrival(&self, rank: u32) -> Option<i64> {
        let at = self.arrivals.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        self.arrivals.get(at).map(|(_, at)| *at)
    }
}

/// What a rank did in a step, as far as its collectives tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) spans: Vec<PhaseSpan>,
    /// Collectives that ran while it still computed, microseconds.
    pub(super) hidden_us: u32,
    /// How long it waited in the spans.
    pub(super) wait_us: u64,
}

/// Whether the arrivals of all ranks are told in all of them.
pub(super) fn tells_waits(all: &[Collective], world: u32) -> bool {
    !all.is_empty() && all.iter().all(|one| one.arrivals.len() == world as usize)
}

/// The part of a rank in the collectives of a step that began at `start`. For `None` that of any rank: nothing is known of
/// its waits then, and bytes move from when all ranks have handed in all.
pub(super) fn part(all: &[Collective], rank: Option<u32>, start: i64) -> Part {
    let came = |one: &Collective| rank.map_or(Some(one.first), |rank| one.arrival(rank));
    let mut own: Vec<(i64, &Collective)> = all.iter().filter_map(|one| Some((came(one)?, one))).collect();
    own.sort_by_key(|(came, one)| (*came, one.ended));
    let mut part = Part::default();
    let mut rest = &own[..];
    while let Some(((first, one), _)) = rest.split_first() {
        let (mut last, mut together, mut ended, mut count) = (*first, one.together, one.ended, 1);
        for (came, more) in rest.iter().skip(1) {
            if *came > ended {
                break;
            }
            (last, together) = (*came, together.max(more.together));
            (ended, count) = (ended.max(more.ended), count + 1);
        }
        rest = rest.get(count..).unwrap_or_default();
        let together = together.max(last);
        if rank.is_some() {
            part.wait_us += u64::from(length(last, together));
            part.spans.push(span(Phase::Wait, start, (last, together)));
            part.hidden_us = part.hidden_us.saturating_add(length(*first, last));
        }
        if ended > together {
            part.spans.push(span(Phase::Transfer, start, (together, ended)));
        }
    }
    part
}

fn span(phase: Phase, start: i64, (from, to): (i64, i64)) -> PhaseSpan {
    let from = from.max(start);
    PhaseSpan { phase, start_us: length(start, from), dur_us: length(from, to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collective(arrivals: [i64; 2], ended: i64) -> Collective {
        let (first, together) = (arrivals[0].min(arrivals[1]), arrivals[0].max(arrivals[1]));
        Collective { first, arrivals: vec![(0, arrivals[0]), (1, arrivals[1])], together, ended }
    }

    fn spans(part: &Part) -> Vec<(Phase, u32, u32)> {
        part.spans.iter().map(|span| (span.phase, span.start_us, span.dur_us)).collect()
    }

    #[test]
    fn a_rank_waits_from_its_last_tensor_on() {
        // rank 0 hands in two tensors while it computes, rank 1 both at once; then comes one by itself
        let all = [collective([100, 400], 500), collective([300, 410], 520), collective([900, 600], 950)];
        assert!(tells_waits(&all, 2) && !tells_waits(&all, 3) && !tells_waits(&[], 2));
        let first = part(&all, Some(0), 50);
        assert_eq!(
            spans(&first),
            [
                (Phase::Wait, 250, 110),
                (Phase::Transfer, 360, 110),
                (Phase::Wait, 850, 0),
                (Phase::Transfer, 850, 50)
            ]
        );
        assert_eq!((first.hidden_us, first.wait_us), (200, 110));
        let second = part(&all, Some(1), 50);
        assert_eq!((second.hidden_us, second.wait_us), (10, 300));
        let any = part(&all, None, 50);
        assert_eq!(spans(&any), [(Phase::Transfer, 360, 110), (Phase::Transfer, 850, 50)]);
        assert_eq!((any.hidden_us, any.wait_us), (0, 0));
    }
}
