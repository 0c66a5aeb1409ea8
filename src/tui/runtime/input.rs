//! Turns the terminal library's events into the core's keys, mouse events and messages.

use crossterm::event::{
    Event, KeyCode as Code, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

use crate::tui::core::{Key, KeyCode, Mouse, MouseKind, Msg};

/// The message of an event; `None` for those that mean nothing here.
pub(super) fn message(event: &Event) -> Option<Msg> {
    match event {
        Event::Key(event) if event.kind != KeyEventKind::Release => key(*event).map(Msg::Key),
        Event::Mouse(event) => {
            let kind = match event.kind {
                MouseEventKind::Down(MouseButton::Left) => MouseKind::Click,
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

#[cfg(test)]
mod tests {
    use super::*;

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
