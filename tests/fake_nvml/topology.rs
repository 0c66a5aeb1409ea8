//! How the GPUs are connected, and what happens to them.

use std::ffi::{c_uint, c_ulong};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nvml_wrapper_sys::bindings::*;

use crate::script::{self, Gpu};
use crate::{Outcome, bytes_of, code, gpu, put};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    from: nvmlDevice_t,
    to: nvmlDevice_t,
    level: *mut nvmlGpuTopologyLevel_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetTopologyCommonAncestor", "topology", from, |script, from, _| {
        let to = (to as usize).checked_sub(1).and_then(|index| script.gpus.get(index));
        let to = to.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        let same = from.place.iter().zip(&to.place).take_while(|(one, other)| one == other).count();
        let value = match same {
            0 => nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM,
            1 => nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE,
            2 => nvmlGpuLevel_enum_NVML_TOPOLOGY_HOSTBRIDGE,
            _ => nvmlGpuLevel_enum_NVML_TOPOLOGY_SINGLE,
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(level, value) }
    })
}

/// Where a link leads: another GPU, or a switch.
fn other_end(gpu: &Gpu, link: c_uint) -> Result<Option<usize>, nvmlReturn_t> {
    if link >= gpu.nvlinks {
        return Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    }
    Ok(gpu.nvlink_to.get(link as usize).copied())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: nvmlDevice_t,
    link: c_uint,
    kind: *mut nvmlIntNvLinkDeviceType_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetNvLinkRemoteDeviceType", "nvlink", device, |_, gpu, _| {
        let value = match other_end(gpu, link)? {
            Some(_) => nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
            None => nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(kind, value) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: nvmlDevice_t,
    link: c_uint,
    pci: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvlink", device, |script, gpu, _| {
        let other = other_end(gpu, link)?.and_then(|index| Some((index, script.gpus.get(index)?)));
        let address = other.map_or_else(|| "00000000:F0:00.0".to_owned(), |(index, gpu)| gpu.pci(index));
        let info = nvmlPciInfo_t {
            busIdLegacy: bytes_of(address.get(4..).unwrap_or_default()),
            domain: 0,
            bus: script::pci_bus(&address),
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: bytes_of(&address),
        };
        // SAFETY: the caller's pointer is for writing.
        unsafe { put(pci, info) }
    })
}

/// Writes words into a set of `size` words.
///
/// # Safety
/// `set` is null or has `size` words.
unsafe fn put_words(set: *mut c_ulong, size: c_uint, words: &[u64]) -> Outcome {
    for at in 0..size as usize {
        // SAFETY: the caller's promise.
        unsafe { put(set.wrapping_add(at), words.get(at).copied().unwrap_or_default())? };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCpuAffinity(
    device: nvmlDevice_t,
    size: c_uint,
    set: *mut c_ulong,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetCpuAffinity", "affinity", device, |_, gpu, _| {
        // SAFETY: the caller's array is as long as it says.
        unsafe { put_words(set, size, &gpu.cpus) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: nvmlDevice_t,
    size: c_uint,
    set: *mut c_ulong,
    _scope: nvmlAffinityScope_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceGetMemoryAffinity", "affinity", device, |_, gpu, _| {
        // SAFETY: the caller's array is as long as it says.
        unsafe { put_words(set, size, &[1 << gpu.place[0]]) }
    })
}

/// The GPUs of an event set.
struct EventSet {
    registered: Mutex<Vec<usize>>,
}

/// How many of the script's events were delivered.
static DELIVERED: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    let empty = Box::into_raw(Box::new(EventSet { registered: Mutex::default() }));
    // SAFETY: the caller's pointer is for writing.
    code(unsafe { put(set, empty.cast()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlEventSetFree(set: nvmlEventSet_t) -> nvmlReturn_t {
    if !set.is_null() {
        // SAFETY: it comes from `nvmlEventSetCreate`, and nothing uses it any more.
        drop(unsafe { Box::from_raw(set.cast::<EventSet>()) });
    }
    nvmlReturn_enum_NVML_SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    _types: u64,
    set: nvmlEventSet_t,
) -> nvmlReturn_t {
    gpu("nvmlDeviceRegisterEvents", "events", device, |_, _, index| {
        // SAFETY: it comes from `nvmlEventSetCreate`.
        let set = unsafe { set.cast::<EventSet>().as_ref() };
        let set = set.ok_or(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)?;
        set.registered.lock().map_err(|_| nvmlReturn_enum_NVML_ERROR_UNKNOWN)?.push(index);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    const LOOK: u32 = 5;
    // SAFETY: it comes from `nvmlEventSetCreate`.
    let Some(set) = (unsafe { set.cast::<EventSet>().as_ref() }) else {
        return nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    };
    let mut left = timeout_ms;
    loop {
        let script = script::once_it_answers("nvmlEventSetWait_v2", None);
        let registered = set.registered.lock().map_or_else(|_| Vec::new(), |list| list.clone());
        if registered.iter().any(|index| script.gpus.get(*index).is_some_and(|gpu| gpu.lost)) {
            return nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST;
        }
        let next = script.events.get(DELIVERED.load(Ordering::SeqCst));
        if let Some(event) = next {
            DELIVERED.fetch_add(1, Ordering::SeqCst);
            if registered.contains(&event.gpu) {
                let (kind, value) = event.told();
                let told = nvmlEventData_t {
                    device: std::ptr::without_provenance_mut(event.gpu + 1),
                    eventType: u64::from(kind),
                    eventData: value,
                    gpuInstanceId: u32::MAX,
                    computeInstanceId: u32::MAX,
                };
                // SAFETY: the caller's pointer is for writing.
                return code(unsafe { put(data, told) });
            }
            continue;
        }
        if left == 0 {
            return nvmlReturn_enum_NVML_ERROR_TIMEOUT;
        }
        std::thread::sleep(Duration::from_millis(u64::from(LOOK.min(left))));
        left = left.saturating_sub(LOOK);
    }
}
