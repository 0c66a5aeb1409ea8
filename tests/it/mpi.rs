//! Real Open MPI behind hvtui's supervisors: ranks that mpirun starts are ranks like all others.
//!
//! Needs `mpirun` (Debian: openmpi-bin), for one test `mpicc` (libopenmpi-dev), for two hosts what `tests/cluster/hosts`
//! needs.

use std::path::Path;
use std::process::Command;

use crate::common::bed::{Bed, ended, exit, hvtui, rank_process, text};
use crate::common::cluster::skip;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{until, waited_for_processors};
use crate::common::{bed, plan};
use hvtui::domain::engine::{Engine, Launcher, Program};
use hvtui::domain::mpirun::{MpiHost, MpiPlan};
use hvtui::domain::run::HostRun;
use hvtui::domain::tags::TagStyle;
use hvtui::supervise::stop::{Stopped, stop};
use rustix::process::Signal;

fn mpi_is_missing() -> bool {
    let missing = Command::new("mpirun").arg("--version").output_in_time().is_err();
    if missing {
        skip("no mpirun: apt-get install openmpi-bin");
    }
    missing
}

/// mpirun for as many ranks as the spec has, on this host.
fn by_mpirun(mut spec: HostRun, slots: u32, options: &[&str]) -> HostRun {
    let world = spec.ranks.len() as u32;
    let plan = MpiPlan {
        program: "mpirun".to_owned(),
        world,
        hosts: vec![MpiHost { address: "127.0.0.1".to_owned(), slots }],
        interface: None,
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        before: Vec::new(),
        line: Vec::new(),
    };
    spec.engine = Some(launcher(Program::Mpi(plan), None));
    spec
}

fn launcher(program: Program, tags: Option<TagStyle>) -> Engine {
    Engine::Launcher(Launcher {
        program,
        env: std::collections::BTreeMap::new(),
        cwd: None,
        nodes: Vec::new(),
        tags,
        name: String::new(),
        elsewhere: std::collections::BTreeMap::new(),
    })
}

/// `launcher` as a shell script.
fn by_script(mut spec: HostRun, script: &str, tags: Option<TagStyle>) -> HostRun {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    spec.engine = Some(launcher(Program::Argv(argv), tags));
    spec
}

#[test]
fn ranks_of_mpirun_have_streams_of_their_own_and_what_the_run_and_mpirun_give_them() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    let script = "echo out-$OMPI_COMM_WORLD_RANK-$RANK-$OMPI_COMM_WORLD_SIZE; echo err-$RANK >&2; \
                  printf %s \"$HVTUI_SECRET\" > secret-$RANK; printf no-newline";
    let dir = bed.start(by_mpirun(bed.spec(&[script, script], 1000), 2, &[]));
    let end = ended(&dir);
    assert!(end.left.is_empty());
    for rank in 0..2 {
        assert_eq!(text(&dir, &format!("rank-{rank}.out")), format!("out-{rank}-{rank}-2\nno-newline"));
        assert!(text(&dir, &format!("rank-{rank}.err")).contains(&format!("err-{rank}\n")));
        assert_eq!(exit(&dir, rank).describe(), "exit 0");
        assert_eq!(std::fs::read_to_string(bed.work(&format!("secret-{rank}"))).unwrap(), "canary-5f1c");
    }
    assert_eq!(bed.processes(), [0; 0]);
}

/// A program that adds the ranks' numbers up by MPI, and aborts as the rank that its argument names.
fn summing(folder: &Path) -> Option<String> {
    let source = "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
        int main(int c, char **v) { int r, n, s; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r);\n\
        MPI_Comm_size(MPI_COMM_WORLD, &n); MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n\
        printf(\"rank %d of %d: sum %d\\n\", r, n, s); fflush(stdout);\n\
        if (c > 1) { if (r == atoi(v[1])) MPI_Abort(MPI_COMM_WORLD, 3); MPI_Barrier(MPI_COMM_WORLD); }\n\
        MPI_Finalize(); return 0; }\n";
    std::fs::write(folder.join("sum.c"), source).unwrap();
    let built = Command::new("mpicc").args(["-o", "sum", "sum.c"]).current_dir(folder).output_in_time();
    match built {
        Ok(output) if output.status.success() => Some(folder.join("sum").display().to_string()),
        other => {
            skip(&format!("no mpicc that works: apt-get install libopenmpi-dev: {other:?}"));
            None
        }
    }
}

#[test]
fn ranks_of_mpirun_reduce_and_an_abort_is_named_by_its_rank() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    let Some(program) = summing(&bed.home.path().join("work")) else { return };
    let dir = bed.start(by_mpirun(bed.spec(&[&program, &program, &program], 1000), 3, &[]));
    ended(&dir);
    for rank in 0..3 {
        assert_eq!(text(&dir, &format!("rank-{rank}.out")), format!("rank {rank} of 3: sum 3\n"));
        assert_eq!(exit(&dir, rank).describe(), "exit 0");
    }
    let bed = Bed::new();
    let program = format!("{program} 1");
    let dir = bed.start(by_mpirun(bed.spec(&[&program, &program], 1000), 2, &[]));
    ended(&dir);
    assert_eq!((exit(&dir, 1).code, exit(&dir, 1).stopped), (Some(3), false));
    assert!(exit(&dir, 0).stopped, "{:?}", exit(&dir, 0));
}

#[test]
fn a_rank_of_mpirun_that_fails_is_named_and_ends_the_others() {
    if mpi_is_missing() {
        return;
    }
    for (script, code, signal) in [("exit 3", Some(3), None), ("kill -9 $$", None, Some(9))] {
        let bed = Bed::new();
        let failing = format!("while [ ! -e go ]; do sleep 0.01; done; {script}");
        let dir = bed.start(by_mpirun(bed.spec(&["exec sleep 600", &failing], 60_000), 2, &[]));
        let peer = rank_process(&dir, 0);
        let waited = waited_for_processors();
        std::fs::write(bed.work("go"), "").unwrap();
        ended(&dir);
        let waited = waited_for_processors() - waited;
        let exits = [exit(&dir, 0), exit(&dir, 1)];
        assert_eq!((exits[1].code, exits[1].signal, exits[1].stopped), (code, signal, false));
        assert_eq!((exits[0].signal, exits[0].stopped), (Some(15), true));
        let apart = exits[0].t.0.abs_diff(exits[1].t.0);
        assert!(
            apart < 2_000_000 + waited,
            "stopped {apart} us after the failure, {waited} us without a processor"
        );
        assert!(!peer.alive());
        assert_eq!(bed.processes(), [0; 0]);
    }
}

#[test]
fn a_stop_gives_ranks_of_mpirun_their_grace_and_ends_all_of_it() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    // Longer than mpirun waits before it kills.
    let script =
        "trap 'sleep 2.5; echo saved; exit 0' TERM; echo $$ > self-$RANK; while :; do sleep 0.01; done";
    let dir = bed.start(by_mpirun(bed.spec(&[script, script], 60_000), 2, &[]));
    for rank in 0..2 {
        until("a rank's start", || bed.work(&format!("self-{rank}")).exists());
    }
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    let end = ended(&dir);
    assert!(end.left.is_empty());
    for rank in 0..2 {
        assert_eq!(text(&dir, &format!("rank-{rank}.out")), "saved\n");
        assert_eq!((exit(&dir, rank).code, exit(&dir, rank).stopped), (Some(0), true));
    }
    assert_eq!(bed.processes(), [0; 0]);
}

#[test]
fn a_rank_whose_start_is_not_written_down_yet_is_told_to_end_like_the_others() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    let script = "trap 'echo saved; while [ ! -e end ]; do sleep 0.01; done; exit 0' TERM; echo $$ > self-$RANK; \
                  while :; do sleep 0.01; done";
    let dir = bed.start(by_mpirun(bed.spec(&[script, script], 60_000), 2, &[]));
    for rank in 0..2 {
        until("a rank's start", || bed.work(&format!("self-{rank}")).exists());
        rank_process(&dir, rank);
    }
    let [started, aside] = ["started-1.json", "aside"].map(|name| dir.path().join(name));
    std::fs::rename(&started, &aside).unwrap();
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    for rank in 0..2 {
        until("a rank that is told", || text(&dir, &format!("rank-{rank}.out")) == "saved\n");
    }
    // a rank that ends has its start written down
    std::fs::rename(&aside, &started).unwrap();
    std::fs::write(bed.work("end"), "").unwrap();
    ended(&dir);
    for rank in 0..2 {
        let exit = exit(&dir, rank);
        assert_eq!((exit.code, exit.stopped), (Some(0), true), "{exit:?}");
    }
    assert_eq!(bed.processes(), [0; 0]);
}

#[test]
fn ranks_that_mpirun_never_starts_have_failed_by_its_words() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    let dir = bed.start(by_mpirun(bed.spec(&["exit 0", "exit 0"], 1000), 1, &[]));
    ended(&dir);
    let said = exit(&dir, 0).describe();
    assert!(said.starts_with("could not start: mpirun: There are not enough slots available"), "{said}");
    assert_eq!(exit(&dir, 0).code, Some(1));
    assert!(text(&dir, "rank-0.err").contains("not enough slots"), "the launcher's words are there to read");
}

#[test]
fn an_mpirun_that_is_killed_is_the_cause() {
    if mpi_is_missing() {
        return;
    }
    let bed = Bed::new();
    let dir = bed.start(by_mpirun(bed.spec(&["exec sleep 600", "exec sleep 600"], 60_000), 2, &[]));
    rank_process(&dir, 0);
    rank_process(&dir, 1);
    let all = hvtui::procs::table::all();
    let mpirun =
        all.iter().find(|process| process.stat.name == "mpirun" && bed.processes().contains(&process.pid));
    assert!(mpirun.unwrap().signal(Signal::KILL));
    ended(&dir);
    for rank in 0..2 {
        let exit = exit(&dir, rank);
        assert_eq!(exit.describe(), "killed by SIGTERM, mpirun was killed by SIGKILL", "{exit:?}");
        assert!(!exit.stopped);
    }
    assert_eq!(bed.processes(), [0; 0]);
}

#[test]
fn a_launcher_that_leaves_ranks_out_has_failed_whatever_it_says() {
    let bed = Bed::new();
    let script = "PMI_RANK=0 \"$HVTUI_EXE\" rank-shim";
    let dir = bed.start(by_script(bed.spec(&["echo hi", "echo never"], 1000), script, None));
    ended(&dir);
    assert_eq!(exit(&dir, 0).describe(), "exit 0");
    assert_eq!(exit(&dir, 1).describe(), "could not start: sh ended with exit 0 without starting rank 1");
    assert_eq!(text(&dir, "rank-0.out"), "hi\n");
}

#[test]
fn a_rank_that_is_mapped_elsewhere_than_planned_is_told_so() {
    let bed = Bed::new();
    let script = "PMI_RANK=7 \"$HVTUI_EXE\" rank-shim";
    let dir = bed.start(by_script(bed.spec(&["exit 0"], 1000), script, None));
    ended(&dir);
    let said = exit(&dir, 0).describe();
    assert!(said.contains("rank 7 has no place on this host"), "{said}");
}

#[test]
fn a_stop_reaches_ranks_that_still_wait_for_their_launcher() {
    let bed = Bed::new();
    let script = "trap '' TERM; echo > waiting; while :; do sleep 0.05; done";
    let mut spec = by_script(bed.spec(&["exit 0", "exit 0"], 300), script, None);
    if let Some(Engine::Launcher(launcher)) = &mut spec.engine {
        launcher.cwd = Some(bed.home.path().join("work").display().to_string());
    }
    let dir = bed.start(spec);
    until("the launcher", || bed.work("waiting").exists());
    assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
    ended(&dir);
    assert!((0..2).all(|rank| exit(&dir, rank).stopped));
    assert_eq!(bed.processes(), [0; 0]);
}

#[test]
fn a_launcher_that_ends_by_itself_behind_its_ranks_is_not_told_to_end() {
    // as mpirun does over several hosts, which crashes when it is told meanwhile
    for (first, stopped) in [("exit 7", false), ("exit 0", true)] {
        let bed = Bed::new();
        let script = format!(
            "trap 'echo told >&2' TERM; for rank in 0 1; do PMI_RANK=$rank \"$HVTUI_EXE\" rank-shim & done; wait; \
             until [ -e '{}' ]; do sleep 0.05; done; sleep 0.3; echo last words >&2; exit 1",
            bed.work("go").display()
        );
        let second = if stopped { "exit 0" } else { "sleep 60" };
        let dir = bed.start(by_script(bed.spec(&[first, second], 5000), &script, None));
        until("the end of the ranks", || (0..2).all(|rank| dir.has(&format!("exit-{rank}.json"))));
        if stopped {
            assert_eq!(stop(hvtui(), &dir, false).unwrap(), Stopped::Told);
        }
        // it is still there when they have ended, and when it could be told
        std::fs::write(bed.work("go"), "").unwrap();
        ended(&dir);
        let said = text(&dir, "rank-0.err");
        assert!(said.contains("last words") && !said.contains("told"), "stopped: {stopped}: {said}");
        assert_eq!(bed.processes(), [0; 0]);
    }
}

#[test]
fn the_output_of_a_launcher_that_tags_is_split_and_its_words_tell_who_failed() {
    let bed = Bed::new();
    let script = "printf '[0]<stdout>:a[1]<stdout>:b\\n[0]<stdout>:c\\n'; echo 'launcher speaks' >&2; \
                  printf '[1]<stderr>:oops\\n'; echo 'Process 1 exit with status code 3.' >&2; exit 1";
    let dir = bed.start(by_script(bed.spec(&["", ""], 1000), script, Some(TagStyle::Horovod)));
    ended(&dir);
    assert_eq!(text(&dir, "rank-0.out"), "ac\n");
    assert_eq!(text(&dir, "rank-1.out"), "b\n");
    assert_eq!(text(&dir, "rank-1.err"), "oops\n");
    assert!(text(&dir, "rank-0.err").contains("launcher speaks\n"));
    assert_eq!((exit(&dir, 1).code, exit(&dir, 1).stopped), (Some(3), false));
    assert!(exit(&dir, 0).stopped);
    let bed = Bed::new();
    let dir = bed.start(by_script(bed.spec(&["", ""], 1000), "printf '1: x\\n'", Some(TagStyle::Srun)));
    ended(&dir);
    assert_eq!(text(&dir, "rank-1.out"), "x\n");
    assert!((0..2).all(|rank| exit(&dir, rank).describe() == "exit 0"));
}

mod two_hosts {
    //! mpirun on the first host, ranks on both, and no ssh from one to the other.

    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

    use hvtui::domain::engine::{Engine, Launcher, Node, Program};
    use hvtui::domain::ids::{HostId, Rank};
    use hvtui::domain::mpirun::{MpiHost, MpiPlan};
    use hvtui::domain::run::{HostRun, RankExit};
    use hvtui::supervise::rundir::RunDir;
    use hvtui::supervise::state::{Phase, STATE, State, exit_file};

    use super::{bed, mpi_is_missing, plan};
    use crate::common::cluster::Cluster;
    use crate::common::processes::{until, waited_for_processors};

    /// What an agent does to start a supervisor: its input comes over a socket.
    const START: &str = "import socket, subprocess, sys\n\
        ours, theirs = socket.socketpair()\n\
        child = subprocess.Popen([sys.argv[1], 'supervise', '--dir', sys.argv[2]], stdin=theirs,\n\
        \x20   stdout=subprocess.PIPE, cwd='/')\n\
        theirs.close()\n\
        ours.sendall(open(sys.argv[3], 'rb').read())\n\
        ours.close()\n\
        print(child.communicate()[0].decode())\n";
    const ADDRESSES: [&str; 2] = ["10.77.0.11", "10.77.0.12"];

    fn cluster() -> Option<&'static Cluster> {
        static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
        if mpi_is_missing() {
            return None;
        }
        TWO.get_or_init(|| Cluster::ready(2, &[])).as_ref()
    }

    /// One run at a time: what is left of it on the hosts is looked for by name.
    static ALONE: Mutex<()> = Mutex::new(());

    /// A run of two hosts with two ranks each.
    struct Two {
        cluster: &'static Cluster,
        folder: PathBuf,
        dirs: [RunDir; 2],
        _alone: MutexGuard<'static, ()>,
    }

    impl Two {
        /// Starts it: rank `n` executes the n-th script.
        fn start(
            cluster: &'static Cluster,
            name: &str,
            port: u16,
            scripts: [&str; 4],
            secrets: [&str; 2],
        ) -> Self {
            let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let folder = cluster.dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("start.py"), START).unwrap();
            let run = plan::unique_run();
            let hosts = ADDRESSES.map(|address| MpiHost { address: address.to_owned(), slots: 2 });
            let dirs = [1, 0].map(|at: usize| {
                let host = HostId::from(["n1", "n2"][at]);
                let mut spec = plan::scripts((&run, &host), "/bin/sh", &scripts, &folder, 2000);
                spec.ranks = spec.ranks.drain(2 * at..2 * at + 2).collect();
                spec.engine = Some(if at == 0 {
                    Engine::Launcher(Launcher {
                        program: Program::Mpi(MpiPlan {
                            program: "mpirun".to_owned(),
                            world: 4,
                            hosts: hosts.to_vec(),
                            interface: Some("10.77.0.0/24".to_owned()),
                            options: Vec::new(),
                            before: Vec::new(),
                            line: Vec::new(),
                        }),
                        env: BTreeMap::new(),
                        cwd: None,
                        nodes: vec![ADDRESSES[1].to_owned()],
                        tags: None,
                        name: String::new(),
                        elsewhere: BTreeMap::new(),
                    })
                } else {
                    let needs = vec!["orted".to_owned()];
                    Engine::Node(Node {
                        name: ADDRESSES[at].to_owned(),
                        needs,
                        env: BTreeMap::new(),
                        stands: false,
                    })
                });
                start(cluster, &folder, at, &spec, port, secrets[at])
            });
            let [second, first] = dirs;
            Self { cluster, folder, dirs: [first, second], _alone: alone }
        }

        fn ended(&self) {
            for dir in &self.dirs {
                until("the end of a supervisor", || {
                    dir.read_json::<State>(STATE).unwrap().unwrap().phase == Phase::Ended
                });
            }
            for host in ["n1", "n2"] {
                self.cluster.until_none(host, |process| {
                    ["mpirun", "orted", "sleep"].contains(&process.name.as_str())
                        || process.args.contains("-wrap")
                        || process.args.contains("rank-shim")
                });
            }
        }

        fn exit(&self, rank: u32) -> RankExit {
            self.dirs[rank as usize / 2].read_json(&exit_file(Rank(rank))).unwrap().unwrap()
        }

        fn out(&self, rank: u32) -> String {
            bed::text(&self.dirs[rank as usize / 2], &format!("rank-{rank}.out"))
        }

        /// Waits until each rank has made its file.
        fn all_up(&self) {
            for rank in 0..4 {
                until("every rank", || self.folder.join(format!("up-{rank}")).exists());
            }
        }
    }

    fn start(cluster: &Cluster, folder: &Path, at: usize, spec: &HostRun, port: u16, secret: &str) -> RunDir {
        let path = folder.join(format!("run{at}"));
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path).unwrap();
        let env = BTreeMap::from([
            ("MASTER_ADDR", ADDRESSES[0].to_owned()),
            ("HVTUI_BIND", ADDRESSES[at].to_owned()),
            ("HVTUI_NODE_PORT", port.to_string()),
            ("HVTUI_SECRET", secret.repeat(32)),
        ]);
        let held: [u32; 0] = [];
        let late = bed::secrets(env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        let input = serde_json::json!({ "spec": spec, "late": late, "held": held });
        let file = folder.join(format!("input{at}.json"));
        std::fs::write(&file, input.to_string()).unwrap();
        let line = format!(
            "env -u OMPI_MCA_plm_rsh_args python3 {}/start.py {} {} {}",
            folder.display(),
            crate::common::program::hvtui(),
            path.display(),
            file.display()
        );
        let said = cluster.on(["n1", "n2"][at], &line);
        assert!(said.contains("ready"), "{said}");
        RunDir::open(&path).unwrap()
    }

    const WAIT: &str = "echo > up-$RANK; while [ ! -e go ]; do sleep 0.02; done; exec sleep 120";

    #[test]
    fn ranks_on_two_hosts_reduce_without_ssh_between_them() {
        let Some(cluster) = cluster() else { return };
        let built = cluster.dir().join("built");
        std::fs::create_dir(&built).unwrap();
        let Some(program) = super::summing(&built) else { return };
        let script = format!("hostname; {program}");
        let run = Two::start(cluster, "sum", 29_601, [&script; 4], ["ab"; 2]);
        run.ended();
        for rank in 0..4 {
            let host = ["n1", "n2"][rank as usize / 2];
            assert_eq!(run.exit(rank).describe(), "exit 0");
            assert_eq!(run.out(rank), format!("{host}\nrank {rank} of 4: sum 6\n"));
        }
    }

    #[test]
    fn a_rank_that_fails_on_either_host_is_named_and_all_others_end_within_two_seconds() {
        let Some(cluster) = cluster() else { return };
        for (failing, name, port) in [(3, "fail3", 29_602), (1, "fail1", 29_603)] {
            let fails = "echo > up-$RANK; while [ ! -e go ]; do sleep 0.02; done; exit 3";
            let mut scripts = [WAIT; 4];
            scripts[failing] = fails;
            let run = Two::start(cluster, name, port, scripts, ["ab"; 2]);
            run.all_up();
            let waited = waited_for_processors();
            std::fs::write(run.folder.join("go"), "").unwrap();
            run.ended();
            let waited = waited_for_processors() - waited;
            let root = run.exit(failing as u32);
            assert_eq!((root.code, root.stopped), (Some(3), false));
            for rank in (0..4).filter(|rank| *rank != failing as u32) {
                let exit = run.exit(rank);
                assert_eq!((exit.signal, exit.stopped), (Some(15), true), "rank {rank}: {exit:?}");
                let apart = exit.t.0.abs_diff(root.t.0);
                assert!(
                    apart < 2_000_000 + waited,
                    "rank {rank}: {apart} us after the failure, {waited} without a processor"
                );
            }
        }
    }

    #[test]
    fn a_stop_ends_the_launcher_and_what_it_started_on_both_hosts() {
        let Some(cluster) = cluster() else { return };
        let run = Two::start(cluster, "stop", 29_604, [WAIT; 4], ["ab"; 2]);
        run.all_up();
        for (host, dir) in ["n1", "n2"].iter().zip(&run.dirs) {
            let pid = dir.read_json::<State>(STATE).unwrap().unwrap().supervisor.pid;
            cluster.on(host, &format!("kill {pid}"));
        }
        run.ended();
        assert!((0..4).all(|rank| run.exit(rank).stopped));
    }

    #[test]
    fn a_node_that_has_not_the_secret_gets_no_order() {
        let Some(cluster) = cluster() else { return };
        let run = Two::start(cluster, "stranger", 29_605, ["echo > up-$RANK"; 4], ["ab", "cd"]);
        let refused = || run.dirs[1].has(&exit_file(Rank(2)));
        until("the node's refusal", refused);
        let said = run.exit(2).describe();
        assert!(said.contains("n2 takes no orders from 10.77.0.11:29605"), "{said}");
        let pid = run.dirs[0].read_json::<State>(STATE).unwrap().unwrap().supervisor.pid;
        cluster.on("n1", &format!("kill {pid}"));
        run.ended();
        assert!((0..4).all(|rank| !run.folder.join(format!("up-{rank}")).exists()));
    }
}
