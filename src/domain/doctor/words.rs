//! Verdicts in lines for people: hosts that have found the same are told once.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{Matrix, Row, Verdict};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;

/// The mark of a line.
pub fn glyph(mark: Mark) -> &'static str {
    match mark {
        Mark::Good => "✔",
        Mark::Unknown => "–",
        Mark::Look => "⚠",
        Mark::Bad => "✖",
    }
}

/// Hosts that share a verdict of a row.
#[derive(Debug)]
pub struct Group<'a> {
    /// The row.
    pub row: &'a Row,
    /// What they share.
    pub verdict: &'a Verdict,
    /// The hosts, in their order.
    pub hosts: Vec<&'a HostId>,
}

/// The groups of a row.
pub fn groups<'a>(matrix: &'a Matrix, row: &'a Row) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for host in &matrix.hosts {
        let Some(verdict) = row.verdicts.get(host) else { continue };
        match groups.iter_mut().find(|group| group.verdict == verdict) {
            Some(group) => group.hosts.push(host),
            None => groups.push(Group { row, verdict, hosts: vec![host] }),
        }
    }
    groups
}

/// What has this mark: a line for each group of hosts, and once what follows from it and what helps.
pub fn troubles(matrix: &Matrix, mark: Mark) -> String {
    let all: Vec<Group<'_>> = matrix.rows.iter().flat_map(|row| groups(matrix, row)).collect();
    let of_mark: Vec<&Group<'_>> = all.iter().filter(|group| group.verdict.mark == mark).collect();
    let alike = |a: &&Group<'_>, b: &&Group<'_>| {
        let what = |one: &Group<'_>| (one.row.check, one.verdict.cause.clone(), one.verdict.remedy.clone());
        what(a) == what(b)
    };
    let mut out = String::new();
    of_mark.chunk_by(alike).for_each(|alike| trouble(&mut out, alike));
    out
}

/// A line for each group that differs in what was seen alone, and once what follows from it.
fn trouble(out: &mut String, alike: &[&Group<'_>]) {
    for (at, group) in alike.iter().enumerate() {
        let check = if at == 0 { group.row.check } else { "" };
        let (glyph, seen) = (glyph(group.verdict.mark), &group.verdict.evidence);
        let _ = writeln!(out, "{glyph} {check:10} {}: {seen}", names(&group.hosts));
    }
    let Some(first) = alike.first() else { return };
    for (title, text) in [("why", &first.verdict.cause), ("fix", &first.verdict.remedy)] {
        if let Some(text) = text {
            let _ = writeln!(out, "  {:10} {title}: {text}", "");
        }
    }
}

/// The names, few of many.
pub fn names(hosts: &[&HostId]) -> String {
    let mut text = String::new();
    for (at, host) in hosts.iter().enumerate() {
        if text.width() > 40 {
            let _ = write!(text, " and {} more", hosts.len() - at);
            break;
        }
        let _ = write!(text, "{}{host}", if at == 0 { "" } else { ", " });
    }
    text
}
