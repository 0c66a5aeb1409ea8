//! The numbers of GPU samples that have no column of their own in [`super::telemetry`]: columns with names, beside the
//! samples that they belong to. A reader passes over names that it does not know, so a new number changes no format.

use super::column::{Dec, Enc, Malformed, Texts};
use super::readings::{Columns, Source};
use super::telemetry::{MAX_GPUS, PLACED};
use crate::domain::event::{Envelope, Event};
use crate::domain::gpu::{Field, GpuSample, Number, Reading};
use crate::record::format::MAX_ENVELOPES;

/// Encodes what the samples among `envelopes` tell in such numbers; `None` where they tell nothing.
pub(in crate::record) fn encode(envelopes: &[Envelope]) -> Option<Vec<u8>> {
    let samples = envelopes.iter().filter_map(|envelope| match &envelope.event {
        Event::HostSampled { sample } if !sample.gpus.is_empty() => Some((envelope.seq, &sample.gpus)),
        _ => None,
    });
    let mut enc = Enc::default();
    let mut gpus: Vec<&GpuSample> = Vec::new();
    enc.uint(samples.clone().count() as u64);
    let mut before = 0;
    for (seq, _) in samples.clone() {
        enc.delta(seq, before);
        before = seq;
    }
    for (_, of) in samples {
        enc.uint(of.len() as u64);
        gpus.extend(of);
    }
    let told = |field: &&Field<GpuSample>| gpus.iter().any(|gpu| (field.get)(gpu) != Number::Unsupported);
    let named = GpuSample::NUMBERS.iter().filter(|field| !PLACED.contains(&field.name));
    let mut to = Columns::default();
    for field in named.filter(told) {
        to.text(field.name);
        to.plain(gpus.iter().map(|gpu| (field.get)(gpu)));
    }
    if to.enc.is_empty() {
        return None;
    }
    to.strings.write(&mut enc);
    enc.append(&to.enc);
    Some(enc.finish())
}

/// The columns of one block.
#[derive(Debug)]
pub(in crate::record) struct GpuNumbers {
    /// Sequence number and GPUs of each sample.
    samples: Vec<(u64, usize)>,
    columns: Vec<(&'static Field<GpuSample>, Vec<Reading<u64>>)>,
}

/// The columns of a block, without those that this version has no name for.
pub(in crate::record) fn decode(bytes: &[u8]) -> Result<GpuNumbers, Malformed> {
    let mut dec = Dec::new(bytes);
    let count = dec.count()?;
    if count > MAX_ENVELOPES {
        return Err(Malformed("more rows than a chunk may have"));
    }
    let mut samples = Vec::with_capacity(count);
    let mut seq = 0;
    for _ in 0..count {
        seq = dec.delta(seq)?;
        samples.push((seq, 0));
    }
    let mut gpus = 0_usize;
    for sample in &mut samples {
        sample.1 = dec.count()?;
        gpus = gpus.saturating_add(sample.1);
    }
    if gpus > MAX_GPUS {
        return Err(Malformed("has more GPUs than a chunk may have"));
    }
    let texts = Texts::read(&mut dec)?;
    let mut from = Source { dec, texts };
    let mut columns = Vec::new();
    while !from.dec.at_end() {
        let name = from.text()?;
        let readings = from.numbers(gpus)?;
        let field = GpuSample::NUMBERS.iter().find(|field| field.name == name);
        if let Some(field) =
            field.filter(|field| columns.len() < GpuSample::NUMBERS.len() && !PLACED.contains(&field.name))
        {
            columns.push((field, readings));
        }
    }
    Ok(GpuNumbers { samples, columns })
}

impl GpuNumbers {
    /// Puts the numbers into the samples among `envelopes`, which are in the order of their sequence numbers. Numbers
    /// of samples that are not there, and those that their field can't hold, are left out.
    pub(in crate::record) fn join(self, envelopes: &mut [Envelope]) {
        for (field, readings) in self.columns {
            let mut readings = readings.into_iter();
            for (seq, count) in &self.samples {
                let readings = readings.by_ref().take(*count).collect::<Vec<_>>();
                let Ok(at) = envelopes.binary_search_by_key(seq, |envelope| envelope.seq) else { continue };
                let Some(Event::HostSampled { sample }) = envelopes.get_mut(at).map(|one| &mut one.event)
                else {
                    continue;
                };
                for (gpu, reading) in sample.gpus.iter_mut().zip(readings) {
                    (field.set)(gpu, reading);
                }
            }
        }
    }
}
