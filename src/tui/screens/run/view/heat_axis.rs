//! The columns of the heat map: equal numbers of steps, or equal lengths of time. Either way a cell stands for steps.

use crate::domain::analysis::Ended;
use crate::domain::analysis::by_step::ByStep;
use crate::domain::time::Stamp;

/// Which steps a cell stands for: all from `first` to `last` in so many cells, in pieces of `least` steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) least: u64,
    pub(super) cells: u16,
    /// Where columns are lengths of time.
    pub(super) times: Option<Times>,
}

/// An axis of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Times {
    /// When its first step ended.
    pub(super) from: Stamp,
    /// When its last one ended.
    pub(super) to: Stamp,
    /// The first step of each cell, and the first behind it.
    spans: Vec<(u64, u64)>,
}

impl Times {
    /// So many columns of the time in which the steps from `first` to `last` ended; `None` where that is not known.
    pub(super) fn of(ended: &ByStep<Ended>, (first, last): (u64, u64), cells: u16) -> Option<Self> {
        let points = ended.points().filter_map(|(step, point)| Some((step, point.span()?)));
        let width = ended.width();
        let points: Vec<(u64, (Stamp, Stamp))> =
            points.filter(|(step, _)| *step <= last && step.saturating_add(width) > first).collect();
        let from = points.iter().map(|(_, (from, _))| *from).min()?;
        let to = points.iter().map(|(_, (_, to))| *to).max()?.max(from.plus_micros(1));
        // the first step that ended then or later; of a point that stands for several by its share of the time
        let step_at = |at: Stamp| {
            let Some((step, (begin, end))) = points.iter().find(|(_, (_, end))| *end >= at) else {
                return last.saturating_add(1);
            };
            let length = end.micros_since(*begin).max(1) as f64;
            let share = (at.micros_since(*begin) as f64 / length).clamp(0.0, 1.0);
            step.saturating_add((share * (width - 1) as f64).ceil() as u64).clamp(first, last)
        };
        let length = to.micros_since(from) as f64;
        let edge = |cell: u16| from.plus_micros((length * f64::from(cell) / f64::from(cells.max(1))) as i64);
        // a step that takes longer than a cell is in all of those that it goes through
        let span = |cell: u16| {
            let (begin, end) = (step_at(edge(cell)), step_at(edge(cell + 1)));
            (begin, end.max(begin).saturating_add(1))
        };
        Some(Self { from, to, spans: (0..cells).map(span).collect() })
    }
}

impl Axis {
    fn pieces(&self) -> u64 {
        (self.last.saturating_sub(self.first) / self.least.max(1)).saturating_add(1)
    }

    /// Where a cell begins, in pieces.
    fn piece(&self, cell: u64) -> u64 {
        let at = u128::from(cell) * u128::from(self.pieces()) / u128::from(self.cells.max(1));
        u64::try_from(at).unwrap_or(u64::MAX)
    }

    /// The first step of a cell, and the first behind it; cells share one where there are fewer pieces.
    pub(super) fn span(&self, cell: u16) -> (u64, u64) {
        if let Some(times) = &self.times {
            return times.spans.get(usize::from(cell)).copied().unwrap_or_default();
        }
        let (from, to) = (self.piece(cell.into()), self.piece(u64::from(cell) + 1));
        let step = |piece: u64| self.first.saturating_add(piece.saturating_mul(self.least.max(1)));
        (step(from), step(to.max(from.saturating_add(1))))
    }

    /// The cell of the playhead: of the moment where columns are lengths of time, else the first of its step.
    pub(super) fn cell(&self, step: Option<u64>, at: Stamp) -> Option<u16> {
        if let Some(times) = &self.times {
            let since = at.micros_since(times.from);
            let length = times.to.micros_since(times.from).max(1);
            let cell = i128::from(since) * i128::from(self.cells) / i128::from(length);
            let last = self.cells.checked_sub(1)?;
            return (0..=length).contains(&since).then(|| u16::try_from(cell).unwrap_or(last).min(last));
        }
        let step = step.filter(|step| *step <= self.last)?;
        let held = |cell: &u16| (self.span(*cell).0..self.span(*cell).1).contains(&step);
        (0..self.cells).find(held)
    }

    /// Steps a cell, rounded.
    pub(super) fn steps(&self) -> u64 {
        let steps = self.pieces().saturating_mul(self.least.max(1)) as f64;
        ((steps / f64::from(self.cells.max(1))).round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_all_steps_in_order() {
        for (first, last, least, cells) in [
            (2, 7, 1, 47),
            (1, 12_400, 64, 47),
            (1, 12_400, 64, 166),
            (1, 240, 1, 47),
            (1, 2, 1, 3),
            (1, 1, 1, 1),
        ] {
            let axis = Axis { first, last, least, cells, times: None };
            let spans: Vec<_> = (0..cells).map(|cell| axis.span(cell)).collect();
            assert!(spans.is_sorted() && spans.iter().all(|(from, to)| from < to), "{axis:?}");
            assert!(spans.windows(2).all(|pair| pair[1].0 <= pair[0].1), "{axis:?} leaves nothing out");
            assert!(spans[0].0 == first && spans[spans.len() - 1].1 > last, "{axis:?}");
            let cell = |step| axis.cell(Some(step), Stamp(0));
            assert!((first..=last).all(|step| cell(step).is_some()), "{axis:?}");
            assert_eq!((cell(last + 1), cell(first - 1)), (None, None));
        }
    }

    #[test]
    fn a_slow_step_is_as_wide_as_the_time_that_it_took() {
        let mut ended = ByStep::<Ended>::new(240);
        // step 3 takes seven seconds, all others one
        for (step, second) in [(1, 1), (2, 2), (3, 9), (4, 10), (5, 11)] {
            ended.at(step).take(Stamp(second * 1_000_000));
        }
        let times = Times::of(&ended, (1, 5), 10).unwrap();
        assert_eq!((times.from, times.to), (Stamp(1_000_000), Stamp(11_000_000)));
        let axis = Axis { first: 1, last: 5, least: 1, cells: 10, times: Some(times) };
        let spans: Vec<_> = (0..10).map(|cell| axis.span(cell)).collect();
        let of_slow = spans.iter().filter(|(from, to)| (*from..*to).contains(&3)).count();
        assert_eq!((spans[0], spans[9], of_slow), ((1, 3), (4, 6), 8), "{spans:?}");
        assert_eq!(axis.cell(None, Stamp(6_000_000)), Some(5));
        assert_eq!([0, 12].map(|second| axis.cell(Some(3), Stamp(second * 1_000_000))), [None, None]);
        assert_eq!(axis.cell(None, Stamp(11_000_000)), Some(9));
        assert_eq!(Times::of(&ended, (7, 9), 10), None);
    }

    #[test]
    fn many_steps_in_few_points_stay_in_order() {
        let mut ended = ByStep::<Ended>::new(16);
        for step in 1..=1_000 {
            ended.at(step).take(Stamp(step as i64 * 1_000));
        }
        let times = Times::of(&ended, (1, 1_000), 60).unwrap();
        assert!(times.spans.is_sorted() && times.spans.windows(2).all(|pair| pair[1].0 <= pair[0].1));
        assert!(times.spans[0].0 == 1 && times.spans[59].1 > 1_000, "{:?}", times.spans);
    }
}
