//! Which rank is a straggler, one that all others wait for, and in which part of its work it loses the time.
//!
//! In an allreduce all ranks wait for the last to come, and the last itself hardly waits. Each rank tells how long it
//! waited, on its own clock; so for one step the rank with the least wait was late, and what a typical rank waited
//! more than it is what it cost. Clocks are never compared.
//!
//! A pure fold over the steps of all ranks, in constant memory. The rule is in `docs/guide/runs.md`.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::timing::{Phase, StepTiming};
use super::units::duration_us;

/// How many steps are judged together.
const WINDOW: usize = 50;
/// After how many steps they are judged again.
const EVERY: u32 = 5;
/// How many judgements running name a rank, and how many end it.
const RUNNING: u32 = 3;
/// So much of the training's time a rank must be late before it is named, and must not be before it is over, microseconds. Where
/// steps take 2 ms, ranks are late by turns for tens of them whenever something else uses the machine.
const EVIDENCE_US: u64 = 500_000;
/// Each time that one is over, the next is named after twice as long, so many times at most.
const MOST_DOUBLINGS: u32 = 5;
/// After so long without one it is as at the beginning, microseconds.
const FORGOTTEN_AFTER_US: u64 = 60_000_000;
/// Over the newest steps it is told what it costs now and whether it is over.
const RECENT: usize = 20;
/// So many usual (median) steps one step counts for at most, in what it takes and in what it costs: a checkpoint or a
/// stall of seconds must not outweigh what the steps before and after it tell.
const USUAL_STEPS: u64 = 4;
/// A rank is named from this share of a step on, percent.
const NAMED_FROM: u64 = 3;
/// What is less a step is not worth a word, microseconds: messages between hosts take as long.
pub(super) const LEAST_US: u64 = 100;
/// By how many standard deviations what it costs must be off what chance gives.
const SIGMAS: f64 = 3.0;
/// Steps that some ranks have reported and others not; a rank whose reports come later than that is not judged.
const MOST_OPEN: usize = 512;
/// How many of those that are over are kept.
const MOST_PAST: usize = 32;

/// Where a late rank loses its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Reading and preparing the batch.
    Data,
    /// Forward pass and loss.
    Forward,
    /// Backward pass.
    Backward,
    /// Moving and adding bytes in the allreduce before: it came out of it later than the others.
    Transfer,
    /// Applying the gradient of the step before.
    Optimizer,
    /// Outside of its steps: writing a checkpoint, say.
    BetweenSteps,
}

impl Lost {
    const ALL: [Self; 6] =
        [Self::Data, Self::Forward, Self::Backward, Self::Transfer, Self::Optimizer, Self::BetweenSteps];

    /// `in backward`, `between steps`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Data => "in data",
            Self::Forward => "in forward",
            Self::Backward => "in backward",
            Self::Transfer => "in transfer",
            Self::Optimizer => "in optimizer",
            Self::BetweenSteps => "between steps",
        }
    }
}

/// A rank that is late in the allreduce and costs all others time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    /// Which.
    pub rank: Rank,
    /// The first step of the stretch in which it was late.
    #[serde(default)]
    pub since: u64,
    /// The step after which it was named.
    pub named_at: u64,
    /// The step after which it was over; `None` while it goes on.
    pub over_at: Option<u64>,
    /// What it costs a step, microseconds: how much longer than it a typical rank waits.
    pub cost_us: u64,
    /// The same as a share of the step, 0..=1.
    pub share: f64,
    /// Where it loses the time, where one place makes up half of it or more.
    pub lost: Option<Lost>,
    /// In how many of the steps looked at it was late.
    pub late_in: usize,
    /// Steps looked at.
    pub of: usize,
}

impl Straggler {
    /// Whether it costs a fifth of the time or more.
    pub fn is_critical(&self) -> bool {
        self.share >= 0.20
    }

    /// `is a straggler: +18 ms a step (31 %), late in backward, 46 of the last 50 steps`.
    pub fn words(&self) -> String {
        format!(
            "is a straggler: +{} a step ({:.0} %), late {} {} of the last {} steps",
            duration_us(self.cost_us),
            self.share * 100.0,
            self.lost.map_or_else(|| "in".to_owned(), |lost| format!("{},", lost.words())),
            self.late_in,
            self.of
        )
    }
}

/// The fold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stragglers {
    /// The last step of each rank.
    last: Vec<Option<Last>>,
    /// Steps that not all ranks have reported.
    open: BTreeMap<u64, Reports>,
    /// The newest steps that all have reported.
    window: VecDeque<Step>,
    /// Steps since the last judgement.
    unjudged: u32,
    /// Who would be named.
    suspect: Option<Suspect>,
    /// Since when the named one is not late any more.
    calm: Evidence,
    /// How many were over of late: the more, the longer it takes to name the next.
    over: u32,
    /// Since when no rank is named, microseconds of the training's time.
    quiet_us: u64,
    now: Option<Straggler>,
    past: VecDeque<Straggler>,
    /// The steps of the named one so far, and those since it may be over.
    episode: Tally,
    calm_steps: Tally,
}

/// What a rank cost in some steps. No step counts for more than [`USUAL_STEPS`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Tally {
    cost: u64,
    length: u64,
    steps: u64,
    /// Where it took longer than a typical other rank, as [`Lost::ALL`].
    excess: [i64; 6],
}

impl Tally {
    fn take(&mut self, rank: Rank, step: &Step, most: u64) {
        self.length += step.length.min(most);
        self.steps += 1;
        if step.rank != rank {
            return;
        }
        self.cost += step.cost.min(most);
        if step.cost <= most {
            self.excess.iter_mut().zip(step.excess).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.cost += other.cost;
        self.length += other.length;
        self.steps += other.steps;
        self.excess.iter_mut().zip(other.excess).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self
    }

    fn per_step(&self) -> f64 {
        self.cost as f64 / self.steps.max(1) as f64
    }

    /// Where it lost the time, where one place makes up half of it or more.
    fn lost(&self) -> Option<Lost> {
        let excess = |lost: &Lost| self.excess[*lost as usize];
        let most = Lost::ALL.into_iter().max_by_key(excess)?;
        let half = excess(&most).saturating_mul(2) >= i64::try_from(self.cost).unwrap_or(i64::MAX);
        (self.cost > 0 && half).then_some(most)
    }

    /// A straggler with what it cost in these steps.
    fn of(&self, straggler: &Straggler) -> Straggler {
        if self.steps == 0 {
            return straggler.clone();
        }
        Straggler {
            cost_us: self.cost / self.steps,
            share: self.cost as f64 / self.length.max(1) as f64,
            lost: self.lost(),
            ..straggler.clone()
        }
    }
}

/// Judgements running that say the same, and the time of the steps that they are about.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Evidence {
    judgements: u32,
    us: u64,
}

impl Evidence {
    fn and(self, us: u64) -> Self {
        Self { judgements: self.judgements.saturating_add(1), us: self.us.saturating_add(us) }
    }

    fn suffices(self, us: u64) -> bool {
        self.judgements >= RUNNING && self.us >= us
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Suspect {
    rank: Rank,
    /// From which step on it was late.
    #[serde(default)]
    since: u64,
    evidence: Evidence,
}

/// What of a rank's last step belongs to what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Last {
    step: u64,
    /// When it ended, on the rank's clock; 0 where it tells no times.
    end: u64,
    transfer: u64,
    optimizer: u64,
}

/// A rank's part in a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Part {
    /// `None` where it does not tell.
    wait: Option<u64>,
    length: u64,
    /// What it did from the allreduce before to this one, as [`Lost::ALL`].
    before: [u64; 6],
}

/// What of a step the ranks have reported so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Reports {
    /// How many have.
    told: usize,
    parts: Vec<Option<Part>>,
}

/// A step that all ranks have reported.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Step {
    number: u64,
    /// Who came last.
    rank: Rank,
    cost: u64,
    length: u64,
    /// How much longer than a typical other rank the last one took, as [`Lost::ALL`].
    excess: [i64; 6],
}

impl Step {
    fn is_late(&self) -> bool {
        is_worth(self.cost, self.length, NAMED_FROM)
    }
}

fn is_worth(cost: u64, length: u64, percent: u64) -> bool {
    cost.saturating_mul(100) > length.saturating_mul(percent)
}

/// The most that one of these steps counts for, microseconds: [`USUAL_STEPS`].
fn counts_for<'a>(steps: impl Iterator<Item = &'a Step>) -> u64 {
    upper_median(steps.map(|step| step.length)).saturating_mul(USUAL_STEPS)
}

/// Steps summed up for the rank that costs the most in them. The dearest step of each rank is left out: every rank
/// has a hiccup now and then. No step counts for more than [`USUAL_STEPS`].
struct Sums {
    rank: Rank,
    own: u64,
    all: u64,
    /// Sum of squares.
    squares: f64,
    length: u64,
    steps: u64,
}

impl Sums {
    fn of<'a>(steps: impl Iterator<Item = &'a Step> + Clone) -> Option<Self> {
        let mut ranks: BTreeMap<Rank, (u64, u64)> = BTreeMap::new();
        let (mut length, mut squares, mut count) = (0, 0.0, 0);
        let most = counts_for(steps.clone());
        for step in steps {
            let cost = step.cost.min(most);
            let (sum, dearest) = ranks.entry(step.rank).or_default();
            *sum += cost;
            *dearest = cost.max(*dearest);
            length += step.length.min(most);
            squares += (cost as f64).powi(2);
            count += 1;
        }
        for (sum, dearest) in ranks.values_mut() {
            *sum -= *dearest;
            squares -= (*dearest as f64).powi(2);
        }
        let all = ranks.values().map(|(sum, _)| sum).sum();
        let (rank, (own, _)) = ranks.into_iter().max_by_key(|(_, (sum, _))| *sum)?;
        Some(Self { rank, own, all, squares, length, steps: count })
    }

    fn has_most(&self) -> bool {
        self.own * 2 > self.all
    }

    /// Whether the rank is to be named.
    fn accuse(&self) -> bool {
        // If the last one were drawn by lot, the difference would be about the root of the squares' sum.
        let net = self.own as f64 - (self.all - self.own) as f64;
        self.has_most()
            && is_worth(self.own, self.length, NAMED_FROM)
            && self.own > self.steps * LEAST_US
            && net > SIGMAS * self.squares.max(0.0).sqrt()
    }
}

impl Stragglers {
    /// The straggler now.
    pub fn now(&self) -> Option<&Straggler> {
        self.now.as_ref()
    }

    /// Whether there is a step of which all ranks have told how long they waited.
    pub fn has_waits(&self) -> bool {
        !self.window.is_empty()
    }

    /// Those that are over, the newest last; the last ones only.
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &Straggler> {
        self.past.iter()
    }

    /// All of them, each with what it cost over all of its steps; the one that goes on too.
    pub fn episodes(&self) -> impl Iterator<Item = Straggler> {
        let now = self.now.as_ref().map(|now| self.episode.of(now));
        self.past.iter().cloned().chain(now)
    }

    /// Takes a step of one of `world` ranks in.
    pub fn step(&mut self, world: usize, rank: Rank, timing: &StepTiming) {
        let at = rank.0 as usize;
        if world < 2 || at >= world {
            return;
        }
        if self.last.len() != world {
            self.restart(world);
        }
        match self.last[at] {
            Some(last) if timing.step == last.step => return,
            Some(last) if timing.step < last.step => self.restart(world),
            _ => {}
        }
        let totals = timing.phase_totals();
        let last = self.last[at].filter(|last| last.step.checked_add(1) == Some(timing.step));
        let start = timing.start.0;
        let between = last.filter(|last| last.end > 0).map_or(0, |last| start.saturating_sub(last.end));
        let between = between.saturating_add(timing.between_us());
        let has_wait = timing.spans.iter().any(|span| span.phase == Phase::Wait);
        let part = Part {
            wait: has_wait.then_some(totals[Phase::Wait.index()]),
            length: timing.dur_us.into(),
            before: [
                totals[Phase::Data.index()],
                totals[Phase::Forward.index()],
                totals[Phase::Backward.index()],
                last.map_or(0, |last| last.transfer),
                last.map_or(0, |last| last.optimizer),
                between.min(u32::MAX.into()),
            ],
        };
        let end = if start > 0 { start.saturating_add(timing.dur_us.into()) } else { 0 };
        let (transfer, optimizer) = (totals[Phase::Transfer.index()], totals[Phase::Optimizer.index()]);
        self.last[at] = Some(Last { step: timing.step, end, transfer, optimizer });
        let reports = || Reports { told: 0, parts: vec![None; world] };
        let open = self.open.entry(timing.step).or_insert_with(reports);
        if open.parts[at].replace(part).is_none() {
            open.told += 1;
        }
        if open.told >= world {
            // Reports of a rank come in order: what is older can't become whole any more.
            self.open = self.open.split_off(&timing.step);
            let parts = self.open.pop_first().map(|(_, reports)| reports.parts).unwrap_or_default();
            if let Some(parts) = parts.into_iter().collect::<Option<Vec<Part>>>() {
                self.whole(timing.step, &parts);
            }
        } else if self.open.len() > MOST_OPEN {
            self.open.pop_first();
        }
    }

    /// A rank counts its steps from the start again: the job is a new one.
    fn restart(&mut self, world: usize) {
        self.end();
        let past = std::mem::take(&mut self.past);
        *self = Self { last: vec![None; world], past, ..Self::default() };
    }

    fn end(&mut self) {
        if let Some(over) = self.now.take() {
            // at its end it costs nothing any more
            let mut over = self.episode.of(&over);
            over.over_at = Some(self.window.back().map_or(over.named_at, |step| step.number));
            if self.past.len() >= MOST_PAST {
                self.past.pop_front();
            }
            self.past.push_back(over);
        }
        self.calm = Evidence::default();
        self.quiet_us = 0;
        (self.episode, self.calm_steps) = (Tally::default(), Tally::default());
    }

    /// All ranks have reported the step.
    fn whole(&mut self, number: u64, parts: &[Part]) {
        let Some(waits) = parts.iter().map(|part| part.wait).collect::<Option<Vec<u64>>>() else { return };
        let Some(last) = (0..waits.len()).min_by_key(|rank| waits[*rank]) else { return };
        let cost = upper_median(waits.iter().copied()) - waits[last];
        let others = || parts.iter().enumerate().filter(|(rank, _)| *rank != last).map(|(_, part)| part);
        let excess = std::array::from_fn(|place| {
            let typical = upper_median(others().map(|part| part.before[place]));
            parts[last].before[place] as i64 - typical as i64
        });
        let length = upper_median(parts.iter().map(|part| part.length));
        if self.window.len() >= WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(Step { number, rank: Rank(last as u32), cost, length, excess });
        self.unjudged += 1;
        if self.unjudged >= EVERY {
            self.unjudged = 0;
            self.judge(number);
        }
    }

    fn judge(&mut self, number: u64) {
        let most = counts_for(self.window.iter());
        let us = self.window.iter().rev().take(EVERY as usize).map(|step| step.length.min(most)).sum();
        let accused = Sums::of(self.window.iter()).filter(Sums::accuse).map(|sums| sums.rank);
        self.suspect = accused.map(|rank| {
            let before = self.suspect.filter(|suspect| suspect.rank == rank);
            // later the window may not reach back so far
            let since = before.map_or_else(|| self.since(rank), |suspect| suspect.since);
            let evidence = before.map(|suspect| suspect.evidence).unwrap_or_default().and(us);
            Suspect { rank, since, evidence }
        });
        let named = self.now.as_ref().map(|named| named.rank);
        if let Some(rank) = named {
            let recent = Sums::of(self.window.iter().rev().take(RECENT));
            // Half of what names it, so that one at the edge does not come and go.
            let still = recent.is_some_and(|sums| {
                sums.rank == rank && sums.has_most() && is_worth(sums.own * 2, sums.length, NAMED_FROM)
            });
            self.calm = if still { Evidence::default() } else { self.calm.and(us) };
            let mut newest = Tally::default();
            for step in self.window.iter().rev().take(EVERY as usize) {
                newest.take(rank, step, most);
            }
            self.calm_steps = self.calm_steps.and(newest);
            // what comes after its last late steps is no more of it
            if newest.per_step() * 2.0 >= self.episode.per_step() {
                self.episode = self.episode.and(std::mem::take(&mut self.calm_steps));
            }
            if self.calm.suffices(EVIDENCE_US) {
                self.end();
                self.over = (self.over + 1).min(MOST_DOUBLINGS);
                // What the window still holds of it shall not name it again at once.
                self.window.drain(..self.window.len().saturating_sub(RECENT));
                self.suspect = None;
            }
        } else {
            self.quiet_us = self.quiet_us.saturating_add(us);
            if self.quiet_us >= FORGOTTEN_AFTER_US {
                self.over = 0;
            }
        }
        if let Some(suspect) = self.suspect
            && suspect.evidence.suffices(EVIDENCE_US << self.over)
            && named != Some(suspect.rank)
        {
            self.end();
            for step in self.window.iter().rev().take((EVERY * RUNNING) as usize) {
                self.episode.take(suspect.rank, step, most);
            }
            self.now = Some(self.figures(suspect.rank, (suspect.since, number)));
        } else if let Some(now) = &self.now {
            self.now = Some(self.figures(now.rank, (now.since, now.named_at)));
        }
    }

    /// The step from which on a rank is late: the steps from there to the newest outweigh what is no lateness by the most.
    fn since(&self, rank: Rank) -> u64 {
        let own = |step: &&Step| step.rank == rank && step.is_late();
        // a single pause before that does not begin it
        let usual = upper_median(self.window.iter().filter(own).map(|step| step.cost));
        let (mut sum, mut most, mut since) = (0_i64, i64::MIN, 0);
        for step in self.window.iter().rev() {
            let cost = if step.rank == rank { step.cost.min(usual) } else { 0 };
            let no_lateness = (step.length.saturating_mul(NAMED_FROM) / 100).max(LEAST_US);
            sum = sum.saturating_add_unsigned(cost).saturating_sub_unsigned(no_lateness);
            if sum >= most {
                (most, since) = (sum, step.number);
            }
        }
        since
    }

    /// What `rank` costs now, which is late since one step and was named after another.
    fn figures(&self, rank: Rank, (since, named_at): (u64, u64)) -> Straggler {
        let newest = || self.window.iter().rev().take(RECENT);
        // one pause (a checkpoint, a stall) says nothing of what a step costs
        let mut lengths: Vec<u64> = newest().map(|step| step.length).collect();
        lengths.sort_unstable();
        let pause = match lengths[..] {
            [.., before, longest] if longest > before.saturating_mul(USUAL_STEPS) => longest,
            _ => u64::MAX,
        };
        let recent = || newest().filter(|step| step.length < pause);
        let own = || recent().filter(|step| step.rank == rank);
        let cost: u64 = own().map(|step| step.cost).sum();
        let length: u64 = recent().map(|step| step.length).sum();
        let excess = |lost: Lost| own().map(|step| step.excess[lost as usize]).sum::<i64>();
        let lost = Lost::ALL.into_iter().max_by_key(|lost| excess(*lost));
        Straggler {
            rank,
            since,
            named_at,
            over_at: None,
            cost_us: cost / recent().count().max(1) as u64,
            share: cost as f64 / length.max(1) as f64,
            lost: lost.filter(|lost| cost > 0 && excess(*lost).saturating_mul(2) >= cost as i64),
            late_in: self.window.iter().filter(|step| step.rank == rank && step.is_late()).count(),
            of: self.window.len(),
        }
    }
}

fn upper_median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
#[path = "straggler_tests.rs"]
mod tests;
