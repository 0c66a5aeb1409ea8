//! What ranks printed and when, however late a client hears it.

use super::*;
use crate::domain::clock_fit::ClockSample;
use crate::domain::fixtures::log_line;
use crate::domain::log::LogLine;
use crate::domain::log_text::level::Level;
use crate::domain::resume_point::{Backfill, RankResumePoint, ResumePoint};
use crate::domain::timing::{Spans, StepTiming};

const SECOND: u64 = 1_000_000;

/// A ping of this length tells that the hosts' clocks are the client's.
fn know_clocks(machine: &mut RunMachine, host_time: u64, rtt_us: u32) {
    for host in ["a", "b"] {
        let mut clock = ClockFit::default();
        clock.add(ClockSample { host_time: HostTime(host_time), offset_us: 0, rtt_us });
        machine.know_clock(&HostId::from(host), clock);
    }
}

/// Two ranks whose hosts' clocks are the client's.
fn running() -> RunMachine {
    let (mut machine, _) = started(JobKind::Plain);
    know_clocks(&mut machine, 1, 2);
    prepared_on_both(&mut machine);
    for rank in [0, 1] {
        rank_event(&mut machine, 2, rank, &rank_started());
    }
    machine
}

fn exit_at(t: u64, code: i32, stopped: bool) -> Event {
    let exit = RankExit { code: Some(code), signal: None, t: HostTime(t), error: None, stopped, cause: None };
    Event::RankExited { exit }
}

fn line(rank: u32, t: u64, text: &str) -> Event {
    let line = LogLine { t: Some(HostTime(t)), ..log_line(rank, text) };
    Event::LogPrinted { line: Arc::new(line) }
}

fn step(step: u64, start: u64) -> Event {
    let (spans, loss) = (Spans::default(), None);
    let timing =
        StepTiming { step, start: HostTime(start), dur_us: 100_000, loss, samples: 0, spans, hidden_us: 0 };
    Event::StepDone { timing: Arc::new(timing) }
}

#[test]
fn what_is_heard_an_hour_later_comes_in_the_order_of_the_hosts() {
    let mut machine = running();
    let hour = 3_600 * SECOND as i64;
    // of each rank the lines come first, then its steps
    rank_event(&mut machine, hour, 1, &line(1, 9 * SECOND, "RuntimeError: CUDA error: out of memory"));
    rank_event(&mut machine, hour + 400_000, 1, &step(40, 8 * SECOND));
    rank_event(&mut machine, hour + 500_000, 0, &line(0, 9 * SECOND + 150_000, "EOFError"));
    rank_event(&mut machine, hour + 900_000, 0, &step(40, 8 * SECOND));
    rank_event(&mut machine, hour + 900_000, 0, &exit_at(9 * SECOND + 200_000, 1, false));
    rank_event(&mut machine, hour + 900_000, 1, &exit_at(9 * SECOND + 700_000, 3, false));
    let outcome = finish_all(&mut machine);
    assert_eq!((outcome.root, outcome.code), (Some(Rank(1)), Some(3)), "{}", outcome.summary);
    assert!(outcome.summary.contains("printed an error first: RuntimeError"), "{}", outcome.summary);
}

#[test]
fn two_that_failed_are_ordered_no_finer_than_their_hosts_clocks_are_known() {
    let of_pings = |rtt_us: u32| {
        let mut machine = running();
        know_clocks(&mut machine, 9 * SECOND, rtt_us);
        let at = 9 * SECOND as i64;
        rank_event(&mut machine, at + 120_000, 0, &exit_at(9 * SECOND + 100_000, 1, false));
        rank_event(&mut machine, at + 150_000, 1, &exit_at(9 * SECOND + 120_000, 3, false));
        finish_all(&mut machine)
    };
    let sure = of_pings(2);
    assert!(sure.root == Some(Rank(0)) && sure.summary.contains("failed first: exit 1"), "{}", sure.summary);
    let unsure = of_pings(40_000);
    assert_eq!(unsure.root, Some(Rank(0)), "{}", unsure.summary);
    assert!(
        unsure.summary.contains("failed: exit 1; it or rank 1 (b:0) failed first: "),
        "{}",
        unsure.summary
    );
}

#[test]
fn what_two_ranks_printed_is_ordered_no_finer_than_their_hosts_clocks_are_known() {
    let of_pings = |rtt_us: u32| {
        let mut machine = running();
        know_clocks(&mut machine, 9 * SECOND, rtt_us);
        let at = 9 * SECOND as i64;
        rank_event(&mut machine, at, 1, &line(1, 9 * SECOND, "RuntimeError: CUDA error: out of memory"));
        rank_event(&mut machine, at, 0, &line(0, 9 * SECOND + 80_000, "ValueError: bad gradient"));
        rank_event(&mut machine, at + 100_000, 0, &exit_at(9 * SECOND + 100_000, 1, false));
        rank_event(&mut machine, at + 150_000, 1, &exit_at(9 * SECOND + 150_000, 3, false));
        finish_all(&mut machine)
    };
    assert_eq!(of_pings(2).root, Some(Rank(1)));
    let unsure = of_pings(400_000);
    assert_eq!(unsure.root, Some(Rank(0)), "{}", unsure.summary);
    assert!(unsure.summary.contains("printed an error at about the same time"), "{}", unsure.summary);
}

#[test]
fn a_host_that_was_rebooted_is_the_cause_though_it_is_back_a_minute_later() {
    let mut machine = running();
    let (at, minute) = (9 * SECOND as i64, 60 * SECOND as i64);
    let reset = "RuntimeError: [pair.cc:589] Read error [10.77.0.12]:41609: Connection reset by peer";
    rank_event(&mut machine, at, 0, &line(0, 9 * SECOND, reset));
    rank_event(&mut machine, at + 150_000, 0, &exit_at(9 * SECOND + 100_000, 1, false));
    machine.handle_time(Stamp(at + 1_100_000));
    let exit = RankExit {
        code: None,
        signal: None,
        t: HostTime(3),
        error: None,
        stopped: false,
        cause: Some(crate::domain::run::REBOOTED.to_owned()),
    };
    rank_event(&mut machine, at + minute, 1, &Event::RankExited { exit });
    let outcome = finish_all(&mut machine);
    assert_eq!((outcome.root, outcome.exit_code()), (Some(Rank(1)), 69), "{}", outcome.summary);
    assert_eq!(
        outcome.summary,
        "rank 1 (b:0) failed: lost, the host was rebooted; rank 0 (a:0) ended before it, but had lost a peer"
    );
}

#[test]
fn a_clock_that_was_set_forward_keeps_no_other_rank_running() {
    let mut machine = running();
    let actions = rank_event(&mut machine, 5_000_000, 1, &exit_at(3_600 * SECOND, 1, false));
    assert_eq!(sent(&actions), [""; 0]);
    assert_eq!(sent(&machine.handle_time(Stamp(5_999_999))), [""; 0]);
    assert_eq!(sent(&machine.handle_time(Stamp(6_000_000))), ["a:Stop", "b:Stop"]);
}

#[test]
fn what_was_recorded_tells_the_root_cause_after_an_attach_too() {
    let said = |at: i64, text: &str| {
        let mut last_words = LastWords::default();
        last_words.line(Stamp(at), Level::Error, false, text);
        RankResumePoint { started: true, last_words, ..RankResumePoint::default() }
    };
    let resume_point = ResumePoint {
        spec: Some(spec(JobKind::Plain)),
        last_at: Some(Stamp(5)),
        stage: Some(RunStage::Training),
        ranks: [(Rank(0), said(9, "EOFError")), (Rank(1), said(7, "KeyError: 'x'"))].into(),
        ..ResumePoint::default()
    };
    let (mut machine, _) = RunMachine::attach(spec(JobKind::Plain), &resume_point, Backfill::Whole, Stamp(8));
    rank_event(&mut machine, 10, 0, &exit_at(10, 1, false));
    rank_event(&mut machine, 20, 1, &exit_at(20, 3, false));
    let outcome = finish_all(&mut machine);
    assert_eq!(outcome.root, Some(Rank(1)), "{}", outcome.summary);
}
