//! Every MPI that is at hand, by its own launcher, over two real ssh hosts that know neither each other's names nor each
//! other's keys: Debian's Open MPI and MPICH, and those whose folders `HVTUI_TEST_MPIS` names (`tests/heavy/mpi`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::client::{Client, Ended};
use crate::common::cluster;
use crate::common::cluster::{Cluster, skip};
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::{end_of, until};

/// An MPI: its launcher, a program that is linked with it, and what `hvtui run` is told of its folder.
struct Mpi {
    launcher: String,
    program: String,
    options: Vec<String>,
}

/// The hosts with the MPIs, of one test alone: what a run leaves is looked for by name.
struct Bed {
    cluster: Cluster,
    mpis: Vec<Mpi>,
}

impl Bed {
    fn up() -> Option<Self> {
        let cluster = Cluster::ready(2, &[])?;
        for host in ["n1", "n2"] {
            cluster.on(host, "echo 127.0.0.1 localhost >/etc/hosts");
        }
        let folders = std::env::var_os("HVTUI_TEST_MPIS").unwrap_or_default();
        let others = std::env::split_paths(&folders).filter(|path| path.is_absolute());
        let mpis = ["openmpi", "mpich"].into_iter().filter_map(|name| debian(&cluster, name));
        let mut mpis: Vec<Mpi> = mpis.chain(others.map(|folder| of_folder(&cluster, &folder))).collect();
        // Open MPI names its session folders after the host and a pid, and the hosts of all tests share both and /tmp.
        let folder = cluster.dir().join("tmp");
        std::fs::create_dir(&folder).expect("a folder");
        // the last two of its options: a launcher has them with the program of another one, too
        for mpi in &mut mpis {
            mpi.options.extend(["--env".to_owned(), format!("TMPDIR={}", folder.display())]);
        }
        Some(Self { cluster, mpis })
    }

    /// A person whose hosts have two slots each.
    fn person(&self) -> Client<'_> {
        let client = Client::new(&self.cluster);
        client.write("hosts.toml", &self.cluster.hosts_toml(2));
        client
    }

    /// Until nothing of an MPI is left on either host.
    fn is_free(&self) {
        for host in ["n1", "n2"] {
            let of_an_mpi = ["mpirun", "mpiexec", "orted", "prted", "prterun", "hydra_", "ends-"];
            self.cluster
                .until_none(host, |process| of_an_mpi.iter().any(|name| process.name.starts_with(name)));
        }
    }
}

fn debian(cluster: &Cluster, name: &str) -> Option<Mpi> {
    let launcher = format!("/usr/bin/mpirun.{name}");
    let compiler = format!("/usr/bin/mpicc.{name}");
    if ![&launcher, &compiler].into_iter().all(|file| Path::new(file).exists()) {
        skip(&format!("no {launcher} and {compiler}: apt-get install {name} lib{name}-dev"));
        return None;
    }
    let program = built(cluster, name, Command::new(compiler));
    Some(Mpi { launcher, program, options: Vec::new() })
}

/// One that lies in a folder of its own, such as a virtual environment of Python.
fn of_folder(cluster: &Cluster, folder: &Path) -> Mpi {
    let path = |name: &str| folder.join(name).display().to_string();
    let search = format!("{}:/usr/local/bin:/usr/bin:/bin", path("bin"));
    let variables = [("PATH", search), ("LD_LIBRARY_PATH", path("lib")), ("I_MPI_ROOT", path(""))];
    let mut compiler = Command::new(path("bin/mpicc"));
    compiler.envs(variables.clone());
    let name = folder.file_name().expect("a folder's name").display().to_string();
    let options = variables.iter().flat_map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")]);
    Mpi { launcher: path("bin/mpirun"), program: built(cluster, &name, compiler), options: options.collect() }
}

/// The path of the test's program, named after its MPI.
fn built(cluster: &Cluster, name: &str, mut compiler: Command) -> String {
    let program = cluster.dir().join(format!("ends-{name}"));
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mpi/ends.c");
    let out = compiler.arg("-o").arg(&program).arg(source).output_in_time().expect("a compiler");
    assert!(out.status.success(), "{name}: {}", cluster::text(&out.stderr));
    program.display().to_string()
}

/// `hvtui run OPTIONS -- LAUNCHER WORDS PROGRAM ARGUMENTS`.
fn line<'a>(mpi: &'a Mpi, options: &[&'a str], words: &[&'a str], arguments: &[&'a str]) -> Vec<&'a str> {
    let own: Vec<&str> = mpi.options.iter().map(String::as_str).collect();
    [&["run"], &own[..], options, &["--", &mpi.launcher], words, &[&mpi.program], arguments].concat()
}

/// `rank 2 (n2:0): exit 3` of the sentence about the rank that failed first.
fn told(said: &str) -> String {
    let cause = said.split_once(';').map_or(said, |(cause, _)| cause);
    cause.replace(" failed first", "")
}

fn is_open_mpi_5(mpi: &Mpi) -> bool {
    let said = Command::new(&mpi.launcher).arg("--version").output_in_time().expect("a launcher").stdout;
    cluster::text(&said).contains("(Open MPI) 5")
}

/// The lines that the ranks printed, in the order of the ranks.
fn printed(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<&str> = ended.out.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn each_mpi_reduces_on_one_host_and_on_two_with_different_numbers_of_ranks() {
    let Some(bed) = Bed::up() else { return };
    let client = bed.person();
    for mpi in &bed.mpis {
        let said = |hosts: &[&str], options: &[&str], words: &[&str]| {
            let ended = client.run(&line(mpi, options, &[hosts, words].concat(), &[]));
            assert_eq!(ended.code, 0, "{}: {ended:#?}", mpi.launcher);
            printed(&ended).join("\n")
        };
        let one = said(&["-np", "2", "-H", "n1:2"], &[], &[]);
        assert_eq!(one, "[0] rank 0 of 2 on n1: sum 1 -\n[1] rank 1 of 2 on n1: sum 1 -");
        let two = said(&["-np", "3", "-H", "10.77.0.11:1,10.77.0.12:2"], &["--env", "WORD=hello"], &[]);
        let ranks = ["[0] rank 0 of 3 on n1: sum 3 hello", "[1] rank 1 of 3 on n2: sum 3 hello"];
        assert_eq!(two, format!("{}\n{}\n[2] rank 2 of 3 on n2: sum 3 hello", ranks[0], ranks[1]));
        bed.is_free();
    }
}

#[test]
fn a_program_of_another_mpi_than_the_launchers_starts_no_run() {
    let Some(bed) = Bed::up() else { return };
    let [open, mpich, ..] = &bed.mpis[..] else { return skip("one MPI alone") };
    let client = bed.person();
    for (launcher, program, says, linked) in [
        (open, mpich, "mpirun is Open MPI ", "MPICH (libmpich.so."),
        (mpich, open, "mpirun is MPICH ", "Open MPI (libmpi.so."),
    ] {
        let [.., env, tmp] = &launcher.options[..] else { panic!("TMPDIR: {:?}", launcher.options) };
        let words = ["-np", "2", "-H", "n1:1,n2:1", &program.program];
        let line = [&[env.as_str(), tmp, "--", &launcher.launcher], &words[..]].concat();
        let refused = client.run(&[&["run"], &line[..]].concat());
        assert!(refused.code == 78 && refused.out.is_empty(), "{refused:#?}");
        for part in ["n1", "n2", says, linked, "each is rank 0 of 1", "--force"] {
            assert!(refused.err.contains(part), "{part}: {refused:#?}");
        }
        // what it is kept from
        let forced = client.run(&[&["run", "--force"], &line[..]].concat());
        assert!(forced.out.matches("rank 0 of 1").count() == 2, "{forced:#?}");
        bed.is_free();
    }
}

#[test]
fn the_rank_of_each_mpi_that_exits_aborts_or_is_killed_is_named_and_ends_the_others() {
    let Some(bed) = Bed::up() else { return };
    let client = bed.person();
    for mpi in &bed.mpis {
        for (how, rank, code, said) in [
            ("exit", "2", 3, "rank 2 (n2:0) failed first: exit 3; ranks 0-1, 3 stopped"),
            ("exit", "0", 3, "rank 0 (n1:0) failed first: exit 3; ranks 1-3 stopped"),
            ("abort", "2", 3, "rank 2 (n2:0) failed first: exit 3; ranks 0-1, 3 stopped"),
            ("abort", "1", 3, "rank 1 (n1:1) failed first: exit 3; ranks 0, 2-3 stopped"),
            ("kill", "3", 137, "rank 3 (n2:1) failed first: killed by SIGKILL; ranks 0-2 stopped"),
        ] {
            let ended = client.run(&line(mpi, &[], &["-np", "4", "-H", "n1:2,n2:2"], &[how, rank]));
            let what = format!("{} {how} {rank}: {ended:#?}", mpi.launcher);
            assert!(ended.err.contains(&format!("hvtui: {}", told(said))), "{what}");
            // Open MPI 5 ends a rank by code 14 when it sees a peer's socket close, which may be before that peer is gone.
            if !(ended.code == 14 && is_open_mpi_5(mpi)) {
                assert_eq!(ended.code, code, "{what}");
                assert!(ended.err.contains(said), "{what}");
            }
            assert!(ended.err.contains(&format!("[{rank}] last words of {rank}")), "{what}");
            bed.is_free();
        }
    }
}

/// Whether a rank of MPICH that said that it fails has then crashed: where Hydra goes before its abort has come through, the abort
/// comes back, and MPICH follows a null pointer.
fn crashed_in_its_abort(ended: &Ended) -> bool {
    ended.err.contains("readline failed") && ended.err.contains("killed by SIGSEGV")
}

#[test]
fn the_rank_of_each_mpi_whose_call_is_refused_or_that_leaves_without_mpi_finalize_is_named() {
    let Some(bed) = Bed::up() else { return };
    let client = bed.person();
    for mpi in bed.mpis.iter().filter(|mpi| !is_open_mpi_5(mpi)) {
        for (how, code, said) in [
            ("send", 6, "exit 6 after"),
            ("leave", 1, ": rank 1 (n2:0) ended (exit 0) without MPI_Finalize; rank 0 stopped because of it"),
        ] {
            // Hydra lets a host go whose ranks have ended with 0, and the others wait for ever.
            if how == "leave" && mpi.launcher.contains("mpich") {
                continue;
            }
            let ended = client.run(&line(mpi, &[], &["-np", "2", "-H", "n1:1,n2:1"], &[how, "1"]));
            let what = format!("{} {how}: {ended:#?}", mpi.launcher);
            let crashed = crashed_in_its_abort(&ended);
            assert_eq!(ended.code, if crashed { 139 } else { code }, "{what}");
            let said = if crashed { "exit 139 after" } else { said };
            let last = ended.err.lines().find(|line| line.contains(" after ")).unwrap_or_default();
            assert!(last.contains(said) && last.contains(": rank 1 (n2:0) "), "{what}");
            assert!(last.ends_with("; rank 0 stopped because of it"), "{what}");
            bed.is_free();
        }
    }
}

#[test]
fn of_two_programs_in_one_line_of_each_mpi_the_rank_that_says_that_it_fails_is_named() {
    let Some(bed) = Bed::up() else { return };
    let client = bed.person();
    for mpi in bed.mpis.iter().filter(|mpi| !is_open_mpi_5(mpi)) {
        let second = [":", "-np", "1", "-H", "n2", &mpi.program];
        for (how, code) in [("abort", 3), ("send", 6), ("exit", 3)] {
            let arguments = [&[how, "1"][..], &second[..], &[how, "1"][..]].concat();
            let ended = client.run(&line(mpi, &[], &["-np", "1", "-H", "n1"], &arguments));
            let what = format!("{} {how}: {ended:#?}", mpi.launcher);
            let crashed = crashed_in_its_abort(&ended);
            assert_eq!(ended.code, if crashed { 139 } else { code }, "{what}");
            let end = if crashed { "killed by SIGSEGV".to_owned() } else { format!("exit {code}") };
            let last = ended.err.lines().find(|line| line.contains(" after ")).unwrap_or_default();
            // of an exit Hydra says nothing, and Open MPI 4 not always
            let is_unnamed = how == "exit" && last.ends_with(": which rank, it does not say");
            assert!(is_unnamed || last.contains(&format!(": rank 1 (n2:0) failed first: {end}")), "{what}");
            bed.is_free();
        }
    }
}

#[test]
fn nothing_of_any_mpi_is_left_of_a_run_that_is_interrupted() {
    let Some(bed) = Bed::up() else { return };
    let client = bed.person();
    for mpi in &bed.mpis {
        let log = std::fs::File::create(client.path("out")).expect("a file");
        let err = log.try_clone().expect("a file");
        let words = line(mpi, &[], &["-np", "4", "-H", "n1:2,n2:2"], &["wait", "0"]);
        let mut child = client.hvtui(&words).stdout(log).stderr(err).spawn().expect("hvtui");
        let said = || std::fs::read_to_string(client.path("out")).unwrap_or_default();
        until("all ranks", || said().matches(" of 4 on ").count() == 4);
        let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status_in_time();
        assert!(sent.expect("kill").success());
        assert_eq!(end_of(&mut child).code(), Some(130), "{}: {}", mpi.launcher, said());
        bed.is_free();
    }
}
