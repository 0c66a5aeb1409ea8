//! Where a format writes to: counts what it writes, up to a limit.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// The target of an export.
pub(super) struct Out<'a> {
    to: &'a mut dyn Write,
    limit: u64,
    /// Events, with those that only name things.
    written: u64,
    /// Events that come from the recording.
    recorded: u64,
    truncated: bool,
    /// Whether an array has its first element.
    is_begun: bool,
}

impl<'a> Out<'a> {
    pub(super) fn new(to: &'a mut dyn Write, limit: u64) -> Self {
        Self { to, limit, written: 0, recorded: 0, truncated: false, is_begun: false }
    }

    /// Whether there is room for so many more events of the recording, which are counted then. Once there is none the
    /// export ends.
    pub(super) fn take(&mut self, events: u64) -> bool {
        let has_room = self.name(events);
        self.recorded += if has_room { events } else { 0 };
        has_room
    }

    /// The same for events that only name things.
    pub(super) fn name(&mut self, events: u64) -> bool {
        self.truncated |= self.limit.saturating_sub(self.written) < events;
        self.written += if self.truncated { 0 } else { events };
        !self.truncated
    }

    /// An event of the recording in a JSON array, if there is room for it.
    pub(super) fn event(&mut self, event: &Value) -> io::Result<()> {
        if self.take(1) { self.element(event) } else { Ok(()) }
    }

    /// An event that only names something likewise.
    pub(super) fn naming(&mut self, event: &Value) -> io::Result<()> {
        if self.name(1) { self.element(event) } else { Ok(()) }
    }

    /// An element of a JSON array, on a line of its own; counted already.
    pub(super) fn element(&mut self, element: &Value) -> io::Result<()> {
        self.to.write_all(if self.is_begun { b",\n" } else { b"\n" })?;
        self.is_begun = true;
        serde_json::to_writer(&mut *self.to, element).map_err(io::Error::from)
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn recorded(&self) -> u64 {
        self.recorded
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// What a library has written that owns its target, and that is not passed on yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Passes it on.
    pub(super) fn pass_on(&self, out: &mut Out<'_>) -> io::Result<()> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&written)?;
        written.clear();
        Ok(())
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
