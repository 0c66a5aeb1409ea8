//! The command lines that people bring along, each with all that is understood of it.

use super::fixtures::*;
use super::*;
use crate::domain::options::TaskRole;
use crate::domain::run::JobKind;

const LEAKS: &str =
    "horovodrun writes the whole environment on ssh's command line, readable by other users; hvtui does not.";
const UNBOUND: &str =
    "`-bind-to none -map-by slot` is what hvtui does: ranks fill the hosts in order, unbound.";

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// Compares with a line's words as `argv`; for lines without quotes.
fn check(line: &str, expected: Pasted) {
    let expected = Pasted { argv: words(line), ..expected };
    assert_eq!(pasted(line), expected, "{line}");
}

#[test]
fn horovodrun_on_this_machine() {
    check(
        "horovodrun -np 2 -H localhost:2 python tensorflow2_mnist.py",
        Pasted {
            launcher: Launcher::Horovodrun,
            kind: JobKind::Horovod,
            command: words("python tensorflow2_mnist.py"),
            np: Some(2),
            hosts: vec![host("localhost", 2)],
            ..Pasted::default()
        },
    );
}

#[test]
fn horovodrun_on_two_hosts() {
    check(
        "horovodrun -np 4 -H 10.163.6.155:2,10.163.24.200:2 --network-interface eth0 -p 9435 --verbose python tensorflow2_mnist.py",
        Pasted {
            launcher: Launcher::Horovodrun,
            kind: JobKind::Horovod,
            command: words("python tensorflow2_mnist.py"),
            np: Some(4),
            hosts: vec![host("10.163.6.155", 2), host("10.163.24.200", 2)],
            interfaces: strings(&["eth0"]),
            ssh_port: Some(9435),
            verbose: true,
            remarks: strings(&[
                "horovodrun needs an interface named eth0 on each host; hvtui asks each host before it starts.",
                LEAKS,
            ]),
            ..Pasted::default()
        },
    );
}

#[test]
fn mpirun_on_this_machine() {
    check(
        "mpirun -np 2 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib python tensorflow2_mnist.py",
        Pasted {
            launcher: Launcher::Mpirun,
            kind: JobKind::Mpi,
            command: words("python tensorflow2_mnist.py"),
            np: Some(2),
            env: pairs(&[("NCCL_DEBUG", "INFO")]),
            env_from_here: strings(&["LD_LIBRARY_PATH", "PATH"]),
            mca: pairs(&[("pml", "ob1"), ("btl", "^openib")]),
            bind_to: Some("none".to_owned()),
            map_by: Some("slot".to_owned()),
            remarks: strings(&[UNBOUND]),
            ..Pasted::default()
        },
    );
}

#[test]
fn mpirun_on_two_hosts_with_sshd_on_another_port() {
    let line = "mpirun -np 4 -H 10.163.6.155:2,10.163.24.200:2 --allow-run-as-root -bind-to none -map-by slot -mca plm_rsh_args \"-p 9435\" -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -x NCCL_SOCKET_IFNAME=^lo,docker0 -mca pml ob1 -mca btl ^openib -mca btl_tcp_if_exclude lo,docker0 python tensorflow2_mnist.py";
    let read = pasted(line);
    assert_eq!(
        read,
        Pasted {
            argv: Line::typed(line).unwrap().words.into_iter().map(|word| word.text).collect(),
            launcher: Launcher::Mpirun,
            kind: JobKind::Mpi,
            command: words("python tensorflow2_mnist.py"),
            np: Some(4),
            hosts: vec![host("10.163.6.155", 2), host("10.163.24.200", 2)],
            ssh_port: Some(9435),
            env: pairs(&[("NCCL_DEBUG", "INFO"), ("NCCL_SOCKET_IFNAME", "^lo,docker0")]),
            env_from_here: strings(&["LD_LIBRARY_PATH", "PATH"]),
            exclude_interfaces: strings(&["lo", "docker0"]),
            mca: pairs(&[("pml", "ob1"), ("btl", "^openib"), ("btl_tcp_if_exclude", "lo,docker0")]),
            bind_to: Some("none".to_owned()),
            map_by: Some("slot".to_owned()),
            remarks: strings(&[
                "`--allow-run-as-root` has no effect: hvtui starts as the user that it runs as.",
                "Open MPI 5 ignores `-mca plm_rsh_args '-p 9435'`: the parameter is called `plm_ssh_args` there; hvtui reads ssh's arguments from it.",
                UNBOUND,
            ]),
            ..Pasted::default()
        }
    );
    // from a shell, the same words come without their quotes
    assert_eq!(read_words(&read.argv).unwrap(), Some(read.clone()));
}

#[test]
fn mpirun_as_root_with_both_kinds_of_dashes() {
    check(
        "mpirun --allow-run-as-root -n 4 --bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH python ddp_case1_horovod.py",
        Pasted {
            launcher: Launcher::Mpirun,
            kind: JobKind::Mpi,
            command: words("python ddp_case1_horovod.py"),
            np: Some(4),
            env: pairs(&[("NCCL_DEBUG", "INFO")]),
            env_from_here: strings(&["LD_LIBRARY_PATH"]),
            bind_to: Some("none".to_owned()),
            map_by: Some("slot".to_owned()),
            remarks: strings(&[
                "`--allow-run-as-root` has no effect: hvtui starts as the user that it runs as.",
                UNBOUND,
            ]),
            ..Pasted::default()
        },
    );
}

#[test]
fn tf_config_with_two_workers_on_this_machine() {
    let line = r#"TF_CONFIG='{"cluster": {"worker": ["localhost:9761", "localhost:9762"]}, "task": {"index": 0, "type": "worker"}}' python worker.py"#;
    let worker = |port| Task { role: TaskRole::Worker, host: "localhost".to_owned(), port };
    assert_eq!(
        pasted(line),
        Pasted {
            launcher: Launcher::TfConfig,
            kind: JobKind::Tensorflow,
            argv: words("python worker.py"),
            command: words("python worker.py"),
            np: Some(2),
            hosts: vec![host("localhost", 2)],
            cluster: vec![worker(9761), worker(9762)],
            remarks: strings(&[
                "`task` of TF_CONFIG is not needed: hvtui starts each task of the cluster with its own."
            ]),
            ..Pasted::default()
        }
    );
}

#[test]
fn torch_distributed_launch_on_four_gpus() {
    let line =
        "CUDA_VISIBLE_DEVICES=\"0,1,2,3\" python -m torch.distributed.launch --nproc_per_node 4 ddp_case1.py";
    assert_eq!(
        pasted(line),
        Pasted {
            launcher: Launcher::TorchLaunch { use_env: false, dashes: false },
            kind: JobKind::Torch,
            argv: words("python -m torch.distributed.launch --nproc_per_node 4 ddp_case1.py"),
            command: words("python -u ddp_case1.py"),
            script: Some(2),
            np: Some(4),
            per_node: Some(PerNode::Ranks(4)),
            nodes: Some(1),
            gpu_mask: Some(strings(&["0", "1", "2", "3"])),
            ..Pasted::default()
        }
    );
}

#[test]
fn mpirun_of_two_ranks() {
    check(
        "mpirun -np 2 python hello.py",
        Pasted {
            launcher: Launcher::Mpirun,
            kind: JobKind::Mpi,
            command: words("python hello.py"),
            np: Some(2),
            ..Pasted::default()
        },
    );
}

#[test]
fn watch_nvidia_smi() {
    check(
        "watch -n 10 nvidia-smi",
        Pasted {
            launcher: Launcher::Watch { every_ms: 10_000 },
            command: words("nvidia-smi"),
            ..Pasted::default()
        },
    );
}

#[test]
fn horovodrun_check_build() {
    check(
        "horovodrun --check-build --verbose",
        Pasted {
            launcher: Launcher::CheckBuild,
            command: words("horovodrun --check-build --verbose"),
            verbose: true,
            ..Pasted::default()
        },
    );
}

#[test]
fn keys_between_hosts() {
    let remark = "`hvtui hosts mesh` makes keys on the hosts and exchanges them in one step.";
    check(
        "ssh-keygen -t rsa",
        Pasted {
            launcher: Launcher::Mesh,
            command: words("ssh-keygen -t rsa"),
            remarks: strings(&[remark]),
            ..Pasted::default()
        },
    );
    check(
        "ssh-copy-id -p 9435 root@10.163.24.200",
        Pasted {
            launcher: Launcher::Mesh,
            command: words("ssh-copy-id -p 9435 root@10.163.24.200"),
            ssh_port: Some(9435),
            hosts: vec![HostSlots {
                host: "10.163.24.200".to_owned(),
                user: Some("root".to_owned()),
                slots: None,
            }],
            remarks: strings(&[remark]),
            ..Pasted::default()
        },
    );
}

#[test]
fn a_container_with_horovodrun_inside() {
    let read = pasted(
        "docker run -it --rm --gpus all -v /data:/data -e NCCL_DEBUG=INFO --network=host img:1 horovodrun -np 2 -H localhost:2 python t.py",
    );
    assert_eq!(read.launcher, Launcher::Horovodrun);
    assert_eq!((read.kind, read.np), (JobKind::Horovod, Some(2)));
    assert_eq!(read.command, words("python t.py"));
    assert_eq!(read.argv.first().map(String::as_str), Some("docker"));
    assert_eq!(
        read.container,
        Some(Container {
            engine: "docker".to_owned(),
            image: "img:1".to_owned(),
            volumes: strings(&["/data:/data"]),
            gpus: Some("all".to_owned()),
            env: pairs(&[("NCCL_DEBUG", "INFO")]),
            network: Some("host".to_owned()),
            others: ["-i", "-t", "--rm"].map(|one| strings(&[one])).to_vec(),
            command: words("horovodrun -np 2 -H localhost:2 python t.py"),
            ..Container::default()
        })
    );
    assert!(!read.is_delegated());
}
