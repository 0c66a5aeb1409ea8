//! A command line as words, each with its place in the line, and an error that points into the line.
//! Must not know any launcher.

use std::fmt;
use std::ops::Range;

use unicode_width::UnicodeWidthChar;

use super::batch_lines::Batch;
use super::ending::{self, Ending};
use super::prompt;
use super::setup::{self, Does, Step};
use crate::domain::text::sanitize;

/// What stands behind the `$` of the current folder.
const HERE: [&str; 3] = ["PWD", "{PWD}", "(pwd)"];
/// What makes a comment one for sbatch.
const BATCH: &str = "SBATCH";

/// The most columns of a line that an error shows.
const EXCERPT: usize = 100;

/// A fault in a line, shown with a caret under its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caret {
    /// The whole line.
    pub line: String,
    /// The first byte that the fault is about; the length of the line where something is missing.
    pub at: usize,
    /// How many bytes it is about.
    pub len: usize,
    /// What is wrong and what to do, in a lowercase fragment.
    pub text: String,
}

impl std::error::Error for Caret {}

impl fmt::Display for Caret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (excerpt, before, under) = self.excerpt();
        let text = self.text.replace('\r', " ");
        let text = sanitize(&text);
        write!(f, "{text}\n  {excerpt}\n  {}{}", " ".repeat(before), "^".repeat(under))
    }
}

impl Caret {
    /// The part of the line around the place, the columns before the caret and those under it.
    fn excerpt(&self) -> (String, usize, usize) {
        // One cell is a byte offset, what is shown of it, and its columns.
        let mut cells: Vec<(usize, char, usize)> = Vec::new();
        for (at, c) in self.line.char_indices() {
            let c = if matches!(c, '\n' | '\r') { ' ' } else { c };
            let shown = sanitize(c.encode_utf8(&mut [0; 4])).chars().next().unwrap_or(' ');
            cells.push((at, shown, shown.width().unwrap_or(0)));
        }
        let width = |cells: &[(usize, char, usize)]| cells.iter().map(|cell| cell.2).sum::<usize>();
        let place = cells.partition_point(|cell| cell.0 < self.at);
        let end = cells.partition_point(|cell| cell.0 < self.at + self.len.max(1)).max(place);
        let whole = width(&cells) <= EXCERPT;
        let mut first = 0;
        while !whole && width(&cells[first..place]) > EXCERPT / 3 {
            first += 1;
        }
        let mut last = cells.len();
        while !whole && last > first && width(&cells[first..last]) > EXCERPT {
            last -= 1;
        }
        let cut = |yes: bool| if yes { "…" } else { "" };
        let middle: String = cells[first..last].iter().map(|cell| cell.1).collect();
        let excerpt = format!("{}{middle}{}", cut(first > 0), cut(last < cells.len()));
        let before = usize::from(first > 0) + width(&cells[first..place]);
        let under = width(&cells[place..end.min(last).max(place)]).max(1);
        (excerpt, before, under)
    }
}

/// One word of a line, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What a program would get.
    pub text: String,
    /// Its bytes in the line, quotes included.
    pub span: Range<usize>,
    /// Where each byte of `text` stands in the line.
    places: Vec<usize>,
}

impl Word {
    /// Where a byte of the text stands in the line; the word's end for one behind the text.
    pub fn place(&self, offset: usize) -> usize {
        self.places.get(offset).copied().unwrap_or(self.span.end)
    }

    /// Where a part of the text stands in the line.
    pub fn part(&self, part: Range<usize>) -> Range<usize> {
        let start = self.place(part.start);
        let end = match part.end.checked_sub(1) {
            Some(last) if last >= part.start => self.places.get(last).map_or(self.span.end, |at| at + 1),
            _ => start,
        };
        start..end.max(start)
    }

    fn push(&mut self, c: char, at: usize) {
        self.text.push(c);
        self.places.extend(at..at + c.len_utf8());
    }
}

/// A command line and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// As typed.
    pub text: String,
    /// Its words, without those of `before`.
    pub words: Vec<Word>,
    /// The commands before its command that only prepare a shell for it; variables that one of them exports stand
    /// before the command.
    pub before: Vec<Step>,
    /// What stands behind its command and is left out.
    pub ending: Ending,
    /// The `#SBATCH` lines.
    pub batch: Batch,
}

impl Line {
    /// Reads a line that was typed, or a note of several lines: one command, perhaps with others before it that only
    /// prepare a shell for it. Prompts that were copied along and what sends its output elsewhere are left out.
    pub fn typed(text: &str) -> Result<Self, Caret> {
        let Split { words, before, ending, batch } = Splitter::of(text, true).run()?;
        Ok(Self { text: text.to_owned(), words, before, ending, batch })
    }

    /// The line of words that a shell has split already.
    pub fn of<S: AsRef<str>>(words: &[S]) -> Self {
        let text = join(words);
        // What `join` writes is readable; a line without words is what is left to say otherwise.
        let words = split(&text).unwrap_or_default();
        Self { text, words, before: Vec::new(), ending: Ending::default(), batch: Batch::default() }
    }

    /// Some of its words as a line of its own, at the places where they stand.
    #[must_use]
    pub fn part(&self, words: Range<usize>) -> Self {
        let words = self.words.get(words).unwrap_or_default().to_vec();
        let (before, batch) = (Vec::new(), Batch::default());
        Self { text: self.text.clone(), words, before, ending: Ending::default(), batch }
    }

    /// An error about a place of this line.
    pub fn caret(&self, span: Range<usize>, text: impl Into<String>) -> Caret {
        Caret {
            line: self.text.clone(),
            at: span.start,
            len: span.end.saturating_sub(span.start),
            text: text.into(),
        }
    }
}

/// Splits a command line as a POSIX shell does that expands nothing: blanks separate, `'…'` and `"…"` keep
/// together, a backslash takes the next character as it is, a backslash at the end of a line joins it with
/// the next, and `#` begins a comment. What needs a shell is an error: hvtui starts programs without one.
pub fn split(line: &str) -> Result<Vec<Word>, Caret> {
    Splitter::of(line, false).run().map(|split| split.words)
}

/// A pasted text as a line that is edited keeps it: what a backslash joins is joined, comments (but for `#SBATCH`) and blank
/// lines are left out, and a line ends with `\n` however it ended. `before`: what stands before it in the line.
pub fn tidy(before: &str, text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut tidied = String::new();
    let mut quote = None;
    // behind a line end that is joined or kept
    let mut begins_line = false;
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let last = tidied.chars().next_back().or_else(|| before.chars().next_back());
        let begins_word = last.is_none_or(char::is_whitespace);
        match (quote, c) {
            (Some('"') | None, '\\') if ends_line(letters.clone(), quote.is_none()) => {
                while letters.next().is_some_and(|c| c != '\n') {}
                begins_line = quote.is_none();
                // a shell's own `> ` before what goes on
                let rest: String = letters.clone().collect();
                letters.by_ref().take(prompt::continued(&rest)).for_each(drop);
            }
            (Some('"') | None, '\\') => {
                tidied.push(c);
                tidied.extend(letters.next());
            }
            (Some(open), _) => {
                tidied.push(c);
                quote = quote.filter(|_| c != open);
            }
            (None, '#') if begins_word && !letters.clone().take(BATCH.len()).eq(BATCH.chars()) => {
                while letters.next_if(|c| *c != '\n').is_some() {}
            }
            (None, '\n') => {
                tidied.truncate(tidied.trim_end().len());
                if !tidied.is_empty() {
                    tidied.push(c);
                }
                begins_line = true;
            }
            (None, c) if c.is_whitespace() && begins_word && begins_line && !is_batch(letters.clone()) => {
                while letters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
            }
            (None, c) => {
                begins_line = false;
                tidied.push(if c.is_whitespace() { ' ' } else { c });
                quote = Some(c).filter(|c| matches!(c, '"' | '\''));
            }
        }
    }
    if quote.is_none() {
        tidied.truncate(tidied.trim_end_matches('\n').len());
    }
    tidied
}

/// Writes words so that [`split`] and a shell read them back.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    words.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// One word as a shell takes it, in quotes where they are needed.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
    // zsh looks for a program where a word begins with `=`
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether the next comment of a line that has begun with a blank is one that sbatch passes over for that.
fn is_batch(rest: impl Iterator<Item = char>) -> bool {
    let mut rest = rest.skip_while(|c| matches!(c, ' ' | '\t'));
    rest.next() == Some('#') && rest.take(BATCH.len()).eq(BATCH.chars())
}

/// Whether a line ends here; `trimmed`: behind blanks, too.
fn ends_line(mut rest: impl Iterator<Item = char>, trimmed: bool) -> bool {
    rest.find(|c| !trimmed || !matches!(c, ' ' | '\t')) == Some('\n')
}

/// The bytes of blanks that a text begins with.
fn blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// What a line comes to.
struct Split {
    words: Vec<Word>,
    before: Vec<Step>,
    ending: Ending,
    batch: Batch,
}

struct Splitter<'a> {
    line: &'a str,
    at: usize,
    words: Vec<Word>,
    word: Option<Word>,
    /// Whether commands before the command may prepare a shell.
    prepares: bool,
    /// Whether they are options that sbatch reads, to which no character but quotes and a backslash has a meaning.
    is_batch: bool,
    before: Vec<Step>,
    ending: Ending,
    batch: Batch,
    /// The first word of the command that is being read.
    from: usize,
}

impl<'a> Splitter<'a> {
    fn of(line: &'a str, prepares: bool) -> Self {
        let (words, before, ending, batch) = (Vec::new(), Vec::new(), Ending::default(), Batch::default());
        Self { line, at: 0, words, word: None, prepares, is_batch: false, before, ending, batch, from: 0 }
    }

    /// The command that ends here only prepares a shell for the next one: its words are taken away, but for variables.
    fn take_step(&mut self) -> bool {
        let words = self.words.get(self.from..).unwrap_or_default();
        let Some(does) = setup::read(words).filter(|_| self.prepares) else { return false };
        let span = words[0].span.start..words[words.len() - 1].span.end;
        let variables = if does == Does::Export { words[1..].to_vec() } else { Vec::new() };
        self.words.truncate(self.from);
        self.words.extend(variables);
        self.from = self.words.len();
        self.before.push(Step { does, span });
        // what such a command prints is none of a rank
        self.ending = Ending::default();
        true
    }

    /// Whether the words so far start a container, in whose shell the next line is typed: who reads them sees to it that
    /// it begins behind the image.
    fn opens_a_container(&self) -> bool {
        let is = |at: usize, names: &[&str]| {
            let word = self.words.get(at).map_or("", |word| word.text.rsplit('/').next().unwrap_or_default());
            names.contains(&word)
        };
        let from = self.from + usize::from(is(self.from, &["sudo"]));
        is(from, &["docker", "podman", "nvidia-docker"]) && is(from + 1, &["run", "container"])
    }

    fn run(mut self) -> Result<Split, Caret> {
        let mut ended = false;
        self.skip_prompt();
        while let Some((at, c)) = self.next() {
            match c {
                '\n' | '\r' => {
                    self.end_word(at);
                    let is_command = self.words.len() > self.from;
                    ended = is_command && (ended || !self.take_step());
                    if !ended || self.opens_a_container() {
                        self.skip_prompt();
                    }
                }
                c if c.is_whitespace() => self.end_word(at),
                '#' if self.word.is_none() => self.skip_comment()?,
                _ if ended
                    && !(c == '\\' && self.rest().starts_with(['\n', '\r']))
                    && !self.opens_a_container() =>
                {
                    let text = "a second command begins here: give one command, or end the line before with a backslash";
                    return Err(self.error(at, self.line.len() - at, text));
                }
                _ if self.prepares && self.is_typographic(c) => return Err(self.typographic(at, c)),
                '\'' => self.single_quoted(at)?,
                '"' => self.double_quoted(at)?,
                '\\' => self.escape(at),
                '|' | '&' | ';' | '<' | '>' | '(' | ')' if !self.is_batch => {
                    if self.ends_command(at) {
                        continue;
                    }
                    self.end_word(at);
                    if !self.ends_step(at, c) {
                        return Err(self.operator(at, c));
                    }
                }
                '$' | '`' => {
                    self.refuse_expansion(at, c, false)?;
                    self.push(c, at);
                }
                c => self.push(c, at),
            }
        }
        self.end_word(self.line.len());
        Ok(Split { words: self.words, before: self.before, ending: self.ending, batch: self.batch })
    }

    /// Whether a character that was just read is one that word processors and web pages put in the place of a quote that
    /// begins here, or of the `-` of an option.
    fn is_typographic(&self, c: char) -> bool {
        let begins_word = self.word.is_none();
        let begins_value = self.word.as_ref().is_none_or(|word| word.text.ends_with('='));
        (begins_value && "“”„‘’".contains(c))
            || (begins_word
                && "–—−".contains(c)
                && self.rest().starts_with(|next: char| next == '-' || next.is_ascii_alphabetic()))
    }

    fn typographic(&self, at: usize, c: char) -> Caret {
        let text = if "–—−".contains(c) {
            format!("`{c}` is not the `-` that options begin with: retype it")
        } else {
            let quote = if "‘’".contains(c) { '\'' } else { '"' };
            format!(
                "`{c}` is not the quote {quote} of a shell: retype both quotes, or put the word into '…' if it is meant"
            )
        };
        self.error(at, c.len_utf8(), &text)
    }

    /// At the beginning of a command that was typed.
    fn skip_prompt(&mut self) {
        if self.prepares {
            self.at += prompt::len(self.rest());
        }
    }

    /// `> train.log 2>&1 &` and the like up to the end of the line, behind a command.
    fn ends_command(&mut self, at: usize) -> bool {
        let is_number = |word: &&Word| {
            !word.text.is_empty() && self.line[word.span.start..at].bytes().all(|byte| byte.is_ascii_digit())
        };
        // the `2` of `2>`
        let descriptor =
            self.word.as_ref().filter(|_| self.line[at..].starts_with(['<', '>'])).filter(is_number);
        let from = descriptor.map_or(at, |word| word.span.start);
        let is_behind = self.words.len() > self.from || (from == at && self.word.is_some());
        let Some(ending) = ending::read(&self.line[from..]).filter(|_| self.prepares && is_behind) else {
            return false;
        };
        if from < at {
            self.word = None;
        } else {
            self.end_word(at);
        }
        self.at = from + ending.len;
        self.ending = ending;
        true
    }

    /// `&&` or `;` behind a command that prepares a shell, and before another one.
    fn ends_step(&mut self, at: usize, c: char) -> bool {
        let len = self.line[at..].chars().take_while(|next| *next == c).count();
        let goes_on = !self.line[at + len..].trim().is_empty();
        let ends = matches!((c, len), ('&', 2) | (';', 1)) && goes_on && self.take_step();
        if ends {
            self.at = at + len;
        }
        ends
    }

    fn rest(&self) -> &str {
        &self.line[self.at..]
    }

    fn next(&mut self) -> Option<(usize, char)> {
        let c = self.rest().chars().next()?;
        let at = self.at;
        self.at += c.len_utf8();
        Some((at, c))
    }

    /// A comment, of which nothing is kept but what sbatch reads.
    fn skip_comment(&mut self) -> Result<(), Caret> {
        let line = self.line;
        let end = self.at + self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
        let options = line[self.at..end].strip_prefix(BATCH);
        let options = options.filter(|rest| self.prepares && rest.starts_with(char::is_whitespace));
        let is_first = self.words.is_empty() && self.before.is_empty();
        if let Some(options) = options
            && self.batch.takes(&line[..self.at - 1], options, is_first)
        {
            let at = end - options.len();
            let inner = Splitter { at, is_batch: true, ..Splitter::of(&line[..end], false) };
            let read = inner.run().map_err(|caret| Caret { line: line.to_owned(), ..caret })?;
            self.batch.words.extend(read.words);
        }
        self.at = end;
        Ok(())
    }

    fn begin(&mut self, at: usize) -> &mut Word {
        self.word.get_or_insert_with(|| Word { text: String::new(), span: at..at, places: Vec::new() })
    }

    fn push(&mut self, c: char, at: usize) {
        self.begin(at).push(c, at);
    }

    fn end_word(&mut self, end: usize) {
        if let Some(mut word) = self.word.take() {
            word.span.end = end;
            self.words.push(word);
        }
    }

    /// The line end behind a backslash, if there is one; `trimmed`: behind blanks, too.
    fn continuation(&mut self, trimmed: bool) -> bool {
        let blanks = if trimmed { blanks(self.rest()) } else { 0 };
        for end in ["\r\n", "\n", "\r"] {
            if self.rest()[blanks..].starts_with(end) {
                self.at += blanks + end.len();
                if self.prepares {
                    self.at += prompt::continued(self.rest());
                }
                return true;
            }
        }
        false
    }

    fn escape(&mut self, at: usize) {
        // blanks that were copied along
        if self.continuation(self.prepares) {
            return;
        }
        // it would join a line that is not there
        let ends = self.rest().is_empty() || self.prepares && self.rest().trim().is_empty();
        if ends {
            self.at = self.line.len();
            self.end_word(at);
        } else if let Some((_, c)) = self.next() {
            self.push(c, at);
        }
    }

    fn single_quoted(&mut self, open: usize) -> Result<(), Caret> {
        self.begin(open);
        loop {
            match self.next() {
                Some((_, '\'')) => return Ok(()),
                Some((at, c)) => self.push(c, at),
                None => return Err(self.open_quote(open, '\'')),
            }
        }
    }

    fn double_quoted(&mut self, open: usize) -> Result<(), Caret> {
        self.begin(open);
        loop {
            match self.next() {
                Some((_, '"')) => return Ok(()),
                Some((at, '\\')) if self.rest().starts_with(['$', '"', '\\', '`']) => {
                    if let Some((_, c)) = self.next() {
                        self.push(c, at);
                    }
                }
                Some((_, '\\')) if self.continuation(false) => {}
                Some((at, c)) => {
                    self.refuse_expansion(at, c, true)?;
                    self.push(c, at);
                }
                None => return Err(self.open_quote(open, '"')),
            }
        }
    }

    fn open_quote(&self, at: usize, quote: char) -> Caret {
        self.error(at, 1, &format!("the quote {quote} is never closed"))
    }

    /// `$NAME`, `$(…)` and backticks; `self.at` is behind the character.
    fn refuse_expansion(&self, at: usize, c: char, quoted: bool) -> Result<(), Caret> {
        let rest = self.rest();
        let begins = |c: char| {
            c.is_ascii_alphanumeric() || "_{(?!#@*$-".contains(c) || !quoted && matches!(c, '\'' | '"')
        };
        let (what, len) = match c {
            _ if self.is_batch => return Ok(()),
            '`' => ("a command in backticks", rest.find('`').map_or(1, |end| end + 2)),
            '$' if rest.starts_with('(') => ("`$(…)`", rest.find(')').map_or(2, |end| end + 2)),
            '$' if rest.starts_with(begins) => {
                let name = rest.trim_start_matches('{');
                let name = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
                let braces = if rest.starts_with('{') { 2 } else { 0 };
                ("a variable", (1 + braces + name).clamp(2, self.line.len() - at))
            }
            _ => return Ok(()),
        };
        if self.line.get(at + 1..at + len).is_some_and(|name| HERE.contains(&name)) {
            let text = "the folder that you are in: write its whole path on the hosts; --sync . copies it there first";
            return Err(self.error(at, len, &format!("`{}` is {text}", &self.line[at..at + len])));
        }
        let is_first = c == '`' && !quoted && self.words.is_empty() && self.word.is_none();
        if is_first && self.line.len() > at + 1 && self.line.trim_end().ends_with('`') {
            let text = "the backticks around the line are those of Markdown: leave them out";
            return Err(self.error(at, 1, text));
        }
        let text = format!(
            "{what} needs a shell: write the value itself, put it in single quotes if it is meant literally, or start `sh -c '…'`"
        );
        Err(self.error(at, len, &text))
    }

    fn operator(&self, at: usize, c: char) -> Caret {
        let len = self.line[at..].chars().take_while(|next| *next == c).count();
        let operator = &self.line[at..at + len];
        let bracketed = self.line[at..].strip_prefix('<').and_then(|rest| rest.split_once('>'));
        if let Some((name, _)) = bracketed
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        {
            let text =
                format!("`<{name}>` is a placeholder: put a number, or what else it names, in its place");
            return self.error(at, name.len() + 2, &text);
        }
        let remedy = match c {
            '&' if len == 1 => {
                "give one command: what stays in the background is ended with its rank, and a run goes on without this terminal"
            }
            '>' | '<' | '|' if len == 1 => "leave it out, output is recorded anyway, or start `sh -c '…'`",
            _ => "quote it if it is meant literally, or start `sh -c '…'`",
        };
        let first = self.words.get(self.from).filter(|_| self.prepares);
        let fields = match first.filter(|word| setup::prepares(&word.text)) {
            Some(_) => "; a folder is workdir (`--workdir`), an environment activate (`--conda`, `--venv`)",
            None => "",
        };
        self.error(at, len, &format!("`{operator}` needs a shell: {remedy}{fields}"))
    }

    fn error(&self, at: usize, len: usize, text: &str) -> Caret {
        Caret { line: self.line.to_owned(), at, len, text: text.to_owned() }
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
