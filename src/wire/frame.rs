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

/// Cuts frames out of bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Takes in bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes wait in it.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// The next whole frame, or `None` until more bytes come. After an error the stream is useless.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(head) = self.buffer.get(..4) else {
            return Ok(None);
        };
        let length = head.iter().rev().fold(0usize, |acc, byte| acc << 8 | usize::from(*byte));
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
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
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
