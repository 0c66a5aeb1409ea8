//! `hvtui hosts mesh` on real hosts: OpenSSH and mpirun log in by what it wrote, and nothing of it is left afterwards.

use crate::common::client::Client;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::OutputInTime;

/// Every file of `~/.ssh` on the host: mode, hash and name.
fn files(cluster: &Cluster, host: &str) -> String {
    cluster.on(host, "cd ~/.ssh 2>/dev/null && stat -c '%a %n' .* * && sha256sum $(find . -type f | sort)")
}

/// What the host says to a login at another one, from a process that has nothing of the test's own.
fn login(cluster: &Cluster, from: &str, to: &str) -> String {
    let line = format!("ssh -o BatchMode=yes -o ConnectTimeout=10 {to} hostname 2>&1");
    cluster.on(from, &line).trim().to_owned()
}

#[test]
fn each_host_logs_in_to_each_other_and_nothing_is_left_afterwards() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    // A home without ~/.ssh, one with files of a person, one with an empty folder.
    cluster.on(
        "n2",
        "mkdir -m 700 ~/.ssh && printf 'Host x\\n  Port 7' >~/.ssh/config && chmod 644 ~/.ssh/config",
    );
    cluster.on(
        "n2",
        "printf 'ssh-ed25519 AAAA someone' >~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys",
    );
    cluster.on("n3", "mkdir -m 700 ~/.ssh");
    let hosts = ["n1", "n2", "n3"];
    let before = hosts.map(|host| files(&cluster, host));
    assert!(login(&cluster, "n1", "n3").contains("verification failed"));

    let told = client.run(&["hosts", "mesh"]);
    assert_eq!(told.code, 64, "{told:?}");
    assert!(told.err.contains("--yes") && told.out.contains("this will be written on n1"), "{told:?}");
    for part in
        ["~/.ssh/authorized_keys", "from=\"10.77.0.11,10.77.0.12,10.77.0.13\",restrict,pty", "Include"]
    {
        assert!(told.out.contains(part), "{part}: {told:?}");
    }
    assert_eq!(hosts.map(|host| files(&cluster, host)), before, "a look changed something");

    let made = client.run(&["hosts", "mesh", "--yes"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.out.contains("n1    –     ✔     ✔\n"), "{made:?}");
    assert!(!made.said().contains("PRIVATE"), "{made:?}");
    for (from, to) in [("n1", "n3"), ("n3", "n1"), ("n2", "n1"), ("n2", "10.77.0.13")] {
        let wanted = if to.starts_with('n') { to } else { "n3" };
        assert_eq!(login(&cluster, from, to), wanted, "{from} to {to}");
    }
    let modes = cluster.on("n1", "stat -c %a ~/.ssh ~/.ssh/hvtui_mesh_????????");
    assert_eq!(modes.split_whitespace().collect::<Vec<_>>(), ["700", "600"]);
    // The key opens what it must, from where it must, and no more.
    let elsewhere = cluster.on("n1", "cat ~/.ssh/hvtui_mesh_????????");
    client.write("stolen", &elsewhere);
    std::fs::set_permissions(client.path("stolen"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("chmod");
    let mut ssh = cluster.hub("ssh");
    ssh.args([
        "-F",
        "/dev/null",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "IdentitiesOnly=yes",
    ]);
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", client.path("none").display()));
    let out =
        ssh.arg("-i").arg(client.path("stolen")).args(["10.77.0.11", "true"]).output_in_time().expect("ssh");
    assert!(!out.status.success(), "the key let the hub in, which is no part of the mesh");

    let there = hosts.map(|host| files(&cluster, host));
    let again = client.run(&["hosts", "mesh", "--yes"]);
    assert!(again.code == 0 && again.out.contains("is on every host already"), "{again:?}");
    assert_eq!(hosts.map(|host| files(&cluster, host)), there);

    let taken = client.run(&["hosts", "mesh", "--remove"]);
    assert_eq!(taken.code, 64, "{taken:?}");
    assert_eq!(hosts.map(|host| files(&cluster, host)), there);
    let taken = client.run(&["hosts", "mesh", "--remove", "--yes"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    // ssh itself may have made a known_hosts? No: the mesh names its own.
    assert_eq!(hosts.map(|host| files(&cluster, host)), before);
    assert!(login(&cluster, "n1", "n3").contains("verification failed"));
    assert!(client.run(&["hosts", "mesh", "--remove", "--yes"]).out.contains("no mesh"));
}

#[test]
fn mpirun_starts_on_other_hosts_by_the_mesh() {
    let mpirun = std::process::Command::new("mpirun").arg("--version").output_in_time();
    if !mpirun.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("Open MPI")) {
        return skip("Open MPI is not installed: apt-get install openmpi-bin");
    }
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    // its session folders are named after the host and a pid, and the hosts of all tests share both and /tmp
    let folder = cluster.dir().join("tmp");
    std::fs::create_dir(&folder).expect("a folder");
    let tmp = folder.display();
    let line = &format!(
        "TMPDIR={tmp} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --mca orte_tmpdir_base {tmp} \
         --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 -H n1,n2 hostname 2>&1"
    );
    assert!(!cluster.on("n1", line).lines().any(|said| said == "n2"), "it works without the mesh");
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    for from in ["n1", "n2"] {
        let said = cluster.on(from, line);
        // On a busy machine Open MPI itself warns of a race with its own children, in lines that begin with `[n1:`.
        let mut hosts: Vec<&str> = said.lines().filter(|line| !line.starts_with('[')).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["n1", "n2"], "from {from}: {said}");
    }
    assert_eq!(client.run(&["hosts", "mesh", "--remove", "--yes"]).code, 0);
}

#[test]
fn a_login_that_does_not_work_is_named() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    cluster.on("n2", "mkdir -m 700 ~/.ssh && ln -s /dev/null ~/.ssh/config");
    let refused = client.run(&["hosts", "mesh", "--yes"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.err.contains("n2: ~/.ssh/config is a symbolic link"), "{refused:?}");
    assert_eq!(cluster.on("n1", "ls -A ~/.ssh 2>/dev/null"), "", "half a mesh was written");
    cluster.on("n2", "rm ~/.ssh/config");
    // Something of the host's own lets no login in: each host, but not each login, fails.
    cluster.on("n2", "mkdir -p ~/.ssh && printf 'Host n1 10.77.0.11\\n  Port 9\\n' >~/.ssh/config && chmod 600 ~/.ssh/config");
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0, "the mesh stands before what is there");
    cluster.on("n2", "chmod 666 ~/.ssh/config");
    let named = client.run(&["hosts", "mesh", "--yes"]);
    assert!(named.code == 77 && named.err.contains("writable by others"), "{named:?}");
}

#[test]
fn a_host_that_is_down_keeps_no_other_from_being_cleared() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let hosts = ["n1", "n2", "n3"];
    let before = hosts.map(|host| files(&cluster, host));
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    let with = files(&cluster, "n3");
    cluster.change("stop", "n3");
    let taken = client.run(&["hosts", "mesh", "--remove", "--yes"]);
    assert_eq!(taken.code, 69, "{taken:?}");
    assert!(taken.out.contains("is taken out on n1, n2"), "{taken:?}");
    assert!(taken.err.contains("n3: ") && taken.err.contains(" hosts mesh --remove n3"), "{taken:?}");
    assert_eq!([files(&cluster, "n1"), files(&cluster, "n2")], [before[0].clone(), before[1].clone()]);
    cluster.change("start", "n3");
    assert_eq!(files(&cluster, "n3"), with);
    let rest = client.run(&["hosts", "mesh", "--remove", "--yes", "n3"]);
    assert!(rest.code == 0 && rest.out.contains("is taken out on n3"), "{rest:?}");
    assert_eq!(files(&cluster, "n3"), before[2]);
}
