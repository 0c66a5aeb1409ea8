//! Those of a run that train: its ranks, and the processes that a launcher within a rank has started there.

use super::hooks::{HookFacts, StepsBy};
use super::ids::Rank;
use super::options::PythonHooks;
use super::run::RunStage;
use super::world::{RankState, RunState};

/// One that trains: a rank, or a process within it.
#[derive(Debug, Clone, Copy)]
pub struct Trainer<'a> {
    /// Its number in the training.
    pub number: Rank,
    /// What is known of it.
    pub state: &'a RankState,
    /// The rank that it is, or is in.
    pub rank: &'a RankState,
}

impl Trainer<'_> {
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
        self.ranks.iter().zip(0..).flat_map(|(rank, number)| {
            let trainer = |number, state| Trainer { number: Rank(number), state, rank };
            let own = (!rank.steps.is_empty() || rank.workers.is_empty()).then(|| trainer(number, rank));
            own.into_iter().chain(rank.workers.iter().map(move |(number, worker)| trainer(*number, worker)))
        })
    }

    /// The one of them that has this number.
    pub fn trainer(&self, number: Rank) -> Option<&RankState> {
        let rank = self.ranks.get(number.0 as usize).filter(|rank| rank.workers.is_empty());
        rank.or_else(|| self.trainers().find(|trainer| trainer.number == number).map(|trainer| trainer.state))
    }

    /// What there is to say of NCCL's collectives, in a sentence and with fewer words; or why there is nothing, where
    /// `--nccl-timings` was given and the run has ended.
    pub fn collectives_words(&self) -> Option<[String; 2]> {
        let place = |rank| Some(self.trainer(rank)?.placement.to_string());
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
                StepsBy::Hooks => Some(format!("steps by hooks ({})", one.libraries())),
                StepsBy::Log => Some("step read from the log".to_owned()),
            };
        }
        if self.stage()? < RunStage::Training
            || self.ranks.iter().any(|rank| rank.job.is_some() && rank.hooks.is_empty())
        {
            return None;
        }
        if self.spec.options.python_hooks == Some(PythonHooks::Off) {
            return Some("no steps: hooks off".to_owned());
        }
        let facts = self.ranks.iter().map(|rank| &rank.hooks).find(|facts| !facts.is_empty());
        Some(format!(
            "no steps: {}",
            facts.map_or_else(|| HookFacts::default().why_no_steps(), HookFacts::why_no_steps)
        ))
    }
}
