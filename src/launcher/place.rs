//! Which slot each rank gets. Pure: `(request, facts) -> placements`.

use std::collections::{BTreeMap, BTreeSet};

use super::free;
use super::host_names;
use super::inventory::{HostFacts, SlotState};
pub use super::place_error::PlaceError;
pub(super) use super::place_words::inventory;
use super::place_words::{gpu_list, holders, is_gpu, is_slice, is_whole, lost, slots_there, sort};
use crate::domain::ids::{GpuUuid, HostId, Rank};
use crate::domain::occupancy;
use crate::domain::run::{Placement, Slot};
use crate::domain::text::hosts_hint;
use crate::domain::units::counted;
use crate::launch::paste::ranks_option;
use crate::launch::request::{ALL_SLOTS, FREE_SLOTS, LaunchRequest, Only, Pick, PlacementSpec, SlotName};

/// One slot for each rank: each slot at most once, ranks from 0 without holes, the ranks of a host in one
/// block. `hosts` are all hosts of the hosts file in its order, those that are down included.
pub fn place(request: &LaunchRequest, hosts: &[HostFacts]) -> Result<Vec<Placement>, PlaceError> {
    let share = request.on_busy.share;
    placed(request, hosts, share).map_err(|error| {
        if let Some(gone) = gone_for_good(&error, request, hosts) {
            return PlaceError::OffBus { held: error.to_string(), gone };
        }
        // where strangers have the others it is no help
        let helps = error.is_busy() && !share && placed(request, hosts, true).is_ok();
        error.if_sharing(helps)
    })
}

/// The GPUs that have fallen off the bus, by host, of a launch that finds too few slots because of them: were all others free, it
/// would find too few still.
fn gone_for_good(
    error: &PlaceError,
    request: &LaunchRequest,
    hosts: &[HostFacts],
) -> Option<Vec<(HostId, Vec<u32>)>> {
    let named = request.place.named();
    let may_take = |host: &&HostFacts| named.is_empty() || named.contains(&host.id);
    let up = hosts.iter().filter(|host| host.absent.is_none()).filter(may_take);
    let gone = up.map(|host| (host.id.clone(), host.off_bus(&host.slots)));
    let gone: Vec<_> = gone.filter(|(_, gpus)| !gpus.is_empty()).collect();
    if gone.is_empty() || !error.is_busy() {
        return None;
    }
    let mut later = hosts.to_vec();
    for host in &mut later {
        host.busy.retain(|_, holder| holder.gone);
        host.left_out.retain(|_, exclusion| exclusion.for_good);
    }
    placed(request, &later, false).is_err().then_some(gone)
}

fn placed(request: &LaunchRequest, hosts: &[HostFacts], share: bool) -> Result<Vec<Placement>, PlaceError> {
    if request.command.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(PlaceError::NoCommand);
    }
    if let Some(error) = several_unknown(&request.place.named(), hosts) {
        return Err(error);
    }
    let each = request.options.gpus_per_rank.max(1) as usize;
    let chosen = match &request.place {
        _ if request.query => anywhere(request, hosts)?,
        PlacementSpec::Count(np) => {
            by_count(*np, each, hosts, share).map_err(|error| of_line(error, request))?
        }
        PlacementSpec::Hosts { hosts: list, np } => {
            by_hosts((list, *np), each, hosts, (share, request.options.oversubscribe))?
        }
        PlacementSpec::Nodes { nodes, each: ranks } => {
            by_nodes((*nodes, *ranks), each, hosts, (share, request.only))?
        }
        PlacementSpec::Free { ranks, per_host, filter } => {
            let count = free::Count { ranks: *ranks, per_host: *per_host, each, share };
            free::by_free(count, filter, hosts)?
        }
        PlacementSpec::Picks(picks) => by_picks(picks, each, hosts, (share, request.options.oversubscribe))?,
    };
    let chosen = by_mask(chosen, request, each, (hosts, share))?;
    let placements = number(chosen, each);
    if placements.is_empty() { Err(PlaceError::NoRanks) } else { Ok(placements) }
}

/// The error of a line that its own launcher executes as one process: its ranks are not hvtui's.
fn of_line(error: PlaceError, request: &LaunchRequest) -> PlaceError {
    match error {
        PlaceError::TooFew { np: 0 | 1, each: slots, gpus, have, busy, own, .. }
            if request.single && slots > 1 =>
        {
            let option = ranks_option(&request.command).filter(|(_, ranks)| *ranks == slots);
            PlaceError::LineTooLarge {
                slots,
                option: option.map(|(name, _)| name.to_owned()),
                gpus,
                have,
                busy,
                own,
            }
        }
        other => other,
    }
}

/// Slots by host: as many for each rank as it takes, the ranks of a host one after the other.
type Chosen = Vec<(HostId, Vec<Slot>)>;

fn number(chosen: Chosen, each: usize) -> Vec<Placement> {
    let mut placements = Vec::new();
    for (host, slots) in chosen {
        for (slots, local_rank) in slots.chunks(each).zip(0..) {
            let Some((slot, more)) = slots.split_first() else { continue };
            placements.push(Placement {
                rank: Rank(placements.len() as u32),
                host: host.clone(),
                local_rank,
                slot: slot.clone(),
                more: more.to_vec(),
            });
        }
    }
    placements
}

/// One process that computes nothing: it takes no slot of the host that is named, else of the first that is up.
fn anywhere(request: &LaunchRequest, hosts: &[HostFacts]) -> Result<Chosen, PlaceError> {
    let named = match &request.place {
        PlacementSpec::Hosts { hosts, .. } => hosts.first().map(|(id, _)| id),
        PlacementSpec::Picks(picks) => picks.first().map(|pick| &pick.host),
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } | PlacementSpec::Free { .. } => None,
    };
    let host = match named {
        Some(id) => Some(find(id, hosts)?),
        None => hosts.iter().find(|host| host.absent.is_none()),
    };
    let chosen = host.map(|host| (host.id.clone(), vec![Slot::Cpu { index: 0 }]));
    let none = || {
        let (have, fits, gpus) = (inventory(hosts), false, false);
        PlaceError::TooFew { np: 1, each: 1, free: 0, fits, gpus, have, busy: false, own: false }
    };
    chosen.map(|one| vec![one]).ok_or_else(none)
}

pub(super) fn by_count(
    np: Option<u32>,
    each: usize,
    hosts: &[HostFacts],
    share: bool,
) -> Result<Chosen, PlaceError> {
    let open = is_open(hosts);
    let wanted = np.map_or(1, |np| np as usize);
    let slices = count_takes_slices(np, each, hosts);
    let suits = |slot: &Slot, gpus: bool| is_gpu(slot) == gpus && is_slice(slot) == (gpus && slices);
    let total = |gpus: bool| room(&|slot| suits(slot, gpus), each, hosts);
    // a rank on each slot that there is means each GPU
    let first = np.is_none() || first_has_gpus(hosts);
    let gpus = takes_gpus(wanted, first, &total);
    let usable = |host: &HostFacts| {
        let mut slots = if open(host) { host.usable(share) } else { Vec::new() };
        slots.retain(|slot| suits(slot, gpus));
        slots
    };
    let usable: Vec<Vec<Slot>> = hosts.iter().map(usable).collect();
    let count: usize = usable.iter().map(|slots| slots.len() / each * each).sum();
    let mut left = np.map_or(count, |np| np as usize * each);
    if left > count || count == 0 {
        let np = np.unwrap_or_default();
        let up = hosts.iter().filter(|host| host.absent.is_none());
        let own = up.flat_map(|host| host.busy.values()).any(|holder| holder.own);
        let (busy, have) = (total(gpus) >= wanted && wanted > 0, inventory(hosts));
        let (each, free, fits) = (each as u32, count as u32, total(gpus) > 0);
        let gpus = gpus && hosts.iter().any(|host| sort(host) == Some(true));
        return Err(PlaceError::TooFew { np, each, free, fits, gpus, have, busy, own });
    }
    // the sound slots of all hosts, then those at risk, then those that are shared
    let need = left;
    let mut taken = vec![0; hosts.len()];
    for worst in [SlotState::Sound, SlotState::AtRisk, SlotState::Shared] {
        for ((host, slots), taken) in hosts.iter().zip(&usable).zip(&mut taken) {
            let fit = slots.iter().filter(|slot| host.slot_state(slot) <= worst).count();
            let more = (fit / each * each - *taken).min(left);
            *taken += more;
            left -= more;
        }
    }
    if np.is_some()
        && taken.iter().filter(|taken| **taken > 0).count() > 1
        && let Some(at) = holds_all(need, &usable, hosts)
    {
        taken = (0..hosts.len()).map(|host| if host == at { need } else { 0 }).collect();
    }
    let take = |((host, mut slots), taken): ((&HostFacts, Vec<Slot>), usize)| {
        host.narrow(&mut slots, taken);
        (host.id.clone(), slots)
    };
    Ok(hosts.iter().zip(usable).zip(taken).map(take).collect())
}

/// How many ranks that name no host fit on slots of a sort, if all were free.
fn room(suits: &dyn Fn(&Slot) -> bool, each: usize, hosts: &[HostFacts]) -> usize {
    let open = is_open(hosts);
    let count = |host: &HostFacts| host.slots.iter().filter(|slot| suits(slot)).count() / each;
    hosts.iter().filter(|host| open(host)).map(count).sum()
}

/// The first host that has so many sound free slots among these, which are told by host.
fn holds_all(need: usize, usable: &[Vec<Slot>], hosts: &[HostFacts]) -> Option<usize> {
    hosts.iter().zip(usable).position(|(host, slots)| {
        let is_sound = |slot: &&Slot| host.slot_state(slot) == SlotState::Sound;
        slots.iter().filter(is_sound).count() >= need
    })
}

/// Whether the first host that may get ranks which name none has GPUs; false where there is none.
pub(super) fn first_has_gpus(hosts: &[HostFacts]) -> bool {
    let open = is_open(hosts);
    hosts.iter().filter(|host| open(host)).find_map(sort).unwrap_or_default()
}

/// Whether ranks that name no host may go to this one: where a host has a GPU, not to one whose GPU driver fails.
fn is_open(hosts: &[HostFacts]) -> impl Fn(&HostFacts) -> bool + use<> {
    let has_gpus = hosts.iter().any(|host| host.absent.is_none() && host.slots.iter().any(is_gpu));
    move |host: &HostFacts| host.absent.is_none() && !(has_gpus && host.driver_fails)
}

/// Whether ranks that name no host take GPUs: one job never has both GPUs and CPU slots. It takes those of the `first` sort, the
/// others where only they suffice if all were free; `total` counts the slots or hosts of a sort, free or not.
fn takes_gpus(wanted: usize, first: bool, total: &dyn Fn(bool) -> usize) -> bool {
    if total(first) < wanted && total(!first) >= wanted { !first } else { first }
}

/// Whether GPUs for ranks that name no host are MIG slices: slices never fill up whole GPUs. Whole ones are taken where there are
/// any, slices where only they suffice if all were free: so many slots or hosts there are of each sort, free or not.
fn takes_slices(wanted: usize, whole: usize, slices: usize) -> bool {
    slices > 0 && (whole == 0 || (whole < wanted && slices >= wanted))
}

/// The same of a number of ranks.
fn count_takes_slices(np: Option<u32>, each: usize, hosts: &[HostFacts]) -> bool {
    let room = |suits: &dyn Fn(&Slot) -> bool| room(suits, each, hosts);
    takes_slices(np.map_or(1, |np| np as usize), room(&is_whole), room(&is_slice))
}

/// The same of a number of hosts with `need` slots on each.
fn nodes_take_slices(nodes: u32, need: usize, hosts: &[HostFacts]) -> bool {
    let open = is_open(hosts);
    let large = |suits: &dyn Fn(&Slot) -> bool| {
        let has = |host: &&HostFacts| host.slots.iter().filter(|slot| suits(slot)).count() >= need;
        hosts.iter().filter(|host| open(host)).filter(has).count()
    };
    takes_slices(nodes as usize, large(&is_whole), large(&is_slice))
}

/// The first hosts that have room for so many ranks each, those first whose slots for them are sound; for one rank at least
/// where every free slot is taken. All have GPUs or none has: the sort of the first one that is large enough, if it suffices.
fn by_nodes(
    (nodes, ranks): (u32, Option<u32>),
    each: usize,
    hosts: &[HostFacts],
    (share, only): (bool, Only),
) -> Result<Chosen, PlaceError> {
    let has = |host: &HostFacts| host.slots.iter().any(|slot| only.holds(slot));
    if !hosts.iter().any(has) && only != Only::Any {
        let gpus = only == Only::Gpus;
        return Err(PlaceError::NoneOfThem { gpus, have: inventory(hosts) });
    }
    let need = ranks.unwrap_or(1) as usize * each;
    let is_open = is_open(hosts);
    // where CPU slots are asked for a driver of GPUs does not matter
    let open = |host: &HostFacts| is_open(host) || (only == Only::Cpus && host.absent.is_none());
    let slices = nodes_take_slices(nodes, need, hosts);
    let suits = |slot: &Slot| only.holds(slot) && (!is_gpu(slot) || is_slice(slot) == slices);
    let is_large =
        |host: &&HostFacts| open(host) && host.slots.iter().filter(|slot| suits(slot)).count() >= need;
    let total = |gpus: bool| hosts.iter().filter(is_large).filter(|host| sort(host) == Some(gpus)).count();
    let first = hosts.iter().filter(is_large).find_map(sort).unwrap_or_default();
    let gpus = takes_gpus(nodes as usize, first, &total);
    let usable = |host: &HostFacts| {
        let mut slots = if open(host) { host.usable(share) } else { Vec::new() };
        slots.retain(|slot| suits(slot) && is_gpu(slot) == gpus);
        slots
    };
    let take = |host: &HostFacts| {
        let mut slots = usable(host);
        let count = if ranks.is_some() { need } else { slots.len() / each * each };
        host.narrow(&mut slots, count);
        let worst = slots.iter().map(|slot| host.slot_state(slot)).max();
        (worst, host.id.clone(), slots)
    };
    let with_room = hosts.iter().filter(|host| usable(host).len() >= need);
    let mut offers: Vec<_> = with_room.map(take).enumerate().collect();
    offers.sort_by_key(|(_, (worst, ..))| *worst);
    offers.truncate(nodes as usize);
    offers.sort_by_key(|(at, _)| *at);
    let chosen: Chosen = offers.into_iter().map(|(_, (_, id, slots))| (id, slots)).collect();
    if chosen.len() == nodes as usize {
        return Ok(chosen);
    }
    let up = || hosts.iter().filter(|host| host.absent.is_none());
    let large = total(gpus) as u32;
    let busy = large >= nodes;
    let own = up().flat_map(|host| host.busy.values()).any(|holder| holder.own);
    let (found, have, ranks) = (chosen.len() as u32, inventory(hosts), ranks.unwrap_or(1));
    Err(PlaceError::TooFewNodes { nodes, ranks, each: each as u32, found, large, gpus, have, busy, own })
}

fn by_hosts(
    (list, np): (&[(HostId, u32)], Option<u32>),
    each: usize,
    hosts: &[HostFacts],
    (share, oversubscribe): (bool, bool),
) -> Result<Chosen, PlaceError> {
    let written = list;
    let list = written.iter().map(|(id, count)| {
        let host = find(id, hosts)?;
        let count = match *count {
            ALL_SLOTS => (host.slots.len() / each) as u32,
            FREE_SLOTS if host.slots.len() < each => return Err(too_small(host, 1, each as u32)),
            FREE_SLOTS => (host.usable(share).len() / each) as u32,
            count => count,
        };
        Ok((id.clone(), count))
    });
    let list: Vec<(HostId, u32)> = list.collect::<Result<_, PlaceError>>()?;
    let given = list.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let mut left = np.unwrap_or(given);
    if let Some(error) = free::lacking(written, (np, given), each, hosts, share) {
        return Err(error);
    }
    if left > given {
        let have: Vec<String> = list.iter().map(|(host, count)| format!("{host}: {count}")).collect();
        return Err(PlaceError::MoreThanGiven { np: left, given, have: have.join(", ") });
    }
    let mut chosen = Chosen::new();
    for (id, count) in &list {
        let host = find(id, hosts)?;
        let wanted = (*count).min(left);
        left -= wanted;
        let slots = host.slots.len() as u32;
        let each = each as u32;
        // The list is checked as it was written, also where -np leaves some of it unused.
        if count.saturating_mul(each) > slots {
            if oversubscribe {
                chosen.push((id.clone(), shared_slots(host, wanted, each)?));
                continue;
            }
            return Err(too_small(host, *count, each));
        }
        let mut free = host.usable(share);
        if wanted.saturating_mul(each) > free.len() as u32 {
            return Err(too_few_free(host, wanted, each, share));
        }
        // MIG slices only where its whole GPUs are too few
        free.sort_by_key(is_slice);
        host.narrow(&mut free, (wanted * each) as usize);
        chosen.push((id.clone(), free));
    }
    Ok(chosen)
}

pub(super) fn too_few_free(host: &HostFacts, wanted: u32, each: u32, share: bool) -> PlaceError {
    let (id, held, own) = (host.id.clone(), holders(host), host.busy.values().any(|holder| holder.own));
    let (free, slots) = (host.usable(share).len() as u32, host.slots.len() as u32);
    PlaceError::Busy { host: id, wanted, each, free, slots, held, own }
}

/// Those of the chosen slots that have fallen off the bus.
fn gone_of(chosen: &Chosen, hosts: &[HostFacts]) -> Vec<(HostId, Vec<u32>)> {
    let facts = |id: &HostId| hosts.iter().find(|host| host.id == *id);
    let of = |(id, slots): &(HostId, Vec<Slot>)| Some((id.clone(), facts(id)?.off_bus(slots)));
    chosen.iter().filter_map(of).filter(|(_, gone)| !gone.is_empty()).collect()
}

fn too_small(host: &HostFacts, wanted: u32, each: u32) -> PlaceError {
    let (slots, lost) = (host.slots.len() as u32, lost(host));
    // one that has lost all of them is still no host of CPU slots
    let gpus = host.slots.first().is_some_and(is_gpu) || !lost.is_empty();
    PlaceError::HostTooSmall { host: host.id.clone(), wanted, each, slots, gpus, lost }
}

/// No host starts more ranks.
const MOST_SHARED: u32 = 1 << 14;

/// More ranks than a host has slots, as `--oversubscribe` says: its processors are shared, GPUs are not.
fn shared_slots(host: &HostFacts, ranks: u32, each: u32) -> Result<Vec<Slot>, PlaceError> {
    let slots = host.slots.len() as u32;
    if slots == 0 || ranks.saturating_mul(each) > MOST_SHARED {
        return Err(too_small(host, ranks, each));
    }
    if host.slots.iter().any(|slot| matches!(slot, Slot::Gpu { .. })) {
        return Err(PlaceError::NotShared { host: host.id.clone(), wanted: ranks, slots });
    }
    Ok((0..ranks.saturating_mul(each)).map(|index| Slot::Cpu { index }).collect())
}

/// On hosts with GPUs those that the `CUDA_VISIBLE_DEVICES` of the line names take the place of the chosen ones. It chooses
/// neither the hosts nor, but where the line says a rank for each, the number of ranks; on a host without GPUs it selects nothing.
fn by_mask(
    chosen: Chosen,
    request: &LaunchRequest,
    each: usize,
    (hosts, share): (&[HostFacts], bool),
) -> Result<Chosen, PlaceError> {
    let mask = mask(request);
    let whole = matches!(request.place, PlacementSpec::Nodes { each: None, .. });
    let mut named = Chosen::new();
    for (host, slots) in chosen {
        if mask.is_empty() || !slots.first().is_some_and(is_gpu) {
            named.push((host, slots));
            continue;
        }
        let wanted = if whole { mask.len() / each * each } else { slots.len() };
        if wanted == 0 || wanted > mask.len() {
            let (named, ranks, each) = (mask.len() as u32, (wanted / each).max(1) as u32, each as u32);
            let mask = request.gpu_mask.clone().unwrap_or_default();
            return Err(PlaceError::MaskTooSmall { host, mask, named, ranks, each });
        }
        let pick = |slot: &SlotName| Pick { host: host.clone(), slot: slot.clone() };
        let picks: Vec<Pick> = mask.iter().take(wanted).map(pick).collect();
        named.extend(by_picks(&picks, each, hosts, (share, false))?);
    }
    Ok(named)
}

/// Whether the slots of a launch are chosen here: neither the launch nor its line names them.
pub fn chooses_slots(request: &LaunchRequest) -> bool {
    !matches!(request.place, PlacementSpec::Picks(_)) && mask(request).is_empty()
}

/// The GPUs that the line of a launch names, where the launch names neither hosts nor GPUs itself.
fn mask(request: &LaunchRequest) -> Vec<SlotName> {
    match &request.place {
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } if !request.query => request.masked(),
        _ => Vec::new(),
    }
}

fn by_picks(
    picks: &[Pick],
    each: usize,
    hosts: &[HostFacts],
    (share, oversubscribe): (bool, bool),
) -> Result<Chosen, PlaceError> {
    let mut chosen = Chosen::new();
    let mut held = Vec::new();
    let (mut own, mut gone) = (false, false);
    let mut seen = BTreeSet::new();
    for pick in picks {
        let host = find(&pick.host, hosts)?;
        let beyond = match &pick.slot {
            SlotName::Index(index) if oversubscribe && shared_slots(host, 1, 1).is_ok() => {
                Some(Slot::Cpu { index: *index })
            }
            _ => None,
        };
        let slot = beyond.as_ref().map_or_else(|| picked(host, &pick.slot), Ok)?;
        if !seen.insert((pick.host.clone(), slot.clone())) {
            return Err(PlaceError::PickedTwice { host: pick.host.clone(), slot: slot.index() });
        }
        if let Some(holder) = host.busy.get(&slot.index()).filter(|holder| !(share && holder.own)) {
            let place = format!("{}:{}", host.id, slot.index());
            held.push(occupancy::refusal(&place, &holder.words, holder.named));
            own |= holder.own;
            gone |= holder.gone;
        }
        match chosen.iter_mut().find(|(id, _)| *id == pick.host) {
            Some((_, slots)) => slots.push(slot.clone()),
            None => chosen.push((pick.host.clone(), vec![slot.clone()])),
        }
    }
    if let Some((host, slots)) = chosen.iter().find(|(_, slots)| slots.len() % each != 0) {
        let (host, picks) = (host.clone(), slots.len() as u32);
        return Err(PlaceError::Uneven { host, picks, each: each as u32 });
    }
    let held = held.join("; ");
    if held.is_empty() {
        Ok(chosen)
    } else if gone {
        Err(PlaceError::OffBus { held, gone: gone_of(&chosen, hosts) })
    } else {
        Err(PlaceError::PickBusy { held, own })
    }
}

/// The slot of that number; the GPU of that UUID, of which the beginning is enough where it is of one GPU alone.
fn picked<'a>(host: &'a HostFacts, name: &SlotName) -> Result<&'a Slot, PlaceError> {
    let unknown = |slot: String, hint: String| PlaceError::UnknownSlot { host: host.id.clone(), slot, hint };
    let missing = |written: String| {
        let lost = match name {
            SlotName::Index(index) => host.lost.get(index).map(|does| format!("GPU {index} {does}")),
            SlotName::Uuid(_) => None,
        };
        let hint = host.divided.get(&written).cloned().or(lost).unwrap_or_else(|| slots_there(host));
        unknown(written, hint)
    };
    match name {
        SlotName::Index(index) => {
            let found = host.slots.iter().find(|slot| slot.index() == *index);
            found.ok_or_else(|| missing(index.to_string()))
        }
        SlotName::Uuid(wanted) => {
            let uuid = |slot: &'a Slot| match slot {
                Slot::Gpu { uuid, .. } => Some(uuid.as_str()),
                Slot::Cpu { .. } => None,
            };
            let begins = |&slot: &&'a Slot| uuid(slot).is_some_and(|uuid| uuid.starts_with(wanted.as_str()));
            let found: Vec<&'a Slot> = host.slots.iter().filter(begins).collect();
            let exact = found.iter().copied().find(|&slot| uuid(slot) == Some(wanted.as_str()));
            match found.as_slice() {
                [] => Err(missing(wanted.clone())),
                &[slot] => Ok(slot),
                several => exact.ok_or_else(|| {
                    let hint = format!("{} begin so: {}", counted(several.len(), "GPU"), gpu_list(several));
                    unknown(wanted.clone(), hint)
                }),
            }
        }
    }
}

fn find<'a>(id: &HostId, hosts: &'a [HostFacts]) -> Result<&'a HostFacts, PlaceError> {
    let Some(host) = hosts.iter().find(|host| host.id == *id) else {
        return Err(unknown_host(id, &hosts.iter().map(|host| &host.id).collect::<Vec<_>>()));
    };
    match &host.absent {
        Some(reason) => Err(PlaceError::HostAbsent { host: id.clone(), reason: reason.clone() }),
        None => Ok(host),
    }
}

/// A host that is none of the `known` ones of the hosts file.
pub fn unknown_host(id: &HostId, known: &[&HostId]) -> PlaceError {
    let known: Vec<&str> = known.iter().map(|host| host.as_str()).collect();
    let hint = hosts_hint(id.as_str(), &known);
    let hint = if host_names::is_here(id) {
        format!("{hint}, not this machine: leave out -H, or name one of these, or pick their slots")
    } else {
        hint
    };
    PlaceError::UnknownHost { host: id.clone(), hint }
}

/// The named hosts that are none of `hosts`, where there are several.
fn several_unknown(named: &[HostId], hosts: &[HostFacts]) -> Option<PlaceError> {
    let mut unknown: Vec<&HostId> = Vec::new();
    for id in named {
        if !unknown.contains(&id) && !hosts.iter().any(|host| host.id == *id) {
            unknown.push(id);
        }
    }
    let (first, more) = unknown.split_first().filter(|(_, more)| !more.is_empty())?;
    let known: Vec<&str> = hosts.iter().map(|host| host.id.as_str()).collect();
    let more: Vec<&str> = more.iter().map(|id| id.as_str()).collect();
    let hint = format!("{}; also unknown: {}", hosts_hint(first.as_str(), &known), more.join(", "));
    Some(PlaceError::UnknownHost { host: (*first).clone(), hint })
}

/// The GPUs that a launch may take, by host: what it queues for.
pub fn wanted(request: &LaunchRequest, hosts: &[HostFacts]) -> BTreeMap<HostId, Vec<GpuUuid>> {
    let gpus = |host: &HostFacts, picked: &dyn Fn(&Slot) -> bool| {
        let gpu = |slot: &Slot| match slot {
            Slot::Gpu { uuid, .. } if picked(slot) => Some(uuid.clone()),
            _ => None,
        };
        (host.id.clone(), host.slots.iter().filter_map(gpu).collect::<Vec<_>>())
    };
    let mask = mask(request);
    let each = request.options.gpus_per_rank.max(1) as usize;
    let slices = match &request.place {
        PlacementSpec::Count(np) => count_takes_slices(*np, each, hosts),
        PlacementSpec::Nodes { nodes, each: ranks } => {
            nodes_take_slices(*nodes, ranks.unwrap_or(1) as usize * each, hosts)
        }
        PlacementSpec::Hosts { .. } | PlacementSpec::Free { .. } | PlacementSpec::Picks(_) => false,
    };
    let all = hosts.iter().map(|host| match &request.place {
        PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } => gpus(host, &|slot| match mask.as_slice() {
            [] => is_slice(slot) == slices,
            names => names.iter().any(|name| picked(host, name).is_ok_and(|at| at == slot)),
        }),
        PlacementSpec::Free { .. } => gpus(host, &|slot| host.could_pass(slot)),
        PlacementSpec::Hosts { hosts: list, .. } => {
            gpus(host, &|_| list.iter().any(|(id, _)| *id == host.id))
        }
        PlacementSpec::Picks(picks) => gpus(host, &|slot| {
            picks
                .iter()
                .any(|pick| pick.host == host.id && picked(host, &pick.slot).is_ok_and(|at| at == slot))
        }),
    });
    all.filter(|(_, gpus)| !gpus.is_empty()).collect()
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
