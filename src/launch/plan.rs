//! A launch, planned in full: what runs where and by which addresses its ranks meet. What is shown is what is started.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::domain::ids::HostId;
use crate::domain::run::{HostRun, Placement, RankSpec, RunSpec};
use crate::domain::time::Stamp;
use crate::launch::remark::Remark;
use crate::launch::request::LaunchRequest;

/// A launch, planned in full. What is known only when the hosts are ready (ports, the run's secret) comes at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The run.
    pub spec: RunSpec,
    /// Each host's share, hosts in rank order.
    pub hosts: Vec<HostRun>,
    /// Where its ranks meet.
    pub rendezvous: Rendezvous,
    /// The hosts in the order in which their GPUs are leased: the same for every client, whatever it calls them.
    pub lease_order: Vec<HostId>,
    /// What the user should know before the start, a sentence each.
    pub remarks: Vec<Remark>,
    /// What was asked for, where that names no slots: it is placed again where another launch takes these first.
    pub request: Option<Box<LaunchRequest>>,
}

/// Where ranks listen and where they meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendezvous {
    /// For each host the address its ranks listen on: `HVTUI_BIND`.
    pub bind: BTreeMap<HostId, IpAddr>,
    /// The address of rank 0's host: `MASTER_ADDR`.
    pub master: IpAddr,
}

impl Rendezvous {
    /// The address on which the ranks of a host listen.
    pub fn of(&self, host: &HostId) -> IpAddr {
        self.bind.get(host).copied().unwrap_or(self.master)
    }
}

impl LaunchPlan {
    /// The same plan, asked for at this moment: it may have stood on a form for long.
    #[must_use]
    pub fn asked_for(mut self, at: Stamp) -> Self {
        self.spec.created = at;
        for whole in self.hosts.iter_mut().filter_map(|share| share.run_spec.as_mut()) {
            whole.created = at;
        }
        self
    }

    /// Each host's share, in the order in which their GPUs are leased.
    pub fn in_lease_order(&self) -> Vec<HostRun> {
        let share = |id: &HostId| self.hosts.iter().find(|share| share.host == *id).cloned();
        self.lease_order.iter().filter_map(share).collect()
    }

    /// Each rank in rank order, with what it executes.
    pub fn ranks(&self) -> impl Iterator<Item = (&Placement, &RankSpec)> {
        let specs: BTreeMap<_, &RankSpec> =
            self.hosts.iter().flat_map(|host| &host.ranks).map(|spec| (spec.rank, spec)).collect();
        self.spec
            .placements
            .iter()
            .filter_map(move |placement| Some((placement, *specs.get(&placement.rank)?)))
    }
}
