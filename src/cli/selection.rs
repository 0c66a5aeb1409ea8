//! The part of a run that a command is asked for: the options that `export`, `report` and `diff` have alike, as a selection of one
//! recording. Prints nothing.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::args::{PartArgs, SelectionArgs};
use super::errors::Failure;
use crate::domain::ids::Rank;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;
use crate::record::Reader;
use crate::record::export::{Selection, StepRange};

/// What the options of a command say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    from: Option<f64>,
    to: Option<f64>,
    /// The option that has `to`.
    to_option: &'static str,
    ranks: &'a [RangeInclusive<u32>],
    steps: Option<StepRange>,
    max_events: Option<u64>,
}

impl<'a> From<&'a SelectionArgs> for Wanted<'a> {
    fn from(args: &'a SelectionArgs) -> Self {
        let SelectionArgs { from, to_time, ranks, steps, max_events } = args;
        let to_option = "--to-time";
        Self { from: *from, to: *to_time, to_option, ranks, steps: *steps, max_events: *max_events }
    }
}

impl<'a> From<&'a PartArgs> for Wanted<'a> {
    fn from(args: &'a PartArgs) -> Self {
        let PartArgs { from, to, ranks, steps } = args;
        Self { from: *from, to: *to, to_option: "--to", ranks, steps: *steps, max_events: None }
    }
}

impl Wanted<'_> {
    /// That the options fit together, before anything is read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from > to => {
                Err(Failure::usage(format!("--from {from} is later than {} {to}", self.to_option)))
            }
            _ => Ok(()),
        }
    }

    /// The selection of a recording, whose run must have the ranks.
    pub(super) fn selection(&self, reader: &Reader) -> Result<Selection, Failure> {
        let start = reader.range().map_or(Stamp(0), |(start, _)| start);
        let moment = |seconds: f64| start.plus_micros((seconds * 1e6) as i64);
        let ranks: Vec<Rank> = self.ranks.iter().cloned().flatten().map(Rank).collect();
        if let Some(spec) = reader.spec() {
            known(&ranks, spec, reader)?;
        }
        Ok(Selection {
            from: self.from.map(moment),
            to: self.to.map(moment),
            ranks: (!ranks.is_empty()).then_some(ranks),
            steps: self.steps,
            max_events: self.max_events,
        })
    }
}

/// That the run has these ranks. Of processes within ranks the recording alone tells which there are.
fn known(ranks: &[Rank], spec: &RunSpec, reader: &Reader) -> Result<(), Failure> {
    let unknown: Vec<Rank> = ranks.iter().copied().filter(|rank| rank.0 >= spec.world()).collect();
    let workers = if unknown.is_empty() { BTreeSet::new() } else { reader.workers() };
    match unknown.iter().find(|rank| !workers.contains(&rank.0)) {
        Some(rank) => Err(Failure::usage(format!("--ranks {rank}: {}", there_are(spec.world())))),
        None => Ok(()),
    }
}

/// `the run has ranks 0 to 3`.
pub(super) fn there_are(world: u32) -> String {
    match world {
        0 | 1 => "the run has rank 0 alone".to_owned(),
        world => format!("the run has ranks 0 to {}", world - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_beginning_is_told_by_the_options_of_the_command() {
        let part = |from, to| PartArgs { from, to, ranks: Vec::new(), steps: None };
        let check = |from, to| Wanted::from(&part(from, to)).check().map_err(|failure| failure.message);
        assert_eq!(check(Some(5.0), Some(2.5)).unwrap_err(), "--from 5 is later than --to 2.5");
        for (from, to) in [(Some(5.0), Some(5.0)), (Some(5.0), None), (None, Some(2.5)), (None, None)] {
            assert!(check(from, to).is_ok(), "{from:?} {to:?}");
        }
        let export = SelectionArgs {
            from: Some(3.0),
            to_time: Some(2.0),
            ranks: Vec::new(),
            steps: None,
            max_events: None,
        };
        let failure = Wanted::from(&export).check().unwrap_err();
        assert_eq!(failure.message, "--from 3 is later than --to-time 2");
    }
}
