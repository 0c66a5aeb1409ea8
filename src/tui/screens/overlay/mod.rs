//! What lies over a screen: a question, a prompt, help, the stacks of a run's ranks, a report, a signal to a process.

pub mod help;
pub mod mouse;
pub mod palette;
pub mod prompt;
pub mod question;
pub mod report;
pub mod signal;
pub mod stacks;
pub mod toasts;
pub mod verdict;
pub(super) mod view;
