//! What the doctor has found, for people. Pure.

use std::fmt::Write;

use super::history::{Change, Json};
use crate::domain::doctor::{Group, Matrix, glyph, groups, names, troubles};
use crate::domain::preflight::Mark;
use crate::domain::units::counted;

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
        out.push_str(&troubles(matrix, mark));
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
