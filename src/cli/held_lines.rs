//! The lines of a run whose hosts send them each in its own order and at its own pace: as they were printed, as far as what may
//! wait tells it; all of them, or the last ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::ids::Rank;
use crate::domain::log::{LogLine, Stream};
use crate::domain::time::Stamp;

/// Lines beyond twice what is wanted that may wait to be sorted.
const SLACK: usize = 1 << 16;
/// Lines that may wait where all are wanted.
const WINDOW: usize = 1 << 18;
/// Bytes of such lines: a line has 16 KiB at most.
const SLACK_BYTES: usize = 32 << 20;

/// When a line was printed, by the client's clock; `None` where that is not known.
pub(super) type Date<'a> = &'a dyn Fn(&LogLine) -> Option<Stamp>;

/// Lines that wait for others that were printed before them.
#[derive(Debug)]
pub(super) struct HeldLines {
    /// How many are wanted, the last ones; `None`: all.
    most: Option<usize>,
    /// As they came, behind those that were sorted already.
    lines: Vec<Held>,
    /// Bytes of those that came since, and of all where all are wanted.
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    line: Arc<LogLine>,
    at: Stamp,
    /// Whether it was printed then; else it came then.
    is_dated: bool,
}

impl Held {
    fn stream(&self) -> (Rank, Stream) {
        (self.line.rank, self.line.stream)
    }
}

impl HeldLines {
    /// The last `most` of all that come, or all of them.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most, lines: Vec::new(), bytes: 0 }
    }

    /// A line that came at a moment; without `date` it was printed then. Where all are wanted, gives the oldest ones once more wait
    /// than may.
    pub(super) fn push(
        &mut self,
        line: Arc<LogLine>,
        at: Stamp,
        date: Option<Date<'_>>,
    ) -> Vec<Arc<LogLine>> {
        self.bytes += line.text.len();
        self.lines.push(Held { line, at, is_dated: date.is_none() });
        let count = self.lines.len();
        let is_much = match self.most {
            Some(most) => {
                (self.bytes > SLACK_BYTES && count > most)
                    || count > most.saturating_mul(2).saturating_add(SLACK)
            }
            None => self.bytes > SLACK_BYTES || count > WINDOW,
        };
        if !is_much {
            return Vec::new();
        }
        self.sort(date.unwrap_or(&|_| None));
        if self.most.is_some() {
            self.cut();
            return Vec::new();
        }
        let older: Vec<_> = self.lines.drain(..count.div_ceil(2)).map(|held| held.line).collect();
        self.bytes = self.lines.iter().map(|held| held.line.text.len()).sum();
        older
    }

    /// What waits, in the order in which it was printed.
    pub(super) fn into_lines(mut self, date: Date<'_>) -> impl Iterator<Item = Arc<LogLine>> {
        self.sort(date);
        self.cut();
        self.lines.into_iter().map(|held| held.line)
    }

    /// Sorts what came. The lines of one stream stay in their order, and one of which no time is known was printed before the next
    /// one that has a time.
    fn sort(&mut self, date: Date<'_>) {
        let mut next: BTreeMap<(Rank, Stream), Stamp> = BTreeMap::new();
        for held in self.lines.iter_mut().rev() {
            if !held.is_dated {
                let behind = next.get(&held.stream()).map_or(held.at, |next| held.at.min(*next));
                (held.at, held.is_dated) = (date(&held.line).unwrap_or(behind), true);
            }
            next.insert(held.stream(), held.at);
        }
        let mut newest: BTreeMap<(Rank, Stream), Stamp> = BTreeMap::new();
        for held in &mut self.lines {
            let newest = newest.entry(held.stream()).or_insert(held.at);
            *newest = held.at.max(*newest);
            held.at = *newest;
        }
        self.lines.sort_by_key(|held| held.at);
    }

    /// Keeps the last ones, where no more are wanted.
    fn cut(&mut self) {
        let Some(most) = self.most else { return };
        let first = self.lines.len().saturating_sub(most);
        self.lines.drain(..first);
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;

    fn line(rank: u32, text: &str, t: Option<u64>) -> Arc<LogLine> {
        let (rank, text, t) = (Rank(rank), text.to_owned(), t.map(HostTime));
        Arc::new(LogLine { rank, stream: Stream::Stdout, offset: 0, text, elided: 0, t })
    }

    /// The clock of the host of rank 1 is 100 behind, that of rank 2 is not known.
    fn date(line: &LogLine) -> Option<Stamp> {
        let ahead = *[0, 100].get(line.rank.0 as usize)?;
        Some(Stamp(line.t?.0 as i64 + ahead))
    }

    fn texts(held: HeldLines) -> Vec<String> {
        held.into_lines(&date).map(|line| line.text.clone()).collect()
    }

    fn last(most: usize, lines: &[(u32, &str, u64)]) -> Vec<String> {
        let mut held = HeldLines::new(Some(most));
        for ((rank, text, t), at) in lines.iter().zip(1000..) {
            assert!(held.push(line(*rank, text, Some(*t)), Stamp(at), Some(&date)).is_empty());
        }
        texts(held)
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
        let mut held = HeldLines::new(Some(2));
        held.push(line(0, "late", None), Stamp(30), None);
        held.push(line(1, "early", None), Stamp(10), None);
        held.push(line(1, "between", None), Stamp(20), None);
        assert_eq!(texts(held), ["between", "late"]);
    }

    #[test]
    fn many_lines_do_not_all_stay() {
        let mut held = HeldLines::new(Some(3));
        for number in 0..2 * SLACK as u64 {
            held.push(line(0, &number.to_string(), Some(number)), Stamp(0), Some(&date));
            assert!(held.lines.len() <= SLACK + 6);
        }
        assert_eq!(texts(held).last(), Some(&(2 * SLACK - 1).to_string()));
        let (mut held, text) = (HeldLines::new(Some(3)), "x".repeat(1 << 20));
        for number in 0..100 {
            held.push(line(0, &text, Some(number)), Stamp(0), Some(&date));
            assert!(held.lines.len() <= (SLACK_BYTES >> 20) + 4, "long ones");
        }
        assert_eq!(held.into_lines(&date).count(), 3);
    }

    #[test]
    fn all_lines_come_in_the_order_in_which_they_were_printed() {
        let mut held = HeldLines::new(None);
        for (rank, text, t) in [(1, "b1", 3), (1, "b2", 5), (0, "a1", 101), (0, "a2", 104), (0, "a3", 107)] {
            assert!(held.push(line(rank, text, Some(t)), Stamp(1000), Some(&date)).is_empty());
        }
        assert_eq!(texts(held), ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_line_without_a_time_stands_before_the_next_one_of_its_stream() {
        let mut held = HeldLines::new(None);
        held.push(line(0, "unknown", None), Stamp(1000), Some(&date));
        held.push(line(0, "known", Some(20)), Stamp(1000), Some(&date));
        held.push(line(0, "newest", None), Stamp(1000), Some(&date));
        held.push(line(1, "other", Some(0)), Stamp(1000), Some(&date));
        assert_eq!(texts(held), ["unknown", "known", "other", "newest"]);
    }

    #[test]
    fn where_more_wait_than_may_the_oldest_go_and_none_is_lost() {
        let (mut held, mut told) = (HeldLines::new(None), Vec::new());
        let count = WINDOW as u64 + 1;
        // two hosts, one of them behind by a thousand lines
        for number in 0..count {
            let (rank, t) = if number % 2 == 0 { (0, 5_000 + number) } else { (1, 3_900 + number) };
            told.extend(held.push(line(rank, &number.to_string(), Some(t)), Stamp(0), Some(&date)));
            assert!(held.lines.len() <= WINDOW);
        }
        assert_eq!(told.len(), WINDOW / 2 + 1);
        told.extend(held.into_lines(&date));
        assert!(told.is_sorted_by_key(|line| date(line)));
        assert_eq!(told.len() as u64, count);
        let (mut held, text) = (HeldLines::new(None), "x".repeat(1 << 20));
        for number in 0..100 {
            held.push(line(0, &text, Some(number)), Stamp(0), Some(&date));
            assert!(held.lines.len() <= (SLACK_BYTES >> 20) + 1, "long ones");
        }
    }
}
