//! Whether anything is wrong with the GPUs themselves: what the Cluster screen's health column says, for all at once.

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::health::{Severity, faults};

pub(in crate::doctor) struct Health;

impl Check for Health {
    const NAME: &'static str = "health";
    const ASKS: &'static str = "ECC errors, rows to be remapped, slowed clocks, GPUs that do not answer";
    const LOOKS: bool = false;
    const WANTS_SAMPLE: bool = true;
    type Found = ();

    fn look(_: &Site) -> Result<(), String> {
        Ok(())
    }

    fn judge(seen: &[Seen<'_, ()>]) -> Vec<Verdict> {
        seen.iter().map(judge).collect()
    }
}

/// Of a host whose GPUs have no fault.
fn persistence(one: &Seen<'_, ()>) -> Verdict {
    let gpus = one.sample.map(|sample| &sample.gpus[..]).unwrap_or_default();
    let off = gpus.iter().filter(|gpu| gpu.persistence.value() == Some(&false)).count();
    if off == 0 {
        return Verdict::good("no GPU has a fault");
    }
    Verdict::look(
        format!("persistence mode is off ({off} of {} GPUs)", gpus.len()),
        "the driver leaves a GPU with the last program on it: each start takes seconds longer, and settings are lost",
        "sudo systemctl enable --now nvidia-persistenced, or: sudo nvidia-smi -pm 1",
    )
    .fixed_there("sudo nvidia-smi -pm 1")
}

fn judge(one: &Seen<'_, ()>) -> Verdict {
    if one.info.gpus.is_empty() {
        return Verdict::unknown("no GPU");
    }
    let Some(sample) = one.sample else { return Verdict::unknown("its GPUs have told nothing yet") };
    let mut told = Vec::new();
    let mut worst = None;
    for (info, sample) in one.info.gpus.iter().zip(&sample.gpus) {
        for fault in faults(info, sample) {
            worst = worst.max(Some(fault.severity));
            told.push(format!("GPU {}: {}", info.index, fault.words));
        }
    }
    let words = told.join(", ");
    match worst {
        None => persistence(one),
        Some(Severity::Look) => Verdict::look(
            words,
            "a run is slower than on other hosts, or may be stopped",
            "enter on the GPU on the Cluster screen tells the values; nvidia-smi -q -d PERFORMANCE,ECC",
        ),
        Some(Severity::Act) => Verdict::bad(
            words,
            "a run there is slowed down, ends in the middle, or computes wrong numbers",
            "run on other GPUs meanwhile; enter on the GPU on the Cluster screen tells the values",
        ),
    }
}
