use super::*;
use crate::domain::analysis::fixtures;
use crate::domain::clock_fit::ClockSample;
use crate::domain::ids::Rank;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::time::Stamp;

/// Seconds of the client's clock, which is that of the host.
fn second(second: i64) -> Stamp {
    fixtures::START.plus_micros(second * 1_000_000)
}

/// A run of two ranks, known up to second 3, whose first 90 seconds its host tells at second 100, rank by rank.
fn resumed() -> (Behind, RunState, World) {
    let spec = fixtures::spec(2);
    let mut world = World::default();
    let created = Event::RunCreated { spec: Arc::new(spec.clone()) };
    world.apply(&Envelope { seq: 0, at: second(3), origin: Origin::Run(spec.id.clone()), event: created });
    let resume_point = ResumePoint { last_at: Some(second(3)), next_seq: 1, ..ResumePoint::default() };
    let (behind, first) = Behind::new(&spec, &resume_point, HostTime(0)).shown(&spec, world.clone());
    (behind, first, world)
}

/// Tells it at second 100; by the clock that does not step it is 5.
fn tell(behind: &mut Behind, world: &mut World, events: Vec<(Origin, Event)>) {
    for ((origin, event), seq) in events.into_iter().zip(7..) {
        let released = behind.take(Envelope { seq, at: second(100), origin, event }, HostTime(5_000_000));
        for envelope in &released {
            world.apply(envelope);
        }
    }
}

fn past(run: &RunId) -> Vec<(Origin, Event)> {
    let sample = ClockSample { host_time: HostTime(second(100).0 as u64), offset_us: 0, rtt_us: 200 };
    let mut events: Vec<_> = (0..2)
        .map(|host| fixtures::spec(2).placements[host].host.clone())
        .map(|host| (Origin::Host(host), Event::ClockSampled { sample }))
        .collect();
    let attached = Event::Attached { since: Some(second(3)), until: None };
    events.push((Origin::Run(run.clone()), attached));
    for rank in 0..2 {
        for step in 1..=90 {
            let mut timing = fixtures::timing(step, [100; 6]);
            timing.start = HostTime(second(3 + step as i64).0 as u64);
            let step = Event::StepDone { timing: Arc::new(timing) };
            events.push((Origin::Rank(run.clone(), Rank(rank)), step));
        }
    }
    events
}

#[test]
fn who_shows_it_is_told_what_a_replay_would_show() {
    let (mut behind, first, mut recorded) = resumed();
    let run = first.spec.id.clone();
    assert!(first.is_behind && first.step().is_none());
    tell(&mut behind, &mut recorded, past(&run));
    assert_eq!(behind.wait_us(HostTime(6_000_000)), Some(500_000));
    assert!(behind.look(HostTime(6_000_000)).is_empty() && behind.fold() && !behind.is_over());
    for envelope in behind.look(HostTime(6_500_000)) {
        recorded.apply(&envelope);
    }
    assert!(!behind.is_over() && behind.fold() && behind.is_over());
    let (state, end) = behind.stand().unwrap();
    assert_eq!(*state, recorded.runs[&run]);
    assert!(!state.is_behind && end.is_none() && state.step() == Some(90));
    // each of its seconds has its steps
    let steps = |from: i64| state.history.between(second(from), second(from + 10)).map_or(0, |all| all.steps);
    assert_eq!((steps(4), steps(40), steps(80), steps(95)), (20, 20, 20, 0));
}

#[test]
fn one_that_ends_meanwhile_is_told_as_it_ended_and_then_its_end() {
    let (mut behind, first, mut recorded) = resumed();
    let run = first.spec.id.clone();
    tell(&mut behind, &mut recorded, past(&run));
    let outcome =
        RunOutcome { at: Some(second(95)), ..RunOutcome::new(RunEnd::Finished, "all ranks succeeded") };
    let ended = vec![(Origin::Run(run.clone()), Event::RunEnded { outcome })];
    tell(&mut behind, &mut recorded, ended);
    assert!(behind.fold() && behind.is_over());
    let (state, end) = behind.stand().unwrap();
    assert_eq!(*state, recorded.runs[&run]);
    let end = end.unwrap();
    assert!(state.outcome.is_some() && matches!(end.event, Event::RunEnded { .. }));
    // not when it was heard of
    assert_eq!((state.last_at, end.at), (second(95), second(95)));
}
