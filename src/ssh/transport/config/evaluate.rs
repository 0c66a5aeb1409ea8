//! Which lines of a configuration count for one host: `Host`, `Match` and `Include`, first value first. Reads no file
//! itself: the caller gives it the texts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::keys::{self, Shape};
use super::syntax::{self, Line};
use crate::domain::text::sanitize;
use crate::ssh::trust::Place;
use crate::ssh::trust::pattern;

/// How deep files may include each other, as in OpenSSH.
const DEPTH: usize = 16;

/// Whom the configuration is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The name as it was given: an alias, a name or an address.
    pub name: &'a str,
    /// The login name, where it is settled already.
    pub user: Option<&'a str>,
    /// The port, where it is settled already.
    pub port: Option<u16>,
    /// The login name here.
    pub local_user: &'a str,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) words: Vec<String>,
    pub(super) place: Option<Place>,
}

/// Something that a person should know about their configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The line it is about, where that is known.
    pub place: Option<Place>,
    /// What is to be known, sanitised.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// What a configuration says for one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) values: BTreeMap<String, Vec<Value>>,
    pub(super) notes: Vec<Note>,
    /// Some line, perhaps for other hosts, says something that matters to hvtui.
    pub(super) matters: bool,
}

impl Found {
    pub(super) fn one(&self, key: &str) -> Option<&Value> {
        self.values.get(key).and_then(|values| values.first())
    }

    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.one(key).and_then(|value| value.words.first()).map(String::as_str)
    }
}

/// A file's path and text.
pub(super) type Text = (PathBuf, String);

/// Finds the files that an `Include` names; an error is what to say of it.
pub(super) type Include<'a> = &'a mut dyn FnMut(&str) -> Vec<Result<Text, String>>;

pub(super) struct Evaluator<'a> {
    question: Question<'a>,
    found: Found,
}

/// Whether a `Match` line's block counts.
enum Matched {
    Yes,
    No,
    /// It can't be told: this is not understood.
    Unclear(String),
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(question: Question<'a>) -> Self {
        Self { question, found: Found::default() }
    }

    pub(super) fn end(self) -> Found {
        self.found
    }

    /// Takes in one file.
    pub(super) fn file(&mut self, path: &Path, text: &str, include: Include<'_>) {
        self.read(path, text, include, true, 0);
    }

    fn read(&mut self, path: &Path, text: &str, include: Include<'_>, counts: bool, depth: usize) {
        let mut active = counts;
        for (index, line) in text.split('\n').enumerate() {
            let Some(line) = syntax::line(line) else { continue };
            let place = Place { file: path.to_owned(), line: index + 1 };
            if line.open_quote {
                self.note(&place, &format!("{}: a quote is not closed; the line is left out", line.key));
                continue;
            }
            match line.key.as_str() {
                "host" => {
                    active =
                        counts && pattern::any(line.words.iter().map(String::as_str), self.question.name);
                }
                "match" => {
                    self.found.matters = true;
                    active = counts && self.block_counts(&line.words, &place);
                }
                "include" => {
                    for word in &line.words {
                        self.include(word, &place, include, active, depth);
                    }
                }
                _ => self.setting(&line, place, active),
            }
        }
    }

    fn include(&mut self, word: &str, place: &Place, include: Include<'_>, active: bool, depth: usize) {
        if depth == DEPTH {
            return self.note(place, &format!("Include: more than {DEPTH} files deep; not followed"));
        }
        for found in include(word) {
            match found {
                Ok((path, text)) => self.read(&path, &text, include, active, depth + 1),
                Err(why) => self.note(place, &format!("Include {word}: {why}")),
            }
        }
    }

    fn setting(&mut self, line: &Line<'_>, place: Place, active: bool) {
        let key = keys::current(&line.key);
        let Some(shape) = keys::shape(key) else {
            if active && !keys::passed_over(key) && !self.ignores(key) {
                self.note(&place, &format!("{key} is not known to hvtui and left out"));
            }
            if key == keys::IGNORE_UNKNOWN && active {
                self.keep(key, line.words.clone(), place, false);
            }
            return;
        };
        // Distributions set it for everybody; it counts only where it can be used.
        self.found.matters = self.found.matters || key != "gssapiauthentication";
        if !active {
            return;
        }
        let words = match shape {
            Shape::Line => vec![line.rest.to_owned()],
            Shape::Word | Shape::Each => line.words.iter().take(1).cloned().collect(),
            Shape::Words => line.words.clone(),
        };
        if words.first().is_none_or(String::is_empty) {
            return self.note(&place, &format!("{key} has no value; the line is left out"));
        }
        // The two ways through something else exclude each other: the first one counts.
        let other = match key {
            "proxyjump" => "proxycommand",
            "proxycommand" => "proxyjump",
            _ => "",
        };
        if !self.found.values.contains_key(other) {
            self.keep(key, words, place, shape == Shape::Each);
        }
    }

    fn keep(&mut self, key: &str, words: Vec<String>, place: Place, more: bool) {
        let values = self.found.values.entry(key.to_owned()).or_default();
        if values.is_empty() || (more && values.iter().all(|value| value.words != words)) {
            values.push(Value { words, place: Some(place) });
        }
    }

    fn ignores(&self, key: &str) -> bool {
        let ignored = self.found.one(keys::IGNORE_UNKNOWN);
        ignored.is_some_and(|value| {
            let patterns = value.words.iter().flat_map(|word| word.split(','));
            pattern::any(
                patterns.map(str::to_ascii_lowercase).collect::<Vec<_>>().iter().map(String::as_str),
                key,
            )
        })
    }

    fn block_counts(&mut self, words: &[String], place: &Place) -> bool {
        match self.matched(words) {
            Matched::Yes => true,
            Matched::No => false,
            Matched::Unclear(what) => {
                self.note(place, &format!("Match {what} is not understood; the block is left out"));
                false
            }
        }
    }

    /// All criteria must hold. One that is not understood matters only where the others hold.
    fn matched(&self, words: &[String]) -> Matched {
        let mut unclear = None;
        let mut words = words.iter().map(String::as_str);
        let mut any = false;
        while let Some(word) = words.next() {
            any = true;
            let (word, mut value) =
                word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
            let (negated, key) = word.strip_prefix('!').map_or((false, word), |key| (true, key));
            let key = key.to_ascii_lowercase();
            let holds = match key.as_str() {
                "all" => Some(true),
                "canonical" | "final" => None,
                _ => {
                    value = value.or_else(|| words.next());
                    let Some(value) = value else {
                        return Matched::Unclear(format!("{key} without a value"));
                    };
                    self.criterion(&key, value)
                }
            };
            match holds {
                Some(holds) if holds == negated => return Matched::No,
                Some(_) => {}
                None => unclear = unclear.or(Some(key)),
            }
        }
        match unclear {
            Some(key) => Matched::Unclear(sanitize(&key).into_owned()),
            None if any => Matched::Yes,
            None => Matched::Unclear("without a condition".to_owned()),
        }
    }

    fn criterion(&self, key: &str, value: &str) -> Option<bool> {
        let name = self.question.name;
        let lower = value.to_ascii_lowercase();
        Some(match key {
            "originalhost" => pattern::any(lower.split(','), &name.to_ascii_lowercase()),
            "host" => {
                let name =
                    self.found.word("hostname").map_or(name.to_owned(), |host| host.replace("%h", name));
                pattern::any(lower.split(','), &name.to_ascii_lowercase())
            }
            "user" => {
                let user = self.question.user.or(self.found.word("user"));
                pattern::any(value.split(','), user.unwrap_or(self.question.local_user))
            }
            "localuser" => pattern::any(value.split(','), self.question.local_user),
            _ => return None,
        })
    }

    fn note(&mut self, place: &Place, text: &str) {
        let note = Note { place: Some(place.clone()), text: sanitize(text).into_owned() };
        if !self.found.notes.contains(&note) {
            self.found.notes.push(note);
        }
    }
}
