//! The terminal while the UI has it: raw, alternate screen, mouse, bracketed paste. Given back when the
//! guard is dropped, and before a panic speaks.

use std::io::{Stdout, Write, stdout};
use std::sync::Once;

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// The terminal, taken over.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn enter() -> Result<Self, std::io::Error> {
        restore_before_panics();
        enable_raw_mode()?;
        // from here on Drop gives back, also when the next lines fail
        let guard = Self { terminal: Terminal::new(CrosstermBackend::new(stdout()))? };
        execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste, cursor::Hide)?;
        Ok(guard)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> Result<(u16, u16), std::io::Error> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws a frame; only cells that changed are sent.
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> Result<(), std::io::Error> {
        self.terminal.draw(frame).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back; harmless when it was given back already. Errors are passed over: there is
/// nobody left to tell.
fn restore() {
    let _ =
        execute!(stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// Makes a panic's words readable: the terminal is restored before the hook that was there speaks. A panic
/// of another thread does not end the UI, so its words go to the log and leave the screen alone.
fn restore_before_panics() {
    static ONCE: Once = Once::new();
    let ui = std::thread::current().id();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let taken = is_raw_mode_enabled().unwrap_or(false);
            if taken && std::thread::current().id() != ui {
                tracing::error!("{info}");
                return;
            }
            if taken {
                restore();
            }
            before(info);
        }));
    });
}
