//! What is executed as a rank: the program with its arguments, directory and variables, hvtui's own among them.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::rundir::RunDir;
use super::variables::Variables;
use super::{container, error_file, flight, kineto, nccl_timings, python_hooks};
use crate::domain::container::ContainerOptions;
use crate::domain::ids::Rank;
use crate::domain::run::{HostRun, RankSpec};
use crate::program::{OURS, ProgramError, own_binary, resolve_python_of, working_directory};

/// The code that a shell gives for a program that is not there.
const NOT_FOUND: i32 = 127;
/// The code that it gives for one that can't be executed.
const CANNOT: i32 = 126;

/// The variable by which Hydra, MPICH's launcher, tells its ranks of an open file.
const MANAGERS_FILE: &str = "PMI_FD";

/// What is executed as a rank.
#[derive(Debug)]
pub(super) struct Invocation {
    /// The program's file.
    pub(super) program: PathBuf,
    /// What it is called, and its arguments.
    pub(super) name: String,
    pub(super) arguments: Vec<OsString>,
    /// Where it starts.
    pub(super) cwd: PathBuf,
    /// All its variables.
    pub(super) variables: Variables,
}

impl Invocation {
    /// Of a rank that has these variables; else why there is none, with the code that a shell gives for that.
    pub(super) fn of(
        dir: &RunDir,
        run: &HostRun,
        rank: &RankSpec,
        mut variables: Variables,
    ) -> Result<Self, (i32, String)> {
        let not_found = |e: ProgramError| (NOT_FOUND, e.to_string());
        let [name, arguments @ ..] = rank.argv.as_slice() else {
            return Err((NOT_FOUND, "the command is empty".to_owned()));
        };
        if let Some(options) = run.container() {
            return contained(dir, run, (rank, options), &variables).map_err(|why| (CANNOT, why));
        }
        add_ours(dir, run, rank.rank, &mut variables);
        let cwd = working_directory(rank.cwd.as_deref()).map_err(not_found)?;
        let path = variables.get("PATH");
        let program =
            resolve_python_of(run.python_of(), name, path, &cwd, &own_binary()).map_err(not_found)?;
        // Python finds its modules by what it is called
        let name = if run.python_of().is_some() { program.display().to_string() } else { name.clone() };
        let arguments = arguments.iter().map(OsString::from).collect();
        Ok(Self { program, name, arguments, cwd, variables })
    }

    /// As a command, in a process group of its own.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments).current_dir(&self.cwd).process_group(0);
        self.variables.give_to(&mut command);
        command
    }
}

/// The engine's client that starts the rank in a container.
fn contained(
    dir: &RunDir,
    run: &HostRun,
    (rank, options): (&RankSpec, &ContainerOptions),
    variables: &Variables,
) -> Result<Invocation, String> {
    let setup = container::Setup::read(dir)
        .ok_or_else(|| format!("{} is missing, which tells of the container engine", container::SETUP))?;
    container::clear(&setup, dir, run, rank.rank)?;
    if variables.has(MANAGERS_FILE) {
        return Err("this MPI's launcher hands an open file to its ranks, which no container engine passes on: use Open MPI, or \
                    hvtui's kind torch or horovod"
            .to_owned());
    }
    let mut inside = variables.inside(&setup.image_env);
    add_ours(dir, run, rank.rank, &mut inside);
    for (name, value) in setup.person(options) {
        if !inside.has(name) {
            inside.set(name, value);
        }
    }
    let mut rank = rank.clone();
    let mut ours = vec![dir.path().to_owned()];
    ours.extend(python_hooks::folder(dir));
    ours.extend(nccl_timings::folder(dir));
    ours.extend(kineto::sockets(dir));
    if let Some(name) = rank.argv.first_mut().filter(|name| *name == OURS) {
        let binary = own_binary();
        *name = binary.display().to_string();
        ours.push(binary);
    }
    ours.extend(launchers_folders(variables));
    ours.sort();
    // What is in a folder comes with it.
    ours.dedup_by(|one, before| one.starts_with(before));
    let cwd = rank.cwd.as_deref().and_then(|cwd| working_directory(Some(cwd)).ok());
    let of = container::Contained { dir: dir.path(), run, rank: &rank, options, setup: &setup, ours, cwd };
    container::contain(&of, &inside, variables.of_host())
}

/// The folders by which an MPI's launcher and its ranks speak: Open MPI's of the session.
fn launchers_folders(variables: &Variables) -> Vec<PathBuf> {
    let is_launchers = |name: &OsStr| {
        ["OMPI_", "PMIX_", "PRTE_"].iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes()))
    };
    let paths = variables.own().filter(|(name, _)| is_launchers(name)).map(|(_, value)| PathBuf::from(value));
    // not what a container has of its own, such as /tmp
    paths.filter(|path| path.is_absolute() && path.components().count() > 2 && path.is_dir()).collect()
}

/// The variables by which hvtui's parts in the rank's process are found.
fn add_ours(dir: &RunDir, run: &HostRun, rank: Rank, variables: &mut Variables) {
    let plugin =
        if run.wants_nccl_timings() { nccl_timings::variables(dir, rank, variables) } else { Ok(Vec::new()) };
    match plugin {
        Ok(plugin) => variables.extend(plugin),
        // of all ranks alike
        Err(why) if rank == Rank(0) => {
            let _ = writeln!(io::stderr(), "hvtui: {why}");
        }
        Err(_) => {}
    }
    variables.extend(error_file::variable(dir, rank, variables));
    variables.extend(python_hooks::variables(dir, (rank, run.python_hooks), variables));
    variables.extend(kineto::variables(dir, rank, variables));
    variables.extend(flight::variables(dir, rank, variables));
}
