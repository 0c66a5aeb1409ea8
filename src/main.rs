//! The `hvtui` program.

fn main() {}
