//! Traces that other programs write in Chrome's format, such as JAX and viztracer: the slices of one name are the steps,
//! and what is named as a phase on the step's own thread is that phase.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    "trainonestep",
    "trainbatch",
    "trainiteration",
    "trainingiteration",
    "step",
    "globalstep",
    "iteration",
    "iter",
];
/// So many of them are a step also where they are a function of something: `Trainer.train_step`, but not `Adam.step`.
const STEPS_OF_ANYTHING: usize = 6;
/// As likely as this nothing else is: what has a `step_num`, and a `train_step`.
const SURE: usize = 1;
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
    open: BTreeMap<String, Open>,
    /// Slices that are neither a step nor a phase.
    pub(super) others: u64,
    /// Steps and phases that did not end, and ends of nothing that is known.
    pub(super) unended: u64,
}

/// What began on a thread and has not ended, the outermost first.
#[derive(Debug, Default)]
struct Open {
    begun: Vec<Begun>,
    /// What lies deeper is only counted.
    deeper: u64,
}

#[derive(Debug)]
struct Begun {
    name: u64,
    told: Option<Told>,
    from: Option<i64>,
}

impl Slices {
    /// Steps are the slices of this name.
    pub(super) fn new(step: &str) -> Self {
        Self { step: step.to_owned(), open: BTreeMap::new(), others: 0, unended: 0 }
    }

    /// A file is over: what is open in it stays without an end.
    pub(super) fn end_file(&mut self) {
        let open = std::mem::take(&mut self.open);
        let open = open.values().flat_map(|open| &open.begun);
        self.unended += open.filter(|begun| begun.told.is_some()).count() as u64;
    }

    /// The thread, what it did, and from when to when; `None` of what is neither a step nor a phase, and of what has not ended.
    pub(super) fn take(&mut self, event: &TraceEvent<'_>) -> Option<(String, Told, Span)> {
        match event.phase() {
            "X" => {
                let told = self.counted(event)?;
                Some((thread(event), told, event.span()?))
            }
            "B" => {
                let told = self.counted(event);
                let thread = thread(event);
                if self.open.len() < MOST_THREADS || self.open.contains_key(&thread) {
                    let open = self.open.entry(thread).or_default();
                    if open.begun.len() < MOST_DEEP {
                        let (name, from) = (hash(event.name.text()), event.ts.nanos());
                        open.begun.push(Begun { name, told, from });
                    } else {
                        open.deeper += 1;
                    }
                } else {
                    self.unended += u64::from(told.is_some());
                }
                None
            }
            "E" => {
                let thread = thread(event);
                let open = self.open.get_mut(&thread)?;
                if open.deeper > 0 {
                    open.deeper -= 1;
                    return None;
                }
                // where it says what ends, what began within that and has not ended never will
                let name = event.name.text();
                let at = if name.is_empty() {
                    open.begun.len().checked_sub(1)
                } else {
                    open.begun.iter().rposition(|begun| begun.name == hash(name))
                };
                let ended = open.begun.drain(at?..).collect::<Vec<_>>();
                if open.begun.is_empty() {
                    self.open.remove(&thread);
                }
                let (ended, lost) = ended.split_first()?;
                self.unended += lost.iter().filter(|begun| begun.told.is_some()).count() as u64;
                let (from, to) = ended.from.zip(event.ts.nanos())?;
                ended.told.map(|told| (thread, told, (from, to.max(from))))
            }
            _ => None,
        }
    }

    fn counted(&mut self, event: &TraceEvent<'_>) -> Option<Told> {
        let told = self.told(event);
        self.others += u64::from(told.is_none());
        told
    }

    fn told(&self, event: &TraceEvent<'_>) -> Option<Told> {
        let name = plain(event.name.text());
        let is_whole = name == self.step;
        if is_whole || base(name) == self.step {
            let told = NUMBERS.iter().find_map(|name| event.args.get(name).count());
            // a number that is part of the name is none of the step
            return Some(Told::Step(told.or_else(|| number(name).filter(|_| !is_whole))));
        }
        phase(name).map(Told::Part)
    }
}

/// The names of slices, by which the step is found.
#[derive(Debug, Default)]
pub(super) struct Census {
    asked: Option<String>,
    has_asked: bool,
    counts: BTreeMap<String, (u64, usize)>,
    /// How likely the likeliest is.
    least: Option<usize>,
}

impl Census {
    /// A census that also looks whether there are slices of this name.
    pub(super) fn new(asked: Option<&str>) -> Self {
        Self { asked: asked.map(str::to_owned), ..Self::default() }
    }

    /// Counts a slice.
    pub(super) fn add(&mut self, event: &TraceEvent<'_>) {
        if !matches!(event.phase(), "X" | "B") {
            return;
        }
        let whole = plain(event.name.text());
        let name = base(whole);
        self.has_asked |= self.asked.as_ref().is_some_and(|asked| asked == whole || asked == name);
        let likely = likeliness(name, event);
        if let Some((count, least)) = self.counts.get_mut(name) {
            *count += 1;
            *least = (*least).min(likely);
        } else if self.counts.len() < MOST_NAMES && !name.is_empty() && name.len() <= MOST_NAME {
            self.counts.insert(name.to_owned(), (1, likely));
        } else {
            return;
        }
        self.least = Some(self.least.map_or(likely, |least| least.min(likely)));
    }

    /// Whether there are no slices.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether more of the trace would change nothing: what was asked for is there, or nothing likelier can come.
    pub(super) fn is_sure(&self) -> bool {
        match self.asked {
            Some(_) => self.has_asked,
            None => self.least.is_some_and(|least| least <= SURE),
        }
    }

    /// The name of the slices that are steps: the one that was asked for, else the likeliest, of several that which is there most often.
    pub(super) fn step(&self) -> Option<&str> {
        if let Some(asked) = &self.asked {
            return Some(&**asked).filter(|_| self.has_asked);
        }
        let least = self.least.filter(|least| *least <= STEPS.len())?;
        let likeliest = self.counts.iter().filter(|(_, (_, likely))| *likely == least);
        likeliest.max_by_key(|(_, (count, _))| *count).map(|(name, _)| &**name)
    }

    /// What is there most often, in words: `forward` (12 times).
    pub(super) fn most_frequent(&self) -> String {
        let mut all: Vec<(&String, u64)> =
            self.counts.iter().map(|(name, (count, _))| (name, *count)).collect();
        all.sort_by_key(|(_, count)| Reverse(*count));
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
    let letters: String =
        last.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let known = STEPS.iter().position(|known| *known == letters);
    let is_meant = |at: &usize| *at < STEPS_OF_ANYTHING || last == name && !name.starts_with("__");
    known.filter(is_meant).map_or(usize::MAX, |at| at + 1)
}

/// A name without the place in the source: `train_step (train.py:6)` is `train_step`.
fn plain(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(name, _)| name)
}

/// A name without the number that differs from one slice to the next: `step 12` and `step#12` are `step`.
fn base(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit() || " #_:=-/".contains(letter))
}

/// The number at the end of a name.
fn number(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name.get(name.len() - digits..)?.parse().ok()
}

/// What a slice's name says of its work.
fn phase(name: &str) -> Option<Phase> {
    let lower = base(name).to_ascii_lowercase();
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

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Numbers the steps of a thread, which are given in the order of time: those without a number are counted, and where numbers begin
/// anew, as in each epoch, they go on behind the ones before. How many got another number than they have.
pub(super) fn numbered(steps: &[(Option<u64>, Span)]) -> (Vec<(u64, Span)>, u64) {
    let (mut newest, mut added, mut other) = (None::<u64>, 0_u64, 0);
    let number = |(told, span): &(Option<u64>, Span)| {
        let next = newest.map_or(0, |newest| newest.saturating_add(1));
        let mut number = told.map_or(next, |told| told.saturating_add(added));
        if number < next {
            added = added.saturating_add(next - number);
            number = next;
        }
        other += u64::from(told.is_some_and(|told| told != number));
        newest = Some(number);
        (number, *span)
    };
    (steps.iter().map(number).collect(), other)
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
    fn what_does_not_end_takes_no_other_end() {
        let mut slices = Slices::new("train_v2");
        let b = |name: &str, ts: u32| format!(r#"{{"ph":"B","name":"{name}","ts":{ts}}}"#);
        let e = |name: &str, ts: u32| format!(r#"{{"ph":"E","name":"{name}","ts":{ts}}}"#);
        let texts = [
            b("train_v2 (t.py:5)", 1),
            b("forward", 2),
            b("work", 3),
            e("train_v2 (t.py:5)", 9),
            e("never begun", 10),
        ];
        let all = told(&mut slices, &texts.each_ref().map(String::as_str));
        assert_eq!(all, [(Told::Step(None), (1_000, 9_000))]);
        assert_eq!((slices.others, slices.unended), (1, 1));
        // however deep
        let deep: Vec<String> =
            (0..2_000).map(|at| b("forward", at)).chain((0..2_000).map(|at| e("", 9_000 + at))).collect();
        let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
        assert_eq!(told(&mut slices, &deep).len(), MOST_DEEP);
        slices.end_file();
        assert_eq!((slices.open.len(), slices.unended), (0, 1));
    }

    #[test]
    fn steps_without_numbers_are_counted_and_epochs_go_on() {
        let of = |told: &[Option<u64>]| {
            let steps: Vec<_> = told.iter().zip(0..).map(|(told, at)| (*told, (at, at + 1))).collect();
            let (all, other) = numbered(&steps);
            (all.into_iter().map(|(number, _)| number).collect::<Vec<_>>(), other)
        };
        assert_eq!(of(&[None, None, None]), (vec![0, 1, 2], 0));
        assert_eq!(of(&[Some(5), Some(6), Some(9)]), (vec![5, 6, 9], 0));
        assert_eq!(of(&[Some(0), Some(1), Some(0), Some(1), Some(0)]), (vec![0, 1, 2, 3, 4], 3));
        assert_eq!(of(&[Some(u64::MAX), Some(0), None]).0, vec![u64::MAX; 3]);
    }

    #[test]
    fn the_likeliest_name_is_the_step() {
        let census = |texts: &[&str]| {
            let mut census = Census::default();
            for text in texts {
                census.add(&TraceEvent::read(text.as_bytes()).unwrap());
            }
            census
        };
        let x = |name: &str| format!(r#"{{"ph":"X","name":"{name}","ts":1,"dur":1}}"#);
        let all = census(&[&x("step 1"), &x("step 2"), &x("Trainer.train_step"), &x("forward")]);
        assert_eq!(all.step(), Some("Trainer.train_step"));
        let marked = r#"{"ph":"X","name":"fit","ts":1,"dur":1,"args":{"step_num":"0"}}"#;
        assert_eq!(census(&[&x("train_step"), marked]).step(), Some("fit"));
        // of two that are as likely the one that is there most often
        let (eval, train) = (marked.replace("fit", "eval"), marked.replace("fit", "train"));
        assert_eq!(census(&[&eval, &train, &train]).step(), Some("train"));
        for name in ["Adam.step", "DataLoader.__iter__", "__iter__", "torch::optim::SGD::step"] {
            assert_eq!(census(&[&x(name)]).step(), None, "{name}");
        }
        let none = census(&[&x("b 1"), &x("b 2"), &x("a")]);
        assert_eq!((none.step(), &*none.most_frequent()), (None, "`b` (2 times), `a` (1 time)"));
    }
}
