//! What the hosts tell of themselves and of the GPUs of the run while its ranks run. A fold in bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::by_step::ByStep;
use super::choice::Choice;
use super::figures::{Cliffs, Counted, GpuFigures, HostFigures, Throttle};
use super::trend;
use crate::domain::clock_fit::{ClockSample, FOLLOWED_US, drifted_us};
use crate::domain::event::Event;
use crate::domain::gpu::GpuSample;
use crate::domain::gpu::event::GpuEvent;
use crate::domain::host::HostInfo;
use crate::domain::ids::{GpuUuid, HostId, Rank};
use crate::domain::run::RunSpec;
use crate::domain::series::{Merge, Series};
use crate::domain::time::Stamp;
use crate::domain::unusual::{APART_US, CLIFF_SAMPLES, CLIFF_US, is_low, median_percent};

/// Points of a GPU's utilisation over time, and of its memory over the steps.
const POINTS: usize = 240;
/// No pace is slower, microseconds.
const SLOWEST_US: i64 = 3_600_000_000;
/// That of an agent.
const USUAL_US: i64 = 1_000_000;
/// Of fewer samples no mean is told of the time since the first step: at one a second a short run has next to none.
pub(super) const FEW_SAMPLES: u32 = 10;
/// Names of reasons and of events that are told apart.
const NAMES: usize = 16;
/// Why clocks are low without any trouble.
const HARMLESS: [&str; 3] = ["gpu idle", "applications clocks setting", "sync boost"];

/// Utilisation of some time, or what else is told by samples: each counts for as long as it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UtilPoint {
    /// Values times microseconds.
    sum: f64,
    us: u64,
    count: u32,
}

impl UtilPoint {
    /// A value that stands for so many microseconds.
    fn new(value: f64, us: u64) -> Self {
        Self { sum: value * us as f64, us, count: 1 }
    }

    /// Its mean over time, of utilisation in percent.
    pub fn mean(self) -> Option<f64> {
        (self.us > 0).then(|| self.sum / self.us as f64)
    }
}

impl Merge for UtilPoint {
    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.us = self.us.saturating_add(other.us);
        self.count = self.count.saturating_add(other.count);
    }
}

/// The fold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Telemetry {
    pub(super) hosts: BTreeMap<HostId, HostFold>,
    gpus: BTreeMap<(HostId, GpuUuid), GpuFold>,
}

/// What is known of one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct HostFold {
    pub(super) info: Option<Arc<HostInfo>>,
    last: Option<Stamp>,
    /// How long the last sample came after the one before it, microseconds.
    apart_us: Option<i64>,
    cpu: UtilPoint,
    cpu_max: Option<f64>,
    memory_peak: Option<u64>,
    memory: Option<ByStep<UtilPoint>>,
    least_rtt_us: Option<u32>,
    unpinged: Unpinged,
}

/// The times between pings in which no client followed the host.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Unpinged {
    /// The newest ping, on the client's clock.
    pinged: Option<Stamp>,
    /// The newest of these times: the run may have ended in it.
    newest: Option<(Stamp, Stamp)>,
    /// How far from a ping moments of those before were, microseconds.
    away_us: u64,
}

impl Unpinged {
    fn ping(&mut self, sample: &ClockSample) {
        let on_host = i64::try_from(sample.host_time.0).unwrap_or(i64::MAX);
        let at = Stamp(on_host.saturating_add(sample.offset_us));
        if let Some(last) = self.pinged.replace(at)
            && u64::try_from(at.micros_since(last)).is_ok_and(|us| us > FOLLOWED_US)
        {
            self.away_us = self.away_us(None);
            self.newest = Some((last, at));
        }
    }

    /// How far from a ping any moment until the end of the run was, microseconds.
    fn away_us(&self, end: Option<Stamp>) -> u64 {
        let newest_us = self.newest.map_or(0, |(from, to)| {
            let middle_us = to.micros_since(from).max(0) / 2;
            end.map_or(middle_us, |end| end.micros_since(from).clamp(0, middle_us)).unsigned_abs()
        });
        self.away_us.max(newest_us)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct GpuFold {
    rank: Rank,
    index: u32,
    /// How many samples tell the utilisation, and for how long each percent was told, microseconds.
    samples: u64,
    #[serde(with = "percents")]
    all_us: [u64; 101],
    /// How often each percent was told without the drops, by which a drop is known.
    #[serde(with = "percents")]
    usual: [u32; 101],
    low: Option<Low>,
    cliffs: Cliffs,
    /// The percents from the first step to the end of the last one.
    in_steps: UtilPoint,
    /// Those since the newest step ended, and its number: whether another one follows is not known.
    since_step: UtilPoint,
    newest: Option<u64>,
    util: Series<UtilPoint>,
    memory_peak: Option<u64>,
    memory_total: Option<u64>,
    memory: ByStep<UtilPoint>,
    temperature_max: Option<u32>,
    power_mw: UtilPoint,
    power_max_mw: Option<u32>,
    throttle: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
}

/// A drop that goes on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Low {
    since: Stamp,
    us: u64,
}

impl Telemetry {
    /// Of all hosts of a run, and of the GPUs of the chosen ranks.
    pub(super) fn new(spec: &RunSpec, choice: &Choice) -> Self {
        let chosen = spec.placements.iter().filter(|placement| choice.has_rank(placement.rank));
        let placed = chosen.flat_map(|placement| {
            let index = placement.slot.index();
            placement.gpus().map(move |uuid| {
                ((placement.host.clone(), uuid.clone()), GpuFold::new(placement.rank, index, spec.created))
            })
        });
        let hosts = spec.hosts().into_iter().map(|host| (host, HostFold::default())).collect();
        Self { hosts, gpus: placed.collect() }
    }

    /// An event of a host; `step`: the newest one, while ranks run.
    pub(super) fn take(&mut self, at: Stamp, id: &HostId, event: &Event, running: bool, step: Option<u64>) {
        let Some(host) = self.hosts.get_mut(id) else { return };
        match event {
            Event::HostDescribed { info } => host.info = Some(Arc::clone(info)),
            Event::ClockSampled { sample } => {
                let least = host.least_rtt_us.map_or(sample.rtt_us, |least| least.min(sample.rtt_us));
                host.least_rtt_us = Some(least);
                host.unpinged.ping(sample);
            }
            Event::GpuHappened { event } => self.happened(id, event),
            Event::HostSampled { sample } => {
                let since = host.last.replace(at).map(|last| at.micros_since(last));
                let before = std::mem::replace(&mut host.apart_us, since);
                if !running {
                    return;
                }
                let stands_us = stands_for_us(since, before);
                if let Some(percent) = sample.cpu_percent.value().map(|percent| f64::from(*percent)) {
                    host.cpu.merge(&UtilPoint::new(percent, stands_us));
                    host.cpu_max = Some(host.cpu_max.map_or(percent, |most| most.max(percent)));
                }
                let memory = sample.memory_used.value().copied();
                host.memory_peak = host.memory_peak.max(memory);
                if let (Some(bytes), Some(step)) = (memory, step) {
                    let memory = host.memory.get_or_insert_with(|| ByStep::new(POINTS));
                    memory.at(step).merge(&UtilPoint::new(bytes as f64, stands_us));
                }
                let since_us = since.filter(|us| tells_between(*us, before)).map(i64::unsigned_abs);
                let Some(info) = &host.info else { return };
                for (info, sample) in info.gpus.iter().zip(&sample.gpus) {
                    if let Some(gpu) = self.gpus.get_mut(&(id.clone(), info.uuid.clone())) {
                        gpu.index = info.index;
                        gpu.take(at, (since_us, stands_us), sample, step);
                    }
                }
            }
            _ => {}
        }
    }

    fn happened(&mut self, host: &HostId, event: &GpuEvent) {
        let Some(gpu) = self.gpus.get_mut(&(host.clone(), event.uuid.clone())) else { return };
        let name = event.what.short();
        if gpu.events.len() < NAMES || gpu.events.contains_key(&name) {
            let count = gpu.events.entry(name).or_default();
            *count = count.saturating_add(event.count);
        }
    }

    /// What is known in the end, of a run that has ended then.
    pub(super) fn figures(&mut self, end: Option<Stamp>) -> (Vec<HostFigures>, Vec<GpuFigures>) {
        self.gpus.values_mut().for_each(GpuFold::end_of_low);
        let hosts = self.hosts.iter().map(|(id, host)| {
            // 0 is no ping: an imported run whose ranks are told by one clock
            let message_us = host.least_rtt_us.map(|rtt| rtt.div_ceil(2)).filter(|us| *us > 0);
            let drifted_us = drifted_us(host.unpinged.away_us(end));
            let memory_total = host.info.as_ref().and_then(|info| info.memory_total.value().copied());
            let memory_growth = host.memory.as_ref().and_then(|memory| {
                let (points, us) = by_step(memory);
                trend::growth_of_host(&points, us, memory_total)
            });
            HostFigures {
                host: id.clone(),
                cpu_mean: host.cpu.mean(),
                cpu_max: host.cpu_max,
                memory_peak: host.memory_peak,
                memory_total,
                memory_growth: memory_growth.map(|slope| slope * 1000.0),
                clock_uncertainty_us: message_us.map(|us| us.saturating_add(drifted_us)),
                message_us,
            }
        });
        let gpus = self.gpus.iter().map(|((host, uuid), gpu)| {
            let info = self.hosts.get(host).and_then(|host| host.info.as_ref());
            let info = info.and_then(|info| info.gpus.iter().find(|gpu| gpu.uuid == *uuid));
            gpu.figures(host, uuid, info.map(|info| info.model().to_owned()))
        });
        let mut gpus: Vec<GpuFigures> = gpus.collect();
        gpus.sort_by_key(|gpu| (gpu.rank, gpu.index));
        (hosts.collect(), gpus)
    }

    /// The utilisation of each GPU over time, in the order of the ranks.
    pub(super) fn charts(self) -> Vec<(String, Series<UtilPoint>)> {
        let mut gpus: Vec<_> = self.gpus.into_iter().collect();
        gpus.sort_by_key(|(_, gpu)| (gpu.rank, gpu.index));
        let told = gpus.into_iter().filter(|(_, gpu)| !gpu.util.is_empty());
        told.map(|((host, _), gpu)| (format!("{host}:{}", gpu.index), gpu.util)).collect()
    }
}

/// What is told of some memory, as step and bytes, and for how long the second half of it was, microseconds.
fn by_step(memory: &ByStep<UtilPoint>) -> (Vec<(f64, f64)>, u64) {
    let told = memory.points().filter_map(|(step, point)| Some(((step as f64, point.mean()?), point.us)));
    let (points, us): (Vec<(f64, f64)>, Vec<u64>) = told.unzip();
    let half_us = us[us.len() / 2..].iter().sum();
    (points, half_us)
}

/// Whether samples that lie so far apart tell of the time between them, in microseconds: those that are close do, and those of a pace
/// that is as slow as it was `before`. A host alone notes the samples of a long run in minutes.
fn tells_between(us: i64, before: Option<i64>) -> bool {
    let pace_us = before.map_or(0, |before| before.clamp(0, SLOWEST_US) / 2 * 3);
    (0..=pace_us.max(APART_US)).contains(&us)
}

/// For how many microseconds a sample stands that came so long after the one before: for that time where it is told of, else, at first
/// and behind a hole, for as long as the one before did.
fn stands_for_us(since: Option<i64>, before: Option<i64>) -> u64 {
    let told = since.filter(|us| tells_between(*us, before));
    told.or(before).unwrap_or(USUAL_US).clamp(1, SLOWEST_US).unsigned_abs()
}

impl GpuFold {
    fn new(rank: Rank, index: u32, start: Stamp) -> Self {
        Self {
            rank,
            index,
            samples: 0,
            all_us: [0; 101],
            usual: [0; 101],
            low: None,
            cliffs: Cliffs::default(),
            in_steps: UtilPoint::default(),
            since_step: UtilPoint::default(),
            newest: None,
            util: Series::new(start, POINTS),
            memory_peak: None,
            memory_total: None,
            memory: ByStep::new(POINTS),
            temperature_max: None,
            power_mw: UtilPoint::default(),
            power_max_mw: None,
            throttle: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// A sample that came so long after the one before, `None` where that is too long ago, and stands for so long.
    fn take(
        &mut self,
        at: Stamp,
        (since_us, stands_us): (Option<u64>, u64),
        sample: &GpuSample,
        step: Option<u64>,
    ) {
        if let Some(util) = sample.util.value().map(|util| (*util).min(100)) {
            let point = UtilPoint::new(util.into(), stands_us);
            self.samples += 1;
            self.all_us[util as usize] += stands_us;
            if let (Some(step), newest) = (step, self.newest) {
                self.newest = Some(step);
                if newest.is_some_and(|newest| newest < step) {
                    self.in_steps.merge(&std::mem::take(&mut self.since_step));
                }
                self.since_step.merge(&point);
            }
            self.util.at(at).merge(&point);
            self.drop_of(at, since_us, util);
        }
        let memory = sample.memory_used.value().copied();
        self.memory_peak = self.memory_peak.max(memory);
        self.memory_total = self.memory_total.max(sample.memory_total.value().copied());
        if let (Some(bytes), Some(step)) = (memory, step) {
            self.memory.at(step).merge(&UtilPoint::new(bytes as f64, stands_us));
        }
        self.temperature_max = self.temperature_max.max(sample.temperature.value().copied());
        if let Some(power) = sample.power_mw.value() {
            self.power_mw.merge(&UtilPoint::new(f64::from(*power), stands_us));
            self.power_max_mw = self.power_max_mw.max(Some(*power));
        }
        let reasons = sample.throttle.value().into_iter().flatten();
        for reason in reasons.filter(|reason| !HARMLESS.contains(&reason.as_str())) {
            if self.throttle.len() < NAMES || self.throttle.contains_key(reason) {
                *self.throttle.entry(reason.clone()).or_default() += since_us.unwrap_or(0);
            }
        }
    }

    fn drop_of(&mut self, at: Stamp, since_us: Option<u64>, util: u32) {
        let count: u32 = self.usual.iter().sum();
        let median = median_percent(&self.usual).filter(|_| count >= CLIFF_SAMPLES);
        let is_low = median.is_some_and(|median| is_low(util, median));
        match (is_low, &mut self.low, since_us) {
            (true, Some(low), Some(since_us)) => low.us += since_us,
            (true, ..) => {
                self.end_of_low();
                self.low = Some(Low { since: at, us: 0 });
            }
            (false, ..) => {
                if let (Some(low), Some(since_us)) = (&mut self.low, since_us) {
                    low.us += since_us;
                }
                self.end_of_low();
                self.usual[util as usize] += 1;
            }
        }
    }

    fn end_of_low(&mut self) {
        let Some(low) = self.low.take().filter(|low| low.us >= CLIFF_US) else { return };
        self.cliffs.count += 1;
        self.cliffs.us += low.us;
        if low.us > self.cliffs.longest_us {
            (self.cliffs.longest_us, self.cliffs.longest_at) = (low.us, Some(low.since));
        }
    }

    fn figures(&self, host: &HostId, uuid: &GpuUuid, model: Option<String>) -> GpuFigures {
        let us: u64 = self.all_us.iter().sum();
        let sum: f64 = (0_u32..).zip(&self.all_us).map(|(percent, us)| f64::from(percent) * *us as f64).sum();
        let mut throttle: Vec<Throttle> = self
            .throttle
            .iter()
            .filter(|(_, us)| **us > 0)
            .map(|(reason, us)| Throttle { reason: reason.clone(), us: *us })
            .collect();
        throttle.sort_by_key(|throttle| std::cmp::Reverse(throttle.us));
        let (memory, _) = by_step(&self.memory);
        GpuFigures {
            host: host.clone(),
            index: self.index,
            uuid: uuid.clone(),
            model,
            rank: self.rank,
            samples: self.samples,
            util_in_steps: self.in_steps.mean().filter(|_| self.in_steps.count >= FEW_SAMPLES),
            util_mean: (us > 0).then(|| sum / us as f64),
            util_min: self.all_us.iter().position(|us| *us > 0).map(|at| at as u32),
            util_p50: median_percent(&self.all_us),
            util_max: self.all_us.iter().rposition(|us| *us > 0).map(|at| at as u32),
            cliffs: self.cliffs,
            memory_peak: self.memory_peak,
            memory_total: self.memory_total,
            memory_growth: trend::growth(&memory).map(|slope| slope * 1000.0),
            temperature_max: self.temperature_max,
            power_mean_w: self.power_mw.mean().map(|mw| mw / 1e3),
            power_max_w: self.power_max_mw.map(|mw| f64::from(mw) / 1e3),
            throttle,
            events: Counted::all(&self.events),
        }
    }
}

/// Numbers by percent, as a list: serde knows no array of so many.
mod percents {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        counts: &[T; 101],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        counts.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[T; 101], D::Error> {
        let counts = Vec::<T>::deserialize(from)?;
        counts.try_into().map_err(|counts: Vec<T>| D::Error::invalid_length(counts.len(), &"101 numbers"))
    }
}

#[cfg(test)]
#[path = "gpus_tests.rs"]
mod tests;
