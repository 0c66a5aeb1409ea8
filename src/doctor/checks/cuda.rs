//! Whether CUDA starts: the driver's library is loaded and asked by a Python of its own, as every framework does it first.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::super::system::System;
use super::super::{Check, OfImage, Seen, Site};
use super::gpu::NVML_LIB;
use super::libraries;
use crate::domain::doctor::Verdict;
use crate::domain::gpu::{GpuSample, mig};

pub(in crate::doctor) struct Cuda;

const LIBRARY: &str = "libcuda.so.1";

/// A child does it: what goes wrong in the driver's library takes nothing else with it. Its own alarm ends it before it is not waited
/// for any more: so it is known to be the driver that takes long, and not Python.
const SCRIPT: &str = "import ctypes, os, signal, sys
os.environ.pop('CUDA_VISIBLE_DEVICES', None)
print('hvtui loads')
sys.stdout.flush()
signal.alarm(3)
print('hvtui %d' % ctypes.CDLL('libcuda.so.1').cuInit(0))";
/// Its seconds.
const LONGEST: u32 = 3;
/// Where a container is known by a file of its engine's.
const OF_ENGINES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::doctor) enum Found {
    /// There is no Python to load the library; of an older hvtui also where there is no library.
    Absent,
    /// There is no library.
    NoLibrary {
        system: System,
        /// Whether that was looked at in a container.
        contained: bool,
    },
    /// `cuInit` takes longer than it is waited for.
    Late,
    /// What `cuInit` has answered.
    Answer(i32),
    /// It can't be loaded, or it ends the program.
    Failed(String),
}

impl Check for Cuda {
    const NAME: &'static str = "cuda";
    const ASKS: &'static str = "does CUDA start (cuInit)";
    const OF_IMAGE: OfImage = OfImage::There;
    const WANTS_SAMPLE: bool = true;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        if !is_anywhere(site) {
            return Ok(no_library(site));
        }
        let Some(python) = site.program("python3").or_else(|| site.program("python")) else {
            return Ok(Found::Absent);
        };
        let told = site.ask(&python, &["-c", SCRIPT])?;
        if let Some(answer) = told.out.lines().find_map(|line| line.strip_prefix("hvtui ")?.parse().ok()) {
            return Ok(Found::Answer(answer));
        }
        if told.status.signal() == Some(Signal::ALARM.as_raw()) {
            return Ok(Found::Late);
        }
        let words = told.last_words();
        if !told.out.lines().any(|line| line == "hvtui loads") {
            return Err(format!("{}: {words}", python.display()));
        }
        let is_absent = words.contains("libcuda.so.1: cannot open shared object file");
        Ok(if is_absent { no_library(site) } else { Found::Failed(words.to_owned()) })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found, &Host::of(one))).collect()
    }
}

/// What is known of the host beside.
#[derive(Default)]
struct Host<'a> {
    gpus: usize,
    driver: Option<&'a str>,
    /// Of so many of its GPUs persistence mode is known to be off.
    without_persistence: usize,
}

impl<'a> Host<'a> {
    fn of(one: &Seen<'a, Found>) -> Self {
        let samples = one.sample.map(|sample| &sample.gpus[..]).unwrap_or_default();
        let is_off = |gpu: &&GpuSample| gpu.persistence.value() == Some(&false);
        Self {
            gpus: mig::whole(&one.info.gpus).count(),
            driver: one.info.driver.value().map(String::as_str),
            without_persistence: samples.iter().filter(is_off).count(),
        }
    }
}

/// Where NVML's library was named to hvtui this one may lie elsewhere, too.
fn no_library(site: &Site) -> Found {
    if std::env::var_os(NVML_LIB).is_some() {
        return Found::Absent;
    }
    let contained = site.in_container || OF_ENGINES.iter().any(|file| Path::new(file).exists());
    Found::NoLibrary { system: System::here(), contained }
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

fn judge(found: &Found, host: &Host<'_>) -> Verdict {
    if host.gpus == 0 {
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
        Found::NoLibrary { system, contained } => {
            let command = system.cuda_library(host.driver);
            let remedy = match command {
                // the driver's libraries are the host's: who starts it says which it gets
                _ if *contained => "start the container with --env NVIDIA_DRIVER_CAPABILITIES=compute,utility (of docker also: --gpus \
                                    'all,\"capabilities=compute,utility\"')"
                    .to_owned(),
                Some(command) => format!("{command}, in the version of the driver that runs"),
                None => "install the part of NVIDIA's driver that has libcuda.so.1, in the version that runs"
                    .to_owned(),
            };
            Verdict::bad(format!("NVML sees GPUs, and there is no {LIBRARY}"), every, remedy)
        }
        Found::Late if host.without_persistence > 0 => Verdict::look(
            format!(
                "cuInit takes longer than {LONGEST} s; persistence mode is off ({} of {} GPUs)",
                host.without_persistence, host.gpus
            ),
            "the driver sets the GPUs up anew for each program that finds them unused: so long does each start take",
            "sudo nvidia-smi -pm 1",
        )
        .fixed_there("sudo nvidia-smi -pm 1"),
        Found::Late => Verdict::unknown(format!("cuInit takes longer than {LONGEST} s")),
        Found::Failed(words) => Verdict::bad(
            words.clone(),
            every,
            "install the package that has libcuda.so.1 anew, in the version of the driver that runs (dpkg -S, rpm -qf or pacman -Qo \
             names it), or run NVIDIA's installer again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    /// Of a host with GPUs.
    fn of(found: &Found) -> Verdict {
        judge(found, &Host { gpus: 8, driver: Some("550.54.14"), without_persistence: 0 })
    }

    #[test]
    fn the_answers_of_cuda_are_told_with_what_helps() {
        assert_eq!(of(&Found::Answer(0)).mark, Mark::Good);
        let fabric = of(&Found::Answer(802));
        assert_eq!(
            (fabric.mark, fabric.evidence.as_str()),
            (Mark::Bad, "cuInit answers 802 (CUDA_ERROR_SYSTEM_NOT_READY)")
        );
        assert!(fabric.fix.is_some() && of(&Found::Answer(803)).fix.is_none());
        assert_eq!(of(&Found::Answer(46)).evidence, "cuInit answers 46");
        let none = judge(&Found::Answer(100), &Host::default());
        assert_eq!(none.mark, Mark::Unknown, "there is no GPU to start");
        assert_eq!(of(&Found::Absent).mark, Mark::Unknown);
        assert_eq!(of(&Found::Failed("libcuda.so.1: invalid ELF header".into())).mark, Mark::Bad);
    }

    #[test]
    fn gpus_without_cudas_library_are_told_with_where_it_comes_from() {
        let without = |system, contained| of(&Found::NoLibrary { system, contained });
        let contained = without(System::Ubuntu, true);
        assert!(contained.stops_launch(), "its ranks would compute on CPUs");
        assert_eq!(contained.evidence, "NVML sees GPUs, and there is no libcuda.so.1");
        assert!(contained.remedy.unwrap().contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
        let host = without(System::Ubuntu, false).remedy.unwrap();
        assert!(host.starts_with("sudo apt-get install libnvidia-compute-550, in the version"), "{host}");
        assert!(without(System::Other, false).remedy.unwrap().contains("has libcuda.so.1"));
        let none = judge(&Found::NoLibrary { system: System::Debian, contained: true }, &Host::default());
        assert_eq!(none.mark, Mark::Unknown, "and no GPU either");
        let told = serde_json::json!({"no_library": {"system": "debian", "contained": false}});
        let read: Found = serde_json::from_value(told).unwrap();
        assert_eq!(read, Found::NoLibrary { system: System::Debian, contained: false });
    }

    #[test]
    fn a_start_that_takes_long_is_laid_to_persistence_mode_where_that_is_off() {
        let off = judge(&Found::Late, &Host { gpus: 8, driver: None, without_persistence: 8 });
        assert_eq!(
            (off.mark, off.evidence.as_str()),
            (Mark::Look, "cuInit takes longer than 3 s; persistence mode is off (8 of 8 GPUs)")
        );
        assert_eq!(off.help().as_deref(), Some("sudo nvidia-smi -pm 1"));
        assert_eq!(of(&Found::Late).mark, Mark::Unknown, "it may be something else");
        assert!(SCRIPT.contains(&format!("signal.alarm({LONGEST})")));
    }
}
