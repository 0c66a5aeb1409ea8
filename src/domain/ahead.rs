//! What a replay knows of the time after its playhead, for the part of the timeline that lies there.

use std::collections::BTreeMap;

use super::ids::{HostId, Rank, RunId};
use super::past::PastSample;
use super::recent_steps::Arrived;
use super::time::{HostTime, Stamp};
use super::timing::Phase;
use super::world::World;

/// The steps and samples of a run between two moments.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimelineAhead {
    /// They came after this moment; all of them are there.
    pub after: Stamp,
    /// Up to this one.
    pub until: Stamp,
    /// By the key of the one that trains, each with the moment at which it was told, oldest first.
    steps: BTreeMap<Rank, Vec<Arrived>>,
    /// In which phase one stands at its end, from when to when.
    open_phases: BTreeMap<Rank, (Phase, Stamp, Stamp)>,
    samples: BTreeMap<HostId, Vec<PastSample>>,
    /// When NCCL's collectives began, and how many microseconds they took.
    collectives: BTreeMap<Rank, Vec<(HostTime, u32)>>,
}

impl TimelineAhead {
    /// What a later world knows of a run after this moment. A world keeps the newest steps alone: where they do not reach back
    /// so far, it is what came after the oldest one.
    pub fn of(later: &World, run: &RunId, after: Stamp, until: Stamp) -> Self {
        let mut ahead = Self { after, until, ..Self::default() };
        let Some(run) = later.runs.get(run) else { return ahead };
        for one in run.trainers() {
            let state = one.state;
            let oldest = state.steps.front().filter(|_| state.step_count > state.steps.len() as u64);
            if let Some((oldest, _)) = oldest {
                ahead.after = ahead.after.max(*oldest);
            }
            ahead.steps.insert(one.key, state.steps.after(after).cloned().collect());
            if let Some(open) = run.open_phase(one, until) {
                ahead.open_phases.insert(one.key, open);
            }
            ahead.collectives.insert(one.key, run.collectives.recent(one.key).collect());
        }
        for host in run.by_host.keys() {
            let Some(state) = later.hosts.get(host) else { continue };
            let newer = state.past.after(&|past| past.at <= after);
            ahead.samples.insert(host.clone(), newer.cloned().collect());
        }
        ahead
    }

    /// The steps of one that trains, oldest first, those told after `moment`.
    pub fn steps(&self, number: Rank, moment: Stamp) -> &[Arrived] {
        let steps = self.steps.get(&number).map_or(&[][..], Vec::as_slice);
        &steps[steps.partition_point(|(arrived, _)| *arrived <= moment)..]
    }

    /// The phase in which one that trains stands at its end, from when to when.
    pub fn open_phase(&self, number: Rank) -> Option<(Phase, Stamp, Stamp)> {
        self.open_phases.get(&number).copied()
    }

    /// The newest collectives of one that trains, oldest first; some may have begun before the moment.
    pub fn collectives(&self, number: Rank) -> &[(HostTime, u32)] {
        self.collectives.get(&number).map_or(&[], Vec::as_slice)
    }

    /// The samples of a host, oldest first, those that came after `moment`.
    pub fn samples(&self, host: &HostId, moment: Stamp) -> &[PastSample] {
        let samples = self.samples.get(host).map_or(&[][..], Vec::as_slice);
        &samples[samples.partition_point(|past| past.at <= moment)..]
    }
}
