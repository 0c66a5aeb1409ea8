//! One stream: a queue of bounded size and the thread that writes it. Knows nothing of who prints what.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::missing;
use super::spill::Spill;

/// Text that may wait in memory, bytes; as much again is being written.
const MEMORY: usize = 1 << 20;
/// Bytes read back from the file at a time.
const PIECE: usize = 256 << 10;

/// Why a stream takes nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Its reader went away: `| head`.
    Reader,
    /// Writing failed, for this reason.
    Failed(String),
}

impl Closed {
    /// What to say of standard output.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Reader => "nothing reads standard output any more".to_owned(),
            Self::Failed(error) => format!("can't write to standard output: {error}"),
        }
    }
}

impl From<io::Error> for Closed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Reader,
            _ => Self::Failed(missing::reason(&error)),
        }
    }
}

/// A stream that is written beside everything else.
pub(super) struct Flow {
    shared: Arc<Shared>,
}

struct Shared {
    /// For people.
    name: &'static str,
    state: Mutex<State>,
    /// There is something to write.
    work: Condvar,
    /// Something was written.
    moved: Condvar,
}

/// Bytes that are given to the kernel in one call, which returns when all of them were taken.
const AT_ONCE: usize = 8 * 1024;

struct State {
    /// What the thread takes next.
    memory: Vec<u8>,
    /// What came after it.
    spill: Spill,
    /// Bytes that the thread has taken and not written yet.
    writing: usize,
    /// Bytes that were written.
    taken: u64,
    /// Lines that found no room, and why.
    missing: Option<(u64, String)>,
    /// Whether the thread waits for work.
    idle: bool,
    closed: Option<Closed>,
}

impl State {
    fn waiting(&self) -> u64 {
        if self.closed.is_some() { 0 } else { (self.memory.len() + self.writing) as u64 + self.spill.len() }
    }

    /// Queues text behind all that waits.
    fn push(&mut self, text: &[u8]) {
        let has_room = self.memory.len() + text.len() <= MEMORY || self.memory.is_empty();
        let lines = || memchr::memchr_iter(b'\n', text).count().max(1) as u64;
        if let Some((count, _)) = &mut self.missing {
            // what comes behind a hole waits until the hole was told
            *count += lines();
        } else if self.spill.len() == 0 && has_room {
            self.memory.extend_from_slice(text);
        } else if let Err(error) = self.spill.push(text) {
            self.missing = Some((lines(), error.to_string()));
        }
    }

    /// The next bytes to write go into `piece`; `false` when there are none.
    fn take(&mut self, piece: &mut Vec<u8>, name: &str) -> bool {
        piece.clear();
        if !self.memory.is_empty() {
            std::mem::swap(&mut self.memory, piece);
        } else if self.spill.len() > 0 {
            if let Err(error) = self.spill.take(piece, PIECE) {
                let lost = self.spill.forget();
                piece.clear();
                piece.extend(
                    format!("hvtui: {lost} bytes are missing here: {error}; {REMEDY}\n").into_bytes(),
                );
            }
        } else if let Some((count, why)) = self.missing.take() {
            let text = format!("hvtui: {count} lines are missing here: {name} took nothing, and {why}");
            piece.extend(format!("{text}; {REMEDY}\n").into_bytes());
        }
        self.writing = piece.len();
        !piece.is_empty()
    }
}

/// Where to find what was not printed.
const REMEDY: &str = "`hvtui logs` prints what ranks printed";

impl Flow {
    /// Writes to `fd` in a thread. `changed` is called whenever the stream has closed or has nothing more to write.
    pub(super) fn start(
        fd: OwnedFd,
        name: &'static str,
        dir: &Path,
        changed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let state = State {
            memory: Vec::new(),
            spill: Spill::new(dir),
            writing: 0,
            taken: 0,
            missing: None,
            idle: false,
            closed: None,
        };
        let shared =
            Arc::new(Shared { name, state: Mutex::new(state), work: Condvar::new(), moved: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        // it may be blocked for ever: its end is not waited for
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || of_thread.write_all(&fd, &changed))?;
        Ok(Self { shared })
    }

    /// Queues text. Never waits for a reader.
    pub(super) fn push(&self, text: &str) {
        let mut state = self.shared.state();
        if state.closed.is_none() && !text.is_empty() {
            state.push(text.as_bytes());
            if state.idle {
                self.shared.work.notify_one();
            }
        }
    }

    /// Bytes that were queued and not written; 0 when nothing more will be.
    pub(super) fn waiting(&self) -> u64 {
        self.shared.state().waiting()
    }

    /// Bytes that were written.
    pub(super) fn taken(&self) -> u64 {
        self.shared.state().taken
    }

    /// Why nothing more is written.
    pub(super) fn closed(&self) -> Option<Closed> {
        self.shared.state().closed.clone()
    }

    /// Waits until all is written, or nothing was for so long.
    pub(super) fn wait_while_it_moves(&self, patience: Duration) {
        let mut state = self.shared.state();
        while state.waiting() > 0 {
            let before = state.taken;
            let waited = self.shared.moved.wait_timeout(state, patience);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && state.taken == before {
                return;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn write_all(&self, fd: &OwnedFd, changed: &dyn Fn()) {
        let mut piece = Vec::new();
        loop {
            let mut state = self.state();
            while !state.take(&mut piece, self.name) {
                if !state.idle {
                    state.idle = true;
                    self.moved.notify_all();
                    changed();
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle = false;
            drop(state);
            if let Err(error) = self.write(fd, &piece) {
                let mut state = self.state();
                state.closed = Some(error.into());
                (state.memory, state.missing) = (Vec::new(), None);
                state.spill.forget();
                self.moved.notify_all();
                changed();
                return;
            }
        }
    }

    fn write(&self, fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // little at a time: who reads slowly shall be seen to read
            let count = match rustix::io::write(fd, &bytes[..bytes.len().min(AT_ONCE)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                // another process that shares it has made it non-blocking
                Err(rustix::io::Errno::AGAIN) => match poll(&mut [PollFd::new(fd, PollFlags::OUT)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            };
            bytes = bytes.get(count..).unwrap_or_default();
            let mut state = self.state();
            state.writing -= count;
            state.taken += count as u64;
            self.moved.notify_all();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;

    use super::*;
    use crate::cli::output::spill::CAP;

    fn flow(dir: &Path) -> (Flow, std::io::PipeReader, mpsc::Receiver<()>) {
        let (reader, writer) = io::pipe().unwrap();
        let (tell, told) = mpsc::channel();
        let changed = move || {
            let _ = tell.send(());
        };
        (Flow::start(writer.into(), "standard output", dir, changed).unwrap(), reader, told)
    }

    #[test]
    fn what_a_reader_does_not_take_waits_in_order_beside_the_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (flow, mut reader, _told) = flow(dir.path());
        let lines = 0..400_000;
        let whole = lines.fold(String::new(), |whole, number| whole + "line " + &number.to_string() + "\n");
        whole.split_inclusive('\n').for_each(|line| flow.push(line));
        let state = flow.shared.state();
        assert!(state.memory.len() <= MEMORY && state.spill.len() > 0, "{}", state.spill.len());
        drop(state);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
        let mut read = vec![0; whole.len()];
        reader.read_exact(&mut read).unwrap();
        assert!(read == whole.as_bytes(), "each byte once, in order");
        flow.push("more\n");
        let mut more = [0; 5];
        reader.read_exact(&mut more).unwrap();
        assert_eq!(&more, b"more\n");
    }

    #[test]
    fn a_hole_stands_where_lines_are_missing() {
        let mut state = State {
            memory: Vec::new(),
            spill: Spill::new(Path::new("/proc/nowhere")),
            writing: 0,
            taken: 0,
            missing: None,
            idle: false,
            closed: None,
        };
        state.push(&vec![b'a'; MEMORY]);
        state.push("b\n".repeat(50_000).as_bytes());
        state.push(b"d\n");
        let mut piece = Vec::new();
        assert!(state.take(&mut piece, "standard output") && piece.len() == MEMORY);
        state.push(b"e\n");
        assert!(state.take(&mut piece, "standard output"));
        let hole = String::from_utf8_lossy(&piece).into_owned();
        assert!(
            hole.starts_with("hvtui: 50002 lines are missing here: standard output took nothing, and "),
            "{hole}"
        );
        assert!(hole.ends_with("; `hvtui logs` prints what ranks printed\n"), "{hole}");
        state.push(b"f\n");
        assert!(state.take(&mut piece, "standard output") && piece == b"f\n", "it goes on behind the hole");
        assert!(!state.take(&mut piece, "standard output"));
        assert!(CAP > MEMORY as u64);
    }

    #[test]
    fn a_reader_that_goes_away_closes_the_stream_also_while_it_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let (flow, reader, told) = flow(dir.path());
        flow.push(&"x".repeat(300_000));
        drop(reader);
        while flow.closed().is_none() {
            told.recv().unwrap();
        }
        assert_eq!((flow.closed(), flow.waiting()), (Some(Closed::Reader), 0));
        flow.wait_while_it_moves(Duration::MAX);
    }
}
