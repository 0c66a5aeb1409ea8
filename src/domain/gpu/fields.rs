//! The numbers of a GPU, one line each: field, type, largest value that is believed, unit, meaning.
//!
//! From these tables come the structs with their JSON, the bounds of `domain::plausible`, the columns and weights of
//! recordings, and the samples of fixtures. A new field is a line here and the call that reads it. A number that an
//! older agent or recording does not tell is [`Reading::Unsupported`]. Knows nothing of NVML, files and screens.

use serde::{Deserialize, Serialize};

use super::mig::MigInstance;
use super::{GpuProcess, GpuUuid, Reading};

/// A number of whatever type, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number<'a> {
    /// The value; 0 and 1 for no and yes.
    Value(u64),
    /// The query failed, in the driver's words.
    Failed(&'a str),
    /// There is no such value.
    Unsupported,
}

/// A field of `T` that holds a number.
#[derive(Debug)]
pub struct Field<T> {
    /// Its name in the struct, in JSON and in recordings.
    pub name: &'static str,
    /// The unit, for a sentence that ends with the value.
    pub unit: &'static str,
    /// The largest value that is believed.
    pub most: u64,
    /// The largest value that the field can hold.
    pub largest: u64,
    /// Reads it.
    pub get: for<'a> fn(&'a T) -> Number<'a>,
    /// Writes it; `false` where the field can't hold the value, which leaves it as it was.
    pub set: fn(&mut T, Reading<u64>) -> bool,
}

/// What a field with a number may hold.
trait Plain: Copy {
    const LARGEST: u64;
    fn to_u64(self) -> u64;
    fn from_u64(value: u64) -> Option<Self>;
}

impl Plain for u32 {
    const LARGEST: u64 = u32::MAX as u64;
    fn to_u64(self) -> u64 {
        u64::from(self)
    }
    fn from_u64(value: u64) -> Option<Self> {
        Self::try_from(value).ok()
    }
}

impl Plain for u64 {
    const LARGEST: u64 = Self::MAX;
    fn to_u64(self) -> u64 {
        self
    }
    fn from_u64(value: u64) -> Option<Self> {
        Some(value)
    }
}

impl Plain for bool {
    const LARGEST: u64 = 1;
    fn to_u64(self) -> u64 {
        u64::from(self)
    }
    fn from_u64(value: u64) -> Option<Self> {
        (value <= 1).then_some(value == 1)
    }
}

fn get<T: Plain>(reading: &Reading<T>) -> Number<'_> {
    match reading {
        Reading::Value(value) => Number::Value(value.to_u64()),
        Reading::Failed { error } => Number::Failed(error),
        Reading::Unsupported => Number::Unsupported,
    }
}

fn set<T: Plain>(field: &mut Reading<T>, reading: Reading<u64>) -> bool {
    *field = match reading {
        Reading::Value(value) => match T::from_u64(value) {
            Some(value) => Reading::Value(value),
            None => return false,
        },
        Reading::Failed { error } => Reading::Failed { error },
        Reading::Unsupported => Reading::Unsupported,
    };
    true
}

/// A struct of some fields and a table of numbers.
macro_rules! numbers {
    (
        $(#[$of_struct:meta])*
        pub struct $name:ident {
            $( $(#[$of_fixed:meta])* $fixed:ident: $fixed_type:ty = $unknown:expr; )*
        }
        $( $(#[$of_number:meta])* $number:ident: $type:ty, $most:expr, $unit:literal; )*
    ) => {
        $(#[$of_struct])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            /// NVML's index: PCI bus order. Of a MIG slice 100 and more.
            pub index: u32,
            $( $(#[$of_fixed])* pub $fixed: $fixed_type, )*
            $( $(#[$of_number])* #[serde(default)] pub $number: Reading<$type>, )*
        }

        impl $name {
            /// All of its numbers, in the order of their table.
            pub const NUMBERS: &'static [Field<Self>] = &[$( Field {
                name: stringify!($number),
                unit: $unit,
                most: $most,
                largest: <$type as Plain>::LARGEST,
                get: |of| get(&of.$number),
                set: |of, reading| set(&mut of.$number, reading),
            }, )*];

            /// The GPU `index` of which nothing is known: no reading is supported.
            pub fn unknown(index: u32) -> Self {
                Self { index, $( $fixed: ($unknown)(index), )* $( $number: Reading::Unsupported, )* }
            }
        }
    };
}

/// Bytes of memory, bytes a second: a pebibyte.
const BYTES: u64 = 1 << 50;
/// A hundred kilowatts in milliwatts.
const POWER: u64 = 100_000_000;
/// Megahertz.
const CLOCK: u64 = 100_000;
/// Degrees Celsius.
const HEAT: u64 = 1_000;
/// What is counted since the driver was loaded has no bound.
const ANY: u64 = u64::MAX;

numbers! {
    /// What does not change while the driver is loaded.
    pub struct GpuInfo {
        /// NVML's UUID.
        uuid: GpuUuid = GpuUuid::unreadable;
        /// Marketing name, `NVIDIA H200`.
        name: String = |_| String::new();
        /// PCI address, `00000000:0A:00.0`.
        pci: Reading<String> = |_| Reading::Unsupported;
        /// The index of the GPU that it is a MIG slice of; absent of a whole GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<u32> = |_| None;
        /// How many MIG slices it is cut into; absent where MIG mode is off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slices: Option<u32> = |_| None;
        /// Which slice it is; absent of a whole GPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<MigInstance> = |_| None;
    }
    /// Memory in bytes.
    memory_total: u64, BYTES, "bytes";
    /// Highest SM clock, MHz.
    clock_sm_max_mhz: u32, CLOCK, "MHz";
    /// Highest memory clock, MHz.
    clock_memory_max_mhz: u32, CLOCK, "MHz";
    /// Core temperature at which the GPU slows down to protect itself, degrees Celsius.
    slowdown_celsius: u32, HEAT, "°C";
    /// Core temperature at which it switches itself off, degrees Celsius.
    shutdown_celsius: u32, HEAT, "°C";
    /// Highest PCIe generation of the GPU in this machine.
    pcie_gen_max: u32, 16, "as a PCIe generation";
    /// Most PCIe lanes of the GPU in this machine.
    pcie_width_max: u32, 64, "lanes";
    /// Whether its memory corrects errors.
    ecc_enabled: bool, 1, "";
}

numbers! {
    /// One reading of a GPU's live values; `index` is that of its [`GpuInfo`].
    pub struct GpuSample {
        /// Why the clocks are held down now, in NVML's words without prefix (`sw power cap`); empty when they are not.
        throttle: Reading<Vec<String>> = |_| Reading::Unsupported;
        /// Who computes on it.
        processes: Reading<Vec<GpuProcess>> = |_| Reading::Unsupported;
    }
    /// Share of the last sample period in which a kernel ran, percent.
    util: u32, 100, "percent";
    /// Memory in use, bytes.
    memory_used: u64, BYTES, "bytes";
    /// Memory, bytes.
    memory_total: u64, BYTES, "bytes";
    /// Core temperature, degrees Celsius.
    temperature: u32, HEAT, "°C";
    /// Power draw, milliwatts.
    power_mw: u32, POWER, "mW";
    /// Enforced power limit, milliwatts.
    power_limit_mw: u32, POWER, "mW";
    /// SM clock, MHz.
    clock_sm_mhz: u32, CLOCK, "MHz";
    /// Memory clock, MHz.
    clock_memory_mhz: u32, CLOCK, "MHz";
    /// Performance state: 0 is the fastest, 15 the slowest.
    pstate: u32, 15, "as a performance state";
    /// Share of the last sample period in which its memory was read or written, percent.
    memory_util_percent: u32, 100, "percent";
    /// Video encoder, percent.
    encoder_percent: u32, 100, "percent";
    /// Video decoder, percent.
    decoder_percent: u32, 100, "percent";
    /// Mean share of the SMs that had work since the sample before, percent (GPM, Hopper and newer).
    sm_active_percent: u32, 100, "percent";
    /// Share of the peak at which the tensor cores worked since the sample before, percent (GPM).
    tensor_active_percent: u32, 100, "percent";
    /// Share of the memory's bandwidth that was used since the sample before, percent (GPM).
    dram_active_percent: u32, 100, "percent";
    /// Fan speed as a share of its maximum, percent; above 100 where it runs faster than is meant.
    fan_percent: u32, 200, "percent";
    /// PCIe generation at which the link runs now; an idle GPU lowers it.
    pcie_gen: u32, 16, "as a PCIe generation";
    /// PCIe lanes in use.
    pcie_width: u32, 64, "lanes";
    /// What it received by PCIe, bytes a second over 20 ms; asked each tenth time.
    pcie_rx_bytes_per_s: u64, BYTES, "bytes a second";
    /// What it sent by PCIe, bytes a second over 20 ms; asked each tenth time.
    pcie_tx_bytes_per_s: u64, BYTES, "bytes a second";
    /// What it received by NVLink since the sample before, bytes a second.
    nvlink_rx_bytes_per_s: u64, BYTES, "bytes a second";
    /// What it sent by NVLink since the sample before, bytes a second.
    nvlink_tx_bytes_per_s: u64, BYTES, "bytes a second";
    /// NVLinks that it has, up or down; asked each tenth time.
    nvlink_count: u32, 64, "links";
    /// NVLinks that are up; asked each tenth time.
    nvlink_active: u32, 64, "links";
    /// CRC errors, replays and recoveries of all NVLinks since the driver was loaded; asked each tenth time.
    nvlink_errors: u64, ANY, "errors";
    /// Memory errors that ECC corrected since the driver was loaded; asked each tenth time.
    ecc_corrected: u64, ANY, "errors";
    /// Memory errors that ECC could not correct since the driver was loaded; asked each tenth time.
    ecc_uncorrected: u64, ANY, "errors";
    /// Pages of memory that are retired for good (before Ampere); asked each tenth time.
    pages_retired: u64, ANY, "pages";
    /// Whether pages will be retired at the next reboot; asked each tenth time.
    pages_pending: bool, 1, "";
    /// Whether a row of memory will be remapped at the next reset (Ampere and newer); asked each tenth time.
    row_remap_pending: bool, 1, "";
    /// Whether a row of memory could not be remapped: the GPU is to be replaced; asked each tenth time.
    row_remap_failed: bool, 1, "";
    /// Energy drawn since the driver was loaded, millijoules; asked each tenth time.
    energy_mj: u64, ANY, "mJ";
    /// Whether the driver stays loaded when no process uses the GPU; asked each tenth time.
    persistence: bool, 1, "";
    /// Whether it is cut into MIG slices.
    mig: bool, 1, "";
}

impl GpuInfo {
    /// The facts of a GPU that can't be asked: each number failed for the same reason.
    pub fn failed(index: u32, reason: &str) -> Self {
        let mut info = Self::unknown(index);
        for field in Self::NUMBERS {
            (field.set)(&mut info, Reading::failed(reason));
        }
        info
    }
}

impl GpuSample {
    /// The sample of a GPU that can't be read at all: each reading failed for the same reason.
    pub fn failed(index: u32, reason: &str) -> Self {
        let mut sample = Self {
            throttle: Reading::failed(reason),
            processes: Reading::failed(reason),
            ..Self::unknown(index)
        };
        for field in Self::NUMBERS {
            (field.set)(&mut sample, Reading::failed(reason));
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_written_and_read_by_its_own_name() {
        for (value, field) in (1..).zip(GpuSample::NUMBERS) {
            let mut sample = GpuSample::unknown(3);
            assert_eq!((field.get)(&sample), Number::Unsupported, "{}", field.name);
            assert!((field.set)(&mut sample, Reading::Value(value.min(field.largest))));
            let json = serde_json::to_value(&sample).unwrap();
            let told = json[field.name].as_u64().or_else(|| json[field.name].as_bool().map(u64::from));
            assert_eq!(told, Some(value.min(field.largest)), "{}", field.name);
            assert_eq!((field.get)(&sample), Number::Value(value.min(field.largest)), "{}", field.name);
            if field.largest < u64::MAX {
                assert!(!(field.set)(&mut sample, Reading::Value(field.largest + 1)), "{}", field.name);
            }
            let failed = GpuSample::failed(3, "GPU is lost");
            assert_eq!((field.get)(&failed), Number::Failed("GPU is lost"), "{}", field.name);
        }
    }

    #[test]
    fn a_number_that_is_not_told_is_no_zero() {
        let old = r#"{"index":2,"util":7,"throttle":null,"processes":[]}"#;
        let sample: GpuSample = serde_json::from_str(old).unwrap();
        let expected = GpuSample {
            util: Reading::Value(7),
            processes: Reading::Value(Vec::new()),
            ..GpuSample::unknown(2)
        };
        assert_eq!(sample, expected);
        let newer = r#"{"index":0,"uuid":"GPU-1","name":"H200","pci":null,"from_tomorrow":1}"#;
        let info: GpuInfo = serde_json::from_str(newer).unwrap();
        assert_eq!(info.memory_total, Reading::Unsupported);
    }
}
