//! The rank that comes last to the collectives, of a run whose steps do not tell it: by a trace, or by NCCL itself.

use super::chance::is_surely_off;
use super::figures::RunAnalysis;
use super::finding::{Finding, last, rank_words};
use crate::domain::ids::Rank;
use crate::domain::units::{counted, short_duration_us};

/// So many collectives at least are judged.
const LEAST: u64 = 10;
/// Others that wait less than this on the mean lose nothing that matters, microseconds.
const LEAST_WAIT_US: f64 = 100.0;
/// What it weighs, where the share of the run's time that it costs is not known.
const WEIGHT: f64 = 0.1;

/// Who comes last, where that is no chance.
struct Latecomer {
    rank: Rank,
    last_in: u64,
    of: u64,
    ranks: usize,
    wait_us: f64,
    /// `AllReduce`, `40 collectives`.
    what: String,
    /// Whether it comes last too often for chance.
    is_sure: bool,
    /// What else there is to say.
    more: String,
}

pub(super) fn finding(run: &RunAnalysis) -> Option<Finding> {
    let late = by_trace(run).or_else(|| by_nccl(run))?;
    let is_told = run.what_if.iter().any(|line| line.rank == late.rank)
        || last(run).is_some_and(|(rank, _)| rank == late.rank);
    let matters = late.of >= LEAST && late.wait_us >= LEAST_WAIT_US;
    if is_told || !matters || !late.is_sure {
        return None;
    }
    let others = if late.ranks > 2 { "the others wait" } else { "the other waits" };
    let wait = short_duration_us(late.wait_us as u64);
    let words =
        format!("{} comes last to the collectives: {others} {wait} for it", rank_words(run, late.rank));
    let evidence = format!("last in {} of {}{}", late.last_in, late.what, late.more);
    Some(Finding::new(WEIGHT, words, evidence))
}

fn by_trace(run: &RunAnalysis) -> Option<Latecomer> {
    let waits = run.waits.as_ref().filter(|waits| waits.told > 0)?;
    let last = waits.ranks.iter().max_by_key(|rank| rank.last_in)?;
    let others = waits.ranks.iter().filter(|rank| rank.rank != last.rank);
    let (sum, count) = others.fold((0.0, 0.0), |(sum, count), rank| (sum + rank.wait.mean_us, count + 1.0));
    Some(Latecomer {
        rank: last.rank,
        last_in: last.last_in,
        of: waits.told,
        ranks: waits.ranks.len(),
        wait_us: if count > 0.0 { sum / count } else { 0.0 },
        what: counted(waits.told, "collective"),
        is_sure: is_surely_off(last.last_in, waits.told, waits.ranks.len()),
        more: String::new(),
    })
}

fn by_nccl(run: &RunAnalysis) -> Option<Latecomer> {
    let nccl = run.nccl.as_ref()?;
    let late = nccl.late?;
    let most = late.numbers.map_or_else(String::new, |span| {
        format!("\nmost of it in {} {} to {}", nccl.func, span.from_step, span.to_step)
    });
    Some(Latecomer {
        rank: late.rank,
        last_in: late.last_in,
        of: nccl.of,
        ranks: nccl.ranks as usize,
        wait_us: late.wait_us,
        what: format!("{} {}", nccl.of, nccl.func),
        is_sure: true,
        more: format!("; {:.0} % of the time in them is waiting for it{most}", late.share * 100.0),
    })
}

#[cfg(test)]
mod tests {
    use crate::domain::analysis::findings;
    use crate::domain::analysis::fixtures::{Told, spec, timing};
    use crate::domain::event::Event;
    use crate::domain::ids::Rank;
    use crate::domain::outcome::RunEnd;
    use crate::domain::timing::{Phase, PhaseSpan, StepTiming};
    use crate::domain::wait_table::{RankWaits, WaitSpread, WaitTable};

    fn told(last_in: [u64; 2]) -> Vec<String> {
        told_of(Told::new(spec(2)), last_in)
    }

    fn told_of(mut told: Told, last_in: [u64; 2]) -> Vec<String> {
        let spread = |mean_us| WaitSpread { mean_us, ..WaitSpread::default() };
        let rank = |number: usize| RankWaits {
            rank: Rank(number as u32),
            collectives: 40,
            last_in: last_in[number],
            late: spread(0.0),
            wait: spread(3000.0),
            idle_us: 0,
        };
        let waits = WaitTable {
            clock: "rank 0".to_owned(),
            collectives: 40,
            told: 40,
            ranks: vec![rank(0), rank(1)],
        };
        told.whole(Event::WaitsTold { waits: Box::new(waits) });
        let found = findings(&told.finish(RunEnd::Finished));
        found.into_iter().map(|finding| format!("{}; {}", finding.words, finding.evidence)).collect()
    }

    #[test]
    fn the_rank_that_comes_last_to_the_collectives_of_a_trace_is_told_unless_that_may_be_chance() {
        let words = "rank 1 (gpu-a:1) comes last to the collectives: the other waits 3.0 ms for it; last in 39 of 40 collectives";
        assert_eq!(told([1, 39]), [words]);
        assert_eq!(told([18, 22]), [""; 0]);
    }

    #[test]
    fn a_rank_of_which_the_steps_tell_that_it_comes_last_is_told_once() {
        let mut all = Told::new(spec(2));
        for step in 1..=40 {
            for (rank, dur_us) in [(0, 20_000), (1, 0)] {
                let spans = [PhaseSpan { phase: Phase::Wait, start_us: 0, dur_us }].into();
                all.step(rank, StepTiming { spans, dur_us: 50_000, ..timing(step, [0; 6]) });
            }
        }
        let found = told_of(all, [1, 39]);
        assert!(found[0].starts_with("rank 1 (gpu-a:1) comes last to the allreduce: "), "{found:#?}");
        assert!(!found.iter().any(|words| words.contains("to the collectives")), "{found:#?}");
    }
}
