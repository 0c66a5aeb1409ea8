//! The `hvtui` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hvtui::cli::main()
}
