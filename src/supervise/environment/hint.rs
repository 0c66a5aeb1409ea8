//! Why something is not found that a person finds there: what the login shell of this host would find. Asked only when
//! something is missing.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{Deadline, Variables, login, own};
use crate::domain::environment::{EnvironmentPlan, LoginShell};
use crate::program::resolve;

/// A command that the ranks do not find here.
pub struct Missing<'a> {
    /// What is activated for them.
    pub plan: &'a EnvironmentPlan,
    /// Whether the launch or the hosts file sets `PATH`: that counts before what a login shell says.
    pub given: bool,
    /// The search path of the ranks.
    pub path: Option<OsString>,
    /// Until when it may be looked for.
    pub deadline: Deadline,
}

impl Missing<'_> {
    /// Where a login shell here finds a command, and what to do about it.
    pub fn command(&self, command: &str, cwd: &Path) -> Option<String> {
        if command.is_empty() || command.contains('/') {
            return None;
        }
        let find = |shell: &Variables| {
            let path = shell.get("PATH").map(OsStr::new);
            resolve(command, path, cwd, Path::new("")).ok()
        };
        self.look(find).or_else(|| self.other_python(command, cwd))
    }

    /// Many systems have Python under one of its two names alone.
    fn other_python(&self, command: &str, cwd: &Path) -> Option<String> {
        let other = match command {
            "python" => "python3",
            "python3" => "python",
            _ => return None,
        };
        let file = resolve(other, self.path.as_deref(), cwd, Path::new("")).ok()?;
        Some(format!("there is {}: write {other}", file.display()))
    }

    fn look(&self, find: impl Fn(&Variables) -> Option<PathBuf>) -> Option<String> {
        let own = own();
        let shells = [
            (LoginShell::Login, "a login shell", "--env-from-login"),
            (LoginShell::Interactive, "only an interactive shell", "--env-from-login=interactive"),
        ];
        for (kind, who, option) in shells {
            // what is taken from there already does not find it
            if self.plan.login == Some(kind) || self.plan.login == Some(LoginShell::Interactive) {
                continue;
            }
            let shell = login::environment(&own, kind == LoginShell::Interactive, self.deadline);
            let Some(file) = shell.ok().as_ref().and_then(&find) else { continue };
            let folder = file.parent().unwrap_or(&file).display();
            let remedy = if self.given {
                format!("add {folder} to the PATH that --env or the hosts file sets")
            } else {
                let rest = self.path.as_ref().filter(|rest| !rest.is_empty());
                let rest = rest.map_or_else(String::new, |rest| format!(":{}", rest.to_string_lossy()));
                format!("use {option}, or --env PATH={folder}{rest}")
            };
            return Some(format!("{who} there finds {}: {remedy}", file.display()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn python_under_its_other_name_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let python = dir.path().join("python3");
        std::fs::write(&python, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let plan = EnvironmentPlan::default();
        let path = Some(dir.path().as_os_str().to_owned());
        let missing = Missing { plan: &plan, given: true, path, deadline: Deadline::begin() };
        let told = |command: &str| missing.other_python(command, Path::new("/"));
        assert_eq!(told("python"), Some(format!("there is {}: write python3", python.display())));
        assert_eq!((told("python3"), told("perl")), (None, None));
    }
}
