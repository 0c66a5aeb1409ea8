//! The command line: parses, wires the program together, writes to standard output. Layer 4.

pub mod roles;

use std::path::Path;

use crate::domain::ids::Rank;

/// Runs the hidden roles `supervise` and `rank-wrap`, which hvtui starts itself; the exit code.
pub fn run(arguments: &[String]) -> i32 {
    let value = |flag: &str| {
        arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1)).map(String::as_str)
    };
    let rank = value("--rank").and_then(|text| text.parse().ok()).map(Rank);
    match (arguments.first().map(String::as_str), value("--dir").map(Path::new), rank) {
        (Some("supervise"), Some(dir), _) => roles::supervise(dir, arguments.iter().any(|a| a == "--stage2")),
        (Some("rank-wrap"), Some(dir), Some(rank)) => roles::rank_wrap(dir, rank),
        _ => 64,
    }
}
