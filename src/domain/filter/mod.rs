//! The filter language: which GPUs are meant. Pure; must not know who asks, a screen or a command line.
//!
//! ```text
//! expr    = all { ("|" | "or") all }
//! all     = one { ["&" | "and"] one }
//! one     = ("!" | "not") one | "(" expr ")" | test
//! test    = field op value | word | text
//! op      = "==" | "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
//! value   = amount | text | "/" regex "/"          a regex behind ~ and !~ alone
//! ```
//!
//! Two tests beside each other must both hold. What is not known is neither true nor false: it passes no comparison,
//! and no `!` of one. [`Filter`]'s `Display` is text that is read as the same filter again.

mod complete;
mod error;
mod fields;
mod lex;
mod matches;
mod parse;
mod subject;

#[cfg(test)]
mod tests;

use std::fmt;

pub use complete::{Completion, CompletionValues, complete};
pub use error::FilterError;
pub use fields::{Field, Kind, Unit, Word};
pub use subject::{GpuSubject, Subject};

use lex::{quoted_if_needed, regex_text};
use matches::When;

/// The longest filter, bytes.
pub const LENGTH_MAX: usize = 4096;

/// A filter: what lets a GPU through. The default lets everything through.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filter {
    expr: Option<Expr>,
}

/// A filter that is kept under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// What it lets through.
    pub filter: Filter,
}

/// Why a filter does not let a GPU through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// The parts of the filter that exclude it, as they are written, with the reason where one is never known; one or more.
    pub clauses: Vec<String>,
    /// Whether it would not pass either if nothing were on it.
    pub for_good: bool,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// Any of two or more.
    Or(Vec<Expr>),
    /// All of two or more.
    And(Vec<Expr>),
    /// The opposite.
    Not(Box<Expr>),
    /// A test.
    Test(Test),
}

/// One question about a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    /// A state, such as `free`.
    Word(Word),
    /// A number against an amount.
    Number { field: Field, op: Op, amount: Amount },
    /// A text is equal to another, upper and lower case being the same.
    Equal { field: Field, not: bool, text: String },
    /// A text holds another one, or matches a regex.
    Like { field: Field, not: bool, pattern: Pattern },
    /// Host, model, user or command holds a text.
    Any(Pattern),
}

/// How a number is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// A number with the unit that was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Amount {
    pub(crate) number: f64,
    pub(crate) unit: Unit,
}

/// What a text is searched for. ASCII upper and lower case are the same.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// This text.
    Text(String),
    /// A regex, by its source and as it is executed. Its classes are those of ASCII.
    Regex(String, Box<regex_automata::meta::Regex>),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) | (Self::Regex(a, _), Self::Regex(b, _)) => a == b,
            _ => false,
        }
    }
}

/// Its numbers are finite.
impl Eq for Filter {}

impl TryFrom<String> for Filter {
    type Error = FilterError;

    fn try_from(text: String) -> Result<Self, FilterError> {
        Self::parse(&text)
    }
}

impl From<Filter> for String {
    fn from(filter: Filter) -> Self {
        filter.to_string()
    }
}

impl Filter {
    /// Reads a filter; a blank text lets everything through.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { expr: parse::parse(text)? })
    }

    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.expr.is_none()
    }

    /// Whether it lets this through: whether it is known to hold.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.expr.as_ref().is_none_or(|expr| expr.answer(subject, When::Now).yes)
    }

    /// Why it does not let this GPU through; `None` where it does. Of `model~h200 & util<5` those that do not hold are
    /// named: where the GPU would not pass if nothing were on it, those that could not hold then. What a GPU never tells
    /// does not hold, nor does its opposite.
    pub fn exclusion(&self, subject: &Subject<'_>) -> Option<Exclusion> {
        let expr = self.expr.as_ref()?;
        if expr.answer(subject, When::Now).yes {
            return None;
        }
        let for_good: Vec<String> = expr.clauses().iter().filter_map(|one| one.never(subject)).collect();
        if for_good.is_empty() {
            let failing = expr.clauses().iter().filter(|clause| !clause.answer(subject, When::Now).yes);
            return Some(Exclusion { clauses: failing.map(Expr::to_string).collect(), for_good: false });
        }
        Some(Exclusion { clauses: for_good, for_good: true })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.as_ref().map_or(Ok(()), |expr| write!(f, "{expr}"))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(any) => joined(f, any, " | ", |expr| matches!(expr, Self::Or(_))),
            Self::And(all) => joined(f, all, " & ", Self::is_list),
            Self::Not(of) if of.is_list() => write!(f, "!({of})"),
            Self::Not(of) => write!(f, "!{of}"),
            Self::Test(test) => write!(f, "{test}"),
        }
    }
}

impl Expr {
    /// Its text where it could not hold if nothing were on the GPU.
    fn never(&self, subject: &Subject<'_>) -> Option<String> {
        let answer = self.answer(subject, When::Freed);
        let gpu = match &subject.gpu {
            _ if self.asks_age() => "a free GPU",
            Some(gpu) if gpu.info.is_slice() => "a MIG slice",
            _ => "that GPU",
        };
        let why = if answer.is_never_known() { format!(" (never known of {gpu})") } else { String::new() };
        (!answer.yes).then(|| format!("{self}{why}"))
    }

    fn is_list(&self) -> bool {
        matches!(self, Self::Or(_) | Self::And(_))
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    of: &[Expr],
    between: &str,
    in_brackets: impl Fn(&Expr) -> bool,
) -> fmt::Result {
    for (place, expr) in of.iter().enumerate() {
        if place > 0 {
            f.write_str(between)?;
        }
        if in_brackets(expr) { write!(f, "({expr})")? } else { write!(f, "{expr}")? }
    }
    Ok(())
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word.name()),
            Self::Number { field, op, amount } => {
                write!(f, "{}{}{}{}", field.name(), op.sign(), amount.number, amount.unit.suffix())
            }
            Self::Equal { field, not, text } => {
                let op = if *not { "!=" } else { "==" };
                write!(f, "{}{op}{}", field.name(), quoted_if_needed(text, false))
            }
            Self::Like { field, not, pattern } => {
                let op = if *not { "!~" } else { "~" };
                match pattern {
                    Pattern::Text(text) => {
                        write!(f, "{}{op}{}", field.name(), quoted_if_needed(text, false))
                    }
                    Pattern::Regex(source, _) => write!(f, "{}{op}{}", field.name(), regex_text(source)),
                }
            }
            Self::Any(Pattern::Text(text)) => f.write_str(&quoted_if_needed(text, true)),
            Self::Any(Pattern::Regex(source, _)) => f.write_str(&regex_text(source)),
        }
    }
}

impl Op {
    /// As it is written.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }
}
