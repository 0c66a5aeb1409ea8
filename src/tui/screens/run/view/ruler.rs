//! The graduation of the timeline: times at round moments, at every zoom.

use ratatui::style::Style;

use crate::domain::time::Stamp;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::words::clock_time;
use crate::tui::core::zone::Zone;
use crate::tui::screens::run::view::lanes::{Part, column};

/// What may lie between two ticks, microseconds: round numbers of what clocks show.
const STEPS: [i64; 32] = [
    10,
    20,
    50,
    100,
    200,
    500,
    MS,
    2 * MS,
    5 * MS,
    10 * MS,
    20 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    500 * MS,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    20 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    24 * HOUR,
];
const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// Stands before each time, in the column of its moment.
const TICK: &str = "╵";

/// Draws it, in the time zone in which moments are told. A time in whose columns something else is to stand is left out.
pub(super) fn draw(canvas: &mut Canvas<'_>, zone: &Zone, y: u16, part: Part, taken: &[u16]) {
    let end = part.start.plus_micros(part.window);
    let dim = canvas.theme.dim;
    let step = step(part.window, part.w);
    canvas.text(1, y, part.x.saturating_sub(2), unit(step), dim);
    let mut at = first(zone, part.start, step);
    let mut free = part.x;
    while at <= end {
        if let Some(x) = column(part, at).filter(|x| *x >= free) {
            free = label(canvas, (x, y), (part.x + part.w, taken), &words(zone, at, step), dim);
        }
        let next = at.plus_micros(step);
        // at the end of all time it stands still
        if next <= at {
            break;
        }
        at = next;
    }
}

/// Whether no part of a time stands in a cell of the row: it is blank, a tick, or the playhead's line.
pub(super) fn is_free(canvas: &mut Canvas<'_>, (x, y): (u16, u16)) -> bool {
    x < canvas.width() && y < canvas.height() && [" ", TICK, "│"].contains(&canvas.cell(x, y).symbol())
}

/// A tick and its time, which is left out where it has no room before `end` or beside what is `taken`; gives the first column
/// behind it.
fn label(
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    (end, taken): (u16, &[u16]),
    words: &str,
    style: Style,
) -> u16 {
    canvas.text(x, y, 1, TICK, style);
    let behind = x + 1 + width(words);
    if behind > end || taken.iter().any(|column| (x + 1..behind).contains(column)) {
        return x + 2;
    }
    canvas.text(x + 1, y, width(words), words, style) + 1
}

/// The least step whose times stand apart from each other.
fn step(window: i64, columns: u16) -> i64 {
    let fits = |step: &&i64| {
        let between = **step as f64 * f64::from(columns) / window.max(1) as f64;
        // the tick, the time, and two blanks
        between >= f64::from(columns_of(**step) + 3)
    };
    let largest = STEPS[STEPS.len() - 1];
    // of a window of weeks whole days, so many that they fit
    let days =
        || largest * (window / largest * i64::from(columns_of(largest) + 3) / i64::from(columns.max(1)) + 1);
    STEPS.iter().find(fits).copied().unwrap_or_else(days)
}

/// How wide the times of a step are.
fn columns_of(step: i64) -> u16 {
    match step {
        ..MS => 10,
        MS..SECOND => 7,
        SECOND..MINUTE => 8,
        MINUTE.. => 5,
    }
}

/// The first round moment from `start` on, by the clocks of the time zone.
fn first(zone: &Zone, start: Stamp, step: i64) -> Stamp {
    let local = zone.local_us(start);
    start.plus_micros(local.wrapping_neg().rem_euclid(step))
}

/// `14:32`, `14:32:05`, of parts of a second `:05.250` and `:05.250300`.
fn words(zone: &Zone, at: Stamp, step: i64) -> String {
    let time = clock_time(at, zone, false);
    let part = zone.local_us(at).rem_euclid(SECOND);
    match step {
        ..MS => format!("{}.{part:06}", &time[5..]),
        MS..SECOND => format!("{}.{:03}", &time[5..], part / MS),
        SECOND..MINUTE => time,
        MINUTE.. => time[..5].to_owned(),
    }
}

/// What the times are, at the left of the ruler.
fn unit(step: i64) -> &'static str {
    match step {
        ..SECOND => "   s",
        SECOND..MINUTE => "   h:m:s",
        MINUTE.. => "   h:m",
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    use super::*;
    use crate::tui::canvas::theme::Theme;
    use crate::tui::canvas::{Caps, ColorDepth};
    use crate::tui::core::ThemeName;

    #[test]
    fn times_are_round_and_stand_apart_at_every_zoom() {
        let zone = Zone::from(3600);
        let start = Stamp(1_795_003_600_123_456);
        let mut window = MS;
        while window <= 40 * 24 * HOUR {
            for columns in [20, 66, 180] {
                let step = step(window, columns);
                let at = first(&zone, start, step);
                assert_eq!(zone.local_us(at) % step, 0);
                assert!(at >= start && at.micros_since(start) < step);
                let told = words(&zone, at, step);
                assert_eq!(told.chars().count(), usize::from(columns_of(step)), "{told}");
                let apart = step as f64 * f64::from(columns) / window as f64;
                assert!(apart >= (told.len() + 2) as f64, "{window} µs in {columns} columns: {apart}");
                // and not so far that there is none
                assert!(columns < 60 || step <= window / 2, "{window} µs in {columns} columns: {step}");
            }
            window = window * 3 / 2;
        }
        assert_eq!(words(&zone, Stamp(1_795_003_600_250_000), 50 * MS), ":40.250");
        assert_eq!(words(&zone, Stamp(1_795_003_600_000_000), 30 * SECOND), "13:06:40");
        assert_eq!(words(&zone, Stamp(1_795_003_600_000_000), HOUR), "13:06");
    }

    #[test]
    fn a_time_is_whole_or_left_out_and_a_line_passes_beside_it() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 60, 1));
        let caps = Caps { color: ColorDepth::None, ascii: false };
        let mut canvas = Canvas::new(&mut buf, Theme::new(caps, ThemeName::Mono));
        // 12:06:40, a tick each five seconds
        let start = Stamp(1_795_003_600_000_000);
        let part = Part { x: 10, w: 50, start, window: 15 * SECOND };
        draw(&mut canvas, &Zone::from(0), 0, part, &[]);
        let row = |canvas: &mut Canvas<'_>| -> String {
            (0..60).map(|x| canvas.cell(x, 0).symbol().to_owned()).collect()
        };
        let whole = row(&mut canvas);
        assert!(whole.contains("╵12:06:40") && whole.contains("╵12:06:45"), "{whole}");
        let tick = whole.chars().position(|one| one == '╵').unwrap() as u16;
        assert!(is_free(&mut canvas, (tick, 0)) && is_free(&mut canvas, (tick + 9, 0)));
        assert!((1..=8).all(|at| !is_free(&mut canvas, (tick + at, 0))));
        assert!(!is_free(&mut canvas, (60, 0)), "there is no such cell");
        canvas.glyph(tick + 9, 0, '│', Style::new());
        assert!(is_free(&mut canvas, (tick + 9, 0)), "an edge stands over the playhead");
        let mut buf = Buffer::empty(Rect::new(0, 0, 60, 1));
        let mut canvas = Canvas::new(&mut buf, Theme::new(caps, ThemeName::Mono));
        draw(&mut canvas, &Zone::from(0), 0, part, &[tick + 3]);
        let other = row(&mut canvas);
        assert!(!other.contains("12:06:40") && other.contains("╵12:06:45"), "{other}");
    }
}
