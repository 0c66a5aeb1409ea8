//! What the screens know and how messages change it: [`update`](update::update) takes a message and
//! returns effects as data.
//!
//! Pure: knows only `domain`. No terminal, no async, no clock; time arrives in messages.

pub mod cluster;
pub mod detail;
pub mod effect;
pub mod filter;
pub mod key;
pub mod keymap;
pub mod launch;
pub mod layout;
pub mod list;
pub mod model;
pub mod msg;
pub mod prompt;
pub mod question;
pub mod replay;
pub mod rows;
pub mod run;
pub mod runs;
pub mod stacks;
pub mod update;
pub mod usage;
pub mod verdict;
pub mod words;

pub use effect::{Effect, PlayCommand};
pub use key::{Key, KeyCode, Mouse, MouseKind};
pub use model::{Here, HostEntry, Mode, Model, Screen, Variables};
pub use msg::{Level, Msg};
pub use update::{update, update_all};
