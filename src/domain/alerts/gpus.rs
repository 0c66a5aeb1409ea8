//! What a sample of a host says of its GPUs: lost ones, heat, held clocks, memory errors, and the processes on them.

use std::sync::Arc;

use super::rules::{AlertRules, HeatRule, SECOND_US};
use super::track::Seen;
use super::{AlertKind, Alerts, Condition, Place, Subject, WorldView};
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::gpu::health::Unreadable;
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, xid};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason, HostInfo};
use crate::domain::ids::HostId;
use crate::domain::lease::Lease;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::HostState;

/// So far below the temperature at which it slows down a GPU is too hot, degrees.
const NEAR_SLOWDOWN: u32 = 3;
/// So far below the threshold a GPU that was too hot still is, degrees.
const COOLER: u32 = 3;
/// For how long a GPU is too hot before it is told.
const HOT_US: i64 = 10 * SECOND_US;
/// For how long a foreign process is on a GPU before it is told: what looks at a GPU comes and goes.
const FOREIGN_US: i64 = 10 * SECOND_US;
/// Less memory than that is what any context takes that computes nothing.
const FOREIGN_BYTES: u64 = 512 << 20;
/// For how long an XID error of a GPU must not come again before its alert ends.
const XID_US: i64 = 10 * 60 * SECOND_US;
/// The key of an XID error is the GPU's index before its number, which has so many bits.
const XID_BITS: u32 = 16;

/// One GPU as it is now.
struct Gpu<'a> {
    known: WorldView<'a>,
    state: &'a HostState,
    /// Its place in the host's lists.
    position: usize,
    info: &'a GpuInfo,
    sample: &'a GpuSample,
    lease: Option<&'a Lease>,
}

impl Alerts {
    pub(super) fn look_at_gpus(&mut self, known: WorldView<'_>, host: &HostId, at: Stamp) {
        let Some(state) = known.hosts.get(host) else { return };
        let (Some(info), Some((_, sample))) = (&state.info, state.latest()) else { return };
        let (subject, rules) = (Subject::Host(host.clone()), Arc::clone(&self.rules));
        for (position, (info, sample)) in info.gpus.iter().zip(&sample.gpus).enumerate() {
            let lease = state.leases.as_ref().and_then(|leases| leases.of(&info.uuid));
            let gpu = Gpu { known, state, position, info, sample, lease };
            let place = || Place {
                host: Some(host.clone()),
                gpu: Some(info.index),
                run: lease.and_then(|lease| lease.run.clone()),
                rank: lease.and_then(|lease| lease.rank),
            };
            let mut see = |kind, seen, hold_us, words: &dyn Fn() -> String| {
                let tell = || (place(), words());
                self.see(&subject, &Condition { kind, key: info.index, seen, hold_us, tell: &tell }, at);
            };
            let unreadable = Unreadable::of(sample);
            let words = || unreadable.map(Unreadable::sentence).unwrap_or_default();
            see(AlertKind::GpuLost, Seen::when(unreadable.is_some()), rules.gpu_lost_us, &words);

            let heat = gpu.heat(&rules);
            let words = || {
                heat.map_or_else(String::new, |(now, limit)| format!("{now} °C: too hot from {limit} °C on"))
            };
            let hold_us = (rules.temperature != HeatRule::Off).then_some(HOT_US);
            see(AlertKind::Temperature, heat.map_or(Seen::Unknown, how_hot), hold_us, &words);

            let slowed = sample.throttle.value().map(|reasons| slowdowns(reasons).next().is_some());
            let words = || {
                slowdowns(sample.throttle.value().map_or(&[], Vec::as_slice)).collect::<Vec<_>>().join(", ")
            };
            see(AlertKind::Slowdown, Seen::known(slowed), rules.slowdown_us, &words);

            let errors = sample.ecc_uncorrected.value().copied();
            let words = || match errors.unwrap_or_default() {
                1 => "1 memory error that ECC could not correct".to_owned(),
                errors => format!("{errors} memory errors that ECC could not correct"),
            };
            let seen = Seen::known(errors.map(|errors| errors > 0));
            see(AlertKind::Ecc, seen, rules.ecc.then_some(0), &words);

            see(AlertKind::HeldIdle, gpu.held_idle(), rules.held_idle_us, &|| gpu.idle_words());

            let foreign = gpu.foreign();
            let seen = match &sample.processes {
                Reading::Value(_) => Seen::when(foreign.is_some()),
                _ => Seen::Unknown,
            };
            let hold_us = rules.foreign_process.then_some(FOREIGN_US);
            see(AlertKind::ForeignProcess, seen, hold_us, &|| gpu.foreign_words(foreign));
        }
    }

    /// An XID error: one alert for each number of a GPU, which ends when the same has not come again for a while.
    pub(super) fn gpu_happened(&mut self, known: WorldView<'_>, host: &HostId, event: &GpuEvent, at: Stamp) {
        let Happening::Xid { xid: number } = event.what else { return };
        let hold_us = self.rules.xid.then_some(0);
        let subject = Subject::Host(host.clone());
        let key = event.index << XID_BITS | number.min((1 << XID_BITS) - 1);
        let tell = || {
            let leases = known.hosts.get(host).and_then(|state| state.leases.as_ref());
            let lease = leases.and_then(|leases| leases.of(&event.uuid));
            let place = Place {
                host: Some(host.clone()),
                gpu: Some(event.index),
                run: lease.and_then(|lease| lease.run.clone()),
                rank: lease.and_then(|lease| lease.rank),
            };
            (place, format!("{}: {}", event.what.short(), event.what.meaning()))
        };
        let seen = Seen::Holds(None);
        self.see(&subject, &Condition { kind: AlertKind::Xid, key, seen, hold_us, tell: &tell }, at);
        let track = self.tracks.get_mut(&subject).and_then(|tracks| tracks.get_mut(&(AlertKind::Xid, key)));
        let Some(track) = track else { return };
        track.mark = at.0.max(0).cast_unsigned();
        let alert = self.kept.iter_mut().find(|alert| Some(alert.number) == track.alert);
        if let Some(alert) = alert {
            alert.severity = xid::explain(number).severity;
        }
    }

    /// Ends the XID errors of a host that was booted since it was described last: they were of the boot before.
    pub(super) fn end_of_boot(&mut self, host: &HostId, info: &HostInfo, at: Stamp) {
        let Some(before) = self.described.get_mut(host).filter(|before| info.is_booted_since(before)) else {
            return;
        };
        // also where nothing else is taken from this description
        Arc::make_mut(before).boot_id.clone_from(&info.boot_id);
        let Some(tracks) = self.tracks.get_mut(&Subject::Host(host.clone())) else { return };
        let mut over = Vec::new();
        tracks.retain(|(kind, _), track| {
            let is_over = *kind == AlertKind::Xid;
            over.extend(track.alert.filter(|_| is_over));
            !is_over
        });
        for number in over {
            self.end(number, at);
        }
    }

    /// Ends what is told of GPUs and MIG slices that a host has no more, and says so. What is told of one that has another
    /// index now goes there. A driver that can't be used says nothing of what is there.
    pub(super) fn end_of_gone_gpus(&mut self, host: &HostId, info: &Arc<HostInfo>, at: Stamp) {
        let unusable = |absence: &GpuAbsence| absence.reason != GpuAbsenceReason::NoDevice;
        if info.gpus.is_empty() && info.gpu_absence.as_ref().is_some_and(unusable) {
            return;
        }
        let Some(before) = self.described.insert(host.clone(), Arc::clone(info)) else { return };
        let Some(tracks) = self.tracks.get_mut(&Subject::Host(host.clone())) else { return };
        let mut over = Vec::new();
        for ((kind, key), track) in std::mem::take(tracks) {
            let index = match kind {
                AlertKind::HostDown => None,
                AlertKind::Xid => Some(key >> XID_BITS),
                _ => Some(key),
            };
            let gpu = index.and_then(|index| before.gpus.iter().find(|gpu| gpu.index == index));
            let Some(gpu) = gpu else {
                tracks.insert((kind, key), track);
                continue;
            };
            let Some(now) = info.gpus.iter().find(|now| now.is_same(gpu)) else {
                over.extend(track.alert.map(|number| (number, gpu.is_slice())));
                continue;
            };
            let key = match kind {
                AlertKind::Xid => now.index << XID_BITS | key & ((1 << XID_BITS) - 1),
                _ => now.index,
            };
            if let Some(alert) = self.kept.iter_mut().find(|alert| Some(alert.number) == track.alert) {
                alert.place.gpu = Some(now.index);
            }
            // one that told no UUID, and whose index another one has now
            let other = tracks.insert((kind, key), track).and_then(|other| other.alert);
            over.extend(other.map(|number| (number, gpu.is_slice())));
        }
        for (number, is_slice) in over {
            let what = if is_slice { "the MIG slice" } else { "the GPU" };
            if let Some(alert) = self.kept.iter_mut().find(|alert| alert.number == number) {
                alert.words = format!("{} ({what} is gone)", alert.words);
            }
            self.end(number, at);
        }
    }

    /// Ends the alerts of XID errors that have not come again.
    pub(super) fn end_xids(&mut self, at: Stamp) {
        let mut over = Vec::new();
        for tracks in self.tracks.values_mut() {
            tracks.retain(|(kind, _), track| {
                let until = Stamp(track.mark.cast_signed()).plus_micros(XID_US);
                let is_over = *kind == AlertKind::Xid && at >= until;
                over.extend(track.alert.filter(|_| is_over).map(|number| (number, until)));
                !is_over
            });
        }
        for (number, until) in over {
            self.end(number, until);
        }
    }
}

/// The reasons that hold a GPU's clocks down to protect it: heat, and the power brake of its board. What its power limit
/// does is as it should be.
fn slowdowns(reasons: &[String]) -> impl Iterator<Item = &str> {
    let protects = |reason: &&str| {
        let reason = reason.to_lowercase();
        reason.contains("thermal") || reason.contains("brake")
    };
    reasons.iter().map(String::as_str).filter(protects)
}

/// Whether a GPU that is so hot is too hot from this temperature on.
fn how_hot((now, limit): (u32, u32)) -> Seen {
    match now {
        hot if hot >= limit => Seen::Holds(None),
        warm if warm + COOLER > limit => Seen::Almost,
        _ => Seen::Gone,
    }
}

impl Gpu<'_> {
    /// How hot it is, and from which temperature on it is too hot; `None` where one of them is not known.
    fn heat(&self, rules: &AlertRules) -> Option<(u32, u32)> {
        let limit = match rules.temperature {
            HeatRule::Off => None,
            HeatRule::Celsius(limit) => Some(limit),
            // 0 is the driver's word for none
            HeatRule::NearSlowdown => self
                .info
                .slowdown_celsius
                .value()
                .filter(|limit| **limit > 0)
                .map(|limit| limit - NEAR_SLOWDOWN.min(*limit)),
        };
        self.sample.temperature.value().copied().zip(limit)
    }

    /// Whether a run or a process has it and computes nothing: what rows and counts say of it.
    fn held_idle(&self) -> Seen {
        self.state.idle.of(self.position).map_or(Seen::Over, |since| Seen::Holds(Some(since)))
    }

    /// `held and idle: wang python train.py (pid 7), 96/141 G`.
    fn idle_words(&self) -> String {
        let process = self.sample.processes.value().and_then(|all| all.first());
        let holder = match (self.lease, process) {
            (Some(lease), _) => format!(": {}", lease.holder()),
            (None, Some(process)) => format!(": {}", who(process)),
            (None, None) => String::new(),
        };
        let memory = self.sample.memory_used.value().zip(self.sample.memory_total.value());
        let memory = memory.map(|(used, total)| format!(", {}", units::bytes_of(*used, *total)));
        format!("held and idle{holder}{}", memory.unwrap_or_default())
    }

    /// A process that holds memory beside the run that leases the GPU.
    fn foreign(&self) -> Option<&GpuProcess> {
        let lease = self.lease.filter(|lease| lease.run.is_some())?;
        let beside = self.state.leases.iter().flat_map(|leases| &leases.beside);
        let runs: Vec<_> = beside
            .filter(|other| other.gpu == lease.gpu)
            .chain([lease])
            .filter_map(|lease| lease.run.as_ref())
            .collect();
        // what runs in a container of the run is not always known as the run's
        let may_be_contained = runs
            .iter()
            .any(|run| self.known.runs.get(*run).is_none_or(|run| run.spec.options.container.is_some()));
        let is_foreign = |process: &&GpuProcess| match (&process.run, process.user.value(), &lease.user) {
            (Some(run), ..) => !runs.contains(&&run.id),
            (None, Some(user), Some(holder)) => {
                user != holder && !(may_be_contained && process.container.is_some())
            }
            (None, ..) => false,
        };
        let holds =
            |process: &&GpuProcess| process.memory.value().is_some_and(|bytes| *bytes >= FOREIGN_BYTES);
        self.sample.processes.value()?.iter().filter(holds).find(is_foreign)
    }

    /// `4.0 G held by wang python (pid 7) beside run 7QK2`.
    fn foreign_words(&self, process: Option<&GpuProcess>) -> String {
        let memory = process.and_then(|process| process.memory.value()).copied().unwrap_or_default();
        let who = process.map(who).unwrap_or_default();
        let run = self.lease.and_then(|lease| lease.run.as_ref()).map_or("", |run| run.short());
        format!("{} held by {who} beside run {run}", units::bytes(memory))
    }
}

/// `wang python train.py (pid 7)`.
fn who(process: &GpuProcess) -> String {
    let user = process.user.value().map_or("someone", String::as_str);
    let command = process.command.value().map_or("", String::as_str);
    let command = units::middle_cut(command, 40);
    format!("{user} {command} (pid {})", process.pid).replace("  ", " ")
}
