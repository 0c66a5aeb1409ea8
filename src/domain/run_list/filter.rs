//! The filter of the list of runs: `failed`, `host~gpu-a age>30d loss<0.5`, or words of name, id and command.

use super::{ListedRun, ListedState};
use crate::domain::time::Stamp;
use crate::domain::units::{parse_age, parse_bytes, parse_duration};

/// A filter: every term must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFilter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    /// `!` stands before it.
    not: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    State(ListedState),
    Text(TextField, String),
    Number(NumberField, Order, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextField {
    Any,
    Name,
    Host,
    Command,
    Kind,
    /// The commit or the branch that was checked out: its beginning; `changed` where something differed from it.
    Git,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberField {
    Ranks,
    /// Seconds since its launch.
    Age,
    /// Seconds that it took so far.
    Duration,
    /// Bytes of its recording.
    Size,
    /// The last step of any rank.
    Step,
    /// The mean of the ranks' last losses.
    Loss,
    /// Samples a second of all ranks.
    Rate,
}

impl NumberField {
    /// How far a number may be from one that it equals.
    fn equal_within(self) -> f64 {
        match self {
            Self::Loss => 5e-5,
            _ => 0.5,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    Equal,
    Greater,
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFilterError {
    /// A name that is no field.
    #[error(
        "'{0}' is no field: use state, name, host, cmd, kind, git, ranks, age, duration, size, step, loss or rate"
    )]
    Field(String),
    /// A state that does not exist.
    #[error("'{0}' is no state: use running, done, failed, refused, stopped, imported, ended or unknown")]
    State(String),
    /// Something that is no number of this field.
    #[error("'{1}' is no {0}: write {2}")]
    Number(&'static str, String, &'static str),
    /// A text field with an order.
    #[error("'{0}' is text: use {0}~part")]
    TextOrder(String),
}

impl RunFilter {
    /// Reads a filter: terms between blanks or `&`. An empty text lets everything through.
    pub fn parse(text: &str) -> Result<Self, RunFilterError> {
        let terms = text.split(|c: char| c == '&' || c.is_whitespace()).filter(|term| !term.is_empty());
        Ok(Self { terms: terms.map(term).collect::<Result<_, _>>()? })
    }

    /// Whether it lets a run through. What is not known matches no number.
    pub fn matches(&self, run: &ListedRun<'_>, now: Stamp) -> bool {
        self.terms.iter().all(|term| term.what.holds(run, now) != term.not)
    }
}

impl What {
    fn holds(&self, run: &ListedRun<'_>, now: Stamp) -> bool {
        match self {
            Self::State(state) => run.state == *state,
            Self::Text(field, text) => has_text(run, *field, text),
            Self::Number(field, order, wanted) => {
                let value = match field {
                    NumberField::Ranks => Some(f64::from(run.spec.world())),
                    NumberField::Age => Some(now.micros_since(run.spec.created) as f64 / 1e6),
                    NumberField::Duration => run.duration_us.map(|micros| micros as f64 / 1e6),
                    NumberField::Size => run.bytes.map(|bytes| bytes as f64),
                    NumberField::Step => run.trained.map(|trained| trained.step as f64),
                    NumberField::Loss => run.trained.and_then(|trained| trained.loss).map(f64::from),
                    NumberField::Rate => run.trained.and_then(|trained| trained.samples_per_s).map(f64::from),
                };
                value.is_some_and(|value| match order {
                    Order::Less => value < *wanted,
                    Order::Equal => (value - wanted).abs() < field.equal_within(),
                    Order::Greater => value > *wanted,
                })
            }
        }
    }
}

fn has_text(run: &ListedRun<'_>, field: TextField, text: &str) -> bool {
    let contains = |hay: &str| hay.to_lowercase().contains(text);
    let name = || contains(&run.spec.name);
    let host = || run.spec.hosts().iter().any(|host| contains(host.as_str()));
    let command = || contains(&run.spec.command.join(" "));
    match field {
        TextField::Name => name(),
        TextField::Host => host(),
        TextField::Command => command(),
        TextField::Kind => contains(run.spec.kind.name()),
        TextField::Git => run.spec.code.as_ref().is_some_and(|code| {
            let is_of = |commit: &String| !text.is_empty() && commit.starts_with(text);
            let of_branch = |branch: &String| !text.is_empty() && branch.to_lowercase().starts_with(text);
            code.commit.as_ref().is_some_and(is_of)
                || code.branch.as_ref().is_some_and(of_branch)
                || text == "changed" && code.dirty.is_some()
        }),
        TextField::Any => name() || contains(run.spec.id.as_str()) || command() || host(),
    }
}

fn term(text: &str) -> Result<Term, RunFilterError> {
    let (not, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let Some(at) = text.find(['<', '>', '=', '~']) else {
        let what = match ListedState::named(text) {
            Some(state) => What::State(state),
            None => What::Text(TextField::Any, text.to_lowercase()),
        };
        return Ok(Term { not, what });
    };
    let (name, rest) = text.split_at(at);
    let (sign, value) = rest.split_at(1);
    let ordered = matches!(sign, "<" | ">");
    let of_text = |field| {
        if ordered {
            Err(RunFilterError::TextOrder(name.to_owned()))
        } else {
            Ok(What::Text(field, value.to_lowercase()))
        }
    };
    let order = match sign {
        "<" => Order::Less,
        ">" => Order::Greater,
        _ => Order::Equal,
    };
    let number = |field, name, value: Option<f64>, example| {
        let wrong = || RunFilterError::Number(name, rest[1..].to_owned(), example);
        Ok(What::Number(field, order, value.ok_or_else(wrong)?))
    };
    let length = || parse_duration(value).map(|length| length.as_secs_f64());
    let what = match name {
        "state" if ordered => return Err(RunFilterError::TextOrder(name.to_owned())),
        "state" => {
            What::State(ListedState::named(value).ok_or_else(|| RunFilterError::State(value.to_owned()))?)
        }
        "name" => of_text(TextField::Name)?,
        "host" => of_text(TextField::Host)?,
        "cmd" | "command" => of_text(TextField::Command)?,
        "kind" => of_text(TextField::Kind)?,
        "git" | "commit" => of_text(TextField::Git)?,
        "ranks" => number(NumberField::Ranks, "number of ranks", value.parse().ok(), "ranks>4")?,
        "age" => {
            let age = parse_age(value).map(|age| age.as_secs_f64());
            number(NumberField::Age, "age", age, "age>30d or age<2h")?
        }
        "duration" => number(NumberField::Duration, "length of time", length(), "duration>90s")?,
        "size" => {
            number(NumberField::Size, "size", parse_bytes(value).map(|bytes| bytes as f64), "size>100M")?
        }
        "step" => number(NumberField::Step, "step", value.parse().ok(), "step>1000")?,
        "loss" => number(NumberField::Loss, "loss", value.parse().ok(), "loss<0.5")?,
        "rate" => number(NumberField::Rate, "number of samples a second", value.parse().ok(), "rate>8000")?,
        _ => return Err(RunFilterError::Field(name.to_owned())),
    };
    Ok(Term { not, what })
}
