//! How many connections a driver has to the next host. Pure.
//!
//! Each connection has no more under way than its send buffer holds (4 MiB as Linux comes, of which a half is values), and
//! a journey later again: over 20 ms that is 100 MB/s, whatever the link. Several have several times as much under way.
//! Where journeys are short one connection fills the link, and more of them only cost calls.

/// The most that can be asked for.
pub(super) const MOST: u32 = 16;

/// For the longest round trip between rank 0 and another rank, µs; what is not known counts as short.
pub(super) fn fitting(round_trip: u32) -> u32 {
    match round_trip {
        0..1_000 => 1,
        1_000..4_000 => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_journeys_take_several() {
        assert_eq!([0, 60, 999, 1_000, 3_999, 20_000, u32::MAX].map(fitting), [1, 1, 1, 2, 2, 4, 4]);
    }
}
