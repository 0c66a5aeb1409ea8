//! What the doctor has found, for people. Pure.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::history::{Change, Json};
use crate::domain::doctor::{Matrix, Row, Verdict};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;

pub(in crate::cli::commands) fn glyph(mark: Mark) -> &'static str {
    match mark {
        Mark::Good => "✔",
        Mark::Unknown => "–",
        Mark::Look => "⚠",
        Mark::Bad => "✖",
    }
}

pub(in crate::cli::commands) fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Hosts that share a verdict of a row.
struct Group<'a> {
    row: &'a Row,
    verdict: &'a Verdict,
    hosts: Vec<&'a HostId>,
}

fn groups<'a>(matrix: &'a Matrix, row: &'a Row) -> Vec<Group<'a>> {
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

/// What is wrong first, the red before the yellow; then what is as it should be, a line a check.
pub(super) fn as_text(matrix: &Matrix, verbose: bool) -> String {
    let (red, yellow) = (matrix.count(Mark::Bad), matrix.count(Mark::Look));
    let verdict = match (red, yellow) {
        (0, 0) => "nothing is wrong".to_owned(),
        (0, yellow) => format!("{yellow} to look at"),
        (red, 0) => format!("{red} red"),
        (red, yellow) => format!("{red} red, {yellow} to look at"),
    };
    let (hosts, checks) = (counted(matrix.hosts.len(), "host"), counted(matrix.rows.len(), "check"));
    let mut out = format!("{hosts}, {checks}: {verdict}\n\n");
    let all: Vec<Group<'_>> = matrix.rows.iter().flat_map(|row| groups(matrix, row)).collect();
    for mark in [Mark::Bad, Mark::Look] {
        let of_mark: Vec<&Group<'_>> = all.iter().filter(|group| group.verdict.mark == mark).collect();
        let alike = |a: &&Group<'_>, b: &&Group<'_>| {
            let what =
                |one: &Group<'_>| (one.row.check, one.verdict.cause.clone(), one.verdict.remedy.clone());
            what(a) == what(b)
        };
        of_mark.chunk_by(alike).for_each(|alike| trouble(&mut out, alike));
    }
    if red + yellow > 0 {
        out.push('\n');
    }
    for row in &matrix.rows {
        let calm =
            |mark| all.iter().filter(move |group| group.row.check == row.check && group.verdict.mark == mark);
        for mark in [Mark::Good, Mark::Unknown] {
            let of: Vec<&Group<'_>> = calm(mark).collect();
            // what most of a cluster does not have says nothing
            if of.is_empty()
                || (mark == Mark::Unknown
                    && !verbose
                    && of.iter().all(|one| one.verdict.evidence.starts_with("the host is not")))
            {
                continue;
            }
            if verbose {
                for group in of {
                    let _ = writeln!(
                        out,
                        "{} {:10} {}  {}",
                        glyph(mark),
                        row.check,
                        names(&group.hosts),
                        group.verdict.evidence
                    );
                }
                continue;
            }
            let count: usize = of.iter().map(|group| group.hosts.len()).sum();
            let evidence = match of.as_slice() {
                [one] => one.verdict.evidence.as_str(),
                _ => "",
            };
            let line = format!("{} {:10} {:9} {evidence}", glyph(mark), row.check, counted(count, "host"));
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
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
pub(super) fn names(hosts: &[&HostId]) -> String {
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

pub(super) fn changes_text(before: &Json, changes: &[Change]) -> String {
    let mut out = format!("since {}: ", before.at);
    if changes.is_empty() {
        out.push_str("nothing has changed\n");
        return out;
    }
    let _ = writeln!(out, "{} changed\n", counted(changes.len(), "verdict"));
    for change in changes {
        let now = &change.now;
        let _ = writeln!(out, "{} {:10} {}: {}", glyph(now.mark), change.check, change.host, now.evidence);
        let was = change
            .before
            .as_ref()
            .map_or("not looked at".to_owned(), |was| format!("{} {}", glyph(was.mark), was.evidence));
        let _ = writeln!(out, "  {:10} was: {was}", "");
        if let Some(remedy) = &now.remedy {
            let _ = writeln!(out, "  {:10} fix: {remedy}", "");
        }
    }
    out
}
