//! How long the buckets of each level are, and its blocks.

/// How long a bucket of each level is, microseconds: each a whole number of times as long as the one before.
pub(super) const BUCKETS_US: [i64; 4] = [1_000_000, 4_000_000, 16_000_000, 64_000_000];
/// A block has chunks that begin within so many buckets.
pub(super) const IN_A_BLOCK: i64 = 60;
