use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::plan::plan;
use super::*;
use crate::domain::engine::{Engine, Launcher, Program};
use crate::domain::ids::RunId;
use crate::domain::options::{Delegated, GpuView, RunOptions, TaskRole};
use crate::domain::redaction::MASK;
use crate::domain::run::Slot;
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
fn mpirun_is_set_up_by_the_variables_that_are_its_own_and_takes_hosts_by_ipv4() {
    let mut request = asked(JobKind::Mpi);
    let variables =
        [("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_plm_rsh_agent", "x"), ("I_MPI_DEBUG", "5"), ("A", "1")];
    request.env.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let plan = planned(&request, &hosts(&[2, 1]));
    assert_eq!(told(&plan, &["OMP_NUM_THREADS", "A"]), ["- 1", "- 1", "- 1"], "binding is MPI's");
    let Some(Engine::Launcher(launcher)) = &plan.hosts[0].engine else {
        panic!("{:?}", plan.hosts[0].engine)
    };
    assert_eq!(launcher.env.keys().collect::<Vec<_>>(), ["I_MPI_DEBUG", "OMPI_MCA_pml"]);
    let v6 = |name: &str, ip: &str| {
        let host = super::super::fixtures::with_addresses(cpu_host(name, 1), &[("eth0", ip)]);
        HostFacts { interface: Some("eth0".to_owned()), ..host }
    };
    let both = [v6("a", "fd00::1"), v6("b", "fd00::2")];
    let refused = super::super::plan::plan(&asked(JobKind::Mpi), &both, RunId::new(1, 1), Stamp(1));
    assert!(
        refused.unwrap_err().reason.starts_with("mpirun takes hosts by IPv4 addresses alone, and a has ")
    );
    let alone = planned(&asked(JobKind::Mpi), &both[..1]);
    let Some(Engine::Launcher(Launcher { program: Program::Mpi(mpi), .. })) = &alone.hosts[0].engine else {
        panic!("{alone:?}")
    };
    assert_eq!(mpi.hosts[0].address, "127.0.0.1");
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
    let late = of(&plan.spec).at_start(&start);
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
        of(&plan.spec).rank_at_start(&start, &plan.spec.placements[rank])["TF_CONFIG"].clone()
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

/// The engine of each host.
fn engines(plan: &LaunchPlan) -> Vec<&Engine> {
    plan.hosts.iter().filter_map(|share| share.engine.as_ref()).collect()
}

#[test]
fn torchrun_starts_the_shims_of_each_host_with_the_port_that_is_found() {
    let mut request = asked(JobKind::Torch);
    request.options.delegate = Some(Delegated { options: vec!["--x=1".to_owned()], ..Delegated::default() });
    let plan = planned(&request, &hosts(&[2, 2]));
    let Engine::Launcher(second) = engines(&plan)[1] else { panic!("{plan:?}") };
    let Program::Argv(argv) = &second.program else { panic!("{second:?}") };
    assert!(second.tags.is_none() && engines(&plan).iter().all(|engine| engine.seats_ranks()));
    assert_eq!(
        argv[..8].join(" "),
        "torchrun --nproc_per_node=2 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --redirects=1 --tee=1 --x=1"
    );
    assert_eq!(told(&plan, &["RANK", "NODE_RANK", "OMP_NUM_THREADS"]), ["0 0 -", "1 0 -", "2 1 -", "3 1 -"]);
    let ports = ports(&plan);
    let start = Start { spec: &plan.spec, rendezvous: &plan.rendezvous, ports: &ports };
    assert_eq!(of(&plan.spec).at_start(&start)["PET_MASTER_PORT"], "1002");
    let uneven = super::super::plan::plan(&request, &hosts(&[2, 1]), RunId::new(1, 1), Stamp(1));
    assert!(uneven.unwrap_err().reason.contains("a has 2 and b has 1"));
}

#[test]
fn what_a_line_starts_on_another_host_has_that_hosts_gpus_and_no_secret() {
    let mut request = asked(JobKind::Mpi);
    request.env.insert("TOKEN".to_owned(), MASK.to_owned());
    request.options.delegate = Some(Delegated {
        line: ["mpirun", "-np", "2", "x"].map(str::to_owned).into(),
        hosts: vec!["node-a".to_owned(), "node-b".to_owned()],
        ..Delegated::default()
    });
    let plan = planned(&request, &hosts(&[2, 1]));
    let [Engine::Launcher(first), Engine::Node(second)] = engines(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!((first.nodes.join(","), second.name.as_str()), ("node-b".to_owned(), "node-b"));
    assert!(second.stands);
    assert_eq!(first.elsewhere, BTreeMap::from([(Rank(2), "node-b".to_owned())]));
    let gpus = |env: &Env| env["CUDA_VISIBLE_DEVICES"].clone();
    assert_eq!((gpus(&first.env).as_str(), gpus(&second.env).as_str()), ("GPU-a-0,GPU-a-1", "GPU-b-0"));
    for env in [&first.env, &second.env] {
        let own = ["TOKEN", "RANK", "LOCAL_RANK", "HVTUI_PLACE"];
        assert!(own.iter().all(|name| !env.contains_key(*name)), "{env:?}");
    }
    assert_eq!(plan.hosts[1].leases.held.len(), 1, "the other hosts hold theirs, too");
    let refused = |request: &LaunchRequest| {
        let failed = super::super::plan::plan(request, &hosts(&[2, 1]), RunId::new(1, 1), Stamp(1));
        failed.unwrap_err().reason
    };
    let horovod = LaunchRequest { kind: Some(JobKind::Horovod), ..request.clone() };
    assert!(refused(&horovod).starts_with("TOKEN is secret, and horovodrun writes"), "{}", refused(&horovod));
    let mut second = request.clone();
    second.options.delegate.as_mut().unwrap().hosts[1] = "localhost".to_owned();
    assert!(
        refused(&second).contains("`localhost` is not the first host of the line"),
        "{}",
        refused(&second)
    );
}

#[test]
fn several_mig_slices_of_a_host_go_to_ranks_that_hvtui_starts_alone() {
    let mut facts = hosts(&[0, 0]);
    let slice = |index: u32| Slot::Gpu { index, uuid: format!("MIG-{index}").as_str().into() };
    facts[0].slots = vec![slice(100), slice(102)];
    facts[1].slots = vec![slice(300)];
    let delegated = |kind, slots: &[u32]| {
        let list = ["a", "b"].map(HostId::from).into_iter().zip(slots.iter().copied()).collect();
        let mut request = asked(kind);
        request.place = PlacementSpec::Hosts { hosts: list, np: None };
        request.options.delegate = Some(Delegated::default());
        request
    };
    let refused = |request: &LaunchRequest| {
        super::super::plan::plan(request, &facts, RunId::new(1, 1), Stamp(1)).unwrap_err().reason
    };
    let horovod = delegated(JobKind::Horovod, &[2, 1]);
    insta::assert_snapshot!(refused(&horovod), @"horovodrun gives its 2 ranks on a one list of devices, and CUDA shows a process one MIG slice of a list: all of them would be on the first of a:100,102. Take one slice a host, or leave out --delegate or what is not understood: hvtui's own kind gives each rank its own");
    let mut line = horovod.clone();
    line.kind = Some(JobKind::Mpi);
    line.options.delegate.as_mut().unwrap().line = ["mpirun", "x"].map(str::to_owned).into();
    assert!(refused(&line).starts_with("mpirun gives its 2 ranks on a one list"), "{}", refused(&line));
    let plan = planned(&delegated(JobKind::Horovod, &[1, 1]), &facts);
    let Engine::Launcher(first) = engines(&plan)[0] else { panic!("{plan:?}") };
    assert_eq!(first.env["CUDA_VISIBLE_DEVICES"], "MIG-100", "one slice a host");
    let shims = ["0 MIG-100", "0 MIG-102", "0 MIG-300"];
    let names = ["LOCAL_RANK", "CUDA_VISIBLE_DEVICES"];
    assert_eq!(told(&planned(&asked(JobKind::Mpi), &facts), &names), shims);
    assert_eq!(told(&planned(&delegated(JobKind::Torch, &[2]), &facts), &names), shims[..2]);
    let mut own = delegated(JobKind::Horovod, &[2]);
    own.options.gpu_view = GpuView::Own;
    let failed = super::super::plan::plan(&own, &hosts(&[2, 1]), RunId::new(1, 1), Stamp(1));
    insta::assert_snapshot!(failed.unwrap_err().reason, @"horovodrun gives its 2 ranks on a one list of devices, so no rank can see its own GPUs alone: leave out --gpu-view and --gpus-per-rank, or leave out --delegate or what is not understood: hvtui's own kind gives each rank its own");
}

#[test]
fn a_launchers_line_is_written_where_there_is_none_and_a_kind_without_one_is_refused() {
    let options = RunOptions { delegate: Some(Delegated::default()), ..RunOptions::default() };
    let written = LaunchRequest { options: options.clone(), ..asked(JobKind::Horovod) };
    let plan = planned(&written, &hosts(&[2, 1]));
    let Engine::Launcher(launcher) = engines(&plan)[0] else { panic!("{plan:?}") };
    let Program::Argv(argv) = &launcher.program else { panic!("{plan:?}") };
    assert_eq!(argv.join(" "), "horovodrun -np 3 -H 10.0.0.1:2,10.0.0.2:1 --gloo python train.py");
    let none = LaunchRequest { options, ..asked(JobKind::Tensorflow) };
    let none = super::super::plan::plan(&none, &hosts(&[2]), RunId::new(1, 1), Stamp(1));
    assert!(none.unwrap_err().reason.contains("kind tensorflow has no launcher of its own"));
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
    assert_eq!(task.join(" "), "srun --label --kill-on-bad-exit=1 --job-name=train.py -p gpu --ntasks=2");
    assert_eq!(command[3..].join(" "), "sh python train.py");
    assert_eq!((launcher.tags, launcher.env["A"].as_str()), (Some(TagStyle::Srun), "1"));
    assert!(!launcher.env.contains_key("MASTER_ADDR"), "it is the step's first host: {launcher:?}");
}
