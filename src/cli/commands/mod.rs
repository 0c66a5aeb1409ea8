//! One file for each command.

pub mod attach;
pub mod bench;
pub mod check;
pub mod check_runs;
pub mod completions;
pub mod config;
pub mod diff;
pub mod export;
pub mod hosts;
pub mod image;
pub mod logs;
pub mod man;
pub mod mesh;
pub mod pick;
pub mod prune;
pub mod report;
pub mod roles;
pub mod run;
pub mod runs;
pub mod stacks;
pub mod stop;
pub mod trace;
pub mod train;
pub mod trust;
pub mod ui;
pub mod watch;
