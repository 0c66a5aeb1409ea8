//! The environment of the user's login shell on this host. Knows how each shell is told that it is one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::EnvironmentError;
use super::shell::{Question, ShellFault, last_line, tell_environment};
use super::{Deadline, Variables};

/// The environment that the login shell has when its profiles have been read.
pub(super) fn environment(
    before: &Variables,
    interactive: bool,
    deadline: Deadline,
) -> Result<Variables, EnvironmentError> {
    let shell = shell(before);
    question(&shell, before, interactive, deadline)
        .ask()
        .map_err(|fault| EnvironmentError::Shell { what: name(&shell, interactive), fault: told(&fault) })
}

/// For messages: `login shell /bin/bash`.
fn name(shell: &Path, interactive: bool) -> String {
    let kind = if interactive { "interactive login shell" } else { "login shell" };
    format!("{kind} {}", shell.display())
}

fn told(fault: &ShellFault) -> String {
    const REMEDY: &str = "see what its profile does there without a terminal, or leave --env-from-login out";
    let said = |words: &str| match last_line(words) {
        words if words.is_empty() => String::new(),
        words => format!(" (its last words: {words})"),
    };
    match fault {
        ShellFault::NotStarted(why) => format!("can't be started: {why}"),
        ShellFault::Hangs { seconds, words } => {
            format!("does not end within {seconds} s{}: {REMEDY}", said(words))
        }
        ShellFault::Silent { status, words, .. } => {
            format!("ended before it told its environment, {status}{}: {REMEDY}", said(words))
        }
        ShellFault::Floods => format!("prints without end: {REMEDY}"),
    }
}

/// What login put there, else the simplest.
fn shell(variables: &Variables) -> PathBuf {
    let named = variables.get("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute());
    named.unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

fn question<'a>(
    shell: &'a Path,
    environment: &'a Variables,
    interactive: bool,
    deadline: Deadline,
) -> Question<'a> {
    const SCRIPT: &str = tell_environment!();
    let base = shell.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // csh takes -l alone only; a name that begins with - says the same. It reads the same files interactive or not.
    let is_csh = base == "csh" || base == "tcsh";
    let options: &[&str] = match (is_csh, interactive) {
        (true, _) => &["-c"],
        (false, true) => &["-l", "-i", "-c"],
        (false, false) => &["-l", "-c"],
    };
    let arguments = options.iter().copied().chain([SCRIPT]).map(OsString::from).collect();
    let arg0 = is_csh.then(|| OsString::from(format!("-{base}")));
    Question { program: shell, arg0, arguments, environment, deadline }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_tells_the_environment_of_a_login() {
        for shell in [
            "/bin/bash",
            "/bin/dash",
            "/bin/zsh",
            "/usr/bin/zsh",
            "/usr/bin/fish",
            "/bin/tcsh",
            "/usr/bin/tcsh",
        ] {
            if !Path::new(shell).exists() {
                continue;
            }
            let home = tempfile::tempdir().unwrap();
            let fish = home.path().join(".config/fish");
            std::fs::create_dir_all(&fish).unwrap();
            std::fs::write(fish.join("config.fish"), "echo noise; set -x FOUND 1\n").unwrap();
            std::fs::write(home.path().join(".login"), "echo noise; setenv FOUND 1\n").unwrap();
            for file in [".profile", ".zprofile"] {
                std::fs::write(home.path().join(file), "echo noise\nexport FOUND=1\n").unwrap();
            }
            let before = Variables::from([
                ("HOME".to_owned(), home.path().display().to_string()),
                ("SHELL".to_owned(), shell.to_owned()),
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ]);
            let found = environment(&before, false, Deadline::begin()).unwrap();
            assert_eq!(found.get("FOUND").map(String::as_str), Some("1"), "{shell}: {found:?}");
        }
    }

    #[test]
    fn what_goes_wrong_is_told_with_the_shells_name() {
        let before = Variables::from([("SHELL".to_owned(), "/no/such/shell".to_owned())]);
        let error = environment(&before, true, Deadline::begin()).unwrap_err().to_string();
        assert!(error.starts_with("interactive login shell /no/such/shell "), "{error}");
    }
}
