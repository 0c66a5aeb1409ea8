//! Hosts with GPUs for tests: the scripted NVML library and the script that it answers from.
//!
//! A test file that uses only a part of this says so: `#[expect(dead_code, reason = "…")] mod fake_nvml;`.
//!
//! For another process: [`FakeNvml::env`]. For the test's own process, where several tests have several hosts at a
//! time: [`FakeNvml::own_library`].

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::built;

/// One scripted NVML; its files go when it is dropped.
pub(crate) struct FakeNvml {
    folder: tempfile::TempDir,
}

impl FakeNvml {
    /// Answers from `script`; `tests/fake_nvml/script.rs` says what it may hold.
    pub(crate) fn new(script: &Value) -> Self {
        let fake = Self { folder: tempfile::tempdir().unwrap() };
        fake.set(script);
        fake
    }

    /// `count` idle H200s.
    pub(crate) fn idle(count: usize) -> Self {
        Self::new(&json!({ "gpus": vec![json!({}); count] }))
    }

    /// Changes the script under the programs that use it; at no moment is it half there.
    pub(crate) fn set(&self, script: &Value) {
        let part = self.folder.path().join("part");
        std::fs::write(&part, script.to_string()).unwrap();
        std::fs::rename(part, self.script()).unwrap();
    }

    /// The path of the script.
    pub(crate) fn script(&self) -> PathBuf {
        self.folder.path().join("fake_nvml.json")
    }

    /// What to add to the environment of an agent (or of `hvtui`, for the host `local`).
    pub(crate) fn env(&self) -> [(&'static str, OsString); 2] {
        [
            ("HVTUI_NVML_LIB", built::example("libfake_nvml.so").into()),
            ("FAKE_NVML_SCRIPT", self.script().into()),
        ]
    }

    /// A copy of the library that this process can load beside others: the loader gives one instance a file,
    /// and each reads the script that lies beside it.
    pub(crate) fn own_library(&self) -> PathBuf {
        let copy = self.folder.path().join("libfake_nvml.so");
        std::fs::copy(built::example("libfake_nvml.so"), &copy).unwrap();
        copy
    }
}
