use std::sync::Arc;

use super::*;
use crate::domain::analysis::fixtures::{Told, info, late_run, late_run_in, spec, timing};
use crate::domain::event::{Event, Origin};
use crate::domain::gpu::Reading;
use crate::domain::ids::HostId;
use crate::domain::outcome::RunEnd;
use crate::domain::sync::Code;

fn side(whole: RunAnalysis) -> Side {
    Side { whole, common: None }
}

fn find<'a>(comparison: &'a Comparison, name: &str) -> &'a Compared {
    comparison.metrics.iter().find(|metric| metric.name == name).unwrap()
}

/// Steps of 100 ms with some noise, and `more` percent.
fn noisy(more: u32, seed: u32) -> RunAnalysis {
    let mut told = Told::new(spec(1));
    for step in 1..=400_u32 {
        let noise = (step.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) % 20;
        told.step(0, timing(step.into(), [5, 90 + more + noise, 0, 0, 0, 0]));
    }
    told.finish(RunEnd::Finished)
}

#[test]
fn a_change_is_told_with_its_interval_and_noise_is_the_same() {
    let comparison = compare(&side(noisy(0, 1)), &side(noisy(10, 5)));
    let p50 = find(&comparison, "p50");
    assert!(!p50.same && (p50.change.unwrap() - 10_000.0).abs() < 1_500.0, "{p50:?}");
    let (low, high) = p50.interval.unwrap();
    assert!(low > 5_000.0 && high < 15_000.0 && low < high, "{p50:?}");
    let comparison = compare(&side(noisy(0, 1)), &side(noisy(0, 777)));
    assert!(find(&comparison, "p50").same && find(&comparison, "p95").same, "{comparison:?}");
}

#[test]
fn too_few_steps_are_no_interval_and_a_wide_one_is_no_equality() {
    let of = |lengths: &[u32]| {
        let mut told = Told::new(spec(1));
        for (step, ms) in (1..).zip(lengths) {
            told.step(0, timing(step, [0, *ms, 0, 0, 0, 0]));
        }
        side(told.finish(RunEnd::Finished))
    };
    // the first one warms up
    let (a, b) = (of(&[9, 60, 8, 24, 12, 64, 15, 21, 17]), of(&[9, 55, 4, 66, 6, 52, 30, 48, 45]));
    let comparison = compare(&a, &b);
    let p50 = find(&comparison, "p50");
    let (low, _) = p50.interval.unwrap();
    assert!(p50.same && p50.unsure && low > -p50.a.unwrap(), "{p50:?}");
    for name in ["p95", "p99"] {
        let compared = find(&comparison, name);
        assert!(compared.too_few_steps && compared.interval.is_none() && !compared.unsure, "{compared:?}");
    }
    assert!(!find(&comparison, "mean").too_few_steps);
    // medians that happen to be equal are no more sure
    let mut other = of(&[9, 60, 8, 24, 12, 64, 15, 21, 17]);
    other.whole.run = "another one".to_owned();
    let equal = compare(&a, &other);
    let p50 = find(&equal, "p50");
    assert!(p50.change == Some(0.0) && p50.same && p50.unsure, "{p50:?}");
    let judge = |text: &str| Condition::parse(text).unwrap().judge(&a, &b);
    for text in ["p99>+5%", "p95>-1%", "p95<-50ms"] {
        let Verdict::Unknown(words) = judge(text) else { panic!("{text}") };
        let begin = format!("{text}: too few steps: run A has 8 and needs ");
        assert!(words.starts_with(&begin) && words.contains(", run B has 8 and needs "), "{words}");
    }
    assert!(matches!(judge("p50>+5%"), Verdict::No(_)));
}

#[test]
fn an_interval_never_says_that_a_length_may_be_nothing_unless_it_may() {
    let estimate = |value, low, high| Estimate { value, low, high, few: None };
    // 304 ms against 23 ms of few steps that differ much
    let (low, high) = interval_of(estimate(304e3, 100e3, 900e3), estimate(23e3, 10e3, 80e3));
    assert!(low > -304e3 && low < 23e3 - 304e3 && high > 23e3 - 304e3 && high < 0.0, "{low} {high}");
    // it is the same whichever run is the first
    let (a, b) = (estimate(50.0, 40.0, 70.0), estimate(80.0, 70.0, 85.0));
    let ((low, high), (least, most)) = (interval_of(a, b), interval_of(b, a));
    assert!(((1.0 + low / 50.0) * (1.0 + most / 80.0) - 1.0).abs() < 1e-9, "{low} {most}");
    assert!(((1.0 + high / 50.0) * (1.0 + least / 80.0) - 1.0).abs() < 1e-9, "{high} {least}");
    // where both are exact but for a little it is that of the difference
    let (low, high) = interval_of(estimate(1000.0, 990.0, 1010.0), estimate(1100.0, 1090.0, 1110.0));
    assert!((low - 85.4).abs() < 1.0 && (high - 114.7).abs() < 1.0, "{low} {high}");
    // one that may be nothing may have become nothing
    let (low, high) = interval_of(estimate(50.0, 40.0, 60.0), estimate(20.0, 0.0, 90.0));
    assert!((low + 50.0).abs() < 11.0 && low >= -50.0 && high > 0.0, "{low} {high}");
}

#[test]
fn a_phase_that_one_rank_loses_in_is_seen_in_all() {
    let comparison = compare(&side(late_run(60, 20)), &side(late_run(60, 40)));
    let data = find(&comparison, "data");
    assert!(data.change.is_some_and(|change| (change - 10_000.0).abs() < 100.0) && !data.same, "{data:?}");
}

#[test]
fn a_run_is_the_same_as_itself() {
    let comparison = compare(&side(late_run(60, 20)), &side(late_run(60, 20)));
    assert!(comparison.metrics.iter().all(|metric| metric.same), "{comparison:?}");
    assert!(comparison.differences.is_empty() && comparison.notes.is_empty(), "{comparison:?}");
}

#[test]
fn only_steps_that_both_have_are_compared() {
    let (a, b) = (late_run(100, 20), late_run(60, 20));
    let window = common_steps(&a, &b).unwrap();
    assert_eq!(window, Window { from: 1, to: 60 });
    let a = Side { common: Some(late_run_in(100, 20, window)), whole: a };
    let comparison = compare(&a, &side(b));
    let loss = find(&comparison, "loss");
    assert!(loss.same, "at the same step: {loss:?}");
    assert!(!find(&comparison, "last-loss").same);
    let common = "those that both runs have, are compared";
    assert_eq!(comparison.notes, [format!("steps 1 to 60, {common} without the first, which warms up")]);
    // of a run whose beginning is not recorded
    let later = Window { from: 21, to: 60 };
    let side = || Side { common: Some(late_run_in(60, 20, later)), whole: late_run(60, 20) };
    let (a, mut b) = (side(), side());
    b.whole.steps.first = Some(21);
    assert_eq!(compare(&a, &b).notes, [format!("steps 21 to 60, {common}")]);
}

#[test]
fn what_was_run_is_compared_fact_by_fact() {
    let mut other = spec(2);
    other.env.insert("LR".to_owned(), "0.2".to_owned());
    other.env.insert("NEW".to_owned(), "1".to_owned());
    let comparison = compare(
        &side(Told::new(spec(2)).finish(RunEnd::Finished)),
        &side(Told::new(other).finish(RunEnd::Finished)),
    );
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        comparison.differences,
        [
            Difference { name: "env LR".to_owned(), a: text("0.1"), b: text("0.2") },
            Difference { name: "env NEW".to_owned(), a: None, b: text("1") },
        ]
    );
    assert_eq!(comparison.notes, ["neither run told steps: only times and telemetry are compared"]);
}

#[test]
fn code_hosts_gpus_and_versions_that_differ_are_told_and_what_is_alike_is_not() {
    let of = |code: Code, host: &str, gpu: &str, driver: &str| {
        let mut spec = spec(2);
        spec.code = Some(code);
        for placement in &mut spec.placements {
            placement.host = HostId::from(host);
        }
        let mut told = Told::new(spec);
        let mut info = info(2);
        info.driver = Reading::Value(driver.to_owned());
        info.gpus.iter_mut().for_each(|one| gpu.clone_into(&mut one.name));
        told.tell(Origin::Host(HostId::from(host)), Event::HostDescribed { info: Arc::new(info) });
        side(told.finish(RunEnd::Finished))
    };
    let clean =
        || Code { commit: Some("4f2a".to_owned()), branch: Some("main".to_owned()), ..Code::default() };
    let changed = Code { commit: Some("9c01".to_owned()), dirty: Some("ab".to_owned()), ..clean() };
    let a = of(clean(), "gpu-a", "NVIDIA H200", "550.54");
    let b = of(changed, "gpu-b", "NVIDIA H100", "570.1");
    let text = |text: &str| Some(text.to_owned());
    let differs = |name: &str, a, b| Difference { name: name.to_owned(), a, b };
    assert_eq!(
        compare(&a, &b).differences,
        [
            differs("slots", text("gpu-a:0-1"), text("gpu-b:0-1")),
            differs("commit", text("4f2a"), text("9c01")),
            differs("GPUs", text("2 × H200"), text("2 × H100")),
            differs("driver", text("550.54"), text("570.1")),
            differs("uncommitted changes", None, text("ab")),
        ]
    );
    let same = of(clean(), "gpu-a", "NVIDIA H200", "550.54");
    assert_eq!(compare(&a, &same).differences, []);
}

#[test]
fn what_limits_the_comparison_is_said() {
    let mut failed = Told::new(spec(4));
    failed.step(0, timing(200, [10, 0, 0, 0, 0, 0]));
    let failed = failed.finish(RunEnd::Failed);
    let comparison = compare(&side(late_run(60, 0)), &side(failed));
    assert_eq!(
        comparison.notes,
        [
            "the runs have no step in common: steps are not compared",
            "A has 2 ranks, B has 4: a step is not the same work",
            "run B did not succeed: all ranks done",
        ]
    );
    assert_eq!(find(&comparison, "p50").change, None);
    let none = compare(&side(late_run(60, 0)), &side(Told::new(spec(2)).finish(RunEnd::Finished)));
    assert_eq!(none.notes, ["run B told no steps: nothing of the steps is compared"]);
}

#[test]
fn conditions_hold_by_share_and_by_amount() {
    let (a, b) = (side(noisy(0, 1)), side(noisy(10, 5)));
    let judge = |text: &str| Condition::parse(text).unwrap().judge(&a, &b);
    for text in ["p50>+5%", "p50 > +5ms", "mean>+4.9%", "samples/s<-3%", "p50>=+5000us", "forward>+0.005s"] {
        assert!(matches!(judge(text), Verdict::Holds(_)), "{text}: {:?}", judge(text));
    }
    for text in ["p50>+50%", "p50>+50ms", "p50<-1%", "loss>+0.01", "duration>+1s", "samples/s<-3000"] {
        assert!(matches!(judge(text), Verdict::No(_)), "{text}: {:?}", judge(text));
    }
    assert_eq!(judge("gpu-util<-5"), Verdict::Unknown("gpu-util<-5: both runs lack it".to_owned()));
    let (a, b) = (side(noisy(0, 1)), side(noisy(1, 1)));
    let judge = |text: &str| Condition::parse(text).unwrap().judge(&a, &b);
    let little = judge("p50>+0.1%");
    assert!(matches!(&little, Verdict::No(words) if words.ends_with(", not significant")), "{little:?}");
    assert!(matches!(judge("p50>-1%"), Verdict::Holds(_)), "it must become faster, and does not");
}

#[test]
fn what_an_import_does_not_tell_is_not_judged() {
    let run = |imported: bool, transfer: u32| {
        let mut spec = spec(1);
        spec.options.imported = imported.then(|| "Horovod timeline: a.json".to_owned());
        let mut told = Told::new(spec);
        for step in 1..=400 {
            told.step(0, timing(step, [0, 90, 0, 5, transfer, 0]));
        }
        side(told.finish(RunEnd::Finished))
    };
    let (a, b) = (run(false, 10), run(true, 0));
    let comparison = compare(&a, &b);
    let exposed = find(&comparison, "exposed");
    assert_eq!((exposed.a.is_some(), exposed.b, exposed.change), (true, None, None));
    let judged = Condition::parse("exposed<-5%").unwrap().judge(&a, &b);
    assert_eq!(judged, Verdict::Unknown("exposed<-5%: run B lacks it".to_owned()));
}

#[test]
fn a_bad_condition_is_pointed_at() {
    let pointed = |text: &str| Condition::parse(text).unwrap_err().pointed(text);
    assert!(pointed("p96>+5%").starts_with("p96>+5%\n^^^ not a metric; these are: p50 p95 p99 "));
    assert_eq!(pointed("p95"), "p95\n   ^ a comparison is missing: write it as p95>+5%");
    assert_eq!(pointed("p95>5%"), "p95>5%\n    ^^ a change has a sign: write +5% or +5ms");
    assert_eq!(pointed("p95>+%"), "p95>+%\n     ^ not a number: write +5% or +5ms");
    assert_eq!(pointed("p95>+5G"), "p95>+5G\n      ^ not a unit of p95: write +5% or +5ms");
    assert_eq!(pointed("loss>+0.1ms"), "loss>+0.1ms\n         ^^ not a unit of loss: write +1% or +0.01");
    assert_eq!(pointed(" p95 >+5q"), " p95 >+5q\n        ^ not a unit of p95: write +5% or +5ms");
    assert!(Condition::parse("samples/s<-100/s").is_ok() && Condition::parse("gpu-memory>+1GiB").is_ok());
}

#[test]
fn the_steps_in_which_two_runs_part_are_told_with_their_phase() {
    let run = |slower: &dyn Fn(u64) -> u32| {
        let mut told = Told::new(spec(1));
        for step in 1..=640 {
            told.step(0, timing(step, [10 + slower(step), 40, 50, 0, 0, 0]));
        }
        side(told.finish(RunEnd::Finished))
    };
    let part = |a: &Side, b: &Side| compare(a, b).by_steps.unwrap().part.map(|part| part.words());
    let even = run(&|_| 0);
    let late = run(&|step| if (201..=300).contains(&step) { 18 } else { 0 });
    // by so much, as well as the buckets know their medians
    let says = |words: String, how: &str, percents: [u32; 3]| {
        let told = percents.map(|percent| format!("B is {how}{percent} %, in data"));
        assert!(told.contains(&words), "{words}");
    };
    says(part(&even, &late).unwrap(), "slower in steps 201 to 300: +", [17, 18, 19]);
    says(part(&late, &even).unwrap(), "faster in steps 201 to 300: −", [14, 15, 16]);
    // from the first step to the last it is what the metrics say, and one stall is no part
    for b in [run(&|_| 18), run(&|step| if step == 300 { 900 } else { 0 }), run(&|_| 0)] {
        assert_eq!(part(&even, &b), None);
    }
    let buckets = compare(&even, &late).by_steps.unwrap().buckets;
    assert_eq!((buckets.len(), buckets[0].from_step, buckets[63].to_step), (64, 1, 640));
    assert!(buckets[25].a_us == buckets[0].a_us && buckets[25].b_us > buckets[25].a_us, "{buckets:?}");
    assert_eq!(compare(&side(noisy(0, 1)), &side(noisy(0, 777))).by_steps.unwrap().part, None);
}
