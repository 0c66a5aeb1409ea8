//! Compiles hvtui's NCCL profiler plugin, which depends on nothing, to a shared library that hvtui has in itself.
//!
//! Where that can't be done hvtui is built without it, and says so when `--nccl-timings` asks for it.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Relative, so that no folder of this machine gets into the library.
const SOURCE: &str = "assets/nccl/profiler.rs";
const LIBRARY: &str = "libnccl-profiler-hvtui.so";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=assets/nccl");
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let library = Path::new(&out).join(LIBRARY);
    if let Err(error) = compile(&library) {
        println!("cargo::warning=built without the NCCL profiler plugin: {error}");
        std::fs::write(&library, [])?;
    }
    Ok(())
}

fn compile(library: &Path) -> Result<(), Box<dyn Error>> {
    let of = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if of("OS") != "linux" || of("POINTER_WIDTH") != "64" || of("ENDIAN") != "little" {
        return Err("it is for 64-bit little-endian Linux".into());
    }
    let target = env::var("TARGET")?;
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--crate-name=hvtui_nccl_profiler", "--crate-type=cdylib"]);
    command.args([
        "--target",
        &target,
        "-Cpanic=abort",
        "-Copt-level=2",
        "-Ccodegen-units=1",
        "-Cstrip=symbols",
    ]);
    // Linked with nothing: the functions that it names are there in each process that has NCCL. One that is missing must
    // show when the library is opened, not when NCCL calls it; and NCCL closes the library while its thread runs.
    command.args(["-Clink-arg=-nostartfiles", "-Clink-arg=-nostdlib", "-Clink-arg=-Wl,-z,now,-z,nodelete"]);
    command.arg(format!("-Clink-arg=-Wl,-soname,{LIBRARY}"));
    if of("ENV") == "musl" {
        command.args(["-Ctarget-feature=-crt-static", "-Clink-self-contained=no"]);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        command.arg(option);
    }
    let output = command.arg("-o").arg(library).arg(SOURCE).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().find(|line| line.starts_with("error")).unwrap_or("rustc failed").into())
}
