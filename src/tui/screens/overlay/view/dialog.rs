//! Dialogs: the row of keys that answer one, and a question of some lines above such a row. What is drawn and what a click
//! hits come from the same places.

use std::ops::Range;

use ratatui::style::Style;

use crate::tui::canvas::{Canvas, width};
use crate::tui::core::{Key, KeyCode};

/// What can be done in a dialog, in a word or two.
#[derive(Debug, Clone, Copy)]
pub(in crate::tui::screens) enum Choice {
    /// By a key, or by a click on it or its word.
    Press(Key, &'static str),
    /// By keys that are written so.
    Tell(&'static str, &'static str),
}

/// What a letter does.
pub(in crate::tui::screens) const fn press(letter: char, word: &'static str) -> Choice {
    Choice::Press(Key::char(letter), word)
}

/// What leads out.
pub(in crate::tui::screens) const fn esc(word: &'static str) -> Choice {
    Choice::Press(Key::plain(KeyCode::Esc), word)
}

/// What leads on.
pub(in crate::tui::screens) const fn enter(word: &'static str) -> Choice {
    Choice::Press(Key::plain(KeyCode::Enter), word)
}

/// Where a row of choices stands: first column, row, the column behind it.
#[derive(Debug, Clone, Copy)]
pub(in crate::tui::screens) struct Row {
    pub(in crate::tui::screens) x: u16,
    pub(in crate::tui::screens) y: u16,
    pub(in crate::tui::screens) end: u16,
}

impl Row {
    /// The row that ends before column `end`.
    pub(in crate::tui::screens) fn before(end: u16, y: u16, choices: &[Choice]) -> Self {
        let begun = Self { x: 0, y, end };
        let w = begun.placed(choices).last().map_or(0, |(columns, ..)| columns.end);
        Self { x: end.saturating_sub(w), ..begun }
    }

    /// Columns, key as it is written, word, and the key that a click presses.
    fn placed(self, choices: &[Choice]) -> Vec<(Range<u16>, String, &'static str, Option<Key>)> {
        let mut at = self.x;
        let placed = choices.iter().map(|choice| {
            let (shown, word, key) = match *choice {
                Choice::Press(key, word) => (key.name(), word, Some(key)),
                Choice::Tell(keys, word) => (keys.to_owned(), word, None),
            };
            let from = at;
            at += width(&shown) + 1 + width(word) + 3;
            (from..at - 3, shown, word, key)
        });
        placed.collect()
    }

    pub(in crate::tui::screens) fn draw(self, canvas: &mut Canvas<'_>, choices: &[Choice]) {
        let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
        for (columns, shown, word, _) in self.placed(choices) {
            let room = |x: u16| self.end.saturating_sub(x);
            let x = canvas.text(columns.start, self.y, room(columns.start), &shown, strong) + 1;
            canvas.text(x, self.y, room(x), word, dim);
        }
    }

    /// The key whose choice stands at a cell of the screen.
    pub(in crate::tui::screens) fn key_at(self, choices: &[Choice], column: u16, row: u16) -> Option<Key> {
        let inside = row == self.y && column < self.end;
        let hit = self.placed(choices).into_iter().find(|(columns, ..)| inside && columns.contains(&column));
        hit.and_then(|(.., key)| key)
    }
}

/// A question in the middle of the screen, as wide as it says.
#[derive(Debug)]
pub(in crate::tui::screens) struct Dialog {
    pub(in crate::tui::screens) title: &'static str,
    pub(in crate::tui::screens) w: u16,
    pub(in crate::tui::screens) lines: Vec<(String, Style)>,
    pub(in crate::tui::screens) choices: Vec<Choice>,
}

impl Dialog {
    /// Column, row and height of its frame on a screen of some size.
    fn place(&self, size: (u16, u16)) -> (u16, u16, u16) {
        let h = self.lines.len() as u16 + 4;
        (size.0.saturating_sub(self.w) / 2, size.1.saturating_sub(h) / 2, h)
    }

    fn row(&self, size: (u16, u16)) -> Row {
        let (x, y, h) = self.place(size);
        Row { x: x + 3, y: y + h - 2, end: (x + self.w).saturating_sub(2) }
    }

    pub(in crate::tui::screens) fn draw(&self, canvas: &mut Canvas<'_>) {
        let size = (canvas.width(), canvas.height());
        let (x, y, h) = self.place(size);
        let accent = canvas.theme.accent;
        let (ix, iy, iw, _) = canvas.frame(x, y, self.w, h, self.title, accent);
        for ((line, style), row) in self.lines.iter().zip(iy..) {
            canvas.text(ix + 1, row, iw - 1, line, *style);
        }
        self.row(size).draw(canvas, &self.choices);
    }

    pub(in crate::tui::screens) fn key_at(&self, size: (u16, u16), column: u16, row: u16) -> Option<Key> {
        self.row(size).key_at(&self.choices, column, row)
    }
}
