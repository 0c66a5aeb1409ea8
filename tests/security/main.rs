//! The security vectors of docs/security.md, each test named after its number. Those that need a hostile server or a whole
//! cluster are elsewhere, under the same names; the page lists them all, and `tests/docs.rs` looks that they exist.

#[cfg(test)]
mod bytes;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod files;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod person;
#[cfg(test)]
#[path = "../common/processes.rs"]
#[expect(dead_code, reason = "these tests only wait")]
mod processes;
#[cfg(test)]
mod screens;
#[cfg(test)]
mod strangers;
#[cfg(test)]
#[path = "../common/world.rs"]
#[expect(dead_code, reason = "each test binary uses a part of the builders")]
mod world;
