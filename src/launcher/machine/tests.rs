use super::*;
use crate::domain::fixtures::{host_run, log_line, placement, run_spec};
use crate::domain::host::LinkState;
use crate::domain::run::JobKind;
use crate::domain::run::RefusalClass;
use crate::wire::message::Refused;

#[path = "attach_tests.rs"]
mod attach;
#[path = "failing_tests.rs"]
mod failing;

const T: Stamp = Stamp(1_000_000);

fn spec(kind: JobKind) -> RunSpec {
    RunSpec {
        name: "digits".into(),
        kind,
        command: vec!["hvtui".into(), "train".into(), "digits".into()],
        created: T,
        ..run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)])
    }
}

fn started(kind: JobKind) -> (RunMachine, Vec<Action>) {
    let spec = spec(kind);
    let plan = |host: &str| HostRun {
        run: spec.id.clone(),
        host: HostId::from(host),
        name: spec.name.clone(),
        grace_ms: 1000,
        ..host_run(Vec::new())
    };
    let rendezvous = Rendezvous { master: [10, 0, 0, 1].into(), bind: BTreeMap::new() };
    RunMachine::start(spec.clone(), vec![plan("a"), plan("b")], rendezvous, "5ec".into(), T)
}

fn reply(machine: &mut RunMachine, host: &str, reply: &Reply) -> Vec<Action> {
    machine.handle_reply(T, &HostId::from(host), reply)
}

fn rank_event(machine: &mut RunMachine, at: i64, rank: u32, event: &Event) -> Vec<Action> {
    let origin = Origin::Rank(machine.id().clone(), Rank(rank));
    machine.handle_event(Stamp(at), &origin, event)
}

fn exit(code: i32, stopped: bool) -> Event {
    Event::RankExited {
        exit: RankExit { code: Some(code), signal: None, t: HostTime(0), error: None, stopped, cause: None },
    }
}

fn sent(actions: &[Action]) -> Vec<String> {
    let name = |message: &ToAgent| {
        let text = format!("{message:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    };
    let sends = actions.iter().filter_map(|action| match action {
        Action::Send(host, message) => Some(format!("{host}:{}", name(message))),
        Action::Emit(..) => None,
    });
    sends.collect()
}

fn stages(actions: &[Action]) -> Vec<(RunStage, Vec<String>)> {
    let stages = actions.iter().filter_map(|action| match action {
        Action::Emit(_, Event::StageEntered { stage, waiting_for }) => {
            Some((*stage, waiting_for.names.clone()))
        }
        _ => None,
    });
    stages.collect()
}

pub(super) fn ended(actions: &[Action]) -> Option<RunOutcome> {
    actions.iter().find_map(|action| match action {
        Action::Emit(_, Event::RunEnded { outcome }) => Some(outcome.clone()),
        _ => None,
    })
}

fn prepared_on_both(machine: &mut RunMachine) -> Vec<Action> {
    let run = machine.id().clone();
    assert!(
        sent(&reply(
            machine,
            "a",
            &Reply::Prepared { run: run.clone(), ports: vec![4001, 5001], image: None }
        ))
        .is_empty()
    );
    reply(machine, "b", &Reply::Prepared { run, ports: vec![4002], image: None })
}

#[test]
fn a_run_passes_its_stages_and_names_who_is_waited_for() {
    let (mut machine, actions) = started(JobKind::Native);
    assert_eq!(sent(&actions), ["a:Prepare", "b:Prepare"]);
    assert_eq!(stages(&actions), [(RunStage::Prepare, vec!["a".to_owned(), "b".to_owned()])]);
    let actions = prepared_on_both(&mut machine);
    assert_eq!(sent(&actions), ["a:Commit", "a:Follow", "b:Commit", "b:Follow"]);
    let Some(Action::Send(_, ToAgent::Commit(commit))) =
        actions.iter().find(|action| matches!(action, Action::Send(_, ToAgent::Commit(_))))
    else {
        panic!("no commit")
    };
    assert_eq!(
        (commit.late.env["HVTUI_PEERS"].as_str(), commit.late.env["MASTER_PORT"].as_str()),
        ("10.0.0.1:4001,10.0.0.1:4002", "5001")
    );
    let run = rank_started();
    let actions = rank_event(&mut machine, 2, 0, &run);
    assert_eq!(stages(&actions), [(RunStage::Start, vec!["rank 1 on b:0".to_owned()])]);
    assert_eq!(stages(&rank_event(&mut machine, 3, 1, &run))[0].0, RunStage::Rendezvous);
    rank_event(&mut machine, 4, 0, &Event::RankConnected);
    assert_eq!(stages(&rank_event(&mut machine, 4, 1, &Event::RankConnected))[0].0, RunStage::FirstStep);
    rank_event(&mut machine, 5, 0, &exit(0, false));
    rank_event(&mut machine, 5, 1, &exit(0, false));
    let run = machine.id().clone();
    assert_eq!(ended(&reply(&mut machine, "a", &Reply::Finished { run: run.clone() })), None);
    let outcome = ended(&reply(&mut machine, "b", &Reply::Finished { run })).unwrap();
    assert_eq!((outcome.exit_code(), outcome.summary.as_str()), (0, "all 2 ranks finished"));
    assert!(machine.is_over());
}

fn rank_started() -> Event {
    Event::RankStarted { pid: 7, t: HostTime(0) }
}

#[test]
fn events_of_different_ranks_come_in_any_order() {
    let (mut machine, _) = started(JobKind::Native);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 3, 0, &Event::RankConnected);
    assert_eq!(
        stages(&rank_event(&mut machine, 4, 1, &rank_started()))[0],
        (RunStage::Rendezvous, vec!["rank 1 on b:0".to_owned()])
    );
    assert_eq!(stages(&rank_event(&mut machine, 5, 1, &Event::RankConnected))[0].0, RunStage::FirstStep);
}

#[test]
fn one_host_that_refuses_means_nothing_starts() {
    let (mut machine, _) = started(JobKind::Plain);
    let run = machine.id().clone();
    reply(&mut machine, "a", &Reply::Prepared { run: run.clone(), ports: vec![1], image: None });
    let refused = Refused {
        run,
        host: HostId::from("b"),
        rank: Some(Rank(1)),
        reason: "command 'xyz' not found".into(),
        class: RefusalClass::Command,
        busy: false,
    };
    let actions = reply(&mut machine, "b", &Reply::Refused(refused));
    assert_eq!(sent(&actions), ["a:Abort", "b:Abort"]);
    let outcome = ended(&actions).unwrap();
    assert_eq!(
        (outcome.exit_code(), outcome.summary.as_str()),
        (127, "b:0: command 'xyz' not found; a has it")
    );
}

#[test]
fn what_a_host_lacks_is_told_with_the_hosts_that_have_it() {
    let refusal = |machine: &RunMachine, host: &str| {
        let (run, reason) = (machine.id().clone(), format!("{host}: no conda environment 'train'"));
        let (host, class) = (HostId::from(host), RefusalClass::Command);
        Reply::Refused(Refused { run, host, rank: None, reason, class, busy: false })
    };
    // the other host's answer is waited for
    let (mut machine, _) = started(JobKind::Plain);
    let no = refusal(&machine, "b");
    assert!(ended(&reply(&mut machine, "b", &no)).is_none());
    let run = machine.id().clone();
    let actions = reply(&mut machine, "a", &Reply::Prepared { run, ports: vec![1], image: None });
    assert_eq!(sent(&actions), ["a:Abort", "b:Abort"]);
    let outcome = ended(&actions).unwrap();
    let summary = "b: no conda environment 'train'; a has it";
    assert_eq!((outcome.exit_code(), outcome.summary.as_str()), (127, summary));
    // the other one lacks it too
    let (mut machine, _) = started(JobKind::Plain);
    let [no, neither] = ["b", "a"].map(|host| refusal(&machine, host));
    reply(&mut machine, "b", &no);
    let outcome = ended(&reply(&mut machine, "a", &neither)).unwrap().clone();
    assert_eq!(outcome.summary, "b: no conda environment 'train'; a is refused too");
    // the other one says nothing
    let (mut machine, _) = started(JobKind::Plain);
    let no = refusal(&machine, "b");
    reply(&mut machine, "b", &no);
    assert!(ended(&machine.handle_time(Stamp(T.0 + 2_000_000))).is_none());
    let actions = machine.handle_time(Stamp(T.0 + 4_000_000));
    assert_eq!(ended(&actions).unwrap().summary, "b: no conda environment 'train'");
    assert!(machine.is_over());
}

#[test]
fn the_first_failure_is_the_root_cause_and_the_rest_is_stopped() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 2, 1, &rank_started());
    let actions = rank_event(&mut machine, 9, 1, &exit(3, false));
    assert_eq!(stages(&actions), [(RunStage::Stopping, vec!["rank 0 on a:0".to_owned()])]);
    // the others may end by themselves for a moment
    assert_eq!(sent(&actions), [""; 0]);
    assert_eq!(sent(&machine.handle_time(Stamp(1_000_008))), [""; 0]);
    assert_eq!(sent(&machine.handle_time(Stamp(1_000_009))), ["a:Stop", "b:Stop"]);
    assert_eq!(sent(&machine.handle_time(Stamp(2_000_000))), [""; 0]);
    rank_event(&mut machine, 10, 0, &exit(143, true));
    let run = machine.id().clone();
    reply(&mut machine, "b", &Reply::Finished { run: run.clone() });
    let outcome = ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap();
    assert_eq!((outcome.exit_code(), outcome.root), (3, Some(Rank(1))));
    assert_eq!(outcome.summary, "rank 1 (b:0) failed first: exit 3; rank 0 stopped because of it");
}

#[test]
fn what_ranks_printed_tells_the_root_cause() {
    let printed = |rank: u32, text: &str| Event::LogPrinted { line: Arc::new(log_line(rank, text)) };
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 2, 1, &rank_started());
    rank_event(&mut machine, 8, 0, &printed(0, "EOFError"));
    rank_event(&mut machine, 9, 0, &exit(1, false));
    rank_event(&mut machine, 10, 1, &printed(1, "Traceback (most recent call last):"));
    rank_event(&mut machine, 10, 1, &printed(1, "RuntimeError: out of memory"));
    rank_event(&mut machine, 20, 1, &exit(3, false));
    let outcome = finish_all(&mut machine);
    assert_eq!((outcome.exit_code(), outcome.root), (3, Some(Rank(1))));
    assert_eq!(
        outcome.summary,
        "rank 1 (b:0) failed: RuntimeError: out of memory; exit 3; rank 0 (a:0) ended before it, but had lost a peer"
    );
}

#[test]
fn a_host_lost_before_the_start_ends_the_run_and_one_lost_later_does_not() {
    let down = |host: &str| {
        let state = LinkState::Down { reason: "reset".into(), retry_at: None };
        (Origin::Host(HostId::from(host)), Event::LinkChanged { state })
    };
    let (mut machine, _) = started(JobKind::Plain);
    let (origin, event) = down("b");
    assert_eq!(ended(&machine.handle_event(T, &origin, &event)).unwrap().exit_code(), 69);

    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    let actions = machine.handle_event(T, &origin, &event);
    assert_eq!(ended(&actions), None);
    assert!(stages(&actions)[0].1.contains(&"b (link down: reset)".to_owned()));
}

#[test]
fn silence_has_a_deadline_that_names_the_silent() {
    let (mut machine, _) = started(JobKind::Plain);
    assert!(machine.handle_time(T.plus_micros(START_DEADLINE_US)).is_empty());
    let actions = machine.handle_time(T.plus_micros(START_DEADLINE_US + 1));
    assert_eq!(ended(&actions).unwrap().summary, "no answer from a, b to prepare within 20 s");
}

#[test]
fn while_ranks_come_one_after_the_other_the_others_have_time() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    let late = T.plus_micros(START_DEADLINE_US);
    assert!(machine.handle_time(late).is_empty());
    rank_event(&mut machine, late.0, 0, &rank_started());
    assert!(machine.handle_time(late.plus_micros(START_DEADLINE_US)).is_empty());
    // the same one again is no answer of another
    rank_event(&mut machine, late.0 + 5, 0, &rank_started());
    let actions = machine.handle_time(late.plus_micros(START_DEADLINE_US + 1));
    assert_eq!(sent(&actions), ["a:Stop", "b:Stop"]);
}

#[test]
fn its_owner_stops_a_run() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    let actions = machine.handle_stop(T, false);
    assert_eq!(sent(&actions), ["a:Stop", "b:Stop"]);
    for (rank, host) in [(0, "a"), (1, "b")] {
        rank_event(&mut machine, 3, rank, &exit(143, true));
        let run = machine.id().clone();
        reply(&mut machine, host, &Reply::Finished { run });
    }
    assert!(machine.is_over());
}

fn refuse(machine: &mut RunMachine, host: &str, reason: &str) -> Vec<Action> {
    refuse_as(machine, host, reason, RefusalClass::Unavailable)
}

fn refuse_as(machine: &mut RunMachine, host: &str, reason: &str, class: RefusalClass) -> Vec<Action> {
    let (run, host_id) = (machine.id().clone(), HostId::from(host));
    let refused = Refused { run, host: host_id, rank: None, reason: reason.into(), class, busy: false };
    reply(machine, host, &Reply::Refused(refused))
}

#[test]
fn a_refusing_host_is_named_once() {
    for reason in ["no room", "b: no room"] {
        let (mut machine, _) = started(JobKind::Plain);
        let actions = refuse(&mut machine, "b", reason);
        let told = actions.iter().any(|action| {
            matches!(action, Action::Emit(_, Event::RunEnded { outcome }) if outcome.summary == "b: no room")
        });
        assert!(told, "{actions:?}");
    }
}

#[test]
fn a_host_that_refuses_to_start_is_not_waited_for() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    let actions = refuse(&mut machine, "b", "fork: out of memory");
    assert_eq!(sent(&actions), ["a:Stop", "b:Stop"]);
    let lost = actions.iter().any(|action| {
        matches!(action, Action::Emit(Origin::Rank(_, Rank(1)), Event::RankExited { exit })
            if exit.error.as_deref() == Some("fork: out of memory"))
    });
    assert!(lost, "{actions:?}");
    // the refusal of that stop asks for nothing more
    assert!(sent(&refuse(&mut machine, "b", "never started")).is_empty());
    rank_event(&mut machine, 3, 0, &exit(143, true));
    let run = machine.id().clone();
    let outcome = ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap();
    assert_eq!((outcome.exit_code(), outcome.summary.as_str()), (1, "b: fork: out of memory"));
}

#[test]
fn a_refused_stop_is_not_asked_again_for_ever() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 2, 1, &rank_started());
    machine.handle_stop(T, false);
    assert!(sent(&refuse(&mut machine, "a", "disk error")).is_empty());
    assert!(!machine.is_over(), "its rank still runs");
}

#[test]
fn a_host_that_went_away_before_the_commit_could_be_sent_is_not_waited_for() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    let run = machine.id().clone();
    let actions = reply(
        &mut machine,
        "b",
        &Reply::Unreachable { run: run.clone(), reason: "b is not connected: reset".into() },
    );
    assert_eq!(sent(&actions), ["a:Stop", "b:Stop"]);
    rank_event(&mut machine, 3, 0, &exit(143, true));
    assert_eq!(ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap().exit_code(), 69);
}

#[test]
fn a_host_outside_the_run_and_a_rank_beyond_it_change_nothing() {
    let (mut machine, _) = started(JobKind::Plain);
    let run = machine.id().clone();
    assert!(reply(&mut machine, "a", &Reply::Finished { run: run.clone() }).is_empty());
    prepared_on_both(&mut machine);
    for foreign in [
        Reply::Finished { run: run.clone() },
        Reply::Unreachable { run: run.clone(), reason: "x".into() },
        Reply::Prepared { run, ports: vec![1], image: None },
    ] {
        assert!(reply(&mut machine, "c", &foreign).is_empty());
    }
    assert!(refuse(&mut machine, "c", "no").is_empty());
    assert!(rank_event(&mut machine, 2, 2, &exit(9, false)).is_empty());
    assert!(rank_event(&mut machine, 2, u32::MAX, &exit(9, false)).is_empty());
}

#[test]
fn a_rank_that_was_lost_did_not_fail_at_the_beginning_of_its_hosts_clock() {
    let (mut machine, _) = started(JobKind::Plain);
    let sample = crate::domain::clock_fit::ClockSample { host_time: HostTime(1), offset_us: 0, rtt_us: 2 };
    for host in ["a", "b"] {
        let mut clock = ClockFit::default();
        clock.add(sample);
        machine.know_clock(&HostId::from(host), clock);
    }
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 2, 1, &rank_started());
    let mut failed = exit(3, false);
    if let Event::RankExited { exit } = &mut failed {
        exit.t = HostTime(500_000);
    }
    rank_event(&mut machine, 600_000, 1, &failed);
    let run = machine.id().clone();
    reply(&mut machine, "b", &Reply::Finished { run: run.clone() });
    let outcome = ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap();
    assert_eq!((outcome.exit_code(), outcome.root), (3, Some(Rank(1))));
}

#[test]
fn the_secret_does_not_show_in_debug_output() {
    let (mut machine, _) = started(JobKind::Plain);
    let actions = prepared_on_both(&mut machine);
    assert!(!format!("{machine:?} {actions:?}").contains("5ec"));
}

fn finish_all(machine: &mut RunMachine) -> RunOutcome {
    let run = machine.id().clone();
    reply(machine, "a", &Reply::Finished { run: run.clone() });
    ended(&reply(machine, "b", &Reply::Finished { run })).unwrap()
}

#[test]
fn a_stop_that_comes_after_all_ranks_have_finished_changes_nothing() {
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &exit(0, false));
    rank_event(&mut machine, 2, 1, &exit(0, false));
    machine.handle_stop(T, false);
    let outcome = finish_all(&mut machine);
    assert_eq!((outcome.exit_code(), outcome.summary.as_str()), (0, "all 2 ranks finished"));

    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &exit(0, false));
    machine.handle_stop(T, false);
    rank_event(&mut machine, 3, 1, &exit(0, true));
    assert_eq!(finish_all(&mut machine).exit_code(), 130, "one of them was told to stop");
}

#[test]
fn a_host_whose_files_cannot_be_read_any_more_is_not_waited_for() {
    use crate::domain::note::Note;
    let (mut machine, _) = started(JobKind::Plain);
    prepared_on_both(&mut machine);
    rank_event(&mut machine, 2, 0, &rank_started());
    rank_event(&mut machine, 2, 1, &rank_started());
    let note = Note::new(what::UNREADABLE, "the run's files can't be read any more: disk error", HostTime(1));
    let event = Event::RunNoted { host: HostId::from("b"), note };
    let actions = machine.handle_event(T, &Origin::Run(machine.id().clone()), &event);
    assert_eq!(sent(&actions), ["a:Stop", "b:Stop"]);
    let lost = actions.iter().find_map(|action| match action {
        Action::Emit(Origin::Rank(_, Rank(1)), Event::RankExited { exit }) => Some(exit.describe()),
        _ => None,
    });
    assert_eq!(lost.unwrap(), "lost, the run's files can't be read any more: disk error");
    rank_event(&mut machine, 3, 0, &exit(143, true));
    let run = machine.id().clone();
    assert_eq!(ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap().exit_code(), 1);
}
