use proptest::prelude::*;

use super::*;
use crate::domain::time::HostTime;
use crate::domain::timing::PhaseSpan;

/// Numbers from a seed, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About `usual` µs: a tenth more or less, seldom three times as long, as on a machine that does other things.
    fn about(&mut self, usual: f64) -> u64 {
        let spread = usual * (0.9 + 0.2 * self.roll());
        let hiccup = if self.roll() < 0.005 { 2.0 * usual } else { 0.0 };
        (spread + hiccup) as u64
    }
}

/// A run of ranks that train together, each with a clock of its own.
struct Training {
    dice: Dice,
    ranks: usize,
    /// When each rank ended its last step.
    ends: Vec<u64>,
    step: u64,
}

/// Who loses how many microseconds, where.
type Trouble = Option<(usize, Lost, u64)>;

impl Training {
    fn new(seed: u64, ranks: usize) -> Self {
        Self { dice: Dice(seed), ranks, ends: vec![1_000_000; ranks], step: 0 }
    }

    /// What all ranks report of the next step.
    fn next(&mut self, trouble: Trouble) -> Vec<StepTiming> {
        self.step += 1;
        let extra = |rank, lost| trouble.filter(|t| (t.0, t.1) == (rank, lost)).map_or(0, |t| t.2);
        let starts: Vec<u64> = (0..self.ranks)
            .map(|r| self.ends[r] + self.dice.about(60.0) + extra(r, Lost::BetweenSteps))
            .collect();
        let phase = |dice: &mut Dice, rank, usual, lost| dice.about(usual) + extra(rank, lost);
        let work: Vec<[u64; 3]> = (0..self.ranks)
            .map(|r| {
                let dice = &mut self.dice;
                let data = phase(dice, r, 3_000.0, Lost::Data);
                let forward = phase(dice, r, 9_000.0, Lost::Forward);
                [data, forward, phase(dice, r, 18_000.0, Lost::Backward)]
            })
            .collect();
        let enter: Vec<u64> = (0..self.ranks).map(|r| starts[r] + work[r].iter().sum::<u64>()).collect();
        let met = enter.iter().copied().max().unwrap();
        let transfer = self.dice.about(2_000.0);
        (0..self.ranks)
            .map(|rank| {
                let wait = met - enter[rank] + self.dice.about(20.0);
                let optimizer = self.dice.about(1_500.0) + extra(rank, Lost::Optimizer);
                let own_transfer = transfer + extra(rank, Lost::Transfer);
                let durations = [work[rank][0], work[rank][1], work[rank][2], wait, own_transfer, optimizer];
                let timing = timing(self.step, starts[rank] + 7_777 * rank as u64, durations);
                self.ends[rank] = starts[rank] + durations.iter().sum::<u64>();
                timing
            })
            .collect()
    }
}

fn timing(step: u64, start: u64, durations: [u64; 6]) -> StepTiming {
    let spans = Phase::ALL.into_iter().zip(durations);
    let spans = spans.map(|(phase, dur)| PhaseSpan { phase, start_us: 0, dur_us: dur as u32 }).collect();
    let dur_us = durations.iter().sum::<u64>() as u32;
    StepTiming { step, start: HostTime(start), dur_us, loss: None, samples: 1, spans, hidden_us: 0 }
}

fn tell(fold: &mut Stragglers, steps: &[StepTiming]) {
    for (rank, timing) in (0..).zip(steps) {
        fold.step(steps.len(), Rank(rank), timing);
    }
}

/// Runs `steps` steps; gives who was named after which step.
fn train(fold: &mut Stragglers, training: &mut Training, steps: u64, trouble: Trouble) -> Vec<(u64, Rank)> {
    let mut named = Vec::new();
    for _ in 0..steps {
        let before = fold.now().map(|now| now.rank);
        tell(fold, &training.next(trouble));
        if let Some(now) = fold.now().filter(|now| Some(now.rank) != before) {
            named.push((training.step, now.rank));
        }
    }
    named
}

#[test]
fn what_hooks_tell_before_the_forward_pass_is_between_two_steps() {
    let (mut fold, mut start) = (Stragglers::default(), 1_000_000);
    for step in 1..=60 {
        for rank in 0..2 {
            // steps follow each other without a gap
            let nap = if rank == 1 { 20_000 } else { 100 };
            let spans = [
                (Phase::Other, nap),
                (Phase::Forward, 9_000),
                (Phase::Backward, 9_000),
                (Phase::Wait, 20_100 - nap),
                (Phase::Optimizer, 1_000),
            ];
            let spans = spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }).into();
            let (start, dur_us) = (HostTime(start), 39_100);
            let timing = StepTiming { step, start, dur_us, loss: None, samples: 1, spans, hidden_us: 0 };
            fold.step(2, Rank(rank), &timing);
        }
        start += 39_100;
    }
    let now = fold.now().unwrap();
    assert_eq!((now.rank, now.lost), (Rank(1), Some(Lost::BetweenSteps)));
    assert!(now.words().contains(", late between steps, "), "{}", now.words());
}

#[test]
fn a_sleep_of_20_ms_is_named_with_rank_and_place_within_60_steps_and_over_within_60() {
    for seed in 0..20 {
        for lost in Lost::ALL {
            let culprit = (seed % 4) as usize;
            let (mut fold, mut training) = (Stragglers::default(), Training::new(seed, 4));
            assert_eq!(train(&mut fold, &mut training, 100 + seed, None), []);
            let trouble = Some((culprit, lost, 20_000));
            let named = train(&mut fold, &mut training, 60, trouble);
            assert_eq!(named.len(), 1, "seed {seed}, {lost:?}: {named:?}");
            let now = fold.now().unwrap();
            assert_eq!((now.rank, now.lost), (Rank(culprit as u32), Some(lost)), "seed {seed}: {now:?}");
            assert!((17_000..23_000).contains(&now.cost_us), "{now:?}");
            assert_eq!(train(&mut fold, &mut training, 60, None), []);
            assert_eq!(fold.now(), None, "seed {seed}, {lost:?}");
            let over = fold.past().next().unwrap();
            // what it cost while it lasted, not at its end
            assert!((15_000..23_000).contains(&over.cost_us), "{over:?}");
            assert_eq!(over.lost, Some(lost));
            assert!(over.over_at.unwrap() > over.named_at && fold.past().count() == 1);
        }
    }
}

#[test]
fn without_trouble_no_rank_is_named() {
    for ranks in [2, 3, 4, 8] {
        for seed in 100..120 {
            let (mut fold, mut training) = (Stragglers::default(), Training::new(seed, ranks));
            assert_eq!(train(&mut fold, &mut training, 1_000, None), [], "{ranks} ranks, seed {seed}");
        }
    }
}

#[test]
fn one_hiccup_names_no_rank_and_ends_nothing() {
    let (mut fold, mut training) = (Stragglers::default(), Training::new(7, 4));
    train(&mut fold, &mut training, 80, None);
    assert_eq!(train(&mut fold, &mut training, 1, Some((1, Lost::Data, 3_000_000))), []);
    assert_eq!(train(&mut fold, &mut training, 80, None), []);
    let slow = Some((3, Lost::Forward, 20_000));
    assert_eq!(train(&mut fold, &mut training, 60, slow).len(), 1);
    tell(&mut fold, &training.next(Some((1, Lost::Data, 3_000_000))));
    assert_eq!(train(&mut fold, &mut training, 60, slow), []);
    assert_eq!(fold.now().unwrap().rank, Rank(3));
    // another one is worse from now on
    let named = train(&mut fold, &mut training, 90, Some((0, Lost::Data, 60_000)));
    assert_eq!(named.iter().map(|(_, rank)| *rank).collect::<Vec<_>>(), [Rank(0)]);
}

/// Two ranks with steps of 8 ms, of which the second is last by 6 ms in each; `paused` stands still for so long in between.
#[test]
fn a_pause_of_seconds_does_not_end_a_straggler() {
    let slow = |step, pause: [u64; 2]| {
        let met = 7_000 + pause[0].max(pause[1]);
        [[500, 400, pause[0] + 100], [500, 400, pause[1] + 6_100]].map(|[data, forward, backward]| {
            let came = data + forward + backward;
            timing(step, 0, [data, forward, backward, met - came, 500, 500])
        })
    };
    let pauses = [[12_000_000, 12_000_000], [25_000_000, 0], [0, 25_000_000]];
    for pause in pauses {
        let mut fold = Stragglers::default();
        for step in 1..=800 {
            // every 15 steps from the 400th on: two of them lie within the newest 20
            let pauses_now = step == 300 || step >= 400 && step % 15 == 0;
            tell(&mut fold, &slow(step, if pauses_now { pause } else { [0, 0] }));
            if step > 200 {
                let now = fold.now().unwrap_or_else(|| panic!("over at step {step}, {pause:?}"));
                assert_eq!((now.rank, now.lost), (Rank(1), Some(Lost::Backward)), "step {step}, {pause:?}");
                let is_usual = (5_900..6_200).contains(&now.cost_us) && now.share > 0.7;
                assert!(is_usual || step >= 400, "one pause is no part of its cost: {now:?}, {pause:?}");
            }
        }
        assert_eq!(fold.past().count(), 0, "{pause:?}");
    }
}

#[test]
fn a_pause_is_no_evidence() {
    let mut fold = Stragglers::default();
    for step in 1..=40 {
        let pause = if step == 12 { 12_000_000 } else { 0 };
        let usual = timing(step, 0, [pause, 500, 100, 6_010, 500, 500]);
        let late = timing(step, 0, [pause, 500, 6_100, 10, 500, 500]);
        tell(&mut fold, &[usual, late]);
        assert_eq!(fold.now(), None, "0.3 s of steps and a pause, step {step}");
    }
}

/// Steps of about 2 ms on a machine that other programs use: for some tens of steps one rank loses its processor
/// now and then, next another one does.
#[test]
fn ranks_that_are_late_by_turns_are_not_named_again_and_again() {
    for seed in 0..8 {
        let (mut fold, mut dice) = (Stragglers::default(), Dice(seed));
        let (mut named, mut us, mut before) = (0, 0, None);
        let (mut late, mut left) = (0, 0);
        let mut step = 0;
        while us < 60_000_000 {
            step += 1;
            if left == 0 {
                (late, left) = ((dice.roll() * 4.0) as usize, 40 + (dice.roll() * 160.0) as u64);
            }
            left -= 1;
            let work: Vec<u64> = (0..4)
                .map(|rank| dice.about(1_500.0) + if rank == late { dice.about(250.0) } else { 0 })
                .collect();
            let met = work.iter().copied().max().unwrap();
            let steps: Vec<StepTiming> = work
                .iter()
                .map(|work| timing(step, us, [100, work / 3, work - work / 3, met - work, 200, 100]))
                .collect();
            us += met + 400;
            tell(&mut fold, &steps);
            let now = fold.now().map(|now| now.rank);
            named += u32::from(now.is_some() && now != before);
            before = now;
        }
        // the same rank may be late twice running, for a second
        assert!(named <= 2, "seed {seed}: named {named} times in a minute");
    }
}

#[test]
fn a_small_share_of_short_steps_is_named_where_it_lasts() {
    let mut fold = Stragglers::default();
    let mut named = 0;
    for step in 1..=10_000 {
        let usual = timing(step, step * 2_000, [100, 500, 1_000, 210, 100, 90]);
        let late = timing(step, step * 2_000, [300, 500, 1_000, 10, 100, 90]);
        tell(&mut fold, &[usual, late]);
        named += u32::from(fold.now().is_some_and(|now| now.named_at == step));
    }
    let now = fold.now().unwrap();
    assert_eq!((now.rank, now.cost_us, now.lost, named), (Rank(1), 200, Some(Lost::Data), 1));
    assert!((250..350).contains(&now.named_at), "after half a second: {now:?}");
}

#[test]
fn one_that_comes_and_goes_is_named_after_longer_each_time() {
    let mut fold = Stragglers::default();
    let mut step = 0;
    let mut train = |fold: &mut Stragglers, seconds: u64, is_late: bool| {
        let begin = step;
        let mut named = None;
        while step - begin < seconds * 20 {
            step += 1;
            let usual =
                timing(step, 0, [5_000, 15_000, 15_000, if is_late { 10_000 } else { 10 }, 3_000, 2_000]);
            let late = timing(step, 0, [15_000, 15_000, 15_000, 0, 3_000, 2_000]);
            tell(fold, &[if is_late { late } else { usual.clone() }, usual]);
            named = named.or(fold.now().is_some().then_some(step - begin));
        }
        named
    };
    let first = train(&mut fold, 10, true).unwrap();
    train(&mut fold, 10, false);
    assert!(fold.now().is_none());
    let second = train(&mut fold, 10, true).unwrap();
    train(&mut fold, 10, false);
    let third = train(&mut fold, 10, true).unwrap();
    assert!(first < second && second + 15 <= third, "{first}, {second}, {third} steps");
    train(&mut fold, 80, false);
    assert_eq!(train(&mut fold, 10, true).unwrap().abs_diff(first), 0, "forgotten after a minute");
}

#[test]
fn late_in_every_fourth_step_is_late_too() {
    let (mut fold, mut training) = (Stragglers::default(), Training::new(3, 4));
    for step in 0..80 {
        let trouble = (step % 4 == 0).then_some((2, Lost::Data, 40_000));
        tell(&mut fold, &training.next(trouble));
    }
    let now = fold.now().unwrap();
    assert_eq!((now.rank, now.lost, now.of), (Rank(2), Some(Lost::Data), 50));
    assert!((12..25).contains(&now.late_in), "{now:?}");
}

#[test]
fn a_delay_in_several_places_is_in_none() {
    let mut fold = Stragglers::default();
    for step in 1..=60 {
        let usual = timing(step, 0, [10_000, 20_000, 20_000, 40_000, 5_000, 5_000]);
        let late = timing(step, 0, [24_000, 33_000, 33_000, 0, 5_000, 5_000]);
        tell(&mut fold, &[late, usual]);
    }
    let now = fold.now().unwrap();
    assert_eq!((now.rank, now.lost, now.cost_us, now.late_in, now.of), (Rank(0), None, 40_000, 50, 50));
    assert!((now.share - 0.4).abs() < 1e-9 && now.is_critical());
    assert_eq!(now.words(), "is a straggler: +40 ms a step (40 %), late in 50 of the last 50 steps");
}

#[test]
fn a_restart_begins_anew() {
    let (mut fold, mut training) = (Stragglers::default(), Training::new(1, 2));
    let slow = Some((1, Lost::Backward, 20_000));
    train(&mut fold, &mut training, 40, slow);
    assert!(fold.now().is_some());
    // one rank begins again while the other still tells of the old job
    let mut again = Training::new(2, 2);
    let first = again.next(None);
    fold.step(2, Rank(0), &first[0]);
    fold.step(2, Rank(1), &training.next(slow)[1]);
    assert!(fold.now().is_none() && fold.past().count() == 1);
    fold.step(2, Rank(1), &first[1]);
    let named = train(&mut fold, &mut again, 60, slow);
    assert_eq!(named.len(), 1, "{named:?}");
}

#[test]
fn who_tells_no_waiting_or_skips_steps_is_not_judged() {
    let slow = Some((1, Lost::Backward, 20_000));
    let (mut fold, mut training) = (Stragglers::default(), Training::new(1, 3));
    for _ in 0..200 {
        let mut steps = training.next(slow);
        let told = steps[2].spans.iter().filter(|span| span.phase != Phase::Wait);
        steps[2].spans = told.copied().collect();
        tell(&mut fold, &steps);
    }
    assert_eq!(fold, Stragglers { last: fold.last.clone(), ..Stragglers::default() }, "nothing piles up");
    let (mut fold, mut training) = (Stragglers::default(), Training::new(1, 3));
    for step in 0..200 {
        let steps = training.next(slow);
        tell(&mut fold, if step % 2 == 0 { &steps[..] } else { &steps[..1] });
        for (rank, timing) in (0..2).zip(&steps) {
            fold.step(3, Rank(rank), timing);
        }
    }
    assert_eq!(fold.now().unwrap().rank, Rank(1), "from the steps that all have told");
}

proptest! {
    /// However far one rank's reports run ahead of another's, the end is the same.
    #[test]
    fn the_order_in_which_ranks_are_heard_does_not_matter(seed: u64, bursts in prop::collection::vec((0usize..3, 1usize..200), 1..20)) {
        let mut training = Training::new(seed, 3);
        let trouble = (seed % 2 == 0).then_some((1, Lost::Data, 20_000));
        let steps: Vec<Vec<StepTiming>> = (0..150).map(|_| training.next(trouble)).collect();
        let (mut straight, mut mixed) = (Stragglers::default(), Stragglers::default());
        for step in &steps {
            tell(&mut straight, step);
        }
        let mut told = [0; 3];
        for (rank, count) in bursts.into_iter().chain((0..3).map(|rank| (rank, 150))) {
            for step in steps.iter().skip(told[rank]).take(count) {
                mixed.step(3, Rank(rank as u32), &step[rank]);
            }
            told[rank] = (told[rank] + count).min(150);
        }
        prop_assert_eq!(straight, mixed);
    }

    #[test]
    fn a_median_is_the_one_in_the_middle_of_all_in_order(
        values in prop::collection::vec(prop_oneof![0u64..20, any::<u64>()], 0..600),
    ) {
        let mut ordered = values.clone();
        ordered.sort_unstable();
        let middle = ordered.get(ordered.len() / 2).copied().unwrap_or(0);
        prop_assert_eq!(upper_median(values.into_iter()), middle);
    }

    /// Whatever ranks tell, memory stays bounded.
    #[test]
    fn nonsense_is_borne(steps in prop::collection::vec((0u32..5, prop_oneof![0u64..200, any::<u64>()], any::<u64>(), any::<[u32; 6]>()), 0..2_000)) {
        let mut fold = Stragglers::default();
        for (rank, step, start, durations) in steps {
            fold.step(4, Rank(rank), &timing(step, start, durations.map(u64::from)));
            prop_assert!(fold.open.len() <= MOST_OPEN && fold.window.len() <= WINDOW);
            prop_assert!(fold.now().is_none_or(|now| now.rank.0 < 4));
        }
    }
}
