//! Where the time of all that train went in buckets of one length, as it is kept beside a recording: a row a point, those of one that
//! trains after each other, so that the numbers beside each other in a column differ little.

use super::column::{Dec, Enc, Malformed};
use crate::domain::history::PhasePoint;
use crate::domain::ids::Rank;
use crate::domain::phase_buckets::{MOST_POINTS, PhaseBuckets};
use crate::domain::timing::Phase;
use crate::domain::trainer_keys::TrainerId;

/// The numbers of a point.
const COLUMNS: usize = 4 + Phase::COUNT;

/// Encodes the points. How long a bucket is and how many steps were taken in stands elsewhere, or nowhere.
pub(in crate::record) fn encode(buckets: &PhaseBuckets) -> Vec<u8> {
    let mut enc = Enc::default();
    enc.uint(buckets.count() as u64);
    put(&mut enc, buckets.points().map(|(id, ..)| u64::from(id.rank.0)));
    put(&mut enc, buckets.points().map(|(id, ..)| u64::from(id.number)));
    put(&mut enc, buckets.points().map(|(_, place, _)| place as u64));
    for column in 0..COLUMNS {
        put(&mut enc, buckets.points().map(|(_, _, point)| u64::from(numbers(point)[column])));
    }
    enc.finish()
}

/// Decodes points of buckets of this length, microseconds.
pub(in crate::record) fn decode(bytes: &[u8], bucket_us: i64) -> Result<PhaseBuckets, Malformed> {
    let mut dec = Dec::new(bytes);
    let count = dec.count()?;
    if count > MOST_POINTS {
        return Err(Malformed("more points than are kept"));
    }
    let (ranks, ids, places) = (take32(&mut dec, count)?, take32(&mut dec, count)?, take(&mut dec, count)?);
    let columns = (0..COLUMNS).map(|_| take32(&mut dec, count)).collect::<Result<Vec<_>, _>>()?;
    dec.end()?;
    let mut buckets = PhaseBuckets::new(bucket_us);
    for (row, ((rank, number), place)) in ranks.into_iter().zip(ids).zip(places).enumerate() {
        let id = TrainerId { rank: Rank(rank), number };
        buckets.put(id, place as i64, &point(|column| columns[column][row]));
    }
    Ok(buckets)
}

/// A column, each number as its difference to the one before.
fn put(enc: &mut Enc, numbers: impl Iterator<Item = u64>) {
    let mut before = 0;
    for number in numbers {
        enc.delta(number, before);
        before = number;
    }
}

fn take(dec: &mut Dec<'_>, count: usize) -> Result<Vec<u64>, Malformed> {
    let mut before = 0;
    let mut column = Vec::new();
    for _ in 0..count {
        before = dec.delta(before)?;
        column.push(before);
    }
    Ok(column)
}

fn take32(dec: &mut Dec<'_>, count: usize) -> Result<Vec<u32>, Malformed> {
    let mut before = 0;
    let mut column = Vec::new();
    for _ in 0..count {
        before = dec.delta32(before)?;
        column.push(before);
    }
    Ok(column)
}

fn numbers(point: &PhasePoint) -> [u32; COLUMNS] {
    let mut numbers = [0; COLUMNS];
    let (first, phases) = numbers.split_at_mut(4);
    first.copy_from_slice(&[point.longest_us, point.longest_own_us, point.hidden_us, point.collectives_us]);
    phases.copy_from_slice(&point.phases);
    numbers
}

fn point(number: impl Fn(usize) -> u32) -> PhasePoint {
    PhasePoint {
        longest_us: number(0),
        longest_own_us: number(1),
        hidden_us: number(2),
        collectives_us: number(3),
        phases: std::array::from_fn(|phase| number(4 + phase)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn points_come_back(rows in prop::collection::vec(
            (0..4_u32, 0..4_u32, any::<i64>(), any::<[u32; COLUMNS]>()), 0..40,
        )) {
            let mut buckets = PhaseBuckets::new(4_000_000);
            for (rank, number, place, numbers) in &rows {
                let id = TrainerId { rank: Rank(*rank), number: *number };
                buckets.put(id, *place, &point(|column| numbers[column]));
            }
            let bytes = encode(&buckets);
            prop_assert_eq!(decode(&bytes, 4_000_000).unwrap(), buckets);
            prop_assert!(decode(&bytes[..bytes.len() - 1], 4_000_000).is_err());
            prop_assert!(decode(&[&bytes[..], &[0]].concat(), 4_000_000).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(0_u8..12, 0..400)) {
            let _ = decode(&bytes, 1_000_000);
        }
    }
}
