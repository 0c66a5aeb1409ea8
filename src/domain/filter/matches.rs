//! Whether an expression holds: what is not known is neither true nor false, and what may become known could be either.

use std::borrow::Cow;

use super::{Amount, Expr, Field, GpuSubject, Op, Pattern, Subject, Test, Unit, Word};
use crate::domain::gpu::Reading;

/// Which state of a GPU is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// As it is.
    Now,
    /// As if nothing were on it. What then changes for other reasons, such as its temperature, is unknown.
    Freed,
}

/// Which answers an expression can give: one where it is known, none where it never will be, both where it may become
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Whether it can hold.
    pub(super) yes: bool,
    /// Whether its opposite can.
    pub(super) no: bool,
}

/// Why something is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// It has not come, or could not be read.
    Yet,
    /// A GPU of that sort does not tell it.
    Ever,
}

impl Answer {
    fn of(known: Result<bool, Unknown>, when: When) -> Self {
        match known {
            Ok(yes) => Self { yes, no: !yes },
            Err(Unknown::Yet) if when == When::Freed => Self { yes: true, no: true },
            Err(_) => Self { yes: false, no: false },
        }
    }

    /// Whether it is not known for ever.
    pub(super) fn is_never_known(self) -> bool {
        !self.yes && !self.no
    }
}

impl Expr {
    /// Whether it holds, or could.
    pub(super) fn answer(&self, subject: &Subject<'_>, when: When) -> Answer {
        let answers = |of: &[Self]| of.iter().map(|expr| expr.answer(subject, when)).collect::<Vec<_>>();
        match self {
            Self::Or(any) => {
                let any = answers(any);
                Answer { yes: any.iter().any(|one| one.yes), no: any.iter().all(|one| one.no) }
            }
            Self::And(all) => {
                let all = answers(all);
                Answer { yes: all.iter().all(|one| one.yes), no: all.iter().any(|one| one.no) }
            }
            Self::Not(of) => {
                let Answer { yes, no } = of.answer(subject, when);
                Answer { yes: no, no: yes }
            }
            Self::Test(test) => Answer::of(test.holds(subject, when), when),
        }
    }

    /// The expressions that must all hold for this one to hold.
    pub(super) fn clauses(&self) -> &[Self] {
        match self {
            Self::And(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// Whether it asks for the age of what is on a GPU.
    pub(super) fn asks_age(&self) -> bool {
        match self {
            Self::Or(of) | Self::And(of) => of.iter().any(Self::asks_age),
            Self::Not(of) => of.asks_age(),
            Self::Test(test) => matches!(test, Test::Number { field: Field::Age, .. }),
        }
    }
}

impl Test {
    fn holds(&self, subject: &Subject<'_>, when: When) -> Result<bool, Unknown> {
        let gpu = || subject.gpu.as_ref().ok_or(Unknown::Ever);
        match self {
            Self::Word(word) => word.holds(gpu()?, when).ok_or(Unknown::Yet),
            Self::Number { field, op, amount } => {
                Ok(op.holds(number(*field, amount.unit, gpu()?, when)?, *amount))
            }
            Self::Equal { field: Field::User, not, text } if text.eq_ignore_ascii_case("free") => {
                Word::Free.holds(gpu()?, when).map(|free| free != *not).ok_or(Unknown::Yet)
            }
            Self::Equal { field, not, text } => {
                let is = |value: &str| value.eq_ignore_ascii_case(text);
                let values = texts(*field, subject, when).ok_or(Unknown::Yet)?;
                Ok(values.iter().any(|value| is(value)) != *not)
            }
            Self::Like { field, not, pattern } => {
                let values = texts(*field, subject, when).ok_or(Unknown::Yet)?;
                Ok(values.iter().any(|value| pattern.is_in(value)) != *not)
            }
            Self::Any(pattern) => {
                let fields = [Field::Host, Field::Model, Field::User, Field::Cmd];
                // The host's name is known always: what else is unknown holds no text.
                let found = |field| {
                    texts(field, subject, when)
                        .is_some_and(|values| values.iter().any(|value| pattern.is_in(value)))
                };
                Ok(fields.into_iter().any(found))
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

/// The value of a reading.
fn known<T: Copy>(reading: &Reading<T>) -> Result<T, Unknown> {
    match reading {
        Reading::Value(value) => Ok(*value),
        Reading::Failed { .. } => Err(Unknown::Yet),
        Reading::Unsupported => Err(Unknown::Ever),
    }
}

fn number(field: Field, unit: Unit, gpu: &GpuSubject<'_>, when: When) -> Result<f64, Unknown> {
    match (field, when) {
        (Field::Gpu, _) => return Ok(f64::from(gpu.info.index)),
        (Field::Age, When::Now) => return gpu.age_us.map(|age| age as f64 / 1e6).ok_or(Unknown::Yet),
        // What is free has no process, and so no age.
        (Field::Age, When::Freed) => return Err(Unknown::Ever),
        _ => {}
    }
    let sample = gpu.sample.ok_or(Unknown::Yet)?;
    // What is zero when nothing is on the GPU needs no value then, but one that can be told.
    let used = |reading: Result<u64, Unknown>| match (reading, when) {
        (Ok(_) | Err(Unknown::Yet), When::Freed) => Ok(0),
        (reading, _) => reading,
    };
    let percent = |part: f64, whole: f64| {
        if whole > 0.0 { Ok(part / whole * 100.0) } else { Err(Unknown::Yet) }
    };
    let memory = |value: u64| {
        if unit == Unit::Percent {
            percent(value as f64, known(&sample.memory_total)? as f64)
        } else {
            Ok(value as f64)
        }
    };
    match field {
        Field::Util => Ok(used(known(&sample.util).map(u64::from))? as f64),
        Field::Mem => memory(used(known(&sample.memory_used))?),
        Field::MemFree => {
            let used = used(known(&sample.memory_used))?;
            memory(known(&sample.memory_total)?.saturating_sub(used))
        }
        // When nothing is on the GPU any more they change, and nothing says to what.
        Field::Temp => at(f64::from(known(&sample.temperature)?), when),
        Field::Power => {
            let milliwatts = f64::from(known(&sample.power_mw)?);
            let limit = || Ok(f64::from(known(&sample.power_limit_mw)?));
            let watts = milliwatts / 1000.0;
            at(if unit == Unit::Percent { percent(milliwatts, limit()?)? } else { watts }, when)
        }
        _ => Err(Unknown::Ever),
    }
}

/// A value that is known of the present alone.
fn at(value: f64, when: When) -> Result<f64, Unknown> {
    if when == When::Now { Ok(value) } else { Err(Unknown::Yet) }
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
