use super::*;

/// Steps of 100, each with a collective of its own that ends at 80 of it.
fn lane(steps: Range<u64>, comms: Range<i64>, lasts: i64) -> Lane {
    let step = |number: u64| {
        let from = number as i64 * 100;
        Step { number, span: (from, from + 100), is_cut: false }
    };
    let comm = |number: i64| {
        let end = number * 100 + 80;
        Comm { span: (end - lasts, end), func: 0, group: 0, wait: 0 }
    };
    Lane { steps: steps.map(step).collect(), comms: comms.map(comm).collect(), ..Lane::default() }
}

fn waits(ranks: &BTreeMap<u32, Lane>) -> Vec<Vec<i64>> {
    ranks.values().map(|lane| lane.comms.iter().map(|comm| comm.wait).collect()).collect()
}

#[test]
fn collectives_are_matched_where_their_ends_meet() {
    // rank 0 was traced from one collective before on, rank 1 to one after: as many, and not the same
    let mut ranks = BTreeMap::from([(0, lane(0..5, 0..4, 50)), (1, lane(0..5, 1..5, 20))]);
    assert_eq!(part_waits(&mut ranks, 2), [1, 2, 3]);
    assert_eq!(waits(&ranks), [[0, 30, 30, 30], [0, 0, 0, 0]]);
    // rank 1's GPU is behind its program: its collectives begin in the step after
    let mut late = lane(0..5, 0..4, 20);
    late.comms.iter_mut().for_each(|comm| comm.span = (comm.span.1 + 25, comm.span.1 + 30));
    let mut ranks = BTreeMap::from([(0, lane(0..5, 0..4, 50)), (1, late)]);
    assert_eq!(part_waits(&mut ranks, 2), [0, 1, 2, 3, 4]);
    assert_eq!(waits(&ranks), [[45; 4], [0; 4]]);
    // other collectives: nothing is told of the waits
    let mut ranks = BTreeMap::from([(0, lane(0..2, 0..2, 50)), (1, lane(0..2, 0..1, 20))]);
    assert_eq!(part_waits(&mut ranks, 2), [0]);
    assert_eq!(waits(&ranks), [vec![30, 0], vec![0]]);
}

#[test]
fn what_lasts_beyond_a_step_is_in_the_next_one_too() {
    let mut own = lane(0..3, 0..0, 0);
    let comm = |from, to| Comm { span: (from, to), func: 0, group: 0, wait: 0 };
    own.comms = vec![comm(-20, 10), comm(-30, -20), comm(90, 120), comm(280, 310), comm(320, 330)];
    assert_eq!(own.settle(), (0, 0));
    let mut all = Vec::new();
    let beside = own.parts(&mut |step, part| all.push((step, part.timing(step, false).0)));
    let transfer = |timing: &StepTiming| timing.spans.iter().map(|span| span.dur_us).sum::<u32>();
    // nanoseconds: what is less than a microsecond is none
    assert!(all.iter().all(|(_, timing)| transfer(timing) == 0));
    assert_eq!(beside, 2, "one before the first step and one behind the last");
    let mut counts = Vec::new();
    own.parts(&mut |_, part| counts.push(part.comms.len()));
    assert_eq!(counts, [2, 1, 1]);
}

#[test]
fn a_file_that_is_cut_takes_nothing_from_the_whole_files_of_its_rank() {
    let file = |from: i64, is_cut: bool| {
        let optimizer = (0..4).map(|step| (0, (from + step * 100, from + step * 100 + 20))).collect();
        let mut file = Lane { optimizer, operators: vec![(from, from + 10)], ..Lane::default() };
        if is_cut {
            file.cut();
        }
        file.end_file(true);
        file
    };
    let mut rank = file(0, false);
    rank.append(file(10_000, true));
    rank.number_in_time();
    assert_eq!(rank.settle(), (0, 0));
    let cut: Vec<bool> = rank.steps.iter().map(|step| step.is_cut).collect();
    assert_eq!(cut, [false, false, false, true, true, true]);
    assert_eq!(rank.optimizer.len(), 4, "those of the whole file");
    assert_eq!(rank.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn steps_that_overlap_are_dropped_and_rounded_times_are_not() {
    let step = |number: u64, from: i64, to: i64| Step { number, span: (from, to), is_cut: false };
    let steps = vec![
        step(0, 0, 100_000),
        step(1, 99_000, 200_000),
        step(2, 150_000, 300_000),
        step(3, 150_000, 199_999),
        step(4, 200_000, 300_000),
    ];
    let mut own = Lane { steps, ..Lane::default() };
    assert_eq!(own.settle(), (0, 2));
    assert_eq!(own.steps, [step(0, 0, 100_000), step(1, 100_000, 200_000), step(4, 200_000, 300_000)]);
}

#[test]
fn of_too_many_phases_the_longest_are_kept_and_a_wait() {
    let span = |phase, start_us, dur_us| PhaseSpan { phase, start_us, dur_us };
    let mut spans: Vec<PhaseSpan> =
        (0..3_000).map(|at| span(Phase::Transfer, at * 100, 10 + at % 2)).collect();
    spans.push(span(Phase::Optimizer, 400_000, 5_000));
    spans.insert(7, span(Phase::Wait, 650, 1));
    keep_longest(&mut spans);
    assert_eq!(spans.len(), MOST_SPANS);
    assert!(spans.is_sorted_by_key(|span| span.start_us));
    assert_eq!(spans.last().map(|span| span.phase), Some(Phase::Optimizer));
    assert_eq!(spans.iter().filter(|span| span.phase == Phase::Wait).count(), 1);
    assert!(spans.iter().all(|span| span.phase != Phase::Transfer || span.dur_us == 11));
}
