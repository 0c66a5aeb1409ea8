//! From tokens to an expression.

use std::ops::Range;

use regex_automata::meta;
use regex_automata::util::syntax;

use super::lex::{Is, Token, tokens};
use super::{Amount, Expr, Field, FilterError, Kind, LENGTH_MAX, Op, Pattern, Test, Unit, Word};

/// How deep brackets and `!` may be nested.
const DEPTH_MAX: usize = 64;
/// How much a regex may take, bytes.
const REGEX_MAX: usize = 1 << 20;

/// Reads an expression; `None` for a blank text.
pub(super) fn parse(text: &str) -> Result<Option<Expr>, FilterError> {
    if text.len() > LENGTH_MAX {
        let reason = format!("the filter is longer than {LENGTH_MAX} bytes: shorten it");
        return Err(FilterError::new(0..text.len(), reason));
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { tokens: &tokens, next: 0, depth: 0, end: text.trim_end().len() };
    let expr = parser.any()?;
    match parser.peek() {
        None => Ok(Some(expr)),
        Some(token) => Err(FilterError::new(token.at.clone(), "this ) closes nothing: leave it out")),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    depth: usize,
    /// Where the text ends.
    end: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<&'a Token> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn take_if(&mut self, is: &Is) -> bool {
        let found = self.peek().is_some_and(|token| token.is == *is);
        self.next += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<Expr, FilterError> {
        let mut any = vec![self.all()?];
        while self.take_if(&Is::Or) {
            any.push(self.all()?);
        }
        Ok(one_or(any, Expr::Or))
    }

    fn all(&mut self) -> Result<Expr, FilterError> {
        let mut all = vec![self.one()?];
        loop {
            let more = match self.peek().map(|token| &token.is) {
                Some(Is::And) => {
                    self.next += 1;
                    true
                }
                Some(Is::Or | Is::Close) | None => false,
                // Tests beside each other.
                Some(_) => true,
            };
            if !more {
                return Ok(one_or(all, Expr::And));
            }
            all.push(self.one()?);
        }
    }

    fn deeper(&mut self, at: &Range<usize>) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError::new(at.clone(), "too many brackets within each other: use fewer"));
        }
        Ok(())
    }

    fn one(&mut self) -> Result<Expr, FilterError> {
        const WANTED: &str = "write a test, such as free or util<5";
        let Some(token) = self.take() else {
            let reason = format!("something is missing here: {WANTED}");
            return Err(FilterError::new(self.end..self.end, reason));
        };
        match &token.is {
            Is::Not => {
                self.deeper(&token.at)?;
                let of = self.one()?;
                self.depth -= 1;
                Ok(Expr::Not(Box::new(of)))
            }
            Is::Open => {
                self.deeper(&token.at)?;
                let inner = self.any()?;
                self.depth -= 1;
                if self.take_if(&Is::Close) {
                    return Ok(inner);
                }
                Err(FilterError::new(token.at.clone(), "this ( is not closed: close it with )"))
            }
            Is::Word(word) => self.word(word, token).map(Expr::Test),
            Is::Quoted(text) => {
                if let Some(Token { is: Is::Compare(_) | Is::Like { .. }, .. }) = self.peek() {
                    let reason = format!("a field stands here without quotes: write {text}");
                    return Err(FilterError::new(token.at.clone(), reason));
                }
                Ok(Expr::Test(Test::Any(Pattern::Text(text.clone()))))
            }
            Is::Regex(source) => {
                Ok(Expr::Test(Test::Any(Pattern::Regex(source.clone(), regex(source, &token.at)?))))
            }
            Is::Compare(_) | Is::Like { .. } => {
                let reason =
                    format!("a field is missing before it ({}), or quotes around the text", field_names());
                Err(FilterError::new(token.at.clone(), reason))
            }
            Is::And | Is::Or | Is::Close => {
                let reason = format!("something is missing before it: {WANTED}");
                Err(FilterError::new(token.at.clone(), reason))
            }
        }
    }

    /// What begins with a word: a comparison, a state, or a text.
    fn word(&mut self, word: &str, token: &Token) -> Result<Test, FilterError> {
        match self.peek().map(|next| &next.is) {
            Some(Is::Compare(op)) => {
                self.next += 1;
                self.comparison(field(word, token)?, *op)
            }
            Some(Is::Like { not }) => {
                self.next += 1;
                self.like(field(word, token)?, *not)
            }
            _ => match Word::named(word) {
                Some(word) => Ok(Test::Word(word)),
                None => match Field::named(word).filter(|field| field.kind() != Kind::Text) {
                    // A host may well be called gpu-something.
                    Some(field) if field != Field::Gpu => {
                        let reason = format!("compare {0} with something: {1}", word, field.explain().1);
                        Err(FilterError::new(token.at.clone(), reason))
                    }
                    _ => Ok(Test::Any(Pattern::Text(word.to_owned()))),
                },
            },
        }
    }

    fn comparison(&mut self, field: Field, op: Op) -> Result<Test, FilterError> {
        let (text, at) = self.value(field)?;
        if let Kind::Number(units) = field.kind() {
            let amount = amount(field, units, &text, &at)?;
            return Ok(Test::Number { field, op, amount });
        }
        match op {
            Op::Equal | Op::NotEqual => Ok(Test::Equal { field, not: op == Op::NotEqual, text }),
            _ => {
                let name = field.name();
                let reason = format!("{name} has no order: write {name}=={text} or {name}~{text}");
                let sign = self.tokens.get(self.next.saturating_sub(2)).map_or(at, |sign| sign.at.clone());
                Err(FilterError::new(sign, reason))
            }
        }
    }

    fn like(&mut self, field: Field, not: bool) -> Result<Test, FilterError> {
        let sign = self.tokens.get(self.next.saturating_sub(1));
        if field.kind() != Kind::Text {
            let at = sign.map_or(self.end..self.end, |sign| sign.at.clone());
            let reason = format!("{} is a number: write {}", field.name(), field.explain().1);
            return Err(FilterError::new(at, reason));
        }
        if let Some(Token { is: Is::Regex(source), at }) = self.peek() {
            self.next += 1;
            let pattern = Pattern::Regex(source.clone(), regex(source, at)?);
            return Ok(Test::Like { field, not, pattern });
        }
        let (text, _) = self.value(field)?;
        Ok(Test::Like { field, not, pattern: Pattern::Text(text) })
    }

    /// What stands behind a sign.
    fn value(&mut self, field: Field) -> Result<(String, Range<usize>), FilterError> {
        let token = self.peek();
        let found = match token.map(|token| &token.is) {
            Some(Is::Word(text) | Is::Quoted(text)) => Some(text.clone()),
            _ => None,
        };
        let at = token.map_or(self.end..self.end, |token| token.at.clone());
        let text = found.ok_or_else(|| {
            let reason = format!("a value is missing here: {}", field.explain().1);
            FilterError::new(at.start..at.start, reason)
        })?;
        self.next += 1;
        Ok((text, at))
    }
}

fn one_or(mut of: Vec<Expr>, list: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match of.pop() {
        Some(only) if of.is_empty() => only,
        tail => {
            of.extend(tail);
            list(of)
        }
    }
}

fn field_names() -> String {
    Field::ALL.map(Field::name).join(", ")
}

fn field(word: &str, token: &Token) -> Result<Field, FilterError> {
    Field::named(word).ok_or_else(|| {
        let known = Field::ALL.map(Field::name);
        let near = known.into_iter().map(|name| {
            let word = word.to_lowercase().replace("memory", "mem");
            let shortened = word.len() > 2 && (name.starts_with(&word) || word.starts_with(name));
            (if shortened { 1 } else { strsim::damerau_levenshtein(&word, name) }, name)
        });
        let near = near.filter(|(distance, _)| *distance <= 2 && *distance < word.len());
        let remedy = match near.min_by_key(|(distance, _)| *distance) {
            Some((_, name)) => format!("did you mean {name}?"),
            None => format!("the fields are {}", field_names()),
        };
        FilterError::new(token.at.clone(), format!("unknown field '{word}': {remedy}"))
    })
}

fn amount(
    field: Field,
    units: &[(&str, Unit)],
    text: &str,
    at: &Range<usize>,
) -> Result<Amount, FilterError> {
    let fault = |reason: String| FilterError::new(at.clone(), reason);
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, written) = text.split_at(digits);
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
    let Some(number) = number else {
        return Err(fault(format!("'{text}' is not a number: write {}", field.explain().1)));
    };
    let short = match field {
        // GB and GiB are a G too.
        Field::Mem | Field::MemFree => written.trim_end_matches(['B', 'b']).trim_end_matches('i'),
        _ => written,
    };
    let unit = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(short)).map(|(_, unit)| *unit);
    let of_bytes = matches!(field, Field::Mem | Field::MemFree);
    match unit {
        Some(Unit::Plain) if of_bytes && number > 0.0 => {
            Err(fault(format!("'{text}' has no unit: write {number}G, {number}M or {number}%")))
        }
        Some(unit) => Ok(Amount { number, unit }),
        None => {
            let known: Vec<&str> =
                units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
            let remedy = match known.as_slice() {
                [] => "write a number alone".to_owned(),
                known => format!("use {}", known.join(", ")),
            };
            Err(fault(format!("'{written}' is not a unit of {}: {remedy}", field.name())))
        }
    }
}

/// Compiles a regex. Its classes and its upper and lower case are those of ASCII.
fn regex(source: &str, at: &Range<usize>) -> Result<Box<meta::Regex>, FilterError> {
    let config = meta::Config::new().nfa_size_limit(Some(REGEX_MAX)).utf8_empty(false);
    let syntax = syntax::Config::new().case_insensitive(true).unicode(false).utf8(false).nest_limit(50);
    let built = meta::Builder::new().configure(config).syntax(syntax).build(source);
    built.map(Box::new).map_err(|error| {
        let why = match (error.syntax_error(), error.size_limit()) {
            (_, Some(_)) => "it is too large".to_owned(),
            (Some(error), _) => last_line(&error.to_string()),
            (None, None) => last_line(&error.to_string()),
        };
        FilterError::new(at.clone(), format!("not a regex: {why}"))
    })
}

/// The sentence of an error that draws the pattern above it.
fn last_line(text: &str) -> String {
    let last = text.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
