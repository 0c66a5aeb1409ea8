//! `hvtui doctor` over real ssh: each trouble of a host is planted, found, and told with what helps.

mod alike;
mod before;
mod choice;
mod engines;
mod fixtures;
mod frameworks;
mod gpus;
mod image;
mod packets;
mod places;
mod run_ports;
mod ways;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::built;
use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::until;
use crate::common::terminal::Terminal;
use crate::json_forms::assert_value_fits;

/// The verdict of a check on a host.
fn verdict<'a>(told: &'a Value, check: &str, host: &str) -> &'a Value {
    let checks = told["checks"].as_array().expect("checks");
    let row = checks.iter().find(|row| row["check"] == check).unwrap_or_else(|| panic!("{check}: {told:#}"));
    let verdicts = row["verdicts"].as_array().expect("verdicts");
    verdicts.iter().find(|one| one["host"] == host).unwrap_or_else(|| panic!("{check} of {host}: {row:#}"))
}

fn json(ended: &Ended) -> Value {
    let told = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_value_fits("doctor", &told);
    told
}

#[test]
fn troubles_of_hosts_are_found_and_told_with_what_helps() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    let before = json(&client.run(&["doctor", "--json"]));
    for check in ["ssh", "reach", "path", "python"] {
        for host in ["n1", "n2", "n3"] {
            assert_eq!(verdict(&before, check, host)["mark"], "good", "{before:#}");
        }
    }

    // A program on the PATH of login shells alone, on one of three hosts that all have it.
    let program = |host: &str| {
        let make = "mkdir -p ~/hvd/bin && printf '#!/bin/sh\\n' > ~/hvd/bin/horovodrun && chmod +x ~/hvd/bin/horovodrun";
        cluster.on(host, make);
        cluster.on(host, "echo 'export PATH=$HOME/hvd/bin:$PATH' > ~/.profile");
    };
    program("n2");
    // A Python that has another torch than the others.
    for (host, version) in [("n1", "2.4.0"), ("n2", "2.4.0"), ("n3", "2.3.1")] {
        give_torch(&cluster, host, version, "'12.4'");
    }
    // An interface that is not there, and the toolkit's stub before the driver's library.
    cluster.on("n1", "echo 'export NCCL_SOCKET_IFNAME=eth7' > ~/.profile");
    let stub = "mkdir -p ~/cuda/lib64/stubs && : > ~/cuda/lib64/stubs/libcuda.so.1";
    cluster.on("n3", &format!("{stub} && echo 'export LD_LIBRARY_PATH=$HOME/cuda/lib64/stubs' > ~/.profile"));
    // A port that torchrun wants, taken by another job.
    cluster.on("n2", "python3 -m http.server 29500 >/dev/null 2>&1 &");
    until("it to listen", || cluster.on("n2", "cat /proc/net/tcp").contains(":733C "));
    // A firewall that lets ssh in and drops what ranks say.
    let rule = "iptables -I INPUT -p tcp --dport 1024: ! -i lo -m conntrack --ctstate NEW -j DROP";
    let filtered = cluster.on("n1", &format!("{rule} 2>/dev/null && echo done")) == "done\n";

    let ended = client.run(&["doctor", "--json"]);
    let told = json(&ended);
    assert_eq!(ended.code, 1, "{told:#}");
    let path = verdict(&told, "path", "n2");
    assert!(
        path["mark"] == "look" && path["remedy"].as_str().unwrap().contains("/hvd/bin:$PATH"),
        "{path:#}"
    );
    let python = verdict(&told, "python", "n3");
    assert_eq!(python["mark"], "bad", "{python:#}");
    assert!(
        python["evidence"].as_str().unwrap().contains("torch 2.3.1 (other hosts have 2.4.0)"),
        "{python:#}"
    );
    assert!(python["remedy"].as_str().unwrap().ends_with("-m pip install torch==2.4.0"), "{python:#}");
    assert_eq!(verdict(&told, "python", "n1")["mark"], "good");
    let interface = verdict(&told, "interface", "n1");
    assert!(
        interface["evidence"].as_str().unwrap().starts_with("NCCL_SOCKET_IFNAME=eth7, and there is "),
        "{interface:#}"
    );
    assert_eq!(
        (&interface["mark"], &verdict(&told, "interface", "n2")["mark"]),
        (&"bad".into(), &"good".into())
    );
    let stub = verdict(&told, "stub", "n3");
    assert!(
        stub["mark"] == "bad" && stub["evidence"].as_str().unwrap().contains("/stubs/libcuda.so.1"),
        "{stub:#}"
    );
    let ports = verdict(&told, "ports", "n2");
    let holder = cluster.on("n2", "pgrep -f '[h]ttp.server 29500'");
    let ends = format!("kill {} there ends what has 29500; ", holder.trim());
    assert!(ports["remedy"].as_str().unwrap().starts_with(&ends), "{ports:#}");
    let taken =
        "29500 (torch's MASTER_PORT) is taken by root (python3 -m http.server 29500), for every machine";
    assert_eq!((&ports["mark"], &ports["evidence"]), (&"look".into(), &taken.into()));
    // No host of the test has another one's key.
    let logins = verdict(&told, "logins", "n3");
    assert!(
        logins["mark"] == "look" && logins["evidence"].as_str().unwrap().contains("to n1, n2: "),
        "{logins:#}"
    );
    assert!(filtered, "the firewall of n1 could not be set");
    let reach = verdict(&told, "reach", "n2");
    assert_eq!(reach["mark"], "bad", "{reach:#}");
    assert!(reach["evidence"].as_str().unwrap().contains("listens gets no answer from n1"), "{reach:#}");

    cluster.on("n1", "iptables -F INPUT; rm ~/.profile");
    assert_eq!(client.run(&["hosts", "mesh", "--yes"]).code, 0);
    let meshed = json(&client.run(&["doctor", "--json", "--only", "logins,reach,interface"]));
    for (check, host) in [("logins", "n3"), ("logins", "n1"), ("reach", "n2"), ("interface", "n1")] {
        assert_eq!(verdict(&meshed, check, host)["mark"], "good", "{meshed:#}");
    }

    // What is printed for people says the same.
    let shown = client.run(&["doctor", "--only", "python,path"]);
    assert_eq!(shown.code, 1, "{shown:?}");
    for words in ["✖ python     n3: ", "torch 2.3.1 (other hosts have 2.4.0)", "fix: ", "⚠ path       n2: "]
    {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }

    // And a part of it is no state that the next look is compared with.
    cluster.on("n3", "rm -r ~/.local/lib");
    give_torch(&cluster, "n3", "2.4.0", "'12.4'");
    let changed = client.run(&["doctor", "--since", "last"]);
    assert!(changed.out.contains("✔ python     n3: "), "{changed:?}");
    assert!(changed.out.contains("was: ✖ "), "{changed:?}");
}

#[test]
fn a_remedy_that_is_one_command_is_run_when_a_person_says_so_and_looked_at_again() {
    let scripts = tempfile::tempdir().unwrap();
    std::fs::write(scripts.path().join("n2.json"), r#"{ "driver": "550.54.14", "gpus": [{}] }"#).unwrap();
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    let program =
        "mkdir -p ~/hvd/bin && printf '#!/bin/sh\\n' > ~/hvd/bin/horovodrun && chmod +x ~/hvd/bin/horovodrun";
    cluster.on("n2", program);
    cluster.on("n2", "echo 'export PATH=$HOME/hvd/bin:$PATH' > ~/.profile; echo 'umask 022' > ~/.bashrc; chmod 600 ~/.bashrc");
    let Some(terminal) =
        Terminal::start(&client.hvtui(&["doctor", "--only", "path,logins", "--fix"]), 150, 50)
    else {
        return;
    };
    // the first one is refused: nothing happens
    terminal.wait("the logins", |screen| screen.contains("1 of 2, would run here: hvtui hosts mesh"));
    terminal.type_in("n\n");
    let asked = terminal.wait("the PATH", |screen| screen.contains("2 of 2, would run on n2: "));
    assert!(asked.contains("/hvd/bin:\\$PATH"), "{asked}");
    assert!(!cluster.on("n2", "cat ~/.bashrc").contains("hvd"), "not before it is wanted");
    terminal.type_in("y\n");
    let screen = terminal.assert_restored(0);
    assert!(screen.contains("looking again: path") && screen.contains("✔ path"), "{screen}");
    let file = cluster.on("n2", "cat ~/.bashrc; stat -c %a ~/.bashrc; ls -a ~");
    assert!(
        file.starts_with("export PATH=")
            && file.contains("\numask 022\n600\n")
            && !file.contains("bashrc.hvtui"),
        "{file}"
    );
    let without = client.run(&["doctor", "--only", "logins", "--fix"]);
    assert!(
        without.code == 64
            && without.out.is_empty()
            && without.err.contains("--fix asks before each command"),
        "{without:?}"
    );
    // what helps is run with root's own right, and hvtui's own command for all hosts together
    let toolkit = "mkdir -p /run/cdi && echo '- hostPath: /usr/lib/libcuda.so.535.54.03' > /run/cdi/nvidia.yaml && \
                   printf '#!/bin/sh\ncase $1 in cdi) echo /lib/libcuda.so.550.54.14 > ${3#--output=};; *) echo CLI version 1.17.4;; esac\n' \
                   > ~/hvd/bin/nvidia-ctk && chmod +x ~/hvd/bin/nvidia-ctk && mount --bind ~/hvd/bin /usr/local/sbin";
    cluster.on("n2", toolkit);
    let fix = client.hvtui(&["doctor", "--only", "toolkit,logins", "--fix"]);
    let Some(terminal) = Terminal::start(&fix, 150, 50) else { return };
    terminal.wait("the logins", |screen| screen.contains("1 of 2, would run here: hvtui hosts mesh"));
    terminal.type_in("y\n");
    terminal.wait("the question of the mesh", |screen| screen.contains("will be written on n1"));
    terminal.type_in("y\n");
    terminal.wait("the description", |screen| {
        screen.contains("2 of 2, would run on n2: nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml")
    });
    terminal.type_in("y\n");
    let screen = terminal.assert_restored(0);
    assert!(screen.contains("✔ logins") && screen.contains("✔ toolkit"), "{screen}");
    assert_eq!(cluster.on("n2", "cat /run/cdi/nvidia.yaml"), "/lib/libcuda.so.550.54.14\n");
    the_second_look_looks_for_the_same_module(&cluster, &client);
}

/// n1 lacks a module, which no command helps against; n2 has another torch, which its pip replaces.
fn the_second_look_looks_for_the_same_module(cluster: &Cluster, client: &Client<'_>) {
    give_torch(cluster, "n1", "2.4.0", "None");
    give_torch(cluster, "n2", "2.3.1", "None");
    let pip = "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages; mkdir -p $d/apex $d/pip; : > $d/apex/__init__.py; \
               : > $d/pip/__init__.py; printf 'import os\nos.system(\"sed -i s/2.3.1/2.4.0/ \
               ~/.local/lib/python3.*/site-packages/torch-2.3.1.dist-info/METADATA\")\n' > $d/pip/__main__.py; done";
    cluster.on("n2", pip);
    let fix = client.hvtui(&["doctor", "--only", "python", "--module", "apex", "--fix"]);
    let Some(terminal) = Terminal::start(&fix, 150, 50) else { return };
    terminal.wait("pip", |screen| {
        screen.contains("1 of 1, would run on n2: ") && screen.contains("torch==2.4.0")
    });
    terminal.type_in("y\n");
    let screen = terminal.assert_restored(1);
    let again = screen.rsplit("looking again: python").next().unwrap_or_default();
    assert!(again.contains("finds no module apex (n2 has it)") && !again.contains("2.3.1"), "{screen}");
}

/// A Python of a host that has this torch.
fn give_torch(cluster: &Cluster, host: &str, version: &str, cuda: &str) {
    let line = format!(
        "for v in 9 10 11 12 13; do d=~/.local/lib/python3.$v/site-packages; mkdir -p $d/torch-{version}.dist-info $d/torch; \
         printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: {version}\\n' > $d/torch-{version}.dist-info/METADATA; \
         printf \"__version__ = '{version}'\\ncuda = {cuda}\\n\" > $d/torch/version.py; : > $d/torch/__init__.py; done"
    );
    cluster.on(host, &line);
}

#[test]
fn file_systems_and_drivers_are_judged_on_the_host_itself() {
    let scripts = tempfile::tempdir().unwrap();
    let gpus = serde_json::json!([{ "uuid": "GPU-00000000-0000-0000-0000-000000000001" }]);
    let good = serde_json::json!({ "gpus": gpus, "cuda": 12040 });
    let mismatch = serde_json::json!({ "init": "lib_rm_version_mismatch", "library": "550.90.07" });
    for (host, script) in [("n1", &good), ("n2", &mismatch), ("n3", &good), ("n4", &good)] {
        std::fs::write(scripts.path().join(format!("{host}.json")), script.to_string()).unwrap();
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(4, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    give_torch(&cluster, "n1", "2.4.0", "'12.4'");
    give_torch(&cluster, "n3", "2.4.0", "None");
    // Docker's /dev/shm, and a folder for temporary files that is small and noexec.
    cluster.change("disk", "n1 /dev/shm 65536");
    cluster.change("disk", "n4 /run/small 65536 noexec");
    cluster.change("sshd", "n4 SetEnv TMPDIR=/run/small");
    // A driver that waits for the program which sets up the NVSwitches.
    let source = cluster.dir().join("cuda.c");
    std::fs::write(&source, "int cuInit(unsigned flags) { return flags ? 1 : 802; }\n").expect("a source");
    let library = cluster.dir().join("libcuda.so.1");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compile.status_in_time().expect("gcc").success());
    cluster.on("n3", &format!("mkdir -p ~/cuda && cp {} ~/cuda", library.display()));
    cluster.on("n3", "/sbin/ldconfig -C ~/ld.cache ~/cuda && mount --bind ~/ld.cache /etc/ld.so.cache");
    let told = json(&client.run(&["doctor", "--json"]));
    let mark = |check: &str, host: &str| verdict(&told, check, host)["mark"].as_str().unwrap().to_owned();
    assert_eq!([mark("shm", "n1"), mark("shm", "n2")], ["bad", "good"], "{told:#}");
    assert_eq!([mark("tmp", "n4"), mark("tmp", "n1")], ["look", "good"], "{told:#}");
    assert_eq!([mark("disk", "n4"), mark("disk", "n1")], ["bad", "good"], "{told:#}");
    let gpu = verdict(&told, "gpu", "n2");
    assert!(gpu["mark"] == "bad" && gpu["evidence"].as_str().unwrap().contains("550.90.07"), "{gpu:#}");
    assert_eq!(
        [mark("gpu", "n1"), mark("health", "n1"), mark("health", "n2")],
        ["good", "good", "unknown"],
        "{told:#}"
    );
    assert_eq!([mark("torch", "n1"), mark("torch", "n3")], ["good", "bad"], "{told:#}");
    let cuda = verdict(&told, "cuda", "n3");
    assert_eq!(cuda["evidence"], "cuInit answers 802 (CUDA_ERROR_SYSTEM_NOT_READY)", "{told:#}");
    assert_eq!(cuda["remedy"], "systemctl restart nvidia-fabricmanager");
    assert_eq!([mark("cuda", "n1"), mark("cuda", "n2")], ["unknown", "unknown"], "{told:#}");
    let torch = verdict(&told, "torch", "n3")["evidence"].as_str().unwrap();
    assert_eq!(torch, "torch 2.4.0 is built without CUDA");
    a_session_folder_of_another_user_is_told(&cluster, &client);
}

/// Open MPI's, on n2.
fn a_session_folder_of_another_user_is_told(cluster: &Cluster, client: &Client<'_>) {
    cluster.change("sshd", "n2 SetEnv TMPDIR=/run/own");
    let look = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "tmp", "-H", "n2"]));
        verdict(&told, "tmp", "n2").clone()
    };
    let folder = cluster.on("n2", "mkdir -p /run/own/ompi.n2.$(id -u) && echo /run/own/ompi.n2.$(id -u)");
    let own = look();
    assert_eq!(own["mark"], "good", "{own:#}");
    cluster.on("n2", "chown 65534 /run/own/ompi.n2.*");
    let foreign = look();
    let folder = folder.trim();
    assert_eq!(
        (&foreign["mark"], &foreign["evidence"], &foreign["remedy"]),
        (&"bad".into(), &format!("{folder} is not yours").into(), &format!("rm -r {folder}").into())
    );
}

#[test]
fn what_runs_leave_behind_and_where_they_listen_is_told() {
    let scripts = tempfile::tempdir().unwrap();
    let gpu = |used: u64, persistence: bool| {
        let uuid = "GPU-00000000-0000-0000-0000-000000000001";
        let gpu = serde_json::json!({
            "uuid": uuid, "memory_total": 80_u64 << 30, "memory_used": used, "persistence": persistence
        });
        serde_json::json!({ "gpus": [gpu] }).to_string()
    };
    for (host, script) in [("n1", gpu(0, true)), ("n2", gpu(60 << 30, false))] {
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    // a server that takes few logins at once, by the file that it was started with
    let file = cluster.dir().join("n2/sshd_config");
    let line =
        format!("echo MaxStartups 2:50:4 > ~/sshd_config && mount --bind ~/sshd_config {}", file.display());
    cluster.on("n2", &line);
    // a run that has ended and has left a process that its supervisor did not see, and one that listens
    let ended = client.run(&["run", "-H", "n1:1", "--", "sh", "-c", "echo run=$HVTUI_RUN"]);
    let run = ended.out.split("run=").nth(1).expect("its id").trim();
    cluster.on("n1", &format!("HVTUI_RUN={run} HVTUI_HOST=n1 setsid sleep 1000 >/dev/null 2>&1 &"));
    let listens = "import socket,time; s = socket.create_server(('10.77.0.11', 41234)); t = socket.create_server(('', 41235)); \
                   print('up', flush=True); time.sleep(1000)";
    let started = client.run(&["run", "--detach", "-H", "n1:1", "--", "python3", "-c", listens]);
    assert_eq!(started.code, 0, "{started:?}");
    until("it to listen", || client.run(&["logs", "last"]).out.contains("up"));
    let told = json(&client.run(&["doctor", "--json", "--only", "ports,leftover,health,sshd"]));
    let of = |check: &str, host: &str| {
        let one = verdict(&told, check, host);
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    let ports = of("ports", "n1");
    assert!(
        ports.0 == "good" && ports.1.contains(" listens on 10.77.0.11:41234, 41235 for every machine"),
        "{told:#}"
    );
    let left = of("leftover", "n1");
    assert!(left.0 == "look" && left.1.starts_with("1 process has outlived run "), "{told:#}");
    assert!(left.1.contains(" (sleep): pid "), "{told:#}");
    let held = "held by no process that is seen: GPU 0: 60 G";
    assert_eq!(of("leftover", "n2").1, held, "{told:#}");
    assert_eq!([of("health", "n1").0, of("health", "n2").0], ["good", "look"], "{told:#}");
    assert!(of("health", "n2").1.starts_with("persistence mode is off"), "{told:#}");
    let sshd = of("sshd", "n2");
    assert!(
        sshd.0 == "look" && sshd.1.contains("OpenSSH_") && sshd.1.contains("MaxStartups 2:50:4"),
        "{told:#}"
    );
    assert!(of("ssh", "n1").1.contains(", by key /"), "{told:#}");
    // what is ended as it says is not told again
    let pid = left.1.rsplit(' ').next().unwrap();
    cluster.on("n1", &format!("kill {pid}"));
    let told = json(&client.run(&["doctor", "--json", "--only", "leftover"]));
    assert_eq!(verdict(&told, "leftover", "n1")["mark"], "good", "{told:#}");
    assert_eq!(client.run(&["stop", "last", "--now"]).code, 0);
    // that process has all the memory of the GPU of n2
    let holds = |pid: u32| {
        let mut script: Value = serde_json::from_str(&gpu(60 << 30, false)).unwrap();
        script["gpus"][0]["processes"] = serde_json::json!([{ "pid": pid, "memory": 60_u64 << 30 }]);
        std::fs::write(scripts.path().join("n2.json"), script.to_string()).unwrap();
    };
    a_rank_whose_launcher_is_gone_is_told(&cluster, &client, holds);
}

/// On n2 there is one, and one whose launcher lives; and one that was started by hand, as it may be wanted.
fn a_rank_whose_launcher_is_gone_is_told(cluster: &Cluster, client: &Client<'_>, holds: impl Fn(u32)) {
    let by_hand = "exec env RANK=1 WORLD_SIZE=2 python3 -c 'import time; time.sleep(1000)'";
    let rank = by_hand.replace("RANK=1 ", "TORCHELASTIC_RUN_ID=none RANK=1 ");
    cluster.on("n2", &format!("setsid sh -c \"({rank}); true\" >/dev/null 2>&1 &"));
    cluster.on("n2", &format!("setsid sh -c \"{rank}\" >/dev/null 2>&1 &"));
    let ranks = || {
        let is_one = |args: &str| args.ends_with("-c import time; time.sleep(1000)");
        let all = cluster.processes("n2").into_iter();
        let all = all.filter(|process| process.name.starts_with("python") && is_one(&process.args));
        all.map(|process| process.pid).collect::<Vec<_>>()
    };
    until("both ranks", || ranks().len() == 2);
    let look = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "leftover"]));
        verdict(&told, "leftover", "n2").clone()
    };
    let left = look();
    let seen = left["evidence"].as_str().unwrap();
    assert!(
        left["mark"] == "look" && seen.starts_with("1 rank of no run has lost its launcher (python"),
        "{left:#}"
    );
    // what is ended as it says is the one without a launcher
    cluster.on("n2", left["fix"]["command"].as_str().unwrap());
    until("the end of one", || ranks().len() == 1);
    let with_launcher = ranks();
    cluster.on("n2", &format!("setsid sh -c \"{by_hand}\" >/dev/null 2>&1 &"));
    until("the one by hand", || ranks().len() == 2);
    let after = look();
    assert!(after["evidence"].as_str().unwrap().starts_with("held by no process that is seen"), "{after:#}");
    let pid = ranks().into_iter().find(|pid| !with_launcher.contains(pid)).expect("the one by hand");
    holds(pid);
    let held = look();
    let seen = held["evidence"].as_str().unwrap();
    let is_told = seen.starts_with("1 process without parent and terminal holds memory of a GPU (python")
        && seen.ends_with(&format!("): pid {pid}"));
    assert!(held["mark"] == "look" && is_told, "{held:#}");
    assert_eq!(held["fix"], Value::Null, "{held:#}");
}

#[test]
fn a_bundle_shows_its_files_first_and_holds_no_secret() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    let env = "slots = 1\nenv = { HF_TOKEN = \"geheim-0123456789\" }\n";
    let toml = cluster.hosts_toml(1).replace("slots = 1\n", env);
    client.write("hosts.toml", &toml);
    let script = "echo password=geheim-0123456789; echo $HF_TOKEN; exit 3";
    assert_eq!(client.run(&["run", "-np", "1", "--", "sh", "-c", script]).code, 3);
    let unasked = client.run(&["doctor", "--only", "shm", "--bundle", "help.tar.gz"]);
    assert_eq!(unasked.code, 64, "{unasked:?}");
    // before any host is asked
    assert!(unasked.out.is_empty() && unasked.err.contains("--yes"), "{unasked:?}");
    assert!(!client.path("help.tar.gz").exists());
    let written = client.run(&["doctor", "--bundle", "help.tar.gz", "--yes"]);
    assert!(written.out.contains("help.tar.gz will hold:"), "{written:?}");
    assert!(written.out.contains("written: help.tar.gz"), "{written:?}");
    let unpacked = std::process::Command::new("tar")
        .args(["-xzf", "help.tar.gz"])
        .current_dir(client.path(""))
        .status_in_time()
        .expect("tar");
    assert!(unpacked.success());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(client.path("hvtui")).unwrap() {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(!text.contains("geheim-0123456789"), "{name}: {text}");
        assert!(written.out.contains(&name), "{name} is shown first");
        names.push(name);
    }
    for name in ["about.txt", "doctor.json", "hosts.toml", "hosts.json", "runs.json", "failed-run-log.txt"] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
    let nowhere = client.run(&["doctor", "--bundle", "no/such/folder/x.tar.gz"]);
    assert!(nowhere.code == 64 && nowhere.err.contains("there is no such folder"), "{nowhere:?}");
    // what was found a while ago is kept, too
    let since = client.run(&["doctor", "--since", "1d"]);
    assert!(since.out.starts_with("since "), "{since:?}");
    let wrong = client.run(&["doctor", "--since", "yesterday"]);
    assert!(wrong.code == 64 && wrong.err.contains("1d, 12h"), "{wrong:?}");
}

#[test]
fn a_host_that_hangs_or_is_gone_keeps_no_other_one_waiting() {
    let Some(cluster) = Cluster::ready(3, &[]) else { return };
    let client = Client::new(&cluster);
    assert_eq!(client.run(&["hosts", "check"]).code, 0);
    // Its Python never answers; and one host is not there.
    let hangs =
        "mkdir -p ~/bin && printf '#!/bin/sh\\nexec sleep 1000\\n' > ~/bin/python3 && chmod +x ~/bin/python3";
    cluster.on("n2", hangs);
    let hangs_too = hangs;
    cluster.change("sshd", "n2 SetEnv PATH=/root/bin:/usr/local/bin:/usr/bin:/bin");
    let toml = cluster.hosts_toml(1) + "\n[[host]]\nname = \"gone\"\naddress = \"10.77.0.200\"\n";
    client.write("hosts.toml", &toml);
    let ended = client.run(&["doctor", "--json", "--only", "python,shm,kernel"]);
    let told = json(&ended);
    assert_eq!(ended.code, 1, "a host that is not reached is red: {told:#}");
    assert_eq!(verdict(&told, "ssh", "gone")["mark"], "bad", "{told:#}");
    assert_eq!(verdict(&told, "shm", "gone")["mark"], "unknown");
    assert_eq!(verdict(&told, "shm", "n2")["mark"], "good");
    assert_eq!(verdict(&told, "python", "n1")["mark"], "good");
    let hangs = verdict(&told, "python", "n2");
    assert_eq!(hangs["evidence"], "/root/bin/python3 does not answer in 3.5 s", "{told:#}");
    // and one that dies in the middle of it: what it has not told is told as such
    cluster.on("n3", hangs_too);
    cluster.change("sshd", "n3 SetEnv PATH=/root/bin:/usr/local/bin:/usr/bin:/bin");
    let mut asking = client.hvtui(&["doctor", "--json", "--only", "python,shm"]);
    let asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui");
    until("its Python to be asked", || {
        cluster.processes("n3").iter().any(|process| process.args.ends_with("sleep 1000"))
    });
    cluster.change("cut", "n3");
    let out = asking.output_in_time().expect("its end");
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(verdict(&told, "python", "n3")["mark"], "unknown", "{told:#}");
    assert_eq!(
        [&verdict(&told, "python", "n1")["mark"], &verdict(&told, "shm", "n2")["mark"]],
        ["good", "good"],
        "{told:#}"
    );
    cluster.change("heal", "n3");
}

#[test]
fn a_run_that_failed_names_the_checks_that_fit() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    let failed = client.run(&["run", "-np", "1", "--", "python3", "-c", "import no_such_module"]);
    let hint = format!(
        "what may be wrong there: hvtui --hosts {} doctor --only python,path --module no_such_module -H n1",
        client.path("hosts.toml").display()
    );
    assert!(failed.code == 1 && failed.err.contains(&hint), "{failed:?}");
    // what it names can be typed as it stands, and finds the cause
    let look = || client.run(&["doctor", "--only", "python,path", "--module", "no_such_module", "-H", "n1"]);
    let looked = look();
    let found =
        looked.out.contains("finds no module no_such_module (none of the hosts that were asked has it)");
    assert!(looked.code == 1 && found, "{looked:?}");
    let environment = "~/venvs/train/lib/python3.11/site-packages/no_such_module ~/venvs/train/bin";
    cluster.on("n1", &format!("mkdir -p {environment} && ln -s /usr/bin/python3 ~/venvs/train/bin/"));
    let looked = look();
    assert!(looked.out.contains("run in that environment: hvtui run --venv /root/venvs/train"), "{looked:?}");
    let there = client.run(&["doctor", "--only", "python", "--module", "json.tool"]);
    assert!(there.code == 0, "{there:?}");
    for (module, says) in
        [("a b", "write the name of a Python module"), ("", "write the name of a Python module")]
    {
        let ended = client.run(&["doctor", "--module", module]);
        assert!(ended.code == 64 && ended.err.contains(says), "{ended:?}");
    }
    let fine = client.run(&["run", "-np", "1", "--", "sh", "-c", "echo No module named x"]);
    assert!(fine.code == 0 && !fine.err.contains("what may be wrong there"), "{fine:?}");
    let other = client.run(&["run", "-np", "1", "--", "false"]);
    assert!(other.code == 1 && !other.err.contains("what may be wrong there"), "{other:?}");
}

#[test]
fn what_can_not_be_asked_is_refused_with_what_can() {
    let Some(cluster) = Cluster::ready(1, &[]) else { return };
    let client = Client::new(&cluster);
    let ended = client.run(&["doctor", "--only", "shmm"]);
    assert_eq!(ended.code, 64);
    assert!(ended.err.contains("there is no check 'shmm': ") && ended.err.contains(" shm,"), "{ended:?}");
    let ended = client.run(&["doctor", "--since", "last"]);
    let remedy = ended.err.contains("run `hvtui --hosts ") && ended.err.contains(" doctor` once");
    assert!(ended.code == 64 && remedy, "{ended:?}");
    let ended = client.run(&["doctor", "-H", "n9"]);
    assert_eq!(ended.code, 64, "{ended:?}");
}
