use std::sync::Arc;

use super::fixtures::{START, Told, info, late_run, late_run_in, spec, timing};
use super::*;
use crate::domain::clock_fit::ClockSample;
use crate::domain::fixtures::rank_exit;
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::hooks::StepsBy;
use crate::domain::host::LinkState;
use crate::domain::log::{LogGap, Stream};
use crate::domain::nccl_timing::{CollectiveTiming, CommId};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::standstill::StalledPhase;
use crate::domain::straggler::Lost;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, SeenStep};

#[track_caller]
fn near(value: Option<f64>, expected: f64) {
    assert!(
        value.is_some_and(|value| (value - expected).abs() < 1e-9 * expected.abs().max(1.0)),
        "{value:?} {expected}"
    );
}

#[test]
fn a_late_rank_is_told_with_all_numbers() {
    let run = late_run(100, 20);
    let length = run.steps.length.unwrap();
    assert_eq!((length.count, length.p50_us, length.p99_us, length.max_us), (99, 100_000, 100_000, 100_000));
    assert!(run.steps.aligned);
    assert_eq!((run.steps.first, run.steps.last, run.steps.warm_up_us), (Some(1), Some(100), Some(500_000)));
    near(run.steps.exposed_us, 20_000.0);
    near(run.steps.overlap, 0.6);
    let [first, second] = &run.ranks[..] else { panic!("{:?}", run.ranks) };
    assert_eq!((first.last_in, first.wait_caused_us), (Some(0), Some(0)));
    assert_eq!((second.last_in, second.wait_caused_us), (Some(99), Some(99 * 20_000)));
    near(first.overlap, 0.5);
    near(second.overlap, 0.75);
    near(first.samples_per_s, 640.0);
    near(run.samples.map(|samples| samples.per_s), 1280.0);
    near(run.samples.and_then(|samples| samples.last_tenth_per_s), 1280.0);
    near(second.shares.map(|shares| shares[Phase::Data.index()]), 0.3);
    let [line] = run.what_if[..] else { panic!("{:?}", run.what_if) };
    assert_eq!((line.rank, line.phase, line.gain_us), (Rank(1), Lost::Data, 99 * 20_000));
    near(Some(line.share), 0.2);
    let loss = run.loss.unwrap();
    assert_eq!((loss.first, loss.least_step, loss.last_step), (1.0, 100, 100));
    let [episode] = &run.stragglers[..] else { panic!("{:?}", run.stragglers) };
    assert_eq!((episode.rank, episode.phase, episode.to_step), (Rank(1), Some(Lost::Data), None));
    let data = run.phases.iter().find(|figures| figures.phase == Phase::Data).unwrap();
    near(Some(data.mean_us), 20_000.0);
    near(Some(data.share), 0.2);
    assert_eq!(run.duration_us, Some(10_000_000));
    assert_eq!(run.first_step_after_us, Some(100_000));
    let found = findings(&run);
    assert_eq!(
        found[0].words,
        "rank 1 (gpu-a:1) is late in data: if it took no longer there than the others, steps would be 20 % shorter"
    );
    assert_eq!(found[0].evidence, "20 ms a step; last to the allreduce in 99 of 99 steps");
}

/// A step of these phases alone, microseconds, and so long.
fn spans_of(step: u64, dur_us: u32, spans: &[(Phase, u32)]) -> StepTiming {
    let span = |(phase, dur_us): &(Phase, u32)| PhaseSpan { phase: *phase, start_us: 0, dur_us: *dur_us };
    StepTiming { dur_us, spans: spans.iter().map(span).collect(), ..timing(step, [0; 6]) }
}

#[test]
fn a_lead_of_microseconds_is_no_finding() {
    let mut told = Told::new(spec(2));
    for step in 1..=200 {
        told.step(0, spans_of(step, 40, &[(Phase::Forward, 20), (Phase::Wait, 15)]));
        told.step(1, spans_of(step, 40, &[(Phase::Forward, 35), (Phase::Wait, 0)]));
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.ranks[1].last_in, Some(199));
    assert_eq!((run.what_if.len(), findings(&run)), (0, Vec::new()), "15 µs are less than a message takes");
}

#[test]
fn a_rank_that_comes_last_in_a_few_steps_without_phases_is_told() {
    let told = |late_ms: u32, ranks: u32, steps: u64| {
        let mut told = Told::new(spec(ranks));
        for step in 1..=steps {
            for rank in 0..ranks {
                let wait = if rank == 1 { 0 } else { late_ms * 1000 };
                told.step(rank, spans_of(step, 100_000, &[(Phase::Wait, wait)]));
            }
        }
        findings(&told.finish(RunEnd::Finished))
    };
    // the first step warms up
    let found = told(30, 2, 9);
    assert_eq!(
        found[0].words,
        "rank 1 (gpu-a:1) comes last to the allreduce: without that, steps would be 30 % shorter"
    );
    assert_eq!(
        found[0].evidence,
        "30 ms a step; last in 8 of 8 steps; no phase tells where it loses the time"
    );
    assert_eq!(told(30, 2, 8), [], "7 of 7 is chance");
    assert_eq!(told(4, 2, 9), [], "4 % are not worth a word");
    for ranks in [6, 8, 17] {
        assert_eq!(told(30, ranks, 3), [], "some rank is the last of a few steps");
    }
    assert_eq!(told(30, 8, 5).len(), 1, "4 of 4 of 8 ranks: 1 of 512 runs has such a one by chance");
}

#[test]
fn transfer_is_not_waiting_only_where_all_ranks_tell_their_waits() {
    let evidence = |ranks: u32, phases: &[(Phase, u32)]| {
        let mut told = Told::new(spec(ranks));
        for step in 1..=20 {
            (0..ranks).for_each(|rank| told.step(rank, spans_of(step, 100_000, phases)));
        }
        let found = findings(&told.finish(RunEnd::Finished));
        let found =
            found.iter().find(|finding| finding.words.starts_with("communication is exposed for 30 %"));
        found.unwrap().evidence.clone()
    };
    let apart = [(Phase::Forward, 60_000), (Phase::Wait, 10_000), (Phase::Transfer, 30_000)];
    assert_eq!(evidence(2, &apart), "transfer on every rank, not waiting; overlap unknown");
    let whole = [(Phase::Forward, 70_000), (Phase::Transfer, 30_000)];
    for ranks in [1, 2] {
        assert_eq!(
            evidence(ranks, &whole),
            "transfer on every rank; waiting for other ranks is not told apart and may be in it; overlap unknown"
        );
    }
}

#[test]
fn what_no_phase_is_told_of_has_a_mean_and_no_quantiles() {
    let of = |spans: &[(Phase, u32)]| {
        let mut told = Told::new(spec(1));
        (1..=20).for_each(|step| told.step(0, spans_of(step, 300_000, spans)));
        let run = told.finish(RunEnd::Finished);
        let of = |phase: Phase| *run.phases.iter().find(|figures| figures.phase == phase).unwrap();
        (of(Phase::Forward), of(Phase::Other))
    };
    let (forward, other) = of(&[(Phase::Forward, 91_000)]);
    assert!(forward.p50_us.is_some_and(|us| us.abs_diff(91_000) < 400), "{forward:?}");
    near(Some(other.mean_us), 209_000.0);
    assert_eq!((other.p50_us, other.p95_us), (None, None), "0 ms beside a mean of 209 ms");
    let (_, other) = of(&[(Phase::Forward, 91_000), (Phase::Other, 208_900)]);
    assert!(other.p50_us.is_some_and(|us| us.abs_diff(208_900) < 900), "{other:?}");
}

#[test]
fn an_overlap_of_nothing_is_known_where_another_rank_hides_some_or_a_trace_shows_all() {
    let run = |imported: bool, hidden_us: u32| {
        let mut spec = spec(2);
        if imported {
            spec.kind = crate::domain::run::JobKind::Torch;
            spec.options.imported = Some("trace of torch's profiler: a.json".to_owned());
        }
        let mut told = Told::new(spec);
        for step in 1..=20 {
            told.step(0, StepTiming { hidden_us, ..timing(step, [10, 20, 30, 5, 5, 10]) });
            told.step(1, timing(step, [10, 20, 30, 5, 5, 10]));
        }
        told.finish(RunEnd::Finished)
    };
    let overlap = |run: &RunAnalysis| run.ranks.iter().map(|rank| rank.overlap).collect::<Vec<_>>();
    assert_eq!(overlap(&run(false, 10_000)), [Some(0.5), Some(0.0)]);
    assert_eq!(overlap(&run(false, 0)), [None, None], "it may not tell");
    let trace = run(true, 0);
    assert_eq!((overlap(&trace), trace.steps.overlap), (vec![Some(0.0), Some(0.0)], Some(0.0)));
    assert_eq!(trace.first_step_after_us, None, "there was no launch");
}

#[test]
fn what_an_import_exposes_is_unknown_where_it_tells_waits_and_no_transfer() {
    let run = |imported: bool, transfer: u32| {
        let mut spec = spec(2);
        spec.options.imported = imported.then(|| "Horovod timeline: a.json".to_owned());
        let mut told = Told::new(spec);
        for step in 1..=20 {
            for rank in 0..2 {
                told.step(rank, timing(step, [10, 20, 30, 5, transfer, 10]));
            }
        }
        let run = told.finish(RunEnd::Finished);
        let of_ranks: Vec<bool> = run.ranks.iter().map(|rank| rank.exposed_us.is_some()).collect();
        (run.steps.exposed_us, run.estimates.exposed.is_some(), of_ranks)
    };
    assert_eq!(run(true, 0), (None, false, vec![false; 2]));
    assert_eq!(run(true, 5), (Some(10_000.0), true, vec![true; 2]));
    assert_eq!(run(false, 0), (Some(5_000.0), true, vec![true; 2]), "its waits are all of it");
}

#[test]
fn an_even_run_has_nothing_to_look_at() {
    let run = late_run(100, 0);
    assert!(run.what_if.is_empty() && run.stragglers.is_empty());
    assert_eq!(findings(&run), []);
}

#[test]
fn a_run_without_steps_knows_what_it_knows() {
    let mut told = Told::new(spec(1));
    told.start(0);
    told.wait(5);
    told.line(0, "ERROR: no such file");
    told.line(0, "WARNING: careful");
    told.line(0, "hello");
    let run = told.finish(RunEnd::Failed);
    assert!(run.steps.length.is_none() && run.steps.last.is_none() && run.phases.is_empty());
    assert!(run.samples.is_none() && run.loss.is_none() && run.steps.overlap.is_none());
    assert_eq!((run.ranks[0].last_in, run.ranks[0].wait_caused_us), (None, None));
    assert_eq!((run.log.lines, run.log.warnings, run.log.errors), (3, 1, 1));
    assert_eq!((run.ranks[0].warnings, run.ranks[0].errors), (1, 1));
    let found = findings(&run);
    assert_eq!(found.len(), 1);
    assert!(found[0].evidence.contains("first error, rank 0: ERROR: no such file"), "{found:?}");
}

#[test]
fn a_run_that_was_stopped_has_not_failed() {
    let run = Told::new(spec(1)).finish(RunEnd::Stopped);
    assert_eq!((run.success, run.stopped, findings(&run)), (Some(false), true, Vec::new()));
}

#[test]
fn a_window_leaves_other_steps_out() {
    let run = late_run_in(100, 20, Window { from: 11, to: 30 });
    assert_eq!(run.steps.length.unwrap().count, 20);
    assert_eq!((run.steps.first, run.steps.last), (Some(11), Some(30)));
    assert_eq!(run.ranks[1].last_in, Some(20));
    near(run.loss.map(|loss| loss.last), f64::from(1.0_f32 / 30.0));
}

#[test]
fn of_chosen_ranks_alone_is_told_and_all_judge_who_came_last() {
    let told = |rank: u32| {
        let ranks = Some([Rank(rank)].into());
        let mut told = Told::of_choice(spec(2), Choice { ranks, ..Choice::default() });
        for rank in 0..2 {
            told.start(rank);
            told.line(rank, "WARNING: low");
        }
        for step in 1..=20_u64 {
            told.step(0, timing(step, [10, 20, 30, 20, 10, 10]));
            told.step(1, timing(step, [30, 20, 30, 0, 10, 10]));
        }
        told.finish(RunEnd::Finished)
    };
    let (early, late) = (told(0), told(1));
    let of = |run: &RunAnalysis| (run.ranks.len(), run.ranks[0].rank, run.ranks[0].last_in);
    assert_eq!((of(&early), of(&late)), ((1, Rank(0), Some(0)), (1, Rank(1), Some(19))));
    assert_eq!((early.steps.judged, early.steps.length.unwrap().count), (19, 19), "all have told them");
    assert_eq!(
        (early.log.lines, early.log.warnings, early.gpus.len(), late.gpus[0].rank),
        (1, 1, 1, Rank(1))
    );
    for (run, data_us) in [(&early, 10_000.0), (&late, 30_000.0)] {
        let data = run.phases.iter().find(|figures| figures.phase == Phase::Data);
        near(data.map(|figures| figures.mean_us), data_us);
    }
    assert!(early.what_if.is_empty(), "{:?}", early.what_if);
}

#[test]
fn moments_count_apart_from_steps() {
    let mut told = Told::new(spec(1));
    told.start(0);
    for step in 1..=10_u64 {
        told.analyzer.count(step > 2);
        told.analyzer.count_moments(step > 4);
        told.line(0, "WARNING: low");
        told.step(0, timing(step, [10, 20, 30, 0, 0, 0]));
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!((run.steps.length.unwrap().count, run.log.warnings), (8, 6));
}

#[test]
fn a_part_has_the_figures_that_it_has_within_the_whole() {
    let mut told = Told::new(spec(2));
    told.analyzer.count(false);
    told.host(Event::HostDescribed { info: Arc::new(info(2)) });
    for rank in 0..2 {
        told.start(rank);
        told.line(rank, "WARNING: before");
    }
    for step in 1..=20_u64 {
        // rank 0 tells step 11 before the part begins, rank 1 within it
        told.step(0, timing(step, [10, 20, 30, 20, 10, 10]));
        if step == 11 {
            told.analyzer.count(true);
            told.line(0, "ERROR: within");
        }
        told.step(1, timing(step, [30, 20, 30, 0, 10, 10]));
    }
    told.step(0, timing(21, [500, 20, 30, 20, 10, 10]));
    let part = told.analyzer.so_far();
    let length = part.steps.length.unwrap();
    assert_eq!((length.count, length.max_us, part.steps.judged), (10, 100_000, 10), "no step warms up");
    assert_eq!(part.steps.whole, Some((11, 20)), "the step that is not whole is none");
    assert_eq!(part.ranks[1].last_in, Some(10));
    assert_eq!(part.ranks[0].length.unwrap().count, 10);
    assert_eq!((part.log.lines, part.log.warnings, part.log.errors), (1, 0, 1));
}

#[test]
fn a_lead_that_the_clocks_are_not_sure_of_names_nobody() {
    let last_in = |rtt_us: u32| {
        let mut spec = spec(2);
        spec.placements[1].host = HostId::from("gpu-b");
        let mut told = Told::new(spec);
        for host in ["gpu-a", "gpu-b"] {
            let sample = ClockSample { host_time: HostTime(1), offset_us: 0, rtt_us };
            told.tell(Origin::Host(HostId::from(host)), Event::ClockSampled { sample });
        }
        for step in 2..=11_u64 {
            told.step(0, timing(step, [10, 20, 30, 1, 10, 10]));
            told.step(1, timing(step, [11, 20, 30, 0, 10, 10]));
        }
        let run = told.analyzer.finish(None);
        assert_eq!(run.steps.judged, 10);
        run.ranks[1].last_in
    };
    assert_eq!(last_in(900), Some(10), "1 ms is more than 0.45 and 0.45");
    assert_eq!(last_in(1_100), Some(0));
}

#[test]
fn a_traceback_is_one_error_and_the_first_is_that_of_the_rank_that_failed_first() {
    let mut told = Told::new(spec(2));
    let traceback =
        ["Traceback (most recent call last):", "  File \"t.py\", line 3, in <module>", "    main()"];
    for (rank, error) in [(0, "RuntimeError: peer is gone"), (1, "ValueError: bad batch size 0")] {
        for line in traceback {
            told.line(rank, line);
        }
        told.line(rank, error);
        told.line(rank, "");
        told.line(rank, "bye");
    }
    let outcome =
        RunOutcome { root: Some(Rank(1)), ..RunOutcome::new(RunEnd::Failed, "rank 1 failed first") };
    told.whole(Event::RunEnded { outcome });
    let run = told.analyzer.finish(None);
    assert_eq!((run.log.lines, run.log.errors, run.ranks[0].errors), (12, 2, 1));
    let first = run.log.first_error.unwrap();
    assert_eq!((first.rank, first.text.as_str()), (Rank(1), "ValueError: bad batch size 0"));
}

#[test]
fn a_failure_is_seen_where_the_rank_that_failed_first_has_ended() {
    let place = |ended: bool| {
        let mut told = Told::new(spec(2));
        told.at = START.plus_micros(5_000_000);
        told.line(1, "ValueError: bad batch size 0");
        for (rank, after) in [(1, 6_000_000), (0, 9_000_000)] {
            told.at = START.plus_micros(after);
            let exit = RankExit { stopped: rank == 0, ..rank_exit(1) };
            if ended {
                told.rank(rank, Event::RankExited { exit });
            }
        }
        let outcome =
            RunOutcome { root: Some(Rank(1)), ..RunOutcome::new(RunEnd::Failed, "rank 1 failed first") };
        told.whole(Event::RunEnded { outcome });
        let found = findings(&told.analyzer.finish(None));
        found.into_iter().find(|finding| finding.words == "the run failed").and_then(|finding| finding.place)
    };
    assert_eq!(place(true), Some(Place::At(START.plus_micros(6_000_000))));
    assert_eq!(
        place(false),
        Some(Place::At(START.plus_micros(5_000_000))),
        "its first error, where no end is told"
    );
}

/// No rank leaves an allreduce before the last one comes to it.
#[test]
fn a_clock_that_the_steps_show_to_be_ahead_is_a_finding() {
    let told = |by: StepsBy, off_us: i64| {
        let mut spec = spec(2);
        spec.placements[1].host = HostId::from("gpu-b");
        let mut told = Told::new(spec);
        for (host, offset_us) in [("gpu-a", 0), ("gpu-b", off_us)] {
            let sample = ClockSample { host_time: HostTime(1), offset_us, rtt_us: 100 };
            told.tell(Origin::Host(HostId::from(host)), Event::ClockSampled { sample });
        }
        (0..2).for_each(|rank| told.rank(rank, Event::StepsBy { by }));
        for step in 2..=21_u64 {
            (0..2).for_each(|rank| told.step(rank, timing(step, [10, 20, 30, 0, 4, 10])));
        }
        told.finish(RunEnd::Finished)
    };
    assert_eq!(told(StepsBy::Program, 0).clocks_apart, None);
    assert_eq!(told(StepsBy::Program, 3_000).clocks_apart, None, "they take 4 ms to pass");
    assert_eq!(told(StepsBy::Hooks, 90_000).clocks_apart, None, "hooks don't tell when a rank came");
    let run = told(StepsBy::Program, 9_000);
    let apart = run.clocks_apart.clone().unwrap();
    assert_eq!((apart.behind.as_str(), apart.ahead.as_str(), apart.us), ("gpu-a", "gpu-b", 5_000));
    let found: Vec<Finding> = findings(&run);
    let told = found.iter().find(|finding| finding.words.contains("clock")).unwrap();
    assert_eq!(
        told.words,
        "the clock of gpu-b is at least 5.0 ms ahead of that of gpu-a: their lanes do not fit together"
    );
    assert!(told.evidence.starts_with("in 20 of 20 steps ranks of gpu-a left"), "{}", told.evidence);
}

#[test]
fn the_first_step_of_each_attempt_warms_up() {
    let mut told = Told::new(spec(2));
    for attempt in 0..2_u64 {
        for rank in 0..2 {
            told.start(rank);
        }
        // the second one goes on where a checkpoint ends
        for step in 1 + attempt * 5..=10 + attempt * 5 {
            let slow = if step == 1 + attempt * 5 { 900 } else { 0 };
            for rank in 0..2 {
                told.step(rank, timing(step, [10, 20 + slow, 30, 0, 0, 0]));
            }
        }
        if attempt == 0 {
            let why = "rank 0 failed".to_owned();
            told.whole(Event::RunRestarted { attempt: 2, of: 2, why, root: Rank(0) });
        }
    }
    let run = told.finish(RunEnd::Finished);
    let length = run.steps.length.unwrap();
    assert_eq!((length.count, length.max_us, run.restarts), (18, 60_000, 1));
    assert_eq!(run.steps.warm_up_us, Some(960_000));
}

#[test]
fn what_hooks_call_waiting_is_parted() {
    let mut told = Told::new(spec(2));
    for rank in 0..2 {
        told.rank(rank, Event::StepsBy { by: StepsBy::Hooks });
    }
    for step in 1..=40 {
        told.step(0, timing(step, [10, 20, 30, 40, 0, 0]));
        told.step(1, timing(step, [35, 20, 30, 15, 0, 0]));
    }
    let run = told.finish(RunEnd::Finished);
    let phases = |rank: usize| run.ranks[rank].phases_us.unwrap().map(|us| us / 39);
    // a second lies between the begins of steps
    assert_eq!(phases(0), [10_000, 20_000, 30_000, 25_000, 15_000, 0, 900_000]);
    assert_eq!(phases(1), [35_000, 20_000, 30_000, 0, 15_000, 0, 900_000]);
    assert_eq!(run.ranks[1].wait_caused_us, Some(39 * 25_000));
    assert_eq!(run.steps.by, Some(StepsBy::Hooks));
    assert_eq!(run.steps.overlap, None, "nothing hidden is told");
}

#[test]
fn steps_that_one_rank_never_tells_are_those_of_each_rank() {
    let mut told = Told::new(spec(2));
    for step in 1..=2000 {
        told.step(0, timing(step, [10, 20, 30, 0, 0, 0]));
    }
    let run = told.finish(RunEnd::Finished);
    assert!(!run.steps.aligned);
    assert_eq!(run.steps.length.unwrap().count, 1999);
    assert_eq!((run.ranks[0].last_in, run.ranks[1].length), (None, None));
}

#[test]
fn what_is_caught_up_with_rank_by_rank_is_put_together() {
    let mut told = Told::new(spec(2));
    told.start(0);
    told.start(1);
    for rank in 0..2 {
        for step in 1..=3000 {
            let late = [0, 1][rank as usize];
            told.step(rank, timing(step, [2 + late, 2, 2, 3 - 3 * late, 1, 1]));
        }
    }
    let run = told.finish(RunEnd::Finished);
    // the first one warms up
    assert_eq!(run.ranks[1].last_in, Some(2999));
}

#[test]
fn the_first_step_is_that_of_all_ranks_though_each_says_by_whom_it_is_told_in_between() {
    let mut told = Told::new(spec(4));
    let attempt = |told: &mut Told, millis: [u32; 4]| {
        (0..4).for_each(|rank| told.start(rank));
        for (rank, millis) in (0..4).zip(millis) {
            told.rank(rank, Event::StepsBy { by: StepsBy::Hooks });
            let loss = Some(2.0 + rank as f32);
            told.step(rank, StepTiming { loss, ..timing(1, [millis, 0, 0, 0, 0, 0]) });
        }
        for step in 2..=5 {
            (0..4).for_each(|rank| told.step(rank, timing(step, [10, 0, 0, 0, 0, 0])));
        }
    };
    attempt(&mut told, [43, 28, 66, 19]);
    let run = told.analyzer.clone().finish(None);
    assert_eq!(run.steps.warm_up_us, Some(66_000));
    assert_eq!(run.loss.map(|loss| loss.first), Some(3.5));
    assert_eq!(run.steps.length.map(|length| length.count), Some(4));
    told.whole(Event::RunRestarted { attempt: 2, of: 3, why: "exit 1".to_owned(), root: Rank(1) });
    attempt(&mut told, [10, 90, 10, 10]);
    assert_eq!(told.finish(RunEnd::Finished).steps.warm_up_us, Some(90_000), "of another attempt too");
}

#[test]
fn what_another_one_told_before_is_no_part_of_the_steps_that_are_told_now() {
    let mut told = Told::new(spec(2));
    // rank 1 lags behind, and both are told anew, with other numbers
    (1..=3).for_each(|step| told.step(0, timing(step, [50, 0, 0, 0, 0, 0])));
    told.step(1, timing(1, [50, 0, 0, 0, 0, 0]));
    (0..2).for_each(|rank| told.rank(rank, Event::StepsBy { by: StepsBy::Hooks }));
    for step in 2..=9 {
        (0..2).for_each(|rank| told.step(rank, timing(step, [10, 0, 0, 0, 0, 0])));
    }
    let length = told.finish(RunEnd::Finished).steps.length.unwrap();
    assert_eq!((length.count, length.max_us), (8, 10_000));
}

#[test]
fn a_loss_that_is_no_number_is_told_with_its_step() {
    let mut told = Told::new(spec(1));
    for step in 1..=20 {
        let loss = if step >= 15 { f32::NAN } else { 1.0 };
        told.step(0, StepTiming { loss: Some(loss), ..timing(step, [10, 0, 0, 0, 0, 0]) });
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.loss_not_finite_at, Some(15));
    assert_eq!(run.loss.map(|loss| loss.last_step), Some(14));
    assert_eq!(findings(&run)[0].words, "the loss is not a number from step 15 on");
}

#[test]
fn what_is_printed_counts_where_nothing_is_told() {
    let mut told = Told::new(spec(1));
    for step in 1..=10 {
        let seen = SeenStep { step, total: Some(10), loss: Some(2.0 / step as f32) };
        told.rank(0, Event::StepSeen { seen });
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!((run.steps.last, run.steps.of, run.steps.by), (Some(10), Some(10), Some(StepsBy::Log)));
    near(run.loss.map(|loss| loss.least), f64::from(0.2_f32));
    assert!(run.steps.length.is_none());
}

#[test]
fn processes_within_a_rank_are_those_that_train() {
    let mut told = Told::new(spec(1));
    told.start(0);
    for step in 1..=30 {
        for worker in 0..2 {
            let late = [0, 20][worker as usize];
            let timing = Arc::new(timing(step, [10 + late, 20, 30, 20 - late, 5, 5]));
            let origin = Origin::Worker(told.spec.id.clone(), Rank(0), worker);
            told.tell(origin, Event::StepDone { timing });
        }
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.ranks.len(), 2);
    // a step is whole when all that have told one so far have told it: the first tells alone
    assert!(run.ranks[1].last_in.is_some_and(|last| last >= 28), "{:?}", run.ranks[1]);
}

#[test]
fn what_is_missing_is_counted() {
    let mut told = Told::new(spec(1));
    told.host(Event::Gap { what: "telemetry".to_owned(), dropped: 3 });
    told.host(Event::Gap { what: "telemetry".to_owned(), dropped: 4 });
    for reason in [GapReason::NotRead, GapReason::Emptied] {
        let (rank, stream, from, to) = (Rank(0), Stream::Stderr, 0, 12 << 20);
        told.rank(0, Event::LogGap { gap: LogGap { rank, stream, from, to, reason, cap: None } });
    }
    let since = told.at;
    told.wait(60);
    told.whole(Event::Attached { since: Some(since), until: None });
    let open = told.analyzer.clone().finish(None);
    assert_eq!(findings(&open)[0].evidence, "not followed for 01:00; 7 dropped: telemetry; 12 M of logs");
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.gaps.dropped, [Counted { what: "telemetry".to_owned(), count: 7 }]);
    assert_eq!(run.gaps.unattended_us, 60_000_000);
    assert_eq!(findings(&run)[0].evidence, "7 dropped: telemetry; 12 M of logs");
}

#[test]
fn steps_without_the_ranks_ticks_are_not_missing() {
    let mut told = Told::new(spec(1));
    told.whole(Event::Gap { what: crate::domain::event::UNTICKED.to_owned(), dropped: 19 });
    let found = findings(&told.finish(RunEnd::Finished));
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.words, "of 19 steps it is not known which ranks waited");
    assert!(finding.evidence.contains("HOROVOD_CACHE_CAPACITY=0"), "{finding:?}");
}

#[test]
fn a_first_step_has_no_length_where_nothing_tells_when_it_began() {
    let told = |is_unbegun: bool| {
        let mut told = Told::new(spec(2));
        for step in 1..=5 {
            (0..2).for_each(|rank| told.step(rank, timing(step, [10, 20, 30, 0, 0, 10])));
        }
        if is_unbegun {
            told.whole(Event::Gap { what: UNBEGUN.to_owned(), dropped: 1 });
        }
        told.finish(RunEnd::Finished)
    };
    let (known, run) = (told(false), told(true));
    assert_eq!((known.steps.warm_up_us, known.ranks[1].warm_up_us), (Some(70_000), Some(70_000)));
    assert_eq!((run.steps.warm_up_us, run.ranks[1].warm_up_us), (None, None));
    assert_eq!((run.steps.length, run.gaps.dropped), (known.steps.length, Vec::new()), "nothing is lost");
}

#[test]
fn what_was_not_followed_ends_with_the_run() {
    let mut told = Told::new(spec(1));
    let since = told.at;
    told.wait(30);
    let ended = told.at;
    told.wait(60);
    // a client looks at it a minute after its end
    told.whole(Event::Attached { since: Some(since), until: Some(told.at) });
    let run = told.finish_at(RunEnd::Finished, ended);
    assert_eq!(run.gaps.unattended_us, 30_000_000);
    assert_eq!(findings(&run), [], "all that its hosts had was read");
}

#[test]
fn facts_name_what_was_run() {
    let mut told = Told::new(spec(2));
    told.host(Event::HostDescribed { info: Arc::new(super::fixtures::info(2)) });
    let run = told.finish(RunEnd::Finished);
    let fact = |name: &str| {
        run.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone()).unwrap_or_default()
    };
    assert_eq!(fact("command"), "python train.py");
    assert_eq!(fact("env LR"), "0.1");
    assert_eq!(fact("GPUs"), "2 × H200");
    assert_eq!(fact("driver"), "550.54");
    assert_eq!(fact("slots"), "gpu-a:0-1");
}

/// Four ranks over steps of 20 ms; `late` says by how many milliseconds which rank is late in which place: data, forward.
fn four(steps: u64, late: impl Fn(u64) -> Option<(u32, usize, u32)>) -> RunAnalysis {
    let mut told = Told::new(spec(4));
    for step in 1..=steps {
        let trouble = late(step);
        for rank in 0..4 {
            // each rank comes last in a quarter of the steps, by a little
            let jitter = u32::from(step % 4 == u64::from(rank));
            let mut millis = [2, 6 + jitter, 10, 1 - jitter, 0, 2];
            match trouble {
                Some((whom, place, ms)) if whom == rank => millis[place] += ms,
                Some((_, _, ms)) => millis[3] += ms,
                None => {}
            }
            told.at = told.at.plus_micros(5_000);
            told.step(rank, timing(step, millis));
        }
    }
    told.finish(RunEnd::Finished)
}

#[test]
fn one_stall_is_a_step_and_hides_no_rank_that_is_late_again_and_again() {
    let run = four(200, |step| match step {
        100 => Some((2, 1, 3000)),
        step if step % 5 == 0 => Some((3, 0, 30)),
        _ => None,
    });
    let found = findings(&run);
    let words: Vec<&str> = found.iter().map(|finding| finding.words.as_str()).collect();
    let stall = "step 100 took 3.0 s (usually 21 ms): all waited for rank 2 (gpu-a:2), in forward";
    assert_eq!(words[0], stall, "{words:#?}");
    assert_eq!(found[0].place, Some(Place::Step(100)));
    assert!(
        words[1]
            .starts_with("rank 3 (gpu-a:3) is late in data: if it took no longer there than the others, "),
        "{words:#?}"
    );
    assert!(!words.iter().any(|words| words.starts_with("rank 2")), "{words:#?}");
    assert_eq!((found[1].span, run.what_if.len()), (None, 1), "all along");
}

#[test]
fn a_rank_that_is_late_for_a_while_is_told_with_the_steps_and_what_it_cost_there() {
    let run = four(4000, |step| (1500..=2500).contains(&step).then_some((2, 0, 20)));
    let found = findings(&run);
    assert!(found[0].words.starts_with("rank 2 (gpu-a:2) is late in data: "), "{found:#?}");
    let span = found[0].span.unwrap();
    assert!((1480..=1520).contains(&span.from_step) && (2480..=2520).contains(&span.to_step), "{span:?}");
    assert_eq!(found[0].place, Some(Place::Step(span.from_step)));
    assert!(found[0].evidence.contains("most of it in steps 1"), "{found:#?}");
    let [episode] = &run.stragglers[..] else { panic!("{:#?}", run.stragglers) };
    assert!((18_000..=21_000).contains(&episode.cost_us) && episode.share > 0.4, "{episode:?}");
    assert_eq!((episode.rank, episode.phase), (Rank(2), Some(Lost::Data)));
    assert!(episode.from_step.abs_diff(1500) <= 2, "not where it was named: {episode:?}");
}

#[test]
fn a_rank_that_is_late_for_most_of_the_run_is_told_with_the_step_from_which_on() {
    for (begins, steps, unsure) in [(21, 96, 0), (51, 480, 1), (101, 640, 3)] {
        let run = four(steps, |step| (step >= begins).then_some((2, 0, 20)));
        let found = &findings(&run)[0];
        let Span { from_step, to_step } = found.span.unwrap();
        assert!(from_step.abs_diff(begins) <= unsure && to_step == steps, "{begins} of {steps}: {found:#?}");
        assert_eq!(found.place, Some(Place::Step(from_step)));
        let words = format!("most of it from step {from_step} on: about ");
        assert!(found.evidence.contains(&words), "{found:#?}");
    }
    // all along: at its first step that is judged
    let run = four(200, |_| Some((2, 0, 20)));
    let found = &findings(&run)[0];
    assert_eq!(found.span, None);
    assert!(matches!(found.place, Some(Place::Step(1..=3))), "{found:#?}");
}

#[test]
fn a_straggler_that_no_phase_accounts_for_comes_last_all_the_same() {
    // late in data in one half of its steps and in forward in the other: no place has half of it live
    let mut told = Told::new(spec(2));
    for step in 1..=400 {
        told.step(0, spans_of(step, 50_000, &[(Phase::Wait, 20_000)]));
        told.step(1, spans_of(step, 50_000, &[(Phase::Wait, 0)]));
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.stragglers.len(), 1);
    let found = findings(&run);
    assert_eq!(
        found[0].words,
        "rank 1 (gpu-a:1) comes last to the allreduce: without that, steps would be 40 % shorter"
    );
    assert!(!found.iter().any(|finding| finding.words.contains("was a straggler")), "{found:#?}");
}

/// It costs too little of the run for what would be gained without it.
#[test]
fn a_straggler_is_told_with_its_steps_and_the_other_times() {
    let told = |to_steps: &[Option<u64>]| {
        let mut run = late_run(2000, 0);
        let episode = |(number, to_step): (usize, &Option<u64>)| Episode {
            rank: Rank(u32::from(number != 2)),
            from_step: 100 * (number as u64 + 1),
            to_step: *to_step,
            cost_us: 20_000 / (number as u64 + 1),
            share: 0.25 / (number as f64 + 1.0),
            phase: (number == 0).then_some(Lost::Data),
        };
        run.stragglers = to_steps.iter().enumerate().map(episode).collect();
        let found = findings(&run).into_iter().find(|finding| finding.words.contains("straggler")).unwrap();
        (found.words, found.evidence, found.span)
    };
    let span = |to_step| Some(Span { from_step: 100, to_step });
    let (words, evidence, steps) = told(&[None]);
    assert_eq!(words, "rank 1 (gpu-a:1) was a straggler from step 100 on, late in data");
    assert_eq!((evidence.as_str(), steps), ("+20 ms a step (25 %)", span(2000)));
    let (words, evidence, steps) = told(&[Some(171), Some(240), None]);
    assert_eq!(words, "rank 1 (gpu-a:1) was a straggler in steps 100 to 171, late in data");
    assert_eq!(evidence, "+20 ms a step (25 %); also in steps 200 to 240, rank 0 from step 300 on");
    assert_eq!(steps, span(171));
    let (_, evidence, _) = told(&[Some(171), Some(200), None, Some(450), Some(520), None]);
    let others = "in step 200, rank 0 from step 300 on, in steps 400 to 450, 2 more times";
    assert_eq!(evidence, format!("+20 ms a step (25 %); also {others}"));
}

#[test]
fn short_steps_are_told_where_they_are_much_of_a_long_run() {
    let run = |steps: u64| {
        let mut told = Told::new(spec(2));
        for step in 1..=steps {
            told.step(0, spans_of(step, 300, &[(Phase::Forward, 100), (Phase::Wait, 80)]));
            told.step(1, spans_of(step, 300, &[(Phase::Forward, 180), (Phase::Wait, 0)]));
        }
        findings(&told.finish(RunEnd::Finished))
    };
    let found = run(15_000);
    assert!(found.iter().any(|finding| finding.words.starts_with("rank 1")), "{found:#?}");
    assert_eq!(run(1_000), [], "0.3 s");
}

#[test]
fn steps_that_are_lost_in_the_middle_are_named() {
    let told = |lost: std::ops::Range<u64>, every: u64| {
        let mut told = Told::new(spec(2));
        for step in (1..=400).filter(|step| !lost.contains(step)).map(|step| step * every) {
            (0..2).for_each(|rank| told.step(rank, timing(step, [10, 20, 30, 0, 0, 10])));
        }
        told.finish(RunEnd::Finished)
    };
    let run = told(201..217, 1);
    assert_eq!(run.gaps.steps, [Span { from_step: 201, to_step: 216 }]);
    let found = findings(&run);
    let missing = found.iter().find(|finding| finding.words == "the recording is not complete").unwrap();
    assert_eq!(
        (missing.evidence.as_str(), missing.place),
        ("steps 201 to 216 missing", Some(Place::Step(201)))
    );
    assert_eq!(told(0..0, 10).gaps.steps, [], "each tenth step is told");
}

#[test]
fn what_a_part_has_in_no_step_is_known() {
    let run = late_run(60, 20);
    // 59 steps of 100 ms and the first one of 500
    assert_eq!(run.in_no_step_us(6_400_000), None);
    assert_eq!(run.in_no_step_us(12_000_000), Some(5_600_000));
}

/// Rank 0 saves at the end of each epoch, while rank 1 is a little late in each step.
#[test]
fn a_rank_that_saves_each_epoch_is_told_beside_one_that_is_late_in_each_step() {
    let mut told = Told::new(spec(3));
    for step in 1..=200 {
        let saves = if step % 20 == 0 { 300 } else { 0 };
        told.step(0, timing(step, [20 + saves, 5, 5, if saves > 0 { 0 } else { 30 }, 2, 3]));
        told.step(1, timing(step, [50, 5, 5, if saves > 0 { saves - 30 } else { 0 }, 2, 3]));
        told.step(2, timing(step, [20, 5, 5, if saves > 0 { saves } else { 30 }, 2, 3]));
    }
    let run = told.finish(RunEnd::Finished);
    let found: Vec<String> = findings(&run).into_iter().map(|finding| finding.words).collect();
    let tells = |rank: &str| found.iter().any(|words| words.starts_with(rank));
    assert!(tells("rank 0") && tells("rank 1") && !tells("rank 2"), "{found:#?}");
}

/// What the hosts, the ranks and the run tell of two ranks, so that something is known of each kind.
fn told_of_all_kinds() -> Told {
    let mut told = Told::new(spec(2));
    told.host(Event::HostDescribed { info: Arc::new(info(2)) });
    told.host(Event::Gap { what: "telemetry".to_owned(), dropped: 3 });
    (0..2).for_each(|rank| told.start(rank));
    for step in 1..=300 {
        told.wait(1);
        let sample = ClockSample { host_time: HostTime(step * 1_000_000), offset_us: START.0, rtt_us: 90 };
        told.host(Event::ClockSampled { sample });
        let util = if (100..120).contains(&step) { 5 } else { 90 };
        let gpu = |index| GpuSample {
            util: Reading::Value(util),
            memory_used: Reading::Value(step << 20),
            throttle: Reading::Value(vec!["hw slowdown".to_owned()]),
            ..GpuSample::unknown(index)
        };
        told.sample(vec![gpu(0), gpu(1)]);
        if step == 50 {
            let state = LinkState::Down { reason: "lost".to_owned(), retry_at: None };
            told.host(Event::LinkChanged { state });
            told.wait(20);
            told.host(Event::LinkChanged { state: LinkState::Up });
        }
        for rank in 0..2 {
            let late = if rank == 1 { 30 } else { 0 };
            if step == 70 {
                let (phase, for_us, stopped) = (Phase::Wait, 2_000_000, rank == 1);
                let standing = StalledPhase { phase, step, for_us, stopped, at: None };
                told.rank(rank, Event::RankStands { standing });
            }
            // step 301 is told by one rank alone
            let number = step + u64::from(step == 300 && rank == 1);
            told.step(rank, timing(number, [5 + late, 20, 40, 30 - late, 9, 5]));
            for (name, value) in [("lr", 0.1), ("loss", if step > 200 { f64::NAN } else { 1.0 })] {
                told.rank(rank, Event::MetricReported { name: name.to_owned(), value, step: Some(step) });
            }
            let timing = CollectiveTiming {
                comm: CommId(7),
                ranks: 2,
                comm_rank: rank,
                func: "AllReduce".to_owned(),
                seq: step,
                bytes: 1 << 20,
                datatype: String::new(),
                t: Some(HostTime(step * 1_000_000)),
                dur_ns: 1_000_000 + u64::from(rank) * 50_000,
                gpu_ns: None,
                every: 1,
                lost: 0,
            };
            told.rank(rank, Event::CollectiveDone { timing: Box::new(timing) });
        }
    }
    told.line(1, "Traceback (most recent call last):");
    told.line(1, "ValueError: no");
    told.whole(Event::Attached { since: Some(START), until: None });
    told
}

/// As it lies beside a recording, whose figures are read from there.
#[test]
fn an_analysis_that_is_written_is_read_as_it_was() {
    let told = told_of_all_kinds();
    let written = rmp_serde::to_vec_named(&told.analyzer).unwrap();
    let read: Analyzer = rmp_serde::from_slice(&written).unwrap();
    assert!(format!("{read:?}") == format!("{:?}", told.analyzer));
    let (run, again) = (told.analyzer.finish(None), read.finish(None));
    let known = [
        run.steps.length.is_some(),
        run.ranks[1].wait_caused_us > Some(0),
        run.gpus[0].cliffs.longest_at.is_some(),
        run.log.first_error.is_some(),
        run.metrics.iter().any(|metric| metric.not_finite.as_ref().is_some_and(|not| not.from > START)),
        run.nccl.is_some(),
        !run.silences.is_empty(),
        run.gaps.unattended_us > 0,
    ];
    assert_eq!(known, [true; 8]);
    assert!(format!("{run:?}") == format!("{again:?}"));
}
