//! A scripted `libnvidia-ml.so.1` for tests and demos: NVML's C functions, answered from a JSON file.
//!
//! The script is the file that `FAKE_NVML_SCRIPT` names, or else `fake_nvml.json` beside this library, so that
//! several scripted libraries can live in one process as copies in folders of their own. It is read again
//! whenever it changes, so a test moves the values under a running sampler. See `script.rs` for what it may say.
//!
//! Knows nothing of hvtui: it is loaded through the real `nvml-wrapper`, and only what that calls is exported.

#![expect(unsafe_code, reason = "this is a C library: exported functions and the caller's pointers")]
#![expect(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "each function is the one of its name in nvml.h, and has its contract"
)]
#![expect(clippy::wildcard_imports, reason = "half of the file is names of NVML's header")]

mod counters;
mod cuda;
mod mig;
mod script;
mod topology;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use nvml_wrapper_sys::bindings::*;
use script::{Gpu, Process, Script};

type Outcome = Result<(), nvmlReturn_t>;

/// How often the library is initialised, as NVML counts it.
static OPEN: AtomicU32 = AtomicU32::new(0);

fn code(outcome: Outcome) -> nvmlReturn_t {
    outcome.err().unwrap_or(nvmlReturn_enum_NVML_SUCCESS)
}

/// Runs a query of the whole library.
fn system(function: &str, needs_init: bool, answer: impl FnOnce(&Script) -> Outcome) -> nvmlReturn_t {
    if needs_init && OPEN.load(Ordering::SeqCst) == 0 {
        return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
    }
    let script = script::once_it_answers(function, None);
    code(answer(&script))
}

/// Runs a query of one GPU: `field` is its name in the script's `errors`.
fn gpu(
    function: &str,
    field: &'static str,
    device: nvmlDevice_t,
    answer: impl FnOnce(&Script, &Gpu, usize) -> Outcome,
) -> nvmlReturn_t {
    if OPEN.load(Ordering::SeqCst) == 0 {
        return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
    }
    if mig::of(device).is_some() {
        return nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
    }
    // A handle is the GPU's index plus one.
    let Some(index) = (device as usize).checked_sub(1) else {
        return nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    };
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
    code(match gpu.errors.get(field) {
        Some(error) => Err(script::error_code(error)),
        None => answer(&script, gpu, index),
    })
}

/// One line, in one write, so that the calls of several threads do not mix.
fn count_call(path: &std::path::Path, function: &str, index: usize) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // A count that is short is seen by the test that reads it.
    let _ = file.and_then(|mut file| file.write_all(format!("{function}:{index}\n").as_bytes()));
}

/// Writes `value` where the caller wants it.
///
/// # Safety
/// `target` is null or may be written.
unsafe fn put<T>(target: *mut T, value: T) -> Outcome {
    if target.is_null() {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { target.write(value) };
    Ok(())
}

/// Writes `text` and its final zero into a buffer of `length` bytes.
///
/// # Safety
/// `buffer` is null or has `length` bytes.
unsafe fn put_text(buffer: *mut c_char, length: c_uint, text: &str) -> Outcome {
    if buffer.is_null() {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for the text and one byte more, and two live objects do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

fn bytes_of<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    system("nvmlInit_v2", false, |script| {
        if let Some(error) = &script.init {
            return Err(script::error_code(error));
        }
        OPEN.fetch_add(1, Ordering::SeqCst);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    match OPEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| open.checked_sub(1)) {
        Ok(_) => nvmlReturn_enum_NVML_SUCCESS,
        Err(_) => nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    system("nvmlSystemGetDriverVersion", true, |script| {
        // SAFETY: the caller's buffer has the length that it says.
        unsafe { put_text(version, length, &script.driver) }
    })
}

/// The one query that works without initialisation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    system("nvmlSystemGetNVMLVersion", false, |script| {
        let text = format!("{}.{}", script.cuda / 1000, script.library.as_ref().unwrap_or(&script.driver));
        // SAFETY: the caller's buffer has the length that it says.
        unsafe { put_text(version, length, &text) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the caller's pointer is for writing.
    system("nvmlSystemGetCudaDriverVersion_v2", true, |script| unsafe { put(version, script.cuda) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    system("nvmlDeviceGetCount_v2", true, |script| {
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(count, script.gpus.len() as c_uint) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    system("nvmlDeviceGetHandleByIndex_v2", true, |script| {
        if index as usize >= script.gpus.len() {
            return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: the caller's pointer is for writing. The handle is a number that nothing reads through.
        unsafe { put(device, std::ptr::without_provenance_mut(index as usize + 1)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(
    device: nvmlDevice_t,
    name: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    if let Some(of) = mig::of(device) {
        return mig::slice("nvmlDeviceGetName", of, |gpu, slice| {
            // SAFETY: the caller's buffer has the length that it says.
            unsafe { put_text(name, length, &format!("{} MIG {}", gpu.name, slice.profile)) }
        });
    }
    // SAFETY: the caller's buffer has the length that it says.
    gpu("nvmlDeviceGetName", "name", device, |_, gpu, _| unsafe { put_text(name, length, &gpu.name) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(
    device: nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> nvmlReturn_t {
    if let Some(of) = mig::of(device) {
        return mig::slice("nvmlDeviceGetUUID", of, |_, slice| {
            // SAFETY: the caller's buffer has the length that it says.
            unsafe { put_text(uuid, length, &slice.uuid(of.0, of.1)) }
        });
    }
    gpu("nvmlDeviceGetUUID", "uuid", device, |_, gpu, index| {
        // SAFETY: the caller's buffer has the length that it says.
        unsafe { put_text(uuid, length, &gpu.uuid(index)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(
    device: nvmlDevice_t,
    pci: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetPciInfo_v3", "pci", device, |_, gpu, index| {
        let address = gpu.pci(index);
        let info = nvmlPciInfo_t {
            // The old form has a domain of four digits.
            busIdLegacy: bytes_of(address.get(4..).unwrap_or_default()),
            domain: 0,
            bus: script::pci_bus(&address),
            device: 0,
            pciDeviceId: 0x2335_10de,
            pciSubSystemId: 0x18be_10de,
            busId: bytes_of(&address),
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(pci, info) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetMigMode", "mig", device, |_, gpu, _| {
        let mode = if gpu.mig { NVML_DEVICE_MIG_ENABLE } else { NVML_DEVICE_MIG_DISABLE };
        // SAFETY: the caller's pointers are for writing.
        unsafe { put(current, mode).and_then(|()| put(pending, mode)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    rates: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetUtilizationRates", "util", device, |script, gpu, index| {
        let memory = script.small(&gpu.util_memory, index, "util_memory");
        let value = nvmlUtilization_t { gpu: script.small(&gpu.util, index, "util"), memory };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(rates, value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    let told = |total: u64, used: u64| nvmlMemory_v2_t {
        version: (size_of::<nvmlMemory_v2_t>() | (2 << 24)) as c_uint,
        total,
        reserved: 0,
        free: total.saturating_sub(used),
        used,
    };
    if let Some(of) = mig::of(device) {
        return mig::slice("nvmlDeviceGetMemoryInfo_v2", of, |_, slice| {
            // SAFETY: the caller's pointer is for writing.
            unsafe { put(memory, told(slice.memory_total, slice.memory_used)) }
        });
    }
    gpu("nvmlDeviceGetMemoryInfo_v2", "memory", device, |script, gpu, index| {
        let used = script.value(&gpu.memory_used, index, "memory");
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(memory, told(gpu.memory_total, used)) }
    })
}

/// The query of drivers before 510.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetMemoryInfo", "memory_v1", device, |script, gpu, index| {
        let used = script.value(&gpu.memory_used, index, "memory");
        let value =
            nvmlMemory_t { total: gpu.memory_total, free: gpu.memory_total.saturating_sub(used), used };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(memory, value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetTemperature", "temperature", device, |script, gpu, index| {
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(celsius, script.small(&gpu.temperature, index, "temperature")) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power: *mut c_uint) -> nvmlReturn_t {
    gpu("nvmlDeviceGetPowerUsage", "power", device, |script, gpu, index| {
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(power, script.small(&gpu.power_mw, index, "power")) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    device: nvmlDevice_t,
    limit: *mut c_uint,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetEnforcedPowerLimit", "power_limit", device, |_, gpu, _| {
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(limit, gpu.power_limit_mw) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: nvmlDevice_t,
    clock: nvmlClockType_t,
    mhz: *mut c_uint,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetClockInfo", "clock", device, |script, gpu, index| {
        let value = if clock == nvmlClockType_enum_NVML_CLOCK_MEM {
            gpu.clock_memory_mhz
        } else {
            script.small(&gpu.clock_sm_mhz, index, "clock")
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(mhz, value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPerformanceState(
    device: nvmlDevice_t,
    state: *mut nvmlPstates_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's pointer is for writing.
    gpu("nvmlDeviceGetPerformanceState", "pstate", device, |_, gpu, _| unsafe { put(state, gpu.pstate) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: nvmlDevice_t,
    reasons: *mut c_ulonglong,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetCurrentClocksThrottleReasons", "throttle", device, |_, gpu, _| {
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(reasons, gpu.throttle) }
    })
}

/// Fills a list of processes as NVML does: a list that is too short is an error that tells the length.
///
/// # Safety
/// `count` is null or may be written; `list` has as many entries as `count` says.
unsafe fn put_processes(
    wanted: impl Iterator<Item = Process>,
    count: *mut c_uint,
    list: *mut nvmlProcessInfo_t,
) -> Outcome {
    if count.is_null() {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    let wanted: Vec<Process> = wanted.collect();
    // SAFETY: checked above, and the caller's promise.
    let room = unsafe { count.replace(wanted.len() as c_uint) } as usize;
    if wanted.len() > room {
        return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    for (at, process) in wanted.iter().enumerate() {
        let info = nvmlProcessInfo_t {
            pid: process.pid(),
            usedGpuMemory: process.memory.unwrap_or(u64::MAX),
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: `at` is less than the room that the caller has.
        unsafe { put(list.add(at), info)? };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    list: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    if let Some(of) = mig::of(device) {
        return mig::slice("nvmlDeviceGetComputeRunningProcesses_v3", of, |_, slice| {
            // SAFETY: the caller's list is as long as its count.
            unsafe { put_processes(slice.processes.iter().cloned(), count, list) }
        });
    }
    gpu("nvmlDeviceGetComputeRunningProcesses_v3", "processes", device, |_, gpu, _| {
        let of_slices = mig::told(gpu).into_iter().flat_map(|(_, slice)| &slice.processes);
        let own = gpu.processes.iter().filter(|one| !one.graphics);
        // SAFETY: the caller's list is as long as its count.
        unsafe { put_processes(own.chain(of_slices).cloned(), count, list) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    list: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetGraphicsRunningProcesses_v3", "graphics_processes", device, |_, gpu, _| {
        // SAFETY: the caller's list is as long as its count.
        unsafe { put_processes(gpu.processes.iter().filter(|one| one.graphics).cloned(), count, list) }
    })
}

/// The samples since a moment: without a list, the error that tells how many there may be; none is an error of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    list: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    since: c_ulonglong,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetProcessUtilization", "process_utilization", device, |_, gpu, _| {
        if count.is_null() {
            return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
        }
        let used = gpu.processes.iter().filter_map(|one| Some((one.pid(), one.sm?)));
        let recent: Vec<_> = used.filter(|(_, (_, at))| *at > since).collect();
        // SAFETY: checked above, and the caller's pointer is for reading and writing.
        let room = unsafe { count.replace(recent.len() as c_uint) } as usize;
        if recent.is_empty() {
            return Err(nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
        }
        if list.is_null() || recent.len() > room {
            return Err(nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
        }
        for (index, (pid, (percent, at))) in recent.into_iter().enumerate() {
            let sample = nvmlProcessUtilizationSample_t {
                pid,
                timeStamp: at,
                smUtil: percent,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            };
            // SAFETY: `index` is less than the room that the caller has.
            unsafe { put(list.add(index), sample)? };
        }
        Ok(())
    })
}
