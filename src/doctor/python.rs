//! What a Python says of itself and of the packages that it would import, without importing them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::site::Site;

/// Packages that a run's hosts should have alike.
pub(super) const PACKAGES: [&str; 12] = [
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
    "nvidia-nccl-cu12",
];

/// Tells by the packages' own metadata: an import of torch alone takes seconds.
const SCRIPT: &str = r#"
import glob, json, os, re, sys
told = {"executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "libraries": []}
def folder(name):
    try:
        from importlib import util
        return list(util.find_spec(name).submodule_search_locations)[0]
    except Exception:
        return None
for name in sys.argv[1:]:
    try:
        from importlib import metadata
        told["packages"][name] = metadata.version(name)
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
horovod = folder("horovod")
if horovod:
    told["libraries"] = sorted(glob.glob(os.path.join(horovod, "*", "mpi_lib*.so")))
print("\nhvtui " + json.dumps(told))
"#;

/// A Python and what it has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Python {
    pub(super) executable: String,
    pub(super) version: String,
    /// Versions by package.
    pub(super) packages: BTreeMap<String, String>,
    /// The CUDA version that its torch was built for; empty for none. `None` where that is not known.
    #[serde(default)]
    pub(super) torch_cuda: Option<String>,
    /// Horovod's own libraries, a file a framework.
    #[serde(default)]
    pub(super) libraries: Vec<PathBuf>,
}

impl Python {
    pub(super) fn ask(site: &Site) -> Result<Self, String> {
        let program = site.program("python3").or_else(|| site.program("python"));
        let program = program.ok_or("no python3 on the PATH of commands over ssh")?;
        let arguments: Vec<&str> = ["-c", SCRIPT].into_iter().chain(PACKAGES).collect();
        let told = site.ask(&program, &arguments)?;
        let line = told.out.lines().rev().find_map(|line| line.strip_prefix("hvtui "));
        line.and_then(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| format!("{}: {}", program.display(), told.last_words()))
    }
}
