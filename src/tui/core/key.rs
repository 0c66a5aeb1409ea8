//! Keys and mouse events as the core knows them: no terminal library's types.

/// Which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyCode {
    /// A character as typed, shift applied.
    Char(char),
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tabulator.
    Tab,
    /// Shift and tabulator.
    BackTab,
    /// Deletes to the left.
    Backspace,
    /// Deletes to the right.
    Delete,
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// Start of line or list.
    Home,
    /// End of line or list.
    End,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// A function key, from 1.
    F(u8),
}

/// A key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which.
    pub code: KeyCode,
    /// With control held.
    pub ctrl: bool,
    /// With alt held.
    pub alt: bool,
}

impl Key {
    /// A key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self { code, ctrl: false, alt: false }
    }

    /// A character without modifiers.
    pub const fn char(c: char) -> Self {
        Self::plain(KeyCode::Char(c))
    }

    /// A character with control held.
    pub const fn ctrl(c: char) -> Self {
        Self { code: KeyCode::Char(c), ctrl: true, alt: false }
    }

    /// Whether it answers no where something is asked before it is done. Enter answers nothing there: it is pressed too
    /// easily.
    pub const fn is_no(self) -> bool {
        matches!(self.code, KeyCode::Char('n' | 'q') | KeyCode::Esc)
    }

    /// How help and footer write it in a terminal that shows ASCII alone: an arrow is a word there, for `<` and `v` are keys.
    pub fn name_in_ascii(self) -> String {
        let word = match self.code {
            KeyCode::Up => "up",
            KeyCode::Down => "down",
            KeyCode::Left => "left",
            KeyCode::Right => "right",
            _ => return self.name(),
        };
        match (self.ctrl, self.alt) {
            (true, _) => format!("ctrl-{word}"),
            (false, true) => format!("alt-{word}"),
            (false, false) => word.to_owned(),
        }
    }

    /// How help and footer write it: `space`, `ctrl-c`, `pgup`.
    pub fn name(self) -> String {
        let code = match self.code {
            KeyCode::Char(' ') => "space".to_owned(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::Enter => "enter".to_owned(),
            KeyCode::Esc => "esc".to_owned(),
            KeyCode::Tab => "tab".to_owned(),
            KeyCode::BackTab => "shift-tab".to_owned(),
            KeyCode::Backspace => "backspace".to_owned(),
            KeyCode::Delete => "del".to_owned(),
            KeyCode::Up => "↑".to_owned(),
            KeyCode::Down => "↓".to_owned(),
            KeyCode::Left => "←".to_owned(),
            KeyCode::Right => "→".to_owned(),
            KeyCode::Home => "home".to_owned(),
            KeyCode::End => "end".to_owned(),
            KeyCode::PageUp => "pgup".to_owned(),
            KeyCode::PageDown => "pgdn".to_owned(),
            KeyCode::F(n) => format!("F{n}"),
        };
        match (self.ctrl, self.alt) {
            (true, _) => format!("ctrl-{code}"),
            (false, true) => format!("alt-{code}"),
            (false, false) => code,
        }
    }
}

/// What the mouse did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MouseKind {
    /// Left button pressed.
    Click,
    /// The same once more at the same place, at once.
    DoubleClick,
    /// Moved with the left button held.
    Drag,
    /// Wheel turned away from the person.
    WheelUp,
    /// Wheel turned towards the person.
    WheelDown,
}

/// A mouse event at a cell, counted from the top left, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mouse {
    /// What.
    pub kind: MouseKind,
    /// Column.
    pub column: u16,
    /// Row.
    pub row: u16,
}
