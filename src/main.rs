//! The `hvtui` program.

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(hvtui::cli::run(&arguments));
}
