//! A run as its hosts tell it, from their files alone: what a client knows of a run that it did not launch,
//! or of one that went on without it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::doctor::names;
use super::ids::{HostId, Rank, RunId};
use super::outcome::RunOutcome;
use super::run::{JobKind, Placement, RankExit, RunSpec, RunStage, Slot};
use super::time::Stamp;
use super::units::{ranges, ranges_joined};

/// One host's share of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRunStatus {
    /// The run.
    pub run: RunId,
    /// The host's name in it: the one that the launching client's hosts file gave it.
    pub host: HostId,
    /// The run's name.
    pub name: String,
    /// The ranks that live there.
    pub ranks: Vec<Rank>,
    /// How far its supervisor says to have come.
    pub stage: RunStage,
    /// Whether the supervisor lives.
    pub supervised: bool,
    /// Whether anything of the run lives there: the supervisor, a rank-wrap or a rank.
    pub live: bool,
    /// Why its ranks were told to stop, if they were.
    #[serde(default)]
    pub stop: Option<String>,
    /// Ranks that were started.
    #[serde(default)]
    pub started: Vec<Rank>,
    /// Ranks that have ended, and how.
    #[serde(default)]
    pub exits: BTreeMap<Rank, RankExit>,
    /// The whole run, where the client that launched it left that there.
    #[serde(default)]
    pub spec: Option<Box<RunSpec>>,
    /// For how many seconds nothing has been written of it there; not told while anything of it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_s: Option<u64>,
}

/// How a run stands, by its recording and its hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Something of it lives on a host.
    Running,
    /// It has ended: so says the recording, or every host of it.
    Ended,
    /// Unknown: a host of it did not answer.
    Unknown,
}

impl RunStatus {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        }
    }
}

/// Runs of one host that are kept, the newest: an agent tells 500 and those older ones that are live.
const MOST: usize = 1024;

/// What was heard of runs from hosts, each host by its name here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunInventory {
    /// Hosts that have told all their runs.
    pub answered: BTreeSet<HostId>,
    /// When hosts told it, by the clock here: what they tell in seconds counts back from then.
    pub told_at: BTreeMap<HostId, Stamp>,
    /// What they told.
    pub shares: BTreeMap<RunId, BTreeMap<HostId, HostRunStatus>>,
}

impl RunInventory {
    /// Takes in what a host told; with `last` it has told all. A machine that stands in a run under several names tells the
    /// share of each: that of the host's own name counts.
    pub fn take(&mut self, host: &HostId, shares: Vec<HostRunStatus>, last: bool) {
        for share in shares {
            let of_run = self.shares.entry(share.run.clone()).or_default();
            let has_own = of_run.get(host).is_some_and(|kept| kept.host == *host);
            if share.host == *host || !has_own {
                of_run.insert(host.clone(), share);
            }
        }
        let mut more = self.shares.values().filter(|shares| shares.contains_key(host)).count();
        while more > MOST {
            // ids of runs are sorted by age
            let oldest = self.shares.iter().find(|(_, shares)| shares.contains_key(host));
            let Some(oldest) = oldest.map(|(run, _)| run.clone()) else { break };
            self.forget_run(&oldest, host);
            more -= 1;
        }
        if last {
            self.answered.insert(host.clone());
        }
    }

    /// Forgets what a host told: it is asked again.
    pub fn forget(&mut self, host: &HostId) {
        self.answered.remove(host);
        self.told_at.remove(host);
        for shares in self.shares.values_mut() {
            shares.remove(host);
        }
        self.shares.retain(|_, shares| !shares.is_empty());
    }

    /// Forgets what a host told of a run: it has nothing of it any more. `false` where it told nothing.
    pub fn forget_run(&mut self, run: &RunId, host: &HostId) -> bool {
        let Some(shares) = self.shares.get_mut(run) else { return false };
        let was_told = shares.remove(host).is_some();
        if shares.is_empty() {
            self.shares.remove(run);
        }
        was_told
    }

    /// The hosts that may keep something of a run, each with its name in it; `names` are those that there are. A host doesn't
    /// tell all that it keeps: not its oldest runs, nor what was never started there.
    pub fn keepers(&self, spec: &RunSpec, names: &BTreeSet<HostId>) -> BTreeMap<HostId, HostId> {
        let by_own_name = |host: HostId| (host.clone(), host);
        let there = spec.hosts().into_iter().filter(|host| names.contains(host));
        let mut keepers: BTreeMap<_, _> = there.map(by_own_name).collect();
        // one that has another name now may be any of those that answered
        if self.unheard(spec).iter().any(|host| !names.contains(host)) {
            keepers.extend(self.answered.iter().cloned().map(by_own_name));
        }
        let told = self.shares.get(&spec.id).into_iter().flatten();
        keepers.extend(told.map(|(host, share)| (host.clone(), share.host.clone())));
        keepers
    }

    /// Whether a host is one of a run's, or told something of it. Any other keeper was only asked because it may be one under
    /// another name.
    pub fn is_host_of(&self, spec: &RunSpec, host: &HostId) -> bool {
        spec.hosts().contains(host) || self.shares.get(&spec.id).is_some_and(|told| told.contains_key(host))
    }

    /// All of a run, as some host of it knows it.
    pub fn spec(&self, run: &RunId) -> Option<&RunSpec> {
        self.shares.get(run)?.values().find_map(|share| share.spec.as_deref())
    }

    /// Whether anything of a run lives on a host that was heard.
    pub fn is_live(&self, run: &RunId) -> bool {
        self.shares.get(run).is_some_and(|shares| shares.values().any(|share| share.live))
    }

    /// What hosts tell of ranks that have ended while others of the run go on: `rank 0 (n1:0): killed by SIGKILL`,
    /// `ranks 0, 2 were stopped`; nothing where all that have ended have ended well.
    pub fn broken(&self, spec: &RunSpec) -> Option<String> {
        let shares = self.shares.get(&spec.id).filter(|shares| shares.values().any(|share| share.live))?;
        bad_ends(spec, &exits(shares))
    }

    /// How a run has ended, by the exits of its ranks: `exit 0: all 3 ranks finished`, `exit 3: rank 1 (n2:0): exit 3; rank 0 was
    /// stopped`. Which of several failed first their hosts alone can't tell: `failed: ranks 0, 2 have failed`. `None` while anything of
    /// it lives, where a host of it was not heard, and where a rank has no exit.
    pub fn ended(&self, spec: &RunSpec) -> Option<String> {
        let exits = exits(self.shares.get(&spec.id)?);
        let is_known = self.status(spec, None) == RunStatus::Ended && exits.len() == spec.placements.len();
        if !is_known {
            return None;
        }
        let mut failed = exits.values().filter(|exit| !exit.stopped && exit.shell_code() != 0);
        Some(match (bad_ends(spec, &exits), failed.next(), failed.next()) {
            (None, ..) if exits.len() == 1 => "exit 0: the rank finished".to_owned(),
            (None, ..) => format!("exit 0: all {} ranks finished", exits.len()),
            (Some(words), None, _) => words,
            (Some(words), Some(exit), None) => format!("exit {}: {words}", exit.shell_code()),
            (Some(words), Some(_), Some(_)) => format!("failed: {words}"),
        })
    }

    /// When a run was over, to the second: when something of it was written last on one of its hosts. `None` where anything of it
    /// lives, where a host of it was not heard, where one does not tell that, and where that is before the run was made: by a clock that
    /// was set.
    pub fn over_at(&self, spec: &RunSpec) -> Option<Stamp> {
        let shares = self.shares.get(&spec.id).filter(|_| self.status(spec, None) == RunStatus::Ended)?;
        let written = |(host, share): (&HostId, &HostRunStatus)| {
            let quiet_us = i64::try_from(share.quiet_s?.saturating_mul(1_000_000)).ok()?;
            Some(self.told_at.get(host)?.plus_micros(-quiet_us))
        };
        let over = shares.iter().map(written).collect::<Option<Vec<Stamp>>>()?.into_iter().max();
        over.filter(|over| *over > spec.created)
    }

    /// How a run stands.
    pub fn status(&self, spec: &RunSpec, outcome: Option<&RunOutcome>) -> RunStatus {
        if self.is_live(&spec.id) {
            RunStatus::Running
        } else if outcome.is_some() || self.unheard(spec).is_empty() {
            RunStatus::Ended
        } else {
            RunStatus::Unknown
        }
    }

    /// The hosts of a run that were not heard.
    pub fn unheard(&self, spec: &RunSpec) -> Vec<HostId> {
        let shares = self.shares.get(&spec.id);
        let told = |host: &HostId| shares.is_some_and(|all| all.values().any(|share| share.host == *host));
        let mut hosts = spec.hosts();
        hosts.retain(|host| !self.answered.contains(host) && !told(host));
        hosts
    }
}

/// The ends of a run's ranks, as its hosts tell them.
fn exits(shares: &BTreeMap<HostId, HostRunStatus>) -> BTreeMap<Rank, &RankExit> {
    shares.values().flat_map(|share| share.exits.iter().map(|(rank, exit)| (*rank, exit))).collect()
}

/// Those of them that are no success, in words.
fn bad_ends(spec: &RunSpec, exits: &BTreeMap<Rank, &RankExit>) -> Option<String> {
    let of_kind = |stopped: bool| {
        let of_kind = exits.iter().filter(|(_, exit)| exit.stopped == stopped && exit.shell_code() != 0);
        of_kind.map(|(rank, exit)| (*rank, *exit)).collect::<Vec<_>>()
    };
    let numbers = |ranks: &[(Rank, &RankExit)]| ranges(ranks.iter().map(|(rank, _)| rank.0));
    let failed = match of_kind(false).as_slice() {
        [] => None,
        [(rank, exit)] => {
            let place = spec.placements.get(rank.0 as usize).map(|place| format!(" ({place})"));
            Some(format!("rank {rank}{}: {}", place.unwrap_or_default(), exit.describe()))
        }
        several => Some(format!("ranks {} have failed", numbers(several))),
    };
    let stopped = match of_kind(true).as_slice() {
        [] => None,
        [(rank, _)] => Some(format!("rank {rank} was stopped")),
        several => Some(format!("ranks {} were stopped", numbers(several))),
    };
    let words: Vec<String> = failed.into_iter().chain(stopped).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// What it can mean that a host has nothing of a run that had ranks there: words behind the host's name.
pub fn nothing_there(spec: &RunSpec, host: &HostId) -> String {
    let ranks = spec.placements.iter().filter(|place| place.host == *host).map(|place| place.rank.0);
    let ranks: Vec<u32> = ranks.collect();
    let rank = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!(
        "it has nothing of this run ({rank} {}): it was set up anew, another home or state folder is used there, or what was \
         left was deleted; what became of its ranks is not known",
        ranges(ranks)
    )
}

/// That a run is on hosts that can't be asked, and why: `run 7QK2 is on hosts a, b, which the hosts file does not name`; few of many.
pub fn is_on(spec: &RunSpec, hosts: &[HostId], why: &str) -> String {
    let host = if hosts.len() == 1 { "host" } else { "hosts" };
    let all: Vec<&HostId> = hosts.iter().collect();
    format!("run {} is on {host} {}, {why}", spec.id.short(), names(&all))
}

/// The hosts on which a run takes CPU slots; under Slurm these are not hvtui's.
pub fn hosts_of_cpu_slots(spec: &RunSpec) -> Vec<HostId> {
    let takes = |host: &HostId| !cpu_slots(spec, host, &BTreeMap::new()).is_empty();
    spec.hosts().into_iter().filter(takes).collect()
}

/// CPU slots of a run on a host that other live runs have, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSlots {
    /// The host.
    pub host: HostId,
    slots: BTreeSet<u32>,
    runs: Vec<String>,
}

/// Hosts with shared slots that have a line each.
const LINES: usize = 3;

impl SharedSlots {
    /// What a host has told more of the same.
    pub fn add(&mut self, more: Self) {
        self.slots.extend(more.slots);
        let new: Vec<String> = more.runs.into_iter().filter(|run| !self.runs.contains(run)).collect();
        self.runs.extend(new);
    }

    /// `here: CPU slots 0-1 are in use by run 7QK2 (train.py), too`.
    fn words(&self) -> String {
        let (slot, are) = if self.slots.len() == 1 { ("slot", "is") } else { ("slots", "are") };
        let run = if self.runs.len() == 1 { "run" } else { "runs" };
        let (slots, runs) = (ranges(self.slots.iter().copied()), self.runs.join(", "));
        format!("{}: CPU {slot} {slots} {are} in use by {run} {runs}, too", self.host)
    }

    /// Those of several hosts in words, in the order of the run's hosts: a line each, of more than three hosts one for all.
    pub fn lines(spec: &RunSpec, mut shared: Vec<Self>) -> Vec<String> {
        let hosts = spec.hosts();
        shared.sort_by_key(|one| hosts.iter().position(|host| *host == one.host));
        if shared.len() <= LINES {
            return shared.iter().map(Self::words).collect();
        }
        let place = |one: &Self| format!("{}:{}", one.host, ranges_joined(one.slots.iter().copied(), ","));
        let places: Vec<String> = shared.iter().map(place).collect();
        vec![format!("CPU slots in use by other runs, too: {}", places.join(" "))]
    }
}

/// Which other live runs have CPU slots that `spec` takes on a host, by what the host tells. CPU slots have no lease.
pub fn shared_cpu_slots(spec: &RunSpec, host: &HostId, shares: &[HostRunStatus]) -> Option<SharedSlots> {
    let ours = cpu_slots(spec, host, &BTreeMap::new());
    let (mut slots, mut runs) = (BTreeSet::new(), Vec::new());
    for share in shares.iter().filter(|share| share.live && share.run != spec.id) {
        let Some(other) = share.spec.as_deref() else { continue };
        let theirs = cpu_slots(other, &share.host, &share.exits);
        let words = format!("{} ({})", share.run.short(), share.name);
        let both: Vec<u32> = ours.intersection(&theirs).copied().collect();
        // a machine that has two names in a run tells the share of each
        if !both.is_empty() && !runs.contains(&words) {
            runs.push(words);
        }
        slots.extend(both);
    }
    (!runs.is_empty()).then(|| SharedSlots { host: host.clone(), slots, runs })
}

/// The CPU slots that live runs have on a host which tells these shares.
pub fn cpu_slots_of(shares: &[HostRunStatus]) -> BTreeSet<u32> {
    let live = shares.iter().filter(|share| share.live);
    let slots = live.filter_map(|share| Some(cpu_slots(share.spec.as_deref()?, &share.host, &share.exits)));
    slots.flatten().collect()
}

/// The CPU slots that the ranks of a run which have not ended take on a host.
fn cpu_slots(spec: &RunSpec, host: &HostId, ended: &BTreeMap<Rank, RankExit>) -> BTreeSet<u32> {
    let is_ours = spec.kind != JobKind::Slurm;
    let goes_on = |place: &&Placement| is_ours && place.host == *host && !ended.contains_key(&place.rank);
    let slots = spec.placements.iter().filter(goes_on).flat_map(Placement::slots);
    let index = |slot: &Slot| match slot {
        Slot::Cpu { index } => Some(*index),
        Slot::Gpu { .. } => None,
    };
    slots.filter_map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run_status, placement, rank_exit, run_spec};

    fn spec() -> RunSpec {
        let placements = vec![placement(0, "a", 0), placement(1, "b", 0)];
        RunSpec { name: "digits".into(), created: Stamp(1), ..run_spec(placements) }
    }

    fn share(host: &str, live: bool) -> HostRunStatus {
        HostRunStatus {
            host: HostId::from(host),
            name: "digits".into(),
            spec: (host == "b").then(|| Box::new(spec())),
            ..host_run_status(live)
        }
    }

    #[test]
    fn other_live_runs_on_the_cpu_slots_of_a_run_are_told() {
        let of = |number, host: &str, live| {
            let run = RunId::new(number, 2);
            let spec = RunSpec { id: run.clone(), ..spec() };
            HostRunStatus { run, spec: Some(Box::new(spec)), ..share(host, live) }
        };
        let (a, first) = (HostId::from("a"), of(5, "a", true));
        let told =
            |shares: &[HostRunStatus]| shared_cpu_slots(&spec(), &a, shares).map(|shared| shared.words());
        let short = first.run.short().to_owned();
        let words = format!("a: CPU slot 0 is in use by run {short} (digits), too");
        assert_eq!(told(std::slice::from_ref(&first)), Some(words.clone()));
        assert_eq!(told(&[first.clone(), first.clone()]), Some(words), "each once");
        assert_eq!(
            told(&[of(5, "a", false), share("b", true)]),
            None,
            "one has ended, one is the run itself"
        );
        let mut ended = first.clone();
        let exit = RankExit {
            code: Some(0),
            signal: None,
            t: crate::domain::time::HostTime(0),
            error: None,
            stopped: false,
            cause: None,
        };
        ended.exits.insert(Rank(0), exit);
        assert_eq!(told(&[ended]), None, "its rank there has ended");
        assert_eq!(hosts_of_cpu_slots(&spec()), [a.clone(), HostId::from("b")]);
        let slurm = RunSpec { kind: JobKind::Slurm, ..spec() };
        assert!(hosts_of_cpu_slots(&slurm).is_empty());
        assert_eq!(shared_cpu_slots(&slurm, &a, &[first]), None);
    }

    #[test]
    fn slots_of_few_hosts_have_a_line_each_and_those_of_many_one_together_in_the_hosts_order() {
        let spec = run_spec(["d", "b", "c", "a"].map(|host| placement(0, host, 0)).to_vec());
        let of = |host: &str, slots: &[u32]| SharedSlots {
            host: HostId::from(host),
            slots: slots.iter().copied().collect(),
            runs: vec!["7QK2 (x)".to_owned()],
        };
        let mut last = of("d", &[0]);
        last.add(of("d", &[1, 3]));
        let few = SharedSlots::lines(&spec, vec![of("a", &[0]), last.clone()]);
        let words = |host: &str, slots: &str| format!("{host}: CPU {slots} in use by run 7QK2 (x), too");
        assert_eq!(few, [words("d", "slots 0-1, 3 are"), words("a", "slot 0 is")]);
        let many = SharedSlots::lines(&spec, vec![of("a", &[0]), of("c", &[2]), last, of("b", &[0])]);
        assert_eq!(many, ["CPU slots in use by other runs, too: d:0-1,3 b:0 c:2 a:0"]);
    }

    #[test]
    fn all_hosts_of_a_run_that_can_not_be_asked_are_named_and_of_many_some() {
        let spec = spec();
        let run = spec.id.short();
        let hosts: Vec<HostId> = (0..64).map(|at| HostId::from(format!("node{at:03}").as_str())).collect();
        assert_eq!(is_on(&spec, &hosts[..1], "so"), format!("run {run} is on host node000, so"));
        assert_eq!(is_on(&spec, &hosts[..2], "so"), format!("run {run} is on hosts node000, node001, so"));
        let many = is_on(&spec, &hosts, "so");
        assert!(many.contains("node003") && many.ends_with(" more, so") && many.len() < 100, "{many}");
    }

    #[test]
    fn a_run_was_over_when_its_last_host_had_written_last_by_the_moment_at_which_each_told_that() {
        let told = |of_a: Option<u64>, of_b: Option<u64>| {
            let mut inventory = RunInventory::default();
            for (host, quiet_s, at) in [("a", of_a, 500), ("b", of_b, 700)] {
                let share = HostRunStatus { quiet_s, ..share(host, false) };
                inventory.take(&HostId::from(host), vec![share], true);
                inventory.told_at.insert(HostId::from(host), Stamp(at * 1_000_000));
            }
            inventory
        };
        let at = |seconds: i64| Some(Stamp(seconds * 1_000_000));
        assert_eq!(told(Some(90), Some(300)).over_at(&spec()), at(410));
        assert_eq!(told(Some(90), Some(250)).over_at(&spec()), at(450));
        assert_eq!(told(Some(90), None).over_at(&spec()), None, "an older agent");
        assert_eq!(told(Some(600), Some(800)).over_at(&spec()), None, "before it was made");
        assert_eq!(told(Some(90), Some(u64::MAX)).over_at(&spec()), None);
        let mut inventory = told(Some(90), Some(300));
        inventory.take(&HostId::from("b"), vec![share("b", true)], true);
        assert_eq!(inventory.over_at(&spec()), None, "it goes on");
        let mut inventory = told(Some(90), Some(300));
        inventory.forget(&HostId::from("b"));
        assert_eq!(inventory.over_at(&spec()), None, "a host is asked again");
    }

    #[test]
    fn of_a_machine_with_two_names_the_share_of_its_own_counts() {
        let a = HostId::from("a");
        for told in [[share("a", false), share("c", true)], [share("c", true), share("a", false)]] {
            let mut inventory = RunInventory::default();
            inventory.take(&a, told.to_vec(), true);
            assert_eq!(inventory.shares[&RunId::new(1, 1)][&a].host, a);
            inventory.take(&a, vec![share("a", true)], true);
            assert!(inventory.is_live(&RunId::new(1, 1)), "what is newer counts");
        }
    }

    #[test]
    fn of_a_host_that_makes_up_runs_the_newest_are_kept() {
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let mut inventory = RunInventory::default();
        inventory.take(&b, vec![share("b", false)], true);
        let own = |number: u64| HostRunStatus { run: RunId::new(number, 2), ..share("a", true) };
        for first in [1, 1001, 2001] {
            inventory.take(&a, (first..first + 1000).map(own).collect(), true);
        }
        let runs: Vec<&RunId> = inventory.shares.keys().collect();
        assert_eq!(runs.len(), MOST + 1);
        assert_eq!((runs[0], runs[1]), (&RunId::new(1, 1), &RunId::new(3001 - MOST as u64, 2)));
    }

    #[test]
    fn a_run_has_ended_when_every_host_of_it_says_so() {
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let mut inventory = RunInventory::default();
        assert_eq!(inventory.status(&spec(), None), RunStatus::Unknown);
        inventory.take(&b, vec![share("b", true)], true);
        assert_eq!(inventory.status(&spec(), None), RunStatus::Running);
        assert_eq!(inventory.spec(&spec().id), Some(&spec()));
        inventory.forget(&b);
        inventory.take(&b, vec![share("b", false)], true);
        assert_eq!(inventory.status(&spec(), None), RunStatus::Unknown);
        assert_eq!(inventory.unheard(&spec()), std::slice::from_ref(&a));
        inventory.take(&a, Vec::new(), true);
        assert_eq!(inventory.status(&spec(), None), RunStatus::Ended);
    }

    #[test]
    fn of_a_run_that_goes_on_ranks_that_failed_or_were_stopped_are_told() {
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let exit = |code: Option<i32>, signal: Option<i32>, stopped: bool| RankExit {
            code,
            signal,
            t: crate::domain::time::HostTime(0),
            error: None,
            stopped,
            cause: None,
        };
        let with = |host: &str, live: bool, exits: &[(u32, RankExit)]| HostRunStatus {
            exits: exits.iter().map(|(rank, exit)| (Rank(*rank), exit.clone())).collect(),
            ..share(host, live)
        };
        let killed = exit(None, Some(9), false);
        for (first, second, words) in [
            (
                with("a", false, &[(0, killed.clone())]),
                with("b", true, &[]),
                Some("rank 0 (a:0): killed by SIGKILL"),
            ),
            (
                with("a", false, &[(0, exit(Some(143), None, true))]),
                with("b", true, &[]),
                Some("rank 0 was stopped"),
            ),
            (with("a", false, &[(0, exit(Some(0), None, false))]), with("b", true, &[]), None),
            // it is over
            (with("a", false, &[(0, killed.clone())]), with("b", false, &[]), None),
        ] {
            let mut inventory = RunInventory::default();
            inventory.take(&a, vec![first], true);
            inventory.take(&b, vec![second], true);
            assert_eq!(inventory.broken(&spec()).as_deref(), words);
        }
    }

    #[test]
    fn how_a_run_has_ended_is_told_by_the_exits_of_all_its_ranks() {
        let exit = |code: i32, stopped: bool| RankExit { stopped, ..rank_exit(code) };
        let told = |first: Option<RankExit>, second: Option<RankExit>, live: bool| {
            let with = |host: &str, rank: u32, exit: Option<RankExit>| HostRunStatus {
                exits: exit.into_iter().map(|exit| (Rank(rank), exit)).collect(),
                ..share(host, live)
            };
            let mut inventory = RunInventory::default();
            inventory.take(&HostId::from("a"), vec![with("a", 0, first)], true);
            inventory.take(&HostId::from("b"), vec![with("b", 1, second)], true);
            inventory.ended(&spec())
        };
        let (well, three) = (Some(exit(0, false)), Some(exit(3, false)));
        let stopped = Some(exit(143, true));
        let words = |first: &Option<RankExit>, second: &Option<RankExit>| {
            told(first.clone(), second.clone(), false).unwrap_or_default()
        };
        assert_eq!(words(&well, &well), "exit 0: all 2 ranks finished");
        assert_eq!(words(&stopped, &three), "exit 3: rank 1 (b:0): exit 3; rank 0 was stopped");
        assert_eq!(words(&three, &three), "failed: ranks 0-1 have failed");
        assert_eq!(words(&stopped, &stopped), "ranks 0-1 were stopped");
        assert_eq!(words(&well, &None), "", "of a rank it is not known");
        assert_eq!(told(well.clone(), well, true), None, "it goes on");
        // a host that was not heard
        let mut inventory = RunInventory::default();
        let exits = [(Rank(0), exit(0, false)), (Rank(1), exit(0, false))].into();
        inventory.take(&HostId::from("a"), vec![HostRunStatus { exits, ..share("a", false) }], true);
        assert_eq!(inventory.ended(&spec()), None);
    }

    #[test]
    fn hosts_of_a_run_may_keep_what_they_did_not_tell() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(HostId::from);
        let own = |hosts: &[&HostId]| hosts.iter().map(|host| ((*host).clone(), (*host).clone())).collect();
        let mut inventory = RunInventory::default();
        for host in [&a, &b, &c] {
            inventory.take(host, Vec::new(), true);
        }
        let keepers = |inventory: &RunInventory, names: &[&HostId]| {
            inventory.keepers(&spec(), &names.iter().copied().cloned().collect())
        };
        let expected: BTreeMap<HostId, HostId> = own(&[&a, &b]);
        assert_eq!(
            keepers(&inventory, &[&a, &b, &c, &d]),
            expected,
            "not those that have nothing to do with it"
        );
        inventory.answered.remove(&a);
        assert_eq!(keepers(&inventory, &[&a, &b, &c, &d]), expected, "it hears of it when it is there");
        // what is called a in the run has another name now
        assert_eq!(keepers(&inventory, &[&b, &c, &d]), own(&[&b, &c]));
        assert!(inventory.is_host_of(&spec(), &b) && !inventory.is_host_of(&spec(), &c));
        inventory.take(&c, vec![share("a", false)], true);
        assert!(inventory.is_host_of(&spec(), &c));
        assert_eq!(
            keepers(&inventory, &[&b, &c, &d]),
            BTreeMap::from([(b.clone(), b.clone()), (c.clone(), a)])
        );
        assert!(inventory.forget_run(&spec().id, &c) && !inventory.forget_run(&spec().id, &c));
    }

    #[test]
    fn a_host_is_known_by_the_name_that_the_run_has_for_it() {
        let mut inventory = RunInventory::default();
        inventory.take(&HostId::from("called-otherwise"), vec![share("a", false)], true);
        assert_eq!(inventory.unheard(&spec()), [HostId::from("b")]);
    }
}
