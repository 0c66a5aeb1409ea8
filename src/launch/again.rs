//! Commands of hvtui in what a person is told: with the hosts file of this command line, for without it they would find
//! other hosts, or none.

use std::path::Path;

use super::words::quote;
use crate::domain::doctor::{Fix, Matrix};

/// Commands that ask hosts.
const ASK_HOSTS: [&str; 12] = [
    "attach",
    "doctor",
    "hosts",
    "image push",
    "logs --whole",
    "pick",
    "runs prune",
    "smoke",
    "stacks",
    "stop",
    "trace",
    "watch",
];

/// `--hosts FILE` of a command line, as a shell takes it; nothing where none was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostsOption(Option<String>);

impl HostsOption {
    /// Of the file that was given. One whose name is no text can't be shown, and counts as none.
    pub fn of(file: Option<&Path>) -> Self {
        Self(file.and_then(Path::to_str).map(quote))
    }

    /// The option itself before a command behind `hvtui `, with a blank; nothing where none was given.
    pub fn before_command(&self) -> String {
        self.0.as_ref().map(|file| format!("--hosts {file} ")).unwrap_or_default()
    }

    /// A text whose commands of hvtui have the hosts file that was given.
    pub fn with(&self, text: &str) -> String {
        let Some(file) = &self.0 else { return text.to_owned() };
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("hvtui ") {
            out.push_str(before);
            let begins = out.chars().next_back().is_none_or(|c| c.is_whitespace() || matches!(c, '`' | '('));
            out.push_str("hvtui ");
            if begins && asks_hosts(behind) {
                out.push_str("--hosts ");
                out.push_str(file);
                out.push(' ');
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }

    /// What the doctor says of hosts, so that what helps can be pasted.
    #[must_use]
    pub fn with_all(&self, mut matrix: Matrix) -> Matrix {
        let Some(file) = &self.0 else { return matrix };
        for verdict in matrix.rows.iter_mut().flat_map(|row| row.verdicts.values_mut()) {
            verdict.evidence = self.with(&verdict.evidence);
            for text in [&mut verdict.cause, &mut verdict.remedy].into_iter().flatten() {
                *text = self.with(text);
            }
            if let Some(Fix::Here(words)) = &mut verdict.fix {
                words.splice(0..0, ["--hosts".to_owned(), file.clone()]);
            }
        }
        matrix
    }
}

/// Whether a command that asks hosts begins a text.
fn asks_hosts(text: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()) && !is_file(rest);
    ASK_HOSTS.iter().any(|command| text.strip_prefix(command).is_some_and(ends))
}

/// Whether a name of a file goes on here: `hvtui hosts.toml` is one.
fn is_file(behind: &str) -> bool {
    let mut next = behind.chars();
    match next.next() {
        Some('.') => next.next().is_some_and(char::is_alphanumeric),
        Some(c) => matches!(c, '_' | '-' | '/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::{Row, Verdict};
    use crate::domain::ids::HostId;

    fn with(text: &str, file: Option<&str>) -> String {
        HostsOption::of(file.map(Path::new)).with(text)
    }

    #[test]
    fn commands_get_the_hosts_file_that_was_given() {
        let text = "compare it and run: hvtui hosts trust n1; `hvtui doctor` tells, hvtui stops all, or hvtui logs 7QK2";
        assert_eq!(with(text, None), text);
        assert_eq!(
            with(text, Some("my hosts")),
            "compare it and run: hvtui --hosts 'my hosts' hosts trust n1; `hvtui --hosts 'my hosts' doctor` tells, hvtui stops all, \
             or hvtui logs 7QK2"
        );
        for (text, told) in [
            ("hvtui hosts mesh", "hvtui --hosts f hosts mesh"),
            ("hvtui --hosts f stop 7QK2", "hvtui --hosts f stop 7QK2"),
            ("try hvtui doctor.", "try hvtui --hosts f doctor."),
            ("hvtui image push x:1", "hvtui --hosts f image push x:1"),
            ("hvtui image build .", "hvtui image build ."),
            ("hvtui logs --whole reads", "hvtui --hosts f logs --whole reads"),
            ("`hvtui runs prune` or hvtui runs", "`hvtui --hosts f runs prune` or hvtui runs"),
        ] {
            assert_eq!(with(text, Some("f")), told);
        }
        assert_eq!(HostsOption::of(Some(Path::new("a b"))).before_command(), "--hosts 'a b' ");
        assert_eq!(HostsOption::default().before_command(), "");
    }

    #[test]
    fn names_of_files_stay_as_they_are() {
        for text in
            ["hvtui hosts.toml: no such file", "'hvtui hosts': bad", "/opt/hvtui stop", "my-hvtui doctor"]
        {
            assert_eq!(with(text, Some("f")), text);
        }
        let odd = Some("hvtui hosts.toml");
        let once = with("hvtui stop 7QK2", odd);
        assert_eq!(once, "hvtui --hosts 'hvtui hosts.toml' stop 7QK2");
        assert_eq!(with(&once, odd), once);
    }

    #[test]
    fn what_the_doctor_says_can_be_pasted() {
        let remedy = "hvtui hosts mesh, then hvtui doctor";
        let mut verdict = Verdict::bad("seen by hvtui doctor", "none", remedy);
        verdict.fix = Some(Fix::Here(vec!["hosts".to_owned(), "mesh".to_owned()]));
        let host = HostId::from("a");
        let verdicts = [(host.clone(), verdict)].into_iter().collect();
        let row = Row { check: "logins", asks: "", verdicts };
        let matrix = Matrix { hosts: vec![host.clone()], rows: vec![row] };
        assert_eq!(HostsOption::default().with_all(matrix.clone()), matrix);
        let told = HostsOption::of(Some(Path::new("f"))).with_all(matrix);
        let verdict = &told.rows[0].verdicts[&host];
        assert_eq!(
            verdict.remedy.as_deref(),
            Some("hvtui --hosts f hosts mesh, then hvtui --hosts f doctor")
        );
        assert_eq!(verdict.help().as_deref(), Some("hvtui --hosts f hosts mesh"));
        assert_eq!(verdict.evidence, "seen by hvtui --hosts f doctor");
    }
}
