//! What the doctor has found, for people. Pure.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::history::{Change, Json};
use crate::domain::doctor::{CONNECTION, Group, Matrix, Row, glyph, groups, names, troubles};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::units::counted;

/// Columns of the hosts of a line, at least; and at most where others have room below it.
const NARROWEST: usize = 8;
const WIDEST: usize = 24;

/// What is wrong first, the red before the yellow; then what is as it should be, a line a check.
pub(super) fn as_text(matrix: &Matrix, verbose: bool) -> String {
    let (red, yellow) = (matrix.checks(Mark::Bad), matrix.checks(Mark::Look));
    let verdict = title(matrix, red, yellow);
    let (hosts, checks) = (counted(matrix.hosts.len(), "host"), matrix.checks_words());
    let mut out = format!("{hosts}, {checks}: {verdict}\n\n");
    let all: Vec<Group<'_>> = matrix.rows.iter().flat_map(|row| groups(matrix, row)).collect();
    for mark in [Mark::Bad, Mark::Look] {
        out.push_str(&troubles(matrix, mark));
    }
    if red + yellow > 0 {
        out.push('\n');
    }
    let mut lines = Vec::new();
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
                    lines.push((mark, row.check, names(&group.hosts), group.verdict.evidence.as_str()));
                }
                continue;
            }
            let count: usize = of.iter().map(|group| group.hosts.len()).sum();
            let evidence = match of.as_slice() {
                [one] => one.verdict.evidence.as_str(),
                _ => "",
            };
            lines.push((mark, row.check, counted(count, "host"), evidence));
        }
    }
    // one column, but for what would push all others far to the right
    let widths = lines.iter().map(|(_, _, whose, _)| whose.width()).filter(|width| *width <= WIDEST);
    let width = widths.max().unwrap_or(0).max(NARROWEST);
    for (mark, check, whose, evidence) in lines {
        let line = format!("{} {check:10} {whose:width$}  {evidence}", glyph(mark));
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// What is wrong, and what could be looked at nowhere. Where no host is reached that alone is told.
fn title(matrix: &Matrix, red: usize, yellow: usize) -> String {
    let connection = matrix.rows.iter().find(|row| row.check == CONNECTION);
    let is_any_reached =
        connection.is_none_or(|row| row.verdicts.values().any(|verdict| verdict.mark == Mark::Good));
    let rows = matrix.rows.iter().filter(|row| row.check != CONNECTION);
    let is_unseen = |row: &&Row| row.verdicts.values().all(|verdict| verdict.mark == Mark::Unknown);
    let (unseen, seen): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| is_any_reached && is_unseen(row));
    let names: Vec<&str> = unseen.iter().map(|row| row.check).collect();
    let nowhere =
        (!names.is_empty()).then(|| format!("nothing to judge on any host for {}", names.join(", ")));
    let wrong = match (red, yellow) {
        (0, 0) if seen.is_empty() && nowhere.is_some() => None,
        (0, 0) => Some("nothing is wrong".to_owned()),
        (red, yellow) => Some(count(red, yellow)),
    };
    wrong.into_iter().chain(nowhere).collect::<Vec<_>>().join("; ")
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
        assert!(
            alone.starts_with("2 hosts, 1 of 2 checks: nothing to judge on any host for driver\n"),
            "{alone}"
        );
        let shm = ("shm", ["1 T", "1 T"].map(Verdict::good));
        let text = as_text(&matrix(&[reached(), shm.clone(), unseen]), false);
        let title = "2 hosts, 2 of 3 checks: nothing is wrong; nothing to judge on any host for driver\n";
        assert!(text.starts_with(title), "{text}");
        let seen = as_text(&matrix(&[reached(), shm]), false);
        assert!(seen.starts_with("2 hosts, 2 checks: nothing is wrong\n"), "{seen}");
    }

    #[test]
    fn what_could_be_looked_at_nowhere_is_named_beside_what_is_wrong() {
        let unseen = ("driver", ["no GPU", "no GPU"].map(Verdict::unknown));
        let look = ("disk", [Verdict::good("1 T"), Verdict::look("full", "", "")]);
        let text = as_text(&matrix(&[reached(), look, unseen]), false);
        let title = "2 hosts, 2 of 3 checks: 1 to look at; nothing to judge on any host for driver\n";
        assert!(text.starts_with(title), "{text}");
        let down = (CONNECTION, ["a", "b"].map(|_| Verdict::bad("refused", "", "")));
        let away = ("disk", ["", ""].map(|_| Verdict::unknown("the host is not reached")));
        let text = as_text(&matrix(&[down, away]), false);
        assert!(text.starts_with("2 hosts, 1 of 2 checks: 1 red\n"), "it counts checks, not hosts: {text}");
    }

    #[test]
    fn what_was_seen_stands_in_one_column() {
        let names = ["here", "a-host-with-a-name", "a-host-with-a-name-that-is-long"].map(HostId::from);
        let row = |check, verdicts: [Verdict; 3]| Row {
            check,
            asks: "",
            verdicts: names.iter().cloned().zip(verdicts).collect(),
        };
        let [near, none] = ["no other host is reached", "no answer"].map(Verdict::unknown);
        let rows = vec![
            row(CONNECTION, ["as root"; 3].map(Verdict::good)),
            row("reach", [near.clone(), none.clone(), Verdict::good("1 ms")]),
            row("clock", [none.clone(), near, none]),
        ];
        let text = as_text(&Matrix { rows, hosts: names.to_vec() }, false);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "✔ ssh        3 hosts             as root",
                "✔ reach      1 host              1 ms",
                "– reach      here                no other host is reached",
                "– reach      a-host-with-a-name  no answer",
                "– clock      here, a-host-with-a-name-that-is-long  no answer",
                "– clock      a-host-with-a-name  no other host is reached",
            ]
        );
    }

    #[test]
    fn several_reasons_of_a_check_are_told_each_with_its_hosts() {
        let verdicts = [Verdict::unknown("no other host is reached"), Verdict::unknown("no answer in 4 s")];
        let text = as_text(&matrix(&[reached(), ("reach", verdicts)]), false);
        assert!(text.contains("– reach      a         no other host is reached\n"), "{text}");
        assert!(text.contains("– reach      b         no answer in 4 s\n"), "{text}");
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
