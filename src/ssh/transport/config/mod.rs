//! The person's own ssh configuration, `~/.ssh/config`: asked from the system's `ssh` where there is one, else read
//! by a reader of our own. Knows nothing of the hosts file; [`Settings`] come out.
//!
//! What is not understood and matters is told as a [`Note`] with its line. Nothing is guessed.

mod ask;
mod evaluate;
mod files;
mod here;
mod keys;
mod reader;
mod settings;
mod syntax;
mod tokens;

pub use evaluate::{Note, Question};
pub use reader::{Reader, understand};
pub use settings::{Agent, Need, Proxy, Settings};
