//! What the fake library answers: the script file as types, where it is found, and when it is read again.
//!
//! A GPU left as `{}` is an idle H200. Numbers may be lists: `"util": [10, 50, 90]` walks on once a second of the
//! wall clock, or once a query with `"walk": "queries"`.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper_sys::bindings::*;
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Script {
    /// Version of the kernel module.
    pub(crate) driver: String,
    /// Version of the library; the driver's where it is left out.
    pub(crate) library: Option<String>,
    /// CUDA version as `1000 * major + 10 * minor`.
    pub(crate) cuda: i32,
    /// NCCL version as `10000 * major + 100 * minor + patch`.
    pub(crate) nccl: i32,
    /// The error with which `nvmlInit_v2` fails, in [`error_code`]'s words.
    pub(crate) init: Option<String>,
    /// Functions that do not return while they stand here: `nvmlInit_v2`, `nvmlDeviceGetPowerUsage`, or the
    /// same for one GPU alone, `nvmlDeviceGetPowerUsage:1`.
    pub(crate) hang: Vec<String>,
    /// A file to which each call about a GPU is added as a line: `nvmlDeviceGetPowerUsage:1`.
    pub(crate) calls: Option<PathBuf>,
    /// What moves lists on.
    walk: Walk,
    /// What happens to the GPUs, each told once. A longer list under a running program makes more happen.
    pub(crate) events: Vec<Event>,
    /// The GPUs in index order.
    pub(crate) gpus: Vec<Gpu>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Walk {
    Seconds,
    Queries,
}

/// One GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a script that have nothing to do with each other"
)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    uuid: Option<String>,
    pci: Option<String>,
    pub(crate) mig: bool,
    /// Its MIG slices; `null` where no slice has that number. They are told while `mig` is on.
    pub(crate) slices: Vec<Option<Slice>>,
    /// Every query answers that the GPU is lost.
    pub(crate) lost: bool,
    /// Percent.
    pub(crate) util: Series,
    /// Bytes.
    pub(crate) memory_total: u64,
    /// Bytes.
    pub(crate) memory_used: Series,
    /// Degrees Celsius.
    pub(crate) temperature: Series,
    pub(crate) power_mw: Series,
    pub(crate) power_limit_mw: u32,
    pub(crate) clock_sm_mhz: Series,
    pub(crate) clock_memory_mhz: u32,
    pub(crate) pstate: u32,
    /// NVML's bits.
    pub(crate) throttle: u64,
    pub(crate) processes: Vec<Process>,
    /// Memory controller, percent.
    pub(crate) util_memory: Series,
    /// Percent; left out on a board without a fan.
    pub(crate) fan: Option<Series>,
    pub(crate) encoder: Series,
    pub(crate) decoder: Series,
    pub(crate) clock_sm_max_mhz: u32,
    pub(crate) clock_memory_max_mhz: u32,
    /// Degrees Celsius.
    pub(crate) slowdown: u32,
    /// Degrees Celsius.
    pub(crate) shutdown: u32,
    pub(crate) ecc: bool,
    pub(crate) ecc_corrected: u64,
    pub(crate) ecc_uncorrected: u64,
    /// For single and for double bit errors; left out on boards that remap rows.
    pub(crate) pages_retired: Option<[u64; 2]>,
    pub(crate) pages_pending: bool,
    pub(crate) remap_pending: bool,
    pub(crate) remap_failed: bool,
    pub(crate) pcie_gen: Series,
    pub(crate) pcie_width: u32,
    /// KiB a second.
    pub(crate) pcie_rx_kib: Series,
    /// KiB a second.
    pub(crate) pcie_tx_kib: Series,
    pub(crate) nvlinks: u32,
    /// The first so many of them are down.
    pub(crate) nvlinks_down: u32,
    /// CRC errors, replays, recoveries.
    pub(crate) nvlink_errors: [u64; 3],
    /// The GPUs to which its first NVLinks lead; the others lead to a switch.
    pub(crate) nvlink_to: Vec<usize>,
    /// What each link that is up has received, KiB.
    pub(crate) nvlink_rx_kib: u64,
    /// What each link that is up has sent, KiB.
    pub(crate) nvlink_tx_kib: u64,
    /// NUMA node, host bridge and PCIe switch: what two GPUs have in common from the left on is their path.
    pub(crate) place: [u32; 3],
    /// The CPUs near it, a bit each.
    pub(crate) cpus: Vec<u64>,
    pub(crate) energy_mj: u64,
    pub(crate) persistence: bool,
    /// GPM's SM, tensor and memory activity in percent; left out where there is no GPM.
    pub(crate) gpm: Option<[f64; 3]>,
    /// Queries that fail, by field (`util`, `memory`, `memory_v1`, `temperature`, `power`, `power_limit`, `clock`,
    /// `pstate`, `throttle`, `processes`, `graphics_processes`, `process_utilization`, `name`, `uuid`, `pci`, `mig`, `clock_max`, `threshold`,
    /// `fan`, `encoder`, `decoder`, `ecc`, `pcie_link`, `pcie_throughput`, `persistence`, `nvlink`, `fields`, `gpm`,
    /// `gpm_sample`, `topology`, `affinity`, `events`), with their errors.
    pub(crate) errors: BTreeMap<String, String>,
}

/// A MIG slice. Its queries fail as those of its GPU do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Slice {
    /// Behind `MIG ` in its name.
    pub(crate) profile: String,
    uuid: Option<String>,
    /// GPU instance and compute instance.
    pub(crate) instance: [u32; 2],
    /// Slices of its GPU instance and of its compute instance.
    pub(crate) slices: [u32; 2],
    pub(crate) multiprocessors: u32,
    /// Bytes.
    pub(crate) memory_total: u64,
    /// Bytes.
    pub(crate) memory_used: u64,
    /// Its GPU tells them too.
    pub(crate) processes: Vec<Process>,
    /// GPM's activity of its GPU instance, as of a GPU; none where its GPU has no GPM.
    pub(crate) gpm: [f64; 3],
}

impl Default for Slice {
    fn default() -> Self {
        Self {
            profile: "1g.18gb".to_owned(),
            uuid: None,
            instance: [9, 0],
            slices: [1, 1],
            multiprocessors: 16,
            memory_total: 18_874_368_000,
            memory_used: 0,
            processes: Vec::new(),
            gpm: [0.0; 3],
        }
    }
}

impl Slice {
    pub(crate) fn uuid(&self, gpu: usize, number: usize) -> String {
        self.uuid.clone().unwrap_or_else(|| format!("MIG-00000000-0000-4000-8{gpu:03}-{number:012}"))
    }
}

/// Something that happens to a GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub(crate) gpu: usize,
    what: Happens,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Happens {
    Xid(u64),
    SingleBitEcc,
    DoubleBitEcc,
}

impl Event {
    /// NVML's type and value.
    pub(crate) fn told(&self) -> (u32, u64) {
        match self.what {
            Happens::Xid(number) => (nvmlEventTypeXidCriticalError, number),
            Happens::SingleBitEcc => (nvmlEventTypeSingleBitEccError, 0),
            Happens::DoubleBitEcc => (nvmlEventTypeDoubleBitEccError, 0),
        }
    }
}

/// A number, or numbers to walk through.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Series {
    One(u64),
    Many(Vec<u64>),
}

/// A process with a context on a GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pid: Pid,
    /// Bytes; left out where the driver does not tell.
    pub(crate) memory: Option<u64>,
    /// A graphics context, not a compute one.
    #[serde(default)]
    pub(crate) graphics: bool,
    /// Use of the SMs, percent, and the moment of NVML's clock, microseconds, at which it was measured; left out of a
    /// process that does not use them.
    #[serde(default)]
    pub(crate) sm: Option<(u32, u64)>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Pid {
    Number(u32),
    Word(Word),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// The process that has loaded the library.
    #[serde(rename = "self")]
    Loader,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            driver: "580.95.05".to_owned(),
            library: None,
            cuda: 13_000,
            nccl: 22_705,
            init: None,
            hang: Vec::new(),
            calls: None,
            walk: Walk::Seconds,
            events: Vec::new(),
            gpus: Vec::new(),
        }
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            name: "NVIDIA H200".to_owned(),
            uuid: None,
            pci: None,
            mig: false,
            slices: Vec::new(),
            lost: false,
            util: Series::One(0),
            memory_total: 150_754_820_096,
            memory_used: Series::One(0),
            temperature: Series::One(34),
            power_mw: Series::One(76_500),
            power_limit_mw: 700_000,
            clock_sm_mhz: Series::One(345),
            clock_memory_mhz: 3201,
            pstate: 0,
            throttle: 1,
            processes: Vec::new(),
            util_memory: Series::One(0),
            fan: None,
            encoder: Series::One(0),
            decoder: Series::One(0),
            clock_sm_max_mhz: 1980,
            clock_memory_max_mhz: 3201,
            slowdown: 87,
            shutdown: 92,
            ecc: true,
            ecc_corrected: 0,
            ecc_uncorrected: 0,
            pages_retired: None,
            pages_pending: false,
            remap_pending: false,
            remap_failed: false,
            pcie_gen: Series::One(5),
            pcie_width: 16,
            pcie_rx_kib: Series::One(0),
            pcie_tx_kib: Series::One(0),
            nvlinks: 18,
            nvlinks_down: 0,
            nvlink_errors: [0; 3],
            nvlink_to: Vec::new(),
            nvlink_rx_kib: 0,
            nvlink_tx_kib: 0,
            place: [0; 3],
            cpus: vec![0xffff],
            energy_mj: 0,
            persistence: true,
            gpm: Some([0.0; 3]),
            errors: BTreeMap::new(),
        }
    }
}

impl Gpu {
    pub(crate) fn uuid(&self, index: usize) -> String {
        self.uuid.clone().unwrap_or_else(|| format!("GPU-00000000-0000-4000-8000-{index:012}"))
    }

    pub(crate) fn pci(&self, index: usize) -> String {
        self.pci.clone().unwrap_or_else(|| format!("00000000:{:02X}:00.0", 0x0a + index))
    }
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        match self.pid {
            Pid::Number(pid) => pid,
            Pid::Word(Word::Loader) => std::process::id(),
        }
    }
}

impl Script {
    /// The value of `field` of the GPU `index` at this moment.
    pub(crate) fn value(&self, series: &Series, index: usize, field: &'static str) -> u64 {
        static QUERIES: Mutex<Option<HashMap<(usize, &'static str), usize>>> = Mutex::new(None);
        match series {
            Series::One(value) => *value,
            Series::Many(values) => {
                let step = match self.walk {
                    Walk::Seconds => seconds(),
                    Walk::Queries => {
                        let mut queries = QUERIES.lock().unwrap_or_else(PoisonError::into_inner);
                        let count = queries.get_or_insert_default().entry((index, field)).or_insert(0);
                        *count += 1;
                        *count - 1
                    }
                };
                step.checked_rem(values.len()).and_then(|at| values.get(at)).copied().unwrap_or(0)
            }
        }
    }

    /// The same for NVML's 32-bit values.
    pub(crate) fn small(&self, series: &Series, index: usize, field: &'static str) -> u32 {
        u32::try_from(self.value(series, index, field)).unwrap_or(u32::MAX)
    }

    fn hangs(&self, function: &str, gpu: Option<usize>) -> bool {
        let alone = gpu.map(|index| format!("{function}:{index}"));
        self.hang.iter().any(|one| one == function || Some(one) == alone.as_ref())
    }
}

#[expect(clippy::disallowed_methods, reason = "a library of its own, which can't see the crate's clock")]
fn seconds() -> usize {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as usize)
}

/// The bus number in a PCI address (`00000000:0A:00.0`).
pub(crate) fn pci_bus(address: &str) -> u32 {
    address.split(':').nth(1).and_then(|bus| u32::from_str_radix(bus, 16).ok()).unwrap_or(0)
}

/// NVML's code for an error as scripts name it; an unknown name is `NVML_ERROR_UNKNOWN`.
pub(crate) fn error_code(name: &str) -> nvmlReturn_t {
    match name {
        "not_supported" => nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        "no_permission" => nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
        "driver_not_loaded" => nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
        "lib_rm_version_mismatch" => nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        "function_not_found" => nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
        "gpu_is_lost" => nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
        "reset_required" => nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
        _ => nvmlReturn_enum_NVML_ERROR_UNKNOWN,
    }
}

/// The script as it stands now, as soon as it no longer lets `function` hang.
pub(crate) fn once_it_answers(function: &str, gpu: Option<usize>) -> Arc<Script> {
    loop {
        let script = current();
        if !script.hangs(function, gpu) {
            return script;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What tells one state of a file from the next.
type FileMark = (u64, i64, i64, u64);

/// The file's script; the last good one while the file can't be read or understood, which is said on stderr.
fn current() -> Arc<Script> {
    static CACHE: Mutex<Option<(FileMark, Arc<Script>)>> = Mutex::new(None);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path();
    let mark = std::fs::metadata(path)
        .map_or((0, 0, 0, 0), |file| (file.ino(), file.mtime(), file.mtime_nsec(), file.size()));
    match &*cache {
        Some((known, script)) if *known == mark => Arc::clone(script),
        last => {
            let script = read(path).unwrap_or_else(|error| {
                complain(path, &error);
                last.as_ref().map_or_else(Arc::default, |(_, script)| Arc::clone(script))
            });
            *cache = Some((mark, Arc::clone(&script)));
            script
        }
    }
}

#[expect(clippy::print_stderr, reason = "a library without a caller that could be told of a bad script")]
fn complain(path: &Path, error: &str) {
    eprintln!("fake_nvml: {}: {error}", path.display());
}

fn read(path: &Path) -> Result<Arc<Script>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map(Arc::new).map_err(|error| error.to_string())
}

fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("FAKE_NVML_SCRIPT") {
        Some(path) => PathBuf::from(path),
        None => own_folder().unwrap_or_default().join("fake_nvml.json"),
    })
}

/// The folder of the file that this code was loaded from.
fn own_folder() -> Option<PathBuf> {
    let here = own_folder as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let file = &rest[rest.find('/')?..];
        (bound(start)?..bound(end)?).contains(&here).then(|| Path::new(file).parent().map(Path::to_owned))?
    })
}
