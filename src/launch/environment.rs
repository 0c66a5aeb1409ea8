//! What people write about the environment of the ranks: `--conda`, `--venv`, `--module`, `--env-from-login`, `--ulimit`, and the
//! same in the hosts file. Pure.

use std::collections::BTreeMap;

use crate::domain::environment::{Bound, EnvironmentPlan, Limit, LoginShell, NONE};
use crate::domain::units;

/// Something about the environment that is written wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentFault {
    /// A name that no environment has.
    #[error("{key} {name:?}: it {fault}")]
    Name {
        /// The option or key.
        key: &'static str,
        /// As written.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// No way to take a login shell's environment.
    #[error("{key} {word}: write login, interactive (also what is set for interactive shells alone), or off")]
    Login {
        /// The option or key.
        key: &'static str,
        /// As written.
        word: String,
    },
    /// A limit that is none.
    #[error(
        "{key} {entry}: {fault}; write name=number or name=unlimited, several joined by commas, such as nofile=65536,memlock=unlimited,core=0"
    )]
    Limit {
        /// The option or key.
        key: &'static str,
        /// As written.
        entry: String,
        /// What is wrong with it.
        fault: String,
    },
}

/// How each thing is called where it is written.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// The conda environment.
    pub conda: &'static str,
    /// The virtual environment.
    pub venv: &'static str,
    /// The modules.
    pub modules: &'static str,
    /// The login shell.
    pub login: &'static str,
    /// The limits.
    pub limits: &'static str,
}

/// On the command line.
pub const OPTIONS: Keys = Keys {
    conda: "--conda",
    venv: "--venv",
    modules: "--module",
    login: "--env-from-login",
    limits: "--ulimit",
};

/// What was written, still as text.
#[derive(Debug, Clone, Default)]
pub struct WrittenEnvironment<'a> {
    /// `--conda`.
    pub conda: Option<&'a str>,
    /// `--venv`.
    pub venv: Option<&'a str>,
    /// Each `--module`.
    pub modules: &'a [String],
    /// `--env-from-login`.
    pub login: Option<&'a str>,
    /// Each `--ulimit`.
    pub limits: &'a [String],
}

impl WrittenEnvironment<'_> {
    /// What it asks for.
    pub fn read(&self) -> Result<EnvironmentPlan, EnvironmentFault> {
        let mut limits = BTreeMap::new();
        for list in self.limits {
            limits.extend(read_limits(OPTIONS.limits, list)?);
        }
        let entries = self.modules.iter().flat_map(|list| list.split(','));
        Ok(EnvironmentPlan {
            login: self.login.map(|word| login(OPTIONS.login, word)).transpose()?,
            modules: modules(OPTIONS.modules, entries)?,
            conda: self.conda.map(|text| name(OPTIONS.conda, text)).transpose()?,
            venv: self.venv.map(|text| name(OPTIONS.venv, text)).transpose()?,
            limits,
        })
    }
}

/// A name or a path that is no option of the program that gets it.
pub fn name(key: &'static str, text: &str) -> Result<String, EnvironmentFault> {
    let text = text.trim();
    let fault = match text {
        "" => "is empty",
        text if text.chars().any(char::is_control) => "holds a control character",
        text if text.starts_with('-') => "begins with '-'",
        text if text.len() > 1024 => "is longer than 1024 bytes",
        _ => return Ok(text.to_owned()),
    };
    Err(EnvironmentFault::Name { key, name: text.to_owned(), fault })
}

/// Names of modules; `none` stands alone.
pub fn modules<'a>(
    key: &'static str,
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, EnvironmentFault> {
    let names = entries.into_iter().map(|entry| name(key, entry)).collect::<Result<Vec<_>, _>>()?;
    if names.len() > 1 && names.iter().any(|name| name == NONE) {
        let fault = "stands alone or not at all: it means no module";
        return Err(EnvironmentFault::Name { key, name: NONE.to_owned(), fault });
    }
    Ok(names)
}

/// Which shell's environment.
pub fn login(key: &'static str, word: &str) -> Result<LoginShell, EnvironmentFault> {
    LoginShell::from_name(word.trim()).ok_or_else(|| EnvironmentFault::Login { key, word: word.to_owned() })
}

/// `nofile=65536,memlock=unlimited`.
pub fn read_limits(key: &'static str, list: &str) -> Result<BTreeMap<Limit, Bound>, EnvironmentFault> {
    let mut limits = BTreeMap::new();
    for entry in list.split(',') {
        let fault = |fault: String| EnvironmentFault::Limit { key, entry: entry.trim().to_owned(), fault };
        let (name, value) = entry.split_once('=').ok_or_else(|| fault("it has no value".to_owned()))?;
        let name = name.trim();
        let limit = Limit::named(name).ok_or_else(|| {
            let known = Limit::ALL.map(Limit::name).join(", ");
            fault(format!("`{name}` is no limit that can be set: there are {known}"))
        })?;
        let bound = match value.trim() {
            "unlimited" | "-1" => Some(Bound::Unlimited),
            text if limit.is_bytes() => units::parse_bytes(text).map(Bound::At),
            text => text.parse().ok().map(Bound::At),
        };
        let bound = bound.ok_or_else(|| {
            let what = if limit.is_bytes() { "bytes, such as 64M" } else { "a number" };
            fault(format!("`{}` is not {what}", value.trim()))
        })?;
        limits.insert(limit, bound);
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &WrittenEnvironment<'_>) -> Result<EnvironmentPlan, String> {
        written.read().map_err(|fault| fault.to_string())
    }

    #[test]
    fn options_become_a_plan() {
        let (modules, limits) = (
            ["a,b/1".to_owned(), "c".to_owned()],
            ["nofile=65536,memlock=unlimited".to_owned(), "core=1M".to_owned()],
        );
        let plan = read(&WrittenEnvironment {
            conda: Some("train"),
            venv: Some("~/v"),
            modules: &modules,
            login: Some("interactive"),
            limits: &limits,
        });
        let plan = plan.unwrap();
        assert_eq!((plan.conda.as_deref(), plan.venv.as_deref()), (Some("train"), Some("~/v")));
        assert_eq!(
            (plan.modules, plan.login),
            (vec!["a".to_owned(), "b/1".to_owned(), "c".to_owned()], Some(LoginShell::Interactive))
        );
        let bounds: Vec<String> =
            plan.limits.iter().map(|(limit, bound)| format!("{}={bound}", limit.name())).collect();
        assert_eq!(bounds, ["core=1048576", "memlock=unlimited", "nofile=65536"]);
        assert!(read(&WrittenEnvironment::default()).unwrap().is_empty());
    }

    #[test]
    fn what_is_written_wrongly_is_told_with_its_option() {
        let fails = |written: WrittenEnvironment<'_>| read(&written).unwrap_err();
        let plain = WrittenEnvironment::default;
        assert_eq!(
            fails(WrittenEnvironment { conda: Some("-n"), ..plain() }),
            "--conda \"-n\": it begins with '-'"
        );
        assert_eq!(fails(WrittenEnvironment { venv: Some(" "), ..plain() }), "--venv \"\": it is empty");
        assert!(
            fails(WrittenEnvironment { login: Some("yes"), ..plain() })
                .starts_with("--env-from-login yes: write login")
        );
        for (text, words) in [
            ("nofile", "it has no value"),
            (
                "nofiles=1",
                "`nofiles` is no limit that can be set: there are core, memlock, nofile, nproc, stack",
            ),
            ("nofile=64K", "`64K` is not a number"),
        ] {
            let said = fails(WrittenEnvironment { limits: &[text.to_owned()], ..plain() });
            assert!(said.starts_with(&format!("--ulimit {text}: ")), "{said}");
            assert!(said.contains(words), "{said}");
        }
        let modules = ["none,a".to_owned()];
        assert!(fails(WrittenEnvironment { modules: &modules, ..plain() }).contains("stands alone"));
    }
}
