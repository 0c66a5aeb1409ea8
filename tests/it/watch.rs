//! `hvtui watch` in a terminal: one table in one place, and the terminal as it was at the end.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::fake_nvml::FakeNvml;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};
use crate::common::terminal::Terminal;

#[test]
fn a_lost_gpu_and_one_that_hangs_are_not_ok() {
    let home = tempfile::tempdir().unwrap();
    let fake = FakeNvml::new(&json!({
        "hang": ["nvmlDeviceGetPowerUsage:2"], "gpus": [{}, { "lost": true }, {}, { "ecc_uncorrected": 2 }],
    }));
    let watch = |filter: &str| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(["watch", "--once", "--json", "--filter", filter]).current_dir(home.path());
        command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").envs(fake.env());
        let out = command.output_in_time().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out.stderr)));
        let gpus = told["hosts"][0]["gpus"].as_array().cloned().unwrap_or_default();
        gpus.iter().filter_map(|gpu| gpu["index"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(watch("!ok"), [1, 2, 3]);
    assert_eq!(watch("health==lost"), [1]);
    assert_eq!(watch("health==\"no answer\""), [2]);
    assert_eq!(watch("ok"), [0]);
}

#[test]
fn a_table_stays_in_its_place_and_gives_the_terminal_back() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(["watch", "-n", "0.2"]).env("HOME", home.path()).current_dir(home.path());
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let Some(terminal) = Terminal::start(&command, 100, 30) else { return };
    let of_host =
        |screen: &str| screen.lines().filter(|line| line.contains("CPUs") && line.contains("age")).count();
    let first = terminal.wait("a table", |screen| of_host(screen) == 1);
    let next = terminal.wait("another one", |screen| of_host(screen) > 0 && screen != first);
    assert!(next.starts_with("local") && of_host(&next) == 1, "in the place of the first one:\n{next}");
    assert_eq!(terminal.mode("#{cursor_flag} #{alternate_on}"), "0 0", "the cursor is hidden meanwhile");
    // of a key the shell around it would die, too
    terminal.signal("INT");
    terminal.assert_restored(130);
}

#[test]
fn many_hosts_get_the_files_that_they_need() {
    let home = tempfile::tempdir().unwrap();
    let hosts: Vec<String> =
        (0..30).map(|n| format!("[[host]]\nname = \"h{n}\"\naddress = \"local\"\n")).collect();
    std::fs::write(home.path().join("hosts.toml"), hosts.concat()).unwrap();
    let mut command = Command::new("/bin/sh");
    let line = format!("ulimit -Sn 48; exec {} watch --once --json", crate::common::program::hvtui());
    command.args(["-c", &line]).current_dir(home.path()).env("HOME", home.path());
    let out = command.output_in_time().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out.stderr)));
    let links = told["hosts"].as_array().unwrap().iter().map(|host| &host["link"]["link"]);
    assert_eq!(links.filter(|state| *state == "up").count(), 30, "{told}");
}

/// A command that connects to hosts without a session of launches.
#[test]
fn a_mesh_of_many_hosts_may_open_the_files_that_they_need() {
    let home = tempfile::tempdir().unwrap();
    // takes connections and says nothing: the command waits for it
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let host = |n: u32| format!("[[host]]\nname = \"h{n}\"\naddress = \"127.0.0.1\"\nport = {port}\n");
    let hosts: Vec<String> = (0..30).map(host).collect();
    std::fs::write(home.path().join("hosts.toml"), hosts.concat()).unwrap();
    let mut command = Command::new("/bin/sh");
    let line = format!("ulimit -Sn 48; exec {} hosts mesh --remove --yes", crate::common::program::hvtui());
    command.args(["-c", &line]).current_dir(home.path()).env("HOME", home.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut mesh = command.spawn().unwrap();
    let file = format!("/proc/{}/limits", mesh.id());
    let limit = || {
        let told = std::fs::read_to_string(&file).unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix("Max open files"));
        line.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or_default().to_owned()
    };
    // 256 of its own and 12 for each host
    until("room for 30 hosts", || limit() == "616");
    mesh.kill().unwrap();
    end_of(&mut mesh);
}
