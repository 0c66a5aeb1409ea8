//! A rank that trains nothing: it sleeps where a job computes, and sums a real buffer over all ranks in between.
//!
//! What it is to do stands in its environment:
//! `LATE_STEPS=120` steps; `LATE_RANK=2` sleeps `LATE_MS=20` longer in `LATE_PHASE=backward` from `LATE_FROM=40` on,
//! and no longer than `LATE_UNTIL=100`. Without `LATE_RANK` no rank is late.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a part of a test fails by panicking")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;

use hvtui::clock::host_now;
use hvtui::collective::{Collective, Communicator, Group, Reduce};
use hvtui::domain::report::Report;
use hvtui::domain::time::HostTime;
use hvtui::domain::timing::{Phase, PhaseSpan};
use hvtui::worker::RankEnv;

/// What a step does when no rank is late, microseconds.
const USUAL: [(Phase, u64); 3] = [(Phase::Data, 1_000), (Phase::Forward, 3_000), (Phase::Backward, 5_000)];
const OPTIMIZER_US: u64 = 1_000;
const VALUES: usize = 100_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// A step that is being taken.
struct Watch {
    start: HostTime,
    spans: Vec<PhaseSpan>,
    at: u32,
}

impl Watch {
    fn end(&mut self, phase: Phase, until: u32) {
        self.spans.push(PhaseSpan { phase, start_us: self.at, dur_us: until - self.at });
        self.at = until;
    }

    fn now(&self) -> u32 {
        (host_now().0 - self.start.0) as u32
    }
}

struct Late {
    phase: String,
    extra_us: u64,
    steps: std::ops::Range<u64>,
}

impl Late {
    fn of(rank: u32) -> Self {
        let is_late = std::env::var("LATE_RANK").is_ok_and(|text| text == rank.to_string());
        Self {
            phase: std::env::var("LATE_PHASE").unwrap_or_default(),
            extra_us: if is_late { 1_000 * number("LATE_MS", 20) } else { 0 },
            steps: number("LATE_FROM", 1)..number("LATE_UNTIL", u64::MAX),
        }
    }

    /// Sleeps for a phase.
    fn work(&self, watch: &mut Watch, step: u64, phase: Phase, usual_us: u64) {
        let late = self.phase == phase.name() && self.steps.contains(&step);
        std::thread::sleep(Duration::from_micros(usual_us + if late { self.extra_us } else { 0 }));
        let now = watch.now();
        watch.end(phase, now);
    }
}

fn tell(file: &mut Option<File>, report: &Report) {
    if let Some(file) = file {
        let line = serde_json::to_string(report).unwrap() + "\n";
        file.write_all(line.as_bytes()).unwrap();
    }
}

fn main() {
    let env = RankEnv::from_process().unwrap();
    let mut file = env.report.map(|path| OpenOptions::new().append(true).create(true).open(path).unwrap());
    let mut group = Group::connect(env.group.expect("more than one rank"), &mut |_| {}).unwrap();
    let total_steps = number("LATE_STEPS", 120);
    let transport = Some(group.transport().name().to_owned());
    let hello = Report::hello("late_rank", transport, Some(total_steps));
    tell(&mut file, &hello);
    tell(&mut file, &Report::Met { t: Some(host_now()) });
    let late = Late::of(env.rank);
    let mut values = vec![1.0f32; VALUES];
    for step in 1..=total_steps {
        let mut watch = Watch { start: host_now(), spans: Vec::new(), at: 0 };
        for (phase, usual) in USUAL {
            late.work(&mut watch, step, phase, usual);
        }
        values.fill(1.0);
        let timing = group.allreduce(&mut values, Reduce::Sum).unwrap();
        assert_eq!(values[step as usize % VALUES] as u32, env.world, "the sum over all ranks");
        let now = watch.now();
        let waited = (watch.at + (timing.wait / 1000) as u32).min(now);
        watch.end(Phase::Wait, waited);
        watch.end(Phase::Transfer, now);
        late.work(&mut watch, step, Phase::Optimizer, OPTIMIZER_US);
        let (t, dur_us, spans) = (Some(watch.start), Some(watch.at), watch.spans);
        tell(
            &mut file,
            &Report::Step { step, t, dur_us, loss: None, samples: Some(1), spans, hidden_us: None },
        );
    }
    tell(&mut file, &Report::Done { weights: None });
}
