//! How an operation is cut so that its copies and its sums go on at the same time. Pure.

use std::ops::Range;

/// Bytes of a whole chunk: long enough for the bus, short enough that the sums begin early.
pub(super) const WHOLE: usize = 1 << 20;
/// Bytes of the smallest chunk.
const LEAST: usize = 4096;

/// The chunks of `bytes` bytes, in order: whole ones, and one for the rest.
pub(super) fn cut(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(WHOLE).map(move |start| start..(start + WHOLE).min(bytes))
}

/// The size of the memory for a chunk: a power of two, so that there are few sizes.
pub(super) fn room(bytes: usize) -> usize {
    bytes.next_power_of_two().clamp(LEAST, WHOLE)
}

/// How many chunks of memory there are of a size. Two whole ones are on their way down and being added, two on their way
/// up; the rest of an operation meets only the rest of the one before.
pub(super) fn count(room: usize) -> usize {
    if room == WHOLE { 4 } else { 2 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_cover_all_once_and_have_room(bytes in 0_usize..10 * WHOLE) {
            let mut at = 0;
            for chunk in cut(bytes) {
                prop_assert_eq!(chunk.start, at);
                prop_assert!(!chunk.is_empty() && chunk.len() <= room(chunk.len()));
                prop_assert_eq!(chunk.start % WHOLE, 0);
                at = chunk.end;
            }
            prop_assert_eq!(at, bytes);
        }
    }

    #[test]
    fn there_are_few_sizes_of_memory() {
        let rooms: std::collections::BTreeSet<usize> = (1..=WHOLE).step_by(111).map(room).collect();
        assert_eq!((rooms.len(), rooms.first(), rooms.last()), (9, Some(&LEAST), Some(&WHOLE)));
    }
}
