//! Where this host's condas are, and which environments they have. Starts nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Variables, on_path};

/// Folders in which people have their conda, below the home folder and from the root on.
const AT_HOME: [&str; 8] = [
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    ".local/share/mamba",
    "miniconda",
    "conda",
];
const AT_ROOT: [&str; 6] = [
    "/opt/conda",
    "/opt/miniconda3",
    "/opt/anaconda3",
    "/opt/miniforge3",
    "/opt/mambaforge",
    "/opt/micromamba",
];

/// For messages.
pub(super) const LOOKED: &str = "CONDA_EXE, MAMBA_EXE, MAMBA_ROOT_PREFIX, PATH, ~/{miniconda3,anaconda3,miniforge3,mambaforge,\
                                 micromamba}, /opt/{conda,miniconda3,miniforge3} and what a login shell says";

/// The condas of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Condas {
    /// Their folders, the one that counts first in front.
    pub(super) roots: Vec<PathBuf>,
    home: PathBuf,
    /// Folders of environments that variables or `.condarc` name.
    folders: Vec<PathBuf>,
}

impl Condas {
    /// Those that these variables, or a folder, tell of.
    pub(super) fn find(variables: &Variables, home: &Path) -> Self {
        let program = |file: &Path| {
            // conda is ROOT/bin/conda or ROOT/condabin/conda; micromamba may lie anywhere
            let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
            file.parent().and_then(Path::parent).map(Path::to_owned)
        };
        let named =
            ["CONDA_EXE", "MAMBA_EXE"].iter().filter_map(|name| program(Path::new(variables.get(*name)?)));
        let prefixes = ["MAMBA_ROOT_PREFIX", "CONDA_ROOT"]
            .iter()
            .filter_map(|name| variables.get(*name).map(PathBuf::from));
        let found =
            ["conda", "mamba", "micromamba"].iter().filter_map(|name| program(&on_path(variables, name)?));
        let homes = AT_HOME.iter().map(|name| home.join(name));
        let all = named.chain(prefixes).chain(found).chain(homes).chain(AT_ROOT.iter().map(PathBuf::from));
        let mut roots: Vec<PathBuf> = Vec::new();
        for root in all.filter(|root| root.is_absolute()) {
            // micromamba's root may have no base
            let is_root = root.join("conda-meta").is_dir() || root.join("envs").is_dir();
            let same =
                |known: &PathBuf| std::fs::canonicalize(known).ok() == std::fs::canonicalize(&root).ok();
            if is_root && root != Path::new("/usr") && !roots.iter().any(same) {
                roots.push(root);
            }
        }
        let mut folders = Vec::new();
        for name in ["CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"] {
            folders.extend(
                variables
                    .get(name)
                    .into_iter()
                    .flat_map(std::env::split_paths)
                    .filter(|path| path.is_absolute()),
            );
        }
        for file in [home.join(".condarc"), home.join(".config/conda/.condarc"), home.join(".mambarc")] {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let from_home = |text: &str| {
                text.strip_prefix("~/").map_or_else(|| PathBuf::from(text), |rest| home.join(rest))
            };
            folders.extend(envs_dirs(&text).map(from_home).filter(|path| path.is_absolute()));
        }
        Self { roots, home: home.to_owned(), folders }
    }

    /// Its environments by name, the first of each name.
    pub(super) fn environments(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        let mut add = |name: &str, path: PathBuf| {
            if path.join("conda-meta").is_dir() {
                found.entry(name.to_owned()).or_insert(path);
            }
        };
        if let Some(root) = self.roots.iter().find(|root| root.join("conda-meta").is_dir()) {
            add("base", root.clone());
        }
        let roots = self.roots.iter().map(|root| root.join("envs"));
        let folders = self.folders.iter().cloned().chain(roots).chain([self.home.join(".conda/envs")]);
        for folder in folders {
            let mut entries: Vec<PathBuf> =
                std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                    add(name, path.clone());
                }
            }
        }
        let listed = std::fs::read_to_string(self.home.join(".conda/environments.txt")).unwrap_or_default();
        for path in listed.lines().map(|line| PathBuf::from(line.trim())) {
            let is_root = path.join("envs").is_dir() || path.join("condabin").is_dir();
            if let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| !is_root) {
                add(name, path.clone());
            }
        }
        found
    }

    /// The conda to which an environment belongs.
    pub(super) fn root_of(&self, prefix: &Path) -> Option<&PathBuf> {
        self.roots.iter().find(|root| prefix.starts_with(root)).or_else(|| self.roots.first())
    }

    /// The roots in words, the home folder as `~` nowhere: a person looks for them there.
    pub(super) fn words(&self) -> String {
        self.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// The list under `envs_dirs:` of a `.condarc`.
fn envs_dirs(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().skip_while(|line| line.trim_end() != "envs_dirs:").skip(1);
    let items = lines.map_while(|line| line.trim().strip_prefix("- "));
    items.map(|item| item.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_found_where_people_have_them() {
        let home = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.join("conda-meta")).unwrap();
            path
        };
        let root = make("miniconda3");
        make("miniconda3/envs/train");
        make(".conda/envs/mine");
        make("scratch/big");
        let far = make("elsewhere/far");
        std::fs::write(
            home.path().join(".condarc"),
            "channels:\n  - x\nenvs_dirs:\n  - ~/scratch\nother: 1\n",
        )
        .unwrap();
        std::fs::write(home.path().join(".conda/environments.txt"), format!("{}\n/gone/x\n", far.display()))
            .unwrap();
        std::fs::create_dir_all(home.path().join("miniconda3/envs/.no")).unwrap();
        let condas = Condas::find(&Variables::new(), home.path());
        assert_eq!(condas.roots.first(), Some(&root));
        let found = condas.environments();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert!(["base", "big", "far", "mine", "train"].iter().all(|name| names.contains(name)), "{names:?}");
        assert_eq!(found.get("base"), Some(&root));
        assert_eq!(condas.root_of(&far), Some(&root));
    }

    #[test]
    fn a_conda_is_found_by_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap().join("forge");
        std::fs::create_dir_all(root.join("conda-meta")).unwrap();
        let exe = root.join("bin/conda").display().to_string();
        let variables = Variables::from([("CONDA_EXE".to_owned(), exe)]);
        let condas = Condas::find(&variables, Path::new("/nonexistent"));
        assert_eq!(condas.roots.first(), Some(&root));
    }
}
