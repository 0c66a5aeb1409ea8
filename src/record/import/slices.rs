//! Traces that other programs write in Chrome's format, such as JAX, TensorFlow and viztracer: the slices of one name are the steps,
//! and what is named as a phase on the step's own thread is that phase.

use std::collections::BTreeMap;

use super::intervals::Span;
use super::trace_event::TraceEvent;
use crate::domain::text::sanitize;
use crate::domain::timing::Phase;
use crate::domain::units::counted;

/// Slices' names that are told apart.
const MOST_NAMES: usize = 1 << 12;
/// Threads whose open slices are followed, and how deep.
const MOST_THREADS: usize = 1 << 12;
const MOST_DEEP: usize = 1 << 10;
/// Letters of a name.
const MOST_NAME: usize = 256;
/// Names that are told where none is a step's.
const MOST_TOLD: usize = 5;
/// What a step is called where nothing else says it, the likeliest first; in small letters, without what is between them.
const STEPS: [&str; 10] = [
    "trainstep",
    "trainingstep",
    "step",
    "trainonestep",
    "trainbatch",
    "trainiteration",
    "trainingiteration",
    "iteration",
    "iter",
    "globalstep",
];
/// Arguments that are a step's number.
const NUMBERS: [&str; 3] = ["step_num", "step", "iteration"];

/// How the fetching of a batch is called, in small letters.
const DATA: [&str; 9] = [
    "dataload",
    "loaddata",
    "getdata",
    "dataiter",
    "loadbatch",
    "nextbatch",
    "getbatch",
    "fetchbatch",
    "inputpipeline",
];

/// What a slice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A step, by its number where it has one.
    Step(Option<u64>),
    /// A part of one.
    Part(Phase),
}

/// The fold over the slices of a file.
#[derive(Debug)]
pub(super) struct Slices {
    step: String,
    /// Of each thread, what began and has not ended.
    open: BTreeMap<String, Vec<(Option<Told>, i64)>>,
}

impl Slices {
    /// Steps are the slices of this name.
    pub(super) fn new(step: &str) -> Self {
        Self { step: step.to_owned(), open: BTreeMap::new() }
    }

    /// A file is over: what is open in it stays without an end.
    pub(super) fn end_file(&mut self) {
        self.open.clear();
    }

    /// The thread, what it did, and from when to when; `None` of what is neither a step nor a phase, and of what has not ended.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) -> Option<(String, Told, Span)> {
        match event.phase() {
            "X" => {
                let told = self.told(event)?;
                Some((thread(event), told, event.span()?))
            }
            "B" => {
                let (told, from) = (self.told(event), event.ts.nanos()?);
                let thread = thread(event);
                if self.open.len() < MOST_THREADS || self.open.contains_key(&thread) {
                    let stack = self.open.entry(thread).or_default();
                    // what lies deeper is counted, so that its end is not another one's
                    stack.push((told.filter(|_| stack.len() < MOST_DEEP), from));
                }
                None
            }
            "E" => {
                let thread = thread(event);
                let (told, from) = self.open.get_mut(&thread)?.pop()?;
                let to = event.ts.nanos()?;
                told.map(|told| (thread, told, (from, to.max(from))))
            }
            _ => None,
        }
    }

    fn told(&self, event: &TraceEvent<'_>) -> Option<Told> {
        let name = event.name.text();
        if name == self.step || base(name) == self.step {
            let told = NUMBERS.iter().find_map(|name| event.args.get(name).count());
            return Some(Told::Step(told.or_else(|| number(name))));
        }
        phase(name).map(Told::Part)
    }
}

/// The names of slices, by which the step is found.
#[derive(Debug, Default)]
pub(super) struct Census {
    counts: BTreeMap<String, (u64, usize)>,
}

impl Census {
    /// Counts a slice.
    pub(super) fn add(&mut self, event: &TraceEvent<'_>) {
        if !matches!(event.phase(), "X" | "B") {
            return;
        }
        let name = base(event.name.text());
        if let Some((count, likely)) = self.counts.get_mut(name) {
            *count += 1;
            *likely = (*likely).min(likeliness(name, event));
        } else if self.counts.len() < MOST_NAMES && !name.is_empty() && name.len() <= MOST_NAME {
            self.counts.insert(name.to_owned(), (1, likeliness(name, event)));
        }
    }

    /// Whether there are no slices.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether there are slices of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.counts.contains_key(name) || self.counts.contains_key(base(name))
    }

    /// The name of the slices that are most likely steps.
    pub(super) fn step(&self) -> Option<&str> {
        let likely = self.counts.iter().filter(|(_, (_, likely))| *likely <= STEPS.len());
        likely.min_by_key(|(_, (_, likely))| *likely).map(|(name, _)| &**name)
    }

    /// What is there most often, in words: `forward` (12 times).
    pub(super) fn most_frequent(&self) -> String {
        let mut all: Vec<(&String, u64)> =
            self.counts.iter().map(|(name, (count, _))| (name, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let names = all.iter().take(MOST_TOLD);
        let names = names.map(|(name, count)| format!("`{}` ({})", sanitize(name), counted(*count, "time")));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// How likely slices of this name are steps: 0 is the likeliest, more than [`STEPS`] has are none.
fn likeliness(name: &str, event: &TraceEvent<'_>) -> usize {
    if event.args.get("step_num").count().is_some() {
        return 0;
    }
    let last = name.rsplit(['.', ':']).next().unwrap_or(name);
    let plain: String =
        last.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    STEPS.iter().position(|known| *known == plain).map_or(usize::MAX, |at| at + 1)
}

/// A name without what differs from one slice to the next or is no name: `step 12` and `step#12` are `step`, as is
/// `step (train.py:6)`.
pub(super) fn base(name: &str) -> &str {
    let name = name.split_once(" (").map_or(name, |(name, _)| name);
    name.trim_end_matches(|letter: char| letter.is_ascii_digit() || " #_:=-/".contains(letter))
}

/// The number at the end of a name.
fn number(name: &str) -> Option<u64> {
    let name = name.split_once(" (").map_or(name, |(name, _)| name);
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name.get(name.len() - digits..)?.parse().ok()
}

/// What a slice's name says of its work.
fn phase(name: &str) -> Option<Phase> {
    let name = name.split_once(" (").map_or(name, |(name, _)| name);
    let lower = name.to_ascii_lowercase();
    let words = || lower.split(|letter: char| !letter.is_ascii_alphanumeric());
    let says = |some: &[&str]| words().any(|word| some.contains(&word));
    let joined: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let holds = |some: &[&str]| some.iter().any(|part| joined.contains(part));
    if holds(&["allreduce", "reducescatter", "allgather", "alltoall"]) || says(&["nccl", "gloo", "comm"]) {
        return Some(Phase::Transfer);
    }
    let ways = [
        (Phase::Forward, holds(&["forward"]) || says(&["fwd"])),
        (Phase::Backward, holds(&["backward", "backprop"]) || says(&["bwd"])),
        (Phase::Optimizer, holds(&["optimizer", "applygradients"]) || says(&["optim", "opt"])),
        (Phase::Data, holds(&DATA) || ["data", "input", "batch"].contains(&&*joined)),
    ];
    // `forward_backward` is neither
    let mut said = ways.into_iter().filter(|(_, says)| *says).map(|(phase, _)| phase);
    said.next().filter(|_| said.next().is_none())
}

fn thread(event: &TraceEvent<'_>) -> String {
    format!("{}\n{}", event.pid.key(), event.tid.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(slices: &mut Slices, texts: &[&str]) -> Vec<(Told, Span)> {
        let read = |text: &&str| {
            let event = TraceEvent::read(text.as_bytes()).unwrap();
            slices.take(&event).map(|(_, told, span)| (told, span))
        };
        texts.iter().filter_map(read).collect()
    }

    #[test]
    fn names_are_compared_without_numbers_and_places() {
        for (name, is, number_is) in [
            ("train_step", "train_step", None),
            ("train_step (/home/a/train.py:6)", "train_step", None),
            ("Step 12", "Step", Some(12)),
            ("step#3", "step", Some(3)),
            ("0", "", Some(0)),
            ("iteration=7", "iteration", Some(7)),
        ] {
            assert_eq!((base(name), number(name)), (is, number_is), "{name}");
        }
    }

    #[test]
    fn phases_are_told_by_their_names() {
        for (name, is) in [
            ("forward", Some(Phase::Forward)),
            ("Net.forward (net.py:3)", Some(Phase::Forward)),
            ("bwd-microstep", Some(Phase::Backward)),
            ("forward_backward_func", None),
            ("optimizer_step", Some(Phase::Optimizer)),
            ("tf.apply_gradients", Some(Phase::Optimizer)),
            ("load_batch", Some(Phase::Data)),
            ("data", Some(Phase::Data)),
            ("hvd.AllReduce", Some(Phase::Transfer)),
            ("common", None),
            ("metadata", None),
            ("ShardedInputs data", None),
            ("sleep", None),
        ] {
            assert_eq!(phase(name), is, "{name}");
        }
    }

    #[test]
    fn slices_are_whole_or_begin_and_end_on_their_thread() {
        let mut slices = Slices::new("train");
        let all = told(
            &mut slices,
            &[
                r#"{"ph":"B","name":"train 7","ts":1,"pid":1,"tid":1}"#,
                r#"{"ph":"B","name":"other","ts":2,"pid":1,"tid":1}"#,
                r#"{"ph":"B","name":"forward","ts":2.5,"pid":1,"tid":2}"#,
                r#"{"ph":"E","ts":3,"pid":1,"tid":1}"#,
                r#"{"ph":"E","ts":9,"pid":1,"tid":1}"#,
                r#"{"ph":"E","ts":9,"pid":1,"tid":1}"#,
                r#"{"ph":"E","ts":4,"pid":1,"tid":2}"#,
                r#"{"ph":"X","name":"train","ts":10,"dur":2,"args":{"step_num":"8"}}"#,
                r#"{"ph":"i","name":"train","ts":11}"#,
            ],
        );
        let forward = (Told::Part(Phase::Forward), (2_500, 4_000));
        let steps = [(Told::Step(Some(7)), (1_000, 9_000)), forward, (Told::Step(Some(8)), (10_000, 12_000))];
        assert_eq!(all, steps);
    }

    #[test]
    fn the_likeliest_name_is_the_step() {
        let census = |texts: &[&str]| {
            let mut census = Census::default();
            texts.iter().for_each(|text| census.add(&TraceEvent::read(text.as_bytes()).unwrap()));
            census
        };
        let x = |name: &str| format!(r#"{{"ph":"X","name":"{name}","ts":1,"dur":1}}"#);
        let all = census(&[&x("step 1"), &x("step 2"), &x("Trainer.train_step"), &x("forward")]);
        assert_eq!(all.step(), Some("Trainer.train_step"));
        let marked = r#"{"ph":"X","name":"fit","ts":1,"dur":1,"args":{"step_num":"0"}}"#;
        assert_eq!(census(&[&x("train_step"), marked]).step(), Some("fit"));
        let none = census(&[&x("b 1"), &x("b 2"), &x("a")]);
        assert_eq!((none.step(), &*none.most_frequent()), (None, "`b` (2 times), `a` (1 time)"));
    }
}
