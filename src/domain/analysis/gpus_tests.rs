use super::super::fixtures::{START, Told, info, spec, timing};
use super::super::{Counted, RunAnalysis, findings};
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::Event;
use crate::domain::fixtures::host_sample;
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::ids::GpuUuid;
use crate::domain::outcome::RunEnd;
use crate::domain::time::HostTime;
use std::sync::Arc;

fn gpu(util: u32, memory: u64, throttle: &[&str]) -> GpuSample {
    GpuSample {
        util: Reading::Value(util),
        memory_used: Reading::Value(memory),
        memory_total: Reading::Value(80 << 30),
        temperature: Reading::Value(60 + util / 10),
        power_mw: Reading::Value(100_000 + util * 1000),
        throttle: Reading::Value(throttle.iter().map(|reason| (*reason).to_owned()).collect()),
        ..GpuSample::unknown(0)
    }
}

/// One sample and one step a second.
fn run(samples: impl IntoIterator<Item = GpuSample>) -> RunAnalysis {
    let mut told = Told::new(spec(1));
    told.host(Event::HostDescribed { info: Arc::new(info(1)) });
    told.sample(vec![gpu(0, 1 << 30, &[])]);
    told.start(0);
    for (step, sample) in (1..).zip(samples) {
        told.wait(1);
        told.step(0, timing(step, [100, 0, 0, 0, 0, 0]));
        told.sample(vec![sample]);
    }
    told.finish(RunEnd::Finished)
}

#[test]
fn a_clock_is_known_the_less_the_longer_the_host_was_not_pinged() {
    // pings so many seconds after the start, and the end
    let known = |pings: &[u64], end: i64| {
        let mut told = Told::new(spec(1));
        for second in pings {
            let host_time = HostTime(second * 1_000_000);
            let sample = ClockSample { host_time, offset_us: START.0, rtt_us: 200 };
            told.host(Event::ClockSampled { sample });
        }
        let run = told.finish_at(RunEnd::Finished, START.plus_micros(end * 1_000_000));
        (run.host_figures[0].clock_uncertainty_us, run.host_figures[0].message_us)
    };
    assert_eq!(known(&[], 9), (None, None));
    assert_eq!(known(&[0, 1, 2, 15], 15), (Some(100), Some(100)));
    // the middle of the time is the furthest from a ping
    assert_eq!(known(&[0, 100], 100), (Some(2_600), Some(100)));
    assert_eq!(known(&[0, 100, 120], 120), (Some(2_600), Some(100)));
    // the run ended soon after the client had left, which came back much later
    assert_eq!(known(&[0, 30, 90_000], 40), (Some(850), Some(100)));
    assert_eq!(known(&[0, 90_000], 40), (Some(2_100), Some(100)));
}

#[test]
fn what_a_gpu_did_while_its_rank_ran_is_told() {
    let samples = (0..100).map(|second| {
        let util = if (50..65).contains(&second) { 10 } else { 90 };
        let held: &[&str] = if second < 20 { &["hw thermal slowdown", "gpu idle"] } else { &["gpu idle"] };
        gpu(util, 20 << 30, held)
    });
    let run = run(samples);
    let gpu = &run.gpus[0];
    assert_eq!((gpu.util_min, gpu.util_p50, gpu.util_max, gpu.samples), (Some(10), Some(90), Some(90), 100));
    assert_eq!(gpu.util_mean, Some(78.0));
    assert_eq!((gpu.cliffs.count, gpu.cliffs.us, gpu.cliffs.longest_us), (1, 15_000_000, 15_000_000));
    assert_eq!(gpu.throttle.len(), 1, "idle is no trouble: {:?}", gpu.throttle);
    assert_eq!((gpu.throttle[0].reason.as_str(), gpu.throttle[0].us), ("hw thermal slowdown", 20_000_000));
    assert_eq!((gpu.memory_peak, gpu.memory_growth), (Some(20 << 30), None));
    assert_eq!((gpu.temperature_max, gpu.power_max_w), (Some(69), Some(190.0)));
    assert_eq!(gpu.model.as_deref(), Some("H200"));
    let host = &run.host_figures[0];
    assert_eq!((host.cpu_mean, host.cpu_max, host.clock_uncertainty_us), (Some(25.0), Some(25.0), None));
    let words: Vec<String> = findings(&run).into_iter().map(|finding| finding.words).collect();
    assert!(
        words.iter().any(|words| words.contains("held down by hw thermal slowdown on 1 GPU")),
        "{words:?}"
    );
    assert!(words.iter().any(|words| words.contains("GPU gpu-a:0 fell below half")), "{words:?}");
}

#[test]
fn a_short_drop_and_an_idle_gpu_are_no_cliffs() {
    let short = run((0..100).map(|second| gpu(if (50..58).contains(&second) { 10 } else { 90 }, 1, &[])));
    assert_eq!(short.gpus[0].cliffs.count, 0);
    let idle = run((0..100).map(|second| gpu(if second > 50 { 0 } else { 12 }, 1, &[])));
    assert_eq!(idle.gpus[0].cliffs.count, 0);
    let words = |run: &RunAnalysis| -> Vec<String> {
        let found = findings(run).into_iter().filter(|finding| finding.words.contains("are busy"));
        found.map(|finding| format!("{}: {}", finding.words, finding.evidence)).collect()
    };
    let told = "the GPUs are busy 6 % of the time: mean utilisation of 1 GPU from the first step on";
    assert_eq!(words(&idle), [told]);
    // what comes after the last step is no part of it
    let mut told = Told::new(spec(1));
    told.host(Event::HostDescribed { info: Arc::new(info(1)) });
    told.sample(vec![gpu(0, 1, &[])]);
    told.start(0);
    for step in 1..30 {
        told.step(0, timing(step, [100, 0, 0, 0, 0, 0]));
        told.sample(vec![gpu(80, 1, &[])]);
    }
    for _ in 0..60 {
        told.sample(vec![gpu(0, 1, &[])]);
    }
    let exits_late = told.finish(RunEnd::Finished);
    assert_eq!(exits_late.gpus[0].util_in_steps, Some(80.0));
    assert!(exits_late.gpus[0].util_mean.is_some_and(|mean| mean < 30.0));
    // one that has just begun says nothing of how it goes on
    let begun = run((0..8).map(|_| gpu(0, 1, &[])));
    assert_eq!((begun.gpus[0].util_mean, begun.gpus[0].util_in_steps), (Some(0.0), None));
    assert_eq!(words(&begun), [""; 0]);
}

#[test]
fn memory_that_grows_with_the_steps_is_told() {
    let run = run((0..100).map(|second| gpu(90, (20 << 30) + second * (100 << 20), &[])));
    let growth = run.gpus[0].memory_growth.unwrap();
    assert!((growth / (1000.0 * f64::from(100 << 20)) - 1.0).abs() < 1e-6, "{growth}");
    let found = findings(&run);
    assert!(
        found.iter().any(|finding| finding.words == "memory of GPU gpu-a:0 grows with the steps"),
        "{found:?}"
    );
}

#[test]
fn memory_of_a_host_that_grows_evenly_is_told_and_a_leap_is_not() {
    let run = |used: fn(u64) -> u64| {
        let mut told = Told::new(spec(1));
        let info = HostInfo { memory_total: Reading::Value(64 << 30), ..info(1) };
        told.host(Event::HostDescribed { info: Arc::new(info) });
        told.start(0);
        for step in 1..=800 {
            told.wait(1);
            told.step(0, timing(step, [100, 0, 0, 0, 0, 0]));
            let sample = HostSample { memory_used: Reading::Value(used(step)), ..host_sample() };
            told.host(Event::HostSampled { sample: Arc::new(sample) });
        }
        told.finish(RunEnd::Finished)
    };
    let grows = run(|step| (8 << 30) + step * (10 << 20));
    let growth = grows.host_figures[0].memory_growth.unwrap();
    assert!((growth / (1000.0 * f64::from(10 << 20)) - 1.0).abs() < 0.01, "{growth}");
    let found = findings(&grows);
    let told = found.iter().find(|finding| finding.words == "memory of host gpu-a grows with the steps");
    let evidence = &told.unwrap_or_else(|| panic!("{found:?}")).evidence;
    assert!(evidence.contains(" in 1000 steps; full after about "), "{evidence}");
    let leaps = run(|step| if step < 600 { 8 << 30 } else { 16 << 30 });
    assert_eq!(leaps.host_figures[0].memory_growth, None);
    assert!(!findings(&leaps).iter().any(|finding| finding.words.contains("memory of host")));
}

#[test]
fn an_unknown_value_is_none() {
    let run = run((0..20).map(|_| GpuSample::unknown(0)));
    let gpu = &run.gpus[0];
    assert_eq!((gpu.util_mean, gpu.util_min, gpu.memory_peak, gpu.power_max_w), (None, None, None, None));
    assert_eq!(gpu.samples, 0);
}

#[test]
fn faults_are_counted() {
    let mut told = Told::new(spec(1));
    let event = GpuEvent {
        index: 0,
        uuid: GpuUuid::from("GPU-0".to_owned()),
        what: Happening::Xid { xid: 79 },
        count: 2,
        t: None,
    };
    told.host(Event::GpuHappened { event });
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.gpus[0].events, [Counted { what: "xid 79".to_owned(), count: 2 }]);
    assert_eq!(findings(&run)[0].evidence, "xid 79 ×2: the GPU has fallen off the bus");
}

#[test]
fn samples_of_a_slow_pace_tell_of_the_time_between_and_a_hole_does_not() {
    let mut told = Told::new(spec(1));
    told.host(Event::HostDescribed { info: Arc::new(info(1)) });
    told.sample(vec![gpu(90, 1, &[])]);
    told.start(0);
    // the first of a pace is not known to be one; ten minutes behind one of a minute are a hole
    for seconds in [60, 60, 60, 600, 1] {
        told.wait(seconds);
        told.sample(vec![gpu(90, 1, &["hw thermal slowdown"])]);
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!((run.gpus[0].samples, run.gpus[0].throttle[0].us), (5, 121_000_000));
}

#[test]
fn means_are_those_of_the_time_and_not_of_the_samples() {
    let mut told = Told::new(spec(1));
    told.host(Event::HostDescribed { info: Arc::new(info(1)) });
    told.sample(vec![gpu(0, 1, &[])]);
    told.start(0);
    // a hundred seconds of which a client has one sample a second, and as long of which the host has kept one each 10 s
    for (seconds, count, util) in [(1, 100, 90), (10, 10, 10)] {
        for step in 0..count {
            told.wait(seconds);
            told.step(0, timing(if util == 90 { 1 + step } else { 101 + step }, [100, 0, 0, 0, 0, 0]));
            told.sample(vec![gpu(util, 1, &[])]);
        }
    }
    let run = told.finish(RunEnd::Finished);
    let gpu = &run.gpus[0];
    assert_eq!((gpu.samples, gpu.util_min, gpu.util_max), (110, Some(10), Some(90)));
    let near = |mean: Option<f64>, wanted: f64| mean.is_some_and(|mean| (mean - wanted).abs() < 6.0);
    assert!(near(gpu.util_mean, 50.0), "{:?}", gpu.util_mean);
    assert!(near(gpu.util_in_steps, 50.0), "{:?}", gpu.util_in_steps);
    assert!(near(gpu.power_mean_w, 150.0), "{:?}", gpu.power_mean_w);
}
