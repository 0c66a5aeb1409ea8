//! TensorBoard's event file: a TFRecord file (`tensorflow/core/lib/io/record_writer.h`) of `Event` messages
//! (`tensorflow/core/util/event.proto`, `framework/summary.proto`) with scalars alone. Tags are `loss/rank_0` and so
//! on.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::super::tfrecord::masked_crc;
use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::{Format, Target};
use crate::domain::timing::Phase;
use crate::domain::trainer_keys::TrainerId;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "tensorboard",
    about: "TensorBoard's scalars: loss, samples/s, step and wait seconds of each rank, and its own metrics",
    target: Target::Folder { prefix: "events.out.tfevents" },
    sink: || Box::new(TensorBoard::default()),
};

#[derive(Default)]
struct TensorBoard {
    /// The newest step of each rank, for numbers that tell none.
    steps: BTreeMap<TrainerId, u64>,
}

impl Sink for TensorBoard {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        let mut version = event(run.start.0.saturating_mul(1_000), 0);
        bytes(&mut version, 3, b"brain.Event:2");
        record(out, &version)
    }

    fn take(&mut self, out: &mut Out<'_>, _: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { id, span, timing } => {
                self.steps.insert(*id, timing.step);
                let wait = timing.spans.iter().any(|span| span.phase == Phase::Wait);
                let wait = wait.then(|| timing.phase_totals()[Phase::Wait.index()] as f64 / 1e6);
                let values = [
                    ("loss", timing.loss.map(f64::from)),
                    ("samples_per_second", timing.samples_per_second()),
                    ("step_seconds", Some(f64::from(timing.dur_us) / 1e6)),
                    ("wait_seconds", wait),
                ];
                let values = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
                scalars(out, (*id, span.1, timing.step), values)
            }
            Item::Metric { id, at, name, value, step } => {
                let step = step.or_else(|| self.steps.get(id).copied()).unwrap_or_default();
                scalars(out, (*id, *at, step), [(&*format!("metric/{name}"), *value)].into_iter())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// One event with scalars of a rank, at a moment and a step.
fn scalars<'a>(
    out: &mut Out<'_>,
    (id, at, step): (TrainerId, i64, u64),
    values: impl Iterator<Item = (&'a str, f64)>,
) -> io::Result<()> {
    let mut summary = Vec::new();
    for (name, number) in values {
        let mut value = Vec::new();
        bytes(&mut value, 1, format!("{name}/{id}").as_bytes());
        value.push((2 << 3) | 5);
        value.extend_from_slice(&(number as f32).to_le_bytes());
        bytes(&mut summary, 1, &value);
    }
    if !out.take(1) {
        return Ok(());
    }
    let mut event = event(at, step);
    bytes(&mut event, 5, &summary);
    record(out, &event)
}

/// The beginning of an `Event`: its wall time and its step.
fn event(at_ns: i64, step: u64) -> Vec<u8> {
    let mut message = vec![(1 << 3) | 1];
    message.extend_from_slice(&(at_ns as f64 / 1e9).to_le_bytes());
    message.push(2 << 3);
    varint(&mut message, step);
    message
}

/// A field of a message that is a text or a message.
fn bytes(message: &mut Vec<u8>, field: u8, content: &[u8]) {
    message.push((field << 3) | 2);
    varint(message, content.len() as u64);
    message.extend_from_slice(content);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value as u8) | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// A record: its length and its data, each with a masked checksum behind it.
fn record(out: &mut Out<'_>, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked_crc(&length).to_le_bytes())?;
    out.write_all(data)?;
    out.write_all(&masked_crc(data).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let of = |value| {
            let mut message = Vec::new();
            varint(&mut message, value);
            message
        };
        assert_eq!([of(0), of(127), of(300)], [vec![0], vec![127], vec![0xac, 0x02]]);
        assert_eq!(of(u64::MAX).len(), 10);
    }
}
