//! `doctor` and `smoke`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::cli::candidates;

/// `doctor`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct DoctorArgs {
    /// Only these hosts; may be given several times
    #[arg(long = "host", short = 'H', value_name = "HOST", add = ArgValueCompleter::new(candidates::hosts))]
    pub only_hosts: Vec<String>,
    /// Only these checks, by name, with commas between them
    #[arg(long, value_name = "CHECK", add = ArgValueCompleter::new(candidates::checks), value_delimiter = ',')]
    pub only: Vec<String>,
    /// Compare this file or folder of the hosts, code or data, too; may be given several times
    #[arg(long, value_name = "PATH")]
    pub same: Vec<String>,
    /// Look for this Python module on the hosts, too, and in which of their environments it is; may be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub module: Vec<String>,
    /// Look into this image on each host: what a container of it has, started as a run would start it
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["same", "since", "bundle"])]
    pub image: Option<String>,
    /// Tell what each host has where nothing is wrong, too
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Say what changed since the last time, or since a time so long ago: last, 1d, 12h
    #[arg(long, value_name = "last|AGE")]
    pub since: Option<String>,
    /// Ask for each remedy that is one command whether to run it, show it whole, and look again
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,
    /// Write what somebody else needs to help into this .tar.gz: its files are shown first, secrets are masked
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub bundle: Option<PathBuf>,
    /// With --bundle: write it without a question
    #[arg(short, long, requires = "bundle")]
    pub yes: bool,
}

/// `look-inside`.
#[derive(Debug, Args)]
pub struct LookInsideArgs {
    /// What is asked, as JSON
    pub ask: String,
}

/// `smoke`.
#[derive(Debug, Args)]
pub struct SmokeArgs {
    /// Only these hosts; may be given several times
    #[arg(long = "host", short = 'H', value_name = "HOST", add = ArgValueCompleter::new(candidates::hosts))]
    pub only_hosts: Vec<String>,
    /// Only these steps, by name, with commas between them: doctor, link, tcp, shm, mixed, nccl, train, container, mpirun
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Start a container of this image, which the hosts have
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Train mnist for an epoch with the files that are there on the hosts [default: digits, which hvtui brings along]
    #[arg(long, value_name = "PATH")]
    pub data: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
