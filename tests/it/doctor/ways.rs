//! Ways between hosts: firewalls that refuse and that say nothing, gateways that forward ports, and clocks that differ.

use std::process::Command;

use serde_json::Value;

use super::{json, verdict};
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::{end_of, until};
use crate::common::terminal::Terminal;

/// Has n1 answer what comes for its higher ports so, but for what comes from itself.
fn wall(cluster: &Cluster, answer: &str) {
    let rule =
        format!("iptables -A INPUT -p tcp --dport 1024: ! -i lo -m conntrack --ctstate NEW -j {answer}");
    cluster.on("n1", &format!("iptables -F INPUT && {rule}"));
    assert!(cluster.on("n1", "iptables -S INPUT").contains(answer.split(' ').next().unwrap()), "{answer}");
}

#[test]
fn firewalls_that_reject_and_that_drop_are_told_apart_and_opened_by_what_is_said() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let look = || json(&client.run(&["doctor", "--json", "--only", "reach"]));
    let before = look();
    for host in ["n1", "n2", "n3"] {
        assert_eq!(verdict(&before, "reach", host)["mark"], "good", "{before:#}");
    }
    let answered =
        "is answered with \"Connection refused\" by n1 (10.77.0.11); port 22, that of ssh, answers";
    for (answer, evidence, cause) in [
        ("REJECT --reject-with tcp-reset", answered, "rejects"),
        ("REJECT", answered, "rejects"),
        (
            "REJECT --reject-with icmp-host-prohibited",
            "is answered with \"no route to host\" by n1",
            "rejects",
        ),
        ("DROP", "gets no answer from n1 (10.77.0.11); port 22, that of ssh, answers", "drops"),
    ] {
        wall(&cluster, answer);
        let told = look();
        let reach = verdict(&told, "reach", "n2");
        let text = |name: &str| reach[name].as_str().unwrap_or_default();
        assert_eq!(text("mark"), "bad", "{answer}: {told:#}");
        assert!(text("evidence").contains(evidence) && text("cause").contains(cause), "{answer}: {reach:#}");
        assert_eq!(verdict(&told, "reach", "n1")["mark"], "good", "who is walled in gets out: {told:#}");
        // what is said is what helps
        let remedy = text("remedy").strip_prefix("on n1: ").and_then(|rest| rest.split_once(';'));
        let (command, _) = remedy.unwrap_or_else(|| panic!("{reach:#}"));
        assert!(command.contains("-s 10.77.0.0/24 --dport 29400:"), "{command}");
        assert_eq!(reach["fix"], serde_json::json!({ "on": "n1", "command": command }), "{reach:#}");
        if answer == "DROP" {
            // asked once for both hosts that are kept out, and run where it helps
            let fix = client.hvtui(&["doctor", "--only", "reach", "--fix"]);
            let Some(terminal) = Terminal::start(&fix, 150, 50) else { return };
            terminal.wait("the rule", |screen| screen.contains("1 of 1, would run on n1: iptables -I INPUT"));
            terminal.type_in("y\n");
            let screen = terminal.assert_restored(0);
            assert!(screen.contains("reach on n2, n3: ") && screen.contains("✔ reach"), "{screen}");
        } else {
            cluster.on("n1", command);
        }
        let told = look();
        assert_eq!(verdict(&told, "reach", "n2")["mark"], "good", "{answer}: {told:#}");
    }
    // a run does not start before it would hang, or end
    wall(&cluster, "REJECT");
    let run = client.run(&["run", "-H", "n1:1,n2:1", "--kind", "torch", "--", "true"]);
    assert!(run.code == 78 && run.err.contains("a firewall rejects what ranks say"), "{run:?}");
    // a rule for torch's own port alone keeps those runs that are told no other one
    cluster.on("n1", "iptables -F INPUT; iptables -A INPUT -p tcp --dport 29500 ! -i lo -j DROP");
    let told = look();
    let reach = verdict(&told, "reach", "n2");
    let seen = "port 29500 gets no answer from n1 (10.77.0.11), other ports do";
    assert_eq!((&reach["mark"], &reach["evidence"]), (&"bad".into(), &seen.into()), "{told:#}");
    let run = client.run(&["run", "-H", "n1:1,n2:1", "--kind", "torch", "--", "true"]);
    assert_eq!(run.code, 0, "hvtui gives its runs a port that is open: {run:?}");
}

#[test]
fn a_port_that_a_gateway_forwards_is_none_inside_of_it() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    // as a router does that has one address for all of them
    let forward = "import socket,sys,threading\n\
                   def pass_on(a, b):\n    \
                       try:\n        \
                           while (said := a.recv(65536)): b.sendall(said)\n    \
                       except OSError: pass\n    \
                       b.close()\n\
                   def serve(port, to):\n    \
                       s = socket.create_server(('127.0.0.1', port))\n    \
                       while True:\n        \
                           a, b = s.accept()[0], socket.create_connection((to, 22))\n        \
                           threading.Thread(target=pass_on, args=(a, b), daemon=True).start()\n        \
                           threading.Thread(target=pass_on, args=(b, a), daemon=True).start()\n\
                   threading.Thread(target=serve, args=(2201, '10.77.0.11'), daemon=True).start()\n\
                   serve(2202, '10.77.0.12')\n";
    let mut gateway = cluster.hub("python3").args(["-c", forward]).spawn().expect("a gateway");
    until("the gateway to listen", || {
        let mut look = cluster.hub("cat");
        let out = look.arg("/proc/net/tcp").output_in_time().expect("cat").stdout;
        let text = String::from_utf8_lossy(&out);
        [":0899 ", ":089A "].iter().all(|port| text.contains(port))
    });
    let mut toml = cluster.hosts_toml(1);
    for (host, address, port) in [("n1", "10.77.0.11", 2201), ("n2", "10.77.0.12", 2202)] {
        let own = format!("name = \"{host}\"\naddress = \"{address}\"\n");
        assert!(toml.contains(&own), "{toml}");
        let behind = format!(
            "name = \"{host}\"\naddress = \"127.0.0.1\"\nport = {port}\nhost_keys = \"accept-new\"\n"
        );
        toml = toml.replace(&own, &behind);
    }
    client.write("hosts.toml", &toml);
    let told = json(&client.run(&["doctor", "--json", "--only", "logins,reach"]));
    for (check, host) in [("ssh", "n1"), ("logins", "n1"), ("logins", "n2"), ("reach", "n1"), ("reach", "n2")]
    {
        assert_eq!(verdict(&told, check, host)["mark"], "good", "{told:#}");
    }
    // and where a wall keeps the rest out, it is sshd's own port that answers beside it
    wall(&cluster, "DROP");
    let told = json(&client.run(&["doctor", "--json", "--only", "reach"]));
    let evidence = verdict(&told, "reach", "n2")["evidence"].as_str().unwrap();
    assert!(evidence.ends_with("port 22, that of ssh, answers"), "{told:#}");
    gateway.kill().expect("its end");
    end_of(&mut gateway);
}

/// A library that sets the clock of programs which load it ahead by so many milliseconds.
fn clock_ahead(cluster: &Cluster, ms: u32) -> std::path::PathBuf {
    let source = cluster.dir().join("clock.c");
    let code = format!(
        "#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
         int clock_gettime(clockid_t id, struct timespec *t) {{\n\
           int answer = syscall(SYS_clock_gettime, id, t);\n\
           if (!answer && id == CLOCK_REALTIME) {{ long ns = t->tv_nsec + {ms}000000L;\n\
             t->tv_sec += ns / 1000000000L; t->tv_nsec = ns % 1000000000L; }}\n\
           return answer; }}\n"
    );
    std::fs::write(&source, code).expect("a source");
    let library = cluster.dir().join("libclock.so");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compile.status_in_time().expect("gcc").success());
    library
}

#[test]
fn a_clock_that_differs_is_told_with_its_doubt() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let look = || json(&client.run(&["doctor", "--json", "--only", "clock"]));
    let of = |told: &Value, host: &str| {
        let one = verdict(told, "clock", host);
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    let before = look();
    for host in ["n1", "n2", "n3"] {
        let (mark, evidence) = of(&before, host);
        assert!(mark == "good" && evidence.starts_with("within ") && evidence.contains("(± "), "{before:#}");
    }
    let library = clock_ahead(&cluster, 300);
    cluster.change("sshd", &format!("n2 SetEnv LD_PRELOAD={}", library.display()));
    let told = look();
    let (mark, evidence) = of(&told, "n2");
    let words: Vec<&str> = evidence.split(' ').collect();
    let ms: f64 = words[3].parse().unwrap_or_else(|_| panic!("{evidence}"));
    let doubt = evidence.split("(± ").nth(1).and_then(|rest| rest.split(' ').next());
    let doubt: f64 = doubt.and_then(|doubt| doubt.parse().ok()).unwrap_or_else(|| panic!("{evidence}"));
    assert!(mark == "look" && evidence.contains(" ms ahead of that of most hosts"), "{told:#}");
    assert!((ms - 300.0).abs() <= doubt + 1.0, "it lies within its doubt: {evidence}");
    assert_eq!([of(&told, "n1").0, of(&told, "n3").0], ["good", "good"], "{told:#}");
}

#[test]
fn logins_that_fail_are_told_apart_and_made_to_work_by_what_is_said() {
    let Some(cluster) = Cluster::ready(4, &[]) else { return };
    let client = Client::new(&cluster);
    let scan = "mkdir -p ~/.ssh && ssh-keyscan -t ed25519 n1 n2 n3 n4 2>/dev/null > ~/.ssh/known_hosts";
    for host in ["n2", "n3", "n4"] {
        cluster.on(host, scan);
    }
    // n1 has another key than n3 knows, and refuses n4
    let other = "ssh-keygen -q -t ed25519 -N '' -f ~/other && sed -i '/^n1 /d' ~/.ssh/known_hosts && \
                 echo \"n1 $(cut -d' ' -f1,2 ~/other.pub)\" >> ~/.ssh/known_hosts";
    cluster.on("n3", other);
    cluster.on("n1", "iptables -I INPUT -s 10.77.0.14 -p tcp --dport 22 -j REJECT --reject-with tcp-reset");
    let look = || json(&client.run(&["doctor", "--json", "--only", "logins"]));
    let told = look();
    for (host, seen, cause, remedy) in [
        ("n1", "host key", "is not in known_hosts", "hvtui hosts mesh "),
        ("n2", "Permission denied", "takes none of the keys", "hvtui hosts mesh "),
        ("n3", "IDENTIFICATION HAS CHANGED", "another key than the one", "ssh-keygen -R n1 there"),
        ("n4", "Connection refused", "no ssh server listens", "hvtui hosts mesh "),
    ] {
        let one = verdict(&told, "logins", host);
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        assert_eq!((text("mark"), one["fix"].is_null()), ("look".to_owned(), host == "n3"), "{told:#}");
        let says = text("evidence").to_lowercase().contains(&seen.to_lowercase());
        assert!(says && text("cause").contains(cause) && text("remedy").contains(remedy), "{host}: {one:#}");
    }
    cluster.on("n3", "ssh-keygen -R n1");
    cluster.on("n1", "iptables -F INPUT");
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    let told = look();
    for host in ["n1", "n2", "n3", "n4"] {
        assert_eq!(verdict(&told, "logins", host)["mark"], "good", "{told:#}");
    }
}

#[test]
fn a_login_is_tried_by_the_name_with_what_ssh_is_told_of_it() {
    let Some(cluster) = Cluster::ready(2, &[]) else { return };
    let client = Client::new(&cluster);
    // a key and a port for the name, and a host key that is known by that alone
    cluster.change("sshd", "n2 Port 2222");
    let key = cluster.on("n1", "ssh-keygen -q -t ed25519 -N '' -f ~/own && cat ~/own.pub");
    let of_name = "mkdir -m 700 ~/.ssh && printf 'Host n2\\n  Port 2222\\n  IdentityFile ~/own\\n' > ~/.ssh/config && \
                   chmod 600 ~/.ssh/config && ssh-keyscan -p 2222 -t ed25519 n2 2>/dev/null > ~/.ssh/known_hosts";
    cluster.on("n1", of_name);
    cluster.on("n2", &format!("mkdir -m 700 ~/.ssh && echo '{}' > ~/.ssh/authorized_keys", key.trim()));
    let of_n1 = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "logins"]));
        let one = verdict(&told, "logins", "n1");
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    assert_eq!(of_n1(), ("good".to_owned(), "logs in to n2".to_owned()));
    // where the name leads to another machine the address is tried, of which ssh is told nothing
    let other = "printf '127.0.0.1 localhost\\n10.77.0.11 n1\\n10.77.0.99 n2\\n' > ~/hosts";
    cluster.on("n1", &format!("{other} && mount --bind ~/hosts /etc/hosts"));
    let (mark, seen) = of_n1();
    assert!(
        mark == "look" && seen.starts_with("to n2 (as 10.77.0.12): Host key verification failed"),
        "{seen}"
    );
}

#[test]
fn who_names_the_logins_has_each_pair_of_hosts_tried() {
    let Some(cluster) = Cluster::ready(5, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    // a pair that is not tried among all checks
    cluster.on("n5", "iptables -I INPUT -s 10.77.0.11 -p tcp --dport 22 -j REJECT --reject-with tcp-reset");
    let of = |args: &[&str]| {
        let told = json(&client.run(&[&["doctor", "--json"], args].concat()));
        let one = verdict(&told, "logins", "n1");
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    assert_eq!(of(&[]), ("good".to_owned(), "logs in to n2, n3, n4".to_owned()));
    let (mark, evidence) = of(&["--only", "logins"]);
    assert!(
        mark == "look" && evidence.starts_with("to n5: ") && evidence.contains("Connection refused"),
        "{evidence}"
    );
    cluster.on("n5", "iptables -F INPUT");
    assert_eq!(of(&["--only", "logins"]), ("good".to_owned(), "logs in to n2, n3, n4, n5".to_owned()));
}

#[test]
fn a_login_whose_connection_is_taken_and_not_answered_is_not_told_of_its_keys() {
    let Some(cluster) = Cluster::ready(4, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    // what n1 sends to the port of ssh goes to another one; there nothing is ever said, and `then` is done after the first
    // connection, which is ended `after` so many seconds
    let silent = |host: &str, then: &str, after: f64| {
        let listen = format!(
            "import os, socket, time; s = socket.create_server(('', 2299)); c = s.accept(); os.system('{then}'); time.sleep({after})"
        );
        cluster.on(host, &format!("python3 -c \"{listen}\" >/dev/null 2>&1 &"));
        until("it to listen", || cluster.on(host, "cat /proc/net/tcp").contains(":08FB "));
        let rule =
            "iptables -t nat -I PREROUTING -s 10.77.0.11 -p tcp --dport 22 -j REDIRECT --to-ports 2299";
        assert_eq!(cluster.on(host, &format!("{rule} && echo done")), "done\n");
    };
    let seen = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "logins"]));
        let one = verdict(&told, "logins", "n1").clone();
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        (text("mark"), text("evidence"), text("cause"))
    };
    // one that hangs up once (what ssh sent was not read: a reset), and one that is busy for a moment: tried again, and no fault
    for after in [0.3, 1000.0] {
        silent("n2", "iptables -t nat -F", after);
        let (mark, evidence, _) = seen();
        assert_eq!((mark.as_str(), evidence.as_str()), ("good", "logs in to n2, n3, n4"), "{after}");
    }
    // one that never speaks, and one where the login does not end
    silent("n3", "true", 1000.0);
    cluster.on("n4", "sed -i 's/^from=/command=\"sleep 1000\",from=/' ~/.ssh/authorized_keys");
    let (mark, evidence, cause) = seen();
    assert!(mark == "look" && !cause.contains("keys"), "{evidence}: {cause}");
    assert!(evidence.contains("to n3: Connection timed out during banner exchange"), "{evidence}");
    assert!(evidence.contains("to n4: ") && evidence.contains("does not answer in "), "{evidence}");
    assert!(cause.contains("no ssh server speaks") && cause.contains("the login does not end"), "{cause}");
}
