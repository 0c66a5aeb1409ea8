//! Another user of the same host.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Stdio};

use super::person::Person;
use super::tree::{changes, tree};
use crate::common::client::Client;
use crate::common::cluster::{Cluster, text};
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;

/// Everything in a host's own network at which another process may knock: TCP in state 0A, any UDP, raw and packet
/// socket, and unix sockets that listen or are datagram sockets with a name. What listens for `sshd` is among it.
const DOORS: &str = r#"cd /proc/net
awk '$4 == "0A" { print "tcp " $2 }' tcp tcp6
awk 'FNR > 1 { print FILENAME " " $2 }' udp udp6 raw raw6
awk 'FNR > 1 { print "packet " $1 }' packet
awk 'FNR > 1 && ($4 == "00010000" || $5 != "0001" && $8 != "") { print "unix " $8 }' unix"#;

fn doors(cluster: &Cluster, host: &str) -> Vec<String> {
    let said = match host {
        "hub" => text(&cluster.hub("sh").args(["-c", DOORS]).output_in_time().unwrap().stdout),
        host => cluster.on(host, DOORS),
    };
    let mut all: Vec<String> = said.lines().map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
fn vector_03_nothing_of_hvtui_listens_on_a_host() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let client = Client::new(&cluster);
    let members = ["hub", "n1", "n2"];
    let before = members.map(|member| doors(&cluster, member));
    assert!(before[1].contains(&"tcp 0B004D0A:0016".to_owned()), "the host's sshd is seen: {before:?}");
    let mut command = client.hvtui(&["run", "-np", "2", "--", "sh", "-c", "echo it runs; exec sleep 600"]);
    let out = std::fs::File::create(client.path("out")).unwrap();
    let running = Running(command.stdout(out).stderr(Stdio::null()).spawn().unwrap());
    let said = || std::fs::read_to_string(client.path("out")).unwrap_or_default();
    until("both ranks", || said().matches("it runs").count() == 2);
    // All parts are there, so whatever one of them opens is seen.
    for host in ["n1", "n2"] {
        for part in ["agent --stdio", "supervise ", "sample-host", "rank-wrap"] {
            let is_there = || cluster.processes(host).iter().any(|process| process.args.contains(part));
            until(&format!("{part} on {host}"), is_there);
        }
    }
    for (member, before) in members.iter().zip(before) {
        assert_eq!(doors(&cluster, member), before, "{member}");
    }
    assert_eq!(client.run(&["stop", "last", "--now"]).code, 0);
    drop(running);
}

/// Two user ids that no user has here.
const OWNER: u32 = 61_001;
const OTHER: u32 = 61_002;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What another user's programs try, each without a right to: `DIR` is the run's folder, `SOCKET` its tracing socket.
const PROBES: [(&str, &str); 9] = [
    ("read its state", r#"cat "$DIR/state.json""#),
    ("read its output", r#"cat "$DIR/rank-0.out""#),
    ("list its folder", r#"ls "$DIR""#),
    ("list the folder of all runs", r#"ls "$STATE/spool""#),
    ("plant an order to stop", r#"echo '{}' >"$DIR/stop.json""#),
    ("take its folder away", r#"mv "$STATE/spool" "$STATE/gone""#),
    ("read the supervisor's environment", r#"cat "/proc/$SUPERVISOR/environ""#),
    ("signal the supervisor", r#"kill -CONT "$SUPERVISOR""#),
    (
        "ask at its socket",
        r#"exec python3 -c 'import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"x" * 64, os.environ["SOCKET"])'"#,
    ),
];

/// What the other user's own hvtui is told to do to the run, and the words that come back when he tells it to look where
/// he lives himself.
const ORDERS: [(&[&str], &str); 4] = [
    (&["stop", "RUN", "--now"], "no run 'RUN' is recorded here or known to the hosts that answered"),
    (&["logs", "RUN"], "no run 'RUN' is recorded here or known to the hosts that answered"),
    (&["attach", "RUN"], "no run 'RUN' is recorded here or known to the hosts that answered"),
    (&["runs", "prune", "--keep", "0", "--yes"], "no run is to be deleted"),
];

#[test]
fn vector_16_another_user_can_neither_read_nor_steer_a_run() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to be two other users");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    let (owner, other) = (Person::with_user(OWNER), Person::with_user(OTHER));
    // A home that anybody may walk through, as many are: what is closed is hvtui's own.
    std::fs::set_permissions(owner.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = owner.command(crate::common::program::hvtui());
    command.args(["run", "-np", "1", "--traceable", "--", "sh", "-c", "echo it runs; exec sleep 600"]);
    let client = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("the run directory", || owner.has_spool());
    let spool = owner.spool();
    until("the rank", || std::fs::read(spool.join("rank-0.out")).is_ok_and(|text| text == b"it runs\n"));
    // Its start is written down: under its own name, and no more under another one.
    until("the start", || {
        std::fs::metadata(spool.join("started-0.json")).is_ok_and(|file| file.nlink() == 1)
    });
    // And when its only line was there: a head and a note of 24 bytes.
    until("the note of its line", || {
        std::fs::metadata(spool.join("rank-0.times")).is_ok_and(|file| file.len() == 48)
    });
    let run = spool.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(spool.join(name)).unwrap()).unwrap()
    };
    let supervisor = json("state.json")["supervisor"]["pid"].as_u64().unwrap();
    let socket = Path::new(json("tracers.json")["sockets"].as_str().unwrap()).join("dynolog");
    assert!(socket.exists(), "{}", socket.display());
    let state = owner.path(".local/state/hvtui");
    // What the run's own processes go on to write: its recording, its state, and that a client lives.
    let kept = || {
        let mut all = tree(&state);
        all.retain(|path, _| !path.starts_with(state.join("runs")) && !path.ends_with("attended"));
        all.retain(|path, _| {
            !path.file_name().is_some_and(|name| name.to_string_lossy().contains("state.json"))
        });
        all
    };
    let before = kept();

    // Each probe does what it is for where it may: else it would prove nothing.
    let probe = |person: &Person, line: &str| {
        let mut command = person.command("sh");
        command.args(["-c", line]).env("DIR", &spool).env("STATE", &state).env("SOCKET", &socket);
        command.env("SUPERVISOR", supervisor.to_string()).output_in_time().unwrap()
    };
    for (what, line) in PROBES {
        let output = probe(&other, line);
        let said = text(&output.stderr).to_lowercase();
        assert!(!output.status.success() && output.stdout.is_empty(), "{what}: {output:?}");
        let refused = ["permission denied", "not permitted"].iter().any(|words| said.contains(words));
        assert!(refused, "{what}: {said}");
        // what would do harm; and the supervisor's memory, which is closed to its owner's programs too
        if !["plant", "take", "read the supervisor"].iter().any(|start| what.starts_with(start)) {
            let output = probe(&owner, line);
            assert!(output.status.success(), "{what}, by its owner: {output:?}");
        }
    }
    for (words, answer) in ORDERS {
        let words: Vec<String> = words.iter().map(|word| word.replace("RUN", &run)).collect();
        let ran = other.hvtui(&words);
        let said = text(&ran.out) + &text(&ran.err);
        assert!(said.contains(&answer.replace("RUN", &run)), "{words:?}: {said}");
        // and where he tells it to look where the owner lives
        let mut command = other.command(crate::common::program::hvtui());
        let ran = command.args(&words).env("HOME", owner.path("")).output_in_time().unwrap();
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(77), "{words:?}: {said}");
        assert!(
            said.contains("/.local/state/hvtui") && said.contains("Permission denied"),
            "{words:?}: {said}"
        );
        assert!(ran.stdout.is_empty(), "{words:?}: {}", text(&ran.stdout));
    }
    // the run goes on, and what its host does is noted
    let is_own = |path: &Path| path == spool || path.ends_with("host.samples");
    let changed: Vec<_> = changes(&before, &kept()).into_iter().filter(|path| !is_own(path)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert!(Path::new(&format!("/proc/{supervisor}")).exists(), "the run goes on");
    let listed = owner.hvtui(&["runs", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.out).unwrap();
    assert_eq!(listed[0]["state"], "running", "{listed}");

    let ran = owner.hvtui(&["stop", &run, "--now"]);
    assert_eq!(ran.code, Some(0), "{}", text(&ran.err));
    until("the end of the supervisor", || !Path::new(&format!("/proc/{supervisor}")).exists());
    assert!(!socket.exists(), "{} is left", socket.display());
    drop(client);
}
