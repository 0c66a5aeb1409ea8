//! Where programs, interfaces, ports of ssh and folders are: what a host has in another place than it is looked for.

use std::ffi::OsStr;
use std::path::Path;

use super::{json, verdict};
use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::OutputInTime;
use crate::common::stuck_file::StuckFile;
use crate::local_runs::Person;

#[test]
fn a_path_below_the_guard_of_bashrc_is_told_with_its_line() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let make =
        "mkdir -p ~/hvd/bin && printf '#!/bin/sh\\n' > ~/hvd/bin/horovodrun && chmod +x ~/hvd/bin/horovodrun";
    for host in ["n1", "n2", "n3"] {
        cluster.on(host, make);
    }
    for host in ["n1", "n3"] {
        cluster.on(host, "mount --bind ~/hvd/bin /usr/local/sbin");
    }
    // as Debian's files are, with a line at the end as people add it
    cluster.on("n2", "printf 'if [ -n \"$BASH_VERSION\" ]; then\\n  . ~/.bashrc\\nfi\\n' > ~/.profile");
    let bashrc =
        "# ~/.bashrc\\ncase $- in\\n  *i*) ;;\\n  *) return;;\\nesac\\nexport PATH=$HOME/hvd/bin:$PATH\\n";
    cluster.on("n2", &format!("printf '{bashrc}' > ~/.bashrc"));
    let ended = client.run(&["doctor", "--json", "--only", "path"]);
    let told = json(&ended);
    let path = verdict(&told, "path", "n2");
    let home = cluster.on("n2", "echo ~");
    let seen = format!(
        "only an interactive shell finds horovodrun ({}/hvd/bin/horovodrun): line 6 of ~/.bashrc sets it, below line 2, which ends the \
         file for shells that are not interactive",
        home.trim()
    );
    assert_eq!((&path["mark"], &path["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
    assert_eq!(ended.code, 1);
    assert!(path["remedy"].as_str().unwrap().contains("--env-from-login=interactive"), "{path:#}");
    assert_eq!(verdict(&told, "path", "n1")["mark"], "good", "{told:#}");
    // what the remedy names finds it, and the line above the guard does
    let finds = "import shutil; assert shutil.which('horovodrun')";
    let run = ["run", "-H", "n2:1", "--env-from-login=interactive", "--", "python3", "-c", finds];
    let ran = client.run(&run);
    assert_eq!(ran.code, 0, "{ran:?}");
    cluster.on("n2", "sed -i '1i export PATH=$HOME/hvd/bin:$PATH' ~/.bashrc");
    let told = json(&client.run(&["doctor", "--json", "--only", "path"]));
    assert_eq!(verdict(&told, "path", "n2")["mark"], "good", "{told:#}");
    // and where no shell is told of it, it is found where it is often installed
    cluster
        .on("n2", "rm ~/.bashrc ~/.profile; mkdir -p ~/.local/bin && cp ~/hvd/bin/horovodrun ~/.local/bin");
    let told = json(&client.run(&["doctor", "--json", "--only", "path"]));
    let path = verdict(&told, "path", "n2");
    let seen = format!("no shell finds horovodrun ({}/.local/bin/horovodrun)", home.trim());
    assert_eq!((&path["mark"], &path["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
}

#[test]
fn a_path_is_set_in_the_file_that_the_hosts_own_shell_reads() {
    let shells = ["n1=/usr/bin/zsh", "n2=/usr/bin/fish", "n3=/usr/bin/tcsh"];
    if let Some(missing) = shells.iter().find(|one| !Path::new(&one[3..]).exists()) {
        return skip(&format!("{} is not installed", &missing[3..]));
    }
    let more: Vec<&OsStr> = shells.iter().flat_map(|shell| ["--shell".as_ref(), shell.as_ref()]).collect();
    let Some(cluster) = Cluster::ready(3, &more) else { return };
    let client = Client::new(&cluster);
    let make =
        "mkdir -p ~/hvd/bin && printf '#!/bin/sh\\n' > ~/hvd/bin/horovodrun && chmod +x ~/hvd/bin/horovodrun";
    // each finds it where it is a login shell
    let fish = "if status is-login\\n  set -gx PATH $HOME/hvd/bin $PATH\\nend\\n";
    for (host, own) in [
        ("n1", "echo 'export PATH=$HOME/hvd/bin:$PATH' > ~/.zprofile".to_owned()),
        ("n2", format!("mkdir -p ~/.config/fish && printf '{fish}' > ~/.config/fish/config.fish")),
        ("n3", "echo 'setenv PATH $HOME/hvd/bin:$PATH' > ~/.login".to_owned()),
    ] {
        cluster.on(host, make);
        cluster.on(host, &own);
    }
    let home = cluster.on("n1", "echo ~");
    let folder = format!("{}/hvd/bin", home.trim());
    let told = json(&client.run(&["doctor", "--json", "--only", "path"]));
    for (host, line, file) in [
        ("n1", format!("export PATH={folder}:$PATH"), "~/.zshenv"),
        ("n2", format!("set -gx PATH {folder} $PATH"), "~/.config/fish/config.fish"),
        ("n3", format!("setenv PATH {folder}:$PATH"), "~/.cshrc"),
    ] {
        let path = verdict(&told, "path", host);
        let remedy = path["remedy"].as_str().unwrap_or_default();
        let words = format!("write '{line}' at the top of {file} there; ");
        assert!(path["mark"] == "look" && remedy.starts_with(&words), "{words}: {told:#}");
        // in that shell, as --fix does it
        let mut fix = cluster.hub("ssh");
        fix.arg("-F").arg(cluster.dir().join("ssh_config")).arg(host);
        fix.arg(path["fix"]["command"].as_str().expect("a command"));
        let ran = fix.output_in_time().expect("ssh");
        assert!(ran.status.success(), "{host}: {ran:?}");
        let text = cluster.on(host, &format!("cat {file}"));
        assert_eq!(text.lines().next(), Some(line.as_str()), "{host}: {text}");
    }
    assert!(cluster.on("n2", "cat ~/.config/fish/config.fish").ends_with("\nend\n"), "it stays");
    let told = json(&client.run(&["doctor", "--json", "--only", "path"]));
    for host in ["n1", "n2", "n3"] {
        assert_eq!(verdict(&told, "path", host)["mark"], "good", "{told:#}");
    }
}

#[test]
fn interfaces_that_lead_nowhere_are_told_and_keep_a_run_from_starting() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let interface = "ip -o -4 addr show scope global | awk '{ print $2; exit }'";
    let name = cluster.on("n1", interface).trim().split('@').next().unwrap_or_default().to_owned();
    for host in ["n1", "n2"] {
        cluster.on(host, "ip link add ib0 type veth peer name ib1; ip addr add 10.99.0.1/24 dev ib0; ip link set ib1 up; ip link set ib0 up");
        cluster.on(
            host,
            "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
        );
    }
    cluster.on("n2", "ip link set ib0 down");
    let look = |line: &str| {
        cluster.on("n2", &format!("echo 'export {line}' > ~/.profile"));
        let told = json(&client.run(&["doctor", "--json", "--only", "interface"]));
        let one = verdict(&told, "interface", "n2");
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    let bad = |line: &str, words: &str| {
        let (mark, evidence) = look(line);
        assert!(mark == "bad" && evidence.contains(words), "{line}: {mark} {evidence}");
    };
    bad("NCCL_SOCKET_IFNAME=ib0", "NCCL_SOCKET_IFNAME=ib0: ib0");
    bad("NCCL_SOCKET_IFNAME=ib0", " is down");
    bad("NCCL_SOCKET_IFNAME==lo", "lo leads to this host and what runs on it alone");
    bad("OMPI_MCA_btl_tcp_if_include=10.200.0.0/16", "no address of the host is in that network; there is ");
    bad(
        "NCCL_SOCKET_IFNAME=^eth,ib,lo,docker,hvt,n,v",
        "leaves no interface by which other hosts are reached",
    );
    // a file of NCCL's own counts where no variable is set
    cluster.on("n2", "echo 'NCCL_SOCKET_IFNAME=ib0' > ~/.nccl.conf");
    bad("X=1", "NCCL_SOCKET_IFNAME=ib0: ib0");
    cluster.on("n2", "rm ~/.nccl.conf");
    let (mark, evidence) = look("OMPI_MCA_btl_tcp_if_exclude=docker0");
    assert!(mark == "look" && evidence.ends_with("=docker0 leaves loopback in"), "{mark} {evidence}");
    let (mark, evidence) = look("OMPI_MCA_btl_tcp_if_exclude=lo,docker0");
    assert!(mark == "good", "{mark} {evidence}");
    let (mark, evidence) = look("X=1");
    assert!(mark == "good" && evidence.starts_with(&format!("{name} 10.77.0.1")), "{mark} {evidence}");
    // what a run sets itself is judged on each host
    let run = |value: &str| {
        let env = format!("NCCL_SOCKET_IFNAME={value}");
        client.run(&["run", "-H", "n1:1,n2:1", "--kind", "torch", "--env", &env, "--", "true"])
    };
    let down = run("ib0");
    assert!(down.code == 78 && down.err.contains("NCCL_SOCKET_IFNAME=ib0: ib0"), "{down:?}");
    let absent = run("eth7");
    assert!(
        absent.code == 78 && absent.err.contains("leave NCCL_SOCKET_IFNAME out of the run"),
        "{absent:?}"
    );
    let own = run(&format!("={name}"));
    assert_eq!(own.code, 0, "{own:?}");
}

#[test]
fn a_name_of_another_host_that_leads_nowhere_or_elsewhere_is_told_with_its_line() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let look = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "hostname"]));
        assert_eq!(verdict(&told, "hostname", "n2")["mark"], "good", "{told:#}");
        let one = verdict(&told, "hostname", "n1");
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (text("mark"), text("evidence"), one["fix"]["command"].as_str().map(str::to_owned))
    };
    let told = |mark: &str, evidence: &str| (mark.to_owned(), evidence.to_owned(), None::<String>);
    let good = told("good", "n1 is 10.77.0.11; the names of the others lead to them");
    assert_eq!(look(), good);
    let hosts = |lines: &str| {
        cluster.on("n1", &format!("printf '127.0.0.1 localhost\\n10.77.0.11 n1\\n{lines}' > ~/hosts"));
    };
    hosts("");
    cluster.on("n1", "mount --bind ~/hosts /etc/hosts");
    // a name server at which nothing listens
    cluster.on(
        "n1",
        "echo 'nameserver 127.0.0.1' > ~/resolv.conf && mount --bind ~/resolv.conf /etc/resolv.conf",
    );
    let out = "no address is found there for n2; the name server 127.0.0.1 gives no answer";
    assert_eq!(look(), told("look", out));
    // and none at all
    cluster.on("n1", "> ~/resolv.conf");
    let (mark, seen, command) = look();
    assert!(mark == "look" && seen == "no address is found there for n2", "{seen}");
    cluster.on("n1", &command.expect("a command"));
    assert_eq!(look(), good, "by what helps");
    hosts("127.0.1.1 n2\\n");
    assert_eq!(look(), told("bad", "n2 is 127.0.1.1 there, by which the host reaches itself"));
    hosts("10.77.0.99 n2\\n");
    assert_eq!(look(), told("look", "n2 is 10.77.0.99 there, none of its own addresses (10.77.0.12)"));
}

#[test]
fn a_host_with_another_port_of_ssh_is_logged_in_to_and_told_by_it() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    // where ssh is no longer answered, the hosts file says another port
    cluster.change("sshd", "n2 Port 2222");
    cluster.on("n2", "iptables -I INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset");
    let other = "name = \"n2\"\nport = 2222\nhost_keys = \"accept-new\"\n";
    let toml = cluster.hosts_toml(1).replace("name = \"n2\"\n", other);
    client.write("hosts.toml", &toml);
    let told = json(&client.run(&["doctor", "--json", "--only", "logins,ssh,ports"]));
    assert_eq!(verdict(&told, "ssh", "n2")["mark"], "good", "{told:#}");
    let ports = verdict(&told, "ports", "n2");
    assert_eq!(
        (&ports["mark"], &ports["evidence"]),
        (&"good".into(), &"29500, 29400, 12355 are free".into())
    );
    let logins = verdict(&told, "logins", "n1");
    assert_eq!(logins["mark"], "good", "{logins:#}");
    let gone = toml.replace("port = 2222", "port = 2223");
    client.write("hosts.toml", &gone);
    let told = json(&client.run(&["doctor", "--json", "--only", "ssh"]));
    let remedy = verdict(&told, "ssh", "n2")["remedy"].as_str().unwrap();
    assert!(
        remedy.starts_with("ssh -v -p 2223 ") && remedy.ends_with(" true, then: hvtui hosts check n2"),
        "{told:#}"
    );
}

#[test]
fn a_folder_for_temporary_files_that_is_absent_or_full_is_told_as_such() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.change("sshd", "n1 SetEnv TMPDIR=/run/absent/li");
    cluster.change("disk", "n2 /run/small 4096");
    cluster.on("n2", "cat /dev/zero > /run/small/fill 2>/dev/null");
    cluster.change("sshd", "n2 SetEnv TMPDIR=/run/small");
    let told = json(&client.run(&["doctor", "--json", "--only", "tmp,disk"]));
    let of = |check: &str, host: &str| {
        let one = verdict(&told, check, host);
        (one["mark"].as_str().unwrap(), one["remedy"].as_str().unwrap_or_default())
    };
    let (mark, remedy) = of("tmp", "n1");
    assert!(mark == "bad" && remedy.starts_with("mkdir -p /run/absent/li"), "{told:#}");
    assert_eq!(of("disk", "n1"), ("look", "mkdir -p /run/absent/li"), "{told:#}");
    let (mark, remedy) = of("tmp", "n2");
    assert!(mark == "bad" && remedy.starts_with("make room: "), "{told:#}");
    // one that tells nothing is not passed over
    cluster.change("sshd", "n1 SetEnv TMPDIR=/etc/passwd/li");
    let told = json(&client.run(&["doctor", "--json", "--only", "disk"]));
    let disk = verdict(&told, "disk", "n1");
    let seen = "/etc/passwd/li: not a directory";
    assert_eq!((&disk["mark"], &disk["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
}

#[test]
fn a_file_server_that_is_gone_is_told_with_its_mount_and_holds_up_no_other_check() {
    let person = Person::new(1);
    let folder = person.home().join("data");
    let Some(_stuck) = StuckFile::folder(&folder) else { return skip("no right to mount") };
    let toml = person.home().join("hosts.toml");
    let hosts = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, format!("{hosts}workdir = \"{}\"\n", folder.display())).unwrap();
    let out = person.run(&["doctor", "--json", "--only", "disk,tmp"]);
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let disk = verdict(&told, "disk", "here");
    let seen = format!("{0}: no answer in 2.5 s: {0} is fuse of stuck", folder.display());
    assert_eq!((&disk["mark"], &disk["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
    let remedy = disk["remedy"].as_str().unwrap();
    assert!(remedy.contains(&format!("umount -f -l {}", folder.display())), "{remedy}");
    assert_ne!(verdict(&told, "tmp", "here")["mark"], "unknown", "{told:#}");
}

#[test]
fn what_was_looked_at_nowhere_is_said() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let driver = client.run(&["doctor", "--only", "driver"]);
    assert!(
        driver.out.starts_with("2 hosts, 1 of 2 checks: nothing to judge on any host for driver\n"),
        "{driver:?}"
    );
    let typo = client.run(&["doctor", "--only", "same", "--same", "/no/such/typo"]);
    assert!(typo.code == 1 && typo.out.contains("n1, n2: /no/such/typo: on no host"), "{typo:?}");
    let ssh = client.run(&["doctor", "--only", "ssh"]);
    assert!(ssh.code == 0 && ssh.out.starts_with("2 hosts, 1 check: nothing is wrong\n"), "{ssh:?}");
    assert!(client.run(&["doctor"]).code < 64);
    let since = client.run(&["doctor", "--since", "last"]);
    assert!(since.out.lines().next().unwrap().contains("; now "), "{since:?}");
}

#[test]
fn a_run_that_failed_names_the_rank_that_was_sent_to_dockers_own_address() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let bridge =
        "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up";
    for host in ["n1", "n2"] {
        cluster.on(host, bridge);
    }
    let fails = |says: &str| {
        let script = format!("[ $RANK = 0 ] && exec sleep 1000; echo '{says}' >&2; exit 1");
        client.run(&["run", "-H", "n1:1,n2:1", "--kind", "torch", "--", "sh", "-c", &script])
    };
    let sent = fails("Gloo connectFullMesh failed: Connect timeout [172.17.0.1]:41234");
    let words = "rank 1 (n2) was sent to 172.17.0.1, docker0 of n1, n2: by it each of them reaches itself; what may be wrong there: hvtui \
                 --hosts ";
    let checks = sent.err.split(words).nth(1).is_some_and(|said| said.contains(" doctor --only "));
    assert!(sent.code == 1 && checks && sent.err.contains("interface"), "{sent:?}");
    let own = fails("n2:9:9 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>");
    assert!(own.err.contains("rank 1 (n2) told the others 172.17.0.1, docker0 of n1, n2"), "{own:?}");
    // an address of the other host is told by no such words
    let fine = fails("connect to 10.77.0.11:29500: Connection timed out");
    assert!(
        fine.code == 1 && !fine.err.contains("reaches itself") && fine.err.contains("--only reach"),
        "{fine:?}"
    );
}

#[test]
fn a_look_starts_no_program_twice_with_the_same_words() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n1", "mkdir ~/bin");
    // that of the system is asked, whatever is on the PATH
    cluster.on("n1", "cp /sbin/ldconfig ~/ldconfig");
    for name in ["ldconfig", "ip", "gcc", "mpirun", "sshd"] {
        let real = match name {
            "ldconfig" => "~/ldconfig".to_owned(),
            _ => format!("$(ls /usr/bin/{name} /usr/sbin/{name} 2>/dev/null | head -n 1)"),
        };
        let text = format!("#!/bin/sh\necho {name} \"$@\" >> ~/asked\nexec {real} \"$@\"\n");
        std::fs::write(cluster.dir().join(name), text).expect("a script");
        cluster
            .on("n1", &format!("cp {} ~/bin && chmod +x ~/bin/{name}", cluster.dir().join(name).display()));
    }
    cluster.on("n1", "mount --bind ~/bin /usr/local/bin && mount --bind ~/bin/ldconfig /sbin/ldconfig");
    let told = json(&client.run(&["doctor", "--json"]));
    assert_ne!(verdict(&told, "libraries", "n1")["mark"], "unknown", "{told:#}");
    let asked = cluster.on("n1", "sort ~/asked");
    let asked: Vec<&str> = asked.lines().collect();
    assert!(asked.contains(&"ldconfig -p") && asked.contains(&"ip -o link show"), "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{asked:?}");
}
