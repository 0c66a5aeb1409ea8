//! Bytes of a rank's files become lines, and lines of its report file become events. Pure.
//!
//! The byte offset is the sequence number: a piece that was already seen is dropped by comparison, a hole
//! shows as an event, and after a lost link reading goes on at the exact byte. What stands before a hole and behind
//! it are two lines, though it may have been one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::rows::{Row, Rows};
use super::unfinished::UpdateThrottle;
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
/// So many moments at which a host saw a file's bytes are kept for bytes that have not come: more than it tells of a piece.
const SEEN: usize = 2100;
/// How many processes within a rank are told apart.
const WORKERS: usize = 1024;
/// Characters of the name of a metric, and of why a report was not understood.
const NAME: usize = 200;
/// Phases of a step.
const SPANS: usize = 1024;

/// All files of one run on one host.
#[derive(Debug, Default)]
pub struct RankFiles {
    files: BTreeMap<(Rank, Stream), File>,
    /// What the ranks' progress bars tell, of those that tell nothing themselves.
    progress: BTreeMap<Rank, Progress>,
    /// When unfinished lines are told.
    throttle: UpdateThrottle,
    /// The files whose last lines may still be written over.
    held: BTreeSet<(Rank, Stream)>,
}

#[derive(Debug, Default)]
struct Progress {
    reader: ProgressReader,
    step: u64,
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
    /// What has not become a line.
    rows: Rows,
    /// Several unfinished rows were told last.
    told_block: bool,
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
        Self::from(0)
    }
}

impl From<u64> for File {
    fn from(next: u64) -> Self {
        Self {
            next,
            rows: Rows::new(LINE_BYTES, next),
            // a client that recorded what comes before may have told some
            told_block: next > 0,
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
        let files = offsets.iter().map(|(rank, stream, next)| ((*rank, *stream), File::from(*next)));
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
        if offset > file.next {
            let hole =
                LogGap { rank, stream, from: file.next, to: offset, reason: GapReason::Unknown, cap: None };
            events.extend(file.skip(hole));
        }
        let known = usize::try_from(file.next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let data = data.get(known..).unwrap_or_default();
        events.extend(self.progress(rank, stream, data));
        let file = self.files.entry((rank, stream)).or_default();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            match stream {
                Stream::Report => file.rows.extend_raw(line.unwrap_or(piece)),
                _ => file.rows.extend(line.unwrap_or(piece), file.next),
            }
            file.next = file.next.saturating_add(piece.len() as u64);
            if line.is_some() {
                file.rows.end_line(file.next, file.seen_at());
                file.forget_seen();
            }
            events.extend(file.finished(rank, stream));
        }
        self.throttle(rank, stream);
        events
    }

    /// Sees to it that what is unfinished in a file is told in time.
    fn throttle(&mut self, rank: Rank, stream: Stream) {
        let file = self.files.get(&(rank, stream)).filter(|_| stream != Stream::Report);
        match file {
            Some(file) if file.unfinished() => self.throttle.changed(rank, stream),
            _ => self.throttle.finished(rank, stream),
        }
        if file.is_some_and(|file| file.rows.holds()) {
            self.held.insert((rank, stream));
        } else {
            self.held.remove(&(rank, stream));
        }
    }

    /// Takes in that the host had a file up to this byte at that moment, 0 where it does not know when; the bytes themselves
    /// come next.
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

    /// The unfinished lines that are to be told now; and, where `all_read` says that nothing that came is still to be taken in,
    /// the lines that nothing has written over for a while.
    pub fn due(&mut self, now: Stamp, all_read: bool) -> Vec<(Rank, Told)> {
        let mut told = Vec::new();
        let held = if all_read { self.held.clone() } else { BTreeSet::new() };
        for (rank, stream) in held {
            let Some(file) = self.files.get_mut(&(rank, stream)) else { continue };
            file.rows.release_old(now);
            let lines = file.finished(rank, stream);
            if !lines.is_empty() {
                told.extend(lines.into_iter().map(|line| (rank, line)));
                self.throttle(rank, stream);
            }
        }
        for (rank, stream) in self.throttle.due(now) {
            if let Some(file) = self.files.get_mut(&(rank, stream)).filter(|file| file.unfinished()) {
                told.push((rank, file.shown(rank, stream)));
            }
        }
        told
    }

    /// When the next unfinished line is to be told; known after [`Self::due`] was asked.
    pub fn next_due(&self) -> Option<Stamp> {
        let held = self.held.iter().filter_map(|file| self.files.get(file)?.rows.next_release());
        self.throttle.next().into_iter().chain(held).min()
    }

    /// How far a rank is by its new bytes, where nothing else tells that.
    fn progress(&mut self, rank: Rank, stream: Stream, data: &[u8]) -> Option<Told> {
        if self.files.get(&(rank, Stream::Report)).is_some_and(|file| !file.steps_by.is_empty()) {
            return None;
        }
        let progress = self.progress.entry(rank).or_default();
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
        let file = self.files.entry((gap.rank, gap.stream)).or_default();
        let mut events = Vec::new();
        let (from, to) = (file.next, gap.from.min(gap.to));
        if to > from {
            events = file.skip(LogGap { from, to, reason: GapReason::Unknown, cap: None, ..gap.clone() });
        }
        if gap.to > file.next {
            events.extend(file.skip(LogGap { from: file.next, ..gap.clone() }));
        }
        self.throttle(gap.rank, gap.stream);
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
            self.throttle(rank, stream);
        }
        events
    }

    /// Where the line begins that is read now, or will be read next.
    pub fn line_start(&self, rank: Rank, stream: Stream) -> u64 {
        self.files.get(&(rank, stream)).map_or(0, |file| file.rows.start())
    }

    /// From where to go on after a lost link.
    pub fn offsets(&self) -> Vec<(Rank, Stream, u64)> {
        self.files.iter().map(|((rank, stream), file)| (*rank, *stream, file.next)).collect()
    }
}

impl File {
    fn unfinished(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Goes on behind a hole that begins at the next byte; what came before it is not lost with it.
    fn skip(&mut self, hole: LogGap) -> Vec<Told> {
        let mut events = Vec::new();
        if self.unfinished() {
            self.beheaded = true;
            events.extend(self.finish(hole.rank, hole.stream));
        }
        self.next = hole.to;
        self.rows = Rows::new(LINE_BYTES, self.next);
        self.forget_seen();
        self.beheaded = true;
        events.push(Event::LogGap { gap: hole }.into());
        events
    }

    /// The first moment at which the host had the file up to the last byte that was taken in.
    fn seen_at(&self) -> Option<HostTime> {
        let seen = self.seen.iter().find(|(until, _)| *until >= self.next);
        seen.map(|(_, t)| *t).filter(|t| t.0 > 0)
    }

    /// The next byte begins a line.
    fn forget_seen(&mut self) {
        while self.seen.front().is_some_and(|(until, _)| *until <= self.next) {
            self.seen.pop_front();
        }
    }

    /// What there is to see of what has not become a line.
    fn shown(&mut self, rank: Rank, stream: Stream) -> Told {
        self.told_block = self.rows.is_block();
        let (text, elided) = self.rows.shown();
        let line = LogLine { rank, stream, offset: self.rows.start(), text, elided, t: self.seen_at() };
        Event::LogUnfinished { line: Arc::new(line) }.into()
    }

    /// Nothing more comes of the rows there are.
    fn finish(&mut self, rank: Rank, stream: Stream) -> Vec<Told> {
        self.rows.end(self.next, self.seen_at());
        self.forget_seen();
        self.finished(rank, stream)
    }

    /// The rows that have become lines.
    fn finished(&mut self, rank: Rank, stream: Stream) -> Vec<Told> {
        let rows = self.rows.take_done();
        let mut told: Vec<Told> = rows.iter().flat_map(|row| self.line(rank, stream, row)).collect();
        // the lines take the place of the rows, which are not told again
        if stream != Stream::Report && !told.is_empty() && self.told_block && !self.rows.is_block() {
            told.push(self.shown(rank, stream));
        }
        told
    }

    fn line(&mut self, rank: Rank, stream: Stream, row: &Row) -> Vec<Told> {
        let (text, elided) = row.text();
        self.lines += 1;
        let beheaded = std::mem::take(&mut self.beheaded);
        match stream {
            // half a report is part of the hole beside it
            Stream::Report if beheaded && serde_json::from_str::<ReportLine>(&text).is_err() => Vec::new(),
            Stream::Report => self.report(rank, &text),
            _ => {
                let line = LogLine { rank, stream, offset: row.start, text, elided, t: row.t };
                vec![Event::LogPrinted { line: Arc::new(line) }.into()]
            }
        }
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
                let what = cut(format!("report line {line} not understood: {error}"));
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
        Report::Met { .. } => Event::RankConnected,
        Report::Step { step, t, dur_us, loss, samples, mut spans, hidden_us } => Event::StepDone {
            timing: Arc::new(StepTiming {
                step,
                start: t.unwrap_or(HostTime(0)),
                dur_us: dur_us.unwrap_or(0),
                loss,
                samples: samples.unwrap_or(0),
                spans: {
                    spans.truncate(SPANS);
                    spans.into()
                },
                hidden_us: hidden_us.unwrap_or(0),
            }),
        },
        Report::Metric { name, value, step } => Event::MetricReported { name: cut(name), value, step },
        Report::Collective(timing) => Event::CollectiveDone { timing: Box::new(timing) },
        Report::Done { weights } => Event::JobDone { weights },
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(NAME) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
