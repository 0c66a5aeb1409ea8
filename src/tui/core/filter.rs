//! The filter of the Cluster screen: `free`, `util<5 & mem_free>40G & host~a`, or bare words.

use crate::domain::gpu::GpuSample;
use crate::domain::units;

/// A filter: every term must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    /// The GPU is free.
    Free,
    Number {
        field: Field,
        op: Op,
        value: f64,
    },
    Text {
        field: TextField,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Util,
    Mem,
    MemFree,
    Temp,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextField {
    Any,
    Host,
    Model,
    User,
    Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A name that is no field.
    #[error("'{0}' is no field: use util, mem, mem_free, temp, power, host, model, user or cmd")]
    Field(String),
    /// Something that is no number.
    #[error("'{0}' is no number: write 5, 40G or 80%")]
    Number(String),
    /// A text field with an order.
    #[error("'{0}' is text: use {0}~part")]
    TextOrder(String),
}

/// What a filter looks at: one GPU, or a host without any.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The host's name.
    pub host: &'a str,
    /// The GPU's model.
    pub model: Option<&'a str>,
    /// Its latest sample.
    pub gpu: Option<&'a GpuSample>,
    /// Whether it is a GPU that is free.
    pub free: bool,
}

impl Filter {
    /// Reads a filter; an empty text lets everything through.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let terms = text
            .split('&')
            .map(str::trim)
            .filter(|term| !term.is_empty())
            .map(term)
            .collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it asks which GPUs are free.
    pub fn asks_free(&self) -> bool {
        self.terms.contains(&Term::Free)
    }

    /// Whether it lets this through. What is not known matches no number.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Free => subject.free,
            Term::Number { field, op, value } => number(*field, subject).is_some_and(|n| op.holds(n, *value)),
            Term::Text { field, text } => has_text(*field, text, subject),
        })
    }
}

impl Op {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterEqual => left >= right,
            Self::Equal => (left - right).abs() < 0.5,
        }
    }
}

fn term(text: &str) -> Result<Term, FilterError> {
    let Some(at) = text.find(['<', '>', '=', '~']) else {
        if text == "free" {
            return Ok(Term::Free);
        }
        return Ok(Term::Text { field: TextField::Any, text: text.to_lowercase() });
    };
    let (name, rest) = text.split_at(at);
    let (op, rest) = match rest.as_bytes() {
        [b'<', b'=', ..] => (Some(Op::LessEqual), &rest[2..]),
        [b'>', b'=', ..] => (Some(Op::GreaterEqual), &rest[2..]),
        [b'<', ..] => (Some(Op::Less), &rest[1..]),
        [b'>', ..] => (Some(Op::Greater), &rest[1..]),
        [b'=', ..] => (Some(Op::Equal), &rest[1..]),
        _ => (None, &rest[1..]),
    };
    let (name, rest) = (name.trim(), rest.trim());
    let text_field = match name {
        "host" => Some(TextField::Host),
        "model" => Some(TextField::Model),
        "user" => Some(TextField::User),
        "cmd" | "command" => Some(TextField::Command),
        _ => None,
    };
    if let Some(field) = text_field {
        return match op {
            None | Some(Op::Equal) => Ok(Term::Text { field, text: rest.to_lowercase() }),
            Some(_) => Err(FilterError::TextOrder(name.to_owned())),
        };
    }
    let field = match name {
        "util" => Field::Util,
        "mem" => Field::Mem,
        "mem_free" | "free" => Field::MemFree,
        "temp" => Field::Temp,
        "power" => Field::Power,
        _ => return Err(FilterError::Field(name.to_owned())),
    };
    Ok(Term::Number { field, op: op.unwrap_or(Op::Equal), value: amount(rest)? })
}

fn amount(text: &str) -> Result<f64, FilterError> {
    let (digits, factor) = match text.chars().last() {
        Some('%' | 'W' | 'w') => (&text[..text.len() - 1], 1.0),
        Some('K' | 'k') => (&text[..text.len() - 1], 1024.0),
        Some('M' | 'm') => (&text[..text.len() - 1], 1024f64.powi(2)),
        Some('G' | 'g') => (&text[..text.len() - 1], 1024f64.powi(3)),
        Some('T' | 't') => (&text[..text.len() - 1], 1024f64.powi(4)),
        _ => (text, 1.0),
    };
    let number: f64 = digits.trim().parse().map_err(|_| FilterError::Number(text.to_owned()))?;
    Ok(number * factor)
}

fn number(field: Field, subject: &Subject<'_>) -> Option<f64> {
    let gpu = subject.gpu?;
    let value = match field {
        Field::Util => f64::from(*gpu.util.value()?),
        Field::Mem => *gpu.memory_used.value()? as f64,
        Field::MemFree => gpu.memory_total.value()?.saturating_sub(*gpu.memory_used.value()?) as f64,
        Field::Temp => f64::from(*gpu.temperature.value()?),
        Field::Power => f64::from(*gpu.power_mw.value()?) / 1000.0,
    };
    Some(value)
}

fn has_text(field: TextField, text: &str, subject: &Subject<'_>) -> bool {
    let contains = |hay: &str| hay.to_lowercase().contains(text);
    let processes = || subject.gpu.and_then(|gpu| gpu.processes.value()).into_iter().flatten();
    let user = || processes().filter_map(|p| p.user.value()).any(|user| contains(user));
    let command = || processes().filter_map(|p| p.command.value()).any(|command| contains(command));
    match field {
        TextField::Host => contains(subject.host),
        TextField::Model => subject.model.is_some_and(contains),
        TextField::User => user(),
        TextField::Command => command(),
        TextField::Any => {
            contains(subject.host) || subject.model.is_some_and(contains) || user() || command()
        }
    }
}

/// An amount of memory as a filter writes it, for the help text.
pub fn example() -> String {
    format!("util<5 & mem_free>{} & host~a", units::bytes(40 << 30).replace(' ', ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::Reading;

    fn gpu(util: Reading<u32>) -> GpuSample {
        GpuSample {
            util,
            memory_used: Reading::Value(10 << 30),
            memory_total: Reading::Value(80 << 30),
            temperature: Reading::Value(40),
            power_mw: Reading::Value(90_000),
            throttle: Reading::Value(vec![]),
            processes: Reading::Value(vec![]),
            ..GpuSample::unknown(0)
        }
    }

    #[test]
    fn terms_are_read_and_hold_together() {
        let sample = gpu(Reading::Value(3));
        let subject = Subject { host: "gpu-a", model: Some("H200"), gpu: Some(&sample), free: false };
        let holds = |text: &str| Filter::parse(text).unwrap().matches(&subject);
        assert!(holds("util<5 & mem_free>40G & host~A"));
        assert!(!holds("util<5 & mem_free>=71G"));
        assert!(holds("h200"));
        assert!(!holds("user~li"));
        assert!(!holds("free") && holds("mem_free>1G"));
        let free = Subject { free: true, ..subject };
        assert!(Filter::parse("free & h200").unwrap().matches(&free));
        assert!(holds(&example()));
        assert!(holds(""));
        assert!(matches!(Filter::parse("utl<5"), Err(FilterError::Field(_))));
        assert!(matches!(Filter::parse("util<five"), Err(FilterError::Number(_))));
        assert!(matches!(Filter::parse("host<a"), Err(FilterError::TextOrder(_))));
    }

    #[test]
    fn the_unknown_matches_no_number() {
        let sample = gpu(Reading::Unsupported);
        let subject = Subject { host: "gpu-a", model: None, gpu: Some(&sample), free: false };
        assert!(!Filter::parse("util<5").unwrap().matches(&subject));
        assert!(!Filter::parse("util>=0").unwrap().matches(&subject));
    }
}
