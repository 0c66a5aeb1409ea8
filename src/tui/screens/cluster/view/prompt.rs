//! The two lines in which a filter is typed: the text, and below it how many GPUs pass and what tab offers, or carets
//! below what can't be read.
//!
//! ```text
//! filter utl<5 & free
//!        ^^^ unknown field 'utl': did you mean util?
//! ```

use crate::domain::filter::FilterError;
use crate::domain::text::sanitize;
use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::filtering::{Sieve, Typing};
use crate::tui::screens::overlay::prompt::Prompt;
use crate::tui::screens::view::footer::{begin, demo_mark};

/// A reason that is longer than a line begins beside the carets where it has so many columns there.
const BESIDE: u16 = 24;

/// Draws the lines; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>, prompt: &Prompt) -> (u16, u16) {
    let w = canvas.width();
    let (accent, text, bad, dim) =
        (canvas.theme.accent, canvas.theme.text, canvas.theme.bad, canvas.theme.dim);
    let x = begin(model) + width(prompt.label()) + 1;
    let room = w.saturating_sub(x + 1);
    let scroll = prompt.input.visual_scroll(usize::from(room.saturating_sub(1)));
    let value = prompt.input.value();
    let typing = &model.ui.cluster.typing;
    let told = typing.fault.as_ref().map(|fault| (fault, Told::of(fault, value, (x, room, scroll), w)));
    let rows = told.as_ref().map_or(1, |(_, told)| told.lines.len()) as u16;
    let y = canvas.height().saturating_sub(1 + rows);
    canvas.clear(0, y, w, 1 + rows);
    let label = demo_mark(model, canvas, y);
    canvas.text(label, y, w - 2, prompt.label(), accent);
    canvas.text(x, y, room, skip_columns(value, scroll), text);
    let below = y + 1;
    let (end, last) = if let Some((fault, told)) = told {
        // What is missing at the end may still come.
        let unfinished = fault.at.start >= value.trim_end().len();
        let style = if unfinished { dim } else { bad };
        let (at, length) = told.carets;
        canvas.text(at.min(w - 1), below, length, &"^".repeat(usize::from(length)), style);
        let mut end = 0;
        for ((column, line), row) in told.lines.iter().zip(below..) {
            end = canvas.text(*column, row, width(line), line, style);
        }
        (if rows == 1 { end.max(at + length + 1) } else { end }, below + rows - 1)
    } else {
        let counts = format!("{} match", Sieve::of(model).counts());
        (canvas.text(x, below, room, &counts, dim), below)
    };
    offers(canvas, typing, end + 3, last);
    let cursor = x + (prompt.input.visual_cursor().saturating_sub(scroll)) as u16;
    (cursor.min(w - 1), y)
}

/// Where a fault is shown.
struct Told {
    /// The first column and the number of the carets.
    carets: (u16, u16),
    /// The reason, from the line of the carets on, each with its first column.
    lines: Vec<(u16, String)>,
}

impl Told {
    /// Of a text from column `x` on that has `room` columns and is scrolled by some, on a screen of `w` columns.
    fn of(fault: &FilterError, text: &str, (x, room, scroll): (u16, u16, usize), w: u16) -> Self {
        let (before, length) = fault.columns(text);
        let at = x + before.saturating_sub(scroll).min(usize::from(room)) as u16;
        let length = (length as u16).min(w.saturating_sub(at + 1)).max(1);
        let reason = sanitize(&fault.reason).into_owned();
        let (columns, behind) = (width(&reason), at + length + 1);
        let lines = if behind + columns < w {
            vec![(behind, reason)]
        } else if at >= columns + 2 {
            vec![(at - columns - 1, reason)]
        } else {
            let is_beside = behind + BESIDE < w;
            let from = if is_beside { behind } else { x };
            let own = wrap(&reason, usize::from(w.saturating_sub(from + 1)));
            let first = (!is_beside).then(String::new);
            first.into_iter().chain(own).map(|line| (from, line)).collect()
        };
        Self { carets: (at, length), lines }
    }
}

/// What tab puts at the cursor, as far as there is room.
fn offers(canvas: &mut Canvas<'_>, typing: &Typing, x: u16, y: u16) {
    let Some(offered) = &typing.offered else { return };
    let w = canvas.width();
    let (accent, dim, strong) = (canvas.theme.accent, canvas.theme.dim, canvas.theme.strong());
    let first = offered.options.first().map_or(0, |option| width(option));
    if x + 4 + first + 1 >= w {
        return;
    }
    let mut at = canvas.text(x, y, 3, "tab", strong) + 1;
    for (nth, option) in offered.options.iter().enumerate() {
        if at + width(option) + 1 >= w {
            break;
        }
        let style = if typing.taken == Some(nth) { accent } else { dim };
        at = canvas.text(at, y, width(option), option, style) + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::Filter;

    fn of(text: &str, w: u16) -> (String, Told) {
        let fault = Filter::parse(text).unwrap_err();
        let told = Told::of(&fault, text, (8, w - 9, 0), w);
        (fault.reason, told)
    }

    #[test]
    fn a_reason_is_whole_and_begins_beside_the_carets() {
        for w in [60, 80, 200] {
            let (reason, told) = of("foo<5", w);
            assert_eq!(told.carets, (8, 3));
            let lines: Vec<&str> = told.lines.iter().map(|(_, line)| line.as_str()).collect();
            assert_eq!(lines.join(" "), reason);
            assert!(reason.contains("the fields are util") && (lines.len() == 1) == (w == 200), "{lines:?}");
            assert!(told.lines.iter().all(|(from, line)| *from == 12 && from + width(line) < w), "{lines:?}");
        }
    }

    #[test]
    fn a_reason_that_has_no_room_beside_the_carets_stands_below_them() {
        let (reason, told) = of("util<5 & mem<10% & temp<70 & user!=li & foo<5", 80);
        assert_eq!(told.carets, (48, 3));
        let beside: Vec<&str> = told.lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(beside.join(" "), reason, "28 columns are enough");
        let (reason, told) = of("util<5 & mem<10% & temp<70 & user!=li & age>1h & foo<5", 80);
        assert_eq!(told.lines[0], (8, String::new()));
        let below: Vec<&str> = told.lines.iter().skip(1).map(|(_, line)| line.as_str()).collect();
        assert_eq!(below.join(" "), reason);
        assert!(told.lines.iter().all(|(from, line)| from + width(line) < 80), "{below:?}");
    }
}
