//! Which part of a run figures tell of: some of its steps, ranks and time. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::figures::RunAnalysis;
use super::part::Part;
use crate::domain::ids::{HostId, Rank};
use crate::domain::marks::RunMark;
use crate::domain::run::Placement;
use crate::domain::time::Stamp;
use crate::domain::trainer_keys::TrainerId;
use crate::domain::units::{ranges, short_duration_us};

/// The steps that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { from: 0, to: u64::MAX }
    }
}

impl Window {
    /// Whether a step is in it.
    pub fn holds(&self, step: u64) -> bool {
        (self.from..=self.to).contains(&step)
    }
}

/// The steps and ranks that figures tell of; all by default. When they were is for [`super::Analyzer::count`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The steps.
    pub window: Window,
    /// The ranks, by their numbers in the training; all when absent. All ranks, chosen or not, decide which one came last.
    pub ranks: Option<BTreeSet<Rank>>,
}

impl Choice {
    pub(super) fn has_rank(&self, rank: Rank) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(&rank))
    }

    pub(super) fn has_trainer(&self, id: TrainerId) -> bool {
        self.has_rank(Rank(id.number))
    }

    /// Whether a host has a chosen rank.
    pub(super) fn has_host(&self, host: &HostId, placements: &[Placement]) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| {
            placements.iter().any(|placement| placement.host == *host && ranks.contains(&placement.rank))
        })
    }

    /// Whether a step of one that trains is chosen.
    pub(super) fn holds(&self, step: u64, id: TrainerId) -> bool {
        self.window.holds(step) && self.has_trainer(id)
    }

    /// What the chosen ranks tell of a step.
    pub(super) fn parts<'p>(&self, all: &'p [Part]) -> Cow<'p, [Part]> {
        if self.ranks.is_none() {
            return Cow::Borrowed(all);
        }
        Cow::Owned(all.iter().filter(|part| self.has_trainer(part.id)).copied().collect())
    }
}

/// The part of a run that figures tell of. Lengths of time are microseconds from the start of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChosenPart {
    /// Nothing earlier counts; `None`: from the start.
    pub from_us: Option<u64>,
    /// Nothing later counts; `None`: up to the end.
    pub to_us: Option<u64>,
    /// The first step; `None`: the first of the run.
    pub from_step: Option<u64>,
    /// The last step; `None`: the last of the run.
    pub to_step: Option<u64>,
    /// The ranks, in rising order; `None`: all.
    pub ranks: Option<Vec<Rank>>,
    /// What happened after the first of these moments and not after the second counts.
    #[serde(skip)]
    pub between: (Stamp, Stamp),
}

impl ChosenPart {
    /// `steps 5 to 10, ranks 0-1, 10.0 s to 20.0 s after the start`.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(match (self.from_step, self.to_step) {
            (None, None) => None,
            (Some(first), Some(last)) if first == last => Some(format!("step {first}")),
            (Some(first), Some(last)) => Some(format!("steps {first} to {last}")),
            (Some(first), None) => Some(format!("from step {first} on")),
            (None, Some(last)) => Some(format!("up to step {last}")),
        });
        words.extend(self.ranks.as_ref().map(|ranks| {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{word} {}", ranges(ranks.iter().map(|rank| rank.0)))
        }));
        let after = |us: u64| format!("{} after the start", short_duration_us(us));
        words.extend(match (self.from_us, self.to_us) {
            (None, None) => None,
            (Some(from), Some(to)) => Some(format!("{} to {}", short_duration_us(from), after(to))),
            (Some(from), None) => Some(format!("from {} on", after(from))),
            (None, Some(to)) => Some(format!("up to {}", after(to))),
        });
        words.join(", ")
    }

    /// Whether it begins where the run does.
    fn has_start(&self) -> bool {
        self.from_us.is_none() && self.from_step.is_none()
    }

    /// Whether it ends where the run does.
    pub fn has_end(&self) -> bool {
        self.to_us.is_none() && self.to_step.is_none()
    }

    /// Whether something that happened at a moment is told of, which is about these ranks, or about none where there are none.
    fn holds(&self, at: Stamp, of: &[Rank]) -> bool {
        let (after, until) = self.between;
        let is_of_them = |chosen: &Vec<Rank>| of.is_empty() || of.iter().any(|rank| chosen.contains(rank));
        after < at && at <= until && self.ranks.as_ref().is_none_or(is_of_them)
    }
}

impl RunAnalysis {
    /// The same where its figures are those of a part: without what is true of the whole run alone.
    #[must_use]
    pub fn of_part(self, part: ChosenPart) -> Self {
        let (has_start, has_end) = (part.has_start(), part.has_end());
        let waits = self.waits.filter(|_| has_start && has_end).map(|mut waits| {
            waits.ranks.retain(|one| part.ranks.as_ref().is_none_or(|ranks| ranks.contains(&one.rank)));
            waits
        });
        let mut incidents = self.incidents;
        incidents.retain(|one| part.holds(one.at, &one.ranks));
        Self {
            incidents,
            first_step_after_us: self.first_step_after_us.filter(|_| has_start),
            after_last_step_us: self.after_last_step_us.filter(|_| has_end),
            stands: self.stands.filter(|_| has_end),
            waits,
            part: Some(part),
            ..self
        }
    }

    /// The same with those of a person's marks that lie in its part.
    #[must_use]
    pub fn with_marks(self, marks: &[RunMark]) -> Self {
        let is_within =
            |mark: &&RunMark| self.part.as_ref().is_none_or(|part| part.holds(mark.at, mark.rank.as_slice()));
        let marks = marks.iter().filter(is_within).cloned().collect();
        Self { marks, ..self }
    }

    /// Whether its figures reach to the end of the run.
    pub fn has_end(&self) -> bool {
        self.part.as_ref().is_none_or(ChosenPart::has_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(steps: (Option<u64>, Option<u64>), times: (Option<u64>, Option<u64>)) -> ChosenPart {
        ChosenPart {
            from_step: steps.0,
            to_step: steps.1,
            from_us: times.0,
            to_us: times.1,
            ..ChosenPart::default()
        }
    }

    #[test]
    fn a_part_is_named_by_what_was_chosen() {
        let of = |steps, times| part(steps, times).words();
        assert_eq!(of((Some(5), Some(10)), (None, None)), "steps 5 to 10");
        assert_eq!(of((Some(5), Some(5)), (None, None)), "step 5");
        assert_eq!(of((Some(5), None), (None, None)), "from step 5 on");
        assert_eq!(of((None, Some(10)), (None, None)), "up to step 10");
        let (second, minute) = (Some(1_500_000), Some(60_000_000));
        assert_eq!(of((None, None), (second, minute)), "1.5 s to 01:00 after the start");
        assert_eq!(of((None, None), (second, None)), "from 1.5 s after the start on");
        assert_eq!(of((None, None), (None, second)), "up to 1.5 s after the start");
        let ranks = |ranks: &[u32]| Some(ranks.iter().copied().map(Rank).collect());
        let chosen = ChosenPart { ranks: ranks(&[0, 1, 3]), ..part((None, Some(10)), (None, None)) };
        assert_eq!(chosen.words(), "up to step 10, ranks 0-1, 3");
        assert_eq!(ChosenPart { ranks: ranks(&[2]), ..ChosenPart::default() }.words(), "rank 2");
    }

    #[test]
    fn a_part_has_the_start_and_the_end_that_nothing_cuts_off() {
        let ends = |steps, times| {
            let part = part(steps, times);
            (part.has_start(), part.has_end())
        };
        assert_eq!(ends((None, None), (None, None)), (true, true));
        assert_eq!(ends((Some(2), None), (None, None)), (false, true));
        assert_eq!(ends((None, None), (None, Some(1))), (true, false));
        assert_eq!(ends((None, Some(2)), (Some(1), None)), (false, false));
    }

    #[test]
    fn marks_outside_of_a_part_are_left_out() {
        let mark = |id, at, rank: Option<u32>| RunMark {
            id,
            at: Stamp(at),
            step: None,
            rank: rank.map(Rank),
            note: "x".to_owned(),
        };
        let marks = [
            mark(1, 10, None),
            mark(2, 11, None),
            mark(3, 20, Some(1)),
            mark(4, 20, Some(0)),
            mark(5, 21, None),
        ];
        let run = super::super::fixtures::late_run(5, 20);
        let ids =
            |run: RunAnalysis| run.with_marks(&marks).marks.iter().map(|mark| mark.id).collect::<Vec<_>>();
        assert_eq!(ids(run.clone()), [1, 2, 3, 4, 5]);
        let part = ChosenPart {
            ranks: Some(vec![Rank(1)]),
            between: (Stamp(10), Stamp(20)),
            ..ChosenPart::default()
        };
        assert_eq!(ids(run.of_part(part)), [2, 3]);
    }

    #[test]
    fn a_host_is_chosen_with_one_of_its_ranks() {
        let spec = super::super::fixtures::spec(2);
        let has = |ranks: Option<&[u32]>, host: &str| {
            let ranks = ranks.map(|ranks| ranks.iter().copied().map(Rank).collect());
            Choice { ranks, ..Choice::default() }.has_host(&HostId::from(host), &spec.placements)
        };
        assert!(has(None, "gpu-b") && has(Some(&[1]), "gpu-a"));
        assert!(!has(Some(&[1]), "gpu-b") && !has(Some(&[7]), "gpu-a"));
    }

    #[test]
    fn what_is_true_of_the_whole_run_alone_is_left_out_of_a_part() {
        let ends = |steps, times| {
            let run = super::super::fixtures::late_run(5, 20).of_part(part(steps, times));
            (run.first_step_after_us.is_some(), run.after_last_step_us.is_some())
        };
        assert_eq!(ends((None, None), (None, None)), (true, true));
        assert_eq!(ends((Some(2), None), (None, None)), (false, true));
        assert_eq!(ends((None, None), (None, Some(1))), (true, false));
    }
}
