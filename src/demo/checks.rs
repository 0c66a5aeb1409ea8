//! What the hosts of the demo tell the doctor: all is well, but for one host with another torch and one whose PATH is set for
//! login shells alone.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::domain::doctor::Peer;

/// Which hosts have those troubles, by number.
const OTHER_TORCH: u32 = 1;
const HIDDEN_PATH: u32 = 2;

const G: u64 = 1 << 30;

/// What a check finds on a host, in that check's own form.
pub(super) fn found(
    check: &str,
    (name, address, number): (&str, Option<IpAddr>, u32),
    peers: &[Peer],
) -> Value {
    match check {
        "hostname" => json!({"name": name, "addresses": address.into_iter().collect::<Vec<_>>()}),
        "logins" => {
            let login = |peer: &Peer| json!({"host": peer.host, "fault": null});
            peers.iter().take(3).map(login).collect()
        }
        "interface" => json!({"variables": {}, "interfaces": ["lo", "eth0"]}),
        "ports" => json!([]),
        "clock" => json!({"ahead_us": 900}),
        "kernel" => json!({"newest": null, "reboot": false}),
        "logout" => json!({"ends": null}),
        "disk" => {
            json!([{"path": "/home/you", "total": 7168 * G, "free": 2210 * G, "files_free": 400_000_000, "read_only": false}])
        }
        "tmp" => json!({"folder": "/tmp", "unwritable": null, "noexec": false, "foreign": null}),
        "shm" => json!({"total": 1008 * G, "free": 1001 * G}),
        "limits" => {
            json!({"files": 1_048_576, "files_hard": 1_048_576, "locked": null, "processes": null, "rdma": true})
        }
        "stub" => {
            json!({"first": "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "is_stub": false, "by": "the loader's cache"})
        }
        "libraries" => json!({"NCCL": "2.22.3", "cuDNN": "9.1.0"}),
        "path" => path(number),
        "python" => python(number),
        "torch" => json!({"version": torch(number), "cuda": "12.4"}),
        "horovod" => json!({"version": "0.28.1", "frameworks": ["tensorflow", "torch"], "missing": []}),
        "mpi" => json!({"mpi": "Open MPI 4.1.6", "agent": null}),
        "docker" => json!({"installed": true, "version": "27.3.1", "refused": null, "gives_gpus": true}),
        "reach" => {
            let way = |peer: &Peer| {
                let address = peer.addresses.first()?;
                Some(json!({"host": peer.host, "address": address, "high_us": 180, "why": null, "ssh": true}))
            };
            peers.iter().filter_map(way).collect()
        }
        _ => Value::Null,
    }
}

fn torch(number: u32) -> &'static str {
    if number == OTHER_TORCH { "2.3.1+cu121" } else { "2.4.0+cu124" }
}

fn path(number: u32) -> Value {
    let usual = |name: &str| json!([format!("/usr/bin/{name}"), format!("/usr/bin/{name}")]);
    let conda = |name: &str| {
        let at = format!("/opt/conda/bin/{name}");
        let over_ssh = (number != HIDDEN_PATH).then(|| at.clone());
        json!([over_ssh, at])
    };
    let programs = json!({
        "docker": usual("docker"), "horovodrun": conda("horovodrun"), "mpirun": usual("mpirun"),
        "nvidia-smi": usual("nvidia-smi"), "orted": usual("orted"), "python3": usual("python3"),
        "torchrun": conda("torchrun"),
    });
    json!({"programs": programs, "login": null})
}

fn python(number: u32) -> Value {
    json!({
        "executable": "/usr/bin/python3", "version": "3.11.9",
        "packages": {"torch": torch(number), "horovod": "0.28.1", "tensorflow": "2.16.1", "numpy": "1.26.4"},
        "torch_cuda": "12.4", "libraries": [],
    })
}
