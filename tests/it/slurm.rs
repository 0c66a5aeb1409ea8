//! Real Slurm (Debian's, two nodes) and the real binary: inside an allocation its hosts are used, and with `--kind slurm`
//! srun starts the ranks.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::common::client::{Client, Ended};
use crate::common::cluster;
use crate::common::cluster::Cluster;
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::processes::{end_of, until};
use crate::python_hooks::{PYTHON, has_torch};

/// Two hosts that are nodes of a Slurm, whose controller runs in the hub; they end with this process.
struct Slurm {
    cluster: Cluster,
    config: PathBuf,
    /// munged and slurmctld, which run until the hub's network goes.
    daemons: Vec<Child>,
}

/// It, and the turn to use it: a test waits for the end of all jobs.
fn slurm() -> Option<(&'static Slurm, MutexGuard<'static, ()>)> {
    static SLURM: OnceLock<Option<Slurm>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    SLURM.get_or_init(Slurm::up).as_ref().map(|slurm| (slurm, turn))
}

impl Slurm {
    fn up() -> Option<Self> {
        for (program, package) in [("slurmctld", "slurm-wlm"), ("slurmd", "slurm-wlm"), ("munged", "munge")] {
            let found = Path::new("/usr/sbin").join(program).exists();
            if !found {
                cluster::skip(&format!("no {program}: install {package}"));
                return None;
            }
        }
        let cluster = Cluster::ready(2, &[])?;
        let dir = cluster.dir().join("slurm");
        for folder in ["", "state", "spool", "spool/n1", "spool/n2"] {
            std::fs::create_dir(dir.join(folder)).expect(folder);
        }
        std::fs::DirBuilder::new().mode(0o700).create(dir.join("munge")).expect("a folder");
        let config = write_config(&cluster, &dir);
        let mut slurm = Self { cluster, config, daemons: Vec::new() };
        slurm.start(&dir);
        Some(slurm)
    }

    fn start(&mut self, dir: &Path) {
        let daemon = |mut command: Command, log: &str| {
            let log = std::fs::File::create(dir.join(log)).expect("a log");
            let err = log.try_clone().expect("a log");
            command.stdout(log).stderr(err).spawn().expect("a daemon")
        };
        let mut munged = self.hub("/usr/sbin/munged");
        munged.args(["--foreground", "--force"]);
        for (option, name) in [
            ("key-file", "munge/key"),
            ("socket", "munge.sock"),
            ("pid-file", "munge/pid"),
            ("log-file", "munge/log"),
            ("seed-file", "munge/seed"),
        ] {
            munged.arg(format!("--{option}={}", dir.join(name).display()));
        }
        self.daemons.push(daemon(munged, "munged.out"));
        until("munged", || dir.join("munge.sock").exists());
        let mut controller = self.hub("/usr/sbin/slurmctld");
        controller.arg("-D");
        self.daemons.push(daemon(controller, "slurmctld.out"));
        for node in ["n1", "n2"] {
            let line =
                format!("SLURM_CONF={} /usr/sbin/slurmd -N {node} >/dev/null 2>&1", self.config.display());
            self.cluster.on(node, &line);
        }
        until("both nodes to be idle", || {
            let seen = self.hub("sinfo").args(["-h", "-N", "-o", "%N %T"]).output_in_time().expect("sinfo");
            cluster::text(&seen.stdout) == "n1 idle\nn2 idle\n"
        });
    }

    /// A command in the hub that knows this Slurm.
    fn hub(&self, program: &str) -> Command {
        let mut command = self.cluster.hub(program);
        command.env("SLURM_CONF", &self.config).stdin(Stdio::null());
        command
    }

    /// `salloc … hvtui run …`, or hvtui alone where no allocation is asked for.
    fn run(&self, client: &Client<'_>, salloc: &[&str], args: &[&str]) -> Ended {
        let mut command = self.hub("timeout");
        command.args(["-k", "5", "120"]);
        if !salloc.is_empty() {
            command.arg("salloc").args(salloc);
        }
        command.arg(crate::common::program::hvtui()).arg("--hosts").arg(client.path("hosts.toml")).args(args);
        command.env("HOME", client.path("")).current_dir(client.path(""));
        let out = command.output_in_time().expect("salloc");
        Ended {
            code: out.status.code().expect("an exit code"),
            out: cluster::text(&out.stdout),
            err: cluster::text(&out.stderr),
        }
    }

    /// Until no job is left: what was asked of Slurm is given back.
    fn gives_back(&self) {
        until("no job to be left", || {
            let jobs = self.hub("squeue").args(["-h", "-o", "%i %T"]).output_in_time().expect("squeue");
            jobs.status.success() && jobs.stdout.is_empty()
        });
    }
}

fn write_config(cluster: &Cluster, dir: &Path) -> PathBuf {
    let key: Vec<u8> = {
        let mut bytes = vec![0; 1024];
        let mut random = std::fs::File::open("/dev/urandom").expect("random bytes");
        std::io::Read::read_exact(&mut random, &mut bytes).expect("random bytes");
        bytes
    };
    let file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join("munge/key"));
    std::io::Write::write_all(&mut file.expect("a key"), &key).expect("a key");
    let hub = cluster.hub("hostname").output_in_time().expect("a name");
    let text = include_str!("../fixtures/slurm/slurm.conf");
    let text =
        text.replace("DIR", &dir.display().to_string()).replace("HUB", cluster::text(&hub.stdout).trim());
    let config = dir.join("slurm.conf");
    std::fs::write(&config, text).expect("a configuration");
    config
}

/// The ranks' lines, sorted: `[0] …`.
fn lines(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<&str> = ended.out.lines().collect();
    lines.sort_unstable();
    lines
}

const SHOW: &str = "echo $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname)";

#[test]
fn inside_an_allocation_its_hosts_and_tasks_are_the_inventory() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let ended = slurm.run(&client, &["-N2", "-n3"], &["run", "--", "sh", "-c", SHOW]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    let wanted =
        ["[0] 0 of 3 local 0 of 2 on n1", "[1] 1 of 3 local 1 of 2 on n1", "[2] 2 of 3 local 0 of 1 on n2"];
    assert_eq!(lines(&ended), wanted, "{ended:#?}");
    assert!(ended.err.contains("its hosts are used (-H n1:2,n2:1)"), "{ended:#?}");
    let two = slurm.run(&client, &["-N2", "-n3"], &["run", "-np", "2", "--", "sh", "-c", SHOW]);
    assert_eq!(lines(&two), ["[0] 0 of 2 local 0 of 2 on n1", "[1] 1 of 2 local 1 of 2 on n1"], "{two:#?}");
    // what names its hosts itself is not moved
    let own = slurm.run(&client, &["-w", "n1"], &["run", "-H", "n2:1", "--", "sh", "-c", SHOW]);
    assert_eq!(lines(&own), ["[0] 0 of 1 local 0 of 1 on n2"], "{own:#?}");
    slurm.gives_back();
}

#[test]
fn a_host_of_the_allocation_that_the_hosts_file_lacks_is_reached_by_its_name() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let file = slurm.cluster.hosts_toml(1);
    let (without, _) = file.split_once("\n[[host]]\nname = \"n2\"").expect("n2");
    client.write("hosts.toml", without);
    let ended = slurm.run(&client, &["-N2"], &["run", "--", "sh", "-c", SHOW]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(
        lines(&ended),
        ["[0] 0 of 2 local 0 of 1 on n1", "[1] 1 of 2 local 0 of 1 on n2"],
        "{ended:#?}"
    );
    slurm.gives_back();
}

#[test]
fn more_than_the_allocation_has_is_refused() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let ended = slurm.run(&client, &["-N2"], &["run", "-np", "3", "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert!(ended.err.contains("-np 3 on 2 slots (n1: 1, n2: 1)"), "{ended:#?}");
    let ended =
        slurm.run(&client, &["-N1"], &["run", "--nnodes", "2", "--nproc-per-node", "1", "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:#?}");
    assert!(ended.err.contains("--nnodes 2: job ") && ended.err.contains(" has 1 host;"), "{ended:#?}");
    slurm.gives_back();
}

#[test]
fn srun_starts_the_ranks_of_kind_slurm_and_each_has_its_own_lines() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let show = format!("{SHOW}; echo and $GREETING $HVTUI_HOST >&2");
    let line =
        ["run", "--kind", "slurm", "--env", "GREETING=hello", "--nnodes", "2", "--nproc-per-node", "2"];
    let ended = slurm.run(&client, &[], &[&line[..], &["--", "sh", "-c", &show]].concat());
    assert_eq!(ended.code, 0, "{ended:#?}");
    let wanted = [0, 1, 2, 3].map(|rank| {
        let (local, node) = (rank % 2, rank / 2 + 1);
        format!("[{rank}] {rank} of 4 local {local} of 2 on n{node}")
    });
    assert_eq!(lines(&ended), wanted, "{ended:#?}");
    for (rank, node) in [(0, 1), (1, 1), (2, 2), (3, 2)] {
        assert!(ended.err.contains(&format!("[{rank}] and hello n{node}\n")), "{ended:#?}");
    }
    // inside an allocation it takes a step of it, on as many ranks as that has tasks
    let inside = slurm.run(&client, &["-N2", "-n3"], &["run", "--kind", "slurm", "--", "sh", "-c", SHOW]);
    assert_eq!((inside.code, lines(&inside).len()), (0, 3), "{inside:#?}");
    slurm.gives_back();
}

#[test]
fn a_pasted_srun_line_is_understood() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let line = ["run", "--", "srun", "-N", "2", "--ntasks-per-node=1", "-p", "gpu", "-l", "sh", "-c", SHOW];
    let ended = slurm.run(&client, &[], &line);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(
        lines(&ended),
        ["[0] 0 of 2 local 0 of 1 on n1", "[1] 1 of 2 local 0 of 1 on n2"],
        "{ended:#?}"
    );
    // what Slurm refuses is told in its words
    let refused = slurm.run(&client, &[], &["run", "--", "srun", "-p", "none", "-n", "1", "true"]);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert!(refused.err.contains("invalid partition specified: none"), "{refused:#?}");
    slurm.gives_back();
}

#[test]
fn a_rank_of_srun_that_fails_is_named_and_ends_the_others() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let run = |script: &str| {
        let line = ["run", "--kind", "slurm", "--nnodes", "2", "--nproc-per-node", "1", "--", "sh", "-c"];
        slurm.run(&client, &[], &[&line[..], &[script]].concat())
    };
    // srun by itself drops these last lines now and then
    let ended = run("if [ $RANK = 1 ]; then printf out; echo no labels >&2; exit 3; fi; exec sleep 119.75");
    assert_eq!(ended.code, 3, "{ended:#?}");
    assert!(ended.err.contains("rank 1 (slurm:1) failed first: exit 3; rank 0 stopped"), "{ended:#?}");
    assert!(ended.err.contains("the last line of rank 1: no labels"), "{ended:#?}");
    assert_eq!(ended.out, "[1] out\n", "{ended:#?}");
    let ended = run("if [ $RANK = 1 ]; then echo no memory >&2; kill -9 $$; fi; exec sleep 119.75");
    assert_eq!(ended.code, 137, "{ended:#?}");
    assert!(ended.err.contains("rank 1 (slurm:1) failed first: killed by SIGKILL; rank 0"), "{ended:#?}");
    assert!(ended.err.contains("the last line of rank 1: no memory"), "{ended:#?}");
    slurm.gives_back();
    for host in ["n1", "n2"] {
        until("the rank's end", || !slurm.cluster.on(host, "cat /proc/[0-9]*/cmdline").contains("119.75"));
    }
}

#[test]
fn a_run_of_srun_that_is_interrupted_gives_its_nodes_back() {
    let Some((slurm, _turn)) = slurm() else { return };
    let client = Client::new(&slurm.cluster);
    let mut command = slurm.hub(crate::common::program::hvtui());
    command.arg("--hosts").arg(client.path("hosts.toml"));
    command.args(["run", "--kind", "slurm", "--nnodes", "2", "--", "sh", "-c", "echo up; exec sleep 119.5"]);
    command.env("HOME", client.path("")).current_dir(client.path(""));
    let log = std::fs::File::create(client.path("out")).expect("a file");
    let err = log.try_clone().expect("a file");
    let mut child = command.stdout(log).stderr(err).spawn().expect("hvtui");
    let said = || std::fs::read_to_string(client.path("out")).unwrap_or_default();
    until("both ranks", || said().matches("] up").count() == 2);
    let sent = slurm.cluster.hub("kill").args(["-s", "INT", &child.id().to_string()]).status_in_time();
    assert!(sent.expect("kill").success());
    assert_eq!(end_of(&mut child).code(), Some(130), "{}", said());
    slurm.gives_back();
    for host in ["n1", "n2"] {
        until("the rank's end", || !slurm.cluster.on(host, "cat /proc/[0-9]*/cmdline").contains("119.5"));
    }
}

#[test]
fn real_torch_meets_under_srun() {
    let Some((slurm, _turn)) = slurm() else { return };
    if !has_torch() {
        return;
    }
    let client = Client::new(&slurm.cluster);
    let script = slurm.cluster.dir().join("ddp.py");
    std::fs::write(&script, include_str!("../fixtures/torch/ddp.py")).expect("a script");
    let script = script.display().to_string();
    let line = [
        "run",
        "--kind",
        "slurm",
        "--env",
        "TORCHELASTIC_RUN_ID=none",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
    ];
    let ended = slurm.run(&client, &[], &[&line[..], &["--", PYTHON, &script]].concat());
    assert_eq!(ended.code, 0, "{ended:#?}");
    let ends: BTreeSet<&str> =
        ended.out.lines().filter_map(|line| line.split_once("sum=1 loss=")).map(|(_, end)| end).collect();
    assert_eq!((ended.out.lines().count(), ends.len()), (2, 1), "{ended:#?}");
    slurm.gives_back();
}
