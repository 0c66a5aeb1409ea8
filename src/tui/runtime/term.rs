//! The terminal while the UI has it: raw, alternate screen, mouse, bracketed paste. Given back when the
//! guard is dropped, and before a panic speaks.

use std::io::{BufWriter, Stdout, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Once;

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

/// Bytes of a frame that go out in one write.
const FRAME_BYTES: usize = 64 * 1024;

/// The terminal, taken over.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// What it shows.
    shown: Buffer,
    cursor: Option<(u16, u16)>,
    /// Whether clicks come as messages.
    has_mouse: bool,
}

impl Screen {
    /// Takes the terminal over; the mouse where `has_mouse`.
    pub(super) fn enter(has_mouse: bool) -> Result<Self, std::io::Error> {
        restore_before_panics();
        enable_raw_mode()?;
        // from here on Drop gives back, also when the next lines fail
        let output = BufWriter::with_capacity(FRAME_BYTES, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(output))?;
        let guard = Self { terminal, shown: Buffer::default(), cursor: None, has_mouse };
        guard.take()?;
        Ok(guard)
    }

    /// Asks for a screen of its own, the mouse where it is wanted, and pasted text as such.
    fn take(&self) -> Result<(), std::io::Error> {
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
        if self.has_mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) }
    }

    /// Asks for the mouse, or leaves it to the terminal, where that is not so already.
    pub(super) fn listen_to_mouse(&mut self, wanted: bool) -> Result<(), std::io::Error> {
        if self.has_mouse == wanted {
            return Ok(());
        }
        self.has_mouse = wanted;
        if wanted { execute!(stdout(), EnableMouseCapture) } else { execute!(stdout(), DisableMouseCapture) }
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> Result<(u16, u16), std::io::Error> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Writes a sequence that changes nothing of what is shown.
    pub(super) fn write(&mut self, sequence: &str) -> Result<(), std::io::Error> {
        let backend = self.terminal.backend_mut();
        backend.write_all(sequence.as_bytes())?;
        Write::flush(backend)
    }

    /// Sends all cells with the next frame: something else wrote on the terminal. The terminal is asked for nothing, where
    /// [`Terminal::clear`] asks for the cursor's place: its answer would come among the keys.
    pub(super) fn forget(&mut self) -> Result<(), std::io::Error> {
        self.terminal.backend_mut().clear()?;
        // of the two buffers one is blank between frames: now both are
        self.terminal.swap_buffers();
        self.shown = Buffer::default();
        Ok(())
    }

    /// Gives the terminal back until [`Screen::take_again`].
    pub(super) fn give_back() {
        restore();
    }

    /// Takes the terminal over once more, as the other program left it; the next frame is sent whole.
    pub(super) fn take_again(&mut self) -> Result<(), std::io::Error> {
        // after an unannounced stop it counts as raw, and a shell has changed that since
        disable_raw_mode()?;
        enable_raw_mode()?;
        self.take()?;
        self.cursor = None;
        self.forget()
    }

    /// Shows what `draw` draws, and the cursor where it says: cells that have changed are sent, and nothing where none has.
    pub(super) fn draw(
        &mut self,
        draw: impl FnOnce(&mut Buffer) -> Option<(u16, u16)>,
    ) -> Result<(), std::io::Error> {
        self.terminal.autoresize()?;
        let mut frame = self.terminal.get_frame();
        let cursor = draw(frame.buffer_mut());
        if *frame.buffer_mut() == self.shown && cursor == self.cursor {
            frame.buffer_mut().reset();
            return Ok(());
        }
        self.shown.clone_from(frame.buffer_mut());
        self.terminal.flush()?;
        match cursor {
            Some(at) => {
                self.terminal.set_cursor_position(at)?;
                self.terminal.show_cursor()?;
            }
            None if self.cursor.is_some() => self.terminal.hide_cursor()?,
            None => {}
        }
        self.cursor = cursor;
        self.terminal.swap_buffers();
        Write::flush(self.terminal.backend_mut())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal went away, as when its window is closed: that on which is drawn, or another one from which keys come.
pub(super) fn is_gone() -> bool {
    is_hung_up(&stdout()) || (is_device(&stdin()) && is_hung_up(&stdin()))
}

/// Whether it is a terminal, or was one: of one that is gone the system says no more than this. From a pipe no keys are read.
fn is_device(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

fn is_hung_up(file: &impl AsFd) -> bool {
    let mut asked = [PollFd::new(file, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().contains(PollFlags::HUP)
}

/// Gives the terminal back; harmless when it was given back already. Errors are passed over: there is
/// no user left to tell.
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

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_the_other_end_has_left_is_gone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(!is_hung_up(&ours));
        // closing it would leave it open in a process that another test is starting
        theirs.shutdown(Shutdown::Both).unwrap();
        assert!(is_hung_up(&ours));
        assert!(!is_device(&ours), "no keys are read from it");
    }

    #[test]
    fn a_device_is_told_from_a_pipe_and_one_that_stays_is_not_gone() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(is_device(&null) && !is_hung_up(&null));
        let (read, write) = std::io::pipe().unwrap();
        drop(write);
        assert!(!is_device(&read));
    }
}
