//! A host of four goes away at each edge between the phases of a start: all of them start, or none.

use super::*;
use crate::domain::host::LinkState;
use crate::domain::lease::LeasePlan;
use crate::domain::run::{RefusalClass, Slot, Spool};
use crate::wire::message::Refused;

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const T: Stamp = Stamp(1_000_000);

struct Launch {
    machine: RunMachine,
    now: Stamp,
}

fn id(host: &str) -> HostId {
    HostId::from(host)
}

/// The kinds of messages in `actions`, each with how many hosts get it.
fn sent(actions: &[Action]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for action in actions {
        if let Action::Send(_, message) = action {
            let kind = match message {
                ToAgent::Prepare(_) => "prepare",
                ToAgent::Commit(_) => "commit",
                ToAgent::Abort(_) => "abort",
                ToAgent::Follow(_) => "follow",
                ToAgent::Stop(_) => "stop",
                _ => "other",
            };
            *kinds.entry(kind).or_insert(0) += 1;
        }
    }
    kinds
}

fn outcome(actions: &[Action]) -> Option<RunOutcome> {
    actions.iter().find_map(|action| match action {
        Action::Emit(_, Event::RunEnded { outcome }) => Some(outcome.clone()),
        _ => None,
    })
}

impl Launch {
    fn new() -> Self {
        let place = |(rank, host): (usize, &&str)| Placement {
            rank: Rank(rank as u32),
            host: id(host),
            local_rank: 0,
            slot: Slot::Cpu { index: 0 },
        };
        let spec = RunSpec {
            id: RunId::new(4, 4),
            name: "four".into(),
            kind: JobKind::Plain,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            workdir: None,
            placements: HOSTS.iter().enumerate().map(place).collect(),
            created: T,
        };
        let plan = |host: &&str| HostRun {
            run: spec.id.clone(),
            host: id(host),
            name: spec.name.clone(),
            ranks: Vec::new(),
            grace_ms: 1000,
            max_silence_ms: None,
            spool: Spool::default(),
            leases: LeasePlan::default(),
            run_spec: None,
        };
        let rendezvous = Rendezvous { master: [10, 0, 0, 1].into(), bind: BTreeMap::new() };
        let plans = HOSTS.iter().map(plan).collect();
        let (machine, actions) = RunMachine::start(spec, plans, rendezvous, "5ec".into(), T);
        assert_eq!(sent(&actions), BTreeMap::from([("prepare", 4)]));
        Self { machine, now: T }
    }

    fn reply(&mut self, host: &str, make: impl Fn(RunId) -> Reply) -> Vec<Action> {
        let reply = make(self.machine.id().clone());
        self.machine.handle_reply(self.now, &id(host), &reply)
    }

    fn prepared(&mut self, hosts: &[&str]) -> Vec<Action> {
        hosts.iter().flat_map(|host| self.reply(host, |run| Reply::Prepared { run, free_port: 1 })).collect()
    }

    fn started(&mut self, hosts: &[&str]) {
        for host in hosts {
            assert!(sent(&self.reply(host, |run| Reply::Started { run })).is_empty());
        }
    }

    fn link(&mut self, host: &str, up: bool) -> Vec<Action> {
        let down = || LinkState::Down { reason: "reset".into(), retry_at: None };
        let state = if up { LinkState::Up } else { down() };
        self.machine.handle_event(self.now, &Origin::Host(id(host)), &Event::LinkChanged { state })
    }

    fn later(&mut self, micros: i64) -> Vec<Action> {
        self.now = self.now.plus_micros(micros);
        self.machine.handle_time(self.now)
    }

    fn rank(&mut self, rank: u32, event: &Event) -> Vec<Action> {
        let origin = Origin::Rank(self.machine.id().clone(), Rank(rank));
        self.machine.handle_event(self.now, &origin, event)
    }

    /// The hosts that started end their ranks and say so; the run's outcome.
    fn stop_all(&mut self, hosts: &[&str]) -> Option<RunOutcome> {
        let exit = RankExit {
            code: None,
            signal: Some(15),
            t: HostTime(1),
            error: None,
            stopped: true,
            cause: None,
        };
        let mut actions = Vec::new();
        for host in hosts {
            let rank = HOSTS.iter().position(|name| name == host).unwrap_or_default() as u32;
            self.rank(rank, &Event::RankExited { exit: exit.clone() });
            actions.extend(self.reply(host, |run| Reply::Finished { run }));
        }
        outcome(&actions)
    }

    fn never_started(&mut self, host: &str) -> Vec<Action> {
        let (name, reason) = (id(host), "was never started".to_owned());
        self.reply(host, |run| {
            Reply::Refused(Refused {
                run,
                host: name.clone(),
                rank: None,
                reason: reason.clone(),
                busy: false,
                class: RefusalClass::Unknown,
            })
        })
    }
}

#[test]
fn lost_before_it_could_be_asked() {
    let mut launch = Launch::new();
    launch.prepared(&["a", "b"]);
    let actions = launch.reply("d", |run| Reply::Unreachable { run, reason: "d is not connected".into() });
    assert_eq!(sent(&actions), BTreeMap::from([("abort", 4)]));
    assert_eq!(outcome(&actions).unwrap().code, 69);
}

#[test]
fn lost_before_it_has_answered() {
    let mut launch = Launch::new();
    launch.prepared(&["a", "b", "c"]);
    let actions = launch.link("d", false);
    assert_eq!(sent(&actions), BTreeMap::from([("abort", 4)]));
    assert_eq!(outcome(&actions).unwrap().summary, "d was lost before anything started: reset");
}

#[test]
fn lost_after_it_has_answered_and_before_the_others_have() {
    let mut launch = Launch::new();
    launch.prepared(&["d", "a"]);
    assert_eq!(sent(&launch.link("d", false)), BTreeMap::from([("abort", 4)]));
    assert!(sent(&launch.prepared(&["b", "c"])).is_empty(), "late answers start nothing");
    assert!(launch.machine.is_over());
}

#[test]
fn lost_before_it_could_be_told_to_start() {
    let mut launch = Launch::new();
    assert_eq!(sent(&launch.prepared(&HOSTS)), BTreeMap::from([("commit", 4), ("follow", 4)]));
    launch.started(&["a", "b", "c"]);
    let actions = launch.reply("d", |run| Reply::Unreachable { run, reason: "d is not connected".into() });
    assert_eq!(sent(&actions)["stop"], 4, "the three that started are stopped");
    let outcome = launch.stop_all(&["a", "b", "c"]).unwrap();
    assert_eq!((outcome.code, outcome.summary.as_str()), (69, "d is not connected"));
}

#[test]
fn lost_before_it_said_that_it_has_started() {
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    assert!(sent(&launch.link("d", false)).is_empty(), "it may come back");
    assert!(sent(&launch.later(LOST_US)).is_empty());
    assert_eq!(sent(&launch.later(1_000_000))["stop"], 4, "within five seconds");
    assert!(launch.stop_all(&["a", "b", "c"]).is_none(), "what d does is not known");
    launch.link("d", true);
    let ended = outcome(&launch.never_started("d")).unwrap();
    assert_eq!((ended.code, ended.root), (69, None));

    // Or it did start, and is stopped like the others when it is back.
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    launch.link("d", false);
    launch.later(4_000_000);
    launch.stop_all(&["a", "b", "c"]);
    assert_eq!(launch.stop_all(&["d"]).unwrap().code, 69);
}

#[test]
fn back_in_time_it_starts_like_the_others() {
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    launch.link("d", false);
    launch.later(2_000_000);
    launch.link("d", true);
    launch.started(&["d"]);
    assert!(sent(&launch.later(4_000_000)).is_empty());
}

#[test]
fn lost_after_it_has_started_it_goes_on_and_comes_back() {
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&HOSTS);
    let started = Event::RankStarted { pid: 7, t: HostTime(0) };
    for rank in 0..3 {
        launch.rank(rank, &started);
    }
    launch.link("d", false);
    assert!(sent(&launch.later(10_000_000)).is_empty());
    launch.link("d", true);
    launch.rank(3, &started);
    assert!(sent(&launch.later(60_000_000)).is_empty());
    assert!(!launch.machine.is_over());
}
