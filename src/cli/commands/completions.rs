//! `hvtui completions SHELL`, and the answers to the script that it prints.

use std::process::ExitCode;

use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::cli::args;
use crate::cli::errors::{Failure, to_stdout};

/// The variable by which a script asks; its value is the shell's name.
const VARIABLE: &str = "HVTUI_COMPLETE";

/// Prints the script by which a shell asks the `hvtui` of its `PATH`.
pub fn run(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let known = Shells::builtins();
    let completer = known.completer(&shell.to_string());
    let completer = completer.ok_or_else(|| Failure::bug(format!("there is no script for {shell}")))?;
    completer
        .write_registration(VARIABLE, "hvtui", "hvtui", "hvtui", &mut script)
        .map_err(|error| Failure::bug(format!("write the script for {shell}: {error}")))?;
    to_stdout(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers where a shell's script asks; `false` where none does. It changes the environment: call it before there are threads.
pub fn answered() -> Result<bool, Failure> {
    let env = CompleteEnv::with_factory(args::command).var(VARIABLE);
    env.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref())
        .map_err(|error| Failure::usage(format!("{VARIABLE}: {error}")))
}
