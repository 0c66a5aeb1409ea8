//! The fixtures themselves: hosts are apart from each other, faults are what they say, terminals tell the truth.

use std::process::Command;

use crate::common::cluster;
use crate::common::cluster::{Cluster, text};
use crate::common::in_time::OutputInTime;
use crate::common::processes::end_of;
use crate::common::terminal::Terminal;

/// What OpenSSH says in three seconds: its output, or its complaint.
fn ssh(cluster: &Cluster, host: &str) -> String {
    ssh_within(60, cluster, host)
}

/// And what it says where no answer comes within so many seconds.
fn ssh_within(seconds: u32, cluster: &Cluster, host: &str) -> String {
    let timeout = format!("ConnectTimeout={seconds}");
    let mut command = cluster.hub("ssh");
    command.arg("-F").arg(cluster.dir().join("ssh_config")).args([
        "-o",
        timeout.as_str(),
        host,
        "echo",
        "works",
    ]);
    let out = command.output_in_time().expect("ssh");
    (text(&out.stdout) + &text(&out.stderr)).trim().to_owned()
}

#[test]
fn hosts_are_apart() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    for question in ["hostname", "cat /proc/sys/kernel/random/boot_id", "ip -br addr show eth0"] {
        let answers = ["n1", "n2"].map(|host| cluster.on(host, question));
        assert!(!answers[0].is_empty() && answers[0] != answers[1], "{question}: {answers:?}");
    }
    cluster.on("n1", "touch ~/mine");
    assert_eq!(cluster.on("n2", "ls ~").trim(), "");
    // its own process list: sshd and what asks
    assert!(cluster.on("n1", "ls -d /proc/[0-9]* | wc -l").trim().parse::<u32>().expect("a count") < 10);
    let toml = cluster.hosts_toml(2);
    assert!(
        toml.contains("name = \"n2\"")
            && toml.contains("address = \"10.77.0.12\"")
            && toml.contains("slots = 2")
    );
}

#[test]
fn a_home_can_be_shared() {
    let Some(cluster) = Cluster::up(2, &["--shared-home".as_ref()]) else { return };
    cluster.on("n1", "touch ~/ours");
    assert_eq!(cluster.on("n2", "ls ~").trim(), "ours");
}

#[test]
fn faults_are_what_they_say_and_heal() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    for (fault, cure, words) in [
        ("stop", "start", "refused"),
        ("blackhole", "heal", "timed out"),
        ("cut", "heal", "timed out"),
        ("freeze", "thaw", "timed out"),
    ] {
        cluster.change(fault, "n1");
        let said = ssh_within(3, &cluster, "n1");
        assert!(said.contains(words), "{fault}: {said}");
        assert_eq!(ssh(&cluster, "n2"), "works", "{fault} is about n1 alone");
        cluster.change(cure, "n1");
        assert_eq!(ssh(&cluster, "n1"), "works", "after {fault} and {cure}");
    }
    cluster.change("rekey", "n1");
    assert!(ssh(&cluster, "n1").contains("verification failed"));
}

#[test]
fn one_way_and_narrow_faults_are_what_they_say() {
    if cluster_lacks_iptables() {
        return cluster::skip("no iptables: apt-get install iptables");
    }
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    for (fault, words) in [
        ("drop n1 in", "timed out"),
        ("drop n1 out", "timed out"),
        ("refuse n1", "refused"),
        ("close n1", "refused"),
    ] {
        let (verb, more) = fault.split_once(' ').expect("a verb");
        cluster.change(verb, more);
        let said = ssh_within(3, &cluster, "n1");
        assert!(said.contains(words), "{fault}: {said}");
        assert_eq!(ssh(&cluster, "n2"), "works", "{fault} is about n1 alone");
        cluster.change(if verb == "close" { "start" } else { "heal" }, "n1");
        assert_eq!(ssh(&cluster, "n1"), "works", "after {fault}");
    }
    for fault in ["loss n1 5", "rate n1 200"] {
        let (verb, more) = fault.split_once(' ').expect("a verb");
        cluster.change(verb, more);
        assert_eq!(ssh(&cluster, "n1"), "works", "{fault}");
        cluster.change("heal", "n1");
    }
    cluster.change("relay", "n1 4");
    assert!(ssh(&cluster, "n1").contains("refused"), "nobody listens at the hub's port 4");
}

fn cluster_lacks_iptables() -> bool {
    !["/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables"]
        .iter()
        .any(|p| std::path::Path::new(p).exists())
}

#[test]
fn a_session_is_severed_a_host_reboots_and_a_disk_is_small() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let mut session = cluster.hub("ssh");
    session.arg("-F").arg(cluster.dir().join("ssh_config")).args(["n1", "echo in; exec sleep 600"]);
    let mut session = session.stdout(std::process::Stdio::piped()).spawn().expect("ssh");
    let mut word = [0; 2];
    std::io::Read::read_exact(session.stdout.as_mut().expect("its output"), &mut word).expect("a word");
    cluster.change("sever", "n1");
    assert_eq!(end_of(&mut session).code(), Some(255));
    assert_eq!(ssh(&cluster, "n1"), "works");

    let boot = cluster.on("n1", "cat /proc/sys/kernel/random/boot_id; setsid sleep 600 >/dev/null 2>&1 &");
    cluster.change("reboot", "n1");
    assert_ne!(cluster.on("n1", "cat /proc/sys/kernel/random/boot_id"), boot);
    cluster.assert_none("n1", &["sleep"]);
    assert_eq!(ssh(&cluster, "n1"), "works");

    cluster.change("disk", "n1 /root/small 64 noexec");
    let said = cluster.on("n1", "df -Pk /root/small | tail -1; cp /bin/true /root/small/; chmod +x /root/small/true; /root/small/true 2>&1 || echo not run");
    assert!(said.contains(" 64 ") && said.contains("not run"), "{said}");
    cluster.change("undisk", "n1 /root/small");
    assert_eq!(cluster.on("n1", "ls /root/small").trim(), "");

    cluster.change("sshd", "n1 MaxSessions 0");
    assert_ne!(ssh(&cluster, "n1"), "works");
    cluster.change("sshd", "n1");
    assert_eq!(ssh(&cluster, "n1"), "works");
}

#[test]
fn nothing_is_left() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let mut sleeper = cluster.hub("sleep").arg("600").spawn().expect("sleep");
    let folder = cluster.dir().to_owned();
    drop(cluster);
    assert!(!folder.exists());
    assert!(!end_of(&mut sleeper).success(), "the hub's processes end with it");
}

#[test]
fn mpirun_reaches_both_hosts() {
    let Some(cluster) = Cluster::up(2, &[]) else { return };
    let out = cluster.hub("mpirun").args(["-H", "n1:1,n2:1", "-np", "2", "hostname"]).output_in_time();
    let Ok(out) = out else { return cluster::skip("no nsenter") };
    if out.status.code() == Some(127) {
        return cluster::skip("no mpirun: apt-get install openmpi-bin");
    }
    let mut lines: Vec<String> = text(&out.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["n1", "n2"], "{}", text(&out.stderr));
}

#[test]
fn a_terminal_shows_what_a_command_draws_and_how_it_leaves() {
    let mut command = Command::new("sh");
    // Takes the terminal as a UI does, gives it back on TERM.
    let script = "trap 'printf \"\\033[?25h\\033[?1049l\"; stty sane; exit 143' TERM; \
                  stty -echo -icanon; printf '\\033[?1049h\\033[?25l'; stty size; \
                  while :; do sleep 0.1; done";
    command.args(["-c", script]);
    let Some(terminal) = Terminal::start(&command, 97, 31) else { return };
    terminal.wait("its size", |screen| screen.contains("31 97"));
    assert_eq!(terminal.mode("#{alternate_on}"), "1");
    terminal.signal("TERM");
    terminal.assert_restored(143);

    let Some(terminal) = Terminal::start(&Command::new("cat"), 80, 24) else { return };
    terminal.type_in("typed; it's");
    terminal.press(&["Enter"]);
    terminal.wait("an echo and cat's answer", |screen| screen.matches("typed; it's").count() == 2);
    terminal.press(&["C-d"]);
    terminal.assert_restored(0);
}
