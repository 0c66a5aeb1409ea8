//! One host's GPUs through NVML: each value, or the driver's own words why there is none.
//!
//! Any call in here may block for ever on a broken GPU, so it is called on threads of its own alone.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{Bits, NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, Utilization};
use nvml_wrapper::{Device, EventSet, Nvml};

use super::absence::{absence, no_device};
use super::counters::{self, Counters};
use super::process_use::ProcessUse;
use super::{HostClock, cuda, mig, process};
use crate::domain::gpu::health::LOST;
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::host::GpuAbsence;
use crate::domain::ids::GpuUuid;

/// What is remembered of a device between its samples.
pub(super) type Memories<'a> = (Counters<'a>, ProcessUse);

/// NVML, initialised, with at least one device.
pub(super) struct Session {
    nvml: Nvml,
    count: u32,
}

impl Session {
    /// Loads the library and counts the devices.
    pub(super) fn open(library: &Path) -> Result<Self, GpuAbsence> {
        let nvml =
            Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| absence(&error, library))?;
        match nvml.device_count() {
            Ok(0) => Err(no_device(nvml.sys_driver_version().ok().as_deref())),
            Ok(count) => Ok(Self { nvml, count }),
            Err(error) => Err(absence(&error, library)),
        }
    }

    /// How many devices there are, readable or not.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The driver's version, `580.95.05`.
    pub(super) fn driver(&self) -> Reading<String> {
        reading(self.nvml.sys_driver_version())
    }

    /// The newest CUDA version that the driver serves, as NVML knows it.
    pub(super) fn cuda_driver(&self) -> Option<String> {
        self.nvml.sys_cuda_driver_version().ok().filter(|&version| version > 0).map(cuda::cuda_text)
    }

    /// What does not change, of the GPU and behind it of its MIG slices. A device that can't be asked keeps its row: its name
    /// says what is wrong, and its UUID is a stand-in that no run can be placed on.
    pub(super) fn infos(&self, index: u32) -> Vec<GpuInfo> {
        let asked = self.nvml.device_by_index(index).and_then(|device| {
            // one that is cut and can't tell its slices now takes no ranks; it is asked again with each sample
            let slices = match mig::read(&device) {
                (Reading::Value(true), Err(_)) => Some(Vec::new()),
                (_, slices) => slices.ok().flatten(),
            };
            let info = GpuInfo {
                uuid: GpuUuid::from(device.uuid()?),
                name: device.name()?,
                pci: reading(device.pci_info()).map(|pci| pci.bus_id),
                memory_total: memory(&self.nvml, &device).map(|memory| memory.total),
                slices: slices.as_ref().map(|slices| slices.len() as u32),
                ..GpuInfo::unknown(index)
            };
            let whole = counters::facts(&device, info);
            let cut = slices.iter().flatten().map(|slice| mig::info(&self.nvml, index, slice));
            Ok(std::iter::once(whole).chain(cut).collect())
        });
        asked.unwrap_or_else(|error| vec![unreadable(index, &words(&error))])
    }

    /// An empty set of events.
    pub(super) fn event_set(&self) -> Result<EventSet<'_>, NvmlError> {
        self.nvml.create_event_set()
    }

    /// The device at `index`, where it can be asked.
    pub(super) fn device(&self, index: u32) -> Option<Device<'_>> {
        self.nvml.device_by_index(index).ok()
    }

    /// The live values of the device at `index`, which `memories` are of, and of its MIG slices; and whether `known`
    /// are no longer the facts of these.
    pub(super) fn samples<'a>(
        &'a self,
        index: u32,
        known: &[GpuInfo],
        memories: &mut Memories<'a>,
        clock: &HostClock,
    ) -> (Vec<GpuSample>, bool) {
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => return (vec![GpuSample::failed(index, &words(&error))], false),
        };
        let (mode, slices) = mig::read(&device);
        let mut whole = live(&self.nvml, &device, mode, memories, clock);
        let Ok(slices) = slices else { return (vec![whole], false) };
        // one that could not be read when it was asked first may tell its facts now
        let is_readable = known.first().is_some_and(|gpu| gpu.uuid.is_readable());
        let changed = !is_readable || !mig::are_known(index, slices.as_deref(), known);
        let cut =
            mig::samples(&self.nvml, (index, &device), &slices.unwrap_or_default(), &mut memories.0.gpm);
        if let Reading::Value(processes) = &mut whole.processes {
            // the driver tells those of the slices of the whole too
            let of_slices = || cut.iter().filter_map(|slice| slice.processes.value()).flatten();
            processes.retain(|process| !of_slices().any(|other| other.pid == process.pid));
        }
        (std::iter::once(whole).chain(cut).collect(), changed)
    }
}

/// The facts of a GPU that can't be asked: its name says why.
pub(super) fn unreadable(index: u32, why: &str) -> GpuInfo {
    let name = format!("unreadable GPU: {why}");
    GpuInfo { name, pci: Reading::failed(why), ..GpuInfo::failed(index, why) }
}

fn live<'a>(
    nvml: &'a Nvml,
    device: &Device<'a>,
    mig: Reading<bool>,
    (counters, uses): &mut Memories<'a>,
    clock: &HostClock,
) -> GpuSample {
    let is_mig = mig == Reading::Value(true);
    let memory = memory(nvml, device);
    let rates = utilisation(device, is_mig);
    GpuSample {
        util: rates.clone().map(|rates| rates.gpu),
        memory_util_percent: rates.map(|rates| rates.memory),
        memory_used: memory.clone().map(|memory| memory.used),
        memory_total: memory.map(|memory| memory.total),
        temperature: reading(device.temperature(TemperatureSensor::Gpu)),
        power_mw: reading(device.power_usage()),
        power_limit_mw: reading(device.enforced_power_limit()),
        clock_sm_mhz: reading(device.clock_info(Clock::SM)),
        clock_memory_mhz: reading(device.clock_info(Clock::Memory)),
        pstate: performance_state(device),
        throttle: throttle(device),
        processes: processes(
            device,
            |device| if is_mig { Reading::Unsupported } else { uses.ask(device, clock) },
        ),
        mig,
        ..counters.sample(nvml, device, is_mig, clock)
    }
}

/// `NotSupported` is a property of the device; everything else is a failure of this time.
fn reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(error) => failed(&error),
    }
}

fn failed<T>(error: &NvmlError) -> Reading<T> {
    match error {
        NvmlError::NotSupported => Reading::Unsupported,
        NvmlError::FailedToLoadSymbol(symbol) => Reading::failed(format!("the driver is too old: {symbol}")),
        other => Reading::failed(words(other)),
    }
}

/// An error in NVML's words, but for a lost GPU.
pub(super) fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::GpuLost => LOST.to_owned(),
        other => other.to_string(),
    }
}

/// A GPU that is cut into MIG slices has no utilisation of its own; some drivers answer 0 all the same.
fn utilisation(device: &Device<'_>, is_mig: bool) -> Reading<Utilization> {
    if is_mig { Reading::Unsupported } else { reading(device.utilization_rates()) }
}

#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) used: u64,
    pub(super) total: u64,
}

/// Drivers before 510 have only the first version of the query, which the wrapper does not offer.
pub(super) fn memory(nvml: &Nvml, device: &Device<'_>) -> Reading<Memory> {
    match device.memory_info() {
        Ok(info) => Reading::Value(Memory { used: info.used, total: info.total }),
        Err(error @ (NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)) => {
            reading(first_memory_query(nvml, device).unwrap_or(Err(error)))
        }
        Err(error) => failed(&error),
    }
}

/// `None`: the library has not even the old function.
#[expect(unsafe_code, reason = "a function of the library that the wrapper loads and does not call")]
fn first_memory_query(nvml: &Nvml, device: &Device<'_>) -> Option<Result<Memory, NvmlError>> {
    let query = nvml.lib().nvmlDeviceGetMemoryInfo.as_ref().ok()?;
    let mut memory = std::mem::MaybeUninit::zeroed();
    // SAFETY: the handle is of this session, and the function fills the struct that its own binding names.
    let code = unsafe { query(device.handle(), memory.as_mut_ptr()) };
    Some(nvml_try(code).map(|()| {
        // SAFETY: three plain integers, zeroed above: every bit pattern is a value.
        let memory = unsafe { memory.assume_init() };
        Memory { used: memory.used, total: memory.total }
    }))
}

fn performance_state(device: &Device<'_>) -> Reading<u32> {
    match device.performance_state() {
        Ok(state) => match state.as_c() {
            number @ 0..=15 => Reading::Value(number),
            _ => Reading::failed("the driver does not know the performance state"),
        },
        Err(error) => failed(&error),
    }
}

/// NVML's reasons in NVML's words. An idle GPU is not held down, so that bit has no word.
const THROTTLE_WORDS: [(ThrottleReasons, &str); 8] = [
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "applications clocks setting"),
    (ThrottleReasons::SW_POWER_CAP, "sw power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hw slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw thermal slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw thermal slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hw power brake slowdown"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display clock setting"),
];

fn throttle(device: &Device<'_>) -> Reading<Vec<String>> {
    match device.current_throttle_reasons_strict() {
        Ok(reasons) => Reading::Value(throttle_words(reasons.bits())),
        // A driver newer than the bindings: its new bits are shown by number.
        Err(NvmlError::IncorrectBits(Bits::U64(bits))) => Reading::Value(throttle_words(bits)),
        Err(error) => failed(&error),
    }
}

fn throttle_words(bits: u64) -> Vec<String> {
    let known = ThrottleReasons::from_bits_truncate(bits);
    let mut words: Vec<String> = THROTTLE_WORDS
        .iter()
        .filter(|(reason, _)| known.contains(*reason))
        .map(|(_, word)| (*word).to_owned())
        .collect();
    let unknown = bits & !ThrottleReasons::all().bits();
    if unknown != 0 {
        words.push(format!("unknown reason {unknown:#x}"));
    }
    words
}

/// Compute and graphics contexts as one list by pid. `uses` tells how busy each is.
pub(super) fn processes(
    device: &Device<'_>,
    uses: impl FnOnce(&Device<'_>) -> Reading<BTreeMap<u32, Reading<u32>>>,
) -> Reading<Vec<GpuProcess>> {
    let merged = match (device.running_compute_processes(), device.running_graphics_processes()) {
        (Ok(compute), Ok(graphics)) => merge(compute, graphics),
        // Graphics contexts alone can't be asked on some data-centre boards: the compute list is the answer.
        (Ok(compute), Err(_)) => merge(compute, Vec::new()),
        (Err(NvmlError::NotSupported), Ok(graphics)) => merge(Vec::new(), graphics),
        (Err(error), _) => return failed(&error),
    };
    if merged.is_empty() {
        return Reading::Value(Vec::new());
    }
    let uses = uses(device);
    let described = |(pid, memory)| {
        let percent = uses.clone().and_then(|uses| uses.get(&pid).cloned().unwrap_or(Reading::Value(0)));
        described(pid, memory, percent)
    };
    Reading::Value(merged.into_iter().map(described).collect())
}

/// GPU memory by pid, `None` where the driver does not tell.
///
/// A process may stand in one list once for each MIG slice, each with its own memory; and in both lists, each
/// time with all of its memory.
fn merge(compute: Vec<ProcessInfo>, graphics: Vec<ProcessInfo>) -> BTreeMap<u32, Option<u64>> {
    let sum = |list: Vec<ProcessInfo>| {
        let mut by_pid: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for one in list {
            let memory = match one.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            let entry = by_pid.entry(one.pid).or_insert(Some(0));
            *entry = entry.zip(memory).map(|(all, more)| all.saturating_add(more));
        }
        by_pid
    };
    let mut all = sum(compute);
    for (pid, memory) in sum(graphics) {
        let entry = all.entry(pid).or_insert(memory);
        *entry = (*entry).max(memory);
    }
    all
}

fn described(pid: u32, memory: Option<u64>, sm_percent: Reading<u32>) -> GpuProcess {
    let (user, command) = process::identify(pid);
    let (start_ticks, age_s) = process::times(pid);
    let memory = memory.map_or(Reading::Unsupported, Reading::Value);
    let container = process::container(pid);
    GpuProcess { pid, user, command, memory, sm_percent, start_ticks, age_s, run: None, container }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, used_gpu_memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn a_process_in_both_lists_is_one() {
        let used = UsedGpuMemory::Used;
        let merged = merge(
            vec![entry(7, used(100)), entry(7, used(50)), entry(8, UsedGpuMemory::Unavailable)],
            vec![entry(7, used(150)), entry(9, used(5)), entry(8, UsedGpuMemory::Unavailable)],
        );
        assert_eq!(merged, BTreeMap::from([(7, Some(150)), (8, None), (9, Some(5))]));
    }

    #[test]
    fn clocks_are_held_down_in_words() {
        assert_eq!(throttle_words(0), Vec::<String>::new());
        assert_eq!(throttle_words(1), Vec::<String>::new(), "idle is no throttling");
        assert_eq!(throttle_words(0x4 | 0x40 | 0x1), ["sw power cap", "hw thermal slowdown"]);
        assert_eq!(throttle_words(0x4 | 0x8000), ["sw power cap", "unknown reason 0x8000"]);
    }

    #[test]
    fn not_supported_is_no_failure() {
        assert_eq!(reading::<u32>(Err(NvmlError::NotSupported)), Reading::Unsupported);
        assert_eq!(
            reading::<u32>(Err(NvmlError::GpuLost)),
            Reading::failed("the GPU is lost: it fell off the bus or has become inaccessible")
        );
    }
}
