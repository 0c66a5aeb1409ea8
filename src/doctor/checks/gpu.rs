//! Whether a host's GPUs are there, and are those of the other hosts.

use super::super::compare::Compared;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::mig;
use crate::domain::host::{GpuAbsenceReason, HostInfo};

pub(in crate::doctor) struct Gpu;

impl Check for Gpu {
    const NAME: &'static str = "gpu";
    const ASKS: &'static str = "are its GPUs there, and the same as on the other hosts";
    const LOOKS: bool = false;
    type Found = ();

    fn look(_: &Site) -> Result<(), String> {
        Ok(())
    }

    fn judge(seen: &[Seen<'_, ()>]) -> Vec<Verdict> {
        let owned: Vec<(&str, String)> =
            seen.iter().filter_map(|one| Some((one.host.as_str(), words(one.info)?))).collect();
        let all = Compared::new(owned.iter().map(|(host, words)| (*host, words.as_str())));
        seen.iter().map(|one| judge(one.info, &all)).collect()
    }
}

/// `8 × NVIDIA H200`; `None` without GPUs.
fn words(info: &HostInfo) -> Option<String> {
    let first = info.gpus.first()?;
    Some(format!("{} × {}", mig::whole(&info.gpus).count(), &first.name))
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
