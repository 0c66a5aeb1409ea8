//! Prometheus' text format, version 0.0.4, of a run as a whole: what a scrape at its end would have shown. For
//! `node_exporter`'s textfile collector or `promtool`. The step is never a label.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::told::Told;
use super::{Format, Target};
use crate::domain::gpu::GpuSample;
use crate::domain::host::HostSample;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::quote::prometheus_label as label;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainer_keys::TrainerId;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "prometheus",
    about: "Prometheus' text: totals and histograms of each rank, the newest values of its GPUs",
    target: Target::Text,
    sink: || Box::new(Prometheus::default()),
};

/// Upper bounds of the histograms, seconds.
const BOUNDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
];

#[derive(Default)]
struct Prometheus {
    ranks: BTreeMap<TrainerId, Sums>,
    /// The newest sample of each GPU of a chosen rank.
    gpus: BTreeMap<(HostId, u32), (GpuUuid, GpuSample)>,
}

/// What a rank's steps come to.
#[derive(Default)]
struct Sums {
    steps: u64,
    samples: u64,
    wait_us: u64,
    hidden_us: u64,
    loss: Option<f32>,
    lengths: Histogram,
    phases: [Histogram; Phase::COUNT],
}

#[derive(Default)]
struct Histogram {
    /// How many were at most as long as each of [`BOUNDS`] and longer than the bound before.
    counts: [u64; BOUNDS.len()],
    count: u64,
    sum_us: u64,
}

impl Histogram {
    fn add(&mut self, micros: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(micros);
        let seconds = micros as f64 / 1e6;
        let bound = BOUNDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bound) {
            *count += 1;
        }
    }
}

impl Sums {
    fn add(&mut self, timing: &StepTiming) {
        let totals = timing.phase_totals();
        self.steps += 1;
        self.samples += u64::from(timing.samples);
        self.wait_us += totals[Phase::Wait.index()];
        self.hidden_us += u64::from(timing.hidden_us);
        self.loss = timing.loss.filter(|loss| loss.is_finite()).or(self.loss);
        self.lengths.add(timing.dur_us.into());
        for phase in Phase::ALL {
            if timing.spans.iter().any(|span| span.phase == phase) {
                self.phases[phase.index()].add(totals[phase.index()]);
            }
        }
    }
}

impl Sink for Prometheus {
    fn begin(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { id, timing, .. } if out.take(1) => {
                self.ranks.entry(*id).or_default().add(timing);
            }
            Item::Host { host, sample, .. } => self.sample(out, run, host, sample),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        let run_label = label(run.spec.map(|spec| spec.id.as_str()).unwrap_or_default());
        let of = |id: &TrainerId| {
            let worker = id.worker().map_or_else(String::new, |worker| format!(",worker=\"{worker}\""));
            format!("run={run_label},rank=\"{}\"{worker}", id.rank)
        };
        let mut text = String::new();
        for (name, kind, help, value) in &RANK {
            let values =
                self.ranks.iter().filter_map(|(rank, sums)| Some((of(rank), value(sums, run.told)?)));
            family(&mut text, (name, kind, help), values);
        }
        let lengths = self.ranks.iter().map(|(rank, sums)| (of(rank), &sums.lengths));
        histograms(&mut text, "hvtui_step_seconds", "How long a step took.", lengths);
        let phases = self.ranks.iter().flat_map(|(rank, sums)| {
            let phases = Phase::ALL.into_iter().zip(&sums.phases);
            phases.map(move |(phase, histogram)| {
                (format!("{},phase=\"{}\"", of(rank), phase.name()), histogram)
            })
        });
        histograms(&mut text, "hvtui_phase_seconds", "Time in a phase of a step.", phases);
        for (name, help, value) in &GPU {
            let values = self.gpus.iter().filter_map(|((host, index), (uuid, gpu))| {
                let (host, uuid) = (label(host.as_str()), label(uuid.as_str()));
                Some((format!("host={host},gpu=\"{index}\",uuid={uuid}"), value(gpu)?))
            });
            family(&mut text, (name, "gauge", help), values);
        }
        for (name, help, value) in &CLOCK {
            let hosts = run.clocks.hosts().filter(|host| !self.is_empty() && run.chosen.has_host(host));
            let values = hosts.filter_map(|host| {
                let clock = run.clocks.of(host)?;
                Some((format!("host={}", label(host.as_str())), value(clock.offset_ns, clock.uncertainty_us)))
            });
            family(&mut text, (name, "gauge", help), values);
        }
        out.write_all(text.as_bytes())
    }
}

impl Prometheus {
    fn is_empty(&self) -> bool {
        self.ranks.is_empty() && self.gpus.is_empty()
    }

    fn sample(&mut self, out: &mut Out<'_>, run: &Run<'_>, host: &HostId, sample: &HostSample) {
        for (_, uuid, gpu) in run.chosen.gpus(host, sample) {
            if out.take(1) {
                self.gpus.insert((host.clone(), gpu.index), (uuid.clone(), gpu.clone()));
            }
        }
    }
}

type OfRank = fn(&Sums, Told) -> Option<f64>;
type OfClock = fn(i64, u32) -> f64;
type OfGpu = fn(&GpuSample) -> Option<f64>;

const RANK: [(&str, &str, &str, OfRank); 5] = [
    ("hvtui_steps_total", "counter", "Steps that the rank made.", |sums, _| Some(sums.steps as f64)),
    ("hvtui_samples_total", "counter", "Samples that the rank worked through.", |sums, told| {
        told.samples().then_some(sums.samples as f64)
    }),
    (
        "hvtui_allreduce_wait_seconds_total",
        "counter",
        "Time in which the rank waited for the last one to come to the allreduce.",
        |sums, _| (sums.phases[Phase::Wait.index()].count > 0).then_some(sums.wait_us as f64 / 1e6),
    ),
    (
        "hvtui_allreduce_hidden_seconds_total",
        "counter",
        "Allreduce time that passed while the rank still computed.",
        |sums, told| told.hidden().then_some(sums.hidden_us as f64 / 1e6),
    ),
    ("hvtui_loss", "gauge", "The newest training loss of the rank.", |sums, _| sums.loss.map(f64::from)),
];

const GPU: [(&str, &str, OfGpu); 4] = [
    ("hvtui_gpu_utilization_ratio", "Share of time in which a kernel ran, 0 to 1.", |gpu| {
        gpu.util.value().map(|percent| f64::from(*percent) / 100.0)
    }),
    ("hvtui_gpu_memory_used_bytes", "Memory of the GPU in use.", |gpu| {
        gpu.memory_used.value().map(|bytes| *bytes as f64)
    }),
    ("hvtui_gpu_temperature_celsius", "Temperature of the GPU.", |gpu| {
        gpu.temperature.value().map(|celsius| f64::from(*celsius))
    }),
    ("hvtui_gpu_power_watts", "Power draw of the GPU.", |gpu| {
        gpu.power_mw.value().map(|milliwatts| f64::from(*milliwatts) / 1e3)
    }),
];

/// By a clock's offset in nanoseconds and its uncertainty in microseconds.
const CLOCK: [(&str, &str, OfClock); 2] = [
    ("hvtui_clock_offset_seconds", "The client's clock minus the host's monotonic one.", |offset_ns, _| {
        offset_ns as f64 / 1e9
    }),
    ("hvtui_clock_uncertainty_seconds", "The offset is within so much.", |_, uncertainty_us| {
        f64::from(uncertainty_us) / 1e6
    }),
];

/// One metric with all its values, by name, type and help; nothing where there is none.
fn family(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    values: impl Iterator<Item = (String, f64)>,
) {
    for (number, (labels, value)) in values.enumerate() {
        if number == 0 {
            head(text, name, kind, help);
        }
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

fn histograms<'a>(
    text: &mut String,
    name: &str,
    help: &str,
    all: impl Iterator<Item = (String, &'a Histogram)>,
) {
    for (number, (labels, histogram)) in all.filter(|(_, histogram)| histogram.count > 0).enumerate() {
        if number == 0 {
            head(text, name, "histogram", help);
        }
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().zip(histogram.counts) {
            sum += count;
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}");
        }
        let Histogram { count, sum_us, .. } = histogram;
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", *sum_us as f64 / 1e6);
        let _ = writeln!(text, "{name}_count{{{labels}}} {count}");
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}
