//! Text that a host prints where we expected something else: kept within bounds, made harmless.

use bytes::{Bytes, BytesMut};

use crate::domain::text::sanitize;

/// The most that is kept of what a host prints before the agent speaks.
pub(super) const BANNER_BYTES: usize = 64 * 1024;
/// The most that is kept of a command's standard error: its end.
pub(super) const STDERR_BYTES: usize = 16 * 1024;
/// The most of a host's words in one error message.
const QUOTE_BYTES: usize = 600;

/// Bytes of text from a host.
#[derive(Debug, Default, Clone)]
pub(super) struct Text(BytesMut);

impl Text {
    /// Keeps the beginning, up to `limit` bytes.
    pub(super) fn push(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.0.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Keeps the end, up to `limit` bytes.
    pub(super) fn push_tail(&mut self, bytes: &[u8], limit: usize) {
        self.0.extend_from_slice(bytes);
        let surplus = self.0.len().saturating_sub(limit);
        let _ = self.0.split_to(surplus);
    }

    /// The text, safe for a terminal, lines kept.
    pub(super) fn clean(&self) -> String {
        clean(&self.0)
    }
}

/// Makes text safe for a terminal line by line; empty lines at both ends go.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<_> = text.trim().lines().map(sanitize).collect();
    lines.join("\n")
}

/// The end of a text, short enough for an error message.
pub(super) fn quote(text: &str) -> String {
    let start = text.len().saturating_sub(QUOTE_BYTES);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let cut = text.get(start..).unwrap_or_default().trim();
    if start == 0 { cut.to_owned() } else { format!("…{cut}") }
}

/// Finds `marker` in a stream of pieces and keeps what stands before it.
#[derive(Debug)]
pub(super) struct Scanner {
    marker: Vec<u8>,
    seen: BytesMut,
}

/// What a [`Scanner`] found in all bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// No marker yet.
    More,
    /// The bytes before the marker, and those behind it.
    Found(Bytes, Bytes),
    /// More than [`BANNER_BYTES`] without a marker: what came.
    Noise(Bytes),
}

impl Scanner {
    pub(super) fn new(marker: impl Into<Vec<u8>>) -> Self {
        Self { marker: marker.into(), seen: BytesMut::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Scan {
        // A marker may have begun in the bytes before.
        let from = self.seen.len().saturating_sub(self.marker.len());
        self.seen.extend_from_slice(bytes);
        let fresh = self.seen.get(from..).unwrap_or_default();
        let found = fresh.windows(self.marker.len().max(1)).position(|window| window == self.marker);
        match found.map(|at| from + at) {
            Some(at) if at <= BANNER_BYTES => {
                let mut behind = std::mem::take(&mut self.seen);
                let before = behind.split_to(at);
                let _ = behind.split_to(self.marker.len());
                Scan::Found(before.freeze(), behind.freeze())
            }
            None if self.seen.len() <= BANNER_BYTES + self.marker.len() => Scan::More,
            _ => Scan::Noise(std::mem::take(&mut self.seen).freeze()),
        }
    }

    /// Everything that came, if no marker did.
    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn noise_without_a_marker_is_bounded() {
        let mut scanner = Scanner::new("MARK\n");
        let piece = vec![b'x'; 10_000];
        let scans: Vec<Scan> = (0..7).map(|_| scanner.push(&piece)).collect();
        assert!(scans[..6].iter().all(|scan| *scan == Scan::More));
        assert!(matches!(&scans[6], Scan::Noise(noise) if noise.len() == 70_000));
    }

    #[test]
    fn text_keeps_its_beginning_or_its_end() {
        let mut text = Text::default();
        text.push(b"hello ", 8);
        text.push(b"world", 8);
        assert_eq!(text.clean(), "hello wo");
        let mut text = Text::default();
        text.push_tail(b"hello ", 8);
        text.push_tail(b"wor\x1bld", 8);
        assert_eq!(text.clean(), "o wor␛ld");
        assert_eq!(quote("short "), "short");
        assert!(quote(&"ä".repeat(1000)).len() <= QUOTE_BYTES + "…".len());
    }

    proptest! {
        #[test]
        fn a_marker_is_found_however_the_bytes_are_cut(
            before in prop::collection::vec(any::<u8>(), 0..200),
            behind in prop::collection::vec(any::<u8>(), 0..50),
            cut in 1usize..40,
        ) {
            let marker = b"\x01HVT1 0123\n";
            prop_assume!(!before.windows(marker.len()).any(|window| window == marker));
            let whole = [&before[..], marker, &behind[..]].concat();
            let mut scanner = Scanner::new(&marker[..]);
            let mut rest = whole.chunks(cut);
            let found = loop {
                match scanner.push(rest.next().unwrap()) {
                    Scan::More => {}
                    Scan::Found(a, b) => break (a, b),
                    Scan::Noise(_) => panic!("too short for noise"),
                }
            };
            prop_assert_eq!(&found.0[..], &before[..]);
            prop_assert!(behind.starts_with(&found.1));
        }
    }
}
