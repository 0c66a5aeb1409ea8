//! Secret values: what stands in their place, and how they are found in text. Pure.
//!
//! A secret variable is written `NAME=•••` wherever a run is described; its value is held apart and goes to the
//! hosts with the order to start, for the ranks' environment alone.

mod forms;
pub mod guessed;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use super::event::Event;
use super::log_text::floor_boundary;

/// What stands in the place of a secret value, however long that is.
pub const MASK: &str = "•••";

/// What stands in the place of each byte of a secret value on its way from a host, so that offsets stay what they are. No
/// text in UTF-8 has it; [`text`] makes [`MASK`] of a row of them.
pub const MASKED_BYTE: u8 = 0xff;

/// A shorter value is not looked for in text: it would be found everywhere.
const LEAST: usize = 8;

/// Of fewer bytes it cannot be said that they are a part of a value.
pub const TELLING: usize = LEAST / 2;

/// The text of bytes from a host: [`MASK`] where values were, other bytes that are not UTF-8 replaced.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    // a single one is no value's
    while let Some(at) = memmem::find(rest, &[MASKED_BYTE, MASKED_BYTE]) {
        let (before, from) = rest.split_at(at);
        let end = from.iter().position(|byte| *byte != MASKED_BYTE).unwrap_or(from.len());
        text.push_str(&String::from_utf8_lossy(before));
        text.push_str(MASK);
        rest = from.get(end..).unwrap_or_default();
    }
    text.push_str(&String::from_utf8_lossy(rest));
    text
}

/// Values to be hidden in text. They don't show in debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Masks(Vec<String>);

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masks({})", self.0.len())
    }
}

impl Masks {
    /// Hides these values, of one with several lines each line; and them as they are written in JSON, in addresses, in
    /// quotes of a shell and in base64.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self(values.into_iter().flat_map(forms::of).collect()).sorted()
    }

    fn sorted(mut self) -> Self {
        // The longer first: one may be a part of another.
        self.0.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.0.dedup();
        self
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same as these and `other` together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect()).sorted()
    }

    /// The length of the longest value in bytes; 0 when there is nothing to hide.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// Where the values stand in these bytes, in order and apart from each other; and the parts of those that a line's end,
    /// or that of the bytes, has cut in two.
    pub fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for mask in &self.0 {
            let mask = mask.as_bytes();
            let (Some(head), Some(tail)) = (mask.get(..LEAST), mask.get(mask.len() - LEAST..)) else {
                continue;
            };
            // one may begin within another
            let mut from = 0;
            while let Some(at) = bytes.get(from..).and_then(|rest| memmem::find(rest, head)) {
                let here = bytes.get(from + at..).unwrap_or_default();
                let same = here.iter().zip(mask).take_while(|(one, other)| one == other).count();
                let ends = || here.get(same).is_none_or(|byte| matches!(byte, b'\n' | b'\r'));
                if same == mask.len() || ends() {
                    found.push(from + at..from + at + same);
                }
                from += at + 1;
            }
            found.extend(memmem::find_iter(bytes, tail).filter_map(|at| {
                let (before, end) = (bytes.get(..at).unwrap_or_default(), at + LEAST);
                let rest = mask.get(..mask.len() - LEAST).unwrap_or_default();
                let same = before.iter().rev().zip(rest.iter().rev()).take_while(|(a, b)| a == b).count();
                let begins = before
                    .get(..at - same)
                    .is_none_or(|b| b.last().is_none_or(|b| matches!(b, b'\n' | b'\r')));
                // of a whole value this says no more than its beginning did
                begins.then(|| at - same..end)
            }));
        }
        found.sort_unstable_by_key(|range| range.start);
        found.dedup_by(|later, earlier| {
            let joined = later.start <= earlier.end;
            if joined {
                earlier.end = earlier.end.max(later.end);
            }
            joined
        });
        found
    }

    /// How many bytes at the beginning may be the end of a value of which the rest is missing.
    pub fn torn(&self, bytes: &[u8]) -> usize {
        let torn = |mask: &String| {
            let most = (mask.len() - 1).min(bytes.len());
            (TELLING..=most).rev().find(|n| bytes.starts_with(&mask.as_bytes()[mask.len() - n..]))
        };
        self.0.iter().filter_map(torn).max().unwrap_or(0)
    }

    /// How many bytes at the end may be the beginning of a value of which the rest is still to come.
    pub fn begun(&self, bytes: &[u8]) -> usize {
        let begun = |mask: &String| {
            let most = (mask.len() - 1).min(bytes.len());
            (1..=most).rev().find(|n| bytes.ends_with(&mask.as_bytes()[..*n]))
        };
        self.0.iter().filter_map(begun).max().unwrap_or(0)
    }

    /// The text without the values.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut hidden, mut from) = (String::with_capacity(text.len()), 0);
        for range in found {
            // a part of a value may end within a character
            let begin = floor_boundary(text, range.start).max(from);
            hidden.push_str(text.get(from..begin).unwrap_or_default());
            hidden.push_str(MASK);
            from = (range.end..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        }
        hidden.push_str(text.get(from..).unwrap_or_default());
        Cow::Owned(hidden)
    }

    /// The text without the values, where it is the beginning of a longer one: a value may be cut by its end.
    fn hide_cut(&self, text: &str) -> String {
        let hidden = self.hide(text);
        let begins = |mask: &String| {
            // a whole one is hidden already
            let most = mask.len().min(hidden.len());
            (TELLING..=most).rev().find(|n| mask.is_char_boundary(*n) && hidden.ends_with(&mask[..*n]))
        };
        match self.0.iter().filter_map(begins).max() {
            Some(cut) => format!("{}{MASK}", &hidden[..hidden.len() - cut]),
            None => hidden.into_owned(),
        }
    }

    /// The event with the values hidden in every text of it that a rank or a host has written.
    pub fn apply(&self, mut event: Event) -> Event {
        if self.0.is_empty() {
            return event;
        }
        let hide = |text: &mut String| *text = self.hide(text).into_owned();
        match &mut event {
            Event::LogPrinted { line } if line.elided > 0 => {
                let line = Arc::make_mut(line);
                line.text = self.hide_cut(&line.text);
            }
            // the end of each of its rows is not there yet
            Event::LogUnfinished { line } => {
                let line = Arc::make_mut(line);
                let rows: Vec<String> = line.text.split('\n').map(|row| self.hide_cut(row)).collect();
                line.text = rows.join("\n");
            }
            Event::LogPrinted { line } => hide(&mut Arc::make_mut(line).text),
            Event::Gap { what, .. } => hide(what),
            Event::JobDescribed { job, transport, facts, .. } => {
                hide(job);
                transport.iter_mut().chain(&mut facts.off).chain(&mut facts.missing).for_each(&hide);
                facts.versions.values_mut().for_each(hide);
            }
            Event::MetricReported { name, .. } => hide(name),
            Event::CollectiveDone { timing } => {
                hide(&mut timing.func);
                hide(&mut timing.datatype);
            }
            Event::CollectivesTold { told, .. } => told.texts_mut().for_each(hide),
            Event::JobDone { weights } => weights.iter_mut().for_each(hide),
            Event::RankExited { exit } => exit.error.iter_mut().chain(&mut exit.cause).for_each(hide),
            Event::RunNoted { note, .. } => hide(&mut note.text),
            _ => {}
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::log_line;
    use crate::domain::log::{LogLine, Stream};

    #[test]
    fn values_are_hidden_wherever_they_stand() {
        let masks =
            Masks::new(["hunter2hunter2", "short", "-----BEGIN\nc2VjcmV0Cg==\n-----END", "hunter2hunter2x"]);
        assert_eq!(masks.hide("a=hunter2hunter2, b=short"), "a=•••, b=short");
        assert_eq!(masks.hide("hunter2hunter2x"), "•••", "the longer one first");
        assert_eq!(masks.hide("c2VjcmV0Cg=="), "•••");
        assert_eq!(masks.hide("plain"), "plain");
        assert!(!format!("{masks:?}").contains("hunter"));
        assert_eq!(Masks::default().hide("hunter2hunter2"), "hunter2hunter2");
    }

    #[test]
    fn values_are_found_in_bytes_and_show_as_one_mask_whatever_their_length() {
        let masks = Masks::new(["hunter2hunter2", "2hunter2-and-more"]);
        let mut bytes = b"\xffa=hunter2hunter2-and-more, hunter2hunter2".to_vec();
        let found = masks.find(&bytes);
        assert_eq!(found, [3..26, 28..42]);
        for range in found {
            bytes[range].fill(MASKED_BYTE);
        }
        assert_eq!(text(&bytes), "\u{fffd}a=•••, •••", "a single byte that is no text is no value");
        assert_eq!(text(&[MASKED_BYTE; 8]), MASK);
        assert_eq!(text("ä".as_bytes()), "ä");
    }

    #[test]
    fn a_value_is_hidden_in_whatever_form_a_program_writes_it() {
        let value = "p\"ss/w\u{f6}rd&'x y\\";
        let masks = Masks::new([value]);
        for form in [
            r#"p\"ss/wörd&'x y\\"#,
            r#"p\"ss/w\u00f6rd&'x y\\"#,
            "p%22ss%2Fw%C3%B6rd%26%27x%20y%5C",
            "p%22ss/w%c3%b6rd%26%27x%20y%5c",
            "p%22ss%2Fw%C3%B6rd%26%27x+y%5C",
            "p\"ss/wörd&'\\''x y\\",
        ] {
            assert_eq!(
                masks.hide(&format!("<{form}>")).trim_end_matches("=>").trim_end_matches('>'),
                "<•••",
                "{form}"
            );
        }
        // within something longer: `user:hunter2hunter2!` and one byte more before it
        let masks = Masks::new(["hunter2hunter2"]);
        for basic in [
            "dXNlcjpodW50ZXIyaHVudGVyMiE=",
            "dXNlcnM6aHVudGVyMmh1bnRlcjIh",
            "dXNlcnM6Omh1bnRlcjJodW50ZXIyIQ==",
        ] {
            let hidden = masks.hide(basic);
            assert!(hidden.contains(MASK) && hidden.len() < 24, "{basic}: {hidden}");
        }
    }

    #[test]
    fn a_value_that_a_line_end_cuts_in_two_is_hidden_on_both_lines() {
        let masks = Masks::new(["hunter2hunter2-hunter3"]);
        assert_eq!(masks.hide("a=hunter2hunter\n2-hunter3, b"), "a=•••\n•••, b");
        assert_eq!(masks.hide("a=hunter2hunter\r\n2-hunter3, b"), "a=•••\r\n•••, b");
        assert_eq!(masks.hide("a=hunter2hunter 2-hunter3, b"), "a=hunter2hunter 2-hunter3, b", "other words");
        let long = "0123456789abcdef".repeat(1000);
        let masks = Masks::new([long.as_str()]);
        assert!(masks.longest() <= 4096, "no value is longer than a piece of a file: {}", masks.longest());
        assert_eq!(masks.hide(&format!("<{long}>")), "<•••>");
    }

    #[test]
    fn the_beginning_of_a_value_at_the_end_is_known() {
        let masks = Masks::new(["hunter2hunter2", "h2o-is-water"]);
        for (text, begun) in
            [("", 0), ("xy", 0), ("a h", 1), ("a hunter2", 7), ("hunter2hunter", 13), ("h2", 2)]
        {
            assert_eq!(masks.begun(text.as_bytes()), begun, "{text}");
        }
        assert_eq!(masks.begun(b"hunter2hunter2"), 7, "its end is its beginning too");
        assert_eq!(Masks::default().begun(b"hunter"), 0);
        let torn = ["r2hunter2, x", "er2", "ter2\n", "hunter2hunter2", "water"]
            .map(|text| masks.torn(text.as_bytes()));
        assert_eq!(torn, [9, 0, 4, 7, 5]);
    }

    #[test]
    fn a_line_that_was_cut_within_a_value_does_not_show_its_beginning() {
        let masks = Masks::new(["hunter2hunter2"]);
        let line = |text: &str, elided| LogLine { stream: Stream::Stdout, elided, ..log_line(0, text) };
        let shown = |line| match masks.apply(Event::LogPrinted { line: Arc::new(line) }) {
            Event::LogPrinted { line } => line.text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(line("x hunter2hunter", 9)), "x •••");
        assert_eq!(
            shown(line("x hunter2hunter", 0)),
            "x •••",
            "so much of a value is hidden at a line's end"
        );
        assert_eq!(shown(line("x hunter2hunter y", 0)), "x hunter2hunter y", "it is another word");
        assert_eq!(shown(line("x hunter2hunter2", 9)), "x •••");
        assert_eq!(shown(line("x hunte", 9)), "x •••", "four and more at the end of a line that goes on");
        assert_eq!(shown(line("x hunte", 0)), "x hunte", "the line has ended: it is another word");
        let unfinished = Event::LogUnfinished { line: Arc::new(line("x hunter2hunter", 0)) };
        let Event::LogUnfinished { line } = masks.apply(unfinished) else { panic!("another event") };
        assert_eq!(line.text, "x •••");
    }

    #[test]
    fn values_are_joined_and_told_by_their_number_alone() {
        let (one, other) = (Masks::new(["hunter2hunter2"]), Masks::new(["0123456789abcdef"]));
        assert!(!one.is_empty() && Masks::default().is_empty());
        assert_eq!(one.and(&other).hide("hunter2hunter2 0123456789abcdef"), "••• •••");
        assert_eq!(format!("{one:?}"), format!("Masks({})", one.0.len()));
    }

    #[test]
    fn no_event_of_a_rank_or_a_host_shows_a_value() {
        let masks = Masks::new(["hunter2hunter2"]);
        let events = [
            r#"{"type":"gap","what":"@","dropped":1}"#,
            r#"{"type":"job_described","job":"@","transport":"@","total_steps":null,"facts":{"versions":{"torch":"@"},"missing":["@"],"off":"@"}}"#,
            r#"{"type":"metric_reported","name":"@","value":1.0,"step":null}"#,
            r#"{"type":"collective_done","timing":{"comm":"0000000000000007","ranks":1,"comm_rank":0,"func":"@","seq":1,"datatype":"@","dur_ns":1}}"#,
            r#"{"type":"collectives_told","host":"a","told":{"processes":[],"ras":{"version":"@","differences":[]}}}"#,
            r#"{"type":"job_done","weights":"@"}"#,
            r#"{"type":"rank_exited","exit":{"code":1,"signal":null,"t":1,"error":"@","stopped":false,"cause":"@"}}"#,
            r#"{"type":"run_noted","host":"a","note":{"what":"gone","text":"@","t":1}}"#,
        ];
        for text in events {
            let read =
                |text: &str| serde_json::from_str::<Event>(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let shown = masks.apply(read(&text.replace('@', "x hunter2hunter2")));
            assert_eq!(shown, read(&text.replace('@', "x •••")));
        }
    }

    #[test]
    fn no_unfinished_row_shows_the_beginning_of_a_value() {
        let masks = Masks::new(["hunter2hunter2"]);
        let shown = |text: &str| {
            let line = LogLine { stream: Stream::Stdout, ..log_line(0, text) };
            match masks.apply(Event::LogUnfinished { line: Arc::new(line) }) {
                Event::LogUnfinished { line } => line.text.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(shown("a hunter2hunter\nb hunter2hunter2 c\nd hunter2"), "a •••\nb ••• c\nd •••");
        assert_eq!(shown("a hunter2\n"), "a •••\n");
        assert_eq!(shown("a\nhunter\nb"), "a\n•••\nb");
    }
}
