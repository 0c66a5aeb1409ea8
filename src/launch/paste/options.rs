//! Reads a launcher's options by a table, in the ways that their parsers allow, up to the command.
//! Must not know any single launcher.

use std::ops::Range;

use crate::launch::words::{Caret, Word, quote};

use super::draft::Draft;

/// What an option does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Checks its value and keeps it.
    Try(fn(&mut Draft<'_>, &Given<'_>) -> Result<(), Caret>),
    /// Keeps what is always right.
    Mark(fn(&mut Draft<'_>, &Given<'_>)),
    /// Sets a variable of the ranks.
    Env(&'static str, Unit),
    /// Nothing under hvtui, and why.
    NoEffect(&'static str),
    /// Goes to the kind's own launcher as it is.
    Pass,
    /// Has no meaning here: the line's own launcher starts the ranks.
    Delegate,
    /// The same, and how many ranks there are, or how they are started, its launcher alone knows.
    Leave,
}

/// How an option's value becomes a variable's.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Mebibytes,
    Count,
    Decimal,
    Text,
    On,
    Off,
}

/// One option.
pub(super) struct Row {
    names: &'static str,
    values: usize,
    does: Does,
}

/// A row: names separated by blanks, how many values follow, and what it does.
pub(super) const fn row(names: &'static str, values: usize, does: Does) -> Row {
    Row { names, values, does }
}

/// What a launcher's parser allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Allows {
    /// The beginning of a name stands for it (argparse, getopt).
    Abbreviations,
    /// `-n4` and `-it`.
    Glued,
    /// `-bind-to` and `--bind-to` are one (Open MPI, Hydra).
    AnyDashes,
    /// `--a_b` and `--a-b` are one.
    Underscores,
    /// An option without a value may have one behind `=`: `--exclusive=user`.
    FlagValues,
}

/// How a launcher's options are written.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// The launcher's name, for errors.
    pub program: &'static str,
    /// What its parser allows.
    pub allows: &'static [Allows],
}

impl Style {
    fn has(self, what: Allows) -> bool {
        self.allows.contains(&what)
    }
}

/// An option's value.
#[derive(Clone)]
pub(super) struct Value<'a> {
    pub word: &'a Word,
    /// Where it begins in the word's text.
    pub from: usize,
}

impl<'a> Value<'a> {
    pub(super) fn text(&self) -> &'a str {
        &self.word.text[self.from..]
    }

    /// Its place in the line.
    pub(super) fn span(&self) -> Range<usize> {
        if self.from == 0 { self.word.span.clone() } else { self.part(0..self.text().len()) }
    }

    /// The place of a part of it.
    pub(super) fn part(&self, part: Range<usize>) -> Range<usize> {
        self.word.part(self.from + part.start..self.from + part.end)
    }
}

/// An option as it was given.
pub(super) struct Given<'a> {
    /// Its name as typed.
    pub typed: String,
    /// As many as its row says.
    pub values: Vec<Value<'a>>,
    /// From its name to its last value.
    pub span: Range<usize>,
}

impl<'a> Given<'a> {
    /// The first value; only rows with values ask for it.
    pub(super) fn text(&self) -> &'a str {
        self.values.first().map_or("", Value::text)
    }

    /// The place of the first value.
    pub(super) fn place(&self) -> Range<usize> {
        self.values.first().map_or(self.span.clone(), Value::span)
    }

    /// Name and values, as words.
    pub(super) fn words(&self) -> Vec<String> {
        let values = self.values.iter().map(|value| value.text().to_owned());
        std::iter::once(self.typed.clone()).chain(values).collect()
    }

    /// Name and values, for people.
    pub(super) fn shown(&self) -> String {
        let values = self.values.iter().map(|value| format!(" {}", quote(value.text())));
        format!("{}{}", self.typed, values.collect::<String>())
    }
}

/// Reads options from `words[at]` on; returns where the command begins.
pub(super) fn read<'a>(
    draft: &mut Draft<'a>,
    table: &[Row],
    style: Style,
    mut at: usize,
) -> Result<usize, Caret> {
    let words: &'a [Word] = &draft.line.words;
    while let Some(word) = words.get(at) {
        if word.text == "--" {
            return Ok(at + 1);
        }
        if let Some(dash) = word.text.chars().next().filter(|c| "–—−".contains(*c)) {
            let text = format!("`{dash}` is not the `-` that options begin with: retype it");
            return Err(draft.line.caret(word.part(0..dash.len_utf8()), text));
        }
        if !is_option(&word.text) {
            break;
        }
        at += 1;
        if let Some((row, from)) = find(table, style, &word.text) {
            let name = from.map_or(word.text.len(), |from| from - 1);
            at = take(draft, table, style, row, word, (name, from), at)?;
        } else if !bundle(draft, table, style, word, &mut at)? {
            unknown(draft, table, style, word, &mut at);
        }
    }
    Ok(at)
}

fn is_option(text: &str) -> bool {
    text.len() > 1 && text.starts_with('-')
}

/// One option whose name ends at `name` and whose first value begins at `from` of the same word, if there.
fn take<'a>(
    draft: &mut Draft<'a>,
    table: &[Row],
    style: Style,
    row: &Row,
    word: &'a Word,
    (name, from): (usize, Option<usize>),
    mut at: usize,
) -> Result<usize, Caret> {
    let mut typed = word.text[..name].to_owned();
    let mut from = from;
    if row.values == 0 && style.has(Allows::FlagValues) {
        typed.clone_from(&word.text);
        from = None;
    }
    if from.is_some() && row.values == 0 {
        return Err(draft.line.caret(word.span.clone(), format!("`{typed}` takes no value")));
    }
    let mut values: Vec<Value<'a>> = from.map(|from| Value { word, from }).into_iter().collect();
    while values.len() < row.values {
        let next = draft.line.words.get(at);
        let Some(next) = next.filter(|next| !is_exact(table, style, &next.text)) else {
            let end = draft.line.text.len();
            let span = next.map_or(end..end, |next| next.span.clone());
            let text = if row.values == 1 { "a value" } else { "more values" };
            return Err(draft.line.caret(span, format!("`{typed}` of {} needs {text}", style.program)));
        };
        values.push(Value { word: next, from: 0 });
        at += 1;
    }
    let end = values.last().map_or(word.span.end, |value| value.word.span.end);
    let given = Given { typed, values, span: word.span.start..end };
    draft.apply(row.does, &given)?;
    Ok(at)
}

/// `-it` and `-itv/a:/b`; false where one of the letters is no option.
fn bundle<'a>(
    draft: &mut Draft<'a>,
    table: &[Row],
    style: Style,
    word: &'a Word,
    at: &mut usize,
) -> Result<bool, Caret> {
    if !style.has(Allows::Glued) || word.text.starts_with("--") {
        return Ok(false);
    }
    let mut found = Vec::new();
    for (offset, letter) in word.text.char_indices().skip(1) {
        let Some(row) = exact(table, style, &format!("-{letter}")) else { return Ok(false) };
        let next = offset + letter.len_utf8();
        let rest = (row.values > 0 && next < word.text.len()).then_some(next);
        found.push((row, letter, rest));
        if row.values > 0 {
            break;
        }
    }
    for (row, letter, rest) in found {
        let typed = format!("-{letter}");
        if row.values == 0 {
            draft.apply(row.does, &Given { typed, values: Vec::new(), span: word.span.clone() })?;
        } else if let Some(from) = rest {
            let values = vec![Value { word, from }];
            draft.apply(row.does, &Given { typed, values, span: word.span.clone() })?;
        } else {
            // `-itv /a:/b`: the value is the next word
            let Some(next) = draft.line.words.get(*at) else {
                let end = draft.line.text.len();
                return Err(draft
                    .line
                    .caret(end..end, format!("`{typed}` of {} needs a value", style.program)));
            };
            *at += 1;
            let span = word.span.start..next.span.end;
            let values = vec![Value { word: next, from: 0 }];
            draft.apply(row.does, &Given { typed, values, span })?;
        }
    }
    Ok(true)
}

/// An option that no row has. Whether a value follows cannot be known: a word that is followed by something
/// that looks more like a program is taken for one.
fn unknown(draft: &mut Draft<'_>, table: &[Row], style: Style, word: &Word, at: &mut usize) {
    let name = word.text.split('=').next().unwrap_or_default();
    if let Some(known) = near(table, style, name) {
        draft.warn(format!("`{name}` is no known option of {}: `{known}` may be meant.", style.program));
        let text = format!(
            "`{name}` is no option of {}: `{known}` may be meant; correct it, or start the line as it is with --delegate",
            style.program
        );
        let caret = draft.line.caret(word.part(0..name.len()), text);
        draft.pasted.misspelt.get_or_insert(caret);
    }
    let words = &draft.line.words;
    let mut text = quote(&word.text);
    draft.pasted.not_understood_words.push(word.text.clone());
    let follows = |at: usize| words.get(at).filter(|next| !is_option(&next.text));
    if let Some(next) = follows(*at)
        && !word.text.contains('=')
        && !looks_like_program(&next.text)
        && words[*at + 1..].iter().any(|later| looks_like_program(&later.text))
    {
        text = format!("{text} {}", quote(&next.text));
        draft.pasted.not_understood_words.push(next.text.clone());
        *at += 1;
    }
    draft.pasted.not_understood.push(text);
}

/// The option of the table that was likely meant, spelled as the line spells its own.
fn near(table: &[Row], style: Style, name: &str) -> Option<String> {
    let typed = normal(style, name);
    let most = if typed.len() < 8 { 1 } else { 2 };
    let known = table.iter().flat_map(|row| row.names.split(' ')).filter(|known| known.len() > 4);
    let distance = |known: &str| strsim::damerau_levenshtein(&normal(style, known), &typed);
    let (distance, known) =
        known.map(|known| (distance(known), known)).min_by_key(|(distance, _)| *distance)?;
    let underscores = style.has(Allows::Underscores) && name.contains('_');
    let dashes = name.len() - name.trim_start_matches('-').len();
    let bare = known.trim_start_matches('-');
    let bare = if underscores { bare.replace('-', "_") } else { bare.to_owned() };
    let dashes =
        if style.has(Allows::AnyDashes) { dashes } else { known.len() - known.trim_start_matches('-').len() };
    (distance <= most).then(|| "-".repeat(dashes) + &bare)
}

/// Whether a word is more likely a program than an option's value.
fn looks_like_program(word: &str) -> bool {
    let base = word.rsplit('/').next().unwrap_or(word);
    word.starts_with("./")
        || (word.starts_with('/') && (word.contains("/bin/") || base.contains('.')))
        || [".py", ".sh"].iter().any(|end| base.ends_with(end))
        || ["python", "hvtui", "bash", "sh", "julia"].iter().any(|name| {
            base.strip_prefix(name).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
        })
}

/// The row of a word and where the value in the same word begins.
fn find<'t>(table: &'t [Row], style: Style, text: &str) -> Option<(&'t Row, Option<usize>)> {
    if let Some(row) = exact(table, style, text) {
        return Some((row, None));
    }
    let (name, from) = match text.find('=') {
        Some(at) => (&text[..at], Some(at + 1)),
        None => (text, None),
    };
    let row = exact(table, style, name).or_else(|| abbreviated(table, style, name))?;
    Some((row, from))
}

fn is_exact(table: &[Row], style: Style, text: &str) -> bool {
    is_option(text) && exact(table, style, text).is_some()
}

fn exact<'t>(table: &'t [Row], style: Style, name: &str) -> Option<&'t Row> {
    let name = normal(style, name);
    table.iter().find(|row| row.names.split(' ').any(|known| normal(style, known) == name))
}

fn abbreviated<'t>(table: &'t [Row], style: Style, name: &str) -> Option<&'t Row> {
    let name = normal(style, name);
    if !style.has(Allows::Abbreviations) || name.trim_start_matches('-').is_empty() {
        return None;
    }
    let begins = |row: &&Row| row.names.split(' ').any(|known| normal(style, known).starts_with(&name));
    let mut rows = table.iter().filter(begins);
    rows.next().filter(|_| rows.next().is_none())
}

fn normal(style: Style, name: &str) -> String {
    let bare = name.trim_start_matches('-');
    let dashes = if style.has(Allows::AnyDashes) { 1 } else { name.len() - bare.len() };
    let bare = if style.has(Allows::Underscores) { bare.replace('_', "-") } else { bare.to_owned() };
    "-".repeat(dashes) + &bare
}
