//! The environment that ranks find on a host beside the variables that a launch names: what is to be activated there,
//! and the difference that it makes once the host has found it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// In the place of a name: nothing, whatever the hosts file says.
pub const NONE: &str = "none";

/// What is activated on a host before ranks start there. By names: each host finds them in its own folders.
///
/// The order is that of the fields: the login shell's environment, then modules, then conda, then the virtual environment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvironmentPlan {
    /// `--env-from-login`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginShell>,
    /// `--module`: environment modules, in the order in which they are loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// `--conda`: an environment's name, or its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conda: Option<String>,
    /// `--venv`: the folder of a virtual environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub venv: Option<String>,
    /// `--ulimit`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<Limit, Bound>,
}

impl EnvironmentPlan {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it changes variables.
    pub fn activates(&self) -> bool {
        let limits = self.limits.clone();
        *self != Self { limits, ..Self::default() }
    }

    /// This over another one: what it says of a thing counts, the other's word where it says nothing.
    #[must_use]
    pub fn over(&self, below: &Self) -> Self {
        let modules = if self.modules.is_empty() { &below.modules } else { &self.modules };
        let mut limits = below.limits.clone();
        limits.extend(&self.limits);
        Self {
            login: self.login.or(below.login),
            modules: modules.clone(),
            conda: self.conda.clone().or_else(|| below.conda.clone()),
            venv: self.venv.clone().or_else(|| below.venv.clone()),
            limits,
        }
    }

    /// What is done on a host: without what was switched off.
    #[must_use]
    pub fn decided(mut self) -> Self {
        let wanted = |name: &String| name != NONE;
        self.login = self.login.filter(|login| *login != LoginShell::Off);
        self.modules.retain(wanted);
        self.conda = self.conda.filter(wanted);
        self.venv = self.venv.filter(wanted);
        self
    }

    /// What is done on a host, for people: `load module cuda/12.4, activate conda train, resolved on the host`.
    pub fn words(&self) -> Option<String> {
        let mut parts = Vec::new();
        match self.login {
            Some(LoginShell::Login) => parts.push("take the login shell's environment".to_owned()),
            Some(LoginShell::Interactive) => {
                parts.push("take the interactive login shell's environment".to_owned());
            }
            Some(LoginShell::Off) | None => {}
        }
        parts.extend(self.modules.iter().map(|name| format!("load module {name}")));
        parts.extend(self.conda.iter().map(|name| format!("activate conda {name}")));
        parts.extend(self.venv.iter().map(|path| format!("activate venv {path}")));
        if !parts.is_empty() {
            parts.push("resolved on the host".to_owned());
        }
        if !self.limits.is_empty() {
            let limits = self.limits.iter().map(|(limit, bound)| format!("{}={bound}", limit.name()));
            parts.push(format!("ulimit {}", limits.collect::<Vec<_>>().join(",")));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Which shell's environment the ranks get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginShell {
    /// What sshd gives a command.
    Off,
    /// The user's login shell, without a terminal: what profiles set.
    Login,
    /// The same, started as an interactive one: also what is set for interactive shells alone.
    Interactive,
}

impl LoginShell {
    /// The word on the command line and in the hosts file; `None` for any other.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "login" => Some(Self::Login),
            "interactive" => Some(Self::Interactive),
            _ => None,
        }
    }
}

/// What `--ulimit` limits. Only what can't hurt the rank-wrap, which has the same limit for the moment of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Bytes of a core file.
    Core,
    /// Bytes that may be locked in memory: RDMA needs them.
    Memlock,
    /// Open files: loaders of data need them.
    Nofile,
    /// Processes and threads of the user.
    Nproc,
    /// Bytes of the main thread's stack.
    Stack,
}

impl Limit {
    /// All, in the order in which they are offered.
    pub const ALL: [Self; 5] = [Self::Core, Self::Memlock, Self::Nofile, Self::Nproc, Self::Stack];

    /// As docker and `/etc/security/limits.conf` call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Memlock => "memlock",
            Self::Nofile => "nofile",
            Self::Nproc => "nproc",
            Self::Stack => "stack",
        }
    }

    /// The limit of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// Whether it counts bytes.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::Core | Self::Memlock | Self::Stack)
    }
}

/// How far a limit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Without end.
    Unlimited,
    /// To here.
    At(u64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.pad("unlimited"),
            Self::At(number) => f.pad(&number.to_string()),
        }
    }
}

/// What an activation changes in a host's environment. Its values may be secrets of that host: it is written to no file,
/// and does not show in debug output.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// Variables that it sets.
    pub set: BTreeMap<String, String>,
    /// Variables that it takes away.
    pub unset: BTreeSet<String>,
}

/// Variables that each shell sets for itself.
const SHELLS: [&str; 4] = ["_", "SHLVL", "PWD", "OLDPWD"];

impl EnvironmentChange {
    /// The difference between two environments. Without what a shell sets for itself, and what is hvtui's.
    pub fn between(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Self {
        let counts = |name: &str| {
            !name.is_empty() && !name.contains('=') && !SHELLS.contains(&name) && !name.starts_with("HVTUI_")
        };
        let set = after.iter().filter(|(name, value)| counts(name) && before.get(*name) != Some(value));
        let unset = before.keys().filter(|name| counts(name) && !after.contains_key(*name));
        Self {
            set: set.map(|(name, value)| (name.clone(), value.clone())).collect(),
            unset: unset.cloned().collect(),
        }
    }

    /// Whether a variable is there afterwards, if it is there before or not.
    pub fn has(&self, name: &str, before: bool) -> bool {
        self.set.contains_key(name) || (before && !self.unset.contains(name))
    }
}

impl fmt::Debug for EnvironmentChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvironmentChange")
            .field("set", &self.set.keys().collect::<Vec<_>>())
            .field("unset", &self.unset)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_option_counts_before_the_hosts_word_and_none_switches_it_off() {
        let host = EnvironmentPlan {
            conda: Some("train".to_owned()),
            modules: vec!["cuda".to_owned()],
            login: Some(LoginShell::Login),
            limits: BTreeMap::from([(Limit::Core, Bound::At(0)), (Limit::Nofile, Bound::At(1))]),
            ..EnvironmentPlan::default()
        };
        let asked = EnvironmentPlan {
            conda: Some(NONE.to_owned()),
            venv: Some("~/v".to_owned()),
            login: Some(LoginShell::Off),
            limits: BTreeMap::from([(Limit::Nofile, Bound::Unlimited)]),
            ..EnvironmentPlan::default()
        };
        let both = asked.over(&host).decided();
        let words =
            "load module cuda, activate venv ~/v, resolved on the host, ulimit core=0,nofile=unlimited";
        assert_eq!(both.words().as_deref(), Some(words));
        assert_eq!((both.conda, both.login), (None, None));
        assert_eq!(EnvironmentPlan::default().over(&host), host);
        assert!(EnvironmentPlan::default().words().is_none());
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<EnvironmentPlan>(&text).unwrap(), asked);
    }

    #[test]
    fn a_difference_holds_what_changed_and_shows_no_value() {
        let before = env(&[("A", "1"), ("B", "2"), ("C", "3"), ("PWD", "/"), ("HVTUI_X", "1")]);
        let after =
            env(&[("A", "1"), ("B", "secret"), ("D", "4"), ("PWD", "/x"), ("SHLVL", "1"), ("HVTUI_Y", "1")]);
        let change = EnvironmentChange::between(&before, &after);
        assert_eq!(change.set, env(&[("B", "secret"), ("D", "4")]));
        assert_eq!(change.unset, BTreeSet::from(["C".to_owned()]));
        assert!(change.has("D", false) && !change.has("C", true) && change.has("A", true));
        assert!(!format!("{change:?}").contains("secret"));
    }
}
