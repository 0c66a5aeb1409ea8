//! Which CPU slots live runs have, by what hosts tell of their runs, and are asked for when a launch is about to choose among these
//! slots: no lease tells it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::HostFacts;
use crate::domain::ids::HostId;
use crate::domain::run::{Placement, Slot};
use crate::domain::run_status::{HostRunStatus, cpu_slots_of};
use crate::domain::time::Stamp;
use crate::launch::plan::LaunchPlan;
use crate::launch::request::{LaunchRequest, PlacementSpec};

/// How long a launch waits for that, microseconds: it is a matter of preference.
const PATIENCE_US: i64 = 2_000_000;

/// Those that are in use, by what hosts told last.
#[derive(Debug, Default)]
pub(super) struct InUse {
    whole: BTreeMap<HostId, BTreeSet<u32>>,
    /// Of hosts that have not told all yet.
    parts: BTreeMap<HostId, BTreeSet<u32>>,
}

impl InUse {
    /// Takes in what a host tells of runs, with `last` the last of it.
    pub(super) fn hear(&mut self, host: &HostId, shares: &[HostRunStatus], last: bool) {
        let mut slots = self.parts.remove(host).unwrap_or_default();
        slots.extend(cpu_slots_of(shares));
        let to = if last { &mut self.whole } else { &mut self.parts };
        to.insert(host.clone(), slots);
    }

    /// Notes in the facts which slots are in use.
    pub(super) fn note(&self, facts: &mut [HostFacts]) {
        for facts in facts {
            if let Some(in_use) = self.whole.get(&facts.id) {
                facts.in_use.clone_from(in_use);
            }
        }
    }
}

/// What a launch has asked of them.
#[derive(Debug, Default)]
pub(super) struct CpuSlots {
    /// When the hosts were asked.
    asked: Option<Stamp>,
    /// Hosts that have not told all.
    due: BTreeSet<HostId>,
}

impl CpuSlots {
    /// The hosts that are to be asked before this plan is carried out: all that it could have taken CPU slots of, where it takes some
    /// of them and not all. A launch asks once.
    pub(super) fn ask(
        &mut self,
        request: &LaunchRequest,
        planned: &LaunchPlan,
        facts: &[HostFacts],
        at: Stamp,
    ) -> Vec<HostId> {
        let named = |host: &HostId| match &request.place {
            PlacementSpec::Hosts { hosts, .. } => hosts.iter().any(|(name, _)| name == host),
            PlacementSpec::Picks(_) => false,
            _ => true,
        };
        let may_be =
            |facts: &&HostFacts| facts.absent.is_none() && named(&facts.id) && of_cpus(&facts.slots) > 0;
        let (mut hosts, mut all) = (Vec::new(), 0);
        for facts in facts.iter().filter(may_be) {
            all += of_cpus(&facts.slots);
            hosts.push(facts.id.clone());
        }
        let taken = of_cpus(planned.spec.placements.iter().flat_map(Placement::slots));
        if self.asked.is_some() || taken == 0 || taken >= all {
            return Vec::new();
        }
        self.asked = Some(at);
        self.due = hosts.iter().cloned().collect();
        hosts
    }

    /// Whether an answer may still come.
    pub(super) fn waits(&self, now: Stamp) -> bool {
        let in_time = |asked: Stamp| now.micros_since(asked) < PATIENCE_US;
        !self.due.is_empty() && self.asked.is_some_and(in_time)
    }

    /// A host has told all.
    pub(super) fn told(&mut self, host: &HostId) {
        self.due.remove(host);
    }
}

fn of_cpus<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> usize {
    slots.into_iter().filter(|slot| matches!(slot, Slot::Cpu { .. })).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run_status, placement, run_spec};
    use crate::domain::ids::RunId;
    use crate::launcher::fixtures::{cpu_host, request};
    use crate::launcher::plan::plan;

    #[test]
    fn a_launch_with_a_choice_asks_once_and_takes_free_slots_first() {
        let mut facts = vec![cpu_host("a", 2), cpu_host("b", 2)];
        let planned = |request: &LaunchRequest, facts: &[HostFacts]| {
            plan(request, facts, RunId::new(9, 9), Stamp(0)).unwrap()
        };
        let slots = |planned: &LaunchPlan| -> Vec<String> {
            planned.spec.placements.iter().map(ToString::to_string).collect()
        };
        let one = request("true", PlacementSpec::Hosts { hosts: vec![("a".into(), 1)], np: None });
        let mut known = CpuSlots::default();
        let first = planned(&one, &facts);
        assert_eq!(slots(&first), ["a:0"]);
        assert_eq!(known.ask(&one, &first, &facts, Stamp(0)), [HostId::from("a")]);
        assert!(known.ask(&one, &first, &facts, Stamp(0)).is_empty(), "once");
        assert!(known.waits(Stamp(0)) && !known.waits(Stamp(PATIENCE_US)));
        let other = run_spec(vec![placement(0, "a", 0)]);
        let share = HostRunStatus { spec: Some(Box::new(other)), ..host_run_status(true) };
        let mut in_use = InUse::default();
        in_use.hear(&"a".into(), &[share], false);
        in_use.note(&mut facts);
        assert_eq!(slots(&planned(&one, &facts)), ["a:0"], "it has not told all");
        in_use.hear(&"a".into(), &[], true);
        known.told(&"a".into());
        assert!(!known.waits(Stamp(0)));
        in_use.note(&mut facts);
        assert_eq!(slots(&planned(&one, &facts)), ["a:1"]);
        // more than are free: those in use are taken too
        let two = request("true", PlacementSpec::Hosts { hosts: vec![("a".into(), 2)], np: None });
        let both = planned(&two, &facts);
        assert_eq!(slots(&both), ["a:0", "a:1"]);
        assert!(CpuSlots::default().ask(&two, &both, &facts, Stamp(0)).is_empty(), "there is no choice");
        // any host: one with free slots alone
        let any = request("true", PlacementSpec::Count(Some(2)));
        assert_eq!(slots(&planned(&any, &facts)), ["b:0", "b:1"]);
        assert_eq!(CpuSlots::default().ask(&any, &both, &facts, Stamp(0)).len(), 2);
        // what was told last is so
        in_use.hear(&"a".into(), &[], true);
        in_use.note(&mut facts);
        assert_eq!(slots(&planned(&one, &facts)), ["a:0"]);
    }
}
