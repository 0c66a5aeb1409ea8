//! What graphs show of a host's last minutes: few numbers of each sample, for the whole of one is kept of the newest alone.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::gpu::{GpuSample, Reading};
use super::host::{HostInfo, HostSample};
use super::loads::{SlotLoad, logarithm, power};
use super::run::Slot;
use super::time::Stamp;
use super::world::HostState;

/// A sample as graphs know it. Each value but the network's is a share, 0..=1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct PastSample {
    /// When it arrived.
    pub at: Stamp,
    /// The CPUs' busy share.
    pub cpu: Option<f32>,
    /// The used share of the host's memory.
    pub memory: Option<f32>,
    /// What went over its network.
    pub net: PastNet,
    /// One per GPU.
    pub gpus: PastGpus,
}

/// A sample as it is written where a state of a run is kept: without names, for there are tens of thousands.
#[derive(Serialize, Deserialize)]
struct Row(Stamp, Option<f32>, Option<f32>, PastNet, PastGpus);

impl From<PastSample> for Row {
    fn from(PastSample { at, cpu, memory, net, gpus }: PastSample) -> Self {
        Self(at, cpu, memory, net, gpus)
    }
}

impl From<Row> for PastSample {
    fn from(Row(at, cpu, memory, net, gpus): Row) -> Self {
        Self { at, cpu, memory, net, gpus }
    }
}

/// So many GPUs lie in a sample itself: as many as most hosts have.
const FEW: usize = 8;

/// The GPUs of a [`PastSample`]. As many as most hosts have take no memory of their own: a replay of hundreds of hosts takes in and drops
/// tens of thousands of samples with each move. What is written of them is a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<PastGpu>", into = "Vec<PastGpu>")]
pub struct PastGpus(Held);

#[derive(Debug, Clone)]
enum Held {
    /// So many of these.
    Few(u8, [PastGpu; FEW]),
    Many(Box<[PastGpu]>),
}

impl Deref for PastGpus {
    type Target = [PastGpu];

    fn deref(&self) -> &[PastGpu] {
        match &self.0 {
            Held::Few(count, few) => &few[..usize::from(*count)],
            Held::Many(many) => many,
        }
    }
}

impl Default for PastGpus {
    fn default() -> Self {
        Self(Held::Few(0, [PastGpu::default(); FEW]))
    }
}

impl PartialEq for PastGpus {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl FromIterator<PastGpu> for PastGpus {
    fn from_iter<I: IntoIterator<Item = PastGpu>>(gpus: I) -> Self {
        let (mut few, mut count) = ([PastGpu::default(); FEW], 0_u8);
        let mut gpus = gpus.into_iter();
        while let Some(gpu) = gpus.next() {
            let Some(free) = few.get_mut(usize::from(count)) else {
                return Self(Held::Many(few.into_iter().chain([gpu]).chain(gpus).collect()));
            };
            *free = gpu;
            count += 1;
        }
        Self(Held::Few(count, few))
    }
}

impl From<Vec<PastGpu>> for PastGpus {
    fn from(gpus: Vec<PastGpu>) -> Self {
        gpus.into_iter().collect()
    }
}

impl From<PastGpus> for Vec<PastGpu> {
    fn from(gpus: PastGpus) -> Self {
        gpus.to_vec()
    }
}

/// A GPU in a [`PastSample`]: three shares in six bytes, for thousands of GPUs have hundreds of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct PastGpu {
    util: CompactFraction,
    memory: CompactFraction,
    power: CompactFraction,
}

/// As it is written where a state of a run is kept: one number, for there are a hundred thousand.
impl From<PastGpu> for u64 {
    fn from(gpu: PastGpu) -> Self {
        [gpu.util, gpu.memory, gpu.power]
            .into_iter()
            .rev()
            .fold(0, |all, share| all << 16 | Self::from(share.0))
    }
}

impl From<u64> for PastGpu {
    fn from(all: u64) -> Self {
        let [util, memory, power] = [0, 16, 32].map(|by| CompactFraction((all >> by) as u16));
        Self { util, memory, power }
    }
}

/// A fraction in ten thousandths; more than 6.5 is told as that.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CompactFraction(u16);

impl Default for CompactFraction {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl CompactFraction {
    const UNKNOWN: Self = Self(u16::MAX);
    const WHOLE: f32 = 10_000.0;

    fn new(share: Option<f32>) -> Self {
        let most = f32::from(u16::MAX - 1);
        share.map_or(Self::UNKNOWN, |share| Self((share * Self::WHOLE).round().clamp(0.0, most) as u16))
    }

    fn value(self) -> Option<f32> {
        (self != Self::UNKNOWN).then(|| f32::from(self.0) / Self::WHOLE)
    }
}

impl PastSample {
    /// What is kept of a sample of a host with these facts.
    pub fn of(at: Stamp, sample: &HostSample, info: Option<&HostInfo>) -> Self {
        let total = info.and_then(|info| info.memory_total.value().copied());
        Self {
            at,
            cpu: sample.cpu_percent.value().map(|percent| percent / 100.0),
            memory: share(sample.memory_used.value().copied(), total),
            net: PastNet::of(sample),
            gpus: sample.gpus.iter().map(PastGpu::of).collect(),
        }
    }

    /// The GPUs' mean utilisation; the CPUs' where there is no GPU.
    pub fn load(&self) -> Option<f64> {
        if self.gpus.is_empty() {
            return self.cpu.map(f64::from);
        }
        let known = self.gpus.iter().filter_map(PastGpu::util).map(f64::from);
        let (sum, count) = known.fold((0.0, 0u32), |(sum, count), util| (sum + util, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }
}

impl PastSample {
    /// The busy share of a slot whose GPU has this place, 0..=1: of the GPU, or of the host's CPUs.
    pub fn util_at(&self, slot: &Slot, place: Option<usize>) -> Option<f64> {
        let util = match slot {
            Slot::Cpu { .. } => self.cpu,
            Slot::Gpu { .. } => self.gpus.get(place?)?.util(),
        };
        util.map(f64::from)
    }

    /// What is kept of a slot whose GPU has this place.
    pub(super) fn load_at(&self, slot: &Slot, place: Option<usize>) -> SlotLoad {
        let memory = place.and_then(|place| self.gpus.get(place)?.memory()).map(f64::from);
        SlotLoad::new(self.util_at(slot, place), memory)
    }

    /// Each GPU is now what stood at this place of the list.
    pub(super) fn move_gpus(&mut self, from: &[Option<usize>]) {
        let gpu =
            |from: &Option<usize>| from.and_then(|from| self.gpus.get(from)).copied().unwrap_or_default();
        self.gpus = from.iter().map(gpu).collect();
    }
}

impl PastGpu {
    fn of(gpu: &GpuSample) -> Self {
        let power = (gpu.power_mw.value().copied(), gpu.power_limit_mw.value().copied());
        Self {
            util: CompactFraction::new(gpu.util.value().map(|percent| *percent as f32 / 100.0)),
            memory: CompactFraction::new(share(
                gpu.memory_used.value().copied(),
                gpu.memory_total.value().copied(),
            )),
            power: CompactFraction::new(share(power.0.map(u64::from), power.1.map(u64::from))),
        }
    }

    /// Share of the time in which a kernel ran.
    pub fn util(&self) -> Option<f32> {
        self.util.value()
    }

    /// The used share of its memory.
    pub fn memory(&self) -> Option<f32> {
        self.memory.value()
    }

    /// The drawn share of its power limit.
    pub fn power(&self) -> Option<f32> {
        self.power.value()
    }
}

/// The network in a [`PastSample`]: two rates in four bytes, to a thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct PastNet {
    rx: u16,
    tx: u16,
}

impl PastNet {
    const UNKNOWN: u16 = u16::MAX;
    /// So many steps are twice as much.
    const STEPS: f64 = 1000.0;

    fn of(sample: &HostSample) -> Self {
        let packed = |rate: Option<&u64>| {
            rate.map_or(Self::UNKNOWN, |rate| logarithm(*rate as f64, Self::STEPS, Self::UNKNOWN - 1))
        };
        Self { rx: packed(sample.net_rx.value()), tx: packed(sample.net_tx.value()) }
    }

    /// Bytes a second received.
    pub fn rx(self) -> Option<f64> {
        (self.rx != Self::UNKNOWN).then(|| power(self.rx, Self::STEPS))
    }

    /// Bytes a second sent.
    pub fn tx(self) -> Option<f64> {
        (self.tx != Self::UNKNOWN).then(|| power(self.tx, Self::STEPS))
    }
}

impl From<PastNet> for u32 {
    fn from(net: PastNet) -> Self {
        Self::from(net.rx) << 16 | Self::from(net.tx)
    }
}

impl From<u32> for PastNet {
    fn from(all: u32) -> Self {
        Self { rx: (all >> 16) as u16, tx: all as u16 }
    }
}

/// What a slot tells beside its rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotValues {
    /// The busy share of its GPU, or of its host's CPUs, 0..=1.
    pub load: Option<f64>,
    /// Used memory of its GPU, bytes.
    pub memory: Reading<u64>,
    /// What its GPU draws, milliwatts.
    pub power_mw: Reading<u32>,
    /// Of its GPU, degrees Celsius.
    pub temperature: Reading<u32>,
}

impl HostState {
    /// What a slot tells in the newest sample; `None` where its GPU is not in it.
    pub fn values_of(&self, slot: &Slot) -> Option<SlotValues> {
        self.values_at(slot, self.gpu_of(slot))
    }

    /// The same of a slot whose GPU has this place.
    pub(super) fn values_at(&self, slot: &Slot, place: Option<usize>) -> Option<SlotValues> {
        let (_, sample) = self.latest()?;
        let load = self.past.back().and_then(|past| past.util_at(slot, place));
        let none = GpuSample::unknown(0);
        let gpu = match slot {
            Slot::Cpu { .. } => &none,
            Slot::Gpu { .. } => sample.gpus.get(place?)?,
        };
        let GpuSample { memory_used, power_mw, temperature, .. } = gpu;
        let (memory, power_mw, temperature) = (memory_used.clone(), power_mw.clone(), temperature.clone());
        Some(SlotValues { load, memory, power_mw, temperature })
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
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::info;
    use crate::domain::event::Event;
    use crate::domain::fixtures::host_sample;
    use crate::domain::ids::GpuUuid;

    fn blank() -> HostSample {
        HostSample { cpu_percent: Reading::Value(50.0), ..host_sample() }
    }

    #[test]
    fn a_past_sample_is_small_and_never_zero_for_what_is_not_known() {
        let gpu = GpuSample {
            util: Reading::Value(7),
            memory_used: Reading::Value(3),
            memory_total: Reading::Value(4),
            ..GpuSample::unknown(0)
        };
        let past = PastGpu::of(&gpu);
        assert_eq!((past.util(), past.memory(), past.power()), (Some(0.07), Some(0.75), None));
        assert_eq!((size_of::<PastGpu>(), size_of::<PastNet>()), (6, 4));
        let beyond =
            [-1.0, 0.0, 1.0, 6.0, 1e9, f32::NAN].map(|share| CompactFraction::new(Some(share)).value());
        assert_eq!(beyond, [Some(0.0), Some(0.0), Some(1.0), Some(6.0), Some(6.5534), Some(0.0)]);
    }

    #[test]
    fn a_sample_comes_back_as_it_was_written_and_is_written_without_names() {
        let gpus: PastGpus = [7, u64::MAX].map(PastGpu::from).into_iter().collect();
        let net = PastNet::from(0x0001_ffff_u32);
        for sample in [
            PastSample { at: Stamp(-5), cpu: Some(0.25), memory: None, net, gpus },
            PastSample { at: Stamp(1 << 50), cpu: None, memory: Some(1.0), net, gpus: PastGpus::default() },
        ] {
            let written = rmp_serde::to_vec_named(&sample).unwrap();
            assert!(!written.windows(6).any(|word| word == b"memory"));
            assert_eq!(rmp_serde::from_slice::<PastSample>(&written).unwrap(), sample);
        }
    }

    #[test]
    fn however_many_gpus_are_kept_in_their_order_and_written_as_a_list() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let all: Vec<PastGpu> = (0..count as u64).map(PastGpu::from).collect();
            let gpus: PastGpus = all.iter().copied().collect();
            assert_eq!((&*gpus, matches!(gpus.0, Held::Few(..))), (&*all, count <= FEW));
            let written = rmp_serde::to_vec_named(&gpus).unwrap();
            assert_eq!(written, rmp_serde::to_vec_named(&all).unwrap());
            assert_eq!(rmp_serde::from_slice::<PastGpus>(&written).unwrap(), gpus);
        }
    }

    #[test]
    fn a_slot_is_told_by_the_place_of_its_gpu_as_by_its_name() {
        let mut state = HostState { info: Some(Arc::new(info(2))), ..HostState::default() };
        let gpu = |index, util| GpuSample {
            util: Reading::Value(util),
            memory_used: Reading::Value(1),
            memory_total: Reading::Value(4),
            ..GpuSample::unknown(index)
        };
        let sample = HostSample { gpus: vec![gpu(0, 30), gpu(1, 70)], ..blank() };
        state.apply(Stamp(1), &Event::HostSampled { sample: Arc::new(sample) });
        let past = state.past.back().unwrap();
        let gpu = |name: &str| Slot::Gpu { index: 0, uuid: GpuUuid::from(name) };
        let all = [
            (gpu("GPU-0"), Some(0), Some(0.3), Some(0.25)),
            (gpu("GPU-1"), Some(1), Some(0.7), Some(0.25)),
            (gpu("GPU-9"), None, None, None),
            (Slot::Cpu { index: 0 }, None, Some(0.5), None),
        ];
        for (slot, place, util, memory) in all {
            assert_eq!(state.gpu_of(&slot), place);
            let close = |one: Option<f64>| one.map(|share| (share * 100.0).round() / 100.0);
            assert_eq!(close(past.util_at(&slot, place)), util);
            assert_eq!(past.load_at(&slot, place), SlotLoad::new(util, memory));
            assert_eq!(state.values_at(&slot, place), state.values_of(&slot));
            assert_eq!(state.values_of(&slot).is_some(), util.is_some());
        }
    }

    #[test]
    fn a_rate_is_kept_to_a_thousandth_and_none_is_none() {
        let kept = |rx: Reading<u64>| {
            let net = PastNet::of(&HostSample { net_rx: rx, ..blank() });
            assert_eq!((PastNet::from(u32::from(net)), net.tx()), (net, None));
            net.rx()
        };
        assert_eq!((kept(Reading::Unsupported), kept(Reading::Value(0))), (None, Some(0.0)));
        for rate in [1, 1_500, 12_345_678, u64::MAX] {
            let told = kept(Reading::Value(rate)).unwrap();
            assert!((told / rate as f64 - 1.0).abs() < 0.001, "{rate} is kept as {told}");
        }
    }
}
