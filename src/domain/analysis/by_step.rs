//! Values by the number of the step, in a bounded number of points: with too many, two and two become one, as in
//! [`crate::domain::series`] by time.

use serde::{Deserialize, Serialize};

use crate::domain::series::Merge;

/// Points of the same number of steps each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByStep<P> {
    /// The first step that was told.
    base: Option<u64>,
    /// Steps a point.
    width: u64,
    most: usize,
    points: Vec<P>,
}

impl<P: Merge + Default + Clone> ByStep<P> {
    /// An empty one of at most `most` points, at least 2.
    pub fn new(most: usize) -> Self {
        Self { base: None, width: 1, most: most.max(2), points: Vec::new() }
    }

    /// The point of a step; one before the first that was told counts as that.
    pub fn at(&mut self, step: u64) -> &mut P {
        let base = *self.base.get_or_insert(step);
        let since = step.saturating_sub(base);
        while since / self.width >= self.most as u64 {
            self.width = self.width.saturating_mul(2);
            let merged = self.points.chunks(2).map(|pair| {
                let mut first = pair[0].clone();
                pair.iter().skip(1).for_each(|second| first.merge(second));
                first
            });
            self.points = merged.collect();
        }
        let index = (since / self.width) as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, P::default());
        }
        &mut self.points[index]
    }

    /// What is known of the steps from `from` up to `to`, all in one; points that lie there in part count whole.
    pub fn between(&self, from: u64, to: u64) -> Option<P> {
        let base = self.base.filter(|_| from < to)?;
        let first = from.saturating_sub(base) / self.width;
        let behind = to.checked_sub(base)?.div_ceil(self.width);
        let most = self.points.len() as u64;
        let mut points = self.points.get(first.min(most) as usize..behind.min(most) as usize)?.iter();
        let mut whole = points.next()?.clone();
        points.for_each(|point| whole.merge(point));
        Some(whole)
    }

    /// How many steps a point stands for.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// All points in order, each with its first step.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = (u64, &P)> + ExactSizeIterator {
        let base = self.base.unwrap_or_default();
        let width = self.width;
        self.points.iter().enumerate().map(move |(at, point)| (base + at as u64 * width, point))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Count(u64);

    impl Merge for Count {
        fn merge(&mut self, other: &Self) {
            self.0 += other.0;
        }
    }

    #[test]
    fn points_stay_few_and_lose_nothing() {
        let mut counts = ByStep::<Count>::new(8);
        for step in 101..=200 {
            counts.at(step).0 += 1;
        }
        assert_eq!(counts.width(), 16);
        let points: Vec<(u64, u64)> = counts.points().map(|(step, count)| (step, count.0)).collect();
        assert_eq!(
            points,
            [(101, 16), (117, 16), (133, 16), (149, 16), (165, 16), (181, 16), (197, 4)],
            "from the first step on"
        );
        let between = |from, to| counts.between(from, to).map(|count| count.0);
        assert_eq!((between(101, 117), between(1, 118), between(197, 500)), (Some(16), Some(32), Some(4)));
        assert_eq!((between(1, 101), between(300, 400), between(150, 150)), (None, None, None));
        counts.at(1).0 += 1;
        assert_eq!(counts.points().next().map(|(_, count)| count.0), Some(17));
        counts.at(u64::MAX).0 += 1;
        assert!(counts.points().len() <= 8);
    }
}
