//! What is wrong with GPUs themselves, and which launches it stops.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::{json, verdict};
use crate::common::built;
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::in_time::StatusInTime;

#[test]
fn faults_of_gpus_are_told_and_a_lost_one_keeps_its_own_runs_from_starting() {
    let scripts = tempfile::tempdir().unwrap();
    let set = |host: &str, gpus: serde_json::Value| {
        let script = serde_json::json!({ "driver": "550.54.14", "gpus": gpus }).to_string();
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    };
    // an uncorrectable error; clocks that heat holds down; pages that wait for a reset, and those that are retired
    set("n1", serde_json::json!([{ "ecc": true, "ecc_uncorrected": 3 }]));
    set("n2", serde_json::json!([{ "throttle": 0x40 }]));
    set("n3", serde_json::json!([{ "pages_retired": [2, 1], "pages_pending": true }]));
    set("n4", serde_json::json!([{ "pages_retired": [2, 1] }, {}]));
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(4, &fake) else { return };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1\n", ""));
    let told = json(&client.run(&["doctor", "--json", "--only", "health"]));
    let of = |told: &serde_json::Value, host: &str| {
        let one = verdict(told, "health", host);
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    for (host, mark, seen) in [
        ("n1", "bad", "GPU 0: ecc errors"),
        ("n2", "bad", "GPU 0: hw thermal"),
        ("n3", "look", "GPU 0: pages due"),
        ("n4", "good", "no GPU has a fault; retired pages of memory: 3 on GPU 0"),
    ] {
        assert_eq!(of(&told, host), (mark.to_owned(), seen.to_owned()), "{told:#}");
    }
    assert_eq!(verdict(&told, "health", "n1")["stops_launch"], false, "its next run may be as it should be");
    set("n4", serde_json::json!([{ "pages_retired": [64, 1] }, {}]));
    let worn = json(&client.run(&["doctor", "--json", "--only", "health", "-H", "n4"]));
    assert_eq!(of(&worn, "n4"), ("look".to_owned(), "retired pages of memory: 65 on GPU 0".to_owned()));

    // a GPU that fell off the bus stops what would use it, and nothing else
    let run = |gpus: &str| client.run(&["run", "--gpus", gpus, "--kind", "torch", "--", "true"]);
    for gpus in ["n1:0", "n2:0", "n3:0", "n4:0"] {
        let ran = run(gpus);
        assert_eq!(ran.code, 0, "{gpus}: {ran:?}");
    }
    set("n4", serde_json::json!([{}, { "errors": lost() }]));
    let told = json(&client.run(&["doctor", "--json", "--only", "health", "-H", "n4"]));
    assert_eq!(of(&told, "n4"), ("bad".to_owned(), "GPU 1: lost".to_owned()), "{told:#}");
    let beside = run("n4:0");
    assert_eq!(beside.code, 0, "{beside:?}");
    let refused = run("n4:1");
    let told = ["n4:1: ", "the GPU is lost", "reboot n4, or leave GPU 1 out"]
        .iter()
        .all(|words| refused.err.contains(words));
    assert!(refused.code == 64 && told, "{refused:?}");
}

#[test]
fn a_power_limit_is_a_fault_where_no_other_gpu_reaches_it() {
    let scripts = tempfile::tempdir().unwrap();
    let set = |host: &str, throttle: u64| {
        let script = serde_json::json!({ "gpus": [{ "throttle": throttle, "util": 99 }] }).to_string();
        std::fs::write(scripts.path().join(format!("{host}.json")), script).unwrap();
    };
    for (host, throttle) in [("n1", 4), ("n2", 0), ("n3", 0)] {
        set(host, throttle);
    }
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(3, &fake) else { return };
    let client = Client::new(&cluster);
    let of_first = || {
        let told = json(&client.run(&["doctor", "--json", "--only", "health"]));
        assert_eq!(verdict(&told, "health", "n3")["mark"], "good", "{told:#}");
        let one = verdict(&told, "health", "n1");
        (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
    };
    assert_eq!(of_first(), ("look".to_owned(), "GPU 0: power cap".to_owned()));
    set("n2", 4);
    assert_eq!(of_first(), ("good".to_owned(), "no GPU has a fault".to_owned()));
}

#[test]
fn gpus_that_start_slowly_and_those_of_the_bus_alone_are_told() {
    let scripts = tempfile::tempdir().unwrap();
    let script = serde_json::json!({ "gpus": [{ "persistence": false }] }).to_string();
    std::fs::write(scripts.path().join("n1.json"), script).unwrap();
    let library = built::example("libfake_nvml.so");
    let fake: [&OsStr; 3] = ["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()];
    let Some(cluster) = Cluster::ready(2, &fake) else { return };
    let client = Client::new(&cluster);
    // a driver that takes longer than it is waited for
    let (source, cuda) = (cluster.dir().join("cuda.c"), cluster.dir().join("libcuda.so.1"));
    let code = "unsigned sleep(unsigned); int cuInit(unsigned f) { while (sleep(60)); return f ? 1 : 0; }\n";
    std::fs::write(&source, code).expect("a source");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&cuda).arg(&source);
    assert!(compile.status_in_time().expect("gcc").success());
    cluster.on("n1", &format!("mkdir -p ~/cuda && cp {} ~/cuda", cuda.display()));
    cluster.on("n1", "/sbin/ldconfig -C ~/ld.cache ~/cuda && mount --bind ~/ld.cache /etc/ld.so.cache");
    let told = json(&client.run(&["doctor", "--json", "--only", "cuda"]));
    let slow = verdict(&told, "cuda", "n1");
    let seen = "cuInit takes longer than 3 s; persistence mode is off (1 of 1 GPUs)";
    assert_eq!((&slow["mark"], &slow["evidence"]), (&"look".into(), &seen.into()), "{told:#}");
    assert_eq!(slow["fix"]["command"], "nvidia-smi -pm 1");
    // a host without a library of the driver: what is on its bus says whether it lacks one
    let look = |devices: &str| {
        let line =
            format!("mkdir -p ~/bus && {devices} && mount --bind ~/bus /sys/bus/pci/devices && echo done");
        let is_done = cluster.on("n2", &line) == "done\n";
        is_done.then(|| {
            let told = json(&client.run(&["doctor", "--json", "--only", "gpu"]));
            assert_eq!(verdict(&told, "gpu", "n1")["mark"], "good", "{told:#}");
            let one = verdict(&told, "gpu", "n2");
            (one["mark"].as_str().unwrap().to_owned(), one["evidence"].as_str().unwrap().to_owned())
        })
    };
    // nothing can be planted on a machine without that bus, nor beside a driver of its own
    if Path::new("/proc/driver/nvidia").exists() {
        return;
    }
    let Some(none) = look("true") else { return };
    assert_eq!(none, ("unknown".to_owned(), "no GPU".to_owned()));
    let card =
        "mkdir ~/bus/0000:01:00.0 && cd ~/bus/0000:01:00.0 && echo 0x10de > vendor && echo 0x030200 > class";
    let seen = "no NVIDIA driver library, and 1 GPU of NVIDIA on the PCI bus";
    assert_eq!(look(card), Some(("look".to_owned(), seen.to_owned())));
}

/// What a GPU answers that fell off the bus: its facts were read before.
fn lost() -> serde_json::Value {
    let values = [
        "util",
        "memory",
        "memory_v1",
        "temperature",
        "power",
        "clock",
        "pstate",
        "throttle",
        "processes",
        "graphics_processes",
        "process_utilization",
        "fan",
        "encoder",
        "decoder",
        "ecc",
        "pcie_link",
        "pcie_throughput",
        "persistence",
        "nvlink",
        "fields",
        "gpm",
        "gpm_sample",
    ];
    values
        .iter()
        .map(|name| ((*name).to_owned(), serde_json::json!("gpu_is_lost")))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
