//! What keys mean: actions, and bindings of keys to them. Each screen has a table of its own in its folder; the update looks
//! keys up there, the help and the footer are made from it. Here stand the tables that screens share.

use crate::tui::core::key::{Key, KeyCode};

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described by its line in the table")]
pub enum Action {
    Help,
    Palette,
    Redraw,
    Suspend,
    Quit,
    Cluster,
    Runs,
    LatestRun,
    Doctor,
    Events,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    Back,
    // Cluster
    Pick,
    PickRange,
    PickMatching,
    NextView,
    PickFree,
    Unpick,
    ClearFilter,
    Users,
    FewerSlots,
    Launch,
    Filter,
    Sort,
    Heat,
    Left,
    Right,
    Fold,
    FoldAll,
    Detail,
    Acknowledge,
    Reconnect,
    // Detail and Users
    Unfold,
    Signal,
    // Launch
    NextField,
    PrevField,
    Older,
    Newer,
    Start,
    // Run
    NextPane,
    AllRanks,
    Search,
    NextMatch,
    PreviousMatch,
    Wrap,
    Folds,
    Levels,
    Copy,
    Save,
    Follow,
    Timeline,
    Trace,
    Stacks,
    Stop,
    ZoomIn,
    ZoomOut,
    Fit,
    // Run and Runs
    Again,
    // Runs
    Open,
    OpenReplay,
    Delete,
    Refresh,
    // Replay
    PlayPause,
    SeekBack,
    SeekForward,
    PageBack,
    PageForward,
    StepBack,
    StepForward,
    EventBefore,
    NextEvent,
    IncidentBefore,
    NextIncident,
    Mark,
    Marks,
    Report,
    Compare,
    ByTime,
    Faster,
    Slower,
    GoTo,
    Select,
    ToStart,
    ToEnd,
}

/// One line of a table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The keys, the first one is the one shown in the footer.
    pub keys: &'static [Key],
    /// What they mean.
    pub action: Action,
    /// One or two words for the footer; empty when it does not stand there.
    pub short: &'static str,
    /// Its name in the palette; that of the footer where it stands there.
    pub name: &'static str,
    /// The sentence of the help screen.
    pub help: &'static str,
}

/// A character as a key of a table.
pub const fn c(c: char) -> Key {
    Key::char(c)
}

/// Another key of a table.
pub const fn k(code: KeyCode) -> Key {
    Key::plain(code)
}

/// A line of a table.
pub const fn bind(keys: &'static [Key], action: Action, short: &'static str, help: &'static str) -> Binding {
    Binding { keys, action, short, name: short, help }
}

/// A line of a table that does not stand in the footer, with its name for the palette.
pub const fn named(keys: &'static [Key], action: Action, name: &'static str, help: &'static str) -> Binding {
    Binding { keys, action, short: "", name, help }
}

/// On every list.
pub const LISTS: &[Binding] = &[
    bind(&[k(KeyCode::Up), c('k')], Action::Up, "", "up"),
    bind(&[k(KeyCode::Down), c('j')], Action::Down, "", "down"),
    bind(&[k(KeyCode::PageUp), Key::ctrl('u')], Action::PageUp, "", "a page up"),
    bind(&[k(KeyCode::PageDown), Key::ctrl('d')], Action::PageDown, "", "a page down"),
    bind(&[k(KeyCode::Home), c('g')], Action::Top, "", "to the first"),
    bind(&[k(KeyCode::End), c('G')], Action::Bottom, "", "to the last"),
];

/// On the screens from which a run is launched; Cluster has it among its own.
pub const LAUNCH: &[Binding] = &[bind(
    &[c('L')],
    Action::Launch,
    "launch",
    "launch a run on the picks (space and f on Cluster); on Detail without picks, on its GPU if that is free",
)];

/// On every screen but forms.
pub const EVERYWHERE: &[Binding] = &[
    named(&[c('1'), c('c')], Action::Cluster, "cluster", "the Cluster screen"),
    named(&[c('2'), c('o')], Action::LatestRun, "run", "the Run screen: the newest run"),
    named(&[c('3'), c('r')], Action::Runs, "runs", "the Runs screen"),
    named(
        &[c('4')],
        Action::Doctor,
        "doctor",
        "the Doctor screen: what is wrong with the hosts, and what helps",
    ),
    named(
        &[c('E')],
        Action::Events,
        "events",
        "the events: what the cluster tells by itself, and past notices",
    ),
    named(&[Key::ctrl('l')], Action::Redraw, "redraw", "draw the whole screen again"),
    named(
        &[Key::ctrl('z')],
        Action::Suspend,
        "suspend",
        "stop hvtui and go to the shell; fg comes back, and runs go on",
    ),
    bind(&[c(':')], Action::Palette, "command", "all commands of this screen by name"),
    bind(&[c('?'), k(KeyCode::F(1))], Action::Help, "help", "this help"),
    bind(&[c('q'), Key::ctrl('c')], Action::Quit, "quit", "quit; runs go on"),
];

impl Binding {
    /// The keys as people read them: `h ←`, `0-9`; in ASCII `h left`.
    pub fn keys_text(&self, ascii: bool) -> String {
        self.keys.iter().map(|key| written(*key, ascii)).collect::<Vec<_>>().join(" ")
    }

    /// The first key as the footer shows it.
    pub fn first_key(&self, ascii: bool) -> String {
        self.keys.first().map_or_else(String::new, |key| written(*key, ascii))
    }
}

fn written(key: Key, ascii: bool) -> String {
    if ascii { key.name_in_ascii() } else { key.name() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_ascii_an_arrow_is_not_taken_for_another_key() {
        const KEYS: &[Key] = &[k(KeyCode::Left), Key::ctrl('u'), c('<')];
        let keys = bind(KEYS, Action::Left, "back", "back");
        assert_eq!(keys.keys_text(false), "← ctrl-u <");
        assert_eq!(keys.keys_text(true), "left ctrl-u <");
        assert_eq!((keys.first_key(false), keys.first_key(true)), ("←".to_owned(), "left".to_owned()));
        for key in LISTS.iter().flat_map(|binding| binding.keys) {
            assert!(key.name_in_ascii().is_ascii(), "{key:?}");
        }
    }
}
