//! A run that may be started again, from the first failure to the last word.

use super::super::tests::ended;
use super::super::*;
use crate::domain::fixtures::{host_run, placement, rank_spec, run_spec};
use crate::domain::options::RunOptions;
use crate::domain::run::{Placement, RefusalClass};

const T: Stamp = Stamp(1_000_000);

fn machine(max_restarts: u32) -> RunMachine {
    let spec = RunSpec {
        name: "again".into(),
        created: T,
        options: RunOptions { max_restarts, ..RunOptions::default() },
        ..run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)])
    };
    let share = |placement: &Placement| HostRun {
        run: spec.id.clone(),
        host: placement.host.clone(),
        name: spec.name.clone(),
        grace_ms: 1000,
        ..host_run(vec![rank_spec(placement.rank.0)])
    };
    let shares = spec.placements.iter().map(share).collect();
    let rendezvous = Rendezvous { master: [10, 0, 0, 1].into(), bind: BTreeMap::new() };
    RunMachine::start(spec, shares, rendezvous, "5ec".into(), T).0
}

fn reply(machine: &mut RunMachine, host: &str, make: impl Fn(RunId) -> Reply) -> Vec<Action> {
    let reply = make(machine.id().clone());
    machine.handle_reply(T, &HostId::from(host), &reply)
}

fn rank(machine: &mut RunMachine, rank: u32, event: &Event) -> Vec<Action> {
    let origin = Origin::Rank(machine.id().clone(), Rank(rank));
    machine.handle_event(T, &origin, event)
}

fn exit(code: i32, stopped: bool) -> Event {
    Event::RankExited { exit: RankExit { code: Some(code), stopped, ..nobody_knows() } }
}

/// Both hosts are ready: the orders to start, `a` offering this port for the rendezvous.
fn ready(machine: &mut RunMachine, port: u16) -> Vec<crate::wire::message::Commit> {
    reply(machine, "a", |run| Reply::Prepared { run, ports: vec![port, port + 1], image: None });
    let actions = reply(machine, "b", |run| Reply::Prepared { run, ports: vec![port + 2], image: None });
    for number in [0, 1] {
        rank(machine, number, &Event::RankStarted { pid: 7, t: HostTime(1) });
    }
    let orders = actions.into_iter().filter_map(|action| match action {
        Action::Send(_, ToAgent::Commit(commit)) => Some(commit),
        _ => None,
    });
    orders.collect()
}

/// Rank 1 fails, the other one is stopped, and nothing is left on either host.
fn fail(machine: &mut RunMachine, code: i32) -> Vec<Action> {
    rank(machine, 1, &exit(code, false));
    rank(machine, 0, &exit(143, true));
    finish(machine)
}

fn finish(machine: &mut RunMachine) -> Vec<Action> {
    reply(machine, "a", |run| Reply::Finished { run });
    reply(machine, "b", |run| Reply::Finished { run })
}

fn restarted(actions: &[Action]) -> Option<(u32, u32, String)> {
    actions.iter().find_map(|action| match action {
        Action::Emit(_, Event::RunRestarted { attempt, of, why, .. }) => Some((*attempt, *of, why.clone())),
        _ => None,
    })
}

fn asked(actions: &[Action]) -> Vec<&HostRun> {
    let asked = actions.iter().filter_map(|action| match action {
        Action::Send(_, ToAgent::Prepare(share)) => Some(&**share),
        _ => None,
    });
    asked.collect()
}

#[test]
fn a_rank_that_fails_starts_all_again_with_a_new_rendezvous() {
    let mut machine = machine(2);
    let first = ready(&mut machine, 4000);
    let actions = fail(&mut machine, 3);
    assert_eq!(restarted(&actions), Some((2, 3, "rank 1 (b:0) failed: exit 3".to_owned())));
    assert_eq!(ended(&actions), None);
    let shares = asked(&actions);
    assert_eq!(shares.iter().map(|share| share.host.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for share in shares {
        let env = &share.ranks[0].env;
        assert_eq!((share.attempt, env["TORCHELASTIC_RESTART_COUNT"].as_str()), (1, "1"));
        assert_eq!(env["HVTUI_RESTART"], "1");
    }
    let second = ready(&mut machine, 5000);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert_eq!((first[0].attempt, second[0].attempt), (0, 1));
    assert_eq!(
        (first[0].late.env["MASTER_PORT"].as_str(), second[0].late.env["MASTER_PORT"].as_str()),
        ("4001", "5001")
    );
    let secret = |commit: &crate::wire::message::Commit| commit.late.secrets["HVTUI_SECRET"].clone();
    assert_ne!(secret(&first[0]), secret(&second[0]));
    assert_eq!(secret(&second[0]), secret(&second[1]), "all ranks of an attempt share one");
    rank(&mut machine, 0, &exit(0, false));
    rank(&mut machine, 1, &exit(0, false));
    let outcome = ended(&finish(&mut machine)).unwrap();
    assert_eq!((outcome.end, outcome.exit_code()), (RunEnd::Finished, 0));
    assert_eq!(outcome.summary, "all 2 ranks finished (attempt 2 of 3)");
}

#[test]
fn the_last_attempts_failure_is_the_runs() {
    let mut machine = machine(1);
    ready(&mut machine, 4000);
    assert!(restarted(&fail(&mut machine, 3)).is_some());
    ready(&mut machine, 5000);
    let actions = fail(&mut machine, 4);
    assert_eq!(restarted(&actions), None);
    let outcome = ended(&actions).unwrap();
    assert_eq!((outcome.end, outcome.exit_code(), outcome.root), (RunEnd::Failed, 4, Some(Rank(1))));
    assert!(outcome.summary.ends_with("(attempt 2 of 2)"), "{}", outcome.summary);
}

#[test]
fn what_its_owner_stops_is_not_started_again() {
    for failing in [false, true] {
        let mut machine = machine(5);
        ready(&mut machine, 4000);
        assert!(restarted(&fail(&mut machine, 3)).is_some());
        ready(&mut machine, 5000);
        if failing {
            // it fails, and its owner loses patience while the others are being stopped
            rank(&mut machine, 1, &exit(3, false));
        }
        let stops = machine.handle_stop(T, false);
        let told = |action: &Action| matches!(action, Action::Send(_, ToAgent::Stop(stop)) if stop.attempt == Some(1));
        assert!(stops.iter().any(told), "{stops:?}");
        if !failing {
            rank(&mut machine, 1, &exit(143, true));
        }
        rank(&mut machine, 0, &exit(143, true));
        let actions = finish(&mut machine);
        assert_eq!(restarted(&actions), None);
        assert_eq!(ended(&actions).unwrap().exit_code(), if failing { 3 } else { 130 });
    }
}

#[test]
fn a_stop_between_two_attempts_ends_the_run() {
    let mut machine = machine(5);
    ready(&mut machine, 4000);
    fail(&mut machine, 3);
    let outcome = ended(&machine.handle_stop(T, false)).unwrap();
    assert_eq!(
        (outcome.end, outcome.summary.as_str()),
        (RunEnd::Stopped, "stopped before attempt 2 started")
    );
}

#[test]
fn gpus_that_somebody_took_between_two_attempts_end_the_run_as_busy() {
    let mut machine = machine(5);
    ready(&mut machine, 4000);
    fail(&mut machine, 3);
    let busy = |run| {
        Reply::Refused(Refused {
            run,
            host: HostId::from("b"),
            rank: None,
            reason: "GPU 0 is leased by li".to_owned(),
            class: RefusalClass::Busy,
            busy: true,
        })
    };
    let actions = reply(&mut machine, "b", busy);
    let outcome = ended(&actions).unwrap();
    assert_eq!(
        (outcome.end, outcome.exit_code(), outcome.summary.as_str()),
        (RunEnd::Busy, 75, "b: GPU 0 is leased by li")
    );
    assert!(!outcome.is_refused(), "the first attempt has run: {outcome:?}");
}

#[test]
fn what_is_no_failure_of_a_rank_is_not_started_again() {
    // refused before the start
    let mut refused = machine(5);
    let no = |run| {
        let (host, class) = (HostId::from("b"), RefusalClass::Unavailable);
        Reply::Refused(Refused {
            run,
            host,
            rank: Some(Rank(1)),
            reason: "no x".to_owned(),
            class,
            busy: false,
        })
    };
    let actions = reply(&mut refused, "b", no);
    assert!(restarted(&actions).is_none() && ended(&actions).is_some());
    // ended by `hvtui stop` of another client
    let mut stopped = machine(5);
    ready(&mut stopped, 4000);
    rank(&mut stopped, 0, &exit(143, true));
    rank(&mut stopped, 1, &exit(143, true));
    let actions = finish(&mut stopped);
    assert_eq!((restarted(&actions), ended(&actions).unwrap().exit_code()), (None, 130));
    // never asked for
    let mut once = machine(0);
    ready(&mut once, 4000);
    let outcome = ended(&fail(&mut once, 3)).unwrap();
    assert_eq!((outcome.exit_code(), outcome.summary.contains("attempt")), (3, false));
}
