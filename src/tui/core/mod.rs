//! The vocabulary of the screens: keys, actions, messages, effects, lists. Knows no model and no screen.
//!
//! Pure: no terminal, no async, no clock; time arrives in messages.

pub mod effect;
pub mod key;
pub mod keymap;
pub mod layout;
pub mod list;
pub mod msg;
pub mod orders;
pub mod screen;
pub mod settings;
pub mod trail;
pub mod words;
pub mod zone;

pub use effect::{Effect, Look, LookOf, PlayCommand, ReportOf};
pub use key::{Key, KeyCode, Mouse, MouseKind};
pub use msg::{Analyzed, Level, Msg, Reported};
pub use screen::Screen;
pub use settings::{Settings, ThemeName};
pub use trail::Trail;
pub use zone::Zone;
