//! What of a run's GPUs is worth a look: idle, held down, with drops, growing memory or faults; and of its hosts, whose memory may grow
//! likewise.

use super::figures::{Counted, GpuFigures, HostFigures, RunAnalysis};
use super::finding::{Finding, Place};
use super::gpus::FEW_SAMPLES;
use crate::domain::gpu::health::Severity;
use crate::domain::gpu::xid;
use crate::domain::text::sanitize;
use crate::domain::units::{bytes, counted, short_duration_us};

/// A GPU that is busy less than this, percent.
const IDLE_BELOW: f64 = 50.0;
/// Clocks that are held down for this share of the run.
const THROTTLE_FROM: f64 = 0.05;

pub(super) fn idle(run: &RunAnalysis) -> Option<Finding> {
    // the way to the first step has a finding of its own
    let has_steps = run.steps.first.is_some();
    let of = |gpu: &GpuFigures| {
        if has_steps {
            gpu.util_in_steps
        } else {
            gpu.util_mean.filter(|_| gpu.samples >= FEW_SAMPLES.into())
        }
    };
    let known: Vec<f64> = run.gpus.iter().filter_map(of).collect();
    let when = if has_steps { "from the first step on" } else { "while the ranks ran" };
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    (!known.is_empty() && mean < IDLE_BELOW).then(|| {
        Finding::new(
            (1.0 - mean / 100.0) / 4.0,
            format!("the GPUs are busy {mean:.0} % of the time"),
            format!("mean utilisation of {} {when}", counted(known.len(), "GPU")),
        )
    })
}

pub(super) fn held_down(run: &RunAnalysis) -> Option<Finding> {
    let longest =
        |gpu: &GpuFigures| gpu.throttle.first().map(|throttle| (throttle.us, throttle.reason.clone()));
    let all = run.duration_us? as f64;
    let held: Vec<_> = run
        .gpus
        .iter()
        .filter_map(|gpu| Some((gpu, longest(gpu)?)))
        .filter(|(_, (us, _))| *us as f64 >= THROTTLE_FROM * all)
        .collect();
    let (worst, (us, reason)) = held.iter().max_by_key(|(_, (us, _))| *us)?;
    let protects = reason.contains("thermal") || reason.contains("brake");
    let hottest = worst.temperature_max.map_or_else(String::new, |heat| format!(", up to {heat} °C"));
    Some(Finding::new(
        if protects { 0.3 } else { 0.02 },
        format!("clocks were held down by {} on {}", sanitize(reason), counted(held.len(), "GPU")),
        format!("{} for {}{hottest}", gpu_words(worst), short_duration_us(*us)),
    ))
}

pub(super) fn of_gpu(run: &RunAnalysis, gpu: &GpuFigures) -> Vec<Finding> {
    let mut found = Vec::new();
    if gpu.cliffs.count > 0 {
        let since = gpu.cliffs.longest_at.zip(run.created).map(|(at, start)| at.micros_since(start).max(0));
        let at = since.map_or_else(String::new, |us| {
            format!(", {} after the launch", short_duration_us(us.unsigned_abs()))
        });
        let finding = Finding::new(
            gpu.cliffs.us as f64 / run.duration_us.unwrap_or(1).max(1) as f64,
            format!("the utilisation of {} fell below half of its median", gpu_words(gpu)),
            format!(
                "{} for {} together; the longest {}{at}",
                if gpu.cliffs.count == 1 { "once".to_owned() } else { format!("{} times", gpu.cliffs.count) },
                short_duration_us(gpu.cliffs.us),
                short_duration_us(gpu.cliffs.longest_us)
            ),
        );
        found.push(finding.seen_at(gpu.cliffs.longest_at.map(Place::At)));
    }
    if let Some(growth) = gpu.memory_growth {
        found.push(grows(&gpu_words(gpu), growth, (gpu.memory_total, gpu.memory_peak)));
    }
    if !gpu.events.is_empty() {
        let xid = |event: &Counted| -> Option<xid::Xid> {
            Some(xid::explain(event.what.strip_prefix("xid ")?.parse().ok()?))
        };
        let words = |event: &Counted| {
            let meaning = xid(event).map_or_else(String::new, |xid| format!(": {}", xid.meaning));
            format!("{} ×{}{meaning}", event.what, event.count)
        };
        let names: Vec<String> = gpu.events.iter().map(words).collect();
        // as a rule of the program: the GPU goes on
        let is_light = |event: &Counted| xid(event).is_some_and(|xid| xid.severity == Severity::Look);
        let (weight, what) =
            if gpu.events.iter().all(is_light) { (0.9, "reported errors") } else { (2.5, "had faults") };
        let words = format!("{} {what}", gpu_words(gpu));
        found.push(Finding::new(weight, words, names.join("; ")));
    }
    found
}

/// Memory of a host that grows with the steps: of which of its processes is not told.
pub(super) fn of_host(host: &HostFigures) -> Option<Finding> {
    let growth = host.memory_growth?;
    Some(grows(&format!("host {}", host.host), growth, (host.memory_total, host.memory_peak)))
}

/// `growth` in bytes in 1000 steps, beside all there is and the most that was in use.
fn grows(whose: &str, growth: f64, (total, peak): (Option<u64>, Option<u64>)) -> Finding {
    let room = total.zip(peak).map(|(total, peak)| total.saturating_sub(peak));
    let left = room.map_or_else(String::new, |room| {
        format!("; full after about {:.0} more steps", room as f64 / growth * 1000.0)
    });
    Finding::new(
        0.5,
        format!("memory of {whose} grows with the steps"),
        format!("{} in 1000 steps{left}", bytes(growth as u64)),
    )
}

fn gpu_words(gpu: &GpuFigures) -> String {
    format!("GPU {}:{}", gpu.host, gpu.index)
}
