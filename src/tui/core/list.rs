//! The cursor of a list whose items come and go: it stays on its item, and its item stays on its line.

use crate::tui::core::keymap::Action;

/// A cursor keyed by identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor<K> {
    /// The item it is on; `None` while there is none.
    pub on: Option<K>,
    /// The item it was on when the list became empty: it is on it again when that comes back.
    pub away: Option<K>,
    /// That item's place in the list when last seen.
    pub index: usize,
    /// The first item shown.
    pub offset: usize,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self { on: None, away: None, index: 0, offset: 0 }
    }
}

impl<K: PartialEq + Clone> Cursor<K> {
    /// Finds the cursor's item again after the list changed, and keeps it on the same line of a view of
    /// `height` lines where that is possible. When the item is gone its neighbour takes over.
    pub fn settle(&mut self, items: &[K], height: usize) {
        if items.is_empty() {
            // what is not shown is not selected
            self.away = self.on.take().or(self.away.take());
            self.index = 0;
            self.offset = 0;
            return;
        }
        self.on = self.on.take().or(self.away.take());
        self.away = None;
        let found = self.on.as_ref().and_then(|on| {
            let same_place = items.get(self.index) == Some(on);
            if same_place { Some(self.index) } else { items.iter().position(|item| item == on) }
        });
        if let Some(index) = found {
            self.offset = (self.offset + index).saturating_sub(self.index);
            self.index = index;
        } else {
            self.index = self.index.min(items.len() - 1);
            self.on = items.get(self.index).cloned();
        }
        self.clamp(items.len(), height);
    }

    /// The same where what is new comes first: a list that is seen from its first item on stays there, so that the new one is
    /// seen too, as long as the cursor's item is.
    pub fn settle_newest_first(&mut self, items: &[K], height: usize) {
        let is_top = self.offset == 0;
        self.settle(items, height);
        if is_top {
            self.offset = 0;
            self.clamp(items.len(), height);
        }
    }

    /// Moves by `delta` items, staying inside the list.
    pub fn move_by(&mut self, delta: isize, items: &[K], height: usize) {
        self.move_to(self.index.saturating_add_signed(delta), items, height);
    }

    /// Moves to an item by its place; beyond the end means the last.
    pub fn move_to(&mut self, index: usize, items: &[K], height: usize) {
        if items.is_empty() {
            return;
        }
        self.index = index.min(items.len() - 1);
        self.on = items.get(self.index).cloned();
        self.clamp(items.len(), height);
    }

    fn clamp(&mut self, len: usize, height: usize) {
        let height = height.max(1);
        self.offset = self.offset.clamp((self.index + 1).saturating_sub(height), self.index);
        self.offset = self.offset.min(len.saturating_sub(height));
    }
}

/// How far a key moves in a list of which `height` lines show; 0 for keys that do not move.
pub fn delta(action: Action, height: usize) -> isize {
    let page = height.saturating_sub(1).max(1) as isize;
    match action {
        Action::Up => -1,
        Action::Down => 1,
        Action::PageUp => -page,
        Action::PageDown => page,
        Action::Top => isize::MIN / 2,
        Action::Bottom => isize::MAX / 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_stays_on_its_item_and_line() {
        let mut cursor = Cursor::default();
        cursor.settle(&["b", "d"], 4);
        assert_eq!(cursor.on, Some("b"));
        cursor.move_by(1, &["b", "d"], 4);
        cursor.settle(&["a", "b", "c", "d"], 4);
        assert_eq!((cursor.on, cursor.index), (Some("d"), 3));
        cursor.settle(&["a", "b", "c"], 4);
        assert_eq!((cursor.on, cursor.index), (Some("c"), 2));
        let many: Vec<i32> = (0..100).collect();
        let mut cursor = Cursor { on: Some(50), index: 50, offset: 45, ..Cursor::default() };
        let more: Vec<i32> = (-10..100).collect();
        cursor.settle(&many, 10);
        cursor.settle(&more, 10);
        assert_eq!((cursor.index, cursor.offset), (60, 55));
    }

    #[test]
    fn at_its_top_a_list_shows_what_is_new() {
        let mut cursor = Cursor::default();
        let list = |newest: i32| (0..=newest).rev().collect::<Vec<i32>>();
        cursor.settle_newest_first(&list(9), 4);
        cursor.settle_newest_first(&list(11), 4);
        assert_eq!((cursor.on, cursor.index, cursor.offset), (Some(9), 2, 0));
        cursor.settle_newest_first(&list(13), 4);
        assert_eq!((cursor.on, cursor.index, cursor.offset), (Some(9), 4, 1), "it stays in sight");
        cursor.settle_newest_first(&list(14), 4);
        assert_eq!((cursor.on, cursor.index, cursor.offset), (Some(9), 5, 2), "and on its line");
    }

    #[test]
    fn nothing_is_selected_while_nothing_is_shown() {
        let mut cursor = Cursor::default();
        cursor.settle(&["a", "b", "c"], 4);
        cursor.move_by(1, &["a", "b", "c"], 4);
        cursor.settle(&[], 4);
        assert_eq!(cursor.on, None);
        cursor.settle(&[], 4);
        cursor.settle(&["a", "b", "c"], 4);
        assert_eq!((cursor.on, cursor.index), (Some("b"), 1));
    }
}
