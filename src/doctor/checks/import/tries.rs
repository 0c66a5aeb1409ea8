//! The import itself, in the words of the Python that makes it, and what one that succeeded tells.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cards::Card;

/// Imports its first argument, and tells the versions of the others that came with it. Torch is asked for its GPUs, too: a driver that
/// is too old is told by a warning alone. What the GPUs compute is asked of the driver, which begins nothing on them for that.
pub(super) const SCRIPT: &str = "import importlib, json, os, sys, warnings
sys.path[:] = [place for place in sys.path if place]
def of(module, name):
    try:
        return str(getattr(module, name, None) or '')
    except Exception:
        return ''
def cards():
    import ctypes
    driver, found = ctypes.CDLL('libcuda.so.1'), []
    count, device, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return found
    for number in range(count.value):
        uuid, capability = (ctypes.c_ubyte * 16)(), []
        if driver.cuDeviceGet(ctypes.byref(device), number) or driver.cuDeviceGetUuid(uuid, device):
            continue
        for attribute in 75, 76:
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
                capability.append(value.value)
        text = bytes(uuid).hex()
        text = '-'.join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
        if len(capability) == 2:
            found.append({'uuid': 'GPU-' + text, 'capability': capability})
    return found
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter('always')
    module = importlib.import_module(sys.argv[1])
    nccl, arches, gpus, versions = None, [], [], {'Python': '%d.%d.%d' % sys.version_info[:3]}
    if sys.argv[1] == 'torch' and module.version.cuda:
        is_there = module.cuda.is_available()
        distributed = getattr(module, 'distributed', None)
        if distributed and distributed.is_available():
            nccl = bool(distributed.is_nccl_available())
        try:
            versions['NCCL'] = '.'.join(str(part) for part in module.cuda.nccl.version()) if nccl else ''
        except Exception:
            pass
        try:
            arches = [str(arch) for arch in module.cuda.get_arch_list()] if is_there else []
            gpus = cards() if arches else []
        except Exception:
            pass
files = []
for name in sys.argv[2:]:
    versions[name] = of(sys.modules.get(name), '__version__')
    files.append(of(sys.modules.get(name), '__file__'))
try:
    with open('/proc/self/maps') as maps:
        files += [line.split(None, 5)[5].strip() for line in maps if '/libnccl.so' in line]
except Exception:
    pass
versions = {name: version for name, version in versions.items() if version}
said = [' '.join(str(one.message).split()) for one in said]
said = [words for words in said if 'driver' in words.lower() or 'cuda capability' in words.lower()]
told = {'file': module.__file__, 'version': of(module, '__version__') or None, 'said': said[:1], 'nccl': nccl}
told.update({'files': sorted(set(files) - {''}), 'versions': versions, 'arches': arches, 'gpus': gpus})
print('\\nhvtui ' + json.dumps(told))
sys.stdout.flush()
os._exit(0)";

/// What an import that succeeded tells.
#[derive(Debug, Deserialize)]
pub(super) struct Succeeded {
    pub(super) file: Option<PathBuf>,
    /// Those of the packages that came with it, and of the NCCL that is loaded.
    #[serde(default)]
    pub(super) files: Vec<PathBuf>,
    /// What it said of the driver or of what it was built for.
    pub(super) said: Vec<String>,
    #[serde(default)]
    pub(super) nccl: Option<bool>,
    #[serde(flatten)]
    pub(super) told: Imported,
}

/// The part of it that is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Imported {
    pub(super) version: Option<String>,
    /// Those of Python and of all that was imported on the way.
    #[serde(default)]
    pub(super) versions: BTreeMap<String, String>,
    /// For what it was built, and the GPUs there, some of which it may have no code for.
    #[serde(default)]
    pub(super) arches: Vec<String>,
    #[serde(default)]
    pub(super) gpus: Vec<Card>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_does_not_tell_its_version_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("odd.py", "def __getattr__(name):\n    raise RuntimeError(name)\n");
        write("first.py", "import odd\n__version__ = '1.0'\n");
        let mut python = std::process::Command::new("python3");
        python.args(["-B", "-c", SCRIPT, "first", "odd", "first", "absent"]).env("PYTHONPATH", folder.path());
        let told = python.output().unwrap();
        let out = String::from_utf8(told.stdout).unwrap();
        let line = out.lines().rev().find_map(|line| line.strip_prefix("hvtui "));
        let told: Succeeded = serde_json::from_str(line.unwrap_or(&out)).unwrap();
        let Imported { version, versions, .. } = &told.told;
        assert_eq!((version.as_deref(), versions.get("odd")), (Some("1.0"), None));
        assert_eq!(versions["first"], "1.0");
        assert_eq!(told.files, ["first.py", "odd.py"].map(|name| folder.path().join(name)));
        assert_eq!(told.file.as_ref(), told.files.first());
    }
}
