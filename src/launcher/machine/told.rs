//! What a run of many ranks tells of itself, and why a run is over: that is told and never guessed from a code.

use super::*;
use crate::domain::run::RefusalClass;
use crate::launch::request::PlacementSpec;
use crate::launcher::fixtures::{cpu_host, request};
use crate::launcher::{place, plan};

const RANKS: u32 = 512;

/// A run of so many ranks on one host, told to start.
fn committed(ranks: u32) -> (RunMachine, Vec<Action>) {
    let hosts = [cpu_host("a", ranks)];
    let request = request("sleep 60", PlacementSpec::Count(Some(ranks)));
    let spec = plan::spec(&request, place::place(&request, &hosts).unwrap(), RunId::new(1, 2), Stamp(0));
    let plans = plan::host_runs(&spec, &hosts, false);
    let rendezvous = Rendezvous { master: [127, 0, 0, 1].into(), bind: BTreeMap::new() };
    let (mut machine, mut actions) = RunMachine::start(spec, plans, rendezvous, String::new(), Stamp(0));
    let ready = Reply::Prepared { run: machine.id().clone(), ports: vec![1], image: None };
    actions.extend(machine.handle_reply(Stamp(1), &HostId::from("a"), &ready));
    (machine, actions)
}

fn rank_event(machine: &mut RunMachine, rank: u32, event: &Event) -> Vec<Action> {
    let origin = Origin::Rank(machine.id().clone(), Rank(rank));
    machine.handle_event(Stamp(2), &origin, event)
}

fn exit(code: i32, stopped: bool) -> Event {
    let exit = RankExit { code: Some(code), stopped, ..nobody_knows() };
    Event::RankExited { exit }
}

fn finish(machine: &mut RunMachine) -> RunOutcome {
    let done = Reply::Finished { run: machine.id().clone() };
    let actions = machine.handle_reply(Stamp(9), &HostId::from("a"), &done);
    let outcome = actions.into_iter().find_map(|action| match action {
        Action::Emit(_, Event::RunEnded { outcome }) => Some(outcome),
        _ => None,
    });
    outcome.unwrap()
}

fn told(actions: &[Action]) -> Vec<(RunStage, Waiting)> {
    let stage = |action: &Action| match action {
        Action::Emit(_, Event::StageEntered { stage, waiting_for }) => Some((*stage, waiting_for.clone())),
        _ => None,
    };
    actions.iter().filter_map(stage).collect()
}

#[test]
fn ranks_that_start_in_their_order_are_counted_and_few_are_named() {
    let (mut machine, mut actions) = committed(RANKS);
    let start = Event::RankStarted { pid: 7, t: HostTime(1) };
    let first = told(&actions).pop().unwrap().1;
    assert_eq!(first.to_string(), "rank 509 on a:509, rank 510 on a:510, rank 511 on a:511 and 509 more");
    for rank in 0..RANKS {
        actions.extend(rank_event(&mut machine, rank, &start));
    }
    let told = told(&actions);
    assert_eq!(told.last(), Some(&(RunStage::Training, Waiting::default())));
    assert!(told.len() < 24, "{}", told.len());
    let bytes: usize = told.iter().map(|(_, waiting)| serde_json::to_string(waiting).unwrap().len()).sum();
    assert!(bytes < 4096, "{bytes}");
}

#[test]
fn in_any_order_the_names_told_are_of_ranks_that_are_missing() {
    let (mut machine, mut actions) = committed(RANKS);
    let start = Event::RankStarted { pid: 7, t: HostTime(1) };
    let mut missing: BTreeSet<u32> = (0..RANKS).collect();
    let mut shown = told(&actions).pop().unwrap().1;
    for rank in (0..RANKS).map(|rank| rank * 211 % RANKS) {
        let now = rank_event(&mut machine, rank, &start);
        missing.remove(&rank);
        shown = told(&now).pop().map_or(shown, |(_, waiting)| waiting);
        let named = |rank: &u32| shown.names.contains(&format!("rank {rank} on a:{rank}"));
        assert_eq!(missing.iter().filter(|rank| named(rank)).count(), shown.names.len(), "{shown}");
        assert!(shown.count.abs_diff(missing.len() as u32) <= RANKS / 16, "{shown}");
        actions.extend(now);
    }
    assert!(told(&actions).len() <= RANKS as usize, "one a rank at most");
}

#[test]
fn ranks_that_are_stopped_are_counted_down() {
    let (mut machine, _) = committed(RANKS);
    let start = Event::RankStarted { pid: 7, t: HostTime(1) };
    (0..RANKS).for_each(|rank| drop(rank_event(&mut machine, rank, &start)));
    let mut actions = machine.handle_stop(Stamp(3), false);
    assert_eq!(told(&actions)[0].1.count, RANKS);
    for rank in 0..RANKS {
        actions.extend(rank_event(&mut machine, rank, &exit(143, true)));
    }
    assert_eq!(told(&actions).last(), Some(&(RunStage::Stopping, Waiting::default())));
    assert!(told(&actions).len() < 24);
    assert_eq!(finish(&mut machine).end, RunEnd::Stopped);
}

#[test]
fn a_jobs_own_75_is_a_failure_and_a_busy_gpu_is_not() {
    let (mut machine, _) = committed(2);
    rank_event(&mut machine, 0, &exit(75, false));
    rank_event(&mut machine, 1, &exit(143, true));
    let failed = finish(&mut machine);
    assert_eq!((failed.end, failed.exit_code()), (RunEnd::Failed, 75));
    for (busy, class, end, code) in
        [(true, RefusalClass::Busy, RunEnd::Busy, 75), (false, RefusalClass::Permission, RunEnd::Refused, 77)]
    {
        let (mut machine, _) = RunMachine::start(
            machine.spec.clone(),
            machine.plans.clone(),
            Rendezvous { master: [127, 0, 0, 1].into(), bind: BTreeMap::new() },
            String::new(),
            Stamp(0),
        );
        let refused = Refused {
            run: machine.id().clone(),
            host: HostId::from("a"),
            rank: None,
            reason: "GPU 0 is leased by li".to_owned(),
            class,
            busy,
        };
        let actions = machine.handle_reply(Stamp(1), &HostId::from("a"), &Reply::Refused(refused));
        let ended = actions.iter().find_map(|action| match action {
            Action::Emit(_, Event::RunEnded { outcome }) => Some((outcome.end, outcome.exit_code())),
            _ => None,
        });
        assert_eq!(ended, Some((end, code)));
    }
}
