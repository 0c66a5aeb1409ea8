//! How long a rank's output was at which moment, noted once a second while it grows: so that lines which were printed while no
//! client followed have a time, too. The supervisor notes, agents read.
//!
//! A note is true for ever: the file had this length by then. So each one may be left out, and what was printed before it has
//! the time of the next. Of many notes those go that are close to the next for their age. Lengths are those of the whole file, its
//! cut head with it, and [numbers](Numbering) where it was emptied. What is not known is no error: a line without a note has no time.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::SuperviseError;
use super::numbering::Numbering;
use super::rundir::RunDir;
use super::state::{stream_file, times_file};
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::time::HostTime;
use crate::procs::identity::boot_id;
use crate::sched;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A look that comes so long after the one before, in microseconds, tells no time of what was printed between them.
const MOST_LATE_US: u64 = 3_000_000;
/// Notes of a rank, 24 bytes each.
const MOST: usize = 16 << 10;
/// A note may go where the next one is no later than by this part of its age.
const SHARE: u64 = 1 << 13;
/// Moments of a piece of a file, however many notes there are.
const MOST_MOMENTS: usize = 2048;
/// Bytes of a note, and of what stands before the first.
const SIZE: usize = 24;
const MAGIC: &[u8; 8] = b"hvtimes1";
/// Notes that are read at once.
const READ: usize = 256;

/// The two files that a rank prints into.
const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// What the files of a rank held at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    /// How long each was, in the order of [`STREAMS`].
    lengths: [u64; 2],
    /// When, microseconds of `CLOCK_MONOTONIC`; 0 where what was printed since the note before has no time.
    t: u64,
}

impl Note {
    fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let numbers = [self.lengths[0], self.lengths[1], self.t];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|number| number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        let mut next = || numbers.next().unwrap_or_default();
        Self { lengths: [next(), next()], t: next() }
    }
}

/// What stands before the first note: of which boot the times are, for the clock begins anew with each.
fn head() -> Option<[u8; SIZE]> {
    static HEAD: OnceLock<Option<[u8; SIZE]>> = OnceLock::new();
    *HEAD.get_or_init(|| {
        let boot = u128::from_str_radix(&boot_id().ok()?.replace('-', ""), 16).ok()?;
        let mut head = [0; SIZE];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        head[MAGIC.len()..].copy_from_slice(&boot.to_be_bytes());
        Some(head)
    })
}

/// A rank's notes, to read.
struct Notes {
    file: File,
    count: usize,
}

impl Notes {
    /// Those of this boot; `None` where there are none. A torn end is left out.
    fn open(dir: &RunDir, rank: Rank) -> Option<Self> {
        let file = dir.read(&times_file(rank)).ok()??;
        let mut begins = [0; SIZE];
        file.read_exact_at(&mut begins, 0).ok()?;
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        (Some(begins) == head()).then(|| Self { file, count: length / SIZE - 1 })
    }

    /// Up to so many from this one on.
    fn read(&self, from: usize, most: usize) -> io::Result<Vec<Note>> {
        let mut bytes = vec![0; self.count.saturating_sub(from).min(most) * SIZE];
        self.file.read_exact_at(&mut bytes, ((from + 1) * SIZE) as u64)?;
        Ok(bytes.chunks_exact(SIZE).map(Note::from_bytes).collect())
    }

    fn get(&self, at: usize) -> io::Result<Option<Note>> {
        Ok(self.read(at, 1)?.first().copied())
    }

    /// The first one by which the file was longer.
    fn beyond(&self, stream: usize, length: u64) -> io::Result<usize> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.get(middle)? {
                Some(note) if note.lengths[stream] <= length => from = middle + 1,
                _ => to = middle,
            }
        }
        Ok(from)
    }

    fn moments(&self, stream: usize, from: u64, to: u64) -> io::Result<Vec<(u64, HostTime)>> {
        let mut moments: Vec<(u64, HostTime)> = Vec::new();
        let newest = self.count.checked_sub(1).map(|last| self.get(last)).transpose()?.flatten();
        if newest.is_none_or(|newest| newest.lengths[stream] <= from) {
            return Ok(moments);
        }
        let mut at = self.beyond(stream, from)?;
        loop {
            let notes = self.read(at, READ)?;
            at += notes.len();
            for note in &notes {
                let length = note.lengths[stream];
                if length > moments.last().map_or(from, |(length, _)| *length) {
                    moments.push((length, HostTime(note.t)));
                }
                if length >= to {
                    return Ok(moments);
                }
            }
            if notes.is_empty() {
                return Ok(moments);
            }
        }
    }
}

/// The moments at which it was noted that a rank's file had grown, of its bytes from `from` up to `to`: each with how long the file
/// was, the last one being the first that reaches `to`. A line whose end lies behind one of them and not behind the next was there by
/// the next; where that is 0, it is not known when. What lies behind all of them has no time either.
pub fn moments(dir: &RunDir, rank: Rank, stream: Stream, from: u64, to: u64) -> Vec<(u64, HostTime)> {
    let Some(place) = STREAMS.iter().position(|one| *one == stream) else { return Vec::new() };
    let notes = Notes::open(dir, rank);
    let moments = notes.and_then(|notes| notes.moments(place, from, to).ok()).unwrap_or_default();
    let step = moments.len().div_ceil(MOST_MOMENTS).max(1);
    let last = moments.len().saturating_sub(1);
    let is_kept = |at: usize, t: HostTime| at % step == last % step || t == HostTime(0);
    let kept = moments.into_iter().enumerate().filter(|(at, (_, t))| is_kept(*at, *t));
    kept.map(|(_, moment)| moment).collect()
}

/// When what is noted at `t` was there, of a rank that ended at `end`: a note is late by what lies between two looks, and what a rank has
/// printed was printed before its end. What is later than that was printed by a process that it left behind.
pub fn not_behind(t: HostTime, end: Option<HostTime>) -> HostTime {
    let end = end.filter(|end| (end.0..=end.0.saturating_add(MOST_LATE_US)).contains(&t.0));
    end.unwrap_or(t)
}

/// Notes how the output of ranks grows.
pub(super) struct Times {
    dir: RunDir,
    ranks: Vec<Noted>,
}

impl Times {
    /// Before the ranks begin: what they have printed by now was printed without a note of it.
    pub(super) fn new(dir: RunDir, ranks: impl Iterator<Item = Rank>) -> Self {
        let ranks = ranks.map(|rank| Noted::open(&dir, rank, clock::host_now())).collect();
        Self { dir, ranks }
    }

    /// Looks until it is told to end, and once more then.
    pub(super) fn keep(mut self, ended: &Receiver<()>) {
        // a look that comes late behind each rank that computes tells a late time
        sched::short_turns(sched::For::ThisThread);
        loop {
            let is_over = ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
            for rank in &mut self.ranks {
                match rank.lengths(&self.dir) {
                    // after the look: the files were so long by then
                    Some(lengths) => rank.note(&self.dir, lengths, clock::host_now()),
                    None => rank.is_missed = true,
                }
            }
            if is_over {
                return;
            }
        }
    }
}

/// What was noted of a rank.
struct Noted {
    rank: Rank,
    /// How the bytes of both files are numbered.
    numbering: [Numbering; 2],
    /// Once there is a note.
    file: Option<File>,
    count: usize,
    last: [u64; 2],
    looked: HostTime,
    /// What was printed since the last note was not noted in time.
    is_missed: bool,
}

impl Noted {
    fn open(dir: &RunDir, rank: Rank, now: HostTime) -> Self {
        let numbering = STREAMS.map(|stream| Numbering::open(dir, &stream_file(rank, stream)));
        let mut noted =
            Self { rank, numbering, file: None, count: 0, last: [0; 2], looked: now, is_missed: false };
        if let Some((notes, Some(last))) = Notes::open(dir, rank)
            .and_then(|notes| Some((notes.count, notes.get(notes.count.checked_sub(1)?).ok()?)))
        {
            (noted.count, noted.last) = (notes, last.lengths);
            noted.file = dir.append(&times_file(rank)).ok().filter(|file| noted.cut_torn_end(file).is_ok());
        }
        noted.is_missed = noted.lengths(dir) != Some(noted.last);
        noted
    }

    /// How long both files are by the numbers of their bytes; `None` where that can't be told now. What was emptied is written down.
    fn lengths(&mut self, dir: &RunDir) -> Option<[u64; 2]> {
        for (numbering, stream) in self.numbering.iter_mut().zip(STREAMS) {
            if let Some(file) = dir.read(&stream_file(self.rank, stream)).ok()? {
                numbering.look(dir, &file, 0).ok()?;
            }
        }
        Some(self.numbering.each_ref().map(Numbering::end))
    }

    /// Takes in a look at its files.
    fn note(&mut self, dir: &RunDir, lengths: [u64; 2], now: HostTime) {
        let since = now.0.saturating_sub(std::mem::replace(&mut self.looked, now).0);
        if lengths == self.last {
            self.is_missed = false;
            return;
        }
        if lengths.iter().zip(self.last).any(|(length, last)| *length < last) {
            // emptied while no supervisor looked: what was noted of it is not true any more
            self.file = None;
        }
        let has_none_before = self.file.is_none() && self.last != [0; 2];
        let is_missed = std::mem::take(&mut self.is_missed) || since > MOST_LATE_US || has_none_before;
        match self.add(dir, Note { lengths, t: if is_missed { 0 } else { now.0 } }, now) {
            Ok(()) => self.last = lengths,
            Err(error) => {
                self.is_missed = true;
                tracing::debug!(%error, rank = %self.rank, "when a rank's output grew is not noted");
            }
        }
    }

    fn add(&mut self, dir: &RunDir, note: Note, now: HostTime) -> Result<(), SuperviseError> {
        let name = times_file(self.rank);
        let failed = |error| SuperviseError::io("write", &dir.path().join(&name), error);
        if self.file.is_some() && self.count >= MOST {
            self.thin(dir, now).map_err(failed)?;
        }
        if self.file.is_none() {
            self.begin(dir)?;
        }
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        if let Err(error) = file.write_all(&note.to_bytes()) {
            // the next one begins where this one should have
            if self.cut_torn_end(file).is_err() {
                self.file = None;
            }
            return Err(failed(error));
        }
        self.count += 1;
        Ok(())
    }

    /// Makes a file without a note.
    fn begin(&mut self, dir: &RunDir) -> Result<(), SuperviseError> {
        let name = times_file(self.rank);
        let failed = |error| SuperviseError::io("write", &dir.path().join(&name), error);
        let mut file = dir.append(&name)?;
        file.set_len(0).map_err(failed)?;
        let head = head().ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
        file.write_all(&head).map_err(failed)?;
        (self.file, self.count) = (Some(file), 0);
        Ok(())
    }

    /// Makes room for further notes: a file with fewer takes the place of this one, which who has it open can read on.
    fn thin(&mut self, dir: &RunDir, now: HostTime) -> io::Result<()> {
        let notes = Notes::open(dir, self.rank).ok_or(io::ErrorKind::NotFound)?;
        let kept = thinned(&notes.read(0, usize::MAX)?, now.0);
        let head = head().unwrap_or_default();
        let bytes: Vec<u8> =
            [head].into_iter().chain(kept.iter().map(|note| note.to_bytes())).flatten().collect();
        let name = times_file(self.rank);
        dir.replace_with(&name, &bytes).map_err(io::Error::other)?;
        self.file = Some(dir.append(&name).map_err(io::Error::other)?);
        self.count = kept.len();
        Ok(())
    }

    /// What a supervisor that was killed has written of a note goes.
    fn cut_torn_end(&self, file: &File) -> io::Result<()> {
        file.set_len(((self.count + 1) * SIZE) as u64)
    }
}

/// Fewer of so many notes: the older one is, the further apart they lie.
fn thinned(notes: &[Note], now: u64) -> Vec<Note> {
    let mut share = SHARE;
    while share > 0 {
        let kept = spaced(notes, now, share);
        if kept.len() <= MOST / 4 * 3 {
            return kept;
        }
        share /= 2;
    }
    // of what was missed again and again the older half: none of it has a time any more
    let mut kept = notes[notes.len() / 2..].to_vec();
    kept.iter_mut().take(1).for_each(|note| note.t = 0);
    kept
}

/// Those without which the time of something would be later by more than this part of its age.
fn spaced(notes: &[Note], now: u64, share: u64) -> Vec<Note> {
    let mut kept: Vec<Note> = Vec::new();
    for note in notes.iter().rev() {
        let next = kept.last().filter(|next| next.t > 0 && note.t > 0);
        let is_close = next.is_some_and(|next| {
            next.t.saturating_sub(note.t).saturating_mul(share) <= now.saturating_sub(note.t)
        });
        if !is_close {
            kept.push(*note);
        }
    }
    kept.reverse();
    kept
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
