//! What is known of one host, as the fold keeps it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::bounded::push_bounded;
use super::clock_fit::ClockFit;
use super::event::{Event, GPU_EVENTS, MESSAGES};
use super::gpu::event::GpuEvents;
use super::gpu::health::Unreadable;
use super::gpu::{GpuInfo, GpuSample};
use super::host::{HostInfo, HostSample, LinkState};
use super::idle::IdleSince;
use super::ids::{GpuUuid, Rank, RunId};
use super::lease::Leases;
use super::past::PastSample;
use super::time::Stamp;
use super::world::{LastTold, SAMPLE_HISTORY};

/// What is said of the values of a GPU that has been described and of which no sample has come.
const NOT_READ: &str = "not read yet";

/// How many jumps of a clock are kept.
const CLOCK_JUMPS: usize = 32;

/// What is known of one host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// The link and since when it is so.
    pub link: Option<(Stamp, LinkState)>,
    /// Its last word: a message, or that its link came up.
    pub heard: Option<Stamp>,
    /// Since when its link is lost, through all tries to reach it again: since its last word, or the first try of one that never
    /// answered. `None` while it is up or was never lost.
    pub down_since: Option<Stamp>,
    /// Why the last try to reach it failed; `None` while it is up.
    pub down_why: Option<String>,
    /// Its facts.
    pub info: Option<Arc<HostInfo>>,
    /// The newest sample and when it came.
    pub sample: Option<(Stamp, Arc<HostSample>)>,
    /// The last values of the GPUs that don't answer now, and when they came.
    pub last_values: BTreeMap<GpuUuid, (Stamp, GpuSample)>,
    /// What graphs show of the recent ones, newest last.
    pub past: Blocks<PastSample>,
    /// Since when its GPUs are held and idle.
    pub idle: IdleSince,
    /// Its clock against ours.
    pub clock: ClockFit,
    /// When one of the two was set, or slept: by how much its clock went ahead of ours then, microseconds. Oldest first.
    #[serde(default)]
    pub clock_jumps: VecDeque<(Stamp, i64)>,
    /// Telemetry samples lost so far.
    pub dropped: u64,
    /// Who holds its GPUs for runs; `None` before it has told.
    pub leases: Option<Leases>,
    /// What happened to its GPUs since it was booted.
    pub gpu_events: GpuEvents,
    /// The last that each rank there has told of a run that goes on.
    #[serde(default)]
    pub told: BTreeMap<RunId, BTreeMap<Rank, LastTold>>,
}

impl HostState {
    /// The newest sample and when it came.
    pub fn latest(&self) -> Option<(Stamp, &HostSample)> {
        self.sample.as_ref().map(|(at, sample)| (*at, &**sample))
    }

    /// Whether no agent runs there, so that it is shown and takes no ranks.
    pub fn is_limited(&self) -> bool {
        matches!(self.link, Some((_, LinkState::Limited { .. })))
    }

    /// Whether the agent answers.
    pub fn is_up(&self) -> bool {
        matches!(self.link, Some((_, LinkState::Up)))
    }

    /// Whether a GPU, or the one that it is a slice of, has fallen off the bus by what has happened at `now`.
    pub fn is_off_bus(&self, gpu: &GpuInfo, now: Stamp) -> bool {
        let gpus = self.info.iter().flat_map(|info| &info.gpus);
        let whole = gpus.filter(|whole| Some(whole.index) == gpu.parent);
        let mut both = std::iter::once(gpu).chain(whole);
        both.any(|gpu| self.gpu_events.is_off_bus(&gpu.uuid, now))
    }

    fn link_changed(&mut self, at: Stamp, state: &LinkState) {
        let was_up = self.is_up() || self.is_limited();
        let lost = if was_up { self.heard.map_or(at, |heard| heard.min(at)) } else { at };
        match state {
            LinkState::Up | LinkState::Limited { .. } => {
                (self.down_since, self.down_why) = (None, None);
                self.heard = Some(at);
            }
            LinkState::Down { .. } => self.down_since = self.down_since.or(Some(lost)),
            LinkState::Connecting { .. } | LinkState::Installing { .. } | LinkState::Refused { .. } => {
                self.down_since = self.down_since.or(was_up.then_some(lost));
            }
        }
        if let LinkState::Down { reason, .. } | LinkState::Refused { reason, .. } = state {
            self.down_why = Some(reason.clone());
        }
        self.link = Some((at, state.clone()));
    }

    /// Takes its facts in. What is kept by the places of GPUs moves with them: MIG slices come and go behind theirs.
    fn described(&mut self, info: &Arc<HostInfo>) {
        let old = self.info.replace(Arc::clone(info));
        if old.as_ref().is_some_and(|old| info.is_booted_since(old)) {
            // what had happened to a GPU ended with the boot
            self.gpu_events = GpuEvents::default();
        }
        let old = old.as_ref().map_or(&[][..], |info| &info.gpus);
        let is_kept = |(one, other): (&GpuInfo, &GpuInfo)| one.is_same(other);
        if old.is_empty() || old.len() == info.gpus.len() && old.iter().zip(&info.gpus).all(is_kept) {
            return;
        }
        let place = |gpu: &GpuInfo| old.iter().position(|other| gpu.is_same(other));
        let from: Vec<Option<usize>> = info.gpus.iter().map(place).collect();
        self.past.change(|past| past.move_gpus(&from));
        self.idle.move_gpus(&from);
        self.last_values.retain(|uuid, _| info.gpus.iter().any(|gpu| gpu.uuid == *uuid));
        if let Some((_, sample)) = self.sample.as_mut().filter(|(_, sample)| sample.gpus.len() == old.len()) {
            let of = |(gpu, from): (&GpuInfo, &Option<usize>)| {
                let known = from.and_then(|from| sample.gpus.get(from)).cloned();
                let known = known.map(|known| GpuSample { index: gpu.index, ..known });
                known.unwrap_or_else(|| GpuSample::failed(gpu.index, NOT_READ))
            };
            let gpus = info.gpus.iter().zip(&from).map(of).collect();
            Arc::make_mut(sample).gpus = gpus;
        }
    }

    /// A sample in the order of the facts, by which all else finds a GPU in it. One that was on its way when MIG slices came
    /// or went has another order: what is described no more is dropped, and of what is new nothing is known yet.
    fn in_order(&self, sample: &Arc<HostSample>) -> Arc<HostSample> {
        let Some(info) = &self.info else { return Arc::clone(sample) };
        let indices = || info.gpus.iter().map(|gpu| gpu.index);
        if sample.gpus.iter().map(|gpu| gpu.index).eq(indices()) {
            return Arc::clone(sample);
        }
        let of = |index: u32| {
            let told = sample.gpus.iter().find(|gpu| gpu.index == index).cloned();
            told.unwrap_or_else(|| GpuSample::failed(index, NOT_READ))
        };
        Arc::new(HostSample { gpus: indices().map(of).collect(), ..HostSample::clone(sample) })
    }

    /// Keeps the values of each GPU that does not answer any more, and drops them when it does.
    fn keep_last_values(&mut self, sample: &HostSample) {
        let (Some(info), Some((at, before))) = (&self.info, &self.sample) else { return };
        for ((gpu, before), now) in info.gpus.iter().zip(&before.gpus).zip(&sample.gpus) {
            if Unreadable::of(now).is_none() {
                self.last_values.remove(&gpu.uuid);
            } else if Unreadable::of(before).is_none() {
                self.last_values.insert(gpu.uuid.clone(), (*at, before.clone()));
            }
        }
    }

    /// Takes an event of the host in.
    pub(super) fn apply(&mut self, at: Stamp, event: &Event) {
        if !matches!(event, Event::LinkChanged { .. }) {
            self.heard = Some(at);
        }
        match event {
            Event::LinkChanged { state } => self.link_changed(at, state),
            Event::HostDescribed { info } => self.described(info),
            Event::HostSampled { sample } => {
                let sample = self.in_order(sample);
                if let (Some(info), Some((_, before))) = (&self.info, &self.sample) {
                    self.gpu_events.compare(at, &info.gpus, &before.gpus, &sample.gpus);
                }
                self.keep_last_values(&sample);
                let past = PastSample::of(at, &sample, self.info.as_deref());
                self.past.push(past);
                self.past.keep(SAMPLE_HISTORY);
                let infos = self.info.as_ref().map_or(&[][..], |info| &info.gpus);
                self.idle.sample(at, infos, &sample.gpus, self.leases.as_ref());
                self.sample = Some((at, sample));
            }
            Event::ClockSampled { sample } => {
                if let Some(by_us) = self.clock.add(*sample) {
                    push_bounded(&mut self.clock_jumps, (at, by_us), CLOCK_JUMPS);
                }
            }
            Event::LeasesTold { leases } => self.leases = Some(leases.clone()),
            Event::GpuHappened { event } => self.gpu_events.add(at, event),
            Event::Gap { what, dropped } if what != GPU_EVENTS && what != MESSAGES => {
                self.dropped = self.dropped.saturating_add(*dropped);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_info;
    use crate::domain::gpu::Reading;
    use crate::domain::gpu::event::{GpuEvent, Happening};

    #[test]
    fn a_slice_falls_off_the_bus_with_its_gpu() {
        let gpu = |index: u32, parent: Option<u32>| GpuInfo {
            uuid: GpuUuid::from(format!("GPU-{index}")),
            parent,
            ..GpuInfo::unknown(index)
        };
        let gpus = vec![gpu(0, None), gpu(100, Some(0)), gpu(200, Some(1))];
        let info = HostInfo { gpus: gpus.clone(), ..host_info() };
        let mut state = HostState { info: Some(Arc::new(info)), ..HostState::default() };
        let (uuid, what) = (gpus[0].uuid.clone(), Happening::Xid { xid: 79 });
        state.gpu_events.add(Stamp(1), &GpuEvent { index: 0, uuid, what, count: 1, t: None });
        let gone: Vec<bool> = gpus.iter().map(|gpu| state.is_off_bus(gpu, Stamp(1))).collect();
        assert_eq!(gone, [true, true, false]);
    }

    #[test]
    fn what_happened_to_a_gpu_ends_with_the_boot_and_not_with_the_driver_or_the_link() {
        let gpu = GpuInfo { uuid: GpuUuid::from("GPU-0"), ..GpuInfo::unknown(0) };
        let told = |boot: &str, driver: &str| {
            let driver = Reading::Value(driver.to_owned());
            let info = HostInfo { gpus: vec![gpu.clone()], boot_id: boot.to_owned(), driver, ..host_info() };
            Event::HostDescribed { info: Arc::new(info) }
        };
        let off_bus_after = |before: &str, then: Event| {
            let mut state = HostState::default();
            state.apply(Stamp(1), &told(before, "570"));
            let (uuid, what) = (gpu.uuid.clone(), Happening::Xid { xid: 79 });
            let event = GpuEvent { index: 0, uuid, what, count: 1, t: None };
            state.apply(Stamp(2), &Event::GpuHappened { event });
            state.apply(Stamp(3), &then);
            state.is_off_bus(&gpu, Stamp(4))
        };
        assert!(!off_bus_after("b", told("c", "570")), "it was booted");
        assert!(off_bus_after("b", told("b", "570")), "only the link was lost");
        assert!(off_bus_after("b", told("b", "580")), "only the driver was loaded anew");
        assert!(off_bus_after("unknown", told("c", "570")) && off_bus_after("b", told("", "570")));
    }
}
