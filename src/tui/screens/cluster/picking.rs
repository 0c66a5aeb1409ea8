//! Picks of the Cluster screen: one by one, a range, all that pass the filter, and N free ones. Picks are kept by GPU, so
//! that order, folds, filter and a lost link change none of them.

use std::collections::BTreeSet;

use crate::domain::gpu::health::Severity;
use crate::domain::gpu::mig;
use crate::domain::host::HostInfo;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::pick::{Candidate, Choice, GpuRequest, Offer, choose, most};
use crate::domain::world::HostState;
use crate::tui::core::Level;
use crate::tui::core::keymap::Action;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::Sieve;
use crate::tui::screens::cluster::rows::{RowId, Trouble, rows, trouble};
use crate::tui::screens::cluster::shape;
use crate::tui::screens::faults::faults;
use crate::tui::screens::usage::{Leases, free_gpus};

/// What space means: the range, the GPU, the host.
pub(super) fn pick(model: &mut Model) {
    if model.ui.cluster.range.is_some() {
        pick_range(model);
        return;
    }
    match model.ui.cluster.cursor.on.clone() {
        Some(RowId::Gpu(host, uuid, place)) => {
            match pickable(model, &host, place) {
                Ok(index) => {
                    model.ui.cluster.toggle(&host, index, &uuid);
                    if model.ui.cluster.is_picked(&host, &uuid) && picks_are_lost(model, &host) {
                        model.notice(Level::Warning, lost_words(&host));
                    }
                }
                Err(Some(why)) => model.notice(Level::Warning, why),
                Err(None) => {}
            }
            super::keys::move_cursor(model, if shape::is_heat(model) { Action::Right } else { Action::Down });
        }
        Some(RowId::Host(host)) if model.cpu_slots(&host) > 0 => add_cpu(model, 1),
        Some(RowId::Host(host)) => {
            let free = free_of(model, &host, &Leases::of(model), &Sieve::of(model));
            let lost = picks_are_lost(model, &host);
            if model.ui.cluster.picks.remove(&host).is_none() {
                if lost {
                    model.notice(Level::Warning, lost_words(&host));
                } else if free.is_empty() {
                    let filtered =
                        if model.ui.cluster.filter.is_empty() { "" } else { " that passes the filter" };
                    model.notice(Level::Warning, format!("no free GPU on {host}{filtered}"));
                } else {
                    for gpu in free {
                        model.ui.cluster.add(&host, gpu.index, &gpu.uuid);
                    }
                }
            }
        }
        _ => {}
    }
}

/// The index of a GPU that ranks can run on; else why not, where there is something to say.
fn pickable(model: &Model, host: &HostId, place: usize) -> Result<u32, Option<String>> {
    let state = model.world.hosts.get(host);
    let gpu = state.and_then(|state| state.info.as_ref()).and_then(|info| info.gpus.get(place));
    let gpu = gpu.ok_or(None)?;
    if model.configured_slots(host).is_some() {
        return Err(Some(format!("the hosts file gives {host} CPU slots: pick them on its own row")));
    }
    if !gpu.uuid.is_readable() {
        return Err(Some(format!("{host}:{} can't be read: no rank runs there", gpu.index)));
    }
    if let Some(slices) = gpu.slices {
        return Err(Some(format!("{host}:{} is not for ranks: {}", gpu.index, mig::words(slices))));
    }
    Ok(gpu.index)
}

/// Begins a range at the cursor, or drops the one that was begun.
pub(super) fn range(model: &mut Model) {
    let ui = &mut model.ui.cluster;
    ui.range = if ui.range.is_some() { None } else { ui.cursor.on.clone() };
}

/// How many GPUs a begun range covers.
pub(crate) fn range_size(model: &Model, rows: &[RowId]) -> Option<usize> {
    let lines = rows.get(range_lines(model, rows)?)?;
    Some(lines.iter().filter(|row| matches!(row, RowId::Gpu(..))).count())
}

/// The lines of a list that a begun range covers.
pub(crate) fn range_lines(model: &Model, rows: &[RowId]) -> Option<std::ops::RangeInclusive<usize>> {
    let ui = &model.ui.cluster;
    let begun = rows.iter().position(|row| Some(row) == ui.range.as_ref())?;
    let on = rows.iter().position(|row| Some(row) == ui.cursor.on.as_ref())?;
    Some(begun.min(on)..=begun.max(on))
}

/// Picks the GPUs of the range; where all of them are picked, drops them.
fn pick_range(model: &mut Model) {
    let rows = rows(model);
    let Some(lines) = range_lines(model, &rows) else {
        model.ui.cluster.range = None;
        return;
    };
    let gpus = rows.get(lines).unwrap_or_default().iter().filter_map(|row| match row {
        RowId::Gpu(host, uuid, place) => Some((host.clone(), uuid.clone(), *place)),
        _ => None,
    });
    let gpus: Vec<_> = gpus.collect();
    model.ui.cluster.range = None;
    pick_all(model, &gpus);
}

/// Picks all GPUs that pass the filter.
pub(super) fn pick_matching(model: &mut Model) {
    let sieve = Sieve::of(model);
    if sieve.is_open() {
        model.notice(
            Level::Info,
            "no filter: type one with /, such as free & model~h200; P picks what passes it",
        );
        return;
    }
    let mut gpus = Vec::new();
    for host in model.host_order() {
        let of = model.world.hosts.get(host).and_then(|state| state.info.as_ref());
        let of = of.map_or(&[][..], |info| &info.gpus).iter().enumerate();
        let of = of.filter(|(place, _)| sieve.lets(host, *place));
        gpus.extend(of.map(|(place, gpu)| (host.clone(), gpu.uuid.clone(), place)));
    }
    pick_all(model, &gpus);
}

fn pick_all(model: &mut Model, gpus: &[(HostId, GpuUuid, usize)]) {
    let mut left_out = BTreeSet::new();
    let mut indices = Vec::new();
    for (host, uuid, place) in gpus {
        match pickable(model, host, *place) {
            Ok(index) => indices.push((host, index, uuid)),
            Err(why) => left_out.extend(why),
        }
    }
    let ui = &mut model.ui.cluster;
    let all = !indices.is_empty() && indices.iter().all(|(host, _, uuid)| ui.is_picked(host, uuid));
    for (host, index, uuid) in &indices {
        if all {
            ui.drop_pick(host, uuid);
        } else {
            ui.add(host, *index, uuid);
        }
    }
    let (what, count) = (if all { "dropped" } else { "picked" }, indices.len());
    let text = if count == 1 { format!("1 GPU {what}") } else { format!("{count} GPUs {what}") };
    model.notice(Level::Info, text);
    if let Some(why) = left_out.into_iter().next() {
        model.notice(Level::Warning, why);
    }
}

/// Whether nothing can start on a host's picks now, because it is not reached.
pub(crate) fn picks_are_lost(model: &Model, host: &HostId) -> bool {
    matches!(trouble(model.world.hosts.get(host)), Trouble::Down | Trouble::Refused)
}

fn lost_words(host: &HostId) -> String {
    format!("{host} is not reached: nothing starts there until it is back")
}

pub(super) fn add_cpu(model: &mut Model, delta: i32) {
    let Some(RowId::Host(host)) = model.ui.cluster.cursor.on.clone() else { return };
    let slots = model.cpu_slots(&host);
    if slots == 0 {
        return;
    }
    let now = model.ui.cluster.cpu_picks.get(&host).copied().unwrap_or(0);
    let wanted = now.saturating_add_signed(delta);
    if wanted > slots {
        model.notice(Level::Warning, format!("{host} has {slots} CPU slots"));
    }
    model.ui.cluster.set_cpus(&host, wanted.min(slots));
}

/// Whether results on the GPU at this place, or it itself, are at risk by what is wrong and not acknowledged.
fn is_at_risk(model: &Model, host: &HostId, place: usize) -> bool {
    let Some(state) = model.world.hosts.get(host) else { return false };
    let gpu = state.info.as_ref().and_then(|info| info.gpus.get(place));
    let live = state.latest().and_then(|(_, sample)| sample.gpus.get(place));
    let worst = gpu.zip(live).and_then(|(gpu, live)| faults(model, state, gpu, live).into_iter().next());
    worst.is_some_and(|fault| fault.severity == Severity::Act)
}

/// The free GPUs of a host that pass the filter.
fn free_of(model: &Model, host: &HostId, leases: &Leases<'_>, sieve: &Sieve<'_>) -> Vec<Candidate> {
    let passes = |place: usize| sieve.is_open() || sieve.lets(host, place);
    free_gpus(model, host, leases)
        .filter(|(place, _)| passes(*place))
        .map(|(place, gpu)| Candidate::of(gpu, is_at_risk(model, host, place)))
        .collect()
}

/// Picks `count` free slots beside those that were picked by hand: GPUs that pass the filter and suit each other, and CPU
/// slots where there is no such GPU. What `f` picked before goes.
pub(crate) fn pick_free(model: &mut Model, count: u32) {
    model.ui.cluster.drop_found();
    let hosts: Vec<HostId> = model.host_order().into_iter().cloned().collect();
    let (leases, sieve) = (Leases::of(model), Sieve::of(model));
    let picked = |gpu: &Candidate, host: &HostId| model.ui.cluster.is_picked(host, &gpu.uuid);
    let offer = |host: &HostId| {
        let mut gpus = free_of(model, host, &leases, &sieve);
        gpus.retain(|gpu| !picked(gpu, host));
        Offer { host: host.clone(), gpus }
    };
    let offers: Vec<Offer> = hosts.iter().map(offer).collect();
    let beside = by_hand(model);
    let free = most(&offers, &beside);
    let near = |host: &HostId, a: u32, b: u32| {
        let info = model.world.hosts.get(host).and_then(|state| state.info.as_ref());
        let indices = |info: &HostInfo| mig::whole(&info.gpus).map(|gpu| gpu.index).collect::<Vec<_>>();
        let known = info.and_then(|info| Some((info.topology.as_ref()?, indices(info))));
        known.map_or(0, |(topology, indices)| topology.closeness_of(&indices, a, b))
    };
    let request = GpuRequest {
        count: free.min(count as usize),
        per_host: None,
        unit: 1,
        beside: &beside,
        closeness: &near,
    };
    let filtered = if sieve.is_open() { "" } else { " that pass the filter" };
    let choice = choose(&offers, &request);
    if let Some(Choice { offers, .. }) = &choice {
        for offer in offers {
            for gpu in &offer.gpus {
                model.ui.cluster.add(&offer.host, gpu.index, &gpu.uuid);
                model.ui.cluster.found.insert((offer.host.clone(), gpu.uuid.clone()));
            }
        }
    }
    let mut left = count as usize - request.count;
    if choice.is_none() && beside.is_empty() {
        left = pick_free_cpus(model, &hosts, left);
    }
    match choice {
        _ if left > 0 => {
            let found = count as usize - left;
            let text = format!("only {found} free{filtered} of {count} asked for");
            model.notice(Level::Warning, text);
        }
        Some(choice) => model.notice(Level::Info, format!("picked {}", choice.words())),
        None => {}
    }
}

/// The GPUs that are picked.
fn by_hand(model: &Model) -> Vec<Offer> {
    let offer = |host: &HostId| {
        let info = model.world.hosts.get(host).and_then(|state| state.info.as_ref());
        let gpus = info.map_or(&[][..], |info| &info.gpus).iter();
        let gpus = gpus.filter(|gpu| model.ui.cluster.is_picked(host, &gpu.uuid));
        let gpus = gpus.map(|gpu| Candidate::of(gpu, false));
        Offer { host: host.clone(), gpus: gpus.collect() }
    };
    model.ui.cluster.picks.keys().map(offer).collect()
}

fn pick_free_cpus(model: &mut Model, hosts: &[HostId], mut left: usize) -> usize {
    for host in hosts {
        let up = model.world.hosts.get(host).is_some_and(HostState::is_up);
        let passes = Sieve::of(model).lets_host(host);
        let taken = Leases::of(model).cpus(host);
        let picked = model.ui.cluster.cpu_picks.get(host).copied().unwrap_or(0);
        let slots = if up && passes { model.cpu_slots(host) } else { 0 };
        let take =
            slots.saturating_sub(taken).saturating_sub(picked).min(u32::try_from(left).unwrap_or(u32::MAX));
        left -= take as usize;
        if take > 0 {
            model.ui.cluster.set_cpus(host, picked + take);
            model.ui.cluster.found_cpus.insert(host.clone(), take);
        }
    }
    left
}

/// Drops a range whose first row is gone.
pub(super) fn settle(model: &mut Model, rows: &[RowId]) {
    if model.ui.cluster.range.as_ref().is_some_and(|begun| !rows.contains(begun)) {
        model.ui.cluster.range = None;
    }
}
