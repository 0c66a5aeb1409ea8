//! A run that stands still: in which phase each rank is, and for how long, by the pages that hvtui's hooks keep.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::stacks::CodeLine;
use super::text::sanitize;
use super::time::Stamp;
use super::timing::Phase;
use super::units::{duration_us, ranges};
use super::world::{RankState, RunState};

/// A rank is not said to stand before this, microseconds: where steps take milliseconds, a slow file takes seconds.
const LEAST_US: u64 = 5_000_000;
/// Where a rank is between steps, which an evaluation or a checkpoint takes.
const PATIENT_US: u64 = 10_000_000;
/// Before its first steps are known, which load models and data and compile kernels.
const FIRST_US: u64 = 30_000_000;
/// How many steps' time a rank may take for one phase.
const STEPS: u64 = 3;
/// Before the end of a run no step for that long is worth a word, microseconds, and for so many times the longest one.
const SILENCE_US: u64 = 10_000_000;
const SILENCE_STEPS: u64 = 5;
/// Over how many of its newest steps the time of a step is taken.
const RECENT: usize = 20;

/// Where a process that trains is, and has been for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalledPhase {
    /// The phase.
    pub phase: Phase,
    /// The step that is being worked on.
    pub step: u64,
    /// For how long when it was told, microseconds.
    pub for_us: u64,
    /// A signal has stopped the process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// The line of its script that it was in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<CodeLine>,
}

impl StalledPhase {
    /// Its place among others: what holds the others up comes first.
    pub(crate) fn place(&self) -> u8 {
        match self {
            Self { stopped: true, .. } => STOPPED,
            Self { phase: Phase::Wait, .. } => WAITS,
            _ => 1,
        }
    }

    /// `in backward of step 57 for 2.1 s`.
    pub fn words_of_step(&self) -> String {
        let stopped = if self.stopped { "stopped by a signal " } else { "" };
        let of = if self.phase == Phase::Other { String::new() } else { format!(" of step {}", self.step) };
        format!("{stopped}{}{of} for {}", self.place_in_step(), duration_us(self.for_us))
    }

    /// The same place told once more: the line that is known of it stays.
    #[must_use]
    pub(crate) fn told_after(&self, before: Option<&Self>) -> Self {
        let same = before.filter(|before| (before.phase, before.step) == (self.phase, self.step));
        let known = same.and_then(|before| before.at.clone());
        Self { at: self.at.clone().or(known), ..self.clone() }
    }

    fn place_in_step(&self) -> String {
        match (self.phase, self.step) {
            (Phase::Other, 0 | 1) => BEFORE.to_owned(),
            (Phase::Other, _) => "between steps".to_owned(),
            (phase, _) => format!("in {}", phase.name()),
        }
    }
}

/// A run that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standstill {
    /// Those that stand, and since when.
    stands: Vec<(Rank, Stamp, StalledPhase)>,
    /// The step that the first of them is in.
    pub step: u64,
    /// What each is called, where its number is also that of another one.
    names: BTreeMap<Rank, String>,
}

impl Standstill {
    /// The run's standstill at a moment, if it stands.
    pub fn of(run: &RunState, now: Stamp) -> Option<Self> {
        if !run.is_live() {
            return None;
        }
        let (mut stands, mut names) = (Vec::new(), BTreeMap::new());
        let (mut patience, mut step) = (u64::MAX, u64::MAX);
        for one in run.trainers().filter(|one| one.rank.exit.is_none()) {
            let Some((since, standing)) = &one.state.standing else { continue };
            patience = patience.min(patience_of(one.state));
            step = step.min(standing.step);
            stands.push((one.key, *since, standing.clone()));
            if run.trainer_keys.is_apart() {
                let place = sanitize(&one.rank.placement.to_string()).into_owned();
                names.insert(one.key, format!("{} ({place})", one.number));
            }
        }
        if stands.iter().any(|(.., standing)| standing.phase == Phase::Other) {
            patience = patience.max(PATIENT_US);
        }
        let long = |since: Stamp| now.micros_since(since) >= patience.cast_signed();
        stands.iter().any(|(_, since, _)| long(*since)).then_some(Self { stands, step, names })
    }

    /// One that is told of: those that stand in a step, and since when.
    pub(crate) fn told(stands: Vec<(Rank, Stamp, StalledPhase)>, step: u64) -> Self {
        Self { stands, step, names: BTreeMap::new() }
    }

    /// Since when it stands: its rank that stands the longest.
    pub fn since(&self) -> Option<Stamp> {
        self.stands.iter().map(|(_, since, _)| *since).min()
    }

    /// Whether this one stands in it.
    pub fn has(&self, trainer: Rank) -> bool {
        self.stands.iter().any(|(rank, ..)| *rank == trainer)
    }

    /// Whether it may well pass: an evaluation or a checkpoint lies between steps too, and takes longer than a step.
    pub fn may_pass(&self, now: Stamp) -> bool {
        let between = |standing: &StalledPhase| standing.phase == Phase::Other && !standing.stopped;
        let soon = |since: Stamp| now.micros_since(since) < (4 * PATIENT_US).cast_signed();
        self.stands.iter().any(|(_, since, standing)| between(standing) && soon(*since))
    }

    /// The rank that the others wait for: the only one that does not wait itself.
    pub fn culprit(&self) -> Option<Rank> {
        let mut busy = self.stands.iter().filter(|(.., standing)| standing.place() < WAITS);
        let first = busy.next()?.0;
        (busy.next().is_none() && self.stands.len() > 1).then_some(first)
    }

    /// `stands still in step 57: rank 1 in backward for 2.5 s, train.py:57; rank 0 in wait for 2.4 s, train.py:57`.
    pub fn words(&self, now: Stamp) -> String {
        self.words_at(Some(now))
    }

    /// The same without for how long.
    pub fn lasting_words(&self) -> String {
        self.words_at(None)
    }

    /// The same without the step: `rank 1 in backward, train.py:57; rank 0 in wait, train.py:57`.
    pub(crate) fn ranks_words(&self) -> String {
        self.ranks_at(None)
    }

    fn words_at(&self, now: Option<Stamp>) -> String {
        let place =
            if self.step == 0 { "before the first step".into() } else { format!("in step {}", self.step) };
        format!("stands still {place}: {}", self.ranks_at(now))
    }

    fn ranks_at(&self, now: Option<Stamp>) -> String {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        // where those that wait for another one do so tells little: one place for all of them, if it is one
        let all_wait = self.stands.iter().all(|(.., standing)| standing.place() >= WAITS);
        for (rank, since, standing) in &self.stands {
            let at = standing.at.as_ref().filter(|_| all_wait || standing.place() < WAITS);
            let key = (standing.place(), standing.place_in_step(), at);
            groups.entry(key).or_default().push((rank, *since, standing));
        }
        let more: usize = groups.values().skip(GROUPS).map(Vec::len).sum();
        let mut groups: Vec<String> = groups
            .into_iter()
            .take(GROUPS)
            .map(|((place, phase, _), of)| self.group(place, &phase, &of, now))
            .collect();
        if more > 0 {
            groups.push(format!("{more} more ranks elsewhere"));
        }
        groups.join("; ")
    }

    /// Those that stand at one place: `ranks 0, 2 in wait for 2.0 s, train.py:57`.
    fn group(
        &self,
        place: u8,
        phase: &str,
        of: &[(&Rank, Stamp, &StalledPhase)],
        now: Option<Stamp>,
    ) -> String {
        let longest = |now: Stamp| of.iter().map(|(_, since, _)| now.micros_since(*since)).max().unwrap_or(0);
        let names: Option<Vec<&str>> =
            of.iter().map(|(rank, ..)| self.names.get(*rank).map(String::as_str)).collect();
        let who = names.map_or_else(|| ranges(of.iter().map(|(rank, ..)| rank.0)), |names| names.join(", "));
        let rank = if of.len() == 1 { "rank" } else { "ranks" };
        let stopped = if place == STOPPED { " stopped by a signal" } else { "" };
        let longest = now.map(|now| format!(" for {}", duration_us(longest(now).max(0).cast_unsigned())));
        let longest = longest.unwrap_or_default();
        let at = of[0].2.at.as_ref().filter(|at| of.iter().all(|(.., one)| one.at.as_ref() == Some(at)));
        let at = at.map(|at| format!(", {at}")).unwrap_or_default();
        // said once for all of them
        let phase = if self.step == 0 && phase == BEFORE { String::new() } else { format!(" {phase}") };
        format!("{rank} {who}{stopped}{phase}{longest}{at}")
    }
}

/// Where a process is that has not begun to train.
const BEFORE: &str = "before its first step";
/// Places that a sentence names.
const GROUPS: usize = 4;
const STOPPED: u8 = 0;
const WAITS: u8 = 2;

/// For how long a process may be in one phase, whose steps take `step_us` if that is known; microseconds.
pub(crate) fn patience_us(step_us: Option<u64>, phase: Phase) -> u64 {
    let patience = step_us.map_or(FIRST_US, |mean| mean.saturating_mul(STEPS).max(LEAST_US));
    if phase == Phase::Other { patience.max(PATIENT_US) } else { patience }
}

/// For how long no step may come before the end of a run, where the longest one took so long if there was one; microseconds.
pub(crate) fn silence_us(longest_us: Option<u64>) -> u64 {
    longest_us.map_or(FIRST_US, |longest| longest.saturating_mul(SILENCE_STEPS).max(SILENCE_US))
}

fn patience_of(rank: &RankState) -> u64 {
    let (sum, count) = rank
        .recent_steps(RECENT)
        .fold((0, 0u64), |(sum, count), step| (sum + u64::from(step.dur_us), count + 1));
    patience_us(sum.checked_div(count), Phase::Wait)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::fixtures::{placement, run_spec};
    use crate::domain::ids::RunId;
    use crate::domain::run::RunSpec;
    use crate::domain::time::HostTime;
    use crate::domain::timing::{Spans, StepTiming};
    use crate::domain::world::World;

    fn world(ranks: u32) -> (World, RunId) {
        let id = RunId::new(1, 1);
        let spec = RunSpec {
            id: id.clone(),
            name: "t".to_owned(),
            command: vec!["python".to_owned()],
            ..run_spec((0..ranks).map(|rank| placement(rank, "a", rank)).collect())
        };
        let mut world = World::default();
        let event = Event::RunCreated { spec: Arc::new(spec) };
        world.apply(&Envelope { seq: 1, at: Stamp(0), origin: Origin::Run(id.clone()), event });
        (world, id)
    }

    #[test]
    fn who_is_stopped_is_named_first_with_those_that_wait_for_it() {
        let (mut world, id) = world(3);
        let mut tell = |at: i64, rank: u32, event| {
            world.apply(&Envelope {
                seq: 2,
                at: Stamp(at),
                origin: Origin::Rank(id.clone(), Rank(rank)),
                event,
            });
            world.clone()
        };
        let second = 1_000_000;
        let step = |step| {
            let (start, dur_us, spans) = (HostTime(0), 40_000, Spans::default());
            let timing = StepTiming { step, start, dur_us, loss: None, samples: 1, spans, hidden_us: 0 };
            Event::StepDone { timing: Arc::new(timing) }
        };
        for rank in 0..3 {
            tell(0, rank, step(56));
        }
        let stands = |phase, for_us| Event::RankStands {
            standing: StalledPhase { phase, step: 57, for_us, stopped: false, at: None },
        };
        tell(2 * second, 0, stands(Phase::Wait, 1_000_000));
        tell(2 * second, 2, stands(Phase::Wait, 900_000));
        let now = tell(2 * second, 1, stands(Phase::Backward, 1_200_000));
        let of = |world: &World, at| Standstill::of(&world.runs[&id], Stamp(at));
        assert_eq!(of(&now, 5 * second), None, "not for long, though much longer than a step");
        let found = of(&now, 7 * second).unwrap();
        assert_eq!(found.culprit(), Some(Rank(1)));
        assert_eq!(
            found.words(Stamp(7 * second)),
            "stands still in step 57: rank 1 in backward for 6.2 s; ranks 0, 2 in wait for 6.0 s"
        );
        let standing =
            StalledPhase { phase: Phase::Wait, step: 57, for_us: 1_000_000, stopped: true, at: None };
        let now = tell(2 * second, 1, Event::RankStands { standing });
        let found = of(&now, 7 * second).unwrap();
        assert_eq!(found.culprit(), Some(Rank(1)));
        let words = "rank 1 stopped by a signal in wait for 6.0 s; ranks 0, 2 in wait for 6.0 s";
        assert_eq!(found.words(Stamp(7 * second)), format!("stands still in step 57: {words}"));
        // an evaluation on one rank is waited for longer
        let now = tell(2 * second, 1, stands(Phase::Other, 1_200_000));
        assert_eq!(of(&now, 9 * second), None);
        let passes = |at| of(&now, at).unwrap().may_pass(Stamp(at));
        assert_eq!((passes(11 * second), passes(43 * second)), (true, false));
        // it goes on
        tell(4 * second, 0, step(57));
        tell(4 * second, 2, step(57));
        let now = tell(4 * second, 1, step(57));
        assert_eq!(of(&now, 9 * second), None);
    }

    #[test]
    fn where_all_wait_it_is_said_who_waits_at_which_line() {
        let standing = |rank, phase, line: u32| {
            let at = Some(CodeLine { file: "t.py".to_owned(), line });
            let standing = StalledPhase { phase, step: 20, for_us: 1, stopped: false, at };
            (Rank(rank), Stamp(0), standing)
        };
        let wait = |rank, line| standing(rank, Phase::Wait, line);
        let all = vec![wait(0, 33), wait(1, 60), wait(2, 33)];
        let told = Standstill::told(all.clone(), 20).ranks_words();
        assert_eq!(told, "ranks 0, 2 in wait, t.py:33; rank 1 in wait, t.py:60");
        let one = [all, vec![standing(3, Phase::Backward, 12)]].concat();
        let told = Standstill::told(one, 20).ranks_words();
        assert_eq!(
            told, "rank 3 in backward, t.py:12; ranks 0-2 in wait",
            "where they wait for it tells little"
        );
    }

    #[test]
    fn a_long_step_and_a_first_one_are_no_standstill() {
        let (mut world, id) = world(2);
        let standing =
            StalledPhase { phase: Phase::Forward, step: 1, for_us: 1_000_000, stopped: false, at: None };
        let event = Event::RankStands { standing };
        let origin = Origin::Rank(id.clone(), Rank(0));
        world.apply(&Envelope { seq: 2, at: Stamp(1_000_000), origin, event });
        let of = |at: i64| Standstill::of(&world.runs[&id], Stamp(at * 1_000_000));
        assert_eq!(of(29), None, "nothing is known of its steps");
        let found = of(31).unwrap();
        assert_eq!(found.culprit(), None, "one alone holds none up");
    }
}
