//! What a cluster tells by itself: a hot GPU, a lost host, a rank that hangs, each with a begin and an end.
//!
//! A pure fold beside that of [`World`], over the same envelopes: a replay derives what was told live, and nothing of
//! it is recorded. Its time is that of the envelopes; a moment without any is [`World::tick`]. What is not known never
//! begins an alert. Must not know how an alert is shown.

mod gpus;
mod rules;
mod runs;
#[cfg(test)]
mod tests;
mod track;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::{Envelope, Event, Origin};
use super::gpu::health::Severity;
use super::host::HostInfo;
use super::ids::{HostId, Rank, RunId};
use super::note::Note;
use super::run_status::RunInventory;
use super::text::{plain, sanitize};
use super::time::Stamp;
use super::world::{HostState, RunState, World};
pub use rules::{AlertRules, HeatRule};
pub(super) use track::{CLEAR_US, UNKNOWN_US};
use track::{Seen, Track, Turn};

/// How many alerts are kept; the oldest that have ended go first.
const KEPT: usize = 256;
/// How many runs are known as told.
const TOLD_RUNS: usize = 4096;
/// Between two looks at what time alone changes.
const LOOK_US: i64 = rules::SECOND_US;
/// For how long a host is down before nothing is known of its GPUs any more, microseconds.
const UNSEEN_US: i64 = 60 * rules::SECOND_US;

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// A host is not reached.
    HostDown,
    /// A GPU is lost, or can't be read at all.
    GpuLost,
    /// A GPU is too hot.
    Temperature,
    /// Heat or the power brake holds a GPU's clocks down.
    Slowdown,
    /// A GPU has memory errors that ECC could not correct.
    Ecc,
    /// The driver reported an XID error of a GPU.
    Xid,
    /// The disk of a host does not hold what the ranks of a run print.
    DiskFull,
    /// A process that does not belong to the run that leases a GPU holds memory there.
    ForeignProcess,
    /// A run stands still, or a rank's GPU is busy without work and takes no step.
    Hang,
    /// A GPU is held and computes nothing.
    HeldIdle,
    /// A rank is a straggler.
    Straggler,
    /// A rank has failed.
    RankFailed,
    /// A run that is not followed here is live.
    LiveRun,
}

impl AlertKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::HostDown,
        Self::GpuLost,
        Self::Temperature,
        Self::Slowdown,
        Self::Ecc,
        Self::Xid,
        Self::DiskFull,
        Self::ForeignProcess,
        Self::Hang,
        Self::HeldIdle,
        Self::Straggler,
        Self::RankFailed,
        Self::LiveRun,
    ];

    /// Its name in the hosts file and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostDown => "host_down",
            Self::GpuLost => "gpu_lost",
            Self::Temperature => "temperature",
            Self::Slowdown => "slowdown",
            Self::Ecc => "ecc",
            Self::Xid => "xid",
            Self::DiskFull => "disk_full",
            Self::ForeignProcess => "foreign_process",
            Self::Hang => "hang",
            Self::HeldIdle => "held_idle",
            Self::Straggler => "straggler",
            Self::RankFailed => "rank_failed",
            Self::LiveRun => "live_run",
        }
    }

    /// How bad it is, where nothing more is known of it.
    fn severity(self) -> Severity {
        match self {
            Self::HostDown
            | Self::GpuLost
            | Self::Slowdown
            | Self::Ecc
            | Self::DiskFull
            | Self::Hang
            | Self::RankFailed => Severity::Act,
            Self::Xid
            | Self::Temperature
            | Self::ForeignProcess
            | Self::HeldIdle
            | Self::Straggler
            | Self::LiveRun => Severity::Look,
        }
    }
}

/// Where an alert is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host, if it is on one.
    pub host: Option<HostId>,
    /// The index of the GPU there.
    pub gpu: Option<u32>,
    /// The run that it is about, or that uses the GPU.
    pub run: Option<RunId>,
    /// The rank of that run.
    pub rank: Option<Rank>,
}

impl std::fmt::Display for Place {
    /// `gpu-a`, `gpu-a:3`, `run 7QK2`, `run 7QK2 rank 3 (gpu-a:3)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gpu = self.gpu.map(|gpu| format!(":{gpu}")).unwrap_or_default();
        let host = self.host.as_ref().map(|host| format!("{}{gpu}", sanitize(host.as_str())));
        let rank = self.rank.map(|rank| format!(" rank {rank}")).unwrap_or_default();
        let run = self.run.as_ref().map(|run| format!("run {}{rank}", run.short()));
        match (run, host) {
            (Some(run), Some(host)) => write!(f, "{run} ({host})"),
            (one, other) => f.write_str(&one.or(other).unwrap_or_default()),
        }
    }
}

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Counts up in the order in which they began.
    pub number: u64,
    /// What it is about.
    pub kind: AlertKind,
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// Since when it is so.
    pub since: Stamp,
    /// Since when it is so no more; the same as `since` for what has happened and does not last.
    pub until: Option<Stamp>,
    /// What is so, in words that are safe for a terminal; without the place.
    pub words: String,
    /// The places of its begin and its end among all begins and ends.
    serials: (u64, Option<u64>),
}

impl Alert {
    /// Whether it goes on.
    pub fn is_active(&self) -> bool {
        self.until.is_none()
    }

    /// Whether it has happened at one moment and does not last.
    pub fn is_moment(&self) -> bool {
        self.until == Some(self.since)
    }

    /// `gpu-a:3: 88 °C, too hot from 86 °C on`.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.place, self.words)
    }
}

/// A begin or an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The alert as it is now.
    pub alert: Alert,
    /// Whether it is told because it ended.
    pub ended: bool,
}

/// Whom a condition is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Subject {
    Host(HostId),
    Run(RunId),
}

/// The conditions of one subject, each with a number of its own: of a GPU, of a rank.
type Tracks = BTreeMap<(AlertKind, u32), Track>;

/// The fold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// When something is told.
    pub rules: Arc<AlertRules>,
    tracks: BTreeMap<Subject, Tracks>,
    kept: VecDeque<Alert>,
    numbers: u64,
    serials: u64,
    told_runs: BTreeSet<RunId>,
    /// The hosts as they were described last, to see which GPUs are gone.
    described: BTreeMap<HostId, Arc<HostInfo>>,
    looked: Option<Stamp>,
}

/// What is known of the hosts and runs: a [`World`] without its alerts.
#[derive(Clone, Copy)]
pub(super) struct WorldView<'a> {
    /// Hosts by name.
    pub(super) hosts: &'a BTreeMap<HostId, HostState>,
    /// Runs by id.
    pub(super) runs: &'a BTreeMap<RunId, RunState>,
}

/// A condition as it is seen.
struct Condition<'a> {
    kind: AlertKind,
    /// Tells it from others of its kind and subject.
    key: u32,
    seen: Seen,
    /// For how long it must hold; `None`: its kind is switched off.
    hold_us: Option<i64>,
    tell: &'a dyn Fn() -> (Place, String),
}

impl World {
    /// Time has come to `now` without an event: a host that is lost for long is told all the same.
    pub fn tick(&mut self, now: Stamp) {
        self.alerts.pass(WorldView { hosts: &self.hosts, runs: &self.runs }, now);
    }

    /// A run stands like this at `now`: one that was attached to, as it was known and then as it is once it has caught up. Gives
    /// the notes of its hosts that came meanwhile.
    pub fn stands(&mut self, run: RunState, now: Stamp) -> Vec<(HostId, Arc<Note>)> {
        let id = run.spec.id.clone();
        let before = self.runs.insert(id.clone(), run);
        self.alerts.caught_up(WorldView { hosts: &self.hosts, runs: &self.runs }, &id, before.as_ref(), now)
    }

    /// Takes what hosts told of the runs that they know, at `now`: those that are live and not followed here are told.
    pub fn hear(&mut self, inventory: &RunInventory, now: Stamp) {
        self.alerts.hear(inventory, WorldView { hosts: &self.hosts, runs: &self.runs }, now);
    }
}

impl Alerts {
    /// All that are kept, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Alert> + ExactSizeIterator {
        self.kept.iter()
    }

    /// Those that go on.
    pub fn active(&self) -> impl DoubleEndedIterator<Item = &Alert> {
        self.kept.iter().filter(|alert| alert.is_active())
    }

    /// The rank by which a run is suspected to hang.
    pub fn hung_rank(&self, run: &RunId) -> Option<Rank> {
        let hangs = |alert: &&Alert| alert.kind == AlertKind::Hang && alert.place.run.as_ref() == Some(run);
        self.active().find(hangs)?.place.rank
    }

    /// The newest first, and before them those that go on.
    pub fn listed(&self) -> Vec<&Alert> {
        let mut all: Vec<&Alert> = self.kept.iter().rev().collect();
        all.sort_by_key(|alert| (!alert.is_active(), std::cmp::Reverse(alert.since)));
        all
    }

    /// How many begins and ends there have been.
    pub fn serial(&self) -> u64 {
        self.serials
    }

    /// The begins and ends after the first `serial` ones, in order. What was dropped meanwhile is missing.
    pub fn news_since(&self, serial: u64) -> Vec<News> {
        if serial >= self.serials {
            return Vec::new();
        }
        let mut news = Vec::new();
        for alert in &self.kept {
            let (begin, end) = alert.serials;
            news.extend((begin > serial).then_some((begin, false, alert)));
            news.extend(end.filter(|end| *end > serial).map(|end| (end, true, alert)));
        }
        news.sort_by_key(|(at, ..)| *at);
        news.into_iter().map(|(_, ended, alert)| News { alert: alert.clone(), ended }).collect()
    }

    /// Takes an envelope that hosts and runs have taken in.
    pub(super) fn take(&mut self, known: WorldView<'_>, envelope: &Envelope) {
        let at = envelope.at;
        match (&envelope.origin, &envelope.event) {
            (Origin::Host(host), Event::HostSampled { .. }) => self.look_at_gpus(known, host, at),
            (Origin::Host(host), Event::HostDescribed { info }) => {
                self.end_of_boot(host, info, at);
                self.end_of_gone_gpus(host, info, at);
            }
            (Origin::Host(host), Event::LinkChanged { .. }) => {
                if let Some(state) = known.hosts.get(host) {
                    self.look_at_link(host, state, at);
                }
            }
            (Origin::Host(host), Event::LeasesTold { .. }) => self.look_at_leases(known, host, at),
            (Origin::Host(host), Event::GpuHappened { event }) => self.gpu_happened(known, host, event, at),
            (Origin::Run(run), Event::RunNoted { host, note }) => self.noted(run, host, note, at),
            (Origin::Rank(run, rank), Event::RankExited { .. }) => self.rank_exited(known, run, *rank, at),
            (Origin::Run(run), Event::RunEnded { .. } | Event::RunRestarted { .. }) => {
                self.end_all(&Subject::Run(run.clone()), at);
            }
            _ => {}
        }
        // what a run tells of the past makes no time pass
        let is_past = self.looked.is_some_and(|looked| at < looked) && envelope.origin.run().is_some();
        if !is_past {
            self.pass(known, at);
        }
    }

    /// Time has come to `at`.
    pub(super) fn pass(&mut self, known: WorldView<'_>, at: Stamp) {
        let waits = |looked: Stamp| (0..LOOK_US).contains(&at.micros_since(looked));
        if self.looked.is_some_and(waits) {
            return;
        }
        self.looked = Some(at);
        self.end_xids(at);
        for (host, state) in known.hosts.iter().filter(|(_, state)| state.down_since.is_some()) {
            self.look_at_link(host, state, at);
            if state.down_since.is_some_and(|since| at.micros_since(since) > UNSEEN_US) {
                self.lose_sight(host, at);
            }
        }
        for (id, run) in known.runs.iter().filter(|(_, run)| run.is_live() && !run.is_behind) {
            self.look_at_run(known, id, run, at);
        }
    }

    /// Takes what hosts told of the runs that they know: each one that is live and not followed here is told once.
    pub(super) fn hear(&mut self, inventory: &RunInventory, known: WorldView<'_>, at: Stamp) {
        for (run, shares) in inventory.shares.iter().filter(|(run, _)| inventory.is_live(run)) {
            let Some((host, share)) = shares.iter().find(|(_, share)| share.live) else { continue };
            let info = known.hosts.get(host).and_then(|state| state.info.as_ref());
            let user = info.map(|info| info.user.as_str());
            self.is_live(known, run, host, (Some(&share.name), user), at);
        }
    }

    fn look_at_leases(&mut self, known: WorldView<'_>, host: &HostId, at: Stamp) {
        let leases = known.hosts.get(host).and_then(|state| state.leases.as_ref());
        for lease in leases.iter().flat_map(|leases| &leases.held).filter(|lease| lease.own) {
            if let Some(run) = &lease.run {
                self.is_live(known, run, host, (lease.name.as_deref(), lease.user.as_deref()), at);
            }
        }
    }

    /// A run is live on a host.
    fn is_live(
        &mut self,
        known: WorldView<'_>,
        run: &RunId,
        host: &HostId,
        (name, user): (Option<&str>, Option<&str>),
        at: Stamp,
    ) {
        let known = known.runs.contains_key(run) || self.told_runs.contains(run);
        if known || !self.rules.live_run || self.told_runs.len() >= TOLD_RUNS {
            return;
        }
        self.told_runs.insert(run.clone());
        let name = name.map(|name| format!("{name} ")).unwrap_or_default();
        let user = user.map(|user| format!("of {user} ")).unwrap_or_default();
        let words = format!("{name}{user}is live on {host}");
        let place = Place { run: Some(run.clone()), ..Place::default() };
        self.happened(AlertKind::LiveRun, place, at, &words);
    }

    fn look_at_link(&mut self, host: &HostId, state: &HostState, at: Stamp) {
        let seen = state.down_since.map_or(Seen::Over, |_| Seen::Holds(None));
        let tell = || {
            // also while it is tried again
            let why =
                state.down_why.as_ref().map(|why| format!(": {}", plain(host, why))).unwrap_or_default();
            (Place { host: Some(host.clone()), ..Place::default() }, format!("host is down{why}"))
        };
        let hold_us = self.rules.host_down_us;
        let down = Condition { kind: AlertKind::HostDown, key: 0, seen, hold_us, tell: &tell };
        let subject = Subject::Host(host.clone());
        self.see(&subject, &down, at);
        // it is told when the loss has been seen for a while, and counts from the last word of the host
        let track = self.tracks.get(&subject).and_then(|tracks| tracks.get(&(AlertKind::HostDown, 0)));
        let number = track.and_then(|track| track.alert);
        if let (Some(since), Some(number)) = (state.down_since, number)
            && let Some(alert) = self.kept.iter_mut().find(|alert| alert.number == number)
        {
            alert.since = since;
        }
    }

    /// Takes in how a condition is seen.
    fn see(&mut self, subject: &Subject, condition: &Condition<'_>, at: Stamp) {
        let Condition { kind, key, seen, hold_us, tell } = condition;
        let Some(hold_us) = hold_us else { return };
        let key = (*kind, *key);
        let tracks = match self.tracks.get_mut(subject) {
            Some(tracks) => tracks,
            None if matches!(seen, Seen::Holds(_)) => self.tracks.entry(subject.clone()).or_default(),
            None => return,
        };
        let track = match tracks.get_mut(&key) {
            Some(track) => track,
            None if matches!(seen, Seen::Holds(_)) => tracks.entry(key).or_insert(Track::new(at)),
            None => return,
        };
        let turn = track.turn(at, *seen, *hold_us);
        let ends = track.alert;
        if turn == Turn::Same {
            if track.is_idle() {
                tracks.remove(&key);
            }
            return;
        }
        match turn {
            Turn::Begins(since) => {
                let (place, words) = tell();
                let number = self.begin(*kind, place, since, None, &words);
                let track = self.tracks.get_mut(subject).and_then(|tracks| tracks.get_mut(&key));
                if let Some(track) = track {
                    track.alert = Some(number);
                }
            }
            Turn::Ends(gone) => {
                tracks.remove(&key);
                if let Some(number) = ends {
                    self.end(number, gone);
                }
            }
            Turn::Same => {}
        }
    }

    /// Something has happened that does not last.
    fn happened(&mut self, kind: AlertKind, place: Place, at: Stamp, words: &str) {
        self.begin(kind, place, at, Some(at), words);
    }

    fn begin(
        &mut self,
        kind: AlertKind,
        place: Place,
        since: Stamp,
        until: Option<Stamp>,
        words: &str,
    ) -> u64 {
        if self.kept.len() >= KEPT {
            let oldest = self.kept.iter().position(|alert| !alert.is_active()).unwrap_or(0);
            self.kept.remove(oldest);
        }
        self.numbers += 1;
        self.serials += 1;
        let (number, words) = (self.numbers, sanitize(words).into_owned());
        let (serials, severity) = ((self.serials, None), kind.severity());
        self.kept.push_back(Alert { number, kind, severity, place, since, until, words, serials });
        number
    }

    fn end(&mut self, number: u64, at: Stamp) {
        self.serials += 1;
        let serial = self.serials;
        if let Some(alert) = self.kept.iter_mut().find(|alert| alert.number == number) {
            // what lasted is no moment, however short it was
            alert.until = Some(at.max(alert.since.plus_micros(1)));
            alert.serials.1 = Some(serial);
        }
    }

    /// Ends what is told of the GPUs of a host that is down: nothing is known of them any more.
    fn lose_sight(&mut self, host: &HostId, at: Stamp) {
        let Some(tracks) = self.tracks.get_mut(&Subject::Host(host.clone())) else { return };
        let down = tracks.remove(&(AlertKind::HostDown, 0));
        let gone: Vec<u64> = tracks.values().filter_map(|track| track.alert).collect();
        tracks.clear();
        tracks.extend(down.map(|track| ((AlertKind::HostDown, 0), track)));
        for number in gone {
            self.end(number, at);
        }
    }

    /// Ends all alerts of a subject.
    fn end_all(&mut self, subject: &Subject, at: Stamp) {
        for track in self.tracks.remove(subject).unwrap_or_default().into_values() {
            if let Some(number) = track.alert {
                self.end(number, at);
            }
        }
    }
}
