//! The last lines of a run, whose hosts send them each in its own order and at its own pace: those that were printed last.

use std::collections::BTreeMap;

use crate::domain::ids::Rank;
use crate::domain::log::{LogLine, Stream};
use crate::domain::time::Stamp;

/// Lines beyond twice what is wanted that may wait to be sorted.
const SLACK: usize = 1 << 16;
/// Bytes of such lines: a line has 16 KiB at most.
const SLACK_BYTES: usize = 32 << 20;

/// When a line was printed, by the client's clock; `None` where that is not known.
pub(super) type Date<'a> = &'a dyn Fn(&LogLine) -> Option<Stamp>;

/// So many lines of all that came.
#[derive(Debug)]
pub(super) struct LastLines {
    most: usize,
    /// As they came, behind those that were sorted already.
    lines: Vec<Held>,
    /// Bytes of those that came since.
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    line: LogLine,
    at: Stamp,
    /// Whether it was printed then; else it came then.
    is_dated: bool,
}

impl LastLines {
    pub(super) fn new(most: usize) -> Self {
        Self { most, lines: Vec::new(), bytes: 0 }
    }

    /// A line that came at a moment; without `date` it was printed then.
    pub(super) fn push(&mut self, line: LogLine, at: Stamp, date: Option<Date<'_>>) {
        self.bytes += line.text.len();
        self.lines.push(Held { line, at, is_dated: date.is_none() });
        let is_much = self.bytes > SLACK_BYTES && self.lines.len() > self.most;
        if is_much || self.lines.len() > self.most.saturating_mul(2).saturating_add(SLACK) {
            self.cut(date.unwrap_or(&|_| None));
        }
    }

    /// The last ones in the order in which they were printed.
    pub(super) fn into_lines(mut self, date: Date<'_>) -> impl Iterator<Item = LogLine> {
        self.cut(date);
        self.lines.into_iter().map(|held| held.line)
    }

    /// Sorts what came, and keeps the last. The lines of one stream stay in their order.
    fn cut(&mut self, date: Date<'_>) {
        let mut newest: BTreeMap<(Rank, Stream), Stamp> = BTreeMap::new();
        for held in &mut self.lines {
            let printed = if held.is_dated { None } else { date(&held.line) };
            let printed = printed.unwrap_or(held.at);
            let newest = newest.entry((held.line.rank, held.line.stream)).or_insert(printed);
            *newest = printed.max(*newest);
            (held.at, held.is_dated) = (*newest, true);
        }
        self.lines.sort_by_key(|held| held.at);
        let first = self.lines.len().saturating_sub(self.most);
        self.lines.drain(..first);
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;

    fn line(rank: u32, text: &str, t: Option<u64>) -> LogLine {
        let (rank, text, t) = (Rank(rank), text.to_owned(), t.map(HostTime));
        LogLine { rank, stream: Stream::Stdout, offset: 0, text, elided: 0, t }
    }

    /// The clock of the host of rank 1 is 100 behind, that of rank 2 is not known.
    fn date(line: &LogLine) -> Option<Stamp> {
        let ahead = *[0, 100].get(line.rank.0 as usize)?;
        Some(Stamp(line.t?.0 as i64 + ahead))
    }

    fn last(most: usize, lines: &[(u32, &str, u64)]) -> Vec<String> {
        let mut held = LastLines::new(most);
        for ((rank, text, t), at) in lines.iter().zip(1000..) {
            held.push(line(*rank, text, Some(*t)), Stamp(at), Some(&date));
        }
        held.into_lines(&date).map(|line| line.text).collect()
    }

    #[test]
    fn the_lines_of_several_hosts_stand_as_they_were_printed_whichever_host_comes_last() {
        let (a, b) = ([(0, "a1", 201), (0, "a2", 203)], [(1, "b1", 100), (1, "b2", 102), (1, "b3", 104)]);
        let first = [&a[..], &b].concat();
        let then = [&b[..], &a].concat();
        assert_eq!(last(4, &first), ["a1", "b2", "a2", "b3"]);
        assert_eq!(last(4, &then), last(4, &first));
        assert_eq!(last(1, &then), ["b3"]);
        assert_eq!(last(0, &then), [""; 0]);
        assert_eq!(
            last(9, &[(0, "a1", 50), (0, "a2", 40), (1, "b", 5)]),
            ["a1", "a2", "b"],
            "of one in its order"
        );
        assert_eq!(last(9, &[(2, "c", 7), (0, "a", 50)]), ["a", "c"], "of an unknown clock by its arrival");
    }

    #[test]
    fn what_is_recorded_has_its_moment() {
        let mut held = LastLines::new(2);
        held.push(line(0, "late", None), Stamp(30), None);
        held.push(line(1, "early", None), Stamp(10), None);
        held.push(line(1, "between", None), Stamp(20), None);
        let lines: Vec<String> = held.into_lines(&date).map(|line| line.text).collect();
        assert_eq!(lines, ["between", "late"]);
    }

    #[test]
    fn many_lines_do_not_all_stay() {
        let mut held = LastLines::new(3);
        for number in 0..2 * SLACK as u64 {
            held.push(line(0, &number.to_string(), Some(number)), Stamp(0), Some(&date));
            assert!(held.lines.len() <= SLACK + 6);
        }
        assert_eq!(held.into_lines(&date).last().map(|line| line.text), Some((2 * SLACK - 1).to_string()));
        let (mut held, text) = (LastLines::new(3), "x".repeat(1 << 20));
        for number in 0..100 {
            held.push(line(0, &text, Some(number)), Stamp(0), Some(&date));
            assert!(held.lines.len() <= (SLACK_BYTES >> 20) + 4, "long ones");
        }
        assert_eq!(held.into_lines(&date).count(), 3);
    }
}
