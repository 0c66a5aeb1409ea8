//! Which rank holds a collective up, from what each process has called: one that has not come to it, called another one, or
//! brought another number of values. A process that tells nothing is unknown, not late.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Call, CallState, GroupCalls, ProcessCollectives};
use crate::domain::units::ranges;

/// What torch calls the group of all ranks.
const DEFAULT: &str = "default_pg";
/// Collectives to which every rank brings the same, by their letters and digits.
const ALIKE: [&str; 9] = [
    "allreduce",
    "allreducebarrier",
    "broadcast",
    "reduce",
    "allgather",
    "allgatherbase",
    "reducescatter",
    "reducescatterbase",
    "barrier",
];
/// Places within one sentence.
const PLACES: usize = 4;

/// Where ranks differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// A sentence without a full stop.
    pub text: String,
    /// Those that hold the others up, by number in the training; empty where none stands out.
    pub culprits: Vec<u32>,
}

/// How sure a finding names the cause; the first is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Differ,
    Sizes,
    Late,
    /// Those that are late wait elsewhere themselves.
    LateAndWaiting,
    Left,
    AllIn,
}

struct Finding {
    kind: Kind,
    text: String,
    culprits: Vec<u32>,
}

/// The verdict on the processes of a run of so many ranks; `None` where none of them waits in a collective.
pub fn of<'a>(told: impl Iterator<Item = &'a ProcessCollectives>, ranks: u32) -> Option<Verdict> {
    let told: Vec<&ProcessCollectives> = told.collect();
    let mut numbers = BTreeSet::new();
    if told.iter().all(|process| numbers.insert(process.number())) {
        // processes within the ranks have numbers of their own
        let is_flat = told.iter().all(|process| process.worker.is_none());
        return Job::new(&told, if is_flat { 0..ranks } else { 0..0 }).verdict();
    }
    // every rank is a training of its own
    let mut by_rank: BTreeMap<_, Vec<&ProcessCollectives>> = BTreeMap::new();
    for process in told {
        by_rank.entry(process.rank).or_default().push(process);
    }
    by_rank.into_iter().find_map(|(rank, told)| {
        let verdict = Job::new(&told, 0..0).verdict()?;
        Some(Verdict { text: format!("within rank {rank}: {}", verdict.text), ..verdict })
    })
}

/// The name of a group and its members.
type Key<'a> = (&'a str, &'a str, &'a str);

/// The processes that train together.
struct Job<'a> {
    known: BTreeMap<u32, &'a ProcessCollectives>,
    /// Those that should have told and have not.
    unknown: BTreeSet<u32>,
    groups: BTreeMap<Key<'a>, BTreeMap<u32, &'a GroupCalls>>,
}

impl<'a> Job<'a> {
    fn new(told: &[&'a ProcessCollectives], expected: std::ops::Range<u32>) -> Self {
        let (known, silent): (Vec<&ProcessCollectives>, Vec<_>) =
            told.iter().partition(|process| process.lacks.is_none());
        let known: BTreeMap<u32, &ProcessCollectives> =
            known.into_iter().map(|process| (process.number(), process)).collect();
        let silent = silent.into_iter().map(ProcessCollectives::number);
        let unknown = silent.chain(expected).filter(|number| !known.contains_key(number)).collect();
        let mut groups: BTreeMap<Key<'_>, BTreeMap<u32, &GroupCalls>> = BTreeMap::new();
        for (number, process) in &known {
            for group in &process.groups {
                let key = (group.name.as_str(), group.description.as_str(), group.members.as_str());
                groups.entry(key).or_default().insert(*number, group);
            }
        }
        Self { known, unknown, groups }
    }

    fn verdict(&self) -> Option<Verdict> {
        let findings = self.groups.iter().flat_map(|(key, of)| {
            let waited: BTreeSet<u64> =
                of.values().filter_map(|group| waiting(group)).map(|call| call.number).collect();
            waited.into_iter().map(move |number| (key, of, number))
        });
        let found =
            findings.filter_map(|(key, of, number)| self.judge(key, of, number)).min_by_key(|f| f.kind)?;
        Some(Verdict { text: found.text, culprits: found.culprits })
    }

    /// What there is to say of the collective of this number in a group.
    fn judge(&self, key: &Key<'_>, of: &BTreeMap<u32, &GroupCalls>, number: u64) -> Option<Finding> {
        let mut at: BTreeMap<u32, &Call> = BTreeMap::new();
        let (mut late, mut left, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        let members = self.members(key, of);
        if members.len() < 2 {
            // alone it waits for no other one: the host is ahead of its GPU
            return None;
        }
        for member in members {
            let call = of.get(&member).map(|group| (group, collective(group, number)));
            match (call, self.known.get(&member)) {
                (Some((_, Some(call))), _) => drop(at.insert(member, call)),
                (Some((group, None)), _) if group.last < number => late.push(member),
                (Some(_), _) => left.push(member),
                (None, Some(process)) if process.is_whole => late.push(member),
                (None, _) => unknown.push(member),
            }
        }
        let waits: Vec<u32> =
            at.iter().filter(|(_, call)| call.state != CallState::Done).map(|(member, _)| *member).collect();
        let first = at.get(waits.first()?)?;
        left.extend(at.iter().filter(|(_, call)| call.state == CallState::Done).map(|(member, _)| *member));
        let of_group = group_words(key);
        let mut finding = if let Some(finding) = differing(&at, &of_group) {
            finding
        } else if late.is_empty() {
            let what = format!("{} of {of_group}", called(first));
            let (kind, text) = if left.is_empty() && unknown.is_empty() && waits.len() > 1 {
                (Kind::AllIn, format!("all {} ranks are in {what}, which does not end", waits.len()))
            } else if left.is_empty() {
                (Kind::AllIn, format!("{} in {what}", ranks_do(&waits, "waits", "wait")))
            } else {
                left.sort_unstable();
                let left = ranks_do(&left, "has left it", "have left it");
                (Kind::Left, format!("{} in {what}; {left}", ranks_do(&waits, "waits", "wait")))
            };
            Finding { kind, text, culprits: Vec::new() }
        } else {
            self.late(&late, &waits, (first, &of_group))
        };
        if !unknown.is_empty() {
            let are = if unknown.len() == 1 { "is" } else { "are" };
            let _ = write!(finding.text, "; {} {are} unknown", ranks_words(&unknown));
        }
        Some(finding)
    }

    fn late(&self, late: &[u32], waits: &[u32], (call, of_group): (&Call, &str)) -> Finding {
        let mut text = format!(
            "{} not come to {} of {of_group}; {} in it",
            ranks_do(late, "has", "have"),
            called(call),
            ranks_do(waits, "waits", "wait")
        );
        let mut elsewhere: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for number in late {
            if let Some(place) = self.waits_in(*number) {
                elsewhere.entry(place).or_default().push(*number);
            }
        }
        for (place, who) in elsewhere.iter().take(PLACES) {
            let _ = write!(text, "; {} in {place}", ranks_do(who, "waits", "wait"));
        }
        let waiting: usize = elsewhere.values().map(Vec::len).sum();
        let kind = if waiting < late.len() { Kind::Late } else { Kind::LateAndWaiting };
        Finding { kind, text, culprits: late.to_vec() }
    }

    /// Where a process waits.
    fn waits_in(&self, number: u32) -> Option<String> {
        let groups = &self.known.get(&number)?.groups;
        groups.iter().find_map(|group| {
            let call = group.calls.iter().find(|call| call.state != CallState::Done)?;
            Some(format!(
                "{} of {}",
                called(call),
                group_words(&(&group.name, &group.description, &group.members))
            ))
        })
    }

    fn members(&self, key: &Key<'_>, of: &BTreeMap<u32, &GroupCalls>) -> BTreeSet<u32> {
        let mut members: BTreeSet<u32> = of.keys().copied().collect();
        if !key.2.is_empty() {
            members.extend(listed(key.2));
        } else if is_default(key) {
            members.extend(self.known.keys().chain(&self.unknown));
        }
        members
    }
}

/// The first collective that a process waits for.
fn waiting(group: &GroupCalls) -> Option<&Call> {
    group.calls.iter().find(|call| !call.is_p2p && call.state != CallState::Done)
}

fn collective(group: &GroupCalls, number: u64) -> Option<&Call> {
    group.calls.iter().find(|call| !call.is_p2p && call.number == number)
}

/// Calls of the same number that are not the same.
fn differing(at: &BTreeMap<u32, &Call>, of_group: &str) -> Option<Finding> {
    // of several under one number only the first is known
    if at.values().any(|call| call.more > 0) {
        return None;
    }
    let mut by_name: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (member, call) in at {
        by_name.entry(&call.name).or_default().push(*member);
    }
    let number = at.values().next()?.number;
    if by_name.len() > 1 {
        let mut names: Vec<(&str, Vec<u32>)> = by_name.into_iter().collect();
        // those that most have called come last
        names.sort_by_key(|(_, who)| (who.len(), std::cmp::Reverse(who.clone())));
        let (most, who) = names.pop()?;
        let odd: Vec<String> =
            names.iter().map(|(name, who)| format!("{} called {name} #{number}", ranks_words(who))).collect();
        let text =
            format!("{} of {of_group} where {} called {most} #{number}", odd.join(", "), ranks_words(&who));
        let is_even = names.iter().any(|(_, odd)| odd.len() == who.len());
        let culprits =
            if is_even { Vec::new() } else { names.into_iter().flat_map(|(_, who)| who).collect() };
        return Some(Finding { kind: Kind::Differ, text, culprits });
    }
    let name: String = by_name.keys().next()?.chars().filter(char::is_ascii_alphanumeric).collect();
    if !ALIKE.contains(&name.as_str()) {
        return None;
    }
    let mut by_size: BTreeMap<(u64, &str), Vec<u32>> = BTreeMap::new();
    for (member, call) in at {
        by_size.entry((call.values?, &call.dtype)).or_default().push(*member);
    }
    if by_size.len() < 2 {
        return None;
    }
    let mut sizes: Vec<((u64, &str), Vec<u32>)> = by_size.into_iter().collect();
    sizes.sort_by_key(|(_, who)| (who.len(), std::cmp::Reverse(who.clone())));
    let (most, who) = sizes.pop()?;
    let odd: Vec<String> = sizes
        .iter()
        .map(|(size, who)| format!("{} brought {}", ranks_words(who), size_words(*size)))
        .collect();
    let name = at.values().next().map(|call| call.name.as_str()).unwrap_or_default();
    let (odd, others, size) = (odd.join(", "), ranks_words(&who), size_words(most));
    let text = format!("{odd} to {name} #{number} of {of_group}, {others} {size}");
    let is_even = sizes.iter().any(|(_, odd)| odd.len() == who.len());
    let culprits = if is_even { Vec::new() } else { sizes.into_iter().flat_map(|(_, who)| who).collect() };
    Some(Finding { kind: Kind::Sizes, text, culprits })
}

/// `all_reduce #63 (f32, 1 048 576 values)`.
fn called(call: &Call) -> String {
    let what = call.values.map(|values| {
        let dtype = if call.dtype.is_empty() { String::new() } else { format!("{}, ", call.dtype) };
        format!(" ({dtype}{})", count(values))
    });
    // sends and receives have names with both ends in them
    let number = if call.is_p2p { String::new() } else { format!(" #{}", call.number) };
    format!("{}{number}{}", call.name, what.unwrap_or_default())
}

fn size_words((values, dtype): (u64, &str)) -> String {
    let values = count(values);
    if dtype.is_empty() { values } else { format!("{values} ({dtype})") }
}

/// `1 048 576 values`.
fn count(values: u64) -> String {
    let digits = values.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text + if values == 1 { " value" } else { " values" }
}

fn is_default(key: &Key<'_>) -> bool {
    key.1 == DEFAULT || (key.1.is_empty() && matches!(key.0, "0" | DEFAULT))
}

fn group_words(key: &Key<'_>) -> String {
    match key {
        _ if is_default(key) => "the default group".to_owned(),
        (name, "" | "undefined", _) => format!("group {name}"),
        (_, description, _) => format!("group {description}"),
    }
}

/// `rank 1`, `ranks 0, 2-3`.
pub(super) fn ranks_words(numbers: &[u32]) -> String {
    let rank = if numbers.len() == 1 { "rank" } else { "ranks" };
    format!("{rank} {}", ranges(numbers.iter().copied()))
}

fn ranks_do(numbers: &[u32], one: &str, several: &str) -> String {
    format!("{} {}", ranks_words(numbers), if numbers.len() == 1 { one } else { several })
}

/// Numbers of a list that another host has sent: `0-3, 6`.
fn listed(text: &str) -> impl Iterator<Item = u32> {
    /// Members of a group that are looked at.
    const MOST: usize = 1 << 16;
    let spans = text.split(',').filter_map(|span| {
        let (first, last) = span.trim().split_once('-').unwrap_or((span.trim(), span.trim()));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    spans.flatten().take(MOST)
}
