//! The way from finding the library to a failed abort, through the real loading path.
//!
//! NVIDIA's libraries are loaded once a process and read its environment, so each test runs its body in a process of its own:
//! this test program again, with the scripted library of `tests/fake_nccl` under the names of NCCL and of the driver. With
//! `HVTUI_TEST_GPU=1` the bodies that a real GPU can do run on it instead; with `HVTUI_TEST_NCCL=FOLDER` those of a
//! real NCCL without a GPU.

mod bodies;
#[path = "../../../tests/it/common/built.rs"]
#[expect(dead_code, reason = "tests of the whole program use more of it")]
pub(crate) mod built;
mod threads;

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
        assert!(self.output.status.success() && out.contains("1 passed"), "{out}\n{err}\n{:#?}", self.log);
        self.log
    }
}

fn command(body: &str) -> Command {
    let module = module_path!().split_once("::").unwrap().1;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("{module}::bodies::{body}"),
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAKE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs `body` with the scripted library under both names.
fn scripted(body: &str, script: &[(&str, &str)]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libnccl.so.2", "libcuda.so.1"] {
        std::os::unix::fs::symlink(built::example("libfake_nccl.so"), folder.path().join(name)).unwrap();
    }
    let log = folder.path().join("log");
    let mut command = command(body);
    command
        .env("LD_LIBRARY_PATH", folder.path())
        .env("HVTUI_GPU_LIBS", folder.path())
        .env("FAKE_NCCL_LOG", &log);
    command.envs(script.iter().copied());
    let output = command.output().unwrap();
    let log = std::fs::read_to_string(log).unwrap_or_default();
    Ran { output, log: log.lines().map(str::to_owned).collect() }
}

fn count(log: &[String], line: &str) -> usize {
    log.iter().filter(|one| *one == line).count()
}

#[test]
fn one_rank_joins_reduces_and_leaves() {
    let log = scripted("one_rank_by_nccl", &[]).ok();
    assert_eq!(count(&log, "init 0 of 1"), 1, "{log:#?}");
    assert!(log.contains(&"allreduce 1000 registered".to_owned()), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("early") || line.contains("while registered")), "{log:#?}");
    let end: Vec<&str> = log.iter().map(String::as_str).skip_while(|line| *line != "deregister").collect();
    assert_eq!(end, ["deregister", "finalize 0", "destroy 0", "ncclMemFree"]);
    assert!(log.contains(&"stream of priority -5".to_owned()), "{log:#?}");
}

#[test]
fn the_library_is_found_by_the_loader_under_its_soname() {
    scripted("the_loader_finds_it", &[("HVTUI_GPU_LIBS", "")]).ok();
}

#[test]
fn an_old_library_is_named_with_its_version() {
    scripted("the_library_is_too_old", &[("FAKE_NCCL_VERSION", "2804")]).ok();
    scripted("the_library_is_too_old", &[("FAKE_NCCL_VERSION", "21399")]).ok();
}

#[test]
fn two_ranks_with_a_card_each_join_by_nccl() {
    let log = scripted("two_ranks_by_nccl", &[("FAKE_NCCL_POLLS", "40")]).ok();
    assert_eq!(
        (count(&log, "id"), count(&log, "init 0 of 2"), count(&log, "init 1 of 2")),
        (1, 1, 1),
        "{log:#?}"
    );
    assert!(!log.iter().any(|line| line.starts_with("abort") || line.contains("early")), "{log:#?}");
}

#[test]
fn memory_that_cant_be_registered_works_too() {
    let log = scripted("one_rank_by_nccl", &[("FAKE_NCCL_REGISTER", "error")]).ok();
    assert!(log.contains(&"allreduce 1000 plain".to_owned()), "{log:#?}");
}

#[test]
fn memory_is_registered_on_all_ranks_or_on_none() {
    let log = scripted("two_ranks_by_nccl", &[("FAKE_NCCL_REGISTER", "error-1")]).ok();
    assert_eq!(count(&log, "allreduce 10 plain"), 4, "{log:#?}");
    let log = scripted("two_ranks_by_nccl", &[]).ok();
    assert_eq!(count(&log, "allreduce 10 registered"), 4, "{log:#?}");
}

#[test]
fn joining_that_fails_at_once_or_later_says_why() {
    let log = scripted("joining_fails", &[("FAKE_NCCL_INIT", "refused")]).ok();
    assert_eq!(count(&log, "abort 0"), 0, "{log:#?}");
    let log = scripted("joining_fails", &[("FAKE_NCCL_INIT", "error")]).ok();
    assert_eq!(count(&log, "abort 0"), 1, "{log:#?}");
    scripted("joining_fails", &[("FAKE_NCCL_ID", "error")]).ok();
}

#[test]
fn joining_that_never_ends_is_given_up_at_its_deadline() {
    let log = scripted("joining_is_late", &[("FAKE_NCCL_INIT", "never")]).ok();
    assert_eq!(count(&log, "abort 0"), 1, "{log:#?}");
}

#[test]
fn an_abort_that_hangs_has_a_deadline_of_its_own() {
    scripted("the_abort_hangs", &[("FAKE_NCCL_INIT", "never"), ("FAKE_NCCL_ABORT", "hang")]).ok();
}

#[test]
fn when_one_rank_cant_join_all_go_by_the_hosts_memory() {
    let log = scripted("rank_1_cant_join", &[("FAKE_NCCL_INIT", "error-1")]).ok();
    assert_eq!((count(&log, "abort 0"), count(&log, "abort 1")), (1, 1), "{log:#?}");
}

#[test]
fn an_error_of_a_running_operation_is_seen_and_stops_it() {
    let log = scripted("an_operation_fails", &[("FAKE_NCCL_RUN", "error")]).ok();
    assert_eq!(count(&log, "abort 0"), 1, "{log:#?}");
}

#[test]
fn an_operation_that_never_ends_is_given_up_at_its_deadline() {
    let log = scripted("an_operation_is_late", &[("FAKE_NCCL_RUN", "never")]).ok();
    assert_eq!(count(&log, "abort 0"), 1, "{log:#?}");
}

#[test]
fn two_ranks_on_one_card_go_by_the_hosts_memory() {
    let log = scripted("two_ranks_on_one_card", &[]).ok();
    assert!(!log.iter().any(|line| line.starts_with("init")), "{log:#?}");
    let pins = log.iter().filter(|line| line.starts_with("pin")).count();
    assert!(pins > 0 && count(&log, "unpin") == pins, "{log:#?}");
    scripted("two_ranks_on_one_card", &[("FAKE_CUDA_PIN", "error")]).ok();
}

#[test]
fn the_table_of_durations_has_a_line_for_each_way_and_size() {
    let ran = scripted("durations_on_a_real_gpu", &[]);
    let text = String::from_utf8_lossy(&ran.output.stdout).into_owned();
    ran.ok();
    assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 6, "{text}");
}

#[test]
fn one_rank_alone_moves_nothing() {
    let log = scripted("one_rank_alone", &[]).ok();
    assert!(!log.iter().any(|line| line.starts_with("init") || line.starts_with("pin")), "{log:#?}");
}

#[test]
fn a_host_without_gpus_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command("there_is_no_library");
    // Nothing of this machine's: what is found without the variables is skipped by the body.
    command.env_clear().env("HOME", folder.path());
    let output = command.output().unwrap();
    Ran { output, log: Vec::new() }.ok();
}

/// The folder of a real NCCL: named by `HVTUI_TEST_NCCL`, or found as the program finds it.
#[test]
fn a_real_library_without_a_gpu_fails_cleanly() {
    let folder = std::env::var_os("HVTUI_TEST_NCCL").filter(|folder| !folder.is_empty());
    let mut command = command("a_real_library");
    if let Some(folder) = &folder {
        command.env("HVTUI_GPU_LIBS", folder);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("skipped:") && folder.is_none() {
        println!("skipped: no NCCL here; HVTUI_TEST_NCCL can name the folder of one");
        return;
    }
    println!("{text}");
    assert!(!text.contains("skipped:"), "{text}");
    Ran { output, log: Vec::new() }.ok();
}

/// On a machine with a GPU: `HVTUI_TEST_GPU=1`, and the program's own test binary.
#[test]
fn a_real_gpu_does_what_the_scripted_one_does() {
    if std::env::var_os("HVTUI_TEST_GPU").is_none() {
        println!("skipped: HVTUI_TEST_GPU is not set");
        return;
    }
    for body in [
        "one_rank_by_nccl",
        "two_ranks_on_one_card",
        "one_rank_alone",
        "an_abort_on_a_real_gpu",
        "durations_on_a_real_gpu",
    ] {
        let output = command(body).output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        Ran { output, log: Vec::new() }.ok();
    }
}
