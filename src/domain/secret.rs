//! Values that nobody may see: what stands in their place, and how they are found in text. Pure.
//!
//! A secret variable is written `NAME=•••` wherever a run is described; its value is held apart and goes to the
//! hosts with the order to start, for the ranks' environment alone.

use std::borrow::Cow;

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
            Event::LogPrinted { line } if line.elided > 0 => line.text = self.hide_cut(&line.text),
            Event::LogPrinted { line } => hide(&mut line.text),
            Event::Gap { what, .. } => hide(what),
            Event::JobDescribed { job, transport, .. } => {
                hide(job);
                transport.iter_mut().for_each(hide);
            }
            Event::MetricReported { name, .. } => hide(name),
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
    fn a_line_that_was_cut_within_a_value_does_not_show_its_beginning() {
        let masks = Masks::new(["hunter2hunter2"]);
        let line = |text: &str, elided| LogLine {
            rank: Rank(0),
            stream: Stream::Stdout,
            offset: 0,
            text: text.to_owned(),
            elided,
        };
        let shown = |line| match masks.apply(Event::LogPrinted { line }) {
            Event::LogPrinted { line } => line.text,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(line("x hunter2hunter", 9)), "x •••");
        assert_eq!(shown(line("x hunter2hunter", 0)), "x hunter2hunter", "it is whole, and another word");
        assert_eq!(shown(line("x hunter2hunter2", 9)), "x •••");
    }
}
