//! The steps of a run: each as soon as all ranks have told it, for only then it is known who came last. A fold in bounded
//! memory. How long a rank waited is measured by itself; clocks are compared to see whether they agree, and for nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::by_step::ByStep;
use super::choice::Choice;
use super::correlation::Correlation;
use super::figures::{SlowStep, Span};
use super::gains::{CostSeries, Gains};
use super::histogram::Histogram;
use super::lateness::{self, Late};
use super::part::Part;
use super::points::{Ended, StepPoint};
use super::stands::Stands;
use super::what_if::{BEFORE, WhatIfSums};
use crate::domain::clock_check::{ClockCheck, ClocksApart, Passage};
use crate::domain::hooks::StepsBy;
use crate::domain::ids::Rank;
use crate::domain::last_in::HostClock;
use crate::domain::series::Merge;
use crate::domain::straggler::{LEAST_US, Lost};
use crate::domain::time::Stamp;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainer_keys::TrainerId;

/// Parts of steps that some ranks have told and others not. What a client has caught up with comes rank by rank, thousands of steps
/// apart.
const MOST_PARTS: usize = 1 << 18;
/// How many that train are followed.
pub(super) const MOST_RANKS: usize = 4096;
/// After so many whole steps it is looked whether clocks are apart.
const CLOCKS_EVERY: u64 = 5;
/// A rank that passes over steps so often does not tell all of them, or as one of so many that it tells.
const SKIPS: usize = 8;
const SKIPS_RARE: u64 = 20;
/// Points of the charts over the steps.
const POINTS: usize = 240;
/// So many of the longest steps are kept.
const LONGEST: usize = 16;
/// After so many whole steps it is looked how long they usually take; a step counts for so many usual ones at most in where most of
/// what a rank costs lies.
const USUAL_EVERY: u64 = 64;
const USUAL_STEPS: u32 = 4;
/// A wait of a usual step's so many-th part is much of it.
const DEAR: u32 = 10;
/// Points of the lateness of one rank.
const LATE_POINTS: usize = 240;

/// What is known of one rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankSteps {
    pub(super) by: StepsBy,
    /// Its process has just started: the next step warms up.
    fresh: bool,
    last: Option<Last>,
    /// Steps that it has told, and spans of those that it has passed over.
    pub(super) told: u64,
    pub(super) skipped: Vec<Span>,
    /// The longest of its first steps.
    pub(super) first_us: Option<u32>,
    /// Lengths of all others, microseconds.
    pub(super) lengths: Histogram,
    /// Those of them of which it tells phases, and how long they took together: hooks tell those of some of many short steps.
    pub(super) phased: u64,
    pub(super) phased_us: u64,
    pub(super) phases: [u64; Phase::COUNT],
    pub(super) hidden_us: u64,
    pub(super) samples: u64,
    pub(super) sample_us: u64,
    /// Steps in which it came last, and what the second last waited for it.
    pub(super) last_in: u64,
    /// Those of them in which that was much of the step, and those in which it was as long as a whole one usually is.
    pub(super) dear_in: u64,
    pub(super) huge_in: u64,
    pub(super) caused: Gains,
    /// By step, where none counts for more than [`USUAL_STEPS`].
    pub(super) caused_in: CostSeries,
    pub(super) what_if: WhatIfSums,
    pub(super) late: Option<ByStep<Late>>,
}

/// What of a rank's last step belongs to what comes next.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Last {
    step: u64,
    end: u64,
    transfer: u32,
    optimizer: u32,
}

/// The first loss, the least and the last, each with its step.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Losses {
    pub(super) first: Option<(u64, f64)>,
    pub(super) least: Option<(u64, f64)>,
    pub(super) last: Option<(u64, f64)>,
    /// The first step of which a loss was no number.
    pub(super) not_finite: Option<u64>,
}

impl Losses {
    fn take(&mut self, step: u64, loss: f64) {
        self.first = self.first.or(Some((step, loss)));
        if self.least.is_none_or(|(_, least)| loss < least) {
            self.least = Some((step, loss));
        }
        self.last = Some((step, loss));
    }
}

/// The fold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Steps {
    pub(super) choice: Arc<Choice>,
    /// Whether what is told counts.
    pub(super) counting: bool,
    world: u32,
    has_workers: bool,
    pub(super) ranks: BTreeMap<TrainerId, RankSteps>,
    /// Each rank holds a training of its own: none comes last among all.
    is_apart: bool,
    open: BTreeMap<u64, Vec<Part>>,
    /// The first and the last step that was told.
    pub(super) first: Option<u64>,
    pub(super) newest: Option<u64>,
    /// Steps that all ranks have told, but for those that warm up.
    pub(super) whole: u64,
    /// The first and the last of them.
    pub(super) whole_span: Option<(u64, u64)>,
    /// Those of them of which all ranks tell their waits, and how long they took together.
    pub(super) judged: u64,
    pub(super) judged_us: u64,
    /// Those in which the second last waited for much of the step, whichever rank was the last; and for as long as a whole one.
    pub(super) dear: u64,
    pub(super) huge: u64,
    /// The first and the last of these.
    pub(super) judged_span: Option<(u64, u64)>,
    /// The longest whole steps, the longest first.
    pub(super) longest: Vec<SlowStep>,
    /// The median of the steps so far, microseconds.
    usual_us: u32,
    /// The longest rank of each whole step, microseconds.
    pub(super) lengths: Histogram,
    pub(super) warm_us: Option<u32>,
    correlation: Correlation,
    clocks: ClockCheck,
    /// The clocks that were the furthest apart.
    pub(super) clocks_apart: Option<ClocksApart<usize>>,
    /// Of each rank's each step, microseconds.
    pub(super) phases: [Histogram; Phase::COUNT],
    pub(super) exposed: Histogram,
    /// The same of each whole step: the mean over its ranks.
    pub(super) mean_phases: [Histogram; Phase::COUNT],
    pub(super) mean_exposed: Histogram,
    pub(super) losses: Losses,
    pub(super) points: ByStep<StepPoint>,
    pub(super) ended: ByStep<Ended>,
    pub(super) stands: Stands,
}

impl Steps {
    pub(super) fn new(world: u32, choice: Arc<Choice>) -> Self {
        Self {
            choice,
            counting: true,
            world,
            has_workers: false,
            is_apart: false,
            ranks: BTreeMap::new(),
            open: BTreeMap::new(),
            first: None,
            newest: None,
            whole: 0,
            whole_span: None,
            judged: 0,
            judged_us: 0,
            dear: 0,
            huge: 0,
            judged_span: None,
            longest: Vec::new(),
            usual_us: u32::MAX,
            lengths: Histogram::default(),
            warm_us: None,
            correlation: Correlation::default(),
            clocks: ClockCheck::default(),
            clocks_apart: None,
            phases: std::array::from_fn(|_| Histogram::default()),
            exposed: Histogram::default(),
            mean_phases: std::array::from_fn(|_| Histogram::default()),
            mean_exposed: Histogram::default(),
            losses: Losses::default(),
            points: ByStep::new(POINTS),
            ended: ByStep::new(POINTS),
            stands: Stands::default(),
        }
    }

    /// How many train.
    pub(super) fn world(&self) -> usize {
        if !self.has_workers {
            return self.world as usize;
        }
        // ranks that have told no step only started the others
        self.ranks.iter().filter(|(id, rank)| id.worker().is_some() || rank.told > 0).count()
    }

    /// Each rank holds a training of its own: what was said of who comes last was said of several.
    pub(super) fn come_apart(&mut self) {
        if std::mem::replace(&mut self.is_apart, true) {
            return;
        }
        (self.judged, self.judged_us, self.judged_span) = (0, 0, None);
        (self.dear, self.huge) = (0, 0);
        self.longest.iter_mut().for_each(|slow| (slow.last, slow.lost) = (None, None));
        for rank in self.ranks.values_mut() {
            (rank.last_in, rank.dear_in, rank.huge_in) = (0, 0, 0);
            (rank.caused, rank.caused_in) = (Gains::default(), CostSeries::default());
            (rank.what_if, rank.late) = (WhatIfSums::default(), None);
        }
    }

    /// Steps that are not told though all others are, as one rank after the other tells: what held them is lost.
    pub(super) fn lost(&self) -> Vec<Span> {
        let is_rare = |rank: &&RankSteps| {
            rank.skipped.len() < SKIPS && rank.skipped.len() as u64 * SKIPS_RARE < rank.told
        };
        let skipped = self.ranks.values().filter(is_rare).flat_map(|rank| rank.skipped.iter().copied());
        let mut skipped: Vec<Span> = skipped.collect();
        skipped.sort_unstable_by_key(|span| span.from_step);
        let mut lost: Vec<Span> = Vec::new();
        for span in skipped {
            match lost.last_mut() {
                Some(before) if span.from_step <= before.to_step.saturating_add(1) => {
                    before.to_step = before.to_step.max(span.to_step);
                }
                _ => lost.push(span),
            }
        }
        lost.retain(|span| self.first <= Some(span.to_step) && Some(span.from_step) <= self.newest);
        lost.truncate(SKIPS);
        lost
    }

    /// How much the length of a step depends on that of the step before: see [`Histogram::estimate`].
    pub(super) fn dependence(&self) -> f64 {
        self.correlation.dependence()
    }

    fn rank(&mut self, id: TrainerId) -> Option<&mut RankSteps> {
        if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&id) {
            return None;
        }
        Some(self.ranks.entry(id).or_default())
    }

    /// A process of a rank has started: its next step warms up.
    pub(super) fn started(&mut self, rank: Rank) {
        if let Some(rank) = self.rank(rank.into()) {
            rank.fresh = true;
        }
    }

    /// From here on another one tells the steps of a rank.
    pub(super) fn told_by(&mut self, id: TrainerId, by: StepsBy) {
        let Some(rank) = self.rank(id) else { return };
        rank.by = by;
        // what the others have told already stays, where this rank is only the next of them to begin
        if rank.last.take().is_some() {
            self.open.clear();
        }
    }

    /// All ranks begin anew.
    pub(super) fn restart(&mut self) {
        self.close_all();
        self.clocks = ClockCheck::default();
        self.stands.clear();
        for rank in self.ranks.values_mut() {
            rank.last = None;
        }
    }

    /// A rank's own lines show a step and maybe its loss.
    pub(super) fn seen(&mut self, id: TrainerId, step: u64, loss: Option<f32>) {
        let Some(rank) = self.rank(id) else { return };
        if rank.last.is_some() {
            return;
        }
        rank.by = StepsBy::Log;
        if !self.counting || !self.choice.holds(step, id) {
            return;
        }
        self.count(step);
        match loss {
            Some(loss) if loss.is_finite() => {
                self.losses.take(step, loss.into());
                self.points.at(step).merge(&StepPoint { loss: (loss.into(), 1), ..StepPoint::default() });
            }
            Some(_) => self.losses.not_finite = self.losses.not_finite.or(Some(step)),
            None => {}
        }
    }

    /// A step was heard to have ended.
    pub(super) fn ended(&mut self, step: u64, at: Stamp) {
        if self.counting && self.choice.window.holds(step) {
            self.ended.at(step).take(at);
        }
    }

    fn count(&mut self, step: u64) {
        self.first = Some(self.first.map_or(step, |first| first.min(step)));
        self.newest = Some(self.newest.map_or(step, |newest| newest.max(step)));
    }

    /// A step of one that trains, which began at `start` by the client's clock, to so many microseconds.
    pub(super) fn step(
        &mut self,
        id: TrainerId,
        (clock, start): (HostClock, Option<(Stamp, u32)>),
        timing: &StepTiming,
    ) {
        self.has_workers |= id.worker().is_some();
        let Some(rank) = self.rank(id) else { return };
        let last = rank.last;
        if last.is_some_and(|last| last.step == timing.step) {
            return;
        }
        let Some(part) = rank.part(id, timing) else { return };
        // what hooks tell of a wait may begin after the rank has come
        let start = start.filter(|_| !part.hooks);
        let passage = start.and_then(|(start, unsure_us)| Passage::new(clock.host, unsure_us, start, timing));
        let part = Part { counts: self.counting, clock, passage, ..part };
        if last.is_some_and(|last| last.step > timing.step) {
            self.close_all();
        }
        if !self.choice.window.holds(timing.step) {
            return;
        }
        if self.counting && self.choice.has_trainer(id) {
            self.count(timing.step);
        }
        let world = self.world();
        let parts = self.open.entry(timing.step).or_default();
        parts.push(part);
        if parts.len() >= world {
            let later = self.open.split_off(&timing.step);
            // reports of a rank come in order: what is older can't become whole any more
            self.close_all();
            self.open = later;
            if let Some((step, parts)) = self.open.pop_first() {
                self.close(step, parts, true);
            }
        } else if self.open.len() > MOST_PARTS / world.max(1)
            && let Some((step, parts)) = self.open.pop_first()
        {
            self.close(step, parts, false);
        }
    }

    /// Forgets the steps that are not whole yet, where others are: more is told of them later.
    pub(super) fn leave_open(&mut self) {
        if self.whole > 0 {
            self.open.clear();
        }
    }

    /// Takes what is told of the steps that never become whole.
    pub(super) fn close_all(&mut self) {
        while let Some((step, parts)) = self.open.pop_first() {
            self.close(step, parts, false);
        }
    }

    fn close(&mut self, step: u64, mut parts: Vec<Part>, whole: bool) {
        // a whole step counts where its last part does
        let counts = parts.last().is_some_and(|last| last.counts);
        parts.retain(|part| if whole { counts } else { part.counts });
        if parts.is_empty() {
            return;
        }
        parts.sort_unstable_by_key(|part| part.id);
        for part in parts.iter_mut().filter(|part| self.stands.was_stopped(step, part.id)) {
            part.was_stopped();
        }
        if whole && !self.is_apart {
            lateness::part_waits(&mut parts);
        }
        let warm = parts.iter().any(|part| part.warm);
        // all ranks decide which one came last
        let all = parts;
        let chosen = self.choice.parts(&all);
        let parts: &[Part] = &chosen;
        if parts.is_empty() {
            return;
        }
        let point = self.points.at(step);
        let losses = parts.iter().filter_map(|part| part.loss);
        let finite: Vec<f64> = losses.clone().filter(|loss| loss.is_finite()).map(f64::from).collect();
        if finite.len() < losses.count() {
            self.losses.not_finite = self.losses.not_finite.or(Some(step));
        }
        let sum: f64 = finite.iter().sum();
        point.loss = (point.loss.0 + sum, point.loss.1.saturating_add(finite.len() as u32));
        if !finite.is_empty() {
            self.losses.take(step, sum / finite.len() as f64);
        }
        for part in parts {
            let Some(rank) = self.ranks.get_mut(&part.id) else { continue };
            if part.warm {
                rank.first_us = rank.first_us.max(Some(part.dur_us));
                continue;
            }
            rank.add(part);
            if !warm {
                point.add(part);
            }
            if part.told {
                let exposed = part.wait_us().saturating_add(part.phases[Phase::Transfer.index()]);
                self.exposed.add(exposed);
                for (histogram, us) in self.phases.iter_mut().zip(part.phases) {
                    histogram.add(us);
                }
            }
        }
        let Some(longest) = parts.iter().map(|part| part.dur_us).max().filter(|_| whole) else { return };
        if warm {
            self.warm_us = self.warm_us.max(Some(longest));
            return;
        }
        self.whole += 1;
        self.whole_span = Some(self.whole_span.map_or((step, step), |(a, b)| (a.min(step), b.max(step))));
        self.lengths.add(longest);
        self.correlation.add(longest.into());
        self.points.at(step).lengths.add(longest);
        if self.whole.is_power_of_two() || self.whole.is_multiple_of(USUAL_EVERY) {
            self.usual_us = self.lengths.quantile(0.5).unwrap_or(u32::MAX);
        }
        self.means(parts);
        let (last, phase) = self.judge(step, &all, longest);
        let stopped = self.stands.stopped_in(step);
        let transfer = parts.iter().map(|part| u64::from(part.phases[Phase::Transfer.index()])).sum::<u64>();
        let transfer_us = u32::try_from(transfer / parts.len() as u64).unwrap_or(u32::MAX);
        self.keep_longest(SlowStep { step, us: longest, transfer_us, last, lost: phase, stop: stopped });
        self.check_clocks(&all);
    }

    /// Where the time of a whole step goes, all of its ranks together.
    fn means(&mut self, parts: &[Part]) {
        if parts.iter().any(|part| !part.told) {
            return;
        }
        let count = parts.len().max(1) as u64;
        let mean = |at: usize| {
            let sum: u64 = parts.iter().map(|part| u64::from(part.phases[at])).sum();
            u32::try_from(sum / count).unwrap_or(u32::MAX)
        };
        for (at, histogram) in self.mean_phases.iter_mut().enumerate() {
            histogram.add(mean(at));
        }
        let exposed = mean(Phase::Wait.index()).saturating_add(mean(Phase::Transfer.index()));
        self.mean_exposed.add(exposed);
    }

    /// Whether what the ranks did agrees with the clocks of their hosts.
    fn check_clocks(&mut self, parts: &[Part]) {
        let passages: Option<Vec<Passage>> = parts.iter().map(|part| part.passage).collect();
        let Some(passages) = passages else { return };
        self.clocks.take(&passages);
        // to group what contradicts takes longer than a step
        if self.whole.is_multiple_of(CLOCKS_EVERY)
            && let Some(apart) = self.clocks.apart()
            && self.clocks_apart.as_ref().is_none_or(|worst| worst.us <= apart.us)
        {
            self.clocks_apart = Some(apart);
        }
    }

    fn keep_longest(&mut self, slow: SlowStep) {
        if self.longest.len() < LONGEST || self.longest.last().is_some_and(|least| least.us < slow.us) {
            let at = self.longest.partition_point(|kept| kept.us >= slow.us);
            self.longest.insert(at, slow);
            self.longest.truncate(LONGEST);
        }
    }

    /// Who came last, and what that cost; given back with where the rank lost the time, where one place makes up half of it.
    fn judge(&mut self, step: u64, parts: &[Part], longest: u32) -> (Option<(Rank, u32)>, Option<Lost>) {
        let Some(judged) = lateness::judge(parts).filter(|_| !self.is_apart) else { return (None, None) };
        self.judged += 1;
        self.judged_span = Some(self.judged_span.map_or((step, step), |(a, b)| (a.min(step), b.max(step))));
        self.judged_us += u64::from(longest);
        let excess = lateness::excess(parts);
        for ((part, late), excess) in parts.iter().zip(&judged.late_us).zip(&excess) {
            let Some(rank) = self.ranks.get_mut(&part.id) else { continue };
            rank.what_if.typical(excess);
            let series = rank.late.get_or_insert_with(|| ByStep::new(LATE_POINTS));
            series.at(step).merge(&Late::of(*late));
        }
        let Some(last) = judged.last else { return (None, None) };
        let excess = excess.get(last).copied().unwrap_or_default();
        let Some(id) = parts.get(last).map(|part| part.id) else { return (None, None) };
        let is_dear = u64::from(judged.caused_us) >= LEAST_US && judged.caused_us >= self.usual_us / DEAR;
        let is_huge = is_dear && judged.caused_us >= self.usual_us;
        self.dear += u64::from(is_dear);
        self.huge += u64::from(is_huge);
        if let Some(rank) = self.ranks.get_mut(&id) {
            rank.last_in += 1;
            rank.dear_in += u64::from(is_dear);
            rank.huge_in += u64::from(is_huge);
            rank.caused.add(judged.caused_us);
            let counts = judged.caused_us.min(self.usual_us.saturating_mul(USUAL_STEPS));
            rank.caused_in.add(step, counts.into());
            rank.what_if.last(&excess, judged.caused_us);
        }
        let most = BEFORE.into_iter().zip(excess).max_by_key(|(_, us)| *us);
        let main = most.filter(|(_, us)| us.saturating_mul(2) >= i64::from(judged.caused_us));
        (Some((Rank(id.number), judged.caused_us)), main.map(|(phase, _)| phase))
    }
}

impl RankSteps {
    /// What is kept of a step until all have told it.
    fn part(&mut self, id: TrainerId, timing: &StepTiming) -> Option<Part> {
        let phases = timing.phase_totals().map(|us| u32::try_from(us).unwrap_or(u32::MAX));
        if let Some(last) = self.last.filter(|last| last.step.saturating_add(1) < timing.step) {
            self.skipped.push(Span { from_step: last.step + 1, to_step: timing.step - 1 });
            // of one that tells every tenth step no more need be known
            self.skipped.truncate(SKIPS);
        }
        self.told += 1;
        let last = self.last.filter(|last| last.step.checked_add(1) == Some(timing.step));
        let start = timing.start.0;
        let gap = last.filter(|last| last.end > 0).map_or(0, |last| start.saturating_sub(last.end));
        let between = gap.saturating_add(timing.between_us());
        let end = if start > 0 { start.saturating_add(timing.dur_us.into()) } else { 0 };
        let [data, forward, backward, _, transfer, optimizer, _] = phases;
        self.last = Some(Last { step: timing.step, end, transfer, optimizer });
        if self.by == StepsBy::Log {
            self.by = StepsBy::Program;
        }
        let hooks = self.by == StepsBy::Hooks;
        let gap_us = if hooks { u32::try_from(gap).unwrap_or(u32::MAX) } else { 0 };
        let mut phases = phases;
        phases[Phase::Other.index()] = phases[Phase::Other.index()].saturating_add(gap_us);
        (timing.dur_us > 0).then(|| Part {
            id,
            dur_us: timing.dur_us,
            phases,
            gap_us,
            hidden_us: timing.hidden_us,
            samples: timing.samples,
            loss: timing.loss,
            warm: std::mem::take(&mut self.fresh) || timing.step <= 1,
            waits: timing.spans.iter().any(|span| span.phase == Phase::Wait),
            hooks,
            told: !timing.spans.is_empty(),
            counts: true,
            clock: HostClock::default(),
            passage: None,
            before: [
                data,
                forward,
                backward,
                last.map_or(0, |last| last.transfer),
                last.map_or(0, |last| last.optimizer),
                u32::try_from(between).unwrap_or(u32::MAX),
            ],
        })
    }

    fn add(&mut self, part: &Part) {
        self.lengths.add(part.dur_us);
        if part.told {
            self.phased += 1;
            self.phased_us += part.phased_us();
        }
        self.hidden_us += u64::from(part.hidden_us);
        self.phases.iter_mut().zip(part.phases).for_each(|(own, more)| *own += u64::from(more));
        if part.samples > 0 {
            self.samples += u64::from(part.samples);
            self.sample_us += u64::from(part.dur_us);
        }
    }
}

impl StepPoint {
    fn add(&mut self, part: &Part) {
        self.step_us += u64::from(part.dur_us);
        self.phased_us += if part.told { part.phased_us() } else { 0 };
        self.samples += u64::from(part.samples);
        self.phases.iter_mut().zip(part.phases).for_each(|(own, more)| *own += u64::from(more));
    }
}
