//! The rows that a stream writes to now: one as a rule, several while a program moves the cursor up to redraw more than one
//! progress bar, as nested bars of tqdm and those of Rich do. Pure.
//!
//! A row is a line when the cursor has left it downwards and no program that draws bars comes back to it. A row that was
//! never written over is a line at once; one that was is held back for [`HOLD_US`], and while a program has hidden the cursor
//! until it shows it again or has drawn nothing for [`STILL_US`], and while a control sequence is told by half. A way up in the
//! middle of a text that goes on is no bar's and stays a part of its line.

use std::collections::VecDeque;

use super::line_buffer::LineBuffer;
use crate::domain::log::UNFINISHED_BYTES;
use crate::domain::log_text::plain;
use crate::domain::time::{HostTime, Stamp};

/// So many rows can be redrawn.
const ROWS: usize = 16;
/// How long a row that was written over may be redrawn after the cursor has left it, microseconds.
const HOLD_US: i64 = 500_000;
/// How long a program that has hidden the cursor may draw nothing: then it was killed before it could show it again.
const STILL_US: i64 = 5_000_000;
/// Of the time between two looks no more counts as one in which nothing came: a client that was stopped, or had no processor,
/// may not have read yet what came.
const LOOK_US: i64 = 250_000;
/// A control sequence that is longer is passed on as it is.
const SEQUENCE: usize = 32;
/// So many bytes of control sequences may stand between a way up and what tells its sense.
const ASCENT: usize = 256;

/// The rows of one stream.
#[derive(Debug)]
pub(super) struct Rows {
    /// From the top; never empty.
    all: VecDeque<Row>,
    cursor: usize,
    limit: usize,
    /// How many rows up it has moved since the first of them was written.
    reach: usize,
    /// The cursor is hidden: more is going to be redrawn.
    hidden: bool,
    /// It was, until nothing was drawn for [`STILL_US`].
    stalled: bool,
    /// How long the cursor has not moved up.
    still: Stillness,
    /// A control sequence whose end has not come.
    sequence: Vec<u8>,
    /// A way up from behind a text: a bar's, if what comes next is not text.
    ascent: Ascent,
    /// Rows that have become lines.
    done: Vec<Row>,
}

/// Control sequences that move the cursor up from behind a text, and those behind them that are no text either.
#[derive(Debug, Default)]
struct Ascent {
    /// Each with the offset behind it.
    sequences: Vec<(Vec<u8>, u64)>,
    /// How many rows.
    rows: usize,
}

/// A row, as it was left.
#[derive(Debug)]
pub(super) struct Row {
    buffer: LineBuffer,
    /// Offset at which the cursor came to it last.
    pub(super) start: u64,
    /// When its end was in the file.
    pub(super) t: Option<HostTime>,
    /// The cursor came back to it, or it was made by moving there.
    revisited: bool,
    /// How long the cursor has been below it.
    left: Stillness,
}

/// How long nothing has come, as far as it was looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Stillness {
    looked: Option<Stamp>,
    us: i64,
}

impl Stillness {
    /// How long it is now, microseconds. A clock that was set back or forward moves it by one look at most.
    fn look(&mut self, now: Stamp) -> i64 {
        let passed = self.looked.map_or(0, |before| now.micros_since(before));
        self.looked = Some(now);
        self.us += passed.clamp(0, LOOK_US);
        self.us
    }

    /// When to look again, for it to be `us` in time.
    fn next(&self, us: i64) -> Option<Stamp> {
        Some(self.looked?.plus_micros((us - self.us).clamp(0, LOOK_US)))
    }
}

impl Row {
    fn new(limit: usize, start: u64) -> Self {
        Self { buffer: LineBuffer::new(limit), start, t: None, revisited: false, left: Stillness::default() }
    }

    /// The cursor comes back: what is written next takes the place of what stands there.
    fn visit(&mut self, offset: u64) {
        self.buffer.write_over();
        (self.start, self.revisited, self.left, self.t) = (offset, true, Stillness::default(), None);
    }

    /// Its text with its earlier states, and how many bytes were left out.
    pub(super) fn text(&self) -> (String, u64) {
        self.buffer.text()
    }

    fn is_blank(&self) -> bool {
        plain(&self.buffer.shown().0).trim().is_empty()
    }

    /// Nothing was left where a bar was.
    fn is_wiped(&self) -> bool {
        self.revisited && self.is_blank()
    }
}

impl Rows {
    /// One empty row, whose line begins at this offset; a row keeps at most `limit` bytes.
    pub(super) fn new(limit: usize, start: u64) -> Self {
        Self {
            all: VecDeque::from([Row::new(limit, start)]),
            cursor: 0,
            limit,
            reach: 0,
            hidden: false,
            stalled: false,
            still: Stillness::default(),
            sequence: Vec::new(),
            ascent: Ascent::default(),
            done: Vec::new(),
        }
    }

    /// Whether no row has anything that is not a line yet.
    pub(super) fn is_empty(&self) -> bool {
        self.cursor == 0 && self.all.iter().all(|row| row.buffer.is_empty()) && self.sequence.is_empty()
    }

    /// Whether a row is held back that no further bytes may come for.
    pub(super) fn holds(&self) -> bool {
        self.above() > 0
    }

    /// Whether more than one row has something to show.
    pub(super) fn is_block(&self) -> bool {
        self.all.iter().filter(|row| !row.is_blank()).nth(1).is_some()
    }

    /// Offset at which the row begins that is written now.
    pub(super) fn start(&self) -> u64 {
        self.row().start
    }

    /// The rows that have become lines, from the top.
    pub(super) fn take_done(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.done)
    }

    /// Takes in bytes without a line end; the first lies at this offset.
    pub(super) fn extend(&mut self, bytes: &[u8], offset: u64) {
        let mut rest = bytes;
        let at = |rest: &[u8]| offset.saturating_add((bytes.len() - rest.len()) as u64);
        while !rest.is_empty() {
            if self.sequence.is_empty() {
                let end = rest.iter().position(|byte| *byte == 0x1b).unwrap_or(rest.len());
                let (text, behind) = rest.split_at(end);
                self.write(text);
                rest = behind;
            }
            let Some((&byte, behind)) = rest.split_first() else { break };
            self.sequence.push(byte);
            rest = behind;
            if is_whole(&self.sequence) {
                let sequence = std::mem::take(&mut self.sequence);
                self.take(sequence, at(rest));
            }
        }
    }

    /// Takes in bytes that are no text for a terminal.
    pub(super) fn extend_raw(&mut self, bytes: &[u8]) {
        self.row_mut().buffer.extend(bytes);
    }

    /// A line end; the next row begins at this offset.
    pub(super) fn end_line(&mut self, next: u64, t: Option<HostTime>) {
        self.end_sequence();
        self.ascend();
        let row = self.row_mut();
        row.t = t;
        let is_final = !row.buffer.is_written_over();
        self.cursor += 1;
        match self.all.get_mut(self.cursor) {
            Some(row) => row.visit(next),
            None => self.all.push_back(Row::new(self.limit, next)),
        }
        let held = match self.reach {
            _ if is_final && !self.hidden => 0,
            0 => ROWS - 1,
            reach => reach,
        };
        self.release(held);
    }

    /// Nothing more comes: every row is a line.
    pub(super) fn end(&mut self, next: u64, t: Option<HostTime>) {
        self.end_sequence();
        if self.all.len() > 1 {
            self.ascend();
        }
        self.stay();
        let (rows, cursor) = (std::mem::take(&mut self.all), self.cursor);
        let lines = (0..).zip(rows).filter(|(at, row)| *at < cursor || !row.buffer.is_empty());
        let lines = lines.map(|(_, row)| row).filter(|row| !row.is_wiped());
        self.done.extend(lines.map(|row| Row { t: row.t.or(t), ..row }));
        let done = std::mem::take(&mut self.done);
        *self = Self { done, ..Self::new(self.limit, next) };
    }

    /// Rows that were held back for long enough become lines. To be asked when nothing that came is still to be taken in.
    pub(super) fn release_old(&mut self, now: Stamp) {
        // what it says is still to come
        if !self.sequence.is_empty() {
            return;
        }
        let (mut old, above) = (0, self.above());
        for (at, row) in (1..).zip(self.all.iter_mut().take(above)) {
            if row.left.look(now) >= HOLD_US {
                old = at;
            }
        }
        if !self.is_drawing() {
            if old > 0 {
                self.release(self.cursor - old);
            }
            return;
        }
        if self.still.look(now) >= STILL_US {
            self.show_cursor();
            self.stalled = true;
        }
    }

    /// When it is to be looked again whether a row that is held back becomes a line, after [`Self::release_old`] was asked.
    pub(super) fn next_release(&self) -> Option<Stamp> {
        if !self.sequence.is_empty() {
            return None;
        }
        if self.is_drawing() {
            return self.still.next(STILL_US);
        }
        let held = self.all.iter().take(self.above());
        held.filter_map(|row| row.left.next(HOLD_US)).min()
    }

    /// What there is to see now, a row a line; and how many bytes are left out.
    pub(super) fn shown(&self) -> (String, u64) {
        let (mut text, mut elided) = (String::new(), 0);
        for row in self.all.iter().filter(|row| self.all.len() == 1 || !row.is_blank()) {
            let (shown, left_out) = row.buffer.shown();
            let line_end = usize::from(!text.is_empty());
            elided += left_out;
            if text.len() + line_end + shown.len() > UNFINISHED_BYTES {
                elided += shown.len() as u64;
                continue;
            }
            text.extend(std::iter::repeat_n('\n', line_end));
            text.push_str(&shown);
        }
        (text, elided)
    }

    /// A program redraws rows, and has not finished.
    fn is_drawing(&self) -> bool {
        self.hidden && self.reach > 0
    }

    fn row(&self) -> &Row {
        &self.all[self.cursor]
    }

    fn row_mut(&mut self) -> &mut Row {
        &mut self.all[self.cursor]
    }

    /// How many rows are above the cursor, or above where it is on its way to.
    fn above(&self) -> usize {
        self.cursor.saturating_sub(self.ascent.rows)
    }

    /// A text without control sequences of several bytes.
    fn write(&mut self, text: &[u8]) {
        match text.first() {
            None => return,
            Some(b'\r') => self.ascend(),
            // no bar goes on where its row above happens to end
            Some(_) => self.stay(),
        }
        self.row_mut().buffer.extend(text);
    }

    /// A whole control sequence; what comes next lies at this offset.
    fn take(&mut self, sequence: Vec<u8>, offset: u64) {
        let (up, kind) = (rows_up(&sequence), sequence.last().copied());
        let is_behind_text = || {
            let buffer = &self.row().buffer;
            // a program that has hidden the cursor draws
            let draws = self.hidden || self.stalled;
            !draws && !buffer.is_at_start() && !plain(&buffer.shown().0).is_empty()
        };
        let tells_nothing = up.is_some() || matches!(kind, Some(b'm' | b'C' | b'D'));
        let is_open =
            if self.ascent.sequences.is_empty() { up.is_some() && is_behind_text() } else { tells_nothing };
        if is_open {
            self.ascent.rows += up.unwrap_or(0);
            self.ascent.sequences.push((sequence, offset));
            if self.ascent.sequences.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() > ASCENT {
                self.stay();
            }
            return;
        }
        self.ascend();
        if !self.control(&sequence, offset) {
            self.row_mut().buffer.extend(&sequence);
        }
    }

    /// The cursor does go up.
    fn ascend(&mut self) {
        for (sequence, offset) in std::mem::take(&mut self.ascent).sequences {
            if !self.control(&sequence, offset) {
                self.row_mut().buffer.extend(&sequence);
            }
        }
    }

    /// What looked like a way up is a part of its line.
    fn stay(&mut self) {
        for (sequence, _) in std::mem::take(&mut self.ascent).sequences {
            self.row_mut().buffer.extend(&sequence);
        }
    }

    fn end_sequence(&mut self) {
        let sequence = std::mem::take(&mut self.sequence);
        if !sequence.is_empty() {
            self.stay();
            self.row_mut().buffer.extend(&sequence);
        }
    }

    /// All rows above the cursor but the lowest `held` become lines.
    fn release(&mut self, held: usize) {
        while self.cursor > held
            && let Some(row) = self.all.pop_front()
        {
            self.cursor -= 1;
            if !row.is_wiped() {
                self.done.push(row);
            }
        }
        if self.all.len() == 1 {
            self.reach = 0;
        }
    }

    /// Does what a control sequence says, where that is to move between rows; `false` for any other one. What is written
    /// next lies at this offset.
    fn control(&mut self, sequence: &[u8], offset: u64) -> bool {
        let Some((&last, parameters)) = sequence.strip_prefix(b"\x1b[").and_then(<[u8]>::split_last) else {
            return false;
        };
        let number = std::str::from_utf8(parameters).ok().and_then(|text| match text {
            "" => Some(0),
            text => text.parse::<usize>().ok(),
        });
        match (last, number, parameters) {
            (b'h', _, b"?25") => self.show_cursor(),
            (b'l', _, b"?25") => self.hidden = true,
            (b'A' | b'F', Some(rows), _) => self.up(rows.clamp(1, ROWS - 1), offset),
            (b'B' | b'E', Some(rows), _) => {
                let from = self.cursor;
                self.cursor = self.cursor.saturating_add(rows.max(1)).min(self.all.len() - 1);
                // there is no row below the last one: the cursor stays in its column
                if self.cursor == from && last == b'B' {
                    return false;
                }
                self.row_mut().visit(offset);
            }
            (b'J', Some(0), _) => {
                let erased = self.all.len() - 1 - self.cursor;
                self.all.truncate(self.cursor + 1);
                // what stands before the cursor stays
                if !self.row().buffer.is_at_start() {
                    return erased > 0;
                }
                self.row_mut().visit(offset);
            }
            _ => return false,
        }
        true
    }

    fn show_cursor(&mut self) {
        (self.hidden, self.stalled) = (false, false);
        self.release(0);
    }

    fn up(&mut self, count: usize, offset: u64) {
        self.still = Stillness::default();
        // it goes on, and hides the cursor once only
        self.hidden |= std::mem::take(&mut self.stalled);
        while self.cursor < count && self.all.len() < ROWS {
            self.all.push_front(Row { revisited: true, ..Row::new(self.limit, offset) });
            self.cursor += 1;
        }
        self.cursor = self.cursor.saturating_sub(count);
        self.reach = self.reach.max(self.all.len() - 1 - self.cursor);
        self.row_mut().visit(offset);
    }
}

/// How many rows a control sequence moves the cursor up in its column.
fn rows_up(sequence: &[u8]) -> Option<usize> {
    let parameters = sequence.strip_prefix(b"\x1b[")?.strip_suffix(b"A")?;
    let number = std::str::from_utf8(parameters).ok()?;
    if number.is_empty() { Some(1) } else { Some(number.parse::<usize>().ok()?.clamp(1, ROWS - 1)) }
}

/// Whether nothing more belongs to what begins with an escape.
fn is_whole(sequence: &[u8]) -> bool {
    match sequence {
        [_] => false,
        [_, b'[', parameters @ ..] => {
            parameters.last().is_some_and(|byte| !matches!(byte, b' '..=b'?')) || sequence.len() >= SEQUENCE
        }
        _ => true,
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
