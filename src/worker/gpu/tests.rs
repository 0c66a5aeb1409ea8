//! The GPU's training against the CPU's, through the real loading path.
//!
//! NVIDIA's libraries are loaded once a process and read its environment, so each test runs its body in a process of its own: this
//! test program again, with the scripted driver of `tests/fake_nccl`, which runs the kernels of `assets/kernels` on this
//! processor. With `HVTUI_TEST_GPU=1` the bodies that a real GPU can do run on it instead, from the PTX.

mod bodies;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A run of one body.
struct Ran {
    output: Output,
    log: Vec<String>,
}

impl Ran {
    fn ok(self) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&self.output.stdout), text(&self.output.stderr));
        assert!(self.output.status.success() && out.contains("1 passed"), "{out}\n{err}");
        println!("{out}");
        self.log
    }
}

/// `target/<profile>/examples/libfake_nccl.so`, seen from `target/<profile>/deps/<test>`.
fn fake() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().and_then(Path::parent).unwrap().join("examples/libfake_nccl.so");
    assert!(library.is_file(), "{} is missing: cargo build --example fake_nccl", library.display());
    library
}

/// The kernels, made for this processor by its C compiler.
fn make_kernels(to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["convolution", "dense", "step"].map(|name| root.join(format!("assets/kernels/{name}.cu")));
    let made = Command::new("cc")
        .args(["-x", "c", "-O2", "-shared", "-fPIC", "-include"])
        .arg(root.join("tests/fake_nccl/processor.h"))
        .args(sources)
        .args(["-lm", "-o"])
        .arg(to)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn command(body: &str) -> Command {
    let module = module_path!().split_once("::").unwrap().1;
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("{module}::bodies::{body}");
    command.args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAKE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs `body` with the scripted library under `names`.
fn scripted(body: &str, names: &[&str], script: &[(&str, &str)]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::os::unix::fs::symlink(fake(), folder.path().join(name)).unwrap();
    }
    let (log, kernels) = (folder.path().join("log"), folder.path().join("kernels.so"));
    make_kernels(&kernels);
    let mut command = command(body);
    command
        .env("LD_LIBRARY_PATH", folder.path())
        .env("HVTUI_GPU_LIBS", folder.path())
        .env("FAKE_CUDA_KERNELS", kernels)
        .env("FAKE_NCCL_LOG", &log)
        .envs(script.iter().copied());
    let output = command.output().unwrap();
    let log = std::fs::read_to_string(log).unwrap_or_default();
    Ran { output, log: log.lines().map(str::to_owned).collect() }
}

const ALL: &[&str] = &["libcuda.so.1", "libcublas.so.12", "libnccl.so.2"];
const NO_CUBLAS: &[&str] = &["libcuda.so.1", "libnccl.so.2"];

fn count(log: &[String], line: &str) -> usize {
    log.iter().filter(|one| *one == line).count()
}

#[test]
fn every_layer_is_the_cpu_s() {
    let log = scripted("layers", ALL, &[]).ok();
    assert!(count(&log, "sgemm") > 0 && count(&log, "launch product") == 0);
}

#[test]
fn every_layer_is_the_cpu_s_without_cublas() {
    // One that doesn't start is none.
    let log = scripted("layers", ALL, &[("FAKE_CUBLAS", "error")]).ok();
    assert!(count(&log, "sgemm") == 0 && count(&log, "launch product") > 0);
}

#[test]
fn what_a_card_lacks_is_named() {
    scripted("the_driver_is_old", ALL, &[("FAKE_CUDA_VERSION", "11040")]).ok();
    scripted("the_card_is_old", ALL, &[("FAKE_CUDA_CAPABILITY", "6")]).ok();
    scripted("there_is_no_card", ALL, &[("FAKE_CUDA_DEVICES", "0")]).ok();
    scripted("the_kernels_are_refused", ALL, &[("FAKE_CUDA_PTX", "refused")]).ok();
    scripted("there_is_no_driver", &[], &[]).ok();
    scripted("there_is_no_cublas", NO_CUBLAS, &[]).ok();
    scripted("cublas_does_not_start", ALL, &[("FAKE_CUBLAS", "error")]).ok();
}

#[test]
fn a_batch_without_room_is_told_what_fits() {
    scripted("there_is_no_room", ALL, &[("FAKE_CUDA_MEMORY", "60000000")]).ok();
}

#[test]
fn halves_are_rounded_to_the_nearest() {
    scripted("halves", NO_CUBLAS, &[]).ok();
}

/// On a machine with a GPU: `HVTUI_TEST_GPU=1`, and the program's own test binary.
#[test]
fn a_real_gpu_does_what_the_scripted_one_does() {
    if std::env::var_os("HVTUI_TEST_GPU").is_none() {
        println!("skipped: HVTUI_TEST_GPU is not set");
        return;
    }
    for body in ["layers", "halves"] {
        let output = command(body).output().unwrap();
        Ran { output, log: Vec::new() }.ok();
    }
}
