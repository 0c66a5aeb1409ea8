//! Command lines of other launchers, pasted behind `hvtui run --`, over two real ssh hosts that do not reach each other
//! by ssh: one run each, with the ranks that the line means, and what goes wrong with them.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::common::client::{Client, Ended, printed, run};
use crate::common::cluster::{Cluster, skip};

/// Two healthy hosts; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| Cluster::ready(2, &[])).as_ref()
}

/// Whether the hosts have a program; says so where they have not.
fn has(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        skip(&format!("{program} is not installed"));
    }
    there
}

/// One test at a time has an mpirun: they look whether one is left.
fn only_mpirun() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/launchers/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_pasted_horovodrun_line_with_addresses_port_and_interface_is_one_run() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let line = format!(
        "-- horovodrun -np 4 -H 10.77.0.11:2,10.77.0.12:2 --network-interface eth0 -p 22 --verbose \
         python3 {} --lr 1",
        fixture("gloo_rank.py")
    );
    let ended = run(&client, &line);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = [
        "[0] rank 0 of 4 on n1 by eth0 ['--lr', '1']",
        "[1] rank 1 of 4 on n1 by eth0 ['--lr', '1']",
        "[2] rank 2 of 4 on n2 by eth0 ['--lr', '1']",
        "[3] rank 3 of 4 on n2 by eth0 ['--lr', '1']",
    ];
    assert_eq!(printed(&ended), lines, "{ended:#?}");
    assert!(ended.err.contains("all of 4 ranks are connected"), "{ended:#?}");
    assert!(ended.err.contains("ranks meet"), "the stage is told: {ended:#?}");
}

#[test]
fn a_rank_that_is_missing_at_the_rendezvous_is_named_by_its_deadline() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let line = format!(
        "--start-timeout 15 --env ABSENT=2 -np 3 -H n1:2,n2:1 --kind horovod -- python3 {}",
        fixture("gloo_rank.py")
    );
    let ended = run(&client, &line);
    assert_eq!(ended.code, 124, "{ended:#?}");
    // on which slot tells what else runs there at that time
    let said = " did not join the other ranks within 15 s";
    assert!(ended.err.contains("rank 2 on n2:") && ended.err.contains(said), "{ended:#?}");
}

#[test]
fn a_pasted_mpirun_line_needs_no_ssh_between_its_hosts() {
    let Some(cluster) = two() else { return };
    if !has("mpirun") {
        return;
    }
    let _alone = only_mpirun();
    let client = Client::of_two_slots(cluster);
    let ended = run(
        &client,
        r#"-- mpirun -np 4 -H 10.77.0.11:2,10.77.0.12:2 --allow-run-as-root -bind-to none -map-by slot
           -mca plm_rsh_args "-p 22" -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -x NCCL_SOCKET_IFNAME=^lo,docker0
           -mca pml ob1 -mca btl ^openib -mca btl_tcp_if_exclude lo,docker0
           sh -c 'echo $OMPI_COMM_WORLD_RANK $RANK of $OMPI_COMM_WORLD_SIZE on $HVTUI_HOST $NCCL_DEBUG $NCCL_SOCKET_IFNAME'"#,
    );
    assert_eq!(ended.code, 0, "{ended:#?}");
    let line = |rank: u32, host: &str| format!("[{rank}] {rank} {rank} of 4 on {host} INFO ^lo,docker0");
    assert_eq!(printed(&ended), [line(0, "n1"), line(1, "n1"), line(2, "n2"), line(3, "n2")], "{ended:#?}");
}

#[test]
fn the_rank_of_mpirun_that_fails_is_named_and_the_others_are_stopped_at_once() {
    let Some(cluster) = two() else { return };
    if !has("mpirun") {
        return;
    }
    let _alone = only_mpirun();
    let client = Client::of_two_slots(cluster);
    // longer than a client may take: the others are stopped, and not waited for
    let ended = run(
        &client,
        "--kind mpi -np 4 -H n1:2,n2:2 -- sh -c 'test $OMPI_COMM_WORLD_RANK = 3 && exit 3; sleep 600'",
    );
    assert_eq!(ended.code, 3, "{ended:#?}");
    assert!(ended.err.contains("rank 3 (n2:1) failed first: exit 3"), "{ended:#?}");
    let said = format!("{}{}", ended.out, ended.err);
    assert!(said.contains("mpirun detected that one or more processes exited"), "{ended:#?}");
    assert!(!said.contains("Segmentation fault") && !said.contains("hit ctrl-c again"), "{ended:#?}");
    for host in ["n1", "n2"] {
        cluster.assert_none(host, &["mpirun", "orted"]);
    }
}

#[test]
fn a_host_without_what_mpirun_starts_is_refused_before_anything_starts() {
    let Some(cluster) = two() else { return };
    if !has("mpirun") {
        return;
    }
    let _alone = only_mpirun();
    let client = Client::of_two_slots(cluster);
    let hosts = cluster.hosts_toml(2);
    let (first, second) = hosts.split_at(hosts.rfind("[[host]]").expect("two hosts"));
    client.write("hosts.toml", &format!("{first}{second}\nenv = {{ PATH = \"/bin/nowhere\" }}\n"));
    let ended = run(&client, "--kind mpi -np 2 -H n1:1,n2:1 -- /bin/true");
    assert_ne!(ended.code, 0, "{ended:#?}");
    assert!(ended.err.contains("orted") && ended.err.contains("n2"), "{ended:#?}");
}

/// A launcher of this text in a folder that both hosts see; the folder.
fn launcher(cluster: &Cluster, name: &str, text: &str) -> String {
    let bin = cluster.dir().join(format!("bin-{name}"));
    std::fs::create_dir_all(&bin).expect("a folder");
    let program = bin.join("horovodrun");
    std::fs::write(&program, text).expect("a launcher");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("its mode");
    format!("PATH={}:/usr/bin:/bin", bin.display())
}

#[test]
fn a_line_that_is_not_understood_is_started_once() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let path = launcher(cluster, "once", "#!/bin/sh\necho started once: \"$@\" >&2\n");
    for line in ["-np 4 -H n1:2,n2:2 --min-np 2 python3 x.py", "--check-build --verbose"] {
        let ended = run(&client, &format!("--env {path} -- horovodrun {line}"));
        assert_eq!(ended.code, 0, "{ended:#?}");
        assert_eq!(ended.said().matches(&format!("[0] started once: {line}")).count(), 1, "{ended:#?}");
    }
    let ended = run(&client, &format!("--env {path} -- horovodrun -np 2 -H n1:2 --min-np 2 python3 x.py"));
    assert!(ended.err.contains("not understood: --min-np 2"), "{ended:#?}");
}

/// Starts a rank on each host as horovodrun does, by the ssh that it finds, and tags what they say.
const BY_SSH: &str = r#"#!/bin/sh
one() { "$@" 2>&1 | sed "s/^/[$rank]<stdout>:/"; }
rank=0; (one env RANK=0 sh -c 'echo 0 on $(hostname)'; touch "$0.said"; exec sleep 300) &
while [ ! -e "$0.said" ]; do sleep 0.01; done
rank=1; one ssh -o StrictHostKeyChecking=no n2 -p 22 'echo 1 on $(hostname) of $HVTUI_HOST; echo last words >&2; exec -a leftover sleep 301 &'
echo 'Process 1 exit with status code 7.' >&2
exit 1
"#;

#[test]
fn a_delegated_launcher_reaches_its_hosts_and_its_ranks_are_told_apart_and_swept() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let path = launcher(cluster, "ssh", BY_SSH);
    let ended =
        run(&client, &format!("--env {path} -- horovodrun -np 2 -H n1:1,n2:1 --config-file x python3 x.py"));
    assert_eq!(printed(&ended), ["[0] 0 on n1", "[1] 1 on n2 of n2", "[1] last words"], "{ended:#?}");
    assert_eq!(ended.code, 7, "{ended:#?}");
    let is_named = |line: &str| line.contains("rank 1 (n2:") && line.contains(") failed first: exit 7");
    assert!(ended.err.lines().any(is_named), "{ended:#?}");
    for host in ["n1", "n2"] {
        let mut left = cluster.processes(host);
        left.retain(|process| {
            ["sleep 300", "sleep 301", "leftover"].iter().any(|one| process.args.contains(one))
        });
        assert!(left.is_empty(), "left on {host}: {left:#?}");
    }
}

/// Starts a rank on each host as horovodrun does. Each says which program started it, that one's soft limit of core files, once it
/// is 1 or after 10 s, and its own.
const SAYS_LIMITS: &str = r#"#!/bin/sh
one() { "$@" 2>&1 | sed "s/^/[$rank]<stdout>:/"; }
look='soft() { sed -n "s/^Max core file size *\([^ ]*\) .*/\1/p" /proc/$1/limits; };
n=0; while [ "$(soft $PPID)" != 1 ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done;
echo $(tr "\0" "\n" </proc/$PPID/cmdline | grep -e -wrap) has $(soft $PPID), its child $(soft self)'
rank=0; one eval "$look"
rank=1; one ssh -o StrictHostKeyChecking=no n2 -p 22 "$look"
"#;

/// They hold the values of secret variables; the limit at which the kernel writes no core, nor hands one to a program, is 1.
#[test]
fn the_wrappers_of_a_launcher_leave_no_core_and_what_they_start_has_the_limit_that_was_given() {
    let Some(cluster) = two() else { return };
    let hard = cluster.on("n1", "ulimit -H -c");
    if hard.trim() == "0" {
        return skip("the limit of core files is 0 and can't be raised");
    }
    let client = Client::of_two_slots(cluster);
    let path = launcher(cluster, "limits", SAYS_LIMITS);
    let ended =
        run(&client, &format!("--env {path} -- horovodrun -np 2 -H n1:1,n2:1 --config-file x python3 x.py"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    let printed = printed(&ended);
    let of = |rank: u32, wrap: &str| {
        let said = printed.iter().find_map(|line| line.strip_prefix(&format!("[{rank}] {wrap} has ")));
        let (its, childs) = said.and_then(|said| said.split_once(", its child ")).expect("both limits");
        assert!(its == "1" && childs != "1" && !childs.is_empty(), "{wrap}: {ended:#?}");
    };
    of(0, "launch-wrap");
    of(1, "node-wrap");
}

#[test]
fn a_whole_line_of_mpirun_keeps_its_ranks_and_needs_no_ssh_between_its_hosts() {
    let Some(cluster) = two() else { return };
    if !has("mpirun") {
        return;
    }
    let _alone = only_mpirun();
    let client = Client::of_two_slots(cluster);
    let line = "-- mpirun -np 4 -H 10.77.0.11:2,10.77.0.12:2 --allow-run-as-root --rank-by slot sh -c";
    let ended = run(&client, &format!("{line} 'printf %s $OMPI_COMM_WORLD_RANK; echo \" on $(hostname)\"'"));
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(printed(&ended), ["[0] 0 on n1", "[1] 1 on n1", "[2] 2 on n2", "[3] 3 on n2"], "{ended:#?}");
    let ended = run(&client, &format!("{line} 'test $OMPI_COMM_WORLD_RANK = 3 && exit 5; sleep 600'"));
    assert_eq!(ended.code, 5, "{ended:#?}");
    // Open MPI 4 itself does not always say which one it was.
    let named =
        ["rank 3 (n2:1) failed first: exit 5", "the job has been aborted: which rank, it does not say"];
    assert!(named.iter().any(|words| ended.err.contains(words)), "{ended:#?}");
    for host in ["n1", "n2"] {
        cluster.assert_none(host, &["mpirun", "orted"]);
        assert!(!cluster.processes(host).iter().any(|process| process.args == "sleep 600"), "left on {host}");
    }
    let refused = run(&client, "--delegate -H n1:2 --kind plain -- /bin/true");
    assert!(
        refused.code == 64 && refused.err.contains("kind plain has no launcher of its own"),
        "{refused:#?}"
    );
    let refused = run(&client, "-H n2:2 -- mpirun -np 2 --rank-by slot /bin/true");
    assert!(refused.code == 64 && refused.err.contains("is started as it is"), "{refused:#?}");
}

#[test]
fn several_programs_of_one_mpirun_line_are_one_job_on_the_hosts_of_all() {
    let Some(cluster) = two() else { return };
    if !has("mpirun") {
        return;
    }
    let _alone = only_mpirun();
    let client = Client::of_two_slots(cluster);
    let program = |name: &str| {
        format!("sh -c 'echo {name} $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $HVTUI_HOST'")
    };
    let line = |a: &str, b: &str| format!("mpirun -np 1 -H n1 {} : -np 2 -H n2:2 {}", program(a), program(b));
    let ended = run(&client, &format!("-- {}", line("x", "x")));
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(
        printed(&ended),
        ["[0] x 0 of 3 on n1", "[1] x 1 of 3 on n2", "[2] x 2 of 3 on n2"],
        "{ended:#?}"
    );
    let ended = run(&client, &format!("-- {}", line("a", "b")));
    let lines = ["[0] a 0 of 3 on n1", "[1] b 1 of 3 on n2", "[2] b 2 of 3 on n2"];
    assert_eq!((ended.code, printed(&ended)), (0, lines.map(str::to_owned).to_vec()), "{ended:#?}");
    let again = run(&client, "--again last");
    assert_eq!((again.code, printed(&again)), (0, lines.map(str::to_owned).to_vec()), "{again:#?}");
    let dry = run(&client, &format!("--dry-run -- {}", line("a", "b")));
    for command in ["echo a $OMPI", "echo b $OMPI"] {
        assert!(dry.out.contains(command), "{dry:#?}");
    }
    let refused = run(&client, &format!("-np 2 -- {}", line("a", "b")));
    assert!(refused.code == 64 && refused.err.contains("2 programs have 1 + 2 = 3 ranks"), "{refused:#?}");
    // what one program alone is told is mpirun's own, which hvtui starts as it is, as root too
    let ended = run(
        &client,
        "-- mpirun -np 1 -H 10.77.0.11 sh -c 'echo a on $(hostname)' : -np 1 -H 10.77.0.12 -x WORD=b sh -c 'echo $WORD on $(hostname)'",
    );
    assert_eq!(
        (ended.code, printed(&ended)),
        (0, vec!["[0] a on n1".to_owned(), "[1] b on n2".to_owned()]),
        "{ended:#?}"
    );
    assert!(ended.err.contains("2 ranks on n1:"), "{ended:#?}");
    for host in ["n1", "n2"] {
        cluster.assert_none(host, &["mpirun", "orted"]);
    }
}

#[test]
fn two_trainings_of_rank_0_of_1_never_pass_silently() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    client.write("ddp.py", "import torch.distributed as dist\ndist.init_process_group('gloo')\n");
    let ddp = client.path("ddp.py").display().to_string();
    for line in ["mpirun -np 2 -H n1:2", "horovodrun -np 2 -H n1:2", "LR=1"] {
        let dry = run(&client, &format!("--dry-run -np 2 -- {line} python3 {ddp}"));
        let said = format!("{}{}", dry.out, dry.err);
        assert!(
            dry.code == 0 && !said.contains("does not connect"),
            "each rank has what env:// asks for: {dry:#?}"
        );
        for name in ["RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT"] {
            assert!(said.contains(name), "{name}: {dry:#?}");
        }
    }
    let dry = run(&client, &format!("--dry-run -- mpirun -np 2 -H n1:2 --rank-by slot python3 {ddp}"));
    assert!(
        dry.out.contains("`--kind torch` is meant"),
        "mpirun's own ranks have its variables alone: {dry:#?}"
    );
    client.write("train.py", "import horovod.torch as hvd\nhvd.init()\n");
    let ended = run(&client, &format!("-np 2 -H n1:2 -- python3 {}", client.path("train.py").display()));
    assert!(ended.err.contains("`--kind horovod` is meant"), "{ended:#?}");
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_its_place() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    for (line, said) in [
        ("-- horovodrun -np 2 -H n1:1 n2:1 python3 x.py", "join the hosts with commas"),
        ("-- horovodrun -np 4 -H n1:1,n2:1 python3 x.py", "4 ranks do not fit the 2 slots"),
        ("-- mpirun -np 2 -mca btl_tcp_if_include eth0 -mca btl_tcp_if_exclude lo x", "takes one of them"),
        (
            "-- horovodrun -np 2 -H n1:1,n2:1 --network-interface eth9 python3 x.py",
            "no usable address on interface eth9",
        ),
        ("-- horovodrun -np 2 -H n1:1,nowhere:1 python3 x.py", "unknown host nowhere"),
    ] {
        let ended = run(&client, line);
        assert_eq!(ended.code, 64, "{line}: {ended:#?}");
        assert!(ended.err.contains(said), "{line}: {ended:#?}");
        assert_eq!(ended.out, "", "nothing starts: {ended:#?}");
    }
}

#[test]
fn a_past_run_and_a_recipe_are_launched_again() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let recipe = "\n[[recipe]]\nname = \"greet\"\ncommand = \"sh -c 'echo $WORD from $HVTUI_PLACE'\"\nnp = 1\nenv = { WORD = \"hello\" }\n";
    let line = "\n[[recipe]]\nname = \"line\"\ncommand = \"torchrun --no_python --nnodes=2 --nproc_per_node=1 hostname\"\n";
    client.write("hosts.toml", &(cluster.hosts_toml(2) + recipe + line));
    let planned = run(&client, "--recipe line --dry-run");
    assert!(planned.out.contains("line: 2 ranks on 2 hosts, kind torch"), "{planned:#?}");
    // on which slots depends on the runs of other tests
    let greets = |ended: &Ended| {
        let printed = printed(ended);
        let begins = ["[0] goodbye from n", "[1] goodbye from n"];
        printed.len() == 2 && printed.iter().zip(begins).all(|(line, begin)| line.starts_with(begin))
    };
    let ended = run(&client, "--recipe greet --env WORD=goodbye -np 2");
    assert!(greets(&ended), "{ended:#?}");
    let ended = run(&client, "--again last");
    assert!(greets(&ended), "{ended:#?}");
    let ended = run(&client, "--recipe gret");
    assert_eq!((ended.code, ended.err.contains("did you mean greet?")), (64, true), "{ended:#?}");
}
