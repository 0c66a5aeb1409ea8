//! Which rank failed first, and a sentence about it. Pure.

use std::collections::BTreeMap;

use crate::domain::blame;
use crate::domain::ids::Rank;
use crate::domain::last_words::LastWords;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::root_cause::{self, Evidence, RankEnd};
use crate::domain::run::{RankExit, RunSpec};
use crate::domain::time::Stamp;
use crate::domain::units::ranges;

/// The outcome of a run whose ranks have all ended. Times are on one clock. `words`: what a rank printed last; `unsure_us`: by how
/// much the time of its exit may be off, microseconds, `None` where that is not known. Which rank is the root cause,
/// [`root_cause::of`] says; the others are collateral.
pub fn outcome<'a>(
    spec: &RunSpec,
    exits: &'a BTreeMap<Rank, (Stamp, RankExit)>,
    words: impl Fn(Rank) -> Option<&'a LastWords>,
    unsure_us: impl Fn(Rank, &RankExit) -> Option<u32>,
) -> RunOutcome {
    let failed = exits.iter().filter(|(_, (_, exit))| exit.shell_code() != 0);
    let ends = exits.iter().map(|(rank, (at, exit))| RankEnd {
        rank: *rank,
        exit: Some((*at, exit)),
        words: words(*rank),
        clock: spec
            .placements
            .get(rank.0 as usize)
            .and_then(|placement| Some((&placement.host, unsure_us(*rank, exit)?))),
    });
    let cause = root_cause::of(&ends);
    let first = cause.as_ref().and_then(|cause| exits.get_key_value(&cause.rank));
    let unnamed =
        first.and_then(|(_, (_, exit))| exit.cause.clone().filter(|cause| blame::is_unnamed(cause)));
    if let (Some((_, (_, exit))), Some(summary)) = (first, unnamed) {
        return RunOutcome { code: Some(exit.shell_code()), ..RunOutcome::new(RunEnd::Failed, summary) };
    }
    let name = |rank: Rank| {
        let place = spec.placements.get(rank.0 as usize).map(ToString::to_string).unwrap_or_default();
        format!("rank {rank} ({place})")
    };
    let others = |told: [Option<Rank>; 2], stopped: bool, what: &str| {
        let of_kind = failed
            .clone()
            .filter(|(rank, (_, exit))| !told.contains(&Some(**rank)) && exit.stopped == stopped);
        match of_kind.map(|(rank, _)| *rank).collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            [rank] => format!("; rank {rank} {what}"),
            several => format!("; ranks {} {what}", ranges(several.iter().map(|rank| rank.0))),
        }
    };
    // with the root, one of which the sentence has said already that it failed
    let collateral = |root: Rank, named: Option<Rank>| {
        let told = [Some(root), named];
        others(told, false, "failed too") + &others(told, true, "stopped because of it")
    };
    if let (Some((root, (_, exit))), Some(cause)) = (first, cause) {
        let how = match spec.world() {
            1 => format!("failed: {}", exit.describe()),
            _ => Evidence::headline(cause.evidence.as_ref(), &exit.describe()),
        };
        let more = cause.evidence.as_ref().and_then(|evidence| evidence.words(name));
        let more = more.map_or_else(String::new, |more| format!("; {more}"));
        let named = match cause.evidence {
            Some(Evidence::Lost { by, .. }) => Some(by),
            _ => None,
        };
        let summary = format!("{} {how}{more}{}", name(*root), collateral(*root, named));
        // the code of one that was told to stop is that of being told
        let told = Some(exit).filter(|exit| !exit.stopped).or_else(|| Some(&exits.get(&cause.first)?.1));
        let code = told.map_or(1, RankExit::shell_code);
        return RunOutcome { evidence: cause.evidence, ..RunOutcome::failed(*root, code, summary) };
    }
    if let Some(root) = ended_early(exits) {
        let summary = format!("{} ended (exit 0) without MPI_Finalize{}", name(root), collateral(root, None));
        return RunOutcome::failed(root, 1, summary);
    }
    if exits.values().any(|(_, exit)| exit.stopped && exit.shell_code() != 0) {
        return RunOutcome::new(RunEnd::StoppedElsewhere, "stopped");
    }
    let ranks = if spec.world() == 1 { "the rank".to_owned() } else { format!("all {} ranks", spec.world()) };
    RunOutcome::new(RunEnd::Finished, format!("{ranks} finished"))
}

/// How soon a launcher ends the other ranks when one has left them so, microseconds.
const SOON_US: i64 = 10_000_000;

/// The rank that ended with 0 before its MPI was over, where the launcher has ended the others soon afterwards.
fn ended_early(exits: &BTreeMap<Rank, (Stamp, RankExit)>) -> Option<Rank> {
    let ended = exits.iter().filter(|(_, (_, exit))| exit.shell_code() == 0 && !exit.stopped);
    let (first, (left, _)) = ended.min_by_key(|(rank, (at, _))| (*at, **rank))?;
    let follows = |(at, exit): &(Stamp, RankExit)| {
        exit.cause.as_deref().is_some_and(blame::is_by_launcher)
            && (0..=SOON_US).contains(&at.micros_since(*left))
    };
    exits.values().any(follows).then_some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::rank_exit;
    use crate::launcher::fixtures::{cpu_host, one_each};

    fn spec() -> RunSpec {
        one_each(&["a", "b", "c", "d"].map(|name| cpu_host(name, 1)))
    }

    fn exits(list: &[(u32, i64, i32, bool)]) -> BTreeMap<Rank, (Stamp, RankExit)> {
        let exit = |(rank, at, code, stopped): &(u32, i64, i32, bool)| {
            let exit = RankExit { stopped: *stopped, ..rank_exit(*code) };
            (Rank(*rank), (Stamp(*at), exit))
        };
        list.iter().map(exit).collect()
    }

    fn said(at: i64, text: &str) -> LastWords {
        let mut words = LastWords::default();
        words.stepped(Stamp(0), 40);
        words.line(Stamp(at), crate::domain::log_text::level::Level::of(text), false, text);
        words
    }

    #[test]
    fn the_outcome_names_the_rank_that_printed_its_error_first() {
        let said = [said(4, "RuntimeError: out of memory"), said(5, "peer gone")];
        let words = |rank: Rank| Some(&said[usize::from(rank != Rank(1))]);
        let ends = exits(&[(0, 5, 1, false), (1, 9, 3, false), (2, 6, 1, false), (3, 9, 143, true)]);
        let told = outcome(&spec(), &ends, words, |_, _| None);
        assert_eq!((told.root, told.code), (Some(Rank(1)), Some(3)));
        assert_eq!(
            told.summary,
            "rank 1 (b:0) printed an error first: RuntimeError: out of memory; exit 3; ranks 0, 2 failed too; \
             rank 3 stopped because of it"
        );
        // told to stop before it had ended by itself
        let ends = exits(&[(0, 5, 1, false), (1, 9, 143, true)]);
        let told = outcome(&spec(), &ends, words, |_, _| None);
        assert_eq!((told.root, told.code), (Some(Rank(1)), Some(1)));
    }

    /// A host could not be reached when the others were told to stop, and its rank lost them.
    #[test]
    fn what_fails_after_others_were_stopped_is_no_cause() {
        let words = said(69_000_000, "RuntimeError: Connection reset by peer");
        for (at, end) in [(69_000_000, RunEnd::StoppedElsewhere), (1_000_004, RunEnd::Failed)] {
            let ends = exits(&[(0, 4, 143, true), (1, at, 1, false), (2, 5, 143, true), (3, 5, 143, true)]);
            let told = outcome(&spec(), &ends, |_| Some(&words), |_, _| None);
            assert_eq!((told.end, told.root.is_some()), (end, end == RunEnd::Failed), "{told:?}");
        }
        // one that had failed before stays the cause
        let ends = exits(&[(0, 2, 9, false), (1, 69_000_000, 1, false), (2, 3_000_000, 143, true)]);
        assert_eq!(outcome(&spec(), &ends, |_| Some(&words), |_, _| None).root, Some(Rank(0)));
    }

    #[test]
    fn two_that_failed_within_what_their_clocks_are_unsure_of_are_both_named() {
        let ends = exits(&[(1, 5, 3, false), (2, 8, 1, false), (3, 9, 143, true)]);
        let told = outcome(&spec(), &ends, |_| None, |_, _| Some(2_000));
        assert_eq!((told.root, told.code), (Some(Rank(1)), Some(3)));
        assert_eq!(
            told.summary,
            "rank 1 (b:0) failed: exit 3; it or rank 2 (c:0) failed first: their clocks are known to ±4.0 ms; rank 2 \
             failed too; rank 3 stopped because of it"
        );
        let exact = outcome(&spec(), &ends, |_| None, |_, _| Some(1));
        assert!(
            exact.summary.starts_with("rank 1 (b:0) failed first: exit 3; rank 2 failed too"),
            "{exact:?}"
        );
    }

    #[test]
    fn a_rank_that_had_only_lost_a_peer_is_named_once() {
        let said = said(5, "peer gone");
        let words = |rank: Rank| (rank != Rank(1)).then_some(&said);
        let ends = exits(&[(0, 5, 1, false), (1, 8, 3, false), (2, 9, 143, true)]);
        let told = outcome(&spec(), &ends, words, |_, _| None);
        assert_eq!((told.root, told.code), (Some(Rank(1)), Some(3)));
        let lost = "rank 1 (b:0) failed: exit 3; rank 0 (a:0) ended before it, but had lost a peer";
        assert_eq!(told.summary, format!("{lost}; rank 2 stopped because of it"));
        // one more is told of for itself
        let ends = exits(&[(0, 5, 1, false), (1, 8, 3, false), (2, 9, 1, false)]);
        let told = outcome(&spec(), &ends, words, |_, _| None);
        assert_eq!(told.summary, format!("{lost}; rank 2 failed too"));
    }

    #[test]
    fn the_outcome_names_a_rank_that_had_ended_before() {
        let said = said(5, "peer gone");
        let ends = exits(&[(0, 5, 1, false), (1, 2, 0, false), (2, 6, 1, false), (3, 9, 143, true)]);
        let told = outcome(&spec(), &ends, |_| Some(&said), |_, _| None);
        assert_eq!((told.root, told.code), (Some(Rank(0)), Some(1)));
        assert_eq!(
            told.summary,
            "rank 0 (a:0) failed first: exit 1; rank 1 (b:0) had ended before (exit 0, at step 40); rank 2 failed \
             too; rank 3 stopped because of it"
        );
    }

    #[test]
    fn a_failure_that_the_launcher_gives_to_no_rank_is_no_ranks() {
        let mut exits = exits(&[(0, 1, 5, false), (1, 1, 5, false)]);
        for (_, exit) in exits.values_mut() {
            exit.cause = Some(blame::unnamed("mpirun: a process returned a non-zero exit code"));
        }
        let outcome = outcome(&spec(), &exits, |_| None, |_, _| None);
        assert_eq!((outcome.end, outcome.code, outcome.root), (RunEnd::Failed, Some(5), None));
        let said = "mpirun: a process returned a non-zero exit code: which rank, it does not say";
        assert_eq!(outcome.summary, said);
    }

    #[test]
    fn a_rank_that_ended_without_mpi_finalize_is_the_cause_and_nothing_was_stopped() {
        let mut ends = exits(&[(0, 9, 143, true), (1, 5, 0, false), (2, 9, 143, true), (3, 7, 0, false)]);
        let stopped = outcome(&spec(), &ends, |_| None, |_, _| None);
        assert_eq!((stopped.end, stopped.root), (RunEnd::StoppedElsewhere, None));
        for (_, exit) in ends.values_mut().filter(|(_, exit)| exit.stopped) {
            exit.cause = Some(blame::BY_LAUNCHER.to_owned());
        }
        let told = outcome(&spec(), &ends, |_| None, |_, _| None);
        assert_eq!((told.end, told.root, told.code), (RunEnd::Failed, Some(Rank(1)), Some(1)));
        let said = "rank 1 (b:0) ended (exit 0) without MPI_Finalize; ranks 0, 2 stopped because of it";
        assert_eq!(told.summary, said);
        // long after one has ended, a launcher ends the others for another reason
        for (at, end) in [(10_000_005, RunEnd::Failed), (10_000_006, RunEnd::StoppedElsewhere)] {
            ends.values_mut().filter(|(_, exit)| exit.stopped).for_each(|(when, _)| *when = Stamp(at));
            assert_eq!(outcome(&spec(), &ends, |_| None, |_, _| None).end, end);
        }
    }

    #[test]
    fn the_earliest_that_failed_by_itself_is_the_root_and_of_two_at_once_the_lower_rank() {
        let outcome = |list| outcome(&spec(), &exits(list), |_| None, |_, _| None);
        let later = outcome(&[(0, 9, 1, false), (1, 5, 3, false), (2, 1, 143, true), (3, 2, 0, false)]);
        assert_eq!((later.end, later.code, later.root), (RunEnd::Failed, Some(3), Some(Rank(1))));
        assert_eq!(
            later.summary,
            "rank 1 (b:0) failed first: exit 3; rank 0 failed too; rank 2 stopped because of it"
        );
        let both = outcome(&[(2, 5, 4, false), (1, 5, 3, false), (3, 6, 143, true)]);
        assert_eq!(both.root, Some(Rank(1)));
        assert_eq!(
            both.summary,
            "rank 1 (b:0) failed first: exit 3; rank 2 failed too; rank 3 stopped because of it"
        );
        let stopped = outcome(&[(0, 1, 143, true), (1, 1, 0, true)]);
        assert_eq!((stopped.end, stopped.code, stopped.root), (RunEnd::StoppedElsewhere, None, None));
        let done = outcome(&[(0, 1, 0, false), (1, 1, 0, false), (2, 1, 0, false), (3, 1, 0, false)]);
        assert_eq!(
            (done.end, done.code, done.summary.as_str()),
            (RunEnd::Finished, None, "all 4 ranks finished")
        );
    }
}
