//! Ways between hosts that carry small packets alone, and ways that are slow: told by the host on which they begin.

use super::{json, verdict};
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::processes::until;

/// The network of the host.
const INTERFACE: &str = "ip -o -4 addr show scope global | awk '{ print $2; exit }' | cut -d@ -f1";

#[test]
fn a_way_on_which_large_packets_are_lost_is_told_before_a_run_hangs_at_it() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let look = || json(&client.run(&["doctor", "--json", "--only", "reach"]));
    let mark = |told: &serde_json::Value, host: &str| {
        verdict(told, "reach", host)["mark"].as_str().unwrap().to_owned()
    };
    let before = look();
    assert_eq!(["n1", "n2", "n3"].map(|host| mark(&before, host)), ["good"; 3], "{before:#}");
    // as a card sends them, each of its own
    cluster.on("n1", &format!("ip link set dev $({INTERFACE}) gso_max_segs 1"));
    // what comes from n1 and is larger than a switch of 1400 bytes passes is lost on the way to n2, and nothing says so
    cluster.on("n2", "iptables -I INPUT -p tcp -s 10.77.0.11 -m length --length 1401: -j DROP");
    let told = look();
    let reach = verdict(&told, "reach", "n1");
    let seen = "small packets reach n2 (10.77.0.12), and those of full size do not";
    assert_eq!((&reach["mark"], &reach["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
    let remedy = reach["remedy"].as_str().unwrap();
    assert!(
        remedy.starts_with("ping -M do -s 1472 10.77.0.12 finds the size; then a smaller MTU"),
        "{remedy}"
    );
    assert_eq!(["n2", "n3"].map(|host| mark(&told, host)), ["good"; 2], "the way back carries all: {told:#}");
    let run = |more: &[&str]| {
        client.run(&[&["run", "-H", "n1:1,n2:1", "--kind", "torch"], more, &["--", "true"]].concat())
    };
    let refused = run(&[]);
    assert!(refused.code == 78 && refused.err.contains("and hang at the first tensor"), "{refused:?}");
    // what is said is what helps
    cluster.on("n1", &format!("ip link set dev $({INTERFACE}) mtu 1400"));
    let told = look();
    assert_eq!(mark(&told, "n1"), "good", "{told:#}");
    assert_eq!(run(&[]).code, 0);
}

/// Takes what the host sends to the others 30 ms later to its network.
const SLOW: &str = r#"
import fcntl, os, queue, socket, struct, subprocess, sys, threading, time
line, after = os.open("/dev/net/tun", os.O_RDWR), queue.Queue()
fcntl.ioctl(line, 0x400454ca, struct.pack("16sH", b"slow0", 0x1001))
subprocess.check_call(["ip", "link", "set", "slow0", "up"])
for host in ["10.77.0.11", "10.77.0.12"]:
    subprocess.check_call(["ip", "route", "add", host + "/32", "dev", "slow0", "src", "10.77.0.13"])
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[1].encode())
def send():
    while True:
        due, packet = after.get()
        time.sleep(max(0, due - time.monotonic()))
        out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
threading.Thread(target=send, daemon=True).start()
while True:
    packet = os.read(line, 4096)
    if packet[0] >> 4 == 4:
        after.put((time.monotonic() + 0.03, packet))
"#;

#[test]
fn a_host_that_is_far_from_the_others_is_told_by_each_of_them() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let script = cluster.dir().join("slow.py");
    std::fs::write(&script, SLOW).expect("a script");
    let line = format!("setsid python3 {} $({INTERFACE}) >~/slow.log 2>&1 & echo begun", script.display());
    cluster.on("n3", &line);
    until("the slow line", || {
        cluster.on("n3", "ip route show dev slow0 2>&1; cat ~/slow.log").contains("10.77.0.12")
    });
    let told = json(&client.run(&["doctor", "--json", "--only", "reach"]));
    for host in ["n1", "n2"] {
        let reach = verdict(&told, "reach", host);
        let seen = reach["evidence"].as_str().unwrap();
        let ms = seen.strip_prefix("reaches n3 in ").and_then(|rest| rest.split(' ').next());
        let ms: f64 = ms.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("{told:#}"));
        assert!(reach["mark"] == "look" && ms >= 30.0 && seen.contains("between hosts "), "{told:#}");
        assert_eq!(reach["lasting"], "slow to n3", "its figure moves");
    }
    let both = verdict(&told, "reach", "n3")["evidence"].as_str().unwrap();
    assert!(both.starts_with("reaches n1 in ") && both.contains(", n2 in "), "{both}");
}
