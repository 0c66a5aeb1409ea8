//! A rank that ended since a shared library is missing: what says so on its standard error, and what to do about it. No
//! shell is asked here: what its profile leaves behind would belong to the run.

use crate::domain::environment::{EnvironmentPlan, LoginShell};

/// How the dynamic loader, and a Python that loads a module, end what they say.
const MISSING: &str = ": cannot open shared object file";

/// Why a rank has failed by the end of its standard error; `path` is the `LD_LIBRARY_PATH` that it had.
pub(in crate::supervise) fn cause(said: &str, plan: &EnvironmentPlan, path: Option<&str>) -> Option<String> {
    let line = said.lines().rev().find(|line| !line.trim().is_empty())?;
    let (head, _) = line.split_once(MISSING)?;
    let library = head.rsplit([' ', '\t']).next().filter(|name| name.contains(".so"))?;
    let path = match path {
        Some(path) if !path.is_empty() => format!("LD_LIBRARY_PATH={path}"),
        _ => "LD_LIBRARY_PATH is not set".to_owned(),
    };
    let remedy = match plan.login {
        Some(LoginShell::Interactive) => "",
        Some(LoginShell::Login) => "if a terminal there finds it, use --env-from-login=interactive, or ",
        Some(LoginShell::Off) | None => "if a login shell there finds it, use --env-from-login, or ",
    };
    Some(format!("{library} is not found ({path}): {remedy}name its folder by --env LD_LIBRARY_PATH=…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_named_with_where_it_was_looked_for() {
        let plan = EnvironmentPlan::default();
        let said = "x\n./a.out: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file or directory\n";
        let words = "libcudart.so.12 is not found (LD_LIBRARY_PATH=/a): if a login shell there finds it, use --env-from-login, or name \
                     its folder by --env LD_LIBRARY_PATH=…";
        assert_eq!(cause(said, &plan, Some("/a")).as_deref(), Some(words));
        let python = "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory";
        let found = cause(python, &plan, None).unwrap();
        assert!(found.starts_with("libmpi.so.40 is not found (LD_LIBRARY_PATH is not set): "), "{found}");
        assert_eq!(cause("all is well", &plan, None), None);
        assert_eq!(cause("", &plan, None), None);
    }
}
