//! MIG slices: their handles, and the queries that only they answer.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::*;

use super::{Outcome, code, count_call, gpu, put, script};
use crate::script::{Gpu, Slice};

/// The handle of a slice is `FIRST × (GPU + 1) + number`, and that of a GPU is less.
const FIRST: usize = 1000;

/// The GPU and the number of the slice that a handle is of.
pub(crate) fn of(device: nvmlDevice_t) -> Option<(usize, usize)> {
    let handle = device as usize;
    (handle >= FIRST).then(|| (handle / FIRST - 1, handle % FIRST))
}

/// The slices that a GPU tells, with their numbers.
pub(crate) fn told(gpu: &Gpu) -> Vec<(usize, &Slice)> {
    let slices = gpu.slices.iter().filter(|_| gpu.mig).enumerate();
    slices.filter_map(|(number, slice)| Some((number, slice.as_ref()?))).collect()
}

/// Runs a query of one slice.
pub(crate) fn slice(
    function: &str,
    (index, number): (usize, usize),
    answer: impl FnOnce(&Gpu, &Slice) -> Outcome,
) -> nvmlReturn_t {
    let script = script::once_it_answers(function, Some(index));
    if let Some(path) = &script.calls {
        count_call(path, function, index);
    }
    let Some(gpu) = script.gpus.get(index) else {
        return nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    };
    if gpu.lost {
        return nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;
    }
    match told(gpu).into_iter().find(|(other, _)| *other == number) {
        Some((_, slice)) => code(answer(gpu, slice)),
        // It was there once: its handle leads nowhere.
        None => nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(
    device: nvmlDevice_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the caller's pointer is for writing.
    gpu("nvmlDeviceGetMaxMigDeviceCount", "mig", device, |_, _, _| unsafe { put(count, 7) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    number: c_uint,
    slice: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetMigDeviceHandleByIndex", "mig", device, |_, gpu, index| {
        if !told(gpu).iter().any(|(other, _)| *other == number as usize) {
            return Err(nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
        }
        let handle = FIRST * (index + 1) + number as usize;
        // SAFETY: the caller's pointer is for writing. The handle is a number that nothing is read through.
        unsafe { put(slice, std::ptr::without_provenance_mut(handle)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(
    device: nvmlDevice_t,
    id: *mut c_uint,
) -> nvmlReturn_t {
    let Some(of) = of(device) else { return nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED };
    // SAFETY: the caller's pointer is for writing.
    slice("nvmlDeviceGetGpuInstanceId", of, |_, slice| unsafe { put(id, slice.instance[0]) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeInstanceId(
    device: nvmlDevice_t,
    id: *mut c_uint,
) -> nvmlReturn_t {
    let Some(of) = of(device) else { return nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED };
    // SAFETY: the caller's pointer is for writing.
    slice("nvmlDeviceGetComputeInstanceId", of, |_, slice| unsafe { put(id, slice.instance[1]) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetAttributes_v2(
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> nvmlReturn_t {
    let Some(of) = of(device) else { return nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED };
    slice("nvmlDeviceGetAttributes_v2", of, |_, slice| {
        let told = nvmlDeviceAttributes_t {
            multiprocessorCount: slice.multiprocessors,
            sharedCopyEngineCount: 1,
            sharedDecoderCount: 1,
            sharedEncoderCount: 0,
            sharedJpegCount: 1,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: slice.slices[0],
            computeInstanceSliceCount: slice.slices[1],
            memorySizeMB: slice.memory_total >> 20,
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(attributes, told) }
    })
}
