//! What can be wrong with a hosts file, and how it is shown: file, line, caret, remedy.

use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::domain::text::sanitize;

/// A hosts file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It can't be read.
    #[error("can't read hosts file {}: {source}{}", path.display(), begin(path, source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// It holds something else than text.
    #[error("hosts file {} is not UTF-8 text from line {line} on", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line that is not text, from 1.
        line: usize,
    },
    /// It breaks rules.
    #[error("{}", summary(path, text, problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
        /// What is wrong, at least one.
        problems: Vec<Problem>,
    },
}

/// What helps where there is none.
fn begin(path: &Path, source: &std::io::Error) -> String {
    if source.kind() != std::io::ErrorKind::NotFound {
        return String::new();
    }
    let path = path.to_string_lossy();
    let file = shlex::try_quote(&path).unwrap_or_default();
    format!("; a commented one to begin with: hvtui config template > {file}")
}

/// One fault in a hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, in a lowercase fragment.
    pub title: String,
    /// Bytes of the text that it is about.
    pub span: Range<usize>,
    /// What it repeats, where it is a repetition.
    pub first: Option<Range<usize>>,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    pub(super) fn new(span: Range<usize>, title: impl Into<String>, remedy: impl Into<String>) -> Self {
        // Both may repeat what the file says.
        let [title, remedy] = [title.into(), remedy.into()].map(|text| sanitize(&text).into_owned());
        Self { title, span, first: None, remedy }
    }

    pub(super) fn repeats(mut self, first: Range<usize>) -> Self {
        self.first = Some(first);
        self
    }
}

impl ConfigError {
    /// The error for people: for a fault in the text, the line with a caret under it and the remedy.
    /// `colour` adds terminal colours.
    pub fn render(&self, colour: bool) -> String {
        let Self::Invalid { path, text, problems } = self else {
            return format!("hvtui: {self}");
        };
        let path = path.display().to_string();
        let groups: Vec<Group<'_>> = problems.iter().map(|problem| group(&path, text, problem)).collect();
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.decor_style(DecorStyle::Ascii).render(&groups)
    }
}

fn group<'a>(path: &'a str, text: &'a str, problem: &'a Problem) -> Group<'a> {
    let mut primary = AnnotationKind::Primary.span(clamp(&problem.span, text));
    let mut snippet = Snippet::source(text).path(path);
    if let Some(first) = &problem.first {
        primary = primary.label("again here");
        snippet = snippet.annotation(AnnotationKind::Context.span(clamp(first, text)).label("first here"));
    }
    let snippet = snippet.annotation(primary);
    Level::ERROR
        .with_name("hvtui")
        .primary_title(problem.title.as_str())
        .element(snippet)
        .element(Level::HELP.message(problem.remedy.as_str()))
}

/// A caret marks one line at most: what reaches further is cut at its end.
fn clamp(span: &Range<usize>, text: &str) -> Range<usize> {
    let boundary =
        |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = boundary(span.start);
    let end = boundary(span.end).max(start);
    let line = text[start..end].find('\n').map_or(end, |at| start + at);
    start..line
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

fn summary(path: &Path, text: &str, problems: &[Problem]) -> String {
    let place = |p: &Problem| {
        format!("{}:{}: {} ({})", path.display(), line_of(text, p.span.start), p.title, p.remedy)
    };
    problems.iter().map(place).collect::<Vec<_>>().join("; ")
}
