//! Commands of hvtui in what a person is told: with the hosts file of this command line, for without it they would find
//! other hosts, or none.

use std::path::Path;
use std::sync::OnceLock;

use crate::launch::words::quote;

/// `--hosts FILE` of this command line, as a shell takes it.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Commands that look for hosts.
const ASK_HOSTS: [&str; 4] = ["attach", "doctor", "hosts", "stop"];

/// Keeps `--hosts FILE` of the command line for all that is told.
pub(super) fn keep(hosts: Option<&Path>) {
    if let Some(file) = hosts.and_then(Path::to_str) {
        GIVEN.get_or_init(|| quote(file));
    }
}

/// A text whose commands of hvtui have the hosts file that was given.
pub(crate) fn with_hosts(text: &str) -> String {
    with(text, GIVEN.get().map(String::as_str))
}

fn with(text: &str, file: Option<&str>) -> String {
    let Some(file) = file else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("hvtui ") {
        out.push_str(before);
        let begins = out.chars().next_back().is_none_or(|c| c.is_whitespace() || matches!(c, '`' | '('));
        out.push_str("hvtui ");
        let word = behind.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if begins && ASK_HOSTS.contains(&word) && !is_file(&behind[word.len()..]) {
            out.push_str("--hosts ");
            out.push_str(file);
            out.push(' ');
        }
        rest = behind;
    }
    out.push_str(rest);
    out
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

/// The option itself before a command behind `hvtui `, with a blank; nothing where none was given.
pub(super) fn hosts_option() -> String {
    GIVEN.get().map(|file| format!("--hosts {file} ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_get_the_hosts_file_that_was_given() {
        let text = "compare it and run: hvtui hosts trust n1; `hvtui doctor` tells, hvtui stops all, or hvtui logs 7QK2";
        assert_eq!(with(text, None), text);
        assert_eq!(
            with(text, Some("'my hosts'")),
            "compare it and run: hvtui --hosts 'my hosts' hosts trust n1; `hvtui --hosts 'my hosts' doctor` tells, hvtui stops all, \
             or hvtui logs 7QK2"
        );
        assert_eq!(with("hvtui hosts mesh", Some("f")), "hvtui --hosts f hosts mesh");
        assert_eq!(with("hvtui --hosts f stop 7QK2", Some("f")), "hvtui --hosts f stop 7QK2", "once alone");
        assert_eq!(with("try hvtui doctor.", Some("f")), "try hvtui --hosts f doctor.");
    }

    #[test]
    fn names_of_files_stay_as_they_are() {
        for text in
            ["hvtui hosts.toml: no such file", "'hvtui hosts': bad", "/opt/hvtui stop", "my-hvtui doctor"]
        {
            assert_eq!(with(text, Some("f")), text);
        }
        let odd = Some("'hvtui hosts.toml'");
        let once = with("hvtui stop 7QK2", odd);
        assert_eq!(once, "hvtui --hosts 'hvtui hosts.toml' stop 7QK2");
        assert_eq!(with(&once, odd), once);
    }
}
