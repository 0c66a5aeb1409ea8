//! Whether a rank comes last more often than by chance: each rank comes last now and then, and of few steps one rank most often.

/// Chance makes some rank of a run come last so often in less than so many runs.
const BY_CHANCE: f64 = 0.01;
const SURELY: f64 = 0.001;
/// So much of the way from its due share to all steps a rank must come last more often, or twice as often: with two ranks 63 of 100.
const FAR: f64 = 0.25;
const TIMES: f64 = 2.0;

/// Whether a rank that comes last in so many of some steps does so far more often than each of so many ranks would by lot.
pub(super) fn is_far_off(last_in: u64, of: u64, ranks: usize) -> bool {
    is_off(last_in, of, ranks, BY_CHANCE)
}

/// The same, far less likely by chance: of steps that are few and look alike in many runs.
pub(super) fn is_surely_off(last_in: u64, of: u64, ranks: usize) -> bool {
    is_off(last_in, of, ranks, SURELY)
}

fn is_off(last_in: u64, of: u64, ranks: usize, by_chance: f64) -> bool {
    let ranks = ranks.max(2) as f64;
    let due = 1.0 / ranks;
    let far = (due + (1.0 - due) * FAR).min(due * TIMES);
    last_in as f64 >= far * of as f64 && at_least(last_in, of, due) * ranks < by_chance
}

/// How likely `times` or more of `of` draws hit, each of which does so with this chance: the upper tail of the binomial
/// distribution. Less than its mean is taken as certain.
fn at_least(times: u64, of: u64, chance: f64) -> f64 {
    let (hits, draws) = (times as f64, of as f64);
    if times > of {
        return 0.0;
    }
    if hits <= draws * chance {
        return 1.0;
    }
    let fewer = times.min(of - times);
    let ways = (1..=fewer).map(|at| ((draws - (fewer - at) as f64) / at as f64).ln()).sum::<f64>();
    let mut one = (ways + hits * chance.ln() + (draws - hits) * (1.0 - chance).ln()).exp();
    let mut all = one;
    // above the mean each is less than the one before
    for hits in times..of {
        one *= (of - hits) as f64 / (hits + 1) as f64 * chance / (1.0 - chance);
        all += one;
        if one <= all * 1e-9 {
            break;
        }
    }
    all.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::{at_least, is_far_off};
    use crate::domain::analysis::findings;
    use crate::domain::analysis::fixtures::{Told, spec, timing};
    use crate::domain::outcome::RunEnd;

    #[test]
    fn the_tail_of_the_binomial_distribution_is_exact() {
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-9 * want.max(1e-3), "{got} {want}");
        close(at_least(5, 5, 0.5), 1.0 / 32.0);
        close(at_least(4, 5, 0.5), 6.0 / 32.0);
        close(at_least(3, 3, 0.125), 1.0 / 512.0);
        close(at_least(3, 4, 0.25), 13.0 / 256.0);
        close(at_least(0, 4, 0.25), 1.0);
        close(at_least(5, 4, 0.25), 0.0);
        // 600 of 1000 coins: 1.36e-10
        assert!((1.3e-10..1.5e-10).contains(&at_least(600, 1000, 0.5)));
        assert!(at_least(1_000_000, 1_000_000, 0.5).abs() < f64::MIN_POSITIVE);
    }

    #[test]
    fn what_comes_by_chance_is_none_and_so_is_a_little_more_than_that() {
        assert!(!is_far_off(15, 31, 2) && !is_far_off(60, 100, 2) && !is_far_off(0, 0, 2));
        assert!(!is_far_off(6_000, 10_000, 2), "certain, and not far off");
        assert!(is_far_off(70, 100, 2) && is_far_off(8, 8, 2) && !is_far_off(7, 7, 2));
        assert!(is_far_off(60, 100, 4) && !is_far_off(30, 100, 4));
        assert!(is_far_off(40, 1_000, 64) && !is_far_off(20, 1_000, 64));
    }

    /// Two ranks that do the same on a busy machine: each is held up for some milliseconds in some steps. Gives what is said of ranks.
    fn alike(mut seed: u64, steps: u64) -> Vec<String> {
        let mut told = Told::new(spec(2));
        let mut dice = |of: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % of
        };
        for step in 1..=steps {
            let took = [0; 2].map(|_| if dice(4) == 0 { 4 + dice(9) as u32 } else { 3 });
            for (rank, own) in (0..).zip(took) {
                told.step(rank, timing(step, [0, 2, own, took[0].max(took[1]) - own, 1, 1]));
            }
        }
        let words = findings(&told.finish(RunEnd::Finished)).into_iter().map(|finding| finding.words);
        words.filter(|words| words.starts_with("rank ")).collect()
    }

    #[test]
    fn of_two_ranks_that_do_the_same_none_is_blamed() {
        let blamed: Vec<_> =
            (0..100).flat_map(|seed| [31, 100, 227, 600].map(|steps| (seed, alike(seed, steps)))).collect();
        let blamed = blamed.into_iter().filter(|(_, words)| !words.is_empty()).collect::<Vec<_>>();
        assert!(blamed.len() <= 4, "{} of 400 runs: {blamed:#?}", blamed.len());
    }
}
