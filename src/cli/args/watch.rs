//! `watch` and `hosts`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::seconds;
use crate::cli::metrics_port;

/// `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Print one table and end
    #[arg(long)]
    pub once: bool,
    /// What is printed.
    #[command(flatten)]
    pub form: WatchForm,
    /// Only GPUs that pass this filter, such as 'free & model~h200'
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// Seconds between samples
    #[arg(short = 'n', long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
}

/// What `watch` prints instead of a table.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub struct WatchForm {
    /// Print one JSON object a tick instead of a table
    #[arg(long)]
    pub json: bool,
    /// Print a line of CSV a tick for each GPU, below one line of names
    #[arg(long)]
    pub csv: bool,
    /// Print Prometheus' text format; with FILE write it there at each tick, for Prometheus' textfile collector; with
    /// 127.0.0.1:PORT serve it at /metrics there
    #[arg(long, value_name = "FILE|PORT", num_args = 0..=1, default_missing_value = "-", value_parser = prometheus)]
    pub prometheus: Option<Prometheus>,
}

/// Where Prometheus' text format goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prometheus {
    /// To standard output.
    Stdout,
    /// Into a file, at each tick.
    File(PathBuf),
    /// To any client that asks at a loopback address.
    Port(SocketAddr),
}

fn prometheus(text: &str) -> Result<Prometheus, String> {
    Ok(match metrics_port::address(text)? {
        Some(address) => Prometheus::Port(address),
        None if text == "-" => Prometheus::Stdout,
        None => Prometheus::File(PathBuf::from(text)),
    })
}

/// `hosts`.
#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// List the hosts of the hosts file
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Connect to each host and say what is there
    Check {
        /// Only these hosts [default: all]
        #[arg(value_name = "HOST")]
        only: Vec<String>,
        /// Tell too which binary answers, and what the host printed at login
        #[arg(long)]
        verbose: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Set up logins without password from each host to each other, as mpirun needs them
    Mesh {
        /// Only these hosts [default: every one that ssh reaches]
        #[arg(value_name = "HOST")]
        only: Vec<String>,
        /// Take out all that was written for it
        #[arg(long)]
        remove: bool,
        /// Ask nothing
        #[arg(long)]
        yes: bool,
    },
    /// Accept the keys of hosts and remember them in your known hosts
    Trust {
        /// Their names in the hosts file
        #[arg(value_name = "HOST", required = true)]
        names: Vec<String>,
        /// Accept only this key, of one host; without it the fingerprint of each is shown and asked about
        #[arg(long, value_name = "SHA256:..")]
        fingerprint: Option<String>,
    },
}
