//! What went wrong or stands out in a run, and when: `{` and `}` stop there and say it, the strip of the whole run shows it.

use std::sync::Arc;

use crate::domain::history::Mark;
use crate::domain::ids::RunId;
use crate::domain::outage::Outage;
use crate::domain::run::{RunStage, Slot};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units::{counted, duration_us, short_duration_us};
use crate::domain::unusual::{APART_US, Cliff};
use crate::domain::world::RunState;
use crate::tui::screens::run::{away_words, unattended, whole};
use crate::tui::screens::{Model, replay};

/// What stands out is looked for again after so much more of the run, microseconds.
const AGAIN_US: i64 = 1_000_000;
/// Jumps of the clocks of several hosts by as much within so long are one: each is pinged once a second, microseconds.
const JUMPED_US: i64 = 5_000_000;
/// What they may differ by, microseconds: how long the pings take.
const ALIKE_US: u64 = 10_000;
/// A client that attaches to a run has reached its hosts so soon, and one that leaves it has heard them so late, microseconds.
const REACHED_US: i64 = 5_000_000;
/// Falls of the utilisation that are told of a run at most, the first ones.
const CLIFFS: usize = 32;

/// One incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// When.
    pub at: Stamp,
    /// What, in words.
    pub words: String,
}

/// What of an incident only its steps and loads tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusual {
    /// A step took far longer than the others.
    Slow,
    /// GPUs computed no longer.
    Cliff,
}

/// What stands out in the steps and loads of a run, as far as it has been looked through.
#[derive(Debug, Clone, PartialEq)]
pub struct Noticed {
    run: RunId,
    /// Up to when.
    until: Stamp,
    ended: bool,
    found: Vec<(Unusual, Incident)>,
}

/// Looks through the run that is shown, where more of it is known than before. A replay that goes back keeps what it has seen.
pub(super) fn notice(model: &mut Model) {
    // a glimpse has some moments alone, and what replaces it ends at the same one
    if model.ui.replay.is_glimpse {
        return;
    }
    let Some((id, shown)) = model.shown_run() else { return };
    let run = whole::now(model, shown).unwrap_or(shown);
    let (until, ended) = (run.last_at, run.outcome.is_some());
    let kept = model.ui.run.noticed.as_deref().filter(|noticed| noticed.run == *id);
    let is_known = |kept: &Noticed| {
        let more = until.micros_since(kept.until);
        more <= 0 || (more < AGAIN_US && kept.ended == ended)
    };
    if kept.is_some_and(is_known) {
        return;
    }
    let noticed = Noticed { run: id.clone(), until, ended, found: found(run) };
    model.ui.run.noticed = Some(Arc::new(noticed));
}

/// What stands out in the steps and loads of the run that is shown.
pub fn noticed<'a>(model: &'a Model, run: &RunState) -> &'a [(Unusual, Incident)] {
    let noticed = model.ui.run.noticed.as_deref().filter(|noticed| noticed.run == run.spec.id);
    noticed.map_or(&[], |noticed| &noticed.found)
}

fn found(run: &RunState) -> Vec<(Unusual, Incident)> {
    let slow = run.history.slow_steps().into_iter().map(|slow| {
        let [us, median] = [slow.us, slow.median_us].map(|us| short_duration_us(us.into()));
        let words = format!("slow step {}: {us}, median {median}", slow.step);
        (Unusual::Slow, Incident { at: slow.at, words })
    });
    slow.chain(cliffs(run)).collect()
}

/// The falls of the GPUs' utilisation while the run trained; those that fell together are one.
fn cliffs(run: &RunState) -> Vec<(Unusual, Incident)> {
    let spans = trained(run);
    let mut all: Vec<Cliff> = Vec::new();
    for rank in &run.ranks {
        let placement = &rank.placement;
        if !matches!(placement.slot, Slot::Gpu { .. }) {
            continue;
        }
        let ended = rank.exit.as_ref().map_or(Stamp(i64::MAX), |(at, _)| *at);
        let within = spans.iter().map(|(from, to)| (*from, (*to).min(ended)));
        all.extend(within.flat_map(|within| run.history.cliffs(placement.rank, within)));
    }
    all.sort_unstable_by_key(|cliff| (cliff.at, cliff.rank));
    let mut told = Vec::new();
    let mut rest = &all[..];
    while let Some(first) = rest.first().filter(|_| told.len() < CLIFFS) {
        let together = rest.partition_point(|cliff| cliff.at.micros_since(first.at) < APART_US);
        let worst = rest[..together].iter().min_by_key(|cliff| (cliff.util, cliff.rank)).unwrap_or(first);
        let place =
            run.ranks.get(worst.rank.0 as usize).map_or_else(String::new, |rank| rank.placement.to_string());
        let fell = format!("{} %, median {} %", worst.util, worst.median);
        let words = match together {
            1 => format!("utilisation of {place} fell to {fell}"),
            several => format!("utilisation of {} fell, of {place} to {fell}", counted(several, "GPU")),
        };
        told.push((Unusual::Cliff, Incident { at: first.at, words }));
        rest = &rest[together..];
    }
    told
}

/// The times in which it trained.
fn trained(run: &RunState) -> Vec<(Stamp, Stamp)> {
    let ends = run.stages.iter().skip(1).map(|(at, _)| *at).chain([Stamp(i64::MAX)]);
    let each = run.stages.iter().zip(ends).filter(|((_, stage), _)| *stage == RunStage::Training);
    each.map(|((at, _), end)| (*at, end)).collect()
}

/// What never came or is not recorded, and what can no longer be read.
fn missing(model: &Model, run: &RunState) -> Vec<Incident> {
    let parts = whole::history(model, run).missing.parts();
    let parts = parts.iter().map(|part| Incident { at: part.at, words: part.words() });
    let lost = replay::state(model).map_or(&[][..], |state| &state.lost).iter().map(|(from, to)| {
        let long = u64::try_from(to.micros_since(*from)).unwrap_or(0);
        let words = format!("the recording is damaged: {} cannot be read", duration_us(long));
        Incident { at: *from, words }
    });
    parts.chain(lost).collect()
}

/// Where a host's clock and this machine's no longer agree with what they were; those of several hosts together are one.
fn clock_jumps(model: &Model, run: &RunState) -> Vec<Incident> {
    let all = whole::clock_jumps(model, run);
    let mut told = Vec::new();
    let mut rest = &all[..];
    while let Some((at, host, by_us)) = rest.first() {
        let is_one = |(other, _, us): &&whole::ClockJump| {
            other.micros_since(*at) < JUMPED_US && us.abs_diff(*by_us) < ALIKE_US + by_us.unsigned_abs() / 100
        };
        let together = rest.iter().take_while(is_one).count();
        let mut hosts: Vec<_> = rest[..together].iter().map(|(_, host, _)| host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let of = match hosts.len() {
            1 => format!("clock of {}", sanitize(host.as_str())),
            several => format!("clocks of {}", counted(several, "host")),
        };
        let sign = if *by_us < 0 { '−' } else { '+' };
        let by = short_duration_us(by_us.unsigned_abs());
        let words = format!("{of} jumped by {sign}{by} against this machine's: one was set, or slept");
        told.push(Incident { at: *at, words });
        rest = &rest[together..];
    }
    told
}

/// The times in which hosts of it were lost to a client that followed it: one that attaches to it reaches them anew.
pub(super) fn lost_hosts<'a>(model: &'a Model, run: &'a RunState) -> impl Iterator<Item = &'a Outage> {
    let is_away = |outage: &&Outage| {
        let end = outage.until.unwrap_or(Stamp(i64::MAX));
        let mut spans = unattended(model, run).iter();
        spans.any(|(from, to)| {
            outage.from <= to.plus_micros(REACHED_US) && end >= from.plus_micros(-REACHED_US)
        })
    };
    whole::history(model, run).outages.iter().filter(move |outage| !is_away(outage))
}

/// When hosts of it were lost, and when they came back.
fn outages(model: &Model, run: &RunState) -> Vec<Incident> {
    let each = lost_hosts(model, run).flat_map(|outage| {
        let host = sanitize(outage.host.as_str());
        let ranks = run.ranks_on(&outage.host);
        let Some(until) = outage.until else {
            return vec![Incident { at: outage.from, words: format!("{host} was lost, with {ranks}") }];
        };
        let long = short_duration_us(until.micros_since(outage.from).max(0).unsigned_abs());
        let lost = format!("{host} was lost for {long}, with {ranks}");
        let back = format!("{host} is back after {long}, with {ranks}");
        vec![Incident { at: outage.from, words: lost }, Incident { at: until, words: back }]
    });
    each.collect()
}

/// When something went wrong or stands out, as far as is known: alerts began, ranks failed or were started again, no client
/// followed, a host was lost or came back, something is missing, a clock was set, a step was slow, GPUs computed no longer. In
/// rising order, one a moment.
pub fn all(model: &Model, run: &RunState) -> Vec<Incident> {
    let told = |(at, words): (Stamp, String)| Incident { at, words };
    let alerts = whole::alerts(model, run).into_iter().map(told);
    let marks = whole::history(model, run).marks.iter().map(|(at, mark)| {
        let words = match mark {
            Mark::Failed(rank) => format!("rank {rank} failed"),
            Mark::Restarted => "all ranks were started again".to_owned(),
        };
        Incident { at: *at, words }
    });
    let away = unattended(model, run).iter().map(|(from, to)| {
        let long = u64::try_from(to.micros_since(*from)).unwrap_or(0);
        Incident { at: *from, words: format!("{} {}", away_words(model), short_duration_us(long)) }
    });
    let noticed = noticed(model, run).iter().map(|(_, incident)| incident.clone());
    let (start, end) = whole::range(model, run);
    // an alert of a host that is lost says less
    let all =
        outages(model, run).into_iter().chain(alerts).chain(marks).chain(away).chain(missing(model, run));
    let all = all.chain(clock_jumps(model, run));
    let mut all: Vec<Incident> = all.chain(noticed).collect();
    for one in &mut all {
        one.at = one.at.clamp(start, end);
    }
    all.sort_by_key(|one| one.at);
    all.dedup_by_key(|one| one.at);
    all
}
