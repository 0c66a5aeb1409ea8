//! Real Open MPI behind hvtui's supervisors: ranks that mpirun starts are ranks like all others.
//!
//! Needs `mpirun` (Debian: openmpi-bin), for one test `mpicc` (libopenmpi-dev), for two hosts what `tests/cluster/hosts`
//! needs.

#![expect(clippy::unwrap_used, reason = "a test fails by its panic, in its helpers too")]

#[path = "common/bed.rs"]
#[expect(dead_code, reason = "each test binary uses a part of it")]
mod bed;
#[cfg(test)]
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "common/cluster.rs"]
mod cluster;
#[path = "common/plan.rs"]
mod plan;
#[path = "common/processes.rs"]
#[expect(dead_code, reason = "each test binary uses a part of it")]
mod processes;

use std::path::Path;
use std::process::Command;

use bed::{Bed, ended, exit, hvtui, rank_process, text};
use cluster::skip;
use hvtui::domain::engine::{Engine, Launcher, Program};
use hvtui::domain::mpirun::{MpiHost, MpiPlan};
use hvtui::domain::run::HostRun;
use hvtui::domain::tags::TagStyle;
use hvtui::supervise::stop::{Stopped, stop};
use processes::until;
use rustix::process::Signal;

fn mpi_is_missing() -> bool {
    let missing = Command::new("mpirun").arg("--version").output().is_err();
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
    let built = Command::new("mpicc").args(["-o", "sum", "sum.c"]).current_dir(folder).output();
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
        std::fs::write(bed.work("go"), "").unwrap();
        ended(&dir);
        let exits = [exit(&dir, 0), exit(&dir, 1)];
        assert_eq!((exits[1].code, exits[1].signal, exits[1].stopped), (code, signal, false));
        assert_eq!((exits[0].signal, exits[0].stopped), (Some(15), true));
        let apart = exits[0].t.0.abs_diff(exits[1].t.0);
        assert!(apart < 2_000_000, "stopped {apart} us after the failure");
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
    let script = "trap 'sleep 2.5; echo saved; exit 0' TERM; echo $$ > self-$RANK; while :; do sleep 0.01; done";
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
    let all = hvtui::supervise::tree::all();
    let mpirun = all.iter().find(|process| {
        process.stat.name == "mpirun" && bed.processes().contains(&process.pid)
    });
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
