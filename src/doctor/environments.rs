//! Other Python environments of a host, where people keep them: conda's, and virtual ones. Looks at folders, starts nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::program::home;

/// Environments that are looked at, and entries of a folder.
const MOST: usize = 200;
const ENTRIES: usize = 1000;
/// Where conda is installed: in the home folder, and for all.
const CONDA_AT_HOME: [&str; 7] =
    ["miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", "conda"];
const CONDA: [&str; 5] =
    ["/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3", "/usr/local/miniconda3"];

/// An environment that has a module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Environment {
    /// Its folder.
    pub(super) folder: String,
    /// Whether it is one of conda's.
    pub(super) conda: bool,
}

impl Environment {
    /// The option by which a run starts in it.
    pub(super) fn option(&self) -> String {
        let option = if self.conda { "--conda" } else { "--venv" };
        format!("{option} {}", super::shell_word(&self.folder))
    }
}

/// Those that have a module.
pub(super) fn having(module: &str) -> Vec<Environment> {
    let found = all(&home()).into_iter().filter(|folder| has(folder, module)).map(|folder| Environment {
        conda: folder.join("conda-meta").is_dir(),
        folder: folder.to_string_lossy().into_owned(),
    });
    found.collect()
}

fn all(home: &Path) -> BTreeSet<PathBuf> {
    let conda = CONDA_AT_HOME.iter().map(|name| home.join(name)).chain(CONDA.iter().map(PathBuf::from));
    let mut found = BTreeSet::new();
    for prefix in conda {
        found.extend(inside(&prefix.join("envs")));
        found.insert(prefix);
    }
    // conda writes down where it has made some
    let listed = fs::read_to_string(home.join(".conda/environments.txt")).unwrap_or_default();
    found.extend(listed.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    for folder in [".virtualenvs", ".pyenv/versions", "venvs", "envs"] {
        found.extend(inside(&home.join(folder)));
    }
    for folder in inside(home).into_iter().chain([home.to_owned()]) {
        found.extend([".venv", "venv", "env"].map(|name| folder.join(name)));
        found.insert(folder);
    }
    let is_one = |folder: &PathBuf| folder.join("bin/python3").exists() || folder.join("bin/python").exists();
    found.into_iter().filter(is_one).take(MOST).collect()
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(ENTRIES).flatten();
    entries.map(|entry| entry.path()).collect()
}

fn has(environment: &Path, module: &str) -> bool {
    let pythons = inside(&environment.join("lib")).into_iter();
    let pythons = pythons.filter(|folder| {
        folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"))
    });
    let packages = pythons.map(|folder| folder.join("site-packages"));
    { packages }.any(|folder| folder.join(module).is_dir() || folder.join(format!("{module}.py")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_found_where_people_keep_them() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        for environment in ["miniconda3/envs/train", "project/.venv", "v", "far/away/conda", "far/unlisted"] {
            fs::create_dir_all(at(environment).join("bin")).unwrap();
            fs::write(at(environment).join("bin/python3"), "").unwrap();
        }
        fs::create_dir_all(at("project/.venv/lib/python3.11/site-packages/apex")).unwrap();
        fs::create_dir_all(at("v/lib/python3.9/site-packages")).unwrap();
        fs::write(at("v/lib/python3.9/site-packages/six.py"), "").unwrap();
        fs::create_dir(at(".conda")).unwrap();
        fs::write(at(".conda/environments.txt"), format!("{}\n", at("far/away/conda").display())).unwrap();
        let found = all(home.path());
        for environment in ["miniconda3/envs/train", "project/.venv", "v", "far/away/conda"] {
            assert!(found.contains(&at(environment)), "{environment} is not in {found:?}");
        }
        assert!(!found.contains(&at("far/unlisted")));
        assert!(
            has(&at("project/.venv"), "apex") && !has(&at("project/.venv"), "six") && has(&at("v"), "six")
        );
    }

    #[test]
    fn a_run_starts_in_one_by_its_option() {
        let option = |conda, folder: &str| Environment { conda, folder: folder.to_owned() }.option();
        assert_eq!(option(true, "/opt/conda/envs/train"), "--conda /opt/conda/envs/train");
        assert_eq!(option(false, "/home/me/my env"), "--venv '/home/me/my env'");
    }
}
