//! What must hold after every fault. L: no byte lost or doubled. X: one truth about exits. P: nothing is left.

use std::fs;
use std::path::PathBuf;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::log::{LogGap, LogLine, Stream};
use hvtui::domain::run::{RankExit, RunSpec};

use super::rig::{Job, Rig};
use crate::common::left;

/// How a rank is to end by the trainer's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal, of its own or another's doing.
    Signal(i32),
    /// It is unknown how: its host was started anew.
    Lost,
    /// However the stop of the others ended it.
    Stopped,
}

/// The run's folder on a host.
pub(crate) fn spool(rig: &Rig, host: &str, run: &str) -> PathBuf {
    rig.cluster.spool(host, run).unwrap_or_else(|| panic!("{host} has no folder of run {run}"))
}

/// L: what the client recorded of each rank is its file on the host from offset 0 on, with holes only where a gap says
/// so. Gives the bytes that were compared.
#[track_caller]
pub(crate) fn no_byte_lost(job: &Job<'_>) -> u64 {
    let run = job.run();
    let events = job.events();
    let mut compared = 0;
    for placement in &planned(&events).placements {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let name = format!("rank-{}.{}", placement.rank, stream.extension());
            let file = fs::read(spool(job.rig, placement.host.as_str(), &run).join(&name)).expect(&name);
            let mut heard = Heard {
                who: format!("{name} on {}", placement.host),
                file,
                next: 0,
                compared: 0,
                unrecorded: 0,
                last: String::new(),
            };
            for event in events.iter().filter(|e| is_of(&e.origin, placement.rank)).map(|e| &e.event) {
                match event {
                    Event::LogPrinted { line } if line.stream == stream => heard.line(line),
                    Event::LogGap { gap } if gap.stream == stream => heard.gap(gap),
                    // the recorder could not keep up with a flood: so many lines, of either stream
                    Event::Gap { what, dropped } if what == "log" => heard.unrecorded += dropped,
                    _ => {}
                }
            }
            compared += heard.end();
        }
    }
    compared
}

fn is_of(origin: &Origin, rank: Rank) -> bool {
    matches!(origin, Origin::Rank(_, of) if *of == rank)
}

fn planned(events: &[Envelope]) -> RunSpec {
    let spec = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunCreated { spec } => Some((**spec).clone()),
        _ => None,
    });
    spec.expect("the run's plan is recorded")
}

/// One file of a rank beside what the client heard of it.
struct Heard {
    who: String,
    file: Vec<u8>,
    /// The first byte that was not accounted for.
    next: u64,
    compared: u64,
    /// Lines that a gap says are missing from here on.
    unrecorded: u64,
    /// The latest event, for messages.
    last: String,
}

impl Heard {
    /// Goes on at `to` if gaps tell of as many missing lines as lie between.
    fn pass_unrecorded(&mut self, to: u64) {
        let from = if self.next > 0 { self.next + 1 } else { 0 };
        let Some(between) = self.file.get(from as usize..to as usize).filter(|between| !between.is_empty())
        else {
            return;
        };
        let punched = between.iter().all(|byte| *byte == 0);
        let feeds = between.split(|byte| *byte == b'\n').count() as u64 - 1;
        let lines = match between.last() {
            // what was cut off the file meanwhile is unknown
            _ if punched => 1,
            Some(b'\n') => feeds,
            // a line without its line feed, before a hole
            _ => feeds + 1,
        };
        if lines <= self.unrecorded {
            self.unrecorded -= lines;
            self.next = to;
        }
    }

    #[track_caller]
    fn line(&mut self, line: &LogLine) {
        self.pass_unrecorded(line.offset);
        let Self { who, file, next, .. } = self;
        // after a line the line feed is due; only a gap may stand in its place
        let due = if *next > 0 && line.offset == *next + 1 { *next + 1 } else { *next };
        assert!(line.offset >= due, "{who}: byte {} came twice, {next} was next", line.offset);
        assert!(line.offset == due, "{who}: bytes {next} to {} are lost and no gap says so", line.offset);
        let start = line.offset as usize;
        assert!(
            start == 0 || start == *next as usize || matches!(file[start - 1], b'\n' | 0),
            "{who}: the line before {start} goes on"
        );
        let end = start + line.text.len();
        let there = file.get(start..end);
        // what was punched out of the file meanwhile reads as zeros, up to somewhere in a line
        let same = there.is_some_and(|bytes| {
            let kept = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
            bytes[kept..] == line.text.as_bytes()[kept..]
        });
        assert!(same, "{who}: the line at {start} is not what is in the file: {:?}", line.text);
        *next = end as u64 + line.elided;
        assert!(*next <= file.len() as u64, "{who}: more is left out at {start} than there is");
        self.compared += end as u64 - start as u64;
        self.last = format!("{line:?}").chars().take(200).collect();
    }

    #[track_caller]
    fn gap(&mut self, gap: &LogGap) {
        self.pass_unrecorded(gap.from);
        let Self { who, file, next, last, .. } = self;
        let at_line_end = gap.from == *next + 1 && *next > 0;
        assert!(
            gap.from == *next || at_line_end,
            "{who}: a gap from {} on, {next} was next after {last}",
            gap.from
        );
        assert!(gap.to > gap.from && gap.to <= file.len() as u64, "{who}: a gap to {}", gap.to);
        *next = gap.to;
        self.last = format!("{gap:?}");
    }

    /// The bytes that were compared.
    #[track_caller]
    fn end(mut self) -> u64 {
        self.pass_unrecorded(self.file.len() as u64);
        let rest = &self.file[self.next as usize..];
        assert!(
            rest.is_empty() || rest == b"\n",
            "{}: the last {} bytes were never heard",
            self.who,
            rest.len()
        );
        self.compared
    }
}

/// X: the client's exit code, what is recorded, what the hosts wrote down, and the plan are one.
#[track_caller]
pub(crate) fn exits_agree(job: &Job<'_>, code: i32, wanted: i32, plan: &[Ends]) {
    let run = job.run();
    assert_eq!(code, wanted, "the client's exit code: {}", job.last_words());
    let events = job.events();
    let outcome = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunEnded { outcome } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(outcome.as_ref().map(|outcome| i32::from(outcome.exit_code())), Some(wanted), "{outcome:?}");
    for placement in &planned(&events).placements {
        let rank = placement.rank;
        let recorded: Vec<&RankExit> = events
            .iter()
            .filter_map(|envelope| match (&envelope.origin, &envelope.event) {
                (origin, Event::RankExited { exit }) if is_of(origin, rank) => Some(exit),
                _ => None,
            })
            .collect();
        let [recorded] = recorded[..] else { panic!("rank {rank}: {} exits are recorded", recorded.len()) };
        let file = spool(job.rig, placement.host.as_str(), &run).join(format!("exit-{rank}.json"));
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let written: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let of = |name: &str| written[name].as_i64().map(|n| n as i32);
        assert_eq!((recorded.code, recorded.signal), (of("code"), of("signal")), "rank {rank}: {written}");
        match plan[rank.0 as usize] {
            Ends::Exit(code) => {
                assert_eq!((recorded.code, recorded.signal), (Some(code), None), "rank {rank}");
            }
            Ends::Signal(n) => assert_eq!((recorded.code, recorded.signal), (None, Some(n)), "rank {rank}"),
            Ends::Lost => assert!(recorded.is_lost(), "rank {rank} was to be lost: {recorded:?}"),
            Ends::Stopped => assert!(recorded.stopped, "rank {rank} was to be stopped: {recorded:?}"),
        }
    }
}

/// P: no process, lease, socket or temporary file of the run is left on any host.
#[track_caller]
pub(crate) fn nothing_left(rig: &Rig, run: &str) {
    for host in rig.hosts() {
        left::assert_nothing(&rig.cluster, &host, run);
    }
}
