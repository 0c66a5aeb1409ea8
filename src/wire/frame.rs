//! Frames: `u32` length of what follows, `u16` kind, payload; little-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest frame, kind and payload together. Checked before anything is allocated.
pub const MAX_FRAME: usize = 1 << 20;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Number of the message kind.
    pub kind: u16,
    /// Its payload.
    pub payload: Bytes,
}

/// A stream of bytes that can't be frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is over [`MAX_FRAME`].
    #[error("frame of {0} bytes, at most {MAX_FRAME} are allowed")]
    TooLong(usize),
    /// The length is too small to hold a kind.
    #[error("frame of {0} bytes, at least 2 are needed")]
    TooShort(usize),
}

/// Appends a frame to `out`. A payload that does not fit is refused and nothing is written.
pub fn encode(kind: u16, payload: &[u8], out: &mut BytesMut) -> Result<(), FrameError> {
    let length = payload.len() + 2;
    if length > MAX_FRAME {
        return Err(FrameError::TooLong(length));
    }
    out.reserve(4 + length);
    out.put_u32_le(length as u32);
    out.put_u16_le(kind);
    out.put_slice(payload);
    Ok(())
}

/// The room with which a link waits: little, for a thousand links wait at the same time.
const LEAST_ROOM: usize = 4 << 10;
/// The room of a link on which much comes.
const MOST_ROOM: usize = 64 << 10;

/// Cuts frames out of bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    /// How many reads in a row have filled their room.
    filled: u32,
    /// The room that was offered last: where it is still whole, nothing was read.
    offered: usize,
}

impl Decoder {
    /// Takes in bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where a read appends what arrives: room for the rest of a frame that has begun, and more the more reads have filled
    /// theirs. The memory of a large frame goes once the frame is taken off.
    pub fn room(&mut self) -> &mut BytesMut {
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < self.offered {
            self.filled = if spare == 0 { self.filled.saturating_add(1) } else { 0 };
        }
        let room = (LEAST_ROOM << self.filled.min(4)).min(MOST_ROOM);
        if self.buffer.is_empty() {
            if !(room / 2..=room).contains(&spare) {
                self.buffer = BytesMut::with_capacity(room);
            }
        } else if spare < room / 2 {
            // one byte more than the frame, so that a read which brings just that has not filled its room
            let rest = self.missing().saturating_add(1).min(MOST_ROOM);
            self.buffer.reserve(rest.max(room));
        }
        self.offered = self.buffer.capacity() - self.buffer.len();
        &mut self.buffer
    }

    /// How many bytes of the frame that has begun are to come, as far as its length is there and can be.
    fn missing(&self) -> usize {
        let length = self.length().filter(|length| *length <= MAX_FRAME);
        length.map_or(0, |length| (4 + length).saturating_sub(self.buffer.len()))
    }

    /// The length of the frame that has begun.
    fn length(&self) -> Option<usize> {
        let head = self.buffer.get(..4)?;
        Some(head.iter().rev().fold(0usize, |acc, byte| acc << 8 | usize::from(*byte)))
    }

    /// How many bytes wait in it.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// The next whole frame, or `None` until more bytes come. After an error the stream is useless.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(length) = self.length() else { return Ok(None) };
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        if length < 2 {
            return Err(FrameError::TooShort(length));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        let mut whole = self.buffer.split_to(length).freeze();
        let kind = whole.get_u16_le();
        Ok(Some(Frame { kind, payload: whole }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_allocation() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(u32::MAX as usize)));
        let mut out = BytesMut::new();
        assert!(encode(1, &vec![0; MAX_FRAME], &mut out).is_err());
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_has_a_kind_and_may_have_nothing_else() {
        for length in [0, 1] {
            let mut decoder = Decoder::default();
            decoder.push(&[length, 0, 0, 0, 7, 0]);
            assert_eq!(decoder.next_frame(), Err(FrameError::TooShort(length.into())));
        }
        let mut decoder = Decoder::default();
        decoder.push(&[2, 0, 0, 0, 7, 0]);
        assert_eq!(decoder.next_frame(), Ok(Some(Frame { kind: 7, payload: Bytes::new() })));
    }

    /// What a read does with the room that it gets: as much of `bytes` as fits.
    fn read(decoder: &mut Decoder, bytes: &[u8]) -> usize {
        let room = decoder.room();
        let count = bytes.len().min(room.capacity() - room.len());
        room.extend_from_slice(&bytes[..count]);
        count
    }

    #[test]
    fn a_link_holds_little_memory_before_and_after_much_has_come() {
        let mut decoder = Decoder::default();
        let mut bytes = BytesMut::new();
        encode(1, &vec![7; MAX_FRAME - 2], &mut bytes).unwrap();
        let (mut at, mut reads) = (0, 0);
        while at < bytes.len() {
            at += read(&mut decoder, &bytes[at..]);
            reads += 1;
        }
        assert!(reads < 24, "{reads} reads for a frame of a mebibyte");
        assert!(decoder.buffer.capacity() < 2 * MAX_FRAME);
        assert_eq!(decoder.next_frame().unwrap().map(|frame| frame.payload.len()), Some(MAX_FRAME - 2));
        assert!(decoder.room().capacity() <= MOST_ROOM);
        let mut small = BytesMut::new();
        encode(2, &[1; 11_000], &mut small).unwrap();
        for _ in 0..8 {
            let first = read(&mut decoder, &small);
            assert!(first < small.len());
            assert_eq!(read(&mut decoder, &small[first..]), small.len() - first, "the rest in one read");
            assert!(decoder.buffer.capacity() < 2 * small.len());
            assert_eq!(decoder.next_frame().unwrap().map(|frame| frame.kind), Some(2));
            assert_eq!(decoder.next_frame().unwrap(), None);
        }
        assert!(decoder.room().capacity() <= LEAST_ROOM);
    }

    /// The room that a read is offered, bytes.
    fn offered(decoder: &mut Decoder) -> usize {
        let room = decoder.room();
        room.capacity() - room.len()
    }

    /// A frame that takes so many bytes with its head.
    fn frame(bytes: usize) -> BytesMut {
        let mut out = BytesMut::new();
        encode(1, &vec![7; bytes - 6], &mut out).unwrap();
        out
    }

    #[test]
    fn the_room_doubles_as_long_as_reads_fill_it() {
        let mut decoder = Decoder::default();
        for kib in [4, 8, 16, 32, 64, 64] {
            assert_eq!(offered(&mut decoder), kib << 10);
            assert_eq!(offered(&mut decoder), kib << 10, "nothing was read yet");
            assert_eq!(read(&mut decoder, &frame(kib << 10)), kib << 10);
            assert_eq!(decoder.held(), kib << 10);
            assert!(decoder.next_frame().unwrap().is_some());
        }
        // one that does not fill it ends that; of little room more than half is used again
        read(&mut decoder, &frame(100));
        assert!(decoder.next_frame().unwrap().is_some());
        assert_eq!(offered(&mut decoder), LEAST_ROOM);
        read(&mut decoder, &frame(100));
        assert!(decoder.next_frame().unwrap().is_some());
        assert_eq!(offered(&mut decoder), LEAST_ROOM - 100);
    }

    #[test]
    fn the_rest_of_a_frame_has_room_and_half_the_room_is_enough_for_more() {
        let bytes = frame(60_000);
        let mut decoder = Decoder::default();
        let first = read(&mut decoder, &bytes);
        assert_eq!(first, LEAST_ROOM);
        assert!(offered(&mut decoder) > 60_000 - first, "and one byte more, so that it is not full");
        let mut decoder = Decoder::default();
        offered(&mut decoder);
        assert_eq!(read(&mut decoder, &bytes[..LEAST_ROOM / 2]), LEAST_ROOM / 2);
        assert_eq!(offered(&mut decoder), LEAST_ROOM / 2);
        read(&mut decoder, &bytes[LEAST_ROOM / 2..=LEAST_ROOM / 2]);
        assert!(offered(&mut decoder) > 50_000);
    }

    #[test]
    fn what_waits_in_the_room_is_not_taken_for_a_read() {
        let mut decoder = Decoder::default();
        assert_eq!(read(&mut decoder, &frame(LEAST_ROOM)), LEAST_ROOM);
        let room = offered(&mut decoder);
        assert_eq!(offered(&mut decoder), room, "nothing was read yet");
        assert_eq!(read(&mut decoder, &frame(room)), room);
        assert!(offered(&mut decoder) >= 4 * LEAST_ROOM, "two reads in a row have filled theirs");
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            frames in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..300)), 0..8),
            cut in 1usize..97,
        ) {
            let mut bytes = BytesMut::new();
            for (kind, payload) in &frames {
                encode(*kind, payload, &mut bytes).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for mut piece in bytes.chunks(cut) {
                while !piece.is_empty() {
                    let count = read(&mut decoder, piece);
                    piece = &piece[count..];
                }
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push((frame.kind, frame.payload.to_vec()));
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
