//! The numbers of GPU samples that have no column of their own in [`super::telemetry`]: columns with names, beside the
//! samples that they belong to. A reader passes over names that it does not know, so a new number changes no format.

use std::sync::Arc;

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
                let mut of_sample = readings.by_ref().take(*count);
                let at = envelopes.binary_search_by_key(seq, |envelope| envelope.seq).ok();
                let found = at.and_then(|at| envelopes.get_mut(at)).map(|envelope| &mut envelope.event);
                if let Some(Event::HostSampled { sample }) = found {
                    for (gpu, reading) in Arc::make_mut(sample).gpus.iter_mut().zip(&mut of_sample) {
                        (field.set)(gpu, reading);
                    }
                }
                of_sample.for_each(drop);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::Origin;
    use crate::domain::fixtures::host_sample;
    use crate::domain::host::HostSample;
    use crate::domain::ids::HostId;
    use crate::domain::time::Stamp;

    fn sampled(seq: u64, gpus: Vec<GpuSample>) -> Envelope {
        let sample = HostSample { gpus, ..host_sample() };
        let event = Event::HostSampled { sample: Arc::new(sample) };
        Envelope { seq, at: Stamp(seq as i64), origin: Origin::Host(HostId::from("a")), event }
    }

    fn fan(index: u32, percent: u32) -> GpuSample {
        GpuSample { fan_percent: Reading::Value(percent), ..GpuSample::unknown(index) }
    }

    #[test]
    fn samples_without_such_numbers_have_no_block() {
        let util = GpuSample { util: Reading::Value(9), ..GpuSample::unknown(0) };
        assert!(encode(&[sampled(1, vec![util])]).is_none());
        assert!(encode(&[sampled(1, Vec::new())]).is_none());
    }

    #[test]
    fn each_number_comes_to_its_sample() {
        let failed = GpuSample { energy_mj: Reading::failed("GPU is lost"), ..GpuSample::unknown(1) };
        let told =
            [sampled(3, vec![fan(0, 40), failed]), sampled(5, Vec::new()), sampled(9, vec![fan(0, 60)])];
        let block = encode(&told).unwrap();
        let empty = |index| GpuSample::unknown(index);
        let mut read =
            [sampled(3, vec![empty(0), empty(1)]), sampled(5, Vec::new()), sampled(9, vec![empty(0)])];
        decode(&block).unwrap().join(&mut read);
        assert_eq!(read, told);
        // A reader that wants other channels only has no samples; one that lost a chunk has others.
        decode(&block).unwrap().join(&mut []);
        let mut other = [sampled(4, vec![empty(0)])];
        decode(&block).unwrap().join(&mut other);
        assert_eq!(other, [sampled(4, vec![empty(0)])]);
    }

    #[test]
    fn a_number_of_a_later_version_is_passed_over() {
        let mut enc = Enc::default();
        for number in [1, 14, 1] {
            enc.uint(number);
        }
        let mut to = Columns::default();
        for (name, value) in [("from_tomorrow", 1 << 40), ("fan_percent", 70), ("util", 7), ("mig", 2)] {
            to.text(name);
            to.plain([Number::Value(value)].into_iter());
        }
        to.strings.write(&mut enc);
        enc.append(&to.enc);
        let mut read = [sampled(7, vec![GpuSample::unknown(0)])];
        decode(&enc.finish()).unwrap().join(&mut read);
        assert_eq!(
            read,
            [sampled(7, vec![fan(0, 70)])],
            "a column of /gpu and a value that can't be are left out"
        );
    }
}
