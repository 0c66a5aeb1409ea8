//! Sends named contents to a host, no more than a window ahead of what it has taken. Knows nothing of what they are for.
//!
//! A thread reads the contents and sends them; [`Upload::taken`] lets it go on. The window holds about half a second
//! of what the link takes, so that other messages on it wait no longer than that.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::cluster::pool::HostSender;
use crate::domain::sync::Digest;
use crate::domain::time::Stamp;
use crate::wire::message::ToAgent;
use crate::wire::upload::{BlobPiece, PIECE_BYTES, PIECE_COST};

/// Bytes ahead of the host: at first, at least and at most.
const FIRST: u64 = 1 << 20;
const LEAST: u64 = 128 << 10;
const MOST: u64 = 8 << 20;
/// Over how long a rate is measured.
const MEASURED_US: i64 = 50_000;

/// A content to send.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its hash.
    pub name: Digest,
    /// Its length.
    pub size: u64,
    /// The first byte that the host lacks.
    pub from: u64,
    /// Where it is.
    pub source: Source,
}

/// Where a content is.
#[derive(Debug, Clone)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// Here.
    Memory(Bytes),
}

/// What a content of this size counts from this byte on, in its pieces together.
pub fn cost(size: u64, from: u64) -> u64 {
    let left = size.saturating_sub(from);
    left + left.div_ceil(PIECE_BYTES as u64).max(1) * PIECE_COST
}

/// Contents under way to one host.
#[derive(Debug)]
pub struct Upload {
    number: u32,
    shared: Arc<Shared>,
    /// When the present rate began to be measured, and what was taken by then.
    measured: (Stamp, u64),
    window: u64,
    taken: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What may be sent, counted as [`BlobPiece::cost`].
    until: u64,
    is_closed: bool,
    fault: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// An upload of this number, in which nothing was sent yet.
    pub fn new(number: u32, begun: Stamp) -> Self {
        let shared =
            Shared { state: Mutex::new(State { until: FIRST, ..State::default() }), wake: Condvar::new() };
        Self { number, shared: Arc::new(shared), measured: (begun, 0), window: FIRST, taken: 0 }
    }

    /// Its number on the wire.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sends these from a thread of its own, then `last` if there is one. `sent` is what was sent before in this upload, as
    /// [`BlobPiece::cost`] counts it; gives the same with these. The next ones wait until these are sent.
    pub fn send(
        &self,
        to: HostSender,
        contents: Vec<Content>,
        sent: u64,
        last: Option<ToAgent>,
    ) -> io::Result<u64> {
        let whole = sent + contents.iter().map(|content| cost(content.size, content.from)).sum::<u64>();
        let (shared, upload) = (Arc::clone(&self.shared), self.number);
        std::thread::Builder::new().name("upload".to_owned()).spawn(move || {
            let mut feed = Feed { upload, shared: &shared, to, sent };
            match contents.iter().try_for_each(|content| feed.content(content)) {
                Ok(()) => drop(last.map(|last| feed.to.send(last))),
                Err(Stop::Closed) => {}
                Err(Stop::Fault(fault)) => shared.lock().fault = Some(fault),
            }
        })?;
        Ok(whole)
    }

    /// The host has taken so much. Gives how much more that is than before.
    pub fn taken(&mut self, taken: u64, at: Stamp) -> u64 {
        let more = taken.saturating_sub(self.taken);
        self.taken += more;
        let (since, before) = self.measured;
        let took = at.micros_since(since);
        if took >= MEASURED_US {
            // The rate of now, not of the whole upload: the host may have waited long for what is sent now. Half a second of a
            // rate that the window itself has limited is more than that window, so it grows as far as the link goes.
            let window = u128::from(self.taken - before) * 500_000 / u128::from(took.unsigned_abs());
            self.window = u64::try_from(window).unwrap_or(MOST).clamp(LEAST, MOST);
            self.measured = (at, self.taken);
        }
        self.shared.lock().until = self.taken.saturating_add(self.window);
        self.shared.wake.notify_all();
        more
    }

    /// Why it can't go on, if it can't.
    pub fn fault(&self) -> Option<String> {
        self.shared.lock().fault.clone()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_all();
    }
}

/// Reads and sends.
struct Feed<'a> {
    upload: u32,
    shared: &'a Shared,
    to: HostSender,
    sent: u64,
}

enum Stop {
    Closed,
    Fault(String),
}

impl Feed<'_> {
    fn content(&mut self, content: &Content) -> Result<(), Stop> {
        let failed = |error: io::Error| match &content.source {
            Source::File(path) => Stop::Fault(format!("read {}: {error}", path.display())),
            Source::Memory(_) => Stop::Fault(error.to_string()),
        };
        let mut file = match &content.source {
            Source::File(path) => {
                let mut file = File::open(path).map_err(failed)?;
                if content.from > 0 {
                    file.seek(SeekFrom::Start(content.from)).map_err(failed)?;
                }
                Some(file)
            }
            Source::Memory(_) => None,
        };
        let mut offset = content.from;
        loop {
            let length = (content.size.saturating_sub(offset)).min(PIECE_BYTES as u64) as usize;
            let data = match (&mut file, &content.source) {
                (Some(file), _) => {
                    let mut data = vec![0; length];
                    file.read_exact(&mut data).map_err(|error| match error.kind() {
                        io::ErrorKind::UnexpectedEof => {
                            failed(io::Error::other("it was changed while it was copied, launch again"))
                        }
                        _ => failed(error),
                    })?;
                    Bytes::from(data)
                }
                (None, Source::Memory(whole)) => whole.slice(offset as usize..offset as usize + length),
                (None, Source::File(_)) => Bytes::new(),
            };
            let piece =
                BlobPiece { upload: self.upload, name: content.name, size: content.size, offset, data };
            offset += length as u64;
            self.piece(piece)?;
            if offset >= content.size {
                return Ok(());
            }
        }
    }

    fn piece(&mut self, piece: BlobPiece) -> Result<(), Stop> {
        let mut state = self.shared.lock();
        while !state.is_closed && self.sent >= state.until {
            state = self.shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return Err(Stop::Closed);
        }
        drop(state);
        self.sent += piece.cost();
        if self.to.send(ToAgent::BlobPiece(piece)) { Ok(()) } else { Err(Stop::Closed) }
    }
}
