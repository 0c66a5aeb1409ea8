use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::plan::plan;
use super::*;
use crate::domain::engine::{Engine, Program};
use crate::domain::ids::RunId;
use crate::domain::options::{GpuView, TaskRole};
use crate::domain::tags::TagStyle;
use crate::domain::time::Stamp;
use crate::launch::request::{LaunchRequest, PlacementSpec};

/// Hosts with an interface `eth0` at 10.0.0.1, 10.0.0.2, …
fn hosts(gpus: &[u32]) -> Vec<HostFacts> {
    let named = gpus.iter().zip(["a", "b", "c"]).zip(1..);
    named
        .map(|((gpus, name), last)| {
            let ip = format!("10.0.0.{last}");
            let mut host =
                super::super::fixtures::with_addresses(gpu_host(name, *gpus), &[("eth0", ip.as_str())]);
            host.interface = Some("eth0".to_owned());
            host
        })
        .collect()
}

fn asked(kind: JobKind) -> LaunchRequest {
    LaunchRequest { kind: Some(kind), ..request("python train.py", PlacementSpec::Count(None)) }
}

fn planned(request: &LaunchRequest, hosts: &[HostFacts]) -> LaunchPlan {
    plan(request, hosts, RunId::new(1, 1), Stamp(1)).unwrap()
}

/// What the ranks have of these variables, rank by rank.
fn told(plan: &LaunchPlan, names: &[&str]) -> Vec<String> {
    let value = |env: &Env, name: &&str| env.get(*name).map_or("-", String::as_str).to_owned();
    plan.ranks()
        .map(|(_, rank)| rank.on_host(|_| false).env)
        .map(|env| names.iter().map(|name| value(&env, name)).collect::<Vec<_>>().join(" "))
        .collect()
}

fn ports(plan: &LaunchPlan) -> BTreeMap<HostId, Vec<u16>> {
    let of = |(at, host): (usize, &crate::domain::run::HostRun)| {
        (host.host.clone(), (0..host.ports as u16).map(|port| 1000 * (at as u16 + 1) + port).collect())
    };
    plan.hosts.iter().enumerate().map(of).collect()
}

#[test]
fn each_rank_sees_the_gpus_of_all_local_ranks_in_their_order() {
    let plan = planned(&asked(JobKind::Plain), &hosts(&[2, 1]));
    assert_eq!(
        told(&plan, &["LOCAL_RANK", "CUDA_VISIBLE_DEVICES"]),
        ["0 GPU-a-0,GPU-a-1", "1 GPU-a-0,GPU-a-1", "0 GPU-b-0"]
    );
    let mut own = asked(JobKind::Plain);
    own.options.gpu_view = GpuView::Own;
    let plan = planned(&own, &hosts(&[2, 1]));
    assert_eq!(told(&plan, &["LOCAL_RANK", "CUDA_VISIBLE_DEVICES"]), ["0 GPU-a-0", "0 GPU-a-1", "0 GPU-b-0"]);
    let mut several = asked(JobKind::Plain);
    several.options.gpus_per_rank = 2;
    let plan = planned(&several, &hosts(&[5, 2]));
    assert_eq!(
        told(&plan, &["LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "HVTUI_PLACE"]),
        ["0 GPU-a-0,GPU-a-1 a:0,1", "0 GPU-a-2,GPU-a-3 a:2,3", "0 GPU-b-0,GPU-b-1 b:0,1"]
    );
    assert_eq!(plan.hosts[0].leases.held.len(), 4, "every GPU of a rank is leased");
}

#[test]
fn torch_ranks_have_what_torchrun_gives_on_uneven_hosts_too() {
    let plan = planned(&asked(JobKind::Torch), &hosts(&[2, 1]));
    let names = [
        "RANK",
        "GROUP_RANK",
        "NODE_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "OMP_NUM_THREADS",
    ];
    assert_eq!(told(&plan, &names), ["0 0 0 2 0 3 1", "1 0 0 2 1 3 1", "2 1 1 2 2 3 -"]);
    let names = ["MASTER_ADDR", "TORCHELASTIC_USE_AGENT_STORE", "PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME"];
    assert_eq!(told(&plan, &names)[2], "10.0.0.1 False 1 eth0");
}

#[test]
fn horovod_slots_are_those_of_gloo_run() {
    let plan = planned(&asked(JobKind::Horovod), &hosts(&[2, 1]));
    let names =
        ["HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "GLOO_IFACE"]
            .map(|name| format!("HOROVOD_{name}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(told(&plan, &names), ["a 0 3 0 2 0 2 eth0", "a 1 3 1 2 0 1 eth0", "b 2 3 0 1 1 2 eth0"]);
    let ports = ports(&plan);
    let start = Start { spec: &plan.spec, rendezvous: &plan.rendezvous, ports: &ports };
    let late = of(JobKind::Horovod).at_start(&start);
    assert_eq!(late["HOROVOD_GLOO_RENDEZVOUS_ADDR"], "10.0.0.1");
    assert_eq!(late["HOROVOD_GLOO_RENDEZVOUS_PORT"], "1003", "behind two ranks and MASTER_PORT");
    let alone = planned(&asked(JobKind::Horovod), &[cpu_host("local", 2)]);
    assert_eq!(told(&alone, &["HOROVOD_GLOO_IFACE"]), ["lo", "lo"]);
}

#[test]
fn tensorflow_tasks_share_one_cluster_of_numeric_addresses() {
    let mut request = asked(JobKind::Tensorflow);
    let config = |request: &LaunchRequest, rank: usize| {
        let plan = planned(request, &hosts(&[2, 2]));
        let ports = ports(&plan);
        let start = Start { spec: &plan.spec, rendezvous: &plan.rendezvous, ports: &ports };
        of(JobKind::Tensorflow).rank_at_start(&start, &plan.spec.placements[rank])["TF_CONFIG"].clone()
    };
    assert_eq!(
        config(&request, 2),
        r#"{"cluster":{"worker":["10.0.0.1:1000","10.0.0.1:1001","10.0.0.2:2000","10.0.0.2:2001"]},"task":{"index":2,"type":"worker"}}"#
    );
    request.options.tasks = vec![TaskRole::Chief, TaskRole::Worker, TaskRole::Ps, TaskRole::Evaluator];
    let tasks: Vec<String> = (0..4).map(|rank| config(&request, rank)).collect();
    assert!(tasks[0].ends_with(r#""task":{"index":0,"type":"chief"}}"#), "{}", tasks[0]);
    assert!(tasks[1].ends_with(r#""task":{"index":0,"type":"worker"}}"#), "{}", tasks[1]);
    assert!(tasks[2].ends_with(r#""task":{"index":0,"type":"ps"}}"#), "{}", tasks[2]);
    assert!(tasks[3].ends_with(r#""task":{"index":0,"type":"evaluator"}}"#), "{}", tasks[3]);
    assert!(!tasks[3].contains("10.0.0.2:2001"), "an evaluator is no part of the cluster: {}", tasks[3]);
}

#[test]
fn every_rank_knows_where_every_other_may_listen() {
    let plan = planned(&asked(JobKind::Plain), &hosts(&[2, 1]));
    let ports = ports(&plan);
    let start = Start { spec: &plan.spec, rendezvous: &plan.rendezvous, ports: &ports };
    let common = start.common();
    assert_eq!(common["HVTUI_PEERS"], "10.0.0.1:1000,10.0.0.1:1001,10.0.0.2:2000");
    assert_eq!(common["MASTER_PORT"], "1002");
}

#[test]
fn a_hosts_own_environment_counts_before_the_defaults_of_every_kind() {
    let names = [
        "OMP_NUM_THREADS",
        "PYTHONUNBUFFERED",
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "HOROVOD_CONTROLLER",
        "HOROVOD_CPU_OPERATIONS",
        "HOROVOD_GLOO_IFACE",
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    ];
    for kind in [JobKind::Plain, JobKind::Torch, JobKind::Horovod, JobKind::Tensorflow] {
        let plan = planned(&asked(kind), &hosts(&[2, 1]));
        for (_, rank) in plan.ranks() {
            assert!(names.iter().all(|name| !rank.env.contains_key(*name)), "{rank:?}");
            let there = rank.on_host(|name| names.contains(&name)).env;
            assert!(names.iter().all(|name| !there.contains_key(*name)), "{there:?}");
        }
        assert!(told(&plan, &names)[0].starts_with("1 1 =eth0 eth0"), "{:?}", told(&plan, &names));
    }
}

#[test]
fn what_the_user_has_set_stays() {
    let mut request = asked(JobKind::Horovod);
    request.env.insert("HOROVOD_CPU_OPERATIONS".to_owned(), "mpi".to_owned());
    request.env.insert("HOROVOD_RANK".to_owned(), "0".to_owned());
    request.env.insert("OMP_NUM_THREADS".to_owned(), "4".to_owned());
    let plan = planned(&request, &hosts(&[2]));
    let names = ["HOROVOD_CPU_OPERATIONS", "OMP_NUM_THREADS", "HOROVOD_RANK"];
    assert_eq!(told(&plan, &names), ["mpi 4 0", "mpi 4 1"], "but for who a rank is");
}

#[test]
fn srun_starts_all_ranks_of_slurm_as_its_tasks() {
    let mut request = asked(JobKind::Slurm);
    let refused = plan(&request, &hosts(&[2]), RunId::new(1, 1), Stamp(1)).unwrap_err();
    assert!(refused.reason.starts_with("kind slurm starts srun on this machine"), "{refused}");
    request.options.mpi_args = vec!["-p".to_owned(), "gpu".to_owned()];
    request.env.insert("A".to_owned(), "1".to_owned());
    let plan = planned(&request, &[cpu_host(crate::launch::srun::HOST, 2)]);
    let Some(Engine::Launcher(launcher)) = &plan.hosts[0].engine else { panic!("{plan:?}") };
    let Program::Argv(argv) = &launcher.program else { panic!("{launcher:?}") };
    let (task, command) = argv.split_at(argv.iter().position(|word| word == "sh").unwrap());
    assert_eq!(
        task.join(" "),
        "srun --label --input=none --kill-on-bad-exit=1 --job-name=train.py -p gpu --ntasks=2"
    );
    assert_eq!(command[3..].join(" "), "sh python train.py");
    assert_eq!((launcher.tags, launcher.env["A"].as_str()), (Some(TagStyle::Srun), "1"));
    assert!(!launcher.env.contains_key("MASTER_ADDR"), "it is the step's first host: {launcher:?}");
}
