//! nvidia-smi's CSV as readings, for hosts on which no agent runs. Pure functions of its text: what a driver can't
//! tell is unsupported, what it failed to tell is failed with its words, never a zero. MIG slices are not told: its query has
//! no line for them, and `mig.mode.current` makes older versions refuse the whole of it.

use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason};
use crate::domain::ids::GpuUuid;

/// What is asked of each process on a GPU; the program's name is last for the same reason.
pub const APP_FIELDS: &str = "gpu_uuid,pid,used_memory,process_name";

/// More GPUs than that are no host's.
const MOST_GPUS: usize = 64;
/// Longest text that is kept.
const MOST_TEXT: usize = 256;
const MIB: f64 = 1024.0 * 1024.0;

/// What nvidia-smi told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gpus {
    pub(super) infos: Vec<GpuInfo>,
    /// One for each of `infos`, same order; who computes is not known yet.
    pub(super) samples: Vec<GpuSample>,
    pub(super) driver: Reading<String>,
}

/// The answer to [`GPU_FIELDS`], and nvidia-smi's exit status.
pub(super) fn gpus(text: &str, status: Option<i32>) -> Result<Gpus, GpuAbsence> {
    if status != Some(0) {
        return Err(absence(text, status));
    }
    let mut gpus = Gpus { infos: Vec::new(), samples: Vec::new(), driver: Reading::Unsupported };
    for line in text.lines().filter(|line| !line.trim().is_empty()).take(MOST_GPUS) {
        let (info, sample, driver) = gpu(line).ok_or_else(|| absence(line, status))?;
        gpus.infos.push(info);
        gpus.samples.push(sample);
        gpus.driver = driver;
    }
    if gpus.infos.is_empty() { Err(absence("No devices were found", status)) } else { Ok(gpus) }
}

/// One line of nvidia-smi's.
struct Line {
    index: Option<u32>,
    info: GpuInfo,
    sample: GpuSample,
    driver: Reading<String>,
}

/// What is asked of each GPU: nvidia-smi's name for it, and where the answer goes.
macro_rules! asked {
    ($first:literal => $take_first:expr; $( $name:literal => $take:expr; )*) => {
        /// What is asked of each GPU; the name is last because it alone may hold a comma. All are older than 2015.
        pub const GPU_FIELDS: &str = concat!($first $(, ",", $name)*);
        const TAKES: &[fn(&mut Line, &str)] = &[$take_first $(, $take)*];
    };
}

asked! {
    "index" => |line, said| line.index = said.parse().ok();
    "uuid" => |line, said| line.info.uuid = GpuUuid::from(cut(said));
    "pci.bus_id" => |line, said| line.info.pci = text(said);
    "memory.total" => |line, said| {
        line.info.memory_total = bytes(said);
        line.sample.memory_total = bytes(said);
    };
    "memory.used" => |line, said| line.sample.memory_used = bytes(said);
    "utilization.gpu" => |line, said| line.sample.util = whole(said, 100.0);
    "temperature.gpu" => |line, said| line.sample.temperature = whole(said, 200.0);
    "power.draw" => |line, said| line.sample.power_mw = milli(said);
    "enforced.power.limit" => |line, said| line.sample.power_limit_mw = milli(said);
    "clocks.sm" => |line, said| line.sample.clock_sm_mhz = whole(said, 10_000.0);
    "clocks.mem" => |line, said| line.sample.clock_memory_mhz = whole(said, 100_000.0);
    "pstate" => |line, said| line.sample.pstate = whole(said.strip_prefix('P').unwrap_or(said), 15.0);
    "clocks.max.sm" => |line, said| line.info.clock_sm_max_mhz = whole(said, 10_000.0);
    "clocks.max.mem" => |line, said| line.info.clock_memory_max_mhz = whole(said, 100_000.0);
    "utilization.memory" => |line, said| line.sample.memory_util_percent = whole(said, 100.0);
    "fan.speed" => |line, said| line.sample.fan_percent = whole(said, 200.0);
    "pcie.link.gen.current" => |line, said| line.sample.pcie_gen = whole(said, 16.0);
    "pcie.link.gen.max" => |line, said| line.info.pcie_gen_max = whole(said, 16.0);
    "pcie.link.width.current" => |line, said| line.sample.pcie_width = whole(said, 64.0);
    "pcie.link.width.max" => |line, said| line.info.pcie_width_max = whole(said, 64.0);
    "persistence_mode" => |line, said| line.sample.persistence = switch(said);
    "ecc.mode.current" => |line, said| line.info.ecc_enabled = switch(said);
    "ecc.errors.corrected.volatile.total" => |line, said| line.sample.ecc_corrected = count(said);
    "ecc.errors.uncorrected.volatile.total" => |line, said| line.sample.ecc_uncorrected = count(said);
    "retired_pages.pending" => |line, said| line.sample.pages_pending = switch(said);
    "driver_version" => |line, said| line.driver = text(said);
    "name" => |line, said| line.info.name = cut(said);
}

fn gpu(line: &str) -> Option<(GpuInfo, GpuSample, Reading<String>)> {
    let answers: Vec<&str> = line.splitn(TAKES.len(), ',').map(str::trim).collect();
    if answers.len() != TAKES.len() {
        return None;
    }
    let mut line = Line {
        index: None,
        info: GpuInfo::unknown(0),
        sample: GpuSample::unknown(0),
        driver: Reading::Unsupported,
    };
    for (take, said) in TAKES.iter().zip(answers) {
        take(&mut line, said);
    }
    let Line { index, info, sample, driver } = line;
    let index = index?;
    Some((GpuInfo { index, ..info }, GpuSample { index, ..sample }, driver))
}

/// A line of nvidia-smi that answers these fields, and `[N/A]` to all others.
#[cfg(test)]
pub(super) fn line_of(answers: &[(&str, &str)]) -> String {
    let known: std::collections::BTreeMap<&str, &str> = answers.iter().copied().collect();
    assert!(known.keys().all(|name| GPU_FIELDS.split(',').any(|field| field == *name)), "{known:?}");
    let said = GPU_FIELDS.split(',').map(|field| *known.get(field).unwrap_or(&"[N/A]"));
    said.collect::<Vec<_>>().join(", ") + "\n"
}

/// Puts the answer to [`APP_FIELDS`] into the samples. Lines about GPUs that are not there say nothing.
pub(super) fn add_processes(gpus: &mut Gpus, text_of: &str, status: Option<i32>) {
    let all = if status == Some(0) {
        Ok(text_of.lines().filter_map(process).collect::<Vec<_>>())
    } else {
        Err(first_line(text_of))
    };
    for (info, sample) in gpus.infos.iter().zip(&mut gpus.samples) {
        sample.processes = match &all {
            Err(why) => Reading::failed(why),
            Ok(all) => {
                let here = all.iter().filter(|(uuid, _)| *uuid == info.uuid.as_str());
                Reading::Value(here.map(|(_, process)| process.clone()).take(MOST_GPUS).collect())
            }
        };
    }
}

fn process(line: &str) -> Option<(&str, GpuProcess)> {
    let mut fields = line.splitn(4, ',').map(str::trim);
    let (uuid, pid) = (fields.next()?, fields.next()?.parse().ok()?);
    let (memory, command) = (bytes(fields.next()?), text(fields.next()?));
    // nvidia-smi does not tell whose it is.
    Some((uuid, GpuProcess { command, memory, ..GpuProcess::unknown(pid) }))
}

/// One value, or nvidia-smi's word for why there is none.
fn reading<T>(field: &str, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    let bare = field.trim_start_matches('[').trim_end_matches(']').trim();
    match bare.to_ascii_lowercase().as_str() {
        "n/a" | "not supported" | "not available" | "" => Reading::Unsupported,
        _ => parse(field).map_or_else(|| Reading::failed(cut(bare)), Reading::Value),
    }
}

fn text(field: &str) -> Reading<String> {
    reading(field, |field| (!field.starts_with('[')).then(|| cut(field)))
}

fn number(field: &str, most: f64) -> Option<f64> {
    field.parse::<f64>().ok().filter(|value| (0.0..=most).contains(value))
}

fn whole(field: &str, most: f64) -> Reading<u32> {
    reading(field, |field| number(field, most).map(|value| value.round() as u32))
}

fn count(field: &str) -> Reading<u64> {
    reading(field, |field| field.parse().ok())
}

/// Yes or no, as nvidia-smi says both of them.
fn switch(field: &str) -> Reading<bool> {
    reading(field, |field| match field {
        "Enabled" | "Yes" => Some(true),
        "Disabled" | "No" => Some(false),
        _ => None,
    })
}

/// Watts as milliwatts.
fn milli(field: &str) -> Reading<u32> {
    reading(field, |field| number(field, 100_000.0).map(|value| (value * 1000.0).round() as u32))
}

/// MiB as bytes.
fn bytes(field: &str) -> Reading<u64> {
    reading(field, |field| number(field, 1e9).map(|value| (value * MIB) as u64))
}

fn absence(said: &str, status: Option<i32>) -> GpuAbsence {
    use GpuAbsenceReason as Reason;
    let known = [
        ("Driver/library version mismatch", Reason::DriverMismatch),
        ("couldn't communicate with the NVIDIA driver", Reason::DriverNotLoaded),
        ("No devices were found", Reason::NoDevice),
        ("Insufficient Permissions", Reason::NoPermission),
    ];
    let known = known.into_iter().find(|(words, _)| said.contains(words));
    match (known, status) {
        (Some((_, reason)), _) => GpuAbsence { reason, detail: first_line(said) },
        (None, Some(127)) => {
            GpuAbsence { reason: Reason::NoLibrary, detail: "nvidia-smi is not installed".to_owned() }
        }
        (None, Some(124)) => {
            GpuAbsence { reason: Reason::Other, detail: "nvidia-smi gives no answer".to_owned() }
        }
        (None, _) => {
            GpuAbsence { reason: Reason::Other, detail: format!("nvidia-smi: {}", first_line(said)) }
        }
    }
}

fn first_line(text: &str) -> String {
    cut(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output"))
}

fn cut(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two(util: &str, temperature: &str) -> String {
        let both = [("memory.total", "143771"), ("clocks.mem", "3201"), ("driver_version", "580.95.05")];
        let first = [
            ("index", "0"),
            ("uuid", "GPU-aa"),
            ("pci.bus_id", "00000000:0A:00.0"),
            ("memory.used", "1024"),
            ("utilization.gpu", util),
            ("temperature.gpu", temperature),
            ("power.draw", "118.52"),
            ("enforced.power.limit", "700.00"),
            ("clocks.sm", "1980"),
            ("pstate", "P0"),
            ("fan.speed", "[N/A]"),
            ("pcie.link.gen.max", "5"),
            ("pcie.link.width.current", "16"),
            ("persistence_mode", "Enabled"),
            ("ecc.errors.uncorrected.volatile.total", "3"),
            ("retired_pages.pending", "No"),
            ("name", "NVIDIA H200"),
        ];
        // MIG: no utilisation of the whole; boards without a power sensor.
        let second = [
            ("index", "1"),
            ("uuid", "GPU-bb"),
            ("memory.used", "0"),
            ("temperature.gpu", "41"),
            ("enforced.power.limit", "[Not Supported]"),
            ("name", "NVIDIA H200, odd"),
        ];
        line_of(&[&both[..], &first].concat()) + &line_of(&[&both[..], &second].concat())
    }

    #[test]
    fn values_have_their_units() {
        let gpus = gpus(&two("37", "44"), Some(0)).unwrap();
        let sample = &gpus.samples[0];
        assert_eq!(gpus.infos[0].uuid.as_str(), "GPU-aa");
        assert_eq!(gpus.infos[0].memory_total, Reading::Value(143_771 << 20));
        assert_eq!((&sample.util, &sample.temperature), (&Reading::Value(37), &Reading::Value(44)));
        assert_eq!(
            (&sample.power_mw, &sample.power_limit_mw),
            (&Reading::Value(118_520), &Reading::Value(700_000))
        );
        assert_eq!((&sample.pstate, &sample.memory_used), (&Reading::Value(0), &Reading::Value(1 << 30)));
        assert_eq!(gpus.driver, Reading::Value("580.95.05".to_owned()));
        assert_eq!(gpus.infos[1].name, "NVIDIA H200, odd");
        assert_eq!(
            (&gpus.infos[0].pcie_gen_max, &sample.pcie_width),
            (&Reading::Value(5), &Reading::Value(16))
        );
        assert_eq!(
            (&sample.persistence, &sample.pages_pending),
            (&Reading::Value(true), &Reading::Value(false))
        );
        assert_eq!(
            (&sample.ecc_uncorrected, &sample.fan_percent),
            (&Reading::Value(3), &Reading::Unsupported)
        );
    }

    #[test]
    fn what_is_not_told_is_no_zero() {
        let gpus = gpus(&two("37", "44"), Some(0)).unwrap();
        let sample = &gpus.samples[1];
        assert_eq!(sample.util, Reading::Unsupported);
        assert_eq!(sample.power_mw, Reading::Unsupported);
        assert_eq!(sample.power_limit_mw, Reading::Unsupported);
        assert_eq!(sample.memory_used, Reading::Value(0));
        let gpus = super::gpus(&two("[Unknown Error]", "4e9"), Some(0)).unwrap();
        assert_eq!(gpus.samples[0].util, Reading::failed("Unknown Error"));
        assert_eq!(gpus.samples[0].temperature, Reading::failed("4e9"));
    }

    #[test]
    fn processes_come_to_their_gpu() {
        let mut gpus = gpus(&two("37", "44"), Some(0)).unwrap();
        let apps =
            "GPU-bb, 4711, 512, python3 a,b\nGPU-bb, 4712, [N/A], [Insufficient Permissions]\nnonsense\n";
        add_processes(&mut gpus, apps, Some(0));
        assert_eq!(gpus.samples[0].processes, Reading::Value(Vec::new()));
        let Reading::Value(processes) = &gpus.samples[1].processes else { panic!("no processes") };
        assert_eq!(processes.len(), 2);
        assert_eq!(processes[0].command, Reading::Value("python3 a,b".to_owned()));
        assert_eq!(processes[0].memory, Reading::Value(512 << 20));
        assert_eq!(processes[1].command, Reading::failed("Insufficient Permissions"));
        add_processes(&mut gpus, "it broke\n", Some(9));
        assert_eq!(gpus.samples[0].processes, Reading::failed("it broke"));
    }

    #[test]
    fn each_way_to_have_no_gpu_has_its_reason() {
        use GpuAbsenceReason as Reason;
        for (text, status, reason) in [
            ("sh: nvidia-smi: not found\n", 127, Reason::NoLibrary),
            (
                "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n",
                18,
                Reason::DriverMismatch,
            ),
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
                9,
                Reason::DriverNotLoaded,
            ),
            ("No devices were found\n", 6, Reason::NoDevice),
            ("", 0, Reason::NoDevice),
            ("Failed to initialize NVML: Insufficient Permissions", 4, Reason::NoPermission),
            ("", 124, Reason::Other),
            ("Field \"x\" is not a valid field to query.", 2, Reason::Other),
            ("0, GPU-aa", 0, Reason::Other),
        ] {
            assert_eq!(gpus(text, Some(status)).unwrap_err().reason, reason, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9A-Za-z,.\\[\\] \n-]{0,300}") {
            if let Ok(mut gpus) = gpus(&text, Some(0)) {
                add_processes(&mut gpus, &text, Some(0));
            }
            let _ = gpus(&format!("0,{text}"), Some(0));
        }
    }
}
