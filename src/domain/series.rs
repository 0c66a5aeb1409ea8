//! Values over time in a bounded number of points, however long it goes on: with too many, two and two become one. What a
//! point keeps of two is its own business; peaks stay. The same values give the same series, live and in a replay.

use serde::{Deserialize, Serialize};

use super::time::Stamp;

/// How long a point of a new series lasts, microseconds.
const FIRST_WIDTH_US: i64 = 50_000;

/// How long a point of a series of at most `most` points lasts when so much time is told, microseconds.
pub(super) fn width_after(length_us: i64, most: usize) -> i64 {
    let mut width_us = FIRST_WIDTH_US;
    while length_us / width_us >= most.max(2) as i64 {
        width_us = width_us.saturating_mul(2);
    }
    width_us
}

/// What one point keeps of the time that it stands for.
pub trait Merge {
    /// Takes the point beside it in.
    fn merge(&mut self, other: &Self);
}

/// A series of points of equal length from its start on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series<P> {
    start: Stamp,
    width_us: i64,
    most: usize,
    points: Vec<P>,
}

impl<P: Merge + Default + Clone + PartialEq> Series<P> {
    /// An empty series of at most `most` points, at least 2.
    pub fn new(start: Stamp, most: usize) -> Self {
        Self { start, width_us: FIRST_WIDTH_US, most: most.max(2), points: Vec::new() }
    }

    /// An empty series of at most `most` points that each last so long, microseconds, until there are more.
    pub(super) fn of_width(start: Stamp, width_us: i64, most: usize) -> Self {
        Self { start, width_us: width_us.max(1), most: most.max(2), points: Vec::with_capacity(most) }
    }

    /// How many points there are at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The point of a moment; one before the start counts as the start.
    pub fn at(&mut self, at: Stamp) -> &mut P {
        let since = at.micros_since(self.start).max(0);
        while since / self.width_us >= self.most as i64 {
            self.halve();
        }
        let index = (since / self.width_us) as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, P::default());
        }
        &mut self.points[index]
    }

    /// Two and two become one, and each lasts twice as long.
    fn halve(&mut self) {
        self.width_us = self.width_us.saturating_mul(2);
        let merged = self.points.chunks(2).map(|pair| {
            let mut first = pair[0].clone();
            if let Some(second) = pair.get(1) {
                first.merge(second);
            }
            first
        });
        self.points = merged.collect();
    }

    /// The same up to a moment, without the point in which that lies: it speaks of what comes later too.
    pub(super) fn until(&self, moment: Stamp) -> Self {
        let whole = moment.micros_since(self.start).max(0) / self.width_us;
        let kept = usize::try_from(whole).map_or(self.points.len(), |whole| whole.min(self.points.len()));
        let points = self.points.get(..kept).unwrap_or_default().to_vec();
        Self { points, ..*self }
    }

    /// Where it starts.
    pub fn start(&self) -> Stamp {
        self.start
    }

    /// Whether nothing was told.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// All points, oldest first.
    pub fn points(&self) -> &[P] {
        &self.points
    }

    /// All points, each with its beginning.
    pub fn timed(&self) -> impl Iterator<Item = (Stamp, &P)> {
        let begins = (0..).map(|index: i64| self.start.plus_micros(index.saturating_mul(self.width_us)));
        begins.zip(&self.points)
    }

    /// How long a point lasts, microseconds.
    pub fn width_us(&self) -> i64 {
        self.width_us
    }

    /// How long the points together last that speak of the time from `from` up to `to`, microseconds: whole ones, but the last of all
    /// until `now`.
    pub(super) fn told_us(&self, from: Stamp, to: Stamp, now: Stamp) -> i64 {
        let (first, last) = self.places(from, to);
        let behind = (last + 1).min(self.points.len() as i64).max(first);
        let end = behind.saturating_mul(self.width_us).min(now.micros_since(self.start));
        (end - first.saturating_mul(self.width_us)).max(0)
    }

    /// What is known of the time from `from` up to `to`, all in one. Where nothing was told then, the next point that was
    /// told of counts, if it reaches back so far: `reach` is how many microseconds before its start it speaks of.
    pub fn between(&self, from: Stamp, to: Stamp, reach: impl Fn(&P) -> i64) -> Option<P> {
        self.told(self.places(from, to), to, reach)
    }

    /// The places of the first and the last point that speak of the time from `from` up to `to`; there may be no points yet.
    pub(super) fn places(&self, from: Stamp, to: Stamp) -> (i64, i64) {
        let first = from.micros_since(self.start).max(0) / self.width_us;
        let last = (to.micros_since(self.start).max(1) - 1) / self.width_us;
        (first, last)
    }

    /// Whether its points stand for the same times as those of another one.
    pub(super) fn is_parallel(&self, other: &Self) -> bool {
        (self.start, self.width_us) == (other.start, other.width_us)
    }

    /// The points from the first to the last of these places, as far as there are any.
    pub(super) fn at_places(&self, (first, last): (i64, i64)) -> &[P] {
        let [first, behind] =
            [first, last.saturating_add(1)].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        self.points.get(first..behind.min(self.points.len())).unwrap_or_default()
    }

    /// What [`Self::between`] tells of each of these times, which come in rising order: one walk over the points.
    pub(super) fn each_between(
        &self,
        times: impl Iterator<Item = (Stamp, Stamp)>,
        reach: impl Fn(&P) -> i64,
    ) -> impl Iterator<Item = Option<P>> {
        let behind = self.points.len() as i64;
        // the point of a moment from one before it on; behind the last point there is nothing
        let walk = move |mut at: i64, since_us: i64| {
            while at < behind && (at + 1).saturating_mul(self.width_us) <= since_us {
                at += 1;
            }
            at
        };
        let (mut first, mut last) = (0, 0);
        times.map(move |(from, to)| {
            first = walk(first, from.micros_since(self.start));
            last = walk(last, to.micros_since(self.start).saturating_sub(1));
            self.told((first, last), to, &reach)
        })
    }

    /// What the points from the first to the last of these places tell, or the next one that reaches back to `to`.
    pub(super) fn told(&self, (first, last): (i64, i64), to: Stamp, reach: impl Fn(&P) -> i64) -> Option<P> {
        let empty = P::default();
        let mut known = self.span(first, last).filter(|(_, point)| **point != empty);
        if let Some((_, point)) = known.next() {
            let mut whole = point.clone();
            known.for_each(|(_, point)| whole.merge(point));
            return Some(whole);
        }
        let (index, next) = self.span(last + 1, i64::MAX).find(|(_, point)| **point != empty)?;
        let starts = index.saturating_mul(self.width_us);
        (starts - to.micros_since(self.start) < reach(next)).then(|| next.clone())
    }

    fn span(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, &P)> {
        let skipped = usize::try_from(first).unwrap_or(usize::MAX);
        let points = self.points.get(skipped..).unwrap_or_default();
        (first..).zip(points).take_while(move |(index, _)| *index <= last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Peak(u32, u32);

    impl Merge for Peak {
        fn merge(&mut self, other: &Self) {
            *self = Self(self.0.max(other.0), self.1 + other.1);
        }
    }

    fn take(series: &mut Series<Peak>, at: i64, value: u32) {
        series.at(Stamp(at)).merge(&Peak(value, 1));
    }

    #[test]
    fn a_point_speaks_of_the_time_before_it() {
        let mut series = Series::new(Stamp(0), 8);
        take(&mut series, 10_000, 7);
        take(&mut series, 210_000, 9);
        let seen = |from, to, reach| series.between(Stamp(from), Stamp(to), |_| reach);
        assert_eq!(seen(0, 50_000, 0), Some(Peak(7, 1)));
        assert_eq!(seen(100_000, 150_000, 0), None);
        assert_eq!(seen(100_000, 150_000, 200_000), Some(Peak(9, 1)), "it took so long");
        assert_eq!(seen(0, 250_000, 0), Some(Peak(9, 2)));
        assert_eq!(seen(250_000, 300_000, 1_000_000), None, "what comes later is not known");
        assert_eq!(Series::<Peak>::new(Stamp(5), 4).between(Stamp(0), Stamp(9), |_| 9), None);
    }

    #[test]
    fn the_points_of_a_time_are_those_that_speak_of_it() {
        let mut series = Series::new(Stamp(100_000), 8);
        (0..4).for_each(|point| take(&mut series, 100_000 + point * 50_000, point as u32 + 1));
        let peaks = |from: i64, to: i64| -> Vec<u32> {
            let places = series.places(Stamp(from), Stamp(to));
            series.at_places(places).iter().map(|point| point.0).collect()
        };
        assert_eq!((peaks(0, 150_000), peaks(100_000, 150_001)), (vec![1], vec![1, 2]));
        assert_eq!((peaks(199_999, 900_000), peaks(250_000, i64::MAX)), (vec![2, 3, 4], vec![4]));
        assert_eq!((peaks(300_000, 400_000), peaks(i64::MAX, i64::MAX)), (vec![], vec![]));
        let mut other = Series::new(Stamp(100_000), 8);
        assert!(series.is_parallel(&other), "one has no points yet");
        take(&mut other, 900_000, 1);
        assert!(!series.is_parallel(&other) && !series.is_parallel(&Series::new(Stamp(0), 8)));
    }

    #[test]
    fn how_long_points_last_is_known_before_they_are_told() {
        for (length, most) in [(0, 4), (199_999, 4), (200_000, 4), (3_600_000_000, 64), (3_600_000_000, 256)]
        {
            let mut series = Series::new(Stamp(0), most);
            take(&mut series, length, 1);
            assert_eq!(width_after(length, most), series.width_us(), "{length} {most}");
        }
        let mut series = Series::of_width(Stamp(0), 70_000, 3);
        take(&mut series, 209_999, 1);
        assert_eq!((series.width_us(), series.points().len()), (70_000, 3));
        take(&mut series, 210_000, 1);
        assert_eq!((series.width_us(), series.points().len()), (140_000, 2));
    }

    #[test]
    fn the_points_of_a_part_last_as_long_as_they_do() {
        let mut series = Series::new(Stamp(0), 8);
        (0..4).for_each(|point| take(&mut series, point * 50_000, 1));
        let told = |from, to, now| series.told_us(Stamp(from), Stamp(to), Stamp(now));
        assert_eq!((told(0, 50_000, 1_000_000), told(40_000, 60_000, 1_000_000)), (50_000, 100_000));
        assert_eq!((told(150_000, 200_000, 160_000), told(0, 900_000, 160_000)), (10_000, 160_000));
        assert_eq!((told(300_000, 400_000, 1_000_000), told(-9, -1, 1_000_000)), (0, 50_000));
    }

    #[test]
    fn what_is_cut_off_speaks_of_no_later_time() {
        let mut series = Series::new(Stamp(0), 8);
        (0..8).for_each(|point| take(&mut series, point * 50_000, point as u32 + 1));
        for (moment, count) in [(-7, 0), (0, 0), (49_999, 0), (50_000, 1), (199_999, 3), (i64::MAX, 8)] {
            let cut = series.until(Stamp(moment));
            assert_eq!((cut.points(), cut.width_us()), (&series.points()[..count], 50_000), "{moment}");
        }
        // and goes on as it would have
        let mut cut = series.until(Stamp(200_000));
        (4..8).for_each(|point| take(&mut cut, point * 50_000, point as u32 + 1));
        assert_eq!(cut, series);
    }

    proptest! {
        #[test]
        fn it_stays_bounded_and_loses_no_peak(
            values in prop::collection::vec((0..90_000_000_000i64, 1..1000u32), 1..200),
        ) {
            let mut series = Series::new(Stamp(0), 16);
            let mut ordered = values.clone();
            ordered.sort_unstable();
            for (at, value) in &ordered {
                take(&mut series, *at, *value);
            }
            prop_assert!(series.points().len() <= 16);
            let whole = series.between(Stamp(0), Stamp(90_000_000_000), |_| 0);
            let peak = values.iter().map(|(_, value)| *value).max().unwrap_or(0);
            prop_assert_eq!(whole, Some(Peak(peak, values.len() as u32)));
            // a clone goes on as the whole does: checkpoints of a replay
            let mut whole = Series::new(Stamp(0), 16);
            let half = ordered.len() / 2;
            ordered[..half].iter().for_each(|(at, value)| take(&mut whole, *at, *value));
            let mut resumed = whole.clone();
            ordered[half..].iter().for_each(|(at, value)| take(&mut resumed, *at, *value));
            prop_assert_eq!(resumed, series);
        }

        #[test]
        fn a_walk_tells_what_each_of_its_times_does(
            values in prop::collection::vec((0..3_000_000i64, 1..1000u32), 0..40),
            mut edges in prop::collection::vec(-1_000_000..9_000_000i64, 2..80),
            reach in 0..500_000i64,
        ) {
            let mut series = Series::new(Stamp(0), 16);
            let mut ordered = values;
            ordered.sort_unstable();
            for (at, value) in &ordered {
                take(&mut series, *at, *value);
            }
            edges.sort_unstable();
            // beside each other, with and without an edge of a point, and of no length
            edges.extend([9_000_000, 9_000_000, 9_050_000, i64::MAX]);
            let times: Vec<_> = edges.windows(2).map(|edge| (Stamp(edge[0]), Stamp(edge[1]))).collect();
            let walked: Vec<_> = series.each_between(times.iter().copied(), |_| reach).collect();
            let each: Vec<_> =
                times.iter().map(|(from, to)| series.between(*from, *to, |_| reach)).collect();
            prop_assert_eq!(walked, each);
        }

        #[test]
        fn any_moment_is_taken(at in any::<i64>()) {
            let mut series = Series::new(Stamp(0), 512);
            take(&mut series, at, 1);
            prop_assert!(series.points().len() <= 512);
        }
    }
}
