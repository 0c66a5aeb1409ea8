//! A dump of torch's flight recorder, the pickle that it writes on demand and when a collective takes too long, as the few
//! calls of it that matter. Its form: `torch/csrc/distributed/c10d/FlightRecorder.hpp`, versions 2.0 to 2.10 (torch 2.4
//! to 2.9), and 1.x (2.2, 2.3). Frames of Python are in it and stay there.

use std::collections::BTreeMap;

use super::{Call, CallState, GroupCalls};
use crate::domain::pickle::{Pickle, PickleError, Value};
use crate::domain::units::ranges;

/// The largest dump that is read, bytes.
pub const MOST: u64 = 32 << 20;
/// Process groups that are told of one process.
const GROUPS: usize = 32;
/// Calls before the first one that has not ended.
const BEFORE: usize = 4;
/// It and calls after it.
const FROM: usize = 12;
/// Letters of a name that are kept.
const LETTERS: usize = 48;
/// Members of a group that are read.
const MEMBERS: usize = 1 << 16;
/// Dimensions of a tensor, and tensors of a call, that are multiplied and added.
const DIMENSIONS: usize = 64;

/// Why a dump can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// It is no pickle of plain data.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// It is one, and no dump.
    #[error("no list of entries is in it")]
    NoEntries,
}

/// What a dump says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// The calls of each process group.
    pub groups: Vec<GroupCalls>,
    /// Whether the first call of the process is still in it.
    pub is_whole: bool,
}

/// Reads a dump.
///
/// # Errors
/// The bytes are none, or not all of it yet.
pub fn read(bytes: &[u8]) -> Result<Dump, DumpError> {
    let pickle = Pickle::read(bytes)?;
    let root = pickle.root();
    // before torch 2.2 it was the list alone
    let entries = if root.is_list() { Some(root) } else { root.get("entries") };
    let entries = entries.filter(|entries| entries.is_list());
    let config = root.get("pg_config");
    let Some(entries) = entries else {
        // torch leaves the list out while there is no entry
        return if config.is_some() {
            Ok(Dump { groups: Vec::new(), is_whole: true })
        } else {
            Err(DumpError::NoEntries)
        };
    };
    let is_whole = entries.items().next().is_none_or(|first| int(first, "record_id") == Some(0));
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for entry in entries.items() {
        let name = group_name(entry);
        if groups.len() >= GROUPS && !groups.contains_key(&name) {
            continue;
        }
        let group = groups.entry(name).or_insert_with(|| Group::new(root, entry));
        group.take(entry);
    }
    let groups = groups.into_iter().map(|((name, description), group)| {
        let members = members(config, &name, &description);
        let calls = group.calls;
        let last = calls.iter().filter(|call| !call.is_p2p).map(|call| call.number).max();
        let last = last.unwrap_or(0).max(group.enqueued);
        GroupCalls { name, description, members, last, calls: around(calls) }
    });
    Ok(Dump { groups: groups.collect(), is_whole })
}

/// The calls of one process group.
#[derive(Debug, Default)]
struct Group {
    calls: Vec<Call>,
    /// The number of the last collective that was called, and that has ended, by the recorder's own book.
    enqueued: u64,
    completed: u64,
}

impl Group {
    fn new(root: Value<'_>, entry: Value<'_>) -> Self {
        let id = int(entry, "pg_id").map(|id| id.to_string()).unwrap_or_default();
        let status = root.get("pg_status").and_then(|status| status.get(&id));
        // -1 before the first
        let number = |key| status.and_then(|status| int(status, key)).and_then(|n| u64::try_from(n).ok());
        let (enqueued, completed) = (number("last_enqueued_collective"), number("last_completed_collective"));
        Self { calls: Vec::new(), enqueued: enqueued.unwrap_or(0), completed: completed.unwrap_or(0) }
    }

    fn take(&mut self, entry: Value<'_>) {
        let is_p2p = entry.get("is_p2p").and_then(Value::bool).unwrap_or(false);
        let key = if is_p2p { "p2p_seq_id" } else { "collective_seq_id" };
        let number = int(entry, key).or_else(|| int(entry, "seq_id"));
        let Some(number) = number.and_then(|number| u64::try_from(number).ok()) else { return };
        let full = entry.get("profiling_name").and_then(Value::text).unwrap_or_default();
        let (backend, name) = full.split_once(':').unwrap_or(("", full));
        if let Some(last) =
            self.calls.last_mut().filter(|last| (last.number, last.is_p2p) == (number, is_p2p))
        {
            last.more = last.more.saturating_add(1);
            return;
        }
        let flag = |key| entry.get(key).and_then(Value::bool).unwrap_or(false);
        let state = entry.get("state").and_then(Value::text);
        // gloo's are never seen to end, only put away
        let is_done = state == Some("completed")
            || (backend == "gloo" && flag("retired"))
            || (!is_p2p && number <= self.completed);
        let state = match state {
            _ if is_done => CallState::Done,
            Some("started") => CallState::Started,
            _ => CallState::Scheduled,
        };
        let dtype = entry.get("input_dtypes").and_then(|dtypes| dtypes.items().next()?.text());
        self.calls.push(Call {
            number,
            name: word(name),
            state,
            is_p2p,
            values: entry.get("input_sizes").and_then(values),
            dtype: dtype.map(short_type).unwrap_or_default(),
            more: 0,
        });
    }
}

/// The calls around the first one that has not ended, and the last one of each kind.
fn around(calls: Vec<Call>) -> Vec<Call> {
    let first = calls.iter().position(|call| call.state != CallState::Done).unwrap_or(calls.len());
    let from = first.saturating_sub(BEFORE);
    let last = |is_p2p| calls.iter().rposition(|call| call.is_p2p == is_p2p);
    let last = [last(false), last(true)];
    let keeps = |at: usize| (from..first.saturating_add(FROM)).contains(&at) || last.contains(&Some(at));
    calls.into_iter().enumerate().filter(|(at, _)| keeps(*at)).map(|(_, call)| call).collect()
}

fn int(value: Value<'_>, key: &str) -> Option<i64> {
    value.get(key)?.int()
}

/// Name and description; torch 2.3 has the name alone.
fn group_name(entry: Value<'_>) -> (String, String) {
    let Some(group) = entry.get("process_group") else {
        return (int(entry, "pg_id").map(|id| id.to_string()).unwrap_or_default(), String::new());
    };
    if let Some(name) = group.text() {
        return (word(name), String::new());
    }
    let mut parts = group.items().map(|part| part.text().map(word).unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Who is in a group: `0-3`. Gloo keeps all groups of a process under one empty name, so that nothing is known there.
fn members(config: Option<Value<'_>>, name: &str, description: &str) -> String {
    let text = || {
        let (_, group) = config?.pairs().find(|(key, group)| {
            let found = group.get("desc").and_then(Value::text).map(word);
            key.text().is_some_and(|key| word(key) == name) && found.is_none_or(|found| found == description)
        })?;
        group.get("ranks")?.text()
    };
    let numbers = text().unwrap_or_default().trim_matches(['[', ']']).split(',').take(MEMBERS);
    let mut numbers: Vec<u32> = numbers.filter_map(|number| number.trim().parse().ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    ranges(numbers)
}

/// How many numbers tensors of these sizes have.
fn values(sizes: Value<'_>) -> Option<u64> {
    let tensor = |sizes: Value<'_>| {
        sizes
            .items()
            .take(DIMENSIONS)
            .try_fold(1u64, |product, size| product.checked_mul(u64::try_from(size.int()?).ok()?))
    };
    sizes.items().take(MEMBERS).try_fold(0u64, |sum, sizes| sum.checked_add(tensor(sizes)?))
}

/// A name as it may leave the host: letters, digits and a few signs.
fn word(text: &str) -> String {
    let keeps = |letter: char| {
        if letter.is_ascii_alphanumeric() || "_-<>.+/ ".contains(letter) { letter } else { '?' }
    };
    text.chars().take(LETTERS).map(keeps).collect()
}

/// `f32` for `Float`.
fn short_type(name: &str) -> String {
    let short = match name {
        "Float" => "f32",
        "Half" => "f16",
        "BFloat16" => "bf16",
        "Double" => "f64",
        "Byte" => "u8",
        "Char" => "i8",
        "Short" => "i16",
        "Int" => "i32",
        "Long" => "i64",
        "Bool" => "bool",
        other => return word(other).to_ascii_lowercase(),
    };
    short.to_owned()
}
