//! Which of the doctor's checks a launch rests on, so that they are made while its form is still open. Pure: a plan in, names of
//! checks out.

mod in_image;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub use self::in_image::{InImage, in_image};
pub use self::ports::{MOST_PORTS, ports};
use super::doctor::{RunProgram, SamePath, SameRole};
use super::environment::Limit;
use super::ids::{GpuUuid, HostId};
use super::options::Delegated;
use super::run::{HostRun, JobKind, RunSpec};

/// Programs that the doctor's check of Python looks at: those that a command over ssh finds by name.
const PYTHONS: [&str; 4] = ["python", "python3", "torchrun", "horovodrun"];

/// Variables by which a launch brings libraries and programs of its own: what the host has is not what it uses.
pub const OWN: [&str; 5] = ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME"];
/// Variables that name interfaces.
pub const INTERFACES: [&str; 8] = [
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "HOROVOD_GLOO_IFACE",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_btl_tcp_if_exclude",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_prte_if_include",
];

/// The checks, by name. What the launch brings along itself, as an image, an environment or variables, is not looked at on the
/// host, nor what its command may never use: a check that is red keeps it from starting.
pub fn checks(spec: &RunSpec, shares: &[HostRun]) -> Vec<&'static str> {
    let sets = |names: &[&str]| {
        let mut ranks = shares.iter().flat_map(|share| &share.ranks);
        ranks.any(|rank| names.iter().any(|name| rank.env.contains_key(*name)))
    };
    // the ranks of other kinds may have nothing to do with each other
    let meets = !matches!(spec.kind, JobKind::Plain | JobKind::Slurm);
    let spans_hosts = meets && spec.hosts().len() > 1;
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let mut checks = Vec::new();
    if spans_hosts {
        checks.extend(["reach", "interface"]);
    }
    if !ports(spec, shares).is_empty() {
        // whatever its kind, its ranks meet there
        let meets = spec.hosts().len() > 1 && ports::meets(spec, shares);
        checks.extend((!spans_hosts && meets).then_some("reach"));
        checks.push("ports");
    }
    if has_gpus && meets {
        checks.extend(["gpu", "driver"]);
    }
    // its ranks register memory with a card for RDMA
    let options = &spec.options;
    // a container has limits of its own, and a run that sets the one that matters has thought of them
    let has_own = options.container.is_some() || options.environment.limits.contains_key(&Limit::Memlock);
    checks.extend((spans_hosts && has_gpus && !has_own).then_some("limits"));
    let shares_memory = has_gpus && shares.iter().any(|share| share.ranks.len() > 1);
    if spec.options.container.is_some() {
        // its containers share the host's /dev/shm
        checks.extend((shares_memory && meets).then_some("shm"));
        checks.push("docker");
        checks.extend(has_gpus.then_some(["health", "toolkit"]).into_iter().flatten());
        return checks;
    }
    let program = spec.command.first().map_or("", String::as_str);
    let is_found_by_name = PYTHONS.contains(&program);
    let computes = meets || is_found_by_name || is_python(program);
    checks.extend((has_gpus && computes).then_some("health"));
    checks.extend(computes.then_some("disk"));
    checks.extend((shares_memory && computes).then_some("shm"));
    let brings_own = sets(&OWN);
    let activates = spec.options.environment.activates() || !spec.options.environments.is_empty();
    if has_gpus && computes && !brings_own {
        checks.push("stub");
        // the system's Python makes it: what that one's loader lacks is no word on another one, of which the host has to be told
        let has_other = activates || is_python(program) && !is_found_by_name;
        checks.extend((!has_other || tells_program(spec)).then_some("cuda"));
    }
    if is_found_by_name && !activates && !brings_own {
        checks.push("python");
        match spec.kind {
            JobKind::Torch if has_gpus => checks.extend(["packages", "torch"]),
            JobKind::Horovod => checks.extend(["packages", "horovod"]),
            JobKind::Tensorflow if has_gpus => checks.extend(["packages", "tf"]),
            _ => {}
        }
    }
    if !imports(spec).is_empty() && (is_found_by_name || is_python(program)) {
        checks.push("import");
    }
    if spec.kind == JobKind::Mpi && spec.options.delegate.is_none() {
        // a program that is linked with MPI has to be one of mpirun's
        let is_linked = !is_found_by_name && !is_python(program);
        checks.extend(((has_gpus || is_linked) && !activates && !brings_own).then_some("mpi"));
    }
    if spec.options.delegate.is_some() {
        checks.extend((!activates && !brings_own).then_some("path"));
        checks.extend(spans_hosts.then_some("logins"));
        let is_of_mpi = matches!(spec.kind, JobKind::Mpi | JobKind::Horovod);
        checks.extend((is_of_mpi && !brings_own).then_some("mpi"));
    }
    checks
}

/// Modules that ranks of this kind import.
fn imports(spec: &RunSpec) -> &'static [&'static str] {
    match spec.kind {
        JobKind::Torch => &["torch"],
        JobKind::Tensorflow => &["tensorflow"],
        JobKind::Horovod => &["horovod.torch", "horovod.tensorflow", "horovod.keras"],
        _ => &[],
    }
}

/// How the names of variables begin that decide what an import finds and does.
const IMPORTS_BY: [&str; 9] = ["PYTHON", "PYENV", "LD_", "KMP_", "OMP_", "MKL_", "TF_", "TORCH", "CUDA_"];

/// The image of a launch, where its containers get GPUs and keep its demands of the driver.
pub fn image(spec: &RunSpec, shares: &[HostRun]) -> Option<String> {
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let mut ranks = shares.iter().flat_map(|share| &share.ranks);
    let demands_nothing = ranks.any(|rank| rank.env.contains_key(DEMANDS_NOTHING));
    let container = spec.options.container.as_ref().filter(|_| has_gpus && !demands_nothing);
    container.map(|container| container.image.clone())
}

/// By what the ranks of a launch by Horovod or MPI agree, where that is known: hvtui's own start of Horovod takes Gloo, mpirun MPI,
/// and horovodrun what it is told.
pub fn controller(spec: &RunSpec, shares: &[HostRun]) -> Option<&'static str> {
    let mut ranks = shares.iter().flat_map(|share| &share.ranks);
    let named = ranks.find_map(|rank| rank.env.get("HOROVOD_CONTROLLER"));
    match (spec.kind, named.map(String::as_str)) {
        (JobKind::Horovod, Some("gloo")) => Some("gloo"),
        (JobKind::Horovod, Some("mpi")) | (JobKind::Mpi, _) => Some("mpi"),
        (JobKind::Horovod, None) => match &spec.options.delegate {
            None => Some("gloo"),
            Some(launcher) => by_launcher(launcher),
        },
        _ => None,
    }
}

fn by_launcher(launcher: &Delegated) -> Option<&'static str> {
    let words = || launcher.line.iter().chain(&launcher.program).chain(&launcher.options);
    let program = base(words().next()?);
    let has = |option: &str| words().any(|word| word == option);
    match program {
        "mpirun" | "mpiexec" => Some("mpi"),
        "horovodrun" if has("--gloo") => Some("gloo"),
        "horovodrun" if has("--mpi") => Some("mpi"),
        _ => None,
    }
}

/// The working directory of a launch's ranks, by host; `None` for the home folder.
pub fn workdirs(shares: &[HostRun]) -> BTreeMap<HostId, Option<String>> {
    let of = |share: &HostRun| share.ranks.first().and_then(|rank| rank.cwd.clone());
    shares.iter().map(|share| (share.host.clone(), of(share))).collect()
}

/// The GPUs that a launch would use, by host.
pub fn gpus(spec: &RunSpec) -> BTreeMap<HostId, BTreeSet<GpuUuid>> {
    let mut gpus: BTreeMap<HostId, BTreeSet<GpuUuid>> = BTreeMap::new();
    for placement in &spec.placements {
        gpus.entry(placement.host.clone()).or_default().extend(placement.gpus().cloned());
    }
    gpus
}

/// Set for a container whose image's demands of the driver don't count.
pub const DEMANDS_NOTHING: &str = "NVIDIA_DISABLE_REQUIRE";

/// The Python of a launch as its ranks find it, by host; of one by MPI its program, whatever it is.
pub fn programs(spec: &RunSpec, shares: &[HostRun]) -> BTreeMap<HostId, RunProgram> {
    let options = &spec.options;
    let of_share = |share: &HostRun| {
        let first = share.ranks.first();
        let matters = |name: &str| {
            let is_of_rank = name == "TF_CONFIG" || name == "CUDA_VISIBLE_DEVICES";
            name == "PATH" || (!is_of_rank && IMPORTS_BY.iter().any(|begin| name.starts_with(begin)))
        };
        let given = first.into_iter().flat_map(|rank| &rank.env).filter(|(name, _)| matters(name));
        let python = RunProgram {
            program: options.python_of.clone().or_else(|| spec.command.first().cloned()).unwrap_or_default(),
            environment: options.environments.get(&share.host).unwrap_or(&options.environment).clone(),
            env: given.map(|(name, value)| (name.clone(), value.clone())).collect(),
            cwd: first.and_then(|rank| rank.cwd.clone()),
            imports: imports(spec).iter().map(|module| (*module).to_owned()).collect(),
            code: given_by(&spec.command, "-c"),
            module: given_by(&spec.command, "-m"),
            mpirun: mpirun(spec),
        };
        (share.host.clone(), python)
    };
    if !tells_program(spec) {
        return BTreeMap::new();
    }
    shares.iter().map(of_share).collect()
}

/// Whether the hosts of a launch are told its program.
fn tells_program(spec: &RunSpec) -> bool {
    !imports(spec).is_empty() || spec.kind == JobKind::Mpi
}

/// The launcher of MPI that a launch starts its ranks with; of a line that is executed as it is, where it begins with one.
fn mpirun(spec: &RunSpec) -> Option<String> {
    let named = spec.options.mpi_program.as_deref().unwrap_or("mpirun");
    let launcher = match &spec.options.delegate {
        Some(own) if !own.line.is_empty() => own.line.first().map(String::as_str),
        Some(own) => own.program.first().map(String::as_str),
        None => Some(named),
    };
    let is_one = |launcher: &&str| ["mpirun", "mpiexec"].iter().any(|name| base(launcher).starts_with(name));
    launcher.filter(|launcher| spec.kind == JobKind::Mpi && is_one(launcher)).map(str::to_owned)
}

/// A program's name without its folder.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// What a Python is given by an option in the place of a script.
fn given_by(command: &[String], option: &str) -> Option<String> {
    executed(command).filter(|(by, _)| *by == option).map(|(_, word)| word.to_owned())
}

/// What a Python executes, by `-c` or `-m`, or by neither of a script: the first of its words that is none of its other options.
fn executed(command: &[String]) -> Option<(&str, &str)> {
    let (program, words) = command.split_first()?;
    if !is_python(program) {
        return None;
    }
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-W" | "-X" => drop(words.next()),
            "-c" | "-m" => return words.next().map(|given| (word, given)),
            // its standard input
            "-" => return None,
            option if option.starts_with('-') => {}
            script => return Some(("", script)),
        }
    }
    None
}

/// The variables that name interfaces and that a launch gives its ranks, by host: they count before what a host has.
pub fn given(shares: &[HostRun]) -> BTreeMap<HostId, BTreeMap<String, String>> {
    let of_share = |share: &HostRun| {
        let mut given = BTreeMap::new();
        for name in INTERFACES {
            let value = share.ranks.iter().find_map(|rank| rank.env.get(name));
            given.extend(
                value.filter(|value| !value.is_empty()).map(|value| (name.to_owned(), value.clone())),
            );
        }
        (share.host.clone(), given)
    };
    shares.iter().map(of_share).filter(|(_, given)| !given.is_empty()).collect()
}

/// Those of the checks that read the script which is executed.
pub const READ_SCRIPTS: [&str; 2] = ["tf", "import"];

/// Whether a program executes a script that is named to it.
fn is_python(program: &str) -> bool {
    base(program).starts_with("python")
}

/// Endings of files that a command names and every rank reads: scripts and configurations.
const READ: [&str; 8] = [".py", ".sh", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json"];
/// Files of a command that are compared.
const MOST: usize = 6;

/// What the hosts of a launch should have alike, by host: the scripts and configurations that its command names, and the code
/// beside a script. None where what it runs is copied or brought along.
pub fn paths(spec: &RunSpec, shares: &[HostRun]) -> BTreeMap<HostId, Vec<SamePath>> {
    let options = &spec.options;
    if options.container.is_some() || options.sync.is_some() {
        return BTreeMap::new();
    }
    let words = spec.command.iter().map(|word| match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => value,
        _ => word.as_str(),
    });
    let is_read = |word: &&str| {
        READ.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
            && !word.starts_with('-')
            && !word.contains(|c: char| c.is_whitespace() || "$*?[{;|&<>`'\"".contains(c))
    };
    let mut files: Vec<&str> = Vec::new();
    for word in words.filter(is_read) {
        if files.len() < MOST && !files.contains(&word) {
            files.push(word);
        }
    }
    if files.is_empty() {
        return BTreeMap::new();
    }
    let program = spec.command.first().map_or("", String::as_str);
    // of other programs it may be an argument like others
    let executes =
        PYTHONS.contains(&program) || is_python(program) || ["sh", "bash", "mpirun"].contains(&program);
    let is = |file: &str, ending: &str| Path::new(file).extension().is_some_and(|own| own == ending);
    let has_script = files.iter().any(|file| is(file, "py"));
    let of_share = |share: &HostRun| {
        let cwd = share.ranks.first().and_then(|rank| rank.cwd.as_deref()).filter(|cwd| !cwd.is_empty());
        let cwd = cwd.unwrap_or("~");
        let at = |file: &&str| {
            if file.starts_with(['/', '~']) {
                return (*file).to_owned();
            }
            format!("{}/{}", cwd.trim_end_matches('/'), file.trim_start_matches("./"))
        };
        let is_script = |file: &&&str| is(file, "py") || is(file, "sh");
        let script = files.iter().find(is_script).filter(|file| executes || **file == program);
        let role = |file: &&str| if Some(file) == script { SameRole::Script } else { SameRole::Beside };
        let mut paths: Vec<SamePath> =
            files.iter().map(|file| SamePath { path: at(file), role: role(file) }).collect();
        if has_script && cwd != "~" {
            paths.push(SamePath { path: cwd.to_owned(), role: SameRole::Beside });
        }
        (share.host.clone(), paths)
    };
    shares.iter().map(of_share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::environment::EnvironmentPlan;
    use crate::domain::fixtures::run_spec;
    use crate::domain::ids::Rank;
    use crate::domain::run::{Placement, Slot};

    pub(super) fn spec(kind: JobKind, program: &str, hosts: &[&str]) -> RunSpec {
        let slot = Slot::Gpu { index: 0, uuid: GpuUuid::from("GPU-1") };
        let placement = |(rank, host): (usize, &&str)| Placement {
            rank: Rank(rank as u32),
            host: HostId::from(*host),
            local_rank: 0,
            slot: slot.clone(),
            more: Vec::new(),
        };
        RunSpec {
            kind,
            command: vec![program.to_owned(), "train.py".to_owned()],
            ..run_spec(hosts.iter().enumerate().map(placement).collect())
        }
    }

    pub(super) fn shares(spec: &RunSpec, env: &[(&str, &str)]) -> Vec<HostRun> {
        let rank = serde_json::json!({"rank": 0, "argv": ["x"], "env": env.iter().copied().collect::<BTreeMap<_, _>>()});
        let share = |host: HostId| {
            let ranks = [rank.clone(), rank.clone()];
            let share =
                serde_json::json!({"run": spec.id, "host": host, "name": "x", "ranks": ranks, "grace_ms": 1});
            serde_json::from_value(share).unwrap()
        };
        spec.hosts().into_iter().map(share).collect()
    }

    fn of(spec: &RunSpec) -> Vec<&'static str> {
        checks(spec, &shares(spec, &[]))
    }

    #[test]
    fn a_kind_is_checked_for_what_it_rests_on() {
        let torch = spec(JobKind::Torch, "python3", &["a", "b"]);
        assert_eq!(
            of(&torch),
            [
                "reach",
                "interface",
                "gpu",
                "driver",
                "limits",
                "health",
                "disk",
                "shm",
                "stub",
                "cuda",
                "python",
                "packages",
                "torch",
                "import"
            ]
        );
        let alone = of(&spec(JobKind::Horovod, "python", &["a"]));
        assert!(alone.contains(&"horovod") && !alone.contains(&"reach"), "{alone:?}");
        assert!(of(&spec(JobKind::Mpi, "./solver", &["a", "b"])).contains(&"reach"));
    }

    #[test]
    fn what_its_ranks_may_have_nothing_to_do_with_stops_no_launch() {
        assert!(of(&spec(JobKind::Plain, "nvidia-smi", &["a", "b"])).is_empty());
        let script = of(&spec(JobKind::Plain, "python3", &["a", "b"]));
        let own = ["health", "disk", "shm", "stub", "cuda", "python"];
        assert_eq!(script, own, "they may be jobs by themselves");
        let other = of(&spec(JobKind::Plain, "/opt/conda/bin/python3", &["a", "b"]));
        assert_eq!(other, ["health", "disk", "shm", "stub"], "its host does not know which Python that is");
    }

    #[test]
    fn what_it_brings_along_is_not_looked_for() {
        let mut conda = spec(JobKind::Torch, "python3", &["a", "b"]);
        conda.options.environment =
            EnvironmentPlan { conda: Some("train".to_owned()), ..EnvironmentPlan::default() };
        assert!(!of(&conda).contains(&"torch"));
        assert!(of(&conda).contains(&"import"), "its own Python is tried");
        assert!(of(&conda).contains(&"cuda"), "what CUDA answers is the host's");
        let python = &programs(&conda, &shares(&conda, &[("LD_LIBRARY_PATH", "/opt/cuda"), ("X", "y")]))
            [&HostId::from("a")];
        assert_eq!((python.environment.conda.as_deref(), python.env.len()), (Some("train"), 1));
        let own = of(&spec(JobKind::Torch, "/opt/conda/bin/python3", &["a"]));
        assert!(!own.contains(&"python") && own.contains(&"cuda"), "{own:?}");
        let torch = spec(JobKind::Torch, "python3", &["a", "b"]);
        let given = |line: &[&str], option| {
            given_by(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), option)
        };
        let code = ["python3", "-u", "-X", "dev", "-c", "import torch", "-m"];
        assert_eq!((given(&code, "-c").as_deref(), given(&code, "-m")), (Some("import torch"), None));
        assert_eq!(given(&["python", "-m", "train.main", "-c", "x"], "-m").as_deref(), Some("train.main"));
        assert_eq!(given(&["python", "-m", "train.main", "-c", "x"], "-c"), None, "it is the module's");
        assert_eq!(given(&["bash", "-c", "import torch"], "-c"), None);
        assert_eq!(given(&["python", "train.py", "-c", "x"], "-c"), None, "it is the script's");
        let path = checks(&torch, &shares(&torch, &[("LD_LIBRARY_PATH", "/opt/cuda")]));
        let left = ["reach", "interface", "gpu", "driver", "limits", "health", "disk", "shm", "import"];
        assert_eq!(path, left);
        let uses = gpus(&torch);
        assert_eq!((uses.len(), uses[&HostId::from("b")].len()), (2, 1));
    }

    #[test]
    fn an_interface_that_it_names_itself_is_looked_for_on_each_host() {
        let torch = spec(JobKind::Torch, "python3", &["a", "b"]);
        let shares = shares(&torch, &[("NCCL_SOCKET_IFNAME", "eth1"), ("X", "y")]);
        assert!(checks(&torch, &shares).contains(&"interface"));
        let given = given(&shares);
        let names = BTreeMap::from([("NCCL_SOCKET_IFNAME".to_owned(), "eth1".to_owned())]);
        assert_eq!((given.len(), &given[&HostId::from("b")]), (2, &names));
    }

    #[test]
    fn what_every_rank_reads_is_compared() {
        let mut spec = spec(JobKind::Torch, "python3", &["a", "b"]);
        spec.command = [
            "python3",
            "-u",
            "src/train.py",
            "--config=conf/base.yaml",
            "--out",
            "/logs",
            "$X.py",
            "s.py;ls",
        ]
        .map(str::to_owned)
        .to_vec();
        let share = |host: &str, cwd: Option<&str>| {
            let rank = serde_json::json!({"rank": 0, "argv": ["python3"], "cwd": cwd});
            let share = serde_json::json!({"run": spec.id, "host": host, "name": "x", "ranks": [rank], "grace_ms": 1});
            serde_json::from_value::<HostRun>(share).unwrap()
        };
        let shares = [share("a", Some("/srv/train")), share("b", None)];
        let all = paths(&spec, &shares);
        let of =
            |host: &str| all[&HostId::from(host)].iter().map(|one| one.path.as_str()).collect::<Vec<_>>();
        assert_eq!(of("a"), ["/srv/train/src/train.py", "/srv/train/conf/base.yaml", "/srv/train"]);
        assert_eq!(of("b"), ["~/src/train.py", "~/conf/base.yaml"], "a home folder is not the code of a run");
        let roles: Vec<SameRole> = all[&HostId::from("b")].iter().map(|one| one.role).collect();
        assert_eq!(roles, [SameRole::Script, SameRole::Beside]);
        "sha256sum".clone_into(&mut spec.command[0]);
        assert!(paths(&spec, &shares)[&HostId::from("b")].iter().all(|one| one.role == SameRole::Beside));
        spec.command.truncate(2);
        assert!(paths(&spec, &shares).is_empty());
    }
}
