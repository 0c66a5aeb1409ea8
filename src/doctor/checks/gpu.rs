//! Whether a host's GPUs are there, and are those of the other hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::compare::Compared;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::mig;
use crate::domain::host::{GpuAbsenceReason, HostInfo, HostSample};
use crate::domain::units::ranges;

pub(in crate::doctor) struct Gpu;

/// Holders of GPUs that are named.
const HOLDERS: usize = 6;

impl Check for Gpu {
    const NAME: &'static str = "gpu";
    const ASKS: &'static str = "are its GPUs there, the same as on the other hosts, and who has them";
    const LOOKS: bool = false;
    const WANTS_SAMPLE: bool = true;
    type Found = ();

    fn look(_: &Site) -> Result<(), String> {
        Ok(())
    }

    fn judge(seen: &[Seen<'_, ()>]) -> Vec<Verdict> {
        let owned: Vec<(&str, String)> =
            seen.iter().filter_map(|one| Some((one.host.as_str(), words(one.info)?))).collect();
        let all = Compared::new(owned.iter().map(|(host, words)| (*host, words.as_str())));
        let judge = |one: &Seen<'_, ()>| {
            let verdict = judge(one.info, &all);
            let lasting = verdict.evidence.clone();
            Verdict { evidence: lasting.clone() + &holders(one.sample), ..verdict }.lasting(lasting)
        };
        seen.iter().map(judge).collect()
    }
}

/// `8 × NVIDIA H200`; `None` without GPUs.
fn words(info: &HostInfo) -> Option<String> {
    let first = info.gpus.first()?;
    Some(format!("{} × {}", mig::whole(&info.gpus).count(), &first.name))
}

/// Who computes on which: `; in use: 0-3 by li (run 7QK2), 5 by zoe`. Nothing where none is in use, or that is not known yet.
fn holders(sample: Option<&HostSample>) -> String {
    let mut by_holder: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for gpu in sample.map(|sample| &sample.gpus[..]).unwrap_or_default() {
        for process in gpu.processes.value().into_iter().flatten() {
            let user = process.user.value().map_or("?", String::as_str);
            let run =
                process.run.as_ref().map_or_else(String::new, |run| format!(" (run {})", run.id.short()));
            by_holder.entry(format!("{user}{run}")).or_default().insert(gpu.index);
        }
    }
    let of = |(holder, gpus): (String, BTreeSet<u32>)| format!("{} by {holder}", ranges(gpus));
    let held: Vec<String> = by_holder.into_iter().map(of).take(HOLDERS).collect();
    if held.is_empty() { String::new() } else { format!("; in use: {}", held.join(", ")) }
}

fn judge(info: &HostInfo, all: &Compared<'_>) -> Verdict {
    if let Some(own) = words(info) {
        return match all.difference(&own) {
            None => Verdict::good(own),
            Some(difference) => Verdict::look(
                format!("{own}; {difference}"),
                "one run over unlike GPUs goes at the pace of the slowest, or fails for memory",
                "pick GPUs of one model: hvtui pick 4 --filter 'model~…'",
            ),
        };
    }
    let Some(absence) = &info.gpu_absence else { return Verdict::unknown("no GPU") };
    let seen = absence.words();
    let cause = "CUDA programs find no device here";
    match absence.reason {
        GpuAbsenceReason::NoLibrary | GpuAbsenceReason::NoDevice if all.is_empty() => {
            Verdict::unknown("no GPU")
        }
        GpuAbsenceReason::NoLibrary => Verdict::look(
            format!("{seen}; other hosts have GPUs"),
            cause,
            "install NVIDIA's driver, if it has a GPU",
        ),
        GpuAbsenceReason::NoDevice => {
            Verdict::bad(seen, cause, "lspci | grep -i nvidia; dmesg | grep -iE 'nvrm|xid'")
        }
        GpuAbsenceReason::DriverMismatch => Verdict::bad(
            seen,
            "the driver's library was updated under a module that is still loaded: every CUDA program fails",
            "sudo reboot, or with no process on the GPUs: sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia",
        ),
        GpuAbsenceReason::DriverNotLoaded => {
            Verdict::bad(seen, cause, "sudo modprobe nvidia; dmesg | grep -i nvrm")
                .fixed_there("sudo modprobe nvidia")
        }
        GpuAbsenceReason::NoPermission => {
            Verdict::bad(seen, cause, "ls -l /dev/nvidia*; sudo usermod -aG video $USER, then log in again")
        }
        GpuAbsenceReason::Other => Verdict::bad(seen, cause, "nvidia-smi; dmesg | grep -iE 'nvrm|xid'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::{GpuProcess, GpuSample, Reading, RunOfProcess};
    use crate::domain::ids::RunId;

    #[test]
    fn who_has_which_gpu_is_told() {
        let process = |user: &str, run: Option<RunId>| GpuProcess {
            user: Reading::Value(user.to_owned()),
            run: run.map(|id| RunOfProcess { id, rank: None }),
            ..GpuProcess::unknown(7)
        };
        let run = RunId::new(7, 7);
        let gpu = |index, processes| GpuSample {
            processes: Reading::Value(processes),
            ..GpuSample::failed(index, "unknown")
        };
        let mut sample = HostSample {
            cpu_percent: Reading::failed("unknown"),
            memory_used: Reading::failed("unknown"),
            load: Reading::failed("unknown"),
            net_rx: Reading::failed("unknown"),
            net_tx: Reading::failed("unknown"),
            gpus: vec![
                gpu(0, vec![process("li", Some(run.clone()))]),
                gpu(1, vec![process("li", Some(run.clone()))]),
                gpu(2, Vec::new()),
                gpu(3, vec![process("zoe", None)]),
            ],
        };
        assert_eq!(holders(Some(&sample)), format!("; in use: 0-1 by li (run {}), 3 by zoe", run.short()));
        sample.gpus.truncate(0);
        assert_eq!((holders(Some(&sample)), holders(None)), (String::new(), String::new()));
    }
}
