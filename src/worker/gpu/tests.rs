//! The GPU's training against the CPU's, through the real loading path.
//!
//! NVIDIA's libraries are loaded once a process and read its environment, so each test runs its body in a process of its own: this
//! test program again, with the scripted driver of `tests/fake_nccl`, which runs the kernels of `assets/kernels` on this
//! processor. With `HVTUI_TEST_GPU=1` the bodies that a real GPU can do run on it instead, from the PTX.

mod bodies;
#[path = "../../../tests/it/common/scripted_gpu.rs"]
mod scripted_gpu;

use std::process::{Command, Output};

use crate::collective::nccl::tests::built;
use scripted_gpu::{LIBRARIES, ScriptedGpu};

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

fn command(body: &str) -> Command {
    let module = module_path!().split_once("::").unwrap().1;
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("{module}::bodies::{body}");
    command.args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body` with the scripted library under `names`.
fn scripted(body: &str, names: &[&str], script: &[(&str, &str)]) -> Ran {
    let gpu = ScriptedGpu::new(names);
    let mut command = command(body);
    gpu.show(&mut command);
    let output = command.envs(script.iter().copied()).output().unwrap();
    Ran { output, log: gpu.lines() }
}

const ALL: &[&str] = &LIBRARIES;
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
    scripted("there_is_no_card", ALL, &[("FAKE_CUDA_COUNT", "0")]).ok();
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

#[test]
fn the_table_of_steps_has_a_line_for_each_way() {
    let ran = scripted("step_times", ALL, &[]);
    let text = String::from_utf8_lossy(&ran.output.stdout).into_owned();
    ran.ok();
    assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 3, "{text}");
}

/// On a machine with a GPU: `HVTUI_TEST_GPU=1`, and the program's own test binary.
#[test]
fn a_real_gpu_does_what_the_scripted_one_does() {
    if std::env::var_os("HVTUI_TEST_GPU").is_none() {
        println!("skipped: HVTUI_TEST_GPU is not set");
        return;
    }
    for body in ["layers", "halves", "step_times"] {
        let output = command(body).output().unwrap();
        Ran { output, log: Vec::new() }.ok();
    }
}
