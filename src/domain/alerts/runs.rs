//! What is told of runs: one that hangs, a straggler, a rank that failed.

use std::sync::Arc;

use super::rules::SECOND_US;
use super::track::Seen;
use super::{AlertKind, Alerts, Condition, Place, Subject, WorldView};
use crate::domain::gpu::GpuSample;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::note::{Note, what};
use crate::domain::past::PastGpu;
use crate::domain::root_cause::Evidence;
use crate::domain::run::Slot;
use crate::domain::standstill::Standstill;
use crate::domain::straggler::Straggler;
use crate::domain::text::plain;
use crate::domain::time::Stamp;
use crate::domain::trainers::Trainer;
use crate::domain::world::{HostState, RunState};

/// From this many percent on a GPU is busy all the time, as it is while the kernel of a collective waits.
const BUSY_UTIL: u32 = 95;
/// A busy GPU that works draws more than this share of its limit.
const LOW_POWER: f64 = 0.40;
/// And more than this share of what it drew when it was busy before.
const LOW_OF_OWN: f32 = 0.60;
/// A waiting kernel uses fewer of its SMs than that, percent.
const LOW_SM_ACTIVE: u32 = 40;
/// So many steps' time may pass without a step.
const STEPS: i64 = 10;
/// Over how many of its newest steps the median is taken.
const RECENT: usize = 20;
/// For how long the signs of a hang are seen before it is told.
const SEEN_US: i64 = 10 * SECOND_US;
/// A sample that is older says nothing of now.
const FRESH_US: i64 = 5 * SECOND_US;

/// A hang as it is seen.
struct Hang {
    since: Stamp,
    rank: Option<Rank>,
    words: String,
}

impl Alerts {
    pub(super) fn look_at_run(&mut self, known: WorldView<'_>, id: &RunId, run: &RunState, at: Stamp) {
        self.look_for_hang(known, id, run, at);
        self.look_for_straggler(id, run, at);
    }

    fn look_for_hang(&mut self, known: WorldView<'_>, id: &RunId, run: &RunState, at: Stamp) {
        let Some(least_us) = self.rules.hang_us else { return };
        let subject = Subject::Run(id.clone());
        let steps = run.trainers().fold(0, |sum: u64, one| sum.wrapping_add(one.state.step_count));
        let key = (AlertKind::Hang, 0);
        let track = self.tracks.get(&subject).and_then(|tracks| tracks.get(&key));
        let begun = track.filter(|track| track.alert.is_some()).map(|track| track.mark);
        let hang = begun.is_none().then(|| hang(known, run, least_us, at)).flatten();
        let seen = match (begun, &hang) {
            // until a step is taken
            (Some(mark), _) if mark == steps => Seen::Holds(None),
            (Some(_), _) => Seen::Over,
            (None, Some(_)) => Seen::Holds(None),
            (None, None) => Seen::Gone,
        };
        let tell = || {
            let hang = hang.as_ref();
            let rank = hang.and_then(|hang| hang.rank);
            let words = hang.map(|hang| hang.words.clone()).unwrap_or_default();
            (place(id, run, rank), words)
        };
        let condition =
            Condition { kind: AlertKind::Hang, key: 0, seen, hold_us: Some(SEEN_US), tell: &tell };
        self.see(&subject, &condition, at);
        if begun.is_none()
            && let Some(track) = self.tracks.get_mut(&subject).and_then(|tracks| tracks.get_mut(&key))
            && let (Some(number), Some(hang)) = (track.alert, hang)
        {
            track.mark = steps;
            if let Some(alert) = self.kept.iter_mut().find(|alert| alert.number == number) {
                alert.since = hang.since;
            }
        }
    }

    fn look_for_straggler(&mut self, id: &RunId, run: &RunState, at: Stamp) {
        let hold_us = self.rules.straggler.then_some(0);
        let subject = Subject::Run(id.clone());
        let late = run.straggler();
        let of_others = |key: &(AlertKind, u32)| {
            key.0 == AlertKind::Straggler && late.is_none_or(|late| late.rank.0 != key.1)
        };
        let over: Vec<u32> = self
            .tracks
            .get(&subject)
            .into_iter()
            .flat_map(|tracks| tracks.keys())
            .filter(|key| of_others(key))
            .map(|(_, rank)| *rank)
            .collect();
        let mut see = |key, seen| {
            let tell = || {
                (place(id, run, late.map(|late| late.rank)), late.map(Straggler::words).unwrap_or_default())
            };
            self.see(
                &subject,
                &Condition { kind: AlertKind::Straggler, key, seen, hold_us, tell: &tell },
                at,
            );
        };
        for rank in over {
            see(rank, Seen::Over);
        }
        if let Some(late) = late {
            see(late.rank.0, Seen::Holds(None));
        }
    }

    /// The run of `id` has caught up with what happened while no client followed it: what of that is told once is told now. It stood
    /// like `before`.
    pub(super) fn caught_up(
        &mut self,
        known: WorldView<'_>,
        id: &RunId,
        before: Option<&RunState>,
        at: Stamp,
    ) -> Vec<(HostId, Arc<Note>)> {
        let Some(run) = known.runs.get(id).filter(|run| !run.is_behind) else { return Vec::new() };
        if before.and_then(RunState::root_cause).is_none()
            && let Some(rank) = run.root_cause()
        {
            self.rank_exited(known, id, rank, at);
        }
        let is_new = |noted: &Stamp| before.is_none_or(|old| *noted > old.last_at);
        let notes = run.notes.iter().filter(|(noted, ..)| is_new(noted));
        let notes: Vec<_> = notes.map(|(_, host, note)| (host.clone(), Arc::clone(note))).collect();
        for (host, note) in &notes {
            self.noted(id, host, note, at);
        }
        notes
    }

    /// A host says something of a run.
    pub(super) fn noted(&mut self, run: &RunId, host: &HostId, note: &Note, at: Stamp) {
        if self.rules.disk_full && note.what == what::SPOOL {
            let place = Place { host: Some(host.clone()), run: Some(run.clone()), ..Place::default() };
            self.happened(AlertKind::DiskFull, place, at, plain(host, &note.text));
        }
    }

    /// The rank that a run fails by is told; the others fail because of it. Where a later exit shows that it is another one than was
    /// told, that takes its place.
    pub(super) fn rank_exited(&mut self, known: WorldView<'_>, id: &RunId, rank: Rank, at: Stamp) {
        let Some(run) = known.runs.get(id).filter(|_| self.rules.rank_failed) else { return };
        let Some((_, evidence)) = run.why_failed().filter(|(cause, _)| *cause == rank) else { return };
        let exit = run.ranks.get(rank.0 as usize).and_then(|rank| rank.exit.as_ref());
        if let Some((_, exit)) = exit {
            self.forget_cause(id, run);
            let words = Evidence::headline(evidence.as_ref(), &exit.describe());
            self.happened(AlertKind::RankFailed, place(id, run, Some(rank)), at, &words);
        }
    }

    /// Forgets the rank that was told to be the cause in this attempt of a run.
    fn forget_cause(&mut self, id: &RunId, run: &RunState) {
        let begun = run.stages_of_attempt().first().filter(|_| run.attempt.0 > 1).map(|(at, _)| *at);
        self.kept.retain(|alert| {
            let is_cause = alert.kind == AlertKind::RankFailed && alert.place.run.as_ref() == Some(id);
            !is_cause || begun.is_some_and(|begun| alert.since < begun)
        });
    }
}

fn place(id: &RunId, run: &RunState, rank: Option<Rank>) -> Place {
    let of = rank.and_then(|rank| run.trainer(rank)).map(|one| &one.rank.placement);
    let gpu = of.and_then(|of| match of.slot {
        Slot::Gpu { index, .. } => Some(index),
        Slot::Cpu { .. } => None,
    });
    Place { host: of.map(|of| of.host.clone()), gpu, run: Some(id.clone()), rank }
}

/// Whether a run hangs: it stands still by what its ranks tell of their phases, or a rank's GPU is busy without work.
fn hang(known: WorldView<'_>, run: &RunState, least_us: i64, at: Stamp) -> Option<Hang> {
    // of a host that is not reached, and of what its ranks have done since they told, nothing is known: they may go on
    let reached = |host| known.hosts.get(host).is_some_and(HostState::is_up);
    if !run.by_host.keys().all(reached) || run.behind_us(known.hosts, at).is_some() {
        return None;
    }
    if let Some(still) = Standstill::of(run, at)
        && let Some(since) = still.since().filter(|since| at.micros_since(*since) >= least_us)
    {
        return Some(Hang { since, rank: still.culprit(), words: still.lasting_words() });
    }
    let mut waiting = run.trainers().filter_map(|one| idles_busily(known, one, least_us, at));
    let first = waiting.next()?;
    let more = match waiting.count() {
        0 => String::new(),
        1 => "; 1 more rank like it".to_owned(),
        more => format!("; {more} more ranks like it"),
    };
    Some(Hang { words: first.words + &more, ..first })
}

/// A rank that has taken no step for long, whose GPU looks busy and hardly draws power.
fn idles_busily(known: WorldView<'_>, one: Trainer<'_>, least_us: i64, at: Stamp) -> Option<Hang> {
    if one.rank.exit.is_some() {
        return None;
    }
    let (since, step) = one.state.steps.back().map(|(since, step)| (*since, step.step))?;
    let for_us = at.micros_since(since);
    if for_us < least_us || for_us < STEPS * median_us(one) {
        return None;
    }
    let placement = &one.rank.placement;
    let (state, uuid) = (known.hosts.get(&placement.host)?, placement.gpus().next()?);
    let position = state.info.as_ref()?.gpus.iter().position(|gpu| gpu.uuid == *uuid)?;
    let (sampled, sample) = state.latest()?;
    let gpu = sample.gpus.get(position).filter(|_| at.micros_since(sampled) < FRESH_US)?;
    if *gpu.util.value()? < BUSY_UTIL
        || gpu.sm_active_percent.value().is_some_and(|active| *active >= LOW_SM_ACTIVE)
    {
        return None;
    }
    let (power, limit) = (*gpu.power_mw.value()?, *gpu.power_limit_mw.value()?);
    let share = f64::from(power) / f64::from(limit.max(1));
    let busy = state.past.iter().filter(|past| past.at <= since).filter_map(|past| past.gpus.get(position));
    let below_own = median_power(busy).is_some_and(|own| (share as f32) < LOW_OF_OWN * own);
    if share >= LOW_POWER && !below_own {
        return None;
    }
    let words = format!("no step after {step}: {}", gpu_words(gpu, power, limit));
    Some(Hang { since, rank: Some(one.number), words })
}

/// `GPU 100 % busy at 180 of 700 W, 12 % of its SMs active`.
fn gpu_words(gpu: &GpuSample, power: u32, limit: u32) -> String {
    let util = gpu.util.value().copied().unwrap_or_default();
    let active = gpu.sm_active_percent.value().map(|active| format!(", {active} % of its SMs active"));
    let active = active.unwrap_or_default();
    format!("GPU {util} % busy at {} of {} W{active}", power / 1000, limit / 1000)
}

/// The median length of its newest steps, microseconds.
fn median_us(one: Trainer<'_>) -> i64 {
    let mut steps: Vec<u32> = one.state.recent_steps(RECENT).map(|step| step.dur_us).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().map_or(0, i64::from)
}

/// What a GPU drew while it was busy, as a share of its limit.
fn median_power<'a>(past: impl Iterator<Item = &'a PastGpu>) -> Option<f32> {
    let busy = past.filter(|gpu| gpu.util().is_some_and(|util| util * 100.0 >= BUSY_UTIL as f32));
    let mut power: Vec<f32> = busy.filter_map(PastGpu::power).collect();
    power.sort_by(f32::total_cmp);
    power.get(power.len() / 2).copied()
}
