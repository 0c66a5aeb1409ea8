//! Which free GPUs are taken where only their number is asked for: the one choice that the key, the command and a launch
//! share. Pure; must not know which GPUs are free nor why these are offered.
//!
//! In this order: none that is at risk; one host; one model; on several hosts as few as possible, with equal numbers; then GPUs that are close
//! to each other. GPUs that are picked already decide between hosts and models that are equal otherwise.

use std::collections::BTreeSet;

use super::gpu::GpuInfo;
use super::ids::{GpuUuid, HostId};

/// A GPU that may be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Its model, without the vendor's name.
    pub model: String,
    /// Whether results on it, or it itself, are at risk.
    pub is_at_risk: bool,
}

/// The GPUs of one host that may be taken, or are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The host.
    pub host: HostId,
    /// Its GPUs by index.
    pub gpus: Vec<Candidate>,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub struct GpuRequest<'a> {
    /// How many GPUs.
    pub count: usize,
    /// How many on each host exactly, where that is asked for; divides `count`.
    pub per_host: Option<usize>,
    /// A host gives a multiple of this; divides `count`.
    pub unit: usize,
    /// What is picked already; none of it is among the offers.
    pub beside: &'a [Offer],
    /// How close two GPUs of a host are, by index.
    pub closeness: &'a dyn Fn(&HostId, u32, u32) -> u32,
}

/// From here on [`GpuRequest::closeness`] means that two GPUs reach each other by NVLink.
pub const NVLINK: u32 = 7;

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The GPUs by host, hosts in the order of the offers.
    pub offers: Vec<Offer>,
    /// Whether the GPUs of each host reach each other by NVLink.
    pub is_linked: bool,
}

impl Candidate {
    /// A GPU by its facts.
    pub fn of(info: &GpuInfo, is_at_risk: bool) -> Self {
        Self { index: info.index, uuid: info.uuid.clone(), model: info.model().to_owned(), is_at_risk }
    }
}

/// How well the GPUs of a choice within one host suit each other, the better the greater: how many are at risk, the two that
/// are farthest from each other, all pairs, and how far apart the indices are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    risky: std::cmp::Reverse<usize>,
    least: u32,
    sum: u64,
    span: std::cmp::Reverse<u32>,
}

/// A part of what a host offers: which of `offers`, and the places of some of its GPUs.
struct Pool {
    host: usize,
    gpus: Vec<usize>,
}

/// Chooses `request.count` of what is offered, in the order of the hosts; `None` where that many are not there. GPUs that are
/// at risk are taken where there are too few others. MIG slices never fill up whole GPUs: they are taken alone, where there are
/// too few whole ones, and beside what is picked already only more of that sort.
pub fn choose(offers: &[Offer], request: &GpuRequest<'_>) -> Option<Choice> {
    let of_sort = |slices: bool| {
        let of = |offer: &Offer| part(offer, |gpu| gpu.uuid.is_slice() == slices);
        choose_sound(&offers.iter().map(of).collect::<Vec<_>>(), request)
    };
    sorts(request.beside).iter().find_map(|slices| of_sort(*slices))
}

/// How many of what is offered [`choose`] takes at most `beside` what is picked already, where a host may give any number.
pub fn most(offers: &[Offer], beside: &[Offer]) -> usize {
    sorts(beside).iter().map(|slices| count_of(offers, *slices)).max().unwrap_or_default()
}

/// Whether MIG slices are chosen or whole GPUs, the better first, beside what is picked already.
fn sorts(beside: &[Offer]) -> &'static [bool] {
    match (count_of(beside, false), count_of(beside, true)) {
        (0, 0) => &[false, true],
        (_, 0) => &[false],
        (0, _) => &[true],
        _ => &[true, false],
    }
}

/// How many of these are MIG slices, or are none.
fn count_of(offers: &[Offer], slices: bool) -> usize {
    offers.iter().flat_map(|offer| &offer.gpus).filter(|gpu| gpu.uuid.is_slice() == slices).count()
}

fn choose_sound(offers: &[Offer], request: &GpuRequest<'_>) -> Option<Choice> {
    let sound: Vec<Offer> = offers.iter().map(|offer| part(offer, |gpu| !gpu.is_at_risk)).collect();
    let of_sound = choose_of(&sound, request);
    if sound == offers { of_sound } else { of_sound.or_else(|| choose_of(offers, request)) }
}

fn choose_of(offers: &[Offer], request: &GpuRequest<'_>) -> Option<Choice> {
    if request.count == 0 || !request.count.is_multiple_of(request.unit.max(1)) {
        return None;
    }
    let chooser = Chooser { offers, request };
    let models = chooser.models();
    let by_model: Vec<Vec<Pool>> = models.iter().map(|model| chooser.pools(Some(model))).collect();
    let mixed = || chooser.pools(None);
    let single = request.per_host.is_none_or(|each| each == request.count);
    let one_host = || {
        let one_model = by_model.iter().flatten().collect::<Vec<_>>();
        chooser.one_host(&one_model).or_else(|| chooser.one_host(&mixed().iter().collect::<Vec<_>>()))
    };
    let several = || {
        // Fewest hosts first; the sort is stable, so that the preferred model stays in front.
        let mut spread: Vec<_> = by_model.iter().filter_map(|pools| chooser.spread(pools)).collect();
        spread.sort_by_key(Vec::len);
        spread.into_iter().next().or_else(|| chooser.spread(&mixed()))
    };
    let chosen = single.then(one_host).flatten().or_else(several)?;
    Some(chooser.choice(chosen))
}

struct Chooser<'a> {
    offers: &'a [Offer],
    request: &'a GpuRequest<'a>,
}

/// Places of GPUs by the place of their host.
type Places = Vec<(usize, Vec<usize>)>;

impl Chooser<'_> {
    /// Every model that is offered, those of what is picked already first.
    fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = Vec::new();
        for gpu in self.request.beside.iter().chain(self.offers).flat_map(|offer| &offer.gpus) {
            if !models.contains(&gpu.model.as_str()) {
                models.push(&gpu.model);
            }
        }
        models
    }

    /// What each host offers, of one model or of all; hosts with picks first.
    fn pools(&self, model: Option<&str>) -> Vec<Pool> {
        let of = |(host, offer): (usize, &Offer)| {
            let gpus = offer.gpus.iter().enumerate();
            let gpus = gpus.filter(|(_, gpu)| model.is_none_or(|model| gpu.model == model));
            Pool { host, gpus: gpus.map(|(place, _)| place).collect() }
        };
        let mut pools: Vec<Pool> = self.offers.iter().enumerate().map(of).collect();
        pools.retain(|pool| !pool.gpus.is_empty());
        pools.sort_by_key(|pool| !self.has_picks(pool.host));
        pools
    }

    fn has_picks(&self, host: usize) -> bool {
        let id = self.offers.get(host).map(|offer| &offer.host);
        self.request.beside.iter().any(|picked| Some(&picked.host) == id)
    }

    fn picked_model(&self, pool: &Pool) -> bool {
        let model = self.gpu(pool.host, pool.gpus.first().copied().unwrap_or(0)).map(|gpu| &gpu.model);
        self.request.beside.iter().flat_map(|offer| &offer.gpus).any(|gpu| Some(&gpu.model) == model)
    }

    fn gpu(&self, host: usize, place: usize) -> Option<&Candidate> {
        self.offers.get(host)?.gpus.get(place)
    }

    /// All from one host: one with picks, then one with the model of the picks, then the closest GPUs.
    fn one_host(&self, pools: &[&Pool]) -> Option<Places> {
        let count = self.request.count;
        let enough = pools.iter().filter(|pool| pool.gpus.len() >= count);
        let rated = enough.map(|pool| {
            let (nearness, gpus) = self.closest(pool, count);
            let rank = (nearness.risky, self.has_picks(pool.host), self.picked_model(pool), nearness);
            (rank, (pool.host, gpus))
        });
        // The first of several equal ones.
        let best = rated.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map(|(_, chosen)| vec![chosen])
    }

    /// From several hosts: as few as will do, or up to twice as many where that makes the numbers equal.
    fn spread(&self, pools: &[Pool]) -> Option<Places> {
        let (count, unit) = (self.request.count, self.request.unit.max(1));
        if let Some(each) = self.request.per_host {
            return (each > 0 && count.is_multiple_of(each))
                .then(|| self.equal(pools, count / each, each))
                .flatten();
        }
        let mut largest: Vec<&Pool> = pools.iter().collect();
        largest.sort_by_key(|pool| std::cmp::Reverse(pool.gpus.len() / unit));
        let mut left = count;
        let mut chosen = Places::new();
        for pool in largest {
            let take = (pool.gpus.len() / unit * unit).min(left);
            if take == 0 {
                break;
            }
            chosen.push((pool.host, self.closest(pool, take).1));
            left -= take;
        }
        if left > 0 {
            return None;
        }
        let least = chosen.len();
        let equal = (least..=least * 2).filter(|hosts| count.is_multiple_of(*hosts * unit));
        let equal = equal.map(|hosts| self.equal(pools, hosts, count / hosts)).find_map(|equal| equal);
        Some(equal.unwrap_or(chosen))
    }

    /// `each` from each of so many hosts.
    fn equal(&self, pools: &[Pool], hosts: usize, each: usize) -> Option<Places> {
        let enough = pools.iter().filter(|pool| pool.gpus.len() >= each);
        let mut rated: Vec<_> = enough.map(|pool| (self.closest(pool, each), pool.host)).collect();
        rated.sort_by_key(|((nearness, _), host)| {
            (nearness.risky.0, !self.has_picks(*host), std::cmp::Reverse(*nearness))
        });
        let chosen: Places = rated.into_iter().take(hosts).map(|((_, gpus), host)| (host, gpus)).collect();
        (chosen.len() == hosts).then_some(chosen)
    }

    /// The `count` GPUs of a host that are closest to each other: from each GPU on, always the nearest next one.
    fn closest(&self, pool: &Pool, count: usize) -> (Nearness, Vec<usize>) {
        let grown = pool.gpus.iter().map(|seed| {
            let mut chosen = vec![*seed];
            while chosen.len() < count {
                let rest = pool.gpus.iter().filter(|place| !chosen.contains(place));
                let rated = rest.map(|place| {
                    let with: Vec<usize> = chosen.iter().copied().chain([*place]).collect();
                    (self.nearness(pool.host, &with), *place)
                });
                match rated.reduce(|best, next| if next.0 > best.0 { next } else { best }) {
                    Some((_, place)) => chosen.push(place),
                    None => break,
                }
            }
            chosen.sort_unstable();
            (self.nearness(pool.host, &chosen), chosen)
        });
        grown.reduce(|best, next| if next.0 > best.0 { next } else { best }).unwrap_or_default()
    }

    fn nearness(&self, host: usize, places: &[usize]) -> Nearness {
        let Some(offer) = self.offers.get(host) else {
            return Nearness::default();
        };
        let indices: Vec<u32> =
            places.iter().filter_map(|place| offer.gpus.get(*place)).map(|gpu| gpu.index).collect();
        let (mut least, mut sum) = (u32::MAX, 0u64);
        for (at, a) in indices.iter().enumerate() {
            for b in &indices[..at] {
                let near = (self.request.closeness)(&offer.host, *a, *b);
                least = least.min(near);
                sum += u64::from(near);
            }
        }
        let at_risk = places.iter().filter_map(|place| offer.gpus.get(*place)).filter(|gpu| gpu.is_at_risk);
        let risky = std::cmp::Reverse(at_risk.count());
        let span = indices.iter().max().zip(indices.iter().min()).map_or(0, |(most, least)| most - least);
        Nearness { risky, least, sum, span: std::cmp::Reverse(span) }
    }

    fn choice(&self, mut chosen: Places) -> Choice {
        chosen.sort_unstable();
        let is_linked = chosen
            .iter()
            .all(|(host, places)| places.len() > 1 && self.nearness(*host, places).least >= NVLINK);
        let offers = chosen.into_iter().filter_map(|(host, places)| {
            let gpus = places.into_iter().filter_map(|place| self.gpu(host, place).cloned()).collect();
            Some(Offer { host: self.offers.get(host)?.host.clone(), gpus })
        });
        Choice { offers: offers.collect(), is_linked }
    }
}

impl Choice {
    /// What was chosen, in one sentence: `4 of gpu-b (H200, one NVLink island)`, `8 on 2 hosts, 4 each (H200)`, `2 of gpu-b
    /// (H200), at risk: gpu-b:1`.
    pub fn words(&self) -> String {
        let at_risk: Vec<Offer> = self.offers.iter().map(|offer| part(offer, |gpu| gpu.is_at_risk)).collect();
        match places(&at_risk) {
            none if none.is_empty() => self.chosen_words(),
            some => format!("{}, at risk: {some}", self.chosen_words()),
        }
    }

    fn chosen_words(&self) -> String {
        let count: usize = self.offers.iter().map(|offer| offer.gpus.len()).sum();
        let models: BTreeSet<&str> =
            self.offers.iter().flat_map(|offer| &offer.gpus).map(|gpu| gpu.model.as_str()).collect();
        let models = models.into_iter().collect::<Vec<_>>().join(" and ");
        let each = self.offers.first().map_or(0, |offer| offer.gpus.len());
        let equal = self.offers.iter().all(|offer| offer.gpus.len() == each);
        match self.offers.as_slice() {
            [one] => {
                let linked = if self.is_linked { ", one NVLink island" } else { "" };
                format!("{count} of {} ({models}{linked})", one.host)
            }
            several => {
                let hosts = several.len();
                let linked = if self.is_linked { ", one NVLink island on each" } else { "" };
                let how = if equal {
                    format!(", {each} each")
                } else {
                    let each = several.iter().map(|offer| format!("{} of {}", offer.gpus.len(), offer.host));
                    format!(": {}", each.collect::<Vec<_>>().join(", "))
                };
                format!("{count} on {hosts} hosts{how} ({models}{linked})")
            }
        }
    }

    /// The GPUs as `--gpus` of a launch writes them: `gpu-a:0,1;gpu-b:1`.
    pub fn places(&self) -> String {
        places(&self.offers)
    }
}

/// What of an offer is at risk, or is not.
fn part(offer: &Offer, is_meant: impl Fn(&Candidate) -> bool) -> Offer {
    let gpus = offer.gpus.iter().filter(|gpu| is_meant(gpu)).cloned().collect();
    Offer { host: offer.host.clone(), gpus }
}

fn places(offers: &[Offer]) -> String {
    let host = |offer: &Offer| {
        let indices: Vec<String> = offer.gpus.iter().map(|gpu| gpu.index.to_string()).collect();
        format!("{}:{}", offer.host, indices.join(","))
    };
    offers.iter().filter(|offer| !offer.gpus.is_empty()).map(host).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
#[path = "pick_tests.rs"]
mod tests;
