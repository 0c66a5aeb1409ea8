//! Runs made by hand, for the tests of this module and of those that show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Analyzer, Choice, RunAnalysis, Window};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::fixtures::{host_sample, log_line, run_spec};
use crate::domain::gpu::Reading;
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{Placement, RunSpec, Slot};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

/// When runs are asked for.
pub(crate) const START: Stamp = Stamp(1_795_000_000_000_000);

/// A run of so many ranks, each on a GPU of `gpu-a`.
pub(crate) fn spec(ranks: u32) -> RunSpec {
    let placement = |rank: u32| Placement {
        rank: Rank(rank),
        host: HostId::from("gpu-a"),
        local_rank: rank,
        slot: Slot::Gpu { index: rank, uuid: GpuUuid::from(format!("GPU-{rank}")) },
        more: Vec::new(),
    };
    RunSpec {
        id: RunId::new(1_795_000_000_000, 7),
        name: "digits".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        env: BTreeMap::from([("LR".to_owned(), "0.1".to_owned())]),
        created: START,
        ..run_spec((0..ranks).map(placement).collect())
    }
}

/// The facts of `gpu-a`.
pub(crate) fn info(gpus: u32) -> HostInfo {
    let gpu = |index| serde_json::json!({"index": index, "uuid": format!("GPU-{index}"), "name": "NVIDIA H200", "pci": null});
    let gpus: Vec<_> = (0..gpus).map(gpu).collect();
    serde_json::from_value(serde_json::json!({
        "hostname": "a", "kernel": "6.1", "arch": "x86_64", "user": "li", "cpus": 64, "memory_total": null,
        "boot_id": "b", "agent_version": "0.1.0", "addresses": [], "ssh_server_address": null,
        "ssh_client_address": null, "gpus": gpus, "gpu_absence": null, "driver": "550.54", "cuda_driver": null,
        "nccl": null
    }))
    .unwrap()
}

/// A step with these phases, milliseconds: data, forward, backward, wait, transfer, optimizer.
pub(crate) fn timing(step: u64, millis: [u32; 6]) -> StepTiming {
    let mut at = 0;
    let spans = Phase::ALL
        .into_iter()
        .zip(millis)
        .map(|(phase, millis)| {
            let span = PhaseSpan { phase, start_us: at, dur_us: millis * 1000 };
            at += millis * 1000;
            span
        })
        .collect();
    let dur_us = millis.iter().sum::<u32>() * 1000;
    let start = HostTime(step * 1_000_000);
    StepTiming { step, start, dur_us, loss: Some(1.0 / step as f32), samples: 64, spans, hidden_us: 0 }
}

/// What a host tells of itself that can measure nothing.
pub(crate) fn blank_sample() -> Event {
    Event::HostSampled { sample: Arc::new(host_sample()) }
}

/// A run that is told event by event.
pub(crate) struct Told {
    pub(crate) spec: RunSpec,
    pub(crate) analyzer: Analyzer,
    pub(crate) at: Stamp,
    seq: u64,
}

impl Told {
    pub(crate) fn new(spec: RunSpec) -> Self {
        Self::of_choice(spec, Choice::default())
    }

    pub(crate) fn of_choice(spec: RunSpec, choice: Choice) -> Self {
        let analyzer = Analyzer::new(Arc::new(spec.clone()), choice);
        Self { spec, analyzer, at: START, seq: 0 }
    }

    pub(crate) fn tell(&mut self, origin: Origin, event: Event) {
        self.seq += 1;
        self.analyzer.take(&Envelope { seq: self.seq, at: self.at, origin, event });
    }

    pub(crate) fn whole(&mut self, event: Event) {
        self.tell(Origin::Run(self.spec.id.clone()), event);
    }

    pub(crate) fn rank(&mut self, rank: u32, event: Event) {
        self.tell(Origin::Rank(self.spec.id.clone(), Rank(rank)), event);
    }

    pub(crate) fn step(&mut self, rank: u32, timing: StepTiming) {
        self.rank(rank, Event::StepDone { timing: Arc::new(timing) });
    }

    pub(crate) fn start(&mut self, rank: u32) {
        self.rank(rank, Event::RankStarted { pid: 1, t: HostTime(0) });
    }

    pub(crate) fn line(&mut self, rank: u32, text: &str) {
        self.rank(rank, Event::LogPrinted { line: Arc::new(log_line(rank, text)) });
    }

    pub(crate) fn host(&mut self, event: Event) {
        self.tell(Origin::Host(HostId::from("gpu-a")), event);
    }

    pub(crate) fn sample(&mut self, gpus: Vec<crate::domain::gpu::GpuSample>) {
        let sample = HostSample {
            cpu_percent: Reading::Value(25.0),
            memory_used: Reading::Value(1 << 30),
            gpus,
            ..host_sample()
        };
        self.host(Event::HostSampled { sample: Arc::new(sample) });
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.at = self.at.plus_micros(seconds * 1_000_000);
    }

    pub(crate) fn finish(self, end: RunEnd) -> RunAnalysis {
        let at = self.at;
        self.finish_at(end, at)
    }

    /// The same of a run of whose end is told later.
    pub(crate) fn finish_at(mut self, end: RunEnd, at: Stamp) -> RunAnalysis {
        let outcome = RunOutcome { at: Some(at), ..RunOutcome::new(end, "all ranks done") };
        self.whole(Event::RunEnded { outcome });
        self.analyzer.finish(None)
    }
}

/// Two ranks, of which the second is so many milliseconds late in data in each of the steps.
pub(crate) fn late_run(steps: u64, late_ms: u32) -> RunAnalysis {
    late_run_in(steps, late_ms, Window::default())
}

/// The same, of some steps alone.
pub(crate) fn late_run_in(steps: u64, late_ms: u32, window: Window) -> RunAnalysis {
    let mut told = Told::of_choice(spec(2), Choice { window, ..Choice::default() });
    told.start(0);
    told.start(1);
    for step in 1..=steps {
        told.at = told.at.plus_micros(100_000);
        let slow = if step == 1 { 400 } else { 0 };
        let hidden = |timing: StepTiming| StepTiming { hidden_us: 30_000, ..timing };
        told.step(0, hidden(timing(step, [10, 20 + slow, 30, late_ms, 10, 10])));
        told.step(1, hidden(timing(step, [10 + late_ms, 20 + slow, 30, 0, 10, 10])));
    }
    told.finish(RunEnd::Finished)
}
