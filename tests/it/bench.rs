//! `hvtui bench`: real rank processes of the real binary on this machine.

use std::process::{Command, Output};

use serde_json::Value;

use crate::common::built;
use crate::common::in_time::OutputInTime;
use crate::json_forms::assert_value_fits;

fn command(arguments: &[&str]) -> Command {
    let program = crate::common::program::hvtui();
    let mut command = Command::new(program);
    for name in
        ["RANK", "WORLD_SIZE", "LOCAL_RANK", "HVTUI_REPORT", "HVTUI_TIMEOUT_S", "CUDA_VISIBLE_DEVICES"]
    {
        command.env_remove(name);
    }
    command.args(["bench", "allreduce"]).args(arguments);
    command
}

#[test]
fn links_carry_bytes_and_say_how_many() {
    let link = |arguments: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command
            .env_remove("RANK")
            .env_remove("WORLD_SIZE")
            .args(["bench", "link", "--millis", "100"])
            .args(arguments);
        command.output_in_time().unwrap()
    };
    let output = link(&["-np", "3", "--streams", "2", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &said {
        assert_value_fits("bench-link", line);
    }
    let kinds: Vec<&str> = said.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["head", "link", "link", "link", "total"]);
    let rates: Vec<f64> = said[1..4].iter().map(|line| line["rate"].as_f64().unwrap()).collect();
    assert!(rates.iter().all(|rate| *rate > 0.001), "{rates:?}");
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((said[4]["slowest"].as_f64().unwrap() - least).abs() < 1e-9, "{said:?}");
    let table = link(&["-np", "2"]);
    assert!(text(&table.stdout).contains("# Slowest : "), "{}", text(&table.stdout));
    let alone = link(&["-np", "1"]);
    assert!(alone.status.code() == Some(64) && text(&alone.stderr).contains("a link has two ends"));
}

fn bench(arguments: &[&str]) -> Output {
    command(arguments).output_in_time().unwrap()
}

/// With the scripted library of `tests/fake_nccl` under the names of NCCL and of the driver; and what it was asked to do.
fn with_gpus(arguments: &[&str], script: &[(&str, &str)]) -> (Output, String) {
    let library = built::example("libfake_nccl.so");
    let folder = tempfile::tempdir().unwrap();
    for name in ["libnccl.so.2", "libcuda.so.1"] {
        std::os::unix::fs::symlink(&library, folder.path().join(name)).unwrap();
    }
    let (meet, log) = (folder.path().join("meet"), folder.path().join("log"));
    std::fs::create_dir(&meet).unwrap();
    let mut command = command(arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FAKE_")) {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", folder.path()).env("HVTUI_GPU_LIBS", folder.path());
    command.env("FAKE_NCCL_MEET", meet).env("FAKE_NCCL_LOG", &log).envs(script.iter().copied());
    let output = command.output_in_time().unwrap();
    (output, std::fs::read_to_string(log).unwrap_or_default())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_value_fits("bench", line);
    }
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, [&["head"][..], &vec!["size"; kinds.len() - 2], &["total"]].concat());
    lines
}

#[test]
fn ranks_of_its_own_measure_every_size_and_compute_rightly() {
    for (ranks, transport, dtype) in
        [("2", "auto", "float"), ("3", "tcp", "bf16"), ("1", "auto", "i64"), ("2", "shm", "double")]
    {
        let asked = ["-np", ranks, "--transport", transport, "-d", dtype];
        let what = ["-b", "8", "-e", "32K", "-f", "16", "-n", "5", "--fresh", "--json"];
        let said = lines(&bench(&[&asked[..], &what].concat()));
        assert_eq!(said[0]["ranks"].to_string(), ranks);
        let sizes: Vec<u64> =
            said[1..said.len() - 1].iter().map(|line| line["bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [8, 128, 2048, 32768], "{said:?}");
        for line in &said[1..said.len() - 1] {
            for buffer in ["registered", "private"] {
                let group = &line[buffer];
                assert_eq!((group["wrong"].as_u64(), group["calls"].as_u64()), (Some(0), Some(5)), "{line}");
                assert!(group["p50_us"].as_f64().unwrap() >= group["min_us"].as_f64().unwrap(), "{line}");
            }
        }
        if transport != "auto" {
            assert_eq!(said[0]["transport"], transport);
        }
    }
}

#[test]
fn the_table_is_read_like_that_of_nccl_tests() {
    let output = bench(&["-np", "2", "--sizes", "4,1K", "-n", "3", "--registered"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!(rows[1][..5], ["1024", "256", "float", "sum", "-1"]);
    assert_eq!((rows[1][8], rows[1][9]), ("0", "-"));
    assert!(text.contains("# Out of bounds values : 0 OK"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let alone = bench(&["-np", "1", "--transport", "shm", "--sizes", "4"]);
    let words = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.code() == Some(1) && words.contains("--transport shm"), "{words}");
    for (arguments, named) in
        [(&["-np", "0"][..], "--np"), (&["-b", "2K", "-e", "1K"], "--begin"), (&["-b", "1T"], "1T")]
    {
        let output = bench(arguments);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(64) && words.contains(named), "{arguments:?}: {words}");
    }
}

#[test]
fn gpus_are_measured_by_nccl_and_their_sums_checked() {
    for op in ["sum", "avg", "min", "max"] {
        let asked = ["-np", "2", "--transport", "nccl", "-o", op, "--sizes", "4,1K,3M", "-n", "3", "--json"];
        let (output, log) = with_gpus(&asked, &[]);
        let said = lines(&output);
        assert_eq!((&said[0]["transport"], &said[0]["nccl"]), (&"nccl".into(), &"2.27.5".into()), "{said:?}");
        assert_eq!(
            (&said[0]["places"][0][1], &said[0]["places"][1][1]),
            (&"0 Scripted GPU".into(), &"1 Scripted GPU".into())
        );
        assert_eq!(said.len(), 5, "{said:?}");
        for line in &said[1..4] {
            for buffer in ["registered", "private"] {
                let group = &line[buffer];
                assert_eq!((group["wrong"].as_u64(), group["calls"].as_u64()), (Some(0), Some(3)), "{line}");
            }
        }
        // one check, one call of warm-up, three waited for one by one, three in a row, on each of two ranks
        for kind in ["registered", "plain"] {
            assert_eq!(
                log.lines().filter(|line| *line == format!("allreduce 256 {kind}")).count(),
                16,
                "{log}"
            );
        }
        assert!(log.contains("destroy 0") && log.contains("destroy 1") && !log.contains("abort"), "{log}");
    }
}

#[test]
fn the_table_of_gpus_names_cards_and_library() {
    let asked = ["-np", "1", "--transport", "nccl", "--sizes", "1K", "-n", "2", "--fresh"];
    let (output, _) = with_gpus(&asked, &[("FAKE_NCCL_REGISTER", "error")]);
    let words = text(&output.stdout);
    assert!(output.status.success(), "{words}{}", text(&output.stderr));
    assert!(words.contains("1 rank on 1 host, transport nccl 2.27.5\n"), "{words}");
    assert!(words.contains(" device 0 Scripted GPU\n"), "{words}");
    let row: Vec<&str> =
        words.lines().find(|line| !line.starts_with('#')).unwrap().split_whitespace().collect();
    // what can't be registered is not shown as if it were
    assert_eq!((row[5], row[12]), ("-", "0"), "{words}");
}

#[test]
fn wrong_sums_of_gpus_are_found() {
    let (output, _) = with_gpus(
        &["-np", "2", "--transport", "nccl", "--sizes", "1K", "-n", "1"],
        &[("FAKE_NCCL_RUN", "wrong")],
    );
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    // one value of each rank's buffer, registered and private
    assert!(out.contains("# Out of bounds values : 4 FAILED"), "{out}");
    assert!(err.contains("4 values are wrong"), "{err}");
}

#[test]
fn ranks_that_share_a_gpu_are_staged_and_why_is_said() {
    let asked = ["-np", "2", "--transport", "nccl", "-d", "double", "--sizes", "8,3M", "-n", "2"];
    let (output, log) = with_gpus(&asked, &[("FAKE_CUDA_COUNT", "1")]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let why = "transport staged by shm: ranks 0 and 1 share a GPU, which NCCL refuses\n";
    assert!(out.contains(why) && out.contains("# Out of bounds values : 0 OK"), "{out}");
    assert!(!log.contains("init"), "{log}");
    let (output, _) = with_gpus(&asked, &[("FAKE_NCCL_INIT", "error-1")]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let why =
        "rank 1 could not; its log says why; rank 1: NCCL: join the communicator: unhandled system error (2)";
    assert!(out.contains("transport staged by shm: ") && out.contains(why), "{out}");
}

#[test]
fn a_gpu_that_hangs_is_an_error_within_the_deadline() {
    let asked = ["-np", "2", "--transport", "nccl", "--sizes", "1K", "-n", "1"];
    let (output, log) = with_gpus(&asked, &[("FAKE_NCCL_RUN", "never"), ("HVTUI_TIMEOUT_S", "1")]);
    let err = text(&output.stderr);
    assert!(output.status.code() == Some(1) && err.contains("not done within 1 s"), "{err}");
    assert!(log.contains("abort 0") && log.contains("abort 1"), "{log}");
}

#[test]
fn without_gpus_nccl_is_an_error_that_says_what_is_missing() {
    let asked = ["-np", "2", "--transport", "nccl", "--sizes", "4", "-n", "1"];
    let (output, _) = with_gpus(&asked, &[("FAKE_CUDA_COUNT", "0")]);
    let err = text(&output.stderr);
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{err}");
    let named = "--transport nccl: rank 0 can't: the NVIDIA driver shows no GPU to this process; look at CUDA_VISIBLE_DEVICES";
    assert!(err.contains(named) && err.contains("use --transport auto"), "{err}");
    // as on a machine without NVIDIA's things; one that has them is asked nothing
    let one = command(&asked)
        .env("HVTUI_GPU_LIBS", "/nonexistent")
        .env("PATH", "")
        .env("HOME", "/nonexistent")
        .output_in_time();
    let err = text(&one.unwrap().stderr);
    let driver = std::fs::exists("/dev/nvidiactl").unwrap_or(false);
    let library = err.contains("no libnccl.so.2") && err.contains("or name its folder in HVTUI_GPU_LIBS");
    assert!(driver || err.contains("rank 0 can't: no NVIDIA driver (libcuda.so.1)"), "{err}");
    assert!(driver || library || !err.contains("libnccl"), "{err}");
    let (output, _) = with_gpus(&asked, &[("FAKE_NCCL_VERSION", "2804")]);
    let err = text(&output.stderr);
    assert!(err.contains("is NCCL 2.8.4, and hvtui needs 2.14 or newer"), "{err}");
}
