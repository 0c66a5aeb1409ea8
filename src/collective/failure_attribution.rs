//! Which rank has failed when an operation stops half way. Pure.
//!
//! In a ring one rank's fault soon stops all: each waits for the one before it. Rank 0 hears all reports and finds the rank
//! that is reported but reports no other one itself.

use super::control::{Cause, Ranks};
use super::op::OpId;

/// «I can't go on because of that rank.»
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailureReport {
    pub(super) from: u32,
    pub(super) about: u32,
    /// Others of which the same is true.
    pub(super) more: Ranks,
    pub(super) cause: Cause,
    /// The operation that it is about.
    pub(super) seq: u64,
    /// Segments that the reporter had moved: the less, the nearer it is to the fault.
    pub(super) progress: u64,
    /// What the reporter does, and what a rank that diverged does.
    pub(super) ours: OpId,
    pub(super) theirs: OpId,
}

/// The failed rank and its fault. `gone` are ranks whose control line has closed. `None` without any report and
/// anyone gone.
pub(super) fn attribute(reports: &[FailureReport], gone: &[u32]) -> Option<FailureReport> {
    // Rank 0 is at work: it is judging.
    let has_spoken = |rank: u32| rank == 0 || reports.iter().any(|report| report.from == rank);
    let of = |cause: Cause| reports.iter().filter(move |report| report.cause == cause);
    let silent = |report: &&FailureReport| !has_spoken(report.about);
    of(Cause::Diverged)
        .next()
        .or_else(|| of(Cause::Garbled).next())
        .or_else(|| of(Cause::Lost).find(|report| silent(report) && gone.contains(&report.about)))
        .or_else(|| of(Cause::Lost).find(silent))
        .copied()
        .or_else(|| {
            let rank = *gone.iter().find(|rank| !has_spoken(**rank))?;
            let one = reports.first()?;
            Some(FailureReport { from: 0, about: rank, cause: Cause::Lost, ..*one })
        })
        .or_else(|| of(Cause::Stuck).find(silent).copied())
        .or_else(|| reports.iter().min_by_key(|report| report.progress).copied())
}

/// The ranks that others wait for and that have said nothing, in order.
pub(super) fn silent(reports: &[FailureReport], named: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let has_spoken = |rank: u32| rank == 0 || reports.iter().any(|report| report.from == rank);
    let accused = reports.iter().map(|report| report.about).chain(named);
    let mut ranks: Vec<u32> = accused.filter(|rank| !has_spoken(*rank)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(from: u32, about: u32, cause: Cause, progress: u64) -> FailureReport {
        let op = OpId { kind: super::super::op::OpKind::Barrier, seq: 1, len: 0 };
        FailureReport { from, about, more: Ranks::default(), cause, seq: 1, progress, ours: op, theirs: op }
    }

    fn culprit(reports: &[FailureReport], gone: &[u32]) -> Option<(u32, Cause)> {
        attribute(reports, gone).map(|found| (found.about, found.cause))
    }

    #[test]
    fn the_one_that_reports_none_is_stuck() {
        // Rank 2 of 5 has stopped; each waits for the one before it.
        let reports = [(1, 0), (3, 2), (4, 3)].map(|(from, about)| report(from, about, Cause::Stuck, 9));
        assert_eq!(culprit(&reports, &[]), Some((2, Cause::Stuck)));
    }

    #[test]
    fn a_death_outweighs_what_follows_from_it() {
        let reports =
            [report(4, 3, Cause::Stuck, 5), report(0, 4, Cause::Stuck, 5), report(3, 2, Cause::Lost, 5)];
        assert_eq!(culprit(&reports, &[2]), Some((2, Cause::Lost)));
        // Rank 1 had finished and left; rank 2 died.
        assert_eq!(culprit(&reports, &[1, 2]), Some((2, Cause::Lost)));
        // Rank 3 lost rank 2, gave up and closed, so rank 4 lost rank 3.
        let cascade = [report(4, 3, Cause::Lost, 5), report(3, 2, Cause::Lost, 5)];
        assert_eq!(culprit(&cascade, &[3]), Some((2, Cause::Lost)));
        assert_eq!(culprit(&reports[..2], &[2]), Some((2, Cause::Lost)));
    }

    #[test]
    fn nonsense_comes_first_and_a_cut_link_is_where_progress_is_least() {
        let reports = [report(4, 3, Cause::Lost, 5), report(3, 2, Cause::Garbled, 5)];
        assert_eq!(culprit(&reports, &[]), Some((2, Cause::Garbled)));
        let all =
            [report(0, 2, Cause::Stuck, 7), report(1, 0, Cause::Stuck, 8), report(2, 1, Cause::Stuck, 6)];
        assert_eq!(culprit(&all, &[]), Some((1, Cause::Stuck)));
        assert_eq!(culprit(&[], &[]), None);
    }
}
