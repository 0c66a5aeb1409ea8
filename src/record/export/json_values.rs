//! What an export in rows of JSON tells of one thing, by the names that all such formats have. A value that is not there, or is
//! no number, is left out.

use serde_json::Value;

use super::pass::{Run, length};
use super::selection::Span;
use crate::domain::gpu::{GpuSample, Number};
use crate::domain::host::HostSample;
use crate::domain::marks::RunMark;
use crate::domain::nccl_timing::CollectiveTiming;
use crate::domain::timing::{Phase, StepTiming};

/// The values that are there.
pub(super) fn object<const N: usize>(values: [(&str, Option<Value>); N]) -> Value {
    Value::Object(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// JSON knows no other numbers.
pub(super) fn finite(value: f64) -> Option<Value> {
    value.is_finite().then(|| value.into())
}

/// A step, without its beginning.
pub(super) fn step(run: &Run<'_>, timing: &StepTiming) -> Value {
    let known = run.told.known(timing);
    let mut row = object([
        ("step", Some(timing.step.into())),
        ("dur_us", Some(timing.dur_us.into())),
        ("hidden_us", known.hidden_us.map(Value::from)),
        ("loss", timing.loss.and_then(|loss| finite(loss.into()))),
        ("samples", known.samples.map(Value::from)),
        ("samples_per_s", timing.samples_per_second().and_then(finite)),
    ]);
    for (phase, us) in Phase::ALL.into_iter().zip(known.phases_us) {
        if let Some(us) = us {
            row[format!("{}_us", phase.name())] = us.into();
        }
    }
    row
}

/// The values of a host.
pub(super) fn of_host(sample: &HostSample) -> Value {
    object([
        ("cpu_percent", sample.cpu_percent.value().and_then(|percent| finite((*percent).into()))),
        ("memory_used", sample.memory_used.value().map(|bytes| (*bytes).into())),
        ("load", sample.load.value().and_then(|load| finite(load[0].into()))),
        ("net_rx", sample.net_rx.value().map(|bytes| (*bytes).into())),
        ("net_tx", sample.net_tx.value().map(|bytes| (*bytes).into())),
    ])
}

/// The values of a GPU.
pub(super) fn of_gpu(gpu: &GpuSample) -> Value {
    let known = GpuSample::NUMBERS.iter().filter_map(|field| match (field.get)(gpu) {
        Number::Value(value) => Some((field.name.to_owned(), Value::from(value))),
        Number::Failed(_) | Number::Unsupported => None,
    });
    Value::Object(known.collect())
}

/// A collective of NCCL, without its beginning.
pub(super) fn collective(span: Span, timing: &CollectiveTiming) -> Value {
    object([
        ("func", Some(Value::from(timing.func.clone()))),
        ("dur_us", Some(length(span))),
        ("bytes", Some(timing.bytes.into())),
        ("ranks", Some(timing.ranks.into())),
    ])
}

/// A mark that a person has set.
pub(super) fn of_mark(mark: &RunMark) -> Value {
    object([
        ("note", Some(Value::from(mark.note.clone()))),
        ("step", mark.step.map(Value::from)),
        ("rank", mark.rank.map(|rank| rank.0.into())),
    ])
}
