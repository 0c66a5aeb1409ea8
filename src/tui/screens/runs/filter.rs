//! The filter of the Runs screen: `failed`, `host~gpu-a age>30d`, or words of name, id and command. Pure; knows rows, not
//! keys.

use super::{RunRow, RunsState};
use crate::domain::time::Stamp;
use crate::domain::units::{parse_bytes, parse_duration};
use crate::launch::words::join;

/// A filter: every term must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunsFilter {
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
    State(RunsState),
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    Equal,
    Greater,
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunsFilterError {
    /// A name that is no field.
    #[error("'{0}' is no field: use state, name, host, cmd, kind, ranks, age, duration or size")]
    Field(String),
    /// A state that does not exist.
    #[error("'{0}' is no state: use running, done, failed, stopped, ended or unknown")]
    State(String),
    /// Something that is no number of this field.
    #[error("'{1}' is no {0}: write {2}")]
    Number(&'static str, String, &'static str),
    /// A text field with an order.
    #[error("'{0}' is text: use {0}~part")]
    TextOrder(String),
}

impl RunsFilter {
    /// Reads a filter: terms between blanks or `&`. An empty text lets everything through.
    pub fn parse(text: &str) -> Result<Self, RunsFilterError> {
        let terms = text.split(|c: char| c == '&' || c.is_whitespace()).filter(|term| !term.is_empty());
        Ok(Self { terms: terms.map(term).collect::<Result<_, _>>()? })
    }

    /// Whether it lets a run through. What is not known matches no number.
    pub(super) fn matches(&self, row: &RunRow<'_>, now: Stamp) -> bool {
        self.terms.iter().all(|term| term.what.holds(row, now) != term.not)
    }
}

impl What {
    fn holds(&self, row: &RunRow<'_>, now: Stamp) -> bool {
        match self {
            Self::State(state) => row.state() == *state,
            Self::Text(field, text) => has_text(row, *field, text),
            Self::Number(field, order, wanted) => {
                let value = match field {
                    NumberField::Ranks => Some(f64::from(row.spec.world())),
                    NumberField::Age => Some(now.micros_since(row.spec.created) as f64 / 1e6),
                    NumberField::Duration => row.duration_us(now).map(|micros| micros as f64 / 1e6),
                    NumberField::Size => row.recording.map(|recording| recording.bytes as f64),
                };
                value.is_some_and(|value| match order {
                    Order::Less => value < *wanted,
                    Order::Equal => (value - wanted).abs() < 0.5,
                    Order::Greater => value > *wanted,
                })
            }
        }
    }
}

fn has_text(row: &RunRow<'_>, field: TextField, text: &str) -> bool {
    let contains = |hay: &str| hay.to_lowercase().contains(text);
    let name = || contains(&row.spec.name);
    let host = || row.spec.hosts().iter().any(|host| contains(host.as_str()));
    let command = || contains(&join(&row.spec.command));
    match field {
        TextField::Name => name(),
        TextField::Host => host(),
        TextField::Command => command(),
        TextField::Kind => contains(row.spec.kind.name()),
        TextField::Any => name() || contains(row.spec.id.as_str()) || command() || host(),
    }
}

fn term(text: &str) -> Result<Term, RunsFilterError> {
    let (not, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let Some(at) = text.find(['<', '>', '=', '~']) else {
        let what = match RunsState::named(text) {
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
            Err(RunsFilterError::TextOrder(name.to_owned()))
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
        let wrong = || RunsFilterError::Number(name, rest[1..].to_owned(), example);
        Ok(What::Number(field, order, value.ok_or_else(wrong)?))
    };
    let length = || parse_duration(value).map(|length| length.as_secs_f64());
    let what = match name {
        "state" if ordered => return Err(RunsFilterError::TextOrder(name.to_owned())),
        "state" => {
            What::State(RunsState::named(value).ok_or_else(|| RunsFilterError::State(value.to_owned()))?)
        }
        "name" => of_text(TextField::Name)?,
        "host" => of_text(TextField::Host)?,
        "cmd" | "command" => of_text(TextField::Command)?,
        "kind" => of_text(TextField::Kind)?,
        "ranks" => number(NumberField::Ranks, "number of ranks", value.parse().ok(), "ranks>4")?,
        "age" => number(NumberField::Age, "age", length(), "age>30d or age<2h")?,
        "duration" => number(NumberField::Duration, "length of time", length(), "duration>90s")?,
        "size" => {
            number(NumberField::Size, "size", parse_bytes(value).map(|bytes| bytes as f64), "size>100M")?
        }
        _ => return Err(RunsFilterError::Field(name.to_owned())),
    };
    Ok(Term { not, what })
}
