//! What the hosts of the demo tell the doctor: all is well, but for one host with another torch and one whose PATH is set for
//! login shells alone.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::doctor::door::DOOR;
use crate::domain::doctor::{Peer, SamePath};

/// Which hosts have those troubles, by number.
const OTHER_TORCH: u32 = 1;
const HIDDEN_PATH: u32 = 2;

const G: u64 = 1 << 30;

/// What a check finds on a host, in that check's own form.
pub(super) fn found(
    check: &str,
    (name, address, number): (&str, Option<IpAddr>, u32),
    (peers, paths): (&[Peer], &[SamePath]),
) -> Value {
    match check {
        "hostname" => json!({"name": name, "addresses": address.into_iter().collect::<Vec<_>>()}),
        "logins" => {
            let login = |peer: &Peer| json!({"host": peer.host, "fault": null});
            peers.iter().take(3).map(login).collect()
        }
        "interface" => {
            json!({"variables": {}, "interfaces": ["lo", "eth0"], "mtus": {"lo": 65536, "eth0": 9000}})
        }
        "choice" => json!({"named": {}, "name": name, "address": address, "down": {}, "has_open_mpi": true}),
        "ports" => json!({"held": [], "of_runs": []}),
        "leftover" => json!({"outlived": [], "orphans": []}),
        "clock" => json!({"ahead_us": 900}),
        "kernel" => json!({"newest": null, "reboot": false, "pidfd": true}),
        "sshd" => {
            json!({"is_read": true, "includes": true, "sessions": null, "startups": "100:30:1000", "forwards": null})
        }
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
        "cuda" => json!({"answer": 0}),
        "libraries" => json!({"NCCL": "2.22.3", "cuDNN": "9.1.0"}),
        "compiler" => json!({"gcc": "13.3.0", "nvcc_takes": 13, "of_kernel": null}),
        "image" => json!({"container": {
            "id": "3f2a9c1e", "system": "Ubuntu 24.04", "programs": ["python3"], "gpus": null, "reads_memory": true,
        }}),
        "path" => path(number),
        "python" => python(number),
        "packages" => json!({
            "executable": "/usr/bin/python3", "packages": {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-nccl-cu12": "2.20.5"},
            "wants": [], "frameworks": {"numpy": "1.26.4", "tensorflow": "2.16.1", "torch": torch(number)},
        }),
        "torch" => json!({"version": torch(number), "cuda": "12.4", "missing": []}),
        "tf" => json!({
            "version": "2.16.1", "missing": [], "is_cuda": true, "cuda": "12.3", "cudnn": "9", "cudnn_there": [9], "first_version": null,
        }),
        "horovod" => {
            json!({"version": "0.28.1", "frameworks": ["tensorflow", "torch"], "missing": [], "built": ["gloo", "mpi", "nccl"]})
        }
        "import" => {
            json!([{"module": "torch", "python": "/usr/bin/python3", "version": torch(number)}])
        }
        "mpi" => json!({"mpi": "Open MPI 4.1.6", "agent": null}),
        "docker" => {
            json!({"version": "27.3.1", "refused": null, "gives_gpus": true, "root": "/var/lib/docker", "free": 1500 * G})
        }
        "toolkit" => json!({"version": "1.17.4", "cdi": ["/etc/cdi/nvidia.yaml", null]}),
        "images" => json!({"train:latest": {"id": "3f2a91c07be4", "content": "9c1e22a0f4d1"}}),
        "same" => {
            let file = json!({"file": {"bytes": 4207, "hash": "9b1c04d2e8a7f365"}});
            paths.iter().map(|asked| json!({"asked": asked, "thing": file})).collect()
        }
        DOOR => json!({"port": 45_113, "ssh_port": 22}),
        "reach" => {
            let way = |peer: &Peer| {
                let address = peer.addresses.first()?;
                Some(
                    json!({"host": peer.host, "address": address, "usual": {"refused": 180}, "door": {"open": 180}}),
                )
            };
            json!({"ways": peers.iter().filter_map(way).collect::<Vec<_>>(), "wall": {"ports": [32_768, 60_999]}})
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
    json!({"Ok": {
        "executable": "/usr/bin/python3", "version": "3.11.9",
        "packages": {"torch": torch(number), "horovod": "0.28.1", "tensorflow": "2.16.1", "numpy": "1.26.4"},
        "torch_cuda": "12.4", "libraries": [],
    }})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::doctor::{CHECKS, Entry, Reached, matrix};
    use crate::domain::doctor::SameRole;
    use crate::domain::host::HostInfo;
    use crate::domain::ids::HostId;
    use crate::domain::preflight::Mark;

    #[test]
    fn each_check_reads_what_the_demo_tells_it() {
        let info = serde_json::json!({
            "hostname": "gpu-01", "kernel": "6.8.0", "arch": "x86_64", "user": "you", "cpus": 8, "memory_total": null,
            "boot_id": "b", "agent_version": "0", "addresses": [], "ssh_server_address": null,
            "ssh_client_address": null, "gpus": [], "gpu_absence": null, "driver": null, "cuda_driver": null, "nccl": null,
        });
        let info: Arc<HostInfo> = Arc::new(serde_json::from_value(info).unwrap());
        let hosts = ["gpu-01", "gpu-02", "gpu-03"].map(HostId::from);
        let peers = [Peer {
            host: hosts[1].clone(),
            name: None,
            addresses: vec!["10.20.0.12".parse().unwrap()],
            user: None,
            port: None,
            door: None,
            ports: Vec::new(),
        }];
        let paths = [SamePath { path: "~/train.py".to_owned(), role: SameRole::Script }];
        let mut told = BTreeMap::new();
        for (number, host) in (0..).zip(&hosts) {
            let place = (host.as_str(), "10.20.0.11".parse().ok(), number);
            for entry in &CHECKS {
                told.insert((host.clone(), entry.name), Ok(found(entry.name, place, (&peers, &paths))));
            }
        }
        let reached: Vec<_> =
            hosts.iter().map(|host| (host.clone(), Reached::Up(Arc::clone(&info), None))).collect();
        let checks: Vec<&'static Entry> = CHECKS.iter().collect();
        let matrix = matrix(&checks, &reached, &told, &BTreeMap::new());
        for (row, entry) in matrix.rows.iter().skip(1).zip(&CHECKS).filter(|(_, entry)| entry.looks) {
            let first = &row.verdicts[&hosts[0]];
            // this host of the demo has no address to judge an interface by, and no GPU
            let can_tell = !["interface", "gpu", "cuda"].contains(&entry.name);
            assert!(first.mark == Mark::Good || !can_tell, "{}: {first:?}", row.check);
        }
        let of = |check: &str, at: usize| {
            let row = matrix.rows.iter().find(|row| row.check == check).unwrap();
            row.verdicts[&hosts[at]].mark
        };
        assert_eq!((of("python", 1), of("path", 2)), (Mark::Bad, Mark::Bad), "its troubles");
    }
}
