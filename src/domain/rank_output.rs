//! What a rank prints now: of each stream what has not ended yet, and what its last lines say of the next one's level and
//! colours. A fold.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::log::{LogLine, Stream};
use super::log_text::{self, carried::Carried};
use super::time::Stamp;
use super::world::LoggedLine;

/// Standard output and error of one rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RankOutput {
    streams: [StreamOutput; 2],
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct StreamOutput {
    unfinished: Option<Arc<LoggedLine>>,
    carried: Carried,
}

impl RankOutput {
    /// The lines that have not ended yet, the one of standard output first.
    pub fn unfinished_lines(&self) -> impl Iterator<Item = &Arc<LoggedLine>> {
        self.streams.iter().filter_map(|stream| stream.unfinished.as_ref())
    }

    /// A whole line: it takes the place of the unfinished one. Several unfinished rows stay until the next are told.
    pub fn line(&mut self, at: Stamp, line: &Arc<LogLine>) -> Arc<LoggedLine> {
        let Some(stream) = self.stream(line.stream) else {
            return Arc::new(LoggedLine::alone(at, Arc::clone(line)));
        };
        stream.unfinished = stream.unfinished.take().filter(|rows| rows.line.text.contains('\n'));
        let (level, style) = stream.carried.next(line);
        Arc::new(LoggedLine { at, line: Arc::clone(line), gap: false, level, style })
    }

    /// Whether the line that this stream had last is one of a traceback that another one names.
    pub fn is_part(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.streams[0].carried.is_part(),
            Stream::Stderr => self.streams[1].carried.is_part(),
            Stream::Report => false,
        }
    }

    /// The beginning of a line, or the newest state of one; given back where there is something to see.
    pub(super) fn unfinished(&mut self, at: Stamp, line: &Arc<LogLine>) -> Option<Arc<LoggedLine>> {
        let stream = self.stream(line.stream)?;
        let is_blank = log_text::rows(&line.text).all(|row| log_text::plain(row).trim().is_empty());
        let style = stream.carried.style();
        let logged =
            (!is_blank).then(|| Arc::new(LoggedLine { style, ..LoggedLine::alone(at, Arc::clone(line)) }));
        stream.unfinished.clone_from(&logged);
        logged
    }

    /// Bytes are missing: what there was of a line has been told as one.
    pub(super) fn gap(&mut self, stream: Stream) {
        if let Some(stream) = self.stream(stream) {
            *stream = StreamOutput::default();
        }
    }

    fn stream(&mut self, stream: Stream) -> Option<&mut StreamOutput> {
        match stream {
            Stream::Stdout => Some(&mut self.streams[0]),
            Stream::Stderr => Some(&mut self.streams[1]),
            Stream::Report => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;
    use crate::domain::log_text::level::Level;

    fn line(stream: Stream, text: &str) -> Arc<LogLine> {
        Arc::new(LogLine { rank: Rank(0), stream, offset: 0, text: text.into(), elided: 0, t: None })
    }

    #[test]
    fn a_whole_line_takes_the_place_of_the_unfinished_one() {
        let mut output = RankOutput::default();
        let shown = |output: &RankOutput| -> Vec<String> {
            output.unfinished_lines().map(|line| line.line.text.clone()).collect()
        };
        assert!(output.unfinished(Stamp(1), &line(Stream::Stderr, "10%")).is_some());
        assert!(output.unfinished(Stamp(2), &line(Stream::Stdout, "name? ")).is_some());
        assert_eq!(shown(&output), ["name? ", "10%"]);
        output.line(Stamp(3), &line(Stream::Stderr, "100%"));
        assert_eq!(shown(&output), ["name? "]);
        assert_eq!(
            output.unfinished(Stamp(4), &line(Stream::Stdout, "     ")),
            None,
            "a bar that was wiped away"
        );
        assert_eq!(shown(&output), [""; 0]);
        output.unfinished(Stamp(5), &line(Stream::Stdout, "x"));
        output.gap(Stream::Stdout);
        assert_eq!(shown(&output), [""; 0]);
    }

    #[test]
    fn several_rows_stay_until_the_next_are_told() {
        let mut output = RankOutput::default();
        output.unfinished(Stamp(1), &line(Stream::Stderr, "epoch 1%\nstep 10%"));
        output.line(Stamp(2), &line(Stream::Stderr, "loss 0.5"));
        assert_eq!(output.unfinished_lines().count(), 1);
        assert_eq!(output.unfinished(Stamp(3), &line(Stream::Stderr, "")), None);
        assert_eq!(output.unfinished_lines().count(), 0);
    }

    #[test]
    fn a_colour_goes_on_in_the_next_line_of_its_stream() {
        let mut output = RankOutput::default();
        let mut ink = |stream, text| output.line(Stamp(1), &line(stream, text)).style.fg;
        assert_eq!(ink(Stream::Stderr, "\u{1b}[31mno"), None);
        assert_eq!(ink(Stream::Stdout, "yes"), None);
        assert_eq!(ink(Stream::Stderr, "space\u{1b}[0m"), Some(log_text::Colour::Basic(1)));
        assert_eq!(ink(Stream::Stderr, "left"), None);
    }

    #[test]
    fn a_traceback_of_one_stream_says_nothing_of_the_other() {
        let mut output = RankOutput::default();
        output.line(Stamp(1), &line(Stream::Stderr, "Traceback (most recent call last):"));
        assert_eq!(output.line(Stamp(2), &line(Stream::Stdout, "  step 3")).level, Level::Unknown);
        assert_eq!(output.line(Stamp(3), &line(Stream::Stderr, "  File \"x.py\"")).level, Level::Error);
    }
}
