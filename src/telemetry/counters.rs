//! What NVML tells of a GPU beyond the values of each second: what is slow or hardly changes is asked rarely, and what
//! is a difference of two moments remembers the first.
//!
//! Any call in here may block for ever on a broken GPU, so only the GPU's own thread calls it.

use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureThreshold};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id as id;
use nvml_wrapper::{Device, Nvml};

use super::HostClock;
use super::gpm::Gpm;
use super::nvlink::Throughput;
use super::nvml;
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};

/// Each so many samples a GPU is asked what is slow. NVML measures its PCIe throughput over 20 ms a direction, so the
/// GPUs of a host take turns.
const RARELY: u64 = 10;
/// Why there is no value before its first turn.
pub(super) const NOT_YET: &str = "not read yet";
/// No GPU has more NVLinks.
const NVLINKS: u64 = 64;

/// Counters that NVML tells in one call.
const FIELDS: [u32; 12] = [
    id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    id::NVML_FI_DEV_RETIRED_SBE,
    id::NVML_FI_DEV_RETIRED_DBE,
    id::NVML_FI_DEV_RETIRED_PENDING,
    id::NVML_FI_DEV_REMAPPED_PENDING,
    id::NVML_FI_DEV_REMAPPED_FAILURE,
    id::NVML_FI_DEV_NVLINK_LINK_COUNT,
    id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
];

/// A value that not every GPU and driver has: a function that the library lacks is no failure of the GPU.
pub(super) fn optional<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
            Reading::Unsupported
        }
        Err(error) => Reading::failed(nvml::words(&error)),
    }
}

/// A board without a fan has none of number 0: the H200's driver calls that a wrong argument.
fn no_fan(error: NvmlError) -> NvmlError {
    if matches!(error, NvmlError::InvalidArg) { NvmlError::NotSupported } else { error }
}

/// The facts that are asked once.
pub(super) fn facts(device: &Device<'_>, info: GpuInfo) -> GpuInfo {
    let threshold = |which| optional(device.temperature_threshold(which));
    GpuInfo {
        clock_sm_max_mhz: optional(device.max_clock_info(Clock::SM)),
        clock_memory_max_mhz: optional(device.max_clock_info(Clock::Memory)),
        slowdown_celsius: threshold(TemperatureThreshold::Slowdown),
        shutdown_celsius: threshold(TemperatureThreshold::Shutdown),
        pcie_gen_max: optional(device.max_pcie_link_gen()),
        pcie_width_max: optional(device.max_pcie_link_width()),
        ecc_enabled: optional(device.is_ecc_enabled()).map(|mode| mode.currently_enabled),
        ..info
    }
}

/// What is remembered of one GPU between its samples.
pub(super) struct Counters<'nvml> {
    /// Holds the readings that are asked rarely, and of the others which are not supported.
    kept: GpuSample,
    samples: u64,
    /// How many NVLinks it has, up or down.
    nvlinks: u32,
    nvlink: Throughput,
    /// Of the GPU and of its MIG slices.
    pub(super) gpm: Gpm<'nvml>,
}

impl<'nvml> Counters<'nvml> {
    /// Of the GPU at `index`.
    pub(super) fn new(index: u32) -> Self {
        let unread = || Reading::failed(NOT_YET);
        let kept = GpuSample {
            pcie_rx_bytes_per_s: Reading::failed(NOT_YET),
            pcie_tx_bytes_per_s: Reading::failed(NOT_YET),
            fan_percent: unread(),
            encoder_percent: unread(),
            decoder_percent: unread(),
            pcie_gen: unread(),
            pcie_width: unread(),
            ..GpuSample::unknown(index)
        };
        Self { kept, samples: 0, nvlinks: 0, nvlink: Throughput::default(), gpm: Gpm::default() }
    }

    /// A sample that holds these values and nothing else. `mig`: the GPU is cut into slices.
    pub(super) fn sample(
        &mut self,
        nvml: &'nvml Nvml,
        device: &Device<'nvml>,
        mig: bool,
        clock: &HostClock,
    ) -> GpuSample {
        let turn = (self.samples + u64::from(self.kept.index)).is_multiple_of(RARELY);
        if turn || self.samples == 0 {
            self.ask_rarely(device);
        }
        if turn {
            self.ask_throughput(device);
        }
        self.samples += 1;
        let kept = &mut self.kept;
        again(&mut kept.fan_percent, || device.fan_speed(0).map_err(no_fan));
        again(&mut kept.encoder_percent, || device.encoder_utilization().map(|info| info.utilization));
        again(&mut kept.decoder_percent, || device.decoder_utilization().map(|info| info.utilization));
        again(&mut kept.pcie_gen, || device.current_pcie_link_gen());
        again(&mut kept.pcie_width, || device.current_pcie_link_width());
        let [received, sent] = self.nvlink.sample(device, self.nvlinks, clock);
        let [sm, tensor, dram] = self.gpm.of_whole(nvml, device, mig);
        GpuSample {
            nvlink_rx_bytes_per_s: received,
            nvlink_tx_bytes_per_s: sent,
            sm_active_percent: sm,
            tensor_active_percent: tensor,
            dram_active_percent: dram,
            ..self.kept.clone()
        }
    }

    fn ask_rarely(&mut self, device: &Device<'_>) {
        let kept = &mut self.kept;
        kept.persistence = optional(device.is_in_persistent_mode());
        let [
            ecc_corrected,
            ecc_uncorrected,
            retired_single,
            retired_double,
            pages,
            remap,
            remap_failed,
            links,
            crc,
            replay,
            recovery,
            energy,
        ] = field_values(device);
        kept.ecc_corrected = ecc_corrected;
        kept.ecc_uncorrected = ecc_uncorrected;
        kept.pages_retired = sum([retired_single, retired_double]);
        kept.pages_pending = pages.map(|pending| pending > 0);
        kept.row_remap_pending = remap.map(|pending| pending > 0);
        kept.row_remap_failed = remap_failed.map(|failed| failed > 0);
        self.nvlinks = links.value().map_or(0, |count| (*count).min(NVLINKS) as u32);
        kept.nvlink_errors = match &links {
            Reading::Value(0) => Reading::Unsupported,
            _ => sum([crc, replay, recovery]),
        };
        let links = match links {
            Reading::Value(0) => Reading::Unsupported,
            links => links.map(|count| count.min(NVLINKS)),
        };
        kept.nvlink_count = links.clone().map(|count| count as u32);
        kept.nvlink_active = links.and_then(|count| active_links(device, count));
        kept.energy_mj = energy;
    }

    fn ask_throughput(&mut self, device: &Device<'_>) {
        let read = |counter| optional(device.pcie_throughput(counter)).map(|kib| u64::from(kib) * 1024);
        if self.kept.pcie_rx_bytes_per_s != Reading::Unsupported {
            self.kept.pcie_rx_bytes_per_s = read(PcieUtilCounter::Receive);
            self.kept.pcie_tx_bytes_per_s = read(PcieUtilCounter::Send);
        }
    }
}

/// Asks once more, unless the GPU has no such value.
fn again<T>(kept: &mut Reading<T>, ask: impl FnOnce() -> Result<T, NvmlError>) {
    if !matches!(kept, Reading::Unsupported) {
        *kept = optional(ask());
    }
}

fn field_values(device: &Device<'_>) -> [Reading<u64>; FIELDS.len()] {
    match device.field_values_for(&FIELDS.map(FieldId)) {
        Ok(values) => {
            let mut values = values.into_iter().map(|value| optional(value.and_then(|value| value.value)));
            std::array::from_fn(|_| values.next().map_or(Reading::Unsupported, whole))
        }
        Err(error) => {
            let all = optional(Err(error));
            std::array::from_fn(|_| all.clone())
        }
    }
}

pub(super) fn whole(value: Reading<SampleValue>) -> Reading<u64> {
    let value = match value {
        Reading::Value(value) => value,
        Reading::Failed { error } => return Reading::Failed { error },
        Reading::Unsupported => return Reading::Unsupported,
    };
    match value {
        SampleValue::U32(value) => Reading::Value(u64::from(value)),
        SampleValue::U64(value) => Reading::Value(value),
        SampleValue::I64(value) => u64::try_from(value)
            .map_or_else(|_| Reading::failed(format!("the driver says {value}")), Reading::Value),
        SampleValue::F64(value) => Reading::failed(format!("the driver says {value}")),
    }
}

/// The sum of what the GPU tells; unsupported where it tells none of them.
pub(super) fn sum(readings: impl IntoIterator<Item = Reading<u64>>) -> Reading<u64> {
    let mut sum = Reading::Unsupported;
    for reading in readings {
        sum = match (sum, reading) {
            (failed @ Reading::Failed { .. }, _) | (_, failed @ Reading::Failed { .. }) => return failed,
            (Reading::Value(a), Reading::Value(b)) => Reading::Value(a.saturating_add(b)),
            (one, Reading::Unsupported) | (Reading::Unsupported, one) => one,
        };
    }
    sum
}

/// How many of the first `count` links are up.
fn active_links(device: &Device<'_>, count: u64) -> Reading<u32> {
    let links = (0..count as u32).map(|link| device.link_wrapper_for(link).is_active());
    let active = links.map(|active| active.map(u32::from)).sum::<Result<u32, NvmlError>>();
    optional(active)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_knows_what_it_lacks() {
        let value = Reading::Value;
        assert_eq!(sum([value(2), Reading::Unsupported, value(3)]), value(5));
        assert_eq!(sum([Reading::Unsupported, Reading::Unsupported]), Reading::Unsupported);
        assert_eq!(sum([value(2), Reading::failed("lost")]), Reading::failed("lost"));
    }
}
