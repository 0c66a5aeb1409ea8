//! Since when each GPU of a host has been held and idle: the one definition of it, for rows, counts, filters and alerts. A
//! pure fold over the host's samples.

use super::alerts::AlertRules;
use super::gpu::{GpuInfo, GpuSample, Reading};
use super::lease::Leases;
use super::time::Stamp;
use super::world::HostState;

/// Below this share of the time in which kernels run a GPU is idle, percent.
const IDLE_BELOW: u32 = 2;

/// One entry a GPU, in the order of the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleSince {
    since: Vec<Option<Stamp>>,
    /// After how many microseconds a GPU is called idle: the threshold of the alert.
    pub(super) after_us: i64,
}

impl Default for IdleSince {
    fn default() -> Self {
        Self { since: Vec::new(), after_us: AlertRules::default().idle_after_us() }
    }
}

impl IdleSince {
    /// Takes a sample in, in the order of `infos`. A GPU of which it is not known whether it is held, or computes, is not idle.
    pub fn sample(&mut self, at: Stamp, infos: &[GpuInfo], gpus: &[GpuSample], leases: Option<&Leases>) {
        self.since.resize(gpus.len(), None);
        for (place, (since, gpu)) in self.since.iter_mut().zip(gpus).enumerate() {
            let idle = gpu.util.value().is_some_and(|util| *util < IDLE_BELOW);
            let held = is_held(infos.get(place), gpu, leases);
            *since = if idle && held == Some(true) { since.or(Some(at)) } else { None };
        }
    }

    /// Each GPU is now what stood at this place of the list.
    pub(super) fn move_gpus(&mut self, from: &[Option<usize>]) {
        let of = |from: &Option<usize>| from.and_then(|from| self.of(from));
        self.since = from.iter().map(of).collect();
    }

    /// Since when the GPU at `place` has been held and idle, as far as it was seen.
    pub fn of(&self, place: usize) -> Option<Stamp> {
        self.since.get(place).copied().flatten()
    }
}

/// Whether a lease or a process has a GPU; `None` where that is not known.
pub fn is_held(info: Option<&GpuInfo>, sample: &GpuSample, leases: Option<&Leases>) -> Option<bool> {
    let lease = info.zip(leases).and_then(|(info, leases)| leases.of(&info.uuid));
    match &sample.processes {
        _ if lease.is_some() => Some(true),
        Reading::Value(processes) => Some(!processes.is_empty()),
        _ => None,
    }
}

/// For how many microseconds, at least, the GPU at `place` of a host's list has been held without computing; `None` where it
/// is not called idle, or that is not known.
pub fn idle_us(state: &HostState, place: usize) -> Option<i64> {
    let (last, _) = state.latest()?;
    let idle = last.micros_since(state.idle.of(place)?);
    (idle >= state.idle.after_us).then_some(idle)
}

/// Whether it has been held without computing for long enough to be called idle; `None` where that is not known.
pub fn is_idle(state: &HostState, place: usize) -> Option<bool> {
    let (_, sample) = state.latest()?;
    let gpu = sample.gpus.get(place)?;
    gpu.util.value()?;
    let info = state.info.as_ref().and_then(|info| info.gpus.get(place));
    is_held(info, gpu, state.leases.as_ref())?;
    Some(idle_us(state, place).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::GpuProcess;

    #[test]
    fn a_gpu_is_idle_from_its_first_idle_sample_on_while_it_is_held() {
        let processes = |count| Reading::Value(vec![GpuProcess::unknown(7); count]);
        let gpu = |util: Reading<u32>, held: usize| GpuSample {
            util,
            processes: processes(held),
            ..GpuSample::unknown(0)
        };
        let mut idle = IdleSince::default();
        let mut sample = |at, gpus: [GpuSample; 2]| {
            idle.sample(Stamp(at), &[], &gpus, None);
            [idle.of(0), idle.of(1)]
        };
        let value = Reading::Value;
        assert_eq!(
            sample(0, [gpu(value(0), 1), gpu(value(0), 0)]),
            [Some(Stamp(0)), None],
            "nothing holds it"
        );
        assert_eq!(sample(1, [gpu(value(1), 1), gpu(value(0), 1)]), [Some(Stamp(0)), Some(Stamp(1))]);
        assert_eq!(sample(2, [gpu(Reading::Unsupported, 1), gpu(value(0), 1)]), [None, Some(Stamp(1))]);
        assert_eq!(
            sample(9, [gpu(value(1), 1), gpu(value(2), 1)]),
            [Some(Stamp(9)), None],
            "2 percent are work"
        );
    }
}
