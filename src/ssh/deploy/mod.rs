//! From a connection to a running agent: the binary, the scripts that put and start it, and what stands in for it.

pub(super) mod agents;
pub(super) mod binary;
pub(super) mod deployment;
pub(super) mod install;
mod script;
mod watch_script;
