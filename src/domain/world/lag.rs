//! How far behind the events of a run come: where ranks print faster than a client reads, what they tell is old when it comes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HostState, RunState, World};
use crate::domain::event::Envelope;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::time::Stamp;

/// What came within so long is coming, microseconds; its host tells of itself once a second.
const COMING_US: i64 = 3_000_000;
/// What is told so long after it happened is behind, microseconds.
const BEHIND_US: i64 = 3_000_000;

/// The last event with a time of its own that a rank has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTold {
    /// When its host had told of itself last: a second before it came at most.
    heard: Stamp,
    /// When it happened.
    happened: Stamp,
    /// When the latest of all such events happened.
    latest: Stamp,
}

impl LastTold {
    fn late_us(self, now: Stamp) -> Option<i64> {
        let late_us = self.heard.micros_since(self.happened);
        (now.micros_since(self.heard) < COMING_US && late_us >= BEHIND_US).then_some(late_us)
    }
}

impl World {
    /// The ranks of a run tell nothing more: it has ended, or they are started again.
    pub(super) fn forget_lag(&mut self, run: &RunId) {
        self.hosts.values_mut().for_each(|host| drop(host.told.remove(run)));
    }
}

impl RunState {
    /// A rank has told something. `run`: as the envelope names it.
    pub(super) fn note_lag(
        &self,
        hosts: &mut BTreeMap<HostId, HostState>,
        (run, rank): (&RunId, Rank),
        envelope: &Envelope,
    ) {
        if envelope.event.host_times().is_none() {
            return;
        }
        let Some(known) = self.ranks.get(rank.0 as usize) else { return };
        let Some(host) = hosts.get_mut(&known.placement.host) else { return };
        let Some(heard) = host.latest().map(|(heard, _)| heard) else { return };
        let of_run = match host.told.get_mut(run) {
            Some(of_run) => of_run,
            None => host.told.entry(run.clone()).or_default(),
        };
        let happened = envelope.at;
        let told = of_run.entry(rank).or_insert(LastTold { heard, happened, latest: happened });
        *told = LastTold { heard, happened, latest: told.latest.max(happened) };
    }

    fn told<'a>(&'a self, hosts: &'a BTreeMap<HostId, HostState>) -> impl Iterator<Item = &'a LastTold> {
        let of_hosts = self.by_host.keys().filter_map(|host| hosts.get(host)?.told.get(&self.spec.id));
        of_hosts.flat_map(BTreeMap::values)
    }

    /// By how much what its ranks tell now comes later than it happened, microseconds; `None` where it does not, or nothing comes.
    pub fn behind_us(&self, hosts: &BTreeMap<HostId, HostState>, now: Stamp) -> Option<i64> {
        self.told(hosts).filter(|_| self.is_live()).filter_map(|told| told.late_us(now)).max()
    }

    /// Until when it is known what its ranks do, at `now`.
    pub fn known_until(&self, hosts: &BTreeMap<HostId, HostState>, now: Stamp) -> Stamp {
        let latest = self.told(hosts).map(|told| told.latest).max();
        latest.filter(|_| self.behind_us(hosts, now).is_some()).map_or(now, |latest| latest.min(now))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{blank_sample, spec, timing};
    use crate::domain::event::{Event, Origin};
    use crate::domain::outcome::{RunEnd, RunOutcome};
    use crate::domain::time::HostTime;
    use crate::domain::timing::StepTiming;

    const S: i64 = 1_000_000;

    fn tell(world: &mut World, at: i64, origin: Origin, event: Event) {
        world.apply(&Envelope { seq: 0, at: Stamp(at), origin, event });
    }

    /// The host tells of itself now, and then a rank of a step that ended at `at`.
    fn step(world: &mut World, rank: u32, now: i64, at: i64) {
        let spec = spec(2);
        let host = Origin::Host(spec.placements[rank as usize].host.clone());
        tell(world, now, host, blank_sample());
        let timing = StepTiming { start: HostTime(5), ..timing(1, [100; 6]) };
        let event = Event::StepDone { timing: Arc::new(timing) };
        tell(world, at, Origin::Rank(spec.id, Rank(rank)), event);
    }

    /// By how much the run is behind, and until when it is known.
    fn known(world: &World, now: i64) -> (Option<i64>, Stamp) {
        let run = &world.runs[&spec(2).id];
        (run.behind_us(&world.hosts, Stamp(now)), run.known_until(&world.hosts, Stamp(now)))
    }

    fn begun() -> (World, Origin) {
        let (mut world, spec) = (World::default(), spec(2));
        let run = Origin::Run(spec.id.clone());
        tell(&mut world, 0, run.clone(), Event::RunCreated { spec: Arc::new(spec) });
        (world, run)
    }

    #[test]
    fn a_run_is_behind_while_what_comes_is_old() {
        let (mut world, run) = begun();
        step(&mut world, 0, 10 * S, 9 * S);
        assert_eq!(known(&world, 10 * S), (None, Stamp(10 * S)));
        step(&mut world, 0, 20 * S, 15 * S);
        assert_eq!(known(&world, 21 * S), (Some(5 * S), Stamp(15 * S)));
        // what is older still: it is known up to the latest
        step(&mut world, 0, 21 * S, 12 * S);
        assert_eq!(known(&world, 21 * S), (Some(9 * S), Stamp(15 * S)));
        assert_eq!(world.runs[&spec(2).id].last_at, Stamp(15 * S));
        assert_eq!(known(&world, 24 * S), (None, Stamp(24 * S)), "nothing comes any more");
        step(&mut world, 0, 30 * S, 29 * S);
        assert_eq!(known(&world, 30 * S), (None, Stamp(30 * S)));
        step(&mut world, 0, 40 * S, 31 * S);
        let outcome = RunOutcome::new(RunEnd::Finished, "done");
        tell(&mut world, 41 * S, run, Event::RunEnded { outcome });
        assert_eq!(known(&world, 41 * S).0, None, "it is over");
        assert!(world.hosts.values().all(|host| host.told.is_empty()), "and forgotten");
    }

    #[test]
    fn one_rank_that_is_late_is_enough_whatever_others_tell_meanwhile() {
        let (mut world, run) = begun();
        step(&mut world, 0, 20 * S, 12 * S);
        step(&mut world, 1, 20 * S, 20 * S);
        assert_eq!(known(&world, 20 * S), (Some(8 * S), Stamp(20 * S)));
        step(&mut world, 0, 21 * S, 14 * S);
        step(&mut world, 1, 21 * S, 21 * S);
        assert_eq!(known(&world, 21 * S), (Some(7 * S), Stamp(21 * S)));
        // those of the next attempt have told nothing yet
        let event = Event::RunRestarted { attempt: 2, of: 2, why: "it failed".to_owned(), root: Rank(0) };
        tell(&mut world, 21 * S, run, event);
        assert_eq!(known(&world, 21 * S), (None, Stamp(21 * S)));
    }
}
