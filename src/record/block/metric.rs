//! Named numbers that ranks reported. Floats are stored as their bits: a loss that became NaN is one
//! of the things a recording is opened for, and JSON has no word for it.

use super::column::{Dec, Enc, Malformed, Strings, Texts};
use super::head::Heads;
use crate::domain::event::{Envelope, Event};

/// Encodes the metrics among `envelopes`.
pub(in crate::record) fn encode(envelopes: &[Envelope]) -> Vec<u8> {
    let mut rows = Vec::new();
    let mut metrics = Vec::new();
    for envelope in envelopes {
        if let Event::MetricReported { name, value, step } = &envelope.event {
            rows.push(envelope);
            metrics.push((name, *value, *step));
        }
    }
    let mut enc = Enc::default();
    Heads::write(&mut enc, &rows);
    let mut strings = Strings::default();
    let numbers: Vec<u64> = metrics.iter().map(|(name, ..)| strings.number(name)).collect();
    strings.write(&mut enc);
    for number in numbers {
        enc.uint(number);
    }
    for (_, value, _) in &metrics {
        enc.float64(*value);
    }
    for (.., step) in &metrics {
        enc.byte(u8::from(step.is_some()));
    }
    let mut before = 0;
    for step in metrics.iter().filter_map(|(.., step)| *step) {
        enc.delta(step, before);
        before = step;
    }
    enc.finish()
}

/// The envelopes of a block.
pub(in crate::record) fn decode(bytes: &[u8]) -> Result<Vec<Envelope>, Malformed> {
    let mut dec = Dec::new(bytes);
    let heads = Heads::read(&mut dec)?;
    let mut texts = Texts::read(&mut dec)?;
    let mut metrics = Vec::with_capacity(heads.len());
    for _ in 0..heads.len() {
        let name = texts.get(dec.uint()?)?;
        metrics.push((name, 0.0, None));
    }
    for metric in &mut metrics {
        metric.1 = dec.float64()?;
    }
    for metric in &mut metrics {
        metric.2 = match dec.byte()? {
            0 => None,
            1 => Some(0),
            _ => return Err(Malformed("has a step that is neither there nor absent")),
        };
    }
    let mut before = 0;
    for step in metrics.iter_mut().filter_map(|metric| metric.2.as_mut()) {
        *step = dec.delta(before)?;
        before = *step;
    }
    dec.end()?;
    let event = |(name, value, step): (&str, f64, Option<u64>)| Event::MetricReported {
        name: name.to_owned(),
        value,
        step,
    };
    Ok(heads.with(metrics.into_iter().map(event)))
}
