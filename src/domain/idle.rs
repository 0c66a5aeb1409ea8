//! Since when each GPU of a host has been held and idle: the one definition of it, for rows, counts, filters and alerts. A
//! pure fold over the host's samples.

use serde::{Deserialize, Serialize};

use super::alerts::{AlertRules, CLEAR_US, UNKNOWN_US};
use super::gpu::{GpuInfo, GpuSample, Reading};
use super::lease::Leases;
use super::time::Stamp;
use super::world::HostState;

/// Below this share of the time in which kernels run a GPU is idle, percent.
const IDLE_BELOW: u32 = 2;

/// One entry a GPU, in the order of the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleSince {
    spans: Vec<Option<Span>>,
    /// After how many microseconds a GPU is called idle: the threshold of the alert.
    pub(super) after_us: i64,
}

/// A time in which a GPU is held and idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    since: Stamp,
    /// Since when it has computed, or nothing is known of it, after it was called idle.
    left: Option<Stamp>,
}

impl Default for IdleSince {
    fn default() -> Self {
        Self { spans: Vec::new(), after_us: AlertRules::default().idle_after_us() }
    }
}

impl IdleSince {
    /// Takes a sample in, in the order of `infos`. A GPU of which it is not known whether it is held, or computes, is not idle.
    /// What was called idle stays so until it has computed for a while: a short burst ends neither row nor alert.
    pub fn sample(&mut self, at: Stamp, infos: &[GpuInfo], gpus: &[GpuSample], leases: Option<&Leases>) {
        self.spans.resize(gpus.len(), None);
        let after_us = self.after_us;
        for (place, (span, gpu)) in self.spans.iter_mut().zip(gpus).enumerate() {
            let held = is_held(infos.get(place), gpu, leases);
            let idle = gpu.util.value().map(|util| *util < IDLE_BELOW);
            *span = match (held, idle) {
                (Some(true), Some(true)) => {
                    Some(span.map_or(Span { since: at, left: None }, |span| Span { left: None, ..span }))
                }
                (Some(false), _) => None,
                (Some(true), Some(false)) => span.and_then(|span| span.left(at, after_us, CLEAR_US)),
                _ => span.and_then(|span| span.left(at, after_us, UNKNOWN_US)),
            };
        }
    }

    /// Each GPU is now what stood at this place of the list.
    pub(super) fn move_gpus(&mut self, from: &[Option<usize>]) {
        let of = |from: &Option<usize>| from.and_then(|from| self.spans.get(from).copied().flatten());
        self.spans = from.iter().map(of).collect();
    }

    /// Since when the GPU at `place` has been held and idle, as far as it was seen.
    pub fn of(&self, place: usize) -> Option<Stamp> {
        self.spans.get(place).copied().flatten().map(|span| span.since)
    }

    /// Since when the GPU at `place`, which was called idle, has not been so.
    pub fn left(&self, place: usize) -> Option<Stamp> {
        self.spans.get(place).copied().flatten()?.left
    }
}

impl Span {
    /// It is not seen idle at `at`: over at once where it was not called idle yet, else after `patience_us`.
    fn left(self, at: Stamp, after_us: i64, patience_us: i64) -> Option<Self> {
        let left = self.left.unwrap_or(at);
        let called = left.micros_since(self.since) >= after_us;
        (called && at.micros_since(left) < patience_us).then_some(Self { left: Some(left), ..self })
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
    let until = state.idle.left(place).unwrap_or(last);
    let idle = until.micros_since(state.idle.of(place)?);
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

    #[test]
    fn a_burst_does_not_end_what_is_called_idle_and_work_does() {
        let second = 1_000_000;
        let mut idle = IdleSince { after_us: 60 * second, ..IdleSince::default() };
        let mut sample = |at: i64, util: u32, held: usize| {
            let processes = Reading::Value(vec![GpuProcess::unknown(7); held]);
            let gpu = GpuSample { util: Reading::Value(util), processes, ..GpuSample::unknown(0) };
            idle.sample(Stamp(at * second), &[], &[gpu], None);
            idle.of(0).map(|since| since.0 / second)
        };
        assert_eq!([sample(0, 0, 1), sample(30, 5, 1)], [Some(0), None], "it was not called idle yet");
        assert_eq!([sample(40, 0, 1), sample(100, 1, 1)], [Some(40), Some(40)]);
        assert_eq!([sample(101, 90, 1), sample(110, 90, 1)], [Some(40), Some(40)], "a burst");
        assert_eq!([sample(111, 0, 1), sample(112, 90, 1)], [Some(40), Some(40)]);
        assert_eq!([sample(121, 90, 1), sample(122, 90, 1)], [Some(40), None], "work");
        assert_eq!([sample(130, 0, 1), sample(190, 0, 1), sample(191, 0, 0)], [Some(130), Some(130), None]);
    }
}
