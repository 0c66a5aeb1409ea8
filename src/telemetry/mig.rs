//! MIG slices of a GPU through NVML: which there are, and what it tells of each. That is memory, processes and, by GPM, how
//! active it is; utilisation, power and the like are told of the whole GPU, if at all.
//!
//! Any call in here may block for ever on a broken GPU, so only the GPU's own thread calls it.

use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{Device, Nvml};

use super::gpm::{Activity, Gpm};
use super::nvml::{memory, processes, unreadable, words};
use crate::domain::gpu::mig::{MigInstance, slice_index};
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::ids::GpuUuid;

/// More slices than these are no GPU's.
const MOST: u32 = 64;

/// A slice: NVML's number of it, and its device.
pub(super) type Slice<'nvml> = (u32, Device<'nvml>);
/// The slices of a GPU; `None` where MIG mode is off.
pub(super) type Cut<'nvml> = Option<Vec<Slice<'nvml>>>;

/// Whether MIG mode is on, and the slices where it is. A GPU that can't be cut, or whose driver is older than MIG, has no such
/// mode.
pub(super) fn read<'nvml>(device: &Device<'nvml>) -> (Reading<bool>, Result<Cut<'nvml>, NvmlError>) {
    match device.mig_mode() {
        Ok(mode) if mode.current == 1 => (Reading::Value(true), slices(device).map(Some)),
        Ok(_) => (Reading::Value(false), Ok(None)),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
            (Reading::Unsupported, Ok(None))
        }
        Err(error) => (Reading::Unsupported, Err(error)),
    }
}

fn slices<'nvml>(device: &Device<'nvml>) -> Result<Vec<Slice<'nvml>>, NvmlError> {
    let mut slices = Vec::new();
    for number in 0..device.mig_device_count()?.min(MOST) {
        match device.mig_device_by_index(number) {
            Ok(slice) => slices.push((number, slice)),
            // No slice has this number, or it is another user's.
            Err(NvmlError::NotFound | NvmlError::InvalidArg | NvmlError::NoPermission) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(slices)
}

/// The facts of a slice of the GPU at `gpu`.
pub(super) fn info(nvml: &Nvml, gpu: u32, (number, slice): &Slice<'_>) -> GpuInfo {
    let index = slice_index(gpu, *number);
    let parent = Some(gpu);
    let named = slice.uuid().and_then(|uuid| Ok((GpuUuid::from(uuid), slice.name()?)));
    match named {
        Ok((uuid, name)) => GpuInfo {
            uuid,
            name,
            memory_total: memory(nvml, slice).map(|memory| memory.total),
            parent,
            instance: Some(instance(slice)),
            ..GpuInfo::unknown(index)
        },
        Err(error) => GpuInfo { parent, ..unreadable(index, &words(&error)) },
    }
}

/// The live values of the slices of the GPU at an index.
pub(super) fn samples<'nvml>(
    nvml: &'nvml Nvml,
    (gpu, device): (u32, &Device<'nvml>),
    slices: &[Slice<'nvml>],
    gpm: &mut Gpm<'nvml>,
) -> Vec<GpuSample> {
    let instances: Vec<Option<u32>> = slices.iter().map(|(_, slice)| gpu_instance(slice)).collect();
    let activities = gpm.of_slices(nvml, device, &instances);
    slices.iter().zip(activities).map(|(slice, activity)| sample(nvml, gpu, slice, activity)).collect()
}

fn sample(nvml: &Nvml, gpu: u32, (number, slice): &Slice<'_>, activity: Activity) -> GpuSample {
    let memory = memory(nvml, slice);
    let [sm_active_percent, tensor_active_percent, dram_active_percent] = activity;
    GpuSample {
        sm_active_percent,
        tensor_active_percent,
        dram_active_percent,
        memory_used: memory.clone().map(|memory| memory.used),
        memory_total: memory.map(|memory| memory.total),
        processes: processes(slice, |_| Reading::Unsupported),
        ..GpuSample::unknown(slice_index(gpu, *number))
    }
}

/// What a slice is made of, as far as the driver tells.
fn instance(slice: &Device<'_>) -> MigInstance {
    let attributes = slice.attributes().ok();
    let lib = slice.nvml().lib();
    MigInstance {
        gpu_instance: gpu_instance(slice),
        compute_instance: id(slice, lib.nvmlDeviceGetComputeInstanceId.as_ref().ok()),
        gpu_slices: attributes.as_ref().map(|all| all.gpu_instance_slice_count),
        compute_slices: attributes.as_ref().map(|all| all.compute_instance_slice_count),
        multiprocessors: attributes.as_ref().map(|all| all.multiprocessor_count),
    }
}

fn gpu_instance(slice: &Device<'_>) -> Option<u32> {
    id(slice, slice.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref().ok())
}

/// A query for an id, as the library has it.
type IdQuery = unsafe extern "C" fn(
    nvml_wrapper_sys::bindings::nvmlDevice_t,
    *mut std::ffi::c_uint,
) -> nvml_wrapper_sys::bindings::nvmlReturn_t;

#[expect(unsafe_code, reason = "functions of the library that the wrapper loads and does not call")]
fn id(slice: &Device<'_>, query: Option<&IdQuery>) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the handle is of this session, and the function writes one number.
    nvml_try(unsafe { query?(slice.handle(), &raw mut id) }).ok()?;
    Some(id)
}

/// Whether these are the slices that are known, by their numbers and names.
pub(super) fn are_known(gpu: u32, slices: Option<&[Slice<'_>]>, known: &[GpuInfo]) -> bool {
    let Some((whole, known)) = known.split_first() else { return false };
    let same = |((number, slice), info): (&Slice<'_>, &GpuInfo)| {
        info.index == slice_index(gpu, *number) && slice.uuid().is_ok_and(|uuid| uuid == info.uuid.as_str())
    };
    match slices {
        None => whole.slices.is_none(),
        Some(slices) => {
            whole.slices.is_some() && slices.len() == known.len() && slices.iter().zip(known).all(same)
        }
    }
}
