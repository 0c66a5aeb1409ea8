//! One condition over time: it must hold for a while before it is told, and be gone for a while before it is over, so
//! that what flaps is one alert. Pure.

use serde::{Deserialize, Serialize};

use super::rules::SECOND_US;
use crate::domain::time::Stamp;

/// For how long a condition must be gone before its alert ends.
pub(in crate::domain) const CLEAR_US: i64 = 10 * SECOND_US;
/// For how long it may be unknown before its alert ends.
pub(in crate::domain) const UNKNOWN_US: i64 = 60 * SECOND_US;

/// What is seen of a condition at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Seen {
    /// It holds; since when, where that is known better than from what was seen.
    Holds(Option<Stamp>),
    /// It is there no more, but not by much: an alert goes on, and none begins.
    Almost,
    /// It does not hold.
    Gone,
    /// It does not hold, and what ended it is certain: its alert ends at once.
    Over,
    /// What decides is not known.
    Unknown,
}

impl Seen {
    /// Holds or is gone.
    pub(super) fn when(holds: bool) -> Self {
        if holds { Self::Holds(None) } else { Self::Gone }
    }

    /// The same of a value that may not be known.
    pub(super) fn known(holds: Option<bool>) -> Self {
        holds.map_or(Self::Unknown, Self::when)
    }
}

/// What becomes of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Turn {
    /// Nothing.
    Same,
    /// It begins; the condition has held since then.
    Begins(Stamp),
    /// It ends; the condition has been gone since then.
    Ends(Stamp),
}

/// A condition that holds or has held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Track {
    since: Stamp,
    gone: Option<Stamp>,
    /// The number of its alert, once it is told.
    pub(super) alert: Option<u64>,
    /// What the alert is known by: how many steps a rank had taken.
    pub(super) mark: u64,
}

impl Track {
    pub(super) fn new(at: Stamp) -> Self {
        Self { since: at, gone: None, alert: None, mark: 0 }
    }

    /// Whether it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.alert.is_none() && self.gone.is_some()
    }

    /// Takes what is seen at `at`; the condition must hold for `hold_us` before it is told.
    pub(super) fn turn(&mut self, at: Stamp, seen: Seen, hold_us: i64) -> Turn {
        let patience = match seen {
            Seen::Holds(since) => {
                if self.gone.take().is_some() && self.alert.is_none() {
                    self.since = at;
                }
                if let (Some(since), None) = (since, self.alert) {
                    self.since = since;
                }
                let begins = self.alert.is_none() && at.micros_since(self.since) >= hold_us;
                return if begins { Turn::Begins(self.since) } else { Turn::Same };
            }
            Seen::Almost if self.alert.is_some() => {
                self.gone = None;
                return Turn::Same;
            }
            Seen::Almost | Seen::Gone => CLEAR_US,
            Seen::Over => 0,
            Seen::Unknown => UNKNOWN_US,
        };
        let gone = *self.gone.get_or_insert(at);
        if self.alert.is_some() && at.micros_since(gone) >= patience { Turn::Ends(gone) } else { Turn::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a condition that must hold for 10 s, one letter a second.
    fn turns(seen: &str) -> Vec<(i64, Turn)> {
        let mut track = Track::new(Stamp(0));
        let mut turns = Vec::new();
        for (second, letter) in (0..).zip(seen.chars()) {
            let at = Stamp(second * SECOND_US);
            let seen = match letter {
                'h' => Seen::Holds(None),
                'a' => Seen::Almost,
                'o' => Seen::Over,
                '?' => Seen::Unknown,
                _ => Seen::Gone,
            };
            match track.turn(at, seen, 10 * SECOND_US) {
                Turn::Same => {}
                Turn::Begins(since) => {
                    track.alert = Some(1);
                    turns.push((second, Turn::Begins(Stamp(since.0 / SECOND_US))));
                }
                Turn::Ends(gone) => {
                    track.alert = None;
                    turns.push((second, Turn::Ends(Stamp(gone.0 / SECOND_US))));
                }
            }
        }
        turns
    }

    #[test]
    fn it_is_told_when_it_has_held_and_over_when_it_has_been_gone() {
        let (begins, ends) = (|at| Turn::Begins(Stamp(at)), |at| Turn::Ends(Stamp(at)));
        assert_eq!(turns("hhhhhhhhhh"), [], "not long enough");
        assert_eq!(turns("hhhhhhhhhhh"), [(10, begins(0))]);
        assert_eq!(turns("hhhhh.hhhhhhhhhhhh"), [(16, begins(6))], "a hole before it is told begins it anew");
        assert_eq!(turns("hhhhhaaahhhhhhhhhhh"), [(18, begins(8))], "almost is no reason to tell it");
        let held = "hhhhhhhhhhh";
        assert_eq!(turns(&format!("{held}.........hhh.........h")), [(10, begins(0))], "it flaps");
        assert_eq!(turns(&format!("{held}aaaaaaaaaaaaaaaaaaaaaaaaa")), [(10, begins(0))]);
        assert_eq!(turns(&format!("{held}...........")), [(10, begins(0)), (21, ends(11))]);
        assert_eq!(turns(&format!("{held}o")), [(10, begins(0)), (11, ends(11))]);
    }

    #[test]
    fn what_is_not_known_is_never_told_and_ends_it_late() {
        assert_eq!(turns(&"?".repeat(100)), []);
        assert_eq!(turns(&format!("hhhhhhhh{}hh", "?".repeat(20))), []);
        let unknown = format!("hhhhhhhhhhh{}", "?".repeat(61));
        assert_eq!(turns(&unknown), [(10, Turn::Begins(Stamp(0))), (71, Turn::Ends(Stamp(11)))]);
    }
}
