//! What NVML tells beyond the values of each second: thresholds, links, counters, GPM.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::*;

use crate::script::{Gpu, Script, Series};
use crate::{Outcome, gpu, mig, put};

/// A number of one GPU; `None` is one that the GPU does not have.
fn number(
    function: &str,
    field: &'static str,
    device: nvmlDevice_t,
    target: *mut c_uint,
    value: impl Fn(&Script, &Gpu, usize) -> Option<u32>,
) -> nvmlReturn_t {
    gpu(function, field, device, |script, gpu, index| {
        let value = value(script, gpu, index).ok_or(nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED)?;
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(target, value) }
    })
}

fn walked(script: &Script, series: Option<&Series>, index: usize, field: &'static str) -> Option<u32> {
    series.map(|series| script.small(series, index, field))
}

fn state(on: bool) -> nvmlEnableState_t {
    if on { nvmlEnableState_enum_NVML_FEATURE_ENABLED } else { nvmlEnableState_enum_NVML_FEATURE_DISABLED }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: nvmlDevice_t,
    clock: nvmlClockType_t,
    mhz: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetMaxClockInfo", "clock_max", device, mhz, |_, gpu, _| {
        let memory = clock == nvmlClockType_enum_NVML_CLOCK_MEM;
        Some(if memory { gpu.clock_memory_max_mhz } else { gpu.clock_sm_max_mhz })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetTemperatureThreshold(
    device: nvmlDevice_t,
    threshold: nvmlTemperatureThresholds_t,
    celsius: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetTemperatureThreshold", "threshold", device, celsius, |_, gpu, _| {
        let shutdown = threshold == nvmlTemperatureThresholds_enum_NVML_TEMPERATURE_THRESHOLD_SHUTDOWN;
        Some(if shutdown { gpu.shutdown } else { gpu.slowdown })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetFanSpeed_v2(
    device: nvmlDevice_t,
    _fan: c_uint,
    percent: *mut c_uint,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetFanSpeed_v2", "fan", device, |script, gpu, index| {
        // as the H200's driver 580 says it
        let percent_now = walked(script, gpu.fan.as_ref(), index, "fan");
        let percent_now = percent_now.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(percent, percent_now) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetEncoderUtilization(
    device: nvmlDevice_t,
    percent: *mut c_uint,
    _period: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetEncoderUtilization", "encoder", device, percent, |script, gpu, index| {
        walked(script, Some(&gpu.encoder), index, "encoder")
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetDecoderUtilization(
    device: nvmlDevice_t,
    percent: *mut c_uint,
    _period: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetDecoderUtilization", "decoder", device, percent, |script, gpu, index| {
        walked(script, Some(&gpu.decoder), index, "decoder")
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetEccMode(
    device: nvmlDevice_t,
    current: *mut nvmlEnableState_t,
    pending: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetEccMode", "ecc", device, |_, gpu, _| {
        // SAFETY: the caller's pointers are for writing.
        unsafe { put(current, state(gpu.ecc)).and_then(|()| put(pending, state(gpu.ecc))) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(
    device: nvmlDevice_t,
    to: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_link", device, to, |script, gpu, index| {
        walked(script, Some(&gpu.pcie_gen), index, "pcie_gen")
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(
    device: nvmlDevice_t,
    to: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetCurrPcieLinkWidth", "pcie_link", device, to, |_, gpu, _| Some(gpu.pcie_width))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(
    device: nvmlDevice_t,
    to: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetMaxPcieLinkGeneration", "pcie_link", device, to, |_, _, _| Some(5))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(
    device: nvmlDevice_t,
    to: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetMaxPcieLinkWidth", "pcie_link", device, to, |_, _, _| Some(16))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetPcieThroughput(
    device: nvmlDevice_t,
    counter: nvmlPcieUtilCounter_t,
    kib: *mut c_uint,
) -> nvmlReturn_t {
    number("nvmlDeviceGetPcieThroughput", "pcie_throughput", device, kib, |script, gpu, index| {
        let received = counter == nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_RX_BYTES;
        let (series, field) = if received { (&gpu.pcie_rx_kib, "rx") } else { (&gpu.pcie_tx_kib, "tx") };
        walked(script, Some(series), index, field)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetPersistenceMode(
    device: nvmlDevice_t,
    mode: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    number("nvmlDeviceGetPersistenceMode", "persistence", device, mode, |_, gpu, _| {
        Some(state(gpu.persistence))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetNvLinkState(
    device: nvmlDevice_t,
    link: c_uint,
    active: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    number("nvmlDeviceGetNvLinkState", "nvlink", device, active, |_, gpu, _| {
        (link < gpu.nvlinks).then(|| state(link >= gpu.nvlinks_down))
    })
}

/// Counters by their number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetFieldValues", "fields", device, |_, gpu, _| {
        if values.is_null() {
            return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller's array has as many entries as its count says.
            let value = unsafe { &mut *values.add(at) };
            match counter(gpu, value.fieldId, value.scopeId) {
                Some(number) => {
                    value.nvmlReturn = nvmlReturn_enum_NVML_SUCCESS;
                    value.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
                    value.value = nvmlValue_t { ullVal: number };
                }
                None => value.nvmlReturn = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            }
        }
        Ok(())
    })
}

fn counter(gpu: &Gpu, field: u32, scope: u32) -> Option<u64> {
    use field_id as id;
    let ecc = |errors: u64| gpu.ecc.then_some(errors);
    let [crc, replay, recovery] = gpu.nvlink_errors;
    let nvlink = |errors: u64| (gpu.nvlinks > 0).then_some(errors);
    let link = |kib: u64| (gpu.nvlinks_down..gpu.nvlinks).contains(&scope).then_some(kib);
    match field {
        id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL => ecc(gpu.ecc_corrected),
        id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL => ecc(gpu.ecc_uncorrected),
        id::NVML_FI_DEV_RETIRED_SBE => gpu.pages_retired.map(|[single, _]| single),
        id::NVML_FI_DEV_RETIRED_DBE => gpu.pages_retired.map(|[_, double]| double),
        id::NVML_FI_DEV_RETIRED_PENDING => gpu.pages_retired.map(|_| u64::from(gpu.pages_pending)),
        id::NVML_FI_DEV_REMAPPED_PENDING => Some(u64::from(gpu.remap_pending)),
        id::NVML_FI_DEV_REMAPPED_FAILURE => Some(u64::from(gpu.remap_failed)),
        id::NVML_FI_DEV_NVLINK_LINK_COUNT => Some(u64::from(gpu.nvlinks)),
        id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL => nvlink(crc),
        id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL => nvlink(replay),
        id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL => nvlink(recovery),
        id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX => link(gpu.nvlink_rx_kib),
        id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX => link(gpu.nvlink_tx_kib),
        id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION => Some(gpu.energy_mj),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmQueryDeviceSupport(
    device: nvmlDevice_t,
    support: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    gpu("nvmlGpmQueryDeviceSupport", "gpm", device, |_, gpu, _| {
        let has = c_uint::from(gpu.gpm.is_some());
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(support, nvmlGpmSupport_t { version: 1, isSupportedDevice: has }) }
    })
}

/// A sample: whether it was taken, and what of.
struct Sample {
    metrics: Option<[f64; 3]>,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let empty = Box::into_raw(Box::new(Sample { metrics: None }));
    // SAFETY: the caller's pointer is for writing.
    crate::code(unsafe { put(sample, empty.cast()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    if !sample.is_null() {
        // SAFETY: it comes from `nvmlGpmSampleAlloc`, and nothing uses it any more.
        drop(unsafe { Box::from_raw(sample.cast::<Sample>()) });
    }
    nvmlReturn_enum_NVML_SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmSampleGet(
    device: nvmlDevice_t,
    sample: nvmlGpmSample_t,
) -> nvmlReturn_t {
    gpu("nvmlGpmSampleGet", "gpm_sample", device, |_, gpu, _| {
        // SAFETY: it comes from `nvmlGpmSampleAlloc`.
        let sample = unsafe { sample.cast::<Sample>().as_mut() };
        sample.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?.metrics = gpu.gpm;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmMigSampleGet(
    device: nvmlDevice_t,
    instance: c_uint,
    sample: nvmlGpmSample_t,
) -> nvmlReturn_t {
    gpu("nvmlGpmMigSampleGet", "gpm_sample", device, |_, gpu, _| {
        let mut slices = mig::told(gpu).into_iter().filter(|_| gpu.gpm.is_some());
        let slice = slices.find(|(_, slice)| slice.instance[0] == instance);
        // SAFETY: it comes from `nvmlGpmSampleAlloc`.
        let sample = unsafe { sample.cast::<Sample>().as_mut() };
        let (Some((_, slice)), Some(sample)) = (slice, sample) else {
            return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        };
        sample.metrics = Some(slice.gpm);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller's struct, with samples of `nvmlGpmSampleAlloc`.
    let outcome = unsafe { request.as_mut() }.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    crate::code(outcome.and_then(|request| {
        // SAFETY: as above.
        let (first, second) =
            unsafe { (request.sample1.cast::<Sample>().as_ref(), request.sample2.cast::<Sample>().as_ref()) };
        metrics(request, first, second)
    }))
}

fn metrics(request: &mut nvmlGpmMetricsGet_t, first: Option<&Sample>, second: Option<&Sample>) -> Outcome {
    let taken = |sample: Option<&Sample>| {
        sample.and_then(|sample| sample.metrics).ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)
    };
    taken(first)?;
    let [sm, tensor, dram] = taken(second)?;
    let known = [
        (nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL, sm),
        (nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL, tensor),
        (nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL, dram),
    ];
    for metric in request.metrics.iter_mut().take(request.numMetrics as usize) {
        let value = known.iter().find(|(id, _)| *id == metric.metricId).map(|(_, value)| *value);
        metric.nvmlReturn = match value {
            Some(_) => nvmlReturn_enum_NVML_SUCCESS,
            None => nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        };
        metric.value = value.unwrap_or_default();
    }
    Ok(())
}
