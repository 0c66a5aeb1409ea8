//! Conda environments: what `conda activate` does, without conda itself, which may take seconds to start: the variables of
//! the environment and of its packages, then their activation scripts, which a shell reads.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::conda_roots::{Condas, LOOKED};
use super::error::EnvironmentError;
use super::shell::{Question, ShellFault, last_line, tell_environment};
use super::{Site, Variables, login, on_path, person_path, prepend, without};
use crate::program::home;

/// In the place of a value: the variable is not set.
const UNSET: &str = "***unset***";

/// Reads each script that it is given.
const SCRIPT: &str =
    concat!("for hvtui_script in \"$@\"; do . \"$hvtui_script\" >/dev/null; done\n", tell_environment!());

/// The environment with this conda environment active in `now`.
pub(super) fn activate(name: &str, now: Variables, site: &Site<'_>) -> Result<Variables, EnvironmentError> {
    let (prefix, condas) = find(name, &now, site)?;
    let mut now = leave(now, name, site)?;
    let root = condas.root_of(&prefix);
    // As conda does where nothing is active: its own command stays within reach.
    if let Some(condabin) = root.map(|root| root.join("condabin")).filter(|folder| folder.is_dir()) {
        without(&mut now, "PATH", &condabin);
        prepend(&mut now, "PATH", &condabin);
    }
    prepend(&mut now, "PATH", &prefix.join("bin"));
    let is_root = root.is_some_and(|root| *root == prefix);
    let in_envs = prefix.parent().and_then(Path::file_name).is_some_and(|folder| folder == "envs");
    let base = prefix.file_name().map(|name| name.to_string_lossy().into_owned()).filter(|_| in_envs);
    let called =
        if is_root { "base".to_owned() } else { base.unwrap_or_else(|| prefix.display().to_string()) };
    let mut set = |name: &str, value: String| now.insert(name.to_owned(), value);
    set("CONDA_PROMPT_MODIFIER", format!("({called}) "));
    set("CONDA_DEFAULT_ENV", called);
    set("CONDA_PREFIX", prefix.display().to_string());
    set("CONDA_SHLVL", "1".to_owned());
    if let Some(conda) = root.map(|root| root.join("bin/conda")).filter(|file| file.is_file()) {
        set("CONDA_EXE", conda.display().to_string());
    }
    for (name, value) in own_variables(&prefix) {
        now.insert(name, value);
    }
    read_scripts(&scripts(&prefix, "activate.d"), now, name, &prefix, site)
}

/// The environment's folder, and the condas of this host.
fn find(name: &str, now: &Variables, site: &Site<'_>) -> Result<(PathBuf, Condas), EnvironmentError> {
    let home = home();
    let mut condas = Condas::find(now, &home);
    if name.contains('/') || name.starts_with('~') {
        let prefix = person_path(name, site.cwd);
        return match fault_of(name, &prefix) {
            None => Ok((prefix, condas)),
            Some(fault) => Err(EnvironmentError::NotConda { path: prefix, fault }),
        };
    }
    let mut environments = condas.environments();
    // `conda init` writes into files that only an interactive shell reads.
    for interactive in [false, true] {
        if environments.contains_key(name) {
            break;
        }
        // One that fails has nothing to tell; what is missing is told below.
        if let Ok(login) = login::environment(now, interactive, site.deadline) {
            let more = Condas::find(&login, &home);
            environments.extend(
                more.environments().into_iter().filter(|(name, _)| !condas.environments().contains_key(name)),
            );
            condas.roots.extend(
                more.roots.into_iter().filter(|root| !condas.roots.contains(root)).collect::<Vec<_>>(),
            );
        }
    }
    if let Some(prefix) = environments.get(name) {
        return Ok((prefix.clone(), condas));
    }
    if environments.is_empty() {
        return Err(EnvironmentError::NoConda { name: name.to_owned(), looked: LOOKED.to_owned() });
    }
    let mut names: Vec<&str> =
        environments.keys().map(String::as_str).filter(|name| *name != "base").collect();
    let instead = instead(name, &names);
    if environments.contains_key("base") {
        names.insert(0, "base");
    }
    Err(EnvironmentError::NoCondaEnvironment {
        name: name.to_owned(),
        has: names.join(", "),
        roots: condas.words(),
        instead,
    })
}

/// What to write in the place of a name that there is not.
fn instead(name: &str, there: &[&str]) -> String {
    let alike = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let nearest = there.iter().max_by_key(|other| alike(other)).filter(|other| alike(other) > 2);
    match (nearest, there) {
        (Some(near), _) | (None, [near]) => format!("write --conda {near}"),
        _ => "name one of these by --conda".to_owned(),
    }
}

/// Why a folder is no conda environment, with the remedy.
fn fault_of(written: &str, prefix: &Path) -> Option<String> {
    if prefix.join("conda-meta").is_dir() {
        return None;
    }
    Some(if prefix.join("pyvenv.cfg").is_file() {
        format!("it is a virtual environment: write --venv {written}")
    } else if prefix.is_dir() {
        "the folder has no conda-meta: write the path that `conda env list` shows".to_owned()
    } else {
        format!("there is no such folder: make it there by `conda create -p {}`", prefix.display())
    })
}

/// Leaves an environment that a login shell has activated.
fn leave(mut now: Variables, name: &str, site: &Site<'_>) -> Result<Variables, EnvironmentError> {
    let Some(old) = now.get("CONDA_PREFIX").filter(|old| !old.is_empty()).map(PathBuf::from) else {
        return Ok(now);
    };
    let mut scripts = scripts(&old, "deactivate.d");
    scripts.reverse();
    now = read_scripts(&scripts, now, name, &old, site)?;
    without(&mut now, "PATH", &old.join("bin"));
    for (name, value) in own_variables(&old) {
        if now.get(&name) == Some(&value) {
            now.remove(&name);
        }
    }
    // what was stacked below it is left with it
    now.retain(|name, _| !name.starts_with("CONDA_PREFIX_"));
    Ok(now)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CondaState {
    env_vars: BTreeMap<String, String>,
}

/// The variables of an environment's packages, then its own (`conda env config vars`).
fn own_variables(prefix: &Path) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for file in sorted(&prefix.join("etc/conda/env_vars.d"), "json") {
        let text = std::fs::read(file).unwrap_or_default();
        variables.extend(serde_json::from_slice::<BTreeMap<String, String>>(&text).unwrap_or_default());
    }
    let state = std::fs::read(prefix.join("conda-meta/state")).unwrap_or_default();
    variables.extend(serde_json::from_slice::<CondaState>(&state).unwrap_or_default().env_vars);
    variables.retain(|name, value| {
        value != UNSET && !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    });
    variables
}

fn scripts(prefix: &Path, folder: &str) -> Vec<PathBuf> {
    sorted(&prefix.join("etc/conda").join(folder), "sh")
}

fn sorted(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| file.extension().is_some_and(|one| one == extension)).collect();
    files.sort();
    files
}

/// What the environment is when a shell has read these scripts.
fn read_scripts(
    scripts: &[PathBuf],
    now: Variables,
    name: &str,
    prefix: &Path,
    site: &Site<'_>,
) -> Result<Variables, EnvironmentError> {
    if scripts.is_empty() {
        return Ok(now);
    }
    // Packages write them for the shells that conda knows.
    let shell = on_path(&now, "bash").unwrap_or_else(|| PathBuf::from("/bin/sh"));
    let words = ["-c", SCRIPT, "hvtui"].into_iter().map(OsString::from);
    let arguments = words.chain(scripts.iter().map(|script| script.clone().into_os_string())).collect();
    let question =
        Question { program: &shell, arg0: None, arguments, environment: &now, deadline: site.deadline };
    question.ask().map_err(|fault| EnvironmentError::Shell {
        what: format!("conda environment '{name}' ({}):", prefix.display()),
        fault: match fault {
            ShellFault::NotStarted(why) => format!("its scripts need {}: {why}", shell.display()),
            ShellFault::Hangs { seconds, words } => format!(
                "its scripts in etc/conda do not end within {seconds} s (last words: {})",
                last_line(&words)
            ),
            ShellFault::Silent { status, words, .. } => format!(
                "a script in its etc/conda ended the shell, {status} (last words: {}): correct it there",
                last_line(&words)
            ),
            ShellFault::Floods => "its scripts in etc/conda print without end".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::environment::Deadline;

    #[test]
    fn what_is_near_is_recommended() {
        assert_eq!(instead("torch", &["torch2", "train"]), "write --conda torch2");
        assert_eq!(instead("train", &["torch2"]), "write --conda torch2");
        assert_eq!(instead("x", &["torch2", "train"]), "name one of these by --conda");
    }

    #[test]
    fn an_active_environment_is_left_for_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, script: &str, file: &str| {
            let prefix = folder.path().join("envs").join(name);
            std::fs::create_dir_all(prefix.join("conda-meta")).unwrap();
            let scripts = prefix.join("etc/conda").join(script);
            std::fs::create_dir_all(&scripts).unwrap();
            std::fs::write(scripts.join("it.sh"), file).unwrap();
            prefix
        };
        let old = make("old", "deactivate.d", "unset OLD\n");
        let new = make("new", "activate.d", "export NEW=\"$CONDA_PREFIX\"\n");
        let now = Variables::from([
            ("PATH".to_owned(), format!("{}/bin:/usr/bin:/bin", old.display())),
            ("CONDA_PREFIX".to_owned(), old.display().to_string()),
            ("CONDA_PREFIX_1".to_owned(), "/x".to_owned()),
            ("OLD".to_owned(), "1".to_owned()),
        ]);
        let given = Variables::new();
        let site = Site { given: &given, cwd: folder.path(), deadline: Deadline::begin() };
        let now = activate("./envs/new", now, &site).unwrap();
        let new =
            folder.path().join("./envs/new").display().to_string() + if new.exists() { "" } else { "?" };
        assert!(
            now["PATH"].starts_with(&format!("{new}/bin:")) && now["PATH"].ends_with("/usr/bin:/bin"),
            "{}",
            now["PATH"]
        );
        assert!(!now["PATH"].contains("/old/"), "{}", now["PATH"]);
        assert_eq!((now.get("OLD"), now.get("CONDA_PREFIX_1"), now.get("NEW")), (None, None, Some(&new)));
        assert_eq!(now.get("CONDA_DEFAULT_ENV").map(String::as_str), Some("new"));
    }
}
