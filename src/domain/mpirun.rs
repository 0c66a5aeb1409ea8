//! The command line of an MPI's own launcher: what Open MPI 4, Open MPI 5, Intel MPI and MPICH want to hear. Pure.
//!
//! Knows nothing of how it is executed. Each rank becomes `hvtui rank-shim`, found by variables that each host sets
//! for itself; other hosts are reached through `hvtui rsh-agent` and never by ssh from host to host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::engine::EXE;
use super::tags::TagStyle;

/// What an MPI launcher is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiPlan {
    /// The program: `mpirun`, `mpiexec`, or a path.
    pub program: String,
    /// How many ranks.
    pub world: u32,
    /// The hosts in rank order, the launcher's own first.
    pub hosts: Vec<MpiHost>,
    /// The network that connects the hosts, as CIDR.
    #[serde(default)]
    pub interface: Option<String>,
    /// The user's own options, each word apart. They win over what is chosen here.
    #[serde(default)]
    pub options: Vec<String>,
    /// The words before the program in the user's line that choose the environment in which it is found: `uv run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The user's whole line, where that is executed as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line: Vec<String>,
}

impl MpiPlan {
    /// The words that call the launcher without an option; at least one.
    pub fn version_words(&self) -> Vec<&str> {
        self.before.iter().chain([&self.program]).map(String::as_str).collect()
    }
}

/// A host as the launcher knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiHost {
    /// Its address in the run's network, numeric.
    pub address: String,
    /// How many ranks it takes.
    pub slots: u32,
}

/// Whose launcher it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI up to 4, and what is made of it.
    OpenMpi4,
    /// Open MPI 5 and later: PRRTE.
    OpenMpi5,
    /// Intel MPI.
    Intel,
    /// MPICH and its kin.
    Mpich,
}

/// Why there is no command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// Its version text is none that is known.
    #[error(
        "'{program} --version' says '{said}', which is no MPI that is known: Open MPI, Intel MPI or MPICH is needed"
    )]
    Unknown {
        /// The program.
        program: String,
        /// The first line of what it says.
        said: String,
    },
}

/// What is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables for the launcher.
    pub env: BTreeMap<String, String>,
    /// How it tags its ranks' output, where they are no shims.
    pub tags: Option<TagStyle>,
}

/// Whose launcher says this about its version.
pub fn recognise(program: &str, version: &str) -> Result<Mpi, MpiError> {
    let has = |words: &str| version.contains(words);
    if has("Intel(R) MPI") {
        return Ok(Mpi::Intel);
    }
    if has("MPICH") || has("HYDRA") || has("MVAPICH") {
        return Ok(Mpi::Mpich);
    }
    // `mpirun (Open MPI) 4.1.4`; a build of one's own may say `5.1.0a1`.
    if let Some(rest) = version.split("(Open MPI)").nth(1).or_else(|| version.split("(OpenRTE)").nth(1)) {
        let number = rest.trim_start().split('.').next().and_then(|major| major.parse::<u32>().ok());
        return Ok(if number.is_some_and(|major| major >= 5) { Mpi::OpenMpi5 } else { Mpi::OpenMpi4 });
    }
    if has("PRRTE") || has("prterun") {
        return Ok(Mpi::OpenMpi5);
    }
    if has("Spectrum MPI") {
        return Ok(Mpi::OpenMpi4);
    }
    let said = version.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim();
    Err(MpiError::Unknown { program: program.to_owned(), said: said.chars().take(120).collect() })
}

/// The launcher's command line, for the launcher that says `version`. `agent` is a program that takes a host and a
/// command as ssh does, a path without a space or a colon; `root` whether it runs as root.
pub fn command(plan: &MpiPlan, version: &str, agent: &str, root: bool) -> Result<MpiCommand, MpiError> {
    let mpi = recognise(&plan.program, version)?;
    if !plan.line.is_empty() {
        return Ok(as_typed(plan, mpi, root));
    }
    match mpi {
        mpi @ (Mpi::OpenMpi4 | Mpi::OpenMpi5) => Ok(open_mpi(plan, mpi, agent, root)),
        mpi @ (Mpi::Intel | Mpi::Mpich) => Ok(hydra(plan, mpi, agent)),
    }
}

/// The user's line, with an option more: its output is to be split into ranks. It finds the nodes by the ssh of its
/// search path.
fn as_typed(plan: &MpiPlan, mpi: Mpi, root: bool) -> MpiCommand {
    let (option, known, style): (_, &[&str], _) = match mpi {
        Mpi::OpenMpi4 => ("--tag-output", &["tag-output"], TagStyle::OpenMpi4),
        Mpi::OpenMpi5 => ("--tag-output", &["tag-output", "output"], TagStyle::OpenMpi5),
        Mpi::Intel | Mpi::Mpich => ("-prepend-rank", &["prepend-rank", "l"], TagStyle::Hydra),
    };
    let mut argv = plan.line.clone();
    let has = |word: &String| word.starts_with('-') && known.contains(&word.trim_start_matches('-'));
    if !argv.iter().any(has) {
        let from = plan.before.len();
        let launcher =
            argv.iter().skip(from).position(|word| *word == plan.program).unwrap_or_default() + from;
        argv.insert(launcher + 1, option.to_owned());
    }
    // Only the launcher's own host reaches the nodes, which have the names of the line.
    let set = [
        "OMPI_MCA_plm_rsh_no_tree_spawn",
        "PRTE_MCA_plm_ssh_no_tree_spawn",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "PRTE_MCA_prte_keep_fqdn_hostnames",
    ];
    // what `--allow-run-as-root` says, in each part of a line
    let of_root = [
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ];
    let names = set.into_iter().chain(of_root.into_iter().filter(|_| root));
    let env = names.map(|name| (name.to_owned(), "1".to_owned())).collect();
    MpiCommand { argv, env, tags: Some(style) }
}

fn open_mpi(plan: &MpiPlan, mpi: Mpi, agent: &str, root: bool) -> MpiCommand {
    let given =
        |names: &[&str]| plan.options.iter().any(|word| names.contains(&word.trim_start_matches('-')));
    let mut argv = vec![plan.program.clone()];
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    if root && !given(&["allow-run-as-root"]) {
        add(&["--allow-run-as-root"]);
    }
    let hosts: Vec<String> = plan.hosts.iter().map(named).collect();
    add(&["-np", &plan.world.to_string(), "-H", &hosts.join(",")]);
    // Ranks that compute with several threads would share one core otherwise.
    if !given(&["bind-to", "cpu-set", "cpu-list", "cpus-per-proc", "cpus-per-rank", "rank-by"]) {
        add(&["--bind-to", "none"]);
    }
    if !given(&[
        "map-by", "npernode", "N", "ppr", "rankfile", "rf", "bynode", "byslot", "cpu-set", "cpu-list",
    ]) {
        add(&["--map-by", "slot"]);
    }
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: &str| env.insert(name.to_owned(), value.to_owned());
    if plan.hosts.len() > 1 {
        if mpi == Mpi::OpenMpi4 {
            set("OMPI_MCA_plm_rsh_agent", agent);
            add(&["--mca", "plm_rsh_no_tree_spawn", "1"]);
            // Addresses are names here: cut at the first dot they would all be one.
            add(&["--mca", "orte_keep_fqdn_hostnames", "1"]);
        } else {
            set("PRTE_MCA_plm_ssh_agent", agent);
            set("PRTE_MCA_plm_ssh_no_tree_spawn", "1");
            set("PRTE_MCA_prte_keep_fqdn_hostnames", "1");
        }
    }
    if let Some(interface) = &plan.interface {
        if mpi == Mpi::OpenMpi4 && !given(&["oob_tcp_if_include", "oob_tcp_if_exclude"]) {
            add(&["--mca", "oob_tcp_if_include", interface]);
        }
        if mpi == Mpi::OpenMpi5 && !given(&["prte_if_include", "prte_if_exclude"]) {
            set("PRTE_MCA_prte_if_include", interface);
        }
        if !given(&["btl_tcp_if_include", "btl_tcp_if_exclude"]) {
            add(&["--mca", "btl_tcp_if_include", interface]);
        }
    }
    argv.extend(plan.options.iter().cloned());
    argv.extend(shim());
    MpiCommand { argv, env, tags: None }
}

/// Intel MPI and MPICH: Hydra.
fn hydra(plan: &MpiPlan, mpi: Mpi, agent: &str) -> MpiCommand {
    let mut argv = vec![plan.program.clone()];
    let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    let mut env = BTreeMap::new();
    let launcher = if mpi == Mpi::Intel { "-bootstrap" } else { "-launcher" };
    if plan.hosts.len() > 1 {
        add(&[launcher, "ssh", &format!("{launcher}-exec"), agent]);
    } else {
        add(&[launcher, "fork"]);
    }
    // It would carry the first host's variables to every host. Each rank gets its own from its rank-wrap.
    add(&["-genvnone"]);
    let world = plan.world.to_string();
    match plan.hosts.as_slice() {
        [] | [_] => add(&["-np", &world]),
        // Its list of hosts has no slots: each host is a part of the line.
        hosts if mpi == Mpi::Intel => {
            // A proxy that starts further ones would use the agent of its own host.
            env.insert("I_MPI_HYDRA_BRANCH_COUNT".to_owned(), hosts.len().to_string());
            argv.extend(hydra_options(&plan.options));
            for (number, host) in hosts.iter().enumerate() {
                let between = (number > 0).then(|| ":".to_owned());
                let part = ["-np", &host.slots.to_string(), "-host", &host.address].map(str::to_owned);
                argv.extend(between.into_iter().chain(part).chain(shim()));
            }
            return MpiCommand { argv, env, tags: None };
        }
        hosts => {
            let named: Vec<String> = hosts.iter().map(named).collect();
            add(&["-np", &world, "-hosts", &named.join(",")]);
            // Its proxies would look for it by its host's name.
            add(&["-localhost", hosts.first().map_or("", |host| host.address.as_str())]);
        }
    }
    argv.extend(hydra_options(&plan.options));
    argv.extend(shim());
    MpiCommand { argv, env, tags: None }
}

/// Without what Hydra does anyway, and has no word for: it fills the slots of host after host, and finds the programs of
/// other hosts by its own path.
fn hydra_options(options: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = options.iter().peekable();
    while let Some(word) = words.next() {
        let dropped = match word.trim_start_matches('-') {
            "map-by" => words.next_if(|value| *value == "slot"),
            "prefix" => words.next(),
            _ => None,
        };
        if dropped.is_none() {
            kept.push(word.clone());
        }
    }
    kept
}

/// `10.0.0.1:2`; an IPv6 address in brackets, so that its colons are no slots.
fn named(host: &MpiHost) -> String {
    if host.address.contains(':') {
        format!("[{}]:{}", host.address, host.slots)
    } else {
        format!("{}:{}", host.address, host.slots)
    }
}

/// What a launcher starts as each rank. The binary's path may differ from host to host, so each host says it.
pub fn shim() -> [String; 3] {
    ["/bin/sh".to_owned(), "-c".to_owned(), format!("exec \"${EXE}\" rank-shim")]
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
    const V5: &str = "mpirun (Open MPI) 5.0.5\n\nReport bugs to https://www.open-mpi.org/community/help/\n";
    const INTEL: &str = "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n";
    const MPICH: &str = "HYDRA build details:\n    Version:                                 4.0.2\n";

    fn plan(slots: &[u32], options: &[&str]) -> MpiPlan {
        let host =
            |(at, slots): (usize, &u32)| MpiHost { address: format!("10.0.0.{}", at + 1), slots: *slots };
        MpiPlan {
            program: "mpirun".to_owned(),
            world: slots.iter().sum(),
            hosts: slots.iter().enumerate().map(host).collect(),
            interface: Some("10.0.0.0/24".to_owned()),
            options: options.iter().map(|word| (*word).to_owned()).collect(),
            before: Vec::new(),
            line: Vec::new(),
        }
    }

    fn line(plan: &MpiPlan, version: &str) -> (String, BTreeMap<String, String>) {
        let command = command(plan, version, "/x/hvtui-rsh", true).unwrap();
        (command.argv.join(" "), command.env)
    }

    #[test]
    fn each_mpi_is_told_from_its_version() {
        let of = |text| recognise("mpirun", text);
        assert_eq!(of(V4), Ok(Mpi::OpenMpi4));
        assert_eq!(of(V5), Ok(Mpi::OpenMpi5));
        assert_eq!(of("mpiexec (OpenRTE) 3.1.2\n"), Ok(Mpi::OpenMpi4));
        assert_eq!(of("mpirun (Open MPI) 5.1.0a1\n"), Ok(Mpi::OpenMpi5));
        assert_eq!(of(INTEL), Ok(Mpi::Intel));
        assert_eq!(of(MPICH), Ok(Mpi::Mpich));
        let error = of("\nslurm 22.05\n").unwrap_err().to_string();
        assert!(error.starts_with("'mpirun --version' says 'slurm 22.05', "), "{error}");
    }

    #[test]
    fn open_mpi_4_gets_options_and_5_the_variables_of_its_new_runtime() {
        let shim = "/bin/sh -c exec \"$HVTUI_EXE\" rank-shim";
        let (four, env) = line(&plan(&[2, 1], &[]), V4);
        let expected = "mpirun --allow-run-as-root -np 3 -H 10.0.0.1:2,10.0.0.2:1 --bind-to none --map-by slot \
             --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 \
             --mca oob_tcp_if_include 10.0.0.0/24 --mca btl_tcp_if_include 10.0.0.0/24";
        assert_eq!(four, format!("{expected} {shim}"));
        assert_eq!(env["OMPI_MCA_plm_rsh_agent"], "/x/hvtui-rsh");
        let (five, env) = line(&plan(&[2, 1], &[]), V5);
        assert!(!five.contains("rsh_agent") && !five.contains("oob_tcp"), "{five}");
        assert_eq!(env["PRTE_MCA_plm_ssh_agent"], "/x/hvtui-rsh");
        assert_eq!(env["PRTE_MCA_prte_if_include"], "10.0.0.0/24");
        let (one, _) = line(&plan(&[2], &[]), V4);
        assert!(!one.contains("rsh"), "a single host needs no agent: {one}");
    }

    #[test]
    fn what_the_user_chose_is_not_chosen_again() {
        let options = [
            "-bind-to",
            "core",
            "-map-by",
            "node",
            "-mca",
            "btl_tcp_if_exclude",
            "lo",
            "--allow-run-as-root",
        ];
        let (four, _) = line(&plan(&[1, 1], &options), V4);
        for once in ["bind-to", "map-by", "allow-run-as-root"] {
            assert_eq!(four.matches(once).count(), 1, "{once}: {four}");
        }
        let (cpus, _) = line(&plan(&[1], &["-cpu-list", "0,1"]), V4);
        assert!(!cpus.contains("bind-to") && !cpus.contains("map-by"), "two policies contradict: {cpus}");
        assert!(!four.contains("btl_tcp_if_include"), "include and exclude exclude each other: {four}");
        assert!(!four.contains("oversubscribe"), "never silently");
        assert!(!command(&plan(&[1], &[]), V4, "a", false).unwrap().argv.join(" ").contains("root"));
    }

    #[test]
    fn a_whole_line_is_kept_and_tags_its_output() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let typed = |line: &str, version: &str| {
            let plan = MpiPlan { line: words(line), ..plan(&[1, 1], &[]) };
            let command = command(&plan, version, "/x/rsh", true).unwrap();
            (command.argv.join(" "), command.tags)
        };
        let (four, tags) = typed("timeout 9 mpirun -rf x -H a,b y", V4);
        assert_eq!(four, "timeout 9 mpirun --tag-output -rf x -H a,b y");
        assert_eq!(tags, Some(TagStyle::OpenMpi4));
        let before = words("uv run --with mpirun");
        let behind = MpiPlan { before, line: words("uv run --with mpirun mpirun -n 2 y"), ..plan(&[2], &[]) };
        let argv = command(&behind, V4, "/x/rsh", false).unwrap().argv.join(" ");
        assert_eq!(argv, "uv run --with mpirun mpirun --tag-output -n 2 y");
        assert_eq!(behind.version_words().join(" "), "uv run --with mpirun mpirun");
        let (once, _) = typed("mpirun -tag-output -rf x y", V4);
        assert_eq!(once, "mpirun -tag-output -rf x y");
        let of_root = |root| {
            let plan = MpiPlan { line: words("mpirun -n 2 y"), ..plan(&[2], &[]) };
            command(&plan, V4, "/x/rsh", root).unwrap().env.contains_key("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
        };
        assert_eq!((of_root(true), of_root(false)), (true, false));
        let (mpich, tags) = typed("mpirun -genvall -n 2 y", MPICH);
        assert_eq!((mpich.as_str(), tags), ("mpirun -prepend-rank -genvall -n 2 y", Some(TagStyle::Hydra)));
    }

    #[test]
    fn hydra_gets_slots_of_each_host_and_none_of_the_first_hosts_variables() {
        let (mpich, env) =
            line(&plan(&[1, 2], &["--bind-to", "none", "--map-by", "slot", "--prefix", "/x"]), MPICH);
        let shim = "/bin/sh -c exec \"$HVTUI_EXE\" rank-shim";
        let expected = "mpirun -launcher ssh -launcher-exec /x/hvtui-rsh -genvnone -np 3 -hosts 10.0.0.1:1,10.0.0.2:2 \
                        -localhost 10.0.0.1 --bind-to none";
        assert_eq!((mpich, env.len()), (format!("{expected} {shim}"), 0));
        let (intel, env) = line(&plan(&[1, 2], &[]), INTEL);
        let expected = "mpirun -bootstrap ssh -bootstrap-exec /x/hvtui-rsh -genvnone -np 1 -host 10.0.0.1";
        assert_eq!(intel, format!("{expected} {shim} : -np 2 -host 10.0.0.2 {shim}"));
        assert_eq!(env["I_MPI_HYDRA_BRANCH_COUNT"], "2");
        for (version, fork) in [(MPICH, "-launcher fork"), (INTEL, "-bootstrap fork")] {
            let (one, _) = line(&plan(&[2], &[]), version);
            assert!(
                one.starts_with(&format!("mpirun {fork} -genvnone -np 2 ")),
                "a single host needs no agent: {one}"
            );
        }
    }

    #[test]
    fn an_ipv6_address_keeps_its_slots_apart() {
        assert_eq!(named(&MpiHost { address: "fd00::1".to_owned(), slots: 2 }), "[fd00::1]:2");
    }
}
