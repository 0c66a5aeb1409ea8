//! The newest lines of a run, of all its ranks in order of arrival. A rank that floods loses its own old lines, never the
//! last words of another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::{Envelope, Event};
use super::ids::Rank;
use super::log::{LogGap, LogLine};
use super::log_text::Style;
use super::log_text::level::Level;
use super::time::Stamp;

/// How many lines stay in memory; all are on disk.
pub const LOG_LINES: usize = 10_000;
/// How many bytes of text they may have.
pub const LOG_BYTES: usize = 8 << 20;
/// So many more may come before the surplus goes, all at once.
const SLACK: usize = LOG_LINES / 8;

/// A line with the time of its arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedLine {
    /// When.
    pub at: Stamp,
    /// The line.
    pub line: Arc<LogLine>,
    /// No rank printed it: it stands in the place of bytes that are missing, and says so.
    pub gap: bool,
    /// How serious it is, by its own words and those of the lines before it.
    pub level: Level,
    /// The style in which it begins: colours that an earlier line of its stream has not ended.
    pub style: Style,
}

impl LoggedLine {
    /// A line that a rank printed, seen alone: the lines before it may say more of its level.
    pub fn alone(at: Stamp, line: Arc<LogLine>) -> Self {
        let level = Level::of(&line.text);
        Self { at, line, gap: false, level, style: Style::default() }
    }

    /// The line that an envelope tells, seen alone, or the bytes that are missing; `None` where it tells something else.
    pub fn of(envelope: &Envelope) -> Option<Self> {
        match &envelope.event {
            Event::LogPrinted { line } => Some(Self::alone(envelope.at, Arc::clone(line))),
            Event::LogGap { gap } => Some(Self::of_gap(envelope.at, gap)),
            _ => None,
        }
    }

    /// The line that stands in the place of missing bytes.
    pub fn of_gap(at: Stamp, gap: &LogGap) -> Self {
        let LogGap { rank, stream, from: offset, .. } = *gap;
        let line = LogLine { rank, stream, offset, text: gap.describe(), elided: 0, t: None };
        Self { at, line: Arc::new(line), gap: true, level: Level::Warning, style: Style::default() }
    }
}

/// The lines that are kept, each with its number in the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLog {
    lines: VecDeque<(u64, Arc<LoggedLine>)>,
    count: u64,
    /// Bytes of the text of `lines`.
    bytes: usize,
}

impl RunLog {
    /// Takes the next line.
    pub(super) fn push(&mut self, line: Arc<LoggedLine>) {
        self.bytes += line.line.text.len();
        self.lines.push_back((self.count, line));
        self.count += 1;
        if self.lines.len() > LOG_LINES + SLACK {
            self.shrink(LOG_LINES, |_| 1);
        }
        if self.bytes > LOG_BYTES + LOG_BYTES / 8 {
            self.shrink(LOG_BYTES, |line| line.line.text.len());
        }
    }

    /// The lines that are kept, oldest first, each with its number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<LoggedLine>)> + Clone {
        self.lines.iter().map(|(number, line)| (*number, line))
    }

    /// The same up to the line of this number.
    pub fn until(&self, number: u64) -> impl DoubleEndedIterator<Item = (u64, &Arc<LoggedLine>)> {
        let end = self.lines.partition_point(|(other, _)| *other <= number);
        self.lines.range(..end).map(|(number, line)| (*number, line))
    }

    /// How many lines came in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many of them are on disk alone.
    pub fn forgotten(&self) -> u64 {
        self.count - self.lines.len() as u64
    }

    /// From the line of this number on all are kept.
    pub fn whole_from(&self) -> u64 {
        let newest_first = self.lines.iter().rev().zip(1..);
        let whole = newest_first.take_while(|((number, _), back)| number + back == self.count).count();
        self.count - whole as u64
    }

    /// Whether none has come.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Leaves each rank its newest lines, as many to each as there is room for, where each takes what `weigh` says.
    fn shrink(&mut self, room: usize, weigh: fn(&LoggedLine) -> usize) {
        let mut counts: BTreeMap<Rank, usize> = BTreeMap::new();
        for (_, line) in &self.lines {
            *counts.entry(line.line.rank).or_default() += weigh(line);
        }
        let most = fair_share(counts.values().copied(), room);
        if most == 0 {
            // more ranks than lines
            self.lines.drain(..self.lines.len() - LOG_LINES);
            self.bytes = self.lines.iter().map(|(_, line)| line.line.text.len()).sum();
            return;
        }
        let mut surplus = counts;
        for count in surplus.values_mut() {
            *count = count.saturating_sub(most);
        }
        self.lines.retain(|(_, line)| match surplus.get_mut(&line.line.rank) {
            Some(left) if *left > 0 => {
                *left = left.saturating_sub(weigh(line));
                false
            }
            _ => true,
        });
        self.bytes = self.lines.iter().map(|(_, line)| line.line.text.len()).sum();
    }
}

/// The most that each of some may keep of what it has, so that all together keep at most `room`.
fn fair_share(counts: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    let (mut room, mut share) = (room, usize::MAX);
    for (place, count) in counts.iter().enumerate() {
        share = room / (counts.len() - place);
        if *count > share {
            return share;
        }
        room -= count;
    }
    share.max(counts.last().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::log_line;
    use crate::domain::log::Stream;

    fn line(rank: u32, text: &str) -> Arc<LoggedLine> {
        let line = LogLine { stream: Stream::Stdout, ..log_line(rank, text) };
        Arc::new(LoggedLine::alone(Stamp(0), Arc::new(line)))
    }

    #[test]
    fn a_flood_of_one_rank_leaves_the_last_words_of_another() {
        let mut log = RunLog::default();
        log.push(line(1, "the only word of rank 1"));
        (0..5 * LOG_LINES).for_each(|number| log.push(line(0, &number.to_string())));
        let (number, first) = log.iter().next().unwrap();
        assert_eq!((number, first.line.text.as_str()), (0, "the only word of rank 1"));
        let (number, last) = log.iter().next_back().unwrap();
        assert_eq!((number, last.line.text.as_str()), (5 * LOG_LINES as u64, "49999"));
        let kept = log.iter().count();
        assert!((LOG_LINES..=LOG_LINES + SLACK).contains(&kept), "{kept}");
        assert_eq!(log.forgotten() + kept as u64, log.count());
        // the word of rank 1 stands before the hole
        assert_eq!(log.whole_from(), log.count() - (kept as u64 - 1));
        assert!(log.iter().zip(log.iter().skip(1)).all(|((a, _), (b, _))| a < b));
    }

    #[test]
    fn long_lines_take_no_more_than_their_room() {
        let mut log = RunLog::default();
        log.push(line(1, "the only word of rank 1"));
        (0..4000).for_each(|_| log.push(line(0, &"x".repeat(16 << 10))));
        let bytes: usize = log.iter().map(|(_, line)| line.line.text.len()).sum();
        assert!((LOG_BYTES / 2..=LOG_BYTES + LOG_BYTES / 8).contains(&bytes), "{bytes}");
        assert_eq!(log.bytes, bytes);
        assert_eq!(log.iter().next().unwrap().1.line.text, "the only word of rank 1");
    }

    #[test]
    fn who_has_little_keeps_it_and_the_others_share_what_is_left() {
        assert_eq!(fair_share([1, 100, 100].into_iter(), 101), 50);
        assert_eq!(fair_share([10, 10].into_iter(), 100), 90);
        assert_eq!(fair_share([70, 70].into_iter(), 100), 50);
        assert_eq!(fair_share([0; 0].into_iter(), 100), usize::MAX);
    }
}
