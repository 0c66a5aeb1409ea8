//! Lines of tutorials and manuals, and odd ones, with what matters of each.

use super::fixtures::*;
use super::*;
use crate::domain::run::JobKind;

#[test]
fn plain_commands_are_not_ours() {
    for line in [
        "python train.py",
        "python -m http.server",
        "python -m torch.utils.bottleneck x.py",
        "hvtui train digits",
        "echo mpirun",
        "watch ls",
        "nvidia-smi",
        "docker ps",
        "nice python x.py",
        "sudo python x.py",
        "env",
        "time -p",
        "sh -c 'echo a; echo b'",
        "bash run.sh",
        "",
    ] {
        assert_eq!(read_text(line).unwrap(), None, "{line}");
    }
}

#[test]
fn variables_before_a_command() {
    let read = pasted("A=1 CUDA_VISIBLE_DEVICES=2,GPU-3f B='x y' python train.py A=2");
    assert_eq!((read.launcher, read.kind), (Launcher::Plain, JobKind::Plain));
    assert_eq!(read.env, pairs(&[("A", "1"), ("B", "x y")]));
    assert_eq!(read.gpu_mask, Some(words("2 GPU-3f")));
    assert_eq!(read.command, words("python train.py A=2"));
    for line in [
        "CUDA_VISIBLE_DEVICES= python x.py",
        "CUDA_VISIBLE_DEVICES=-1 python x.py",
        "env CUDA_VISIBLE_DEVICES=-1,0 python x.py",
        "mpirun -np 2 -x CUDA_VISIBLE_DEVICES= ./a",
    ] {
        assert_eq!(pasted(line).gpu_mask, Some(vec![]), "{line}");
    }
    assert_eq!(pasted("CUDA_VISIBLE_DEVICES=1,-1,0 python x.py").gpu_mask, Some(words("1")));
    assert_eq!(read_text("env -u X A=1 python x.py").unwrap(), None, "env takes it from each rank");
    assert_eq!(pasted("env -u X A=1 mpirun -np 2 ./a").not_understood, ["env -u X"]);
    let read = pasted("env -i A=1 python x.py");
    assert_eq!((read.command, read.not_understood.len()), (words("python x.py"), 0));
    assert!(read.remarks[0].starts_with("`env -i` is left out: "), "{:?}", read.remarks);
    let read = pasted("exec torchrun --nproc_per_node=2 t.py");
    assert_eq!((read.np, read.is_delegated()), (Some(2), false));
    assert_eq!(read.remarks, ["`exec` is left out: ranks are started without a shell."]);
    assert_eq!(pasted("! torchrun --nproc_per_node=2 t.py").np, Some(2));
    assert_eq!(pasted("env A=1 python x.py").env, pairs(&[("A", "1")]));
    let read = pasted("$ nohup env A=1 time -p mpirun -np 2 ./a.out");
    assert_eq!((read.kind, read.np, read.remarks.len()), (JobKind::Mpi, Some(2), 3));
    assert_eq!(read.argv, words("mpirun -np 2 ./a.out"));
    assert!(read.not_understood.is_empty());
    assert_eq!(pasted("/usr/bin/time -f %E -o out mpirun -np 2 ./a.out").argv, words("mpirun -np 2 ./a.out"));
    assert!(read_text("time -o x -f").is_err());
}

#[test]
fn what_open_mpi_counts_is_not_told_of_mpich() {
    let told = |line: &str| pasted(line).remarks.iter().any(|remark| remark.contains("Open MPI counts"));
    assert!(told("mpirun -np 4 -H n1,n2 ./a"));
    for line in [
        "mpirun.mpich -np 4 -H n1,n2 ./a",
        "mpirun -np 4 -hosts n1,n2 ./a",
        "mpiexec.hydra -n 4 -H n1,n2 ./a",
    ] {
        assert!(!told(line), "{line}");
    }
}

#[test]
fn lines_as_they_are_copied() {
    let read = pasted(
        "# On the first node\r\n$ torchrun \\  \r\n    --nnodes 2 --nproc-per-node gpu \\\t\r\n  t.py # two\r\n",
    );
    assert_eq!((read.nodes, read.per_node, read.np), (Some(2), Some(PerNode::Gpus), None));
    assert_eq!(read.command, words("python3 -u t.py"));
    let read = pasted("mpirun -np 2 -x A -x B=1 --mca btl ^openib -bind-to none ./a");
    assert_eq!((read.env, read.env_from_here), (pairs(&[("B", "1")]), words("A")));
    assert_eq!((read.mca, read.bind_to.as_deref()), (pairs(&[("btl", "^openib")]), Some("none")));
    let read = pasted("horovodrun --gloo -np 2 --start-timeout 60 --timeline-filename t.json ./a");
    assert_eq!((read.start_timeout_s, read.timeline.as_deref()), (Some(60), Some("t.json")));
    let read = pasted("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 t.py");
    assert_eq!((read.gpu_mask, read.np), (Some(words("0 1")), Some(2)));
    let read = pasted("docker run --rm \\  \n  img:1 \\ \n  python t.py");
    assert_eq!((read.command, read.container.unwrap().image), (words("python t.py"), "img:1".to_owned()));
    for line in [
        "mpirun -np 2 -H $(hostname) ./a",
        "srun -w ${SLURM_NODELIST} ./a",
        "torchrun \\\n  # a note\n  --nproc_per_node=2 t.py",
        "mpirun -np 2 -x “A=1” ./a",
        "python t.py –lr 1",
    ] {
        assert!(read_text(line).is_err(), "{line}");
    }
}

#[test]
fn a_launcher_behind_another_program_is_delegated() {
    for (line, before) in [
        ("strace -f horovodrun -np 2 python x.py", "strace -f"),
        ("docker exec -it c horovodrun -np 2 python x.py", "docker exec -it c"),
        ("xvfb-run python3 -m torch.distributed.run --nproc-per-node 2 x.py", "xvfb-run"),
    ] {
        let read = pasted(line);
        assert_eq!(read.not_understood, [before], "{line}");
        assert_eq!(read.np, Some(2), "{line}");
        assert_eq!(read.argv, words(line), "{line}");
    }
}

#[test]
fn a_launcher_runs_as_no_other_user_and_that_is_said() {
    for (line, shown, user) in [
        ("sudo -E mpirun -np 2 ./a", "sudo -E", "root"),
        ("sudo mpirun -np 2 ./a", "sudo", "root"),
        ("sudo -Eu li mpirun -np 2 ./a", "sudo -Eu li", "li"),
        ("sudo -uli -- mpirun -np 2 ./a", "sudo -uli --", "li"),
        ("sudo --user=li --preserve-env mpirun -np 2 ./a", "sudo --user=li --preserve-env", "li"),
        ("sudo -n --user li mpirun -np 2 ./a", "sudo -n --user li", "li"),
        ("doas -u li mpirun -np 2 ./a", "doas -u li", "li"),
        ("doas -a passwd -nu li mpirun -np 2 ./a", "doas -a passwd -nu li", "li"),
        ("sudo -c staff -nE mpirun -np 2 ./a", "sudo -c staff -nE", "root"),
        ("sudo --login-class staff mpirun -np 2 ./a", "sudo --login-class staff", "root"),
    ] {
        let read = pasted(line);
        assert_eq!((read.kind, read.np, read.is_delegated()), (JobKind::Mpi, Some(2), false), "{line}");
        assert_eq!(read.argv, words("mpirun -np 2 ./a"), "{line}");
        let said = read.warnings.join(" ");
        assert!(said.starts_with(&format!("`{shown}` is left out: ranks run as the user as whom")), "{said}");
        assert!(said.contains(&format!("not as {user} by ")), "{said}");
    }
    let read = pasted("B=2 sudo -E A=1 nohup torchrun --nproc_per_node=2 t.py");
    assert_eq!(read.env, pairs(&[("B", "2"), ("A", "1")]));
    assert_eq!((read.kind, read.is_delegated(), read.warnings.len()), (JobKind::Torch, false, 1));
    let read = pasted("sudo -E docker run img mpirun -np 2 ./a");
    assert!(read.container.is_some() && read.warnings.len() == 1, "{read:?}");
    assert!(read.warnings[0].starts_with("`sudo -E` is left out: "), "{read:?}");
    let read = pasted("docker run img sudo mpirun -np 2 ./a");
    assert_eq!((read.container.is_some(), read.np, read.is_delegated()), (true, Some(2), false));
    let said = "`sudo` is left out: in the image ranks run as the user of `--user`, else as the one as whom hvtui logs in to their \
                host, not as root by sudo.";
    assert_eq!(read.warnings, [said]);
    // a command of its own is started as it is, as often as there are ranks
    assert_eq!(read_text("sudo -E python3 t.py").unwrap(), None);
}

#[test]
fn a_launcher_in_a_shells_line() {
    let read = pasted("A=1 bash -c 'mpirun -np 2 -x B=2 ./a'");
    assert_eq!((read.kind, read.np, read.is_delegated()), (JobKind::Mpi, Some(2), false));
    assert_eq!(read.env, pairs(&[("B", "2"), ("A", "1")]));
    assert_eq!(read.remarks, ["`bash -c` is left out: the line inside needs no shell."]);
    let read = pasted("bash -lc 'cd /x && horovodrun -np 2 python t.py'");
    assert_eq!(read.not_understood, ["bash -lc (a launcher in a shell's line)"]);
    assert_eq!((read.command.len(), read.command == read.argv), (3, true));
    assert_eq!(
        fault_text("sh -c 'horovodrun -np 0 x'"),
        "`-np 0` starts nothing: give a number of ranks from 1 on"
    );
}

#[test]
fn horovods_tunables_become_variables_with_their_units() {
    let read = pasted(
        "horovodrun -np 2 --fusion-threshold-mb 32 --cycle-time-ms 3.5 --cache-capacity=2048 --hierarchical-allreduce \
         --no-hierarchical-allgather --autotune --autotune-log-file a.csv --timeline-filename t.json --timeline-mark-cycles \
         --no-stall-check --tcp --log-level DEBUG --log-hide-timestamp --gloo-timeout-seconds 90 --gloo \
         --start-timeout 60 -i key -p2200 --verb python x.py",
    );
    assert_eq!(
        read.env,
        pairs(&[
            ("HOROVOD_FUSION_THRESHOLD", "33554432"),
            ("HOROVOD_CYCLE_TIME", "3.5"),
            ("HOROVOD_CACHE_CAPACITY", "2048"),
            ("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
            ("HOROVOD_HIERARCHICAL_ALLGATHER", "0"),
            ("HOROVOD_AUTOTUNE", "1"),
            ("HOROVOD_AUTOTUNE_LOG", "a.csv"),
            ("HOROVOD_TIMELINE_MARK_CYCLES", "1"),
            ("HOROVOD_STALL_CHECK_DISABLE", "1"),
            ("NCCL_IB_DISABLE", "1"),
            ("HOROVOD_LOG_LEVEL", "DEBUG"),
            ("HOROVOD_LOG_HIDE_TIME", "1"),
            ("HOROVOD_GLOO_TIMEOUT_SECONDS", "90"),
        ])
    );
    assert_eq!(read.timeline.as_deref(), Some("t.json"));
    assert_eq!((read.start_timeout_s, read.ssh_port, read.verbose), (Some(60), Some(2200), true));
    assert_eq!(read.identity.as_deref(), Some("key"));
    let read = pasted("horovodrun -np 2 --autotune-warmup-samples 5 --timeline-mark-cycles python x.py");
    assert_eq!((read.env.len(), read.remarks.len()), (0, 2));
}

#[test]
fn what_horovodrun_would_have_done_wrong_is_said() {
    for (line, says) in [
        (
            "horovodrun --gloo -np 2 -H a:4 python x.py",
            "starts 4 ranks, one for each slot of `-H`; hvtui starts 2",
        ),
        ("CUDA_VISIBLE_DEVICES=1 horovodrun -np 2 -H a:2 python x.py", "does not hand CUDA_VISIBLE_DEVICES"),
        ("horovodrun -np 1 --output-filename o python x.py", "math domain error"),
        ("horovodrun -np 2 -H me@a:2 python x.py", "horovodrun refuses `a` in `-H`"),
        ("horovodrun -np 2 -H [::1]:2 python x.py", "horovodrun refuses `::1` in `-H`"),
        ("horovodrun -H a:1,b:1 python x.py", "refuses a line without `-np`"),
        ("horovodrun -np 2 --network-interfaces eth0,ib0 python x.py", "only one of eth0, ib0"),
        ("horovodrun -np 2 -H a:1,b:1 python x.py", "whole environment"),
        ("horovodrun -np 2 -prefix-timestamp python x.py", "`-prefix-timestamp` has no effect"),
    ] {
        let read = pasted(line);
        assert!(read.remarks.iter().any(|remark| remark.contains(says)), "{line}: {:?}", read.remarks);
    }
    assert!(pasted("horovodrun -np 2 -H localhost:2 python x.py").remarks.is_empty());
}

#[test]
fn horovodrun_with_mpi_is_mpirun() {
    let read = pasted("horovodrun --mpi -np 2 --network-interface eth0 -H a:1,b:1 python x.py");
    assert_eq!(read.kind, JobKind::Mpi);
    assert_eq!(read.mca, pairs(&[("pml", "ob1"), ("btl", "^openib"), ("btl_tcp_if_include", "eth0")]));
    assert_eq!((read.bind_to.as_deref(), read.map_by.as_deref()), (Some("none"), Some("slot")));
    assert_eq!(read.env, pairs(&[("NCCL_SOCKET_IFNAME", "eth0")]));
    let read = pasted("horovodrun -np 2 --mpi-args=\"-x A=1 --map-by ppr:6:node\" python x.py");
    assert_eq!((read.kind, read.env.clone()), (JobKind::Mpi, pairs(&[("A", "1")])));
    assert_eq!(read.not_understood, ["--map-by ppr:6:node"]);
    let read = pasted("horovodrun -np 2 --gloo --mpi-args=\"-x A=1\" python x.py");
    assert_eq!((read.kind, read.env.len(), read.remarks.len()), (JobKind::Horovod, 0, 1));
}

#[test]
fn what_is_not_understood_is_named_and_the_line_kept() {
    for (line, named) in [
        ("horovodrun -np 2 --config-file c.yaml python x.py", "--config-file c.yaml"),
        ("horovodrun -np 2 --min-np 1 --host-discovery-script ./d.sh python x.py", "--min-np 1"),
        ("horovodrun -np 2 --nework-interface eth0 python x.py", "--nework-interface eth0"),
        ("mpirun -np 2 --map-by node python x.py", "--map-by node"),
        ("mpirun -np 2 --map-by ppr:2:node:PE=4 python x.py", "--map-by ppr:2:node:PE=4"),
        ("mpirun -np 1 ./a : -np 2 -x A=1 ./b", ": (several programs)"),
        ("mpirun -np 2 -gpu-mask 0,1 python x.py", "-gpu-mask 0,1"),
        ("mpirun -np 2 -mca plm_rsh_agent /bin/false python x.py", "-mca plm_rsh_agent /bin/false"),
        ("torchrun --nnodes 1:4 --nproc-per-node 2 x.py", "--nnodes 1:4"),
        ("torchrun --rdzv-backend etcd x.py", "--rdzv-backend etcd"),
        ("srun -n 2 --pty bash", "--pty"),
        ("srun -N 2-4 x", "-N 2-4"),
    ] {
        let read = pasted(line);
        assert_eq!(read.not_understood.first().map(String::as_str), Some(named), "{line}");
        assert!(read.is_delegated() && !read.command.is_empty(), "{line}");
        assert_eq!(read.argv, words(line), "{line}");
    }
    let read = pasted("horovodrun -np 2 --nework-interface eth0 python x.py");
    assert_eq!(read.command, words("python x.py"));
    assert_eq!(
        read.warnings,
        ["`--nework-interface` is no known option of horovodrun: `--network-interface` may be meant."]
    );
    for (line, typed, meant) in [
        ("horovodrun -np 2 --nework-interface eth0 python x.py", "--nework-interface", "--network-interface"),
        ("torchrun --npoc_per_node=3 ddp.py", "--npoc_per_node", "--nproc_per_node"),
        ("torchrun --nproc-per-nodes 3 ddp.py", "--nproc-per-nodes", "--nproc-per-node"),
        ("mpirun -np 2 --alow-run-as-root ./a", "--alow-run-as-root", "--allow-run-as-root"),
        ("mpirun -np 2 -hostfle f ./a", "-hostfle", "-hostfile"),
        ("docker run --gpu all IMG python x.py", "--gpu", "--gpus"),
    ] {
        let caret = pasted(line).misspelt.unwrap_or_else(|| panic!("{line}"));
        assert!(caret.text.contains(&format!("`{typed}` is no option of")), "{line}: {}", caret.text);
        assert!(caret.text.contains(&format!("`{meant}` may be meant")), "{line}: {}", caret.text);
        assert_eq!(&line[caret.at..caret.at + caret.len], typed, "{line}");
    }
    for line in
        ["mpirun -np 2 -gpu-mask 0,1 ./a", "torchrun --new-thing=3 ddp.py", "srun -n 2 --tres-per-task=x y"]
    {
        assert_eq!(pasted(line).misspelt, None, "{line}");
    }
}

#[test]
fn mpirun_in_all_spellings() {
    let read = pasted("mpiexec --np 4 --host me@a:2,b -host b -x A=1 -x K ./a.out -np 9");
    assert_eq!(read.np, Some(4));
    assert_eq!(read.hosts[0].user.as_deref(), Some("me"));
    assert_eq!(read.hosts[1].slots, Some(2));
    assert_eq!(read.command, words("./a.out -np 9"));
    let read = pasted(
        "mpirun -pernode -H a,b -cpu-set 0,1 --cpus-per-proc 2 -timeout 9 -tune t -am f -get-stack-traces \
         -report-state-on-timeout --debug-daemons -leave-session-attached --preload-files x --preload-binary \
         --prtemca prte_tmpdir_base /x --pmixmca gds hash --omca btl ^openib ./a",
    );
    assert_eq!((read.per_node, read.not_understood.len()), (Some(PerNode::Ranks(1)), 0), "{read:?}");
    let passed = "-cpu-set 0,1 --cpus-per-proc 2 -timeout 9 -tune t -am f -get-stack-traces -report-state-on-timeout \
                  --debug-daemons -leave-session-attached --preload-files x --preload-binary --prtemca \
                  prte_tmpdir_base /x --pmixmca gds hash --omca btl ^openib";
    assert_eq!(read.pass.join(" "), passed);
    let read = pasted("mpirun -np 1 --prtemca plm_ssh_agent rsh ./a");
    assert_eq!(read.not_understood, ["--prtemca plm_ssh_agent rsh"]);
    let read = pasted("mpirun -np 1 -x UCX_* -x OTHER_* ./a").with_names(["UCX_B", "HOME", "UCX_A"]);
    assert_eq!(read.env_from_here, words("UCX_A UCX_B OTHER_*"));
}

#[test]
fn hydra_and_prterun() {
    let read = pasted(
        "mpiexec.hydra -n 4 -ppn 2 -f hosts -genv A 1 -env B 2 -genvlist C,D -iface ib0 -bootstrap ssh ./a",
    );
    assert_eq!(
        (read.np, read.per_node, read.hostfile.as_deref()),
        (Some(4), Some(PerNode::Ranks(2)), Some("hosts"))
    );
    assert_eq!(read.env, pairs(&[("A", "1"), ("B", "2")]));
    assert_eq!((read.env_from_here, read.interfaces), (words("C D"), words("ib0")));
    assert!(read.not_understood.is_empty());
    let read =
        pasted("/opt/ompi/bin/mpirun --oversubscribe -n 4 -H a:1 --output tag,dir=out --report-bindings ./a");
    assert_eq!(read.prefix.as_deref(), Some("/opt/ompi"));
    assert_eq!((read.output_filename.as_deref(), read.oversubscribe), (Some("out"), true));
    assert_eq!(read.pass, ["--report-bindings"]);
    let read = pasted("OMPI_MCA_btl=tcp,self A=1 mpirun -n 1 -x A -H b:1 ./a");
    assert_eq!((read.mca, read.env), (pairs(&[("btl", "tcp,self")]), pairs(&[("A", "1")])));
    assert!(read.env_from_here.is_empty() && read.remarks.len() == 1);
    let args = "-p 9435 -i key -o StrictHostKeyChecking=no -q -F cfg";
    let read = pasted(&format!("mpirun -n 1 --mca plm_rsh_args '{args}' ./a"));
    assert_eq!((read.ssh_port, read.identity.as_deref()), (Some(9435), Some("key")));
    assert_eq!(read.not_understood, ["-F of plm_rsh_args", "cfg of plm_rsh_args"]);
    assert!(read.remarks.iter().any(|remark| remark.contains("accept any host key")));
    assert_eq!(pasted("mpirun --version").launcher, Launcher::Query);
}

#[test]
fn torchrun_of_the_tutorials() {
    let read = pasted(
        "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint=node1:29400 elastic_ddp.py",
    );
    assert_eq!((read.kind, read.np, read.nodes), (JobKind::Torch, Some(16), Some(2)));
    assert_eq!((read.master_addr.as_deref(), read.master_port), (Some("node1"), Some(29400)));
    let said = "torchrun has to be started on each of the 2 hosts; hvtui starts all ranks by itself.";
    assert!(read.remarks.iter().any(|remark| remark == said), "c10d needs no node rank: {:?}", read.remarks);
    let read_static = pasted("torchrun --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=node1 x.py");
    assert!(read_static.remarks[0].contains("with a node rank each"), "{:?}", read_static.remarks);
    assert_eq!(read.command, words("python3 -u elastic_ddp.py"));
    assert!(read.not_understood.is_empty());
    let read = pasted("torchrun --standalone --nproc_per_node=gpu multigpu_torchrun.py 50 10");
    assert_eq!((read.np, read.per_node), (None, Some(PerNode::Gpus)));
    assert_eq!(read.command, words("python3 -u multigpu_torchrun.py 50 10"));
    let read = pasted("/venv/bin/torchrun --nproc-per-node 2 --max-restarts 3 -m pkg.train --lr 1");
    assert_eq!((read.max_restarts, read.module, read.script), (Some(3), true, Some(3)));
    assert_eq!(read.command, words("/venv/bin/python3 -u -m pkg.train --lr 1"));
    let read = pasted("torchrun --nproc-per-node 2 --no-python ./run.sh a");
    assert_eq!((read.command, read.script), (words("./run.sh a"), Some(0)));
    let read = pasted(
        "/usr/bin/python3.11 -u -m torch.distributed.launch --nproc-per-node=2 --nnodes=2 --node-rank=0 \
         --master-addr=10.0.0.1 --master-port=1234 --use_env main.py",
    );
    assert_eq!(read.launcher, Launcher::TorchLaunch { use_env: true, dashes: true });
    assert_eq!((read.np, read.node_rank, read.remarks.len()), (Some(4), Some(0), 3));
    let meets = "`--master-addr 10.0.0.1 --master-port 1234` has no effect";
    assert!(read.remarks.iter().any(|remark| remark.starts_with(meets)), "{:?}", read.remarks);
    assert_eq!(read.command, words("/usr/bin/python3.11 -u main.py"));
    let read = pasted("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 x.py");
    assert_eq!((read.np, read.remarks.len()), (Some(4), 0), "whether they are enough is known with the host");
}

#[test]
fn a_cluster_of_all_roles() {
    let json = r#"{"cluster":{"ps":["c:1"],"worker":["b:1","b:2"],"chief":["a:1"]},"task":{"type":"worker","index":"1"},"environment":"cloud"}"#;
    let read = pasted(&format!("TF_CONFIG='{json}' python w.py"));
    let roles: Vec<&str> = read.cluster.iter().map(|task| task.role.name()).collect();
    assert_eq!(roles, ["chief", "worker", "worker", "ps"]);
    assert_eq!(read.hosts, [host("a", 1), host("b", 2), host("c", 1)]);
    assert_eq!((read.np, read.remarks.len()), (Some(4), 2));
    let other = r#"{"cluster":{"worker":["b:1"]},"rpc_layer":"grpc+x"}"#;
    let read = pasted(&format!("TF_CONFIG='{other}' python w.py"));
    assert_eq!(read.not_understood, ["`rpc_layer` of TF_CONFIG"]);
    assert_eq!(read.env, pairs(&[("TF_CONFIG", other)]));
    assert_eq!(pasted("TF_CONFIG=x mpirun -np 1 ./a").env, pairs(&[("TF_CONFIG", "x")]));
}

#[test]
fn srun_and_what_it_starts() {
    let read = pasted(
        "srun -N2 -n 4 --ntasks-per-node=2 --gres=gpu:2 -w a,b -l --export=ALL,A=1 -p gpu python x.py",
    );
    assert_eq!((read.kind, read.nodes, read.np), (JobKind::Slurm, Some(2), Some(4)));
    assert_eq!(read.per_node, Some(PerNode::Ranks(2)));
    assert_eq!(read.pass, words("--gres gpu:2 -p gpu"));
    assert_eq!((read.hosts.len(), read.env), (2, pairs(&[("A", "1")])));
    let read = pasted("srun -n 2 --exclusive=user --kill-on-bad-exit=1 x");
    assert_eq!((read.pass, read.remarks.len()), (words("--exclusive=user"), 1));
    let read = pasted("srun --nodes 2 torchrun --nnodes 2 --rdzv_endpoint h:1 x.py");
    assert_eq!(read.command, words("torchrun --nnodes 2 --rdzv_endpoint h:1 x.py"));
    assert!(read.remarks[0].contains("a `torchrun` of its own for each task"));
}

#[test]
fn containers_and_tools() {
    let read = pasted("podman container run -itv/a:/b -e A=1 -eB --shm-size=1g img python x.py");
    let container = read.container.unwrap();
    assert_eq!((container.engine.as_str(), container.image.as_str()), ("podman", "img"));
    assert_eq!((container.volumes, container.env_from_here), (words("/a:/b"), words("B")));
    assert_eq!(container.others.concat(), words("-i -t --shm-size 1g"));
    assert_eq!((read.kind, read.command), (JobKind::Plain, words("python x.py")));
    for (line, every_ms) in [
        ("watch nvidia-smi", 2000),
        ("watch -d -n0.5 nvidia-smi", 500),
        ("watch -n 1 'nvidia-smi -q'", 1000),
        ("nvidia-smi -l 5", 5000),
        ("nvidia-smi --loop=3", 3000),
        ("nvidia-smi -lms 200", 200),
    ] {
        assert_eq!(pasted(line).launcher, Launcher::Watch { every_ms }, "{line}");
    }
}

#[test]
fn launchers_that_are_not_read_are_started_once() {
    for (line, np) in
        [("accelerate launch --num_processes 2 ddp.py", Some(2)), ("deepspeed --num_gpus=4 ddp.py", Some(4))]
    {
        let pasted = read_text(line).unwrap().unwrap();
        assert!(pasted.is_delegated(), "{line}");
        assert_eq!((pasted.argv.join(" ").as_str(), pasted.np), (line, np));
    }
    for line in [
        "accelerate-launch --num_processes 2 t.py",
        "python -m accelerate.commands.launch --num_processes 2 t.py",
    ] {
        let read = pasted(line);
        assert!(read.is_delegated() && read.argv.join(" ") == line && read.np == Some(2), "{read:?}");
    }
    let several =
        pasted("accelerate launch --multi_gpu --num_processes 4 --num_machines=2 t.py --num_machines 3");
    assert_eq!(several.np, Some(2), "of this machine");
    assert!(several.remarks[0].starts_with("`--num_machines 2`: this line starts"), "{:?}", several.remarks);
    let one = pasted("accelerate launch --num_processes 4 --num_machines 1 t.py");
    assert_eq!((one.np, one.remarks.len()), (Some(4), 0));
    let by_file = pasted("deepspeed --num_gpus 2 --hostfile f t.py");
    assert_eq!(by_file.np, Some(2));
    assert!(by_file.remarks[0].contains("on the hosts of f by ssh itself"), "{:?}", by_file.remarks);
    assert_eq!(pasted("deepspeed t.py --num_gpus 2").np, None, "it is the script's");
    assert_eq!(read_text("accelerate config").unwrap(), None);
    let included = pasted("deepspeed --include=gpu-a:0,1@gpu-b:0,1 ddp.py --include x");
    assert_eq!((included.hosts.clone(), included.np), (vec![host("gpu-a", 2)], None));
    assert!(included.remarks[0].contains("gpu-b by ssh itself"), "{:?}", included.remarks);
    let here = pasted("deepspeed --include localhost:1 ddp.py");
    assert_eq!((here.hosts.len(), here.np), (0, Some(1)));
    assert!(pasted("deepspeed ddp.py --include gpu-a:0").hosts.is_empty(), "it is the script's");
}
