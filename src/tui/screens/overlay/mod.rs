//! What lies over a screen: a question, a prompt, help, the stacks of a run's ranks.

pub mod palette;
pub mod prompt;
pub mod question;
pub mod stacks;
pub(super) mod view;
