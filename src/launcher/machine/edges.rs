//! A host of four goes away at each edge between the phases of a start: all of them start, or none.

use super::starting::LOST_US;
use super::tests::ended;
use super::*;
use crate::domain::fixtures::{host_run, placement, run_spec};
use crate::domain::host::LinkState;
use crate::domain::run::RefusalClass;
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

impl Launch {
    fn new() -> Self {
        let spec = RunSpec {
            id: RunId::new(4, 4),
            name: "four".into(),
            created: T,
            ..run_spec((0..).zip(HOSTS).map(|(rank, host)| placement(rank, host, 0)).collect())
        };
        let plan = |host: &&str| HostRun {
            run: spec.id.clone(),
            host: id(host),
            name: spec.name.clone(),
            grace_ms: 1000,
            ..host_run(Vec::new())
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
        hosts
            .iter()
            .flat_map(|host| self.reply(host, |run| Reply::Prepared { run, ports: vec![1], image: None }))
            .collect()
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
        ended(&actions)
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
    assert_eq!(ended(&actions).unwrap().exit_code(), 69);
}

#[test]
fn lost_before_it_has_answered() {
    let mut launch = Launch::new();
    launch.prepared(&["a", "b", "c"]);
    let actions = launch.link("d", false);
    assert_eq!(sent(&actions), BTreeMap::from([("abort", 4)]));
    assert_eq!(ended(&actions).unwrap().summary, "d was lost before anything started: reset");
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
    assert_eq!((outcome.exit_code(), outcome.summary.as_str()), (69, "d is not connected"));
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
    let ended = ended(&launch.never_started("d")).unwrap();
    assert_eq!((ended.exit_code(), ended.root), (69, None));

    // Or it did start, and is stopped like the others when it is back.
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    launch.link("d", false);
    launch.later(4_000_000);
    launch.stop_all(&["a", "b", "c"]);
    assert_eq!(launch.stop_all(&["d"]).unwrap().exit_code(), 69);
}

#[test]
fn back_in_time_it_starts_like_the_others() {
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    launch.link("d", false);
    launch.later(2_000_000);
    assert_eq!(sent(&launch.link("d", true)), BTreeMap::from([("prepare", 1)]), "it may not know of the run");
    // it had started: the run's id says so. What was followed before it had is followed again
    assert!(sent(&launch.never_started("d")).is_empty());
    assert_eq!(sent(&launch.reply("d", |run| Reply::Started { run })), BTreeMap::from([("follow", 1)]));
    assert!(sent(&launch.later(4_000_000)).is_empty());
}

#[test]
fn an_order_that_was_lost_with_its_link_is_sent_again() {
    let mut launch = Launch::new();
    launch.prepared(&HOSTS);
    launch.started(&["a", "b", "c"]);
    launch.link("d", false);
    let lost = launch.reply("d", |run| Reply::Unreachable { run, reason: "d is not connected".into() });
    assert!(sent(&lost).is_empty(), "it may come back");
    launch.later(1_000_000);
    assert_eq!(sent(&launch.link("d", true)), BTreeMap::from([("prepare", 1)]));
    assert!(sent(&launch.never_started("d")).is_empty(), "that is why it is asked again");
    let again = launch.prepared(&["d"]);
    assert_eq!(sent(&again), BTreeMap::from([("commit", 1), ("follow", 1)]));
    let Action::Send(_, ToAgent::Commit(commit)) = &again[0] else { panic!("{again:?}") };
    assert_eq!(commit.late.secrets["HVTUI_SECRET"], launch.machine.secret_of_attempt(), "the same order");
    launch.reply("d", |run| Reply::Started { run });
    assert!(sent(&launch.later(60_000_000)).contains_key("stop"), "no rank of it was heard of in time");

    // its GPUs are taken meanwhile, or it comes back too late: all or none
    for busy in [true, false] {
        let mut launch = Launch::new();
        launch.prepared(&HOSTS);
        launch.started(&["a", "b", "c"]);
        launch.link("d", false);
        launch.link("d", true);
        let actions = if busy {
            let (host, reason) = (id("d"), "leased".to_owned());
            let refused = |run| Refused {
                run,
                host: host.clone(),
                rank: None,
                reason: reason.clone(),
                busy,
                class: RefusalClass::Busy,
            };
            launch.reply("d", |run| Reply::Refused(refused(run)))
        } else {
            launch.link("d", false);
            launch.later(LOST_US + 1)
        };
        assert_eq!(sent(&actions)["abort"], 1, "what it has made ready meanwhile is given back");
        assert!(sent(&actions)["stop"] >= 3);
        assert!(sent(&launch.prepared(&["d"])).is_empty(), "too late");
    }
}

/// A launch whose hosts `b`, `d` and `c` have GPUs, in this order among all machines.
fn leased() -> (RunMachine, Vec<Action>) {
    let launch = Launch::new();
    let mut plans = launch.machine.plans.clone();
    plans.sort_by_key(|plan| ["b", "d", "c", "a"].iter().position(|name| plan.host == id(name)));
    for plan in plans.iter_mut().filter(|plan| plan.host != id("a")) {
        plan.leases.held = BTreeMap::from([("GPU-0".into(), Rank(0))]);
    }
    let rendezvous = Rendezvous { master: [10, 0, 0, 1].into(), bind: BTreeMap::new() };
    RunMachine::start(launch.machine.spec, plans, rendezvous, "5ec".into(), T)
}

fn to(actions: &[Action], wanted: &str) -> Vec<String> {
    let host = |action: &Action| match action {
        Action::Send(host, message) if format!("{message:?}").starts_with(wanted) => Some(host.to_string()),
        _ => None,
    };
    actions.iter().filter_map(host).collect()
}

#[test]
fn hosts_with_gpus_are_asked_one_after_the_other_in_the_order_of_all_clients() {
    let (mut machine, actions) = leased();
    assert_eq!(to(&actions, "Prepare"), ["a", "b"]);
    let waits = |actions: &[Action]| {
        actions.iter().rev().find_map(|action| match action {
            Action::Emit(_, Event::StageEntered { waiting_for, .. }) => Some(waiting_for.names.join(" ")),
            _ => None,
        })
    };
    assert_eq!(waits(&actions).as_deref(), Some("a b"), "who was asked");
    let mut prepared = |host: &str, at: i64| {
        let reply = Reply::Prepared { run: machine.id().clone(), ports: vec![1], image: None };
        let actions = machine.handle_reply(Stamp(at), &id(host), &reply);
        (to(&actions, "Prepare"), to(&actions, "Commit"))
    };
    assert_eq!(prepared("b", 15_000_000), (vec!["d".to_owned()], vec![]));
    assert_eq!(prepared("b", 15_000_000), (vec![], vec![]), "said twice");
    assert_eq!(prepared("a", 15_000_000), (vec![], vec![]));
    assert_eq!(prepared("d", 30_000_000), (vec!["c".to_owned()], vec![]), "each has its own time");
    let all = ["b", "d", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(prepared("c", 45_000_000), (vec![], all));

    // the first refusal ends it, and who was not asked hears nothing
    let (mut machine, _) = leased();
    let run = machine.id().clone();
    machine.handle_reply(T, &id("b"), &Reply::Prepared { run: run.clone(), ports: vec![1], image: None });
    let reason = "leased".to_owned();
    let class = RefusalClass::Busy;
    let refused = Reply::Refused(Refused { run, host: id("d"), rank: None, reason, class, busy: true });
    let actions = machine.handle_reply(T, &id("d"), &refused);
    assert_eq!(to(&actions, "Abort"), ["a", "b", "d"]);
    assert_eq!(ended(&actions).unwrap().exit_code(), 75);
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
