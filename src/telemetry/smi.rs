//! nvidia-smi's CSV as readings, for hosts on which no agent runs. Pure functions of its text: what a driver can't
//! tell is unsupported, what it failed to tell is failed with its words, never a zero.

use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason};
use crate::domain::ids::GpuUuid;

/// What is asked of each GPU; the name is last because it alone may hold a comma. All are older than 2015.
pub const GPU_FIELDS: &str = "index,uuid,pci.bus_id,memory.total,memory.used,utilization.gpu,temperature.gpu,\
                              power.draw,enforced.power.limit,clocks.sm,clocks.mem,pstate,driver_version,name";
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

fn gpu(line: &str) -> Option<(GpuInfo, GpuSample, Reading<String>)> {
    let fields: Vec<&str> = line.splitn(14, ',').map(str::trim).collect();
    let &[
        index,
        uuid,
        pci,
        total,
        used,
        util,
        temperature,
        power,
        limit,
        sm,
        memory_clock,
        pstate,
        driver,
        name,
    ] = fields.as_slice()
    else {
        return None;
    };
    let index: u32 = index.parse().ok()?;
    let memory_total = bytes(total);
    let info = GpuInfo {
        index,
        uuid: GpuUuid::from(cut(uuid)),
        name: cut(name),
        pci: text(pci),
        memory_total: memory_total.clone(),
    };
    let sample = GpuSample {
        index,
        util: whole(util, 100.0),
        memory_used: bytes(used),
        memory_total,
        temperature: whole(temperature, 200.0),
        power_mw: milli(power),
        power_limit_mw: milli(limit),
        clock_sm_mhz: whole(sm, 10_000.0),
        clock_memory_mhz: whole(memory_clock, 100_000.0),
        pstate: whole(pstate.strip_prefix('P').unwrap_or(pstate), 15.0),
        throttle: Reading::Unsupported,
        processes: Reading::Unsupported,
    };
    Some((info, sample, text(driver)))
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
    Some((uuid, GpuProcess { pid, user: Reading::Unsupported, command, memory, run: None, container: None }))
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

    const TWO: &str = "0, GPU-aa, 00000000:0A:00.0, 143771, 1024, 37, 44, 118.52, 700.00, 1980, 3201, P0, 580.95.05, NVIDIA H200\n\
                       1, GPU-bb, 00000000:0B:00.0, 143771, 0, [N/A], 41, [N/A], [Not Supported], 345, 3201, P8, 580.95.05, NVIDIA H200, odd\n";

    #[test]
    fn values_have_their_units() {
        let gpus = gpus(TWO, Some(0)).unwrap();
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
    }

    #[test]
    fn what_is_not_told_is_no_zero() {
        let gpus = gpus(TWO, Some(0)).unwrap();
        // MIG: no utilisation of the whole; boards without a power sensor.
        let sample = &gpus.samples[1];
        assert_eq!(sample.util, Reading::Unsupported);
        assert_eq!(sample.power_mw, Reading::Unsupported);
        assert_eq!(sample.power_limit_mw, Reading::Unsupported);
        assert_eq!(sample.memory_used, Reading::Value(0));
        let lost = TWO.replace(", 37,", ", [Unknown Error],").replace(", 44,", ", 4e9,");
        let gpus = super::gpus(&lost, Some(0)).unwrap();
        assert_eq!(gpus.samples[0].util, Reading::failed("Unknown Error"));
        assert_eq!(gpus.samples[0].temperature, Reading::failed("4e9"));
    }

    #[test]
    fn processes_come_to_their_gpu() {
        let mut gpus = gpus(TWO, Some(0)).unwrap();
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
