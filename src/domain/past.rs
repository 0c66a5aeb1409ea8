//! What graphs show of a host's last minutes: few numbers of each sample, for the whole of one is kept of the newest alone.

use super::gpu::GpuSample;
use super::host::{HostInfo, HostSample};
use super::run::Slot;
use super::time::Stamp;
use super::world::HostState;

/// A sample as graphs know it. Each value is a share, 0..=1.
#[derive(Debug, Clone, PartialEq)]
pub struct PastSample {
    /// When it arrived.
    pub at: Stamp,
    /// The CPUs' busy share.
    pub cpu: Option<f32>,
    /// The used share of the host's memory.
    pub memory: Option<f32>,
    /// One per GPU.
    pub gpus: Box<[PastGpu]>,
}

/// A GPU in a [`PastSample`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PastGpu {
    /// Share of the time in which a kernel ran.
    pub util: Option<f32>,
    /// The used share of its memory.
    pub memory: Option<f32>,
    /// The drawn share of its power limit.
    pub power: Option<f32>,
}

impl PastSample {
    /// What is kept of a sample of a host with these facts.
    pub fn of(at: Stamp, sample: &HostSample, info: Option<&HostInfo>) -> Self {
        let total = info.and_then(|info| info.memory_total.value().copied());
        Self {
            at,
            cpu: sample.cpu_percent.value().map(|percent| percent / 100.0),
            memory: share(sample.memory_used.value().copied(), total),
            gpus: sample.gpus.iter().map(PastGpu::of).collect(),
        }
    }

    /// The GPUs' mean utilisation; the CPUs' where there is no GPU.
    pub fn load(&self) -> Option<f64> {
        if self.gpus.is_empty() {
            return self.cpu.map(f64::from);
        }
        let known = self.gpus.iter().filter_map(|gpu| gpu.util).map(f64::from);
        let (sum, count) = known.fold((0.0, 0u32), |(sum, count), util| (sum + util, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }
}

impl PastGpu {
    fn of(gpu: &GpuSample) -> Self {
        let power = (gpu.power_mw.value().copied(), gpu.power_limit_mw.value().copied());
        Self {
            util: gpu.util.value().map(|percent| *percent as f32 / 100.0),
            memory: share(gpu.memory_used.value().copied(), gpu.memory_total.value().copied()),
            power: share(power.0.map(u64::from), power.1.map(u64::from)),
        }
    }
}

impl HostState {
    /// The busy share of a slot in one sample, 0..=1: of its GPU, or of its host's CPUs.
    pub fn util_of(&self, past: &PastSample, slot: &Slot) -> Option<f64> {
        let util = match slot {
            Slot::Cpu { .. } => past.cpu,
            Slot::Gpu { .. } => past.gpus.get(self.gpu_of(slot)?)?.util,
        };
        util.map(f64::from)
    }

    /// The place of a slot's GPU in the host's facts and samples.
    pub fn gpu_of(&self, slot: &Slot) -> Option<usize> {
        let Slot::Gpu { uuid, .. } = slot else { return None };
        self.info.as_ref()?.gpus.iter().position(|gpu| gpu.uuid == *uuid)
    }
}

fn share(part: Option<u64>, whole: Option<u64>) -> Option<f32> {
    let (part, whole) = (part?, whole.filter(|whole| *whole > 0)?);
    Some((part as f64 / whole as f64) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::Reading;

    #[test]
    fn a_past_sample_is_small_and_never_zero_for_what_is_not_known() {
        let gpu = GpuSample {
            util: Reading::Value(7),
            memory_used: Reading::Value(3),
            memory_total: Reading::Value(4),
            ..GpuSample::unknown(0)
        };
        let past = PastGpu::of(&gpu);
        assert_eq!(past, PastGpu { util: Some(0.07), memory: Some(0.75), power: None });
        assert_eq!(size_of::<PastGpu>(), 24);
    }
}
