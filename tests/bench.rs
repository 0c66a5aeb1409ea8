//! `hvtui bench`: real rank processes of the real binary on this machine.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_hvtui");
    let mut command = Command::new(program);
    for name in ["RANK", "WORLD_SIZE", "HVTUI_REPORT", "HVTUI_TIMEOUT_S"] {
        command.env_remove(name);
    }
    command.args(["bench", "allreduce"]).args(arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
