//! What the lines of one stream of one rank say of the next one: its level, and the colours that no line has ended. Pure.

use serde::{Deserialize, Serialize};

use super::level::{Level, Levels};
use super::sgr::Style;
use crate::domain::log::LogLine;

/// Where a stream stands between two lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Carried {
    levels: Levels,
    style: Style,
}

impl Carried {
    /// The style in which the next line begins.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Whether the line that was taken in last is one of a traceback that another one names.
    pub fn is_part(&self) -> bool {
        self.levels.is_part()
    }

    /// Takes in a whole line: its level, and the style in which it begins.
    pub fn next(&mut self, line: &LogLine) -> (Level, Style) {
        let style = self.style;
        // the end of a colour may be among what was left out
        self.style = if line.elided > 0 { Style::default() } else { style.after(&line.text) };
        (self.levels.next(&line.text), style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;
    use crate::domain::log::Stream;
    use crate::domain::log_text::{Colour, plain};

    fn line(text: &str, elided: u64) -> LogLine {
        LogLine { rank: Rank(0), stream: Stream::Stderr, offset: 0, text: text.to_owned(), elided, t: None }
    }

    /// The real colorlog 6.12: a warning of three lines, then two records of one.
    #[test]
    fn a_real_record_of_several_lines_has_one_colour() {
        const LOG: &str = include_str!("../../../tests/fixtures/progress/colorlog.err");
        let mut carried = Carried::default();
        let shown: Vec<_> = LOG
            .lines()
            .map(|text| {
                let (_, style) = carried.next(&line(text, 0));
                let ink = super::super::spans_from(style, text).first().and_then(|span| span.style.fg);
                (plain(text).into_owned(), ink)
            })
            .collect();
        let (yellow, green) = (Some(Colour::Basic(3)), Some(Colour::Basic(2)));
        let wanted = [
            ("WARNING loader: slow", yellow),
            ("  shard 3: 2.1 s", yellow),
            ("  shard 7: 1.9 s", yellow),
            ("INFO epoch 1", green),
            ("INFO epoch 2", green),
        ];
        let wanted: Vec<_> = wanted.map(|(text, ink)| (text.to_owned(), ink)).into();
        assert_eq!(shown, wanted);
        assert_eq!(carried.style(), Style::default());
    }

    #[test]
    fn a_colour_ends_where_its_end_may_have_been_left_out() {
        let mut carried = Carried::default();
        carried.next(&line("\u{1b}[31mred", 0));
        assert_eq!(carried.next(&line("x", 7)).1.fg, Some(Colour::Basic(1)));
        assert_eq!(carried.next(&line("x", 0)).1, Style::default());
    }
}
