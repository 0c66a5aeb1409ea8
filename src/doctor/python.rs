//! What a Python says of itself and of the packages that it would import, without importing them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::checks::import;
use super::environments::{self, Environment};
use super::site::Site;

/// Packages that a run's hosts should have alike.
pub(super) const PACKAGES: [&str; 11] = [
    "torch",
    "tensorflow",
    "horovod",
    "jax",
    "keras",
    "numpy",
    "mpi4py",
    "deepspeed",
    "accelerate",
    "transformers",
    "lightning",
];

/// Tells by the packages' own metadata: an import of torch alone takes seconds.
const SCRIPT: &str = r#"
import glob, json, os, re, sys
sys.path[:] = [place for place in sys.path if place]
told = {"executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "libraries": []}
told.update({"cuda_packages": {}, "wants": [], "loads": {}})
def folder(name):
    try:
        from importlib import util
        return list(util.find_spec(name).submodule_search_locations)[0]
    except Exception:
        return None
told["modules"] = {}
for name in sys.argv[1:]:
    try:
        if name[0] == "+":
            from importlib import util
            found = util.find_spec(name[1:])
            told["modules"][name[1:]] = found and str(found.origin or list(found.submodule_search_locations)[0])
            continue
        from importlib import metadata
        version = metadata.version(name)
        if version:
            told["packages"][name] = version
    except Exception:
        pass
torch = folder("torch")
if torch:
    try:
        text = open(os.path.join(torch, "version.py")).read()
        found = re.search(r"^cuda\b[^=\n]*=\s*(.+)$", text, re.M)
        told["torch_cuda"] = found.group(1).strip().strip("'\"") if found else ""
        if told["torch_cuda"] == "None":
            told["torch_cuda"] = ""
        told["packages"].setdefault("torch", re.search(r"__version__\s*=\s*'([^']+)'", text).group(1))
    except Exception:
        pass
    for name in glob.glob(os.path.join(torch, "lib", "libtorch_python.so")):
        told["loads"]["torch"] = name
tensorflow = folder("tensorflow")
if tensorflow:
    for name in ["tensorflow-cpu", "tensorflow-gpu", "tf-nightly"]:
        try:
            from importlib import metadata
            version = metadata.version(name)
            if version:
                told["packages"].setdefault("tensorflow", version)
        except Exception:
            pass
    for name in glob.glob(os.path.join(tensorflow, "python", "_pywrap_tensorflow_internal.so")):
        told["loads"]["tensorflow"] = name
    try:
        text = open(os.path.join(tensorflow, "python", "platform", "build_info.py")).read()
        told["tensorflow_build"] = {}
        for key in ["cuda_version", "cudnn_version", "is_cuda_build"]:
            found = re.search(r"""['"]%s['"]\s*[,:]\s*['"]?([\w.]+)""" % key, text)
            if found:
                told["tensorflow_build"][key] = found.group(1)
    except Exception:
        pass
libraries = re.compile(r"(nvidia-[a-z0-9-]+|nccl|cudnn|cudatoolkit|cuda-cudart)-(\d[\w.]*)")
for place in sys.path:
    for name in glob.glob(os.path.join(place, "nvidia_*.dist-info")):
        found = libraries.match(os.path.basename(name)[:-len(".dist-info")].replace("_", "-"))
        if found:
            told["cuda_packages"].setdefault(found.group(1), found.group(2))
for name in glob.glob(os.path.join(sys.prefix, "conda-meta", "*.json")):
    found = libraries.match(os.path.basename(name))
    if found:
        told["cuda_packages"].setdefault("conda " + found.group(1), found.group(2))
for name in ["torch", "tensorflow"]:
    try:
        from importlib import metadata
        for line in metadata.requires(name) or []:
            found = re.match(r"(nvidia-[a-z0-9-]+)\s*\(?==\s*([\w.]+)", line)
            if found and "extra" not in line:
                told["wants"].append([name, found.group(1), found.group(2)])
    except Exception:
        pass
horovod = folder("horovod")
if horovod:
    told["libraries"] = sorted(glob.glob(os.path.join(horovod, "*", "mpi_lib*.so")))
folders = []
for place in [torch, tensorflow]:
    if place:
        packages = os.path.dirname(place)
        folders += [os.path.join(place, "lib"), place, place + ".libs"]
        folders += sorted(glob.glob(os.path.join(packages, "nvidia", "*", "lib")))
told["folders"] = [name for at, name in enumerate(folders) if os.path.isdir(name) and name not in folders[:at]]
print("\nhvtui " + json.dumps(told))
"#;

/// Tells where a Python lies and which of the modules that are named to it it finds.
const FINDS: &str = r#"
import json, sys
from importlib import util
sys.path[:] = [place for place in sys.path if place]
found = []
for name in sys.argv[1:]:
    try:
        if util.find_spec(name):
            found.append(name)
    except Exception:
        pass
print("\nhvtui " + json.dumps([sys.executable, found]))
"#;
/// Other Pythons of a host that are asked at most.
const OTHERS: usize = 4;
/// How long one of them may take: all must be done before the check itself is late.
const OF_ANOTHER: Duration = Duration::from_millis(400);

/// A Python and what it has.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Python {
    pub(super) executable: String,
    pub(super) version: String,
    /// Versions by package.
    pub(super) packages: BTreeMap<String, String>,
    /// Where the modules lie that are looked for; `None` for one that it does not find.
    #[serde(default)]
    pub(super) modules: BTreeMap<String, Option<String>>,
    /// Which other environments have those that it does not find.
    #[serde(default)]
    pub(super) elsewhere: BTreeMap<String, Vec<Environment>>,
    /// Which other Pythons of the search path find those.
    #[serde(default)]
    pub(super) others: BTreeMap<String, Vec<String>>,
    /// The CUDA version that its torch was built for; empty for none. `None` where that is not known.
    #[serde(default)]
    pub(super) torch_cuda: Option<String>,
    /// Horovod's own libraries, a file a framework.
    #[serde(default)]
    pub(super) libraries: Vec<PathBuf>,
    /// Where the frameworks keep the libraries that their import loads.
    #[serde(default)]
    pub(super) folders: Vec<PathBuf>,
    /// Versions of the CUDA libraries that are packages themselves: `nvidia-nccl-cu12`, `conda cudnn`.
    #[serde(default)]
    pub(super) cuda_packages: BTreeMap<String, String>,
    /// Which of those a framework was built with: its name, the package, the version.
    #[serde(default)]
    pub(super) wants: Vec<(String, String, String)>,
    /// The library that the import of a framework loads.
    #[serde(default)]
    pub(super) loads: BTreeMap<String, PathBuf>,
    /// What its TensorFlow tells of how it was built: `cuda_version`, `cudnn_version`, `is_cuda_build`.
    #[serde(default)]
    pub(super) tensorflow_build: Option<BTreeMap<String, String>>,
}

impl Python {
    pub(super) fn ask(site: &Site) -> Result<Self, String> {
        let program = if let Some(starts) = &site.starts {
            // in a container of a launch it is the one that its ranks are started with
            import::python(&starts.program, Path::new("/"), std::env::var_os("PATH").as_deref())?
        } else {
            let program = site.program("python3").or_else(|| site.program("python"));
            program.ok_or("no python3 on the PATH of commands over ssh")?
        };
        let modules: Vec<String> = site.modules.iter().map(|name| format!("+{name}")).collect();
        let modules = modules.iter().map(String::as_str);
        let arguments: Vec<&str> = ["-c", SCRIPT].into_iter().chain(PACKAGES).chain(modules).collect();
        let told = site.ask(&program, &arguments)?;
        let line = told.out.lines().rev().find_map(|line| line.strip_prefix("hvtui "));
        let mut found: Self = line
            .and_then(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| format!("{}: {}", program.display(), told.last_words()))?;
        let absent = found.modules.iter().filter(|(_, place)| place.is_none());
        let elsewhere = absent.map(|(name, _)| (name.clone(), environments::having(name)));
        found.elsewhere = elsewhere.collect();
        if site.starts.is_none() {
            found.others = found.others_of();
        }
        Ok(found)
    }

    /// Which other Pythons of the search path find the modules that this one does not find.
    fn others_of(&self) -> BTreeMap<String, Vec<String>> {
        let absent = self.modules.iter().filter(|(_, place)| place.is_none());
        let absent: Vec<&str> = absent.map(|(name, _)| name.as_str()).collect();
        let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if absent.is_empty() {
            return others;
        }
        let arguments: Vec<&str> = ["-c", FINDS].into_iter().chain(absent).collect();
        let pythons = pythons(std::env::var_os("PATH").as_deref()).into_iter();
        for program in pythons.filter(|program| *program != Path::new(&self.executable)).take(OTHERS) {
            let Ok(told) = Site::ask_within(&program, &arguments, OF_ANOTHER) else { continue };
            let line = told.out.lines().rev().find_map(|line| line.strip_prefix("hvtui "));
            let told = line.and_then(|line| serde_json::from_str::<(String, Vec<String>)>(line).ok());
            // a program that starts this one is no other
            if let Some((executable, found)) = told.filter(|(executable, _)| *executable != self.executable) {
                for name in found {
                    let of_module = others.entry(name).or_default();
                    if !of_module.contains(&executable) {
                        of_module.push(executable.clone());
                    }
                }
            }
        }
        others
    }
}

/// The Pythons of a search path, and the system's: each folder once, under whichever name it is there.
fn pythons(path: Option<&OsStr>) -> Vec<PathBuf> {
    let folders = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let folders = folders.into_iter().chain(["/usr/bin".into()]).filter(|folder| folder.is_absolute());
    // without the links that lead to a folder: /bin is /usr/bin
    let folders = folders.filter_map(|folder| folder.canonicalize().ok());
    let folders = folders.filter(|folder| seen.insert(folder.clone()));
    folders.map(|folder| folder.join("python3")).filter(|program| program.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::Started;
    use crate::domain::time::Stamp;

    #[test]
    fn each_python_of_a_search_path_is_asked_once() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in ["shims", "none", "own"] {
            std::fs::create_dir(home.join(folder)).unwrap();
        }
        std::fs::write(home.join("shims/python3"), "").unwrap();
        std::fs::write(home.join("own/python3"), "").unwrap();
        std::os::unix::fs::symlink(home.join("own"), home.join("linked")).unwrap();
        let folders = ["shims", "none", "linked", "own", "absent"].map(|folder| home.join(folder));
        let path = std::env::join_paths(folders.into_iter().chain(["relative".into()])).unwrap();
        let mut found = pythons(Some(&path));
        found.retain(|program| program.starts_with(&home));
        assert_eq!(found, [home.join("shims/python3"), home.join("own/python3")]);
    }

    #[test]
    fn in_a_container_of_a_launch_it_is_the_one_that_is_started() {
        let starts = Started { program: "python3.99".to_owned(), ..Started::default() };
        let site = Site::new(Stamp(1), Stamp(1), "/nowhere".into(), Vec::new()).starting(Some(starts));
        assert_eq!(Python::ask(&site).unwrap_err(), "no python3.99 on the PATH of the run");
    }
}
