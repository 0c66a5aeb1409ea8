//! Those of a run that train: its ranks, and the processes that a launcher within a rank has started there.

use super::hooks::{HookFacts, StepsBy};
use super::ids::Rank;
use super::options::PythonHooks;
use super::run::RunStage;
use super::text::sanitize;
use super::time::Stamp;
use super::timing::Phase;
use super::trainer_keys::{TrainerId, TrainerKeys};
use super::world::{RankState, RunState};

/// One that trains: a rank, or a process within it.
#[derive(Debug, Clone, Copy)]
pub struct Trainer<'a> {
    /// By which it is kept.
    pub key: Rank,
    /// Its number in its training.
    pub number: Rank,
    /// What is known of it.
    pub state: &'a RankState,
    /// The rank that it is, or is in.
    pub rank: &'a RankState,
}

impl Trainer<'_> {
    /// Which it is.
    pub fn id(&self) -> TrainerId {
        TrainerId { rank: self.rank.placement.rank, number: self.number.0 }
    }

    /// The libraries with which it trains: `torch 2.9.0`.
    pub fn libraries(&self) -> String {
        let own = self.state.hooks.libraries();
        if own.is_empty() { self.rank.hooks.libraries() } else { own }
    }
}

impl RunState {
    /// All that train: the ranks, but for those in which only others do, and the processes within them, each with its
    /// number in the training.
    pub fn trainers(&self) -> impl Iterator<Item = Trainer<'_>> {
        (0u32..).zip(&self.ranks).flat_map(|(number, rank)| within(&self.trainer_keys, Rank(number), rank))
    }

    /// Those of them that this rank is, or that are within it.
    pub fn trainers_in(&self, number: Rank) -> impl Iterator<Item = Trainer<'_>> {
        let rank = self.ranks.get(number.0 as usize);
        rank.into_iter().flat_map(move |rank| within(&self.trainer_keys, number, rank))
    }

    /// The one of them that has this key.
    pub fn trainer(&self, key: Rank) -> Option<Trainer<'_>> {
        let id = self.trainer_keys.id(key).unwrap_or(key.into());
        let rank = self.ranks.get(id.rank.0 as usize)?;
        let state = id.worker().map_or(Some(rank), |worker| rank.workers.get(&worker))?;
        Some(Trainer { key, number: Rank(id.number), state, rank })
    }

    /// The key of a rank that trains, or of a process within it.
    pub fn trainer_key(&self, rank: Rank, worker: Option<u32>) -> Option<Rank> {
        let id = TrainerId::new(rank, worker);
        self.trainers_in(rank).find(|one| one.id() == id).map(|one| one.key)
    }

    /// The rank that one is, or is in.
    pub fn rank_of(&self, key: Rank) -> Rank {
        self.trainer_keys.id(key).map_or(key, |id| id.rank)
    }

    /// The phase of a step that it has not finished in which one stands, from when to when: up to `now`, but not behind its end
    /// or that of the run. Before its first step, between steps and behind the last one there is none.
    pub fn open_phase(&self, one: Trainer<'_>, now: Stamp) -> Option<(Phase, Stamp, Stamp)> {
        let (since, standing) = one.state.standing.as_ref()?;
        if standing.phase == Phase::Other {
            return None;
        }
        let run_end = || self.outcome.as_ref().map(|outcome| outcome.at.unwrap_or(self.last_at));
        let end = one.rank.exit.as_ref().map(|(at, _)| *at).or_else(run_end);
        let until = end.map_or(now, |end| end.min(now));
        (*since < until).then_some((standing.phase, *since, until))
    }

    /// What there is to say of NCCL's collectives, in a sentence and with fewer words; or why there is nothing, where
    /// `--nccl-timings` was given and the run has ended.
    pub fn collectives_words(&self) -> Option<[String; 2]> {
        let place = |key| Some(self.trainer(key)?.rank.placement.to_string());
        let told = self.collectives.sentence(place).zip(self.collectives.short());
        told.map(Into::into).or_else(|| {
            let is_missing = self.spec.options.nccl_timings && !self.is_live();
            is_missing.then(|| {
                let short = "no NCCL timings".to_owned();
                [format!("{short}: no NCCL of 2.27 or newer has told any"), short]
            })
        })
    }

    /// By whom its steps are told where that is not the program, or why there are none: `steps by hooks (torch 2.9.0)`,
    /// `no steps: torch not imported (Python 3.11.2)`. Nothing before its ranks run.
    pub fn steps_words(&self) -> Option<String> {
        let told = || self.trainers().find(|one| one.state.step().is_some());
        if let Some(one) = told() {
            return match one.state.steps_by {
                StepsBy::Program => None,
                StepsBy::Hooks => Some(format!(
                    "steps by hooks ({}){}",
                    one.libraries(),
                    self.hooks_off_words("; hooks off")
                )),
                StepsBy::Log => Some("step read from the log".to_owned()),
            };
        }
        if self.stage()? < RunStage::Training
            || self.ranks.iter().any(|rank| rank.job.is_some() && rank.hooks.is_empty())
        {
            return None;
        }
        if self.spec.is_imported() {
            return Some("no steps: none in the imported files".to_owned());
        }
        if self.spec.options.python_hooks == Some(PythonHooks::Off) {
            return Some("no steps: hooks off".to_owned());
        }
        if self.spec.hosts().iter().all(|host| self.spec.options.hooks_off.contains(host)) {
            return Some(format!("no steps: {}", self.hooks_off_words("hooks off")));
        }
        let facts = self.ranks.iter().map(|rank| &rank.hooks).find(|facts| !facts.is_empty());
        Some(format!(
            "no steps: {}{}",
            facts.map_or_else(|| HookFacts::default().why_no_steps(), HookFacts::why_no_steps),
            self.hooks_off_words("; hooks off")
        ))
    }

    /// `words` and the hosts on which the hooks are off: `; hooks off on gpu-b`. Empty where they are on everywhere.
    fn hooks_off_words(&self, words: &str) -> String {
        let hosts: Vec<String> =
            self.spec.options.hooks_off.iter().map(|host| sanitize(host.as_str()).into_owned()).collect();
        if hosts.is_empty() { String::new() } else { format!("{words} on {}", hosts.join(", ")) }
    }
}

/// A rank, where not only others train in it, and the processes within it.
fn within<'a>(keys: &'a TrainerKeys, number: Rank, rank: &'a RankState) -> impl Iterator<Item = Trainer<'a>> {
    let trainer = move |of: Rank, state| {
        let key = keys.known(TrainerId { rank: number, number: of.0 });
        Trainer { key, number: of, state, rank }
    };
    let own = (!rank.steps.is_empty() || rank.workers.is_empty()).then(|| trainer(number, rank));
    own.into_iter().chain(rank.workers.iter().map(move |(number, worker)| trainer(Rank(*number), worker)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::fixtures::{placement, rank_exit, run_spec};
    use crate::domain::ids::{HostId, RunId};
    use crate::domain::options::RunOptions;
    use crate::domain::outcome::{RunEnd, RunOutcome};
    use crate::domain::run::RunSpec;
    use crate::domain::standstill::StalledPhase;
    use crate::domain::waiting::Waiting;
    use crate::domain::world::World;

    /// What is said of the steps of a run on two hosts, of which some have the hooks off.
    fn words(off: &[&str], events: &[(u32, Event)]) -> Option<String> {
        run(off, events)?.steps_words()
    }

    /// The run after these events of its ranks.
    fn run(off: &[&str], events: &[(u32, Event)]) -> Option<RunState> {
        let id = RunId::new(1, 1);
        let spec = RunSpec {
            id: id.clone(),
            name: "train".into(),
            created: Stamp(1),
            options: RunOptions {
                hooks_off: off.iter().map(|host| HostId::from(*host)).collect(),
                ..RunOptions::default()
            },
            ..run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)])
        };
        let run = || Origin::Run(id.clone());
        let mut world = World::default();
        let begin = [
            (run(), Event::RunCreated { spec: Arc::new(spec) }),
            (run(), Event::StageEntered { stage: RunStage::Training, waiting_for: Waiting::default() }),
        ];
        let ranks = events.iter().map(|(rank, event)| (Origin::Rank(id.clone(), Rank(*rank)), event.clone()));
        for (seq, (origin, event)) in (0..).zip(begin.into_iter().chain(ranks)) {
            world.apply(&Envelope { seq, at: Stamp(1), origin, event });
        }
        world.runs.remove(&id)
    }

    #[test]
    fn an_open_phase_ends_with_its_rank_or_with_the_run() {
        let standing = StalledPhase { phase: Phase::Data, step: 2, for_us: 3, stopped: false, at: None };
        let mut run = run(&[], &[(0, Event::RankStands { standing })]).unwrap();
        let open = |run: &RunState, now| {
            let one = run.trainers().next().unwrap();
            run.open_phase(one, Stamp(now)).map(|(phase, from, to)| (phase, from.0, to.0))
        };
        assert_eq!(open(&run, 9), Some((Phase::Data, -2, 9)));
        assert_eq!(open(&run, -2), None, "it has not begun");
        let of_other = run.trainers().nth(1).and_then(|one| run.open_phase(one, Stamp(9)));
        assert_eq!(of_other, None, "it does not stand");
        let standing = StalledPhase { phase: Phase::Other, step: 2, for_us: 3, stopped: false, at: None };
        let between = self::run(&[], &[(0, Event::RankStands { standing })]).unwrap();
        assert_eq!(open(&between, 9), None, "behind its last step, or before the next one");
        let mut outcome = RunOutcome::new(RunEnd::Stopped, "stopped");
        outcome.at = Some(Stamp(7));
        run.outcome = Some(outcome);
        assert_eq!(open(&run, 9), Some((Phase::Data, -2, 7)));
        let exit = rank_exit(1);
        run.ranks[0].exit = Some((Stamp(5), exit));
        assert_eq!(open(&run, 9), Some((Phase::Data, -2, 5)));
        assert_eq!(open(&run, 4), Some((Phase::Data, -2, 4)));
    }

    #[test]
    fn a_host_whose_hooks_are_off_is_named() {
        assert_eq!(words(&[], &[]).as_deref(), Some("no steps: Python not seen"));
        assert_eq!(words(&["a", "b"], &[]).as_deref(), Some("no steps: hooks off on a, b"));
        assert_eq!(words(&["b"], &[]).as_deref(), Some("no steps: Python not seen; hooks off on b"));
        let facts = serde_json::from_str(r#"{"pid":7,"versions":{"torch":"2.9.0"}}"#).unwrap();
        let hello = Event::JobDescribed {
            job: "train.py".into(),
            transport: None,
            total_steps: None,
            facts: Box::new(facts),
        };
        let said = words(&["b"], &[(0, hello.clone())]);
        assert_eq!(said.as_deref(), Some("no steps: no optimizer step (torch 2.9.0); hooks off on b"));
        let timing = serde_json::from_str(r#"{"step":1,"start":0,"dur_us":5}"#).unwrap();
        let steps = [(0, hello), (0, Event::StepsBy { by: StepsBy::Hooks }), (0, Event::StepDone { timing })];
        let said = words(&["b"], &steps);
        assert_eq!(said.as_deref(), Some("steps by hooks (torch 2.9.0); hooks off on b"));
    }
}
