//! What `hvtui run` says of a small run, line by line.

use super::*;
use crate::domain::fixtures::{placement, run_spec};
use crate::domain::ids::HostId;
use crate::domain::log::LogLine;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RankExit, RunSpec, Slot};
use crate::domain::standstill::StalledPhase;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};
use crate::domain::waiting::Waiting;
use std::sync::Arc;

struct Story {
    printer: RunPrinter,
    seq: u64,
}

fn run() -> RunId {
    RunId::new(1, 1)
}

impl Story {
    fn begun() -> Self {
        let spec = RunSpec {
            id: run(),
            name: "digits".into(),
            ..run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)])
        };
        let mut story = Self { printer: RunPrinter::default(), seq: 0 };
        let lines = story.tell(0, Origin::Run(run()), Event::RunCreated { spec: Arc::new(spec) });
        assert_eq!(lines, [format!("E hvtui: run {}  digits  2 ranks on a:0 b:0", run().short())]);
        story
    }

    fn tell(&mut self, at: i64, origin: Origin, event: Event) -> Vec<String> {
        self.seq += 1;
        texts(self.printer.event(&Envelope { seq: self.seq, at: Stamp(at), origin, event }))
    }

    fn enter(&mut self, at: i64, stage: RunStage, waiting: &[&str]) -> Vec<String> {
        let waiting_for = Waiting::all(waiting.iter().map(ToString::to_string).collect());
        self.tell(at, Origin::Run(run()), Event::StageEntered { stage, waiting_for })
    }

    fn rank(&mut self, at: i64, rank: u32, event: Event) -> Vec<String> {
        self.tell(at, Origin::Rank(run(), Rank(rank)), event)
    }

    fn tick(&mut self, at: i64) -> Vec<String> {
        texts(self.printer.tick(Stamp(at)))
    }
}

fn texts(lines: Vec<Line>) -> Vec<String> {
    let text = |line| match line {
        Line::Out(text) => format!("O {text}"),
        Line::Err(text) | Line::Own(text) | Line::Progress { text, .. } => format!("E {text}"),
    };
    lines.into_iter().map(text).collect()
}

fn line(stream: Stream, text: &str, elided: u64) -> Event {
    let line = LogLine { rank: Rank(1), stream, offset: 0, text: text.into(), elided, t: None };
    Event::LogPrinted { line: Arc::new(line) }
}

#[test]
fn a_run_with_gpus_is_told_of_once_they_are_held() {
    let create = |story: &mut Story| {
        let mut spec = RunSpec { id: run(), ..run_spec(vec![placement(0, "a", 0)]) };
        spec.placements[0].slot = Slot::Gpu { index: 0, uuid: "GPU-a".into() };
        story.printer = RunPrinter::default();
        story.tell(0, Origin::Run(run()), Event::RunCreated { spec: Arc::new(spec) })
    };
    let told = format!("E hvtui: run {}  ", run().short());
    let mut story = Story::begun();
    assert!(create(&mut story).is_empty());
    assert!(story.enter(1, RunStage::Prepare, &["a"]).is_empty());
    let lines = story.enter(2, RunStage::Start, &[]);
    assert!(lines.len() == 1 && lines[0].starts_with(&told), "{lines:?}");
    assert!(story.enter(3, RunStage::Start, &[]).is_empty());
    // while a stage lasts the run is told of before the wait
    assert!(create(&mut story).is_empty());
    assert!(story.enter(0, RunStage::Prepare, &["a"]).is_empty());
    assert!(story.tick(PATIENCE_US - 1).is_empty());
    let lines = story.tick(PATIENCE_US);
    assert!(lines.len() == 2 && lines[0].starts_with(&told), "{lines:?}");
    assert!(story.enter(PATIENCE_US + 1, RunStage::Start, &[]).is_empty(), "it is told of once");
    // one that is stopped meanwhile is told of before
    assert!(create(&mut story).is_empty());
    let lines = texts(story.printer.first_lines());
    assert!(lines.len() == 1 && lines[0].starts_with(&told), "{lines:?}");
    assert!(story.printer.first_lines().is_empty() && story.enter(0, RunStage::Start, &[]).is_empty());
    // another launch had them first: of that try nothing is told
    assert!(create(&mut story).is_empty());
    story.printer.forget_run();
    assert!(create(&mut story).is_empty());
    let busy = RunOutcome::new(RunEnd::Busy, "a: GPU 0 is busy".to_owned());
    assert!(story.tell(4, Origin::Run(run()), Event::RunEnded { outcome: busy }).is_empty());
    assert!(texts(story.printer.end(false, None, None)).iter().all(|line| !line.starts_with(&told)));
    // one that fails before is told of with its end
    assert!(create(&mut story).is_empty());
    let failed = RunOutcome::new(RunEnd::Unreachable, "a: no answer".to_owned());
    assert!(story.tell(5, Origin::Run(run()), Event::RunEnded { outcome: failed }).is_empty());
    assert!(texts(story.printer.end(false, None, None))[0].starts_with(&told));
}

#[test]
fn lines_keep_their_stream_and_drive_no_terminal() {
    let mut story = Story::begun();
    assert_eq!(story.rank(1, 1, line(Stream::Stdout, "a\u{1b}[2J", 0)), ["O [1] a"]);
    assert_eq!(
        story.rank(1, 1, line(Stream::Stderr, "10%\r\u{1b}[32m100%\u{1b}[0m\u{7}", 0)),
        ["E [1] 100%␇"]
    );
    assert_eq!(story.rank(1, 1, line(Stream::Stderr, "b", 7)), ["E [1] b … 7 more bytes"]);
    let gap = Event::Gap { what: "bytes of out of rank 1".into(), dropped: 12 };
    assert_eq!(story.rank(1, 1, gap), ["E hvtui: gap: bytes of out of rank 1 (12)"]);
}

#[test]
fn an_unfinished_line_is_no_line_until_it_is_whole() {
    let mut story = Story::begun();
    let Event::LogPrinted { line: half } = line(Stream::Stderr, " 10%|\u{1b}[32m█\u{1b}[0m |", 0) else {
        panic!()
    };
    assert_eq!(story.rank(1, 1, Event::LogUnfinished { line: half }), [""; 0]);
    assert_eq!(story.printer.unfinished().as_deref(), Some("[1]  10%|█ |"));
    assert_eq!(story.rank(2, 1, line(Stream::Stderr, " 10%|\r100%|", 0)), ["E [1] 100%|"]);
    assert_eq!(story.printer.unfinished(), None);
}

#[test]
fn a_stage_that_lasts_says_whom_it_waits_for_and_since_when() {
    let mut story = Story::begun();
    story.enter(0, RunStage::Prepare, &["a", "b"]);
    assert!(story.tick(1_000_000).is_empty());
    assert_eq!(story.tick(3_000_000), ["E hvtui: prepare: waiting 3.0 s for a, b"]);
    assert!(story.tick(4_000_000).is_empty());
    let stages = story.enter(5_000_000, RunStage::Training, &[]);
    assert_eq!(stages, ["E hvtui: prepare 5.0 s"]);
    // an hour later a link is lost: neither the stages again nor an hour of waiting
    assert!(story.enter(3_600_000_000, RunStage::Training, &["b (link down: reset)"]).is_empty());
    assert!(story.tick(3_601_000_000).is_empty());
    let waits = story.tick(3_603_000_000);
    assert_eq!(waits, ["E hvtui: running: waiting 3.0 s for b (link down: reset)"]);
    story.enter(3_604_000_000, RunStage::Training, &[]);
    assert!(story.tick(3_700_000_000).is_empty());
    // the wait for a host counts from its last word
    let state = LinkState::Down { reason: "reset".to_owned(), retry_at: None };
    story.tell(3_800_000_000, Origin::Host(HostId::from("b")), Event::LinkChanged { state });
    story.enter(3_802_000_000, RunStage::Training, &["b (link down: reset)"]);
    let waits = story.tick(3_804_000_000);
    assert_eq!(waits, ["E hvtui: running: waiting 4.0 s for b (link down: reset)"]);
}

#[test]
fn a_failure_is_said_once_and_the_end_has_the_code() {
    let mut story = Story::begun();
    let exit = |code, stopped| Event::RankExited {
        exit: RankExit { code: Some(code), signal: None, t: HostTime(0), error: None, stopped, cause: None },
    };
    assert_eq!(story.rank(1, 1, exit(3, false)), ["E hvtui: rank 1 (b:0): exit 3"]);
    story.rank(1, 1, line(Stream::Stderr, "ValueError: no labels", 0));
    story.rank(1, 1, line(Stream::Stderr, " ", 0));
    story.rank(2, 0, line(Stream::Stderr, "Connection closed by peer", 0));
    assert!(story.rank(2, 0, exit(143, true)).is_empty(), "one that was stopped did not fail");
    assert!(story.printer.end(true, None, None).is_empty());
    let outcome = RunOutcome::failed(Rank(1), 3, "rank 1 failed");
    story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let end = texts(story.printer.end(true, None, None));
    let replay = format!("E hvtui: replay it: hvtui replay {}", run().short());
    let why = "E hvtui: the last line of rank 1: ValueError: no labels".to_owned();
    assert_eq!(end, ["E hvtui: exit 3 after 4.0 s: rank 1 failed".to_owned(), why, replay]);
    let without_reader = texts(story.printer.end(true, None, Some(141)));
    assert_eq!(without_reader[0], "E hvtui: exit 141 after 4.0 s: rank 1 failed", "as the command exits");
}

#[test]
fn a_run_of_which_no_rank_started_has_nothing_to_replay() {
    let mut story = Story::begun();
    let outcome = RunOutcome::failed(Rank(1), 127, "b: command 'x' not found");
    story.tell(1_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let end = texts(story.printer.end(true, None, None));
    assert!(end.iter().all(|line| !line.contains("replay it")), "{end:?}");
    let mut story = Story::begun();
    story.rank(1, 0, Event::RankStarted { pid: 7, t: HostTime(1) });
    let outcome = RunOutcome::failed(Rank(1), 127, "b: command 'x' not found");
    story.tell(1_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let end = texts(story.printer.end(true, None, None));
    assert!(end.iter().any(|line| line.contains("replay it")), "{end:?}");
}

#[test]
fn the_last_line_of_a_rank_is_its_own_and_not_its_launchers() {
    let mut story = Story::begun();
    let rule = "-".repeat(74);
    for text in [
        "Traceback (most recent call last):",
        "  File \"train.py\", line 1, in <module>",
        "ModuleNotFoundError: No module named 'torch'",
        "Traceback (most recent call last):",
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        &rule,
        "mpirun detected that one or more processes exited with non-zero status, thus causing",
        "the job to be terminated. The first process to do so was:",
        "",
        "  Process name: [[31699,1],0]",
        "  Exit code:    1",
        &rule,
        "[a:02616] *** End of error message ***",
        "srun: error: b: task 1: Terminated",
    ] {
        story.rank(1, 0, line(Stream::Stderr, text, 0));
    }
    let outcome = RunOutcome::failed(Rank(0), 1, "rank 0 failed");
    story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let end = texts(story.printer.end(false, None, None));
    let why = "E hvtui: the last line of rank 0: ModuleNotFoundError: No module named 'torch'".to_owned();
    assert!(end.contains(&why), "{end:#?}");
}

#[test]
fn verbose_tells_of_links_and_processes() {
    let mut printer = RunPrinter::new(true);
    let origin = Origin::Host(crate::domain::ids::HostId::from("a"));
    let event = Event::LinkChanged { state: LinkState::Installing { bytes: 3 << 20 } };
    let envelope = Envelope { seq: 0, at: Stamp(0), origin, event };
    assert_eq!(printer.event(&envelope), [Line::Own("hvtui: a: putting hvtui there (3.0 M)".to_owned())]);
    assert!(RunPrinter::default().event(&envelope).is_empty());
}

#[test]
fn a_straggler_is_told_once_and_once_when_it_is_over() {
    let mut story = Story::begun();
    let mut said = Vec::new();
    for step in 1..=100 {
        for rank in 0..2 {
            // rank 1 is late in its backward pass up to step 40
            let late = step <= 40;
            let phases = match (rank, late) {
                (1, true) => [(Phase::Backward, 60_000), (Phase::Wait, 0)],
                (0, true) => [(Phase::Backward, 40_000), (Phase::Wait, 20_000)],
                _ => [(Phase::Backward, 40_000), (Phase::Wait, 10)],
            };
            let spans = Spans::from(phases.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }));
            let dur_us = spans.iter().map(|span| span.dur_us).sum();
            let timing =
                StepTiming { step, start: HostTime(0), dur_us, loss: None, samples: 1, spans, hidden_us: 0 };
            said.extend(story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) }));
        }
    }
    said.retain(|line| line.contains("straggler"));
    let named = "E hvtui: step 25: rank 1 (b:0) is a straggler: +20 ms a step (33 %), late in backward, \
                 25 of the last 25 steps";
    assert_eq!(said, [named, "E hvtui: step 70: rank 1 (b:0) is no longer a straggler"]);
}

/// Hooks see an allreduce as one wait; the least of all ranks' is what moving the bytes took.
#[test]
fn the_last_table_parts_the_wait_that_hooks_tell_as_the_lines_do() {
    let mut story = Story::begun();
    for step in 1..=60 {
        for (rank, wait) in [(0, 30_000), (1, 10_000)] {
            let spans = [(Phase::Backward, 70_000 - wait), (Phase::Wait, wait)];
            let spans = Spans::from(spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }));
            let (start, dur_us) = (HostTime(0), 70_000);
            let timing = StepTiming { step, start, dur_us, loss: None, samples: 1, spans, hidden_us: 0 };
            story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) });
        }
    }
    let outcome = RunOutcome::new(RunEnd::Finished, "done");
    story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let lines = texts(story.printer.end(false, None, None));
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let at = |name: &str| cells(&lines[0]).iter().position(|head| head == name).unwrap() - 1;
    // each share is two words
    let share = |line: &str, name: &str| {
        let words = cells(line);
        let step = words.iter().position(|word| word == "ms").unwrap();
        words[step + 1 + 2 * (at(name) - at("data"))].clone()
    };
    assert_eq!(["wait", "transfer"].map(|name| share(&lines[1], name)), ["29", "14"], "{lines:#?}");
    assert_eq!(["wait", "transfer"].map(|name| share(&lines[2], name)), ["0", "14"], "{lines:#?}");
}

#[test]
fn a_run_whose_gpus_another_one_has_says_how_to_wait_for_them() {
    let last = |outcome: RunOutcome| {
        let mut story = Story::begun();
        story.tell(16_000, Origin::Run(run()), Event::RunEnded { outcome });
        texts(story.printer.end(false, None, None)).join("\n")
    };
    let busy = RunOutcome::new(RunEnd::Busy, "a: GPU 0 is busy: leased by li");
    let told = last(busy.clone());
    assert!(told.contains("a: GPU 0 is busy: leased by li: wait for them with --wait"), "{told}");
    let restarted = last(RunOutcome { at: Some(Stamp(9_000)), ..busy });
    assert!(!restarted.contains("--wait"), "it has run: {restarted}");
}

#[test]
fn the_rate_is_that_of_all_ranks_where_one_has_ended_with_the_step() {
    let mut story = Story::begun();
    let step = |step: u64| {
        let (start, dur_us, spans) = (HostTime(0), 40_000, Spans::default());
        let timing = StepTiming { step, start, dur_us, loss: None, samples: 64, spans, hidden_us: 0 };
        Event::StepDone { timing: Arc::new(timing) }
    };
    assert!(story.rank(0, 0, step(1)).is_empty());
    let t = HostTime(0);
    let exit = RankExit { code: Some(0), signal: None, t, error: None, stopped: false, cause: None };
    story.rank(1, 0, Event::RankExited { exit });
    assert_eq!(story.rank(2, 1, step(1)), ["E hvtui: step 1  40 ms a step  3,200 samples/s"]);
    // the others are beyond it: it works no more
    story.rank(3, 1, step(2));
    assert_eq!(story.printer.state().unwrap().samples_per_second(), Some(1_600.0));
}

#[test]
fn the_last_table_tells_speed_and_what_was_hidden() {
    let table_in = |told: u32, width: Option<usize>| {
        let mut story = Story::begun();
        for rank in 0..2 {
            let spans = [(Phase::Backward, 39_000), (Phase::Wait, 400), (Phase::Transfer, 600)];
            let spans = Spans::from(spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }));
            let hidden_us = if rank == 0 { told } else { 0 };
            let (start, dur_us) = (HostTime(0), 40_000);
            let timing = StepTiming { step: 1, start, dur_us, loss: None, samples: 64, spans, hidden_us };
            let said = story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) });
            let overlap = if told > 0 { "  overlap 78 %" } else { "" };
            if rank == 1 {
                let phases = "backward 98 %  wait 1 %  transfer 2 %";
                assert_eq!(
                    said,
                    [format!("E hvtui: step 1  40 ms a step  3,200 samples/s  {phases}{overlap}")]
                );
            }
        }
        let outcome = RunOutcome::new(RunEnd::Finished, "done");
        story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
        texts(story.printer.end(false, width, None))
    };
    let table = |told: u32| table_in(told, None);
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines = table(7_000);
    assert!(lines[0].ends_with("optimizer    overlap  samples/s  END"), "{}", lines[0]);
    assert!(lines[1].ends_with("0 %       88 %      1,600  –"), "{}", lines[1]);
    assert!(lines[2].ends_with("0 %        0 %      1,600  –"), "{}", lines[2]);
    let lines = table(0);
    assert!(lines[0].ends_with("optimizer  samples/s  END"), "{}", lines[0]);
    for width in [40, 60, 80, 100, 120, 140] {
        let lines = table_in(7_000, Some(width));
        let longest = lines[..3].iter().map(|line| line.chars().count() - 2).max();
        assert!(longest <= Some(width), "{width}: {lines:?}");
        let all = lines[0].contains("STEP ") && lines[0].contains("END");
        assert!(all || width < 60, "{width}: {lines:?}");
    }
    let lines = table(0);
    // all but «other», of which there is none
    assert_eq!(columns(&lines[1]).iter().filter(|word| *word == "%").count(), Phase::COUNT - 1);
}

#[test]
fn the_loss_of_several_ranks_is_said_to_be_their_mean() {
    let line = |losses: [Option<f32>; 2]| {
        let mut story = Story::begun();
        let mut said = Vec::new();
        for (rank, loss) in (0..).zip(losses) {
            let (start, spans) = (HostTime(0), Spans::default());
            let timing = StepTiming { step: 1, start, dur_us: 40_000, loss, samples: 0, spans, hidden_us: 0 };
            said = story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) });
        }
        said.concat()
    };
    let both = line([Some(0.25), Some(0.75)]);
    assert!(both.starts_with("E hvtui: step 1  mean loss 0.5000  40 ms a step"), "{both}");
    let one = line([Some(0.25), None]);
    assert!(one.starts_with("E hvtui: step 1  loss 0.2500  40 ms a step"), "{one}");
    assert_eq!(loss_words([1e-8, 2.98e-8].into_iter()), "  mean loss 1.99e-8", "as in a list of runs");
    let none = line([None, None]);
    assert!(none.starts_with("E hvtui: step 1  40 ms a step"), "{none}");
}

#[test]
fn a_narrow_table_keeps_where_the_time_went_and_names_what_it_lacks() {
    let table_in = |width: usize| {
        let mut story = Story::begun();
        for (rank, wait) in [(0, 2_000), (1, 400)] {
            let spans = [(Phase::Wait, wait), (Phase::Transfer, 1_600)];
            let spans = Spans::from(spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }));
            let (start, dur_us) = (HostTime(0), 40_000);
            let timing = StepTiming { step: 1, start, dur_us, loss: None, samples: 64, spans, hidden_us: 0 };
            story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) });
        }
        let outcome = RunOutcome::new(RunEnd::Finished, "done");
        story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
        texts(story.printer.end(false, Some(width), None))
    };
    let heads = |line: &str| line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let missing = |lines: &[String]| lines.iter().find(|line| line.contains("not shown")).cloned();
    let narrow = table_in(80);
    let kept = ["RANK", "PLACE", "STEPS", "STEP", "data", "wait", "transfer", "other", "samples/s", "END"];
    assert_eq!(heads(&narrow[0]), kept, "{narrow:#?}");
    let words = "E hvtui: not shown for want of room: forward, backward, optimizer";
    assert_eq!(missing(&narrow).as_deref(), Some(words));
    let wide = table_in(200);
    assert!(heads(&wide[0]).iter().any(|head| head == "optimizer"), "{wide:#?}");
    assert_eq!(missing(&wide), None);
}

#[test]
fn the_table_is_of_the_whole_run_and_its_shares_add_up() {
    let mut story = Story::begun();
    for step in 1..=200 {
        for rank in 0..2 {
            // the first one warms up, the last fifty are shorter, and one of eight tells its phases
            let dur_us = if step == 1 {
                900_000
            } else if step > 150 {
                4_000
            } else {
                10_000
            };
            let spans = [(Phase::Forward, dur_us / 4), (Phase::Wait, dur_us / 4)];
            let spans = Spans::from(spans.map(|(phase, dur_us)| PhaseSpan { phase, start_us: 0, dur_us }));
            let spans = if step % 8 == 0 { spans } else { Spans::default() };
            let start = HostTime(0);
            let timing = StepTiming { step, start, dur_us, loss: None, samples: 0, spans, hidden_us: 0 };
            story.rank(0, rank, Event::StepDone { timing: Arc::new(timing) });
        }
    }
    let outcome = RunOutcome::new(RunEnd::Finished, "done");
    story.tell(4_000_000, Origin::Run(run()), Event::RunEnded { outcome });
    let lines = texts(story.printer.end(false, None, None));
    let words = |line: &str| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    assert!(words(&lines[0]).ends_with("wait transfer optimizer other END"), "{lines:#?}");
    assert_eq!(
        words(&lines[1]),
        "0 a:0 200 8.5 ms 0 % 25 % 0 % 0 % 25 % 0 % 50 % –",
        "both waited alike: that was transfer"
    );
}

#[test]
fn output_that_is_read_when_the_ranks_are_gone_is_not_waiting() {
    let mut story = Story::begun();
    story.enter(0, RunStage::Start, &[]);
    for host in ["a", "b"] {
        let note = crate::domain::note::Note::new(what::GONE, "nothing of the run is left", HostTime(0));
        let event = Event::RunNoted { host: host.into(), note };
        story.tell(4_000_000, Origin::Run(run()), event);
    }
    // the exit of the rank that failed comes behind its output too
    story.enter(5_000_000, RunStage::Stopping, &["rank 0 on a:0"]);
    let reading = "E hvtui: stopping: reading the remaining output of rank 0 on a:0";
    assert_eq!(story.tick(20_000_000), [reading]);
}

#[test]
fn slots_that_follow_each_other_are_ranges() {
    let place = |(host, index): (&str, u32)| Placement {
        rank: Rank(0),
        host: host.into(),
        local_rank: 0,
        slot: Slot::Cpu { index },
        more: Vec::new(),
    };
    let words = |list: &[(&str, u32)]| places(&list.iter().copied().map(place).collect::<Vec<_>>());
    assert_eq!(words(&[("a", 0), ("a", 1), ("b", 2)]), "a:0 a:1 b:2");
    assert_eq!(words(&[("a", 0), ("a", 1), ("a", 2), ("a", 7), ("b", 8)]), "a:0-2 a:7 b:8");
    assert_eq!(words(&[]), "");
}

#[test]
fn a_host_that_is_lost_is_told_once_with_its_ranks_and_once_when_it_is_back() {
    const S: i64 = 1_000_000;
    let mut story = Story::begun();
    story.enter(S, RunStage::Training, &[]);
    let host = || Origin::Host(HostId::from("b"));
    let link = |state| Event::LinkChanged { state };
    story.tell(S, host(), link(LinkState::Up));
    let down = || link(LinkState::Down { reason: "broken pipe".to_owned(), retry_at: None });
    assert_eq!(story.tell(10 * S, host(), down()), [""; 0]);
    // since its last word
    assert_eq!(story.tick(5 * S), [""; 0]);
    assert_eq!(story.tick(6 * S), ["E hvtui: b: no answer for 5.0 s (rank 1): broken pipe"]);
    assert_eq!(story.tick(60 * S), [""; 0]);
    // while it is tried again it is as lost as before
    story.tell(61 * S, host(), link(LinkState::Connecting { to: "b".to_owned() }));
    assert_eq!(story.tick(62 * S), [""; 0]);
    let standing =
        StalledPhase { phase: Phase::Wait, step: 57, for_us: 40_000_000, stopped: false, at: None };
    story.rank(63 * S, 0, Event::RankStands { standing });
    let told = story.tick(64 * S);
    assert!(told.len() == 1 && told[0].ends_with("; b does not answer (rank 1)"), "{told:?}");
    story.tell(70 * S, host(), link(LinkState::Up));
    assert_eq!(story.tick(71 * S), ["E hvtui: b: answers again after 01:10 (rank 1)"]);
    assert_eq!(story.tick(72 * S), [""; 0]);
    // of ranks that have ended nothing more is expected
    let exit =
        RankExit { code: Some(0), signal: None, t: HostTime(1), error: None, stopped: false, cause: None };
    story.rank(73 * S, 1, Event::RankExited { exit });
    story.tell(80 * S, host(), down());
    assert_eq!(story.tick(100 * S), [""; 0]);
}
