//! Since when each GPU of a host has been idle: the one definition of it, for rows, filters and alerts. A pure fold over
//! the host's samples; must not know whether something is held on the GPU.

use super::gpu::GpuSample;
use super::time::Stamp;
use super::world::HostState;

/// Below this share of the time in which kernels run a GPU is idle, percent.
const IDLE_BELOW: u32 = 2;

/// One entry a GPU, in the order of the samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleSince(Vec<Option<Stamp>>);

impl IdleSince {
    /// Takes a sample in. A utilisation that is not known is not idle.
    pub fn sample(&mut self, at: Stamp, gpus: &[GpuSample]) {
        self.0.resize(gpus.len(), None);
        for (since, gpu) in self.0.iter_mut().zip(gpus) {
            let idle = gpu.util.value().is_some_and(|util| *util < IDLE_BELOW);
            *since = if idle { since.or(Some(at)) } else { None };
        }
    }

    /// Each GPU is now what stood at this place of the list.
    pub(super) fn move_gpus(&mut self, from: &[Option<usize>]) {
        self.0 = from.iter().map(|from| from.and_then(|from| self.0.get(from).copied().flatten())).collect();
    }

    /// Since when the GPU at `place` has been idle, as far as it was seen.
    pub fn of(&self, place: usize) -> Option<Stamp> {
        self.0.get(place).copied().flatten()
    }
}

/// A GPU that has been idle for less than this is not called so, microseconds.
pub const IDLE_AFTER_US: i64 = 60_000_000;

/// For how many microseconds, at least, the GPU at `place` of a host's list has not computed; `None` while it computes and
/// where that is not known.
pub fn idle_us(state: &HostState, place: usize) -> Option<i64> {
    let (last, _) = state.latest()?;
    Some(last.micros_since(state.idle.of(place)?))
}

/// Whether it has been idle for long enough to be called so; `None` where that is not known.
pub fn is_idle(state: &HostState, place: usize) -> Option<bool> {
    let (_, sample) = state.latest()?;
    sample.gpus.get(place)?.util.value()?;
    Some(idle_us(state, place).is_some_and(|idle| idle >= IDLE_AFTER_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::Reading;

    #[test]
    fn a_gpu_is_idle_from_its_first_idle_sample_on() {
        let gpu = |util: Reading<u32>| GpuSample { util, ..GpuSample::unknown(0) };
        let mut idle = IdleSince::default();
        let told = [Reading::Value(0), Reading::Value(1), Reading::Unsupported];
        for (at, util) in told.into_iter().enumerate() {
            idle.sample(Stamp(at as i64), &[gpu(util), gpu(Reading::Value(0))]);
            let expected = (at < 2).then_some(Stamp(0));
            assert_eq!(idle.of(0), expected, "sample {at}");
        }
        assert_eq!((idle.of(1), idle.of(2)), (Some(Stamp(0)), None));
        idle.sample(Stamp(9), &[gpu(Reading::Value(1)), gpu(Reading::Value(2))]);
        assert_eq!((idle.of(0), idle.of(1)), (Some(Stamp(9)), None), "2 percent are work");
    }
}
