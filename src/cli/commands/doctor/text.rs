//! What the doctor has found, for people. Pure.

use std::fmt::Write;

use super::history::{Change, Json};
use crate::domain::doctor::{CONNECTION, Group, Matrix, Row, glyph, groups, names, troubles};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::units::counted;

/// What is wrong first, the red before the yellow; then what is as it should be, a line a check.
pub(super) fn as_text(matrix: &Matrix, verbose: bool) -> String {
    let (red, yellow) = (matrix.count(Mark::Bad), matrix.count(Mark::Look));
    let verdict = match (red, yellow) {
        (0, 0) => calm(matrix),
        (red, yellow) => count(red, yellow),
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
        let of_mark =
            |mark| all.iter().filter(move |group| group.row.check == row.check && group.verdict.mark == mark);
        for mark in [Mark::Good, Mark::Unknown] {
            let of: Vec<&Group<'_>> = of_mark(mark).collect();
            // what most of a cluster does not have says nothing
            if of.is_empty()
                || (mark == Mark::Unknown
                    && !verbose
                    && of.iter().all(|one| one.verdict.evidence.starts_with("the host is not")))
            {
                continue;
            }
            // each reason is told with its hosts
            if verbose || mark == Mark::Unknown && of.len() > 1 {
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

/// Where nothing is red or yellow: whether that was seen, and what could not be looked at.
fn calm(matrix: &Matrix) -> String {
    let rows = matrix.rows.iter().filter(|row| row.check != CONNECTION);
    let is_unseen = |row: &&Row| row.verdicts.values().all(|verdict| verdict.mark == Mark::Unknown);
    let (unseen, seen): (Vec<&Row>, Vec<&Row>) = rows.partition(is_unseen);
    let names: Vec<&str> = unseen.iter().map(|row| row.check).collect();
    match (unseen.is_empty(), seen.is_empty()) {
        (true, _) => "nothing is wrong".to_owned(),
        (false, true) => format!("nothing to judge on any host for {}", names.join(", ")),
        (false, false) => format!("nothing is wrong; nothing to judge on any host for {}", names.join(", ")),
    }
}

/// `1 red, 2 to look at`.
fn count(red: usize, yellow: usize) -> String {
    match (red, yellow) {
        (0, 0) => "nothing red, nothing to look at".to_owned(),
        (0, yellow) => format!("{yellow} to look at"),
        (red, 0) => format!("{red} red"),
        (red, yellow) => format!("{red} red, {yellow} to look at"),
    }
}

pub(super) fn changes_text(before: &Json, now: &Json, changes: &[Change]) -> String {
    let mut out = format!("since {}: ", before.at);
    let count = count(now.red, now.yellow);
    if changes.is_empty() {
        let _ = writeln!(out, "nothing has changed; now {count}");
    } else {
        let _ = writeln!(out, "{} changed; now {count}\n", counted(changes.len(), "verdict"));
    }
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
    for (hosts, what) in [
        (&now.new_hosts, "not looked at then: of such hosts what is wrong is told"),
        (&now.gone_hosts, "looked at then, and not among the hosts of now"),
    ] {
        let hosts: Vec<HostId> = hosts.iter().map(|host| HostId::from(host.as_str())).collect();
        if !hosts.is_empty() {
            let _ = writeln!(out, "· {}: {what}", names(&hosts.iter().collect::<Vec<_>>()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::Verdict;

    fn matrix(rows: &[(&'static str, [Verdict; 2])]) -> Matrix {
        let hosts = ["a", "b"].map(HostId::from);
        let row = |(check, verdicts): &(&'static str, [Verdict; 2])| Row {
            check,
            asks: "",
            verdicts: hosts.iter().cloned().zip(verdicts.clone()).collect(),
        };
        Matrix { rows: rows.iter().map(row).collect(), hosts: hosts.to_vec() }
    }

    fn reached() -> (&'static str, [Verdict; 2]) {
        (CONNECTION, ["a", "b"].map(Verdict::good))
    }

    #[test]
    fn what_could_be_looked_at_nowhere_is_named() {
        let unseen = ("driver", ["no GPU", "no GPU"].map(Verdict::unknown));
        let alone = as_text(&matrix(&[reached(), unseen.clone()]), false);
        assert!(alone.starts_with("2 hosts, 2 checks: nothing to judge on any host for driver\n"), "{alone}");
        let shm = ("shm", ["1 T", "1 T"].map(Verdict::good));
        let text = as_text(&matrix(&[reached(), shm.clone(), unseen]), false);
        let title = "2 hosts, 3 checks: nothing is wrong; nothing to judge on any host for driver\n";
        assert!(text.starts_with(title), "{text}");
        let seen = as_text(&matrix(&[reached(), shm]), false);
        assert!(seen.starts_with("2 hosts, 2 checks: nothing is wrong\n"), "{seen}");
    }

    #[test]
    fn several_reasons_of_a_check_are_told_each_with_its_hosts() {
        let verdicts = [Verdict::unknown("no other host is reached"), Verdict::unknown("no answer in 4 s")];
        let text = as_text(&matrix(&[reached(), ("reach", verdicts)]), false);
        assert!(text.contains("– reach      a  no other host is reached\n"), "{text}");
        assert!(text.contains("– reach      b  no answer in 4 s\n"), "{text}");
    }

    #[test]
    fn changes_are_told_with_how_it_stands_now() {
        let json = |rows: &[(&'static str, [Verdict; 2])]| super::super::history::as_json(&matrix(rows));
        let (before, now) =
            (json(&[reached()]), json(&[("shm", [Verdict::bad("0", "", ""), Verdict::look("1", "", "")])]));
        let text = changes_text(&before, &now, &[]);
        assert!(text.ends_with(": nothing has changed; now 1 red, 1 to look at\n"), "{text}");
        let text = changes_text(&before, &before, &[]);
        assert!(text.ends_with("; now nothing red, nothing to look at\n"), "{text}");
    }
}
