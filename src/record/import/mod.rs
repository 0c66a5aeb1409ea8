//! Other programs' traces as recordings.
//!
//! `choice` takes the files of a folder that are meant, `source` opens a file and unpacks it, `scanner` takes its text apart event by event, on a thread of its own (`ahead`), `trace_event` reads one of them. What a
//! file is is judged by its contents alone. A format is a fold over the events that makes the events of a run of them, and
//! `target` records those as those of any run are. What a trace does not tell is not invented: `summary` says what is missing.

mod ahead;
mod choice;
mod chrome;
mod clock;
mod collectives;
mod horovod;
mod intervals;
mod kineto;
mod kineto_events;
mod kineto_ranks;
mod kineto_steps;
mod nccl_inspector;
mod run;
mod scanner;
mod slices;
mod source;
mod summary;
mod target;
mod tensorboard;
mod tfevents;
mod threads;
mod trace_event;
mod waits;

use std::path::{Path, PathBuf};

pub use run::Asked;
pub use summary::{Cut, FileRead, Imported, LeftOut, StepsRead};
pub use target::Place;

use self::choice::{Chosen, StepName, choose};
use self::chrome::{OtherData, Trace};
use self::horovod::Timeline;
use self::kineto::{Head, Profile, Traces};
use self::scanner::{End, Item, Scanner, Shape};
use self::slices::Census;
use self::summary::Folded;
use self::tfevents::Records;
use self::trace_event::TraceEvent;
use super::error::Error;
use crate::domain::run::RunSpec;
use crate::domain::text::sanitize;
use crate::domain::units::duration_us;

/// What can be imported, in words.
pub const READS: &str = "a timeline of Horovod, a trace of torch's profiler (Kineto), event files of TensorBoard, logs of NCCL's Inspector, what `hvtui export --to chrome` writes, or another program's Chrome trace with slices that are steps (`--step NAME`)";

/// Events by which it is judged what a trace is, and those in which the name of a step is looked for where none is sure.
const JUDGED: u64 = 20_000;
const COUNTED: u64 = 1_000_000;

/// What a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Horovod,
    Chrome,
    Kineto,
    TensorBoard,
    NcclInspector,
    /// Of another program, in Chrome's format.
    Slices,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Horovod => "horovod",
            Self::Chrome => "chrome",
            Self::Kineto => "kineto",
            Self::TensorBoard => "tensorboard",
            Self::NcclInspector => "nccl-inspector",
            Self::Slices => "slices",
        }
    }
}

/// Makes a recording of other programs' files.
///
/// # Errors
/// [`Error::Foreign`] names a file that is none of those that are read, and what it is. Nothing is left where an import fails.
pub fn import(asked: &Asked<'_>) -> Result<Imported, Error> {
    let Chosen { files, kinds, left_out, step } = choose(asked.files, asked.step)?;
    if asked.step.is_some()
        && let Some(known) = kinds.iter().position(|kind| *kind != Kind::Slices)
    {
        let words =
            format!("a {} trace, which tells its steps itself: leave out `--step`", kinds[known].name());
        return Err(Error::foreign(&files[known], &words));
    }
    let mut imported = match (&kinds[..], &files[..]) {
        ([Kind::Horovod], [path]) => import_horovod(asked, path),
        ([Kind::Chrome], [path]) => import_chrome(asked, path),
        (kinds, files) if kinds.iter().all(|kind| *kind == Kind::Kineto) => {
            import_traces(Kind::Kineto, Traces::new(asked), files)
        }
        (kinds, files) if kinds.iter().all(|kind| *kind == Kind::Slices) => {
            of_one_session(files)?;
            let traces = Traces::of_slices(asked, step.name.as_deref().unwrap_or_default(), files.len());
            import_traces(Kind::Slices, traces, files)
        }
        (kinds, files) if kinds.iter().all(|kind| *kind == Kind::TensorBoard) => {
            import_tensorboard(asked, files)
        }
        (kinds, files) if kinds.iter().all(|kind| *kind == Kind::NcclInspector) => {
            import_nccl_inspector(asked, files)
        }
        (kinds, files) => {
            let other = kinds.iter().position(|kind| *kind != Kind::Kineto).unwrap_or_default();
            let words =
                format!("a {} trace among {} files: import it by itself", kinds[other].name(), files.len());
            Err(Error::foreign(&files[other], &words))
        }
    }?;
    imported.left_out.extend(left_out);
    Ok(imported)
}

/// JAX's profiler gives each session a folder below `profile`, and does not tell when it was: of several it is not known which came
/// first.
fn of_one_session(files: &[PathBuf]) -> Result<(), Error> {
    let session = |file: &Path| {
        let session = file.parent()?;
        (session.parent()?.file_name()? == "profile").then(|| session.to_owned())
    };
    let mut sessions = files.iter().map(|file| (file, session(file)));
    let Some((_, Some(first))) = sessions.next() else { return Ok(()) };
    match sessions.find(|(_, other)| other.as_ref().is_some_and(|other| *other != first)) {
        Some((file, _)) => {
            let words =
                format!("of another session than {}: import the folder of one session", first.display());
            Err(Error::foreign(file, &words))
        }
        None => Ok(()),
    }
}

/// What a file is.
enum Judged {
    Known(Kind),
    /// None of those that are read, but this.
    Other(String),
}

/// What a trace is, by its contents. `step` is the name of the slices that are steps in one of another program; where none was asked
/// for, the first such trace tells it.
fn judge(path: &Path, step: &mut StepName) -> Result<Judged, Error> {
    if Records::new(source::open(path)?.text).is_events() {
        return Ok(Judged::Known(Kind::TensorBoard));
    }
    if nccl_inspector::is_log(source::open(path)?.text) {
        return Ok(Judged::Known(Kind::NcclInspector));
    }
    let mut scanner = Scanner::new(source::open(path)?.text);
    let (mut events, mut unread, mut is_torch) = (0, 0, false);
    let mut census = Census::new(step.name.as_deref());
    let is_asked = step.is_asked;
    while let Some(item) = scanner.next(true) {
        match item {
            Item::Event(_) if is_torch && !is_asked => return Ok(Judged::Known(Kind::Kineto)),
            Item::Event(text) => {
                events += 1;
                match TraceEvent::read(text) {
                    Some(event) => {
                        if let Some(kind) = kind_of(&event, is_asked) {
                            return Ok(Judged::Known(kind));
                        }
                        census.add(&event);
                    }
                    None => unread += 1,
                }
                let is_long = events >= COUNTED && !is_asked;
                if events >= JUDGED && (is_long || unread == events || census.is_sure()) {
                    break;
                }
            }
            Item::Head(key, _) => {
                // other programs' files have a version of their schema, too
                is_torch |= ["schemaVersion", "deviceProperties", "distributedInfo"].contains(&key.as_str());
            }
        }
    }
    if is_torch && !is_asked && scanner.has_events() {
        return Ok(Judged::Known(Kind::Kineto));
    }
    if let Some(found) = census.step() {
        step.name = Some(found.to_owned());
        return Ok(Judged::Known(Kind::Slices));
    }
    Ok(Judged::Other(match &step.name {
        Some(name) if !census.is_empty() => {
            let (name, others) = (sanitize(name), census.most_frequent());
            format!("a trace without a slice that is called `{name}`: {others}")
        }
        _ => what_it_is(&scanner, events, unread, &census),
    }))
}

/// What is none of those that are read, with what is.
fn readable(what: &str) -> String {
    format!("{what}; `hvtui import` reads {READS}")
}

/// `by_name`: the slices that are steps are named, so that a trace that marks none is not torch's.
fn kind_of(event: &TraceEvent<'_>, by_name: bool) -> Option<Kind> {
    let (name, cat) = (event.name.text(), event.cat.text());
    let label = event.args.get("name").text();
    let is_start = event.args.get("start_time_since_epoch_in_micros").whole().is_some();
    if is_start || name.starts_with("NEGOTIATE_") || name == "CYCLE_START" {
        return Some(Kind::Horovod);
    }
    if name == "process_name" && label.starts_with("rank ") && label.contains(" · ") && cat == "__metadata"
        || name == "step" && cat == "step" && event.args.get("step").whole().is_some()
    {
        return Some(Kind::Chrome);
    }
    let of_torch = ["cpu_op", "user_annotation", "kernel", "cuda_runtime", "gpu_memcpy", "python_function"];
    let is_torch = name.starts_with("ProfilerStep#") || !by_name && of_torch.contains(&cat);
    is_torch.then_some(Kind::Kineto)
}

/// What a file is that is none of those that are read.
fn what_it_is<R: std::io::Read>(scanner: &Scanner<R>, events: u64, unread: u64, census: &Census) -> String {
    match (scanner.shape(), scanner.ending()) {
        (Shape::Empty, End::Unreadable(_, why)) => format!("can't be unpacked: {why}"),
        (Shape::Empty, _) => "empty: nothing was written into it".to_owned(),
        (Shape::Array, End::Open) if events == 0 && scanner.refused() == 0 => {
            "only `[`: no collective was recorded".to_owned()
        }
        (Shape::Array, End::Whole) if events == 0 && scanner.refused() == 0 => {
            "an empty list: no collective was recorded".to_owned()
        }
        (Shape::Other(first), _) => format!("no JSON list or object, it begins with `{}`", sanitize(first)),
        (Shape::Object, _) if !scanner.has_events() => "a JSON object without `traceEvents`".to_owned(),
        _ if events > unread => {
            let slices = if census.is_empty() {
                String::new()
            } else {
                format!("; say by `--step NAME` which of its slices is the step: {}", census.most_frequent())
            };
            format!(
                "a trace with {events} events, none of which is known: no step of torch's profiler (`ProfilerStep#1`), no collective of Horovod{slices}"
            )
        }
        (_, End::Unreadable(byte, why)) if events == 0 => {
            format!("JSON without a trace event; read up to byte {byte}: {why}")
        }
        (_, End::Cut(_)) if scanner.refused() + events == 0 => {
            "JSON without a trace event: its first value does not end".to_owned()
        }
        // events are objects too, and none of them could be read
        _ => match scanner.refused() + events {
            0 => "JSON without a trace event".to_owned(),
            1 => "JSON without a trace event: its one value is not an object that is read".to_owned(),
            count => {
                format!("JSON without a trace event: none of its {count} values is an object that is read")
            }
        },
    }
}

/// How a file ended, where that is before its end.
fn cut(end: &End, is_packed: bool, at_us: i64) -> Option<Cut> {
    let (byte, why) = match end {
        End::Whole | End::Open => return None,
        End::Cut(byte) => (*byte, "the text ends within an event".to_owned()),
        End::Unreadable(byte, why) if is_packed => {
            (*byte, format!("it can't be unpacked any further: {why}"))
        }
        End::Unreadable(byte, why) => (*byte, format!("it can't be read any further: {why}")),
    };
    let after = duration_us(at_us.max(0).unsigned_abs());
    Some(Cut { byte, reason: format!("{why}, {after} after the beginning") })
}

/// Gives all events of a file to a fold, and what stands beside them.
fn read(
    path: &Path,
    take: &mut dyn FnMut(&TraceEvent<'_>) -> Result<i64, Error>,
    beside: &mut dyn FnMut(&str, &[u8]),
) -> Result<(FileRead, End), Error> {
    let source = source::open(path)?;
    let (mut events, mut unread, mut at_us) = (0, 0, 0);
    let mut each = |item: Item<'_>| -> Result<(), Error> {
        match item {
            Item::Head(key, text) => beside(&key, text),
            Item::Event(text) => match TraceEvent::read(text) {
                Some(event) => {
                    events += 1;
                    at_us = take(&event)?;
                }
                None => unread += 1,
            },
        }
        Ok(())
    };
    let scanner = ahead::each(Scanner::new(source.text), &mut each)?;
    let end = scanner.ending();
    let file = FileRead {
        path: path.to_owned(),
        bytes: scanner.bytes(),
        packed: source.is_packed,
        events,
        unread: unread + scanner.refused(),
        rank: None,
        cut: cut(&end, source.is_packed, at_us),
    };
    Ok((file, end))
}

fn import_horovod(asked: &Asked<'_>, path: &Path) -> Result<Imported, Error> {
    let mut timeline = Timeline::new(asked);
    let (file, _) =
        read(path, &mut |event| timeline.take(event).map(|()| timeline.length_us()), &mut |_, _| ())?;
    let told = timeline.finish().map_err(|error| with_cut(error, &file))?;
    let spec = told.target.spec().clone();
    imported(Kind::Horovod, horovod::CLOCK, &spec, vec![file], told)
}

fn import_chrome(asked: &Asked<'_>, path: &Path) -> Result<Imported, Error> {
    let mut scanner = Scanner::new(source::open(path)?.text);
    let mut other = OtherData::default();
    while let Some(item) = scanner.next(false) {
        if let Item::Head(key, text) = item
            && key == "otherData"
        {
            other = serde_json::from_slice(text).unwrap_or_default();
        }
    }
    let mut trace = Trace::new(asked, other);
    let (file, _) = read(path, &mut |event| trace.take(event).map(|()| trace.length_us()), &mut |_, _| ())?;
    let told = trace.finish().map_err(|error| with_cut(error, &file))?;
    let spec = told.target.spec().clone();
    imported(Kind::Chrome, chrome::CLOCK, &spec, vec![file], told)
}

fn import_traces(kind: Kind, mut traces: Traces<'_>, paths: &[PathBuf]) -> Result<Imported, Error> {
    let mut files = Vec::new();
    for path in paths {
        let mut head = Head::default();
        let mut take = |event: &TraceEvent<'_>| {
            traces.take(event);
            Ok(traces.length_us())
        };
        let (mut file, end) = read(path, &mut take, &mut |key, text| head.take(key, text))?;
        if end == End::Open && kind == Kind::Kineto {
            // torch closes its list; Horovod does not
            let after = duration_us(traces.length_us().max(0).unsigned_abs());
            let reason =
                format!("the text ends behind an event, without its brackets, {after} after the beginning");
            file.cut = Some(Cut { byte: file.bytes, reason });
        }
        traces.file(path, head, file.cut.is_some()).map_err(|words| Error::foreign(path, &words))?;
        files.push(file);
    }
    let cut = files.iter().find(|file| file.cut.is_some()).or(files.first()).cloned();
    let Profile { told, clock, ranks } = traces.finish(&|error| match &cut {
        Some(file) => with_cut(error, file),
        None => error,
    })?;
    for (file, rank) in files.iter_mut().zip(ranks) {
        file.rank = rank;
    }
    let spec = told.target.spec().clone();
    imported(kind, &clock, &spec, files, told)
}

fn import_tensorboard(asked: &Asked<'_>, paths: &[PathBuf]) -> Result<Imported, Error> {
    let (told, files) = tensorboard::read(asked, paths)?;
    let spec = told.target.spec().clone();
    imported(Kind::TensorBoard, tensorboard::CLOCK, &spec, files, told)
}

fn import_nccl_inspector(asked: &Asked<'_>, paths: &[PathBuf]) -> Result<Imported, Error> {
    let (told, files) = nccl_inspector::read(asked, paths)?;
    let spec = told.target.spec().clone();
    imported(Kind::NcclInspector, nccl_inspector::CLOCK, &spec, files, told)
}

/// Why there is nothing in a file that was cut: that may be all.
fn with_cut(error: Error, file: &FileRead) -> Error {
    match (error, &file.cut) {
        (Error::Foreign { reason, .. }, Some(cut)) => {
            let words = format!("{reason}; read up to byte {}: {}", cut.byte, cut.reason);
            Error::foreign(&file.path, &words)
        }
        (error, _) => error,
    }
}

/// Ends the recording, and says what is in it.
fn imported(
    kind: Kind,
    clock: &str,
    spec: &RunSpec,
    files: Vec<FileRead>,
    told: Folded,
) -> Result<Imported, Error> {
    let mut left_out = told.left_out;
    let unread = files.iter().map(|file| file.unread).sum();
    if unread > 0 {
        let why = match kind {
            Kind::TensorBoard => "their checksum is wrong, they are too large or no messages",
            _ => "they are no JSON objects, too large or nested too deep",
        };
        left_out.push(LeftOut::new("events that can't be read", unread, why));
    }
    let (recording, end) = told.target.finish(ended(spec), told.waits.clone())?;
    Ok(Imported {
        run: spec.id.clone(),
        name: spec.name.clone(),
        recording,
        format: kind.name(),
        clock: clock.to_owned(),
        files,
        created: spec.created,
        duration_us: end.micros_since(spec.created).max(0).unsigned_abs(),
        ranks: spec.world(),
        told_ranks: told.told_ranks,
        steps: told.steps,
        left_out,
        waits: told.waits,
    })
}

/// How an imported run ended: nothing but the import is known.
fn ended(spec: &RunSpec) -> String {
    let imported = spec.options.imported.as_deref().unwrap_or_default();
    format!("imported: {imported}; how it ended is not told")
}
