//! Whether enough is known of the hosts to place a launch: ready, wait for these, or unsatisfiable. Pure.

use std::collections::BTreeMap;

use super::inventory::{HostFacts, Now, SlotState};
use super::{free, place};
use crate::config::{HostConfig, SlotCount};
use crate::domain::filter::Filter;
use crate::domain::host::{LinkState, RefusalKind};
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::domain::{text, units};
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::request::{LaunchRequest, PlacementSpec};

/// What is known for a launch.
#[derive(Debug)]
pub enum Gathered {
    /// Place it on these, in file order.
    Ready(Vec<HostFacts>),
    /// These have not answered yet.
    Wait(Vec<HostId>),
    /// It can't be done.
    Unsatisfiable(LaunchError),
}

/// What one host's link says.
#[expect(clippy::large_enum_variant, reason = "a value lives for one look")]
enum HostReadiness {
    Up(HostFacts),
    Waiting,
    Down(LaunchError),
}

/// What a client knows.
#[derive(Debug, Clone, Copy)]
pub struct ClusterView<'a> {
    /// The hosts, in file order.
    pub hosts: &'a [HostConfig],
    /// What they said.
    pub world: &'a World,
    /// Where ranks on this machine start unless something else is said.
    pub here: &'a str,
    /// Whether it is said for how long slots have been held.
    pub ages: bool,
    /// Whether the GPUs of the hosts are left out.
    pub hides_gpus: bool,
    /// Up to when a person has acknowledged the events of a GPU.
    pub acknowledged: &'a BTreeMap<GpuUuid, Stamp>,
    /// When it is looked.
    pub now: Stamp,
}

/// A host whose link is up tells of its GPUs within seconds, also where their driver hangs. After so long without a word of them it
/// is no longer waited for, microseconds.
const FIRST_SAMPLE_US: i64 = 60_000_000;

/// Looks at the hosts that `request` needs.
pub fn gather(request: &LaunchRequest, known: &ClusterView<'_>) -> Gathered {
    let each = request.options.gpus_per_rank.max(1) as usize;
    let known = &ClusterView { hides_gpus: request.hides_gpus(), ..*known };
    match &request.place {
        PlacementSpec::Count(count) => by_count(*count, each, known, request.on_busy.share),
        // Which hosts have room is known when all have answered.
        PlacementSpec::Nodes { nodes, each: ranks } => by_nodes(*nodes, *ranks, request, known),
        PlacementSpec::Free { filter, .. } => best_of_all(filter, known),
        PlacementSpec::Hosts { hosts, .. } => {
            by_name(known, &|host| hosts.iter().any(|(name, _)| name == host))
        }
        PlacementSpec::Picks(picks) => by_name(known, &|host| picks.iter().any(|pick| pick.host == *host)),
    }
}

/// The best GPUs of all hosts: all that are not down are waited for.
fn best_of_all(filter: &Filter, known: &ClusterView<'_>) -> Gathered {
    let mut facts = Vec::new();
    let mut waiting = Vec::new();
    let mut down = Vec::new();
    for host in known.hosts {
        match known.readiness(host) {
            HostReadiness::Up(up) => facts.push(up),
            HostReadiness::Waiting => waiting.push(host.id.clone()),
            HostReadiness::Down(error) => {
                facts.push(HostFacts::absent(host, error.reason.clone()));
                down.push(error);
            }
        }
    }
    if !waiting.is_empty() {
        return Gathered::Wait(waiting);
    }
    match down.into_iter().next() {
        Some(first) if facts.iter().all(|host| host.absent.is_some()) => Gathered::Unsatisfiable(first),
        _ => {
            free::leave_out(&mut facts, filter, known);
            Gathered::Ready(facts)
        }
    }
}

/// Named hosts must all be up: one that is down ends the launch, once each was tried, so that all that are down are told.
fn by_name(known: &ClusterView<'_>, named: &dyn Fn(&HostId) -> bool) -> Gathered {
    let mut facts = Vec::new();
    let (mut waiting, mut untried) = (Vec::new(), Vec::new());
    let (mut fault, mut reasons) = (None, Vec::new());
    for host in known.hosts {
        match known.readiness(host) {
            HostReadiness::Up(up) => facts.push(up),
            HostReadiness::Waiting if named(&host.id) => {
                waiting.push(host.id.clone());
                match known.failed(host) {
                    Some(reason) => reasons.push(reason),
                    None => untried.push(host.id.clone()),
                }
            }
            HostReadiness::Waiting => facts.push(HostFacts::absent(host, "has not answered yet")),
            HostReadiness::Down(error) if named(&host.id) => {
                fault = fault.or(Some(error.fault));
                reasons.push(error.reason);
            }
            HostReadiness::Down(error) => facts.push(HostFacts::absent(host, error.reason)),
        }
    }
    match fault {
        Some(_) if !untried.is_empty() => Gathered::Wait(untried),
        Some(fault) => Gathered::Unsatisfiable(LaunchError::new(fault, reasons.join("; "))),
        None if waiting.is_empty() => Gathered::Ready(facts),
        None => Gathered::Wait(waiting),
    }
}

/// Unnamed hosts are taken in file order; those that are down are passed over while the others suffice. Those behind a host
/// that holds all ranks are not waited for; where ranks would be split, each that may hold them all is.
fn by_count(count: Option<u32>, each: usize, known: &ClusterView<'_>, share: bool) -> Gathered {
    let mut facts: Vec<HostFacts> = Vec::new();
    let mut waiting = Vec::new();
    let mut down = Vec::new();
    for host in known.hosts {
        match known.readiness(host) {
            HostReadiness::Up(up) => facts.push(up),
            HostReadiness::Waiting
                if waiting.is_empty()
                    && count.is_some_and(|np| is_settled((np, each), share, &facts, known.offer(host))) =>
            {
                facts.push(HostFacts::absent(host, "has not answered yet"));
            }
            HostReadiness::Waiting => waiting.push(host.id.clone()),
            HostReadiness::Down(error) => {
                facts.push(HostFacts::absent(host, error.reason.clone()));
                down.push(error);
            }
        }
    }
    if !waiting.is_empty() {
        return Gathered::Wait(waiting);
    }
    let free: usize = facts.iter().map(|host| host.usable(share).len() / each).sum();
    match down.first() {
        Some(first) if free < count.map_or(1, |count| count as usize) => {
            let all: Vec<&str> = down.iter().map(|error| error.reason.as_str()).collect();
            let all = all.join("; ");
            let reason = match count {
                Some(count) => {
                    format!("-np {count} on the {free} free slots of the hosts that answer; {all}")
                }
                None => all,
            };
            Gathered::Unsatisfiable(LaunchError::new(first.fault.clone(), reason))
        }
        _ => Gathered::Ready(facts),
    }
}

/// Whether `np` ranks of `each` slots go to the hosts of `facts` without the next host, of which this is known: one of them
/// holds all on sound slots, or all together do and the next one holds fewer, or its last try failed (`None`).
/// CPU slots for want of GPUs settle nothing where the next one may have GPUs.
fn is_settled((np, each): (u32, usize), share: bool, facts: &[HostFacts], next: Option<SlotCount>) -> bool {
    let Ok(chosen) = place::by_count(Some(np), each, facts, share) else { return false };
    let used = chosen.iter().filter(|(_, slots)| !slots.is_empty()).count();
    let taken = || chosen.iter().flat_map(|(_, slots)| slots);
    let gpus = taken().any(|slot| matches!(slot, Slot::Gpu { .. }));
    let first = place::first_has_gpus(facts);
    let for_want = facts.iter().zip(&chosen).any(|(host, (_, slots))| host.driver_fails && !slots.is_empty());
    // whether with it the other sort of slots may be the one that is taken
    let (may_hold_all, may_turn) = match next {
        None => return true,
        Some(SlotCount::Cpus(count)) => (!gpus && count as usize >= taken().count(), gpus && !first),
        Some(SlotCount::Auto) => (true, gpus != first || for_want),
    };
    let mut of_hosts = facts.iter().zip(&chosen);
    let is_sound =
        of_hosts.all(|(host, (_, slots))| slots.iter().all(|slot| host.slot_state(slot) == SlotState::Sound));
    is_sound && !may_turn && (used <= 1 || !may_hold_all)
}

/// So many hosts with room: where those that are not up could be the ones that are missing, that is what is wrong.
fn by_nodes(nodes: u32, ranks: Option<u32>, request: &LaunchRequest, known: &ClusterView<'_>) -> Gathered {
    let each = request.options.gpus_per_rank.max(1) as usize;
    let gathered = by_count(None, each, known, request.on_busy.share);
    let Gathered::Ready(facts) = &gathered else { return gathered };
    let need = ranks.unwrap_or(1) as usize * each;
    let has_room =
        |host: &&HostFacts| host.slots.iter().filter(|slot| request.only.holds(slot)).count() >= need;
    let (room, nodes) = (facts.iter().filter(has_room).count(), nodes as usize);
    let down = known.hosts.iter().filter_map(|host| match known.readiness(host) {
        HostReadiness::Down(error) => Some(error),
        HostReadiness::Up(_) | HostReadiness::Waiting => None,
    });
    let down: Vec<LaunchError> = down.collect();
    match down.first() {
        Some(first) if room < nodes && room + down.len() >= nodes => {
            let all: Vec<&str> = down.iter().map(|error| error.reason.as_str()).collect();
            let have = match room {
                1 => "1 host that answers has".to_owned(),
                room => format!("{room} hosts that answer have"),
            };
            let reason = format!("--nnodes {nodes}: {have} room; {}", all.join("; "));
            Gathered::Unsatisfiable(LaunchError::new(first.fault.clone(), reason))
        }
        _ => gathered,
    }
}

impl ClusterView<'_> {
    /// Why the last try to reach a host failed, also while it is tried again.
    fn failed(&self, config: &HostConfig) -> Option<String> {
        let why = self.world.hosts.get(&config.id)?.down_why.as_ref()?;
        Some(text::about(&config.id, why))
    }

    /// The slots of a host that has not answered, as the hosts file has them; `None` where its last try failed.
    fn offer(&self, config: &HostConfig) -> Option<SlotCount> {
        self.failed(config).is_none().then_some(config.slots)
    }

    fn readiness(&self, config: &HostConfig) -> HostReadiness {
        let Some(state) = self.world.hosts.get(&config.id) else {
            return HostReadiness::Waiting;
        };
        match (&state.link, &state.info) {
            (Some((up_since, LinkState::Up)), Some(info)) => {
                let sample = state.latest().map(|(_, sample)| sample);
                if sample.is_none() && !info.gpus.is_empty() {
                    // who holds which GPU is known with the first sample
                    let silent = self.now.micros_since(*up_since);
                    return if silent < FIRST_SAMPLE_US {
                        HostReadiness::Waiting
                    } else {
                        let told = if self.ages { silent } else { FIRST_SAMPLE_US };
                        HostReadiness::Down(no_sample(&config.id, told))
                    };
                }
                let age = |since| {
                    let (now, _) = state.latest().filter(|_| self.ages)?;
                    let held = now.micros_since(state.clock.stamp(since)?);
                    Some(units::duration_us(held.max(0).unsigned_abs()))
                };
                let events = state.latest().map(|(at, _)| (&state.gpu_events, at));
                let (acknowledged, leases) = (self.acknowledged, state.leases.as_ref());
                let now = Now { sample, events, acknowledged, leases, age: &age };
                let facts = HostFacts::present(config, info, &now, self.here);
                HostReadiness::Up(if self.hides_gpus { facts.without_gpus(info) } else { facts })
            }
            (Some((_, LinkState::Down { reason, .. } | LinkState::Limited { reason })), _) => {
                HostReadiness::Down(LaunchError::new(
                    LaunchFault::Unreachable,
                    text::about(&config.id, reason),
                ))
            }
            (Some((_, LinkState::Refused { reason, kind })), _) => {
                let fault = match kind {
                    RefusalKind::HostKey | RefusalKind::Authentication => LaunchFault::Permission,
                    RefusalKind::Agent => LaunchFault::Unreachable,
                };
                HostReadiness::Down(LaunchError::new(fault, text::about(&config.id, reason)))
            }
            _ => HostReadiness::Waiting,
        }
    }
}

/// A host is up and tells nothing of its GPUs for so long, microseconds.
fn no_sample(host: &HostId, silent: i64) -> LaunchError {
    let silent = units::duration_us(silent.unsigned_abs());
    let reason = format!(
        "{host}: it is connected, and for {silent} it has not told how its GPUs are and who holds them: look whether nvidia-smi \
         answers there and what hvtui doctor says of it, or launch on other hosts"
    );
    LaunchError::new(LaunchFault::Unreachable, reason)
}

#[cfg(test)]
mod tests;
