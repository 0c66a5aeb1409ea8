//! Turns the terminal library's events into the core's keys, mouse events and messages.

use crossterm::event::{
    Event, KeyCode as Code, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

use crate::clock;
use crate::domain::time::HostTime;
use crate::tui::core::{Key, KeyCode, Mouse, MouseKind, Msg};

/// Two presses at one place within so long are a double click, microseconds.
const DOUBLE_US: u64 = 400_000;

/// Turns events into messages; remembers the last press of the mouse.
#[derive(Debug, Default)]
pub(super) struct Clicks {
    /// Where and when.
    last: Option<(u16, u16, HostTime)>,
}

impl Clicks {
    /// The message of an event that happens now; `None` for those that mean nothing here.
    pub(super) fn message(&mut self, event: &Event) -> Option<Msg> {
        message(self, event, clock::host_now())
    }

    /// What a press of the left button is.
    fn pressed(&mut self, (column, row): (u16, u16), now: HostTime) -> MouseKind {
        let twice = |(x, y, at): (u16, u16, HostTime)| {
            (x, y) == (column, row) && now.0.saturating_sub(at.0) <= DOUBLE_US
        };
        if self.last.take().is_some_and(twice) {
            return MouseKind::DoubleClick;
        }
        self.last = Some((column, row, now));
        MouseKind::Click
    }
}

fn message(clicks: &mut Clicks, event: &Event, now: HostTime) -> Option<Msg> {
    match event {
        Event::Key(event) if event.kind != KeyEventKind::Release => key(*event).map(Msg::Key),
        Event::Mouse(event) => {
            let kind = match event.kind {
                MouseEventKind::Down(MouseButton::Left) => clicks.pressed((event.column, event.row), now),
                MouseEventKind::Drag(MouseButton::Left) => MouseKind::Drag,
                MouseEventKind::Up(MouseButton::Left) => return Some(Msg::Released),
                MouseEventKind::ScrollUp => MouseKind::WheelUp,
                MouseEventKind::ScrollDown => MouseKind::WheelDown,
                _ => return None,
            };
            Some(Msg::Mouse(Mouse { kind, column: event.column, row: event.row }))
        }
        Event::Paste(text) => Some(Msg::Paste(text.clone())),
        Event::Resize(columns, rows) => Some(Msg::Resize(*columns, *rows)),
        _ => None,
    }
}

fn key(event: KeyEvent) -> Option<Key> {
    let code = match event.code {
        Code::Char(c) => KeyCode::Char(c),
        Code::Enter => KeyCode::Enter,
        Code::Esc => KeyCode::Esc,
        Code::Tab => KeyCode::Tab,
        Code::BackTab => KeyCode::BackTab,
        Code::Backspace => KeyCode::Backspace,
        Code::Delete => KeyCode::Delete,
        Code::Up => KeyCode::Up,
        Code::Down => KeyCode::Down,
        Code::Left => KeyCode::Left,
        Code::Right => KeyCode::Right,
        Code::Home => KeyCode::Home,
        Code::End => KeyCode::End,
        Code::PageUp => KeyCode::PageUp,
        Code::PageDown => KeyCode::PageDown,
        Code::F(n) => KeyCode::F(n),
        _ => return None,
    };
    Some(Key {
        code,
        ctrl: event.modifiers.contains(KeyModifiers::CONTROL),
        alt: event.modifiers.contains(KeyModifiers::ALT),
    })
}

/// So many characters before an enter and [`BEHIND`] after it within one frame: they were pasted, not typed.
const BEFORE: usize = 8;
const BEHIND: usize = 4;
/// What follows a part of a paste within so long belongs to it, microseconds.
const GOES_ON_US: u64 = 50_000;

/// Pastes that the terminal does not mark as such: the keys of several lines at once. An enter among them is the end of a
/// line, not a command.
#[derive(Debug, Default)]
pub(super) struct UnmarkedPaste {
    /// When the last part of one came.
    last: Option<HostTime>,
}

impl UnmarkedPaste {
    /// The messages of a frame, with such a paste in the place of its keys. For screens where text is written.
    pub(super) fn gather(&mut self, messages: Vec<Msg>, now: HostTime) -> Vec<Msg> {
        let is_key = |message: &Msg| matches!(message, Msg::Key(_));
        let typed: Vec<Option<char>> = messages.iter().filter(|msg| is_key(msg)).map(character).collect();
        let goes_on = self.last.take().is_some_and(|last| now.0.saturating_sub(last.0) <= GOES_ON_US);
        // a tabulator alone moves the cursor to the next field
        let first = typed.iter().position(|typed| typed.is_some_and(|c| c != '\t'));
        let Some(first) = first else { return messages };
        let run: String = typed[first..].iter().map_while(|typed| *typed).collect();
        let lines: Vec<&str> = run.split('\n').collect();
        let long = |line: &str, least| line.trim().chars().count() >= least;
        let several = lines.windows(2).any(|two| long(two[0], BEFORE) && long(two[1], BEHIND));
        if !(several || goes_on && first == 0 && run.contains('\n')) {
            return messages;
        }
        self.last = Some(now);
        // what else came meanwhile does not cut it
        let (keys, mut rest): (Vec<Msg>, Vec<Msg>) = messages.into_iter().partition(is_key);
        let mut keys = keys.into_iter();
        rest.extend(keys.by_ref().take(first));
        let behind = keys.skip(run.chars().count());
        rest.push(Msg::Paste(run));
        rest.extend(behind);
        rest
    }
}

/// What a key writes; the enter key ends a line.
fn character(message: &Msg) -> Option<char> {
    match message {
        Msg::Key(Key { code: KeyCode::Char(c), ctrl: false, alt: false }) => Some(*c),
        Msg::Key(Key { code: KeyCode::Enter, ctrl: false, alt: false }) => Some('\n'),
        Msg::Key(Key { code: KeyCode::Tab, ctrl: false, alt: false }) => Some('\t'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Msg> {
        let key = |c| match c {
            '\n' => Key::plain(KeyCode::Enter),
            '\t' => Key::plain(KeyCode::Tab),
            c => Key::char(c),
        };
        text.chars().map(|c| Msg::Key(key(c))).collect()
    }

    #[test]
    fn several_lines_at_once_are_a_paste_and_their_enters_start_nothing() {
        let mut paste = UnmarkedPaste::default();
        let text = "cd /data/proj\nmpirun -np 2 \\\n  python3 t.py\n";
        assert_eq!(paste.gather(keys(text), HostTime(0)), [Msg::Paste(text.to_owned())]);
        assert_eq!(paste.gather(keys("--lr 1\n"), HostTime(20_000)), [Msg::Paste("--lr 1\n".to_owned())]);
        // a second later a person presses enter
        assert_eq!(paste.gather(keys("\n"), HostTime(1_000_000)), keys("\n"));
    }

    #[test]
    fn what_comes_between_the_keys_of_a_paste_does_not_cut_it() {
        let text = "python3 train.py \\\n\t--lr 1\n";
        let mut messages = keys(text);
        messages.insert(20, Msg::Resize(80, 24));
        let gathered = UnmarkedPaste::default().gather(messages, HostTime(0));
        assert_eq!(gathered, [Msg::Resize(80, 24), Msg::Paste(text.to_owned())]);
        let mut behind = keys(text);
        behind.push(Msg::Key(Key::plain(KeyCode::Esc)));
        let gathered = UnmarkedPaste::default().gather(behind, HostTime(0));
        assert_eq!(gathered, [Msg::Paste(text.to_owned()), Msg::Key(Key::plain(KeyCode::Esc))]);
    }

    #[test]
    fn what_is_typed_stays_keys() {
        for text in ["python3 train.py --lr 1\n", "\ta\t\n", "a\nb\n", "jjjjjjjjjjjjj\nyes", ""] {
            assert_eq!(UnmarkedPaste::default().gather(keys(text), HostTime(0)), keys(text), "{text}");
        }
        let mut mixed = keys("python3 train.py");
        mixed.insert(3, Msg::Resize(80, 24));
        assert_eq!(UnmarkedPaste::default().gather(mixed.clone(), HostTime(0)), mixed);
    }

    fn message(event: &Event) -> Option<Msg> {
        super::message(&mut Clicks::default(), event, HostTime(0))
    }

    #[test]
    fn two_presses_at_one_place_are_a_double_click() {
        let mut clicks = Clicks::default();
        let mut pressed = |column, ms: u64| clicks.pressed((column, 1), HostTime(ms * 1000));
        assert_eq!(pressed(4, 1000), MouseKind::Click);
        assert_eq!(pressed(4, 1300), MouseKind::DoubleClick);
        assert_eq!(pressed(4, 1400), MouseKind::Click, "a third press begins anew");
        assert_eq!(pressed(5, 1500), MouseKind::Click, "elsewhere");
        assert_eq!(pressed(5, 2000), MouseKind::Click, "too late");
    }

    #[test]
    fn keys_arrive_once_and_with_their_modifiers() {
        let mut event = KeyEvent::new(Code::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(message(&Event::Key(event)), Some(Msg::Key(Key::ctrl('c'))));
        event.kind = KeyEventKind::Release;
        assert_eq!(message(&Event::Key(event)), None);
        let shifted = KeyEvent::new(Code::Char('R'), KeyModifiers::SHIFT);
        assert_eq!(message(&Event::Key(shifted)), Some(Msg::Key(Key::char('R'))));
        assert_eq!(message(&Event::Resize(80, 24)), Some(Msg::Resize(80, 24)));
    }
}
