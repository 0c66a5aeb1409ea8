//! The header before each payload. Pure.
//!
//! The receiver knows what must come next, so a header says nothing new: it is compared, not obeyed, and no length
//! in it is ever trusted. It is there to tell ranks that diverged, and bytes that are not ours, at once.

use super::super::control::{OP, decode_op, encode_op};
use super::super::op::OpId;
use super::peer_fault::PeerFaultKind;

/// Bytes of a header; a payload behind it in memory keeps its alignment.
pub(super) const HEADER: usize = 64;

/// In this machine's byte order, as the values are: a machine of the other order is found out.
const MAGIC: u64 = 0x0168_7674_7569_7463;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// The operation it belongs to.
    pub(super) op: OpId,
    /// The how-manieth frame of the operation on this connection, or the round.
    pub(super) number: u32,
    /// Where in the slice its payload begins.
    pub(super) offset: u64,
    /// Bytes of its payload.
    pub(super) len: u64,
}

impl Frame {
    /// Its header.
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..8 + OP].copy_from_slice(&encode_op(self.op));
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.len.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.number.to_le_bytes());
        let sum = checksum(&bytes);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What a header says, if it is one.
    fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        if bytes[..8] != MAGIC.to_ne_bytes() || number(56)? != checksum(bytes) {
            return None;
        }
        let op = decode_op(bytes[8..8 + OP].try_into().ok()?)?;
        let frame = Self { op, number: number(48)? as u32, offset: number(32)?, len: number(40)? };
        (frame.encode() == *bytes).then_some(frame)
    }

    /// Whether `bytes` are the header of this frame, and what is the matter otherwise.
    pub(super) fn check(&self, bytes: &[u8; HEADER]) -> Result<(), PeerFaultKind> {
        if *bytes == self.encode() {
            return Ok(());
        }
        Err(match Self::decode(bytes) {
            None => PeerFaultKind::Garbled(format!("{:02x?}… where a frame should begin", &bytes[..8])),
            Some(seen) if seen.op != self.op => PeerFaultKind::Diverged(seen.op),
            Some(seen) => PeerFaultKind::Garbled(format!("{} instead of {}", seen.words(), self.words())),
        })
    }

    fn words(&self) -> String {
        format!("frame {} with {} bytes from byte {}", self.number, self.len, self.offset)
    }
}

/// Tells bent headers from whole ones; against malice there is the proof at the connection's start.
fn checksum(header: &[u8; HEADER]) -> u64 {
    header[..56].chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        let word = word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::element::{DType, Reduce};
    use super::super::super::op::OpKind;
    use super::*;

    fn frame(seq: u64, number: u32, len: u64) -> Frame {
        let kind = OpKind::Allreduce { dtype: DType::Bf16, how: Reduce::Max };
        Frame { op: OpId { kind, seq, len: 99 }, number, offset: 1 << 40, len }
    }

    #[test]
    fn only_the_expected_header_passes() {
        let good = frame(7, 3, 1024);
        assert_eq!(good.check(&good.encode()), Ok(()));
        assert_eq!(Frame::decode(&good.encode()), Some(good));
        let other = frame(8, 3, 1024);
        assert_eq!(good.check(&other.encode()), Err(PeerFaultKind::Diverged(other.op)));
        for wrong in [frame(7, 4, 1024), frame(7, 3, 1000)] {
            let Err(PeerFaultKind::Garbled(words)) = good.check(&wrong.encode()) else { panic!() };
            assert!(words.ends_with("instead of frame 3 with 1024 bytes from byte 1099511627776"), "{words}");
        }
    }

    #[test]
    fn a_bent_header_is_none() {
        let good = frame(7, 3, 1024);
        for bit in 0..HEADER * 8 {
            let mut bytes = good.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(good.check(&bytes), Err(PeerFaultKind::Garbled(_))), "bit {bit}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(a: [u8; 32], b: [u8; 32]) {
            let mut bytes = [0; HEADER];
            bytes[..32].copy_from_slice(&a);
            bytes[32..].copy_from_slice(&b);
            proptest::prop_assert_eq!(Frame::decode(&bytes), None);
        }
    }
}
