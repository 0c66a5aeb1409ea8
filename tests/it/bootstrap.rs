//! How the agent gets onto real hosts, and what becomes of a host that can't have it. Rows 20 to 25 of the fault matrix.

use std::process::Stdio;

use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip, text};
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;

/// What nvidia-smi says on a host with one GPU and one process: to each field that it is asked for, by its name.
const SMI: &str = r#"#!/bin/sh
case "$1" in
  --query-gpu=*)
    line=
    for field in $(echo "${1#--query-gpu=}" | tr , ' '); do
      case "$field" in
        index) said=0;;
        uuid) said=GPU-fa4e;;
        memory.total) said=143771;;
        memory.used) said=2048;;
        utilization.gpu) said=37;;
        temperature.gpu) said=44;;
        driver_version) said=580.95.05;;
        name) said='NVIDIA H200';;
        *) said='[N/A]';;
      esac
      line="$line${line:+, }$said"
    done
    echo "$line";;
  *) echo "GPU-fa4e, 4711, 512, python3";;
esac
"#;

/// Every file below the host's cache folder of agents, without the folders.
fn files(cluster: &Cluster, host: &str, folder: &str) -> Vec<String> {
    let found = cluster.on(host, &format!("find {folder}/hvtui/agents -type f -printf '%f\\n'"));
    found.lines().map(str::to_owned).collect()
}

/// A program of the test's own on a host, first on the path of what ssh starts there.
fn plant(cluster: &Cluster, host: &str, name: &str, content: &str) {
    let line = format!(
        "mkdir -p ~/bin && cat >~/bin/{name} <<'END'\n{content}END\nchmod 755 ~/bin/{name}\n\
         echo 'PATH=$HOME/bin:$PATH; export PATH' >~/.bashrc"
    );
    cluster.on(host, &line);
}

/// Whether the account's shell reads `.bashrc`, by which [`plant`] works.
fn has_bash(cluster: &Cluster) -> bool {
    let has = cluster.on("n1", "getent passwd $(id -u)").trim().ends_with("bash");
    if !has {
        skip("the account's login shell is not bash");
    }
    has
}

#[test]
fn tcsh_and_fish_start_the_agent_and_nologin_is_named() {
    let shells = ["n1=/usr/bin/tcsh", "n2=/usr/bin/fish", "n3=/usr/sbin/nologin", "n4=/bin/dash"];
    if let Some(missing) = shells.iter().find(|shell| !std::path::Path::new(&shell[3..]).exists()) {
        return skip(&format!("{} is not installed", &missing[3..]));
    }
    let more: Vec<&std::ffi::OsStr> =
        shells.iter().flat_map(|shell| ["--shell".as_ref(), shell.as_ref()]).collect();
    let Some(cluster) = Cluster::up(4, &more) else { return };
    let client = Client::new(&cluster);
    let checked = client.run(&["hosts", "check"]);
    for host in ["✔ n1", "✔ n2", "✖ n3", "✔ n4"] {
        assert!(checked.out.contains(host), "{host}: {checked:?}");
    }
    assert!(checked.out.contains("did not start /bin/sh"), "{checked:?}");
    assert!(checked.out.contains("not available"), "the host's own words: {checked:?}");
    assert_eq!(checked.code, 69, "{checked:?}");
}

#[test]
fn what_the_host_prints_at_login_is_no_obstacle_and_can_be_read() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    if !has_bash(&cluster) {
        return;
    }
    cluster.on("n1", "printf 'echo welcome to n1; printf \"\\\\033[31mred\\\\n\"; yes noise | head -c 100000\\n' >~/.bashrc");
    let client = Client::new(&cluster);
    let checked = client.run(&["hosts", "check", "--verbose"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.out.contains("│ welcome to n1\n    │ ␛[31mred\n"), "{}", &checked.out[..400]);
    assert!(!checked.out.contains('\u{1b}') && checked.out.contains("sha256 "), "{}", &checked.out[..400]);
}

#[test]
fn clients_and_hosts_that_install_at_once_into_one_home_leave_one_binary() {
    let Some(cluster) = Cluster::up(2, &["--shared-home".as_ref()]) else { return };
    let clients = [Client::new(&cluster), Client::new(&cluster)];
    let start = |client: &Client<'_>| {
        let mut command = client.hvtui(&["hosts", "check"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui")
    };
    for running in clients.each_ref().map(start) {
        let out = running.output_in_time().expect("an end");
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    }
    assert_eq!(files(&cluster, "n1", "~/.cache"), ["hvtui"]);
    let inode = cluster.on("n1", "stat -c %i ~/.cache/hvtui/agents/*/hvtui");
    assert_eq!(clients[0].run(&["hosts", "check"]).code, 0);
    assert_eq!(cluster.on("n2", "stat -c %i ~/.cache/hvtui/agents/*/hvtui"), inode, "uploaded again");
}

/// What an attacker puts in the place of the installed binary, in its folder: each still works as an agent.
pub(crate) const SWAPS: [(&str, &str); 3] = [
    ("another content", "cp hvtui x && chmod 700 x && echo x >>x && mv -f x hvtui"),
    (
        "another content of the same size, with the same times and mode",
        "cp -p hvtui x && chmod 700 x && b=$(tail -c 1 hvtui | od -An -tu1) \
         && printf \"\\\\$(printf %03o $(((b + 1) % 256)))\" \
            | dd of=x bs=1 seek=$(($(stat -c %s x) - 1)) conv=notrunc 2>/dev/null \
         && chmod 500 x && touch -r hvtui x && [ \"$(stat -c '%s %Y %a' x)\" = \"$(stat -c '%s %Y %a' hvtui)\" ] \
         && ! cmp -s x hvtui && mv -f x hvtui",
    ),
    (
        "a link to another content",
        // a copy: no process may write to a file that runs, as that of an agent which is about to end
        "cp hvtui ~/other && chmod 700 ~/other && echo y >>~/other && ln -sf ~/other hvtui",
    ),
];

/// Lets a host's installed binary be swapped.
#[track_caller]
pub(crate) fn swap(cluster: &Cluster, host: &str, line: &str) {
    let line = format!("cd ~/.cache/hvtui/agents/* && {line} && echo done");
    assert_eq!(cluster.on(host, &line), "done\n", "{line}");
}

#[test]
fn vector_08_a_binary_that_was_swapped_is_refused_put_aside_and_replaced() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let client = Client::new(&cluster);
    for (count, (what, line)) in (1..).zip(SWAPS) {
        assert_eq!(client.run(&["hosts", "check"]).code, 0, "before {what}");
        swap(&cluster, "n1", line);
        let checked = client.run(&["hosts", "check"]);
        assert_eq!(checked.code, 69, "{what}: {checked:?}");
        assert!(checked.out.contains("is not the one that was put there"), "{what}: {checked:?}");
        assert!(checked.out.contains("/hvtui.bad-"), "{what}: {checked:?}");
        let left = cluster.on("n1", "ls ~/.cache/hvtui/agents/*");
        let bad = left.lines().filter(|name| name.starts_with("hvtui.bad-") && name.len() == 18).count();
        assert_eq!((bad, left.lines().count()), (count, count), "{what}: {left}");
    }
    assert_eq!(client.run(&["hosts", "check"]).code, 0);
    let sums = cluster.on("n1", "cd ~/.cache/hvtui/agents && sha256sum */hvtui");
    assert!(sums.split_once("  ").is_some_and(|(sum, path)| path.starts_with(sum)), "{sums}");

    // A link to the program of another user is not even tried.
    let theirs = "printf '#!/bin/sh\\nid -u >>/run/ran\\nexit 127\\n' >/run/theirs && chmod 755 /run/theirs \
                  && chown 65534 /run/theirs && ln -sf /run/theirs hvtui";
    swap(&cluster, "n1", theirs);
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(cluster.on("n1", "cat /run/ran 2>/dev/null"), "", "the uids under which their program ran");
    assert_eq!(checked.code, 0, "{checked:?}");
    assert_eq!(cluster.on("n1", "find ~/.cache/hvtui/agents -type l -name hvtui"), "", "the link is left");
    assert_eq!(cluster.on("n1", "cat /run/theirs | head -1").trim(), "#!/bin/sh", "it was written to");
}

/// Swaps two folders again and again, each time in one step.
const SWAPPER: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None)
os.chdir("/run/shared")
open("swapping", "w").close()
while not os.path.exists("stop"):
    for _ in range(1000):
        libc.renameat2(-100, b"hvtui", -100, b"theirs", 2)
"#;

#[test]
fn vector_08_who_may_write_to_the_folder_never_has_his_own_program_started() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let client = Client::new(&cluster);
    // neither of the usual folders will do
    cluster.on("n1", "mkdir -p ~/.cache/hvtui && chown 65534 ~/.cache/hvtui && mkdir /run/shared");
    let toml = cluster.hosts_toml(1);
    client.write("hosts.toml", &toml.replace("[defaults]", "[defaults]\ncache_dir = \"/run/shared\""));
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    // another user's program, in a folder like ours, and from now on the folder is theirs
    let theirs = "cd /run/shared && mkdir theirs theirs/agents && h=$(ls hvtui/agents) && mkdir theirs/agents/$h \
                  && printf '#!/bin/sh\nid -u >>/run/shared/ran\nexit 127\n' >theirs/agents/$h/hvtui \
                  && chmod 755 theirs/agents/$h/hvtui && chown -R 65534:65534 theirs && chown 65534 . && echo done";
    assert_eq!(cluster.on("n1", theirs).trim(), "done");
    cluster.on("n1", &format!("cat >/run/swapper <<'END'\n{SWAPPER}END"));
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    cluster.on(
        "n1",
        &format!("({other} python3 /run/swapper </dev/null & echo $! >/run/swapper.pid) >/dev/null 2>&1"),
    );
    until("the swaps", || cluster.on("n1", "ls /run/shared").contains("swapping"));
    let all: Vec<_> = (0..20).map(|_| client.run(&["hosts", "check"])).collect();
    let ran = cluster.on("n1", "cat /run/shared/ran 2>/dev/null; touch /run/shared/stop");
    assert_eq!(ran, "", "the uids under which their program ran");
    // one that is in the middle of a swap would undo what follows
    let gone = "ps -o pid= -p $(cat /run/swapper.pid) || echo gone";
    until("the swaps to end", || cluster.on("n1", gone) == "gone\n");
    for checked in all {
        assert_eq!(checked.code, 69, "{checked:?}");
        let words = ["/run/shared belongs to uid 65534 (mode drwxr-xr-x)", "cache_dir"];
        assert!(words.iter().all(|part| checked.out.contains(part)), "{checked:?}");
    }
    // what a group may write to is told likewise
    cluster.on("n1", "chown 0:100 /run/shared && chmod 775 /run/shared");
    let checked = client.run(&["--no-install", "hosts", "check"]);
    let words = ["/run/shared (uid 0, gid 100, mode drwxrwxr-x) can be written to by others", "chmod go-w"];
    assert!(words.iter().all(|part| checked.out.contains(part)), "{checked:?}");
    cluster.on("n1", "chmod g-w /run/shared && cd /run/shared && if [ ! -O hvtui ]; then mv hvtui x && mv theirs hvtui; fi");
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
}

#[test]
fn an_upload_that_is_cut_leaves_nothing_and_the_next_one_is_whole() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let client = Client::new(&cluster);
    let tc = |words: &str| {
        let out = cluster.hub("tc").args(words.split(' ')).output_in_time().expect("tc");
        assert!(out.status.success(), "tc {words}: {}", text(&out.stderr));
    };
    if cluster.hub("tc").arg("-V").output_in_time().is_err() {
        return skip("tc is not installed: apt-get install iproute2");
    }
    tc("qdisc add dev n1 root tbf rate 40mbit burst 64k latency 400ms");
    let mut command = client.hvtui(&["hosts", "check"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui");
    let arriving = || cluster.on("n1", "find ~/.cache/hvtui -name '.up.*' -size +1M 2>/dev/null");
    until("the upload to be under way", || !arriving().is_empty());
    cluster.change("stop", "n1");
    let out = running.output_in_time().expect("an end");
    assert_eq!(out.status.code(), Some(69), "{}", text(&out.stdout));
    assert!(!files(&cluster, "n1", "~/.cache").contains(&"hvtui".to_owned()));
    tc("qdisc del dev n1 root");
    cluster.change("start", "n1");
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert_eq!(files(&cluster, "n1", "~/.cache"), ["hvtui"]);
}

#[test]
fn folders_that_will_not_do_are_passed_over_and_named_when_none_is_left() {
    let Some(cluster) = Cluster::up(3, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n1", "mkdir ~/.cache && mount -t tmpfs -o size=2m tmpfs ~/.cache");
    cluster.on("n2", "mkdir ~/.cache && mount -t tmpfs -o noexec tmpfs ~/.cache");
    cluster.on("n3", "mkdir -p ~/.cache/hvtui && chown 65534 ~/.cache/hvtui");
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 69, "{checked:?}");
    for part in ["KiB free", "mounted noexec", "belongs to someone else", "cache_dir in the hosts file"] {
        assert!(checked.out.contains(part), "{part}: {checked:?}");
    }
    let toml = cluster.hosts_toml(1);
    client.write("hosts.toml", &toml.replace("[defaults]", "[defaults]\ncache_dir = \"~/it's mine\""));
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    for host in ["n1", "n2", "n3"] {
        assert_eq!(files(&cluster, host, "~/it\\'s\\ mine"), ["hvtui"], "{host}");
    }
    // The folder's owner is as before, and what is there was not touched.
    assert_eq!(cluster.on("n3", "stat -c %u ~/.cache/hvtui").trim(), "65534");
}

#[test]
fn a_host_on_which_nothing_may_be_put_is_shown_and_takes_no_ranks() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    if !has_bash(&cluster) {
        return;
    }
    plant(&cluster, "n1", "nvidia-smi", SMI);
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1", "slots = \"auto\""));
    let checked = client.run(&["--no-install", "hosts", "check"]);
    assert_eq!(checked.code, 69, "{checked:?}");
    assert!(checked.out.contains("--no-install") && checked.out.contains("agent_path"), "{checked:?}");
    let watched = client.run(&["--no-install", "watch", "--once"]);
    assert_eq!(watched.code, 0, "{watched:?}");
    for part in ["takes no ranks: the agent", "H200", "37 %", "4711", "python3"] {
        assert!(watched.out.contains(part), "{part}: {watched:?}");
    }
    let ran = client.run(&["--no-install", "run", "-np", "1", "--", "true"]);
    assert_eq!(ran.code, 69, "{ran:?}");
    assert!(ran.said().contains("must not be put there"), "{ran:?}");
    assert_eq!(
        cluster.on("n1", "ls -A ~/.cache 2>&1 | grep -c hvtui").trim(),
        "0",
        "something was put there"
    );
    // What another connection has put there is used.
    assert_eq!(client.run(&["hosts", "check"]).code, 0);
    assert_eq!(client.run(&["--no-install", "hosts", "check"]).code, 0);
}

#[test]
fn a_host_of_another_architecture_gets_a_clear_word_and_is_shown() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    if !has_bash(&cluster) {
        return;
    }
    plant(&cluster, "n1", "nvidia-smi", SMI);
    let other = "#!/bin/sh\ncase \"$1\" in -sm) echo Linux aarch64;; *) exec /usr/bin/uname \"$@\";; esac\n";
    plant(&cluster, "n1", "uname", other);
    let client = Client::new(&cluster);
    let checked = client.run(&["hosts", "check"]);
    assert_eq!(checked.code, 69, "{checked:?}");
    let wanted = ["no agent for Linux aarch64", "agents/aarch64-unknown-linux-gnu/hvtui", "agent_path"];
    assert!(wanted.iter().all(|part| checked.out.contains(part)), "{checked:?}");
    let watched = client.run(&["watch", "--once"]);
    assert!(watched.code == 0 && watched.out.contains("H200"), "{watched:?}");

    // An agent for it in the data folder: it is uploaded, and found to be no program of this machine.
    let place = "agents/aarch64-unknown-linux-gnu/hvtui";
    let path = client.path(".local/share/hvtui").join(place);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0".to_vec();
    elf.resize(4096, 0);
    std::fs::write(&path, elf).expect("a file");
    let checked = client.run(&["hosts", "check"]);
    assert!(checked.code == 69 && checked.out.contains("did not start"), "{checked:?}");
    assert_eq!(cluster.on("n1", "stat -c %s ~/.cache/hvtui/agents/*/hvtui").trim(), "4096");
}

#[test]
fn an_installed_agent_is_started_where_it_is_and_nothing_is_put_there() {
    let Some(cluster) = Cluster::up(1, &[]) else { return };
    let client = Client::new(&cluster);
    let toml = cluster.hosts_toml(1);
    let with = |path: &str| toml.replace("[defaults]", &format!("[defaults]\nagent_path = \"{path}\""));
    client.write("hosts.toml", &with("~/site tools/hvtui"));
    let checked = client.run(&["hosts", "check"]);
    assert!(checked.code == 69 && checked.out.contains("no program ~/site tools/hvtui"), "{checked:?}");
    let home = cluster.dir().join("n1/home/site tools");
    std::fs::create_dir(&home).expect("a folder");
    // Another build than the client's: its hash is told and not compared.
    let mut binary = std::fs::read(crate::common::program::hvtui()).expect("the binary");
    binary.push(0);
    std::fs::write(home.join("hvtui"), binary).expect("the agent");
    cluster.on("n1", "chmod 755 ~/'site tools/hvtui'");
    let checked = client.run(&["hosts", "check", "--verbose"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let sum = cluster.on("n1", "sha256sum ~/'site tools/hvtui'");
    let sum = sum.split(' ').next().expect("a hash");
    assert!(sum.len() == 64 && checked.out.contains(sum), "{sum}: {checked:?}");
    let ran = client.run(&["run", "-np", "1", "--", "echo", "it ran"]);
    assert!(ran.code == 0 && ran.out.contains("it ran"), "{ran:?}");
    assert_eq!(
        cluster.on("n1", "ls -A ~/.cache 2>&1 | grep -c hvtui").trim(),
        "0",
        "something was put there"
    );
}
