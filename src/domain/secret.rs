//! Secret values: what stands in their place, and how they are found in text. Pure.
//!
//! A secret variable is written `NAME=•••` wherever a run is described; its value is held apart and goes to the
//! hosts with the order to start, for the ranks' environment alone.

use std::sync::Arc;

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

use super::event::Event;

/// What stands in the place of a secret value.
pub const MASK: &str = "•••";

/// A shorter value is not looked for in text: it would be found everywhere.
const LEAST: usize = 8;

/// Values to be hidden in text. They don't show in debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Masks(Vec<String>);

impl std::fmt::Debug for Masks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masks({})", self.0.len())
    }
}

impl Masks {
    /// Hides these values; of one with several lines, each line.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut masks: Vec<String> = lines.filter(|line| line.len() >= LEAST).map(str::to_owned).collect();
        // The longer first: one may be a part of another.
        masks.sort_by_key(|mask| std::cmp::Reverse(mask.len()));
        masks.dedup();
        Self(masks)
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same as these and `other` together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::new(self.0.iter().chain(&other.0).map(String::as_str))
    }

    /// The length of the longest value in bytes; 0 when there is nothing to hide.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// Where the values stand in these bytes, in order and apart from each other.
    pub fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for mask in &self.0 {
            found.extend(memmem::find_iter(bytes, mask.as_bytes()).map(|at| at..at + mask.len()));
        }
        found.sort_unstable_by_key(|range| range.start);
        found.dedup_by(|later, earlier| {
            let joined = later.start < earlier.end;
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
            (LEAST / 2..=most).rev().find(|n| bytes.starts_with(&mask.as_bytes()[mask.len() - n..]))
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
        let mut text = Cow::Borrowed(text);
        for mask in &self.0 {
            if text.contains(mask.as_str()) {
                text = Cow::Owned(text.replace(mask.as_str(), MASK));
            }
        }
        text
    }

    /// The text without the values, where it is the beginning of a longer one: a value may be cut by its end.
    fn hide_cut(&self, text: &str) -> String {
        let hidden = self.hide(text);
        let begins = |mask: &String| {
            let most = (mask.len() - 1).min(hidden.len());
            (LEAST / 2..=most).rev().find(|n| mask.is_char_boundary(*n) && hidden.ends_with(&mask[..*n]))
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

/// What stands in the place of byte `at` of a value of `length` bytes: [`MASK`] or as much of it as there is room
/// for, then stars. Every offset in a file stays what it was.
pub fn cover(at: usize, length: usize) -> u8 {
    const CHARACTER: usize = '•'.len_utf8();
    let whole = at / CHARACTER * CHARACTER + CHARACTER <= length;
    MASK.as_bytes().get(at).copied().filter(|_| whole).unwrap_or(b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;
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
    fn values_are_found_in_bytes_and_covered_at_their_length() {
        let masks = Masks::new(["hunter2hunter2", "2hunter2-and-more"]);
        let mut bytes = b"\xffa=hunter2hunter2-and-more, hunter2hunter2".to_vec();
        let found = masks.find(&bytes);
        assert_eq!(found, [3..26, 28..42]);
        for range in found {
            let (from, length) = (range.start, range.len());
            bytes[range].iter_mut().enumerate().for_each(|(at, byte)| *byte = cover(at, length));
            assert_eq!(&bytes[from..from + MASK.len()], MASK.as_bytes());
        }
        assert_eq!(String::from_utf8_lossy(&bytes[1..]), "a=•••**************, •••*****");
        let short: Vec<u8> = (0..8).map(|at| cover(at, 8)).collect();
        assert_eq!(String::from_utf8(short).unwrap(), "••**");
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
        let line = |text: &str, elided| LogLine {
            rank: Rank(0),
            stream: Stream::Stdout,
            offset: 0,
            text: text.to_owned(),
            elided,
            t: None,
        };
        let shown = |line| match masks.apply(Event::LogPrinted { line: Arc::new(line) }) {
            Event::LogPrinted { line } => line.text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(line("x hunter2hunter", 9)), "x •••");
        assert_eq!(shown(line("x hunter2hunter", 0)), "x hunter2hunter", "it is whole, and another word");
        assert_eq!(shown(line("x hunter2hunter2", 9)), "x •••");
        let unfinished = Event::LogUnfinished { line: Arc::new(line("x hunter2hunter", 0)) };
        let Event::LogUnfinished { line } = masks.apply(unfinished) else { panic!("another event") };
        assert_eq!(line.text, "x •••");
    }

    #[test]
    fn no_unfinished_row_shows_the_beginning_of_a_value() {
        let masks = Masks::new(["hunter2hunter2"]);
        let shown = |text: &str| {
            let line = LogLine {
                rank: Rank(0),
                stream: Stream::Stdout,
                offset: 0,
                text: text.to_owned(),
                elided: 0,
                t: None,
            };
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
