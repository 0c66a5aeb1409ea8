//! Five hundred names and a resolver that never answers: hvtui stays small, and hosts given by address stay quick.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, known_lines, open, target, user};
use crate::common::in_time::OutputInTime;
use crate::common::sshd::Sshd;
use hvtui::ssh::{AgentBinary, AgentError, Prompter, SshError, Target};

const NAMES: usize = 500;
/// The look-ups at once, the runtime's own threads, and the test's.
const MOST_THREADS: usize = 48;

/// Look-ups at once.
const LOOK_UPS: usize = 16;

/// How long what must come is waited for, and a name whose resolver is silent.
const PATIENCE: Duration = Duration::from_secs(180);

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The threads of this process that have this name.
fn named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // one may have ended meanwhile
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

fn sockets() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|at| at.starts_with("socket:"))).count()
}

/// In a process of its own whose `/etc/resolv.conf` names a server that hears and never answers.
#[test]
fn a_dead_resolver_takes_few_threads_and_holds_up_no_address() {
    if let Some(folder) = std::env::var_os("HVTUI_TEST_NAMES") {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(behind_a_dead_resolver(PathBuf::from(folder)));
        // what still waits for the resolver ends with the process
        runtime.shutdown_background();
        return;
    }
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let Ok(dead) = UdpSocket::bind("127.0.0.77:53") else {
        return skip("a dead resolver needs the right to listen on port 53");
    };
    let mut again = Command::new("unshare");
    again.args(["-m", "--propagation", "private", "sh", "-c"]);
    let to = sshd.path("resolv.conf");
    // the longest that it can be told to wait: long after all else here
    std::fs::write(&to, "nameserver 127.0.0.77\noptions timeout:30 attempts:1\n").unwrap();
    again.arg("mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"").arg(&to);
    again.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "ssh_names::a_dead_resolver_takes_few_threads_and_holds_up_no_address",
        "--nocapture",
    ]);
    target(&sshd);
    std::fs::write(sshd.path("port"), sshd.port.to_string()).unwrap();
    std::fs::write(sshd.path("known_hosts"), known_lines(&sshd)).unwrap();
    agent(&sshd, AGENT);
    let output = again.env("HVTUI_TEST_NAMES", sshd.path("")).output_in_time().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    dead.set_nonblocking(true).unwrap();
    let heard = std::iter::from_fn(|| dead.recv(&mut [0; 512]).ok()).count();
    assert!(heard >= LOOK_UPS, "the resolver was asked {heard} times");
}

async fn behind_a_dead_resolver(folder: PathBuf) {
    let port = std::fs::read_to_string(folder.join("port")).unwrap().parse().unwrap();
    let binary = AgentBinary::from_path(&folder.join("agent")).unwrap();
    let to = |address: String, patience: Duration| Target {
        identities: vec![folder.join("user")],
        known_hosts: vec![folder.join("known_hosts")],
        connect_timeout: patience,
        auth_agent: false,
        prompter: Prompter::default(),
        ..Target::new(address.as_str().into(), address, port, user())
    };
    let names: Vec<_> = (0..NAMES)
        .map(|place| {
            // each name is wanted by two
            let name = format!("gpu-{}.example.invalid", place / 2);
            let (target, binary) = (to(name, PATIENCE), binary.clone());
            tokio::spawn(async move { open(&target, &binary).await.map(|_| ()) })
        })
        .collect();
    // each has read its files, and waits for its turn or for the resolver
    let looking = async {
        while named("names") < LOOK_UPS || named("files") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("few names are looked up at once");
    let (threads, sockets) = (threads(), sockets());
    assert!(threads <= MOST_THREADS && sockets <= MOST_THREADS, "{threads} threads, {sockets} sockets");

    let file = tokio::time::timeout(PATIENCE, tokio::fs::read(folder.join("port"))).await;
    file.expect("a file is not read while names are looked up").unwrap();
    let near = to("127.0.0.1".to_owned(), PATIENCE);
    let opened = tokio::time::timeout(PATIENCE, open(&near, &binary)).await;
    opened.expect("a host given by its address waits for the resolver").unwrap();
    // the order of events says it: the resolver gave up on no name meanwhile
    let over = names.iter().filter(|name| name.is_finished()).count();
    assert_eq!(over, 0, "a file or an address has waited for the resolver");

    for name in ["gpu-0.example.invalid", "gpu-none.example.invalid"] {
        let hasty = to(name.to_owned(), Duration::from_secs(1));
        let error = open(&hasty, &binary).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, AgentError::Ssh(SshError::Resolve { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("DNS") && text.contains("within 1 s"), "{text}");
    }
    assert!(named("names") <= LOOK_UPS, "{} names are looked up at once", named("names"));
    for name in names {
        name.abort();
    }
}
