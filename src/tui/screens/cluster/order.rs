//! In which order hosts stand, and the GPUs within each.
//!
//! What is measured changes each second. So values are looked at again only every few seconds, and a value that has changed by
//! less than a step counts as it did: rows of nearly equal values keep their places.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use crate::domain::ids::HostId;
use crate::domain::time::Stamp;
use crate::domain::world::HostState;
use crate::tui::core::orders::HostOrder as Order;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{gpus_of, mean_util, memory};
use crate::tui::screens::faults::faults;
use crate::tui::screens::usage::{GpuUse, Leases, free_gpus, gpu_use};

/// For so long an order by values stands, microseconds.
const STANDS_US: i64 = 3_000_000;

/// Values that differ by less count as equal to what they were: percent, bytes, degrees, milliwatts.
fn step(order: Order) -> f64 {
    match order {
        Order::Utilisation => 5.0,
        Order::FreeMemory => (1u64 << 30) as f64,
        Order::Temperature => 2.0,
        Order::Power => 20_000.0,
        _ => 0.0,
    }
}

/// By what one is ordered: the least first.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    Number(f64),
    Words(String),
}

impl Key {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.total_cmp(other),
            (Self::Words(one), Self::Words(other)) => one.cmp(other),
            (Self::Number(_), Self::Words(_)) => Ordering::Less,
            (Self::Words(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// What has no key stands last, whichever way round.
fn compare(one: Option<&Key>, other: Option<&Key>, reversed: bool) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) if reversed => other.compare(one),
        (Some(one), Some(other)) => one.compare(other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

/// The keys of a host and of its GPUs, by their places.
#[derive(Debug, Clone, PartialEq, Default)]
struct HostKeys {
    own: Option<Key>,
    gpus: Vec<Option<Key>>,
}

/// The keys by which the rows are ordered for now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keys {
    by: Order,
    at: Stamp,
    hosts: BTreeMap<HostId, HostKeys>,
}

/// Looks at the values again, where the order goes by them and has stood for long enough.
pub(super) fn refresh(model: &mut Model) {
    let (order, now) = (model.settings.hosts.by, model.moment());
    let before = &model.ui.cluster.keys;
    let is_same = before.by == order;
    // rows between which a range is drawn stay where they are
    let is_young = now.micros_since(before.at).saturating_abs() < STANDS_US;
    let stands = is_same && (is_young || model.ui.cluster.range.is_some());
    if !order.is_by_values() || stands {
        return;
    }
    let leases = Leases::of(model);
    let before = is_same.then_some(before);
    let key = |host: &HostId| {
        let kept = before.and_then(|before| before.hosts.get(host));
        Some((host.clone(), kept_where_close(order, kept, measure(model, &leases, host)?)))
    };
    let hosts = model.host_order().into_iter().filter_map(key).collect();
    model.ui.cluster.keys = Keys { by: order, at: now, hosts };
}

/// The new keys, but for those that are less than a step from what they were.
fn kept_where_close(order: Order, before: Option<&HostKeys>, new: HostKeys) -> HostKeys {
    let keep = |old: Option<&Key>, new: Option<Key>| match (old, &new) {
        (Some(Key::Number(old)), Some(Key::Number(now))) if (old - now).abs() < step(order) => {
            Some(Key::Number(*old))
        }
        _ => new,
    };
    let Some(before) = before else { return new };
    let old = before.gpus.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    HostKeys {
        own: keep(before.own.as_ref(), new.own),
        gpus: new.gpus.into_iter().zip(old).map(|(new, old)| keep(old, new)).collect(),
    }
}

/// The keys of a host: those that stand, else by its values now.
fn keys_of<'a>(model: &'a Model, leases: &Leases<'_>, host: &HostId) -> Cow<'a, HostKeys> {
    let keys = &model.ui.cluster.keys;
    match keys.hosts.get(host).filter(|_| keys.by == model.settings.hosts.by) {
        Some(standing) => Cow::Borrowed(standing),
        None => Cow::Owned(measure(model, leases, host).unwrap_or_default()),
    }
}

/// The keys of a host by what it measures now.
fn measure(model: &Model, leases: &Leases<'_>, host: &HostId) -> Option<HostKeys> {
    let order = model.settings.hosts.by;
    let state = model.world.hosts.get(host)?;
    // before it has told what it is there is nothing that could stand
    state.info.as_ref()?;
    let infos = gpus_of(model, host);
    if infos.is_empty() {
        return Some(HostKeys { own: of_cpus(order, state), gpus: Vec::new() });
    }
    let free: Vec<usize> = free_gpus(model, host, leases).map(|(place, _)| place).collect();
    let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
    let of_gpu = |(place, info): (usize, &GpuInfo)| match order {
        Order::FreeGpus => Some(Key::Number(f64::from(u8::from(!free.contains(&place))))),
        Order::Model => Some(Key::Words(info.model().to_owned())),
        Order::Health => {
            let sample = samples.get(place)?;
            let worst =
                faults(model, state, info, sample).first().map_or(0, |fault| 1 + fault.severity as u8);
            let is_failing = matches!(sample.throttle, Reading::Failed { .. });
            Some(Key::Number(-f64::from(if is_failing { u8::MAX } else { worst })))
        }
        Order::User => match gpu_use(host, state, place, leases) {
            GpuUse::Leased { user, .. } => Some(Key::Words(user)),
            _ => first_process(samples.get(place)?, |process| process.user.value()),
        },
        Order::Command => first_process(samples.get(place)?, |process| process.command.value()),
        _ => number(order, samples.get(place)?).map(Key::Number),
    };
    let gpus: Vec<Option<Key>> = infos.iter().enumerate().map(of_gpu).collect();
    let numbers =
        || gpus.iter().filter_map(|key| if let Some(Key::Number(key)) = key { Some(key) } else { None });
    let own = match order {
        Order::FreeGpus => Some(Key::Number(-(free.len() as f64))),
        Order::Utilisation => mean_util(state).map(Key::Number),
        Order::FreeMemory => {
            memory(state).map(|(used, total)| Key::Number(-(total.saturating_sub(used) as f64)))
        }
        Order::Power => numbers().next().map(|_| Key::Number(numbers().sum())),
        _ => gpus.iter().flatten().min_by(|one, other| one.compare(other)).cloned(),
    };
    Some(HostKeys { own, gpus })
}

/// What is measured of a GPU, so that the least stands first.
fn number(order: Order, sample: &GpuSample) -> Option<f64> {
    let (used, total) = (sample.memory_used.value().copied(), sample.memory_total.value().copied());
    match order {
        Order::Utilisation => sample.slice_active().or(sample.util.value().copied()).map(f64::from),
        Order::FreeMemory => used.zip(total).map(|(used, total)| -(total.saturating_sub(used) as f64)),
        Order::Temperature => sample.temperature.value().map(|celsius| -f64::from(*celsius)),
        Order::Power => sample.power_mw.value().map(|mw| -f64::from(*mw)),
        _ => None,
    }
}

/// A word of the first process on a GPU.
fn first_process(sample: &GpuSample, word: impl Fn(&GpuProcess) -> Option<&String>) -> Option<Key> {
    word(sample.processes.value()?.first()?).cloned().map(Key::Words)
}

/// The same of a host without GPUs.
fn of_cpus(order: Order, state: &HostState) -> Option<Key> {
    let number = match order {
        Order::Utilisation => mean_util(state),
        Order::FreeMemory => memory(state).map(|(used, total)| -(total.saturating_sub(used) as f64)),
        Order::Model => state.info.as_ref().map(|info| -f64::from(info.cpus)),
        _ => None,
    };
    number.map(Key::Number)
}

/// Puts hosts in the order that the screen has. Whichever way round, in orders by values those without GPUs stand behind the
/// others, and last those that are not up.
pub fn sort(model: &Model, hosts: &mut [&HostId]) {
    let (order, reversed) = (model.settings.hosts.by, model.settings.hosts.reversed);
    match order {
        Order::File if reversed => hosts.reverse(),
        Order::File => {}
        Order::Name => hosts.sort_by(|a, b| if reversed { b.cmp(a) } else { a.cmp(b) }),
        _ => {
            let leases = Leases::of(model);
            let class = |host: &HostId| match model.world.hosts.get(host) {
                Some(state) if state.is_up() => u8::from(gpus_of(model, host).is_empty()),
                _ => 2,
            };
            let keyed = hosts.iter().map(|host| (class(host), keys_of(model, &leases, host), *host));
            let mut keyed: Vec<_> = keyed.collect();
            keyed.sort_by(|(class, keys, _), (other_class, other, _)| {
                let by_key = || compare(keys.own.as_ref(), other.own.as_ref(), reversed);
                class.cmp(other_class).then_with(by_key)
            });
            for (slot, (.., host)) in hosts.iter_mut().zip(keyed) {
                *slot = host;
            }
        }
    }
}

/// Puts the GPUs of a host, given by their places, in the order that the screen has. MIG slices stay behind their GPU, and
/// the first of them says where they stand.
pub fn sort_gpus(model: &Model, leases: &Leases<'_>, host: &HostId, places: &mut [usize]) {
    let (order, reversed) = (model.settings.hosts.by, model.settings.hosts.reversed);
    if !order.is_by_values() {
        return;
    }
    let (gpus, keys) = (gpus_of(model, host), keys_of(model, leases, host));
    let key = |place: usize| keys.gpus.get(place).and_then(Option::as_ref);
    let whole = |place: usize| {
        let parent = gpus.get(place).and_then(|gpu| gpu.parent);
        parent.and_then(|index| gpus.iter().position(|gpu| gpu.index == index)).unwrap_or(place)
    };
    let mut first: BTreeMap<usize, Option<&Key>> = BTreeMap::new();
    for place in places.iter().copied() {
        let of_whole = first.entry(whole(place)).or_default();
        if compare(key(place), *of_whole, reversed) == Ordering::Less {
            *of_whole = key(place);
        }
    }
    let keyed = places.iter().map(|place| (whole(*place), *place));
    let mut keyed: Vec<_> = keyed.map(|at| (first.get(&at.0).copied().flatten(), at)).collect();
    keyed.sort_by(|(one, at), (other, other_at)| compare(*one, *other, reversed).then(at.cmp(other_at)));
    for (slot, (_, (_, place))) in places.iter_mut().zip(keyed) {
        *slot = place;
    }
}
