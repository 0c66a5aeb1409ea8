//! Up to where a run is known: what a client needs to attach to its stream again so that no byte is lost and none
//! comes twice. A pure fold of what was recorded.

use std::collections::BTreeMap;

use super::event::{Envelope, Event, Origin};
use super::hooks::StepsBy;
use super::ids::{HostId, Rank, RunId};
use super::last_words::LastWords;
use super::log::Stream;
use super::note::{Note, what};
use super::outcome::RunOutcome;
use super::run::{RankExit, RunSpec, RunStage};
use super::time::Stamp;
use super::world::World;

/// How the gap of a report line that is no report begins.
const NO_REPORT: &str = "report line";

/// How much of what was printed before is wanted when a client attaches to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backfill {
    /// Every byte that is not known yet, however long that takes.
    Every,
    /// The same, but for what can't be caught up with: that is told as a gap.
    Whole,
    /// The same, but for what takes more than a few seconds once the ranks have ended: the end is wanted.
    End,
    /// The end of it, so that the present comes at once; what is left out is told as a gap.
    Recent,
}

impl Backfill {
    /// Bytes of each file that are recent.
    const RECENT: u64 = 1 << 20;

    /// What there is no recording of begins with what is recent; a recording goes on at its byte.
    pub fn after(resume_point: &ResumePoint) -> Self {
        if resume_point.spec.is_some() { Self::Whole } else { Self::Recent }
    }

    /// The last so many bytes of each file; all where there is no such number.
    pub fn last(self) -> Option<u64> {
        (self == Self::Recent).then_some(Self::RECENT)
    }

    /// How long what is left of a run that has ended may take, seconds; without it a minute.
    pub fn patience_s(self) -> Option<u64> {
        (self == Self::End).then_some(5)
    }

    /// Whether what can't be caught up with is left out.
    pub fn may_hurry(self) -> bool {
        self != Self::Every
    }
}

/// Where the stream of one run stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResumePoint {
    /// The run, once it was told.
    pub spec: Option<RunSpec>,
    /// The number of the next envelope.
    pub next_seq: u64,
    /// When the last event of it came.
    pub last_at: Option<Stamp>,
    /// The stage it was in.
    pub stage: Option<RunStage>,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// Its ranks.
    pub ranks: BTreeMap<Rank, RankResumePoint>,
    /// How often it was started again; `None` where that was not told.
    pub attempt: Option<u32>,
    /// What its hosts have said of it.
    pub notes: Vec<(HostId, Note)>,
    /// Whether a client here began to record it and has ended: what it had not done by then, it does not do any more.
    pub abandoned: bool,
}

/// Where the stream of one rank stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankResumePoint {
    /// Its start is known.
    pub started: bool,
    /// It is connected with the others.
    pub connected: bool,
    /// It has finished a step.
    pub stepped: bool,
    /// How it ended, and when that was learnt.
    pub exit: Option<(Stamp, RankExit)>,
    /// What of its output tells why it ended, where that was read.
    pub last_words: LastWords,
    /// Where the last line of its standard output and error begins.
    pub lines: [Option<u64>; 2],
    /// Up to where bytes of them are known to be missing.
    pub gaps: [u64; 2],
    /// Its reports are known up to here …
    pub reports_from: u64,
    /// … and so many more.
    pub reports_more: u64,
    /// By whom its steps are told, and those of the processes within it, …
    pub steps_by: BTreeMap<Option<u32>, StepsBy>,
    /// … and by whom they were told where its reports are read again.
    pub steps_by_then: BTreeMap<Option<u32>, StepsBy>,
}

impl ResumePoint {
    /// Takes one event in, in order.
    pub fn take(&mut self, envelope: &Envelope) {
        self.next_seq = self.next_seq.max(envelope.seq.saturating_add(1));
        match (&envelope.origin, &envelope.event) {
            (Origin::Host(_), _) => return,
            (Origin::Run(_), Event::RunCreated { spec }) => {
                self.spec.get_or_insert_with(|| (**spec).clone());
            }
            (Origin::Run(_), Event::StageEntered { stage, .. }) => self.stage = Some(*stage),
            (Origin::Run(_), Event::RunNoted { host, note }) => self.notes.push((host.clone(), note.clone())),
            (Origin::Run(_), Event::RunRestarted { attempt, .. }) => {
                self.attempt = Some(attempt.saturating_sub(1));
                self.ranks.values_mut().for_each(RankResumePoint::restart);
            }
            (Origin::Run(_), Event::RunEnded { outcome }) => self.outcome = Some(outcome.clone()),
            (Origin::Rank(_, rank), event) => {
                self.ranks.entry(*rank).or_default().take(envelope.at, None, event);
            }
            (Origin::Worker(_, rank, worker), event) => {
                self.ranks.entry(*rank).or_default().take(envelope.at, Some(*worker), event);
            }
            _ => {}
        }
        self.last_at = self.last_at.max(Some(envelope.at));
    }

    /// Knows the last line of a rank's stream, where the lines themselves were not read.
    pub fn know_line(&mut self, rank: Rank, stream: Stream, offset: u64) {
        self.ranks.entry(rank).or_default().know_line(stream, offset);
    }

    /// Knows what the ranks printed last, which is for the world to tell.
    pub fn know_last_words(&mut self, world: &World) {
        let ranks = world.runs.values().flat_map(|run| (0..).zip(&run.ranks));
        for (number, rank) in ranks {
            if let Some(known) = self.ranks.get_mut(&Rank(number)) {
                known.last_words = rank.last_words.clone();
            }
        }
    }

    /// The bytes that are wanted of a host's files. The last line of each is read again, since nothing tells
    /// where it ended; [`ResumePoint::repeats`] knows it.
    pub fn wanted(&self, spec: &RunSpec, host: &HostId) -> Vec<(Rank, Stream, u64)> {
        let ours = spec.placements.iter().filter(|placement| placement.host == *host);
        let files = ours.flat_map(|placement| {
            let known = self.ranks.get(&placement.rank);
            Stream::ALL.map(|stream| {
                let from = known.map_or(0, |known| match stream {
                    Stream::Stdout => known.lines[0].unwrap_or(0).max(known.gaps[0]),
                    Stream::Stderr => known.lines[1].unwrap_or(0).max(known.gaps[1]),
                    Stream::Report => known.reports_from,
                });
                (placement.rank, stream, from)
            })
        });
        files.collect()
    }

    /// By whom the steps of a host's ranks were told where the bytes begin that are [wanted](Self::wanted).
    pub fn steps_by(&self, spec: &RunSpec, host: &HostId) -> Vec<(Rank, Option<u32>, StepsBy)> {
        let ours = spec.placements.iter().filter(|placement| placement.host == *host);
        let known = ours.filter_map(|placement| Some((placement.rank, self.ranks.get(&placement.rank)?)));
        let each = |(rank, known): (Rank, &RankResumePoint)| {
            known.steps_by_then.iter().map(|(worker, by)| (rank, *worker, *by)).collect::<Vec<_>>()
        };
        known.flat_map(each).collect()
    }

    /// Whether an event of the run was known before the client attached again. Asked once for each.
    pub fn repeats(&mut self, run: &RunId, origin: &Origin, event: &Event) -> bool {
        match origin {
            Origin::Rank(of, rank) | Origin::Worker(of, rank, _) if of == run => {
                self.ranks.get_mut(rank).is_some_and(|known| known.repeats(event))
            }
            Origin::Run(of) if of == run => match event {
                // that a host can't tell of the run is news for each client that attaches
                Event::RunNoted { host, note } if note.what != what::NOT_FOLLOWED => {
                    self.notes.iter().any(|(known, said)| known == host && said == note)
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl RankResumePoint {
    /// It starts again; what it has printed stays known.
    fn restart(&mut self) {
        (self.started, self.connected, self.stepped, self.exit) = (false, false, false, None);
    }

    fn take(&mut self, at: Stamp, worker: Option<u32>, event: &Event) {
        match event {
            Event::RankStarted { .. } => self.started = true,
            Event::RankExited { exit } => self.exit = Some((at, exit.clone())),
            Event::LogPrinted { line } => self.know_line(line.stream, line.offset),
            Event::ReportsRead { next } => self.read_until(*next),
            Event::LogGap { gap } => match gap.stream {
                Stream::Stdout => self.gaps[0] = gap.to.max(self.gaps[0]),
                Stream::Stderr => self.gaps[1] = gap.to.max(self.gaps[1]),
                Stream::Report => self.read_until(gap.to),
            },
            Event::RankConnected => self.connected = true,
            Event::StepsBy { by } => drop(self.steps_by.insert(worker, *by)),
            Event::StepDone { .. } => {
                self.stepped = true;
                // that the program tells them is not an event
                self.steps_by.entry(worker).or_default();
            }
            _ => {}
        }
        self.reports_more += reports(event);
    }

    /// The reports are known up to this offset, and nothing behind it.
    fn read_until(&mut self, offset: u64) {
        (self.reports_from, self.reports_more) = (offset, 0);
        self.steps_by_then.clone_from(&self.steps_by);
    }

    fn know_line(&mut self, stream: Stream, offset: u64) {
        let last = match stream {
            Stream::Stdout => &mut self.lines[0],
            Stream::Stderr => &mut self.lines[1],
            Stream::Report => return,
        };
        *last = (*last).max(Some(offset));
    }

    fn repeats(&mut self, event: &Event) -> bool {
        match event {
            Event::RankStarted { .. } => std::mem::replace(&mut self.started, true),
            Event::RankExited { exit } => self.exit.as_ref().is_some_and(|(_, known)| known == exit),
            Event::LogPrinted { line } | Event::LogUnfinished { line } => {
                let last = if line.stream == Stream::Stdout { self.lines[0] } else { self.lines[1] };
                last.is_some_and(|last| line.offset <= last)
            }
            Event::LogGap { gap } => match gap.stream {
                Stream::Stdout => gap.to <= self.gaps[0],
                Stream::Stderr => gap.to <= self.gaps[1],
                Stream::Report => {
                    // what is missing can't come again
                    self.reports_more = 0;
                    false
                }
            },
            // a mark within what is read again would stand before reports that are known already
            // nor by whom steps are told that are known already
            Event::ReportsRead { .. } | Event::StepsBy { .. } => self.reports_more > 0,
            event => {
                let again = reports(event) > 0 && self.reports_more > 0;
                self.reports_more -= u64::from(again);
                again
            }
        }
    }
}

/// How many lines of the report file an event stands for. The recorder's own gaps say what they stand for.
fn reports(event: &Event) -> u64 {
    match event {
        Event::JobDescribed { .. }
        | Event::RankWaits { .. }
        | Event::RankConnected
        | Event::StepDone { .. }
        | Event::MetricReported { .. }
        | Event::CollectiveDone { .. }
        | Event::JobDone { .. } => 1,
        Event::Gap { what, .. } if what.starts_with(NO_REPORT) => 1,
        Event::Gap { what, dropped } if matches!(what.as_str(), "step" | "metric" | "collective") => *dropped,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::log::LogLine;
    use crate::domain::time::HostTime;

    fn run() -> RunId {
        RunId::new(1, 1)
    }

    fn line(offset: u64, text: &str) -> Event {
        let line =
            LogLine { rank: Rank(0), stream: Stream::Stdout, offset, text: text.into(), elided: 0, t: None };
        Event::LogPrinted { line: Arc::new(line) }
    }

    fn metric(value: f64) -> Event {
        Event::MetricReported { name: "loss".into(), value, step: None }
    }

    fn fold(events: &[Event]) -> ResumePoint {
        let mut resume_point = ResumePoint::default();
        for (seq, event) in (0..).zip(events) {
            let origin = Origin::Rank(run(), Rank(0));
            resume_point.take(&Envelope { seq, at: Stamp(seq as i64), origin, event: event.clone() });
        }
        resume_point
    }

    /// What is left of a stream for a client that knows its beginning.
    fn rest(known: &[Event], again: &[Event]) -> Vec<Event> {
        let mut resume_point = fold(known);
        let origin = Origin::Rank(run(), Rank(0));
        again.iter().filter(|event| !resume_point.repeats(&run(), &origin, event)).cloned().collect()
    }

    #[test]
    fn what_is_read_again_is_known() {
        let start = Event::RankStarted { pid: 7, t: HostTime(1) };
        let known = [start.clone(), line(0, "a"), line(2, "b"), metric(1.0), metric(2.0)];
        // the last line is read again, and every report since the last mark
        let again = [start.clone(), line(2, "b"), metric(1.0), metric(2.0), line(4, "c"), metric(3.0)];
        assert_eq!(rest(&known, &again), [line(4, "c"), metric(3.0)]);
        let none: [Event; 0] = [];
        assert_eq!(rest(&none, &again), again, "who knows nothing hears everything");
    }

    #[test]
    fn reports_are_read_again_from_the_last_mark() {
        let mark = |next| Event::ReportsRead { next };
        let known = [metric(1.0), metric(2.0), mark(40), metric(3.0)];
        assert_eq!(fold(&known).ranks[&Rank(0)].reports_from, 40);
        let again = [metric(3.0), metric(4.0), mark(80)];
        assert_eq!(rest(&known, &again), [metric(4.0), mark(80)]);
        assert_eq!(rest(&known, &[mark(50), metric(3.0)]), [], "a mark among known reports says nothing new");
    }

    #[test]
    fn an_end_that_says_something_else_is_told() {
        let exit = |code| Event::RankExited {
            exit: RankExit { code, signal: None, t: HostTime(1), error: None, stopped: false, cause: None },
        };
        assert_eq!(rest(&[exit(Some(0))], &[exit(Some(0))]), []);
        assert_eq!(rest(&[exit(None)], &[exit(Some(3))]), [exit(Some(3))]);
    }
}
