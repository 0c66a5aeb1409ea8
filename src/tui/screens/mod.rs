//! The model and its screens: one folder a screen, with its state (`mod.rs`), its keys (`keys.rs`) and what it looks like
//! (`view`), and one [`Entry`] each by which the rest of the UI knows it. Only views may draw.

pub mod cluster;
pub mod detail;
pub mod doctor;
pub mod events;
pub mod faults;
pub mod hosts;
pub mod launch;
pub mod model;
pub mod overlay;
pub mod processes;
mod readonly;
pub mod replay;
pub mod run;
pub mod runs;
pub mod update;
pub mod usage;
pub mod users;
pub mod view;

pub use hosts::HostEntry;
pub use model::{Here, Mode, Model, Variables};
pub use update::{takes_lines, update, update_all};

use super::canvas::Canvas;
use super::core::keymap::{Action, Binding};
use super::core::{Effect, Key, Mouse, Screen};

/// A screen, whole: what the rest of the UI needs to know of it.
pub struct Entry {
    /// Which.
    pub screen: Screen,
    /// Its name for people.
    pub name: &'static str,
    /// What a click on a column of its first line does.
    pub title: fn(&Model, u16) -> Option<Action>,
    /// Its keys: its own first, then those that it shares. What stands first wins.
    pub keys: &'static [&'static [Binding]],
    /// Does what a key means here.
    pub act: fn(&mut Model, Action) -> Vec<Effect>,
    /// Why a key can do nothing as things stand, and what helps: the footer leaves it out, and who presses it is told.
    pub missing: fn(&Model, Action) -> Option<&'static str>,
    /// A key that is bound to nothing: forms take it as text.
    pub typed: fn(&mut Model, Key) -> Vec<Effect>,
    /// Text is pasted.
    pub pasted: fn(&mut Model, &str) -> Vec<Effect>,
    /// Keeps cursors true after the world or the terminal changed.
    pub settle: fn(&mut Model),
    /// The mouse, below the first line.
    pub mouse: fn(&mut Model, Mouse) -> Vec<Effect>,
    /// Draws all but the last line; returns where the text cursor stands, if any.
    pub draw: fn(&Model, &mut Canvas<'_>) -> Option<(u16, u16)>,
}

/// All screens.
pub static SCREENS: [&Entry; 9] = [
    &cluster::ENTRY,
    &detail::ENTRY,
    &users::ENTRY,
    &launch::ENTRY,
    &run::ENTRY,
    &runs::ENTRY,
    &replay::ENTRY,
    &doctor::ENTRY,
    &events::ENTRY,
];

/// The entry of a screen.
pub fn entry(screen: Screen) -> &'static Entry {
    SCREENS.into_iter().find(|entry| entry.screen == screen).unwrap_or(&cluster::ENTRY)
}

impl Entry {
    /// The bindings that hold here, its own first.
    pub fn bindings(&self) -> impl Iterator<Item = &'static Binding> + use<> {
        self.tables().into_iter().flatten()
    }

    /// The same, table by table: without those all of whose keys mean something else here.
    pub fn tables(&self) -> Vec<Vec<&'static Binding>> {
        let mut taken = Vec::new();
        let mut holds = |binding: &&'static Binding| {
            let is_free = binding.keys.iter().any(|key| !taken.contains(key));
            taken.extend_from_slice(binding.keys);
            is_free
        };
        self.keys.iter().map(|table| table.iter().filter(&mut holds).collect()).collect()
    }

    /// What a key means here.
    pub fn lookup(&self, key: Key) -> Option<Action> {
        self.bindings().find(|binding| binding.keys.contains(&key)).map(|binding| binding.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_table() {
        for table in SCREENS.iter().flat_map(|entry| entry.keys) {
            for (at, binding) in table.iter().enumerate() {
                let twice = |other: &Binding| binding.keys.iter().any(|key| other.keys.contains(key));
                assert!(!table[at + 1..].iter().any(twice), "{binding:?}");
            }
        }
    }

    /// Actions that are one thing to a person, on different screens: a key may stand for all of a line.
    const ONE_MEANING: &[&[Action]] = {
        use Action::*;
        &[
            &[Detail, Open, Start, Unfold], // into
            &[Back, ClearFilter],           // one level out
            &[NextPane, NextField],         // the next part
            &[Filter, Search],              // search or filter here
            &[Reconnect, Refresh],          // ask again now
            &[Up, PrevField],               // move
            &[Down, NextField],             // move
            &[PickRange, Select],           // begin a range here
            &[Left, SeekBack],              // to the left
            &[Right, SeekForward],          // to the right
            &[Top, ToStart],                // the first
            &[Bottom, ToEnd],               // the last
        ]
    };
    /// The keys that the agreement gives two meanings: picks or plays; free ones or the whole run.
    const TWO_MEANINGS: &[char] = &[' ', 'f'];

    #[test]
    fn one_key_has_one_meaning_on_all_screens() {
        let mut meanings: std::collections::HashMap<Key, Vec<(Action, &str)>> =
            std::collections::HashMap::new();
        for entry in SCREENS {
            for binding in entry.bindings() {
                for key in binding.keys {
                    meanings.entry(*key).or_default().push((binding.action, entry.name));
                }
            }
        }
        let same = |a: Action, b: Action| {
            a == b || ONE_MEANING.iter().any(|group| group.contains(&a) && group.contains(&b))
        };
        for (key, actions) in meanings {
            let (first, on) = actions[0];
            let other = actions.iter().find(|(action, _)| !same(first, *action));
            let agreed = TWO_MEANINGS.iter().any(|c| Key::char(*c) == key);
            assert!(agreed || other.is_none(), "{}: {first:?} on {on}, {other:?}", key.name());
        }
    }

    #[test]
    fn every_screen_can_be_left_and_explained() {
        for own in SCREENS {
            assert_eq!(entry(own.screen).name, own.name);
            assert!(own.bindings().any(|b| b.action == Action::Help), "{}", own.name);
            assert!(own.bindings().any(|b| b.action == Action::Quit), "{}", own.name);
        }
        assert_eq!(entry(Screen::Launch).lookup(Key::char('q')), None);
    }
}
