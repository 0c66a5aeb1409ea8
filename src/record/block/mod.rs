//! Columnar blocks (`hvt-col1`): many events of one kind as a struct of arrays, numbers as varints of
//! their differences. Each block stands alone. Decoders take hostile bytes: they return errors, never
//! index out of bounds, and allocate no more than the block's own length warrants.

pub(super) mod buckets;
mod column;
pub(super) mod gpu_numbers;
mod head;
pub(super) mod metric;
pub(super) mod phase;
mod readings;
pub(super) mod telemetry;

use column::Dec;
pub(super) use column::Malformed;
use head::Heads;

use crate::domain::time::Stamp;

/// Sequence number and time of each row of a block of events. What stands behind its heads is not looked at.
pub(super) fn times(bytes: &[u8]) -> Result<impl Iterator<Item = (u64, Stamp)>, Malformed> {
    Heads::read(&mut Dec::new(bytes)).map(Heads::times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(0_u8..12, 0..400)) {
            for decode in [phase::decode, telemetry::decode, metric::decode] {
                let _ = decode(&bytes);
            }
            let _ = times(&bytes).map(Iterator::count);
            if let Ok(numbers) = gpu_numbers::decode(&bytes) {
                numbers.join(&mut []);
            }
        }
    }
}
