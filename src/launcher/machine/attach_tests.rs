//! A run that a client comes back to: what it knows, what hosts know, and who is waited for.

use super::*;

fn attached(resume_point: &crate::domain::resume_point::ResumePoint) -> (RunMachine, Vec<Action>) {
    RunMachine::attach(spec(JobKind::Plain), resume_point, crate::domain::resume_point::Backfill::Whole, T)
}

#[test]
fn a_run_that_is_resumed_has_no_deadline_and_passes_its_stages() {
    let (mut machine, actions) = attached(&crate::domain::resume_point::ResumePoint::default());
    assert_eq!(sent(&actions), ["a:Follow", "b:Follow"]);
    assert!(matches!(&actions[0], Action::Emit(_, Event::RunCreated { .. })));
    assert!(matches!(&actions[1], Action::Emit(_, Event::Attached { since: None, until: None })));
    assert!(
        machine.handle_time(T.plus_micros(10 * START_DEADLINE_US)).is_empty(),
        "a host may be away for long"
    );
    rank_event(&mut machine, 2, 0, &rank_started());
    assert_eq!(stages(&rank_event(&mut machine, 3, 1, &rank_started()))[0].0, RunStage::Training);
    rank_event(&mut machine, 4, 0, &exit(0, false));
    assert_eq!(sent(&rank_event(&mut machine, 4, 1, &exit(3, false))), [""; 0]);
    assert_eq!(sent(&machine.handle_time(Stamp(1_000_004))), ["a:Stop", "b:Stop"]);
    let run = machine.id().clone();
    reply(&mut machine, "a", &Reply::Finished { run: run.clone() });
    assert_eq!(ended(&reply(&mut machine, "b", &Reply::Finished { run })).unwrap().exit_code(), 3);
}

#[test]
fn what_was_recorded_is_known_and_a_recorded_failure_stops_the_others() {
    use crate::domain::resume_point::{RankResumePoint, ResumePoint};
    let Event::RankExited { exit } = exit(3, false) else { panic!() };
    let failed = RankResumePoint { started: true, exit: Some((T, exit)), ..RankResumePoint::default() };
    let running = RankResumePoint { started: true, lines: [Some(70), None], ..RankResumePoint::default() };
    let resume_point = ResumePoint {
        spec: Some(spec(JobKind::Plain)),
        last_at: Some(Stamp(5)),
        stage: Some(RunStage::Training),
        ranks: BTreeMap::from([(Rank(0), running), (Rank(1), failed)]),
        ..ResumePoint::default()
    };
    let (machine, actions) = attached(&resume_point);
    assert!(matches!(&actions[0], Action::Emit(_, Event::Attached { since: Some(Stamp(5)), until: None })));
    assert_eq!(sent(&actions), ["a:Follow", "b:Follow", "a:Stop", "b:Stop"]);
    let Some(Action::Send(_, ToAgent::Follow(follow))) =
        actions.iter().find(|action| matches!(action, Action::Send(_, ToAgent::Follow(_))))
    else {
        panic!("no request to follow")
    };
    assert_eq!(follow.from[0], (Rank(0), crate::domain::log::Stream::Stdout, 70));
    assert!(!machine.is_over());
}

#[test]
fn a_host_that_does_not_know_the_run_is_no_reason_to_stop_the_others() {
    let (mut machine, _) = attached(&crate::domain::resume_point::ResumePoint::default());
    rank_event(&mut machine, 2, 0, &rank_started());
    let actions = refuse_as(&mut machine, "b", "run X was never started on b", RefusalClass::Unknown);
    assert!(sent(&actions).is_empty(), "{actions:?}");
    assert!(!machine.is_over(), "rank 0 runs");
    rank_event(&mut machine, 3, 0, &exit(0, false));
    let run = machine.id().clone();
    let outcome = ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap();
    assert_eq!(outcome.root, Some(Rank(1)));
}

#[test]
fn a_run_whose_client_ended_while_it_started_is_stopped_where_one_host_never_heard_of_it() {
    use crate::domain::resume_point::{RankResumePoint, ResumePoint};
    let resume_point = |stage| ResumePoint {
        spec: Some(spec(JobKind::Plain)),
        stage: Some(stage),
        abandoned: true,
        ..ResumePoint::default()
    };
    let unknown = |machine: &mut RunMachine| {
        rank_event(machine, 2, 0, &rank_started());
        sent(&refuse_as(machine, "b", "run X was never started on b", RefusalClass::Unknown))
    };
    for stage in [RunStage::Prepare, RunStage::Start] {
        let (mut machine, _) = attached(&resume_point(stage));
        assert_eq!(unknown(&mut machine), ["a:Stop"], "{stage:?}");
        rank_event(&mut machine, 3, 0, &exit(143, true));
        let run = machine.id().clone();
        let outcome = ended(&reply(&mut machine, "a", &Reply::Finished { run })).unwrap();
        assert_eq!((outcome.end, outcome.root, outcome.exit_code()), (RunEnd::Failed, Some(Rank(1)), 69));
        assert_eq!(
            outcome.summary,
            "rank 1 (b:0) failed first: could not start: run X was never started on b; rank 0 stopped because of it"
        );
    }
    // it had not come to write down anything
    let (mut machine, _) = attached(&ResumePoint { abandoned: true, ..ResumePoint::default() });
    assert_eq!(unknown(&mut machine), ["a:Stop"]);
    // nothing was started anywhere: then there is nothing to stop
    let (mut machine, _) = attached(&resume_point(RunStage::Prepare));
    let refused = |machine: &mut RunMachine, host| {
        refuse_as(machine, host, "run X was never started there", RefusalClass::Unknown)
    };
    assert_eq!(sent(&refused(&mut machine, "a")), ["b:Stop"]);
    assert_eq!(ended(&refused(&mut machine, "b")).unwrap().end, RunEnd::Failed);
    // it ran there: the host has lost it, or is another one by now
    let heard = RankResumePoint { started: true, ..RankResumePoint::default() };
    let known = ResumePoint { ranks: BTreeMap::from([(Rank(1), heard)]), ..resume_point(RunStage::Start) };
    let others = [
        known,
        resume_point(RunStage::Training),
        ResumePoint { abandoned: false, ..resume_point(RunStage::Start) },
        ResumePoint::default(),
    ];
    for resume_point in others {
        let (mut machine, _) = attached(&resume_point);
        assert_eq!(unknown(&mut machine), [""; 0], "{resume_point:?}");
    }
}

#[test]
fn a_host_that_has_lost_what_it_had_of_a_run_is_told_with_its_ranks() {
    use crate::domain::resume_point::{RankResumePoint, ResumePoint};
    let running = RankResumePoint { started: true, ..RankResumePoint::default() };
    let ranks = BTreeMap::from([(Rank(0), running.clone()), (Rank(1), running)]);
    let spec = Some(spec(JobKind::Plain));
    let known = ResumePoint { spec, stage: Some(RunStage::Training), ranks, ..ResumePoint::default() };
    let (mut machine, _) = attached(&known);
    let actions = refuse_as(&mut machine, "b", "run X was never started on b", RefusalClass::Unknown);
    let [Action::Emit(Origin::Run(_), event @ Event::RunNoted { host, note })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((host.as_str(), note.what.as_str()), ("b", what::NOT_FOLLOWED));
    assert!(note.text.starts_with("it has nothing of this run (rank 1): it was set up anew, "), "{note:?}");
    assert!(!machine.is_over(), "rank 0 runs");
    // each client that attaches is told
    let mut known = ResumePoint { notes: vec![(host.clone(), note.clone())], ..known };
    let run = machine.id().clone();
    assert!(!known.repeats(&run, &Origin::Run(run.clone()), event));
    let other = Note::new(what::ADOPTED, "a new supervisor", HostTime(1));
    known.notes.push((host.clone(), other.clone()));
    let event = Event::RunNoted { host: host.clone(), note: other };
    assert!(known.repeats(&run, &Origin::Run(run.clone()), &event));
}

#[test]
fn a_host_that_cannot_tell_of_a_run_is_told_and_its_ranks_have_not_ended() {
    let (mut machine, _) = attached(&crate::domain::resume_point::ResumePoint::default());
    rank_event(&mut machine, 2, 0, &rank_started());
    let (run, host) = (machine.id().clone(), HostId::from("b"));
    let why = "b: state.json was written by hvtui 9: use hvtui 9 for this run";
    let actions = refuse(&mut machine, "b", why);
    let [Action::Emit(Origin::Run(_), Event::RunNoted { host: from, note })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((from, note.what.as_str()), (&host, what::NOT_FOLLOWED));
    assert_eq!(note.text, "state.json was written by hvtui 9: use hvtui 9 for this run");
    rank_event(&mut machine, 3, 0, &exit(0, false));
    assert_eq!(ended(&reply(&mut machine, "a", &Reply::Finished { run })), None, "rank 1 goes on");
}
