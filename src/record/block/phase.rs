//! Step timings of all ranks. A step is stored as its difference to the step before it of the same
//! rank, a span as its difference to the end of the span before it: in a steady run, small numbers.

use std::sync::Arc;

use super::column::{Dec, Enc, Malformed};
use super::head::Heads;
use crate::domain::event::{Envelope, Event};
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// The most spans in one block: above what the weight of a chunk lets a writer put there.
const MAX_SPANS: usize = 1 << 21;

/// Encodes the step timings among `envelopes`.
pub(in crate::record) fn encode(envelopes: &[Envelope]) -> Vec<u8> {
    let (rows, timings): (Vec<&Envelope>, Vec<&Arc<StepTiming>>) = envelopes
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::StepDone { timing } => Some((envelope, timing)),
            _ => None,
        })
        .unzip();
    let mut enc = Enc::default();
    let (origin_count, origins) = Heads::write(&mut enc, &rows);
    let by_rank = || timings.iter().zip(&origins);

    let mut before = vec![0_u64; origin_count];
    for (timing, origin) in by_rank() {
        enc.delta(timing.step, before[*origin]);
        before[*origin] = timing.step;
    }
    let mut end = vec![0_u64; origin_count];
    for (timing, origin) in by_rank() {
        enc.delta(timing.start.0, end[*origin]);
        end[*origin] = timing.start.0.wrapping_add(u64::from(timing.dur_us));
    }
    for timing in &timings {
        enc.uint(u64::from(timing.dur_us));
    }
    for timing in &timings {
        enc.byte(u8::from(timing.loss.is_some()));
    }
    for loss in timings.iter().filter_map(|timing| timing.loss) {
        enc.float32(loss);
    }
    let mut before = vec![0_u64; origin_count];
    for (timing, origin) in by_rank() {
        enc.delta(u64::from(timing.samples), before[*origin]);
        before[*origin] = u64::from(timing.samples);
    }
    for timing in &timings {
        enc.uint(timing.spans.len() as u64);
    }
    let spans = || timings.iter().flat_map(|timing| &timing.spans);
    for span in spans() {
        enc.byte(span.phase.index() as u8);
    }
    for timing in &timings {
        let mut end = 0;
        for span in &timing.spans {
            enc.delta(u64::from(span.start_us), end);
            end = u64::from(span.start_us) + u64::from(span.dur_us);
        }
    }
    for span in spans() {
        enc.uint(u64::from(span.dur_us));
    }
    for timing in &timings {
        enc.uint(u64::from(timing.hidden_us));
    }
    enc.finish()
}

/// The envelopes of a block.
pub(in crate::record) fn decode(bytes: &[u8]) -> Result<Vec<Envelope>, Malformed> {
    let mut dec = Dec::new(bytes);
    let heads = Heads::read(&mut dec)?;
    let origins: Vec<usize> = heads.origin_numbers().collect();
    let mut timings: Vec<StepTiming> = Vec::with_capacity(heads.len());
    let mut before = vec![0_u64; heads.origins.len()];
    for origin in &origins {
        let step = dec.delta(before[*origin])?;
        before[*origin] = step;
        let start = HostTime(0);
        timings.push(StepTiming {
            step,
            start,
            dur_us: 0,
            loss: None,
            samples: 0,
            spans: Spans::default(),
            hidden_us: 0,
        });
    }
    let mut gaps = Vec::with_capacity(timings.len());
    for _ in &timings {
        gaps.push(dec.delta(0)?);
    }
    for timing in &mut timings {
        timing.dur_us = dec.uint32()?;
    }
    let mut end = vec![0_u64; heads.origins.len()];
    for ((timing, origin), gap) in timings.iter_mut().zip(&origins).zip(gaps) {
        timing.start = HostTime(end[*origin].wrapping_add(gap));
        end[*origin] = timing.start.0.wrapping_add(u64::from(timing.dur_us));
    }
    for timing in &mut timings {
        timing.loss = match dec.byte()? {
            0 => None,
            1 => Some(0.0),
            _ => return Err(Malformed("has a loss that is neither there nor absent")),
        };
    }
    for loss in timings.iter_mut().filter_map(|timing| timing.loss.as_mut()) {
        *loss = dec.float32()?;
    }
    let mut before = vec![0_u32; heads.origins.len()];
    for (timing, origin) in timings.iter_mut().zip(&origins) {
        timing.samples = dec.delta32(before[*origin])?;
        before[*origin] = timing.samples;
    }
    read_spans(&mut dec, &mut timings)?;
    // In format 1 a block ended here.
    if !dec.at_end() {
        for timing in &mut timings {
            timing.hidden_us = dec.uint32()?;
        }
    }
    dec.end()?;
    Ok(heads.with(timings.into_iter().map(|timing| Event::StepDone { timing: Arc::new(timing) })))
}

fn read_spans(dec: &mut Dec<'_>, timings: &mut [StepTiming]) -> Result<(), Malformed> {
    let mut counts = Vec::with_capacity(timings.len());
    for _ in &*timings {
        counts.push(dec.count()?);
    }
    let total = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
    if total > MAX_SPANS {
        return Err(Malformed("has more spans than a chunk may have"));
    }
    for (timing, count) in timings.iter_mut().zip(counts) {
        timing.spans = Spans::with_capacity(count);
        for _ in 0..count {
            let phase = usize::from(dec.byte()?);
            let phase = *Phase::ALL.get(phase).ok_or(Malformed("has a phase of an unknown kind"))?;
            timing.spans.push(PhaseSpan { phase, start_us: 0, dur_us: 0 });
        }
    }
    // each of them has taken a byte
    let mut gaps = Vec::with_capacity(total);
    for _ in timings.iter().flat_map(|timing| &timing.spans) {
        gaps.push(dec.delta(0)?);
    }
    let mut gaps = gaps.into_iter();
    for timing in timings {
        let mut end = 0_u64;
        for (span, gap) in timing.spans.iter_mut().zip(&mut gaps) {
            span.dur_us = dec.uint32()?;
            span.start_us =
                u32::try_from(end.wrapping_add(gap)).map_err(|_| Malformed("number over 32 bits"))?;
            end = u64::from(span.start_us) + u64::from(span.dur_us);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::Origin;
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::Stamp;

    #[test]
    fn a_block_of_format_1_ends_with_its_spans() {
        let id = RunId::new(0, 7);
        let step = |rank: u32, hidden_us| Envelope {
            seq: u64::from(rank) + 1,
            at: Stamp(5),
            origin: Origin::Rank(id.clone(), Rank(rank)),
            event: Event::StepDone {
                timing: Arc::new(StepTiming {
                    step: 3,
                    start: HostTime(70),
                    dur_us: 900,
                    loss: Some(0.5),
                    samples: 32,
                    spans: [PhaseSpan { phase: Phase::Wait, start_us: 1, dur_us: 2 }].into(),
                    hidden_us,
                }),
            },
        };
        let now = [step(0, 5), step(1, 6)];
        let mut bytes = encode(&now);
        assert_eq!(decode(&bytes).unwrap(), now);
        bytes.pop();
        assert_eq!(decode(&bytes), Err(Malformed("ends early")), "a column is there or it is not");
        bytes.pop();
        assert_eq!(decode(&bytes).unwrap(), [step(0, 0), step(1, 0)]);
    }
}
