//! Ranks in containers by real docker daemons, one on each of two real ssh hosts, with an image that is made here.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use crate::common::built;
use crate::common::client::{Client, Ended, printed};
use crate::common::cluster::Cluster;
use crate::common::docker::{IMAGE, up};
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, kill, until, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Two hosts, each with a docker daemon that has the image; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = up(2, &[])?;
        let tar = cluster.dir().join("image.tar");
        let tar = tar.display();
        let line = format!("docker save -o {tar} {IMAGE} && echo done");
        assert!(cluster.on("n1", &line).ends_with("done\n"));
        assert!(cluster.on("n2", &format!("docker load -i {tar} && echo done")).ends_with("done\n"));
        Some(cluster)
    })
    .as_ref()
}

/// A person with two CPU slots a host.
fn person(cluster: &Cluster) -> Client<'_> {
    let client = Client::new(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    cluster.on("n1", "rm -f ~/go/*");
    client
}

/// Runs `command` in containers to its end, with more options.
fn run(client: &Client<'_>, options: &[&str], command: &[&str]) -> Ended {
    client.run(&[&["run", "--image", IMAGE], options, &["--"], command].concat())
}

/// The names of the containers of hvtui that a host has, in whatever state.
fn containers(cluster: &Cluster, host: &str) -> Vec<String> {
    let names = cluster.on(host, "docker ps -a --filter label=hvtui.run --format '{{.Names}}'");
    names.lines().map(str::to_owned).collect()
}

fn none_is_left(cluster: &Cluster) {
    for host in ["n1", "n2"] {
        assert_eq!(containers(cluster, host), [""; 0], "{host}");
    }
}

/// Where a test lets ranks go on that run with `-v ~/go:/go`. Not by `docker exec`, which hangs where the container ends
/// meanwhile.
fn let_go(cluster: &Cluster) {
    cluster.on("n1", "touch ~/go/go");
}

/// Only one test at a time: they look whether a container is left.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn smoke_starts_a_container_on_each_host() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let ended = client.run(&["smoke", "--json", "--only", "container", "--image", IMAGE]);
    let told: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!((ended.code, &told["steps"][0]["mark"]), (0, &json!("good")), "{told:#}");
    assert_eq!(told["steps"][0]["measured"], "a container starts on each host");
    let ended = client.run(&["smoke", "--only", "container", "--image", "hvtui-test:none"]);
    assert!(ended.code == 1 && ended.out.contains("hvtui-test:none"), "{ended:?}");
    none_is_left(cluster);
}

#[test]
fn ranks_run_in_containers_as_they_do_outside() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    for host in ["n1", "n2"] {
        cluster.on(host, "mkdir -p ~/data ~/work && hostname > ~/data/name");
    }
    let options = [
        "-np",
        "4",
        "--workdir",
        "~/work",
        "-v",
        "~/data:/data:ro",
        "--env",
        "NOTE=a\nb",
        "--env",
        "PATH=/bin",
    ];
    let script = "read name < /data/name; echo rank $RANK of $WORLD_SIZE on $name as $(id -u) in ${PWD##*/} $NOTE; \
                  echo x > made.$RANK; echo y > /data/no 2>/dev/null || exit 0; exit 9";
    let ended = run(&client, &options, &["sh", "-c", script]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = [
        "[0] rank 0 of 4 on n1 as 0 in work a b",
        "[1] rank 1 of 4 on n1 as 0 in work a b",
        "[2] rank 2 of 4 on n2 as 0 in work a b",
        "[3] rank 3 of 4 on n2 as 0 in work a b",
    ];
    assert_eq!(printed(&ended), lines, "{ended:#?}");
    assert_eq!(
        cluster.on("n2", "cat ~/work/made.*"),
        "x\nx\n",
        "what they write is in the working directory"
    );
    none_is_left(cluster);
}

#[test]
fn exit_codes_signals_and_commands_that_are_not_there_are_told() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let script = |line: &str| run(&client, &["-np", "3"], &["sh", "-c", line]);
    let failed = script("[ $RANK = 1 ] && exit 7; sleep 600");
    assert_eq!(failed.code, 7, "{failed:#?}");
    assert!(failed.err.contains("rank 1 (n1:1) failed first: exit 7"), "{failed:#?}");
    let killed = script("[ $RANK = 2 ] && kill -SEGV $$; sleep 600");
    assert_eq!(killed.code, 139, "{killed:#?}");
    assert!(killed.err.contains("rank 2 (n2:0) failed first: killed by SIGSEGV"), "{killed:#?}");
    let absent = run(&client, &["-np", "3"], &["nosuch"]);
    assert_eq!(absent.code, 127, "{absent:#?}");
    assert!(absent.err.contains(&format!("command 'nosuch' not found in image {IMAGE}")), "{absent:#?}");
    let refused = run(&client, &["-np", "2", "--container-arg=--memory=1"], &["true"]);
    assert_eq!(refused.code, 125, "{refused:#?}");
    let why = "docker did not make its container: Minimum memory limit allowed is";
    assert!(refused.err.contains(why) && !refused.err.contains("the last line"), "{refused:#?}");
    none_is_left(cluster);
}

#[test]
fn what_a_host_lacks_is_said_before_anything_runs() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    cluster.on("n1", &format!("docker tag {IMAGE} only:here"));
    let refused = |image: &str, options: &[&str]| {
        let ended = client.run(&[&["run", "--image", image, "-np", "4"], options, &["--", "true"]].concat());
        assert_ne!(ended.code, 0, "{ended:#?}");
        none_is_left(cluster);
        ended.err
    };
    let absent = refused("only:here", &[]);
    assert!(
        absent.contains("n2: no image only:here for docker: `hvtui --hosts ")
            && absent.contains("hosts.toml image push only:here` from a machine that has it"),
        "{absent}"
    );
    assert!(absent.contains("; n1 has it"), "{absent}");
    let volume = refused(IMAGE, &["-v", "/no/such:/data"]);
    assert!(volume.contains("volume /no/such:/data: /no/such: no such file or directory"), "{volume}");
    // another content under the same name
    cluster.on("n2", &format!("echo 'FROM {IMAGE}\nENV OTHER=1' | docker build -q -t only:here -"));
    let differs = refused("only:here", &[]);
    assert!(
        differs.contains("image only:here is sha256:") && differs.contains(" on n1 and sha256:"),
        "{differs}"
    );
    cluster.on("n2", "docker rmi only:here");
    cluster.on("n1", "docker rmi only:here");
    // the daemon of one host is gone, and not only silent: one that still ends holds locks that the next one fails on
    let data = cluster.dir().join("n2/docker");
    cluster.on(
        "n2",
        &format!(
            "pid=$(cat {}/dockerd.pid); kill $pid; while readlink /proc/$pid/exe >/dev/null; do sleep 0.05; done",
            data.display()
        ),
    );
    let down = refused(IMAGE, &[]);
    assert!(down.contains("n2: docker does not run: ") && down.contains("systemctl start docker"), "{down}");
    let script = format!("{}/tests/cluster/docker", env!("CARGO_MANIFEST_DIR"));
    assert!(cluster.on("n2", &format!("{script} {}", data.display())).contains("up"));
}

/// A run that goes on, with its standard error in a file.
fn going(client: &Client<'_>, script: &str) -> (Child, std::path::PathBuf) {
    let err = client.path("err");
    let mut command =
        client.hvtui(&["run", "--image", IMAGE, "-v", "~/go:/go", "-np", "4", "--", "sh", "-c", script]);
    let child = command.stdout(Stdio::null()).stderr(std::fs::File::create(&err).expect("a file")).spawn();
    (child.expect("hvtui"), err)
}

/// Kills all processes of a host that have one of these in their words; how many there were.
fn kill_all(cluster: &Cluster, host: &str, words: &[&str]) -> usize {
    let mut all = cluster.processes(host);
    all.retain(|process| words.iter().any(|word| process.args.contains(word)));
    let pids: Vec<String> = all.iter().map(|process| process.pid.to_string()).collect();
    cluster.on(host, &format!("kill -9 {}", pids.join(" ")));
    pids.len()
}

/// Waits until each host has two containers that run.
fn all_run(cluster: &Cluster) {
    for host in ["n1", "n2"] {
        until("two containers", || {
            cluster.on(host, "docker ps -q --filter label=hvtui.run | wc -l").trim() == "2"
        });
    }
}

#[test]
fn a_stop_reaches_the_ranks_once_and_nothing_is_left() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    for host in ["n1", "n2"] {
        cluster.on(host, "mkdir -p ~/stop; rm -f ~/stop/*");
    }
    let script = "trap 'echo told >> told.$RANK' TERM; touch up.$RANK; while [ ! -e told.$RANK ]; do sleep 0.05; done; sleep 0.3; exit 0";
    let (mut child, err) = {
        let err = client.path("err");
        let mut command = client.hvtui(&[
            "run",
            "--image",
            IMAGE,
            "-np",
            "4",
            "--workdir",
            "~/stop",
            "--",
            "sh",
            "-c",
            script,
        ]);
        let child =
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&err).expect("a file")).spawn();
        (child.expect("hvtui"), err)
    };
    for host in ["n1", "n2"] {
        until("ranks", || cluster.on(host, "ls ~/stop/up.* | wc -l").trim() == "2");
    }
    kill(child.id(), Signal::INT);
    let status = end_of(&mut child);
    let said = std::fs::read_to_string(&err).expect("its words");
    assert_eq!(status.code(), Some(130), "{said}");
    for host in ["n1", "n2"] {
        assert_eq!(cluster.on(host, "cat ~/stop/told.*"), "told\ntold\n", "{host}: {said}");
    }
    none_is_left(cluster);
}

#[test]
fn a_client_that_is_killed_leaves_the_run_and_stop_ends_it() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let (mut child, _) = going(&client, "trap '' TERM; while true; do sleep 1; done");
    all_run(cluster);
    child.kill().expect("killed");
    end_of(&mut child);
    let runs = client.run(&["runs", "--json", "--local"]);
    let runs: Value = serde_json::from_str(&runs.out).expect("JSON");
    let id = runs[0]["spec"]["id"].as_str().expect("an id").to_owned();
    let stopped = client.run(&["stop", &id, "--now"]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    until("no container", || ["n1", "n2"].iter().all(|host| containers(cluster, host).is_empty()));
}

#[test]
fn a_supervisor_that_is_killed_loses_no_container() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let (mut child, err) =
        going(&client, "[ $RANK = 0 ] && { while [ ! -e /go/go ]; do sleep 0.05; done; exit 5; }; sleep 600");
    all_run(cluster);
    for host in ["n1", "n2"] {
        assert_eq!(kill_all(cluster, host, &[" supervise "]), 1);
    }
    let_go(cluster);
    let status = end_of(&mut child);
    let said = std::fs::read_to_string(&err).expect("its words");
    assert_eq!(status.code(), Some(5), "{said}");
    none_is_left(cluster);
}

#[test]
fn all_of_hvtui_is_killed_on_a_host_and_stop_sweeps_its_containers() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let (mut child, err) = going(&client, "sleep 600");
    all_run(cluster);
    // the rank-wraps start another supervisor as long as there is one
    assert!(kill_all(cluster, "n2", &[" supervise ", " rank-wrap "]) >= 3);
    kill_all(cluster, "n2", &[" supervise ", " rank-wrap "]);
    let status = end_of(&mut child);
    let said = std::fs::read_to_string(&err).expect("its words");
    assert_ne!(status.code(), Some(0), "{said}");
    until("no container", || ["n1", "n2"].iter().all(|host| containers(cluster, host).is_empty()));
}

#[test]
fn an_engine_that_is_killed_ends_the_run_with_its_name_and_nothing_runs_on() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let (mut child, err) = going(&client, "sleep 611");
    all_run(cluster);
    let data = cluster.dir().join("n2/docker");
    cluster.on("n2", &format!("kill -9 $(cat {}/dockerd.pid)", data.display()));
    let status = end_of(&mut child);
    let said = std::fs::read_to_string(&err).expect("its words");
    assert_ne!(status.code(), Some(0), "{said}");
    assert!(said.contains("docker on its host stopped answering"), "{said}");
    cluster.assert_none("n2", &["sleep"]);
    kill_all(cluster, "n2", &["containerd"]);
    let script = format!("{}/tests/cluster/docker", env!("CARGO_MANIFEST_DIR"));
    wait_for("docker again", || {
        cluster.on("n2", &format!("{script} {}", data.display())).contains("up").then_some(())
    });
    // the next run removes what the dead daemon could not
    assert_eq!(run(&client, &["-np", "4"], &["true"]).code, 0);
    none_is_left(cluster);
}

#[test]
fn memory_that_runs_out_in_a_container_is_the_cause() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let grow = "x = []\nwhile True: x.append(b'x' * (1 << 20))";
    let ended = run(&client, &["-np", "2", "--container-arg=--memory=64m"], &["python3", "-c", grow]);
    assert_eq!(ended.code, 137, "{ended:#?}");
    assert!(ended.err.contains("out of memory (the limit of its container)"), "{ended:#?}");
    none_is_left(cluster);
}

#[test]
fn secrets_are_in_no_argument_and_reach_the_ranks() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let mut command = client.hvtui(&[
        "run",
        "--image",
        IMAGE,
        "-np",
        "1",
        "-v",
        "~/go:/go",
        "--secret-env",
        "TOKEN",
        "--",
        "sh",
        "-c",
        "while [ ! -e /go/go ]; do sleep 0.05; done; case $TOKEN in *-7?) echo has it;; esac",
    ]);
    let child = command
        .env("TOKEN", "canary-77")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("hvtui");
    until("a container", || cluster.on("n1", "docker ps -q --filter label=hvtui.run | wc -l").trim() == "1");
    assert_eq!(
        cluster.on("n1", "cat /proc/*/cmdline | tr '\\0' ' ' | grep -c canary-7[7]; true").trim(),
        "0"
    );
    let_go(cluster);
    let out = child.output_in_time().expect("its end");
    assert!(String::from_utf8_lossy(&out.stdout).contains("has it"), "{out:?}");
    none_is_left(cluster);
}

#[test]
fn every_kind_runs_in_containers() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let fixture = |name: &str| format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let folder = |file: &str| format!("{0}:{0}:ro", Path::new(file).parent().expect("a folder").display());
    let gloo = fixture("launchers/gloo_rank.py");
    let horovod = run(&client, &["--kind", "horovod", "-np", "4", "-v", &folder(&gloo)], &["python3", &gloo]);
    assert_eq!(horovod.code, 0, "{horovod:#?}");
    assert!(horovod.err.contains("all of 4 ranks are connected"), "{horovod:#?}");
    let script = "echo $TF_CONFIG";
    let tensorflow = run(&client, &["--kind", "tensorflow", "-np", "4"], &["sh", "-c", script]);
    assert_eq!((tensorflow.code, tensorflow.out.matches("\"index\"").count()), (0, 4), "{tensorflow:#?}");
    // all of this machine's libraries: what its own mpirun and torch need
    let libraries = ["-v", "/usr:/usr:ro", "-v", "/etc:/etc:ro"];
    let with =
        |options: &[&str], command: &[&str]| run(&client, &[&libraries[..], options].concat(), command);
    let native = with(&["-np", "4"], &["hvtui", "train", "digits", "--epochs", "1"]);
    assert_eq!((native.code, native.out.matches("weights sha256 ").count()), (0, 4), "{native:#?}");
    let torch = "import torch, torch.distributed as d\nd.init_process_group('gloo')\nx = torch.ones(3) * d.get_rank()\n\
                 d.all_reduce(x)\nprint('sum', x.tolist(), d.get_world_size())";
    let torch = with(&["-np", "4", "--kind", "torch"], &["/usr/bin/python3", "-c", torch]);
    assert_eq!((torch.code, torch.out.matches("sum [6.0, 6.0, 6.0] 4").count()), (0, 4), "{torch:#?}");
    for host in ["n1", "n2"] {
        cluster.on(host, "mkdir -p ~/mpi");
        let source = "#include <mpi.h>\n#include <stdio.h>\nint main(int c,char**v){int r,s;MPI_Init(&c,&v);MPI_Comm_rank(MPI_COMM_WORLD,&r);\
                      MPI_Allreduce(&r,&s,1,MPI_INT,MPI_SUM,MPI_COMM_WORLD);printf(\"rank %d sum %d\\n\",r,s);MPI_Finalize();}";
        cluster.on(host, &format!("printf %s '{source}' > ~/mpi/sum.c && mpicc -o ~/mpi/sum ~/mpi/sum.c"));
    }
    let mpi = with(&["-np", "4", "--kind", "mpi", "--workdir", "~/mpi"], &["./sum"]);
    assert_eq!((mpi.code, mpi.out.matches(" sum 6").count()), (0, 4), "{mpi:#?}");
    none_is_left(cluster);
}

#[test]
fn hooks_traces_and_stacks_reach_into_containers() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace/tracer.py");
    for host in ["n1", "n2"] {
        cluster.on(host, &format!("mkdir -p ~/traced && cp {script} ~/traced"));
    }
    let ended = client.run(&[
        "run",
        "--image",
        IMAGE,
        "--detach",
        "--traceable",
        "-H",
        "n1:2,n2:1",
        "--workdir",
        "~/traced",
        "--",
        "python3",
        "tracer.py",
        "600",
        "helper",
    ]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let run = ended.out.trim().to_owned();
    let traced = client.run(&["trace", &run, "--steps", "3", "-o", "trace.json"]);
    assert_eq!(traced.code, 0, "{traced:#?}");
    let text = std::fs::read_to_string(client.path("trace.json")).expect("a trace");
    assert!((0..3).all(|rank| text.contains(&format!("op of {rank}"))), "{text}");
    let stacks = client.run(&["stacks", &run]);
    assert!(stacks.out.contains("ranks 0-2, pid ") && stacks.out.contains("tracer.py:"), "{stacks:#?}");
    let stopped = client.run(&["stop", &run]);
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    until("no container", || ["n1", "n2"].iter().all(|host| containers(cluster, host).is_empty()));
}

#[test]
fn a_pasted_docker_line_is_one_run_in_containers() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    let gloo = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/launchers/gloo_rank.py");
    let folder = Path::new(gloo).parent().expect("a folder").display();
    let line = format!(
        "sudo docker run --privileged -v ~/.ssh:/root/.ssh -v {folder}:/workspace --network=host --gpus all -it {IMAGE} \
         horovodrun -np 4 -H 10.77.0.11:2,10.77.0.12:2 --network-interface eth0 -p 22 python3 /workspace/gloo_rank.py"
    );
    let words = shlex::split(&line).expect("words");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = client.run(&[&["run", "--"], words.as_slice()].concat());
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(ended.out.matches("of 4 on ").count(), 4, "{ended:#?}");
    for said in ["`sudo` is left out", "`--privileged` is left out", "`-v ~/.ssh:/root/.ssh` is left out"] {
        assert!(ended.err.contains(said), "{said}: {ended:#?}");
    }
    none_is_left(cluster);
}

/// The first object in `value` that is meant.
fn find<'v>(value: &'v Value, meant: &dyn Fn(&Value) -> bool) -> Option<&'v Value> {
    if value.is_object() && meant(value) {
        return Some(value);
    }
    let parts: Vec<&Value> = match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    };
    parts.into_iter().find_map(|part| find(part, meant))
}

#[test]
fn ranks_get_their_gpus_and_what_they_start_on_them_is_theirs() {
    let uuid = |gpu: usize| format!("GPU-contained-{}-{gpu}", std::process::id());
    let library = built::example("libfake_nvml.so");
    let scripts = tempfile::tempdir().expect("a folder");
    let script = |pid: Option<u32>| {
        let processes: Vec<Value> = pid.into_iter().map(|pid| json!({ "pid": pid })).collect();
        let gpus = [
            json!({ "uuid": uuid(0), "processes": processes }),
            json!({ "uuid": uuid(1) }),
            json!({ "uuid": uuid(2) }),
        ];
        std::fs::write(scripts.path().join("n1.json"), json!({ "gpus": gpus }).to_string())
            .expect("a script");
    };
    script(None);
    let Some(cluster) = up(1, &["--fake-nvml".as_ref(), library.as_ref(), scripts.path().as_ref()]) else {
        return;
    };
    let client = Client::new(&cluster);
    client.write("hosts.toml", &cluster.hosts_toml(1).replace("slots = 1", "slots = \"auto\""));
    let line =
        "echo $NVIDIA_VISIBLE_DEVICES and $CUDA_VISIBLE_DEVICES; while [ ! -e /go/go ]; do sleep 0.05; done";
    let mut command = client.hvtui(&["run", "--image", IMAGE, "-v", "~/go:/go", "--gpus", "n1:2,0"]);
    // as whom it runs inside says nothing of whose it is
    command.args(["--container-arg=--user=1234:1234", "--", "sh", "-c", line]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui");
    until("two containers", || {
        cluster.on("n1", "docker ps -q --filter label=hvtui.run | wc -l").trim() == "2"
    });
    let inside =
        cluster.on("n1", "docker inspect -f '{{.State.Pid}}' $(docker ps -q --filter label=hvtui.rank=0)");
    script(Some(inside.trim().parse().expect("a pid")));
    let seen = wait_for("the process on its GPU", || {
        let seen = client.run(&["watch", "--once", "--json"]);
        let tick: Value = serde_json::from_str(seen.out.lines().next()?).ok()?;
        let found = tick.to_string().contains("while [ ! -e /go/go ]");
        found.then_some(tick)
    });
    let runs: Value = serde_json::from_str(&client.run(&["runs", "--json", "--local"]).out).expect("JSON");
    let process =
        find(&seen, &|value| value["pid"].as_u64().is_some_and(|pid| pid.to_string() == inside.trim()));
    let process = process.expect("the process");
    let id = cluster.on("n1", "docker ps -q --filter label=hvtui.rank=0");
    assert_eq!(process["container"], json!(id.trim()), "{process}");
    assert_eq!(process["run"], json!({ "id": runs[0]["spec"]["id"], "rank": 0 }), "{process}");
    assert_eq!(process["user"], json!("root"), "whose run it is: {process}");
    assert!(seen.to_string().contains(&uuid(0)), "{seen}");
    // hvtui's containers share the host's memory, and one by NVIDIA's runtime alone has no GPUs; one that a person has started as the
    // tutorials do has some, and does not share it
    let start = |name: &str, more: &str| {
        cluster.on("n1", &format!("docker run -d --runtime nvidia {more} --name {name} {IMAGE} sleep 1000"))
    };
    let doctor = || client.run(&["doctor", "--only", "docker", "-v"]);
    start("grafana", "");
    assert!(doctor().out.contains("✔ docker"), "{:#?}", doctor());
    start("tutorial", "-e NVIDIA_VISIBLE_DEVICES=all");
    let small = doctor();
    assert!(small.out.contains("container tutorial has GPUs and 64 MB of /dev/shm"), "{small:#?}");
    cluster.on("n1", "docker rm -f tutorial grafana");
    let_go(&cluster);
    let out = child.output_in_time().expect("its end");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let both = format!("{},{}", uuid(2), uuid(0));
    assert_eq!(said.matches(&format!("{both} and {both}")).count(), 2, "{out:?}");
    assert_eq!(containers(&cluster, "n1"), [""; 0]);
}

#[test]
fn a_sync_leaves_a_running_container_its_tree() {
    let (Some(cluster), _alone) = (two(), alone()) else { return };
    let client = person(cluster);
    std::fs::create_dir(client.path("code")).expect("a folder");
    client.write("code/version", "one");
    let line = "touch /go/up; while [ ! -e /go/go ]; do sleep 0.05; done; cat version; ls";
    let first = [
        "run",
        "--image",
        IMAGE,
        "-v",
        "~/go:/go",
        "-H",
        "n1:1",
        "--sync",
        "code:~/code",
        "--",
        "sh",
        "-c",
        line,
    ];
    let child = client.hvtui(&first).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hvtui");
    until("a container", || cluster.on("n1", "ls ~/go").trim() == "up");
    client.write("code/version", "two");
    // a folder that no sync brought would move away under the container
    cluster.on("n1", "mkdir ~/code/out");
    let sync = ["run", "-H", "n1:1", "--sync", "code:~/code", "--", "cat", "version"];
    let refused = client.run(&sync);
    assert!(refused.code != 0 && refused.err.contains("works here in a container"), "{refused:#?}");
    cluster.on("n1", "rmdir ~/code/out");
    let second = client.run(&sync);
    assert_eq!((second.code, second.out.trim()), (0, "[0] two"), "{second:#?}");
    let trees = || cluster.on("n1", "ls -d ~/.code.hvtui-* | wc -l");
    assert_eq!(trees().trim(), "1", "the older tree stays: {second:#?}");
    let_go(cluster);
    let out = child.output_in_time().expect("its end");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("one") && out.status.success(), "{out:?}");
}
