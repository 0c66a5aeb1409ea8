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

/// The last event with a time of its own that the ranks of a run on one host have told.
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
    /// A rank has told something.
    pub(super) fn note_lag(&mut self, run: &RunId, rank: Rank, envelope: &Envelope) {
        if envelope.event.host_times().is_none() {
            return;
        }
        let ranks = self.runs.get(run).map(|run| &run.ranks);
        let rank = ranks.and_then(|ranks| ranks.get(rank.0 as usize));
        let host = rank.and_then(|rank| self.hosts.get_mut(&rank.placement.host));
        let Some((host, heard)) = host.and_then(|host| host.latest().map(|(at, _)| at).map(|at| (host, at)))
        else {
            return;
        };
        let happened = envelope.at;
        let latest = host.told.get(run).map_or(happened, |told| told.latest.max(happened));
        host.told.insert(run.clone(), LastTold { heard, happened, latest });
    }
}

impl RunState {
    fn told<'a>(&'a self, hosts: &'a BTreeMap<HostId, HostState>) -> impl Iterator<Item = &'a LastTold> {
        self.by_host.keys().filter_map(|host| hosts.get(host)?.told.get(&self.spec.id))
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
    use crate::domain::analysis::fixtures::{spec, timing};
    use crate::domain::event::{Event, Origin};
    use crate::domain::gpu::Reading;
    use crate::domain::host::HostSample;
    use crate::domain::outcome::{RunEnd, RunOutcome};
    use crate::domain::time::HostTime;
    use crate::domain::timing::StepTiming;

    const S: i64 = 1_000_000;

    fn tell(world: &mut World, at: i64, origin: Origin, event: Event) {
        world.apply(&Envelope { seq: 0, at: Stamp(at), origin, event });
    }

    /// The host tells of itself now, and then rank 0 of a step that ended at `at`.
    fn step(world: &mut World, now: i64, at: i64) {
        let spec = spec(2);
        let sample = HostSample {
            cpu_percent: Reading::Unsupported,
            memory_used: Reading::Unsupported,
            load: Reading::Unsupported,
            net_rx: Reading::Unsupported,
            net_tx: Reading::Unsupported,
            gpus: Vec::new(),
        };
        let host = Origin::Host(spec.placements[0].host.clone());
        tell(world, now, host, Event::HostSampled { sample: Arc::new(sample) });
        let timing = StepTiming { start: HostTime(5), ..timing(1, [100; 6]) };
        let event = Event::StepDone { timing: Arc::new(timing) };
        tell(world, at, Origin::Rank(spec.id, Rank(0)), event);
    }

    #[test]
    fn a_run_is_behind_while_what_comes_is_old() {
        let (mut world, spec) = (World::default(), spec(2));
        let run = Origin::Run(spec.id.clone());
        tell(&mut world, 0, run.clone(), Event::RunCreated { spec: Arc::new(spec.clone()) });
        step(&mut world, 10 * S, 9 * S);
        let known = |world: &World, now: i64| {
            let run = &world.runs[&spec.id];
            (run.behind_us(&world.hosts, Stamp(now)), run.known_until(&world.hosts, Stamp(now)))
        };
        assert_eq!(known(&world, 10 * S), (None, Stamp(10 * S)));
        step(&mut world, 20 * S, 15 * S);
        assert_eq!(known(&world, 21 * S), (Some(5 * S), Stamp(15 * S)));
        // another rank's is older: it is known up to the latest
        step(&mut world, 21 * S, 12 * S);
        assert_eq!(known(&world, 21 * S), (Some(9 * S), Stamp(15 * S)));
        assert_eq!(world.runs[&spec.id].last_at, Stamp(15 * S));
        assert_eq!(known(&world, 24 * S), (None, Stamp(24 * S)), "nothing comes any more");
        step(&mut world, 30 * S, 29 * S);
        assert_eq!(known(&world, 30 * S), (None, Stamp(30 * S)));
        step(&mut world, 40 * S, 31 * S);
        let outcome = RunOutcome::new(RunEnd::Finished, "done");
        tell(&mut world, 41 * S, run, Event::RunEnded { outcome });
        assert_eq!(known(&world, 41 * S).0, None, "it is over");
    }
}
