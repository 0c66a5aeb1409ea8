//! The ports that a launch takes: taken by another program, and kept by a firewall.

use super::{json, verdict};
use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::processes::until;

#[test]
fn a_port_that_the_run_takes_and_another_program_has_keeps_it_from_starting() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    let run = |more: &[&str]| {
        let line = ["--kind", "plain", "--", "true", "--dist-url", "tcp://n2:23456"];
        client.run(&[&["run", "-H", "n1:1,n2:1"], more, &line].concat())
    };
    let free = run(&[]);
    assert_eq!(free.code, 0, "{free:?}");
    cluster.on("n2", "python3 -m http.server 23456 >/dev/null 2>&1 &");
    until("it to listen", || cluster.on("n2", "cat /proc/net/tcp").contains(":5BA0 "));
    let taken = run(&[]);
    let words = "n2: 23456 (--dist-url) is taken by root (python3 -m http.server 23456), for every machine";
    let holder = cluster.on("n2", "pgrep -f '[h]ttp.server 23456'");
    let fix = format!("kill {} there ends what has 23456; or give the run another port", holder.trim());
    assert!(taken.code == 78 && taken.err.contains(words) && taken.err.contains(&fix), "{taken:?}");
    let forced = run(&["--force"]);
    assert!(forced.code == 0 && forced.err.contains("--force ignores ports of n2"), "{forced:?}");
    // another port of the same host is none of it
    let other = client.run(&[
        "run",
        "-H",
        "n1:1,n2:1",
        "--kind",
        "plain",
        "--",
        "true",
        "--dist-url",
        "tcp://n2:23457",
    ]);
    assert_eq!(other.code, 0, "{other:?}");
    // what stands in the place of the fixed ones for a launch takes nothing from a look without one
    let told = json(&client.run(&["doctor", "--json", "--only", "ports"]));
    let ports = verdict(&told, "ports", "n2")["evidence"].as_str().unwrap();
    assert_eq!(ports, "29500, 29400, 12355, 2222 are free", "{told:#}");
    cluster.on("n2", &format!("kill {}", holder.trim()));
    let freed = run(&[]);
    assert_eq!(freed.code, 0, "{freed:?}");
}

#[test]
fn a_firewall_that_keeps_a_port_of_the_run_is_told_with_the_rule_that_opens_it() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    // TensorFlow's own ports, as the hosts file gives each host its task
    let cluster_of = r#""cluster": {"worker": ["n1:2301", "n2:2302"]}"#;
    let mut toml = cluster.hosts_toml(1);
    for (at, host) in ["n1", "n2"].into_iter().enumerate() {
        let task = format!(
            r#"env = {{ TF_CONFIG = '{{{cluster_of}, "task": {{"type": "worker", "index": {at}}}}}' }}"#
        );
        toml = toml.replace(&format!("name = \"{host}\"\n"), &format!("name = \"{host}\"\n{task}\n"));
    }
    client.write("hosts.toml", &toml);
    let run = || -> Ended { client.run(&["run", "-H", "n1:1,n2:1", "--kind", "plain", "--", "true"]) };
    let open = run();
    assert_eq!(open.code, 0, "{open:?}");
    cluster.on("n2", "iptables -A INPUT -p tcp --dport 2302 ! -i lo -j DROP");
    let kept = run();
    let words =
        "n1: port 2302, which the run takes there, gets no answer from n2 (10.77.0.12); other ports do";
    let rule = "iptables -I INPUT -p tcp -s 10.77.0.11 --dport 2302 -j ACCEPT";
    assert!(kept.code == 78 && kept.err.contains(words), "{kept:?}");
    assert!(kept.err.contains(&format!("on n2: {rule}")), "{kept:?}");
    cluster.on("n2", rule);
    let opened = run();
    assert_eq!(opened.code, 0, "{opened:?}");
    // whose it is, where it is taken
    cluster.on("n1", "python3 -m http.server 2301 >/dev/null 2>&1 &");
    until("it to listen", || cluster.on("n1", "cat /proc/net/tcp").contains(":08FD "));
    let taken = run();
    assert!(
        taken.code == 78 && taken.err.contains("2301 (TF_CONFIG's worker 0) is taken by root"),
        "{taken:?}"
    );
}
