//! Which samples a rank works on. Pure; all ranks compute the same order and take their own part of it.

use std::ops::Range;

use super::model::dropout::hash;

/// The order of `count` samples in an epoch: a fair shuffle that depends on seed and epoch alone.
pub(super) fn permutation(count: usize, seed: u64, epoch: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let key = hash(seed, u64::from(epoch));
    for at in (1..count).rev() {
        // The product's upper half is uniform up to one in 2^64 / count.
        let pick = ((u128::from(hash(key, at as u64)) * (at as u128 + 1)) >> 64) as usize;
        order.swap(at, pick);
    }
    order
}

/// The part of `count` things that is `rank`'s: contiguous, sizes differ by one at most, possibly empty.
pub(super) fn share(count: usize, rank: u32, world: u32) -> Range<usize> {
    let (rank, world) = (rank as usize, world as usize);
    count * rank / world..count * (rank + 1) / world
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_s_order_has_every_sample_once_and_differs_from_the_next() {
        let one = permutation(1000, 1, 0);
        let mut sorted = one.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_eq!(one, permutation(1000, 1, 0));
        assert_ne!(one, permutation(1000, 1, 1));
        assert_ne!(one, permutation(1000, 2, 0));
        assert!(permutation(0, 1, 0).is_empty());
    }

    #[test]
    fn shares_cover_everything_evenly() {
        for (count, world) in [(0, 3), (2, 5), (13, 4), (32, 2)] {
            let shares: Vec<_> = (0..world).map(|rank| share(count, rank, world)).collect();
            assert_eq!(shares.iter().cloned().flatten().collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
            let sizes: Vec<_> = shares.iter().map(std::iter::ExactSizeIterator::len).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
