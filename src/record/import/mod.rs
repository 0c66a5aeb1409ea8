//! Other programs' traces as recordings.
//!
//! `source` opens a file and unpacks it, `scanner` takes its text apart event by event, `trace_event` reads one of them. What a
//! file is is judged by its contents alone. A format is a fold over the events that makes the events of a run of them, and
//! `target` records those as those of any run are. What a trace does not tell is not invented: `summary` says what is missing.

mod clock;
mod collectives;
mod horovod;
mod run;
mod scanner;
mod source;
mod summary;
mod target;
mod trace_event;
mod waits;

use std::path::Path;

pub use run::Asked;
pub use summary::{Cut, FileRead, Imported, LeftOut, StepsRead};
pub use target::Place;
pub use waits::{RankWaits, Spread, WaitTable};

use self::horovod::Timeline;
use self::scanner::{End, Item, Scanner, Shape};
use self::trace_event::TraceEvent;
use super::error::Error;
use crate::domain::text::sanitize;
use crate::domain::units::duration_us;

/// What can be imported, in words.
pub const READS: &str = "a timeline of Horovod, a trace of torch's profiler (Kineto), or what `hvtui export --to chrome` writes";

/// Events by which it is judged what a trace is.
const JUDGED: u64 = 20_000;

/// What a trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Horovod,
    Chrome,
    Kineto,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Horovod => "horovod",
            Self::Chrome => "chrome",
            Self::Kineto => "kineto",
        }
    }
}

/// Makes a recording of other programs' files.
///
/// # Errors
/// [`Error::Foreign`] names a file that is none of those that are read, and what it is. Nothing is left where an import fails.
pub fn import(asked: &Asked<'_>) -> Result<Imported, Error> {
    let files = source::files(asked.files)?;
    let kinds = files.iter().map(|path| judge(path)).collect::<Result<Vec<_>, _>>()?;
    match (&kinds[..], &files[..]) {
        ([Kind::Horovod], [path]) => import_horovod(asked, path),
        (kinds, files) => {
            let other = kinds.iter().position(|kind| *kind != Kind::Kineto).unwrap_or_default();
            let words = format!("a {} trace among {} files: import it by itself", kinds[other].name(), files.len());
            Err(Error::foreign(&files[other], &words))
        }
    }
}

/// What a trace is, by its contents.
fn judge(path: &Path) -> Result<Kind, Error> {
    let mut scanner = Scanner::new(source::open(path)?.text);
    let (mut events, mut unread) = (0, 0);
    while let Some(item) = scanner.next(true) {
        match item {
            Item::Event(text) => {
                events += 1;
                match TraceEvent::read(text) {
                    Some(event) => {
                        if let Some(kind) = kind_of(&event) {
                            return Ok(kind);
                        }
                    }
                    None => unread += 1,
                }
                if events >= JUDGED {
                    break;
                }
            }
            Item::Head(key, _) => {
                if ["schemaVersion", "deviceProperties", "distributedInfo"].contains(&key.as_str()) {
                    return Ok(Kind::Kineto);
                }
            }
        }
    }
    Err(Error::foreign(path, &what_it_is(&scanner, events, unread)))
}

fn kind_of(event: &TraceEvent<'_>) -> Option<Kind> {
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
    (name.starts_with("ProfilerStep#") || of_torch.contains(&cat)).then_some(Kind::Kineto)
}

/// What a file is that is none of those that are read.
fn what_it_is<R: std::io::Read>(scanner: &Scanner<R>, events: u64, unread: u64) -> String {
    let what = match (scanner.shape(), scanner.ending()) {
        (Shape::Empty, End::Unreadable(_, why)) => format!("can't be unpacked: {why}"),
        (Shape::Empty, _) => return "empty: no collective was recorded".to_owned(),
        (Shape::Array, End::Open) if events == 0 && scanner.refused() == 0 => {
            return "only `[`: no collective was recorded".to_owned();
        }
        (Shape::Array, End::Whole) if events == 0 && scanner.refused() == 0 => {
            return "an empty list: no collective was recorded".to_owned();
        }
        (Shape::Other(first), _) => format!("no JSON list or object, it begins with `{}`", sanitize(first)),
        (Shape::Object, _) if !scanner.has_events() => "a JSON object without `traceEvents`".to_owned(),
        _ if events > unread => {
            format!("a trace with {events} events, none of which is known: no step of torch's profiler (`ProfilerStep#1`), no collective of Horovod")
        }
        _ => format!(
            "JSON without a trace event: {} of {} values are no object that is read",
            scanner.refused() + unread,
            scanner.refused() + events
        ),
    };
    format!("{what}; `hvtui import` reads {READS}")
}

/// How a file ended, where that is before its end.
fn cut(end: &End, is_packed: bool, at_us: Option<i64>) -> Option<Cut> {
    let (byte, why) = match end {
        End::Whole | End::Open => return None,
        End::Cut(byte) => (*byte, "the text ends within an event".to_owned()),
        End::Unreadable(byte, why) if is_packed => (*byte, format!("it can't be unpacked any further: {why}")),
        End::Unreadable(byte, why) => (*byte, format!("it can't be read any further: {why}")),
    };
    let time = at_us.map_or_else(String::new, |us| format!(", {} after its beginning", duration_us(us.unsigned_abs())));
    Some(Cut { byte, reason: format!("{why}{time}") })
}

fn import_horovod(asked: &Asked<'_>, path: &Path) -> Result<Imported, Error> {
    let source = source::open(path)?;
    let is_packed = source.is_packed;
    let mut scanner = Scanner::new(source.text);
    let mut timeline = Timeline::new(asked);
    let (mut events, mut unread) = (0, 0);
    while let Some(item) = scanner.next(true) {
        let Item::Event(text) = item else { continue };
        match TraceEvent::read(text) {
            Some(event) => {
                events += 1;
                timeline.take(&event)?;
            }
            None => unread += 1,
        }
    }
    let cut = cut(&scanner.ending(), is_packed, Some(timeline.length_us()));
    let told = timeline.finish()?;
    let unread = unread + scanner.refused();
    let mut left_out = told.left_out;
    if unread > 0 {
        left_out.push(LeftOut::new("events that can't be read", unread, "they are no JSON, too large or nested too deep"));
    }
    let file =
        FileRead { path: path.to_owned(), bytes: scanner.bytes(), packed: is_packed, events, rank: Some(0), cut };
    let spec = told.target.spec().clone();
    let (recording, end) = told.target.finish(ended(&spec))?;
    Ok(Imported {
        run: spec.id.clone(),
        name: spec.name.clone(),
        recording,
        format: Kind::Horovod.name(),
        clock: horovod::CLOCK.to_owned(),
        files: vec![file],
        created: spec.created,
        duration_us: end.micros_since(spec.created).max(0).unsigned_abs(),
        ranks: told.ranks,
        told_ranks: told.ranks,
        steps: told.steps,
        left_out,
        waits: Some(told.waits),
    })
}

/// How an imported run ended: nothing but the import is known.
fn ended(spec: &crate::domain::run::RunSpec) -> String {
    let imported = spec.options.imported.as_deref().unwrap_or_default();
    format!("imported: {imported}; how it ended is not told")
}
