use std::sync::Arc;

use super::*;
use crate::domain::analysis::fixtures::{spec, timing};
use crate::domain::clock_fit::ClockSample;
use crate::domain::log::LogLine;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RankExit, RunStage};
use crate::domain::time::HostTime;
use crate::domain::timing::StepTiming;
use crate::domain::waiting::Waiting;

const S: i64 = 1_000_000;

/// A run of two ranks whose host's clock began 100 s after the client's.
struct Bed {
    times: EventTimes,
    clock: ClockFit,
    spec: RunSpec,
}

impl Bed {
    fn new() -> Self {
        let spec = RunSpec { created: Stamp(101 * S), ..spec(2) };
        let mut clock = ClockFit::default();
        clock.add(ClockSample { host_time: HostTime(1), offset_us: 100 * S, rtt_us: 200 });
        Self { times: EventTimes::new(&spec), clock, spec }
    }

    fn date(&mut self, came: i64, origin: Origin, event: Event) -> Stamp {
        let envelope = Envelope { seq: 0, at: Stamp(came), origin, event };
        let clock = &self.clock;
        self.times.date(&envelope, |_| Some(clock))
    }

    fn rank(&mut self, came: i64, rank: u32, event: Event) -> Stamp {
        let origin = Origin::Rank(self.spec.id.clone(), Rank(rank));
        self.date(came, origin, event)
    }

    fn run(&mut self, came: i64, event: Event) -> Stamp {
        let origin = Origin::Run(self.spec.id.clone());
        self.date(came, origin, event)
    }
}

fn started(t: u64) -> Event {
    Event::RankStarted { pid: 1, t: HostTime(t) }
}

fn stage(stage: RunStage) -> Event {
    Event::StageEntered { stage, waiting_for: Waiting::default() }
}

fn line(stream: Stream, t: Option<u64>) -> Event {
    let text = "text".to_owned();
    let line = LogLine { rank: Rank(0), stream, offset: 0, text, elided: 0, t: t.map(HostTime) };
    Event::LogPrinted { line: Arc::new(line) }
}

/// How long a step takes, microseconds.
const STEP_US: u32 = 100_000;

fn step(number: u64, start: u64) -> Event {
    let timing = StepTiming { start: HostTime(start), dur_us: STEP_US, ..timing(number, [0; 6]) };
    Event::StepDone { timing: Arc::new(timing) }
}

fn exited(t: u64) -> Event {
    let (code, signal, error, cause) = (Some(0), None, None, None);
    Event::RankExited { exit: RankExit { code, signal, t: HostTime(t), error, stopped: false, cause } }
}

#[test]
fn what_has_a_hosts_time_happened_then_and_never_before_the_run_nor_after_it_came() {
    let mut bed = Bed::new();
    assert_eq!(bed.rank(130 * S, 0, started(2_000_000)), Stamp(102 * S));
    assert_eq!(bed.rank(130 * S, 0, line(Stream::Stdout, Some(2_500_000))), Stamp(102 * S + S / 2));
    assert_eq!(bed.rank(130 * S, 0, step(1, 2_600_000)).0, 102 * S + 600_000 + i64::from(STEP_US));
    assert_eq!(bed.rank(130 * S, 0, line(Stream::Stderr, Some(500_000))), Stamp(102 * S), "its rank's start");
    assert_eq!(bed.rank(130 * S, 1, line(Stream::Stderr, Some(500_000))), Stamp(101 * S), "created");
    assert_eq!(bed.rank(130 * S, 0, exited(31_000_000)), Stamp(130 * S), "came");
    let host = Event::Gap { what: "telemetry".to_owned(), dropped: 1 };
    assert_eq!(bed.date(131 * S, Origin::Host(HostId::from("gpu-a")), host), Stamp(131 * S));
}

#[test]
fn without_a_ping_all_has_the_time_at_which_it_came() {
    let mut bed = Bed { clock: ClockFit::default(), ..Bed::new() };
    assert_eq!(bed.rank(130 * S, 0, started(2_000_000)), Stamp(130 * S));
    assert!(!bed.times.is_late(Stamp(130 * S)));
}

#[test]
fn each_stream_is_in_order_where_its_clock_is_placed_anew() {
    let mut bed = Bed::new();
    let first = bed.rank(130 * S, 0, line(Stream::Stdout, Some(5_000_000)));
    assert_eq!(bed.rank(130 * S, 0, line(Stream::Stdout, Some(4_999_000))), first);
    assert_eq!(bed.rank(130 * S, 0, line(Stream::Stderr, Some(4_999_000))), Stamp(104_999_000), "its own");
    let step_at = bed.rank(130 * S, 0, step(1, 5_000_000));
    assert_eq!(bed.rank(130 * S, 0, step(2, 4_999_000)), step_at);
    assert_eq!(bed.rank(130 * S, 1, step(2, 4_999_000)).0, step_at.0 - 1_000);
}

#[test]
fn a_stage_is_entered_when_the_last_happened_that_it_waits_for() {
    let mut bed = Bed::new();
    assert_eq!(bed.run(101 * S, stage(RunStage::Prepare)), Stamp(101 * S));
    assert_eq!(bed.run(103 * S, stage(RunStage::Start)), Stamp(103 * S), "a host has answered");
    bed.rank(120 * S, 1, started(5_000_000));
    assert_eq!(bed.run(120 * S, stage(RunStage::Start)), Stamp(105 * S));
    // it started before the other one and is told of after it
    bed.rank(125 * S, 0, started(4_000_000));
    assert_eq!(bed.run(125 * S, stage(RunStage::Training)), Stamp(105 * S));
    bed.rank(126 * S, 0, exited(6_000_000));
    // what a person asks for is of now
    assert_eq!(bed.run(127 * S, stage(RunStage::Stopping)), Stamp(127 * S));
}

#[test]
fn nothing_ends_before_what_it_ends() {
    let mut bed = Bed::new();
    bed.rank(120 * S, 0, line(Stream::Stderr, Some(6_000_500)));
    assert_eq!(bed.rank(120 * S, 0, exited(6_000_000)), Stamp(106_000_500), "a line behind it");
    assert_eq!(bed.rank(120 * S, 1, exited(5_000_000)), Stamp(105 * S), "another rank");
    let outcome = RunOutcome { at: Some(Stamp(106 * S)), ..RunOutcome::new(RunEnd::Finished, "done") };
    assert_eq!(bed.run(121 * S, Event::RunEnded { outcome }), Stamp(106_000_500));
}

#[test]
fn a_run_ends_with_its_last_rank() {
    let mut bed = Bed::new();
    bed.rank(120 * S, 0, exited(6_000_000));
    let outcome = RunOutcome { at: Some(Stamp(106 * S)), ..RunOutcome::new(RunEnd::Finished, "done") };
    assert_eq!(bed.run(121 * S, Event::RunEnded { outcome }), Stamp(106 * S));
    let outcome = RunOutcome::new(RunEnd::Silent, "not heard");
    assert_eq!(bed.run(122 * S, Event::RunEnded { outcome }), Stamp(122 * S), "nothing tells when");
}

#[test]
fn what_has_no_time_is_of_now_unless_its_rank_is_late() {
    let mut bed = Bed::new();
    let met = || Event::RankConnected;
    bed.rank(102 * S, 0, started(1_990_000));
    assert_eq!(bed.rank(103 * S, 0, met()), Stamp(103 * S), "in time");
    assert!(!bed.times.is_late(Stamp(103 * S)));
    bed.rank(110 * S, 0, line(Stream::Stdout, Some(3_000_000)));
    assert!(bed.times.is_late(Stamp(111 * S)) && !bed.times.is_late(Stamp(112 * S)));
    let done = || Event::JobDone { weights: None };
    assert_eq!(bed.rank(110 * S, 0, done()), Stamp(110 * S), "what it reports is in time");
    assert_eq!(bed.rank(110 * S, 0, met()), Stamp(103 * S), "it begins");
    assert_eq!(bed.rank(110 * S, 0, line(Stream::Stderr, None)), Stamp(103 * S), "behind the line before it");
    bed.rank(110 * S, 0, step(1, 2_000_000));
    let stepped = Stamp(102 * S + i64::from(STEP_US));
    assert_eq!(bed.rank(111 * S, 0, met()), stepped, "behind the step before it");
    assert_eq!(bed.rank(111 * S, 1, met()), Stamp(111 * S), "another rank");
    assert_eq!(bed.rank(113 * S, 0, met()), Stamp(113 * S), "nothing late has come for long");
    // the client's clock was set back
    assert!(!bed.times.is_late(Stamp(90 * S)));
    bed.rank(120 * S, 0, line(Stream::Stdout, Some(3_000_000)));
    assert_eq!(bed.rank(120 * S, 0, lost()), Stamp(120 * S), "with its host");
}

/// What a program tells of itself by another clock, or in other units, is no word on how late it comes.
#[test]
fn an_odd_time_of_a_program_is_none() {
    let mut bed = Bed::new();
    bed.rank(103 * S, 0, started(2_900_000));
    for odd in [1_000, 1_900_000, 2_899_999] {
        assert_eq!(bed.rank(104 * S, 0, step(1, odd)), Stamp(104 * S), "{odd}");
        assert_eq!(bed.times.told_until(Stamp(104 * S)), None, "{odd}: nothing is late");
    }
    // one whose start was not told: nothing was before the run
    assert_eq!(bed.rank(104 * S, 1, step(1, 900_000)), Stamp(104 * S));
    assert_eq!(bed.rank(104 * S, 1, step(2, 1_900_000)), Stamp(102 * S));
    // what comes after an odd one is believed
    assert_eq!(bed.rank(104 * S, 0, step(2, 2_900_000)), Stamp(103 * S));
    // and nothing happens after it came
    assert_eq!(bed.rank(105 * S, 0, step(3, u64::MAX)), Stamp(105 * S));
}

#[test]
fn a_stage_that_is_told_again_keeps_the_time_at_which_it_was_entered() {
    let mut bed = Bed::new();
    bed.run(102 * S, stage(RunStage::Start));
    // others are waited for, and others again
    assert_eq!(bed.run(118 * S, stage(RunStage::Start)), Stamp(118 * S));
    bed.rank(120 * S, 0, started(3_000_000));
    assert_eq!(bed.run(120 * S, stage(RunStage::Training)), Stamp(103 * S));
    assert_eq!(bed.run(121 * S, stage(RunStage::Training)), Stamp(121 * S));
    bed.rank(122 * S, 0, exited(4_000_000));
    let outcome = RunOutcome { at: Some(Stamp(104 * S)), ..RunOutcome::new(RunEnd::Finished, "done") };
    assert_eq!(bed.run(122 * S, Event::RunEnded { outcome }), Stamp(104 * S));
}

/// How a rank ended is not known: its host was lost, and that is of now.
fn lost() -> Event {
    match exited(0) {
        Event::RankExited { exit } => Event::RankExited { exit: RankExit { code: None, ..exit } },
        _ => unreachable!(),
    }
}

#[test]
fn a_rank_that_went_with_its_host_ended_before_that_booted() {
    let rebooted = |t| match lost() {
        Event::RankExited { exit } => {
            let cause = Some(crate::domain::run::REBOOTED.to_owned());
            Event::RankExited { exit: RankExit { t: HostTime(t), cause, ..exit } }
        }
        _ => unreachable!(),
    };
    // the rank was started by a clock that is ahead of that of the next boot
    let mut bed = Bed::new();
    bed.rank(102 * S, 0, started(2_000_000));
    // nothing is known of that yet: the boot before lies before the run
    assert_eq!(bed.rank(180 * S, 0, rebooted(20_000_000)), Stamp(180 * S));
    let mut bed = Bed::new();
    bed.rank(102 * S, 0, started(2_000_000));
    assert_eq!(bed.rank(103 * S, 0, line(Stream::Stdout, Some(3_000_000))), Stamp(103 * S));
    bed.clock = ClockFit::default();
    bed.clock.add(ClockSample { host_time: HostTime(1), offset_us: 160 * S, rtt_us: 200 });
    assert_eq!(bed.rank(180 * S, 0, rebooted(20_000_000)), Stamp(160 * S + 1));
    // one whose end is not known for another reason has the moment at which it was missed
    let mut bed = Bed::new();
    assert_eq!(bed.rank(180 * S, 0, lost()), Stamp(180 * S));
}

#[test]
fn a_run_ends_behind_all_its_ranks() {
    for (first, last) in [(0, 1), (1, 0)] {
        let mut bed = Bed::new();
        let lost_at = bed.rank(115 * S, first, lost());
        assert_eq!(lost_at, Stamp(115 * S));
        bed.rank(118 * S, last, exited(6_000_000));
        let outcome = RunOutcome { at: Some(Stamp(106 * S)), ..RunOutcome::new(RunEnd::Failed, "lost") };
        assert_eq!(bed.run(120 * S, Event::RunEnded { outcome }), lost_at);
    }
}

#[test]
fn when_all_ranks_have_ended_nothing_more_happens_unless_they_are_started_again() {
    let mut bed = Bed::new();
    bed.rank(105 * S, 0, exited(5_000_000));
    assert_eq!(bed.times.told_until(Stamp(105 * S)), None, "one goes on");
    bed.rank(107 * S, 1, exited(6_900_000));
    bed.rank(107 * S, 0, exited(5_000_000));
    for now in [107, 200] {
        assert_eq!(bed.times.told_until(Stamp(now * S)), Some(Stamp(106_900_000)), "{now}");
    }
    let event = Event::RunRestarted { attempt: 2, of: 2, why: "it failed".to_owned(), root: Rank(0) };
    assert_eq!(bed.run(201 * S, event), Stamp(201 * S));
    assert_eq!(bed.times.told_until(Stamp(201 * S)), None);
    // the first step of the attempt is waited for, too
    bed.rank(210 * S, 0, step(1, 105_000_000));
    assert_eq!(bed.run(210 * S, stage(RunStage::Training)), Stamp(205 * S + i64::from(STEP_US)));
}

#[test]
fn what_was_caught_up_with_is_not_overtaken_by_what_comes_behind_it() {
    let mut bed = Bed::new();
    let put = |bed: &mut Bed, at: i64, origin: Origin, event: Event| {
        bed.times.follow(&Envelope { seq: 0, at: Stamp(at), origin, event });
    };
    let (run, rank) = (Origin::Run(bed.spec.id.clone()), Origin::Rank(bed.spec.id.clone(), Rank(0)));
    put(&mut bed, 106 * S, run.clone(), stage(RunStage::Start));
    put(&mut bed, 108 * S, run.clone(), stage(RunStage::Start));
    put(&mut bed, 107 * S, rank.clone(), line(Stream::Stdout, Some(7_000_000)));
    put(&mut bed, 109 * S, rank.clone(), line(Stream::Stderr, None));
    put(&mut bed, 107 * S, rank.clone(), step(1, 6_900_000));
    assert_eq!(bed.rank(120 * S, 0, line(Stream::Stdout, Some(6_999_000))), Stamp(107 * S));
    assert_eq!(
        bed.rank(120 * S, 0, line(Stream::Stderr, Some(6_999_000))),
        Stamp(106_999_000),
        "its own time"
    );
    assert_eq!(bed.rank(120 * S, 0, step(2, 6_000_000)), Stamp(107 * S));
    assert_eq!(bed.times.told_until(Stamp(120 * S)), Some(Stamp(107 * S)));
    bed.rank(120 * S, 0, started(5_000_000));
    // as its first step that is dated, and not as late as the stage before was told again
    assert_eq!(bed.run(120 * S, stage(RunStage::Training)), Stamp(107 * S));
    put(&mut bed, 110 * S, rank, lost());
    put(&mut bed, 110 * S, run.clone(), stage(RunStage::Stopping));
    bed.rank(121 * S, 1, exited(8_000_000));
    let outcome = RunOutcome { at: Some(Stamp(108 * S)), ..RunOutcome::new(RunEnd::Failed, "lost") };
    assert_eq!(bed.run(121 * S, Event::RunEnded { outcome }), Stamp(110 * S));
    let event = Event::RunRestarted { attempt: 2, of: 2, why: "it failed".to_owned(), root: Rank(0) };
    put(&mut bed, 122 * S, run, event);
    assert_eq!(bed.times.told_until(Stamp(125 * S)), None);
}
