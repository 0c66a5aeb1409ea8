//! MIG: GPUs that are cut into slices, each of which is a device of its own for a program.
//!
//! A slice stands in a host's lists behind the GPU that it is a slice of. Ranks are placed on slices, never on a GPU that has
//! MIG mode on: CUDA does not start there. What belongs to the whole (links, power, heat, utilisation) is told of the GPU
//! alone. Knows nothing of NVML and screens.

use serde::{Deserialize, Serialize};

use super::{GpuInfo, GpuSample};

/// The indices from here on are those of slices.
const FIRST: u32 = 100;

/// What a slice is made of, as NVML names and counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// Id of its GPU instance.
    #[serde(default)]
    pub gpu_instance: Option<u32>,
    /// Id of its compute instance within that.
    #[serde(default)]
    pub compute_instance: Option<u32>,
    /// How many of the GPU's memory slices its GPU instance has.
    #[serde(default)]
    pub gpu_slices: Option<u32>,
    /// How many of the GPU's compute slices it has.
    #[serde(default)]
    pub compute_slices: Option<u32>,
    /// Its streaming multiprocessors.
    #[serde(default)]
    pub multiprocessors: Option<u32>,
}

/// The index of a slice: `100 × (GPU + 1) + number`, which is no GPU's.
pub fn slice_index(gpu: u32, number: u32) -> u32 {
    gpu.saturating_add(1).saturating_mul(FIRST).saturating_add(number.min(FIRST - 1))
}

/// The index of the GPU that the one with this index is a slice of, or is.
pub fn gpu_of(index: u32) -> u32 {
    if index < FIRST { index } else { index / FIRST - 1 }
}

impl GpuInfo {
    /// Whether it is a slice of another one.
    pub fn is_slice(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether ranks can be placed on it at all: it can be read, and MIG mode is off.
    pub fn takes_ranks(&self) -> bool {
        self.uuid.is_readable() && self.slices.is_none()
    }

    /// Whether it counts as a GPU: one that is cut counts by its slices.
    pub fn counts(&self) -> bool {
        self.slices.is_none_or(|slices| slices == 0)
    }

    /// Whether this is the same device at another time. Its index goes to another one when a GPU falls off the bus, or when
    /// it is cut anew: it counts only where a GPU does not tell its UUID.
    pub fn is_same(&self, other: &Self) -> bool {
        if self.uuid.is_readable() && other.uuid.is_readable() {
            self.uuid == other.uuid
        } else {
            self.index == other.index
        }
    }

    /// Its model where there is little room: of a slice its profile, `MIG 1g.18gb`.
    pub fn short_model(&self) -> &str {
        let model = self.model();
        match model.find("MIG ").filter(|_| self.is_slice()) {
            Some(at) => &model[at..],
            None => model,
        }
    }
}

impl GpuSample {
    /// Whether it is of a slice.
    pub fn is_slice(&self) -> bool {
        self.index >= FIRST
    }

    /// Of a slice the share of its SMs that had work, percent: the only utilisation that it has.
    pub fn slice_active(&self) -> Option<u32> {
        self.sm_active_percent.value().copied().filter(|_| self.is_slice())
    }

    /// The same where the utilisation of a GPU stands, in no more than five columns: `SM 93`, `SM100`.
    pub fn slice_active_words(&self) -> Option<String> {
        let space = |percent| if percent < 100 { " " } else { "" };
        self.slice_active().map(|percent| format!("SM{}{percent}", space(percent)))
    }
}

/// The whole GPUs of a host's list: those that have links, power and a bus of their own.
pub fn whole(gpus: &[GpuInfo]) -> impl Iterator<Item = &GpuInfo> {
    gpus.iter().filter(|gpu| !gpu.is_slice())
}

/// ` and 7 MIG slices` behind the number of GPUs; empty where there is none.
pub fn and_slices(gpus: &[GpuInfo]) -> String {
    match gpus.iter().filter(|gpu| gpu.is_slice()).count() {
        0 => String::new(),
        1 => " and 1 MIG slice".to_owned(),
        more => format!(" and {more} MIG slices"),
    }
}

/// What is said of a GPU that is cut into so many slices.
pub fn words(slices: u32) -> String {
    match slices {
        0 => "MIG, no slices: it takes no ranks before there are some (nvidia-smi mig -cgi … -C)".to_owned(),
        1 => "MIG, 1 slice, which takes the ranks".to_owned(),
        more => format!("MIG, {more} slices, which take the ranks"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reading;
    use super::*;

    #[test]
    fn a_slice_has_an_index_that_no_gpu_has_and_leads_to_its_gpu() {
        for gpu in [0, 1, 7, 63] {
            for number in 0..7 {
                let index = slice_index(gpu, number);
                assert!(index >= FIRST && gpu_of(index) == gpu, "{gpu} {number}");
            }
            assert_eq!(gpu_of(gpu), gpu);
        }
        assert_eq!((slice_index(0, 1), slice_index(3, 6)), (101, 406));
    }

    #[test]
    fn a_device_is_known_by_its_uuid_and_by_its_index_where_it_tells_none() {
        let gpu = |index, uuid: &str| GpuInfo { uuid: uuid.into(), ..GpuInfo::unknown(index) };
        assert!(gpu(1, "GPU-1").is_same(&gpu(0, "GPU-1")), "renumbered");
        assert!(!gpu(0, "GPU-0").is_same(&gpu(0, "GPU-1")), "in its place");
        assert!(
            GpuInfo::unknown(0).is_same(&gpu(0, "GPU-0")) && gpu(0, "GPU-0").is_same(&GpuInfo::unknown(0))
        );
        assert!(!GpuInfo::unknown(1).is_same(&gpu(0, "GPU-0")));
    }

    #[test]
    fn the_words_of_a_slice_are_of_one_width_from_ten_percent_on() {
        let words = |percent| {
            let sm_active_percent = Reading::Value(percent);
            let sample = GpuSample { sm_active_percent, ..GpuSample::unknown(slice_index(0, 0)) };
            sample.slice_active_words().unwrap()
        };
        assert_eq!([0, 93, 100].map(words), ["SM 0", "SM 93", "SM100"]);
    }

    #[test]
    fn a_cut_gpu_takes_no_ranks_and_counts_by_its_slices() {
        let gpu = |slices| GpuInfo { uuid: "GPU-1".into(), slices, ..GpuInfo::unknown(0) };
        let is = |slices| (gpu(slices).takes_ranks(), gpu(slices).counts());
        assert_eq!([is(None), is(Some(0)), is(Some(2))], [(true, true), (false, true), (false, false)]);
        let slice = GpuInfo {
            name: "NVIDIA H200 MIG 1g.18gb".to_owned(),
            parent: Some(0),
            ..GpuInfo::unknown(slice_index(0, 0))
        };
        assert_eq!((slice.model(), slice.short_model()), ("H200 MIG 1g.18gb", "MIG 1g.18gb"));
        let older: GpuInfo =
            serde_json::from_str(r#"{"index":0,"uuid":"GPU-1","name":"H200","pci":null}"#).unwrap();
        assert!(older.takes_ranks() && !older.is_slice());
        let json = serde_json::to_string(&GpuInfo::unknown(0)).unwrap();
        assert!(!json.contains("parent") && !json.contains("slices"), "{json}");
    }
}
