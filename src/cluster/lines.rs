//! Bytes of a rank's files become lines, and lines of its report file become events. Pure.
//!
//! The byte offset is the sequence number: a piece that was already seen is dropped by comparison, a hole
//! shows as an event, and after a lost link reading goes on at the exact byte. What stands before a hole and behind
//! it are two lines, though it may have been one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::line_buffer::LineBuffer;
use super::unfinished::Pace;
use crate::domain::event::Event;
use crate::domain::hooks::StepsBy;
use crate::domain::ids::Rank;
use crate::domain::log::{GapReason, LogGap, LogLine, Stream};
use crate::domain::progress::Counts;
use crate::domain::progress_reader::ProgressReader;
use crate::domain::report::{Report, ReportLine};
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{SeenStep, StepTiming};

/// The longest line that is kept whole; what is longer is cut and counted.
const LINE_BYTES: usize = 16 * 1024;
/// So many moments at which a host saw a file's bytes are kept for bytes that have not come.
const SEEN: usize = 64;
/// How many processes within a rank are told apart.
const WORKERS: usize = 1024;

/// All files of one run on one host.
#[derive(Debug, Default)]
pub struct RankFiles {
    files: BTreeMap<(Rank, Stream), File>,
    /// What the ranks' progress bars tell, of those that tell nothing themselves.
    progress: BTreeMap<Rank, Progress>,
    /// When unfinished lines are told.
    pace: Pace,
}

#[derive(Debug, Default)]
struct Progress {
    reader: ProgressReader,
    step: u64,
    /// The rank tells its steps itself.
    over: bool,
}

/// An event of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The process within the rank that it is about, where that is not the rank itself.
    pub worker: Option<u32>,
    /// What happened.
    pub event: Event,
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        Self { worker: None, event }
    }
}

#[derive(Debug)]
struct File {
    /// Offset of the next byte wanted.
    next: u64,
    /// Offset at which the unfinished line begins.
    line_start: u64,
    /// The unfinished line.
    partial: LineBuffer,
    /// Up to which byte the host had the file when, on its clock: of what has not become a line yet.
    seen: VecDeque<(u64, HostTime)>,
    /// Lines so far.
    lines: u64,
    /// The unfinished line may lack its beginning: it comes after a hole.
    beheaded: bool,
    /// By whom the steps are told, by worker.
    steps_by: BTreeMap<Option<u32>, StepsBy>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            next: 0,
            line_start: 0,
            partial: LineBuffer::new(LINE_BYTES),
            seen: VecDeque::new(),
            lines: 0,
            beheaded: false,
            steps_by: BTreeMap::new(),
        }
    }
}

impl RankFiles {
    /// Files of which nothing before these offsets is wanted; by whom the steps of the ranks and of the processes within
    /// them were told there.
    pub fn from_offsets(offsets: &[(Rank, Stream, u64)], steps_by: &[(Rank, Option<u32>, StepsBy)]) -> Self {
        let file = |next| File { next, line_start: next, ..File::default() };
        let files = offsets.iter().map(|(rank, stream, next)| ((*rank, *stream), file(*next)));
        let mut files: BTreeMap<_, File> = files.collect();
        for (rank, worker, by) in steps_by {
            files.entry((*rank, Stream::Report)).or_default().steps_by.insert(*worker, *by);
        }
        Self { files, ..Self::default() }
    }

    /// Takes in a piece of a file; gives the events it completes. Offsets are the agent's word: whatever they
    /// are, nothing here may overflow.
    pub fn push(&mut self, rank: Rank, stream: Stream, offset: u64, data: &[u8]) -> Vec<Told> {
        let file = self.files.entry((rank, stream)).or_default();
        let mut events = Vec::new();
        let mut data = data;
        if offset < file.next {
            let known = usize::try_from(file.next - offset).unwrap_or(usize::MAX);
            data = data.get(known..).unwrap_or_default();
        } else if offset > file.next {
            let hole =
                LogGap { rank, stream, from: file.next, to: offset, reason: GapReason::Unknown, cap: None };
            events.extend(file.skip(hole));
        }
        events.extend(self.progress(rank, stream, data));
        let file = self.files.entry((rank, stream)).or_default();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            file.next = file.next.saturating_add(piece.len() as u64);
            let line = piece.strip_suffix(b"\n");
            file.partial.extend(line.unwrap_or(piece));
            if line.is_some() {
                events.extend(file.finish(rank, stream));
            }
        }
        if stream != Stream::Report && file.unfinished() {
            self.pace.changed(rank, stream);
        } else {
            self.pace.finished(rank, stream);
        }
        events
    }

    /// Takes in that the host had a file up to this byte at that moment; the bytes themselves come next.
    pub fn seen(&mut self, rank: Rank, stream: Stream, until: u64, t: HostTime) {
        let file = self.files.entry((rank, stream)).or_default();
        let (seen, next) = (&mut file.seen, file.next);
        // what ends before the next byte is no line's end any more
        while seen.front().is_some_and(|(until, _)| *until < next) {
            seen.pop_front();
        }
        if seen.len() < SEEN && seen.back().is_none_or(|(before, _)| *before < until) {
            seen.push_back((until, t));
        }
    }

    /// The unfinished lines that are to be told now.
    pub fn due(&mut self, now: Stamp) -> Vec<(Rank, Told)> {
        let due = self.pace.due(now).into_iter();
        let told = due.filter_map(|(rank, stream)| {
            let file = self.files.get(&(rank, stream)).filter(|file| file.unfinished())?;
            let (text, elided) = file.partial.shown();
            let line = LogLine { rank, stream, offset: file.line_start, text, elided, t: file.seen_at() };
            Some((rank, Event::LogUnfinished { line: Arc::new(line) }.into()))
        });
        told.collect()
    }

    /// When the next unfinished line is to be told; known after [`Self::due`] was asked.
    pub fn next_due(&self) -> Option<Stamp> {
        self.pace.next()
    }

    /// How far a rank is by its new bytes, where nothing else tells that.
    fn progress(&mut self, rank: Rank, stream: Stream, data: &[u8]) -> Option<Told> {
        let progress = self.progress.entry(rank).or_default();
        if stream == Stream::Report {
            let steps_by = |file: &File| !file.steps_by.is_empty();
            progress.over = progress.over || self.files.get(&(rank, stream)).is_some_and(steps_by);
        }
        if stream == Stream::Report || progress.over {
            return None;
        }
        let update = progress.reader.push(stream, data)?;
        if update.counts != Counts::Steps || update.at <= progress.step {
            return None;
        }
        progress.step = update.at;
        let seen = SeenStep { step: update.at, total: update.total_steps(), loss: update.loss };
        Some(Event::StepSeen { seen }.into())
    }

    /// Takes in that a part of a file will not come.
    pub fn skip(&mut self, gap: &LogGap) -> Vec<Told> {
        if let Some(progress) = self.progress.get_mut(&gap.rank) {
            progress.reader.gap(gap.stream);
        }
        self.pace.finished(gap.rank, gap.stream);
        let file = self.files.entry((gap.rank, gap.stream)).or_default();
        let mut events = Vec::new();
        if gap.from > file.next && gap.from < gap.to {
            let (from, to) = (file.next, gap.from);
            events = file.skip(LogGap { from, to, reason: GapReason::Unknown, cap: None, ..gap.clone() });
        }
        if gap.to > file.next {
            events.extend(file.skip(LogGap { from: file.next, ..gap.clone() }));
        }
        events
    }

    /// The rank has ended: an unfinished last line is a line.
    pub fn finish(&mut self, rank: Rank) -> Vec<Told> {
        let mut events = Vec::new();
        for stream in Stream::ALL {
            if let Some(file) = self.files.get_mut(&(rank, stream))
                && file.unfinished()
            {
                events.extend(file.finish(rank, stream));
            }
            self.pace.finished(rank, stream);
        }
        events
    }

    /// Where the line begins that is read now, or will be read next.
    pub fn line_start(&self, rank: Rank, stream: Stream) -> u64 {
        self.files.get(&(rank, stream)).map_or(0, |file| file.line_start)
    }

    /// From where to go on after a lost link.
    pub fn offsets(&self) -> Vec<(Rank, Stream, u64)> {
        self.files.iter().map(|((rank, stream), file)| (*rank, *stream, file.next)).collect()
    }
}

impl File {
    fn unfinished(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Goes on behind a hole that begins at the next byte; what came before it is not lost with it.
    fn skip(&mut self, hole: LogGap) -> Vec<Told> {
        let mut events = Vec::new();
        if self.unfinished() {
            self.beheaded = true;
            events.extend(self.finish(hole.rank, hole.stream));
        }
        self.next = hole.to;
        self.start_line();
        self.beheaded = true;
        events.push(Event::LogGap { gap: hole }.into());
        events
    }

    /// The first moment at which the host had the file up to the last byte that was taken in.
    fn seen_at(&self) -> Option<HostTime> {
        self.seen.iter().find(|(until, _)| *until >= self.next).map(|(_, t)| *t)
    }

    /// The next byte begins a line.
    fn start_line(&mut self) {
        self.beheaded = false;
        self.partial.clear();
        self.line_start = self.next;
        while self.seen.front().is_some_and(|(until, _)| *until <= self.next) {
            self.seen.pop_front();
        }
    }

    fn finish(&mut self, rank: Rank, stream: Stream) -> Vec<Told> {
        let (text, elided) = self.partial.text();
        let t = self.seen_at();
        self.lines += 1;
        let told = match stream {
            // half a report is part of the hole beside it
            Stream::Report if self.beheaded && serde_json::from_str::<ReportLine>(&text).is_err() => {
                Vec::new()
            }
            Stream::Report => self.report(rank, &text),
            _ => {
                let line = LogLine { rank, stream, offset: self.line_start, text, elided, t };
                vec![Event::LogPrinted { line: Arc::new(line) }.into()]
            }
        };
        self.start_line();
        told
    }

    /// What one line of a report file tells. A line that is no report becomes a counted gap: it is said, and it does
    /// not stop the run.
    fn report(&mut self, rank: Rank, text: &str) -> Vec<Told> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        let line = match serde_json::from_str::<ReportLine>(text) {
            Ok(line) => line,
            Err(error) => {
                let line = self.lines;
                tracing::warn!(line, %error, "a report line was not understood");
                let what = format!("report line {line} not understood: {error}");
                return vec![Event::Gap { what, dropped: 1 }.into()];
            }
        };
        let worker = line.rank.filter(|worker| *worker != rank.0);
        let mut told = Vec::new();
        if matches!(line.report, Report::Step { .. }) {
            let by = if line.is_by_hooks() { StepsBy::Hooks } else { StepsBy::Program };
            let before = self.steps_by.get(&worker).copied();
            if by == StepsBy::Hooks && before == Some(StepsBy::Program) {
                // who knows its own steps knows better
                return Vec::new();
            }
            if before.unwrap_or_default() != by {
                told.push(Told { worker, event: Event::StepsBy { by } });
            }
            if self.steps_by.len() < WORKERS {
                self.steps_by.insert(worker, by);
            }
        }
        told.push(Told { worker, event: event(line.report) });
        told
    }
}

fn event(report: Report) -> Event {
    match report {
        Report::Hello { job, transport, total_steps, facts } => {
            Event::JobDescribed { job, transport, total_steps, facts: Box::new(facts) }
        }
        Report::Waiting { ranks } => Event::RankWaits { ranks },
        Report::Met { .. } => Event::RankMet,
        Report::Step { step, t, dur_us, loss, samples, spans, hidden_us } => Event::StepDone {
            timing: Arc::new(StepTiming {
                step,
                start: t.unwrap_or(HostTime(0)),
                dur_us: dur_us.unwrap_or(0),
                loss,
                samples: samples.unwrap_or(0),
                spans,
                hidden_us: hidden_us.unwrap_or(0),
            }),
        },
        Report::Metric { name, value, step } => Event::MetricReported { name, value, step },
        Report::Collective(timing) => Event::CollectiveDone { timing: Box::new(timing) },
        Report::Done { weights } => Event::JobDone { weights },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::{Envelope, Origin};
    use crate::domain::ids::{HostId, RunId};
    use crate::domain::options::RunOptions;
    use crate::domain::position::Position;
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
        assert!(
            matches!(&plain(events.clone())[..], [Event::LogGap { gap }] if (gap.from, gap.to) == (8, 20))
        );
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
        let events = files.skip(&gap(Stream::Stdout, 6, 100));
        assert_eq!(texts(&events), ["tw"]);
        assert_eq!(plain(events).last(), Some(&Event::LogGap { gap: gap(Stream::Stdout, 6, 100) }));
        assert!(files.skip(&gap(Stream::Stdout, 6, 100)).is_empty(), "said again after a lost link");
        assert_eq!(texts(&files.push(Rank(0), Stream::Stdout, 100, b"d of a line\n")), ["d of a line"]);
        let events = files.skip(&gap(Stream::Stdout, 120, 130));
        assert!(
            matches!(&plain(events.clone())[..], [Event::LogGap { gap: one }, Event::LogGap { gap: two }]
                if (one.from, one.to, one.reason, two.from) == (112, 120, GapReason::Unknown, 120))
        );
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
        let due = files.due(Stamp(ms * 1000)).into_iter();
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
        let events = files.push(
            Rank(0),
            Stream::Report,
            0,
            b"{\"kind\":\"step\",\"step\":1,\"loss\":0.5}\nnonsense\n",
        );
        assert!(
            matches!(&events[0].event, Event::StepDone { timing } if timing.step == 1 && timing.loss == Some(0.5))
        );
        assert!(matches!(&events[1].event, Event::Gap { dropped: 1, .. }));
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
        fn who_takes_up_a_run_knows_by_whom_its_steps_are_told(
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
            let mut position = Position::default();
            for (seq, told) in (0..).zip(&seen) {
                let event = told.event.clone();
                position.take(&Envelope { seq, at: Stamp(0), origin: origin(told), event });
            }
            let from = position.ranks.get(&Rank(0)).map_or(0, |known| known.reports_from);
            let host = HostId::from("a");
            let place = Placement {
                rank: Rank(0), host: host.clone(), local_rank: 0, slot: Slot::Cpu { index: 0 }, more: Vec::new(),
            };
            let spec = RunSpec { code: None,
                id: run.clone(), name: "train".into(), kind: JobKind::Plain, command: Vec::new(),
                env: BTreeMap::new(), workdir: None, placements: vec![place], created: Stamp(0),
                options: RunOptions::default(),
            };
            let steps_by = position.steps_by(&spec, &host);
            let mut files = RankFiles::from_offsets(&[(Rank(0), Stream::Report, from)], &steps_by);
            let rest = &report[from as usize..];
            let again = recorded(&mut files, rest, rest.len(), marks);
            seen.extend(again.into_iter().filter(|told| !position.repeats(&run, &origin(told), &told.event)));
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
}
