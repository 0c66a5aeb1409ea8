//! When hosts of a run were cut off from the client that follows it. A fold.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::bounded::push_bounded;
use super::host_state::HostState;
use super::ids::HostId;
use super::time::Stamp;
use super::units::ranges;
use super::world::{RunState, World};

/// How many are kept of a run, the newest.
const MOST: usize = 64;

/// A time in which a host was not heard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Which.
    pub host: HostId,
    /// Since its last word.
    pub from: Stamp,
    /// Until its link came up again; `None` where it did not.
    pub until: Option<Stamp>,
}

/// Those of a run, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages(VecDeque<Outage>);

impl Outages {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Outage> {
        self.0.iter()
    }

    fn take(&mut self, host: &HostId, change: Change) {
        match change {
            Change::Lost(from) => {
                push_bounded(&mut self.0, Outage { host: host.clone(), from, until: None }, MOST);
            }
            Change::Back(at) => {
                let open = self.0.iter_mut().rfind(|outage| outage.host == *host);
                if let Some(open) = open.filter(|outage| outage.until.is_none()) {
                    open.until = Some(at);
                }
            }
        }
    }
}

/// What has become of the link to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Lost(Stamp),
    Back(Stamp),
}

impl Change {
    /// What an event of `at` has changed: whether it was lost before it, and had ever answered. One that never has is no host that
    /// is lost.
    pub(super) fn of(before: Option<Stamp>, was_heard: bool, state: &HostState, at: Stamp) -> Option<Self> {
        match (before, state.down_since) {
            (None, Some(since)) if was_heard => Some(Self::Lost(since)),
            (Some(_), None) => Some(Self::Back(at)),
            _ => None,
        }
    }
}

impl World {
    /// The link to a host was lost, or is up again: its runs that go on know of it.
    pub(super) fn link_changed(&mut self, host: &HostId, change: Change) {
        let runs = self.runs.values_mut().filter(|run| run.is_live() && run.by_host.contains_key(host));
        runs.for_each(|run| run.history.outages.take(host, change));
    }
}

impl RunState {
    /// Its ranks on a host, in words: `rank 2`, `ranks 4-7`.
    pub fn ranks_on(&self, host: &HostId) -> String {
        match self.by_host.get(host).map_or(&[][..], |ranks| ranks) {
            [] => "no rank".to_owned(),
            [rank] => format!("rank {rank}"),
            several => format!("ranks {}", ranges(several.iter().map(|rank| rank.0))),
        }
    }
}
