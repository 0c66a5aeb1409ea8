//! What is kept of a whole run, from its start to now: loss, throughput, step times, where the time went, when a rank was
//! late or failed, and how busy each rank's slot was. Bounded, however long the run is.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ids::{HostId, Rank};
use super::loads::{HostLoad, SlotLoad};
use super::missing::Missing;
use super::nccl_timing::CollectiveTiming;
use super::outage::Outages;
use super::run::RankExit;
use super::series::{Merge, Series, width_after};
use super::step_losses::StepLosses;
use super::time::Stamp;
use super::timing::{Phase, SeenStep, StepTiming};
use super::world::{HostState, RunState};

/// How many points the charts of a run have at most.
pub const POINTS: usize = 512;
/// How many the load of one slot has: there may be hundreds of them.
pub const LOAD_POINTS: usize = 256;
/// How many the phases of all that train have together, and those of one at least and at most.
const PHASE_POINTS: usize = 1 << 15;
const LEAST_PHASE_POINTS: usize = 64;
const MOST_PHASE_POINTS: usize = 256;
/// Of so many that train it is kept where their time went.
const MOST_TRAINERS: usize = 4096;
/// How many marks are kept.
pub const MARKS: usize = 64;

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHistory {
    /// Its steps and losses.
    pub points: Series<RunPoint>,
    losses: StepLosses,
    /// What happened, oldest first.
    pub marks: VecDeque<(Stamp, Mark)>,
    /// What never came of it, or is not recorded.
    #[serde(default)]
    pub missing: Missing,
    /// When hosts of it were cut off.
    #[serde(default)]
    pub outages: Outages,
    /// How busy the slot of each rank was.
    loads: Vec<Series<SlotLoad>>,
    /// How busy each of its hosts was, and what went over their networks.
    hosts: BTreeMap<HostId, Series<HostLoad>>,
    /// Where the time of each that trains went, by its number.
    phases: Vec<Series<PhasePoint>>,
}

/// Where the time of one that trains went in a short time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "PhaseRow", into = "PhaseRow")]
pub struct PhasePoint {
    /// The longest step that ended then, microseconds.
    pub longest_us: u32,
    /// The same without each step's allreduce, in which all of them wait for one that stalls.
    pub longest_own_us: u32,
    /// Allreduce that passed behind the computing, microseconds.
    pub hidden_us: u32,
    /// What NCCL's collectives took, where they are told, microseconds.
    pub collectives_us: u32,
    /// Microseconds a phase, indexed as [`Phase::ALL`].
    pub phases: [u32; Phase::COUNT],
}

/// The same as it is written where a state of a run is kept: without names, for there are tens of thousands.
#[derive(Serialize, Deserialize)]
struct PhaseRow(u32, u32, u32, u32, [u32; Phase::COUNT]);

impl From<PhasePoint> for PhaseRow {
    fn from(point: PhasePoint) -> Self {
        let PhasePoint { longest_us, longest_own_us, hidden_us, collectives_us, phases } = point;
        Self(longest_us, longest_own_us, hidden_us, collectives_us, phases)
    }
}

impl From<PhaseRow> for PhasePoint {
    fn from(row: PhaseRow) -> Self {
        let PhaseRow(longest_us, longest_own_us, hidden_us, collectives_us, phases) = row;
        Self { longest_us, longest_own_us, hidden_us, collectives_us, phases }
    }
}

impl PhasePoint {
    /// Of a step with these totals of its phases.
    pub(super) fn of(timing: &StepTiming, totals: [u64; Phase::COUNT]) -> Self {
        let us = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        Self {
            longest_us: timing.dur_us,
            longest_own_us: timing.own_us(),
            hidden_us: timing.hidden_us,
            collectives_us: 0,
            phases: totals.map(us),
        }
    }

    /// How long gradients were on their way, as NCCL tells it, else the steps: microseconds.
    pub fn communication_us(&self) -> u64 {
        if self.collectives_us > 0 {
            return self.collectives_us.into();
        }
        let exposed = [Phase::Wait, Phase::Transfer].map(|phase| u64::from(self.phases[phase.index()]));
        u64::from(self.hidden_us) + exposed.iter().sum::<u64>()
    }
}

impl Merge for PhasePoint {
    fn merge(&mut self, other: &Self) {
        self.longest_us = self.longest_us.max(other.longest_us);
        self.longest_own_us = self.longest_own_us.max(other.longest_own_us);
        self.hidden_us = self.hidden_us.saturating_add(other.hidden_us);
        self.collectives_us = self.collectives_us.saturating_add(other.collectives_us);
        for (own, more) in self.phases.iter_mut().zip(other.phases) {
            *own = own.saturating_add(more);
        }
    }
}

/// Something that happened once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// A rank failed by itself.
    Failed(Rank),
    /// All ranks were started again.
    Restarted,
}

/// What is known of a short time of a run, over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "RunRow", into = "RunRow")]
pub struct RunPoint {
    /// Steps that ended then.
    pub steps: u32,
    /// Their lengths summed up, microseconds.
    pub step_us: u64,
    /// The longest of them, microseconds.
    pub longest_us: u32,
    /// When it ended, and its number.
    pub longest: Option<(Stamp, u64)>,
    /// Samples worked through.
    pub samples: u64,
    /// Microseconds a phase, indexed as [`Phase::ALL`].
    pub phases: [u64; Phase::COUNT],
    /// The losses that were told.
    pub loss: Option<LossSpan>,
    /// Whether a rank was a straggler.
    pub late: bool,
}

/// The same as it is written where a state of a run is kept.
#[derive(Serialize, Deserialize)]
struct RunRow(u32, u64, u32, Option<(Stamp, u64)>, u64, [u64; Phase::COUNT], Option<LossSpan>, bool);

impl From<RunPoint> for RunRow {
    fn from(point: RunPoint) -> Self {
        let RunPoint { steps, step_us, longest_us, longest, samples, phases, loss, late } = point;
        Self(steps, step_us, longest_us, longest, samples, phases, loss, late)
    }
}

impl From<RunRow> for RunPoint {
    fn from(row: RunRow) -> Self {
        let RunRow(steps, step_us, longest_us, longest, samples, phases, loss, late) = row;
        Self { steps, step_us, longest_us, longest, samples, phases, loss, late }
    }
}

/// Losses of a short time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossSpan {
    /// The least.
    pub low: f32,
    /// The greatest.
    pub high: f32,
    sum: f64,
    count: u32,
}

impl LossSpan {
    fn of(loss: f32) -> Self {
        Self { low: loss, high: loss, sum: loss.into(), count: 1 }
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }

    fn merge(&mut self, other: &Self) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        self.sum += other.sum;
        self.count = self.count.saturating_add(other.count);
    }
}

impl RunPoint {
    /// Samples a second of one rank, as its steps tell.
    pub fn samples_per_second(&self) -> Option<f64> {
        (self.samples > 0 && self.step_us > 0).then(|| self.samples as f64 * 1e6 / self.step_us as f64)
    }

    /// The share of the steps' time that each phase took, and `Other` with what no phase is told of.
    pub fn shares(&self) -> Option<[f64; Phase::COUNT]> {
        let told: u64 = self.phases.iter().sum();
        let all = self.step_us.max(told);
        if told == 0 || all == 0 {
            return None;
        }
        let mut shares = self.phases.map(|us| us as f64 / all as f64);
        shares[Phase::Other.index()] += (all - told) as f64 / all as f64;
        Some(shares)
    }
}

impl Merge for RunPoint {
    fn merge(&mut self, other: &Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.step_us = self.step_us.saturating_add(other.step_us);
        self.longest = match (self.longest, other.longest) {
            // the step is over when the last rank has told it
            (Some((at, step)), Some((later, same))) if same == step => Some((at.max(later), step)),
            (_, longest) if other.longest_us > self.longest_us => longest,
            (longest, _) => longest,
        };
        self.longest_us = self.longest_us.max(other.longest_us);
        self.samples = self.samples.saturating_add(other.samples);
        for (own, more) in self.phases.iter_mut().zip(other.phases) {
            *own = own.saturating_add(more);
        }
        match (&mut self.loss, &other.loss) {
            (Some(own), Some(more)) => own.merge(more),
            (own, more) => *own = own.or(*more),
        }
        self.late |= other.late;
    }
}

/// How many points each of so many that train has.
fn phase_points(trainers: usize) -> usize {
    (PHASE_POINTS / trainers.max(1)).clamp(LEAST_PHASE_POINTS, MOST_PHASE_POINTS)
}

/// How long a point of where the time went lasts when so much of a run is told in which so many train, microseconds.
pub fn phase_width_us(length_us: i64, trainers: usize) -> i64 {
    width_after(length_us, phase_points(trainers))
}

/// A loss that counts: what is no number has no place in a chart.
fn finite(loss: Option<f32>) -> Option<f32> {
    loss.filter(|loss| loss.is_finite())
}

/// Telemetry tells of the time before it, so long at most, microseconds.
const LOAD_HOLDS_US: i64 = 2_500_000;

impl RunHistory {
    /// Of a run of so many ranks that was asked for at `start`.
    pub(super) fn new(start: Stamp, ranks: usize) -> Self {
        Self {
            points: Series::new(start, POINTS),
            losses: StepLosses::default(),
            marks: VecDeque::new(),
            missing: Missing::default(),
            outages: Outages::default(),
            loads: vec![Series::new(start, LOAD_POINTS); ranks],
            hosts: BTreeMap::new(),
            phases: Vec::new(),
        }
    }

    /// Of the same run of so many ranks, with what is known of its beginning and at most so many points, none of them known yet.
    pub(super) fn coarse(of: &Self, ranks: usize, points: usize) -> Self {
        let start = of.points.start();
        Self {
            points: Series::new(start, points.min(POINTS)),
            losses: of.losses.clone(),
            marks: of.marks.clone(),
            missing: of.missing.clone(),
            outages: of.outages.clone(),
            loads: vec![Series::new(start, points.min(LOAD_POINTS)); ranks],
            hosts: BTreeMap::new(),
            phases: Vec::new(),
        }
    }

    /// Of the same run, with what is known of its beginning, and up to a moment with what a later one tells of it.
    pub(super) fn known_until(of: &Self, later: &Self, moment: Stamp) -> Self {
        Self {
            points: later.points.until(moment),
            losses: of.losses.clone(),
            marks: later.marks.iter().filter(|(at, _)| *at < moment).copied().collect(),
            missing: of.missing.clone(),
            outages: of.outages.clone(),
            loads: later.loads.iter().map(|load| load.until(moment)).collect(),
            hosts: later.hosts.iter().map(|(host, load)| (host.clone(), load.until(moment))).collect(),
            phases: later.phases.iter().map(|phases| phases.until(moment)).collect(),
        }
    }

    /// One of so many that train finished a step; `late`: a rank is a straggler now.
    pub(super) fn step(
        &mut self,
        at: Stamp,
        (number, ranks): (Rank, usize),
        timing: &StepTiming,
        late: bool,
    ) {
        let totals = timing.phase_totals();
        self.of_trainer(at, number, &PhasePoint::of(timing, totals));
        let loss = finite(timing.loss);
        self.points.at(at).merge(&RunPoint {
            steps: 1,
            step_us: timing.dur_us.into(),
            longest_us: timing.dur_us,
            longest: Some((at, timing.step)),
            samples: timing.samples.into(),
            phases: totals,
            loss: loss.map(LossSpan::of),
            late,
        });
        if let Some(loss) = loss {
            self.losses.take(timing.step, loss, ranks);
        }
    }

    fn of_trainer(&mut self, at: Stamp, number: Rank, point: &PhasePoint) {
        let number = number.0 as usize;
        if number >= self.phases.len() && number < MOST_TRAINERS {
            let trainers = self.loads.len().max(number + 1);
            let points = phase_points(trainers).min(self.points.most());
            self.phases.resize(trainers, Series::new(self.points.start(), points));
        }
        if let Some(phases) = self.phases.get_mut(number) {
            phases.at(at).merge(point);
        }
    }

    /// One that trains told of a collective, which stands for so many.
    pub(super) fn collective(&mut self, at: Stamp, number: Rank, timing: &CollectiveTiming) {
        let us = (timing.dur_ns / 1000).saturating_mul(timing.every.into());
        let collectives_us = u32::try_from(us).unwrap_or(u32::MAX);
        self.of_trainer(at, number, &PhasePoint { collectives_us, ..PhasePoint::default() });
    }

    /// One of so many ranks prints that it has come to a step.
    pub(super) fn seen(&mut self, at: Stamp, seen: &SeenStep, ranks: usize) {
        let Some(loss) = finite(seen.loss) else { return };
        self.points.at(at).merge(&RunPoint { loss: Some(LossSpan::of(loss)), ..RunPoint::default() });
        self.losses.take(seen.step, loss, ranks);
    }

    /// The loss of the first step: the mean of its ranks.
    pub fn first_loss(&self) -> Option<f32> {
        self.losses.first()
    }

    /// The least loss of a step.
    pub fn least_loss(&self) -> Option<f32> {
        self.losses.least()
    }

    /// A rank ended.
    pub(super) fn exit(&mut self, at: Stamp, rank: Rank, exit: &RankExit) {
        if !exit.stopped && exit.shell_code() != 0 {
            self.mark(at, Mark::Failed(rank));
        }
    }

    /// Something happened.
    pub(super) fn mark(&mut self, at: Stamp, mark: Mark) {
        if self.marks.len() >= MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((at, mark));
    }

    /// How busy the slot of a rank was.
    pub(super) fn loaded_by(&mut self, at: Stamp, rank: Rank, load: SlotLoad) {
        let series = self.loads.get_mut(rank.0 as usize).filter(|_| load != SlotLoad::default());
        if let Some(series) = series {
            series.at(at).merge(&load);
        }
    }

    /// How busy a host of the run is by its newest sample.
    fn host_load(&mut self, at: Stamp, host: &HostId, state: &HostState) {
        // as of slots: of a host without facts nothing is known
        let known = state.past.back().filter(|_| state.info.is_some());
        let load = known.map(HostLoad::of).unwrap_or_default();
        if load == HostLoad::default() {
            return;
        }
        if !self.hosts.contains_key(host) {
            let points = self.points.most().min(LOAD_POINTS);
            self.hosts.insert(host.clone(), Series::new(self.points.start(), points));
        }
        if let Some(series) = self.hosts.get_mut(host) {
            series.at(at).merge(&load);
        }
    }

    /// The peaks of the load of a rank's slot, in percent, oldest first: since when each was so, and how long one lasts,
    /// microseconds.
    pub(super) fn loads_of(&self, rank: Rank) -> (impl Iterator<Item = (Stamp, u32)>, i64) {
        let series = self.loads.get(rank.0 as usize);
        let known = series.into_iter().flat_map(Series::timed);
        let known = known.filter_map(|(at, load)| Some((at, load.util()?)));
        (known, series.map_or(0, Series::width_us))
    }

    /// The peak load of a rank's slot between two moments, 0..=1.
    pub fn load_between(&self, rank: Rank, from: Stamp, to: Stamp) -> Option<f64> {
        busy(self.slot_between(rank, from, to)?)
    }

    /// The mean of the peak loads of these ranks' slots in each of these times, 0..=1: as [`Self::load_between`] tells them.
    pub fn mean_loads(&self, ranks: &[Rank], times: &[(Stamp, Stamp)]) -> Vec<Option<f64>> {
        let mut sums = vec![(0.0, 0u32); times.len()];
        let (mut before, mut places): (Option<&Series<SlotLoad>>, Vec<(i64, i64)>) = (None, Vec::new());
        for series in ranks.iter().filter_map(|rank| self.loads.get(rank.0 as usize)) {
            // of hundreds of slots nearly all have their points at the same times
            if !before.replace(series).is_some_and(|before| before.is_parallel(series)) {
                places = times.iter().map(|(from, to)| series.places(*from, *to)).collect();
            }
            for (((sum, count), at), (_, to)) in sums.iter_mut().zip(&places).zip(times) {
                let peak = SlotLoad::most_util(series.at_places(*at));
                let near = || series.told(*at, *to, |_| LOAD_HOLDS_US).and_then(busy);
                if let Some(load) = peak.map(share).or_else(near) {
                    *sum += load;
                    *count += 1;
                }
            }
        }
        sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
    }

    /// The peak of the used share of the memory of a rank's GPU between two moments, 0..=1.
    pub fn memory_between(&self, rank: Rank, from: Stamp, to: Stamp) -> Option<f64> {
        self.slot_between(rank, from, to)?.memory()
    }

    fn slot_between(&self, rank: Rank, from: Stamp, to: Stamp) -> Option<SlotLoad> {
        self.loads.get(rank.0 as usize)?.between(from, to, |_| LOAD_HOLDS_US)
    }

    /// The peaks of what a host told between two moments.
    pub fn host_between(&self, host: &HostId, from: Stamp, to: Stamp) -> Option<HostLoad> {
        self.hosts.get(host)?.between(from, to, |_| LOAD_HOLDS_US)
    }

    /// Whether it is kept where the time of one that trains went.
    pub fn has_phases(&self, number: Rank) -> bool {
        self.phases.get(number.0 as usize).is_some()
    }

    /// What is kept of one that trains, oldest first.
    pub(super) fn phases_of(&self, number: Rank) -> Option<&Series<PhasePoint>> {
        self.phases.get(number.0 as usize)
    }

    /// Whether one that trains has told more of its communication than its phases show: that it passed behind the computing, or
    /// when NCCL's collectives ran.
    pub fn has_communication(&self, number: Rank) -> bool {
        let points = self.phases_of(number).map_or(&[][..], Series::points);
        points.iter().any(|point| point.hidden_us > 0 || point.collectives_us > 0)
    }

    /// The share of the time between two moments in which one that trains communicated, as its points tell it, of which the newest
    /// lasts until `now` at most.
    pub fn communication_share(&self, number: Rank, (from, to): (Stamp, Stamp), now: Stamp) -> f64 {
        let Some(points) = self.phases_of(number) else { return 0.0 };
        let Some(point) = points.between(from, to, |point| i64::from(point.longest_us)) else { return 0.0 };
        // a step that is longer than a point tells of the time before it
        let told_us = points.told_us(from, to, now).max(point.longest_us.into()).max(1);
        point.communication_us() as f64 / told_us as f64
    }

    /// Where the time of one that trains went between two moments.
    pub fn phases_between(&self, number: Rank, from: Stamp, to: Stamp) -> Option<PhasePoint> {
        self.phases.get(number.0 as usize)?.between(from, to, |point| i64::from(point.longest_us))
    }

    /// What [`Self::phases_between`] tells of each of these times, which come in rising order; nothing where it is not kept.
    pub fn phases_in_each(
        &self,
        number: Rank,
        times: impl Iterator<Item = (Stamp, Stamp)>,
    ) -> impl Iterator<Item = Option<PhasePoint>> {
        let phases = self.phases.get(number.0 as usize);
        let told = phases.map(|phases| phases.each_between(times, |point| i64::from(point.longest_us)));
        told.into_iter().flatten()
    }

    /// What is known of the time between two moments; a step tells of the time that it took.
    pub fn between(&self, from: Stamp, to: Stamp) -> Option<RunPoint> {
        self.points.between(from, to, |point| i64::from(point.longest_us))
    }
}

/// How busy a slot was, 0..=1.
fn busy(load: SlotLoad) -> Option<f64> {
    load.util().map(share)
}

fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

impl RunState {
    /// A host of it told how busy it is.
    pub(super) fn loaded(&mut self, at: Stamp, host: &HostId, state: &HostState) {
        let Some(ranks) = self.by_host.get(host) else { return };
        self.history.host_load(at, host, state);
        for number in ranks {
            let Some(rank) = self.ranks.get_mut(number.0 as usize) else { continue };
            let slot = &rank.placement.slot;
            let place = state.gpu_of(slot);
            if let Some(past) = state.past.back() {
                self.history.loaded_by(at, *number, past.load_at(slot, place));
            }
            if rank.exit.is_none() && rank.has_run() {
                rank.values = state.values_at(slot, place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::fixtures::rank_exit;
    use crate::domain::time::HostTime;
    use crate::domain::timing::PhaseSpan;

    fn step(loss: Option<f32>, dur_us: u32) -> StepTiming {
        let spans = [PhaseSpan { phase: Phase::Forward, start_us: 0, dur_us: dur_us / 4 }].into();
        StepTiming { step: 1, start: HostTime(0), dur_us, loss, samples: 32, spans, hidden_us: 0 }
    }

    #[test]
    fn a_day_of_steps_keeps_its_spike_and_its_losses() {
        let mut history = RunHistory::new(Stamp(0), 2);
        for second in 0..86_400i64 {
            let dur_us = if second == 40_000 { 900_000 } else { 60_000 };
            let loss = if second == 5 { f32::NAN } else { 2.0 - second as f32 / 86_400.0 };
            let timing = StepTiming { step: second as u64 + 1, ..step(Some(loss), dur_us) };
            history.step(Stamp(second * 1_000_000), (Rank(0), 2), &timing, second > 80_000);
        }
        assert!(history.points.points().len() <= POINTS);
        let spike = history.points.points().iter().map(|point| point.longest_us).max();
        assert_eq!(spike, Some(900_000));
        assert_eq!(history.first_loss(), Some(2.0));
        assert!(history.least_loss().is_some_and(|least| (1.0..1.001).contains(&least)));
        let all = history.between(Stamp(0), Stamp(86_400_000_000)).unwrap();
        assert_eq!((all.steps, all.late), (86_400, true));
        let loss = all.loss.unwrap();
        assert!((loss.mean() - 1.5).abs() < 0.01 && loss.high >= 2.0, "{loss:?}");
        let early = history.between(Stamp(0), Stamp(3_600_000_000)).unwrap();
        assert!(!early.late);
        let shares = early.shares().unwrap();
        assert!((shares[Phase::Forward.index()] - 0.25).abs() < 1e-9);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        // and where each rank's time went
        let (from, to) = (Stamp(40_000_000_000), Stamp(41_000_000_000));
        let phases = history.phases_between(Rank(0), from, to).unwrap();
        assert!(phases.longest_us == 900_000 && phases.phases[Phase::Forward.index()] > 225_000);
        assert!(history.phases_between(Rank(1), from, to).is_none());
        assert!(history.phases[0].points().len() <= MOST_PHASE_POINTS);
    }

    #[test]
    fn a_step_with_its_loss_is_the_step_and_then_its_loss() {
        let mut together = RunHistory::new(Stamp(0), 2);
        let mut apart = together.clone();
        for (number, loss) in (1..).zip([Some(2.0), None, Some(f32::NAN), Some(1.5), Some(0.25)]) {
            let at = Stamp(number as i64 * 40_000);
            let without = StepTiming { step: number, ..step(None, 60_000) };
            let timing = StepTiming { loss, ..without.clone() };
            together.step(at, (Rank(1), 2), &timing, number > 3);
            apart.step(at, (Rank(1), 2), &without, number > 3);
            apart.seen(at, &SeenStep { step: number, total: None, loss }, 2);
        }
        assert_eq!(together, apart);
        assert_eq!((together.first_loss(), together.least_loss()), (Some(2.0), Some(0.25)));
    }

    #[test]
    fn a_history_comes_back_as_it_was_written_and_its_points_are_written_without_names() {
        let mut history = RunHistory::new(Stamp(0), 2);
        for (number, loss) in (1..).zip([Some(2.0), None, Some(1.5)]) {
            let timing = StepTiming { step: number, hidden_us: 9, ..step(loss, 90_000) };
            history.step(Stamp(number as i64 * 200_000), (Rank(1), 2), &timing, number == 2);
        }
        let written = rmp_serde::to_vec_named(&history).unwrap();
        for name in ["longest_us", "collectives_us", "step_us"] {
            assert!(!written.windows(name.len()).any(|word| word == name.as_bytes()), "{name}");
        }
        assert_eq!(rmp_serde::from_slice::<RunHistory>(&written).unwrap(), history);
    }

    proptest! {
        #[test]
        fn the_columns_of_a_run_have_the_phases_of_all_of_its_steps(
            steps in prop::collection::vec((0..20_000_000_000i64, 0..3u32, prop::collection::vec(0..90_000u32, 6)), 1..300),
            columns in 1..200i64,
        ) {
            let mut ordered = steps;
            ordered.sort_by_key(|(at, ..)| *at);
            let mut history = RunHistory::new(Stamp(0), 3);
            let mut sums = [[0; Phase::COUNT]; 3];
            for (at, rank, phases) in &ordered {
                let mut start_us = 0;
                let span = |(phase, dur_us): (Phase, &u32)| {
                    let span = PhaseSpan { phase, start_us, dur_us: *dur_us };
                    start_us += dur_us;
                    span
                };
                let spans = Phase::ALL.into_iter().zip(phases).map(span).collect();
                let timing = StepTiming { dur_us: start_us, spans, ..step(None, 0) };
                let totals = timing.phase_totals();
                sums[*rank as usize].iter_mut().zip(totals).for_each(|(sum, us)| *sum += us);
                history.step(Stamp(*at), (Rank(*rank), 3), &timing, false);
            }
            // columns that end where points do, so that none lies in two of them
            for rank in 0..3u32 {
                let series = &history.phases[rank as usize];
                let count = series.points().len() as i64;
                let each = series.width_us() * (count / columns).max(1);
                let mut told = [0u64; Phase::COUNT];
                let mut from = 0;
                while from < count * series.width_us() {
                    let (left, right) = (Stamp(from), Stamp(from + each));
                    // what reaches back from a later column is told there
                    if let Some(point) = series.between(left, right, |_| 0) {
                        told.iter_mut().zip(point.phases).for_each(|(sum, us)| *sum += u64::from(us));
                        prop_assert_eq!(history.phases_between(Rank(rank), left, right), Some(point));
                    }
                    from += each;
                }
                prop_assert_eq!(told, sums[rank as usize], "rank {}", rank);
            }
            let all = history.between(Stamp(0), Stamp(40_000_000_000)).unwrap();
            let of_all: Vec<u64> = (0..Phase::COUNT).map(|at| sums.iter().map(|own| own[at]).sum()).collect();
            prop_assert_eq!(&all.phases[..], &of_all[..]);
            prop_assert_eq!(all.steps as usize, ordered.len());
        }
    }

    #[test]
    fn the_mean_load_of_a_column_is_that_of_the_slots_that_tell_it() {
        let mut history = RunHistory::new(Stamp(0), 3);
        for second in 0..20i64 {
            for (rank, util) in [(0, 0.1), (1, 0.3 + second as f64 / 100.0)] {
                let load = SlotLoad::new(Some(util), None);
                history.loaded_by(Stamp(second * 1_000_000), Rank(rank), load);
            }
        }
        // one that tells seldom, at first of its memory alone, and whose points last longer as it goes on
        let told = [(3, None, Some(0.5)), (5, Some(0.7), Some(0.1)), (100, Some(0.9), None)];
        for (second, util, memory) in told {
            history.loaded_by(Stamp(second * 1_000_000), Rank(2), SlotLoad::new(util, memory));
        }
        assert!(!history.loads[2].is_parallel(&history.loads[0]));
        let columns: Vec<_> = (0..30i64).map(|at| (Stamp(at * 900_000), Stamp((at + 1) * 900_000))).collect();
        let all = [0, 1, 2, 7].map(Rank);
        let each = |ranks: &[Rank]| {
            let mean = |(from, to): &(Stamp, Stamp)| {
                let known = ranks.iter().filter_map(|rank| history.load_between(*rank, *from, *to));
                let (sum, count) = known.fold((0.0, 0u32), |(sum, count), load| (sum + load, count + 1));
                (count > 0).then(|| sum / f64::from(count))
            };
            columns.iter().map(mean).collect::<Vec<_>>()
        };
        for ranks in [&all[..], &all[1..2], &all[2..], &[]] {
            assert_eq!(history.mean_loads(ranks, &columns), each(ranks));
        }
        let told = history.mean_loads(&all, &columns);
        assert_eq!((told[0], told[29]), (Some(0.2), None), "of two, and behind the last sample");
    }

    #[test]
    fn where_the_time_of_each_column_went_is_told_in_one_walk() {
        let mut history = RunHistory::new(Stamp(0), 1);
        for second in 1..50i64 {
            history.step(Stamp(second * 700_000), (Rank(0), 1), &step(None, 400_000), false);
        }
        let columns = (0..80i64).map(|at| (Stamp(at * 500_000), Stamp((at + 1) * 500_000)));
        let walked: Vec<_> = history.phases_in_each(Rank(0), columns.clone()).collect();
        let each = columns.clone().map(|(from, to)| history.phases_between(Rank(0), from, to));
        assert_eq!(walked, each.collect::<Vec<_>>());
        assert!(walked.iter().flatten().count() > 40);
        assert_eq!(history.phases_in_each(Rank(1), columns).next(), None, "nothing is kept of it");
    }

    #[test]
    fn only_own_failures_are_marked() {
        let mut history = RunHistory::new(Stamp(0), 1);
        let exit = |code, stopped| RankExit { stopped, ..rank_exit(code) };
        history.exit(Stamp(1), Rank(0), &exit(0, false));
        history.exit(Stamp(2), Rank(1), &exit(143, true));
        history.exit(Stamp(3), Rank(2), &exit(1, false));
        assert_eq!(history.marks, [(Stamp(3), Mark::Failed(Rank(2)))]);
    }
}
