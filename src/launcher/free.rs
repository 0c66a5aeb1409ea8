//! `--free N` and `hvtui pick N`: the free GPUs that suit each other best, of those that pass a filter. Pure.

use std::collections::BTreeMap;

use super::inventory::HostFacts;
use super::place::{self, PlaceError};
use super::place_words;
use super::readiness::ClusterView;
use crate::domain::filter::{Filter, GpuSubject, Subject};
use crate::domain::ids::HostId;
use crate::domain::pick::{Candidate, Choice, GpuRequest, Offer, choose};
use crate::domain::run::Slot;
use crate::launch::request::{FREE_SLOTS, LaunchRequest, PlacementSpec};

/// How many free GPUs, and on which hosts.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// Ranks.
    pub ranks: u32,
    /// How many of them on each host exactly.
    pub per_host: Option<u32>,
    /// GPUs of each rank.
    pub each: usize,
    /// Whether GPUs that the same user has may be used where there are too few free ones.
    pub share: bool,
}

/// Notes of each host which of its GPUs the filter leaves out.
pub(super) fn leave_out(facts: &mut [HostFacts], filter: &Filter, known: &ClusterView<'_>) {
    if filter.is_empty() {
        return;
    }
    for facts in facts {
        let Some(config) = known.hosts.iter().find(|config| config.id == facts.id) else { continue };
        let Some(state) = known.world.hosts.get(&facts.id) else { continue };
        let now = state.latest().map(|(at, _)| at).unwrap_or_default();
        let gpus = state.info.as_ref().map_or(0, |info| info.gpus.len());
        let subjects = (0..gpus)
            .filter_map(|place| GpuSubject::of(state, place, config.free_memory, None, now))
            .filter(|gpu| gpu.info.takes_ranks());
        let excluded = |gpu: GpuSubject<'_>| {
            let host = facts.id.as_str();
            let exclusion = filter.exclusion(&Subject { host, labels: &config.labels, gpu: Some(gpu) })?;
            Some((gpu.info.index, exclusion))
        };
        facts.left_out = subjects.filter_map(excluded).collect();
    }
}

/// What is chosen for a request of that form.
pub fn choice(request: &LaunchRequest, hosts: &[HostFacts]) -> Option<Result<Choice, PlaceError>> {
    let PlacementSpec::Free { ranks, per_host, .. } = request.place else { return None };
    let each = request.options.gpus_per_rank.max(1) as usize;
    Some(chosen(Count { ranks, per_host, each, share: request.on_busy.share }, hosts))
}

/// The slots for so many ranks; CPU slots where no host that is up has a GPU.
pub(super) fn by_free(
    count: Count,
    filter: &Filter,
    hosts: &[HostFacts],
) -> Result<Vec<(HostId, Vec<Slot>)>, PlaceError> {
    if count.ranks > 0 && filter.is_empty() && count.per_host.is_none() && !hosts.iter().any(has_gpus) {
        return place::by_count(Some(count.ranks), count.each, hosts, count.share);
    }
    let slot = |gpu: Candidate| Slot::Gpu { index: gpu.index, uuid: gpu.uuid };
    let of = |offer: Offer| (offer.host, offer.gpus.into_iter().map(slot).collect());
    Ok(chosen(count, hosts)?.offers.into_iter().map(of).collect())
}

/// That hosts of which the free slots are asked for have too few of them, and would have enough if all were free: for the `np` ranks
/// that are asked for beside those `given`, else for any.
pub(super) fn lacking(
    list: &[(HostId, u32)],
    (np, given): (Option<u32>, u32),
    each: usize,
    hosts: &[HostFacts],
    share: bool,
) -> Option<PlaceError> {
    let more = np.unwrap_or(given).max(1).saturating_sub(given);
    let of_list = list.iter().filter(|(_, count)| more > 0 && *count == FREE_SLOTS);
    let known = of_list.filter_map(|(id, _)| hosts.iter().find(|host| host.id == *id));
    let free = |host: &HostFacts| (host.usable(share).len() / each) as u32;
    let wanted = known.map(|host| (host, free(host).saturating_add(more)));
    let mut full = wanted.filter(|(host, wanted)| host.slots.len() / each >= *wanted as usize).peekable();
    if np.is_some() {
        return full.next().map(|(host, wanted)| place::too_few_free(host, wanted, each as u32, share));
    }
    full.peek()?;
    let (words, own): (Vec<String>, Vec<bool>) = full.map(|(host, _)| none_free(host, each, share)).unzip();
    Some(PlaceError::PickBusy { held: words.join("; "), own: own.contains(&true) })
}

/// That no rank fits on a host now, and whether some of its slots are the user's own: `n1: no slot is free (0-3: leased by li)`.
fn none_free(host: &HostFacts, each: usize, share: bool) -> (String, bool) {
    let free = match host.usable(share).len() {
        0 => "no slot is free".to_owned(),
        1 => format!("1 slot is free, a rank takes {each}"),
        free => format!("{free} slots are free, a rank takes {each}"),
    };
    let own = host.busy.values().any(|holder| holder.own);
    (format!("{}: {free} ({})", host.id, place_words::holders(host)), own)
}

fn has_gpus(host: &HostFacts) -> bool {
    host.slots.iter().any(|slot| matches!(slot, Slot::Gpu { .. }))
}

fn chosen(count: Count, hosts: &[HostFacts]) -> Result<Choice, PlaceError> {
    if count.ranks == 0 {
        return Err(PlaceError::NoRanks);
    }
    let each = count.each.max(1);
    let near = |host: &HostId, a: u32, b: u32| {
        let facts = hosts.iter().find(|facts| facts.id == *host);
        let topology = facts.and_then(|facts| facts.topology.as_ref());
        topology.map_or(0, |(topology, indices)| topology.closeness_of(indices, a, b))
    };
    let request = GpuRequest {
        count: count.ranks as usize * each,
        per_host: count.per_host.map(|ranks| ranks as usize * each),
        unit: each,
        beside: &[],
        closeness: &near,
    };
    let now = |host: &HostFacts, share: bool| {
        let mut slots = host.usable(share);
        slots.retain(|slot| !host.left_out.contains_key(&slot.index()));
        slots
    };
    let free = offers(hosts, |host| now(host, false));
    let choice = choose(&free, &request);
    let shared = || count.share.then(|| choose(&offers(hosts, |host| now(host, true)), &request)).flatten();
    choice.or_else(shared).ok_or_else(|| {
        let possible = offers(hosts, |host| {
            let slots = host.slots.iter().filter(|slot| host.absent.is_none() && host.could_pass(slot));
            slots.cloned().collect()
        });
        too_few(count, &free, choose(&possible, &request).is_some(), hosts)
    })
}

/// The GPUs among these slots, by host.
fn offers(hosts: &[HostFacts], slots: impl Fn(&HostFacts) -> Vec<Slot>) -> Vec<Offer> {
    let offer = |host: &HostFacts| {
        let gpus = slots(host).into_iter().filter_map(|slot| match slot {
            Slot::Gpu { index, uuid } => {
                let model = host.models.get(&index).cloned().unwrap_or_default();
                let is_at_risk = host.at_risk.contains_key(&index);
                Some(Candidate { index, uuid, model, is_at_risk })
            }
            Slot::Cpu { .. } => None,
        });
        let mut gpus: Vec<Candidate> = gpus.collect();
        gpus.sort_by_key(|gpu| gpu.index);
        Offer { host: host.id.clone(), gpus }
    };
    hosts.iter().map(offer).collect()
}

/// `busy`: whether there would be enough if nothing were on any GPU.
fn too_few(count: Count, free: &[Offer], busy: bool, hosts: &[HostFacts]) -> PlaceError {
    let up = || hosts.iter().filter(|host| host.absent.is_none());
    if up().next().is_some() && !up().any(has_gpus) {
        let why = |host: &HostFacts| {
            let why = host.absent.as_deref().or(host.no_gpu.as_deref()).unwrap_or("no GPU");
            let named = format!("{}: ", host.id);
            format!("{named}{}", why.strip_prefix(&named).unwrap_or(why))
        };
        let why = hosts.iter().map(why).collect::<Vec<_>>().join(", ");
        return PlaceError::NoGpus { ranks: count.ranks, each: count.each as u32, why };
    }
    let mut by_clause: BTreeMap<&str, u32> = BTreeMap::new();
    // What can change is no reason where there could never be enough.
    let excluded = up().flat_map(|host| host.left_out.values()).filter(|one| busy || one.for_good);
    for clause in excluded.flat_map(|one| &one.clauses) {
        *by_clause.entry(clause).or_default() += 1;
    }
    let clauses: Vec<String> =
        by_clause.into_iter().map(|(clause, count)| format!("{clause} excludes {count}")).collect();
    // whole GPUs and slices are not taken together
    let of_sort = |slices: bool| {
        let gpus = free.iter().flat_map(|offer| &offer.gpus);
        gpus.filter(|gpu| gpu.uuid.is_slice() == slices).count() as u32
    };
    PlaceError::TooFewFree {
        ranks: count.ranks,
        per_host: count.per_host,
        each: count.each as u32,
        free: of_sort(false).max(of_sort(true)),
        left_out: up().map(|host| host.left_out.len() as u32).sum(),
        clauses: clauses.join(", "),
        have: place_words::inventory(hosts),
        busy,
        own: up().flat_map(|host| host.busy.values()).any(|holder| holder.own),
    }
}

#[cfg(test)]
#[path = "free_tests.rs"]
mod tests;
