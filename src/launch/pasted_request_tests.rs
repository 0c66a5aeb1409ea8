use super::*;
use crate::domain::run::JobKind;
use crate::launch::paste::read_text;
use crate::launch::request::SlotName;

fn asked(line: &str) -> LaunchRequest {
    let pasted = read_text(line).unwrap().unwrap();
    request(&pasted, None, None, false, |name| (name == "NCCL_DEBUG").then(|| "INFO".to_owned()))
}

fn hosts(list: &[(&str, u32)]) -> Vec<(HostId, u32)> {
    list.iter().map(|(host, count)| (HostId::from(*host), *count)).collect()
}

#[test]
fn horovodruns_line_is_one_run_of_its_ranks() {
    let asked = asked(
        "horovodrun -np 4 -H 10.163.6.155:2,10.163.24.200:2 --network-interface eth0 -p 9435 --verbose python t.py",
    );
    assert_eq!((asked.kind, asked.command.join(" ").as_str()), (Some(JobKind::Horovod), "python t.py"));
    let list = hosts(&[("10.163.6.155", 2), ("10.163.24.200", 2)]);
    assert_eq!(asked.place, PlacementSpec::Hosts { hosts: list, np: Some(4) });
    assert_eq!(asked.options.interface.as_deref(), Some("eth0"));
}

#[test]
fn ranks_a_host_and_their_number_say_how_many_hosts() {
    let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each: Some(each) };
    assert_eq!(asked("mpirun -np 4 -N 2 ./a").place, nodes(2, 2));
    assert_eq!(asked("mpirun -np 2 -pernode ./a").place, nodes(2, 1));
    assert_eq!(asked("mpirun -pernode ./a").place, nodes(1, 1));
    assert_eq!(
        asked("mpirun -N 1 -H a:2,b:2 ./a").place,
        PlacementSpec::Hosts { hosts: hosts(&[("a", 1), ("b", 1)]), np: None }
    );
}

#[test]
fn variables_of_the_launching_machine_go_along_but_for_paths() {
    let asked = asked("mpirun -np 2 -x NCCL_DEBUG -x PATH -x NOT_SET -x A=1 -mca pml ob1 python t.py");
    assert_eq!(asked.kind, Some(JobKind::Mpi));
    assert_eq!(asked.env, BTreeMap::from([("A".into(), "1".into()), ("NCCL_DEBUG".into(), "INFO".into())]));
    assert!(asked.remarks.iter().any(|remark| remark.contains("`PATH` is each host's own")));
    assert!(asked.remarks.iter().any(|remark| remark.contains("`NOT_SET` is not set here")));
    assert!(asked.options.mpi_args.starts_with(&["--mca".into(), "pml".into(), "ob1".into()]));
}

#[test]
fn a_line_that_is_not_understood_is_one_process_with_the_slots_of_its_first_host() {
    let line = "horovodrun -np 4 -H a:2,b:2 --host-discovery-script x python t.py";
    let asked = asked(line);
    assert_eq!((asked.kind, asked.command.join(" ").as_str()), (Some(JobKind::Plain), line));
    assert_eq!(asked.place, PlacementSpec::Hosts { hosts: hosts(&[("a", 1)]), np: None });
    assert_eq!(asked.options.gpus_per_rank, 2);
    assert!(
        asked.remarks.iter().any(|remark| remark.starts_with("not understood: --host-discovery")),
        "{asked:?}"
    );
    let check = super::tests::asked("horovodrun --check-build --verbose");
    assert_eq!(check.place, PlacementSpec::Count(Some(1)), "once, not once a slot");
    assert_eq!(check.command.join(" "), "horovodrun --check-build --verbose");
}

#[test]
fn variables_that_hvtui_sets_are_told() {
    for line in [
        "MASTER_PORT=29500 python3 t.py",
        "export MASTER_PORT=29500; python3 t.py",
        "env MASTER_PORT=29500 torchrun --nproc_per_node=2 t.py",
        "mpirun -np 2 -x MASTER_PORT=29500 python3 t.py",
        "MASTER_PORT=29500 sudo torchrun --nproc_per_node=2 t.py",
    ] {
        let asked = asked(line);
        let told = "`MASTER_PORT=29500` of the line has no effect: hvtui sets it itself.";
        let count = asked.remarks.iter().filter(|remark| *remark == told).count();
        assert_eq!((count, asked.env.contains_key("MASTER_PORT")), (1, false), "{line}: {:?}", asked.remarks);
    }
    let two = asked("RANK=0 WORLD_SIZE=4 A=1 python3 t.py");
    assert_eq!(two.remarks, ["`RANK=0`, `WORLD_SIZE=4` of the line have no effect: hvtui sets them itself."]);
    assert!(asked("A=1 python3 t.py").remarks.is_empty());
}

#[test]
fn a_line_that_hides_each_gpu_names_no_slots() {
    let hides = |line: &str| {
        let asked = asked(line);
        assert!(asked.hides_gpus(), "{line}");
        (asked.place, asked.remarks)
    };
    assert_eq!(hides("CUDA_VISIBLE_DEVICES=-1 python x.py"), (PlacementSpec::Count(Some(1)), Vec::new()));
    let (place, remarks) = hides("CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node 2 x.py");
    assert_eq!(place, PlacementSpec::Nodes { nodes: 1, each: Some(2) });
    assert!(!remarks.iter().any(|remark| remark.contains("find no device")), "{remarks:?}");
    let listed = PlacementSpec::Hosts { hosts: hosts(&[("a", 2)]), np: Some(2) };
    assert_eq!(hides("mpirun -np 2 -H a:2 -x CUDA_VISIBLE_DEVICES= ./a").0, listed);
    assert!(!asked("CUDA_VISIBLE_DEVICES=0 python x.py").hides_gpus());
    assert!(!asked("A=1 python x.py").hides_gpus());
}

#[test]
fn ranks_beyond_the_slots_are_shared_out_as_open_mpi_does() {
    let placed = |line: &str| {
        let asked = asked(line);
        let PlacementSpec::Hosts { hosts, np } = asked.place else { panic!("{line}") };
        let list: Vec<String> = hosts.iter().map(|(host, slots)| format!("{host}:{slots}")).collect();
        (list.join(","), np, asked.options.oversubscribe)
    };
    let shared = |hosts: &str, np| (hosts.to_owned(), Some(np), true);
    assert_eq!(placed("mpirun --oversubscribe -np 8 -H n1:2,n2:2 ./a"), shared("n1:4,n2:4", 8));
    assert_eq!(placed("mpirun --oversubscribe -np 5 -H n1:2,n2:2 ./a"), shared("n1:3,n2:2", 5));
    assert_eq!(placed("mpirun --map-by slot:OVERSUBSCRIBE -np 4 -H n1,n2 ./a"), shared("n1:2,n2:2", 4));
    let fits = placed("mpirun --oversubscribe -np 3 -H n1:2,n2:2 ./a");
    assert_eq!(fits, ("n1:2,n2:2".to_owned(), Some(3), false));
    let said = asked("mpirun --oversubscribe -np 8 -H n1:2,n2:2 ./a").remarks;
    assert!(said.iter().any(|remark| remark.contains("8 ranks share 4 CPU slots")), "{said:?}");
    let said = asked("mpirun --oversubscribe -np 8 ./a").remarks;
    assert!(said.iter().any(|remark| remark.contains("hosts that `-H` names")), "{said:?}");
}

#[test]
fn a_mask_changes_neither_the_number_of_ranks_nor_where_they_go() {
    for line in [
        "torchrun --nproc_per_node=2 ddp.py",
        "torchrun --nnodes=2 --nproc_per_node=2 ddp.py",
        "mpirun -np 2 python3 train.py",
        "horovodrun -np 3 python3 train.py",
        "mpirun -np 2 -H a:2 ./a",
    ] {
        let masked = asked(&format!("CUDA_VISIBLE_DEVICES=0 {line}"));
        assert_eq!(masked.place, asked(line).place, "{line}");
        assert_eq!(masked.gpu_mask.as_deref(), Some("0"));
    }
    let plain = asked("CUDA_VISIBLE_DEVICES=0,1 python3 train.py");
    assert_eq!((plain.place.clone(), plain.ranks_of_mask(1)), (PlacementSpec::Count(None), Some(2)));
    assert_eq!((plain.ranks_of_mask(2), plain.ranks_of_mask(4)), (Some(1), Some(1)));
    assert_eq!(asked("CUDA_VISIBLE_DEVICES=0,1 accelerate launch x.py").options.gpus_per_rank, 2);
}

#[test]
fn a_torchrun_line_that_its_own_launcher_executes_takes_the_slots_of_its_workers() {
    let elastic = "torchrun --nnodes=1:2 --nproc_per_node=2 --max_restarts=3 --rdzv_backend=c10d --rdzv_endpoint=a:1 t.py";
    for line in [
        elastic,
        "strace torchrun --nproc_per_node=2 t.py",
        "strace torchrun --nnodes=2 --nproc_per_node=2 t.py",
    ] {
        let asked = asked(line);
        assert_eq!((asked.single, asked.place), (true, PlacementSpec::Count(Some(1))), "{line}");
        assert_eq!(asked.options.gpus_per_rank, 2, "{line}");
    }
    let waits = |line: &str| asked(line).remarks.iter().any(|remark| remark.contains("are not started"));
    assert!(waits(elastic) && waits("strace torchrun --nnodes=2 --nproc_per_node=2 t.py"));
    assert!(!waits("strace torchrun --nproc_per_node=2 t.py") && !waits("torchrun --nnodes=2 t.py"));
    let said = asked(elastic).remarks;
    assert!(said.iter().all(|remark| !remark.contains("has no effect")), "{said:?}");
    assert!(said[0].starts_with("not understood: --nnodes"), "{said:?}");
    let said = asked("torchrun --rdzv_backend=c10d --nproc_per_node=2 t.py").remarks;
    assert!(said.iter().any(|remark| remark.contains("--rdzv_backend c10d` has no effect")), "{said:?}");
}

#[test]
fn what_prepares_a_shell_for_a_line_goes_to_its_options() {
    let asked = asked("cd ~/x && conda activate y; export A=1 && torchrun --nproc_per_node=2 t.py");
    assert_eq!((asked.kind, asked.workdir.as_deref()), (Some(JobKind::Torch), Some("~/x")));
    assert_eq!(asked.options.environment.conda.as_deref(), Some("y"));
    assert_eq!(asked.env.get("A").map(String::as_str), Some("1"));
    assert_eq!(asked.place, PlacementSpec::Nodes { nodes: 1, each: Some(2) });
    assert_eq!(asked.options.python_of.as_deref(), Some("torchrun"));
    for (line, of) in [
        ("/opt/torchrun --nproc_per_node=2 t.py", None),
        ("python3 -m torch.distributed.run --nproc_per_node=2 t.py", None),
        ("torchrun --no_python --nproc_per_node=2 ./t", None),
        ("torchrun --no_python --nproc_per_node=2 python3 t.py", None),
        ("torchrun --nproc_per_node=2 t.py", Some("torchrun")),
    ] {
        assert_eq!(super::tests::asked(line).options.python_of.as_deref(), of, "{line}");
    }
    let shell = super::tests::asked("sh -c 'cd /x && torchrun --nproc_per_node=2 t.py'");
    assert_eq!((shell.workdir.as_deref(), shell.single), (Some("/x"), false));
    assert_eq!(shell.command.join(" "), "python3 -u t.py");
    // a relative folder is the shell's own
    let shell = super::tests::asked("sh -c 'cd x && torchrun --nproc_per_node=2 t.py'");
    assert_eq!((shell.workdir, shell.single), (None, true));
    let inside = super::tests::asked("docker run IMG bash -c 'cd /w && torchrun --nproc_per_node=2 t.py'");
    let container = inside.options.container.unwrap();
    assert_eq!((inside.workdir, container.workdir.as_deref()), (None, Some("/w")), "the container's");
}

#[test]
fn masks_and_local_ranks_of_old_torch_lines() {
    let line = "CUDA_VISIBLE_DEVICES=\"0,1,2,3\" python -m torch.distributed.launch --nproc_per_node 4 ddp.py --lr 1";
    let pasted = read_text(line).unwrap().unwrap();
    let script = |text: &'static str| {
        let asked = request(&pasted, None, Some(text), false, |_| None);
        asked.options.local_rank_arg.map(|arg| (arg.at, arg.option))
    };
    let asked = asked(line);
    assert_eq!(asked.kind, Some(JobKind::Torch));
    assert_eq!(asked.place, PlacementSpec::Nodes { nodes: 1, each: Some(4) }, "as without them");
    assert_eq!(asked.masked(), [0, 1, 2, 3].map(SlotName::Index));
    assert_eq!(asked.command.join(" "), "python -u ddp.py --lr 1");
    assert_eq!(script("p.add_argument('--local_rank')"), Some((3, "--local_rank".to_owned())));
    assert_eq!(script("p.add_argument('--local-rank')"), Some((3, "--local-rank".to_owned())));
    assert_eq!(script(""), Some((3, "--local_rank".to_owned())), "as the line spells its own options");
}

#[test]
fn every_task_of_a_cluster_is_started() {
    let asked = asked(
        r#"TF_CONFIG='{"cluster": {"worker": ["localhost:9761", "localhost:9762"]}, "task": {"index": 0, "type": "worker"}}' python worker.py"#,
    );
    assert_eq!(asked.kind, Some(JobKind::Tensorflow));
    assert_eq!(asked.place, PlacementSpec::Hosts { hosts: hosts(&[("localhost", 2)]), np: None });
    assert_eq!(asked.options.tasks, vec![TaskRole::Worker; 2]);
}

#[test]
fn sruns_line_keeps_what_is_slurms() {
    let asked_of = |line: &str| {
        let asked = asked(line);
        assert_eq!((asked.kind, asked.command.join(" ").as_str()), (Some(JobKind::Slurm), "python t.py"));
        let PlacementSpec::Count(ranks) = asked.place else { panic!("{asked:?}") };
        (ranks, asked.options.mpi_args.join(" "))
    };
    let both = asked_of("srun -p gpu -N 2 --ntasks-per-node=4 --gres=gpu:4 -l python t.py");
    assert_eq!(both.0, Some(8));
    assert!(both.1.starts_with("--nodes=2 --ntasks-per-node=4 "), "{both:?}");
    assert!(both.1.contains("-p gpu") && both.1.contains("--gres"), "{both:?}");
    assert_eq!(asked_of("srun -n 3 -w a,b python t.py"), (Some(3), "--nodelist=a,b".to_owned()));
    assert_eq!(asked_of("srun -N 2 python t.py"), (Some(2), "--nodes=2".to_owned()));
    assert_eq!(asked_of("srun python t.py"), (None, String::new()), "as many as the allocation has");
}

#[test]
fn the_lines_of_the_notes_become_containers_of_the_ranks() {
    let line = "sudo docker run --privileged -v ~/.ssh:~/.ssh -v /data/keras:/root/.keras/datasets --network=host --gpus all -it \
                horovod/horovod:0.28.1\nhorovodrun -np 4 -H a:2,b:2 --network-interface eth0 -p 9435 python tensorflow2_mnist.py";
    let pasted = crate::launch::paste::read_text(line).unwrap().unwrap();
    let asked = super::request(&pasted, None, None, false, |_| None);
    let container = asked.options.container.unwrap();
    assert_eq!(container.image, "horovod/horovod:0.28.1");
    let volumes: Vec<String> = container.volumes.iter().map(ToString::to_string).collect();
    assert_eq!(volumes, ["/data/keras:/root/.keras/datasets"]);
    assert_eq!((asked.kind, asked.single), (Some(JobKind::Horovod), false));
    assert_eq!(asked.command, ["python", "tensorflow2_mnist.py"]);
    let hosts = vec![(HostId::from("a"), 2), (HostId::from("b"), 2)];
    assert_eq!(asked.place, PlacementSpec::Hosts { hosts, np: Some(4) });
    for word in ["`sudo`", "`--privileged`", "`-v ~/.ssh:~/.ssh`", "`-i`", "`-t`"] {
        assert!(asked.remarks.iter().any(|remark| remark.starts_with(word)), "{word}: {:#?}", asked.remarks);
    }
    let line = "docker run --gpus '\"device=0,1\"' --rm -ti --ipc=host -e A=1 -e B -v /home/me/test_py:/workspace --name mine IMG python t.py";
    let pasted = crate::launch::paste::read_text(line).unwrap().unwrap();
    let asked = super::request(&pasted, None, None, false, |name| (name == "B").then(|| "2".to_owned()));
    assert_eq!((asked.name.as_deref(), asked.options.gpus_per_rank), (Some("mine"), 2));
    assert_eq!(asked.env.get("A").map(String::as_str), Some("1"));
    assert_eq!(asked.env.get("B").map(String::as_str), Some("2"));
    assert_eq!((asked.place, asked.gpu_mask.as_deref()), (PlacementSpec::Count(None), Some("0,1")));
    assert_eq!(asked.command, ["python", "t.py"]);
    let empty =
        crate::launch::paste::read_text("docker run --gpus all -ti -v /home/me:/workspace IMG").unwrap_err();
    assert!(empty.to_string().contains("no command behind the image"), "{empty}");
    for line in ["docker run IMG python a.py\npython b.py", "docker run --rm\nIMG python a.py"] {
        let second = crate::launch::paste::read_text(line).unwrap_err();
        assert!(second.to_string().contains("a second "), "{second}");
    }
    assert!(crate::launch::paste::read_text("docker run --rm \\\n IMG python a.py").is_ok());
}

#[test]
fn a_host_without_a_number_is_one_slot_while_the_ranks_fit_so() {
    let hosts = |line: &str| match asked(line).place {
        PlacementSpec::Hosts { hosts, np } => {
            (hosts.iter().map(|(host, slots)| format!("{host}:{slots}")).collect::<Vec<_>>().join(","), np)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(hosts("mpirun -np 2 -H a,b ./t"), ("a:1,b:1".to_owned(), Some(2)));
    assert_eq!(hosts("mpirun -np 3 --host a,b,a ./t"), ("a:2,b:1".to_owned(), Some(3)));
    assert_eq!(hosts("mpirun -np 3 -H a:2,b ./t"), ("a:2,b:1".to_owned(), Some(3)));
    assert_eq!(hosts("mpirun -H a,b ./t"), ("a:1,b:1".to_owned(), None));
    let all = crate::launch::request::ALL_SLOTS;
    let programs = asked("mpirun -np 1 -H a ./a : -np 3 ./b");
    assert_eq!(programs.place, PlacementSpec::Hosts { hosts: self::hosts(&[("a", 4)]), np: Some(4) });
    assert_eq!((programs.options.programs.len(), programs.command.join(" ").as_str()), (2, "./a"));
    let by_mpirun = asked("mpirun -np 1 -H a ./a : -np 3 -x A=1 ./b").place;
    assert_eq!(by_mpirun, PlacementSpec::Hosts { hosts: self::hosts(&[("a", all)]), np: Some(4) });
    let each = asked("mpirun -np 1 -H a:1 ./a : -np 2 -H b:2 -x A=1 ./b").place;
    assert_eq!(each, PlacementSpec::Hosts { hosts: self::hosts(&[("a", 1), ("b", 2)]), np: None });
    let too_many = asked("mpirun -np 4 -H a,b ./t");
    assert!(too_many.remarks.iter().any(|remark| remark.contains("counts one slot")), "{too_many:?}");
    assert_eq!(hosts("mpirun -np 4 -H a,b ./t"), (format!("a:{all},b:{all}"), Some(4)));
}
