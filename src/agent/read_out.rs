//! Ranks that have ended and whose output is still being read: told now and then, where that takes long.

use super::tail::Tail;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::note::{Note, what};
use crate::domain::time::HostTime;
use crate::domain::units::{bytes, ranges};
use crate::supervise::rundir::RunDir;
use crate::wire::message::{Noted, RunRef};

/// How long it may take before it is told, and between two notes, microseconds.
const PATIENCE_US: u64 = 2_000_000;
const AGAIN_US: u64 = 10_000_000;

/// When it is to be told.
#[derive(Debug, Default)]
pub(super) struct ReadOut {
    due: Option<HostTime>,
}

impl ReadOut {
    /// Looks at the ranks that have ended and are not told yet: for each the bytes that it printed and that are not read, and all of
    /// them. What is to be said of them now.
    pub(super) fn look(
        &mut self,
        about: &RunRef,
        unread: impl Iterator<Item = (Rank, u64, u64)>,
        now: HostTime,
    ) -> Option<Noted> {
        let unread: Vec<_> = unread.filter(|(_, left, _)| *left > 0).collect();
        if unread.is_empty() {
            self.due = None;
            return None;
        }
        let due = *self.due.get_or_insert(HostTime(now.0 + PATIENCE_US));
        if now < due {
            return None;
        }
        self.due = Some(HostTime(now.0 + AGAIN_US));
        let (rank, have) = if unread.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        let ranks = ranges(unread.iter().map(|(rank, ..)| rank.0));
        let left: u64 = unread.iter().map(|(_, left, _)| left).sum();
        let all: u64 = unread.iter().map(|(.., all)| all).sum();
        let text = format!(
            "reading the remaining output of {rank} {ranks}, which {have} ended: {} of {} left",
            bytes(left),
            bytes(all)
        );
        let note = Note { count: left, ..Note::new(what::READING, text, now) };
        Some(Noted::of(about, Noted::UNNUMBERED, note))
    }
}

/// Of what a rank has printed: its rank, bytes that are not read yet, and all of them.
pub(super) fn unread(rank: Rank, files: &[Tail; 3], dir: &RunDir) -> (Rank, u64, u64) {
    let printed = files.iter().zip(Stream::ALL).filter(|(_, stream)| *stream != Stream::Report);
    let each = printed.map(|(file, _)| (file.behind(dir), file.offset()));
    each.fold((rank, 0, 0), |(rank, left, all), (behind, read)| {
        (rank, left + behind, read.saturating_add(behind).saturating_add(all))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn what_is_left_of_ended_ranks_is_told_after_a_while_and_now_and_then() {
        let mut read_out = ReadOut::default();
        let about = RunRef { run: RunId::new(1, 1), host: HostId::from("a") };
        let mut at = |ms: u64, unread: &[(u32, u64, u64)]| {
            let unread = unread.iter().map(|(rank, left, all)| (Rank(*rank), *left, *all));
            let told = read_out.look(&about, unread, HostTime(ms * 1000));
            told.map(|told| (told.note.text, told.note.count))
        };
        let one = [(0, 12 << 20, 16 << 20), (1, 0, 4)];
        assert_eq!(at(1000, &one), None);
        assert_eq!(at(2999, &one), None);
        let words = "reading the remaining output of rank 0, which has ended: 12 M of 16 M left".to_owned();
        assert_eq!(at(3000, &one), Some((words, 12 << 20)));
        assert_eq!(at(12_999, &one), None);
        let two = [(0, 1 << 20, 16 << 20), (1, 1 << 20, 16 << 20)];
        let (text, left) = at(13_000, &two).unwrap();
        assert!(text.starts_with("reading the remaining output of ranks 0-1, which have ended: "), "{text}");
        assert_eq!(left, 2 << 20);
        // what is read at once is no news, and the next one has its time again
        assert_eq!(at(30_000, &[(0, 0, 16 << 20)]), None);
        assert_eq!(at(30_001, &one), None);
    }
}
