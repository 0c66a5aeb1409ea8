//! `hvtui runs check`: which recordings are whole, what is missing in the others, and their repair.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chrono::{DateTime, Local};
use serde::Serialize;

use crate::cli::args::CheckRunsArgs;
use crate::cli::errors::{Code, Failure, to_person, to_stdout};
use crate::cli::json::{VERSION, moment};
use crate::cli::paths::Paths;
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::Stream;
use crate::domain::run::RunSpec;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, padded, ranges};
use crate::record::closing::{self, Repaired};
use crate::record::far_steps::FarSteps;
use crate::record::{Check, Error, FileCheck, FileState, Lock, Loss, Store, check};

/// How many bad places of a file are shown.
const SHOWN: usize = 5;

/// The result, for other programs.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    repair: bool,
    recordings: Vec<Recording>,
}

#[derive(Debug, Serialize)]
struct Recording {
    /// The run, where the recording tells it.
    run: Option<RunId>,
    name: Option<String>,
    path: String,
    files: Vec<File>,
    lost: Vec<Lost>,
    /// Steps whose clocks put them far outside of the run: no fault of the files.
    far_steps: Vec<FarSteps>,
    /// What is said of them.
    #[serde(skip)]
    about_far_steps: Option<String>,
}

#[derive(Debug, Serialize)]
struct File {
    name: String,
    bytes: u64,
    state: &'static str,
    chunks: u64,
    events: u64,
    /// Where it is cut.
    cut_at: Option<u64>,
    /// The last moment that could be read, where it is cut.
    until: Option<String>,
    faults: Vec<Fault>,
    /// Whether it is closed and repaired now.
    repaired: bool,
    /// Where the damaged file is kept.
    kept: Option<String>,
    /// Why it can't be read or repaired.
    error: Option<String>,
    #[serde(skip)]
    words: String,
    #[serde(skip)]
    is_good: bool,
}

#[derive(Debug, Serialize)]
struct Fault {
    at_byte: u64,
    reason: String,
}

/// What is missing between two good chunks.
#[derive(Debug, Serialize)]
struct Lost {
    file: String,
    at_byte: u64,
    from: Option<String>,
    to: Option<String>,
    events_at_most: Option<u64>,
    steps: Vec<LostSteps>,
    output: Vec<LostOutput>,
    #[serde(skip)]
    words: String,
}

#[derive(Debug, Serialize)]
struct LostSteps {
    rank: Rank,
    first: u64,
    last: u64,
}

#[derive(Debug, Serialize)]
struct LostOutput {
    rank: Rank,
    stream: Stream,
    from_byte: u64,
    to_byte: u64,
}

/// Checks the recordings, and repairs them where that is asked for.
pub fn run(args: &CheckRunsArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let store = Store::new(&paths.state);
    let firsts = if args.runs.is_empty() {
        store.recordings()?
    } else {
        args.runs.iter().map(|run| store.find(run)).collect::<Result<Vec<_>, _>>()?
    };
    let mut recordings = Vec::new();
    for first in firsts {
        let recording = examine(&first, args.repair)?;
        if !args.json {
            to_person(&text(&recording))?;
        }
        recordings.push(recording);
    }
    let code = code(&recordings);
    if args.json {
        let report = Report { version: VERSION, repair: args.repair, recordings };
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::bug(format!("write the result as JSON: {error}")))?;
        to_stdout(&format!("{text}\n"))?;
    } else {
        to_person(&format!("{}\n", summary(&recordings, args)))?;
    }
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn examine(first: &Path, repair: bool) -> Result<Recording, Failure> {
    if !repair {
        return Ok(Recording::new(first, &check::check(first, Lock::is_held(first)), &mut BTreeMap::new()));
    }
    // a file that lies elsewhere gets no lock for good
    let had_lock = Lock::is_there(first);
    let lock = match Lock::take(first) {
        Ok(lock) => lock,
        Err(Error::Busy(_)) => {
            return Ok(Recording::new(first, &check::check(first, true), &mut BTreeMap::new()));
        }
        Err(error) => return Err(error.into()),
    };
    let check = check::check(first, false);
    // of an empty one there is nothing to repair
    let done =
        check.files.iter().enumerate().filter(|(_, file)| file.state.is_repairable() && !check.is_empty());
    let mut done = done.map(|(number, file)| (number, closing::repair(&lock, file))).collect();
    closing::tidy(&lock);
    if !had_lock {
        lock.remove();
    }
    Ok(Recording::new(first, &check, &mut done))
}

impl Recording {
    fn new(first: &Path, check: &Check, done: &mut BTreeMap<usize, Result<Repaired, Error>>) -> Self {
        let mut files: Vec<File> = check
            .files
            .iter()
            .enumerate()
            .map(|(number, file)| File::new(file, done.remove(&number), number + 1 < check.files.len()))
            .collect();
        if check.is_empty() {
            for file in &mut files {
                file.mark_empty(first);
            }
        } else {
            let behind = files.iter_mut().zip(&check.files).skip(1);
            for (file, _) in behind.filter(|(_, told)| is_begun_only(told)) {
                file.mark_begun_only();
            }
        }
        let lost = check.losses.iter().map(|loss| {
            let name = files.get(loss.file).map(|file| file.name.clone()).unwrap_or_default();
            Lost::new(name, loss)
        });
        Self {
            run: check.spec.as_ref().map(|spec| spec.id.clone()),
            name: check.spec.as_ref().map(|spec| spec.name.clone()),
            path: first.display().to_string(),
            lost: lost.collect(),
            files,
            far_steps: check.far_steps.ranks.clone(),
            about_far_steps: check.far_steps.words(check.spec.as_ref().is_some_and(RunSpec::is_imported)),
        }
    }

    fn is_good(&self) -> bool {
        self.lost.is_empty() && self.files.iter().all(|file| file.is_good)
    }
}

impl File {
    fn new(file: &FileCheck, done: Option<Result<Repaired, Error>>, is_followed: bool) -> Self {
        let (cut_at, until) = match &file.state {
            FileState::Cut { at_byte, until } => (Some(*at_byte), *until),
            _ => (None, None),
        };
        let mut faults: Vec<Fault> = match &file.state {
            FileState::Damaged { first, .. } => first.iter().map(Fault::new).collect(),
            _ => Vec::new(),
        };
        faults.extend(file.unreadable.iter().map(Fault::new));
        let mut words = words(&file.state);
        if is_followed && matches!(file.state, FileState::Cut { .. }) {
            words.push_str("; the next file goes on there");
        }
        if !file.unreadable.is_empty() {
            let _ = write!(words, "; {} chunks can't be read by this version", file.unreadable.len());
        }
        let (mut repaired, mut kept, mut error) = (false, None, None);
        match done {
            Some(Ok(done)) => {
                repaired = done.kept.is_none() || done.chunks > 0;
                let _ = match (&done.kept, done.chunks) {
                    (Some(_), 0) => write!(words, ": nothing of it can be saved"),
                    (Some(_), chunks) => write!(words, ": repaired now, {chunks} chunks"),
                    (None, chunks) => write!(words, ": closed now, {chunks} chunks"),
                };
                if let Some(path) = &done.kept {
                    let _ = write!(words, "; the damaged file is kept as {}", name(path));
                }
                kept = done.kept.map(|path| path.display().to_string());
            }
            Some(Err(fault)) => {
                let _ = write!(words, ": not repaired: {fault}");
                error = Some(fault.to_string());
            }
            None => {}
        }
        if let FileState::Unreadable(reason) = &file.state {
            error = Some(reason.clone());
        }
        Self {
            name: name(&file.path),
            bytes: file.bytes,
            state: state(&file.state),
            chunks: file.chunks,
            events: file.events,
            cut_at,
            until: until.map(moment),
            faults,
            repaired,
            kept,
            error,
            words,
            is_good: (file.state.is_good() || repaired) && file.unreadable.is_empty(),
        }
    }

    /// Nothing is in it, nor in another file of its recording.
    fn mark_empty(&mut self, first: &Path) {
        self.words = check::nothing(first);
        (self.state, self.is_good) = (state(&FileState::Empty), false);
    }

    /// Nothing is in it, and the files before it are a recording: its client recorded nothing, so nothing is missing.
    fn mark_begun_only(&mut self) {
        if !self.repaired {
            let why = "its client could write no event (a full disk), or was killed before the first one";
            self.words = format!("empty; {why}; nothing else is missing by it");
        }
        (self.state, self.is_good) = (state(&FileState::Empty), self.error.is_none());
    }
}

impl Fault {
    fn new((at_byte, reason): &(u64, String)) -> Self {
        Self { at_byte: *at_byte, reason: reason.clone() }
    }
}

impl Lost {
    fn new(file: String, loss: &Loss) -> Self {
        Self {
            at_byte: loss.at_byte,
            from: loss.from.map(moment),
            to: loss.to.map(moment),
            events_at_most: loss.events,
            steps: loss
                .steps
                .iter()
                .map(|(rank, first, last)| LostSteps { rank: *rank, first: *first, last: *last })
                .collect(),
            output: loss
                .output
                .iter()
                .map(|(rank, stream, from, to)| LostOutput {
                    rank: *rank,
                    stream: *stream,
                    from_byte: *from,
                    to_byte: *to,
                })
                .collect(),
            words: lost(&file, loss),
            file,
        }
    }
}

/// Whether a file is no more than the beginning of one. One that is cut may hold the beginning of a chunk.
fn is_begun_only(file: &FileCheck) -> bool {
    file.is_empty() && matches!(file.state, FileState::Empty | FileState::NotClosed)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn state(state: &FileState) -> &'static str {
    match state {
        FileState::Whole => "whole",
        FileState::Written => "written",
        FileState::NotClosed => "not_closed",
        FileState::BadIndex => "bad_index",
        FileState::Empty => "empty",
        FileState::Cut { .. } => "cut",
        FileState::Damaged { .. } => "damaged",
        FileState::Later { .. } => "later_format",
        FileState::NotARecording => "not_a_recording",
        FileState::Unreadable(_) => "unreadable",
    }
}

fn words(state: &FileState) -> String {
    match state {
        FileState::Whole => "whole".to_owned(),
        FileState::Written => "being recorded".to_owned(),
        FileState::NotClosed => "not closed; no event is missing".to_owned(),
        FileState::BadIndex => "index damaged; no event is missing".to_owned(),
        FileState::Empty => {
            "empty; no event could be written (a full disk), or its client was killed before the first one"
                .to_owned()
        }
        FileState::Cut { at_byte, until } => {
            let until = until.map(|until| format!(", complete up to {}", clock(until))).unwrap_or_default();
            format!("cut at byte {at_byte}{until}")
        }
        FileState::Damaged { places, cut, .. } => {
            let many =
                if *places == 1 { "1 damaged place".to_owned() } else { format!("{places} damaged places") };
            format!("{many}{}", if *cut { ", and the end is cut off" } else { "" })
        }
        FileState::Later { found } => format!("recording format {found} of a later version: update hvtui"),
        FileState::NotARecording => "not a recording of hvtui".to_owned(),
        FileState::Unreadable(reason) => format!("can't be read: {reason}"),
    }
}

/// What is missing, in words.
fn lost(file: &str, loss: &Loss) -> String {
    let when = match (loss.from, loss.to) {
        (Some(from), Some(to)) => format!("lost from {} to {}", clock(from), clock(to)),
        (None, Some(to)) => format!("lost before {}", clock(to)),
        (Some(from), None) => format!("lost after {}", clock(from)),
        (None, None) => "lost: all of it".to_owned(),
    };
    let mut parts = vec![format!("{when} ({file}, byte {})", loss.at_byte)];
    if let Some(events) = loss.events {
        parts.push(format!("at most {events} events"));
    }
    let mut steps: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
    for (rank, first, last) in &loss.steps {
        steps.entry((*first, *last)).or_default().push(rank.0);
    }
    for ((first, last), ranks) in steps {
        let steps = if first == last { format!("step {first}") } else { format!("steps {first}-{last}") };
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        parts.push(format!("{steps} of {word} {}", ranges(ranks)));
    }
    for (rank, stream, from, to) in &loss.output {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
            Stream::Report => "report",
        };
        parts.push(format!("about {} of {stream} of rank {rank}", bytes(to.saturating_sub(*from))));
    }
    parts.join("; ")
}

fn clock(at: Stamp) -> String {
    match DateTime::from_timestamp_micros(at.0) {
        Some(time) => time.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        None => "–".to_owned(),
    }
}

fn text(recording: &Recording) -> String {
    let run = recording.run.as_ref().map_or("–", RunId::short);
    let name = recording.name.clone().unwrap_or_else(|| folder(&recording.path));
    let mut lines = String::new();
    for (number, file) in recording.files.iter().enumerate() {
        let (run, name) = if number == 0 { (run, name.as_str()) } else { ("", "") };
        let words = sanitize(&file.words);
        let _ = writeln!(
            lines,
            "{run:<5} {}  {} {:>8}  {words}",
            padded(name, 18),
            padded(&file.name, 11),
            bytes(file.bytes)
        );
        for fault in file.faults.iter().take(SHOWN) {
            let _ = writeln!(lines, "      byte {}: {}", fault.at_byte, sanitize(&fault.reason));
        }
        if let Some(more) = file.faults.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(lines, "      and {more} more");
        }
    }
    for lost in &recording.lost {
        let _ = writeln!(lines, "      {}", sanitize(&lost.words));
    }
    if let Some(words) = &recording.about_far_steps {
        let _ = writeln!(lines, "      {words}");
    }
    lines
}

/// The folder of a recording that does not tell its run.
fn folder(path: &str) -> String {
    let path = PathBuf::from(path);
    path.parent()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn summary(recordings: &[Recording], args: &CheckRunsArgs) -> String {
    let files = || recordings.iter().flat_map(|recording| &recording.files);
    let counted = |states: &[&str]| files().filter(|file| states.contains(&file.state)).count();
    let mut parts = Vec::new();
    for (states, word) in [
        (&["whole"][..], "whole"),
        (&["written"], "being recorded"),
        (&["not_closed"], "not closed"),
        (&["cut"], "cut"),
        (&["empty"], "empty"),
        (&["damaged", "bad_index"], "damaged"),
        (&["later_format", "not_a_recording", "unreadable"], "not readable"),
    ] {
        let count = counted(states);
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    let repaired = files().filter(|file| file.repaired).count();
    if repaired > 0 {
        parts.push(format!("{repaired} of them closed or repaired now"));
    }
    let plural =
        |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    let all = format!("{}, {}", plural(recordings.len(), "recording"), plural(files().count(), "file"));
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let repairable = counted(&["not_closed", "cut", "damaged", "bad_index"]);
    let remedy = if repairable > 0 && !args.repair {
        let quoted = args.runs.iter().map(|run| shlex::try_quote(run).unwrap_or(Cow::Borrowed(run)));
        let words: Vec<Cow<'_, str>> =
            [Cow::Borrowed("hvtui runs check --repair")].into_iter().chain(quoted).collect();
        format!("; to close and repair them: {}", words.join(" "))
    } else {
        String::new()
    };
    format!("{all}{parts}{remedy}")
}

/// The exit code, where it is not 0.
fn code(recordings: &[Recording]) -> Option<Code> {
    let has_error = recordings.iter().flat_map(|recording| &recording.files).any(|file| file.error.is_some());
    let is_bad = !recordings.iter().all(Recording::is_good);
    match (has_error, is_bad) {
        (true, _) => Some(Code::Io),
        (false, true) => Some(Code::Data),
        (false, false) => None,
    }
}
