//! The command line: parses, wires the program together, writes to standard output. Layer 4.
//!
//! [`main`] turns arguments into a command, runs it and turns its end into an exit code; each command is one
//! file of [`commands`]. Nothing imports this module.

mod again;
pub mod args;
mod ask;
mod candidates;
mod cast;
pub mod commands;
mod complete;
mod connect;
mod demo_folder;
mod descriptors;
mod disk;
pub mod errors;
mod find;
mod follow;
mod glyphs;
mod held_lines;
mod here;
mod hint;
mod image_progress;
mod in_place;
pub mod json;
pub mod launch;
mod log_line;
pub mod logging;
pub mod metrics;
mod metrics_port;
mod output;
pub mod paths;
mod progress_line;
mod rank_files;
mod recording;
pub mod roles;
pub mod run_line;
pub mod run_printer;
mod run_table;
mod runs_of_hosts;
mod runtime;
mod secret_file;
mod selection;
mod sieve;
mod signals;
pub mod table;
mod ui_settings;
mod unread_input;
mod whole_file;

#[cfg(test)]
mod fixtures;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

use crate::config::{self, HostsFile};
use crate::procs::secrecy;
use args::{Cli, Command, ConfigCommand, HostsCommand, ImageCommand, RunsCommand};
use errors::{Code, Failure};
use paths::Paths;

/// The whole program: its exit code is the process's.
pub fn main() -> ExitCode {
    match commands::completions::answered() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(failure) => {
            errors::print(&failure);
            return failure.code.into();
        }
    }
    let parsed = parse(std::env::args_os());
    if !parsed.as_ref().is_ok_and(|cli| is_part_of_a_run(cli.command.as_ref())) {
        output::fail_where_missing();
    }
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    again::keep(cli.hosts.as_deref());
    let ended = dispatch(&cli);
    ask::restore();
    let code = ended.unwrap_or_else(|failure| {
        errors::print(&failure);
        failure.code.into()
    });
    output::last_words();
    code
}

/// Reads a command line, the program's name first. The error is clap's, also for `--help` and `--version`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = args::horovodrun_spellings(args);
    let mut command = args::command();
    let matches = command.try_get_matches_from_mut(&words).map_err(|error| of_one_run(error, &words))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// `hvtui runs last` asks for one run, of which other commands tell.
fn of_one_run(error: clap::Error, words: &[OsString]) -> clap::Error {
    const VERBS: [&str; 8] = ["show", "info", "view", "get", "open", "logs", "report", "replay"];
    let unknown = error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg));
    let Some(ContextValue::String(word)) = unknown else { return error };
    let behind = words.iter().position(|known| known == "runs").map_or(&[][..], |at| &words[at + 1..]);
    let mut behind = behind.iter().filter_map(|next| next.to_str()).filter(|next| !next.starts_with('-'));
    if behind.next() != Some(word.as_str()) || error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let named = behind.next();
    let text = if matches!(word.as_str(), "list" | "ls" | "all") {
        format!("'{word}' is no command of `hvtui runs`: `hvtui runs` alone lists them")
    } else {
        let run = if VERBS.contains(&word.as_str()) { named.unwrap_or("RUN") } else { word };
        format!(
            "'{word}' is no command of `hvtui runs`, which lists them; of one run tell `hvtui report {run}`, `hvtui logs {run}`, \
             `hvtui replay {run}`"
        )
    };
    let mut command = args::command();
    command.build();
    match command.find_subcommand_mut("runs") {
        Some(runs) => runs.error(ErrorKind::InvalidSubcommand, text),
        None => error,
    }
}

/// What a word means that other programs have for a command.
fn of_other_programs(word: &str) -> Option<&'static [&'static str]> {
    Some(match word {
        "launch" | "start" | "exec" | "submit" => &["run"],
        "ps" | "ls" | "list" | "jobs" | "history" | "squeue" => &["runs"],
        "kill" | "cancel" | "scancel" | "rm" | "delete" => &["stop", "runs"],
        "status" | "top" | "htop" | "nvtop" | "nvidia-smi" | "smi" | "gpus" | "sinfo" => &["watch", "runs"],
        "log" | "tail" | "output" => &["logs"],
        "check" | "diagnose" | "ping" => &["doctor"],
        "compare" => &["diff"],
        "timeline" | "show" | "view" => &["replay", "report"],
        _ => return None,
    })
}

/// Leaves commands out of clap's suggestions that are no person's: agent, supervisor and the like.
fn suggest_public(error: &mut clap::Error) {
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(meant) = of_other_programs(word)
    {
        error.insert(kind, ContextValue::Strings(meant.iter().map(|&name| name.to_owned()).collect()));
        return;
    }
    let command = Cli::command();
    // those of a command's own are public
    let is_public = |name: &String| {
        !command.get_subcommands().any(|known| known.get_name() == name && known.is_hide_set())
    };
    let names: Vec<String> = match error.get(kind) {
        Some(ContextValue::Strings(names)) => names.iter().filter(|name| is_public(name)).cloned().collect(),
        Some(ContextValue::String(name)) => {
            Some(name).filter(|name| is_public(name)).cloned().into_iter().collect()
        }
        _ => return,
    };
    if names.is_empty() {
        error.remove(kind);
    } else {
        error.insert(kind, ContextValue::Strings(names));
    }
}

/// Prints what clap has to say: help and version on standard output, faults on standard error.
fn usage(mut error: clap::Error) -> ExitCode {
    suggest_public(&mut error);
    let printed = error.print();
    if error.use_stderr() {
        return Code::Usage.into();
    }
    // a closed pipe (`hvtui --help | head -1`) is no fault of the command
    errors::written(printed).err().map_or(ExitCode::SUCCESS, |failure| {
        errors::print(&failure);
        failure.code.into()
    })
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    if let Ok(filter) = std::env::var(logging::VARIABLE) {
        logging::start(&Paths::of_user()?.state, &filter)?;
    }
    // asked for only by the commands that need them: a rank must run without a home folder or a hosts file
    let paths = Paths::of_user;
    let file = || hosts(cli, &paths()?);
    if let Some(Command::SampleHost(_)) = &cli.command {
        crate::supervise::samples::yields_memory();
    }
    if holds_secrets(cli.command.as_ref()) {
        secrecy::keep_to_itself();
    }
    let Some(command) = &cli.command else {
        if let Some(why) = commands::ui::no_screen() {
            return Err(Failure::usage(format!(
                "{why}, and the UI needs one: use `hvtui watch --once` to see the hosts, or `hvtui run` to launch"
            )));
        }
        return commands::ui::live(&file()?, &paths()?, cli.readonly);
    };
    if cli.readonly {
        return Err(Failure::usage(
            "--readonly is for the UI: `hvtui --readonly`, or behind the command in `hvtui demo --readonly`",
        ));
    }
    match command {
        Command::Watch(args) => commands::watch::run(args, &file()?, &paths()?),
        Command::Pick(args) => commands::pick::run(args, &file()?, &paths()?),
        Command::Run(args) => commands::run::run(args, &file()?, &paths()?),
        Command::Runs(args) => match &args.command {
            Some(RunsCommand::Prune(args)) => commands::prune::run(args, file, &paths()?),
            Some(RunsCommand::Check(args)) => commands::check_runs::run(args, &paths()?),
            Some(RunsCommand::Mark(args)) => commands::mark::run(args, &paths()?),
            None => commands::runs::run(args, file, &paths()?),
        },
        Command::Attach(args) => commands::attach::run(args, &file()?, &paths()?),
        Command::Logs(args) => commands::logs::run(args, file, &paths()?),
        Command::Trace(args) => commands::trace::run(args, &file()?, &paths()?),
        Command::Stop(args) => commands::stop::run(args, &file()?, &paths()?),
        Command::Stacks(args) => commands::stacks::run(args, &file()?, &paths()?),
        Command::Doctor(args) => commands::doctor::run(args, &file()?, &paths()?),
        Command::Smoke(args) => commands::smoke::run(args, &file()?, &paths()?),
        Command::Replay(args) => commands::ui::replay(args, file, &paths()?),
        Command::Demo(_) if cli.hosts.is_some() || cli.no_install => Err(Failure::usage(
            "the demo has hosts of its own: leave out --hosts and --no-install, which are for real ones",
        )),
        Command::Demo(args) => commands::ui::demo(args),
        Command::Report(args) => commands::report::run(args, file, &paths()?),
        Command::Diff(args) => commands::diff::run(args, &paths()?),
        Command::Export(args) => commands::export::run(args, &paths()?),
        Command::Import(args) => commands::import::run(args, &paths()?),
        Command::Train(args) => commands::train::run(args),
        Command::Bench { command } => commands::bench::run(command),
        Command::Hosts { command: None, json } => commands::hosts::list(*json, &file()?),
        Command::Hosts { command: Some(HostsCommand::List { json: of_list }), json } => {
            commands::hosts::list(*json || *of_list, &file()?)
        }
        Command::Hosts { command: Some(HostsCommand::Check { only, verbose, json: of_check }), json } => {
            commands::check::run(only, *verbose, *json || *of_check, &file()?, &paths()?)
        }
        Command::Hosts { command: Some(HostsCommand::Mesh { only, remove, yes }), .. } => {
            let asked = commands::mesh::Asked { only, remove: *remove, yes: *yes };
            commands::mesh::run(&asked, &file()?, &paths()?)
        }
        Command::Hosts { command: Some(HostsCommand::Trust { names, fingerprint }), .. } => {
            commands::trust::run(names, fingerprint.as_deref(), &file()?, &paths()?)
        }
        Command::Image { command: ImageCommand::Build(args) } => commands::image::build(args),
        Command::Image { command: ImageCommand::Push(args) } => {
            commands::image::push(args, &file()?, &paths()?)
        }
        Command::Config { command: ConfigCommand::Template } => commands::config::template(),
        Command::Completions { shell } => commands::completions::run(*shell),
        Command::Man => commands::man::run(),
        Command::Agent(args) => commands::roles::agent(args),
        Command::Supervise(args) => Ok(commands::roles::supervise(args)),
        Command::RankWrap(args) => Ok(commands::roles::rank_wrap(args)),
        Command::LaunchWrap(args) => Ok(commands::roles::launch_wrap(args)),
        Command::NodeWrap(args) => Ok(commands::roles::node_wrap(args)),
        Command::SampleHost(args) => Ok(commands::roles::sample_host(args)),
        Command::RankShim => Ok(commands::roles::rank_shim()),
        Command::LookInside(args) => Ok(commands::roles::look_inside(&args.ask)),
        Command::RshAgent(args) => Ok(commands::roles::rsh_agent(args)),
    }
}

/// Whether it is a command that hvtui itself starts, on hosts: no person reads what it prints.
fn is_part_of_a_run(command: Option<&Command>) -> bool {
    matches!(
        command,
        Some(
            Command::Agent(_)
                | Command::Supervise(_)
                | Command::RankWrap(_)
                | Command::LaunchWrap(_)
                | Command::NodeWrap(_)
                | Command::SampleHost(_)
                | Command::RankShim
                | Command::LookInside(_)
                | Command::RshAgent(_)
        )
    )
}

/// Whether it comes to hold passwords or the values of secret variables: all but ranks and what runs beside them, of which core
/// files are wanted, or whose environment is read by those who hide the values.
fn holds_secrets(command: Option<&Command>) -> bool {
    !matches!(
        command,
        Some(
            Command::Train(_)
                | Command::Bench { .. }
                | Command::RankWrap(_)
                | Command::LaunchWrap(_)
                | Command::NodeWrap(_)
                | Command::RankShim
                | Command::LookInside(_)
                | Command::RshAgent(_)
        )
    )
}

/// The hosts to work with: `--hosts FILE`, `./hosts.toml`, the user's hosts file, or this machine alone.
pub fn hosts(cli: &Cli, paths: &Paths) -> Result<HostsFile, Failure> {
    let source = config::find(cli.hosts.as_deref(), Path::new("."), &paths.config);
    let mut file = config::load(&source, &paths.home)?;
    if cli.no_install {
        file.hosts.iter_mut().for_each(|host| host.install = false);
    }
    Ok(file)
}
