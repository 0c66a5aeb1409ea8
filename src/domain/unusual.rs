//! What stands out in what is kept of a whole run: steps that took far longer than the others, and GPUs that no longer computed.
//! Pure; what it says of a run grows with the run and needs none of its events.

use super::history::{PhasePoint, RunHistory, RunPoint};
use super::ids::Rank;
use super::time::Stamp;

/// A step is slow that took so many times as long as 95 of 100, so many times the median, and so much longer than it.
const OF_P95: f64 = 1.5;
const OF_MEDIAN: f64 = 2.0;
const LONGER_US: f64 = 20_000.0;
/// A stall of one rank took so many times as long as 75 of 100 of its pieces, and so many times their median, without what it
/// waited for others, and so much longer.
const STALL_OF_P75: f64 = 1.25;
const STALL_OF_MEDIAN: f64 = 1.5;
const STALL_LONGER_US: f64 = 5_000.0;
/// In less than so many pieces of the run's time no step is unusual.
const LEAST_PIECES: usize = 20;
/// A drop of the utilisation below half of its median is told from this length on, microseconds.
pub const CLIFF_US: u64 = 10_000_000;
/// .. where the median is that of so many samples, and so many percent at least.
pub const CLIFF_SAMPLES: u32 = 30;
const CLIFF_MEDIAN: u32 = 20;
/// Samples further apart tell nothing of the time between, microseconds.
pub const APART_US: i64 = 5_000_000;

/// A step that took far longer than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowStep {
    /// When the first rank that took so long had finished it.
    pub at: Stamp,
    /// Which.
    pub step: u64,
    /// How long it took, microseconds.
    pub us: u32,
    /// What steps of the run take, microseconds: the median of the means of the pieces of its time.
    pub usual_us: u32,
}

/// A GPU that computed no longer, or little, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cliff {
    /// Since when.
    pub at: Stamp,
    /// The rank to which it belongs.
    pub rank: Rank,
    /// The least utilisation, percent.
    pub util: u32,
    /// The median, percent.
    pub median: u32,
}

/// Whether a utilisation is one of a cliff, in percent.
pub fn is_low(util: u32, median: u32) -> bool {
    median >= CLIFF_MEDIAN && util * 2 < median
}

/// The median of percents of which it is known how often, or for how long, each is.
pub fn median_percent<T: Copy + Into<u64>>(counts: &[T; 101]) -> Option<u32> {
    let counts: [u64; 101] = counts.map(Into::into);
    let all: u64 = counts.iter().sum();
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += count;
        seen * 2 >= all
    });
    at.filter(|_| all > 0).map(|at| at as u32)
}

/// The value that so large a share of them do not exceed; there is one at least.
fn place(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}

impl RunHistory {
    /// The slow steps, oldest first: of the run's time as it is kept in pieces, each with its longest step. Several slow pieces in
    /// a row are told once, by the longest step of them. Not of the first piece: a first step is slow in every run.
    pub fn slow_steps(&self) -> Vec<SlowStep> {
        let mut pieces = self.points.points().iter().filter(|piece| piece.steps > 0);
        let step_of = |piece: &RunPoint| piece.longest.map(|(_, step)| step);
        let first = pieces.next().and_then(step_of);
        // the ranks of another host may tell the same step a little later
        let pieces: Vec<_> = pieces.skip_while(|piece| first.is_some() && step_of(piece) == first).collect();
        if pieces.len() < LEAST_PIECES {
            return Vec::new();
        }
        let mean = pieces.iter().map(|piece| piece.step_us as f64 / f64::from(piece.steps));
        let median = place(mean.collect(), 0.5);
        let p95 = place(pieces.iter().map(|piece| f64::from(piece.longest_us)).collect(), 0.95);
        let from = (p95 * OF_P95).max(median * OF_MEDIAN).max(median + LONGER_US);
        let usual_us = median.round() as u32;
        let is_slow = |piece: &RunPoint| f64::from(piece.longest_us) > from;
        let rows = pieces.chunk_by(|before, piece| is_slow(before) == is_slow(piece));
        let slow = rows.filter_map(|row| {
            // the first of several that took equally long
            let worst = row.iter().rev().max_by_key(|piece| piece.longest_us)?;
            if !is_slow(worst) {
                return None;
            }
            let (at, step) = worst.longest?;
            Some(SlowStep { at, step, us: worst.longest_us, usual_us })
        });
        slow.collect()
    }

    /// From how many microseconds on a step of one that trains, without its allreduce, is a stall of its own; and from
    /// when on that is judged: a first step is slow in every run.
    pub fn stalls_from(&self, number: Rank) -> Option<(Stamp, f64)> {
        let series = self.phases_of(number)?;
        let told = |(_, point): &(Stamp, &PhasePoint)| point.longest_own_us > 0;
        let mut pieces = series.timed().filter(told);
        let (first, _) = pieces.next()?;
        let mut own: Vec<u32> = pieces.map(|(_, point)| point.longest_own_us).collect();
        if own.len() < LEAST_PIECES {
            return None;
        }
        // each lane of each frame asks: all of them need not be sorted
        let (middle, third) = (own.len() / 2, own.len() * 3 / 4);
        let p75 = f64::from(*own.select_nth_unstable(third).1);
        let median = f64::from(*own[..third].select_nth_unstable(middle).1);
        let least = (p75 * STALL_OF_P75).max(median * STALL_OF_MEDIAN).max(median + STALL_LONGER_US);
        Some((first.plus_micros(series.width_us()), least))
    }

    /// Since when the slot of a rank did little, of the time from `from` to `to`, each time that it was busy before.
    pub fn cliffs(&self, rank: Rank, (from, to): (Stamp, Stamp)) -> Vec<Cliff> {
        let (loads, width_us) = self.loads_of(rank);
        let loads: Vec<(Stamp, u32)> = loads.filter(|(at, _)| from <= *at && *at < to).collect();
        let mut counts = [0_u32; 101];
        for (_, util) in &loads {
            counts[(*util).min(100) as usize] += 1;
        }
        let median = median_percent(&counts).filter(|_| loads.len() >= CLIFF_SAMPLES as usize);
        let Some(median) = median else { return Vec::new() };
        let apart = APART_US.max(2 * width_us);
        let (mut found, mut was_busy) = (Vec::new(), false);
        // since when it is low, the least of that, and until when that is known
        let mut low: Option<(Stamp, u32, Stamp)> = None;
        let mut end = |low: Option<(Stamp, u32, Stamp)>| {
            let long = |(at, _, until): &(Stamp, u32, Stamp)| until.micros_since(*at) >= CLIFF_US as i64;
            found.extend(low.filter(long).map(|(at, util, _)| Cliff { at, rank, util, median }));
        };
        for (at, util) in loads {
            if low.is_some_and(|(.., until)| at.micros_since(until) > apart) {
                end(low.take());
            }
            let is_low = is_low(util, median);
            was_busy |= !is_low;
            if let Some((_, least, until)) = &mut low {
                (*least, *until) =
                    if is_low { (util.min(*least), at.plus_micros(width_us)) } else { (*least, at) };
            }
            match (is_low, low) {
                (true, None) if was_busy => low = Some((at, util, at.plus_micros(width_us))),
                (false, Some(_)) => end(low.take()),
                _ => {}
            }
        }
        end(low);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::loads::SlotLoad;
    use crate::domain::time::HostTime;
    use crate::domain::timing::{Spans, StepTiming};

    fn history(steps: impl Iterator<Item = u32>) -> RunHistory {
        let mut history = RunHistory::new(Stamp(0), 1);
        let mut at = 0;
        for (step, dur_us) in (1..).zip(steps) {
            at += i64::from(dur_us);
            history.step(Stamp(at), (Rank(0), 1), &timing(step, dur_us), false);
        }
        history
    }

    fn timing(step: u64, dur_us: u32) -> StepTiming {
        let (loss, spans) = (None, Spans::default());
        StepTiming { step, start: HostTime(0), dur_us, loss, samples: 0, spans, hidden_us: 0 }
    }

    /// Lengths around 60 ms, a third of it up and down.
    fn noise(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(|at| 60_000 + at.wrapping_mul(2_654_435_761) % 40_000 - 20_000)
    }

    #[test]
    fn a_slow_step_is_told_and_noise_is_not() {
        for count in [50, 2_000, 50_000] {
            assert_eq!(history(noise(count)).slow_steps(), [], "{count}");
            // the first one loads everything
            let first = std::iter::once(3_000_000).chain(noise(count));
            assert_eq!(history(first).slow_steps(), [], "{count}");
            let slow =
                noise(count).chain([400_000]).chain(noise(count)).chain([812_000, 700_000]).chain(noise(9));
            let found = history(slow).slow_steps();
            let told: Vec<(u64, u32)> = found.iter().map(|slow| (slow.step, slow.us)).collect();
            let count = u64::from(count);
            assert_eq!(told, [(count + 1, 400_000), (2 * count + 2, 812_000)]);
            assert!((50_000..70_000).contains(&found[0].usual_us), "{found:?}");
        }
    }

    #[test]
    fn several_slow_steps_in_a_row_are_told_by_the_longest() {
        let row = noise(50).chain([229_000, 230_000, 585_000, 229_000, 585_000]).chain(noise(400));
        let found = history(row).slow_steps();
        let told: Vec<(u64, u32)> = found.iter().map(|slow| (slow.step, slow.us)).collect();
        assert_eq!(told, [(53, 585_000)]);
        let before: u32 = noise(50).chain([229_000, 230_000, 585_000]).sum();
        assert_eq!(found[0].at, Stamp(before.into()), "and where it was");
    }

    #[test]
    fn a_slow_step_is_told_when_the_last_rank_has_finished_it() {
        let mut history = RunHistory::new(Stamp(0), 2);
        let mut at = 0;
        for (step, dur_us) in (1u64..).zip([60_000; 40].into_iter().chain([900_000]).chain([60_000; 40])) {
            at += i64::from(dur_us);
            for (rank, later) in [(0, 0), (1, 7_000)] {
                history.step(Stamp(at + later), (Rank(rank), 2), &timing(step, dur_us - rank), false);
            }
        }
        let slow = history.slow_steps();
        assert_eq!(
            slow.iter().map(|slow| (slow.step, slow.at)).collect::<Vec<_>>(),
            [(41, Stamp(40 * 60_000 + 907_000))]
        );
    }

    #[test]
    fn what_is_short_or_happens_all_the_time_is_not_slow() {
        // of 1 ms, 10 ms more
        assert_eq!(history((0..5_000).map(|at| if at == 3_000 { 11_000 } else { 1_000 })).slow_steps(), []);
        // each tenth saves a checkpoint
        assert_eq!(history((0..500).map(|at| if at % 10 == 0 { 600_000 } else { 60_000 })).slow_steps(), []);
        assert_eq!(history((0..10).map(|at| if at == 6 { 600_000 } else { 60_000 })).slow_steps(), [], "few");
    }

    /// What is found of a slot that is so busy, second by second.
    fn cliffs(percents: &[u32], (from, to): (i64, i64)) -> Vec<(i64, u32)> {
        let mut history = RunHistory::new(Stamp(0), 1);
        for (second, percent) in (0..).zip(percents) {
            history.loaded_by(
                Stamp(second * 1_000_000),
                Rank(0),
                SlotLoad::new(Some(f64::from(*percent) / 100.0), None),
            );
        }
        let within = (Stamp(from * 1_000_000), Stamp(to * 1_000_000));
        history.cliffs(Rank(0), within).iter().map(|one| (one.at.0 / 1_000_000, one.util)).collect()
    }

    #[test]
    fn a_slot_that_computes_no_longer_is_told_once() {
        let busy = |count: usize| vec![97; count];
        let all = |percents: &[u32]| cliffs(percents, (0, 9_999));
        assert_eq!(all(&busy(200)), []);
        let fell = [busy(60), vec![5; 12], busy(60)].concat();
        assert_eq!(all(&fell), [(60, 5)]);
        assert_eq!(all(&[busy(60), vec![5; 8], busy(60)].concat()), [], "too short");
        assert_eq!(all(&[vec![0; 20], busy(60)].concat()), [], "it was never busy before");
        assert_eq!(all(&[busy(60), vec![3; 15]].concat()), [(60, 3)], "and goes on");
        assert_eq!(cliffs(&fell, (0, 65)), [], "the run trained no longer");
        assert_eq!(all(&[busy(5), vec![5; 12], busy(8)].concat()), [], "too little is known");
        // pieces of some seconds, of which the peak is kept
        let long = all(&[busy(2_000), vec![5; 300], busy(2_000)].concat());
        assert!(long.len() == 1 && (1_990..=2_040).contains(&long[0].0), "{long:?}");
    }
}
