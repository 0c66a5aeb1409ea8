//! When the events of a run that is followed happened: by the clocks of their hosts, which pings place on the client's.
//!
//! Where ranks print faster than a client reads, or a link that was cut heals, events come long after they happened. What has no time of
//! its own has that of its arrival; where what a rank reports, or prints, comes late, that of the last of it. Pure: it knows no clock
//! but that of the envelopes.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::clock_fit::ClockFit;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank};
use crate::domain::log::Stream;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;
use crate::tui::source::catch_up::PRESENT_US;

/// What comes so long after it happened is late, microseconds: more than its way takes.
const LATE_US: i64 = 250_000;

/// The times of a run's events.
#[derive(Debug)]
pub(super) struct EventTimes {
    created: Stamp,
    host_of: BTreeMap<Rank, HostId>,
    /// When the last of each series happened: nothing behind it is earlier.
    last: BTreeMap<(Rank, Series), Stamp>,
    /// When the last with a time came of what a rank has reported, and of what it has printed, and when it happened.
    ranks: BTreeMap<(Rank, Way), Told>,
    /// When something came last that was late.
    late_at: Option<Stamp>,
    /// When the latest event happened that a rank has told with its time.
    pub(super) latest: Stamp,
    /// When the latest event happened that a stage waits for, and when the last of them came.
    milestone: Told,
    /// Ranks that have told a step.
    stepped: BTreeSet<Rank>,
    /// When the last stage was entered.
    staged: Stamp,
}

/// What is in order by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Series {
    Lines(Stream),
    /// Of the rank itself or of a process within it.
    Steps(Option<u32>),
}

/// By which way an event comes: one may be behind, and the other not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Report,
    Output,
}

impl Way {
    fn of(event: &Event) -> Self {
        match event {
            Event::LogPrinted { .. } | Event::LogUnfinished { .. } | Event::StepSeen { .. } => Self::Output,
            Event::LogGap { gap } if gap.stream != Stream::Report => Self::Output,
            _ => Self::Report,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Told {
    came: Stamp,
    happened: Stamp,
}

impl EventTimes {
    pub(super) fn new(spec: &RunSpec) -> Self {
        let host_of = spec.placements.iter().map(|placement| (placement.rank, placement.host.clone()));
        let created = spec.created;
        Self {
            created,
            host_of: host_of.collect(),
            last: BTreeMap::new(),
            ranks: BTreeMap::new(),
            late_at: None,
            latest: created,
            milestone: Told { came: created, happened: created },
            stepped: BTreeSet::new(),
            staged: created,
        }
    }

    /// When an event happened that has just come.
    pub(super) fn date<'a>(
        &mut self,
        envelope: &Envelope,
        clock: impl Fn(&HostId) -> Option<&'a ClockFit>,
    ) -> Stamp {
        let (came, event) = (envelope.at, &envelope.event);
        let (rank, worker) = match &envelope.origin {
            Origin::Host(_) => return came,
            Origin::Run(_) => return self.of_run(event, came),
            Origin::Rank(_, rank) => (*rank, None),
            Origin::Worker(_, rank, worker) => (*rank, Some(*worker)),
        };
        let end = event.host_times().map(|(_, end)| end);
        let known = end.and_then(|end| clock(self.host_of.get(&rank)?)?.stamp(end));
        let happened = match known {
            Some(happened) => self.known(rank, worker, event, Told { came, happened }),
            None => self.unknown(rank, event, came),
        };
        let is_first_step = matches!(event, Event::StepDone { .. }) && self.stepped.insert(rank);
        let starts_or_ends =
            matches!(event, Event::RankStarted { .. } | Event::RankConnected | Event::RankExited { .. });
        if is_first_step || starts_or_ends {
            self.milestone = Told { came, happened: self.milestone.happened.max(happened) };
        }
        happened
    }

    /// Whether the ranks' events come late about the time `now`.
    fn is_late(&self, now: Stamp) -> bool {
        self.late_at.is_some_and(|late| (0..PRESENT_US).contains(&now.micros_since(late)))
    }

    /// Until when the ranks have told what happened: behind that, no more of them is awaited at `now`.
    pub(super) fn told_until(&self, now: Stamp) -> Option<Stamp> {
        self.is_late(now).then_some(self.latest)
    }

    fn known(&mut self, rank: Rank, worker: Option<u32>, event: &Event, told: Told) -> Stamp {
        let mut happened = told.happened.max(self.created);
        let series = match event {
            Event::LogPrinted { line } | Event::LogUnfinished { line } => Some(Series::Lines(line.stream)),
            Event::StepDone { .. } => Some(Series::Steps(worker)),
            _ => None,
        };
        if let Some(series) = series {
            let last = self.last.entry((rank, series)).or_insert(happened);
            happened = happened.max(*last);
            *last = happened.min(told.came);
        } else if matches!(event, Event::RankExited { .. }) {
            // a process that it left behind may have printed since
            let own = self.last.iter().filter(|((of, _), _)| *of == rank).map(|(_, last)| *last);
            happened = own.fold(happened, Stamp::max);
        }
        // a clock is placed to within half a round trip
        happened = happened.min(told.came);
        if told.came.micros_since(happened) > LATE_US {
            self.late_at = Some(told.came);
        }
        self.latest = self.latest.max(happened);
        self.ranks.insert((rank, Way::of(event)), Told { happened, ..told });
        happened
    }

    fn unknown(&self, rank: Rank, event: &Event, came: Stamp) -> Stamp {
        // a host tells at once where a rank stands, and that it is lost
        let is_of_now = matches!(event, Event::RankStands { .. } | Event::RankExited { .. });
        let late = |way: Way| {
            self.ranks.get(&(rank, way)).filter(|told| {
                let is_coming = (0..PRESENT_US).contains(&came.micros_since(told.came));
                !is_of_now && is_coming && told.came.micros_since(told.happened) > LATE_US
            })
        };
        // a job tells what it is before its first step: what it has printed by then is all that is late
        let begins =
            matches!(event, Event::JobDescribed { .. } | Event::StepsBy { .. } | Event::RankConnected);
        let told = late(Way::of(event)).or_else(|| if begins { late(Way::Output) } else { None });
        told.map_or(came, |told| told.happened)
    }

    fn of_run(&mut self, event: &Event, came: Stamp) -> Stamp {
        let happened = match event {
            // what follows from an event is told with it
            Event::StageEntered { .. } if self.milestone.came == came => self.milestone.happened,
            Event::StageEntered { .. } => came,
            Event::RunEnded { outcome } => outcome.at.map_or(came, |at| at.max(self.latest)),
            Event::RunRestarted { .. } => {
                self.stepped.clear();
                return came;
            }
            _ => return came,
        };
        self.staged = happened.max(self.staged).min(came);
        self.staged
    }
}

#[cfg(test)]
#[path = "event_times_tests.rs"]
mod tests;
