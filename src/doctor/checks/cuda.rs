//! Whether CUDA starts: the driver's library is loaded and asked by a Python of its own, as every framework does it first.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::super::system::System;
use super::super::{Check, OfImage, Seen, Site};
use super::gpu::NVML_LIB;
use super::libraries;
use crate::clock;
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
/// How long that Python may take in all: it may be a while until it begins.
const OF_PYTHON: Duration = Duration::from_secs(5);
/// And with it the loader's cache, which gets what Python has left.
const OF_ALL: Duration = Duration::from_millis(5_600);
/// Both for a launch or in a container, which are waited for less long.
const OF_PYTHON_SOON: Duration = Duration::from_millis(3_500);
const OF_ALL_SOON: Duration = Duration::from_millis(3_800);
/// What the loader says of a library that is none for its program, or that it does not find.
const OF_LOADER: [&str; 5] = [
    "cannot open shared object file",
    "Error loading shared library",
    "wrong ELF class",
    "GLIBC_",
    "Error relocating",
];
/// Where a container is known by a file of its engine's.
const OF_ENGINES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Where distributions, NVIDIA's installer, WSL and NixOS put the driver's library.
const FOLDERS: [&str; 10] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];
/// The loader's cache: without the file it has none.
const CACHE: &str = "/etc/ld.so.cache";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::doctor) enum Found {
    /// There is no Python to load the library; of an older hvtui also where there is no library.
    Absent,
    /// There is no library: no usual folder and no cache has it, and the loader has not found it.
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
    const PATIENCE: Duration = Duration::from_secs(6);
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Some(python) = site.program("python3").or_else(|| site.program("python")) else {
            return Ok(Found::Absent);
        };
        let is_soon = site.for_launch || site.in_container;
        let (of_python, of_all) = if is_soon { (OF_PYTHON_SOON, OF_ALL_SOON) } else { (OF_PYTHON, OF_ALL) };
        let begun = clock::host_now().0;
        let told = Site::ask_within(&python, &["-c", SCRIPT], of_python)?;
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        if let Some(answer) = told.out.lines().find_map(|line| line.strip_prefix("hvtui ")?.parse().ok()) {
            return Ok(Found::Answer(answer));
        }
        if told.status.signal() == Some(Signal::ALARM.as_raw()) {
            return Ok(Found::Late);
        }
        let words = told.last_words();
        let has_begun = told.out.lines().any(|line| line == "hvtui loads");
        let is_absent = words.contains("libcuda.so.1: cannot open shared object file");
        // what this Python's loader does not find, another one's may
        let is_of_loader = told.status.signal().is_none() && is_of_loader(words);
        let unsure = |why: &str| Err(format!("{}: {words}{why}", python.display()));
        if !has_begun || is_of_loader && has_own_python(site) {
            return unsure("");
        }
        if !is_absent {
            // one that is ended says nothing
            let ended = |signal: i32| format!("what starts {LIBRARY} (cuInit) is ended by signal {signal}");
            return Ok(Found::Failed(told.status.signal().map_or_else(|| words.to_owned(), ended)));
        }
        match is_nowhere(site, of_all.saturating_sub(gone)) {
            Ok(true) => Ok(no_library(site)),
            Ok(false) => unsure(""),
            Err(why) => unsure(&format!("; whether the loader's cache has it is not told: {why}")),
        }
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
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let contained = site.in_container
        || OF_ENGINES.iter().any(|file| Path::new(file).exists())
        || are_libraries_mounted(&mounts);
    Found::NoLibrary { system: System::here(), contained }
}

/// Whether a library of the driver's is mounted by itself: so containers get it, those of Kubernetes and LXC too.
fn are_libraries_mounted(mounts: &str) -> bool {
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.any(|point| point.rsplit('/').next().is_some_and(|name| name.starts_with("libnvidia-ml.so")))
}

/// Whether another Python's loader may have another answer. What ends its program or is broken does so for each.
fn is_of_loader(words: &str) -> bool {
    OF_LOADER.iter().any(|one| words.contains(one))
}

/// Whether the run has a Python that is not the system's: by its environment, or by its path.
fn has_own_python(site: &Site) -> bool {
    site.run.as_ref().is_some_and(|run| {
        run.environment.activates() || !run.imports.is_empty() && run.program.contains('/')
    })
}

/// Whether the driver's library surely lies nowhere; the loader's cache is waited for so long.
///
/// # Errors
/// Why the cache is not told.
fn is_nowhere(site: &Site, left: Duration) -> Result<bool, String> {
    let named = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    lacks(named.split(':').chain(FOLDERS), || match libraries::cached_within(site, left) {
        Err(_) if !Path::new(CACHE).exists() => Ok(Vec::new()),
        cached => cached,
    })
}

/// Whether it lies in none of these folders and is not in the loader's cache, which is asked where no folder has it.
fn lacks<'a>(
    mut folders: impl Iterator<Item = &'a str>,
    cached: impl FnOnce() -> Result<Vec<(String, String)>, String>,
) -> Result<bool, String> {
    if folders.any(|folder| !folder.is_empty() && Path::new(folder).join(LIBRARY).exists()) {
        return Ok(false);
    }
    Ok(cached()?.iter().all(|(name, _)| name != LIBRARY))
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
                Some(command) => {
                    // there are packages of drivers for servers, too
                    let is_ubuntu = *system == System::Ubuntu;
                    let kind = if is_ubuntu { " (-server, where dpkg -l shows that)" } else { "" };
                    format!("{command}{kind}, in the version of the driver that runs")
                }
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
    use crate::domain::doctor::RunProgram;
    use crate::domain::environment::EnvironmentPlan;
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
        let package =
            "sudo apt-get install libnvidia-compute-550 (-server, where dpkg -l shows that), in the version";
        assert!(host.starts_with(package), "{host}");
        let debian = without(System::Debian, false).remedy.unwrap();
        assert!(debian.starts_with("sudo apt-get install libcuda1, in the version"), "{debian}");
        assert!(without(System::Other, false).remedy.unwrap().contains("has libcuda.so.1"));
        let none = judge(&Found::NoLibrary { system: System::Debian, contained: true }, &Host::default());
        assert_eq!(none.mark, Mark::Unknown, "and no GPU either");
        let told = serde_json::json!({"no_library": {"system": "debian", "contained": false}});
        let read: Found = serde_json::from_value(told).unwrap();
        assert_eq!(read, Found::NoLibrary { system: System::Debian, contained: false });
    }

    #[test]
    fn the_library_is_absent_where_neither_a_folder_nor_the_cache_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        let cache = |name: &str| Ok(vec![(name.to_owned(), format!("/x/{name}"))]);
        let of = |cached| lacks(["", at].into_iter(), || cached);
        assert_eq!([of(cache("libnvidia-ml.so.1")), of(Ok(Vec::new()))], [Ok(true), Ok(true)]);
        assert_eq!(of(cache(LIBRARY)), Ok(false), "the loader may find it");
        let untold = || Err("no ldconfig there".to_owned());
        assert_eq!(of(untold()), Err("no ldconfig there".to_owned()), "it may have it");
        std::fs::write(folder.path().join(LIBRARY), "").unwrap();
        assert_eq!(of(cache("libnvidia-ml.so.1")), Ok(false), "a loader of another kind may find it");
        assert_eq!(of(untold()), Ok(false), "the cache is not asked");
    }

    #[test]
    fn both_of_its_looks_end_within_its_patience() {
        for (of_python, of_all, patience) in
            [(OF_PYTHON, OF_ALL, Cuda::PATIENCE), (OF_PYTHON_SOON, OF_ALL_SOON, crate::doctor::PATIENCE)]
        {
            assert!(
                of_python + Duration::from_millis(300) <= of_all,
                "the cache is told in some milliseconds"
            );
            assert!(of_all + Duration::from_millis(200) <= patience);
        }
        assert!(Duration::from_secs(LONGEST.into()) < OF_PYTHON_SOON, "its alarm comes first");
    }

    #[test]
    fn a_container_is_known_by_a_library_that_is_mounted_by_itself() {
        let line =
            |point: &str| format!("812 790 259:2 /lib/x.so {point} ro,nosuid - ext4 /dev/nvme0n1p2 rw\n");
        assert!(are_libraries_mounted(&(line("/") + &line("/usr/lib64/libnvidia-ml.so.550.54.14"))));
        assert!(!are_libraries_mounted(&(line("/") + &line("/usr/lib64") + "x\n")));
    }

    #[test]
    fn a_run_has_a_python_of_its_own_by_its_environment_or_by_its_path() {
        let of = |program: &str, conda: Option<&str>, imports: &[&str]| {
            let environment =
                EnvironmentPlan { conda: conda.map(str::to_owned), ..EnvironmentPlan::default() };
            let imports = imports.iter().map(|module| (*module).to_owned()).collect();
            let run =
                RunProgram { program: program.to_owned(), environment, imports, ..RunProgram::default() };
            has_own_python(&crate::doctor::tests::site().with_run(Some(run)))
        };
        assert!(of("/opt/conda/bin/python3", None, &["torch"]) && of("python3", Some("train"), &["torch"]));
        assert!(!of("python3", None, &["torch"]));
        assert!(!of("./solver", None, &[]), "mpirun's program is none of Python's");
        assert!(!has_own_python(&crate::doctor::tests::site()));
    }

    #[test]
    fn what_one_loader_does_not_take_is_told_from_a_library_that_is_broken() {
        for words in [
            "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
            "OSError: libcuda.so.1: wrong ELF class: ELFCLASS32",
            "OSError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by libcuda.so.1)",
            "OSError: Error relocating libcuda.so.1: __gettimeofday: symbol not found",
        ] {
            assert!(is_of_loader(words), "{words}");
        }
        for words in
            ["OSError: libcuda.so.1: file too short", "OSError: libcuda.so.1: invalid ELF header", ""]
        {
            assert!(!is_of_loader(words), "{words}");
        }
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
