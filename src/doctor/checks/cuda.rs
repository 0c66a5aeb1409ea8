//! Whether CUDA starts: the driver's library is loaded and asked by a Python of its own, as every framework does it first.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use super::libraries;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Cuda;

const LIBRARY: &str = "libcuda.so.1";

/// A child does it: what goes wrong in the driver's library takes nothing else with it.
const SCRIPT: &str = "import ctypes, os, sys
os.environ.pop('CUDA_VISIBLE_DEVICES', None)
print('hvtui loads')
sys.stdout.flush()
print('hvtui %d' % ctypes.CDLL('libcuda.so.1').cuInit(0))";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::doctor) enum Found {
    /// There is no library, or no Python to load it.
    Absent,
    /// What `cuInit` has answered.
    Answer(i32),
    /// It can't be loaded, or it ends the program.
    Failed(String),
}

impl Check for Cuda {
    const NAME: &'static str = "cuda";
    const ASKS: &'static str = "does CUDA start (cuInit)";
    const OF_IMAGE: OfImage = OfImage::There;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Some(python) = site.program("python3").or_else(|| site.program("python")) else {
            return Ok(Found::Absent);
        };
        if !is_anywhere(site) {
            return Ok(Found::Absent);
        }
        let told = site.ask(&python, &["-c", SCRIPT])?;
        if let Some(answer) = told.out.lines().find_map(|line| line.strip_prefix("hvtui ")?.parse().ok()) {
            return Ok(Found::Answer(answer));
        }
        let words = told.last_words();
        if !told.out.lines().any(|line| line == "hvtui loads") {
            return Err(format!("{}: {words}", python.display()));
        }
        let is_absent = words.contains("libcuda.so.1: cannot open shared object file");
        Ok(if is_absent { Found::Absent } else { Found::Failed(words.to_owned()) })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found, !one.info.gpus.is_empty())).collect()
    }
}

/// Whether the loader may find the driver's library: no Python is started for one that is not there.
fn is_anywhere(site: &Site) -> bool {
    let named = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    let mut folders = named.split(':').chain(usual).filter(|folder| !folder.is_empty());
    folders.any(|folder| Path::new(folder).join(LIBRARY).exists())
        // where the cache can't be read, the loader is asked
        || libraries::cached(site).map_or(true, |all| all.iter().any(|(name, _)| name == LIBRARY))
}

/// Known answers: CUDA's name, what goes wrong, what helps, and whether that is one command.
fn known(answer: i32) -> Option<(&'static str, &'static str, &'static str, bool)> {
    Some(match answer {
        34 => (
            "CUDA_ERROR_STUB_LIBRARY",
            "the toolkit's stub is loaded in place of the driver's library",
            "take the folder with stubs out of LD_LIBRARY_PATH",
            false,
        ),
        100 => (
            "CUDA_ERROR_NO_DEVICE",
            "NVML sees GPUs, and CUDA none",
            "see CUDA_VISIBLE_DEVICES of commands over ssh, and: ls -l /dev/nvidia*",
            false,
        ),
        802 => (
            "CUDA_ERROR_SYSTEM_NOT_READY",
            "the GPUs are joined by NVSwitches, and the program that sets those up does not run",
            "sudo systemctl restart nvidia-fabricmanager",
            true,
        ),
        803 => (
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "the library is of another driver than the module that is loaded",
            "sudo reboot, or with no process on the GPUs: sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia",
            false,
        ),
        804 => (
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "a library for forward compatibility (cuda/compat) comes first, and this GPU takes none",
            "take cuda/compat out of LD_LIBRARY_PATH",
            false,
        ),
        999 => (
            "CUDA_ERROR_UNKNOWN",
            "mostly the module nvidia_uvm is not loaded, or its device files are not there",
            "sudo modprobe nvidia_uvm",
            true,
        ),
        _ => return None,
    })
}

fn judge(found: &Found, has_gpus: bool) -> Verdict {
    if !has_gpus {
        return Verdict::unknown("no GPU");
    }
    let every = "every CUDA program on this host fails, or computes on CPUs";
    match found {
        Found::Answer(0) => Verdict::good("cuInit succeeds"),
        Found::Answer(answer) => match known(*answer) {
            Some((name, cause, remedy, is_command)) => {
                let verdict = Verdict::bad(
                    format!("cuInit answers {answer} ({name})"),
                    format!("{cause}: {every}"),
                    remedy,
                );
                if is_command { verdict.fixed_there(remedy) } else { verdict }
            }
            None => Verdict::bad(
                format!("cuInit answers {answer}"),
                every,
                "nvidia-smi; dmesg | grep -iE 'nvrm|xid'",
            ),
        },
        Found::Absent => Verdict::unknown("no libcuda.so.1, or no Python to load it"),
        Found::Failed(words) => Verdict::bad(
            words.clone(),
            every,
            "install the driver's libraries anew: sudo apt install --reinstall libcuda1",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn the_answers_of_cuda_are_told_with_what_helps() {
        assert_eq!(judge(&Found::Answer(0), true).mark, Mark::Good);
        let fabric = judge(&Found::Answer(802), true);
        assert_eq!(
            (fabric.mark, fabric.evidence.as_str()),
            (Mark::Bad, "cuInit answers 802 (CUDA_ERROR_SYSTEM_NOT_READY)")
        );
        assert!(fabric.fix.is_some() && judge(&Found::Answer(803), true).fix.is_none());
        assert_eq!(judge(&Found::Answer(46), true).evidence, "cuInit answers 46");
        assert_eq!(judge(&Found::Answer(100), false).mark, Mark::Unknown, "there is no GPU to start");
        assert_eq!(judge(&Found::Absent, true).mark, Mark::Unknown);
        assert_eq!(judge(&Found::Failed("libcuda.so.1: invalid ELF header".into()), true).mark, Mark::Bad);
    }
}
