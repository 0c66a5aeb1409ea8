use std::sync::Arc;

use super::*;
use crate::domain::analysis::fixtures;
use crate::domain::clock_fit::ClockSample;
use crate::domain::ids::RunId;
use crate::domain::log::{GapReason, LogGap, LogLine, Stream};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RankExit, RunStage};
use crate::domain::waiting::Waiting;

/// Seconds of the client's clock; the host's is ten seconds behind.
fn second(second: i64) -> Stamp {
    fixtures::START.plus_micros(second * 1_000_000)
}

fn by_host(seconds: i64) -> HostTime {
    HostTime((second(seconds - 10)).0 as u64)
}

struct Client {
    catch_up: CatchUp,
    run: RunId,
    seq: u64,
    recorded: Vec<Envelope>,
    is_present: bool,
}

impl Client {
    /// Takes a run of two ranks up at second 100 that was known up to second 3.
    fn new() -> Self {
        let mut client = Self::without_host();
        client.reached(100);
        client
    }

    /// The same before it has reached the host.
    fn without_host() -> Self {
        let spec = fixtures::spec(2);
        let catch_up = CatchUp::new(&spec, Some(second(3)));
        Self { catch_up, run: spec.id, seq: 40, recorded: Vec::new(), is_present: false }
    }

    /// A ping comes back at second `at`.
    fn reached(&mut self, at: i64) {
        let sample = ClockSample { host_time: by_host(at), offset_us: 10_000_000, rtt_us: 200 };
        self.host(at, Event::ClockSampled { sample });
    }

    fn host(&mut self, at: i64, event: Event) {
        self.tell(at, Origin::Host(HostId::from("gpu-a")), event);
    }

    fn tell(&mut self, at: i64, origin: Origin, event: Event) {
        self.seq += 1;
        let (older, is_present) =
            self.catch_up.take(Envelope { seq: self.seq, at: second(at), origin, event });
        self.recorded.extend(older);
        self.is_present |= is_present;
    }

    fn of_rank(&mut self, at: i64, rank: u32, event: Event) {
        self.tell(at, Origin::Rank(self.run.clone(), Rank(rank)), event);
    }

    fn step(&mut self, at: i64, rank: u32, step: u64, begun: i64) {
        let mut timing = fixtures::timing(step, [100, 100, 100, 100, 50, 50]);
        timing.start = by_host(begun);
        self.of_rank(at, rank, Event::StepDone { timing: Arc::new(timing) });
    }

    fn stage(&mut self, at: i64, stage: RunStage) {
        let event = Event::StageEntered { stage, waiting_for: Waiting::default() };
        self.tell(at, Origin::Run(self.run.clone()), event);
    }

    fn line(&mut self, at: i64, rank: u32) {
        self.printed(at, (rank, Stream::Stdout), None, "");
    }

    /// A line that comes at second `at` and is known to have been printed by another one.
    fn printed(&mut self, at: i64, (rank, stream): (u32, Stream), by: Option<i64>, text: &str) {
        let (text, t) = (text.to_owned(), by.map(by_host));
        let line = LogLine { rank: Rank(rank), stream, offset: 0, text, elided: 0, t };
        self.of_rank(at, rank, Event::LogPrinted { line: Arc::new(line) });
    }

    fn exited(&mut self, at: i64, rank: u32, t: HostTime) {
        let exit = RankExit { code: Some(0), signal: None, t, error: None, stopped: false, cause: None };
        self.of_rank(at, rank, Event::RankExited { exit });
    }

    /// The host tells at second `at` what it has noted at these seconds.
    fn noted(&mut self, at: i64, seconds: &[i64]) {
        let Event::HostSampled { sample } = fixtures::blank_sample() else { panic!("another event") };
        let samples = seconds.iter().map(|second| (by_host(*second), Arc::clone(&sample))).collect();
        self.recorded.extend(self.catch_up.take_noted(&HostId::from("gpu-a"), samples, second(at)));
    }

    /// When each line was recorded, in tenths of a second, and its text.
    fn lines(&self) -> Vec<(i64, &str)> {
        let tenth = |at: Stamp| at.micros_since(second(0)) / 100_000;
        let told = self.recorded.iter().filter_map(|envelope| match &envelope.event {
            Event::LogPrinted { line } => Some((tenth(envelope.at), line.text.as_str())),
            Event::LogGap { .. } => Some((tenth(envelope.at), "gap")),
            Event::RankExited { .. } => Some((tenth(envelope.at), "exit")),
            _ => None,
        });
        told.collect()
    }

    /// When each was recorded, in hundredths of a second, and what.
    fn told(&self) -> Vec<(i64, String)> {
        let words = |envelope: &Envelope| match (&envelope.origin, &envelope.event) {
            (Origin::Rank(_, rank), Event::StepDone { timing }) => format!("{rank} step {}", timing.step),
            (Origin::Rank(_, rank), Event::LogPrinted { .. }) => format!("{rank} line"),
            (Origin::Rank(_, rank), Event::RankConnected) => format!("{rank} met"),
            (Origin::Rank(_, rank), Event::ReportsRead { .. }) => format!("{rank} read"),
            (_, Event::StageEntered { stage, .. }) => stage.name().to_owned(),
            _ => "other".to_owned(),
        };
        let told = self.recorded.iter();
        told.map(|envelope| (envelope.at.micros_since(second(0)) / 10_000, words(envelope))).collect()
    }
}

#[test]
fn what_is_caught_up_with_is_recorded_in_the_order_in_which_it_happened() {
    let mut client = Client::new();
    client.stage(100, RunStage::Rendezvous);
    client.line(100, 0);
    client.of_rank(100, 0, Event::RankConnected);
    client.of_rank(100, 1, Event::RankConnected);
    client.stage(100, RunStage::Training);
    for step in 1..=3 {
        client.step(100, 0, step, 3 + 2 * step as i64);
    }
    client.of_rank(100, 0, Event::ReportsRead { next: 96 });
    for step in 1..=3 {
        client.step(101, 1, step, 3 + 2 * step as i64);
    }
    client.of_rank(101, 1, Event::ReportsRead { next: 96 });
    assert!(client.recorded.is_empty() && !client.is_present, "more of it may come");
    client.line(102, 1);
    client.line(103, 1);
    assert!(client.is_present);
    let told = client.told();
    let told: Vec<(i64, &str)> = told.iter().map(|(at, what)| (*at, what.as_str())).collect();
    assert_eq!(
        told,
        [
            (300, "ranks meet"),
            (500, "0 met"),
            (500, "1 met"),
            (500, "training"),
            (550, "0 step 1"),
            (550, "1 step 1"),
            (750, "0 step 2"),
            (750, "1 step 2"),
            (950, "0 step 3"),
            (950, "1 step 3"),
            (10_000, "other"),
            (10_000, "0 line"),
            (10_000, "0 read"),
            (10_100, "1 read"),
            (10_200, "1 line"),
            (10_300, "1 line"),
        ]
    );
    let numbers: Vec<u64> = client.recorded.iter().map(|envelope| envelope.seq).collect();
    assert_eq!(numbers, (41..57).collect::<Vec<_>>());
}

#[test]
fn a_step_that_began_while_the_run_was_followed_ends_where_it_ended() {
    let mut client = Client::new();
    let mut timing = fixtures::timing(7, [100, 100, 100, 100, 50, 50]);
    (timing.start, timing.dur_us) = (by_host(1), 98_000_000);
    client.of_rank(100, 0, Event::StepDone { timing: Arc::new(timing) });
    client.step(100, 0, 8, 99);
    client.catch_up.rest().into_iter().for_each(|envelope| client.recorded.push(envelope));
    let steps = client.told().into_iter().filter(|(_, what)| what.contains("step"));
    assert_eq!(steps.collect::<Vec<_>>(), [(9_900, "0 step 7".to_owned()), (9_950, "0 step 8".to_owned())]);
}

#[test]
fn what_happens_now_waits_no_longer_than_it_takes_to_see_that() {
    let mut client = Client::new();
    for at in 100..102 {
        client.step(at, 0, at as u64, at - 1);
        assert!(!client.is_present);
    }
    client.step(102, 0, 102, 101);
    assert!(client.is_present);
    assert_eq!(client.told().len(), 4);
    // nor does what is said to have happened in the future, or before the run was known
    let mut client = Client::new();
    client.step(101, 0, 1, 500);
    client.step(101, 1, 1, -500);
    client.line(102, 0);
    client.line(103, 0);
    assert_eq!(
        client.told(),
        [
            (300, "1 step 1".to_owned()),
            (10_000, "other".to_owned()),
            (10_100, "0 step 1".to_owned()),
            (10_200, "0 line".to_owned()),
            (10_300, "0 line".to_owned())
        ]
    );
}

fn connecting() -> LinkState {
    LinkState::Connecting { to: "gpu-a:22".to_owned() }
}

#[test]
fn a_host_that_is_being_reached_is_awaited_and_one_that_is_down_is_not() {
    let mut client = Client::without_host();
    client.stage(100, RunStage::Rendezvous);
    // what is known of it from before is no word of now
    client.reached(101);
    client.host(101, Event::LinkChanged { state: connecting() });
    // a login of nine seconds
    client.host(110, Event::LinkChanged { state: LinkState::Up });
    client.reached(110);
    client.step(111, 0, 1, 5);
    client.line(112, 0);
    client.line(113, 0);
    assert!(
        client.is_present && client.told().contains(&(550, "0 step 1".to_owned())),
        "{:?}",
        client.told()
    );

    let down = LinkState::Down { reason: "no route to host".to_owned(), retry_at: None };
    let mut client = Client::without_host();
    client.stage(100, RunStage::Rendezvous);
    client.host(101, Event::LinkChanged { state: down });
    assert!(!client.catch_up.is_awaiting());
    client.host(102, Event::LinkChanged { state: connecting() });
    assert!(client.catch_up.is_awaiting(), "it is tried again");
    // nor is one for ever that no word comes from
    for at in 103..115 {
        client.stage(at, RunStage::Rendezvous);
        assert!(!client.is_present);
    }
    client.stage(115, RunStage::Rendezvous);
    client.stage(116, RunStage::Rendezvous);
    assert!(client.is_present);
}

#[test]
fn a_host_that_answers_late_is_awaited_and_one_with_nothing_to_tell_not_for_long() {
    let mut client = Client::new();
    for at in 101..104 {
        client.reached(at);
    }
    client.step(103, 0, 1, 5);
    client.reached(104);
    assert!(!client.is_present);
    client.reached(105);
    assert!(
        client.is_present && client.told().contains(&(550, "0 step 1".to_owned())),
        "{:?}",
        client.told()
    );

    let mut client = Client::new();
    for at in 101..104 {
        client.reached(at);
    }
    assert!(!client.is_present);
    client.reached(104);
    assert!(client.is_present);
}

#[test]
fn a_client_that_stands_still_or_whose_clock_steps_still_takes_the_past_for_it() {
    let mut client = Client::new();
    client.step(100, 0, 1, 5);
    // it was stopped for a minute: what the host sent meanwhile was queued, behind a word of its own
    client.reached(160);
    client.step(160, 0, 2, 6);
    client.step(160, 1, 1, 5);
    // an hour back
    client.reached(161 - 3600);
    client.reached(162 - 3600);
    assert!(!client.is_present);
    client.reached(163 - 3600);
    assert!(client.is_present);
    let steps = client.told().into_iter().filter(|(_, what)| what.contains("step")).map(|(at, _)| at);
    assert_eq!(steps.collect::<Vec<_>>(), [550, 550, 650]);
}

#[test]
fn a_host_that_is_lost_while_it_tells_is_awaited_again() {
    let mut client = Client::new();
    for at in 100..140 {
        client.step(at, 0, at as u64, 5);
    }
    client.host(140, Event::LinkChanged { state: connecting() });
    for at in 141..150 {
        client.stage(at, RunStage::Rendezvous);
    }
    assert!(!client.is_present);
    client.reached(150);
    client.step(152, 0, 200, 6);
    assert!(!client.is_present);
}

#[test]
fn of_a_long_past_the_older_half_goes_before_the_rest_is_there() {
    let mut client = Client::new();
    let most = 100_000;
    // a host tells its ranks in turns
    for turn in 0..most / 1000 {
        for rank in 0..2 {
            for step in turn * 500..turn * 500 + 500 {
                let mut timing = fixtures::timing(step + 1, [0; 6]);
                timing.start = HostTime(by_host(4).0 + step);
                client.of_rank(100, rank, Event::StepDone { timing: Arc::new(timing) });
            }
        }
    }
    let gone = client.recorded.len() as u64;
    assert!((20_000..most).contains(&gone) && client.catch_up.bytes <= MOST_BYTES, "{gone}");
    client.recorded.extend(client.catch_up.rest());
    assert!(client.recorded.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].seq < pair[1].seq));
    assert_eq!(client.recorded.len() as u64, most + 1);
}

#[test]
fn the_time_of_which_it_tells_begins_where_the_run_was_known_last() {
    let mut client = Client::new();
    let attached = Event::Attached { since: Some(second(3)), until: None };
    client.tell(100, Origin::Run(client.run.clone()), attached);
    client.step(100, 0, 1, 5);
    client.recorded.extend(client.catch_up.rest());
    let first = &client.recorded[0];
    let until = Some(second(100));
    assert!(first.at == second(3) && first.event == Event::Attached { since: Some(second(3)), until });
}

#[test]
fn the_time_of_which_it_tells_ends_with_the_run() {
    let mut client = Client::new();
    let run = Origin::Run(client.run.clone());
    client.tell(100, run.clone(), Event::Attached { since: Some(second(3)), until: None });
    client.step(100, 0, 1, 5);
    let outcome = RunOutcome { at: Some(second(67)), ..RunOutcome::new(RunEnd::Finished, "all ranks done") };
    client.tell(100, run, Event::RunEnded { outcome });
    client.recorded.extend(client.catch_up.rest());
    let until = Some(second(67));
    assert_eq!(client.recorded[0].event, Event::Attached { since: Some(second(3)), until });
}

#[test]
fn nothing_of_a_run_that_has_ended_is_later_than_it_and_what_its_ranks_told() {
    let mut client = Client::new();
    let run = Origin::Run(client.run.clone());
    client.tell(100, run.clone(), Event::Attached { since: Some(second(3)), until: None });
    client.stage(100, RunStage::Training);
    client.step(100, 0, 1, 5);
    client.host(100, fixtures::blank_sample());
    client.noted(100, &[8, 80]);
    client.line(100, 1);
    client.exited(100, 0, by_host(66));
    client.printed(100, ERR, Some(70), "by what outlived it");
    let outcome = RunOutcome { at: Some(second(67)), ..RunOutcome::new(RunEnd::Finished, "all ranks done") };
    client.tell(100, run, Event::RunEnded { outcome });
    client.recorded.extend(client.catch_up.rest());
    let last = client.recorded.last().unwrap();
    assert!(matches!(last.event, Event::RunEnded { .. }) && last.at == second(70), "{last:?}");
    assert!(
        client.recorded.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[1].seq == pair[0].seq + 1)
    );
    let of_hosts = client.recorded.iter().filter(|one| matches!(one.origin, Origin::Host(_)));
    let of_hosts: Vec<Stamp> = of_hosts.map(|one| one.at).collect();
    assert_eq!(of_hosts, [second(8), second(70)], "what it has measured since is no part of it");
    assert_eq!(client.lines(), [(660, "exit"), (700, "by what outlived it"), (700, "")]);
}

#[test]
fn stages_follow_each_other_whichever_host_is_heard_first() {
    let mut client = Client::new();
    client.stage(100, RunStage::Start);
    for (rank, second) in [(0, 10), (1, 9)] {
        client.of_rank(100, rank, Event::RankStarted { pid: 7, t: by_host(second) });
        client.stage(100, if rank == 0 { RunStage::Start } else { RunStage::Rendezvous });
    }
    client.of_rank(100, 1, Event::RankConnected);
    client.stage(100, RunStage::Training);
    client.step(100, 1, 1, 20);
    client.recorded.extend(client.catch_up.rest());
    let stages: Vec<(i64, String)> =
        client.told().into_iter().filter(|(_, what)| !what.contains(['0', '1']) && what != "other").collect();
    let stages: Vec<(i64, &str)> = stages.iter().map(|(at, what)| (*at, what.as_str())).collect();
    assert_eq!(stages, [(300, "start"), (1000, "start"), (1000, "ranks meet"), (1000, "training")]);
}

#[test]
fn a_job_without_steps_holds_nothing_up_and_long_lines_neither() {
    let mut client = Client::new();
    client.of_rank(100, 0, Event::RankStarted { pid: 7, t: by_host(20) });
    for at in 100..103 {
        client.of_rank(at, 0, Event::MetricReported { name: "loss".to_owned(), value: 0.5, step: None });
    }
    assert!(client.is_present && client.recorded.last().map(|last| last.at) == Some(second(102)));
    // more lines than can wait leave room for steps that happened before they came
    let mut client = Client::new();
    for step in 1..=50 {
        client.step(100, 0, step, 10 + step as i64);
        for _ in 0..40 {
            let (text, stream) = ("x".repeat(16 << 10), Stream::Stdout);
            let line = LogLine { rank: Rank(0), stream, offset: 0, text, elided: 0, t: None };
            client.of_rank(100, 0, Event::LogPrinted { line: Arc::new(line) });
        }
    }
    assert!(!client.recorded.is_empty() && client.catch_up.bytes <= MOST_BYTES);
    assert!(client.recorded.iter().all(|envelope| envelope.at < second(62)), "none at its arrival yet");
    client.recorded.extend(client.catch_up.rest());
    assert!(client.recorded.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].seq < pair[1].seq));
}

const OUT: (u32, Stream) = (0, Stream::Stdout);
const ERR: (u32, Stream) = (0, Stream::Stderr);

#[test]
fn lines_lie_where_they_were_printed_and_those_of_a_stream_in_order() {
    let mut client = Client::new();
    let gap = LogGap {
        rank: Rank(0),
        stream: Stream::Stdout,
        from: 0,
        to: 9,
        reason: GapReason::NotKept,
        cap: None,
    };
    client.of_rank(100, 0, Event::LogGap { gap });
    client.printed(100, OUT, Some(10), "out 1");
    client.printed(100, OUT, None, "out 2");
    client.printed(100, OUT, Some(30), "out 3");
    // its note is of before: a second clock, or a file that began anew
    client.printed(100, OUT, Some(29), "out 4");
    client.printed(100, OUT, Some(60), "out 5");
    client.printed(100, OUT, None, "out 6");
    client.printed(100, ERR, Some(20), "err 1");
    client.printed(100, ERR, Some(1), "err 2");
    client.printed(100, (1, Stream::Stdout), None, "no note");
    client.reached(101);
    assert!(!client.is_present);
    client.printed(102, (1, Stream::Stdout), Some(101), "new");
    assert!(client.is_present, "a line of now is not waited for");
    let expected = [
        (100, "gap"),
        (100, "out 1"),
        (200, "err 1"),
        (200, "err 2"),
        (300, "out 2"),
        (300, "out 3"),
        (300, "out 4"),
        (600, "out 5"),
        (1000, "out 6"),
        (1000, "no note"),
        (1010, "new"),
    ];
    assert_eq!(client.lines(), expected);
}

#[test]
fn while_lines_of_the_past_come_the_present_has_not_begun_and_a_host_that_is_behind_ends_that() {
    let mut client = Client::new();
    for at in 100..110 {
        client.printed(at, OUT, Some(at - 90), "old");
        assert!(!client.is_present);
    }
    for at in 110..112 {
        client.printed(at, OUT, Some(101), "printed since, and read late");
    }
    assert!(client.is_present);
}

#[test]
fn what_a_rank_said_last_stands_before_its_end() {
    let mut client = Client::new();
    client.printed(100, OUT, Some(18), "said");
    client.printed(100, OUT, Some(21), "noted when it had ended");
    client.exited(100, 0, by_host(20));
    client.printed(100, OUT, Some(22), "by what outlived it");
    client.printed(100, ERR, Some(40), "much later");
    client.recorded.extend(client.catch_up.rest());
    let expected = [
        (180, "said"),
        (200, "noted when it had ended"),
        (200, "exit"),
        (220, "by what outlived it"),
        (400, "much later"),
    ];
    assert_eq!(client.lines(), expected);
}

/// The clock of a host is known by the first ping, which may come behind its first lines.
#[test]
fn lines_that_come_before_a_host_is_known_have_their_time_too() {
    let spec = fixtures::spec(2);
    let catch_up = CatchUp::new(&spec, Some(second(3)));
    let mut client = Client { catch_up, run: spec.id, seq: 40, recorded: Vec::new(), is_present: false };
    client.printed(100, OUT, Some(10), "first");
    let sample = ClockSample { host_time: by_host(100), offset_us: 10_000_000, rtt_us: 200 };
    client.tell(100, Origin::Host(HostId::from("gpu-a")), Event::ClockSampled { sample });
    client.printed(100, OUT, Some(20), "second");
    client.recorded.extend(client.catch_up.rest());
    assert_eq!(client.lines(), [(100, "first"), (200, "second")]);
}

#[test]
fn of_many_lines_the_older_half_goes_and_each_stream_stays_in_order() {
    let mut client = Client::new();
    let most = 120_000u64;
    for line in 0..most {
        // a stream of which nothing was noted comes between
        let (of, by) =
            if line % 10 == 9 { ((1, Stream::Stdout), None) } else { (OUT, Some(4 + line as i64 / 2000)) };
        let by = by.filter(|_| line % 7 > 0);
        client.printed(100, of, by, &format!("{line:0>300}"));
    }
    let gone = client.recorded.len();
    assert!((20_000..most as usize).contains(&gone) && client.catch_up.bytes <= MOST_BYTES, "{gone}");
    client.recorded.extend(client.catch_up.rest());
    let of = |rank: u32| {
        let lines = client.recorded.iter().filter_map(move |envelope| match &envelope.event {
            Event::LogPrinted { line } if line.rank == Rank(rank) => Some((envelope.at, line.text.clone())),
            _ => None,
        });
        lines.collect::<Vec<_>>()
    };
    for lines in [of(0), of(1)] {
        assert!(lines.is_sorted());
    }
    assert_eq!(client.recorded.len() as u64, most + 1);
}

#[test]
fn what_a_host_has_noted_lies_where_it_was_measured_and_once() {
    let mut client = Client::new();
    client.stage(100, RunStage::Training);
    client.step(100, 0, 1, 5);
    client.host(100, fixtures::blank_sample());
    // of the time that is known, of that which was not followed, and of now
    client.noted(100, &[2, 3, 4, 8, 100, 101]);
    client.noted(100, &[4, 8, 12]);
    client.host(101, Event::HostDescribed { info: Arc::new(fixtures::info(1)) });
    client.line(102, 0);
    client.line(103, 0);
    assert!(client.is_present);
    let told = client.recorded.iter().filter_map(|envelope| {
        let what = match &envelope.event {
            Event::HostDescribed { .. } => "facts",
            Event::HostSampled { .. } => "sample",
            Event::StepDone { .. } => "step",
            _ => return None,
        };
        Some((envelope.at.micros_since(second(0)) / 1_000_000, what))
    });
    let told: Vec<(i64, &str)> = told.collect();
    let expected = [(3, "facts"), (4, "sample"), (5, "step"), (8, "sample"), (12, "sample"), (100, "sample")];
    assert_eq!(told, expected);
    assert!(client.recorded.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1));
}

#[test]
fn of_what_a_host_has_noted_no_more_waits_than_there_is_room_for() {
    let mut client = Client::new();
    let Event::HostSampled { sample } = fixtures::blank_sample() else { panic!("another event") };
    let noted = |at: u64| (HostTime(by_host(4).0 + at), Arc::clone(&sample));
    let samples = (1..=130_000).map(noted).collect();
    let gone = client.catch_up.take_noted(&HostId::from("gpu-a"), samples, second(100));
    assert!(gone.len() > 60_000 && client.catch_up.bytes <= MOST_BYTES, "{}", gone.len());
    assert!(gone.is_sorted_by_key(|envelope| envelope.at));
}

#[test]
fn what_a_host_has_noted_is_of_no_use_without_its_clock() {
    let mut client = Client::without_host();
    client.noted(100, &[4, 8]);
    client.line(102, 0);
    client.noted(102, &[4, 8]);
    client.reached(103);
    assert!(client.catch_up.rest().iter().all(|one| !matches!(one.event, Event::HostSampled { .. })));
}
