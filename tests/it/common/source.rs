//! Reads Rust source well enough to tell what it imports: comments, literals and test modules are taken out,
//! paths are expanded. Not a compiler: macros that make paths go unseen.

use std::path::{Path, PathBuf};

/// One file of `src/`.
pub(crate) struct SourceFile {
    /// Path below `src/`.
    pub(crate) name: String,
    /// `tui/view/ranks.rs` is `["tui", "view", "ranks"]`, `agent/mod.rs` is `["agent"]`.
    pub(crate) module: Vec<String>,
    /// Lines that are not in a test module.
    pub(crate) lines: usize,
    /// Whether it begins with `//!`.
    pub(crate) header: bool,
    code: String,
    /// With its literals.
    text: String,
}

/// Every `.rs` file below `folder`, but those that only tests are made of.
pub(crate) fn read_tree(folder: &Path) -> Vec<SourceFile> {
    let mut texts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                texts.push((path, text));
            }
        }
    }
    texts.sort();
    let only_tests: Vec<PathBuf> = texts.iter().flat_map(|(path, text)| test_files(path, text)).collect();
    texts.retain(|(path, _)| {
        !only_tests.iter().any(|file| path == file || path.starts_with(file.with_extension("")))
    });
    texts.iter().map(|(path, text)| SourceFile::parse(path.strip_prefix(folder).unwrap(), text)).collect()
}

/// The files of a file's modules that are marked `#[cfg(test)]`.
fn test_files(path: &Path, text: &str) -> Vec<PathBuf> {
    let beside = path.parent().unwrap();
    let is_folder = path.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs");
    let below = if is_folder { beside.to_owned() } else { path.with_extension("") };
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.any(|line| line == "#[cfg(test)]") {
        let mut named = None;
        for line in lines.by_ref() {
            if let Some(name) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                named = Some(beside.join(name));
            } else if !line.starts_with("#[") {
                let module = line.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(';'));
                found.extend(
                    module.map(|name| named.unwrap_or_else(|| below.join(name).with_extension("rs"))),
                );
                break;
            }
        }
    }
    found
}

impl SourceFile {
    /// Reads a file's text; `path` is relative to `src/`.
    pub(crate) fn parse(path: &Path, text: &str) -> Self {
        let mut module: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        let header = text.trim_start().starts_with("//!");
        let code = without_tests(&without_literals(text));
        // Taking out keeps line ends outside of test modules, so what is left counts.
        let lines = code.lines().count();
        let before_tests = text.split("mod tests {").next().unwrap_or_default().lines();
        let text: Vec<&str> = before_tests.filter(|line| !line.trim_start().starts_with("//")).collect();
        Self { name: path.display().to_string(), module, lines, header, code, text: text.join("\n") }
    }

    /// `lib.rs` and `main.rs`, which are no module.
    pub(crate) fn is_root(&self) -> bool {
        self.module.len() == 1 && matches!(self.module[0].as_str(), "lib" | "main")
    }

    /// Every path into this crate that it names, from the crate's root.
    pub(crate) fn own_paths(&self) -> Vec<Vec<String>> {
        let mut paths = self.paths_from("crate");
        for path in self.paths_from("super") {
            let up = path.iter().take_while(|part| *part == "super").count() + 1;
            let kept = self.module.len().saturating_sub(up);
            paths.push([&self.module[..kept], &path[up - 1..]].concat());
        }
        paths
    }

    /// The paths that it names from where it stands, from the crate's root: `self::run::Failed`, and `run::start` where it
    /// has `mod run;`.
    pub(crate) fn local_paths(&self) -> Vec<Vec<String>> {
        let mut paths = self.paths_from("self");
        let parts = self.code.split(';').filter_map(|text| Some(text.rsplit_once("mod ")?.1));
        for part in parts.filter(|name| name.chars().all(is_word)) {
            let below = self.paths_from(part).into_iter();
            paths.extend(below.map(|path| [&[part.to_owned()], &path[..]].concat()));
        }
        paths.into_iter().map(|path| [&self.module[..], &path[..]].concat()).collect()
    }

    /// The paths that it names and that lie in one of `listed`, such as `std::fs`.
    pub(crate) fn foreign_paths(&self, listed: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for entry in listed {
            let first = entry.split("::").next().unwrap_or_default();
            for path in self.paths_from(first) {
                let path = [&[first.to_owned()], &path[..]].concat().join("::");
                if path == *entry || path.starts_with(&format!("{entry}::")) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Whether its code holds this text as a word: `println!`, `Instant::now`, `stdout()`.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.code.match_indices(text).any(|(at, _)| {
            let after = &self.code[at + text.len()..];
            let longer = text.ends_with(is_word) && after.starts_with(is_word);
            !longer && !self.code[..at].ends_with(is_word)
        })
    }

    /// Whether it names a file of this name in a folder, or the name alone, in a literal.
    pub(crate) fn names_file(&self, name: &str) -> bool {
        let in_folder = format!("/{name}");
        let ends = |(at, found): (usize, &str)| !self.text[at + found.len()..].starts_with(is_word);
        self.text.match_indices(&in_folder).any(ends) || self.text.contains(&format!("\"{name}\""))
    }

    /// What follows `first::` everywhere, braces expanded.
    fn paths_from(&self, first: &str) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        for (at, _) in self.code.match_indices(first) {
            let before = self.code[..at].trim_end();
            // the middle of another path or word: `x::first`, `$crate`
            if self.code[..at].ends_with(|c| is_word(c) || c == '$') || before.ends_with("::") {
                continue;
            }
            // who may see an item is no import: `pub(in crate::ssh)`
            if before.ends_with("(in") {
                continue;
            }
            let mut rest = &self.code[at + first.len()..];
            if let Some(after) = rest.trim_start().strip_prefix("::") {
                rest = after;
                tree(&mut rest, &mut Vec::new(), &mut paths);
            } else if before.ends_with("use") && rest.trim_start().starts_with([';', 'a']) {
                paths.push(Vec::new()); // `use tokio;`, `use tokio as t;`
            }
        }
        paths
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads one tree of a `use` (or a plain path) and adds the paths in it.
fn tree(rest: &mut &str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    *rest = rest.trim_start();
    if let Some(inside) = rest.strip_prefix('{') {
        *rest = inside;
        loop {
            *rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            match rest.strip_prefix('}') {
                Some(after) => return *rest = after,
                None if rest.is_empty() => return,
                None => tree(rest, prefix, paths),
            }
            // `as name` is of no interest
            *rest = rest.trim_start_matches(|c| c != ',' && c != '}');
        }
    }
    let end = rest.find(|c| !is_word(c) && c != '*').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    if word.is_empty() {
        return;
    }
    prefix.push(word.to_owned());
    match rest.trim_start().strip_prefix("::") {
        Some(after) if !after.trim_start().starts_with('<') => {
            *rest = after;
            tree(rest, prefix, paths);
        }
        _ => paths.push(prefix.iter().filter(|part| *part != "self").cloned().collect()),
    }
    prefix.pop();
}

/// Blanks comments and the content of literals.
fn without_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '"' => plain_literal(rest),
            'r' if !out.ends_with(is_word) || out.ends_with('b') => raw_literal(rest).unwrap_or(0),
            '\'' => char_literal(rest).unwrap_or(0),
            _ => 0,
        };
        if skipped == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            rest = &rest[skipped..];
        }
    }
    out
}

fn plain_literal(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_literal(text: &str) -> Option<usize> {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + body.find(&end)? + end.len())
}

/// `'x'`, `'\n'`, `'\u{1b}'`; not the lifetime `'a`.
fn char_literal(text: &str) -> Option<usize> {
    let body = &text[1..];
    if let Some(escape) = body.strip_prefix('\\') {
        return Some(3 + escape[1..].find('\'')? + 1);
    }
    let c = body.chars().next()?;
    body[c.len_utf8()..].starts_with('\'').then_some(2 + c.len_utf8())
}

/// Cuts out the bodies of `mod tests { … }`.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("mod tests {") {
        out.push_str(&rest[..at]);
        let body = &rest[at + "mod tests {".len()..];
        let mut depth = 1;
        let end = body.find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        rest = end.map_or("", |end| &body[end + 1..]);
    }
    out + rest
}
