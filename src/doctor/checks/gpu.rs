//! Whether a host's GPUs are there, all that its PCI bus shows, and are those of the other hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustix::fs::{Access, access};

use super::super::compare::Compared;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::mig;
use crate::domain::host::{GpuAbsenceReason, HostInfo, HostSample};
use crate::domain::units::ranges;

pub(in crate::doctor) struct Gpu;

/// Holders of GPUs that are named.
const HOLDERS: usize = 6;
/// What names another library of NVML's to hvtui: what that one shows has nothing to do with this host's bus.
pub(super) const NVML_LIB: &str = "HVTUI_NVML_LIB";
/// NVIDIA's number among makers of PCI devices, and how the class of what draws and computes begins.
const NVIDIA: &str = "0x10de";
const DISPLAY: &str = "0x03";
/// Drivers of NVIDIA's GPUs. What another one has is lent to a virtual machine.
const DRIVERS: [&str; 3] = ["nvidia", "nouveau", "nova"];

impl Check for Gpu {
    const NAME: &'static str = "gpu";
    const ASKS: &'static str = "are its GPUs there, the same as on the other hosts, and who has them";
    const WANTS_SAMPLE: bool = true;
    /// How many GPUs of NVIDIA that programs of this user may have are on the PCI bus; absent where that says nothing, and of an
    /// older hvtui.
    type Found = Option<usize>;

    fn look(_: &Site) -> Result<Self::Found, String> {
        Ok(on_bus(Path::new("/")).filter(|_| std::env::var_os(NVML_LIB).is_none()))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let owned: Vec<(&str, String)> =
            seen.iter().filter_map(|one| Some((one.host.as_str(), words(one.info)?))).collect();
        let all = Compared::new(owned.iter().map(|(host, words)| (*host, words.as_str())));
        let judge = |one: &Seen<'_, Self::Found>| {
            let verdict = judge(one.info, one.found, &all);
            let lasting = verdict.evidence.clone();
            Verdict { evidence: lasting.clone() + &holders(one.sample), ..verdict }.lasting(lasting)
        };
        seen.iter().map(judge).collect()
    }
}

/// NVIDIA's GPUs on the bus of the host whose files lie below `root`.
fn on_bus(root: &Path) -> Option<usize> {
    let devices = std::fs::read_dir(root.join("sys/bus/pci/devices")).ok()?.flatten();
    let is_one = |device: &std::fs::DirEntry| {
        let device = device.path();
        let says = |name: &str, begins: &str| {
            std::fs::read_to_string(device.join(name)).is_ok_and(|text| text.starts_with(begins))
        };
        says("vendor", NVIDIA) && says("class", DISPLAY) && is_for_programs(root, &device)
    };
    Some(devices.filter(is_one).count())
}

/// Whether a program of this user may have it. A container, and a job of a scheduler, see all of the bus and have some of its GPUs. A
/// function of a GPU that is cut into several for virtual machines (SR-IOV) is for one of those.
fn is_for_programs(root: &Path, device: &Path) -> bool {
    if device.join("physfn").symlink_metadata().is_ok() {
        return false;
    }
    let driver = std::fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match driver.as_deref() {
        Some("nvidia") => {
            let name = device.file_name().unwrap_or_default();
            let facts = root.join("proc/driver/nvidia/gpus").join(name).join("information");
            let facts = std::fs::read_to_string(facts).unwrap_or_default();
            let fact = |name: &str| {
                facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
            };
            let is_let = |minor: &str| {
                access(root.join(format!("dev/nvidia{minor}")), Access::READ_OK | Access::WRITE_OK).is_ok()
            };
            fact("GPU Excluded") != Some("Yes") && fact("Device Minor").is_some_and(is_let)
        }
        Some(other) => DRIVERS.contains(&other),
        None => {
            // kept for another one, as of a virtual machine; without a word on it the kernel says `(null)`
            let kept_for = std::fs::read_to_string(device.join("driver_override")).unwrap_or_default();
            ["", "(null)"].contains(&kept_for.trim()) || DRIVERS.contains(&kept_for.trim())
        }
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

fn judge(info: &HostInfo, on_bus: Option<usize>, all: &Compared<'_>) -> Verdict {
    let seen_there =
        |count: usize| format!("{count} GPU{} of NVIDIA on the PCI bus", if count == 1 { "" } else { "s" });
    if let Some(own) = words(info) {
        let known = mig::whole(&info.gpus).count();
        if let Some(count) = on_bus.filter(|count| *count > known) {
            return Verdict::look(
                format!("{own} by NVML; {}", seen_there(count)),
                "the driver could not start a GPU, or has lost it: runs have fewer than there are",
                "dmesg | grep -iE 'nvrm|xid'; lspci -nnk -d 10de:; a reboot may bring it back",
            );
        }
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
    let ask_the_kernel = "lspci | grep -i nvidia; dmesg | grep -iE 'nvrm|xid'";
    match (absence.reason, on_bus) {
        // its module is loaded where there is one alone
        (GpuAbsenceReason::NoLibrary | GpuAbsenceReason::DriverNotLoaded, Some(0)) => {
            Verdict::unknown("no GPU")
        }
        (GpuAbsenceReason::NoLibrary, Some(count)) => Verdict::look(
            format!("{seen}, and {}", seen_there(count)),
            cause,
            "install NVIDIA's driver; a container is to be started with GPUs (--gpus all)",
        ),
        (GpuAbsenceReason::NoDevice, Some(count)) if count > 0 => {
            Verdict::bad(format!("{seen}, and {}", seen_there(count)), cause, ask_the_kernel)
        }
        (GpuAbsenceReason::NoLibrary | GpuAbsenceReason::NoDevice, _) if all.is_empty() => {
            Verdict::unknown("no GPU")
        }
        (GpuAbsenceReason::NoLibrary, None) => Verdict::look(
            format!("{seen}; other hosts have GPUs"),
            cause,
            "install NVIDIA's driver, if it has a GPU",
        ),
        (GpuAbsenceReason::NoDevice, _) => Verdict::bad(seen, cause, ask_the_kernel),
        (GpuAbsenceReason::DriverMismatch, _) => Verdict::bad(
            seen,
            "the driver's library was updated under a module that is still loaded: every CUDA program fails",
            "sudo reboot, or with no process on the GPUs: sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia",
        ),
        (GpuAbsenceReason::DriverNotLoaded, _) => {
            Verdict::bad(seen, cause, "sudo modprobe nvidia; dmesg | grep -i nvrm")
                .fixed_there("sudo modprobe nvidia")
        }
        (GpuAbsenceReason::NoPermission, _) => {
            Verdict::bad(seen, cause, "ls -l /dev/nvidia*; sudo usermod -aG video $USER, then log in again")
        }
        (GpuAbsenceReason::Other, _) => Verdict::bad(seen, cause, "nvidia-smi; dmesg | grep -iE 'nvrm|xid'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::info_with;
    use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, RunOfProcess};
    use crate::domain::host::GpuAbsence;
    use crate::domain::ids::RunId;
    use crate::domain::preflight::Mark;

    #[test]
    fn gpus_of_the_bus_count_that_a_program_may_have() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(on_bus(root.path()), None, "a machine without the bus");
        let device = |address: &str, vendor: &str, class: &str, driver: Option<&str>| {
            let folder = format!("sys/bus/pci/devices/{address}");
            write(&format!("{folder}/vendor"), vendor);
            write(&format!("{folder}/class"), class);
            if let Some(driver) = driver {
                let link = root.path().join(folder).join("driver");
                std::os::unix::fs::symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
            }
        };
        device("0000:00:1f.0", "0x8086\n", "0x030000\n", Some("i915"));
        device("0000:07:00.1", "0x10de\n", "0x040300\n", Some("snd_hda_intel"));
        assert_eq!(on_bus(root.path()), Some(0));
        for (at, more) in ["GPU Excluded:\t No\n", "GPU Excluded:\t Yes\n", ""].into_iter().enumerate() {
            let address = format!("0000:0{at}:00.0");
            device(&address, "0x10de\n", "0x030200\n", Some("nvidia"));
            let facts = format!("Model: \t\t NVIDIA H200\nDevice Minor: \t {at}\n{more}");
            write(&format!("proc/driver/nvidia/gpus/{address}/information"), &facts);
        }
        write("dev/nvidia0", "");
        write("dev/nvidia1", "");
        assert_eq!(on_bus(root.path()), Some(1), "one is left out, and one another container's");
        device("0000:0a:00.0", "0x10de\n", "0x030200\n", Some("vfio-pci"));
        device("0000:0b:00.0", "0x10de\n", "0x030200\n", None);
        device("0000:0c:00.0", "0x10de\n", "0x030000\n", Some("nouveau"));
        assert_eq!(on_bus(root.path()), Some(3));
        // one without a driver counts unless it is kept for a virtual machine's, and a part of a GPU for one does not
        for (address, kept_for) in
            [("0000:0b:00.0", "(null)\n"), ("0000:0d:00.0", "vfio-pci\n"), ("0000:0e:00.0", "nvidia\n")]
        {
            if address != "0000:0b:00.0" {
                device(address, "0x10de\n", "0x030200\n", None);
            }
            write(&format!("sys/bus/pci/devices/{address}/driver_override"), kept_for);
        }
        device("0000:0a:00.4", "0x10de\n", "0x030200\n", None);
        let physical = root.path().join("sys/bus/pci/devices/0000:0a:00.4/physfn");
        std::os::unix::fs::symlink("../0000:0a:00.0", physical).unwrap();
        assert_eq!(on_bus(root.path()), Some(4), "that of nvidia's is the new one");
    }

    #[test]
    fn what_the_bus_shows_and_nvml_does_not_is_missed() {
        let of = |count: u32, bus| {
            let gpu = |at| GpuInfo { name: "NVIDIA H200".to_owned(), ..GpuInfo::unknown(at) };
            let info = HostInfo { gpus: (0..count).map(gpu).collect(), ..info_with(&[]) };
            judge(&info, bus, &Compared::new([]))
        };
        let lacks = of(7, Some(8));
        assert_eq!(
            (lacks.mark, lacks.evidence.as_str()),
            (Mark::Look, "7 × NVIDIA H200 by NVML; 8 GPUs of NVIDIA on the PCI bus"),
            "also of a host without others"
        );
        assert_eq!([of(8, Some(8)).mark, of(8, None).mark, of(8, Some(0)).mark], [Mark::Good; 3]);
    }

    #[test]
    fn a_host_without_a_gpu_on_its_bus_lacks_no_driver() {
        let others = || Compared::new([("b", "8 × NVIDIA H200")]);
        let of = |reason, bus, all: &Compared<'_>| {
            let absence = GpuAbsence { reason, detail: "x".to_owned() };
            judge(&HostInfo { gpu_absence: Some(absence), ..info_with(&[]) }, bus, all)
        };
        let none = Compared::new([]);
        for reason in [GpuAbsenceReason::NoLibrary, GpuAbsenceReason::DriverNotLoaded] {
            assert_eq!(of(reason, Some(0), &others()).mark, Mark::Unknown, "{reason:?}");
        }
        let may = of(GpuAbsenceReason::NoLibrary, None, &others());
        assert_eq!(
            (may.mark, may.evidence.as_str()),
            (Mark::Look, "no NVIDIA driver library; other hosts have GPUs"),
            "it may have one"
        );
        let idle = of(GpuAbsenceReason::NoLibrary, Some(1), &none);
        assert_eq!(
            (idle.mark, idle.evidence.as_str()),
            (Mark::Look, "no NVIDIA driver library, and 1 GPU of NVIDIA on the PCI bus")
        );
        assert_eq!(of(GpuAbsenceReason::NoDevice, Some(8), &none).mark, Mark::Bad);
        assert_eq!(of(GpuAbsenceReason::NoDevice, Some(0), &none).mark, Mark::Unknown);
        assert_eq!(of(GpuAbsenceReason::NoDevice, Some(0), &others()).mark, Mark::Bad);
        assert_eq!(of(GpuAbsenceReason::DriverNotLoaded, Some(8), &none).mark, Mark::Bad);
    }

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
