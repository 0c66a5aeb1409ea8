//! How far the training of a run came: what a list of runs tells of it without reading the whole recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::{Envelope, Event, Origin};
use super::hooks::{HookFacts, StepsBy};
use super::ids::Rank;
use super::standstill::{StalledPhase, Standstill, silence_us};
use super::step_totals::{Worked, rate_of_all};
use super::time::Stamp;
use super::timing::{Phase, PhaseSpan};
use super::units::duration_us;
use super::world::RunState;

/// How many that train are followed at most.
const MOST: usize = 4096;

/// How far the training of a run came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// The last step that any rank has finished.
    pub step: u64,
    /// The mean of the ranks' newest losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f32>,
    /// Samples a second of the time of the ranks' steps, of all ranks together; unknown where none tells samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f32>,
    /// By whom the steps are told.
    #[serde(default)]
    pub by: StepsBy,
    /// The libraries, where hooks know them: `torch 2.9.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub libraries: String,
    /// Since when a rank is in one phase of a step that it has not made yet, by its hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_since: Option<Stamp>,
}

/// So long a rank must have been in one phase for its run to be listed as one that stands, microseconds: it is not known here how
/// long its steps take.
const STANDS_US: i64 = 60_000_000;

impl Trained {
    /// Since when the run stands still, of which something was heard last at that moment.
    pub fn stands(&self, last_at: Stamp) -> Option<Stamp> {
        self.stands_since.filter(|since| last_at.micros_since(*since) >= STANDS_US)
    }

    /// Of a run whose parts, in order, are told each by itself: the last one with the samples a second of all. Of a job that began
    /// again at an earlier step, those since then.
    pub fn of_parts(parts: Vec<Self>) -> Option<Self> {
        let mut rate = Rate::default();
        let mut before = 0;
        for part in &parts {
            if part.step < before {
                (rate, before) = (Rate::default(), 0);
            }
            let steps = part.step.saturating_sub(before);
            before = part.step;
            if let Some(per_s) = part.samples_per_s.map(f64::from).filter(|rate| *rate > 0.0) {
                // each step has as many samples as another one
                rate.steps += steps as f64;
                rate.seconds += steps as f64 / per_s;
            }
        }
        let samples_per_s = (rate.seconds > 0.0).then(|| (rate.steps / rate.seconds) as f32);
        let last = parts.into_iter().next_back()?;
        Some(Self { samples_per_s: samples_per_s.or(last.samples_per_s), ..last })
    }
}

/// Where the ranks of a run stand behind its newest step, and since when none was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stood {
    /// When the newest step was made; before the first one since when the ranks stand.
    pub since: Stamp,
    /// For so long no step may come before that is worth a word, microseconds.
    pub patience_us: u64,
    /// Whether one of them stands within a step: it hangs.
    #[serde(default)]
    pub is_within: bool,
    /// `rank 1 in backward, train.py:57; rank 0 in wait`; empty where no rank tells where it stands.
    pub ranks: String,
}

impl Stood {
    /// For how long no step was made before the end of the run, microseconds, where that is worth a word.
    pub fn for_us(&self, end: Stamp) -> Option<u64> {
        let us = u64::try_from(end.micros_since(self.since)).ok()?;
        (us >= self.patience_us).then_some(us)
    }

    /// `no step for 01:35 before its end: rank 1 in backward, train.py:57; rank 0 in wait`.
    pub fn words(&self, end: Stamp) -> Option<String> {
        let us = self.for_us(end)?;
        let ranks = if self.ranks.is_empty() { String::new() } else { format!(": {}", self.ranks) };
        Some(format!("no step for {} before its end{ranks}", duration_us(us)))
    }

    /// The same of a run that was stopped, by what its ranks told last, where one of them stood within a step: it hung.
    pub fn before_stop(run: &RunState) -> Option<String> {
        let end = run.outcome.as_ref().filter(|outcome| outcome.is_stopped())?.at.unwrap_or(run.last_at);
        let stands = run.trainers().filter_map(|one| {
            let (since, standing) = one.state.standing.clone()?;
            let was_stopped = one.rank.exit.as_ref().is_none_or(|(_, exit)| exit.stopped);
            was_stopped.then_some((one.key, since, standing))
        });
        let stands: Vec<_> = stands.collect();
        let within = |standing: &StalledPhase| standing.phase != Phase::Other || standing.stopped;
        if !stands.iter().any(|(_, _, standing)| within(standing)) {
            return None;
        }
        let steps = || run.trainers().filter_map(|one| one.state.steps.back());
        let newest_at = steps().map(|(at, _)| *at).max();
        let since = newest_at.or_else(|| stands.iter().map(|(_, since, _)| *since).min())?;
        let longest_us =
            run.trainers().flat_map(|one| one.state.recent_steps(RECENT)).map(|step| step.dur_us).max();
        let patience_us = silence_us(longest_us.map(u64::from));
        let ranks = Standstill::told(stands, 1).ranks_words();
        Self { since, patience_us, is_within: true, ranks }.words(end)
    }
}

/// Over how many of a rank's newest steps the longest is looked for.
const RECENT: usize = 20;

/// Between steps no step for so long is worth a word, microseconds.
const BETWEEN_US: u64 = 40_000_000;

#[derive(Default)]
struct Rate {
    steps: f64,
    seconds: f64,
}

/// Finds it out from the events of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Follower {
    /// By rank, and by the number of a process within it.
    ranks: BTreeMap<(Rank, Option<u32>), Newest>,
    hooks: HookFacts,
    /// When any of them made its newest step, and how long the longest took beside their first ones, and of these, microseconds.
    #[serde(default)]
    newest_at: Option<Stamp>,
    #[serde(default)]
    longest_us: u64,
    #[serde(default)]
    first_us: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Newest {
    by: StepsBy,
    step: Option<u64>,
    loss: Option<f32>,
    samples: u64,
    /// The steps that had them, and their time.
    #[serde(default)]
    steps: u64,
    sample_us: u64,
    /// Whether its steps tell of an allreduce.
    #[serde(default)]
    meets: bool,
    /// Since when it is in one phase, and where.
    #[serde(default)]
    stands: Option<(Stamp, StalledPhase)>,
}

impl Newest {
    fn worked(&self) -> Worked {
        Worked { steps: self.steps, samples: self.samples, us: self.sample_us, meets: self.meets }
    }
}

impl Follower {
    /// Takes in an event.
    pub fn follow(&mut self, envelope: &Envelope) {
        let who = match envelope.origin {
            Origin::Rank(_, rank) => (rank, None),
            Origin::Worker(_, rank, worker) => (rank, Some(worker)),
            Origin::Host(_) | Origin::Run(_) => return,
        };
        if self.ranks.len() >= MOST && !self.ranks.contains_key(&who) {
            return;
        }
        match &envelope.event {
            Event::JobDescribed { facts, .. } => self.hooks.add(facts),
            Event::StepsBy { by } => {
                self.ranks.insert(who, Newest { by: *by, ..Newest::default() });
            }
            Event::StepDone { timing } => {
                let newest = self.ranks.entry(who).or_default();
                let longest = if newest.step.is_some() { &mut self.longest_us } else { &mut self.first_us };
                *longest = u64::from(timing.dur_us).max(*longest);
                self.newest_at = self.newest_at.max(Some(envelope.at));
                (newest.step, newest.loss) = (Some(timing.step), timing.loss);
                newest.stands = newest.stands.take().filter(|(_, standing)| standing.step > timing.step);
                let is_met = |span: &PhaseSpan| matches!(span.phase, Phase::Wait | Phase::Transfer);
                newest.meets |= timing.hidden_us > 0 || timing.spans.iter().any(is_met);
                if timing.samples > 0 {
                    newest.steps = newest.steps.saturating_add(1);
                    newest.samples = newest.samples.saturating_add(u64::from(timing.samples));
                    newest.sample_us = newest.sample_us.saturating_add(timing.dur_us.into());
                }
            }
            Event::RankStands { standing } => {
                let for_us = i64::try_from(standing.for_us).unwrap_or(i64::MAX);
                let since = envelope.at.plus_micros(-for_us);
                let newest = self.ranks.entry(who).or_default();
                let standing = standing.told_after(newest.stands.as_ref().map(|(_, before)| before));
                newest.stands = Some((since, standing));
            }
            Event::StepSeen { seen } => {
                let newest = self.ranks.entry(who).or_default();
                // A step that is told weighs more than one that is printed.
                if newest.step.is_none() || newest.by == StepsBy::Log {
                    // it tells no length: the time since the one before stands for it
                    let gap = self.newest_at.map_or(0, |before| envelope.at.micros_since(before));
                    self.longest_us = self.longest_us.max(gap.max(0).unsigned_abs());
                    self.newest_at = self.newest_at.max(Some(envelope.at));
                    let loss = seen.loss.or(newest.loss);
                    *newest = Newest { by: StepsBy::Log, step: Some(seen.step), loss, ..Newest::default() };
                }
            }
            // one that a stop has ended stood where it was until then
            Event::RankExited { exit } if !exit.stopped => {
                let own = self.ranks.iter_mut().filter(|((rank, _), _)| *rank == who.0);
                own.for_each(|(_, newest)| newest.stands = None);
            }
            // Another attempt begins anew.
            Event::RankStarted { .. } => {
                self.ranks.retain(|(rank, _), _| *rank != who.0);
                if self.ranks.is_empty() {
                    self.newest_at = None;
                }
            }
            _ => {}
        }
    }

    /// What is known; `None` before the first step.
    pub fn trained(&self) -> Option<Trained> {
        let told = || self.ranks.values().filter(|newest| newest.step.is_some());
        let step = told().filter_map(|newest| newest.step).max()?;
        let losses: Vec<f32> = told().filter_map(|newest| newest.loss).collect();
        let loss = (!losses.is_empty()).then(|| losses.iter().sum::<f32>() / losses.len() as f32);
        let worked: Vec<Worked> = told().map(Newest::worked).collect();
        let samples_per_s = rate_of_all(&worked).map(|rate| rate as f32);
        let by = told().next().map(|newest| newest.by).unwrap_or_default();
        let libraries = if by == StepsBy::Hooks { self.hooks.libraries() } else { String::new() };
        // JSON has no words for what is not finite.
        let loss = loss.filter(|loss| loss.is_finite());
        let stands_since = told().filter_map(|newest| newest.stands.as_ref()).map(|(since, _)| *since).min();
        Some(Trained { step, loss, samples_per_s, by, libraries, stands_since })
    }

    /// Where the ranks stand now; `None` before anything is known of that.
    pub fn stood(&self) -> Option<Stood> {
        let stands = self.ranks.iter().filter_map(|((rank, worker), newest)| {
            let (since, standing) = newest.stands.clone()?;
            Some((worker.map_or(*rank, Rank), since, standing))
        });
        let stands: Vec<_> = stands.collect();
        let since = self.newest_at.or_else(|| stands.iter().map(|(_, since, _)| *since).min())?;
        // of first steps alone it is not known how long the next ones take
        let known_us = self.newest_at.map(|_| self.longest_us).filter(|longest| *longest > 0);
        let patience_us = silence_us(known_us).max(silence_us(Some(self.first_us)));
        let within = |standing: &StalledPhase| standing.phase != Phase::Other || standing.stopped;
        let is_within = stands.iter().any(|(_, _, standing)| within(standing));
        // an evaluation or a checkpoint lies between steps, too
        let is_between = self.newest_at.is_some() && !stands.is_empty() && !is_within;
        let patience_us = if is_between { patience_us.max(BETWEEN_US) } else { patience_us };
        Some(Stood { since, patience_us, is_within, ranks: Standstill::told(stands, 1).ranks_words() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::standstill::StalledPhase;
    use super::super::time::HostTime;
    use super::super::timing::Phase;
    use super::super::timing::{SeenStep, StepTiming};
    use std::sync::Arc;

    use super::*;
    use crate::domain::fixtures::step_timing;

    fn follow(follower: &mut Follower, rank: u32, event: Event) {
        let run = "01M833ZBPRG911CJJWVKGZJ3C6".parse().unwrap();
        let origin = Origin::Rank(run, Rank(rank));
        follower.follow(&Envelope { seq: 0, at: Stamp(0), origin, event });
    }

    fn step(step: u64, loss: f32) -> Event {
        let timing = StepTiming { loss: Some(loss), samples: 3, ..step_timing(step, 1) };
        Event::StepDone { timing: Arc::new(timing) }
    }

    #[test]
    fn the_last_step_and_the_mean_loss_are_told_with_who_tells_them() {
        let mut follower = Follower::default();
        assert_eq!(follower.trained(), None);
        let seen = SeenStep { step: 2, total: None, loss: Some(9.0) };
        follow(&mut follower, 0, Event::StepSeen { seen });
        let log = Trained {
            step: 2,
            loss: Some(9.0),
            samples_per_s: None,
            by: StepsBy::Log,
            libraries: String::new(),
            stands_since: None,
        };
        assert_eq!(follower.trained(), Some(log));
        let facts: HookFacts = serde_json::from_str(r#"{"versions":{"torch":"2.9.0"}}"#).unwrap();
        let facts = Box::new(facts);
        let job = String::from("train.py");
        follow(&mut follower, 0, Event::JobDescribed { job, transport: None, total_steps: None, facts });
        for rank in 0..2 {
            follow(&mut follower, rank, Event::StepsBy { by: StepsBy::Hooks });
        }
        follow(&mut follower, 0, step(8, 1.0));
        follow(&mut follower, 1, step(7, 2.0));
        follow(&mut follower, 0, Event::StepSeen { seen });
        let hooks = Trained {
            step: 8,
            loss: Some(1.5),
            samples_per_s: Some(6e6),
            by: StepsBy::Hooks,
            libraries: "torch 2.9.0".to_owned(),
            stands_since: None,
        };
        assert_eq!(follower.trained(), Some(hooks));
        follow(&mut follower, 1, step(9, f32::NAN));
        assert_eq!(follower.trained().and_then(|trained| trained.loss), None);
        let standing =
            StalledPhase { phase: Phase::Wait, step: 9, for_us: 1_000_000, stopped: false, at: None };
        follow(&mut follower, 0, Event::RankStands { standing });
        let stands =
            |follower: &Follower, seconds: i64| follower.trained()?.stands(Stamp(seconds * 1_000_000));
        assert_eq!((stands(&follower, 58), stands(&follower, 59)), (None, Some(Stamp(-1_000_000))));
        follow(&mut follower, 0, step(9, 1.0));
        assert_eq!(stands(&follower, 100), None, "it goes on");
        for rank in 0..2 {
            follow(&mut follower, rank, Event::RankStarted { pid: 7, t: HostTime(0) });
        }
        assert_eq!(follower.trained(), None);
    }

    #[test]
    fn who_stood_where_before_the_end_is_told_where_it_was_long() {
        let mut follower = Follower::default();
        let tell = |follower: &mut Follower, seconds: i64, rank: u32, event: Event| {
            let run = "01M833ZBPRG911CJJWVKGZJ3C6".parse().unwrap();
            let origin = Origin::Rank(run, Rank(rank));
            follower.follow(&Envelope { seq: 0, at: Stamp(seconds * 1_000_000), origin, event });
        };
        let stands = |phase: Phase, step: u64| {
            let standing = StalledPhase { phase, step, for_us: 1_000_000, stopped: false, at: None };
            Event::RankStands { standing }
        };
        let end = |follower: &Follower, seconds: i64| follower.stood()?.words(Stamp(seconds * 1_000_000));
        assert_eq!(follower.stood(), None);
        // before the first step they load models and data
        tell(&mut follower, 1, 0, stands(Phase::Other, 1));
        assert_eq!(end(&follower, 29), None);
        let first = "no step for 30.0 s before its end: rank 0 before its first step";
        assert_eq!(end(&follower, 30).as_deref(), Some(first));
        for (at, of) in [(40, 1), (41, 2)] {
            for rank in 0..2 {
                tell(&mut follower, at, rank, step(of, 1.0));
            }
        }
        assert_eq!(end(&follower, 50), None, "a stop after nine seconds");
        tell(&mut follower, 43, 0, stands(Phase::Wait, 3));
        tell(&mut follower, 43, 1, stands(Phase::Backward, 3));
        let words = "no step for 01:35 before its end: rank 1 in backward; rank 0 in wait";
        assert_eq!(end(&follower, 136).as_deref(), Some(words));
        tell(&mut follower, 140, 1, step(3, 1.0));
        let words = "no step for 15.0 s before its end: rank 0 in wait";
        assert_eq!(end(&follower, 155).as_deref(), Some(words), "it went on");
        for rank in 0..2 {
            tell(&mut follower, 160, rank, Event::RankStarted { pid: 7, t: HostTime(0) });
        }
        assert_eq!(follower.stood(), None, "another attempt");
        // what a progress bar tells comes once a minute
        for minute in 3..6_i64 {
            let seen = SeenStep { step: minute.unsigned_abs(), total: None, loss: None };
            tell(&mut follower, minute * 60, 0, Event::StepSeen { seen });
        }
        assert_eq!((end(&follower, 400), end(&follower, 600).is_some()), (None, true));
    }

    #[test]
    fn the_rate_of_a_run_in_parts_is_that_of_all_its_steps() {
        let part = |step, samples_per_s| Trained {
            step,
            loss: None,
            samples_per_s,
            by: StepsBy::Program,
            libraries: String::new(),
            stands_since: None,
        };
        let rate = |parts: Vec<Trained>| Trained::of_parts(parts).and_then(|all| all.samples_per_s);
        // 100 steps at 1000/s, 300 at 500/s
        assert_eq!(rate(vec![part(100, Some(1000.0)), part(400, Some(500.0))]), Some(400.0 / 0.7));
        assert_eq!(rate(vec![part(400, Some(500.0))]), Some(500.0));
        assert_eq!(rate(vec![part(100, None), part(400, Some(500.0))]), Some(500.0));
        // a client that recorded no further step
        assert_eq!(rate(vec![part(100, Some(1000.0)), part(100, Some(7.0))]), Some(1000.0));
        // began anew
        assert_eq!(rate(vec![part(400, Some(1000.0)), part(100, Some(500.0))]), Some(500.0));
        assert_eq!(rate(vec![part(100, None)]), None);
        assert_eq!(Trained::of_parts(Vec::new()), None);
    }
}
