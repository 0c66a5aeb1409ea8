//! How much each process uses a GPU's SMs: NVML keeps samples of the last seconds by process and tells those since a
//! moment of its own clock.
//!
//! Any call in here may block for ever on a broken GPU, so only the reader's thread calls it.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;

use super::{HostClock, nvml};
use crate::domain::gpu::Reading;
use crate::domain::time::HostTime;

/// The time over which a process's use is told, microseconds: NVML takes samples several times a second at most, so
/// that a shorter one may hold none of a process that is busy.
const WINDOW: u64 = 1_500_000;

/// What is remembered of one GPU.
#[derive(Debug, Default)]
pub(super) struct ProcessUse {
    /// The newest moment of NVML's clock that was told, microseconds, and when it first was: after the call, so that no time
    /// which follows from it lies ahead of NVML's clock.
    newest: Option<(u64, HostTime)>,
    unsupported: bool,
}

impl ProcessUse {
    /// Percent by pid; a process that is not there was idle.
    pub(super) fn ask(
        &mut self,
        device: &Device<'_>,
        clock: &HostClock,
    ) -> Reading<BTreeMap<u32, Reading<u32>>> {
        if self.unsupported {
            return Reading::Unsupported;
        }
        let since = self.since(clock());
        let asked = match device.process_utilization_stats(since) {
            // a process came between the question for the count and that for the samples
            Err(NvmlError::InsufficientSize(_)) => device.process_utilization_stats(since),
            asked => asked,
        };
        match asked {
            Ok(samples) => Reading::Value(self.take(&samples, clock())),
            // NVML's word for: no process has used it since then
            Err(NvmlError::NotFound) => Reading::Value(BTreeMap::new()),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
                self.unsupported = true;
                Reading::Unsupported
            }
            Err(error) => Reading::failed(nvml::words(&error)),
        }
    }

    /// From which moment of NVML's clock on; all that it has where that clock is not known yet.
    fn since(&self, now: HostTime) -> Option<u64> {
        let (newest, seen) = self.newest?;
        Some(newest.saturating_add(now.0.saturating_sub(seen.0)).saturating_sub(WINDOW))
    }

    fn take(&mut self, samples: &[ProcessUtilizationSample], now: HostTime) -> BTreeMap<u32, Reading<u32>> {
        let newest = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(0);
        if self.newest.is_none_or(|(before, _)| newest > before) {
            self.newest = Some((newest, now));
        }
        let recent = samples.iter().filter(|sample| sample.timestamp.saturating_add(WINDOW) > newest);
        let share = |percent: u32| match percent {
            0..=100 => Reading::Value(percent),
            // seen of drivers whose buffer was not filled
            _ => Reading::failed(format!("the driver says {percent} percent")),
        };
        recent.map(|sample| (sample.pid, share(sample.sm_util))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample { pid, timestamp, sm_util, mem_util: 0, enc_util: 0, dec_util: 0 }
    }

    #[test]
    fn the_window_moves_on_while_no_process_is_busy() {
        let mut uses = ProcessUse::default();
        assert_eq!(uses.since(HostTime(5)), None);
        let told = uses.take(&[sample(7, 90_000_000, 40), sample(8, 80_000_000, 50)], HostTime(1_000_000));
        assert_eq!(told, BTreeMap::from([(7, Reading::Value(40))]), "8 was busy long ago");
        assert_eq!(uses.since(HostTime(1_000_000)), Some(88_500_000));
        assert_eq!(uses.since(HostTime(3_000_000)), Some(90_500_000), "what was told is over");
        // told again, and not newer
        uses.take(&[sample(7, 90_000_000, 40)], HostTime(2_000_000));
        assert_eq!(uses.since(HostTime(3_000_000)), Some(90_500_000));
    }

    #[test]
    fn a_share_above_all_is_none() {
        let told = ProcessUse::default().take(&[sample(7, 1, 101)], HostTime(0));
        assert_eq!(told[&7], Reading::failed("the driver says 101 percent"));
    }
}
