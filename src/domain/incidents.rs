//! What went wrong or stands out in a run, and when: the keys `{` and `}` stop there, the strip of the whole run shows some of it,
//! `hvtui report` lists it. Pure.

use serde::{Deserialize, Serialize, Serializer};

use super::alerts::{Alert, AlertKind, Place};
use super::history::{Mark, RunHistory};
use super::ids::{HostId, Rank, RunId};
use super::outage::Outage;
use super::run::{RunStage, Slot};
use super::text::sanitize;
use super::time::Stamp;
use super::units::{counted, duration_us, short_duration_us};
use super::unusual::{APART_US, Cliff};
use super::world::{RunState, World};

/// Jumps of the clocks of several hosts by as much within so long are one: each is pinged once a second, microseconds.
const JUMPED_US: i64 = 5_000_000;
/// What they may differ by, microseconds: how long the pings take.
const ALIKE_US: u64 = 10_000;
/// A client that attaches to a run has reached its hosts so soon, and one that leaves it has heard them so late, microseconds.
const REACHED_US: i64 = 5_000_000;
/// Falls of the utilisation that are told of a run at most, the first ones.
const CLIFFS: usize = 32;
/// What is said of a time in which no client followed a recorded run.
pub const NOT_FOLLOWED: &str = "not followed for";

/// What an incident is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IncidentKind {
    /// An alert began.
    Alert(AlertKind),
    /// A rank failed by itself.
    RankFailed,
    /// All ranks were started again.
    Restarted,
    /// No client followed the run.
    NotFollowed,
    /// A host was lost.
    HostLost,
    /// A host came back.
    HostBack,
    /// Something never came, or is not recorded.
    Missing,
    /// Some of the recording cannot be read.
    Damaged,
    /// A clock was set, or slept.
    ClockJump,
    /// A step took far longer than the others.
    SlowStep,
    /// GPUs computed no longer.
    UtilisationFell,
}

impl IncidentKind {
    /// Its name in JSON: of an alert that of its kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alert(kind) => kind.name(),
            Self::RankFailed => AlertKind::RankFailed.name(),
            Self::Restarted => "restarted",
            Self::NotFollowed => "not_followed",
            Self::HostLost => "host_lost",
            Self::HostBack => "host_back",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::ClockJump => "clock_jump",
            Self::SlowStep => "slow_step",
            Self::UtilisationFell => "utilisation_fell",
        }
    }
}

/// One incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When.
    #[serde(serialize_with = "rfc3339")]
    pub at: Stamp,
    /// What it is.
    #[serde(serialize_with = "by_name")]
    pub kind: IncidentKind,
    /// The ranks that it is about, where it is about some.
    pub ranks: Vec<Rank>,
    /// The hosts likewise.
    pub hosts: Vec<HostId>,
    /// What, in words that are safe for a terminal.
    pub words: String,
}

/// For people and JSON in words; where it is kept beside a recording as it is.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn rfc3339<S: Serializer>(at: &Stamp, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { to.serialize_str(&at.rfc3339()) } else { at.serialize(to) }
}

/// As [`rfc3339`].
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn by_name<S: Serializer>(kind: &IncidentKind, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { to.serialize_str(kind.name()) } else { kind.serialize(to) }
}

impl Incident {
    fn new(at: Stamp, kind: IncidentKind, words: impl Into<String>) -> Self {
        Self { at, kind, ranks: Vec::new(), hosts: Vec::new(), words: words.into() }
    }

    /// Since when an alert was so, and what it says; without the run.
    pub fn of_alert(alert: &Alert) -> Self {
        let Place { host, gpu, rank, .. } = alert.place.clone();
        let hosts = host.iter().cloned().collect();
        let place = Place { host, gpu, ..Place::default() }.to_string();
        let place = match rank {
            Some(rank) if place.is_empty() => format!("rank {rank}"),
            Some(rank) => format!("rank {rank} ({place})"),
            None => place,
        };
        let words = [place.as_str(), &sanitize(&alert.words)].join(" ").trim_start().to_owned();
        let ranks = rank.into_iter().collect();
        Self { ranks, hosts, ..Self::new(alert.since, IncidentKind::Alert(alert.kind), words) }
    }
}

/// A host's clock went ahead of the client's by so many microseconds: one of the two was set, or slept.
pub type ClockJump = (Stamp, HostId, i64);

/// The jumps of the clocks of a run's hosts since it was asked for, in the order of time.
pub fn clock_jumps(world: &World, run: &RunState) -> Vec<ClockJump> {
    let start = run.history.points.start();
    let hosts = run.by_host.keys().filter_map(|host| Some((host, world.hosts.get(host)?)));
    let each = hosts.flat_map(|(host, state)| {
        let jumps = state.clock_jumps.iter().filter(|(at, _)| *at >= start);
        jumps.map(|(at, by_us)| (*at, host.clone(), *by_us))
    });
    let mut jumps: Vec<ClockJump> = each.collect();
    jumps.sort_by_key(|(at, ..)| *at);
    jumps
}

/// What stands out in the steps and loads of a run: [`IncidentKind::SlowStep`] and [`IncidentKind::UtilisationFell`].
pub fn noticed(run: &RunState) -> Vec<Incident> {
    let slow = run.history.slow_steps().into_iter().map(|slow| {
        let [us, usual] = [slow.us, slow.usual_us].map(|us| short_duration_us(us.into()));
        let words = format!("slow step {}: {us}, usually {usual}", slow.step);
        Incident::new(slow.at, IncidentKind::SlowStep, words)
    });
    slow.chain(cliffs(run)).collect()
}

/// The falls of the GPUs' utilisation while the run trained; those that fell together are one.
fn cliffs(run: &RunState) -> Vec<Incident> {
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
        let mut ranks: Vec<Rank> = rest[..together].iter().map(|cliff| cliff.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let hosts = hosts_of(run, &ranks);
        told.push(Incident { ranks, hosts, ..Incident::new(first.at, IncidentKind::UtilisationFell, words) });
        rest = &rest[together..];
    }
    told
}

/// The hosts of some ranks, each once.
fn hosts_of(run: &RunState, ranks: &[Rank]) -> Vec<HostId> {
    let states = ranks.iter().filter_map(|rank| run.ranks.get(rank.0 as usize));
    let mut hosts: Vec<HostId> = states.map(|state| state.placement.host.clone()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The times in which it trained.
fn trained(run: &RunState) -> Vec<(Stamp, Stamp)> {
    let ends = run.stages.iter().skip(1).map(|(at, _)| *at).chain([Stamp(i64::MAX)]);
    let each = run.stages.iter().zip(ends).filter(|((_, stage), _)| *stage == RunStage::Training);
    each.map(|((at, _), end)| (*at, end)).collect()
}

/// The times in which hosts of a run were lost to a client that followed it: one that attaches to it reaches them anew.
pub fn lost_hosts<'a>(
    history: &'a RunHistory,
    unattended: &'a [(Stamp, Stamp)],
) -> impl Iterator<Item = &'a Outage> {
    let is_away = move |outage: &&Outage| {
        let end = outage.until.unwrap_or(Stamp(i64::MAX));
        unattended.iter().any(|(from, to)| {
            outage.from <= to.plus_micros(REACHED_US) && end >= from.plus_micros(-REACHED_US)
        })
    };
    history.outages.iter().filter(move |outage| !is_away(outage))
}

/// What the incidents of a run are found in.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The run.
    pub run: &'a RunState,
    /// What is kept of it from its start on.
    pub history: &'a RunHistory,
    /// Alerts that are about it or its hosts.
    pub alerts: Vec<Incident>,
    /// The jumps of the clocks of its hosts.
    pub clock_jumps: &'a [ClockJump],
    /// When no client followed it.
    pub unattended: &'a [(Stamp, Stamp)],
    /// What is said of such a time, before how long it was.
    pub away_words: &'a str,
    /// When what was recorded cannot be read.
    pub lost: &'a [(Stamp, Stamp)],
    /// What [`noticed`] tells.
    pub noticed: &'a [Incident],
    /// Its first and last moment, within which all incidents lie.
    pub range: (Stamp, Stamp),
}

impl Sources<'_> {
    /// When something went wrong or stands out, as far as is known: alerts began, ranks failed or were started again, no client
    /// followed, a host was lost or came back, something is missing, a clock was set, a step was slow, GPUs computed no longer. In
    /// rising order, one a moment.
    pub fn all(self) -> Vec<Incident> {
        let (start, end) = self.range;
        // an alert of a host that is lost says less
        let (outages, marks, away) = (self.outages(), self.marks(), self.away());
        let (missing, jumps) = (self.missing(), self.jumps());
        let all = outages.into_iter().chain(self.alerts).chain(marks).chain(away).chain(missing).chain(jumps);
        let mut all: Vec<Incident> = all.chain(self.noticed.iter().cloned()).collect();
        for one in &mut all {
            one.at = one.at.clamp(start, end);
        }
        all.sort_by_key(|one| one.at);
        all.dedup_by_key(|one| one.at);
        all
    }

    /// When ranks failed and were started again.
    fn marks(&self) -> Vec<Incident> {
        let each = self.history.marks.iter().map(|(at, mark)| match mark {
            Mark::Failed(rank) => Incident {
                ranks: vec![*rank],
                hosts: hosts_of(self.run, &[*rank]),
                ..Incident::new(*at, IncidentKind::RankFailed, format!("rank {rank} failed"))
            },
            Mark::Restarted => Incident::new(*at, IncidentKind::Restarted, "all ranks were started again"),
        });
        each.collect()
    }

    fn away(&self) -> Vec<Incident> {
        let each = self.unattended.iter().map(|(from, to)| {
            let long = short_duration_us(u64::try_from(to.micros_since(*from)).unwrap_or(0));
            Incident::new(*from, IncidentKind::NotFollowed, format!("{} {long}", self.away_words))
        });
        each.collect()
    }

    /// What never came or is not recorded, and what can no longer be read.
    fn missing(&self) -> Vec<Incident> {
        let parts = self.history.missing.parts().iter().map(|part| {
            let ranks: Vec<Rank> = part.rank().into_iter().collect();
            let mut hosts = hosts_of(self.run, &ranks);
            hosts.extend(part.host().cloned());
            Incident { ranks, hosts, ..Incident::new(part.at, IncidentKind::Missing, part.words()) }
        });
        let lost = self.lost.iter().map(|(from, to)| {
            let long = duration_us(u64::try_from(to.micros_since(*from)).unwrap_or(0));
            let words = format!("the recording is damaged: {long} cannot be read");
            Incident::new(*from, IncidentKind::Damaged, words)
        });
        parts.chain(lost).collect()
    }

    /// Where a host's clock and the client's no longer agree with what they were; those of several hosts together are one.
    fn jumps(&self) -> Vec<Incident> {
        let mut told = Vec::new();
        let mut rest = self.clock_jumps;
        while let Some((at, host, by_us)) = rest.first() {
            let is_one = |(other, _, us): &&ClockJump| {
                other.micros_since(*at) < JUMPED_US
                    && us.abs_diff(*by_us) < ALIKE_US + by_us.unsigned_abs() / 100
            };
            let together = rest.iter().take_while(is_one).count();
            let mut hosts: Vec<HostId> = rest[..together].iter().map(|(_, host, _)| host.clone()).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let of = match hosts.len() {
                1 => format!("clock of {}", sanitize(host.as_str())),
                several => format!("clocks of {}", counted(several, "host")),
            };
            let sign = if *by_us < 0 { '−' } else { '+' };
            let by = short_duration_us(by_us.unsigned_abs());
            let words = format!("{of} jumped by {sign}{by} against this machine's: one was set, or slept");
            told.push(Incident { hosts, ..Incident::new(*at, IncidentKind::ClockJump, words) });
            rest = &rest[together..];
        }
        told
    }

    /// When hosts of it were lost, and when they came back.
    fn outages(&self) -> Vec<Incident> {
        let each = lost_hosts(self.history, self.unattended).flat_map(|outage| {
            let host = sanitize(outage.host.as_str());
            let ranks = self.run.ranks_on(&outage.host);
            let incident = |at, kind, words: String| Incident {
                ranks: self.run.by_host.get(&outage.host).cloned().unwrap_or_default(),
                hosts: vec![outage.host.clone()],
                ..Incident::new(at, kind, words)
            };
            let Some(until) = outage.until else {
                let lost = format!("{host} was lost, with {ranks}");
                return vec![incident(outage.from, IncidentKind::HostLost, lost)];
            };
            let long = short_duration_us(until.micros_since(outage.from).max(0).unsigned_abs());
            let lost = format!("{host} was lost for {long}, with {ranks}");
            let back = format!("{host} is back after {long}, with {ranks}");
            vec![
                incident(outage.from, IncidentKind::HostLost, lost),
                incident(until, IncidentKind::HostBack, back),
            ]
        });
        each.collect()
    }
}

/// Those of a run whose whole recording a world has taken in. `unattended`: when no client followed it; `lost`: when what was
/// recorded cannot be read; `range`: the first and the last moment of the recording.
pub fn of_recording(
    world: &World,
    run: &RunId,
    unattended: &[(Stamp, Stamp)],
    lost: &[(Stamp, Stamp)],
    range: (Stamp, Stamp),
) -> Vec<Incident> {
    let Some(run) = world.runs.get(run) else { return Vec::new() };
    let (clock_jumps, noticed) = (clock_jumps(world, run), noticed(run));
    let sources = Sources {
        run,
        history: &run.history,
        alerts: world.alerts.all().map(Incident::of_alert).collect(),
        clock_jumps: &clock_jumps,
        unattended,
        away_words: NOT_FOLLOWED,
        lost,
        noticed: &noticed,
        range,
    };
    sources.all()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{START, blank_sample, info, spec};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::fixtures::rank_exit;
    use crate::domain::host::LinkState;
    use crate::domain::run::RunSpec;

    struct Script {
        world: World,
        spec: RunSpec,
        at: Stamp,
        seq: u64,
    }

    impl Script {
        /// Two ranks on one host that is reached.
        fn new() -> Self {
            let mut script = Self { world: World::default(), spec: spec(2), at: START, seq: 0 };
            script.host(Event::LinkChanged { state: LinkState::Up });
            script.host(Event::HostDescribed { info: Arc::new(info(2)) });
            let created = Event::RunCreated { spec: Arc::new(script.spec.clone()) };
            script.tell(Origin::Run(script.spec.id.clone()), created);
            script
        }

        fn tell(&mut self, origin: Origin, event: Event) {
            self.seq += 1;
            self.world.apply(&Envelope { seq: self.seq, at: self.at, origin, event });
        }

        fn host(&mut self, event: Event) {
            self.tell(Origin::Host("gpu-a".into()), event);
        }

        fn wait(&mut self, seconds: i64) -> Stamp {
            self.at = self.at.plus_micros(seconds * 1_000_000);
            self.at
        }

        fn found(&self, unattended: &[(Stamp, Stamp)], lost: &[(Stamp, Stamp)]) -> Vec<Incident> {
            of_recording(&self.world, &self.spec.id, unattended, lost, (START, self.at))
        }
    }

    #[test]
    fn each_incident_has_its_kind_ranks_and_hosts_one_a_moment() {
        let mut script = Script::new();
        let missing = script.wait(10);
        let dropped = Event::Gap { what: "step".to_owned(), dropped: 3 };
        script.tell(Origin::Rank(script.spec.id.clone(), Rank(1)), dropped);
        let failed = script.wait(10);
        let exit = rank_exit(3);
        script.tell(Origin::Rank(script.spec.id.clone(), Rank(0)), Event::RankExited { exit });
        script.wait(10);
        let second = |at: i64| START.plus_micros(at * 1_000_000);
        let found = script.found(&[(second(4), second(6))], &[(second(25), second(26))]);
        let ranks = |one: &Incident| one.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>();
        let told: Vec<_> = found.iter().map(|one| (one.at, one.kind.name(), ranks(one))).collect();
        assert_eq!(
            told,
            [
                (second(4), "not_followed", vec![]),
                (missing, "missing", vec![1]),
                (failed, "rank_failed", vec![0]),
                (second(25), "damaged", vec![]),
            ]
        );
        assert_eq!(found[0].words, "not followed for 2.0 s");
        assert_eq!(found[1].words, "rank 1: 3 steps not recorded");
        assert!(found[2].words.starts_with("rank 0 (gpu-a:0) failed first: exit 3"), "{found:?}");
        let host = [HostId::from("gpu-a")];
        assert!(found[1].hosts == host && found[2].hosts == host, "{found:?}");
        let json = serde_json::to_value(&found[2]).unwrap();
        assert_eq!((&json["kind"], &json["ranks"][0]), (&"rank_failed".into(), &0.into()));
        assert_eq!(json["at"], failed.rfc3339());
    }

    #[test]
    fn of_a_run_of_which_nothing_is_known_there_are_none() {
        let script = Script::new();
        assert_eq!(script.found(&[], &[]), []);
        let other = RunId::new(1, 1);
        assert_eq!(of_recording(&script.world, &other, &[(START, START)], &[], (START, START)), []);
    }

    #[test]
    fn what_lies_outside_of_the_recording_is_told_at_its_ends() {
        let mut script = Script::new();
        let end = script.wait(10);
        let (before, after) = (START.plus_micros(-5_000_000), end.plus_micros(1_000_000));
        let found = script.found(&[(before, START)], &[(after, after)]);
        let told: Vec<_> = found.iter().map(|one| (one.at, one.kind)).collect();
        assert_eq!(told, [(START, IncidentKind::NotFollowed), (end, IncidentKind::Damaged)]);
    }

    #[test]
    fn a_host_that_its_client_left_was_not_lost() {
        let mut script = Script::new();
        let heard = script.wait(10);
        script.host(blank_sample());
        script.wait(4);
        let state = LinkState::Down { reason: "timed out".to_owned(), retry_at: None };
        script.host(Event::LinkChanged { state });
        // long enough for an alert of the same moment
        script.wait(32);
        script.host(Event::LinkChanged { state: LinkState::Connecting { to: "gpu-a".to_owned() } });
        let back = script.wait(8);
        script.host(Event::LinkChanged { state: LinkState::Up });
        script.wait(20);
        let links = |unattended: &[(Stamp, Stamp)]| {
            let mut found = script.found(unattended, &[]);
            found.retain(|one| matches!(one.kind, IncidentKind::HostLost | IncidentKind::HostBack));
            found
        };
        let told = links(&[]);
        assert_eq!(told.iter().map(|one| one.at).collect::<Vec<_>>(), [heard, back]);
        assert_eq!(told[0].words, "gpu-a was lost for 44.0 s, with ranks 0-1");
        let second = |at: i64| START.plus_micros(at * 1_000_000);
        assert_eq!(links(&[(second(0), second(1))]), told, "long before it");
        assert_eq!(links(&[(second(9), back)]), []);
        assert_eq!(links(&[(second(3), second(6))]), [], "reached late by the client that came back");
    }
}
