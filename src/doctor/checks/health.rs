//! Whether anything is wrong with the GPUs themselves: what the Cluster screen's health column says, for all at once.

use std::collections::BTreeSet;

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::GpuInfo;
use crate::domain::gpu::health::{Severity, Unreadable, faults};
use crate::domain::ids::GpuUuid;

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

/// Retired pages from which on NVIDIA replaces a board.
const MOST_PAGES: u64 = 60;

/// Of a host whose GPUs have no fault.
fn persistence(one: &Seen<'_, ()>) -> Verdict {
    let gpus = one.sample.map(|sample| &sample.gpus[..]).unwrap_or_default();
    let off = gpus.iter().filter(|gpu| gpu.persistence.value() == Some(&false)).count();
    let retired: Vec<(usize, u64)> =
        gpus.iter().map(|gpu| gpu.pages_retired.value().copied().unwrap_or(0)).enumerate().collect();
    let told: Vec<String> = retired
        .iter()
        .filter(|(_, pages)| *pages > 0)
        .map(|(at, pages)| format!("{pages} on GPU {at}"))
        .collect();
    let told = told.join(", ");
    // a launch does without both
    if one.uses.is_none() && retired.iter().any(|(_, pages)| *pages >= MOST_PAGES) {
        return Verdict::look(
            format!("retired pages of memory: {told}"),
            format!("a board with {MOST_PAGES} of them is worn: more faults are to be expected"),
            "nvidia-smi -q -d PAGE_RETIREMENT there, and have the board replaced",
        );
    }
    if off == 0 || one.uses.is_some() {
        let more = if told.is_empty() { String::new() } else { format!("; retired pages of memory: {told}") };
        return Verdict::good(format!("no GPU has a fault{more}"));
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
    let mut is_lost = false;
    for (info, sample) in one.info.gpus.iter().zip(&sample.gpus) {
        // a launch may do without the others
        let is_slice_of = |slice: &&GpuInfo| slice.parent == Some(info.index);
        let is_used = |uses: &BTreeSet<GpuUuid>| {
            uses.contains(&info.uuid)
                || one.info.gpus.iter().filter(is_slice_of).any(|slice| uses.contains(&slice.uuid))
        };
        if one.uses.is_some_and(|uses| !is_used(uses)) {
            continue;
        }
        is_lost |= matches!(Unreadable::of(sample), Some(Unreadable::Lost));
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
        Some(Severity::Act) => {
            let cause = if is_lost {
                "a run that uses it ends at its start, or where the GPU is lost"
            } else {
                "a run there is slowed down, ends in the middle, or computes wrong numbers"
            };
            let remedy =
                "run on other GPUs meanwhile; enter on the GPU on the Cluster screen tells the values";
            let verdict = Verdict::bad(words, cause, remedy);
            if is_lost { verdict } else { verdict.may_run() }
        }
    }
}
