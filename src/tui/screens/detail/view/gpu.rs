//! What the Detail screen says of one GPU: its values in groups, one line a group where it fits. Values that the GPU
//! always has are told as `n/a` where they are missing; of the others only those that it has are shown.

use crate::domain::gpu::health::Fault;
use crate::domain::gpu::mig::MigInstance;
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::units;
use crate::tui::core::words::wrap;
use crate::tui::screens::faults::OFF_BUS;
use crate::tui::screens::view::gpu_words::{power, reading};
use crate::tui::screens::view::title::plural;
use unicode_width::UnicodeWidthStr;

/// Columns of the group's name and the blanks behind it.
const INDENT: usize = 10;

/// What is wrong with it, `off bus` where that was acknowledged, `ok` where it tells and nothing is; none of a MIG slice.
pub(super) fn health(
    info: &GpuInfo,
    gpu: &GpuSample,
    (faults, is_off_bus): (&[Fault], bool),
    width: usize,
) -> Vec<String> {
    let mut parts: Vec<String> = faults.iter().map(|fault| fault.words.clone()).collect();
    if parts.is_empty() && is_off_bus {
        parts.push(OFF_BUS.to_owned());
    }
    if parts.is_empty() && gpu.throttle.value().is_some() && !info.is_slice() {
        parts.push("ok".to_owned());
    }
    group("health", &parts, width)
}

/// The lines of its values, each at most `width` columns.
pub(super) fn lines(info: &GpuInfo, gpu: &GpuSample, width: usize) -> Vec<String> {
    if let Some(instance) = &info.instance {
        let groups = [("slice", slice(instance)), ("use", slice_use(gpu)), ("memory", memory(info, gpu))];
        return groups.into_iter().flat_map(|(name, parts)| group(name, &parts, width)).collect();
    }
    let groups = [
        ("use", usage(gpu)),
        ("clocks", clocks(info, gpu)),
        ("memory", memory(info, gpu)),
        ("thermals", thermals(info, gpu)),
        ("links", links(info, gpu)),
    ];
    let shown = groups.into_iter().filter(|(_, parts)| !parts.is_empty());
    shown.flat_map(|(name, parts)| group(name, &parts, width)).collect()
}

/// One group; further lines are indented. A part is broken only where it is longer than a line.
fn group(name: &str, parts: &[String], width: usize) -> Vec<String> {
    let room = width.saturating_sub(INDENT);
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.width() + 3 + part.width() <= room => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.extend(wrap(part, room)),
        }
    }
    let named = std::iter::once(name).chain(std::iter::repeat(""));
    lines.iter().zip(named).map(|(line, name)| format!("{name:INDENT$}{line}")).collect()
}

/// A part for a value that not every GPU has.
fn part<T>(
    value: &Reading<T>,
    words: impl FnOnce(String) -> String,
    show: impl FnOnce(&T) -> String,
) -> Option<String> {
    (!matches!(value, Reading::Unsupported)).then(|| words(reading(value, show)))
}

fn percent(name: &str, value: &Reading<u32>) -> Option<String> {
    part(value, |text| format!("{name} {text}"), |value| format!("{value} %"))
}

fn usage(gpu: &GpuSample) -> Vec<String> {
    let util = format!("util {}", reading(&gpu.util, |util| format!("{util} %")));
    let mig = (gpu.mig == Reading::Value(true)).then(|| "MIG".to_owned());
    let more = [
        percent("memory controller", &gpu.memory_util_percent),
        percent("encoder", &gpu.encoder_percent),
        percent("decoder", &gpu.decoder_percent),
    ];
    std::iter::once(util).chain([mig].into_iter().chain(activity(gpu)).chain(more).flatten()).collect()
}

/// What a MIG slice is made of.
fn slice(of: &MigInstance) -> Vec<String> {
    let part = |value: Option<u32>, words: &dyn Fn(u32) -> String| value.map(words);
    let counted = |count: u32, what: &str| format!("{count} {}", plural(count as usize, what));
    let parts = [
        part(of.gpu_instance, &|id| format!("GPU instance {id}")),
        part(of.compute_instance, &|id| format!("compute instance {id}")),
        part(of.gpu_slices, &|count| counted(count, "memory slice")),
        part(of.compute_slices, &|count| counted(count, "compute slice")),
        part(of.multiprocessors, &|count| counted(count, "SM")),
    ];
    parts.into_iter().flatten().collect()
}

/// NVML tells memory, processes and activity of a slice, and nothing else.
fn slice_use(gpu: &GpuSample) -> Vec<String> {
    let rest = "util n/a: NVML tells no utilisation, clocks, heat and power of a MIG slice".to_owned();
    activity(gpu).into_iter().flatten().chain([rest]).collect()
}

/// What GPM tells.
fn activity(gpu: &GpuSample) -> [Option<String>; 3] {
    [
        percent("SM active", &gpu.sm_active_percent),
        percent("tensor", &gpu.tensor_active_percent),
        percent("DRAM", &gpu.dram_active_percent),
    ]
}

fn clocks(info: &GpuInfo, gpu: &GpuSample) -> Vec<String> {
    let clock = |name: &str, now: &Reading<u32>, most: &Reading<u32>| {
        let most = most.value().map(|most| format!(" of {most}")).unwrap_or_default();
        format!("{name} {}", reading(now, |now| format!("{now}{most} MHz")))
    };
    let held = gpu.throttle.value().is_some_and(Vec::is_empty).then(|| "not throttled".to_owned());
    let state = |on: &bool| if *on { "on" } else { "off" }.to_owned();
    let sm = clock("SM", &gpu.clock_sm_mhz, &info.clock_sm_max_mhz);
    let memory = clock("memory", &gpu.clock_memory_mhz, &info.clock_memory_max_mhz);
    let persistence = part(&gpu.persistence, |text| format!("persistence {text}"), state);
    [sm, memory, reading(&gpu.pstate, |state| format!("P{state}"))]
        .into_iter()
        .chain(held)
        .chain(persistence)
        .collect()
}

fn memory(info: &GpuInfo, gpu: &GpuSample) -> Vec<String> {
    let used = match (gpu.memory_used.value(), gpu.memory_total.value()) {
        (Some(used), Some(total)) => units::bytes_of(*used, *total),
        _ => reading(&gpu.memory_used, |used| units::bytes(*used)),
    };
    let due = |pending: &bool| if *pending { "due at the next reset" } else { "none due" }.to_owned();
    let ecc =
        part(&info.ecc_enabled, |text| format!("ECC {text}"), |on| if *on { "on" } else { "off" }.to_owned());
    let failed = (gpu.row_remap_failed == Reading::Value(true)).then(|| "row remap failed".to_owned());
    let more = [
        ecc,
        part(&gpu.ecc_corrected, |text| format!("{text} corrected"), u64::to_string),
        part(&gpu.ecc_uncorrected, |text| format!("{text} uncorrected"), u64::to_string),
        part(&gpu.row_remap_pending, |text| format!("row remap {text}"), due),
        failed,
        part(&gpu.pages_retired, |text| format!("{text} pages retired"), u64::to_string),
        part(&gpu.pages_pending, |text| format!("page retirement {text}"), due),
    ];
    std::iter::once(used).chain(more.into_iter().flatten()).collect()
}

fn thermals(info: &GpuInfo, gpu: &GpuSample) -> Vec<String> {
    let degrees = |celsius: &u32| format!("{celsius}°");
    let energy = |mj: &u64| format!("{:.1} kWh", *mj as f64 / 3.6e9);
    let more = [
        part(&info.slowdown_celsius, |text| format!("slows down at {text}"), degrees),
        part(&info.shutdown_celsius, |text| format!("switches off at {text}"), degrees),
        percent("fan", &gpu.fan_percent),
        Some(power(gpu)),
        part(&gpu.energy_mj, |text| format!("{text} since the driver was loaded"), energy),
    ];
    std::iter::once(reading(&gpu.temperature, degrees)).chain(more.into_iter().flatten()).collect()
}

fn links(info: &GpuInfo, gpu: &GpuSample) -> Vec<String> {
    let of = |most: &Reading<u32>| most.value().map(|most| format!(" of {most}")).unwrap_or_default();
    let rate = |bytes: &u64| format!("{}/s", units::bytes(*bytes));
    let parts = [
        part(
            &gpu.pcie_gen,
            |text| format!("PCIe gen {text}"),
            |now| format!("{now}{}", of(&info.pcie_gen_max)),
        ),
        part(
            &gpu.pcie_width,
            |text| format!("{text} lanes"),
            |now| format!("{now}{}", of(&info.pcie_width_max)),
        ),
        part(&gpu.pcie_rx_bytes_per_s, |text| format!("in {text}"), rate),
        part(&gpu.pcie_tx_bytes_per_s, |text| format!("out {text}"), rate),
        part(
            &gpu.nvlink_active,
            |text| format!("{text} NVLinks up"),
            |up| format!("{up}{}", of(&gpu.nvlink_count)),
        ),
        part(&gpu.nvlink_rx_bytes_per_s, |text| format!("NVLink in {text}"), rate),
        part(&gpu.nvlink_tx_bytes_per_s, |text| format!("out {text}"), rate),
        part(&gpu.nvlink_errors, |text| format!("{text} NVLink errors"), u64::to_string),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_gpu_has_is_told_and_nothing_is_zero() {
        let text = lines(&GpuInfo::unknown(0), &GpuSample::unknown(0), 100).join("\n");
        let expected =
            "use       util n/a\nclocks    SM n/a · memory n/a · n/a\nmemory    n/a\nthermals  n/a · n/a";
        assert_eq!(text, expected);
        let text = lines(&GpuInfo::unknown(0), &GpuSample::failed(0, "GPU is lost"), 200).join("\n");
        assert!(text.contains("fan –") && text.contains("– NVLinks up") && !text.contains('0'), "{text}");
    }

    #[test]
    fn a_narrow_group_breaks_between_its_parts() {
        let gpu = GpuSample {
            util: Reading::Value(99),
            sm_active_percent: Reading::Value(93),
            memory_util_percent: Reading::Value(41),
            ..GpuSample::unknown(0)
        };
        let text = lines(&GpuInfo::unknown(0), &gpu, 40);
        assert_eq!(text[..2], ["use       util 99 % · SM active 93 %", "          memory controller 41 %"]);
    }
}
