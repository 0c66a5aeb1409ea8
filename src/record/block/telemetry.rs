//! Host and GPU samples. Every field is a column of [`Reading`]s: what each is, then the values, then
//! the reasons of those that failed. Processes are rows of their own, counted per GPU.

use std::sync::Arc;

use super::column::{Dec, Enc, Malformed, Texts};
use super::head::Heads;
use super::readings::{Columns, Source, TOO_LARGE};
use crate::domain::event::{Envelope, Event};
use crate::domain::gpu::{Field, GpuProcess, GpuSample, Reading, RunOfProcess};
use crate::domain::host::HostSample;
use crate::domain::ids::Rank;

/// The numbers of GPU samples whose columns stand at a fixed place, in that order. This is the format and never changes:
/// all others are columns with a name, in [`super::gpu_numbers`].
pub(super) const PLACED: [&str; 9] = [
    "util",
    "memory_used",
    "memory_total",
    "temperature",
    "power_mw",
    "power_limit_mw",
    "clock_sm_mhz",
    "clock_memory_mhz",
    "pstate",
];

fn placed() -> impl Iterator<Item = &'static Field<GpuSample>> {
    PLACED.iter().filter_map(|name| GpuSample::NUMBERS.iter().find(|field| field.name == *name))
}

/// The most GPU samples and processes in one block: far above what [`super::super::format::CHUNK_TARGET`]
/// lets a writer put there.
pub(super) const MAX_GPUS: usize = 1 << 17;
const MAX_PROCESSES: usize = 1 << 18;

/// Encodes the samples among `envelopes`.
pub(in crate::record) fn encode(envelopes: &[Envelope]) -> Vec<u8> {
    let (rows, samples): (Vec<&Envelope>, Vec<&HostSample>) = envelopes
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::HostSampled { sample } => Some((envelope, &**sample)),
            _ => None,
        })
        .unzip();
    let mut enc = Enc::default();
    Heads::write(&mut enc, &rows);
    let mut to = Columns::default();
    to.column(samples.iter().map(|s| &s.cpu_percent), |to, value| to.enc.float32(*value));
    to.numbers(samples.iter().map(|s| &s.memory_used));
    to.column(samples.iter().map(|s| &s.load), |to, load| load.iter().for_each(|v| to.enc.float32(*v)));
    to.numbers(samples.iter().map(|s| &s.net_rx));
    to.numbers(samples.iter().map(|s| &s.net_tx));
    for sample in &samples {
        to.enc.uint(sample.gpus.len() as u64);
    }
    let gpus: Vec<&GpuSample> = samples.iter().flat_map(|sample| &sample.gpus).collect();
    for gpu in &gpus {
        to.enc.uint(u64::from(gpu.index));
    }
    for field in placed() {
        to.plain(gpus.iter().map(|gpu| (field.get)(gpu)));
    }
    to.column(gpus.iter().map(|gpu| &gpu.throttle), |to, words| {
        to.enc.uint(words.len() as u64);
        for word in words {
            to.text(word);
        }
    });
    to.column(gpus.iter().map(|gpu| &gpu.processes), |to, list| to.enc.uint(list.len() as u64));
    let processes: Vec<&GpuProcess> = gpus.iter().filter_map(|gpu| gpu.processes.value()).flatten().collect();
    for process in &processes {
        to.enc.uint(u64::from(process.pid));
    }
    to.column(processes.iter().map(|process| &process.user), |to, text| to.text(text));
    to.column(processes.iter().map(|process| &process.command), |to, text| to.text(text));
    to.numbers(processes.iter().map(|process| &process.memory));
    write_origins(&mut to, &processes);
    write_times(&mut to, &processes);
    to.strings.write(&mut enc);
    enc.append(&to.enc);
    enc.finish()
}

/// Runs and containers of processes, where any of them has one; before there were these columns the block ended here.
fn write_origins<'a>(to: &mut Columns<'a>, processes: &[&'a GpuProcess]) {
    if processes.iter().all(|process| !has_origin(process) && !has_times(process)) {
        return;
    }
    for process in processes {
        to.text(process.run.as_ref().map_or("", |run| run.id.as_str()));
        let rank = process.run.as_ref().and_then(|run| run.rank);
        to.enc.uint(rank.map_or(0, |rank| u64::from(rank.0) + 1));
        to.text(process.container.as_deref().unwrap_or(""));
    }
}

/// Use and times of processes, where any of them has one; before there were these columns the block ended here.
fn write_times<'a>(to: &mut Columns<'a>, processes: &[&'a GpuProcess]) {
    if processes.iter().any(|process| has_times(process)) {
        to.numbers(processes.iter().map(|process| &process.sm_percent));
        to.numbers(processes.iter().map(|process| &process.start_ticks));
        to.numbers(processes.iter().map(|process| &process.age_s));
    }
}

fn has_origin(process: &GpuProcess) -> bool {
    process.run.is_some() || process.container.is_some()
}

fn has_times(process: &GpuProcess) -> bool {
    let unknown = Reading::Unsupported;
    process.sm_percent != Reading::Unsupported || process.start_ticks != unknown || process.age_s != unknown
}

/// The envelopes of a block.
pub(in crate::record) fn decode(bytes: &[u8]) -> Result<Vec<Envelope>, Malformed> {
    let mut dec = Dec::new(bytes);
    let heads = Heads::read(&mut dec)?;
    let texts = Texts::read(&mut dec)?;
    let mut from = Source { dec, texts };
    let rows = heads.len();
    let cpu_percent = from.column(rows, |from| from.dec.float32())?;
    let memory_used = from.numbers(rows)?;
    let load =
        from.column(rows, |from| Ok([from.dec.float32()?, from.dec.float32()?, from.dec.float32()?]))?;
    let net_rx = from.numbers(rows)?;
    let net_tx = from.numbers(rows)?;
    let mut counts = Vec::with_capacity(rows);
    for _ in 0..rows {
        counts.push(from.dec.count()?);
    }
    let gpus = read_gpus(&mut from, &counts)?;
    from.dec.end()?;
    let mut samples = Vec::with_capacity(rows);
    let hosts = cpu_percent.into_iter().zip(memory_used).zip(load).zip(net_rx).zip(net_tx).zip(gpus);
    for (((((cpu_percent, memory_used), load), net_rx), net_tx), gpus) in hosts {
        let sample = HostSample { cpu_percent, memory_used, load, net_rx, net_tx, gpus };
        samples.push(Event::HostSampled { sample: Arc::new(sample) });
    }
    Ok(heads.with(samples))
}

/// The GPUs of samples that have so many each.
fn read_gpus(from: &mut Source<'_>, counts: &[usize]) -> Result<Vec<Vec<GpuSample>>, Malformed> {
    let count = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
    if count > MAX_GPUS {
        return Err(Malformed("has more GPUs than a chunk may have"));
    }
    let mut samples = Vec::with_capacity(counts.len());
    for count in counts {
        let mut gpus = Vec::with_capacity(*count);
        for _ in 0..*count {
            gpus.push(GpuSample::unknown(from.dec.uint32()?));
        }
        samples.push(gpus);
    }
    for field in placed() {
        let mut fits = true;
        let gpus = (count, samples.iter_mut().flatten());
        from.numbers_to(gpus, |gpu, reading| fits &= (field.set)(gpu, reading))?;
        if !fits {
            return Err(TOO_LARGE);
        }
    }
    let throttle = from.column(count, |from| {
        let words = from.dec.count()?;
        (0..words).map(|_| from.text()).collect::<Result<Vec<_>, _>>()
    })?;
    let process_counts = from.column(count, |from| from.dec.count())?;
    let total =
        process_counts.iter().filter_map(Reading::value).fold(0, |sum: usize, n| sum.saturating_add(*n));
    let mut processes = read_processes(from, total)?.into_iter();
    for ((gpu, throttle), counted) in samples.iter_mut().flatten().zip(throttle).zip(process_counts) {
        gpu.throttle = throttle;
        gpu.processes = counted.map(|count| processes.by_ref().take(count).collect());
    }
    Ok(samples)
}

fn read_processes(from: &mut Source<'_>, count: usize) -> Result<Vec<GpuProcess>, Malformed> {
    if count > MAX_PROCESSES {
        return Err(Malformed("has more processes than a chunk may have"));
    }
    let mut processes = Vec::new();
    for _ in 0..count {
        processes.push(GpuProcess::unknown(from.dec.uint32()?));
    }
    from.column_to((count, processes.iter_mut()), Source::text, |process, user| process.user = user)?;
    from.column_to((count, processes.iter_mut()), Source::text, |process, text| process.command = text)?;
    from.numbers_to((count, processes.iter_mut()), |process, memory| process.memory = memory)?;
    if !from.dec.at_end() {
        for process in &mut processes {
            (process.run, process.container) = read_origin(from)?;
        }
    }
    if !from.dec.at_end() {
        from.numbers_to((count, processes.iter_mut()), |process, percent| process.sm_percent = percent)?;
        from.numbers_to((count, processes.iter_mut()), |process, ticks| process.start_ticks = ticks)?;
        from.numbers_to((count, processes.iter_mut()), |process, age| process.age_s = age)?;
    }
    Ok(processes)
}

/// What [`write_origins`] has written of a process.
fn read_origin(from: &mut Source<'_>) -> Result<(Option<RunOfProcess>, Option<String>), Malformed> {
    let id = from.text()?;
    let rank = match from.dec.uint()? {
        0 => None,
        next => Some(Rank(u32::try_from(next - 1).map_err(|_| Malformed("has a rank above 2^32"))?)),
    };
    let id = (!id.is_empty()).then(|| id.parse()).transpose().map_err(|_| Malformed("has no run's id"))?;
    let container = Some(from.text()?).filter(|id| !id.is_empty());
    Ok((id.map(|id| RunOfProcess { id, rank }), container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_the_first_formats_keep_their_places() {
        let names: Vec<&str> = placed().map(|field| field.name).collect();
        assert_eq!(names, PLACED, "a field that was renamed or removed loses its old recordings");
    }
}
