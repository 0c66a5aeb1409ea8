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
use crate::domain::run::{RunSpec, RunStage};
use crate::domain::time::{HostTime, Stamp};
use crate::tui::source::catch_up::PRESENT_US;

/// What comes so long after it happened is late, microseconds: more than its way takes.
const LATE_US: i64 = 250_000;

/// The times of a run's events.
#[derive(Debug)]
pub(super) struct EventTimes {
    created: Stamp,
    host_of: BTreeMap<Rank, HostId>,
    /// When each rank's process was started, by its host's clock: nothing of it is earlier.
    started: BTreeMap<Rank, HostTime>,
    /// When the last of each series happened: nothing behind it is earlier.
    last: BTreeMap<(Rank, Series), Stamp>,
    /// When the last with a time came of what a rank has reported, and of what it has printed, and when it happened.
    ranks: BTreeMap<(Rank, Way), Told>,
    /// When something came last that was late.
    late_at: Option<Stamp>,
    /// When the latest event happened that a rank has told with its time.
    latest: Stamp,
    /// When the latest event happened that a stage waits for, and when the last of them came.
    milestone: Told,
    /// Ranks that have told a step.
    stepped: BTreeSet<Rank>,
    /// When ranks ended.
    ended: BTreeMap<Rank, Stamp>,
    /// The stage that the run is in, and when it was entered.
    stage: (Option<RunStage>, Stamp),
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

impl Series {
    fn of(event: &Event, worker: Option<u32>) -> Option<Self> {
        match event {
            Event::LogPrinted { line } | Event::LogUnfinished { line } => Some(Self::Lines(line.stream)),
            Event::StepDone { .. } => Some(Self::Steps(worker)),
            _ => None,
        }
    }
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
            started: BTreeMap::new(),
            last: BTreeMap::new(),
            ranks: BTreeMap::new(),
            late_at: None,
            latest: created,
            milestone: Told { came: created, happened: created },
            stepped: BTreeSet::new(),
            ended: BTreeMap::new(),
            stage: (None, created),
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
        if let Event::RankStarted { t, .. } = event {
            self.started.insert(rank, *t);
        }
        let clock = self.host_of.get(&rank).and_then(clock);
        let happened = match clock.and_then(|clock| self.by_its_host(rank, event, clock)) {
            Some(happened) => self.known(rank, worker, event, Told { came, happened }),
            None => self.unknown(rank, event, came),
        };
        let is_first_step = matches!(event, Event::StepDone { .. }) && self.stepped.insert(rank);
        let starts_or_ends =
            matches!(event, Event::RankStarted { .. } | Event::RankConnected | Event::RankExited { .. });
        if is_first_step || starts_or_ends {
            self.milestone = Told { came, happened: self.milestone.happened.max(happened) };
        }
        if matches!(event, Event::RankExited { .. }) {
            self.ended.insert(rank, happened);
        }
        happened
    }

    /// An event lies at its `at`, for it was caught up with: what is dated from now on is not earlier where one follows the other.
    pub(super) fn follow(&mut self, envelope: &Envelope) {
        let (at, event) = (envelope.at, &envelope.event);
        let (rank, worker) = match &envelope.origin {
            Origin::Host(_) => return,
            Origin::Run(_) => {
                match event {
                    Event::StageEntered { stage, .. } => self.enter(*stage, at),
                    Event::RunRestarted { .. } => self.restart(),
                    _ => {}
                }
                return;
            }
            Origin::Rank(_, rank) => (*rank, None),
            Origin::Worker(_, rank, worker) => (*rank, Some(*worker)),
        };
        if matches!(event, Event::RankExited { .. }) {
            self.ended.insert(rank, at);
        }
        if event.host_times().is_some() {
            self.latest = self.latest.max(at);
            if let Some(series) = Series::of(event, worker) {
                let last = self.last.entry((rank, series)).or_insert(at);
                *last = at.max(*last);
            }
        }
    }

    /// Until when all is told that happened, of which one knows at `now`; `None`: no more is awaited. While events come late, the ranks
    /// have told up to the latest of them, and of a run whose ranks have ended nothing more happens.
    pub(super) fn told_until(&self, now: Stamp) -> Option<Stamp> {
        let end = self.ended.values().max().filter(|_| self.ended.len() >= self.host_of.len());
        end.copied().or_else(|| self.is_late(now).then_some(self.latest))
    }

    /// Whether the ranks' events come late about the time `now`.
    fn is_late(&self, now: Stamp) -> bool {
        self.late_at.is_some_and(|late| (0..PRESENT_US).contains(&now.micros_since(late)))
    }

    /// When an event happened by its host's clock. What a program reports is its own word: it may count in other units, or by the clock
    /// of a container, and then happened before the program began.
    fn by_its_host(&self, rank: Rank, event: &Event, clock: &ClockFit) -> Option<Stamp> {
        let (begin, end) = event.host_times()?;
        if matches!(event, Event::RankExited { exit } if exit.is_of_reboot()) {
            // the rank's start is by the clock of the boot before; so is what is known of the clock, where this one lies before the run
            return clock.stamp(end).filter(|boot| *boot >= self.created);
        }
        let started = self.started.get(&rank).copied().unwrap_or(HostTime(0));
        if matches!(event, Event::StepDone { .. } | Event::CollectiveDone { .. }) {
            let is_there = begin >= started && clock.stamp(begin)? >= self.created;
            return clock.stamp(end).filter(|_| is_there);
        }
        clock.stamp(end.max(started))
    }

    fn known(&mut self, rank: Rank, worker: Option<u32>, event: &Event, told: Told) -> Stamp {
        let mut happened = told.happened.max(self.created);
        if let Some(series) = Series::of(event, worker) {
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
        let within = |happened: Stamp, staged: Stamp| happened.max(staged).min(came);
        match event {
            Event::StageEntered { stage, .. } => {
                // what follows from an event is told with it
                let is_due = self.milestone.came == came;
                let happened = within(if is_due { self.milestone.happened } else { came }, self.stage.1);
                self.enter(*stage, happened);
                happened
            }
            Event::RunEnded { outcome } => {
                let last = self.ended.values().fold(self.latest, |last, ended| last.max(*ended));
                within(outcome.at.map_or(came, |at| at.max(last)), self.stage.1)
            }
            Event::RunRestarted { .. } => {
                self.restart();
                came
            }
            _ => came,
        }
    }

    /// A stage that is told again, for others are waited for now, was entered when it was.
    fn enter(&mut self, stage: RunStage, at: Stamp) {
        if self.stage.0 != Some(stage) {
            self.stage = (Some(stage), at.max(self.stage.1));
        }
    }

    fn restart(&mut self) {
        self.stepped.clear();
        self.ended.clear();
    }
}

#[cfg(test)]
#[path = "event_times_tests.rs"]
mod tests;
