//! Whether memory of GPUs is held by what no one sees: a process that outlived its run, or of another container.

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::units;

pub(in crate::doctor) struct Leftover;

/// What the driver itself takes at most of a GPU that nothing uses.
const OF_THE_DRIVER: u64 = 1 << 30;

impl Check for Leftover {
    const NAME: &'static str = "leftover";
    const ASKS: &'static str = "is memory of a GPU held by no process that can be seen";
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

fn judge(one: &Seen<'_, ()>) -> Verdict {
    if one.info.gpus.is_empty() {
        return Verdict::unknown("no GPU");
    }
    let Some(sample) = one.sample else { return Verdict::unknown("its GPUs have told nothing yet") };
    let held: Vec<String> = sample
        .gpus
        .iter()
        .filter_map(|gpu| Some(format!("GPU {}: {}", gpu.index, units::bytes(unseen(gpu)?))))
        .collect();
    if held.is_empty() {
        return Verdict::good("all memory in use is of processes that are seen");
    }
    Verdict::look(
        format!("held by no process that is seen: {}", held.join(", ")),
        "a rank that outlived its run, or a process in another container, leaves less memory: CUDA out of memory",
        "sudo fuser -v /dev/nvidia* shows who; with none there: sudo nvidia-smi --gpu-reset -i N",
    )
}

/// Memory in use that no listed process has; `None` where there is none, or it can't be told.
fn unseen(gpu: &GpuSample) -> Option<u64> {
    let used = *gpu.memory_used.value()?;
    let processes = gpu.processes.value()?;
    let of = |memory: &Reading<u64>| memory.value().copied();
    // of one whose memory is not told nothing can be said
    let seen = processes.iter().map(|process| of(&process.memory)).sum::<Option<u64>>()?;
    let unseen = used.saturating_sub(seen);
    let limit = OF_THE_DRIVER.saturating_mul(1 + processes.len() as u64);
    (unseen > limit).then_some(unseen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::GpuProcess;

    fn gpu(used: u64, of_processes: &[Reading<u64>]) -> GpuSample {
        let process = |memory: &Reading<u64>| GpuProcess { memory: memory.clone(), ..GpuProcess::unknown(7) };
        GpuSample {
            memory_used: Reading::Value(used),
            processes: Reading::Value(of_processes.iter().map(process).collect()),
            ..GpuSample::failed(0, "unknown")
        }
    }

    #[test]
    fn memory_of_none_is_told_and_what_is_not_known_is_not() {
        const G: u64 = 1 << 30;
        assert_eq!(unseen(&gpu(60 * G, &[])), Some(60 * G));
        assert_eq!(unseen(&gpu(G / 2, &[])), None, "the driver's own");
        assert_eq!(unseen(&gpu(60 * G, &[Reading::Value(59 * G)])), None);
        assert_eq!(unseen(&gpu(60 * G, &[Reading::Value(20 * G)])), Some(40 * G));
        assert_eq!(unseen(&gpu(60 * G, &[Reading::failed("no permission")])), None);
    }
}
