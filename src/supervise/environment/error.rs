//! Why an environment can't be had on this host, with what was looked for, where, and the remedy.

use std::path::PathBuf;

/// Why an environment can't be had on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// No conda at all.
    #[error(
        "no conda for environment '{name}': none in {looked}: install it there, set CONDA_EXE where a login shell finds it, or write the environment's whole path after --conda"
    )]
    NoConda {
        /// The environment.
        name: String,
        /// Where it was looked for.
        looked: String,
    },
    /// A conda without the environment.
    #[error("no conda environment '{name}': it has {has} (conda at {roots}); make it there, or {instead}")]
    NoCondaEnvironment {
        /// The environment.
        name: String,
        /// Those that there are.
        has: String,
        /// The roots.
        roots: String,
        /// What could be written instead.
        instead: String,
    },
    /// A folder that is none.
    #[error("no conda environment at {path}: {fault}", path = path.display())]
    NotConda {
        /// The folder.
        path: PathBuf,
        /// Why not, with the remedy.
        fault: String,
    },
    /// No virtual environment.
    #[error("no virtual environment at {path}: {fault}", path = path.display())]
    NoVenv {
        /// The folder.
        path: PathBuf,
        /// Why not, with the remedy.
        fault: String,
    },
    /// No module system.
    #[error(
        "no environment modules for --module {names}: {looked}: install environment-modules or Lmod there, or leave --module out"
    )]
    NoModules {
        /// The modules.
        names: String,
        /// Where a module system was looked for.
        looked: String,
    },
    /// A module that can't be loaded.
    #[error("module '{name}' can't be loaded: {words}")]
    Module {
        /// The module.
        name: String,
        /// The module system's own words.
        words: String,
    },
    /// A shell that was wanted for something did not tell its environment.
    #[error("{what} {fault}")]
    Shell {
        /// `login shell /bin/bash`.
        what: String,
        /// What happened, with its last words and the remedy.
        fault: String,
    },
    /// A limit beyond the host's hard one.
    #[error("--ulimit {name}={wanted}: the hard limit there is {hard}: {remedy}")]
    Limit {
        /// Which limit.
        name: &'static str,
        /// What was asked for.
        wanted: String,
        /// What the host allows.
        hard: String,
        /// What to do.
        remedy: String,
    },
}
