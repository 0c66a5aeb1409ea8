//! The security vectors of docs/security.md, each test named after its number. Those that need a hostile server or a whole
//! cluster are elsewhere, under the same names; the page lists them all, and `tests/it/docs.rs` looks that they exist.

mod bombs;
mod bytes;
mod captures;
mod cores;
mod escapes;
mod files;
mod hostile_agent;
mod masks;
mod mutate;
mod person;
mod screens;
mod strangers;
mod tree;
