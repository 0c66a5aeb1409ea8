//! Whether enough is known of the hosts to place a launch: ready, wait for these, or unsatisfiable. Pure.

use super::free;
use super::inventory::{HostFacts, Now};
use crate::config::HostConfig;
use crate::domain::filter::Filter;
use crate::domain::host::{LinkState, RefusalKind};
use crate::domain::ids::HostId;
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
}

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

/// Named hosts must all be up: one that is down ends the launch.
fn by_name(known: &ClusterView<'_>, named: &dyn Fn(&HostId) -> bool) -> Gathered {
    let mut facts = Vec::new();
    let mut waiting = Vec::new();
    for host in known.hosts {
        match known.readiness(host) {
            HostReadiness::Up(up) => facts.push(up),
            HostReadiness::Waiting if named(&host.id) => waiting.push(host.id.clone()),
            HostReadiness::Waiting => facts.push(HostFacts::absent(host, "has not answered yet")),
            HostReadiness::Down(error) if named(&host.id) => return Gathered::Unsatisfiable(error),
            HostReadiness::Down(error) => facts.push(HostFacts::absent(host, error.reason)),
        }
    }
    if waiting.is_empty() { Gathered::Ready(facts) } else { Gathered::Wait(waiting) }
}

/// Unnamed hosts are taken in file order; those that are down are passed over while the others suffice, and
/// those behind the last one needed are not waited for.
fn by_count(count: Option<u32>, each: usize, known: &ClusterView<'_>, share: bool) -> Gathered {
    let free = |facts: &[HostFacts]| facts.iter().map(|host| host.usable(share).len() / each).sum::<usize>();
    let mut facts: Vec<HostFacts> = Vec::new();
    let mut waiting = Vec::new();
    let mut down = Vec::new();
    for host in known.hosts {
        let enough = count.is_some_and(|count| free(&facts) >= count as usize);
        match known.readiness(host) {
            HostReadiness::Up(up) => facts.push(up),
            HostReadiness::Waiting if enough && waiting.is_empty() => {
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
    let free = free(&facts);
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
    fn readiness(&self, config: &HostConfig) -> HostReadiness {
        let Some(state) = self.world.hosts.get(&config.id) else {
            return HostReadiness::Waiting;
        };
        match (&state.link, &state.info) {
            (Some((_, LinkState::Up)), Some(info)) => {
                let sample = state.latest().map(|(_, sample)| sample);
                if sample.is_none() && !info.gpus.is_empty() {
                    // who holds which GPU is known with the first sample
                    return HostReadiness::Waiting;
                }
                let age = |since| {
                    let (now, _) = state.latest().filter(|_| self.ages)?;
                    let held = now.micros_since(state.clock.stamp(since)?);
                    Some(units::duration_us(held.max(0).unsigned_abs()))
                };
                let events = state.latest().map(|(at, _)| (&state.gpu_events, at));
                let now = Now { sample, events, leases: state.leases.as_ref(), age: &age };
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

#[cfg(test)]
mod tests;
