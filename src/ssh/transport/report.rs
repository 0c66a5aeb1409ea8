//! Text that a host prints where we expected something else: kept within bounds, made harmless.

use bytes::{Bytes, BytesMut};

use crate::domain::text::sanitize;

/// The most that is kept of what a host prints before the agent speaks.
pub(in crate::ssh) const BANNER_BYTES: usize = 64 * 1024;
/// The most that is kept of a command's standard error: its end.
pub(super) const STDERR_BYTES: usize = 16 * 1024;
/// The most of a host's words in one error message.
const QUOTE_BYTES: usize = 600;

/// Bytes of text from a host.
#[derive(Debug, Default, Clone)]
pub(in crate::ssh) struct Text(BytesMut);

impl Text {
    /// Keeps the beginning, up to `limit` bytes.
    pub(in crate::ssh) fn push(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.0.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Keeps the end, up to `limit` bytes.
    pub(in crate::ssh) fn push_tail(&mut self, bytes: &[u8], limit: usize) {
        self.0.extend_from_slice(bytes);
        let surplus = self.0.len().saturating_sub(limit);
        let _ = self.0.split_to(surplus);
    }

    /// The text, safe for a terminal, lines kept.
    pub(in crate::ssh) fn clean(&self) -> String {
        clean(&self.0)
    }
}

/// Makes text safe for a terminal line by line; empty lines at both ends go.
pub(in crate::ssh) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<_> = text.trim().lines().map(sanitize).collect();
    lines.join("\n")
}

/// The end of a text, short enough for an error message.
pub(in crate::ssh) fn quote(text: &str) -> String {
    let start = text.len().saturating_sub(QUOTE_BYTES);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let cut = text.get(start..).unwrap_or_default().trim();
    if start == 0 { cut.to_owned() } else { format!("…{cut}") }
}

/// The most bytes that may come before a marker: a host that prints more than that is not going to stop.
pub(super) const NOISE_BYTES: usize = 4 * 1024 * 1024;

/// Finds `marker` in a stream of pieces and keeps the beginning of what stands before it.
#[derive(Debug)]
pub(in crate::ssh) struct Scanner {
    marker: Vec<u8>,
    /// The first [`BANNER_BYTES`] that are surely no part of the marker.
    head: Text,
    /// The bytes that may be one's beginning.
    tail: BytesMut,
    /// Bytes that came in all.
    count: usize,
}

/// What a [`Scanner`] found in all bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::ssh) enum Scan {
    /// No marker yet.
    More,
    /// The bytes before the marker, the first 64 KiB of them, and those behind it.
    Found(Bytes, Bytes),
    /// More than [`NOISE_BYTES`] without a marker: how it began.
    Noise(Bytes),
}

impl Scanner {
    pub(in crate::ssh) fn new(marker: impl Into<Vec<u8>>) -> Self {
        Self { marker: marker.into(), head: Text::default(), tail: BytesMut::new(), count: 0 }
    }

    pub(in crate::ssh) fn push(&mut self, bytes: &[u8]) -> Scan {
        self.count += bytes.len();
        self.tail.extend_from_slice(bytes);
        let found = self.tail.windows(self.marker.len().max(1)).position(|window| window == self.marker);
        if let Some(at) = found {
            let mut behind = std::mem::take(&mut self.tail);
            self.head.push(&behind.split_to(at), BANNER_BYTES);
            let _ = behind.split_to(self.marker.len());
            return Scan::Found(std::mem::take(&mut self.head.0).freeze(), behind.freeze());
        }
        // A marker may have begun in the last bytes.
        let sure = self.tail.len().saturating_sub(self.marker.len());
        self.head.push(&self.tail.split_to(sure), BANNER_BYTES);
        if self.count <= NOISE_BYTES {
            return Scan::More;
        }
        Scan::Noise(std::mem::take(&mut self.head.0).freeze())
    }

    /// How many bytes came.
    pub(in crate::ssh) fn count(&self) -> usize {
        self.count
    }

    /// What came, if no marker did: its beginning.
    pub(in crate::ssh) fn seen(&self) -> Vec<u8> {
        let mut seen = self.head.clone();
        seen.push(&self.tail, BANNER_BYTES);
        seen.0.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn noise_without_a_marker_is_bounded() {
        let mut scanner = Scanner::new("MARK\n");
        let piece = vec![b'x'; 1 << 20];
        let scans: Vec<Scan> = (0..5).map(|_| scanner.push(&piece)).collect();
        assert!(scans[..4].iter().all(|scan| *scan == Scan::More));
        assert!(matches!(&scans[4], Scan::Noise(noise) if noise.len() == BANNER_BYTES));
    }

    #[test]
    fn a_marker_behind_much_noise_is_found_and_the_beginning_kept() {
        let mut scanner = Scanner::new("MARK\n");
        for _ in 0..30 {
            assert_eq!(scanner.push(&[b'x'; 10_000]), Scan::More);
        }
        assert_eq!(scanner.push(b"MA"), Scan::More);
        let Scan::Found(before, behind) = scanner.push(b"RK\nrest") else { panic!("not found") };
        assert_eq!((before.len(), &behind[..]), (BANNER_BYTES, &b"rest"[..]));
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
