//! Puts the kernel traces that torch has written for each process of a run into one Chrome trace, aligned: each
//! process is a group with the rank's name, and all times are by one clock. Events stay as they are but for their
//! process, their time and the numbers that connect them.
//!
//! Files are read twice and event by event, since those of a GPU are large.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::super::error::Error;
use crate::domain::ids::RunId;

/// The first process's number: greater than Linux gives a thread and than any stream's. Perfetto takes a thread that has its
/// process's number, and thread 0, for the main thread: both on one track, where slices that overlap are lost.
const FIRST_PROCESS: u64 = 10_000_000;

/// One process's trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// What the process is called: `rank 3 on gpu-b`.
    pub name: String,
    /// The process's id in the file.
    pub pid: u32,
    /// What to add to its times to have those of the common clock, microseconds; `None` where that is not known.
    pub shift_us: Option<i64>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// The processes whose times are by another clock.
    pub unaligned: Vec<String>,
}

/// The name of the file where none is given: `trace-7QK2.json`.
pub fn default_name(run: &RunId) -> String {
    format!("trace-{}.json", run.short())
}

/// The folder beside the file in which the parts are gathered.
pub fn parts_of(target: &Path) -> PathBuf {
    beside(target, &format!(".parts-{}", std::process::id()))
}

fn beside(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    target.with_file_name(name)
}

/// Writes `parts` as one trace to a file, which is there as a whole or not at all.
///
/// # Errors
/// When a part can't be read or is no trace, or the file can't be written.
pub fn write(parts: &[Part], target: &Path) -> Result<Written, Error> {
    let draft = beside(target, ".part");
    let mut file = BufWriter::new(File::create(&draft).map_err(Error::file(&draft))?);
    let written = merge(parts, &mut file);
    let moved = written.and_then(|events| {
        file.flush().and_then(|()| std::fs::rename(&draft, target)).map_err(Error::file(target))?;
        Ok(events)
    });
    if moved.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    let unaligned = parts.iter().filter(|part| part.shift_us.is_none()).map(|part| part.name.clone());
    Ok(Written { events: moved?, unaligned: unaligned.collect() })
}

/// Writes `parts` as one trace; how many events it has. Its times count from the first event, microseconds.
///
/// # Errors
/// When a part can't be read or is no trace, or `to` can't be written.
pub fn merge(parts: &[Part], mut to: impl Write) -> Result<u64, Error> {
    let heads: Vec<Head> = parts.iter().map(Head::read).collect::<Result<_, _>>()?;
    let begins = parts
        .iter()
        .zip(&heads)
        .filter_map(|(part, head)| Some(head.first_ns?.saturating_add(head.offset_ns(part))));
    let origin_ns = begins.min().unwrap_or_default();
    let mut out = Events { to: &mut to, written: 0, failed: None };
    out.raw(b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    let mut next_id = 1;
    for (at, (part, head)) in parts.iter().zip(&heads).enumerate() {
        let micros = |ns: i128| ns as f64 / 1e3;
        let by = micros(head.offset_ns(part).saturating_sub(origin_ns));
        let mut renamed = Renamed { pids: BTreeMap::new(), tids: BTreeMap::new(), ids: BTreeMap::new() };
        let own = renamed.pid(&json!(part.pid), at, parts.len());
        visit(part, &mut |event: Map<String, Value>| {
            if let Some(event) = moved(event, by, &mut renamed, (at, parts.len()), &mut next_id) {
                out.event(&Value::Object(event));
            }
        })?;
        for (original, pid) in &renamed.pids {
            let label =
                head.labels.get(original).cloned().unwrap_or_else(|| original.trim_matches('"').to_owned());
            let name = match *pid == own {
                true => part.name.clone(),
                false if label.is_empty() => format!("{} · whole trace", part.name),
                false => format!("{} · {label}", part.name),
            };
            let (nth, count) = (*pid - FIRST_PROCESS, parts.len().max(1) as u64);
            let sort = nth % count * 1000 + nth / count;
            for (what, args) in [
                ("process_name", json!({ "name": name })),
                ("process_sort_index", json!({ "sort_index": sort })),
            ] {
                out.event(&json!({ "ph": "M", "name": what, "pid": pid, "tid": 0, "ts": 0, "args": args }));
            }
        }
    }
    out.raw(b"\n]}\n");
    let (written, failed) = (out.written, out.failed.take());
    failed.map_or(Ok(()), Err).and_then(|()| to.flush()).map_err(Error::Write)?;
    Ok(written)
}

/// What must be known of a file before its events.
#[derive(Debug, Default)]
struct Head {
    /// From when its times count, nanoseconds since the Unix epoch; 0 where they count from that.
    base_ns: i64,
    /// Its first event, nanoseconds from there.
    first_ns: Option<i128>,
    /// What its processes are called beside the rank's own: `GPU 0`.
    labels: BTreeMap<String, String>,
}

impl Head {
    fn read(part: &Part) -> Result<Self, Error> {
        let mut head = Self::default();
        let base_ns = visit(part, &mut |event| {
            let name = event.get("name").and_then(Value::as_str);
            if event.get("ph").and_then(Value::as_str) != Some("M") {
                if let Some(ts) = event.get("ts").and_then(Value::as_f64).filter(|ts| ts.is_finite()) {
                    let ns = (ts * 1e3).round() as i128;
                    head.first_ns = Some(head.first_ns.map_or(ns, |first| first.min(ns)));
                }
            } else if let (Some(name @ ("process_labels" | "process_name")), Some(pid)) =
                (name, event.get("pid"))
            {
                let key = if name == "process_labels" { "labels" } else { "name" };
                let text = event.get("args").and_then(|args| args.get(key)).and_then(Value::as_str);
                // a label says more than the program's name, which is that of all of them
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    let known = head.labels.entry(pid.to_string()).or_default();
                    if known.is_empty() || key == "labels" {
                        text.clone_into(known);
                    }
                }
            }
        })?;
        head.base_ns = base_ns.unwrap_or_default();
        Ok(head)
    }

    /// What to add to the file's times to have those of the common clock, nanoseconds.
    fn offset_ns(&self, part: &Part) -> i128 {
        i128::from(self.base_ns) + i128::from(part.shift_us.unwrap_or_default()) * 1_000
    }
}

/// What processes, threads and connections of a file are called in the common one.
struct Renamed {
    pids: BTreeMap<String, u64>,
    tids: BTreeMap<String, u64>,
    ids: BTreeMap<String, u64>,
}

impl Renamed {
    /// A number that no process of another part has: `count` apart, beginning with `at`.
    fn pid(&mut self, original: &Value, at: usize, count: usize) -> u64 {
        let next = FIRST_PROCESS + self.pids.len() as u64 * count as u64 + at as u64;
        *self.pids.entry(original.to_string()).or_insert(next)
    }

    /// A thread's number; viewers want one where torch has a word.
    fn tid(&mut self, original: &Value) -> Value {
        if original.is_i64() || original.is_u64() {
            return original.clone();
        }
        let next = self.tids.len() as u64;
        json!(*self.tids.entry(original.to_string()).or_insert(next))
    }
}

/// The event as the common trace has it; `None` for one that is written anew.
fn moved(
    mut event: Map<String, Value>,
    by: f64,
    renamed: &mut Renamed,
    (at, count): (usize, usize),
    next_id: &mut u64,
) -> Option<Map<String, Value>> {
    let is_meta = event.get("ph").and_then(Value::as_str) == Some("M");
    let name = event.get("name").and_then(Value::as_str);
    if is_meta && matches!(name, Some("process_name" | "process_sort_index" | "process_labels")) {
        return None;
    }
    if let Some(pid) = event.get("pid") {
        let pid = renamed.pid(pid, at, count);
        event.insert("pid".to_owned(), json!(pid));
    }
    if let Some(tid) = event.get("tid") {
        let tid = renamed.tid(tid);
        event.insert("tid".to_owned(), tid);
    }
    if let Some(ts) = event.get("ts").and_then(Value::as_f64) {
        let ts = if is_meta { 0.0 } else { ((ts + by) * 1e3).round() / 1e3 };
        event.insert("ts".to_owned(), json!(ts));
    }
    if let Some(id) = event.get("id") {
        let category = event.get("cat").map(Value::to_string).unwrap_or_default();
        let id = *renamed.ids.entry(format!("{category} {id}")).or_insert_with(|| {
            *next_id += 1;
            *next_id - 1
        });
        event.insert("id".to_owned(), json!(id));
    }
    Some(event)
}

/// The array of events: what keeps it valid, and the first failure.
struct Events<'a, W> {
    to: &'a mut W,
    written: u64,
    failed: Option<std::io::Error>,
}

impl<W: Write> Events<'_, W> {
    fn event(&mut self, event: &Value) {
        self.raw(if self.written == 0 { b"\n" } else { b",\n" });
        if self.failed.is_none()
            && let Err(error) = serde_json::to_writer(&mut *self.to, event)
        {
            self.failed = Some(error.into());
        }
        self.written += 1;
    }

    fn raw(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.to.write_all(bytes).err();
        }
    }
}

/// Hands out each event of a file; its `baseTimeNanoseconds`, if it has one.
fn visit(part: &Part, each: &mut dyn FnMut(Map<String, Value>)) -> Result<Option<i64>, Error> {
    let file = File::open(&part.path).map_err(Error::file(&part.path))?;
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, file));
    let damaged =
        |error: serde_json::Error| Error::Trace { name: part.name.clone(), reason: error.to_string() };
    let base = Whole { each }.deserialize(&mut reader).map_err(damaged)?;
    reader.end().map_err(damaged)?;
    Ok(base)
}

/// The object that a trace is.
struct Whole<'a> {
    each: &'a mut dyn FnMut(Map<String, Value>),
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Option<i64>;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Option<i64>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a Chrome trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut base = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(Each { each: &mut *self.each })?,
                "baseTimeNanoseconds" => base = map.next_value::<Value>()?.as_i64(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(base)
    }
}

/// Its events.
struct Each<'a> {
    each: &'a mut dyn FnMut(Map<String, Value>),
}

impl<'de> DeserializeSeed<'de> for Each<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Each<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element()? {
            (self.each)(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(folder: &std::path::Path, name: &str, pid: u32, shift_us: i64, trace: &Value) -> Part {
        let path = folder.join(name);
        std::fs::write(&path, trace.to_string()).unwrap();
        Part { path, name: name.to_owned(), pid, shift_us: Some(shift_us) }
    }

    fn merged(parts: &[Part]) -> Vec<Value> {
        let mut out = Vec::new();
        let count = merge(parts, &mut out).unwrap();
        let whole: Value = serde_json::from_slice(&out).unwrap();
        let events = whole["traceEvents"].as_array().unwrap().clone();
        assert_eq!(events.len() as u64, count);
        events
    }

    #[test]
    fn ranks_of_two_hosts_with_the_same_pids_stay_apart_and_are_aligned() {
        let folder = tempfile::tempdir().unwrap();
        let trace = |base: i64, at: f64| {
            json!({
                "schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": [
                    { "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 42, "ts": at, "dur": 10.5 },
                    { "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 4.25, "dur": 3 },
                    { "ph": "s", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 42, "tid": 42, "ts": at },
                    { "ph": "f", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": at + 4.25, "bp": "e" },
                    { "ph": "M", "name": "process_name", "pid": 42, "tid": 0, "ts": at, "args": { "name": "python" } },
                    { "ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": at, "args": { "name": "python" } },
                    { "ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": at, "args": { "labels": "GPU 0" } },
                    { "ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": at, "args": { "name": "stream 7" } },
                    { "ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": at, "dur": 9 },
                    { "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": at + 20.0 }
                ], "traceName": "t.json"
            })
        };
        // the second host's wall clock is 2 s ahead, and its file counts from another time
        let base = 1_790_857_026_000_000_000;
        let first = part(folder.path(), "rank 0 on a", 42, 0, &trace(base, 4_530_796_294_554.091));
        let second = part(
            folder.path(),
            "rank 1 on b",
            42,
            -2_000_000,
            &trace(base + 2_000_000_000, 4_530_796_294_654.591),
        );
        let events = merged(&[first, second]);
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        let ops = named("aten::mm");
        assert_eq!((ops[0]["ts"].as_f64(), ops[1]["ts"].as_f64()), (Some(0.0), Some(100.5)));
        assert_eq!(ops[0]["dur"], json!(10.5));
        let kernels = named("gemm");
        assert_eq!(kernels[1]["ts"].as_f64(), Some(104.75));
        let pids: std::collections::BTreeSet<i64> =
            [&ops[..], &kernels[..]].concat().iter().map(|event| event["pid"].as_i64().unwrap()).collect();
        assert_eq!(pids.len(), 4, "none is shared");
        let tids = events.iter().map(|event| event["tid"].as_i64().unwrap());
        assert!(tids.max() < pids.first().copied(), "no thread is the main one of another process");
        let ranks: Vec<(&Value, &str)> = named("process_name")
            .iter()
            .map(|event| (&event["pid"], event["args"]["name"].as_str().unwrap()))
            .collect();
        for (pid, name) in [
            (&ops[0]["pid"], "rank 0 on a"),
            (&ops[1]["pid"], "rank 1 on b"),
            (&kernels[1]["pid"], "rank 1 on b · GPU 0"),
        ] {
            assert!(ranks.contains(&(pid, name)), "{ranks:?}");
        }
        let ids: Vec<&Value> = events.iter().filter_map(|event| event.get("id")).collect();
        assert!(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");
        assert!(
            events.iter().all(|event| event["pid"].is_u64() && event["tid"].is_u64()),
            "numbers for viewers"
        );
    }

    #[test]
    fn times_since_the_epoch_are_understood_and_a_torn_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let old = json!({ "traceEvents": [{ "ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1_790_857_026_000_000_i64, "dur": 1 }] });
        let new = json!({ "baseTimeNanoseconds": 1_790_857_026_000_000_000_i64, "traceEvents": [
            { "ph": "X", "name": "b", "pid": 1, "tid": 1, "ts": 7.5, "dur": 1 }] });
        let parts = [part(folder.path(), "old", 1, 0, &old), part(folder.path(), "new", 1, 0, &new)];
        let events = merged(&parts);
        let at =
            |name: &str| events.iter().find(|event| event["name"] == name).unwrap()["ts"].as_f64().unwrap();
        assert_eq!((at("a"), at("b")), (0.0, 7.5));
        let text = new.to_string();
        std::fs::write(&parts[1].path, &text[..text.len() - 3]).unwrap();
        let error = merge(&parts, Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("kernel trace of new: "), "{error}");
        assert_eq!(merged(&[]).len(), 0);
    }
}
