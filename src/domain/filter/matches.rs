//! Whether an expression holds, in three values: what is not known is neither true nor false.

use std::borrow::Cow;

use super::{Amount, Expr, Field, GpuSubject, Op, Pattern, Subject, Test, Unit, Word};

/// Which state of a GPU is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// As it is.
    Now,
    /// As if nothing were on it. What then changes for other reasons, such as its temperature, is unknown.
    Freed,
}

impl Expr {
    /// Whether it holds; `None` where that depends on something that is not known.
    pub(super) fn holds(&self, subject: &Subject<'_>, when: When) -> Option<bool> {
        match self {
            Self::Or(any) => among(any, subject, when, true),
            Self::And(all) => among(all, subject, when, false),
            Self::Not(of) => of.holds(subject, when).map(|holds| !holds),
            Self::Test(test) => test.holds(subject, when),
        }
    }

    /// The expressions that must all hold for this one to hold.
    pub(super) fn clauses(&self) -> &[Self] {
        match self {
            Self::And(all) => all,
            one => std::slice::from_ref(one),
        }
    }
}

/// `decides` as soon as one is so; else unknown where one is unknown, else the opposite.
fn among(of: &[Expr], subject: &Subject<'_>, when: When, decides: bool) -> Option<bool> {
    let mut known = true;
    for expr in of {
        match expr.holds(subject, when) {
            Some(holds) if holds == decides => return Some(decides),
            Some(_) => {}
            None => known = false,
        }
    }
    known.then_some(!decides)
}

impl Test {
    fn holds(&self, subject: &Subject<'_>, when: When) -> Option<bool> {
        match self {
            Self::Word(word) => word.holds(subject.gpu.as_ref()?, when),
            Self::Number { field, op, amount } => {
                let number = number(*field, amount.unit, subject.gpu.as_ref()?, when)?;
                Some(op.holds(number, *amount))
            }
            Self::Equal { field: Field::User, not, text } if text.eq_ignore_ascii_case("free") => {
                Word::Free.holds(subject.gpu.as_ref()?, when).map(|free| free != *not)
            }
            Self::Equal { field, not, text } => {
                let is = |value: &str| value.eq_ignore_ascii_case(text);
                Some(texts(*field, subject, when)?.iter().any(|value| is(value)) != *not)
            }
            Self::Like { field, not, pattern } => {
                Some(texts(*field, subject, when)?.iter().any(|value| pattern.is_in(value)) != *not)
            }
            Self::Any(pattern) => {
                let fields = [Field::Host, Field::Model, Field::User, Field::Cmd];
                let found =
                    |field| Some(texts(field, subject, when)?.iter().any(|value| pattern.is_in(value)));
                let found = fields.map(found);
                // The host's name is known always: what else is unknown holds no text.
                Some(found.contains(&Some(true)))
            }
        }
    }
}

impl Word {
    fn holds(self, gpu: &GpuSubject<'_>, when: When) -> Option<bool> {
        match (self, when) {
            (Self::Free, When::Now) => Some(gpu.free),
            (Self::Held, When::Now) => gpu.held,
            (Self::Idle, When::Now) => match (gpu.held, gpu.idle) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            (Self::Ok, When::Now) => gpu.faults().map(|faults| faults.is_empty()),
            (Self::Free, When::Freed) => Some(true),
            (Self::Held | Self::Idle, When::Freed) => Some(false),
            (Self::Ok, When::Freed) => None,
        }
    }
}

impl Op {
    /// Two amounts are equal when they are within half a unit.
    fn holds(self, number: f64, amount: Amount) -> bool {
        let factor = amount.unit.factor();
        let right = amount.number * factor;
        let equal = (number - right).abs() < 0.5 * factor;
        match self {
            Self::Equal => equal,
            Self::NotEqual => !equal,
            Self::Less => number < right,
            Self::LessEqual => number <= right,
            Self::Greater => number > right,
            Self::GreaterEqual => number >= right,
        }
    }
}

impl Pattern {
    fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Text(part) => {
                part.is_empty()
                    || text.as_bytes().windows(part.len()).any(|at| at.eq_ignore_ascii_case(part.as_bytes()))
            }
            Self::Regex(_, regex) => regex.is_match(text),
        }
    }
}

fn number(field: Field, unit: Unit, gpu: &GpuSubject<'_>, when: When) -> Option<f64> {
    let percent = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole * 100.0);
    match (field, when) {
        (Field::Gpu, _) => return Some(f64::from(gpu.info.index)),
        (Field::Age, When::Now) => return gpu.age_us.map(|age| age as f64 / 1e6),
        (Field::Util | Field::Mem, When::Freed) => return Some(0.0),
        (Field::Age | Field::Temp | Field::Power, When::Freed) => return None,
        _ => {}
    }
    let sample = gpu.sample?;
    let memory = |value: u64| {
        if unit == Unit::Percent {
            percent(value as f64, *sample.memory_total.value()? as f64)
        } else {
            Some(value as f64)
        }
    };
    match field {
        Field::Util => sample.util.value().map(|util| f64::from(*util)),
        Field::Mem => memory(*sample.memory_used.value()?),
        Field::MemFree => {
            let used = if when == When::Freed { 0 } else { *sample.memory_used.value()? };
            memory(sample.memory_total.value()?.saturating_sub(used))
        }
        Field::Temp => sample.temperature.value().map(|celsius| f64::from(*celsius)),
        Field::Power => {
            let milliwatts = f64::from(*sample.power_mw.value()?);
            if unit == Unit::Percent {
                percent(milliwatts, f64::from(*sample.power_limit_mw.value()?))
            } else {
                Some(milliwatts / 1000.0)
            }
        }
        _ => None,
    }
}

/// All values of a field of text; `None` where they are not known.
fn texts<'a>(field: Field, subject: &Subject<'a>, when: When) -> Option<Vec<Cow<'a, str>>> {
    let lease = |gpu: &GpuSubject<'a>| gpu.lease;
    let processes = |gpu: &GpuSubject<'a>| gpu.sample.and_then(|sample| sample.processes.value());
    match field {
        Field::Host => return Some(vec![Cow::Borrowed(subject.host)]),
        Field::Label => {
            return Some(subject.labels.iter().map(|label| Cow::Borrowed(label.as_str())).collect());
        }
        Field::User | Field::Cmd | Field::Run if when == When::Freed => {
            return subject.gpu.is_some().then(Vec::new);
        }
        Field::Health if when == When::Freed => return None,
        _ => {}
    }
    let gpu = subject.gpu.as_ref()?;
    match field {
        Field::Model => {
            let names = [gpu.info.name.as_str(), gpu.info.model()];
            Some(names.map(Cow::Borrowed).to_vec())
        }
        Field::User => {
            let of_lease = lease(gpu).and_then(|lease| lease.user.as_deref());
            let of_processes = processes(gpu);
            if of_processes.is_none() && of_lease.is_none() {
                return None;
            }
            let users = of_processes.into_iter().flatten().filter_map(|process| process.user.value());
            Some(users.map(String::as_str).chain(of_lease).map(Cow::Borrowed).collect())
        }
        Field::Cmd => {
            let commands = processes(gpu)?.iter().filter_map(|process| process.command.value());
            Some(commands.map(|command| Cow::Borrowed(command.as_str())).collect())
        }
        Field::Run => {
            let leased = lease(gpu);
            let of_lease = leased.and_then(|lease| lease.run.as_ref());
            let name = leased.and_then(|lease| lease.name.as_deref());
            let of_processes = processes(gpu).into_iter().flatten();
            let of_processes = of_processes.filter_map(|process| Some(&process.run.as_ref()?.id));
            let own = gpu.run.map(|(run, _)| run);
            let ids = of_processes.chain(of_lease).chain(own);
            let ids = ids.flat_map(|id| [Cow::Borrowed(id.short()), Cow::Owned(id.to_string())]);
            let names = name.into_iter().chain(gpu.run.map(|(_, name)| name));
            Some(ids.chain(names.map(Cow::Borrowed)).collect())
        }
        Field::Health => {
            let words: Vec<_> = gpu.faults()?.into_iter().map(|fault| Cow::Owned(fault.words)).collect();
            Some(if words.is_empty() { vec![Cow::Borrowed("ok")] } else { words })
        }
        _ => None,
    }
}
