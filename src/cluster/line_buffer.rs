//! The line that is being read: bounded, and of a line that is written over, as progress bars are, the newest states. Pure.

use crate::domain::log_text::{floor_boundary, last_state};
use crate::domain::redaction;

/// How much of a state is shown before its line has ended.
const SHOWN: usize = 1024;

/// The bytes of an unfinished line.
#[derive(Debug)]
pub(super) struct LineBuffer {
    /// Whole while it fits; then without its oldest states; then, of a state that does not fit alone, the beginning. Does
    /// not end with a carriage return.
    kept: Vec<u8>,
    limit: usize,
    /// Bytes of the newest state that did not fit.
    elided: u64,
    /// Carriage returns behind it: what comes next takes its place.
    returns: usize,
    /// Something was written over.
    over: bool,
}

impl LineBuffer {
    /// An empty line that keeps at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit, elided: 0, returns: 0, over: false }
    }

    /// Whether there is nothing of a line.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.returns == 0
    }

    /// Whether more than one state of it was written, or one that begins by going back to the first column.
    pub(super) fn is_written_over(&self) -> bool {
        self.over
    }

    /// Whether the cursor is in the first column.
    pub(super) fn is_at_start(&self) -> bool {
        self.kept.is_empty() || self.returns > 0
    }

    /// What comes next takes the place of what there is.
    pub(super) fn write_over(&mut self) {
        self.over = true;
        if !self.kept.is_empty() {
            self.returns = self.returns.max(1);
        }
    }

    /// Takes in the next bytes of the line, without a line end.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\r') {
            let state = piece.strip_suffix(b"\r").unwrap_or(piece);
            if !state.is_empty() {
                self.push(state);
            }
            self.returns += piece.len() - state.len();
        }
    }

    fn push(&mut self, state: &[u8]) {
        self.over |= self.returns > 0;
        let surplus = (self.kept.len() + self.returns + state.len()).saturating_sub(self.limit);
        if surplus > 0 {
            self.forget(surplus);
        }
        self.kept.resize(self.kept.len() + std::mem::take(&mut self.returns), b'\r');
        let room = self.limit - self.kept.len();
        let fits = state.get(..room).unwrap_or(state);
        self.kept.extend_from_slice(fits);
        self.elided += (state.len() - fits.len()) as u64;
    }

    /// Leaves out the oldest states: as many as there must go, all but the newest at most.
    fn forget(&mut self, surplus: usize) {
        if self.returns > 0 && surplus > self.newest() {
            self.kept.clear();
            (self.elided, self.returns) = (0, 0);
            return;
        }
        let newest = self.newest();
        let begins = |at: usize| self.kept[at - 1] == b'\r' && self.kept[at] != b'\r';
        let enough = (surplus..newest).find(|at| *at > 0 && begins(*at));
        self.kept.drain(..enough.unwrap_or(newest));
    }

    /// Where the newest state begins.
    fn newest(&self) -> usize {
        self.kept.iter().rposition(|byte| *byte == b'\r').map_or(0, |at| at + 1)
    }

    /// The text so far, and how many bytes of it were left out.
    pub(super) fn text(&self) -> (String, u64) {
        let mut text = redaction::text(&self.kept);
        let returns = self.returns.min(self.limit - self.kept.len());
        text.extend(std::iter::repeat_n('\r', returns));
        (text, self.elided)
    }

    /// What there is to see of it now: its newest state, at most [`SHOWN`] bytes; and how many bytes are left out. Half
    /// a character at the end is not there yet.
    pub(super) fn shown(&self) -> (String, u64) {
        let behind =
            self.kept.iter().rposition(|byte| *byte == redaction::MASKED_BYTE).map_or(0, |at| at + 1);
        let whole = match std::str::from_utf8(self.kept.get(behind..).unwrap_or_default()) {
            Err(error) if error.error_len().is_none() => behind + error.valid_up_to(),
            _ => self.kept.len(),
        };
        let text = redaction::text(self.kept.get(..whole).unwrap_or_default());
        let state = last_state(&text);
        let end = floor_boundary(state, SHOWN);
        (state[..end].to_owned(), self.elided + (state.len() - end) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (String, u64) {
        let mut line = LineBuffer::new(limit);
        pieces.into_iter().for_each(|piece| line.extend(piece));
        line.text()
    }

    #[test]
    fn the_newest_states_are_kept() {
        assert_eq!(read(8, [&b"10%\r20%\r"[..]]), ("10%\r20%\r".into(), 0));
        assert_eq!(read(8, [&b"10%\r20%\r30%"[..]]), ("20%\r30%".into(), 0));
        assert_eq!(read(8, [&b"0123456789"[..]]), ("01234567".into(), 2));
        assert_eq!(
            read(8, [&b"0123456789\r\r"[..], b"x"]),
            ("x".into(), 0),
            "a long state is written over too"
        );
        assert_eq!(read(8, [&b"a\r0123456789"[..]]), ("01234567".into(), 2));
        let mut line = LineBuffer::new(100);
        line.extend("10%\r漢".as_bytes().split_at(5).0);
        assert_eq!(line.shown().0, "10%", "half a character is not there yet");
        line.extend(&"漢".as_bytes()[1..]);
        assert_eq!(line.shown().0, "漢");
    }

    proptest! {
        #[test]
        fn a_line_does_not_depend_on_how_it_was_cut(text in "[ab\r]{0,60}", cut in 1usize..20, limit in 1usize..20) {
            let whole = read(limit, [text.as_bytes()]);
            prop_assert_eq!(&read(limit, text.as_bytes().chunks(cut)), &whole);
            prop_assert!(whole.0.len() <= limit);
            // the newest state is never lost
            let newest = last_state(&text);
            prop_assert_eq!(last_state(&whole.0), &newest[..newest.len().min(limit)]);
        }
    }
}
