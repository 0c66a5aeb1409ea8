//! Where NVIDIA's libraries may lie on a host. Looks at file names only; loads nothing by itself.
//!
//! NVIDIA's packages and the Python wheels install `libnccl.so.2` and `libcublas.so.N`, and many hosts have them nowhere but
//! in the wheel of a Python.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::NcclError;

/// A library, by the names that its files may have and the folders of the Python packages that bring it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Names, the better first.
    pub files: &'static [&'static str],
    /// Folders below a Python's packages.
    pub wheels: &'static [&'static str],
}

/// The first name is what NCCL's packages and wheels have in common; only a development package has the other.
pub(super) const NCCL: Wanted =
    Wanted { files: &["libnccl.so.2", "libnccl.so"], wheels: &["nvidia/nccl/lib"] };

/// What a process's environment says about where libraries are.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `HVTUI_GPU_LIBS`: folders, with colons between them. Looked at before everything else.
    pub setting: Option<OsString>,
    /// `PATH`: its folders lead to Pythons.
    pub path: Option<OsString>,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`.
    pub prefixes: Vec<PathBuf>,
    /// `HOME`, where `pip install --user` and pyenv put things.
    pub home: Option<PathBuf>,
}

impl Places {
    /// From the variables that `look` knows.
    pub fn from_variables(look: impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            setting: look("HVTUI_GPU_LIBS"),
            path: look("PATH"),
            prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"]
                .into_iter()
                .filter_map(&look)
                .map(PathBuf::from)
                .collect(),
            home: look("HOME").map(PathBuf::from),
        }
    }

    /// The first file that `open` opens: by the setting, then as the loader finds it, then where packages put it. `None`: there
    /// is none.
    ///
    /// A file in a folder of the setting must open: who names one doesn't want another.
    pub fn first<T>(
        &self,
        wanted: &Wanted,
        open: impl Fn(&Path) -> Result<T, NcclError>,
    ) -> Result<Option<T>, NcclError> {
        if let Some(file) = self.set(wanted).first() {
            return open(file).map(Some);
        }
        let mut faults = Vec::new();
        let by_name = wanted.files.iter().map(PathBuf::from);
        for file in by_name.chain(self.elsewhere(wanted)) {
            match open(&file) {
                Ok(library) => return Ok(Some(library)),
                // A name that the loader doesn't know is no fault; a file that exists and doesn't load is one.
                Err(NcclError::Broken { reason, .. }) if reason.contains("No such file") => {}
                Err(fault) => faults.push(fault),
            }
        }
        faults.into_iter().next().map_or(Ok(None), Err)
    }

    /// The files in the folders of the setting.
    pub(super) fn set(&self, wanted: &Wanted) -> Vec<PathBuf> {
        let folders = self.setting.as_deref().map(std::env::split_paths).into_iter().flatten();
        in_folders(wanted, folders)
    }

    /// The files that lie where packages put them and the loader doesn't look.
    pub(super) fn elsewhere(&self, wanted: &Wanted) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        for cuda in children(Path::new("/usr/local"), "cuda") {
            folders.extend(
                ["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"].map(|lib| cuda.join(lib)),
            );
        }
        folders.extend(children(Path::new("/usr/lib"), "").into_iter().filter(|at| {
            at.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"-linux-gnu"))
        }));
        folders.push("/usr/lib64".into());
        for site in self.sites() {
            folders.extend(wanted.wheels.iter().map(|wheel| site.join(wheel)));
        }
        in_folders(wanted, folders)
    }

    /// The folders of Python packages that belong to the Pythons of this process.
    fn sites(&self) -> Vec<PathBuf> {
        let mut roots = self.prefixes.clone();
        for folder in self.path.as_deref().map(std::env::split_paths).into_iter().flatten() {
            // A launcher may be a link into an installation elsewhere; both have packages of their own.
            let python = folder.join("python3");
            let real = python.canonicalize().ok();
            roots.extend(
                [Some(python), real]
                    .into_iter()
                    .flatten()
                    .filter(|at| at.exists())
                    .filter_map(|at| above(&at)),
            );
            // pyenv's launchers are scripts that lie beside the installations.
            roots.extend(versions(&folder));
        }
        if let Some(home) = &self.home {
            roots.push(home.join(".local"));
        }
        roots.extend([PathBuf::from("/usr"), PathBuf::from("/usr/local")]);
        let mut sites = Vec::new();
        for lib in roots.iter().flat_map(|root| [root.join("lib"), root.join("lib64")]) {
            for python in children(&lib, "python3") {
                sites.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
            }
        }
        sites
    }
}

/// The prefix of an installation from its `bin/python3`.
fn above(python: &Path) -> Option<PathBuf> {
    python.parent()?.parent().map(Path::to_owned)
}

/// The installations beside a folder of pyenv's launchers.
fn versions(shims: &Path) -> Vec<PathBuf> {
    match shims.parent() {
        Some(root) if shims.file_name().is_some_and(|name| name == "shims") => {
            children(&root.join("versions"), "")
        }
        _ => Vec::new(),
    }
}

/// What lies in `folder` with a name that begins with `start`, in the order of names.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(start.as_bytes()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The library's file in each of the folders that has one, each file once.
fn in_folders(wanted: &Wanted, folders: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let mut names = wanted.files.iter().map(|name| folder.join(name));
        let file = names.find_map(|at| at.canonicalize().ok());
        found.extend(file.filter(|file| !found.contains(file)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SONAME: &str = NCCL.files[0];
    const PLAIN: &str = NCCL.files[1];

    fn touch(folder: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(name), "").unwrap();
        folder.join(name).canonicalize().unwrap()
    }

    fn places(pairs: &[(&str, &Path)]) -> Places {
        Places::from_variables(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str().to_owned())
        })
    }

    #[test]
    fn the_setting_names_folders() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (root.path().join("one"), root.path().join("two"));
        let plain = touch(&one, PLAIN);
        let file = touch(&two, SONAME);
        let both = std::env::join_paths([&one, &root.path().join("none"), &two, &one]).unwrap();
        assert_eq!(places(&[("HVTUI_GPU_LIBS", Path::new(&both))]).set(&NCCL), [plain, file]);
        assert!(Places::default().set(&NCCL).is_empty());
    }

    #[test]
    fn the_packages_of_pythons_are_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let venv = touch(&at("venv/lib/python3.11/site-packages/nvidia/nccl/lib"), SONAME);
        let user = touch(&at("home/.local/lib/python3.12/site-packages/nvidia/nccl/lib"), SONAME);
        let pyenv = touch(&at("pyenv/versions/3.13.1/lib/python3.13/site-packages/nvidia/nccl/lib"), SONAME);
        let real = touch(&at("real/lib64/python3.9/dist-packages/nvidia/nccl/lib"), SONAME);
        touch(&at("real/bin"), "python3");
        std::fs::create_dir_all(at("links")).unwrap();
        std::os::unix::fs::symlink(at("real/bin/python3"), at("links/python3")).unwrap();
        let path = std::env::join_paths([at("pyenv/shims"), at("links")]).unwrap();
        let found =
            places(&[("VIRTUAL_ENV", &at("venv")), ("HOME", &at("home")), ("PATH", Path::new(&path))])
                .elsewhere(&NCCL);
        for file in [venv, user, pyenv, real] {
            assert!(found.contains(&file), "{} is not among {found:?}", file.display());
        }
    }
}
