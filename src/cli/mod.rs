//! The command line: parses, wires the program together, writes to standard output. Layer 4.
//!
//! [`main`] turns arguments into a command, runs it and turns its end into an exit code; each command is one
//! file of [`commands`]. Nothing imports this module.

pub mod args;
pub mod commands;
pub mod errors;
pub mod json;
pub mod launch;
pub mod logging;
pub mod paths;
pub mod table;

#[cfg(test)]
mod fixtures;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::config::{self, HostsFile};
use args::{Cli, Command, ConfigCommand, HostsCommand};
use errors::{Code, Failure};
use paths::Paths;

/// The whole program: its exit code is the process's.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(args::horovodrun_spellings(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match dispatch(&cli) {
        Ok(code) => code,
        Err(failure) => {
            errors::print(&failure);
            failure.code.into()
        }
    }
}

/// Prints what clap has to say: help and version on standard output, faults on standard error.
fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe (`hvtui --help | head -1`) is no fault of the command.
    let _ = error.print();
    if error.use_stderr() { Code::Usage.into() } else { ExitCode::SUCCESS }
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    if let Ok(filter) = std::env::var(logging::VARIABLE) {
        logging::start(&Paths::of_user()?.state, &filter)?;
    }
    let Some(command) = &cli.command else {
        if !std::io::stdout().is_terminal() {
            return Err(Failure::usage(
                "standard output is not a terminal, and the UI needs one: use `hvtui watch --once` to see the \
                 hosts, or `hvtui run` to launch",
            ));
        }
        return Err(Failure::bug("the UI is not wired"));
    };
    match command {
        Command::Completions { shell } => commands::completions::run(*shell),
        Command::Man => commands::man::run(),
        Command::Config { command: ConfigCommand::Template } => commands::config::template(),
        Command::Hosts { command: None | Some(HostsCommand::List) } => {
            commands::hosts::list(&hosts(cli, &Paths::of_user()?)?)
        }
        other => Err(Failure::bug(format!("{other:?} is not wired"))),
    }
}

/// The hosts to work with: `--hosts FILE`, `./hosts.toml`, the user's hosts file, or this machine alone.
pub fn hosts(cli: &Cli, paths: &Paths) -> Result<HostsFile, Failure> {
    let source = config::find(cli.hosts.as_deref(), Path::new("."), &paths.config);
    Ok(config::load(&source, &paths.home)?)
}
