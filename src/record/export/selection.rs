//! Which part of a recording is exported or told of: one choice, and one place that decides, for all formats.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::domain::gpu::GpuSample;
use crate::domain::host::HostSample;
use crate::domain::ids::{GpuUuid, HostId, Rank};
use crate::domain::run::{Placement, RunSpec, Slot};
use crate::domain::time::Stamp;
use crate::domain::trainer_keys::TrainerId;

/// What of a recording is exported, or told of by its figures; all by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// From this moment; the start of the recording when absent.
    pub from: Option<Stamp>,
    /// Up to this moment; the end of the recording when absent.
    pub to: Option<Stamp>,
    /// These ranks; all when absent.
    pub ranks: Option<Vec<Rank>>,
    /// These steps, and of everything that has no step number what happened during them; all when absent.
    pub steps: Option<StepRange>,
    /// At most so many events; viewers in a browser give up at about a million.
    pub max_events: Option<u64>,
}

/// Steps by their number, both ends included; an end that is absent is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRange {
    /// The first step.
    pub first: Option<u64>,
    /// The last step.
    pub last: Option<u64>,
}

impl StepRange {
    /// Whether a step is one of them.
    pub fn contains(&self, step: u64) -> bool {
        self.first.is_none_or(|first| step >= first) && self.last.is_none_or(|last| step <= last)
    }
}

/// A text that names no range of steps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSteps {
    /// It has another form.
    #[error("write it as 5-10, 5-, -10 or 7")]
    Form,
    /// Its ends are the wrong way round.
    #[error("step {0} comes after step {1}: the first step goes first")]
    Order(u64, u64),
    /// There is no such step.
    #[error("steps are counted from 1")]
    Zero,
}

impl FromStr for StepRange {
    type Err = BadSteps;

    fn from_str(text: &str) -> Result<Self, BadSteps> {
        let number = |text: &str| match text.parse::<u64>() {
            Ok(0) => Err(BadSteps::Zero),
            // `parse` takes a sign
            Ok(number) if !text.starts_with('+') => Ok(number),
            _ => Err(BadSteps::Form),
        };
        let end = |text: &str| if text.is_empty() { Ok(None) } else { number(text).map(Some) };
        let (first, last) = match text.trim().split_once('-') {
            None => {
                let step = number(text.trim())?;
                (Some(step), Some(step))
            }
            Some(("", "")) => return Err(BadSteps::Form),
            Some((first, last)) => (end(first)?, end(last)?),
        };
        match (first, last) {
            (Some(first), Some(last)) if first > last => Err(BadSteps::Order(first, last)),
            _ => Ok(Self { first, last }),
        }
    }
}

/// A span of time, nanoseconds since the Unix epoch by the client's clock, both ends included.
pub(super) type Span = (i64, i64);

/// A selection with what must be known of its run to decide: its ranks' places, and when its steps were.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    selection: &'a Selection,
    placements: BTreeMap<Rank, Placement>,
    /// Without a spec every rank is taken, unless some were asked for.
    is_known: bool,
    /// When the steps that were asked for were made; `None` where none was.
    during: Option<Span>,
}

impl<'a> Chosen<'a> {
    /// A choice by ranks and times, and as yet of no step if some were asked for: see [`Chosen::set_during`].
    pub(super) fn new(selection: &'a Selection, spec: Option<&RunSpec>) -> Self {
        let placements = spec.iter().flat_map(|spec| &spec.placements);
        Self {
            selection,
            placements: placements.map(|placement| (placement.rank, placement.clone())).collect(),
            is_known: spec.is_some(),
            during: None,
        }
    }

    /// Tells from when to when the chosen steps were.
    pub(super) fn set_during(&mut self, span: Option<Span>) {
        self.during = span;
    }

    /// When the chosen steps were; `None` where none was, and where none are chosen.
    pub(super) fn during(&self) -> Option<Span> {
        self.during
    }

    /// The chosen ranks and where they run; empty where the recording does not tell.
    pub(super) fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.placements.values().filter(|placement| self.has_rank(placement.rank))
    }

    /// The GPUs of the chosen ranks on a host, as a sample of it tells them, with the ranks that have them.
    pub(super) fn gpus<'s>(
        &'s self,
        host: &'s HostId,
        sample: &'s HostSample,
    ) -> impl Iterator<Item = (&'s Placement, &'s GpuUuid, &'s GpuSample)> {
        let here = self.placements().filter(move |placement| placement.host == *host);
        let slots = here.flat_map(|placement| placement.slots().map(move |slot| (placement, slot)));
        slots.filter_map(|(placement, slot)| {
            let Slot::Gpu { index, uuid } = slot else { return None };
            Some((placement, uuid, sample.gpus.iter().find(|gpu| gpu.index == *index)?))
        })
    }

    /// Where a rank runs, chosen or not.
    pub(super) fn placement(&self, rank: Rank) -> Option<&Placement> {
        self.placements.get(&rank)
    }

    /// Whether a rank is chosen.
    pub(super) fn has_rank(&self, rank: Rank) -> bool {
        match &self.selection.ranks {
            Some(wanted) => wanted.contains(&rank),
            None => !self.is_known || self.placements.contains_key(&rank),
        }
    }

    /// Whether one that trains is chosen: by its own number where some were asked for.
    pub(super) fn has_trainer(&self, id: TrainerId) -> bool {
        match &self.selection.ranks {
            Some(wanted) => wanted.contains(&Rank(id.number)),
            None => self.has_rank(id.rank),
        }
    }

    /// Whether a host has a chosen rank.
    pub(super) fn has_host(&self, host: &HostId) -> bool {
        !self.is_known || self.placements().any(|placement| placement.host == *host)
    }

    /// Whether a step is chosen by its number.
    pub(super) fn has_step(&self, step: u64) -> bool {
        self.selection.steps.is_none_or(|steps| steps.contains(step))
    }

    /// Whether a moment is chosen.
    pub(super) fn has_moment(&self, at: i64) -> bool {
        self.has_span((at, at))
    }

    /// Whether a part of a span is chosen.
    pub(super) fn has_span(&self, (start, end): Span) -> bool {
        self.window().is_some_and(|(first, last)| end >= first && start <= last)
    }

    /// From when to when something is chosen; `None` where no step is.
    pub(super) fn window(&self) -> Option<Span> {
        let Selection { from, to, steps, .. } = self.selection;
        let first = from.map_or(i64::MIN, |from| from.0.saturating_mul(1_000));
        let last = to.map_or(i64::MAX, |to| to.0.saturating_mul(1_000).saturating_add(999));
        match steps {
            None => Some((first, last)),
            Some(_) => self.during.map(|during| (first.max(during.0), last.min(during.1))),
        }
    }

    /// At most so many events.
    pub(super) fn max_events(&self) -> u64 {
        self.selection.max_events.unwrap_or(u64::MAX)
    }

    /// Whether the end of the run is chosen.
    pub(super) fn has_end(&self) -> bool {
        self.selection.to.is_none() && self.selection.steps.is_none_or(|steps| steps.last.is_none())
    }

    /// Whether steps are chosen by their number.
    pub(super) fn is_by_steps(&self) -> bool {
        self.selection.steps.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_written_in_four_ways() {
        let read = |text: &str| text.parse::<StepRange>().map(|range| (range.first, range.last));
        assert_eq!(read("5-10"), Ok((Some(5), Some(10))));
        assert_eq!(read("5-"), Ok((Some(5), None)));
        assert_eq!(read("-10"), Ok((None, Some(10))));
        assert_eq!(read("7"), Ok((Some(7), Some(7))));
        assert_eq!(read("5-3"), Err(BadSteps::Order(5, 3)));
        assert_eq!(read("0-3"), Err(BadSteps::Zero));
        for text in ["", "-", "a", "1-2-3", "+5", "5-+7", "1.5", "99999999999999999999"] {
            assert_eq!(read(text), Err(BadSteps::Form), "{text:?}");
        }
        let range: StepRange = "5-7".parse().unwrap();
        assert_eq!([4, 5, 7, 8].map(|step| range.contains(step)), [false, true, true, false]);
    }

    #[test]
    fn a_span_is_chosen_when_a_part_of_it_is() {
        let selection = Selection { from: Some(Stamp(10)), to: Some(Stamp(20)), ..Selection::default() };
        let chosen = Chosen::new(&selection, None);
        let spans = [(0, 9_999), (0, 10_000), (12_000, 13_000), (20_999, 30_000), (21_000, 30_000)];
        assert_eq!(spans.map(|span| chosen.has_span(span)), [false, true, true, true, false]);
        assert_eq!(chosen.window(), Some((10_000, 20_999)));
        assert!(chosen.has_rank(Rank(9)) && chosen.has_host(&HostId::from("a")));
        let steps = Some(StepRange { first: Some(2), last: Some(3) });
        let selection = Selection { steps, ranks: Some(vec![Rank(1)]), ..Selection::default() };
        let mut chosen = Chosen::new(&selection, None);
        assert!(!chosen.has_moment(5) && chosen.window().is_none(), "no such step was made");
        chosen.set_during(Some((4, 6)));
        assert_eq!(chosen.window(), Some((4, 6)));
        assert_eq!([3, 4, 6, 7].map(|at| chosen.has_moment(at)), [false, true, true, false]);
        assert_eq!([1, 2].map(|rank| chosen.has_rank(Rank(rank))), [true, false]);
        assert_eq!([1, 2, 3, 4].map(|step| chosen.has_step(step)), [false, true, true, false]);
    }
}
