//! Where a launch is tried next whose slots another one took first: by lot among the plans that are as good as the one that all who
//! lost would make, so that they don't meet again. Pure.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::inventory::{Holder, HostFacts, SlotState};
use super::{free, place};
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{Placement, Slot};
use crate::launch::request::{LaunchRequest, PlacementSpec};

/// The facts without free GPUs that are left to others: those of the `refused` places and, by a `lot` that differs from launch to
/// launch, those beside the ones that are to be tried. `None` where that makes no plan as good as the one on all of them.
pub(super) fn spread(
    request: &LaunchRequest,
    facts: &[HostFacts],
    refused: &[&Placement],
    lot: &RunId,
) -> Option<Vec<HostFacts>> {
    let whole = place::place(request, facts).ok()?;
    let is_refused = |host: &HostId, slot: &Slot| {
        refused.iter().any(|place| place.host == *host && place.slots().any(|other| other == slot))
    };
    let on = |tried: &[Tried]| {
        let mut left = facts.to_vec();
        for (host, (from, until)) in left.iter_mut().zip(tried) {
            let mut gone = gpus(host);
            gone.retain(|slot| !(*from..=*until).contains(&slot.index()) || is_refused(&host.id, slot));
            host.busy.extend(gone.iter().map(|slot| (slot.index(), another())));
        }
        let placed = place::place(request, &left).ok()?;
        let is_as_good = placed.len() == whole.len()
            && hosts_of(&placed) <= hosts_of(&whole)
            && models_of(&placed, facts) <= models_of(&whole, facts)
            && worst(&placed, facts) <= worst(&whole, facts)
            && (is_linked(request, &left) || !is_linked(request, facts));
        is_as_good.then_some(left)
    };
    // the ranks of a host go on one block of as many slots
    let each = matches!(request.place, PlacementSpec::Hosts { .. });
    let most = facts.iter().map(|host| slots_on(&host.id, &whole)).max().unwrap_or_default();
    let blocks = |host: &HostFacts| -> Vec<Tried> {
        let need = if each { slots_on(&host.id, &whole) } else { most };
        let mut open = gpus(host);
        open.retain(|slot| {
            let is_left_out = host.left_out.contains_key(&slot.index());
            host.slot_state(slot) == SlotState::Sound && !is_left_out && !is_refused(&host.id, slot)
        });
        let ends = |block: &[Slot]| Some((block.first()?.index(), block.last()?.index()));
        open.chunks_exact(need.max(1)).filter_map(ends).collect()
    };
    let blocks: Vec<Vec<Tried>> = facts.iter().map(blocks).collect();
    let lot = lot.as_str().bytes().fold(0_usize, |lot, byte| lot.wrapping_mul(31).wrapping_add(byte.into()));
    let tried = if each { on_each(&blocks, lot) } else { from_one(&blocks, hosts_of(&whole), lot) };
    on(&tried).or_else(|| on(&vec![ALL; facts.len()]))
}

/// The first and the last slot of a host that are not left alone.
type Tried = (u32, u32);

const ALL: Tried = (0, u32::MAX);
const NONE: Tried = (u32::MAX, 0);

/// Where the hosts are given: on each of them from one of its blocks on.
fn on_each(blocks: &[Vec<Tried>], lot: usize) -> Vec<Tried> {
    let from = |blocks: &Vec<Tried>| {
        let block = blocks.get(lot % blocks.len().max(1));
        block.map_or(ALL, |(from, _)| (*from, u32::MAX))
    };
    blocks.iter().map(from).collect()
}

/// Where they are not: one block, or where several hosts are needed those from it on.
fn from_one(blocks: &[Vec<Tried>], hosts: usize, lot: usize) -> Vec<Tried> {
    let of = |(at, blocks): (usize, &Vec<Tried>)| blocks.iter().map(|block| (at, *block)).collect::<Vec<_>>();
    let all: Vec<(usize, Tried)> = blocks.iter().enumerate().flat_map(of).collect();
    let choices = (all.len() + 1).saturating_sub(hosts).max(1);
    let Some(&(chosen, (from, until))) = all.get(lot % choices) else { return vec![ALL; blocks.len()] };
    let of = |at: usize| match (at.cmp(&chosen), hosts) {
        (Ordering::Equal, 1) => (from, until),
        (Ordering::Equal, _) => (from, u32::MAX),
        (Ordering::Greater, 2..) => ALL,
        _ => NONE,
    };
    (0..blocks.len()).map(of).collect()
}

/// The free GPUs of a host. CPU slots are taken from no other launch.
fn gpus(host: &HostFacts) -> Vec<Slot> {
    let mut slots = host.usable(false);
    slots.retain(|slot| matches!(slot, Slot::Gpu { .. }));
    slots
}

fn another() -> Holder {
    let words = "another launch".to_owned();
    Holder { who: words.clone(), words, named: true, own: false, gone: false }
}

/// How many slots of a host these places are.
fn slots_on(host: &HostId, places: &[Placement]) -> usize {
    places.iter().filter(|place| place.host == *host).map(|place| place.slots().count()).sum()
}

/// How many hosts these places are on: the ranks of a host are in one block.
fn hosts_of(places: &[Placement]) -> usize {
    places.chunk_by(|a, b| a.host == b.host).count()
}

/// Of how many models the GPUs of these places are.
fn models_of(places: &[Placement], facts: &[HostFacts]) -> usize {
    let of = |place: &Placement| {
        let host = facts.iter().find(|host| host.id == place.host);
        let models = place.slots().map(|slot| host.and_then(|host| host.models.get(&slot.index())));
        models.collect::<Vec<_>>()
    };
    places.iter().flat_map(of).collect::<BTreeSet<_>>().len()
}

/// What speaks most against one of these places.
fn worst(places: &[Placement], facts: &[HostFacts]) -> Option<SlotState> {
    let of = |place: &Placement| {
        let host = facts.iter().find(|host| host.id == place.host)?;
        place.slots().map(|slot| host.slot_state(slot)).max()
    };
    places.iter().filter_map(of).max()
}

/// Whether the free GPUs that suit each other best reach each other by NVLink, where such ones are asked for.
fn is_linked(request: &LaunchRequest, facts: &[HostFacts]) -> bool {
    free::choice(request, facts).and_then(Result::ok).is_some_and(|choice| choice.is_linked)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{cpu_host, gpu_host, request};
    use super::*;
    use crate::domain::filter::Filter;

    /// Where launches of this form are tried that have lost these places.
    fn tried(place: &PlacementSpec, facts: &[HostFacts], refused: &[&Placement]) -> BTreeSet<String> {
        let asked = request("true", place.clone());
        let one = |lot: u128| {
            let left = spread(&asked, facts, refused, &RunId::new(1, lot.wrapping_mul(0x9e37_79b9)));
            let places = place::place(&asked, left.as_deref().unwrap_or(facts)).unwrap();
            places.iter().map(Placement::to_string).collect::<Vec<_>>().join(" ")
        };
        (0..400).map(one).collect()
    }

    fn first(place: &PlacementSpec, facts: &[HostFacts]) -> Vec<Placement> {
        place::place(&request("true", place.clone()), facts).unwrap()
    }

    #[test]
    fn launches_that_lost_the_same_slot_try_all_the_other_free_ones() {
        let hosts = [gpu_host("a", 4), gpu_host("b", 3), cpu_host("c", 2)];
        let others = BTreeSet::from(["a:1", "a:2", "a:3", "b:0", "b:1", "b:2"].map(str::to_owned));
        let free = PlacementSpec::Free { ranks: 1, per_host: None, filter: Filter::default() };
        for place in [PlacementSpec::Count(Some(1)), free] {
            let lost = first(&PlacementSpec::Count(Some(1)), &hosts);
            assert_eq!(tried(&place, &hosts, &[&lost[0]]), others, "{place:?}");
        }
        let named = PlacementSpec::Hosts { hosts: vec![("a".into(), 1)], np: None };
        let lost = first(&named, &hosts);
        let of_a = BTreeSet::from(["a:1", "a:2", "a:3"].map(str::to_owned));
        assert_eq!(tried(&named, &hosts, &[&lost[0]]), of_a, "no other host was asked for");
    }

    #[test]
    fn no_launch_is_tried_on_slots_that_are_worse() {
        // four on one host, and never split
        let hosts = [gpu_host("a", 6), gpu_host("b", 4), gpu_host("c", 3)];
        let four = PlacementSpec::Count(Some(4));
        let whole = ["a:0 a:1 a:2 a:3", "b:0 b:1 b:2 b:3"].map(str::to_owned);
        assert_eq!(tried(&four, &hosts, &[]), BTreeSet::from(whole));
        // two hosts of two
        let nodes = PlacementSpec::Nodes { nodes: 2, each: Some(2) };
        let all = tried(&nodes, &[gpu_host("a", 2), gpu_host("b", 2), gpu_host("c", 2)], &[]);
        assert_eq!(all, BTreeSet::from(["a:0 a:1 b:0 b:1", "b:0 b:1 c:0 c:1"].map(str::to_owned)));
        // two of one model
        let mut mixed = gpu_host("a", 5);
        mixed.models = (0..5).map(|gpu| (gpu, if gpu < 3 { "H200" } else { "A40" }.to_owned())).collect();
        let all = tried(&PlacementSpec::Count(Some(2)), &[mixed], &[]);
        assert_eq!(all, BTreeSet::from(["a:0 a:1".to_owned()]));
        // a GPU at risk is worse than one that was refused
        let mut risky = gpu_host("a", 2);
        risky.at_risk.insert(1, "ECC".to_owned());
        let one = PlacementSpec::Count(Some(1));
        let risky = [risky];
        let lost = first(&one, &risky);
        assert_eq!(tried(&one, &risky, &[&lost[0]]), BTreeSet::from(["a:0".to_owned()]));
    }

    #[test]
    fn a_launch_on_all_free_slots_gets_all() {
        let hosts = [gpu_host("a", 2), gpu_host("b", 1)];
        let all = BTreeSet::from(["a:0 a:1 b:0".to_owned()]);
        assert_eq!(tried(&PlacementSpec::Count(None), &hosts, &[]), all);
        assert_eq!(tried(&PlacementSpec::Count(Some(3)), &hosts, &[]), all);
        let full = [HostFacts { absent: Some("away".to_owned()), ..gpu_host("a", 2) }];
        let asked = request("true", PlacementSpec::Count(Some(1)));
        assert_eq!(spread(&asked, &full, &[], &RunId::new(1, 1)), None);
    }
}
