//! Finds on this host what a run wants activated, before anything of it starts: the login shell's environment, modules,
//! a conda environment, a virtual environment. The difference that they make goes from the agent to the supervisor in
//! memory: it may hold what a login environment keeps secret. One file each; [`limits`] are set where a rank starts.
//!
//! Each of them that needs a shell gets one, for a bounded time and with no user to ask. Nothing is put together as
//! shell text: names travel as positional parameters.

mod conda;
mod conda_roots;
mod error;
mod hint;
pub(super) mod library;
pub mod limits;
mod login;
mod modules;
mod shell;
mod venv;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use error::EnvironmentError;
pub use hint::Missing;

use crate::clock;
use crate::domain::environment::{EnvironmentChange, EnvironmentPlan, LoginShell};
use crate::domain::time::HostTime;

/// Variables by name. Those that are no UTF-8 are left as they are, and out of this.
type Variables = BTreeMap<String, String>;

/// How long all of it may take: a client waits 20 s for a host's word that it can start.
const PATIENCE_US: u64 = 15_000_000;

/// Until when all that is looked for may take together.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(u64);

impl Deadline {
    /// For what is looked for before a run starts.
    pub fn begin() -> Self {
        Self::after(PATIENCE_US)
    }

    /// So many microseconds from now.
    pub fn after(micros: u64) -> Self {
        Self(clock::host_now().0.saturating_add(micros))
    }

    /// Microseconds that are left of it, at most `most`.
    fn left(self, most: u64) -> u64 {
        let HostTime(now) = clock::host_now();
        self.0.saturating_sub(now).min(most)
    }
}

/// Who asks, and what is known of the place.
struct Site<'a> {
    /// The variables that the launch itself gives to the ranks: where modules lie may be among them.
    given: &'a Variables,
    /// Where the ranks start.
    cwd: &'a Path,
    deadline: Deadline,
}

/// What the plan changes in the environment of this process. `given`: what the launch itself sets, which counts before it;
/// `cwd`: where the ranks start.
pub fn resolve(
    plan: &EnvironmentPlan,
    given: &BTreeMap<String, String>,
    cwd: &Path,
    deadline: Deadline,
) -> Result<EnvironmentChange, EnvironmentError> {
    limits::check(&plan.limits)?;
    let before = own();
    let mut now = before.clone();
    let site = Site { given, cwd, deadline };
    match plan.login {
        Some(LoginShell::Login) => now = login::environment(&now, false, site.deadline)?,
        Some(LoginShell::Interactive) => now = login::environment(&now, true, site.deadline)?,
        Some(LoginShell::Off) | None => {}
    }
    if !plan.modules.is_empty() {
        now = modules::load(&plan.modules, &now, &site)?;
    }
    if let Some(name) = &plan.conda {
        now = conda::activate(name, now, &site)?;
    }
    if let Some(path) = &plan.venv {
        venv::enter(path, &mut now, site.cwd)?;
    }
    Ok(EnvironmentChange::between(&before, &now))
}

/// Gives a command the changed environment, under whatever is set on it afterwards.
pub(super) fn apply(change: &EnvironmentChange, command: &mut Command) {
    for name in &change.unset {
        command.env_remove(name);
    }
    command.envs(&change.set);
}

/// The search path of a rank on this host: the launch's own, else the changed one, else this process's.
pub fn search_path(given: &BTreeMap<String, String>, change: &EnvironmentChange) -> Option<OsString> {
    let changed = || change.set.get("PATH").map(OsString::from);
    let own = || std::env::var_os("PATH").filter(|_| !change.unset.contains("PATH"));
    given.get("PATH").map(OsString::from).or_else(changed).or_else(own)
}

/// This process's variables.
fn own() -> Variables {
    let pairs = std::env::vars_os();
    pairs.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Puts a folder at the beginning of a list of folders.
fn prepend(variables: &mut Variables, name: &str, folder: &Path) {
    let rest = variables.get(name).filter(|rest| !rest.is_empty());
    let value = match rest {
        Some(rest) => format!("{}:{rest}", folder.display()),
        None => folder.display().to_string(),
    };
    variables.insert(name.to_owned(), value);
}

/// Takes a folder out of a list of folders.
fn without(variables: &mut Variables, name: &str, folder: &Path) {
    if let Some(list) = variables.get_mut(name) {
        let rest: Vec<&str> = list.split(':').filter(|one| Path::new(one) != folder).collect();
        *list = rest.join(":");
    }
}

/// A path as a person writes it: from the home folder by `~/`, else from `from` on.
fn person_path(text: &str, from: &Path) -> PathBuf {
    let home = crate::program::home();
    match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if text == "~" => home,
        None => from.join(text),
    }
}

/// The first of these programs that the search path of these variables has.
fn on_path(variables: &Variables, name: &str) -> Option<PathBuf> {
    let path = variables.get("PATH").map(OsString::from);
    crate::program::resolve(name, path.as_deref().map(OsStr::new), Path::new("/"), Path::new("")).ok()
}
