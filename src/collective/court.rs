//! Who is to blame when an operation stops half way. Pure.
//!
//! In a ring one rank's trouble is soon everyone's: each waits for the one before it. Rank 0 hears all complaints
//! and finds the rank that is complained of but does not complain itself.

use super::control::{Cause, Ranks};
use super::op::OpId;

/// «I can't go on because of that rank.»
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) from: u32,
    pub(super) about: u32,
    /// Others of which the same is true.
    pub(super) more: Ranks,
    pub(super) cause: Cause,
    /// The operation that it is about.
    pub(super) seq: u64,
    /// Segments that the complainer had moved: the less, the nearer it is to the trouble.
    pub(super) progress: u64,
    /// What the complainer does, and what a rank that diverged does.
    pub(super) ours: OpId,
    pub(super) theirs: OpId,
}

/// The culprit and its fault. `gone` are ranks whose control line has closed. `None` without any complaint and
/// anyone gone.
pub(super) fn judge(complaints: &[Complaint], gone: &[u32]) -> Option<Complaint> {
    // Rank 0 is at work: it is judging.
    let has_spoken = |rank: u32| rank == 0 || complaints.iter().any(|complaint| complaint.from == rank);
    let of = |cause: Cause| complaints.iter().filter(move |complaint| complaint.cause == cause);
    let silent = |complaint: &&Complaint| !has_spoken(complaint.about);
    of(Cause::Diverged)
        .next()
        .or_else(|| of(Cause::Garbled).next())
        .or_else(|| of(Cause::Lost).find(|complaint| silent(complaint) && gone.contains(&complaint.about)))
        .or_else(|| of(Cause::Lost).find(silent))
        .copied()
        .or_else(|| {
            let rank = *gone.iter().find(|rank| !has_spoken(**rank))?;
            let one = complaints.first()?;
            Some(Complaint { from: 0, about: rank, cause: Cause::Lost, ..*one })
        })
        .or_else(|| of(Cause::Stuck).find(silent).copied())
        .or_else(|| complaints.iter().min_by_key(|complaint| complaint.progress).copied())
}

/// The ranks that others wait for and that have said nothing, in order.
pub(super) fn silent(complaints: &[Complaint], named: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let has_spoken = |rank: u32| rank == 0 || complaints.iter().any(|complaint| complaint.from == rank);
    let accused = complaints.iter().map(|complaint| complaint.about).chain(named);
    let mut ranks: Vec<u32> = accused.filter(|rank| !has_spoken(*rank)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(from: u32, about: u32, cause: Cause, progress: u64) -> Complaint {
        let op = OpId { kind: super::super::op::OpKind::Barrier, seq: 1, len: 0 };
        Complaint { from, about, more: Ranks::default(), cause, seq: 1, progress, ours: op, theirs: op }
    }

    fn culprit(complaints: &[Complaint], gone: &[u32]) -> Option<(u32, Cause)> {
        judge(complaints, gone).map(|found| (found.about, found.cause))
    }

    #[test]
    fn the_one_that_does_not_complain_is_stuck() {
        // Rank 2 of 5 has stopped; each waits for the one before it.
        let complaints =
            [(1, 0), (3, 2), (4, 3)].map(|(from, about)| complaint(from, about, Cause::Stuck, 9));
        assert_eq!(culprit(&complaints, &[]), Some((2, Cause::Stuck)));
    }

    #[test]
    fn a_death_outweighs_what_follows_from_it() {
        let complaints = [
            complaint(4, 3, Cause::Stuck, 5),
            complaint(0, 4, Cause::Stuck, 5),
            complaint(3, 2, Cause::Lost, 5),
        ];
        assert_eq!(culprit(&complaints, &[2]), Some((2, Cause::Lost)));
        // Rank 1 had finished and left; rank 2 died.
        assert_eq!(culprit(&complaints, &[1, 2]), Some((2, Cause::Lost)));
        // Rank 3 lost rank 2, gave up and closed, so rank 4 lost rank 3.
        let cascade = [complaint(4, 3, Cause::Lost, 5), complaint(3, 2, Cause::Lost, 5)];
        assert_eq!(culprit(&cascade, &[3]), Some((2, Cause::Lost)));
        assert_eq!(culprit(&complaints[..2], &[2]), Some((2, Cause::Lost)));
    }

    #[test]
    fn nonsense_comes_first_and_a_cut_link_is_where_progress_is_least() {
        let complaints = [complaint(4, 3, Cause::Lost, 5), complaint(3, 2, Cause::Garbled, 5)];
        assert_eq!(culprit(&complaints, &[]), Some((2, Cause::Garbled)));
        let all = [
            complaint(0, 2, Cause::Stuck, 7),
            complaint(1, 0, Cause::Stuck, 8),
            complaint(2, 1, Cause::Stuck, 6),
        ];
        assert_eq!(culprit(&all, &[]), Some((1, Cause::Stuck)));
        assert_eq!(culprit(&[], &[]), None);
    }
}
