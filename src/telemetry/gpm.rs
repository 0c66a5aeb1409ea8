//! GPM: how active the SMs, the tensor cores and the memory of a GPU or of a MIG slice were between two samples.
//!
//! Any call in here may block for ever on a broken GPU, so only the GPU's own thread calls it.

use std::collections::BTreeMap;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use super::counters::{NOT_YET, optional};
use crate::domain::gpu::Reading;

/// SM, tensor and memory activity since the sample before, percent.
pub(super) type Activity = [Reading<u32>; 3];

/// What is not told.
const NONE: Activity = [const { Reading::Unsupported }; 3];

/// What is remembered of a GPU between its samples.
#[derive(Default)]
pub(super) struct Gpm<'nvml> {
    is_there: Option<bool>,
    whole: Option<GpmSample<'nvml>>,
    /// By GPU instance.
    slices: BTreeMap<u32, GpmSample<'nvml>>,
}

impl<'nvml> Gpm<'nvml> {
    /// The activity of a GPU; none where it is cut into slices.
    pub(super) fn of_whole(&mut self, nvml: &'nvml Nvml, device: &Device<'nvml>, is_cut: bool) -> Activity {
        if is_cut || !self.is_there(device) {
            self.whole = None;
            return NONE;
        }
        let (kept, activity) = since(nvml, self.whole.take(), device.gpm_sample());
        self.whole = kept;
        activity
    }

    /// The activity of its slices, which are told by their GPU instances; a GPU that is not cut has none. GPM tells that of
    /// a whole GPU instance: where several slices share one, of none of them.
    pub(super) fn of_slices(
        &mut self,
        nvml: &'nvml Nvml,
        device: &Device<'nvml>,
        instances: &[Option<u32>],
    ) -> Vec<Activity> {
        let mut before = std::mem::take(&mut self.slices);
        let of = |instance: &Option<u32>| {
            let is_alone = |id: &u32| instances.iter().filter(|other| **other == Some(*id)).count() == 1;
            let Some(id) = instance.filter(is_alone).filter(|_| self.is_there(device)) else { return NONE };
            let (kept, activity) = since(nvml, before.remove(&id), device.gpm_mig_sample(id));
            self.slices.extend(kept.map(|kept| (id, kept)));
            activity
        };
        instances.iter().map(of).collect()
    }

    fn is_there(&mut self, device: &Device<'nvml>) -> bool {
        *self.is_there.get_or_insert_with(|| device.gpm_support().unwrap_or(false))
    }
}

/// What to remember, and the activity since `before`.
fn since<'nvml>(
    nvml: &'nvml Nvml,
    before: Option<GpmSample<'nvml>>,
    now: Result<GpmSample<'nvml>, NvmlError>,
) -> (Option<GpmSample<'nvml>>, Activity) {
    let same = |reading: Reading<u32>| [reading.clone(), reading.clone(), reading];
    let now = match now {
        Ok(now) => now,
        Err(error) => return (None, same(optional(Err(error)))),
    };
    let Some(before) = before else { return (Some(now), same(Reading::failed(NOT_YET))) };
    let wanted = [GpmMetricId::SmUtil, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];
    let activity = match gpm_metrics_get(nvml, &before, &now, &wanted) {
        Ok(metrics) => {
            let mut each = metrics.into_iter().map(|metric| share(metric.map(|metric| metric.value)));
            std::array::from_fn(|_| each.next().unwrap_or_default())
        }
        Err(error) => same(optional(Err(error))),
    };
    (Some(now), activity)
}

fn share(percent: Result<f64, NvmlError>) -> Reading<u32> {
    match optional(percent) {
        Reading::Value(percent) if (0.0..=100.5).contains(&percent) => {
            Reading::Value(percent.round().min(100.0) as u32)
        }
        Reading::Value(percent) => Reading::failed(format!("the driver says {percent} percent")),
        Reading::Failed { error } => Reading::Failed { error },
        Reading::Unsupported => Reading::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_failure() {
        assert_eq!(share(Ok(41.6)), Reading::Value(42));
        assert_eq!(share(Ok(100.4)), Reading::Value(100));
        assert_eq!(share(Ok(f64::NAN)), Reading::failed("the driver says NaN percent"));
        assert_eq!(share(Err(NvmlError::NotSupported)), Reading::Unsupported);
    }
}
