//! A folder with the scripted driver, cuBLAS and NCCL of `tests/fake_nccl`, and the kernels of `assets/kernels` made for this
//! processor: what a process must be shown to believe that it has GPUs.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::built;

/// Driver, cuBLAS, NCCL.
pub(crate) const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libcublas.so.12", "libnccl.so.2"];

/// The scripted library under some names, and the kernels.
pub(crate) struct ScriptedGpu {
    folder: TempDir,
}

impl ScriptedGpu {
    pub(crate) fn new(names: &[&str]) -> Self {
        let library = built::example("libfake_nccl.so");
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            std::os::unix::fs::symlink(&library, folder.path().join(name)).unwrap();
        }
        make_kernels(&folder.path().join("kernels.so"));
        Self { folder }
    }

    /// A file that gets a line for each call worth one.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The lines of the log.
    pub(crate) fn lines(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Shows it to a process, and nothing of another script.
    pub(crate) fn show(&self, command: &mut Command) {
        let others = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAKE_"));
        for (name, _) in others {
            command.env_remove(name);
        }
        command.envs(self.variables());
    }

    /// What shows it to a process.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 4] {
        let folder = self.folder.path();
        [
            ("LD_LIBRARY_PATH", folder.to_owned()),
            ("HVTUI_GPU_LIBS", folder.to_owned()),
            ("FAKE_CUDA_KERNELS", folder.join("kernels.so")),
            ("FAKE_NCCL_LOG", self.log()),
        ]
    }
}

/// Makes the kernels by this machine's C compiler, which Rust needs as well.
fn make_kernels(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["convolution", "dense", "step"].map(|name| root.join(format!("assets/kernels/{name}.cu")));
    let made = Command::new("cc")
        .args(["-x", "c", "-O2", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"])
        .args(["-shared", "-fPIC", "-include"])
        .arg(root.join("tests/fake_nccl/processor.h"))
        .args(sources)
        .args(["-lm", "-o"])
        .arg(to)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
