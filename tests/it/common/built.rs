//! The libraries and programs that tests load: examples of this package, made by Cargo when they are asked for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names their folder to a test in a process of its own: Cargo, which waits for any other Cargo, is asked once.
pub(crate) const MADE_AT: &str = "HVTUI_TEST_EXAMPLES";

static MADE: OnceLock<PathBuf> = OnceLock::new();

/// `libfake_nvml.so`, `collective_rank`, …: as the sources say now, also where only one test program was built.
pub(crate) fn example(file: &str) -> PathBuf {
    let there = || std::env::var_os(MADE_AT).map_or_else(make, PathBuf::from);
    let built = MADE.get_or_init(there).join(file);
    assert!(built.is_file(), "no {}: Cargo.toml names no such example", built.display());
    built
}

/// Their folder, where they were asked for.
pub(crate) fn made() -> Option<&'static Path> {
    MADE.get().map(PathBuf::as_path)
}

/// Has Cargo make the examples, and says where they lie: `target/<profile>/examples`, seen from `target/<profile>/deps/<test>`.
fn make() -> PathBuf {
    let test = std::env::current_exe().expect("the test program");
    let profile = test.parent().and_then(Path::parent).expect("the folder of the profile");
    let name = profile.file_name().and_then(|name| name.to_str()).expect("the name of the profile");
    let name = if name == "debug" { "dev" } else { name };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--examples", "--profile", name]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    as_the_builder(&mut cargo);
    let made = cargo.output().expect("cargo, which makes the libraries that tests load");
    assert!(made.status.success(), "cargo build --examples: {}", String::from_utf8_lossy(&made.stderr));
    profile.join("examples")
}

/// In the environment in which the tests were built, by the same user: build scripts run again for what Cargo tells a
/// test of its package, and a file that root made is in a user's way.
pub(crate) fn as_the_builder(cargo: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let of_this_package =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
        if name.to_str().is_some_and(|name| of_this_package.iter().any(|start| name.starts_with(start))) {
            cargo.env_remove(name);
        }
    }
    cargo.env_remove("LD_LIBRARY_PATH");
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID")) {
        std::os::unix::process::CommandExt::uid(cargo, user);
        std::os::unix::process::CommandExt::gid(cargo, group);
    }
}
