use super::*;
use crate::domain::event::{Envelope, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::options::RunOptions;
use crate::domain::resume_point::ResumePoint;
use crate::domain::run::{JobKind, Placement, RunSpec, Slot};
use crate::domain::time::Stamp;
use proptest::prelude::*;

fn plain(told: Vec<Told>) -> Vec<Event> {
    assert!(told.iter().all(|told| told.worker.is_none()), "{told:?}");
    told.into_iter().map(|told| told.event).collect()
}

fn texts(told: &[Told]) -> Vec<String> {
    told.iter()
        .filter_map(|told| match &told.event {
            Event::LogPrinted { line } => Some(line.text.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_piece_seen_twice_is_dropped_and_a_hole_is_told() {
    let mut files = RankFiles::default();
    let rank = Rank(1);
    assert_eq!(texts(&files.push(rank, Stream::Stdout, 0, b"one\ntw")), ["one"]);
    assert_eq!(texts(&files.push(rank, Stream::Stdout, 2, b"e\ntwo\n")), ["two"]);
    let events = files.push(rank, Stream::Stdout, 20, b"rest");
    assert!(matches!(&plain(events.clone())[..], [Event::LogGap { gap }] if (gap.from, gap.to) == (8, 20)));
    assert_eq!(files.offsets(), [(rank, Stream::Stdout, 24)]);
    let events = files.push(rank, Stream::Stdout, 30, b"");
    assert_eq!(texts(&events), ["rest"], "what came before the hole is not lost with it");
    assert!(matches!(&plain(events.clone())[..], [_, Event::LogGap { gap }] if gap.bytes() == 6));
    assert!(files.finish(rank).is_empty());
    files.push(rank, Stream::Stdout, u64::MAX, b"x\ny");
    assert_eq!(files.offsets(), [(rank, Stream::Stdout, u64::MAX)]);
}

#[test]
fn a_gap_parts_lines_once_and_hides_no_other_hole() {
    let mut files = RankFiles::default();
    let gap = |stream, from, to| {
        let cap = Some(1 << 20);
        LogGap { rank: Rank(0), stream, from, to, reason: GapReason::NotKept, cap }
    };
    files.push(Rank(0), Stream::Stdout, 0, b"one\ntw");
    let events = plain(files.skip(&gap(Stream::Stdout, 6, 100)));
    assert!(matches!(&events[0], Event::LogPrinted { line } if line.text == "tw"));
    let told = |gap| Event::LogGap { gap };
    assert_eq!(events[1..], [told(gap(Stream::Stdout, 6, 100))]);
    assert!(files.skip(&gap(Stream::Stdout, 6, 100)).is_empty(), "said again after a lost link");
    let more = plain(files.skip(&gap(Stream::Stdout, 6, 104)));
    assert_eq!(more, [told(gap(Stream::Stdout, 100, 104))], "what was said is not said again");
    assert_eq!(texts(&files.push(Rank(0), Stream::Stdout, 104, b" a line\n")), [" a line"]);
    let unknown =
        |from, to| told(LogGap { reason: GapReason::Unknown, cap: None, ..gap(Stream::Stdout, from, to) });
    let events = plain(files.skip(&gap(Stream::Stdout, 120, 130)));
    assert_eq!(events, [unknown(112, 120), told(gap(Stream::Stdout, 120, 130))]);
    let events = plain(files.skip(&gap(Stream::Stdout, 140, 140)));
    assert_eq!(events, [unknown(130, 140)], "a gap of no bytes explains none");
    // a report without its head is no report, and no fault
    files.skip(&gap(Stream::Report, 0, 50));
    let events = files.push(Rank(0), Stream::Report, 50, b"p\":3}\n{\"kind\":\"done\"}\n");
    assert!(matches!(&plain(events.clone())[..], [Event::JobDone { .. }]), "{events:?}");
}

#[test]
fn a_line_that_just_fits_is_whole() {
    let mut files = RankFiles::default();
    let mut text = vec![b'x'; LINE_BYTES];
    text.push(b'\n');
    let events = files.push(Rank(0), Stream::Stdout, 0, &text);
    let [Event::LogPrinted { line }] = &plain(events)[..] else { panic!("no line") };
    assert_eq!((line.text.len(), line.elided), (LINE_BYTES, 0));
}

#[test]
fn an_endless_line_is_cut_and_counted() {
    let mut files = RankFiles::default();
    for at in 0..40u64 {
        assert!(files.push(Rank(0), Stream::Stderr, at * 1000, &[b'x'; 1000]).is_empty());
    }
    let events = files.push(Rank(0), Stream::Stderr, 40_000, b"\n");
    let [Event::LogPrinted { line }] = &plain(events)[..] else { panic!("no line") };
    assert_eq!((line.text.len(), line.elided, line.offset), (LINE_BYTES, 40_000 - LINE_BYTES as u64, 0));
}

/// What is told now of lines that have not ended.
fn unfinished(files: &mut RankFiles, ms: i64) -> Vec<(String, u64)> {
    let due = files.due(Stamp(ms * 1000), true).into_iter();
    due.map(|(_, told)| match told.event {
        Event::LogUnfinished { line } => (line.text.clone(), line.elided),
        other => panic!("{other:?}"),
    })
    .collect()
}

#[test]
fn a_text_without_newline_is_told_within_half_a_second_and_then_as_a_line() {
    let mut files = RankFiles::default();
    files.push(Rank(0), Stream::Stdout, 0, b"name? ");
    assert_eq!(unfinished(&mut files, 0), []);
    assert_eq!(files.next_due(), Some(Stamp(100_000)));
    assert_eq!(unfinished(&mut files, 100), [("name? ".to_owned(), 0)]);
    assert_eq!(unfinished(&mut files, 5000), [], "nothing new");
    assert_eq!(texts(&files.push(Rank(0), Stream::Stdout, 6, b"li\n")), ["name? li"]);
    assert_eq!((unfinished(&mut files, 5500), files.next_due()), (vec![], None));
    // what is whole when it is due is not told twice
    files.push(Rank(0), Stream::Stdout, 9, b"half");
    assert_eq!(unfinished(&mut files, 6000), []);
    files.push(Rank(0), Stream::Stdout, 13, b" and half\n");
    assert_eq!((unfinished(&mut files, 7000), files.next_due()), (vec![], None));
}

#[test]
fn a_line_has_the_moment_at_which_its_host_saw_its_end() {
    let mut files = RankFiles::default();
    let mut push = |offset, data: &[u8]| -> Vec<Option<u64>> {
        let events = plain(files.push(Rank(0), Stream::Stdout, offset, data));
        let line = |event: &Event| match event {
            Event::LogPrinted { line } => line.t.map(|t| t.0),
            other => panic!("{other:?}"),
        };
        let told = events.iter().map(line).collect();
        files.seen(Rank(0), Stream::Stdout, offset + data.len() as u64 + 4, HostTime(offset + 1000));
        told
    };
    assert_eq!(push(0, b"old\n"), [None], "read later than it was printed");
    assert_eq!(push(4, b"a\nb\n"), [Some(1000), Some(1000)]);
    assert_eq!(push(8, b"c\nde"), [Some(1004)]);
    for at in 12..12 + 2 * SEEN as u64 {
        assert_eq!(push(at, b"x"), []);
    }
    let at = 12 + 2 * SEEN as u64;
    assert_eq!(push(at, b"\n").len(), 1, "and a line that never ends keeps no moment of each byte");
    assert!(files.files[&(Rank(0), Stream::Stdout)].seen.len() <= SEEN);
}

/// What comes of lines that end at these bytes, when the host saw the file end at those, a moment each.
fn moments(seen: &[u64], data: &[u8]) -> Vec<Option<u64>> {
    let mut files = RankFiles::default();
    for (t, until) in (1..).zip(seen) {
        files.seen(Rank(0), Stream::Stdout, *until, HostTime(t));
    }
    let moment = |event| match event {
        Event::LogPrinted { line } => line.t.map(|t| t.0),
        other => panic!("{other:?}"),
    };
    plain(files.push(Rank(0), Stream::Stdout, 0, data)).into_iter().map(moment).collect()
}

#[test]
fn each_line_has_the_first_moment_at_which_its_end_was_seen_and_few_wait_for_their_bytes() {
    assert_eq!(moments(&[2, 4], b"a\nb\n"), [Some(1), Some(2)]);
    assert_eq!(moments(&[2, 2, 4], b"a\nb\n"), [Some(1), Some(3)]);
    let still = [vec![2; SEEN], vec![4]].concat();
    assert_eq!(moments(&still, b"a\nb\n"), [Some(1), Some(SEEN as u64 + 1)], "a still file takes no room");
    let many: Vec<u64> = (1..=SEEN as u64 + 1).collect();
    let told = moments(&many, &[b'\n'; SEEN + 1]);
    assert_eq!((told[SEEN - 1], told[SEEN]), (Some(SEEN as u64), None));
}

#[test]
fn what_its_host_does_not_know_is_no_moment() {
    let mut files = RankFiles::default();
    for (until, t) in [(2, 5), (4, 0), (6, 9)] {
        files.seen(Rank(0), Stream::Stdout, until, HostTime(t));
    }
    let told = plain(files.push(Rank(0), Stream::Stdout, 0, b"a\nb\nc\n"));
    let moment = |event: &Event| match event {
        Event::LogPrinted { line } => line.t.map(|t| t.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(told.iter().map(moment).collect::<Vec<_>>(), [Some(5), None, Some(9)]);
}

#[test]
fn moments_within_a_long_line_take_no_room_from_that_of_its_end() {
    let mut files = RankFiles::default();
    let mut at = 0;
    for _ in 0..2 * SEEN {
        // in the middle of what comes next
        files.seen(Rank(0), Stream::Stdout, at + 1, HostTime(at));
        assert!(files.push(Rank(0), Stream::Stdout, at, b"xx").is_empty());
        at += 2;
    }
    // the same length once more is no later moment
    files.seen(Rank(0), Stream::Stdout, at, HostTime(7));
    files.seen(Rank(0), Stream::Stdout, at, HostTime(8));
    let [Event::LogPrinted { line }] = &plain(files.finish(Rank(0)))[..] else { panic!("no line") };
    assert_eq!(line.t, Some(HostTime(7)));
}

#[test]
fn a_bar_that_nothing_writes_over_any_more_becomes_a_line() {
    let mut files = RankFiles::default();
    assert!(files.push(Rank(0), Stream::Stderr, 0, b"50%\r100%\n").is_empty());
    assert_eq!(unfinished(&mut files, 0), []);
    assert_eq!(unfinished(&mut files, 100), [("100%".to_owned(), 0)]);
    let mut told = Vec::new();
    while let Some(next) = files.next_due() {
        // while anything waits to be taken in it may be what writes over it
        assert_eq!(files.due(Stamp(next.0 - 1), false), []);
        told.extend(files.due(next, true).into_iter().map(|(_, told)| told));
        assert!(next < Stamp(2_000_000), "{told:?}");
    }
    assert_eq!((texts(&told), told.len()), (vec!["50%\r100%".to_owned()], 1));
}

/// Another client may have shown unfinished rows of what it recorded; the lines take their place.
#[test]
fn a_client_that_resumes_a_run_takes_unfinished_rows_back_once() {
    let line = |offset, text: &str| {
        let (rank, stream, text) = (Rank(0), Stream::Stderr, text.to_owned());
        Arc::new(LogLine { rank, stream, offset, text, elided: 0, t: Some(HostTime(9)) })
    };
    let printed = |offset, text| Event::LogPrinted { line: line(offset, text) };
    let nothing =
        |offset| Event::LogUnfinished { line: LogLine { t: None, ..(*line(offset, "")).clone() }.into() };
    let mut files = RankFiles::from_offsets(&[(Rank(0), Stream::Stderr, 4)], &[]);
    let mut push = |offset, data: &[u8]| {
        files.seen(Rank(0), Stream::Stderr, offset + data.len() as u64, HostTime(9));
        plain(files.push(Rank(0), Stream::Stderr, offset, data))
    };
    assert_eq!(push(4, b"a\n"), [printed(4, "a"), nothing(6)]);
    assert_eq!(push(6, b"b\n"), [printed(6, "b")]);
    let mut files = RankFiles::default();
    assert_eq!(plain(files.push(Rank(0), Stream::Stderr, 0, b"a\n")).len(), 1, "none was before");
}

/// The real tqdm, in colour: its bytes, 10 ms after each other.
#[test]
fn a_real_bar_is_told_twice_a_second_and_its_last_state_is_never_lost() {
    const BAR: &[u8] = include_bytes!("../../tests/fixtures/progress/tqdm-colour.err");
    for size in [7, 100, 1000] {
        let mut files = RankFiles::default();
        let (mut told, mut lines, mut offset) = (Vec::new(), Vec::new(), 0);
        let pieces = BAR.chunks(size).count() as i64;
        for (number, piece) in (0..).zip(BAR.chunks(size)) {
            lines.extend(texts(&files.push(Rank(0), Stream::Stderr, offset, piece)));
            offset += piece.len() as u64;
            told.extend(unfinished(&mut files, number * 10));
        }
        assert!((told.len() as i64) <= pieces * 10 / 450 + 1, "{} states of {pieces} pieces", told.len());
        assert!(!told.is_empty() && told.iter().all(|(text, _)| !text.contains('\r')), "{told:?}");
        assert_eq!(lines.len(), 2, "{lines:?}");
        let last = crate::domain::log_text::plain(&lines[0]);
        assert!(last.starts_with("epoch 1: 100%|███") && last.contains("150/150 ["), "{last}");
        assert!(lines[0].len() > 10_000 && lines[0].len() <= LINE_BYTES, "the newest states, as printed");
        assert_eq!(lines[1], "done");
    }
}

#[test]
fn any_program_may_report_a_step() {
    let mut files = RankFiles::default();
    let events =
        files.push(Rank(0), Stream::Report, 0, b"{\"kind\":\"step\",\"step\":1,\"loss\":0.5}\nnonsense\n");
    assert!(
        matches!(&events[0].event, Event::StepDone { timing } if timing.step == 1 && timing.loss == Some(0.5))
    );
    let Event::Gap { what, dropped: 1 } = &events[1].event else { panic!("{events:?}") };
    assert!(what.starts_with("report line 2 not understood: "), "{what}");
}

#[test]
fn what_a_terminal_would_obey_keeps_no_report_back() {
    let mut files = RankFiles::default();
    let hide_cursor = b"\x1b[?25l\n{\"kind\":\"step\",\"step\":1}\n";
    let events = plain(files.push(Rank(0), Stream::Report, 0, hide_cursor));
    assert!(matches!(&events[..], [Event::Gap { .. }, Event::StepDone { .. }]), "{events:?}");
}

#[test]
fn the_steps_of_a_bar_are_told_until_the_rank_tells_its_own() {
    let mut files = RankFiles::default();
    let mut ends = BTreeMap::new();
    let mut push = |stream, text: &str| {
        let end = ends.entry(stream).or_default();
        let events = files.push(Rank(0), stream, *end, text.as_bytes());
        *end += text.len() as u64;
        let seen = |told: &Told| match &told.event {
            Event::StepSeen { seen } => Some((seen.step, seen.total, seen.loss)),
            _ => None,
        };
        events.iter().filter_map(seen).collect::<Vec<_>>()
    };
    let samples = "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.5\n";
    assert_eq!(push(Stream::Stdout, samples), [], "samples are no steps");
    let bar = |step, loss| format!("\rtrain: {step}%|# | {step}/100 [00:10<00:12, 4.50it/s, loss={loss}]");
    assert_eq!(push(Stream::Stderr, &bar(45, 0.5)), [(45, None, Some(0.5))]);
    assert_eq!(push(Stream::Stderr, &bar(45, 0.25)), [], "the same step with another loss");
    assert_eq!(push(Stream::Report, "{\"kind\":\"metric\",\"name\":\"lr\",\"value\":1}\n"), []);
    assert_eq!(push(Stream::Stderr, &bar(46, 0.5)), [(46, None, Some(0.5))]);
    assert_eq!(push(Stream::Report, "{\"kind\":\"step\",\"step\":7}\n"), []);
    assert_eq!(push(Stream::Stderr, &bar(47, 0.5)), [], "it tells its steps itself");
}

#[test]
fn of_so_many_processes_of_a_rank_it_is_known_who_tells_their_steps() {
    let mut files = RankFiles::default();
    let step = |worker| format!("{{\"kind\":\"step\",\"by\":\"hooks\",\"rank\":{worker},\"step\":1}}\n");
    let report: String = (1..=WORKERS + 1).map(step).collect();
    let mut from = 0;
    let mut told_by = || {
        let told = files.push(Rank(0), Stream::Report, from, report.as_bytes());
        from += report.len() as u64;
        told.iter().filter(|told| matches!(told.event, Event::StepsBy { .. })).count()
    };
    assert_eq!((told_by(), told_by()), (WORKERS + 1, 1), "again only of the one that is too many");
}

#[test]
fn a_programs_own_steps_go_before_those_of_the_hooks_and_workers_are_told_apart() {
    let mut files = RankFiles::default();
    let lines = [
        r#"{"kind":"hello","by":"hooks","rank":1,"job":"train.py","pid":7,"versions":{"torch":"2.9.0"},"stack_signal":60}"#,
        r#"{"kind":"step","by":"hooks","rank":1,"step":1,"spans":[{"phase":"dream","start_us":0,"dur_us":5}]}"#,
        r#"{"kind":"step","by":"hooks","rank":3,"step":1}"#,
        r#"{"kind":"step","by":"hooks","rank":1,"step":2}"#,
        r#"{"kind":"step","step":1,"loss":0.5}"#,
        r#"{"kind":"step","by":"hooks","rank":1,"step":3}"#,
        r#"{"kind":"metric","by":"hooks","rank":1,"name":"lr","value":0.1}"#,
    ];
    let told = files.push(Rank(1), Stream::Report, 0, format!("{}\n", lines.join("\n")).as_bytes());
    let words = |told: &Told| {
        let what = match &told.event {
            Event::JobDescribed { job, facts, .. } => {
                format!("{job} {} {:?}", facts.libraries(), facts.stack_signal)
            }
            Event::StepsBy { by } => format!("{by:?}"),
            Event::StepDone { timing } => {
                let phases: Vec<&str> = timing.spans.iter().map(|span| span.phase.name()).collect();
                format!("step {} {}", timing.step, phases.join(" "))
            }
            Event::MetricReported { name, .. } => name.clone(),
            other => panic!("{other:?}"),
        };
        format!("{}{what}", told.worker.map_or_else(String::new, |worker| format!("{worker}: ")))
    };
    let words: Vec<String> = told.iter().map(words).collect();
    let wanted = [
        "train.py torch 2.9.0 Some(60)",
        "Hooks",
        "step 1 other",
        "3: Hooks",
        "3: step 1 ",
        "step 2 ",
        "Program",
        "step 1 ",
        "lr",
    ];
    assert_eq!(words, wanted);
}

/// What a client records that reads a part of a report, with a mark of its place every so many events.
fn recorded(files: &mut RankFiles, report: &str, until: usize, marks: usize) -> Vec<Told> {
    let mut told = Vec::new();
    for line in report.get(..until).unwrap_or_default().split_inclusive('\n') {
        let from =
            files.offsets().iter().find(|(_, stream, _)| *stream == Stream::Report).map_or(0, |at| at.2);
        let events = files.push(Rank(0), Stream::Report, from, line.as_bytes());
        let passed = told.len() / marks < (told.len() + events.len()) / marks;
        told.extend(events);
        if passed {
            told.push(Event::ReportsRead { next: files.line_start(Rank(0), Stream::Report) }.into());
        }
    }
    told
}

proptest! {
    #[test]
    fn a_client_that_resumes_a_run_knows_by_whom_its_steps_are_told(
        lines in prop::collection::vec((0u8..3, any::<bool>()), 1..40),
        cut in 0usize..4000,
        marks in 1usize..8,
    ) {
        let run = RunId::new(1, 1);
        let lines = lines.iter().zip(1..).map(|((kind, worker), step)| {
            let worker = if *worker { r#""rank":2,"# } else { "" };
            match kind {
                0 => format!("{{{worker}\"kind\":\"step\",\"by\":\"hooks\",\"step\":{step}}}\n"),
                1 => format!("{{{worker}\"kind\":\"step\",\"step\":{step}}}\n"),
                _ => format!("{{{worker}\"kind\":\"metric\",\"name\":\"lr\",\"value\":{step}}}\n"),
            }
        });
        let report: String = lines.collect();
        let is_mark = |told: &Told| matches!(told.event, Event::ReportsRead { .. });
        let mut whole = recorded(&mut RankFiles::default(), &report, report.len(), marks);
        whole.retain(|told| !is_mark(told));

        let origin = |told: &Told| match told.worker {
            None => Origin::Rank(run.clone(), Rank(0)),
            Some(worker) => Origin::Worker(run.clone(), Rank(0), worker),
        };
        let mut seen = recorded(&mut RankFiles::default(), &report, cut.min(report.len()), marks);
        let mut resume_point = ResumePoint::default();
        for (seq, told) in (0..).zip(&seen) {
            let event = told.event.clone();
            resume_point.take(&Envelope { seq, at: Stamp(0), origin: origin(told), event });
        }
        let from = resume_point.ranks.get(&Rank(0)).map_or(0, |known| known.reports_from);
        let host = HostId::from("a");
        let place = Placement {
            rank: Rank(0), host: host.clone(), local_rank: 0, slot: Slot::Cpu { index: 0 }, more: Vec::new(),
        };
        let spec = RunSpec { code: None,
            id: run.clone(), name: "train".into(), kind: JobKind::Plain, command: Vec::new(),
            env: BTreeMap::new(), workdir: None, placements: vec![place], created: Stamp(0),
            options: RunOptions::default(),
        };
        let steps_by = resume_point.steps_by(&spec, &host);
        let mut files = RankFiles::from_offsets(&[(Rank(0), Stream::Report, from)], &steps_by);
        let rest = &report[from as usize..];
        let again = recorded(&mut files, rest, rest.len(), marks);
        seen.extend(again.into_iter().filter(|told| !resume_point.repeats(&run, &origin(told), &told.event)));
        seen.retain(|told| !is_mark(told));
        prop_assert_eq!(seen, whole);
    }

    #[test]
    fn lines_do_not_depend_on_how_they_were_cut(text in "[a-c\n]{0,200}", cut in 1usize..40) {
        let mut files = RankFiles::default();
        let mut seen = Vec::new();
        let mut offset = 0;
        for piece in text.as_bytes().chunks(cut) {
            seen.extend(texts(&files.push(Rank(0), Stream::Stdout, offset, piece)));
            offset += piece.len() as u64;
        }
        seen.extend(texts(&files.finish(Rank(0))));
        prop_assert_eq!(seen, text.lines().map(str::to_owned).collect::<Vec<_>>());
    }
}
