//! Whose the slices of other programs' traces are: each thread that has steps is a rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::intervals::Span;
use super::kineto_ranks::TraceFile;
use super::kineto_steps::Lane;
use super::slices::{Slices, Told};
use super::source::natural;
use super::trace_event::TraceEvent;
use crate::domain::units::counted;

/// The threads of all files, and what is to be said of them.
#[derive(Debug)]
pub(super) struct Threads {
    slices: Slices,
    is_one_of_several: bool,
    /// A step has the number 0.
    pub(super) has_0: bool,
    /// Ranks whose numbers nothing tells.
    pub(super) numbered: u64,
    uncounted: u64,
    nested: u64,
    onwards: u64,
    elsewhere: u64,
}

impl Threads {
    /// Of so many files in which the slices of this name are steps.
    pub(super) fn new(step: &str, files: usize) -> Self {
        Self {
            slices: Slices::new(step),
            is_one_of_several: files > 1,
            has_0: false,
            numbered: 0,
            uncounted: 0,
            nested: 0,
            onwards: 0,
            elsewhere: 0,
        }
    }

    /// The thread of a slice that has ended, what it is and from when to when.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) -> Option<(String, Told, Span)> {
        self.slices.take(event)
    }

    /// A file is over: its threads are its own, or its ranks, by the names of their processes (`labels`) or else in their order.
    ///
    /// # Errors
    /// Where several threads have steps, and it is one of several files.
    pub(super) fn end_file(
        &mut self,
        file: &mut TraceFile,
        lanes: Vec<(String, Lane)>,
        labels: &BTreeMap<String, (u32, String)>,
    ) -> Result<(), String> {
        self.slices.end_file();
        let (mut lanes, idle): (Vec<_>, Vec<_>) =
            lanes.into_iter().partition(|(_, lane)| !lane.slices.is_empty());
        self.elsewhere += idle.iter().map(|(_, lane)| lane.parts_of_thread() as u64).sum::<u64>();
        for (_, lane) in &mut lanes {
            let numbers = || lane.slices.iter().map(|(number, _)| *number);
            self.has_0 |= numbers().any(|number| number == Some(0));
            self.uncounted += numbers().filter(Option::is_none).count() as u64;
            let (nested, other) = lane.end_thread();
            (self.nested, self.onwards) = (self.nested + nested, self.onwards + other);
        }
        lanes.sort_by_cached_key(|(thread, _)| natural(Path::new(thread)));
        let named = |thread: &str| thread.split_once('\n').and_then(|(pid, _)| labels.get(pid));
        let ranks: Vec<Option<u32>> = lanes.iter().map(|(thread, _)| Some(named(thread)?.0)).collect();
        if lanes.len() < 2 {
            if let Some((thread, lane)) = lanes.pop() {
                (file.pid, file.own) = (thread, lane);
                file.rank = file.rank.or(ranks.first().copied().flatten());
            }
            return Ok(());
        }
        if self.is_one_of_several {
            let threads = counted(lanes.len(), "thread");
            return Err(format!("{threads} of it have steps: import it by itself, not among other files"));
        }
        let told: BTreeSet<u32> = ranks.iter().flatten().copied().collect();
        let are_named = told.len() == lanes.len();
        self.numbered += if are_named { 0 } else { lanes.len() as u64 };
        for ((at, (_, lane)), rank) in (0..).zip(lanes).zip(ranks) {
            let rank = rank.filter(|_| are_named).unwrap_or(at);
            file.others.insert(rank, (String::new(), lane));
        }
        Ok(())
    }

    /// What is left out or unknown, how much of it there is, and why.
    pub(super) fn left_out(&self) -> [(&'static str, u64, &'static str); 6] {
        [
            ("steps that have no number", self.uncounted, "they are counted on their thread"),
            ("steps within a step", self.nested, "their slices lie in one of the same name"),
            (
                "steps numbered onwards",
                self.onwards,
                "their numbers begin anew, as in each epoch: they go on behind the ones before",
            ),
            ("phases on threads without a step", self.elsewhere, "they run beside the steps"),
            (
                "steps and phases without an end",
                self.slices.unended,
                "they begin, and nothing says that they end",
            ),
            ("other slices", self.slices.others, "they are neither the step nor called as a phase is"),
        ]
    }
}
