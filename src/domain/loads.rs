//! How busy slots and hosts were in a short time of a whole run: peaks, in few bytes, for there are thousands of points.

use serde::{Deserialize, Serialize};

use super::past::PastSample;
use super::series::Merge;

/// Of a slot: how busy it was, and how full its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "u16", into = "u16")]
pub struct SlotLoad {
    util: Percent,
    memory: Percent,
}

/// Of a host: how busy its CPUs were, how full its memory, and what went over its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct HostLoad {
    cpu: Percent,
    memory: Percent,
    rx: CoarseRate,
    tx: CoarseRate,
}

impl SlotLoad {
    /// Of shares, 0..=1.
    pub fn new(util: Option<f64>, memory: Option<f64>) -> Self {
        Self { util: Percent::new(util), memory: Percent::new(memory) }
    }

    /// How busy it was, percent.
    pub fn util(self) -> Option<u32> {
        self.util.value()
    }

    /// How busy it was at most in all of these times, percent.
    pub(super) fn most_util(loads: &[Self]) -> Option<u32> {
        // what is not known is the least
        let most = loads.iter().fold(0, |most: u8, load| most.max(load.util.0.wrapping_add(1)));
        most.checked_sub(1).map(u32::from)
    }

    /// The used share of its memory, 0..=1.
    pub fn memory(self) -> Option<f64> {
        self.memory.share()
    }
}

impl HostLoad {
    /// What is kept of a sample.
    pub fn of(past: &PastSample) -> Self {
        Self {
            cpu: Percent::new(past.cpu.map(f64::from)),
            memory: Percent::new(past.memory.map(f64::from)),
            rx: CoarseRate::new(past.net.rx()),
            tx: CoarseRate::new(past.net.tx()),
        }
    }

    /// How busy its CPUs were, 0..=1.
    pub fn cpu(self) -> Option<f64> {
        self.cpu.share()
    }

    /// The used share of its memory, 0..=1.
    pub fn memory(self) -> Option<f64> {
        self.memory.share()
    }

    /// Bytes a second received, to a sixteenth.
    pub fn rx(self) -> Option<f64> {
        self.rx.value()
    }

    /// Bytes a second sent, to a sixteenth.
    pub fn tx(self) -> Option<f64> {
        self.tx.value()
    }
}

impl Merge for SlotLoad {
    fn merge(&mut self, other: &Self) {
        self.util.merge(other.util);
        self.memory.merge(other.memory);
    }
}

impl Merge for HostLoad {
    fn merge(&mut self, other: &Self) {
        self.cpu.merge(other.cpu);
        self.memory.merge(other.memory);
        self.rx.merge(other.rx);
        self.tx.merge(other.tx);
    }
}

impl From<SlotLoad> for u16 {
    fn from(load: SlotLoad) -> Self {
        Self::from_le_bytes([load.util.0, load.memory.0])
    }
}

impl From<u16> for SlotLoad {
    fn from(all: u16) -> Self {
        let [util, memory] = all.to_le_bytes().map(Percent);
        Self { util, memory }
    }
}

impl From<HostLoad> for u32 {
    fn from(load: HostLoad) -> Self {
        Self::from_le_bytes([load.cpu.0, load.memory.0, load.rx.0, load.tx.0])
    }
}

impl From<u32> for HostLoad {
    fn from(all: u32) -> Self {
        let [cpu, memory, rx, tx] = all.to_le_bytes();
        Self { cpu: Percent(cpu), memory: Percent(memory), rx: CoarseRate(rx), tx: CoarseRate(tx) }
    }
}

/// What stands for a value that is not known.
const UNKNOWN: u8 = u8::MAX;

/// The greater of two, one of which may not be known.
fn greater(one: u8, other: u8) -> u8 {
    if one == UNKNOWN || other == UNKNOWN { one.min(other) } else { one.max(other) }
}

/// 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Percent(u8);

impl Default for Percent {
    fn default() -> Self {
        Self(UNKNOWN)
    }
}

impl Percent {
    fn new(share: Option<f64>) -> Self {
        Self(share.map_or(UNKNOWN, |share| (share.clamp(0.0, 1.0) * 100.0).round() as u8))
    }

    fn value(self) -> Option<u32> {
        (self.0 != UNKNOWN).then(|| self.0.into())
    }

    fn share(self) -> Option<f64> {
        self.value().map(|percent| f64::from(percent) / 100.0)
    }

    fn merge(&mut self, other: Self) {
        self.0 = greater(self.0, other.0);
    }
}

/// Bytes a second in sixths of a power of two, from 1 on; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CoarseRate(u8);

impl Default for CoarseRate {
    fn default() -> Self {
        Self(UNKNOWN)
    }
}

impl CoarseRate {
    const STEPS: f64 = 6.0;

    fn new(rate: Option<f64>) -> Self {
        Self(rate.map_or(UNKNOWN, |rate| logarithm(rate, Self::STEPS, UNKNOWN - 1)))
    }

    fn value(self) -> Option<f64> {
        (self.0 != UNKNOWN).then(|| power(self.0, Self::STEPS))
    }

    fn merge(&mut self, other: Self) {
        self.0 = greater(self.0, other.0);
    }
}

/// A rate on a scale on which so many steps are twice as much: 0 for none, 1 for one byte a second.
pub(super) fn logarithm<N: TryFrom<u64> + Ord + Copy>(rate: f64, steps: f64, most: N) -> N {
    let scaled = if rate < 1.0 { 0.0 } else { 1.0 + (rate.log2() * steps).round() };
    N::try_from(scaled as u64).map_or(most, |scaled| scaled.min(most))
}

/// The rate of a place on that scale.
pub(super) fn power(at: impl Into<f64>, steps: f64) -> f64 {
    let at = at.into();
    if at < 1.0 { 0.0 } else { ((at - 1.0) / steps).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_small_and_keeps_the_peaks_of_what_is_known() {
        assert_eq!((size_of::<SlotLoad>(), size_of::<HostLoad>()), (2, 4));
        let mut load = SlotLoad::default();
        assert_eq!((load.util(), load.memory()), (None, None));
        load.merge(&SlotLoad::new(Some(0.97), None));
        load.merge(&SlotLoad::new(Some(0.4), Some(0.25)));
        assert_eq!((load.util(), load.memory()), (Some(97), Some(0.25)));
        assert_eq!(SlotLoad::from(u16::from(load)), load);
        let beyond = SlotLoad::new(Some(f64::NAN), Some(7.0));
        assert_eq!((beyond.util(), beyond.memory()), (Some(0), Some(1.0)));
    }

    #[test]
    fn the_peak_of_some_times_is_that_of_those_that_are_known() {
        let loads = [None, Some(0.4), Some(1.0), Some(0.0), None].map(|util| SlotLoad::new(util, None));
        for from in 0..=loads.len() {
            for to in from..=loads.len() {
                let of = &loads[from..to];
                assert_eq!(SlotLoad::most_util(of), of.iter().filter_map(|load| load.util()).max());
            }
        }
    }

    #[test]
    fn rates_of_any_network_are_kept_to_a_sixteenth() {
        let kept = |rate: f64| CoarseRate::new(Some(rate)).value().unwrap();
        assert_eq!((kept(0.0), kept(1.0)), (0.0, 1.0));
        for rate in [2.0, 1_000.0, 12_345_678.0, 50e9, 3e12] {
            assert!((kept(rate) / rate - 1.0).abs() < 1.0 / 16.0, "{rate} is kept as {}", kept(rate));
        }
        assert!(kept(1e30) > 3e12);
        assert_eq!(CoarseRate::new(None).value(), None);
    }
}
