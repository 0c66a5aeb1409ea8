//! Columns of a lane in which steps are too short to be seen, or are no longer held: the shares that the phases took, as a stack in
//! one cell.
//!
//! A cell of a terminal has two colours. It shows the two phases that took the most, in eighths; in as many columns as the share
//! of the others asks for, one of the others stands in place of one of the two. Which columns these are is a matter of their place
//! alone: equal lanes look equal, and over a stretch of columns each phase has the part that it took.

use ratatui::style::Style;

use crate::domain::timing::Phase;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::bars::column as lowest;
use crate::tui::canvas::theme::letter;

/// Microseconds a phase, indexed as [`Phase::ALL`].
pub(super) type Totals = [u64; Phase::COUNT];

/// Eighths of a cell.
const SUB: u8 = 8;
/// So many of them one of the others takes at least where it stands.
const OTHER: f64 = 4.0;
/// The golden ratio, of 2^32: its multiples are spread evenly over any stretch of columns.
const GOLDEN: u32 = 0x9E37_79B9;

/// What a cell shows: so many eighths from below of one phase, the rest of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stack {
    below: Phase,
    eighths: u8,
    above: Phase,
}

impl Stack {
    /// Two phases, the one that comes first in a step below; `eighths` of the first of these.
    fn of(one: Phase, eighths: u8, other: Phase) -> Self {
        if one.index() < other.index() {
            Self { below: one, eighths, above: other }
        } else {
            Self { below: other, eighths: SUB - eighths, above: one }
        }
    }
}

/// The place of a column in the order in which columns show the others: 0..1.
fn turn(column: u16) -> f64 {
    f64::from(u32::from(column).wrapping_mul(GOLDEN)) / (f64::from(u32::MAX) + 1.0)
}

/// The two phases that took the most; of as much the one that comes first.
fn main_two(totals: &Totals) -> (Phase, Phase) {
    let us = |phase: Phase| totals[phase.index()];
    let (mut first, mut second) = (Phase::Data, Phase::Forward);
    for phase in Phase::ALL.into_iter().skip(1) {
        if us(phase) > us(first) {
            (first, second) = (phase, first);
        } else if us(phase) > us(second) {
            second = phase;
        }
    }
    (first, second)
}

/// What a cell shows of these phases; `None` where none took any time.
fn stack(totals: &Totals, turn: f64) -> Option<Stack> {
    let us = |phase: Phase| totals[phase.index()] as f64;
    let (first, second) = main_two(totals);
    let main = us(first) + us(second);
    if main <= 0.0 {
        return None;
    }
    let others = || Phase::ALL.into_iter().filter(move |phase| ![first, second].contains(phase));
    let rest: f64 = others().map(us).sum();
    let of_first = us(first) / main;
    let eighths = f64::from(SUB) * rest / (main + rest);
    let taken = eighths.ceil().max(OTHER);
    let in_turn = eighths / taken;
    if turn >= in_turn {
        let place = (turn - in_turn) / (1.0 - in_turn);
        let eighths = (of_first * f64::from(SUB) + place) as u8;
        return Some(Stack::of(first, eighths.min(SUB), second));
    }
    let mut left = turn / in_turn * rest;
    let other = others().find(|phase| {
        let is_it = left < us(*phase);
        left -= if is_it { 0.0 } else { us(*phase) };
        is_it
    })?;
    let beside = if left < us(other) * of_first { first } else { second };
    Some(Stack::of(other, taken as u8, beside))
}

/// The phase that a cell without colours shows: over a stretch of columns each as often as its share asks for.
fn one_of(totals: &Totals, turn: f64) -> Option<Phase> {
    let mut left = turn * totals.iter().sum::<u64>() as f64;
    Phase::ALL.into_iter().find(|phase| {
        let us = totals[phase.index()] as f64;
        let is_it = left < us;
        left -= us;
        is_it
    })
}

/// Draws the columns from `x` on in which a phase took some time, over what stands there.
pub(super) fn draw(canvas: &mut Canvas<'_>, (x, y): (u16, u16), columns: &[Totals]) {
    for (at, totals) in (0..).zip(columns) {
        if !canvas.theme.is_colored() {
            if let Some(phase) = one_of(totals, turn(at)) {
                let style = Style::reset().patch(canvas.theme.text);
                canvas.glyph(x + at, y, letter(phase), style);
            }
            continue;
        }
        let Some(Stack { below, eighths, above }) = stack(totals, turn(at)) else { continue };
        let [below, above] = [below, above].map(|phase| canvas.theme.phase(phase).0);
        let (glyph, style) = match eighths {
            0 => (' ', Style::reset().bg(above)),
            SUB.. => (' ', Style::reset().bg(below)),
            some => (lowest(some.into()), Style::reset().fg(below).bg(above)),
        };
        canvas.glyph(x + at, y, glyph, style);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The eighths of each phase in so many columns that are alike.
    fn eighths(totals: &Totals, from: u16, columns: u16) -> [u32; Phase::COUNT] {
        let mut sums = [0; Phase::COUNT];
        for stack in (from..from + columns).filter_map(|column| stack(totals, turn(column))) {
            sums[stack.below.index()] += u32::from(stack.eighths);
            sums[stack.above.index()] += u32::from(SUB - stack.eighths);
        }
        sums
    }

    #[test]
    fn two_phases_are_stacked_in_the_order_of_a_step() {
        let (data, forward, backward) = (Phase::Data, Phase::Forward, Phase::Backward);
        let seen = |totals: Totals| [0.0, 0.3, 0.6, 0.9].map(|turn| stack(&totals, turn).unwrap());
        let cell = |below, eighths, above| Stack { below, eighths, above };
        assert_eq!(seen([0, 30, 10, 0, 0, 0, 0]), [cell(forward, 6, backward); 4]);
        assert_eq!(seen([30, 0, 10, 0, 0, 0, 0]), [cell(data, 6, backward); 4]);
        assert_eq!(seen([10, 0, 30, 0, 0, 0, 0]), [cell(data, 2, backward); 4]);
        // one alone fills it, whichever stands beside it
        for totals in [[0, 7, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 7]] {
            assert!(seen(totals).iter().all(|cell| {
                let of = |phase: Phase, eighths: u8| eighths == 0 || totals[phase.index()] > 0;
                of(cell.below, cell.eighths) && of(cell.above, SUB - cell.eighths)
            }));
        }
        assert_eq!((stack(&[0; Phase::COUNT], 0.5), one_of(&[0; Phase::COUNT], 0.5)), (None, None));
    }

    #[test]
    fn what_took_little_is_seen_in_few_columns_and_the_rest_stay_alike() {
        // 4 of 100 in eighths of half a cell: one of 12 columns and a half
        let totals = [0, 24, 72, 0, 0, 4, 0];
        let cells: Vec<Stack> = (0..200).filter_map(|column| stack(&totals, turn(column))).collect();
        let others = cells.iter().filter(|cell| cell.above == Phase::Optimizer).count();
        assert!((15..=17).contains(&others), "{others}");
        let usual = Stack { below: Phase::Forward, eighths: 2, above: Phase::Backward };
        assert_eq!(cells.iter().filter(|cell| **cell == usual).count(), 200 - others);
    }

    proptest! {
        #[test]
        fn over_a_stretch_of_columns_each_phase_has_its_share(
            totals in prop::array::uniform7(0..100_000u64),
            from in 0..400u16,
        ) {
            let all: u64 = totals.iter().sum();
            prop_assume!(all > 0);
            let columns = 89;
            let seen = eighths(&totals, from, columns);
            let mut letters = [0u32; Phase::COUNT];
            for phase in (from..from + columns).filter_map(|column| one_of(&totals, turn(column))) {
                letters[phase.index()] += 1;
            }
            prop_assert_eq!(letters.iter().sum::<u32>(), u32::from(columns));
            for phase in Phase::ALL.map(Phase::index) {
                let share = totals[phase] as f64 / all as f64;
                let stacked = f64::from(seen[phase]) / f64::from(u32::from(columns) * u32::from(SUB));
                let lettered = f64::from(letters[phase]) / f64::from(columns);
                prop_assert!((stacked - share).abs() < 0.04, "{} {} {}", phase, stacked, share);
                prop_assert!((lettered - share).abs() < 0.04, "{} {} {}", phase, lettered, share);
            }
        }
    }
}
